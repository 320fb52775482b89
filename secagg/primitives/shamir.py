"""Shamir's secret sharing (CACM 1979) of 32-byte secrets over the field of p = 2^256 + 297."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, zip_longest
from math import prod

from secagg.entropy import Entropy

PRIME = 2**256 + 297
"""The smallest prime above 2^256, so that every 32-byte string is a field element."""

SECRET_BYTES = 32
SHARE_BYTES = 33


class BadSharesError(ValueError):
    """The shares do not belong to one 32-byte secret."""


def split(secret: bytes, *, threshold: int, points: Sequence[int], entropy: Entropy) -> dict[int, bytes]:
    """Split a secret into shares, one per point: any ``threshold`` of them reconstruct it, fewer reveal nothing.

    Args:
        secret: 32 bytes.
        threshold: 1 to the number of points.
        points: distinct numbers of 1 to p - 1, public.
        entropy: source of the polynomial's other coefficients.
    """
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
    distinct = len(set(points)) == len(points) and all(1 <= point < PRIME for point in points)
    if not 1 <= threshold <= len(points) or not distinct:
        raise ValueError(
            f"cannot share with threshold {threshold} over {len(points)} points: they must be distinct, 1 to p - 1"
        )
    coefficients = [_uniform(entropy) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret, "big")
    return {point: _evaluate(coefficients, constant, point).to_bytes(SHARE_BYTES, "big") for point in points}


class Interpolation:
    """Lagrange interpolation over fixed points, for all secrets shared over them.

    Args:
        points: distinct, each 1 to p - 1.
    """

    def __init__(self, points: Sequence[int]) -> None:
        self.points = tuple(points)
        # Products over small points stay exact integers, which is several times faster than a reduction a factor.
        products = [prod([point - other for other in self.points if other != point]) for point in self.points]
        self._inverses = _inverses(products)

    def weights(self, at: int = 0) -> list[int]:
        """Return the weights that map the values at the points to the value at another point (0 for the secret)."""
        before = [*accumulate(((at - point) % PRIME for point in self.points), _times, initial=1)]
        after = [*accumulate(((at - point) % PRIME for point in reversed(self.points)), _times, initial=1)][::-1]
        return [
            inverse * before[place] % PRIME * after[place + 1] % PRIME for place, inverse in enumerate(self._inverses)
        ]

    def share(self, shares: Sequence[bytes], *, at: int) -> bytes:
        """Return the share at another point, from one share per point."""
        value = sum(w * int.from_bytes(share, "big") for w, share in zip(self.weights(at), shares, strict=True))
        return (value % PRIME).to_bytes(SHARE_BYTES, "big")

    def polynomial(self, values: Sequence[int]) -> list[int]:
        """Return the coefficients, constant first, of the polynomial of least degree with these values."""
        whole = _vanishing(self.points)
        total = [0] * len(self.points)
        for point, value, inverse in zip(self.points, values, self._inverses, strict=True):
            scale, coefficient = value * inverse % PRIME, 0
            for degree in range(len(self.points) - 1, -1, -1):  # whole / (x - point), by Horner's scheme
                coefficient = (whole[degree + 1] + point * coefficient) % PRIME
                total[degree] += scale * coefficient
        return [coefficient % PRIME for coefficient in total]


def combine(shares: Mapping[int, bytes], weights: Sequence[int] | None = None) -> bytes:
    """Reconstruct the secret from exactly ``threshold`` shares.

    Args:
        shares: share by point.
        weights: ``Interpolation(list(shares)).weights()``, if already computed.

    Raises:
        BadSharesError: a share is no field element, or the result is no 32-byte string, which never happens with honest
            shares.
    """
    if not shares:
        raise BadSharesError("no shares at all belong to no secret")
    weights = Interpolation(list(shares)).weights() if weights is None else weights
    return _secret(sum(w * v for w, v in zip(weights, _values(shares), strict=True)) % PRIME)


def decode(shares: Mapping[int, bytes], threshold: int) -> tuple[bytes, frozenset[int]]:
    """Return the secret and the points of wrong shares, if these are at most half of the spare shares.

    The shares are a Reed-Solomon code word (McEliece and Sarwate, CACM 1981); decoded as in Gao, "A new algorithm for
    decoding Reed-Solomon codes", 2003, Algorithm 1, in O(n^2) for n shares.

    Args:
        shares: share by point, more than ``threshold``.
        threshold: number of shares that reconstruct the secret.

    Raises:
        BadSharesError: more than (n - threshold) / 2 shares are wrong.
    """
    values, n = _values(shares), len(shares)
    if n < threshold:
        raise BadSharesError(f"{n} shares are fewer than the {threshold} that belong to a secret")
    above, below = _vanishing(list(shares)), _stripped(Interpolation(list(shares)).polynomial(values))
    factor_above, factor_below = [0], [1]
    while 2 * (len(below) - 1) >= n + threshold:
        quotient, rest = _divided(above, below)
        above, below = below, rest
        factor_above, factor_below = factor_below, _minus(factor_above, _product(quotient, factor_below))
    polynomial, rest = _divided(below, factor_below)
    if rest != [0] or len(polynomial) > threshold:
        raise BadSharesError(
            f"more than {(n - threshold) // 2} of these {n} shares are wrong; {threshold} belong to one secret"
        )
    wrong = [
        point
        for point, value in zip(shares, values, strict=True)
        if _evaluate(polynomial[:0:-1], polynomial[0], point) != value
    ]
    return _secret(polynomial[0]), frozenset(wrong)


def without_one(shares: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield, for threshold + 1 shares with one wrong, each point with the secret that the other shares give.

    The polynomial over all points differs by a multiple of the product of (x - other), given by its leading
    coefficient: each further point costs one product and no interpolation.
    """
    over, values = Interpolation(list(shares)), _values(shares)
    polynomial, whole = over.polynomial(values), prod([-point for point in shares])
    for point in shares:
        secret = (polynomial[0] + polynomial[-1] * whole * pow(point, -1, PRIME)) % PRIME
        with suppress(BadSharesError):
            yield point, _secret(secret)


