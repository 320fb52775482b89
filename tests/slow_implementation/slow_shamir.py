"""Shamir's secret sharing over p = 2^256 + 297: section 5 of docs/reference/wire-format.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from slow_bytes import need, number

PRIME = 2**256 + 297


def split(secret: bytes, threshold: int, points: Sequence[int], draw: Callable[[int], bytes]) -> dict[int, bytes]:
    """f(point) for f(x) = secret + ... + a x^(t-1); the coefficient of the highest power is drawn first."""
    drawn = [int.from_bytes(draw(49), "big") % PRIME for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "big"), *reversed(drawn)]
    return {
        point: number(sum(a * point**power for power, a in enumerate(coefficients)) % PRIME, 33) for point in points
    }


def combine(shares: Mapping[int, bytes]) -> bytes:
    """f(0), by Lagrange's formula."""
    secret = 0
    for point, share in shares.items():
        need(int.from_bytes(share, "big") < PRIME, "a share is no field element")
        weight = 1
        for other in shares:
            if other != point:
                weight = weight * other * pow(other - point, -1, PRIME) % PRIME
        secret = (secret + weight * int.from_bytes(share, "big")) % PRIME
    need(secret < 2**256, "the shares belong to no 32-byte secret")
    return number(secret, 32)
