"""Attacks on one message: each finds a known answer in a plain sum, and nothing in a masked one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from federation.errors import UsageError
from federation.modes import MODES
from secagg import Layout
from simulations.audit.attack import attacked
from simulations.audit.attacks.lattice_rows import rebuild
from simulations.audit.attacks.membership import membership_scores
from simulations.audit.attacks.peeling import peel
from simulations.audit.catalogue import NAMES, ON_A_MESSAGE, choose_attacks, describe
from simulations.audit.controls import against
from simulations.audit.evaluate import Score, Verdict
from simulations.audit.reading import Reading
from simulations.audit.recorder import view_of
from simulations.audit.view import SERVER_ALONE
from simulations.audit.workbench import Bench

ATTACKS = {attack.name: attack for attack in ON_A_MESSAGE}
ALWAYS_RIGHT = [name for name in ATTACKS if name != "peeling"]
HIDING = [mode for mode in MODES if mode != "plain"]


def score_of(bench: Bench, name: str, mode: str, n_clients: int = 20) -> Score:
    cohort = bench.cohort(n_clients)
    return against(bench, ATTACKS[name], [(cohort, bench.run(MODES[mode], bench.vectors(cohort)))])


def reading_of(rows: np.ndarray, labels: np.ndarray, n_classes: int = 3) -> Reading:
    targets = np.eye(n_classes, dtype=np.int64)[labels]
    return Reading(gram=rows.T @ rows, cross=rows.T @ targets, count=len(rows))


@pytest.mark.parametrize("name", ALWAYS_RIGHT)
def test_an_attack_wins_every_trial_on_plain_digits(bench: Bench, name: str) -> None:
    score = score_of(bench, name, "plain")
    assert score.hits == score.trials
    assert score.trials >= 20


def test_peeling_wins_often_on_plain_digits(bench: Bench) -> None:
    assert score_of(bench, "peeling", "plain").verdict in (Verdict.LEAKS, Verdict.RECOVERED)


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_wins_on_a_masked_message(bench: Bench, name: str) -> None:
    score = score_of(bench, name, "masked")
    assert score.verdict in (Verdict.NO_EVIDENCE, Verdict.TOO_FEW)
    assert score.trials >= 20


@pytest.mark.slow
@pytest.mark.parametrize("mode", HIDING)
@pytest.mark.parametrize("seed", range(5))
def test_no_attack_wins_on_a_message_of_any_protected_mode(
    bench_of: Callable[[int], Bench], mode: str, seed: int
) -> None:
    if not MODES[mode].installed:
        pytest.skip(f"the extra of {mode} is not installed")
    for name in ATTACKS:
        verdict = score_of(bench_of(seed), name, mode).verdict
        assert verdict in (Verdict.NO_EVIDENCE, Verdict.TOO_FEW), name


def test_a_message_that_is_not_seen_gives_nothing(bench: Bench) -> None:
    cohort = bench.cohort(3)
    recorded = bench.run(MODES["plain"], bench.vectors(cohort))
    view = view_of((recorded,), SERVER_ALONE, bench.known())
    for attack in ON_A_MESSAGE:
        truth = bench.truth(cohort[1], recorded.inputs[1])
        score = attacked(attack, view, 99, truth, np.random.default_rng(0))
        assert not score.members or len(set(score.members)) == 1
        assert score.hits == 0 or score.chance == 0.5


def test_the_lattice_gives_rows_back_with_a_certificate() -> None:
    rng = np.random.default_rng(3)
    rows, labels = 64 * rng.integers(-40, 41, (15, 24)), rng.integers(0, 3, 15)
    found = rebuild(reading_of(rows, labels))
    assert found is not None
    assert found.certified
    order, true = np.lexsort(found.rows.T), np.lexsort(rows.T)
    assert np.array_equal(found.rows[order], rows[true])
    assert np.array_equal(found.labels[order], labels[true])


def test_the_lattice_claims_nothing_about_too_many_rows_or_noise() -> None:
    rng = np.random.default_rng(4)
    assert rebuild(reading_of(rng.integers(0, 16, (30, 12)), rng.integers(0, 3, 30))) is None
    noise = rng.integers(-(2**40), 2**40, (8, 8))
    assert rebuild(Reading(gram=noise + noise.T, cross=rng.integers(0, 2**40, (8, 3)), count=5)) is None


def test_two_equal_rows_are_no_certified_rows() -> None:
    rows = np.random.default_rng(5).integers(0, 16, (5, 9))
    rows[4] = rows[3]
    found = rebuild(reading_of(rows, np.array([0, 1, 2, 1, 1])))
    assert found is None or not found.certified


def test_one_hot_rows_peel_off_to_the_last() -> None:
    rows = np.array([[1, 0, 0, 1, 0], [1, 0, 0, 0, 1], [0, 1, 0, 0, 1]])
    found = peel(reading_of(rows, np.array([0, 1, 1])))
    assert found.certified
    assert sorted(map(tuple, found.rows)) == sorted(map(tuple, rows))
    crowd = np.array([[1, 1], [1, 2], [2, 1]])
    assert len(peel(reading_of(crowd, np.array([0, 0, 0]))).rows) == 0


def test_a_histogram_needs_independent_rows() -> None:
    rng = np.random.default_rng(6)
    labels = np.array([0, 0, 2, 2, 2])
    few = reading_of(rng.integers(0, 9, (5, 8)), labels)
    assert few.class_counts() is not None
    assert list(few.class_counts()) == [2, 0, 3]  # type: ignore[call-overload]
    assert few.rank == 5
    many = reading_of(rng.integers(0, 9, (20, 8)), rng.integers(0, 3, 20))
    assert many.class_counts() is None


def test_leverage_separates_rows_of_a_large_normal_sum() -> None:
    """Wishart: AUC = Phi(D / (2 sqrt N)), 0.87 for D = 32 and N = 200; 4000 rows tell it to a hundredth."""
    rng = np.random.default_rng(7)
    d, n = 32, 200
    aucs = []
    for _ in range(10):
        inside, outside, public = (rng.normal(size=(size, d)) for size in (n, n, 4000))
        scores = membership_scores(inside.T @ inside, np.concatenate([inside, outside]), public, n)
        aucs.append((scores[:n, None] > scores[None, n:]).mean())
    assert np.mean(aucs) == pytest.approx(0.87, abs=0.03)


def test_rows_coarser_than_their_format_show_their_scale() -> None:
    assert reading_of(np.array([[64, 128], [0, 192]]), np.array([0, 1])).scale == 64
    assert reading_of(np.array([[3, 5], [7, 1]]), np.array([0, 1])).scale == 1


def test_a_reading_takes_any_vector_of_its_layout() -> None:
    layout = Layout.of([("gram", 3, 9), ("cross", 2, 9), ("count", 1, 9)])
    reading = Reading.of(layout, np.array([1, 2, 3, 4, 5, -6]))
    assert reading.gram.tolist() == [[1, 2], [2, 3]]
    assert reading.cross.tolist() == [[4], [5]]
    assert reading.count == -6


def test_every_attack_explains_itself() -> None:
    words = describe(choose_attacks(None))
    assert list(words) == list(NAMES)
    for title, explanation in words.values():
        assert title[0].isupper()
        assert "Success:" in explanation
        assert "Chance:" in explanation
    with pytest.raises(UsageError, match="an attack is one of"):
        choose_attacks(["nonsense"])
