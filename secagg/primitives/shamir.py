"""Shamir's secret sharing (CACM 1979) of 32-byte secrets over the field of p = 2^256 + 297."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from secagg.entropy import Entropy

PRIME = 2**256 + 297
"""The smallest prime above 2^256, so that every 32-byte string is a field element."""

SECRET_BYTES = 32
SHARE_BYTES = 33


class BadSharesError(ValueError):
    """The shares do not belong to one 32-byte secret."""


def split(secret: bytes, *, threshold: int, points: Sequence[int], entropy: Entropy) -> dict[int, bytes]:
    """Shares of a secret, one a point; any ``threshold`` of them give it back, fewer tell nothing.

    Args:
        secret: 32 bytes.
        threshold: 1 to the number of points.
        points: distinct numbers of 1 to p - 1, public.
        entropy: where the polynomial's other coefficients come from.
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


def lagrange_at_zero(points: Sequence[int]) -> list[int]:
    """The weights that turn shares at ``points`` into the secret; they serve every secret shared over them."""
    weights = []
    for point in points:
        numerator = denominator = 1
        for other in points:
            if other != point:
                numerator = numerator * other % PRIME
                denominator = denominator * (other - point) % PRIME
        weights.append(numerator * pow(denominator, -1, PRIME) % PRIME)
    return weights


def combine(shares: Mapping[int, bytes], weights: Sequence[int] | None = None) -> bytes:
    """The secret that as many shares as the threshold belong to.

    Args:
        shares: share by point; exactly ``threshold`` of them.
        weights: ``lagrange_at_zero(list(shares))`` if it is at hand.

    Raises:
        BadSharesError: a share is no field element, or the result is no 32-byte string, which honest
            shares never give.
    """
    if not shares:
        raise BadSharesError("no shares at all belong to no secret")
    weights = lagrange_at_zero(list(shares)) if weights is None else weights
    values = [int.from_bytes(share, "big") for share in shares.values()]
    secret = sum(w * v for w, v in zip(weights, values, strict=True)) % PRIME
    if any(value >= PRIME for value in values) or secret >= 2 ** (8 * SECRET_BYTES):
        raise BadSharesError("these shares do not belong to one 32-byte secret")
    return secret.to_bytes(SECRET_BYTES, "big")


def _uniform(entropy: Entropy) -> int:
    """A uniform field element: 128 bits more than the field has make the bias of the reduction negligible."""
    return int.from_bytes(entropy(SHARE_BYTES + 16), "big") % PRIME


def _evaluate(coefficients: Sequence[int], constant: int, point: int) -> int:
    value = 0
    for coefficient in coefficients:
        value = (value + coefficient) * point % PRIME
    return (value + constant) % PRIME
