"""Byte strings that no two different lists of parts share."""

from __future__ import annotations


def length_prefixed(*parts: bytes) -> bytes:
    """The parts, each after its length in eight big-endian bytes: one list of parts, one byte string."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
