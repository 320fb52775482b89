"""Byte strings that no two different lists of parts share."""

from __future__ import annotations


def length_prefixed(*parts: bytes) -> bytes:
    """The parts, each after its length in eight big-endian bytes: one list of parts, one byte string."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def split_parts(data: bytes) -> list[bytes]:
    """The parts that ``length_prefixed`` joined.

    Raises:
        ValueError: it did not.
    """
    view, parts, place = memoryview(data), [], 0
    while place < len(data):
        end = place + 8 + int.from_bytes(view[place : place + 8], "big")
        if place + 8 > len(data) or end > len(data):
            raise ValueError("the last part is cut off")
        parts.append(bytes(view[place + 8 : end]))
        place = end
    return parts
