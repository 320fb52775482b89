"""The public shape of a summed vector: named segments of integers with a bound each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ConfigurationError, InvalidVectorError, SumOutOfBoundsError

IntVector = NDArray[np.int64]
"""A 1-D array of int64: what a client contributes and what the server learns."""

MAX_BOUND = 2**63 - 1
MAX_SIZE = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """``size`` integers, none of whose sums over a cohort can leave [-bound, bound].

    The bound alone decides the width: ``bits`` is the fewest that tell 2 bound + 1 values apart,
    a wire entry takes ceil(bits / 8) bytes, a word in memory the next power of two of bytes.

    Args:
        name: unique within its layout, 1 to 64 printable ASCII characters.
        size: number of entries, 1 to 2^32.
        bound: largest absolute value of the *sum* over the whole cohort, 0 to 2^63 - 1. Whoever makes the layout
            answers for it: a cohort whose sum leaves the bound may wrap around. ``StatisticsSpec`` guards its sums
            with a row count that cannot.
        client_bound: largest absolute value of an entry of *one* client, 0 to ``bound``; None for ``bound``. A client
            refuses to send more, a server that sees single vectors to take more, and every server a total that so many
            clients cannot have: what one client can do to a sum stays within its share.
    """

    name: str
    size: int
    bound: int
    client_bound: int | None = None

    def __post_init__(self) -> None:
        named = type(self.name) is str and 1 <= len(self.name) <= 64
        if not (named and self.name.isascii() and self.name.isprintable()):
            raise ConfigurationError(f"a segment's name takes 1 to 64 printable ASCII characters, not {self.name!r}")
        if type(self.size) is not int or type(self.bound) is not int:
            came = f"{type(self.size).__name__} and {type(self.bound).__name__}"
            raise ConfigurationError(
                f"segment {self.name!r}: size and bound must be plain ints, not {came}; convert them with int()"
            )
        if not 1 <= self.size <= MAX_SIZE:
            raise ConfigurationError(f"segment {self.name!r}: size must be 1 to 2^32, not {self.size}")
        if not 0 <= self.bound <= MAX_BOUND:
            raise ConfigurationError(
                f"segment {self.name!r}: the bound of the sum must be 0 to 2^63 - 1 to fit an int64, "
                f"not {self.bound}; lower the number of rows or the bits a feature takes"
            )

        own = self.client_bound
        if own is not None and not (type(own) is int and 0 <= own <= self.bound):
            raise ConfigurationError(
                f"segment {self.name!r}: the bound for one client must be a plain int of 0 to the sum's bound "
                f"{self.bound}, not {own!r}"
            )

    @property
    def bits(self) -> int:
        """The fewest bits that hold every value of [-bound, bound]."""
        return max(1, (2 * self.bound).bit_length())

    @property
    def wire_bytes(self) -> int:
        """Bytes an entry takes on the wire; the segment is summed modulo 2^(8 wire_bytes)."""
        return -(-self.bits // 8)

    @property
    def word(self) -> np.dtype[np.unsignedinteger]:
        """The unsigned little-endian word that holds an entry in memory."""
        return np.dtype(f"<u{1 << (self.wire_bytes - 1).bit_length()}")


@dataclass(frozen=True, slots=True)
class Layout:
    """The segments of a vector, in order. Public, and part of every session's configuration digest.

    Args:
        segments: of the vector.
        agreed: canonical bytes of what parties agree on beside the shape, such as a sum's noise: who holds others has
            another digest. At most 64 bytes; none for sums of plain shape.
    """

    segments: tuple[Segment, ...]
    agreed: bytes = b""

    def __post_init__(self) -> None:
        if type(self.agreed) is not bytes or len(self.agreed) > 64:
            raise ConfigurationError(
                "what a layout's parties agree on beside its shape is a digest of at most 64 bytes"
            )
        if type(self.segments) is not tuple:
            raise ConfigurationError("the segments of a layout are a tuple; Layout.of makes it of triples")
        names = [segment.name for segment in self.segments]
        if not names:
            raise ConfigurationError("a layout needs at least one segment")
        if len(set(names)) != len(names):
            raise ConfigurationError(f"segment names must differ within a layout, not {names[:10]}; rename one")

    @classmethod
    def of(cls, segments: Iterable[tuple[str, int, int] | tuple[str, int, int, int]]) -> Layout:
        """The layout of (name, size, bound) triples, the form in which other packages state it.

        A fourth number is the bound for one client.

        Raises:
            ConfigurationError: what a triple must hold, and what came.
        """
        triples = list(segments)
        if any(len(triple) not in (3, 4) for triple in triples):
            raise ConfigurationError(f"a layout reads [(name, size, bound), ...], not {triples[:3]}; state all three")
        return cls(
            tuple(
                Segment(name=each[0], size=each[1], bound=each[2], client_bound=each[3] if len(each) > 3 else None)
                for each in map(tuple[Any, ...], triples)
            )
        )

    @property
    def size(self) -> int:
        """Entries of the whole vector."""
        return sum(segment.size for segment in self.segments)

    @property
    def wire_bytes(self) -> int:
        """Bytes of one encoded vector."""
        return sum(segment.size * segment.wire_bytes for segment in self.segments)

    def slices(self) -> Iterator[tuple[Segment, slice]]:
        """Each segment with its place in the vector."""
        start = 0
        for segment in self.segments:
            yield segment, slice(start, start + segment.size)
            start += segment.size

    def check(self, vector: IntVector) -> None:
        """Refuse a vector of another shape or type, or with an entry beyond its segment's bound.

        Raises:
            InvalidVectorError: says which segment, how many entries and what to do; never which values.
        """
        if type(vector) is not np.ndarray or vector.dtype != np.int64 or vector.shape != (self.size,):
            came = (
                f"{vector.dtype} of shape {vector.shape}" if isinstance(vector, np.ndarray) else type(vector).__name__
            )
            raise InvalidVectorError(f"the layout needs int64 of shape ({self.size},), not {came}")
        for segment, place in self.slices():
            whose, bound = "public bound", segment.bound
            if segment.client_bound is not None:
                whose, bound = "bound for one client", segment.client_bound
            if beyond := _beyond(vector[place], bound):
                raise InvalidVectorError(
                    f"segment {segment.name!r}: {beyond} of {segment.size} entries lie beyond the {whose} {bound}; "
                    "agree on a layout with a larger bound or send less"
                )

    @property
    def states_client_bounds(self) -> bool:
        """Whether a segment says what one client may send."""
        return any(segment.client_bound is not None for segment in self.segments)

    def check_total(self, total: IntVector, n_survivors: int) -> None:
        """Refuse a total that so many clients within their own bounds cannot have.

        Raises:
            SumOutOfBoundsError: somebody broke its bound, and the sum does not tell who.
        """
        for segment, place in self.slices():
            own = segment.client_bound
            if own is not None and (beyond := _beyond(total[place], n_survivors * own)):
                raise SumOutOfBoundsError(
                    f"segment {segment.name!r}: {beyond} of {segment.size} entries of the total lie beyond what "
                    f"{n_survivors} clients of at most {own} each can add up to: a client broke its bound. Discard "
                    "this total and start a new session"
                )

    def canonical(self) -> bytes:
        """One byte string for one layout, for digests: no two layouts share it.

        What is agreed on beside the shape follows a name of no characters, and a bound for one client one of 255, which
        no segment has.
        """
        shape = b"".join(
            len(s.name).to_bytes(1, "big")
            + s.name.encode()
            + s.size.to_bytes(8, "big")
            + s.bound.to_bytes(8, "big")
            + (b"" if s.client_bound is None else b"\xff" + s.client_bound.to_bytes(8, "big"))
            for s in self.segments
        )
        return shape + (b"\0" + self.agreed if self.agreed else b"")


def _beyond(values: IntVector, bound: int) -> int:
    """How many values are larger than a bound, in absolute value."""
    bound = min(bound, MAX_BOUND)
    if values.max() <= bound and values.min() >= -bound:
        return 0
    return int(np.count_nonzero((values > bound) | (values < -bound)))
