"""The frame of every message, and a reader that refuses whatever is not exactly one message.

    magic 4 | version 1 | type 1 | digest 32 | sender 4 | recipient 4 | signature's length 1 | payload | signature

Numbers are big-endian, vectors little-endian. The server's number is 0. Where a sum has identities every message ends
in its sender's Ed25519 signature over all that stands before it; elsewhere none does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from secagg.errors import MalformedMessageError
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey, statement, verifies
from secagg.sessions import PartyId

MAGIC = b"SAGG"
VERSION = 5
"""1 signed some messages, each in its own way; in 2 all helpers had to answer, and nobody signed whom it masked with;
in 3 helpers' keys lasted for good; in 4 no helper signed that a sum failed. Messages of all are refused."""
HEADER_BYTES = 47
_LABEL = "message"
PART_SIZE_BYTES = 8
"""The length before each message of a bundle."""
MAX_ENTRIES = 2**20
"""As many as a cohort can have clients."""


class MessageType(IntEnum):
    """What a message says."""

    PLAIN_INPUT = 1
    ADVERTISED_KEYS = 16
    ROSTER = 17
    SEALED_SHARES = 18
    SHARE_DELIVERY = 19
    MASKED_INPUT = 20
    UNMASK_REQUEST = 21
    UNMASK_SHARES = 22
    SURVIVOR_SIGNATURE = 23
    SURVIVOR_PROOF = 24
    COMMITTEE_INPUT = 32
    SEED_DELIVERY = 33
    SEED_COMPLAINTS = 34
    SURVIVOR_SET = 35
    SET_SIGNATURE = 36
    SET_CERTIFICATE = 37
    SUM_HASHES = 38
    MASK_REQUEST = 39
    MASK_SUM = 41
    BUNDLE = 40
    ENCRYPTED_INPUT = 48
    DECRYPTION_REQUEST = 49
    DECRYPTED_SUM = 50
    PRESENCE = 56
    COUNTERSIGN_REQUEST = 64
    COUNTERSIGNATURE = 65
    RECEIPT = 66


CARRIES_VECTOR = frozenset(
    {MessageType.PLAIN_INPUT, MessageType.MASKED_INPUT, MessageType.COMMITTEE_INPUT, MessageType.ENCRYPTED_INPUT}
)
"""A client's heavy messages: those whose size grows with the vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """An opened message whose session, sender and recipient were checked."""

    type: MessageType
    payload: memoryview
    signature: bytes = b""


def seal_frame(
    type_: MessageType,
    payload: bytes,
    *,
    digest: bytes,
    sender: PartyId,
    recipient: PartyId,
    identity: IdentityKey | None = None,
    vector: Sequence[memoryview] = (),
) -> bytes:
    """The bytes of one message, signed by its sender's ``identity`` where it has one.

    ``vector`` ends the payload. It comes apart, and in parts, so that megabytes are copied once.
    """
    header = _header(type_, digest, sender, recipient, SIGNATURE_BYTES if identity else 0)
    signature = identity.sign(_LABEL, *_said(header, payload, *vector)) if identity else b""
    return b"".join((header, payload, *vector, signature))


def signed_statement(
    type_: MessageType, payload: bytes, *, digest: bytes, sender: PartyId, recipient: PartyId
) -> bytes:
    """What the signature of such a message is over, for whom it is passed on to."""
    return statement(_LABEL, *_said(_header(type_, digest, sender, recipient, SIGNATURE_BYTES), payload))


def _header(type_: MessageType, digest: bytes, sender: PartyId, recipient: PartyId, signature_bytes: int) -> bytes:
    parties = sender.to_bytes(4, "big") + recipient.to_bytes(4, "big")
    return MAGIC + bytes([VERSION, type_]) + digest + parties + bytes([signature_bytes])


def _said(header: bytes | memoryview, *payload: bytes | memoryview) -> tuple[bytes, bytes]:
    hashed = hashlib.sha256()
    for part in payload:
        hashed.update(part)
    return bytes(header), hashed.digest()


def open_frame(message: bytes, *, digest: bytes, sender: PartyId, recipient: PartyId, public: bytes = b"") -> Frame:
    """The frame of a message that belongs here.

    Args:
        message: what came.
        digest: of this session.
        sender: who is said to have sent it.
        recipient: who it came to.
        public: the sender's Ed25519 public key; empty in a session without identities.

    Raises:
        MalformedMessageError: no message of this version, of another session or configuration, between others, or not
            signed by its sender.
    """
    if len(message) < HEADER_BYTES or message[:4] != MAGIC:
        raise MalformedMessageError(f"these {len(message)} bytes are no message of this protocol", peer=sender)
    if message[4] != VERSION:
        raise MalformedMessageError(
            f"this side speaks version {VERSION} of the message format, the message has version {message[4]}; "
            "install the same version of the library on both sides",
            peer=sender,
        )
    type_ = message_type(message)
    if type_ is None:
        raise MalformedMessageError(f"message type {message[5]} does not exist in version {VERSION}", peer=sender)
    if digest_in(message) != digest:
        raise MalformedMessageError(
            f"this {type_.name} belongs to another session or another configuration; check that both sides agree on "
            "session id, cohort, layout, threshold and on everything that clients received",
            peer=sender,
        )
    came_from, sent_to = int.from_bytes(message[38:42], "big"), int.from_bytes(message[42:46], "big")
    if (came_from, sent_to) != (sender, recipient):
        raise MalformedMessageError(
            f"this {type_.name} says it goes from {came_from} to {sent_to}, but it came from {sender} to {recipient}",
            peer=sender,
        )
    return _checked(type_, message, sender, public)


def _checked(type_: MessageType, message: bytes, sender: PartyId, public: bytes) -> Frame:
    """The frame, if it is signed where it must be, and nowhere else."""
    needed, came = SIGNATURE_BYTES if public else 0, message[HEADER_BYTES - 1]
    if came != needed or len(message) < HEADER_BYTES + needed:
        raise MalformedMessageError(
            f"a {type_.name} of this party ends in a signature of {needed} bytes, this one in one of {came}; both "
            "sides need the same roster of identities, or none",
            peer=sender,
        )
    whole = memoryview(message)
    payload, signature = whole[HEADER_BYTES : len(whole) - needed], bytes(whole[len(whole) - needed :])
    if public and not verifies(public, signature, statement(_LABEL, *_said(whole[:HEADER_BYTES], payload))):
        raise MalformedMessageError(
            f"this {type_.name} is not signed by the identity of its sender: it was changed on the way, or somebody "
            "else made it",
            peer=sender,
        )
    return Frame(type=type_, payload=payload, signature=signature)


def payload_of(message: bytes) -> bytes:
    """What stands between a framed message's header and its signature."""
    return message[HEADER_BYTES : len(message) - message[HEADER_BYTES - 1]]


