"""Radix decomposition of ring vectors: digits whose sum over a cohort fits a slot of a ciphertext."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from secagg.errors import ConfigurationError, InvalidVectorError
from secagg.layout import IntVector, Layout, Segment
from secagg.ring import RingVector, Words


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDigits:
    """Decomposition of the entries x of one segment: x = l_0 + 2^bits l_1 + ..., with signed digits.

    Args:
        count: number of digits of an entry.
        bits: width of all digits except the last, which takes the remaining bits.
        client_bound: largest |digit| of one client.
        sum_bound: largest |sum of digits| over the cohort.
    """

    count: int
    bits: int
    client_bound: int
    sum_bound: int

    @classmethod
    def cut(cls, segment: Segment, count: int, *, n_clients: int, masked: bool) -> SegmentDigits:
        """Return the decomposition into ``count`` digits of equal width.

        Lower digits are in [-2^(bits-1), 2^(bits-1)). The last differs from x / 2^(bits (count-1)) by less than 1, so
        its sum differs from the total's by less than ``n_clients``. A single digit is x itself, its sum the total.
        """
        if masked:
            width = 8 * segment.wire_bytes
            client = 1 << (width - 1)
            total = n_clients * client
        else:
            width, client, total = segment.bits, segment.bound, segment.bound
        if count == 1:
            return cls(count=1, bits=width, client_bound=client, sum_bound=total)
        bits = -(-width // count)
        below = bits * (count - 1)
        lower = 1 << (bits - 1)
        return cls(
            count=count,
            bits=bits,
            client_bound=max(lower, (client >> below) + 1),
            sum_bound=max(n_clients * lower, (total >> below) + 1 + n_clients),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitPlan:
    """Decomposition of all segments of a layout, with the smallest number of digits that the slots allow.

    Args:
        layout: shape of the vectors.
        n_clients: size of the largest cohort.
        slot_bound: largest |sum| in a slot.
        slot_load: largest ``n_clients`` x |digit of one client| in a slot.
        masked: True if entries are uniform ring words and not integers within their bounds.
    """

    layout: Layout
    n_clients: int
    slot_bound: int
    slot_load: int
    masked: bool
    digits: tuple[SegmentDigits, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digits", tuple(self._fit(segment) for segment in self.layout.segments))

    @property
    def n_slots(self) -> int:
        """Number of digits of one vector."""
        return sum(s.size * digits.count for s, digits in zip(self.layout.segments, self.digits, strict=True))

    @property
    def needed_bound(self) -> int:
        """Largest |sum| of these digits in a slot."""
        return max(1, *(digits.sum_bound for digits in self.digits))

    @property
    def needed_load(self) -> int:
        """``n_clients`` times the largest |digit| of one client."""
        return max(self.needed_bound, *(self.n_clients * digits.client_bound for digits in self.digits))

    def split(self, vector: RingVector) -> IntVector:
        """Return all digits of a vector, int64 of shape (n_slots,): per segment all first digits, then all second ones.

        Raises:
            InvalidVectorError: an entry exceeds its bound and the words are not masked.
        """
        parts: list[IntVector] = []
        for segment, digits, words in zip(self.layout.segments, self.digits, vector.words, strict=True):
            rest = _signed(segment, words)
            if not self.masked and (rest.max() > segment.bound or rest.min() < -segment.bound):
                raise InvalidVectorError(
                    f"segment {segment.name!r} has entries beyond its bound; nothing was encrypted"
                )
            for _ in range(digits.count - 1):
                # Rounding to the nearest multiple of 2^bits; the difference is right even where the shift wraps.
                higher = (rest >> digits.bits) + ((rest >> (digits.bits - 1)) & 1)
                parts.append(rest - (higher << digits.bits))
                rest = higher
            parts.append(rest)
        return np.concatenate(parts)

    def join(self, sums: IntVector) -> RingVector:
        """Return the ring vector with these sums of digits, modulo 2^(8 wire_bytes)."""
        words: list[Words] = []
        start = 0
        for segment, digits in zip(self.layout.segments, self.digits, strict=True):
            total = np.zeros(segment.size, dtype=np.uint64)
            for place in range(digits.count):
                total += sums[start : start + segment.size].view(np.uint64) << np.uint64(place * digits.bits)
                start += segment.size
            words.append(total.astype(segment.word))
        return RingVector(self.layout, words)

    def _fit(self, segment: Segment) -> SegmentDigits:
        for count in range(1, 8 * segment.wire_bytes + 1):
            digits = SegmentDigits.cut(segment, count, n_clients=self.n_clients, masked=self.masked)
            if digits.sum_bound <= self.slot_bound and self.n_clients * digits.client_bound <= self.slot_load:
                return digits
        raise ConfigurationError(
            f"segment {segment.name!r}: {self.n_clients} clients' sums up to {segment.bound} do not fit slots that "
            f"carry sums up to {self.slot_bound}, in however many digits; choose parameters for this layout and cohort"
        )


def _signed(segment: Segment, words: Words) -> IntVector:
    """Return the low ``wire_bytes`` of each word as a signed number (two's complement)."""
    spare = np.uint64(64 - 8 * segment.wire_bytes)
    signed: IntVector = (words.astype(np.uint64) << spare).view(np.int64)
    return signed >> spare.astype(np.int64)
