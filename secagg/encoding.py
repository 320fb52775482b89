"""Injective encoding of lists of byte strings."""

from __future__ import annotations


def length_prefixed(*parts: bytes) -> bytes:
    """Return the concatenation of the parts, each after its length in eight big-endian bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def split_parts(data: bytes) -> list[bytes]:
    """Return the parts of a ``length_prefixed`` byte string.

    Raises:
        ValueError: ``data`` is not such a byte string.
    """
    view, parts, place = memoryview(data), [], 0
    while place < len(data):
        end = place + 8 + int.from_bytes(view[place : place + 8], "big")
        if place + 8 > len(data) or end > len(data):
            raise ValueError("the last part is cut off")
        parts.append(bytes(view[place + 8 : end]))
        place = end
    return parts
