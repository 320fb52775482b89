"""A key holder that guesses a vector finds no trace of it in the noise of a BFV sum, and finds one under CKKS."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from support.extras import needs
from support.noise_of_sum import NoiseOfSum

from secagg import InsecureSeededEntropy, Layout, MaskedSum, PlainSum
from secagg.encryption import choose_parameters, encrypted, generate_contexts, rounding, schemes
from secagg.encryption.cipher import VectorCipher
from secagg.encryption.rounding import ROUNDING_WIDTH
from secagg.encryption.schemes import SchemeName
from secagg.ring import RingVector

needs("tenseal")

LAYOUT = Layout.of([("gram", 16 * 4096, 2**18)])
CLIENTS = (1, 2)


def played(scheme: SchemeName, sums: int, *, layout: Layout = LAYOUT) -> list[list[float]]:
    """For each of several sums of two clients: the noise's leaning towards a client's vector, and towards another."""
    parameters = choose_parameters(layout, len(CLIENTS), scheme=scheme)
    cipher, keys = VectorCipher(layout=layout, parameters=parameters, n_clients=2), generate_contexts(parameters)
    found = []
    rng = np.random.default_rng(0)
    for _ in range(sums):
        right, other, wrong = (
            RingVector.encode(layout, rng.integers(-1000, 1000, layout.size)) for _ in range(len(CLIENTS) + 1)
        )
        total = cipher.empty_sum()
        for vector in (right, other):
            total.add(cipher.encrypt(vector, keys.public_context))
        encrypted_sum = total.to_bytes()
        expected = right.copy()
        expected.add(other)
        assert cipher.decrypt(encrypted_sum, keys.secret_context).vector.to_bytes() == expected.to_bytes()
        noise = NoiseOfSum(cipher, encrypted_sum, keys.secret_context)
        found.append([noise.leaning(guess) for guess in (right, wrong)])
    return found


SUMS = 6
LIMIT = 5.0
"""Reject where ``together`` of SUMS sums is above LIMIT.

Null hypothesis: the noise of a sum is independent of the guess; each leaning is then normal with mean 0, deviation 1.
False positives: 1 - Phi(5) = 3e-7. With SEAL's own rounding in place of ours a leaning has mean 3.4 and deviation 0.9
(40 sums), so six together have mean 8.4, and a test that looks for them misses with probability Phi(5 - 8.4) = 4e-4.
"""


def together(values: list[float]) -> float:
    """The standardised sum of independent leanings."""
    return sum(values) / len(values) ** 0.5


def test_the_noise_of_a_bfv_sum_does_not_lean_towards_a_guessed_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = Layout.of([("gram", 4096, 2**44)])  # more primes than one
    assert all(right < LIMIT for right, _ in played("bfv", 1, layout=wide))
    assert together([right for right, _ in played("bfv", SUMS)]) < LIMIT
    monkeypatch.setattr(schemes, "randomise_rounding", lambda residues, *_: residues)  # SEAL's own rounding
    found = played("bfv", SUMS)
    assert together([right for right, _ in found]) > 3.5  # missed with probability Phi(3.5 - 8.4) = 5e-7
    assert together([wrong for _, wrong in found]) < LIMIT


def test_the_noise_of_a_ckks_sum_confirms_a_guess_and_its_guarantee_says_so() -> None:
    found = played("ckks", SUMS)
    assert together([right for right, _ in found]) > 3.5
    assert together([wrong for _, wrong in found]) < LIMIT
    small = Layout.of([("gram", 9, 9)])
    for scheme, confirms in (("bfv", False), ("ckks", True)):
        shape = {"layout": small, "clients": CLIENTS, "session_id": bytes(16)}
        unmasked = encrypted(PlainSum(**shape, min_survivors=2), scheme).protocol
        assert unmasked.guarantee.helpers_confirm_guesses == ("confirm a guess" in unmasked.explain()) == confirms
        assert not encrypted(MaskedSum(**shape), scheme).protocol.guarantee.helpers_confirm_guesses


@pytest.mark.parametrize("numerator", [0, 1, 500, 1018])
def test_coefficients_are_rounded_to_a_discrete_gaussian_around_where_they_are(numerator: int) -> None:
    drawn = rounding.gaussian_rounding(np.full(20_000, numerator), 1019, InsecureSeededEntropy(numerator))
    places = np.arange(1 - rounding.REACH, rounding.REACH + 1)
    weights = np.exp(-np.pi * ((places - numerator / 1019) / ROUNDING_WIDTH) ** 2)
    expected = 20_000 * weights / weights.sum()
    common = expected > 5
    counts = np.array([np.count_nonzero(drawn == place) for place in places])
    observed = [*counts[common], counts[~common].sum()]
    assert stats.chisquare(observed, [*expected[common], expected[~common].sum()]).pvalue > 1e-4


def test_the_error_s_first_four_moments_do_not_follow_the_message() -> None:
    """A coin between the two nearest integers would have the right mean, and a variance that tells the message."""
    numerators = np.repeat([0, 300, 509, 800], 50_000)
    errors = rounding.gaussian_rounding(numerators, 1019, InsecureSeededEntropy(7)) - numerators / 1019
    for power in (1, 2, 3, 4):
        groups = errors.reshape(4, -1) ** power
        means, spread = groups.mean(axis=1), groups.std() / 50_000**0.5
        assert np.abs(means - means.mean()).max() < 5 * spread
