"""Public shape of a summed vector: named segments of integers, each with a bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.errors import ConfigurationError, InvalidVectorError, SumOutOfBoundsError

IntVector = NDArray[np.int64]
"""A 1-D array of int64: a client's vector, or a total."""

MAX_BOUND = 2**63 - 1
MAX_SIZE = 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A named part of a vector: ``size`` integers whose sum over the cohort stays within [-bound, bound].

    The bound determines the width: ``bits`` = ceil(log2(2 bound + 1)), an entry on the wire takes ceil(bits / 8) bytes,
    a word in memory the next power of two of bytes.

    Args:
        name: unique within its layout, 1 to 64 printable ASCII characters.
        size: number of entries, 1 to 2^32.
        bound: largest absolute value of an entry of the *total*, 0 to 2^63 - 1.
        client_bound: largest absolute value of an entry of *one* client, 0 to ``bound``. None takes ``bound`` divided
            by the number of clients, rounded down. A client refuses to send more, a server that sees single vectors
            refuses to accept more, and every server refuses a total beyond the survivors' bounds.

    Raises:
        ConfigurationError: a field is out of range.

    >>> Segment(name="ages", size=3, bound=10_000, client_bound=120).wire_bytes
    2
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
        """Number of bits for every value of [-bound, bound]."""
        return max(1, (2 * self.bound).bit_length())

    @property
    def wire_bytes(self) -> int:
        """Bytes of an entry on the wire; the segment is summed modulo 2^(8 wire_bytes)."""
        return -(-self.bits // 8)

    @property
    def word(self) -> np.dtype[np.unsignedinteger]:
        """Unsigned little-endian NumPy type of an entry in memory."""
        return np.dtype(f"<u{1 << (self.wire_bytes - 1).bit_length()}")


@dataclass(frozen=True, slots=True)
class Layout:
    """Shape of a vector: its segments, in order. Public, and part of every session's configuration digest.

    Args:
        segments: the segments.
        agreed: digest of anything else that the parties agree on, such as the noise of a sum; at most 64 bytes. Parties
            with different bytes have different configuration digests.
        sum_fits: states that the total stays within its bounds for another reason, such as a limit on the number of
            all rows. A segment's ``client_bound`` then defaults to ``bound``. Otherwise a sum refuses layouts whose
            client bounds add up to more than ``bound``. Each party sets it for itself; it is in no digest.

    Raises:
        ConfigurationError: no segments, repeated names, or ``agreed`` too long.

    >>> layout = Layout.of([("totals", 2, 300), ("ages", 1, 10_000, 120)])
    >>> layout.size, layout.wire_bytes
    (3, 6)
    """

    segments: tuple[Segment, ...]
    agreed: bytes = b""
    sum_fits: bool = False

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
    def of(
        cls, segments: Iterable[tuple[str, int, int] | tuple[str, int, int, int]], *, sum_fits: bool = False
    ) -> Layout:
        """Create a layout from (name, size, bound) triples; a fourth number is the bound for one client.

        >>> layout = Layout.of([("totals", 2, 300), ("ages", 1, 10_000, 120)])
        >>> [layout.client_bound(segment, n_clients=3) for segment in layout.segments]
        [100, 120]

        Raises:
            ConfigurationError: an item has another number of elements, or a segment is invalid.
        """
        triples = list(segments)
        if any(len(triple) not in (3, 4) for triple in triples):
            raise ConfigurationError(f"a layout reads [(name, size, bound), ...], not {triples[:3]}; state all three")
        return cls(
            tuple(
                Segment(name=each[0], size=each[1], bound=each[2], client_bound=each[3] if len(each) > 3 else None)
                for each in map(tuple[Any, ...], triples)
            ),
            sum_fits=sum_fits,
        )

    @property
    def size(self) -> int:
        """Number of entries of the vector."""
        return sum(segment.size for segment in self.segments)

    @property
    def wire_bytes(self) -> int:
        """Number of bytes of one encoded vector."""
        return sum(segment.size * segment.wire_bytes for segment in self.segments)

    def slices(self) -> Iterator[tuple[Segment, slice]]:
        """Yield each segment with its slice of the vector."""
        start = 0
        for segment in self.segments:
            yield segment, slice(start, start + segment.size)
            start += segment.size

    def client_bound(self, segment: Segment, n_clients: int) -> int:
        """Return the largest absolute value of one client's entries in a segment, for a cohort of ``n_clients``."""
        if segment.client_bound is not None:
            return segment.client_bound
        return segment.bound if self.sum_fits else segment.bound // n_clients

    def check_cohort(self, n_clients: int) -> None:
        """Refuse a cohort whose sum could exceed a bound although every client keeps its own bound.

        Raises:
            ConfigurationError: names the segment and a bound that fits.
        """
        for segment in self.segments:
            own = self.client_bound(segment, n_clients)
            if n_clients * own > segment.bound and not self.sum_fits:
                raise ConfigurationError(
                    f"segment {segment.name!r}: {n_clients} clients of at most {own} each can add up to "
                    f"{n_clients * own}, beyond the bound {segment.bound} of the sum, which would wrap around: state a "
                    f"client_bound of at most {segment.bound // n_clients} or a larger bound, or sum_fits=True where "
                    "it is known by other means that the sum of all stays within the bound"
                )

    def check(self, vector: IntVector, n_clients: int) -> None:
        """Refuse a client's vector of another shape or type, or with an entry beyond the bound for one client.

        Args:
            vector: the client's vector.
            n_clients: number of clients of the sum.

        Raises:
            InvalidVectorError: names the segment and the number of entries, never their values.
        """
        if type(vector) is not np.ndarray or vector.dtype != np.int64 or vector.shape != (self.size,):
            came = (
                f"{vector.dtype} of shape {vector.shape}" if isinstance(vector, np.ndarray) else type(vector).__name__
            )
            raise InvalidVectorError(f"the layout needs int64 of shape ({self.size},), not {came}")
        self.check_segments((vector[place] for _, place in self.slices()), n_clients)

    def check_segments(self, vector: Iterable[NDArray[np.signedinteger[Any]]], n_clients: int) -> None:
        """Refuse a client's vector, given segment by segment, with an entry beyond the bound for one client.

        Raises:
            InvalidVectorError: names the segment and the number of entries, never their values.
        """
        for segment, entries in zip(self.segments, vector, strict=True):
            if beyond := count_beyond(entries, self.client_bound(segment, n_clients)):
                raise self.refusal(segment, beyond, n_clients)

    def refusal(self, segment: Segment, beyond: int, n_clients: int) -> InvalidVectorError:
        """Return the error for a client's segment of which so many entries exceed the bound for one client."""
        own, is_share = self.client_bound(segment, n_clients), segment.client_bound is None and not self.sum_fits
        why = f", an equal share of the sum's {segment.bound} for each of {n_clients} clients" if is_share else ""
        return InvalidVectorError(
            f"segment {segment.name!r}: {beyond} of {segment.size} entries lie beyond the bound for one client "
            f"{own}{why}; have all parties agree on a layout with a larger bound or client_bound, or send less"
        )

    def check_total(self, total: IntVector, n_survivors: int, n_clients: int) -> None:
        """Refuse a total that ``n_survivors`` clients within their own bounds cannot have.

        Raises:
            SumOutOfBoundsError: a client exceeded its bound; the total does not show which one.
        """
        for segment, place in self.slices():
            own = self.client_bound(segment, n_clients)
            if beyond := count_beyond(total[place], n_survivors * own):
                raise SumOutOfBoundsError(
                    f"segment {segment.name!r}: {beyond} of {segment.size} entries of the total lie beyond what "
                    f"{n_survivors} clients of at most {own} each can add up to: a client broke its bound. Discard "
                    "this total and start a new session"
                )

    def canonical(self) -> bytes:
        """Return a canonical, injective encoding of the layout, for digests.

        ``agreed`` follows an empty name and a client bound follows a name length of 255; no segment has either.
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


def count_beyond(values: NDArray[np.signedinteger[Any]], bound: int) -> int:
    """Return the number of values whose absolute value exceeds a bound."""
    bound = min(bound, MAX_BOUND)
    if values.max() <= bound and values.min() >= -bound:
        return 0
    return int(np.count_nonzero((values > bound) | (values < -bound)))
