"""Gates refuse what leaks by construction, warn of what leaks by statistics, and let pass what is allowed by name."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from analytic.errors import SpecificationError
from analytic.learner import ClientRows
from analytic.row_format import RowFormat
from analytic.scaling import Agreement
from analytic.statistics import Statistics, StatisticsSpec
from analytic_secagg.federation import Federation
from analytic_secagg.learners import LEARNERS, LearnerSettings
from analytic_secagg.release import (
    QUESTIONS,
    WARNINGS,
    Gate,
    ReleasePolicy,
    ReleaseRefusedError,
    gram_rank,
    predicted_membership_auc,
    rare_columns,
)
from secagg import SumResult

FORMAT = RowFormat(integer_bits=4, fraction_bits=4, signed=True)
WIDE = RowFormat(integer_bits=14, fraction_bits=8, signed=True)
POLICY = ReleasePolicy(min_survivors=5)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "release-gates.md"


def statistics(
    features: NDArray[Any], targets: NDArray[Any], row_format: RowFormat = FORMAT, *, n_targets: int = 2
) -> Statistics:
    d = features.shape[1]
    spec = StatisticsSpec(n_features=d, n_targets=n_targets, feature_format=row_format, max_rows=10_000)
    return Statistics.from_rows(spec, features, targets)


def total_of(n_rows: int, d: int = 6, seed: int = 0) -> Statistics:
    rng = np.random.default_rng(seed)
    return statistics(rng.normal(size=(n_rows, d)), np.arange(n_rows) % 2)


def refused(error: pytest.ExceptionInfo[ReleaseRefusedError]) -> set[Gate]:
    return {concern.gate for concern in error.value.concerns}


def found(total: Statistics | tuple[Statistics, ...], policy: ReleasePolicy = POLICY) -> set[Gate]:
    """The gates that say something of a total of ten clients, refused or not."""
    everything = replace(policy, allow=frozenset(Gate))
    return {concern.gate for concern in everything.before_release(total, range(10))}


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


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(ReleaseRefusedError, match="needs at least 40 rows and has 39") as error:
        ReleasePolicy(min_rows=40).before_release(total_of(39, d=2), range(10))
    assert refused(error) == {Gate.ROWS}
    assert found(total_of(40, d=2), ReleasePolicy(min_rows=40)) <= {Gate.MEMBERSHIP}


def rare(n_rare: int) -> tuple[NDArray[Any], Statistics]:
    """2 000 rows of which the last few are of a third class."""
    features, targets = np.random.default_rng(3).normal(size=(2000, 6)), np.arange(2000) % 2
    targets[2000 - n_rare :] = 2
    return FORMAT.quantise(features), statistics(features, targets, n_targets=3)


def test_a_class_of_one_row_is_that_row_bit_for_bit_and_is_refused() -> None:
    """The attack is one column of a total of 2 000 rows of ten clients."""
    features, total = rare(1)
    assert total.cross[:, 2].tolist() == features[-1].tolist()
    with pytest.raises(ReleaseRefusedError, match="1 of 3 classes have fewer than 5 rows") as error:
        POLICY.before_release(total, range(10))
    assert refused(error) == {Gate.CLASS_ROWS}


@pytest.mark.parametrize(("n_rare", "passes"), [(0, True), (4, False), (5, True)])
def test_a_class_has_no_rows_or_enough(n_rare: int, passes: bool) -> None:
    assert (Gate.CLASS_ROWS in found(rare(n_rare)[1])) is not passes
    assert Gate.CLASS_ROWS not in found(rare(4)[1], ReleasePolicy(min_class_rows=4))


def test_a_total_that_says_classes_alone_is_judged_by_them() -> None:
    with pytest.raises(ReleaseRefusedError) as error:
        POLICY.before_release(Statistics.of_counts(9, np.array([8, 0, 1])), range(10))
    assert refused(error) == {Gate.ROWS, Gate.CLASS_ROWS}
    assert found(Statistics.of_counts(90, np.array([80, 0, 10]))) == set()


def categories(n_rare: int) -> tuple[NDArray[Any], Statistics]:
    """2 000 rows with a one-hot group, whose third category few rows have, and an intercept."""
    rng = np.random.default_rng(5)
    group = np.arange(2000) % 2
    group[1000 : 1000 + n_rare] = 2
    features = np.hstack([rng.normal(size=(2000, 4)), np.eye(3)[group], np.ones((2000, 1))])
    return FORMAT.quantise(features), statistics(features, rng.integers(0, 2, 2000))


def test_a_category_of_one_row_is_that_row_bit_for_bit_and_the_gate_says_so() -> None:
    features, total = categories(1)
    assert (total.gram[6] // 16).tolist() == features[1000].tolist()
    (concern,) = POLICY.before_release(total, range(10))
    assert (concern.gate, concern.refuses) == (Gate.COLUMN_ROWS, False)
    assert "1 of 8 columns have one value in all rows but fewer than 5" in concern.message
    assert [rare_columns(categories(n)[1], 5) for n in (1, 4, 5)] == [1, 1, 0]


def test_a_column_of_one_row_is_seen_whatever_its_value_is() -> None:
    features = np.zeros((3000, 2))
    features[:, 0], features[17, 1] = np.random.default_rng(0).normal(size=3000), -1.3
    assert rare_columns(statistics(features, np.arange(3000) % 2), 5) == 1


@pytest.mark.parametrize("n_rows", [5, 6, 8, 16])
def test_a_total_of_too_few_rows_for_its_rank_is_refused(n_rows: int) -> None:
    policy = ReleasePolicy(min_rows=1, min_class_rows=1)
    with pytest.raises(ReleaseRefusedError, match=f"rank {min(n_rows, 6)} in 6 columns, 2 targets and {n_rows}") as one:
        policy.before_release(total_of(n_rows), range(10))
    assert refused(one) == {Gate.RANK}
    assert Gate.RANK not in found(total_of(17), policy)
    assert Gate.RANK not in found(total_of(9), replace(policy, rows_per_rank=1))


def test_rows_that_occur_twice_count_once() -> None:
    rng = np.random.default_rng(2)
    features, targets = rng.normal(size=(20, 30)), rng.integers(0, 2, 20)
    total = statistics(np.repeat(features, 2, axis=0), np.repeat(targets, 2))
    assert total.count == 40
    assert Gate.RANK in found(total)


@pytest.mark.parametrize("binary", [False, True])
def test_rows_of_zeros_hide_no_few_others(binary: bool) -> None:
    """20 rows of 60 columns among 1 000 of zeros: as few as without these, and their columns depend on each other."""
    rng, features = np.random.default_rng(4), np.zeros((1000, 60))
    features[:20] = rng.integers(0, 2, (20, 60)) if binary else rng.normal(size=(20, 60))
    total = statistics(features, np.arange(1000) % 2)
    rank, loose = gram_rank(total)
    assert rank == 20
    assert loose > 30
    assert Gate.RANK in found(total)


def test_columns_of_very_different_size_are_no_few_rows() -> None:
    """Creatinine near 1 beside platelets near 10 000: the Gram's diagonal spans eight orders of ten."""
    rng = np.random.default_rng(0)
    features = np.stack([rng.normal(1, 0.2, 2000), rng.normal(8000, 900, 2000), rng.normal(60, 9, 2000)], axis=1)
    total = statistics(features, rng.integers(0, 2, 2000), WIDE)
    assert total.gram.diagonal().max() > 10**7 * total.gram.diagonal().min()
    assert gram_rank(total) == (3, 0)
    assert POLICY.before_release(total, range(10)) == ()


