"""What travels in a series: the messages of one sum and of the next one's set-up, in one frame."""

from __future__ import annotations

from secagg.errors import MalformedMessageError
from secagg.sessions import PartyId
from secagg.wire import HEADER_BYTES, PART_SIZE_BYTES, MessageType, Reader, open_frame, seal_frame


def seal_bundle(parts: list[bytes], *, digest: bytes, sender: PartyId, recipient: PartyId) -> bytes:
    """One frame of messages."""
    payload = b"".join(len(part).to_bytes(PART_SIZE_BYTES, "big") + part for part in parts)
    return seal_frame(MessageType.BUNDLE, payload, digest=digest, sender=sender, recipient=recipient)


def open_bundle(message: bytes, *, digest: bytes, sender: PartyId, recipient: PartyId) -> list[bytes]:
    """One or two messages; a bundle never holds more."""
    frame = open_frame(message, digest=digest, sender=sender, recipient=recipient)
    if frame.type is not MessageType.BUNDLE:
        raise MalformedMessageError(f"the messages of a series come in bundles, not as {frame.type.name}", peer=sender)
    reader, left = Reader(frame.payload, peer=sender), len(frame.payload)
    parts: list[bytes] = []
    while left and len(parts) < 2:
        size = int.from_bytes(reader.take(PART_SIZE_BYTES), "big")
        if size < HEADER_BYTES or size > left - PART_SIZE_BYTES:
            raise MalformedMessageError(f"a bundle of {len(frame.payload)} bytes claims a part of {size}", peer=sender)
        parts.append(reader.take(size))
        left -= PART_SIZE_BYTES + size
    reader.end()
    if not parts:
        raise MalformedMessageError("an empty bundle", peer=sender)
    return parts
