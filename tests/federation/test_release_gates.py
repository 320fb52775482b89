"""Gates refuse what leaks by construction, warn of what leaks by statistics, and let pass what is allowed by name."""

from __future__ import annotations

import numpy as np
import pytest

from analytic.errors import SpecificationError
from analytic.row_format import RowFormat
from analytic.statistics import Statistics, StatisticsSpec
from federation.release import (
    Gate,
    ReleasePolicy,
    ReleaseRefusedError,
    gram_rank,
    predicted_membership_auc,
)

FORMAT = RowFormat(integer_bits=4, fraction_bits=4, signed=True)
POLICY = ReleasePolicy(min_survivors=5)


def total_of(n_rows: int, d: int = 6, seed: int = 0) -> Statistics:
    rng = np.random.default_rng(seed)
    spec = StatisticsSpec(n_features=d, n_targets=2, feature_format=FORMAT, max_rows=10_000)
    return Statistics.from_rows(spec, rng.normal(size=(n_rows, d)), rng.integers(0, 2, n_rows))


def refused(error: pytest.ExceptionInfo[ReleaseRefusedError]) -> set[Gate]:
    return {concern.gate for concern in error.value.concerns}


def test_a_large_total_passes_without_a_word() -> None:
    assert POLICY.before_release(total_of(4000), range(10)) == ()
    assert POLICY.before_release(None, range(10)) == ()


def test_too_few_clients_are_refused_before_and_after() -> None:
    with pytest.raises(ReleaseRefusedError, match="needs at least 5 clients and has 4") as before:
        POLICY.before_release(None, range(4))
    with pytest.raises(ReleaseRefusedError) as after:
        POLICY.before_release(total_of(4000), range(4))
    assert refused(before) == refused(after) == {Gate.SURVIVORS}


def test_a_client_that_is_named_twice_counts_once() -> None:
    with pytest.raises(ReleaseRefusedError, match="has 1"):
        POLICY.before_release(None, [7, 7, 7, 7, 7])


def test_a_total_of_too_low_a_rank_is_refused() -> None:
    with pytest.raises(ReleaseRefusedError, match="rank 5 and 6 features") as error:
        POLICY.before_release(total_of(5), range(10))
    assert refused(error) == {Gate.RANK}
    POLICY.before_release(total_of(6), range(10))


def test_features_that_nobody_uses_do_not_count_against_the_rank() -> None:
    gram = np.zeros((4, 4), dtype=np.int64)
    gram[:2, :2] = [[50, 1], [1, 50]]
    total = Statistics(gram=gram, cross=np.zeros((4, 1), dtype=np.int64), count=9000)
    assert gram_rank(total) == 2
    assert POLICY.before_release(total, range(10)) == ()


def test_a_total_of_nothing_has_rank_0() -> None:
    assert gram_rank(Statistics(gram=np.zeros((3, 3), np.int64), cross=np.zeros((3, 1), np.int64), count=9)) == 0


def test_totals_that_differ_by_few_clients_are_refused() -> None:
    earlier = [frozenset(range(20))]
    with pytest.raises(ReleaseRefusedError, match="by 1 clients") as error:
        POLICY.before_release(None, range(19), earlier=earlier)
    assert refused(error) == {Gate.COHORT_DIFFERENCE}
    with pytest.raises(ReleaseRefusedError, match="by 2 clients"):
        POLICY.before_release(None, [*range(19), 33], earlier=earlier)
    with pytest.raises(ReleaseRefusedError, match="by 4 clients"):
        POLICY.before_release(None, range(16), earlier=earlier)
    assert POLICY.before_release(None, range(20), earlier=earlier) == ()
    assert POLICY.before_release(None, range(15), earlier=earlier) == ()


def test_membership_is_a_warning_of_exact_totals() -> None:
    (concern,) = POLICY.before_release(total_of(40), range(10))
    assert (concern.gate, concern.refuses) == (Gate.MEMBERSHIP, False)
    assert "AUC of about 0.68" in concern.message
    assert POLICY.before_release(None, range(10)) == ()


def test_a_gate_opens_by_name_only() -> None:
    policy = ReleasePolicy(allow=frozenset({Gate.RANK}))
    assert {concern.gate for concern in policy.before_release(total_of(5), range(10))} == {Gate.RANK, Gate.MEMBERSHIP}
    with pytest.raises(ReleaseRefusedError) as error:
        policy.before_release(total_of(5), range(3))
    assert refused(error) == {Gate.SURVIVORS}


def test_the_predicted_auc_is_the_formula_of_the_notes() -> None:
    assert predicted_membership_auc(64**2, 64) == pytest.approx(0.6915, abs=1e-4)
    assert predicted_membership_auc(10_000, 768) == pytest.approx(0.9999, abs=1e-3)
    assert predicted_membership_auc(50_000, 512) == pytest.approx(0.874, abs=1e-3)
    assert predicted_membership_auc(5, 64) == 1.0
    assert predicted_membership_auc(0, 64) == 0.5


def test_a_policy_checks_itself() -> None:
    for wrong in ({"min_survivors": 1}, {"highest_auc": 0.5}, {"highest_auc": 1.1}):
        with pytest.raises(SpecificationError, match="a policy needs"):
            ReleasePolicy(**wrong)  # type: ignore[arg-type]