def test_columns_that_follow_by_construction_are_no_few_rows() -> None:
    """All of two one-hot groups beside an intercept, and a column twice."""
    rng = np.random.default_rng(1)
    groups = [np.eye(4)[rng.integers(0, 4, 3000)], np.eye(3)[rng.integers(0, 3, 3000)]]
    free = rng.normal(size=(3000, 2))
    total = statistics(np.hstack([*groups, free, free[:, :1], np.ones((3000, 1))]), rng.integers(0, 2, 3000))
    assert gram_rank(total) == (8, 0)
    assert POLICY.before_release(total, range(10)) == ()


def test_features_that_nobody_uses_do_not_count_against_the_rank() -> None:
    gram = np.zeros((4, 4), dtype=np.int64)
    gram[:2, :2] = [[50, 1], [1, 50]]
    total = Statistics(gram=gram, cross=np.zeros((4, 1), dtype=np.int64), count=9000)
    assert gram_rank(total) == (2, 0)
    assert POLICY.before_release(total, range(10)) == ()


def test_a_total_of_nothing_has_rank_0() -> None:
    nothing = Statistics(gram=np.zeros((3, 3), np.int64), cross=np.zeros((3, 1), np.int64), count=9)
    assert gram_rank(nothing) == (0, 0)


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


def test_membership_is_a_warning_of_exact_totals_and_an_upper_estimate() -> None:
    (concern,) = POLICY.before_release(total_of(40), range(10))
    assert (concern.gate, concern.refuses) == (Gate.MEMBERSHIP, False)
    assert "AUC of at most about 0.68" in concern.message
    assert "an upper estimate" in concern.message
    assert POLICY.before_release(None, range(10)) == ()


def test_small_counts_are_a_warning() -> None:
    (concern,) = POLICY.before_release(np.array([0, 9, 4, 1]), range(10))
    assert (concern.gate, concern.refuses) == (Gate.SMALL_COUNTS, False)
    assert "2 of 3 counts are of fewer than 5 rows" in concern.message


def test_a_gate_opens_by_name_only() -> None:
    policy = ReleasePolicy(allow=frozenset({Gate.RANK}))
    assert {concern.gate for concern in policy.before_release(total_of(12), range(10))} == {Gate.RANK, Gate.MEMBERSHIP}
    with pytest.raises(ReleaseRefusedError) as error:
        policy.before_release(total_of(12), range(3))
    assert refused(error) == {Gate.SURVIVORS}


