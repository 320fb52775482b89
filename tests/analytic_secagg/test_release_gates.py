"""Gates refuse what leaks by construction, warn of what leaks by statistics, and let pass what is allowed by name."""

from __future__ import annotations

from collections.abc import Iterable
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


def judged(
    total: Statistics | tuple[Statistics, ...] | NDArray[Any] | None,
    survivors: Iterable[int] = range(10),
    policy: ReleasePolicy = POLICY,
    earlier: Iterable[frozenset[int]] = (),
) -> tuple[set[Gate], set[Gate], str]:
    """The gates that refuse a total, those that only warn of it, and what they say."""
    try:
        concerns = policy.before_release(total, tuple(survivors), earlier=earlier)
    except ReleaseRefusedError as error:
        refusing = {concern.gate for concern in error.concerns}
        everything = replace(policy, allow=frozenset(Gate)).before_release(total, tuple(survivors), earlier=earlier)
        return refusing, {concern.gate for concern in everything} - refusing, str(error)
    return set(), {concern.gate for concern in concerns}, " ".join(concern.message for concern in concerns)


def by_construction() -> Statistics:
    """All of two one-hot groups beside an intercept, and a column twice."""
    rng = np.random.default_rng(1)
    groups = [np.eye(4)[rng.integers(0, 4, 3000)], np.eye(3)[rng.integers(0, 3, 3000)]]
    free = rng.normal(size=(3000, 2))
    return statistics(np.hstack([*groups, free, free[:, :1], np.ones((3000, 1))]), rng.integers(0, 2, 3000))


def of_very_different_size() -> Statistics:
    """Creatinine near 1 beside platelets near 10 000: the Gram's diagonal spans eight orders of ten."""
    rng = np.random.default_rng(0)
    features = np.stack([rng.normal(1, 0.2, 2000), rng.normal(8000, 900, 2000), rng.normal(60, 9, 2000)], axis=1)
    return statistics(features, rng.integers(0, 2, 2000), WIDE)


def partly_unused() -> Statistics:
    gram = np.zeros((4, 4), dtype=np.int64)
    gram[:2, :2] = [[50, 1], [1, 50]]
    return Statistics(gram=gram, cross=np.zeros((4, 1), dtype=np.int64), count=9000)


def each_row_twice() -> Statistics:
    rng = np.random.default_rng(2)
    features, targets = rng.normal(size=(20, 30)), rng.integers(0, 2, 20)
    return statistics(np.repeat(features, 2, axis=0), np.repeat(targets, 2))


@pytest.mark.parametrize(
    ("total", "rank"),
    [
        (of_very_different_size(), 3),
        (by_construction(), 8),
        (partly_unused(), 2),
        (Statistics(gram=np.zeros((3, 3), np.int64), cross=np.zeros((3, 1), np.int64), count=9), 0),
    ],
    ids=["columns of very different size", "columns that follow by construction", "features that nobody uses", "zeros"],
)
def test_columns_of_many_rows_are_no_few_rows(total: Statistics, rank: int) -> None:
    assert gram_rank(total) == (rank, 0)
    assert rank == 0 or judged(total) == (set(), set(), "")


FEW_ROWS, FEW_OF_A_CLASS = ReleasePolicy(min_rows=40), ReleasePolicy(min_class_rows=4)
OF_FEW = ReleasePolicy(min_rows=1, min_class_rows=1)
EARLIER = {"total": None, "earlier": [frozenset(range(20))]}
PARTS = (
    replace(total_of(4000), n_clients=10),
    replace(total_of(8), n_clients=2),
    replace(Statistics.of_counts(0), n_clients=0),
)
G = Gate


