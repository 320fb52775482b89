"""One-shot clients: each sends one message, with its vector, and is asked nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

from secagg.config import SERVER
from secagg.contribution import check_now, resolve
from secagg.entropy import Entropy, os_entropy
from secagg.errors import LocalProtocolError, RemoteProtocolError
from secagg.party import Party
from secagg.ring import RingVector
from secagg.sessions import Contribution, PartyId
from secagg.snapshots import CLIENT, Stored, binding
from secagg.sums import PartySecrets


@dataclasses.dataclass(slots=True, kw_only=True)
class Spoken:
    """The state of a party that speaks once."""

    has_spoken: bool = False


class OneShotClient(Party, Stored[Spoken]):
    """Base class of one-shot clients."""

    _config: Any

    def __init__(
        self,
        config: Any,
        party: PartyId,
        contribution: Contribution,
        *,
        secrets: PartySecrets,
        entropy: Entropy = os_entropy,
    ) -> None:
        config.index(party)
        check_now(config.layout, contribution, len(config.clients))
        Party.__init__(self, config, party, secrets)
        self._contribution: Contribution | None = contribution
        self._rows, self._entropy, self._kept = secrets.rows, entropy, Spoken()

    @property
    def bound_to(self) -> bytes:
        """What ties a stored session to this one."""
        return binding(CLIENT, self._config.digest, self.party)

    def restore(self, snapshot: bytes) -> None:
        """Go where the snapshot says; a vector that was sent is not kept any longer."""
        Stored.restore(self, snapshot)
        if self._kept.has_spoken:
            self._contribution = None

    def receive(self, message: bytes) -> bytes | None:
        """Refuse everything."""
        raise RemoteProtocolError("in this sum the server asks clients nothing", peer=SERVER)

    def _vector(self) -> RingVector:
        if self._kept.has_spoken or self._contribution is None:
            raise LocalProtocolError("this client has sent its vector; one session sends one vector, once")
        layout = self._config.layout
        return RingVector.encode(layout, resolve(layout, self._contribution, len(self._config.clients)))

    def _spoke(self) -> None:
        self._kept.has_spoken, self._contribution = True, None
