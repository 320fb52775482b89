"""The frame of every message, and a strict reader of payloads.

    magic 4 | version 1 | type 1 | digest 32 | sender 4 | recipient 4 | signature's length 1 | payload | signature

Numbers are big-endian, vectors little-endian. The server's number is 0. With identities every message ends in its
sender's Ed25519 signature over all bytes before it; without identities no message is signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain

from secagg.encoding import joined
from secagg.errors import MalformedMessageError
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey, statement, verifies
from secagg.sessions import PartyId

MAGIC = b"SAGG"
VERSION = 6
"""Version of the frames; messages of other versions are refused. 1 signed some messages only; in 2 all helpers had to
answer, and clients did not sign their masking peers; in 3 helpers' keys did not rotate; in 4 failures had no proof; in
5 each segment had a mask stream of its own."""
HEADER_BYTES = 47
_LABEL = "message"
PART_SIZE_BYTES = 8
"""Length of the size before each message of a bundle."""
MAX_ENTRIES = 2**20
"""Largest number of entries of a list: the largest cohort."""


class MessageType(IntEnum):
    """Type of a message, one byte on the wire."""

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
"""Types of the messages that contain a client's vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A verified message: session, sender, recipient and signature were checked."""

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
    vector: Iterable[bytes | memoryview] = (),
) -> bytes:
    """Return the bytes of one message, signed with ``identity`` if given.

    ``vector`` is the end of the payload. Its parts are made one at a time, and only the message holds them all.
    """
    header = _header(type_, digest, sender, recipient, SIGNATURE_BYTES if identity else 0)
    return joined(_signed(header, chain([payload], vector), identity))


def _signed(
    header: bytes, payload: Iterable[bytes | memoryview], identity: IdentityKey | None
) -> Iterator[bytes | memoryview]:
    """Yield the parts of a message; the signature is of the header and the payload's hash."""
    hashed = hashlib.sha256()
    yield header
    for part in payload:
        if identity is not None:
            hashed.update(part)
        yield part
    if identity is not None:
        yield identity.sign(_LABEL, header, hashed.digest())


def signed_statement(
    type_: MessageType, payload: bytes, *, digest: bytes, sender: PartyId, recipient: PartyId
) -> bytes:
    """Return the bytes that the signature of such a message covers, for parties that receive the signature alone."""
    return statement(_LABEL, *_said(_header(type_, digest, sender, recipient, SIGNATURE_BYTES), payload))


def _header(type_: MessageType, digest: bytes, sender: PartyId, recipient: PartyId, signature_bytes: int) -> bytes:
    parties = sender.to_bytes(4, "big") + recipient.to_bytes(4, "big")
    return MAGIC + bytes([VERSION, type_]) + digest + parties + bytes([signature_bytes])


def _said(header: bytes | memoryview, payload: bytes | memoryview) -> tuple[bytes, bytes]:
    return bytes(header), hashlib.sha256(payload).digest()


def open_frame(message: bytes, *, digest: bytes, sender: PartyId, recipient: PartyId, public: bytes = b"") -> Frame:
    """Verify a message and return its frame.

    Args:
        message: the received bytes.
        digest: digest of this session.
        sender: the party that it was received from.
        recipient: the party that received it.
        public: the sender's Ed25519 public key; empty in a session without identities.

    Raises:
        MalformedMessageError: the message is of another version, session, configuration, sender or recipient, or its
            signature is not valid.
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
    """Return the frame after verifying that a signature is present exactly with identities, and valid."""
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
    """Return the bytes between the header and the signature of a message."""
    return message[HEADER_BYTES : len(message) - message[HEADER_BYTES - 1]]


def message_type(message: bytes) -> MessageType | None:
    """Return the type in the header of a message; None for an unknown type or too few bytes."""
    try:
        return MessageType(message[5])
    except (IndexError, ValueError):
        return None


def digest_in(message: bytes) -> bytes:
    """Return the session digest in the header of a message."""
    return message[6:38]


def sender_of(message: bytes) -> PartyId:
    """Return the sender in the header of a message."""
    return int.from_bytes(message[38:42], "big")


def carries_vector(message: bytes) -> bool:
    """Return whether a message contains a client's vector, alone or first in a bundle."""
    if message_type(message) is MessageType.BUNDLE:
        message = message[HEADER_BYTES + PART_SIZE_BYTES :]
    return message_type(message) in CARRIES_VECTOR


