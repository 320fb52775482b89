"""Primes that SEAL can do number-theoretic transforms with."""

from __future__ import annotations

from functools import lru_cache

_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


@lru_cache(maxsize=256)
def largest_primes(degree: int, bits: int, count: int) -> tuple[int, ...]:
    """The ``count`` largest primes of exactly ``bits`` bits that are 1 modulo 2 ``degree``, ascending.

    This is the order in which SEAL's ``CoeffModulus::Create`` hands out primes of one size.

    Raises:
        ValueError: there are fewer.
    """
    step = 2 * degree
    found: list[int] = []
    candidate = ((1 << bits) - 1) // step * step + 1
    while len(found) < count and candidate >= 1 << (bits - 1):
        if candidate < 1 << bits and is_prime(candidate):
            found.append(candidate)
        candidate -= step
    if len(found) < count:
        raise ValueError(f"there are fewer than {count} primes of {bits} bits that are 1 modulo {step}")
    return tuple(reversed(found))


def largest_prime_below(degree: int, ceiling: int) -> int | None:
    """The largest prime less than ``ceiling`` that is 1 modulo 2 ``degree``; None if there is none."""
    step = 2 * degree
    candidates = range((ceiling - 2) // step * step + 1, step, -step)
    return next((candidate for candidate in candidates if is_prime(candidate)), None)


def is_prime(number: int) -> bool:
    """Whether ``number`` < 3.3e24 is prime: Miller-Rabin with the first 12 primes as bases decides it.

    Source: Sorenson and Webster, "Strong pseudoprimes to twelve prime bases", Math. Comp. 86, 2017, Theorem 1.1.
    """
    if number < 2:
        return False
    for prime in _WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(number, witness, odd, twos) for witness in _WITNESSES)


def _passes(number: int, witness: int, odd: int, twos: int) -> bool:
    power = pow(witness, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False
