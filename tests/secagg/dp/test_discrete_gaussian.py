"""The sampler against the law's exact probabilities and moments, with wrong samplers that must be told apart.

All tests here reject a right sampler with probability 1e-6 (``ALPHA``) at most.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from secagg.dp import PrivacyError
from secagg.dp.discrete_gaussian import DiscreteGaussian, _scaled_exp
from secagg.dp.discrete_gaussian import discrete_gaussian as cached_law
from secagg.entropy import Entropy, InsecureSeededEntropy

ALPHA = 1e-6
VARIANCES = (Fraction(1, 3), Fraction(1), Fraction(5, 2), Fraction(40), Fraction(9001))
N = 40_000

KNOWN_DRAWS = {
    9: "bef53708648add443b9cedef48c41ad44f4fb5c850b9a2df8dcdc9d027b755c6",
    10**6 + 7: "c5e36602d8e8351aa0da2ae6add364e6cb57cf5437bbb5dd00a75336a4bfc27b",
    2**80 + 5: "d2772a1bd3f1413479fe83d0c0469c86628ce7cb79412a7b0443afa6e9f7c91b",
}
"""By variance, the SHA-256 of 2 000 draws from one seed, as little-endian int64."""

Draws = np.ndarray


@pytest.mark.parametrize("variance", KNOWN_DRAWS)
def test_draws_from_one_seed_are_known(variance: int) -> None:
    """Seeded noise is part of recorded simulations. That the draws follow the law is tested below."""
    drawn = cached_law(variance).draw(2_000, InsecureSeededEntropy(0, "known draws"))
    assert hashlib.sha256(drawn.astype("<i8").tobytes()).hexdigest() == KNOWN_DRAWS[variance]


def seeded(seed: int) -> Entropy:
    """Reproducible bytes, many at once."""
    return np.random.default_rng(seed).bytes


def law(variance: Fraction) -> dict[int, float]:
    """Exact probabilities where there are any to speak of."""
    reach = math.ceil(12 * math.sqrt(variance)) + 3
    weights = {x: math.exp(-x * x / (2 * float(variance))) for x in range(-reach, reach + 1)}
    whole = math.fsum(weights.values())
    return {x: weight / whole for x, weight in weights.items()}


def p_value(drawn: Draws, probabilities: dict[int, float]) -> float:
    """Pearson's chi-square; neighbouring values are pooled until each cell expects at least 10 draws."""
    edges, expected, running = [], [], 0.0
    for value, probability in sorted(probabilities.items()):
        running += probability * len(drawn)
        if running >= 10:
            edges.append(value)
            expected.append(running)
            running = 0.0
    expected[-1] += running
    cells = np.searchsorted(np.array(edges[:-1]), drawn, side="left")
    observed = np.bincount(cells, minlength=len(expected))
    statistic = float(np.sum((observed - np.array(expected)) ** 2 / np.array(expected)))
    return float(chi2.sf(statistic, len(expected) - 1))


def wide_p_value(drawn: Draws, sigma: float) -> float:
    """Chi-square over 64 cells of equal mass of the normal law: where sigma > 1000 the lattice plays no part in it."""
    edges = [NormalDist().inv_cdf(k / 64) for k in range(1, 64)]
    observed = np.bincount(np.searchsorted(edges, drawn / sigma), minlength=64)
    return float(chi2.sf(float(np.sum((observed - len(drawn) / 64) ** 2)) / (len(drawn) / 64), 63))


def low_bits_p_value(drawn: Draws) -> float:
    """Chi-square of the lowest four bits against uniform: what is smooth in the large must be fine in the small."""
    observed = np.bincount(drawn & 15, minlength=16)
    return float(chi2.sf(float(np.sum((observed - len(drawn) / 16) ** 2)) / (len(drawn) / 16), 15))


@pytest.mark.statistical
@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_probabilities_are_those_of_the_law(variance: Fraction) -> None:
    """H0: draws follow N_Z(0, v). n = 40000, seed 1."""
    drawn = DiscreteGaussian(variance).draw(N, seeded(1))
    assert p_value(drawn, law(variance)) > ALPHA


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(100))
def test_probabilities_for_every_seed(seed: int) -> None:
    for variance in VARIANCES:
        assert p_value(DiscreteGaussian(variance).draw(N, seeded(seed)), law(variance)) > ALPHA