class Reader:
    """A parser of payloads, from front to back. Every violation raises ``MalformedMessageError``.

    Args:
        payload: payload of a frame.
        peer: its sender, for the error.
        max_entries: largest number of entries of a list; longer ones are refused before any entry is read.
    """

    def __init__(self, payload: memoryview, *, peer: PartyId, max_entries: int = MAX_ENTRIES) -> None:
        self._payload, self._peer, self._max_entries = payload, peer, max_entries

    def take(self, n_bytes: int) -> bytes:
        """Return the next ``n_bytes``."""
        return bytes(self.view(n_bytes))

    def view(self, n_bytes: int) -> memoryview:
        """Return the next ``n_bytes`` without a copy."""
        if len(self._payload) < n_bytes:
            raise MalformedMessageError(f"the message ends {n_bytes - len(self._payload)} bytes early", peer=self._peer)
        taken, self._payload = self._payload[:n_bytes], self._payload[n_bytes:]
        return taken

    def only(self, n_bytes: int) -> bytes:
        """Return ``n_bytes`` that must be all there are."""
        taken = self.take(n_bytes)
        self.end()
        return taken

    def number(self) -> int:
        """Return the next four bytes as a number."""
        return int.from_bytes(self.take(4), "big")

    def entries(self, n_bytes: int) -> dict[PartyId, bytes]:
        """Return a counted list of (party, ``n_bytes``), strictly ascending by party, as a dictionary."""
        return {party: bytes(entry) for party, entry in self._listed(n_bytes)}

    def entry_views(self, n_bytes: int) -> dict[PartyId, memoryview]:
        """Return such a list without a copy of its entries."""
        return dict(self._listed(n_bytes))

    def _listed(self, n_bytes: int) -> Iterator[tuple[PartyId, memoryview]]:
        count = self.number()
        if count > self._max_entries:
            raise MalformedMessageError(
                f"a list in this session has at most {self._max_entries} entries, this one claims {count}",
                peer=self._peer,
            )
        if len(self._payload) < count * (4 + n_bytes):
            raise MalformedMessageError(f"the message ends before its {count} entries do", peer=self._peer)
        last = -1
        for _ in range(count):
            party = self.number()
            if party <= last:
                raise MalformedMessageError(
                    f"entries must ascend by party without repeats; {party} came after {last}", peer=self._peer
                )
            yield party, self.view(n_bytes)
            last = party

    def rest(self) -> bytes:
        """Return all remaining bytes."""
        return bytes(self.rest_view())

    def rest_view(self) -> memoryview:
        """Return all remaining bytes without a copy."""
        return self.view(len(self._payload))

    def end(self) -> None:
        """Refuse remaining bytes."""
        if len(self._payload):
            raise MalformedMessageError(f"the message has {len(self._payload)} bytes too many", peer=self._peer)


def write_entries(entries: dict[PartyId, bytes]) -> bytes:
    """Return the encoding of entries; inverse of ``Reader.entries``."""
    return len(entries).to_bytes(4, "big") + b"".join(
        party.to_bytes(4, "big") + entries[party] for party in sorted(entries)
    )


def write_parties(parties: Iterable[PartyId]) -> bytes:
    """Return the encoding of a list of parties: entries without content."""
    return write_entries(dict.fromkeys(parties, b""))


def read_parties(reader: Reader) -> tuple[PartyId, ...]:
    """Parse a payload that is a list of parties; inverse of ``write_parties``."""
    parties = tuple(reader.entries(0))
    reader.end()
    return parties