def message_type(message: bytes) -> MessageType | None:
    """What a framed message says it is; None for an unknown type or too few bytes."""
    try:
        return MessageType(message[5])
    except (IndexError, ValueError):
        return None


def digest_in(message: bytes) -> bytes:
    """The digest of the session that a framed message says it belongs to."""
    return message[6:38]


def sender_of(message: bytes) -> PartyId:
    """Who a framed message says that it comes from."""
    return int.from_bytes(message[38:42], "big")


def carries_vector(message: bytes) -> bool:
    """Whether a framed message brings a client's vector, on its own or first in a bundle."""
    if message_type(message) is MessageType.BUNDLE:
        message = message[HEADER_BYTES + PART_SIZE_BYTES :]
    return message_type(message) in CARRIES_VECTOR


class Reader:
    """Takes a payload apart from front to back; what does not fit is a ``MalformedMessageError``.

    Args:
        payload: what a frame holds.
        peer: who sent it, for the error.
        max_entries: how many entries a list can have here; longer ones are refused before any entry is read.
    """

    def __init__(self, payload: memoryview, *, peer: PartyId, max_entries: int = MAX_ENTRIES) -> None:
        self._payload, self._peer, self._max_entries = payload, peer, max_entries

    def take(self, n_bytes: int) -> bytes:
        """The next ``n_bytes``."""
        if len(self._payload) < n_bytes:
            raise MalformedMessageError(f"the message ends {n_bytes - len(self._payload)} bytes early", peer=self._peer)
        taken, self._payload = bytes(self._payload[:n_bytes]), self._payload[n_bytes:]
        return taken

    def number(self) -> int:
        """The next four bytes as a number."""
        return int.from_bytes(self.take(4), "big")

    def entries(self, n_bytes: int) -> dict[PartyId, bytes]:
        """A counted list of (party, ``n_bytes``), strictly ascending by party, as a dictionary."""
        count = self.number()
        if count > self._max_entries:
            raise MalformedMessageError(
                f"a list in this session has at most {self._max_entries} entries, this one claims {count}",
                peer=self._peer,
            )
        if len(self._payload) < count * (4 + n_bytes):
            raise MalformedMessageError(f"the message ends before its {count} entries do", peer=self._peer)
        entries: dict[PartyId, bytes] = {}
        last = -1
        for _ in range(count):
            party = self.number()
            if party <= last:
                raise MalformedMessageError(
                    f"entries must ascend by party without repeats; {party} came after {last}", peer=self._peer
                )
            entries[party] = self.take(n_bytes)
            last = party
        return entries

    def rest(self) -> bytes:
        """All bytes that are left."""
        return self.take(len(self._payload))

    def end(self) -> None:
        """Check that nothing is left over."""
        if len(self._payload):
            raise MalformedMessageError(f"the message has {len(self._payload)} bytes too many", peer=self._peer)


def write_entries(entries: dict[PartyId, bytes]) -> bytes:
    """The bytes that ``Reader.entries`` reads."""
    return len(entries).to_bytes(4, "big") + b"".join(
        party.to_bytes(4, "big") + entries[party] for party in sorted(entries)
    )


def write_parties(parties: Iterable[PartyId]) -> bytes:
    """A counted, ascending list of parties: entries without content."""
    return write_entries(dict.fromkeys(parties, b""))
