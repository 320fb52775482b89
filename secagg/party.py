"""Base class of all parties: it signs outgoing messages and verifies the signatures of incoming ones.

With identities each message is signed by its sender over version, type, digest, sender, recipient and payload
(``seal_frame``), and no payload is parsed before its signature verifies. Ed25519, RFC 8032.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Protocol, cast

from secagg.config import SERVER
from secagg.errors import LocalProtocolError
from secagg.primitives.identity import IdentityKey
from secagg.sessions import PartyId
from secagg.sums import DataFingerprints, PartySecrets, SumProtocol, Survivors
from secagg.wire import Frame, MessageType, message_type, open_frame, seal_frame


class Membership(Protocol):
    """Interface of the parameters that messages are bound to: those of a sum or of a series."""

    def digest_of(self, type_: MessageType | None) -> bytes:
        """Return the digest in the header of messages of a type."""
        ...

    def identity_of(self, party: PartyId) -> bytes:
        """Return the Ed25519 public key of a party; empty without identities, and for unknown parties."""
        ...

    def signer(self, party: PartyId, secrets: PartySecrets) -> IdentityKey | None:
        """Return the signing key of a party; None without identities."""
        ...


class Party:
    """One side of a session.

    Args:
        config: parameters that its messages are bound to.
        party: its number.
        secrets: its signing key, with identities, and its approval callback.

    Raises:
        ConfigurationError: the signing key is missing, does not match the roster, or is given without identities.
    """

    def __init__(self, config: Membership, party: PartyId, secrets: PartySecrets) -> None:
        self.party = party
        self._config = config
        self._identity, self._consent = config.signer(party, secrets), secrets.consent

    def _seal_message(
        self,
        type_: MessageType,
        payload: bytes,
        recipient: PartyId = SERVER,
        *,
        vector: Iterable[bytes | memoryview] = (),
    ) -> bytes:
        """Return a message, signed with identities. ``vector`` is the end of its payload."""
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
        """Call the party's approval callback.

        Raises:
            ConsentRefusedError: the party refuses this total.
        """
        if self._consent is not None:
            self._consent(cast(SumProtocol, self._config), survivors, rows)

    def _open_message(self, message: bytes, sender: PartyId = SERVER) -> Frame:
        """Verify a message and return its frame.

        Raises:
            LocalProtocolError: ``sender`` is no plain int, or ``message`` no bytes: the caller's mistake.
            MalformedMessageError: it belongs to another session, or its signature is not valid.
        """
        if type(sender) is not int:
            raise LocalProtocolError(f"sender is a party's number, a plain int such as 1, not {type(sender).__name__}")
        if not isinstance(message, bytes | bytearray | memoryview):
            raise LocalProtocolError(f"a message is bytes, not {type(message).__name__}")
        return open_frame(
            message,
            digest=self._config.digest_of(message_type(message)),
            sender=sender,
            recipient=self.party,
            public=self._config.identity_of(sender),
        )
