"""Boxes opened in Python's integers: ML-KEM-768 (FIPS 203), X-Wing (draft-connolly-cfrg-xwing-kem), HPKE (RFC 9180)."""

from __future__ import annotations

import hashlib
import hmac

from slow_bytes import need
from slow_curves import x25519, x25519_public
from slow_symmetric import open_sealed

Q, N, K, DU, DV, ETA = 3329, 256, 3, 10, 4, 2
ZETAS = [pow(17, int(f"{i:07b}"[::-1], 2), Q) for i in range(128)]
GAMMAS = [pow(17, 2 * int(f"{i:07b}"[::-1], 2) + 1, Q) for i in range(128)]
SUITE = b"HPKE" + (0x647A).to_bytes(2, "big") + (1).to_bytes(2, "big") + (2).to_bytes(2, "big")
"""MLKEM768-X25519, HKDF-SHA256, AES-256-GCM."""
Poly = list[int]


def ntt(f: Poly) -> Poly:
    """Algorithm 9."""
    f, i, length = list(f), 1, 128
    while length >= 2:
        for start in range(0, N, 2 * length):
            for j in range(start, start + length):
                t = ZETAS[i] * f[j + length] % Q
                f[j], f[j + length] = (f[j] + t) % Q, (f[j] - t) % Q
            i += 1
        length //= 2
    return f


def inverse_ntt(f: Poly) -> Poly:
    """Algorithm 10."""
    f, i, length = list(f), 127, 2
    while length <= 128:
        for start in range(0, N, 2 * length):
            for j in range(start, start + length):
                t = f[j]
                f[j], f[j + length] = (t + f[j + length]) % Q, ZETAS[i] * (f[j + length] - t) % Q
            i -= 1
        length *= 2
    return [x * 3303 % Q for x in f]


def multiply(f: Poly, g: Poly) -> Poly:
    """Algorithm 11."""
    h = []
    for i in range(128):
        (a, b), (c, d) = f[2 * i : 2 * i + 2], g[2 * i : 2 * i + 2]
        h += [(a * c + b * d * GAMMAS[i]) % Q, (a * d + b * c) % Q]
    return h


def add(*polys: Poly) -> Poly:
    return [sum(column) % Q for column in zip(*polys, strict=True)]


