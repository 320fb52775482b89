"""X25519 (RFC 7748) and Ed25519 (RFC 8032) in Python's integers, as written there. Slow, and not constant-time."""

from __future__ import annotations

import hashlib
from functools import cache

P = 2**255 - 19
A24 = 121665


@cache  # the same sessions are played for every bad message
def x25519(scalar: bytes, u_bytes: bytes) -> bytes:
    """RFC 7748, section 5: the Montgomery ladder."""
    k = int.from_bytes(scalar, "little")
    k = (k & ~7 & (2**255 - 1)) | 2**254
    u = (int.from_bytes(u_bytes, "little") & (2**255 - 1)) % P
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in reversed(range(255)):
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        aa, bb, da, cb = a * a % P, b * b % P, d * a % P, c * b % P
        e = aa - bb
        new = aa * bb % P, e * (aa + A24 * e) % P, (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        x2, z2, x3, z3 = new
        if k >> bit & 1:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def x25519_public(scalar: bytes) -> bytes:
    return x25519(scalar, (9).to_bytes(32, "little"))


D = -121665 * pow(121666, -1, P) % P
L = 2**252 + 27742317777372353535851937790883648493
SQRT_MINUS_1 = pow(2, (P - 1) // 4, P)
Point = tuple[int, int, int, int]


def _add(one: Point, other: Point) -> Point:
    """RFC 8032, section 5.1.4: extended homogeneous coordinates."""
    a, b = (one[1] - one[0]) * (other[1] - other[0]) % P, (one[1] + one[0]) * (other[1] + other[0]) % P
    c, d = 2 * one[3] * other[3] * D % P, 2 * one[2] * other[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _times(scalar: int, point: Point) -> Point:
    result: Point = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            result = _add(result, point)
        point, scalar = _add(point, point), scalar >> 1
    return result


def _x_of(y: int, sign: int) -> int | None:
    """RFC 8032, section 5.1.3."""
    if y >= P:
        return None
    x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    if x2 == 0:
        return None if sign else 0
    x = pow(x2, (P + 3) // 8, P)
    if x * x % P != x2:
        x = x * SQRT_MINUS_1 % P
    if x * x % P != x2:
        return None
    return x if x & 1 == sign else P - x


_BASE_Y = 4 * pow(5, -1, P) % P
_BASE_X = _x_of(_BASE_Y, 0) or 0
BASE: Point = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % P)


def _compress(point: Point) -> bytes:
    inverse = pow(point[2], -1, P)
    x, y = point[0] * inverse % P, point[1] * inverse % P
    return (y | (x & 1) << 255).to_bytes(32, "little")


def _decompress(data: bytes) -> Point | None:
    y = int.from_bytes(data, "little")
    sign, y = y >> 255, y & (2**255 - 1)
    x = _x_of(y, sign)
    return None if x is None else (x, y, 1, x * y % P)


def _sha512(data: bytes) -> int:
    return int.from_bytes(hashlib.sha512(data).digest(), "little")


def _expand(secret: bytes) -> tuple[int, bytes]:
    digest = hashlib.sha512(secret).digest()
    return (int.from_bytes(digest[:32], "little") & (2**254 - 8)) | 2**254, digest[32:]


@cache
def ed25519_public(secret: bytes) -> bytes:
    return _compress(_times(_expand(secret)[0], BASE))


@cache
def ed25519_sign(secret: bytes, message: bytes) -> bytes:
    """RFC 8032, section 5.1.6."""
    a, prefix = _expand(secret)
    public = _compress(_times(a, BASE))
    r = _sha512(prefix + message) % L
    commitment = _compress(_times(r, BASE))
    s = (r + _sha512(commitment + public + message) * a) % L
    return commitment + s.to_bytes(32, "little")


@cache
def ed25519_verifies(public: bytes, message: bytes, signature: bytes) -> bool:
    """RFC 8032, section 5.1.7."""
    if len(public) != 32 or len(signature) != 64:
        return False
    a, r = _decompress(public), _decompress(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if a is None or r is None or s >= L:
        return False
    h = _sha512(signature[:32] + public + message) % L
    left, right = _times(s, BASE), _add(r, _times(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 == (left[1] * right[2] - right[1] * left[2]) % P
