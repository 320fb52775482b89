"""The one door through which every party of every sum speaks and listens: it signs, and it checks signatures.

Where a sum has identities each message is signed by its sender over version, type, digest, sender, recipient and
payload (``seal_frame``), and none is looked into before that signature verifies. Ed25519, RFC 8032.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Protocol, cast

from secagg.config import SERVER
from secagg.primitives.identity import IdentityKey
from secagg.sessions import PartyId
from secagg.sums import DataFingerprints, PartySecrets, SumProtocol, Survivors
from secagg.wire import Frame, MessageType, message_type, open_frame, seal_frame


class Membership(Protocol):
    """What binds the messages of a session: a sum's parameters, or a series'."""

    def digest_of(self, type_: MessageType | None) -> bytes:
        """Return the digest in the header of messages of a type."""
        ...

    def identity_of(self, party: PartyId) -> bytes:
        """Return the Ed25519 public key of a party; empty where nobody signs, and for strangers."""
        ...

    def signer(self, party: PartyId, secrets: PartySecrets) -> IdentityKey | None:
        """Return the signing key of a party; None where nobody signs."""
        ...


class Party:
    """Any side of a session.

    Args:
        config: what its messages are bound to.
        party: its number.
        secrets: its signing key, where there are identities, and whom it asks before a total is made with it.

    Raises:
        ConfigurationError: the signing key is missing, another one, or serves no purpose.
    """

    def __init__(self, config: Membership, party: PartyId, secrets: PartySecrets) -> None:
        self.party = party
        self._config = config
        self._identity, self._consent = config.signer(party, secrets), secrets.consent

    def _seal_message(
        self, type_: MessageType, payload: bytes, recipient: PartyId = SERVER, *, vector: Sequence[memoryview] = ()
    ) -> bytes:
        """Return a message, signed where there are identities; a vector ends its payload."""
        return seal_frame(
            type_,
            payload,
            digest=self._config.digest_of(type_),
            sender=self.party,
            recipient=recipient,
            identity=self._identity,
            vector=vector,
        )

    def _ask_consent(self, survivors: Survivors | None, rows: DataFingerprints = MappingProxyType({})) -> None:
        """Ask for the consent to a total of these rows.

        Raises:
            ConsentRefusedError: it is refused.
        """
        if self._consent is not None:
            self._consent(cast(SumProtocol, self._config), survivors, rows)

    def _open_message(self, message: bytes, sender: PartyId = SERVER) -> Frame:
        """Return what a message says.

        Raises:
            MalformedMessageError: it belongs to another session, or its sender did not sign it.
        """
        return open_frame(
            message,
            digest=self._config.digest_of(message_type(message)),
            sender=sender,
            recipient=self.party,
            public=self._config.identity_of(sender),
        )