def unpack(data: bytes, bits: int) -> Poly:
    """Algorithm 6: numbers of so many bits, the lowest first."""
    whole = int.from_bytes(data, "little")
    return [whole >> (bits * i) & (1 << bits) - 1 for i in range(8 * len(data) // bits)]


def pack(f: Poly, bits: int) -> bytes:
    return sum(x << bits * i for i, x in enumerate(f)).to_bytes(len(f) * bits // 8, "little")


def compress(f: Poly, bits: int) -> Poly:
    return [((x << bits + 1) + Q) // (2 * Q) % (1 << bits) for x in f]


def decompress(f: Poly, bits: int) -> Poly:
    return [(2 * x * Q + (1 << bits)) >> bits + 1 for x in f]


def uniform(rho: bytes, i: int, j: int) -> Poly:
    """Algorithm 7."""
    stream, found, at = hashlib.shake_128(rho + bytes([j, i])).digest(3 * 1000), [], 0
    while len(found) < N:
        a, b, c = stream[at : at + 3]
        found += [x for x in (a + 256 * (b % 16), b // 16 + 16 * c) if x < Q]
        at += 3
    return found[:N]


def small(seed: bytes, counter: int) -> Poly:
    """Algorithm 8, eta = 2."""
    bits = unpack(hashlib.shake_256(seed + bytes([counter])).digest(64 * ETA), 1)
    return [(bits[4 * i] + bits[4 * i + 1] - bits[4 * i + 2] - bits[4 * i + 3]) % Q for i in range(N)]


def matrix(rho: bytes) -> list[list[Poly]]:
    return [[uniform(rho, i, j) for j in range(K)] for i in range(K)]


def kem_keys(d: bytes) -> tuple[bytes, list[Poly]]:
    """Algorithm 13: the public key, and the secret vector."""
    seeds = hashlib.sha3_512(d + bytes([K])).digest()
    rho, sigma = seeds[:32], seeds[32:]
    secret = [ntt(small(sigma, i)) for i in range(K)]
    errors = [ntt(small(sigma, K + i)) for i in range(K)]
    rows = [add(*(multiply(a, s) for a, s in zip(row, secret, strict=True)), e)
            for row, e in zip(matrix(rho), errors, strict=True)]  # fmt: skip
    return b"".join(pack(row, 12) for row in rows) + rho, secret


def kem_encrypt(public: bytes, message: bytes, randomness: bytes) -> bytes:
    """Algorithm 14."""
    rows, rho = [unpack(public[384 * i : 384 * i + 384], 12) for i in range(K)], public[384 * K :]
    y = [ntt(small(randomness, i)) for i in range(K)]
    a = matrix(rho)
    u = [add(inverse_ntt(add(*(multiply(a[j][i], y[j]) for j in range(K)))), small(randomness, K + i))
         for i in range(K)]  # fmt: skip
    v = inverse_ntt(add(*(multiply(t, s) for t, s in zip(rows, y, strict=True))))
    v = add(v, small(randomness, 2 * K), decompress(unpack(message, 1), 1))
    return b"".join(pack(compress(f, DU), DU) for f in u) + pack(compress(v, DV), DV)


def kem_open(seed: bytes, ciphertext: bytes) -> bytes:
    """Algorithms 15 and 18: the shared secret. Another ciphertext than the message's own gives an unrelated one."""
    public, secret = kem_keys(seed[:32])
    u = [decompress(unpack(ciphertext[320 * i : 320 * i + 320], DU), DU) for i in range(K)]
    v = decompress(unpack(ciphertext[320 * K :], DV), DV)
    inner = inverse_ntt(add(*(multiply(s, ntt(f)) for s, f in zip(secret, u, strict=True))))
    message = pack(compress([(x - y) % Q for x, y in zip(v, inner, strict=True)], 1), 1)
    keys = hashlib.sha3_512(message + hashlib.sha3_256(public).digest()).digest()
    is_its_own = kem_encrypt(public, message, keys[32:]) == ciphertext
    return keys[:32] if is_its_own else hashlib.shake_256(seed[32:] + ciphertext).digest(32)


def box_key(secret: bytes) -> bytes:
    """The public key of whom boxes are for."""
    seeds = hashlib.shake_256(secret).digest(96)
    return kem_keys(seeds[:32])[0] + x25519_public(seeds[64:])


def x_wing(secret: bytes, encapsulated: bytes) -> bytes:
    """The shared secret of both halves."""
    seeds = hashlib.shake_256(secret).digest(96)
    ciphertext, ephemeral = encapsulated[:1088], encapsulated[1088:]
    of_curve, public = x25519(seeds[64:], ephemeral), x25519_public(seeds[64:])
    need(any(of_curve), "no key of small order")
    halves = kem_open(seeds[:64], ciphertext) + of_curve + ephemeral + public
    return hashlib.sha3_256(halves + bytes.fromhex("5c2e2f2f5e5c")).digest()


def _extract(salt: bytes, label: bytes, secret: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + SUITE + label + secret, hashlib.sha256)


def _expand(key: bytes, label: bytes, info: bytes, n_bytes: int) -> bytes:
    labelled = n_bytes.to_bytes(2, "big") + b"HPKE-v1" + SUITE + label + info
    return hmac.digest(key, labelled + b"\x01", hashlib.sha256)[:n_bytes]


def open_box(secret: bytes, box: bytes, info: bytes) -> bytes:
    """RFC 9180, section 5.1.1 and 5.2: base mode, the first message."""
    shared = x_wing(secret, box[:1120])
    context = b"\0" + _extract(b"", b"psk_id_hash", b"") + _extract(b"", b"info_hash", info)
    key = _extract(shared, b"secret", b"")
    return open_sealed(_expand(key, b"key", context, 32), _expand(key, b"base_nonce", context, 12) + box[1120:], b"")
