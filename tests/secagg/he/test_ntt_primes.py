"""Our primes are SEAL's primes."""

from __future__ import annotations

import pytest
from support.extras import needs

from secagg.encryption.rings import is_prime, largest_prime_below, largest_primes


@pytest.mark.parametrize("degree", [4096, 8192, 16384])
@pytest.mark.parametrize(("bits", "count"), [(28, 1), (40, 3), (52, 2), (60, 2)])
def test_the_largest_primes_are_those_that_seal_creates(degree: int, bits: int, count: int) -> None:
    created = needs("tenseal").sealapi.CoeffModulus.Create(degree, [bits] * count)
    assert [prime.value() for prime in created] == list(largest_primes(degree, bits, count))


def test_primality_agrees_with_trial_division_and_knows_a_strong_pseudoprime() -> None:
    by_division = [n for n in range(3000) if n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))]
    assert [n for n in range(3000) if is_prime(n)] == by_division
    assert not is_prime(3215031751)  # strong pseudoprime to the bases 2, 3, 5 and 7
    assert not is_prime(2**61 - 3)
    assert is_prime(2**61 - 1)


@pytest.mark.parametrize("ceiling", [40962, 40963, 65537, 65538, 2**31, 2**59])
def test_the_prime_below_is_a_transform_prime_and_the_next(ceiling: int) -> None:
    prime = largest_prime_below(4096, ceiling)
    assert prime is not None
    assert prime < ceiling
    assert prime % 8192 == 1
    assert is_prime(prime)
    assert not any(is_prime(number) for number in range(prime + 8192, ceiling, 8192))


@pytest.mark.parametrize("ceiling", [0, 1, 8193, 40961])
def test_there_may_be_none(ceiling: int) -> None:
    assert largest_prime_below(4096, ceiling) is None


def test_too_few_primes_is_an_error() -> None:
    with pytest.raises(ValueError, match="fewer than 9"):
        largest_primes(16384, 18, 9)
