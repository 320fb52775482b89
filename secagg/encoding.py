"""Injective encoding of lists of byte strings."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO


def joined(parts: Iterable[bytes | memoryview]) -> bytes:
    """Return parts in a row, each written as it is made; ``b"".join`` would hold them all beside their join."""
    whole = BytesIO()
    for part in parts:
        whole.write(part)
    return whole.getvalue()


def length_prefixed(*parts: bytes) -> bytes:
    """Return the concatenation of the parts, each after its length in eight big-endian bytes."""
    return b"".join(piece for part in parts for piece in (len(part).to_bytes(8, "big"), part))


def split_parts(data: bytes | bytearray) -> list[bytes]:
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
