"""Vectors over Z/2^(8 w): integers of a layout as unsigned words with wrap-around arithmetic.

A long vector is worked on a piece at a time, so that beside the vector and its message there is one piece in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import joined
from secagg.errors import MalformedMessageError, SumOutOfBoundsError
from secagg.layout import IntVector, Layout, Segment, count_beyond

Words = NDArray[np.unsignedinteger[Any]]

PIECE_BYTES = 1 << 18
"""Size of a piece in words, which stays in the cache while all masks are added."""


def pieces(segment: Segment) -> Iterator[slice]:
    """Yield the places of a segment's pieces, in order."""
    step = PIECE_BYTES // segment.word.itemsize
    for start in range(0, segment.size, step):
        yield slice(start, min(start + step, segment.size))


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

    def clear(self) -> None:
        """Become the zero vector, and give the memory of the words back."""
        self.words = RingVector.zeros(self.layout).words

    def check(self, n_clients: int) -> None:
        """Refuse a client's vector with an entry beyond the bound for one client. All bytes of its words count.

        Raises:
            InvalidVectorError: names the segment and the number of entries, never their values.
        """
        self.layout.check_segments((words.view(f"<i{words.itemsize}") for words in self.words), n_clients)

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

    def add_bytes(self, data: bytes | memoryview) -> None:
        """Add a vector's wire form in place; one of another length changes nothing.

        Raises:
            MalformedMessageError: the number of bytes does not match the layout.
        """
        self._combine(np.add, data)

    def subtract_bytes(self, data: bytes | memoryview) -> None:
        """Subtract a vector's wire form in place, likewise."""
        self._combine(np.subtract, data)

    def _combine(self, operation: Callable[..., Any], data: bytes | memoryview) -> None:
        for number, place, theirs in read_words(self.layout, data):
            mine = self.words[number][place]
            operation(mine, theirs, out=mine)

    def decode(self) -> IntVector:
        """Return the integers of [-bound, bound] that these words represent.

        Raises:
            SumOutOfBoundsError: a value is outside its bound.
        """
        vector = np.empty(self.layout.size, dtype=np.int64)
        for (segment, place), words in zip(self.layout.slices(), self.words, strict=True):
            values, beyond = vector[place], 0
            for piece in pieces(segment):
                values[piece] = lift(segment, words[piece])
                beyond += count_beyond(values[piece], segment.bound)
            if beyond:
                raise SumOutOfBoundsError(
                    f"segment {segment.name!r}: {beyond} of {segment.size} entries of the total lie beyond the public "
                    "bound; a client broke its bound, or the words that came out are no sum of vectors: the masks did "
                    "not cancel, or other ciphertexts were decrypted (parties disagree about session, configuration, "
                    "keys or model, or one is malicious). Discard this total and start a new session"
                )
        return vector

    def to_bytes(self) -> bytes:
        """Return the wire form: the low bytes of each entry, little-endian."""
        return joined(self.wire_pieces())

    def wire_pieces(self) -> Iterator[memoryview]:
        """Yield the wire form a piece at a time."""
        for segment, words in zip(self.layout.segments, self.words, strict=True):
            for place in pieces(segment):
                yield pack(segment, words[place])

    @classmethod
    def from_bytes(cls, layout: Layout, data: bytes | memoryview) -> Self:
        """Parse the wire form.

        Raises:
            MalformedMessageError: the number of bytes does not match the layout.
        """
        _check_length(layout, data)  # before anything is allocated
        vector = cls.zeros(layout)
        vector.add_bytes(data)
        return vector


ClientVector = IntVector | RingVector
"""A client's checked vector: integers, or words already."""


def read_words(layout: Layout, data: bytes | memoryview) -> Iterator[tuple[int, slice, Words]]:
    """Yield the words of a wire form a piece at a time: the number of the segment, the place in it, the words.

    Raises:
        MalformedMessageError: the number of bytes does not match the layout, before any piece.
    """
    _check_length(layout, data)
    view, start = memoryview(data), 0
    for number, segment in enumerate(layout.segments):
        for place in pieces(segment):
            stop = start + (place.stop - place.start) * segment.wire_bytes
            yield number, place, _unpack(segment, view[start:stop])
            start = stop


def _check_length(layout: Layout, data: bytes | memoryview) -> None:
    if len(data) != layout.wire_bytes:
        raise MalformedMessageError(f"a vector of this layout takes {layout.wire_bytes} bytes, not {len(data)}")


def pack(segment: Segment, words: Words) -> memoryview:
    """Return the low bytes of each word of a piece.

    Copying whole words is much faster than copying bytes. A word written at the place of its entry overwrites the start
    of the next entry. Therefore every second word is written first, then the words between, then the lower halves of
    the first ones again: no pass writes a byte twice, and an entry has more bytes than half a word.
    """
    entry, size = segment.wire_bytes, segment.word.itemsize
    if entry == size:
        return words.view(np.uint8).data
    packed = np.empty(len(words) * entry + size - entry, dtype=np.uint8)

    def write(first: int, values: Words) -> None:
        place = np.ndarray(values.shape, values.dtype, packed.data, offset=first * entry, strides=(2 * entry,))
        place[...] = values.copy()  # between two strided arrays numpy moves at a quarter of this speed

    write(0, words[::2])
    write(1, words[1::2])
    write(0, words.view(f"<u{size // 2}")[::4])
    return packed.data[: len(words) * entry]


def _unpack(segment: Segment, data: memoryview) -> Words:
    entry, size = segment.wire_bytes, segment.word.itemsize
    if entry == size:
        return np.frombuffer(data, dtype=segment.word)
    count = len(data) // entry
    words: Words = np.empty(count, dtype=segment.word)
    wider: Words = np.ndarray((count - 1,), segment.word, data, strides=(entry,))
    np.bitwise_and(wider, segment.word.type((1 << 8 * entry) - 1), out=words[:-1])
    words[-1] = int.from_bytes(data[-entry:], "little")
    return words


def lift(segment: Segment, words: Words) -> IntVector:
    """Return the representatives of smallest absolute value of a piece's words."""
    spare_bits = 8 * (segment.word.itemsize - segment.wire_bytes)
    signed = np.dtype(f"<i{segment.word.itemsize}")
    values: IntVector = np.right_shift(np.left_shift(words, spare_bits).view(signed), spare_bits).astype(np.int64)
    return values
