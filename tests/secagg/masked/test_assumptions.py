"""Graph and threshold from a threat model, held against an independent implementation and exact counting."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from secagg.errors import ConfigurationError
from secagg.masked.assumptions import (
    Assumptions,
    complete_plan,
    log2_at_least,
    log2_at_most,
    log2_split,
    plan,
)
from secagg.masked.expander import eigenvalue_limit

PUBLISHED = [
    # clients, corruption, dropout, malicious server, degree, threshold: from the test table of Google's open-source
    # federated-compute (graph_parameter_finder_test), 2^-40 security and 2^-20 correctness. It draws neighbours from
    # all n clients where we draw them from the n - 1 others, hence the slack.
    (10, 0.33, 0.33, False, 8, 4),
    (100, 0.33, 0.33, False, 68, 34),
    (1000, 0.33, 0.33, False, 286, 150),
    (10000, 0.33, 0.33, False, 422, 221),
    (100, 0.45, 0.45, False, 92, 46),
    (1000, 0.45, 0.45, False, 822, 417),
    (100, 0.3, 0.3, True, 92, 62),
    (1000, 0.3, 0.3, True, 872, 584),
    (1000, 0.05, 0.33, False, 72, 24),
    (10000, 0.05, 0.33, False, 86, 29),
    (1000, 0.05, 0.33, True, 398, 223),
    (10000, 0.05, 0.33, True, 746, 420),
    (1000, 0.33, 0.05, False, 78, 60),
    (10000, 0.33, 0.05, False, 92, 70),
    (1000, 0.33, 0.05, True, 132, 109),
    (10000, 0.33, 0.05, True, 178, 146),
]


RING = {
    # what wire version 2 planned for the same promise and a malicious server; its ring and its bounds are gone
    (100, 0.3, 0.3): "99 (all), 66",
    (1000, 0.3, 0.3): "984, 685",
    (1000, 0.05, 0.33): "446, 255",
    (10000, 0.05, 0.33): "804, 456",
    (1000, 0.33, 0.05): "154, 129",
    (10000, 0.33, 0.05): "200, 166",
}


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "parameters.md"


def published_beside_ours() -> str:
    """The table of the page: what was published, and what ours takes for the same promise."""
    lines = [
        "| clients | corrupt | vanish | server | published neighbours, threshold | ours | ring, before |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for n, corruption, dropout, malicious, degree, threshold in PUBLISHED:
        found = plan(n, Assumptions(corruption=corruption, dropout=dropout, malicious_server=malicious))
        server = "malicious" if malicious else "semi-honest"
        ours = f"{found.degree}{' (all)' if found.is_complete else ''}, {found.threshold}"
        ring = RING[n, corruption, dropout] if malicious else ours
        lines.append(f"| {n} | {corruption} | {dropout} | {server} | {degree}, {threshold} | {ours} | {ring} |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_ours_beside_what_was_published() -> None:
    assert published_beside_ours() in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("n", "corruption", "dropout", "malicious", "degree", "threshold"), PUBLISHED)
def test_parameters_agree_with_an_independent_implementation(
    n: int, corruption: float, dropout: float, malicious: bool, degree: int, threshold: int
) -> None:
    found = plan(n, Assumptions(corruption=corruption, dropout=dropout, malicious_server=malicious))
    if malicious:
        assert found.degree <= degree
        assert found.threshold <= threshold
    else:
        assert abs(found.degree - degree) <= 2
        assert abs(found.threshold - threshold) <= 2


@examples(4)
@given(st.integers(4, 40), st.data())
def test_tails_are_those_of_the_hypergeometric_law(n: int, data: st.DataObject) -> None:
    degree = data.draw(st.integers(1, n - 1))
    marked = data.draw(st.integers(0, n - 1))
    total = math.comb(n - 1, degree)

    def exactly(m: int) -> Fraction:
        return Fraction(math.comb(marked, m) * math.comb(n - 1 - marked, degree - m), total)

    at_least, at_most = log2_at_least(n, marked, degree), log2_at_most(n, marked, degree)
    for m in range(degree + 1):
        above = min(Fraction(1), n * sum(exactly(j) for j in range(m, degree + 1)))
        below = min(Fraction(1), n * sum(exactly(j) for j in range(m + 1)))
        for computed, exact in ((at_least[m], above), (at_most[m], below)):
            # gammaln is good to about 1e-13 of values up to 1e3 here, so 1e-9 in the logarithm is ample.
            assert computed == pytest.approx(math.log2(exact), abs=1e-9) if exact else computed == -np.inf


def test_split_bound_covers_every_way_to_cut_a_small_harary_graph() -> None:
    n, degree = 9, 2
    neighbours = [{(node + step) % n for step in (-1, 1)} for node in range(n)]
    for removed in range(n - 1):
        cut = sum(
            not _is_connected(set(range(n)) - set(gone), neighbours)
            for gone in itertools.combinations(range(n), removed)
        )
        bound = log2_split(n, degree, removed)
        assert cut == 0 if bound == -np.inf else math.log2(max(cut, 1) / math.comb(n, removed)) <= bound + 1e-9


def _is_connected(nodes: set[int], neighbours: list[set[int]]) -> bool:
    reached, todo = set(), [min(nodes)]
    while todo:
        node = todo.pop()
        reached.add(node)
        todo += (neighbours[node] & nodes) - reached
    return reached == nodes


@pytest.mark.parametrize(("n", "corruption", "dropout"), [(1000, 0.33, 0.05), (2000, 0.05, 0.3), (10_000, 0.05, 0.33)])
def test_the_threshold_is_the_lowest_that_keeps_the_sum_in_one_part(n: int, corruption: float, dropout: float) -> None:
    """In exact fractions: the probability that some client has threshold - L corrupt neighbours or more."""
    assumptions = Assumptions(corruption=corruption, dropout=dropout, malicious_server=True)
    found, corrupt = plan(n, assumptions), assumptions.corrupt(n)
    assert not found.is_complete
    k, limit = found.degree, eigenvalue_limit(n, found.degree)

    def split(threshold: int) -> Fraction:
        ways = sum(math.comb(corrupt, m) * math.comb(n - 1 - corrupt, k - m) for m in range(threshold - limit, k + 1))
        return n * Fraction(ways, math.comb(n - 1, k))

    assert split(found.threshold) <= Fraction(1, 2**40) < split(found.threshold - 1)


@examples(4)
@given(
    st.integers(2, 400),
    st.floats(0, 0.4),
    st.floats(0, 0.4),
    st.booleans(),
)
def test_plans_keep_what_they_promise(n: int, corruption: float, dropout: float, malicious: bool) -> None:
    assumptions = Assumptions(corruption=corruption, dropout=dropout, malicious_server=malicious)
    try:
        found = plan(n, assumptions)
    except ConfigurationError:
        with pytest.raises(ConfigurationError):
            complete_plan(n, assumptions)
        return
    both = max if malicious else np.logaddexp2  # where the server lies the first event is in the second
    assert both(found.log2_opened, found.log2_split) <= -40
    assert found.log2_stuck <= -20
    if found.is_complete:
        assert found.threshold > assumptions.corrupt(n)
        assert found.threshold <= n - assumptions.dropouts(n)
        assert not malicious or 2 * found.threshold > n + assumptions.corrupt(n)


def test_the_threshold_of_a_complete_graph_is_the_lowest_above_half_of_all_and_the_corrupt() -> None:
    """Two survivor sets would need 2 threshold <= n + corrupt: honest clients sign one set, corrupt ones both."""
    planned = 0
    for n in range(2, 40):
        for corrupt in range(n):
            assumptions = Assumptions(corruption=corrupt / n, dropout=0.0, malicious_server=True)
            assert assumptions.corrupt(n) == corrupt
            plan = complete_plan(n, assumptions)
            assert plan.log2_opened == plan.log2_split == plan.log2_stuck == float("-inf")
            threshold = plan.threshold
            assert 2 * threshold > n + corrupt
            assert 2 * (threshold - 1) <= n + corrupt
            planned += 1
    assert planned == sum(range(2, 40))


@pytest.mark.parametrize("wrong", [{"corruption": 1.0}, {"dropout": -0.1}, {"security_bits": 0.0}])
def test_impossible_assumptions_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError):
        Assumptions(**wrong)


def test_a_cohort_that_cannot_be_safe_says_why() -> None:
    with pytest.raises(ConfigurationError, match=r"10 clients of which 5 collude and 5 vanish cannot be summed safely"):
        plan(10, Assumptions(corruption=0.5, dropout=0.5))