def saturated(rng: np.random.Generator, variance: Fraction) -> Draws:
    sigma = math.sqrt(variance)
    return np.clip(DiscreteGaussian(variance).draw(N, seeded(3)), -int(2 * sigma), int(2 * sigma))


def rounded_to_even(rng: np.random.Generator, variance: Fraction) -> Draws:
    return 2 * (DiscreteGaussian(variance).draw(N, seeded(3)) // 2)


def rounded_float(rng: np.random.Generator, variance: Fraction) -> Draws:
    return np.rint(rng.normal(scale=math.sqrt(variance), size=N)).astype(np.int64)


def ten_percent_short(rng: np.random.Generator, variance: Fraction) -> Draws:
    return DiscreteGaussian(variance * 9 / 10).draw(N, seeded(3))


@pytest.mark.statistical
@pytest.mark.parametrize("twin", [saturated, rounded_to_even, rounded_float, ten_percent_short])
def test_wrong_samplers_are_told_apart(twin: Callable[[np.random.Generator, Fraction], Draws]) -> None:
    """At v = 1, where a rounded float normal has variance 1 + 1/12."""
    assert p_value(twin(np.random.default_rng(5), Fraction(1)), law(Fraction(1))) < ALPHA


@pytest.mark.statistical
@pytest.mark.parametrize("bits", [12, 34, 55])
def test_wide_laws_have_their_moments_their_shape_and_their_low_bits(bits: int) -> None:
    """n = 200000, seed 4; moments of N_Z(0, v) equal the normal law's to 10^-100 here. Five tests at ALPHA."""
    sigma, n = 2.0**bits, 200_000
    drawn = DiscreteGaussian(4**bits).draw(n, seeded(4))
    scaled = drawn / sigma
    limit = NormalDist().inv_cdf(1 - ALPHA / 2)
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(float(np.mean(scaled**power)) - mean) < limit * math.sqrt(variance / n), power
    assert wide_p_value(drawn, sigma) > ALPHA
    assert low_bits_p_value(drawn) > ALPHA


@pytest.mark.statistical
def test_float_noise_is_told_apart_where_it_is_wide() -> None:
    """Doubles have 53 bits: at sigma 2^56 a float sampler leaves the low bits empty, and with them names neighbours."""
    wrong = (np.random.default_rng(6).normal(size=N) * 2.0**56).astype(np.int64)
    assert low_bits_p_value(wrong) < ALPHA
    assert wide_p_value(wrong, 2.0**56) > ALPHA
    saturated_at_31_bits = np.clip(DiscreteGaussian(10**18).draw(N, seeded(7)), -(2**31), 2**31 - 1)
    assert wide_p_value(saturated_at_31_bits, 1e9) < ALPHA


@given(st.fractions(Fraction(1, 100), Fraction(10**20)), st.integers(0, 2**32))
def test_clear_answers_of_floats_are_the_exact_ones(variance: Fraction, seed: int) -> None:
    """Whatever float64 decides by itself, decimals of any length decide the same way."""
    sampler, rng = DiscreteGaussian(variance), np.random.default_rng(seed)
    values = rng.integers(-sampler.radius, sampler.radius, endpoint=True, size=20)
    with np.errstate(under="ignore"):
        tops = sampler._scale * np.exp(-(values.astype(np.float64) ** 2) / (2.0 * float(variance)))
    heights = (tops * rng.uniform(0, 2, size=20)).astype(np.uint64)
    asked: list[int] = []

    def counted(n_bytes: int) -> bytes:
        asked.append(n_bytes)
        return rng.bytes(n_bytes)

    stand = sampler._stand(values, heights, counted)
    clear = np.abs(heights + 0.5 - tops) > 1 + tops * 2.0**-30
    for value, height, fine in zip(values[clear].tolist(), heights[clear].tolist(), stand[clear], strict=True):
        assert sampler._lies_below(value, height, counted) == fine


def nobody_draws(n_bytes: int) -> bytes:
    raise AssertionError("this height needs no further bits")


@pytest.mark.parametrize("variance", [*VARIANCES, Fraction(10**12), Fraction(4**50)], ids=str)
def test_proposals_are_nowhere_less_likely_than_the_law(variance: Fraction) -> None:
    """Else no rejection could give the law back. Within a block the law is highest where it begins."""
    sampler = DiscreteGaussian(variance)
    for block, height in enumerate((sampler._ends - sampler._starts).tolist()):
        exponent = Fraction((block << sampler._block_bits) ** 2) / (2 * variance)
        assert height >= _scaled_exp(exponent, sampler._scale)[1]
    assert int(sampler._ends[-1]) < 2**62, "all of them together are fewer than the points that are drawn"


@pytest.mark.parametrize("variance", [*VARIANCES, Fraction(10**12), Fraction(4**50)], ids=str)
def test_heights_next_to_the_law_are_decided_by_exact_numbers(variance: Fraction) -> None:
    """One step below it stands, one step above does not, where float64 cannot tell them apart."""
    sampler, sigma = DiscreteGaussian(variance), math.isqrt(math.ceil(variance))
    for value in (0, 1, -1, sigma, -2 * sigma):
        low, high = _scaled_exp(Fraction(value**2) / (2 * variance), sampler._scale)
        for step in (0, 1, 100, 10**4):
            heights = np.array([low - 1 - step, high + step], dtype=np.uint64)
            assert sampler._stand(np.full(2, value), heights, nobody_draws).tolist() == [True, False]


@pytest.mark.parametrize("thread_digits", [6, 28])
@given(st.fractions(Fraction(0), Fraction(200)), st.integers(1, 2**200) | st.sampled_from([2**62, 2**126, 2**190]))
def test_the_decimal_bounds_hold_the_true_value(thread_digits: int, exponent: Fraction, scale: int) -> None:
    """Whatever precision the calling thread has set for itself: a step rounded to it would miss at large scales."""
    with localcontext(prec=thread_digits):
        low, high = _scaled_exp(exponent, scale)
    finer = Context(prec=200)
    ratio = finer.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    true = finer.multiply(finer.exp(ratio.copy_negate()), Decimal(scale))
    assert low <= true <= high
    assert high - low <= 2


def test_an_undecided_height_is_drawn_further() -> None:
    """The height at the floor of the law's value: its fraction decides, and must be drawn; both answers come up."""
    sampler, value = DiscreteGaussian(100), 25
    low, _ = _scaled_exp(Fraction(value**2, 200), sampler._scale)
    asked: list[int] = []

    def answer(seed: int) -> bool:
        entropy = seeded(seed)

        def counted(n_bytes: int) -> bytes:
            asked.append(n_bytes)
            return entropy(n_bytes)

        return sampler._lies_below(value, low, counted)

    share = sum(answer(seed) for seed in range(2000)) / 2000
    finer = Context(prec=60)
    true = finer.multiply(finer.exp(Decimal(-625) / Decimal(200)), Decimal(sampler._scale)) - low
    assert len(asked) >= 2000
    assert abs(share - float(true)) < 5 * math.sqrt(0.25 / 2000)


def test_a_draw_takes_further_bits_from_its_own_entropy() -> None:
    """All proposals of this draw are 25 at the height that only further bits decide: zeros decide that it stands."""
    sampler = DiscreteGaussian(100)
    low, _ = _scaled_exp(Fraction(25**2, 200), sampler._scale)
    point = (int(sampler._starts[25]) + low) << 2
    asked: list[int] = []

    def chosen(n_bytes: int) -> bytes:
        asked.append(n_bytes)
        return point.to_bytes(8, "little") * (n_bytes // 16) + bytes(n_bytes // 2) if n_bytes > 8 else bytes(8)

    assert sampler.draw(1, chosen).tolist() == [25]
    assert asked == [asked[0]] + [8] * (asked[0] // 16)


@pytest.mark.parametrize("variance", [0, -1, 0.5, 2**113, True - 1], ids=str)
def test_variances_out_of_range_are_refused(variance: object) -> None:
    with pytest.raises(PrivacyError, match="variance"):
        DiscreteGaussian(variance)  # type: ignore[arg-type]


@given(st.integers(1, 10**12), st.integers(0, 300), st.integers(0, 2**32))
def test_draws_are_a_function_of_the_entropy_and_stay_within_the_radius(variance: int, n: int, seed: int) -> None:
    sampler = DiscreteGaussian(variance)
    drawn = sampler.draw(n, seeded(seed))
    assert drawn.dtype == np.int64
    assert drawn.shape == (n,)
    assert drawn.tobytes() == sampler.draw(n, seeded(seed)).tobytes()
    assert n == 0 or np.abs(drawn).max() <= sampler.radius
    assert sampler.radius**2 <= 196 * variance < (sampler.radius + 1) ** 2
