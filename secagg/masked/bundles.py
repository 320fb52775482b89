"""Bundles: a message of the current sum of a series and one of the next set-up, in one frame.

The frame is signed, and so is each of its parts, since these belong to two sums whose sessions verify them separately.
"""

from __future__ import annotations

from secagg.errors import MalformedMessageError
from secagg.sessions import PartyId
from secagg.wire import HEADER_BYTES, PART_SIZE_BYTES, Frame, MessageType, Reader


def write_bundle(parts: list[bytes]) -> bytes:
    """Return the payload of a bundle of messages."""
    return b"".join(len(part).to_bytes(PART_SIZE_BYTES, "big") + part for part in parts)


def read_bundle(frame: Frame, *, peer: PartyId) -> list[bytes]:
    """Return the one or two messages of a bundle."""
    if frame.type is not MessageType.BUNDLE:
        raise MalformedMessageError(f"the messages of a series come in bundles, not as {frame.type.name}", peer=peer)
    reader, left = Reader(frame.payload, peer=peer), len(frame.payload)
    parts: list[bytes] = []
    while left and len(parts) < 2:
        size = int.from_bytes(reader.take(PART_SIZE_BYTES), "big")
        if size < HEADER_BYTES or size > left - PART_SIZE_BYTES:
            raise MalformedMessageError(f"a bundle of {len(frame.payload)} bytes claims a part of {size}", peer=peer)
        parts.append(reader.take(size))
        left -= PART_SIZE_BYTES + size
    reader.end()
    if not parts:
        raise MalformedMessageError("an empty bundle", peer=peer)
    return parts
