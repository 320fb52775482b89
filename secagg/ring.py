"""Vectors over Z/2^(8 w): integers of a layout as unsigned words with wrap-around arithmetic."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.errors import MalformedMessageError, SumOutOfBoundsError
from secagg.layout import IntVector, Layout, Segment

Words = NDArray[np.unsignedinteger[Any]]

_PACKED_AT_ONCE = 1 << 15


class RingVector:
    """A vector with one array of words per segment. Only the low ``wire_bytes`` of a word are significant.

    Words may be wider than entries on the wire: reduction modulo 2^(8 wire_bytes) commutes with addition.
    """

    __slots__ = ("layout", "words")

    def __init__(self, layout: Layout, words: list[Words]) -> None:
        self.layout = layout
        self.words = words

    @classmethod
    def zeros(cls, layout: Layout) -> Self:
        """Return the zero vector."""
        return cls(layout, [np.zeros(s.size, dtype=s.word) for s in layout.segments])

    @classmethod
    def encode(cls, layout: Layout, vector: IntVector) -> Self:
        """Return the ring vector of checked integers; negative ones in two's complement."""
        return cls(layout, [vector[place].astype(s.word, casting="unsafe") for s, place in layout.slices()])

    def check(self, n_clients: int) -> None:
        """Refuse a client's vector with an entry beyond the bound for one client. All bytes of its words count.

        Raises:
            InvalidVectorError: names the segment and the number of entries, never their values.
        """
        self.layout.check_segments([words.view(f"<i{words.itemsize}") for words in self.words], n_clients)

    def copy(self) -> RingVector:
        """Return a writable copy."""
        return RingVector(self.layout, [words.copy() for words in self.words])

    def add(self, other: RingVector) -> None:
        """Add ``other`` in place."""
        for mine, theirs in zip(self.words, other.words, strict=True):
            np.add(mine, theirs, out=mine)

    def subtract(self, other: RingVector) -> None:
        """Subtract ``other`` in place."""
        for mine, theirs in zip(self.words, other.words, strict=True):
            np.subtract(mine, theirs, out=mine)

    def decode(self) -> IntVector:
        """Return the integers of [-bound, bound] that these words represent.

        Raises:
            SumOutOfBoundsError: a value is outside its bound.
        """
        vector = np.empty(self.layout.size, dtype=np.int64)
        for (segment, place), words in zip(self.layout.slices(), self.words, strict=True):
            vector[place] = _lift(segment, words)
        return vector

    def to_bytes(self) -> bytes:
        """Return the wire form: the low bytes of each entry, little-endian."""
        return b"".join(self.parts())

    def parts(self) -> list[memoryview]:
        """Return the wire form as one part per segment, without a copy if words are sent whole."""
        return list(map(_pack, self.layout.segments, self.words))

    @classmethod
    def from_bytes(cls, layout: Layout, data: bytes | memoryview) -> Self:
        """Parse the wire form.

        Raises:
            MalformedMessageError: the number of bytes does not match the layout.
        """
        if len(data) != layout.wire_bytes:
            raise MalformedMessageError(f"a vector of this layout takes {layout.wire_bytes} bytes, not {len(data)}")
        words, start = [], 0
        for segment in layout.segments:
            stop = start + segment.size * segment.wire_bytes
            words.append(_unpack(segment, data[start:stop]))
            start = stop
        return cls(layout, words)


def _pack(segment: Segment, words: Words) -> memoryview:
    """Return the low bytes of each word.

    Copying whole words is much faster than copying bytes. A word written at the place of its entry overwrites the start
    of the next entry. Therefore every second word is written first, then the words between, then the lower halves of
    the first ones again: no pass writes a byte twice, and an entry has more bytes than half a word.
    """
    entry, size = segment.wire_bytes, segment.word.itemsize
    if entry == size:
        return words.view(np.uint8).data
    packed = np.empty(segment.size * entry + size - entry, dtype=np.uint8)

    def write(first: int, values: Words) -> None:
        place = np.ndarray(values.shape, values.dtype, packed.data, offset=first * entry, strides=(2 * entry,))
        place[...] = values.copy()  # between two strided arrays numpy moves at a quarter of this speed

    for start in range(0, segment.size, _PACKED_AT_ONCE):  # a piece that stays in the cache through all passes
        piece = words[start : start + _PACKED_AT_ONCE]
        write(start, piece[::2])
        write(start + 1, piece[1::2])
        write(start, piece.view(f"<u{size // 2}")[::4])
    return packed.data[: segment.size * entry]


def _unpack(segment: Segment, data: bytes | memoryview) -> Words:
    entry, size = segment.wire_bytes, segment.word.itemsize
    if entry == size:
        return np.frombuffer(data, dtype=segment.word)
    words: Words = np.empty(segment.size, dtype=segment.word)
    wider: Words = np.ndarray((segment.size - 1,), segment.word, data, strides=(entry,))
    np.bitwise_and(wider, segment.word.type((1 << 8 * entry) - 1), out=words[:-1])
    words[-1] = int.from_bytes(data[-entry:], "little")
    words.setflags(write=False)  # like the view above; make a copy to add to it
    return words


def _lift(segment: Segment, words: Words) -> IntVector:
    """Return the representatives of smallest absolute value, checked against the bound."""
    spare_bits = 8 * (segment.word.itemsize - segment.wire_bytes)
    signed = np.dtype(f"<i{segment.word.itemsize}")
    values: IntVector = np.right_shift(np.left_shift(words, spare_bits).view(signed), spare_bits).astype(np.int64)
    beyond = int(np.count_nonzero((values > segment.bound) | (values < -segment.bound)))
    if beyond:
        raise SumOutOfBoundsError(
            f"segment {segment.name!r}: {beyond} of {segment.size} entries of the total lie beyond the public bound; "
            "a client broke its bound, or the words that came out are no sum of vectors: the masks did not cancel, or "
            "other ciphertexts were decrypted (parties disagree about session, configuration, keys or model, or one "
            "is malicious). Discard this total and start a new session"
        )
    return values
