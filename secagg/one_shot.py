"""One-shot clients: each sends one message with its vector and receives none."""

from __future__ import annotations

import dataclasses
from typing import Any

from secagg.client_input import check_now, resolve
from secagg.config import SERVER
from secagg.entropy import Entropy, os_entropy
from secagg.errors import LocalProtocolError, RemoteProtocolError
from secagg.party import Party
from secagg.ring import ClientVector
from secagg.sessions import ClientInput, PartyId
from secagg.snapshots import CLIENT, Stored, binding
from secagg.sums import PartySecrets


@dataclasses.dataclass(slots=True, kw_only=True)
class OneShotState:
    """State of a one-shot client."""

    has_sent: bool = False


class OneShotClient(Party, Stored[OneShotState]):
    """Base class of one-shot clients."""

    _config: Any

    def __init__(
        self,
        config: Any,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets,
        entropy: Entropy = os_entropy,
    ) -> None:
        config.index(party)
        check_now(config.layout, client_input, len(config.clients))
        Party.__init__(self, config, party, secrets)
        self._client_input: ClientInput | None = client_input
        self._rows, self._entropy, self._kept = secrets.data_fingerprint, entropy, OneShotState()

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored."""
        return binding(CLIENT, self._config.digest, self.party)

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of a snapshot; a vector that was sent is erased."""
        Stored.restore(self, snapshot)
        if self._kept.has_sent:
            self._client_input = None

    def receive(self, message: bytes) -> bytes | None:
        """Refuse every message."""
        raise RemoteProtocolError("in this sum the server asks clients nothing", peer=SERVER)

    def _vector(self) -> ClientVector:
        if self._kept.has_sent or self._client_input is None:
            raise LocalProtocolError("this client has sent its vector; one session sends one vector, once")
        return resolve(self._config.layout, self._client_input, len(self._config.clients))

    def _mark_sent(self) -> None:
        self._kept.has_sent, self._client_input = True, None