@pytest.mark.parametrize(
    ("of", "refusing", "said"),
    [
        ({"total": total_of(4000)}, set(), ""),
        ({"total": None}, set(), ""),
        ({"total": None, "survivors": range(4)}, {G.SURVIVORS}, "needs at least 5 clients and has 4"),
        ({"total": total_of(4000), "survivors": range(4)}, {G.SURVIVORS}, "has 4"),
        ({"total": None, "survivors": [7, 7, 7, 7, 7]}, {G.SURVIVORS}, "has 1"),
        ({"total": total_of(39, d=2), "policy": FEW_ROWS}, {G.ROWS}, "needs at least 40 rows and has 39"),
        ({"total": total_of(40, d=2), "policy": FEW_ROWS}, set(), ""),
        ({"total": Statistics.of_counts(9, np.array([8, 0, 1]))}, {G.ROWS, G.CLASS_ROWS}, ""),
        ({"total": Statistics.of_counts(90, np.array([80, 0, 10]))}, set(), ""),
        *(
            ({"total": total_of(n), "policy": OF_FEW}, {G.RANK}, f"rank {min(n, 6)} in 6 columns, 2 targets and {n}")
            for n in (5, 6, 8, 16)
        ),
        ({"total": total_of(17), "policy": OF_FEW}, set(), ""),
        ({"total": total_of(9), "policy": replace(OF_FEW, rows_per_rank=1)}, set(), ""),
        ({"total": each_row_twice()}, {G.RANK}, ""),
        (EARLIER | {"survivors": range(19)}, {G.COHORT_DIFFERENCE}, "by 1 clients"),
        (EARLIER | {"survivors": [*range(19), 33]}, {G.COHORT_DIFFERENCE}, "by 2 clients"),
        (EARLIER | {"survivors": range(16)}, {G.COHORT_DIFFERENCE}, "by 4 clients"),
        (EARLIER | {"survivors": range(20)}, set(), ""),
        (EARLIER | {"survivors": range(15)}, set(), ""),
        ({"total": total_of(12), "policy": ReleasePolicy(allow=frozenset({G.RANK}))}, set(), ""),
        (
            {"total": total_of(12), "policy": ReleasePolicy(allow=frozenset({G.RANK})), "survivors": range(3)},
            {G.SURVIVORS},
            "",
        ),
        ({"total": PARTS}, {G.SURVIVORS, G.ROWS, G.CLASS_ROWS, G.RANK}, "part 2 of 3"),
    ],
)
def test_a_total_is_refused_by_the_gates_that_it_fails_and_by_no_other(
    of: dict[str, Any], refusing: set[Gate], said: str
) -> None:
    found, _, told = judged(**of)
    assert found == refusing
    assert said in told


@pytest.mark.parametrize(
    ("total", "warning", "said"),
    [
        (total_of(40), G.MEMBERSHIP, "AUC of at most about 0.68, an upper estimate"),
        (np.array([0, 9, 4, 1]), G.SMALL_COUNTS, "2 of 3 counts are of fewer than 5 rows"),
    ],
    ids=["membership", "small counts"],
)
def test_what_leaks_by_statistics_is_warned_of(total: Any, warning: Gate, said: str) -> None:
    found = judged(total)
    assert found[:2] == (set(), {warning})
    assert all(part in found[2] for part in said.split(", "))


def rare(n_rare: int) -> tuple[NDArray[Any], Statistics]:
    """2 000 rows of which the last few are of a third class."""
    features, targets = np.random.default_rng(3).normal(size=(2000, 6)), np.arange(2000) % 2
    targets[2000 - n_rare :] = 2
    return FORMAT.quantise(features), statistics(features, targets, n_targets=3)


def test_a_class_of_one_row_is_that_row_bit_for_bit_and_is_refused() -> None:
    """The attack is one column of a total of 2 000 rows of ten clients."""
    features, total = rare(1)
    assert total.cross[:, 2].tolist() == features[-1].tolist()
    refusing, _, said = judged(total)
    assert refusing == {Gate.CLASS_ROWS}
    assert "1 of 3 classes have fewer than 5 rows" in said
    few = {n: Gate.CLASS_ROWS in judged(rare(n)[1])[0] for n in (0, 4, 5)}
    assert few == {0: False, 4: True, 5: False}
    assert Gate.CLASS_ROWS not in judged(rare(4)[1], policy=FEW_OF_A_CLASS)[0]


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


@pytest.mark.parametrize("binary", [False, True])
def test_rows_of_zeros_hide_no_few_others(binary: bool) -> None:
    """20 rows of 60 columns among 1 000 of zeros: as few as without these, and their columns depend on each other."""
    rng, features = np.random.default_rng(4), np.zeros((1000, 60))
    features[:20] = rng.integers(0, 2, (20, 60)) if binary else rng.normal(size=(20, 60))
    total = statistics(features, np.arange(1000) % 2)
    rank, loose = gram_rank(total)
    assert rank == 20
    assert loose > 30
    assert Gate.RANK in judged(total)[0]


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