def is_share(share: bytes) -> bool:
    """Return whether these bytes are a field element."""
    return len(share) == SHARE_BYTES and int.from_bytes(share, "big") < PRIME


def _values(shares: Mapping[int, bytes]) -> list[int]:
    if not all(map(is_share, shares.values())):
        raise BadSharesError("a share is no field element, and belongs to no secret")
    return [int.from_bytes(share, "big") for share in shares.values()]


def _secret(value: int) -> bytes:
    if value >= 2 ** (8 * SECRET_BYTES):
        raise BadSharesError("these shares do not belong to one 32-byte secret")
    return value.to_bytes(SECRET_BYTES, "big")


def _times(left: int, right: int) -> int:
    return left * right % PRIME


def _inverses(values: Sequence[int]) -> list[int]:
    """The inverse of each, none of them 0, by one inversion of their product (Montgomery's trick)."""
    below = [*accumulate(values, _times, initial=1)]
    above, found = pow(below[-1], -1, PRIME), []
    for value, product in zip(reversed(values), reversed(below[:-1]), strict=True):
        found.append(above * product % PRIME)
        above = above * value % PRIME
    return found[::-1]


# Polynomials: coefficients from the constant on, the last one not 0 unless it is the only one


def _vanishing(points: Sequence[int]) -> list[int]:
    """Return the product of (x - point) over the points."""
    whole = [1]
    for point in points:
        whole = [(lower - point * here) % PRIME for lower, here in zip([0, *whole], [*whole, 0], strict=True)]
    return whole


def _product(left: Sequence[int], right: Sequence[int]) -> list[int]:
    total = [0] * (len(left) + len(right) - 1)
    for place, factor in enumerate(left):
        for step, other in enumerate(right):
            total[place + step] += factor * other
    return _stripped([coefficient % PRIME for coefficient in total])


def _minus(left: Sequence[int], right: Sequence[int]) -> list[int]:
    return _stripped([(one - other) % PRIME for one, other in zip_longest(left, right, fillvalue=0)])


def _divided(above: Sequence[int], below: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return quotient and remainder."""
    rest, steps = list(above), len(above) - len(below)
    inverse, quotient = pow(below[-1], -1, PRIME), [0] * (max(steps, 0) + 1)
    for step in range(steps, -1, -1):
        factor = quotient[step] = rest[step + len(below) - 1] * inverse % PRIME
        for place, coefficient in enumerate(below):
            rest[step + place] = (rest[step + place] - factor * coefficient) % PRIME
    return _stripped(quotient), _stripped(rest)


def _stripped(coefficients: list[int]) -> list[int]:
    while len(coefficients) > 1 and coefficients[-1] == 0:
        coefficients.pop()
    return coefficients


def _uniform(entropy: Entropy) -> int:
    """Draw a uniform field element; 128 extra bits make the bias of the reduction negligible."""
    return int.from_bytes(entropy(SHARE_BYTES + 16), "big") % PRIME


def _evaluate(coefficients: Sequence[int], constant: int, point: int) -> int:
    value = 0
    for coefficient in coefficients:
        value = (value + coefficient) * point % PRIME
    return (value + constant) % PRIME