def test_each_part_of_a_total_is_judged_and_a_part_that_nobody_has_is_not() -> None:
    parts = (replace(total_of(4000), n_clients=10), replace(total_of(8), n_clients=2), Statistics.of_counts(0))
    with pytest.raises(ReleaseRefusedError) as error:
        POLICY.before_release((*parts[:2], replace(parts[2], n_clients=0)), range(10))
    assert refused(error) == {Gate.SURVIVORS, Gate.ROWS, Gate.CLASS_ROWS, Gate.RANK}
    assert all(concern.message.startswith("part 2 of 3") for concern in error.value.concerns)


def test_the_predicted_auc_is_the_formula_of_the_notes() -> None:
    assert predicted_membership_auc(64**2, 64) == pytest.approx(0.6915, abs=1e-4)
    assert predicted_membership_auc(10_000, 768) == pytest.approx(0.9999, abs=1e-3)
    assert predicted_membership_auc(50_000, 512) == pytest.approx(0.874, abs=1e-3)
    assert predicted_membership_auc(5, 64) == 1.0
    assert predicted_membership_auc(0, 64) == 0.5


def test_a_policy_checks_itself() -> None:
    for wrong in ({"min_survivors": 1}, {"highest_auc": 0.5}, {"highest_auc": 1.1}, {"min_rows": 0}):
        with pytest.raises(SpecificationError, match="a policy needs"):
            ReleasePolicy(**wrong)  # type: ignore[arg-type]
    for less in ({"min_class_rows": 0}, {"rows_per_rank": 0.9}, {"rows_per_rank": float("inf")}):
        with pytest.raises(SpecificationError, match="a policy needs"):
            ReleasePolicy(**less)  # type: ignore[arg-type]


def test_the_table_has_every_gate_with_a_threshold_that_a_policy_has() -> None:
    thresholds = {field.name: str(field.default) for field in fields(ReleasePolicy) if field.name != "allow"}
    assert list(QUESTIONS) == list(Gate)
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    shown = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| *")]
    assert [row[0] for row in shown] == [f"*{gate.value}*" for gate in Gate]
    assert {row[2] for row in shown} == {f"`{name}` ({default})" for name, default in thresholds.items()}
    assert [row[3] for row in shown] == ["warns" if gate in WARNINGS else "refuses" for gate in Gate]


@pytest.mark.parametrize(("usual", "other"), [(1.0, 0.0), (0.0, 1.0), (1.0, 2.0), (-0.3125, 2.5)])
def test_the_one_row_that_differs_in_a_column_is_seen(usual: float, other: float) -> None:
    """The only patient without a finding is in the total as much as the only one with it; standardised ones, too."""
    rng = np.random.default_rng(0)
    features = np.round(rng.normal(0, 3, (400, 6)) * 16) / 16
    features[:, 0] = usual
    features[7, 0] = other
    total = statistics(features, np.arange(400) % 2)
    assert total.column_sums is not None
    apart, usual_units = int((other - usual) * 16), int(usual * 16)
    row = (total.gram[0] - usual_units * total.column_sums) // apart
    assert row[1:].tolist() == (features[7, 1:] * 16).tolist()  # the row itself
    assert rare_columns(total, 5) == 1
    assert rare_columns(statistics(features[:, 1:], np.arange(400) % 2), 5) == 0


def test_derived_columns_of_thousands_of_rows_are_warned_of_and_released() -> None:
    """A mean of two others, a unit converted, a one-hot group that is standardised: ordinary tables of a hospital."""
    rng = np.random.default_rng(0)
    systolic, diastolic = rng.normal(130, 20, 5000), rng.normal(80, 10, 5000)
    groups = np.eye(4)[rng.integers(0, 4, 5000)]
    table = np.column_stack([systolic, diastolic, (systolic + 2 * diastolic) / 3, 1.8 * systolic + 32, groups])
    rows = ClientRows(table, rng.integers(0, 2, 5000))
    for agreement in Agreement:
        settings = LearnerSettings(
            n_features=8,
            n_classes=2,
            feature_format=RowFormat.parse("Q12.8"),
            max_rows=2**13,
            max_clients=5,
            ridge=1.0,
            agreement=agreement,
        )
        federation = Federation(LEARNERS["afl"].build(settings), release=ReleasePolicy())
        while (step := federation.next_sum) is not None:
            parts = [step.vector(rows.taken(np.arange(5000) % 5 == place)) for place in range(5)]
            total = np.sum(parts, axis=0)
            record = federation.take(SumResult(total=total, survivors=(1, 2, 3, 4, 5)))
        gates = [concern.gate for concern in record.concerns]
        assert Gate.DEPENDENT_COLUMNS in gates
        assert Gate.RANK not in gates
