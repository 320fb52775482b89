"""The laws of all attacks, one attack and mode at a time: each wins where it must, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import fmpz_mat
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.examples import examples
from support.extras import needs
from support.faulty_sums import Client, Drawing, Sessions, faulty, leaving_out

from analytic_secagg.errors import UsageError
from analytic_secagg.modes import MODES, Mode
from secagg import Layout
from secagg.primitives.shamir import SHARE_BYTES
from simulations.audit.attack import (
    Attack,
    Expectation,
    ExposureAttack,
    TooLargeError,
    attacked,
)
from simulations.audit.attacks.collusion import ATTACK as COLLUSION
from simulations.audit.attacks.differencing import DifferentModels
from simulations.audit.attacks.membership import membership_scores
from simulations.audit.attacks.peeling import peel
from simulations.audit.attacks.rows import LATTICE_ROWS, MAX_ROWS, rebuild, reduced_basis
from simulations.audit.catalogue import ATTACKS, NAMES, choose_attacks
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.view import Reading
from simulations.audit.workbench import Bench

INSTALLED = [mode for mode in MODES.values() if mode.installed]
OF_A_MAP = "raw_rows"
"""The attack on rows behind a public map, for which these rows have none; see ``test_totals.py``."""
ON_A_MESSAGE = [
    attack
    for attack in ATTACKS.values()
    if isinstance(attack, ExposureAttack) and Kind.MESSAGE in attack.sees and attack.name != OF_A_MAP
]


def is_short(attack: Attack, mode: Mode) -> bool:
    """In the clear and under masks; in another mode where it may win there, or where masks are nothing to it."""
    return mode.name in ("plain", "masked") or (
        attack not in ON_A_MESSAGE
        and (attack.expected(MODES["masked"]) is None or attack.expected(mode) is Expectation.OPEN)
    )


def cells() -> Iterator[object]:
    """Every attack in every mode that it applies to."""
    for attack in ATTACKS.values():
        for mode in INSTALLED:
            if attack.expected(mode) is not None and attack.name != OF_A_MAP:
                marks = [] if is_short(attack, mode) else [pytest.mark.slow]
                yield pytest.param(attack, mode, id=f"{attack.name}-{mode.name}", marks=marks)


@pytest.mark.parametrize(("attack", "mode"), list(cells()))
def test_an_attack_wins_where_it_must_and_nowhere_else(
    bench_of: Callable[[int], Bench], attack: Attack, mode: Mode
) -> None:
    on_a_message = attack in ON_A_MESSAGE
    several = on_a_message and attack.name != "distinguishing"  # which makes sums enough by itself
    for seed in range(5 if several and mode.name not in ("plain", "masked") else 1):
        score, expectation = attack.play(bench_of(seed), mode, 2), attack.expected(mode)
        assert score.trials >= (20 if on_a_message and mode.name != "plain" else 1)  # in the clear until it has won
        if expectation is Expectation.LEAKS:
            assert score.hits == score.trials
        elif expectation is Expectation.HIDDEN:
            assert score.p_value > 1e-9
            assert on_a_message or score.hits == 0
        else:
            assert score.hits == score.trials or score.leaked


@pytest.mark.parametrize("attack", ON_A_MESSAGE, ids=lambda attack: attack.name)
def test_a_message_that_is_not_seen_gives_nothing(bench: Bench, attack: ExposureAttack[object]) -> None:
    recorded = bench.run(MODES["plain"], bench.vectors(cohort := bench.cohort(3)))
    seen, truth = Exposure.of((recorded,), 99), bench.truth(cohort[1], recorded.inputs[1])
    score = attacked(attack, seen, bench.known(), truth, np.random.default_rng(0))
    assert all(len(set(scores)) <= 1 for scores in score.outlying)
    assert score.hits == 0 or score.chance == 0.5


def test_what_is_expected_follows_from_the_mode() -> None:
    """The table of the threat model."""
    needs("tenseal")
    protected = {"masked", "committee", "ckks", "bfv", "masked+ckks", "masked+bfv"}
    found = {(attack.name, mode.name): attack.expected(mode) for attack in ATTACKS.values() for mode in MODES.values()}
    assert {found.pop(("differencing", mode)) for mode in MODES} == {Expectation.LEAKS}
    for name in {"all_sums", "attribute", "crafted_features", "group_share", "model_membership"}:  # no message
        assert {found.pop((name, mode)) for mode in MODES} == {None}
    ciphertexts = protected - {"masked", "committee"}
    assert {found.pop(("uniformity", mode)) for mode in ciphertexts} == {None}
    masks = {mode: found.pop(("mask_words", mode)) for mode in MODES}
    assert masks == {mode: Expectation.HIDDEN if mode in ("masked", "committee") else None for mode in MODES}
    found = {place: expectation for place, expectation in found.items() if expectation}
    open_cells = {place for place, expectation in found.items() if expectation is Expectation.OPEN}
    assert open_cells == {("peeling", "plain"), ("different_models", "ckks"), ("different_models", "bfv")}
    for (name, mode), expectation in found.items():
        if (name, mode) not in open_cells:
            assert expectation is (Expectation.LEAKS if mode == "plain" else Expectation.HIDDEN), (name, mode)


def test_what_may_be_seen_promises_nothing_and_a_crafted_map_leaks() -> None:
    of_totals = {attack.name: attack.expected(None) for attack in ATTACKS.values() if attack.expected(None)}
    assert of_totals.pop("crafted_features") is Expectation.LEAKS
    rows = {"lone_rows", "lattice_rows", "peeling", "dictionary", "membership", "raw_rows", "attribute"}
    assert of_totals == dict.fromkeys(
        {*rows, "label_histogram", "all_sums", "group_share", "model_membership"},
        Expectation.OPEN,
    )


def test_every_attack_explains_itself_and_answers_to_its_former_name() -> None:
    for attack in ATTACKS.values():
        assert attack.title[0].isupper()
        says = [word for word in ("Learnt:", "Success:", "Chance:") if word in attack.explanation]
        assert says in (["Success:", "Chance:"], ["Learnt:"])  # of an estimate
    assert choose_attacks(None) == frozenset(NAMES)
    assert choose_attacks(["told_apart"]) == {"distinguishing"}
    with pytest.raises(UsageError, match="attack must be one of"):
        choose_attacks(["nonsense"])


@pytest.mark.parametrize("name", ["mask_words", "peeling", "raw_rows"])
def test_an_attack_wins_where_its_own_control_has_it_win(bench: Bench, name: str) -> None:
    score = ATTACKS[name].control(bench, 2)
    assert score is not None
    assert score.leaked


# The server and those who collude with it


def of_client(place: int, seeds: Callable[[Client], list[tuple[bytes, int]]]) -> Sessions:
    """One client leaves these masks out."""
    return leaving_out(lambda client: seeds(client) if client.party == place else [])


MISSING = {
    "the first client has no mask at all": lambda: of_client(1, lambda own: [(own.self_mask, 1), *own.pairwise()]),
    "a client has no mask of its own, which shows when it is late": lambda: of_client(
        3, lambda own: [(own.self_mask, 1)]
    ),
    "clients have no masks with others": lambda: leaving_out(Client.pairwise),
    "each client has masks with two others": lambda: leaving_out(lambda own: own.pairwise()[2:]),
    "the last client has a mask with one other": lambda: of_client(5, lambda own: own.pairwise()[1:]),
    "every share of a secret is the secret": lambda: Drawing(
        lambda protocol, party, honest: lambda n: bytes(n) if n == SHARE_BYTES + 16 else honest(n)
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_coalition_opens_what_is_masked_too_little(bench: Bench, name: str) -> None:
    """The sums are right all the same."""
    assert COLLUSION.play(bench, faulty("masked", MISSING[name]()), 1).leaked


def test_one_colluder_more_opens_every_message(bench: Bench) -> None:
    score = COLLUSION.control(bench, 1)
    assert score.hits == score.trials > 20


# A lying server


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_a_server_that_hands_out_two_models_wins_where_keys_are_not_bound_to_them(bench: Bench, mode: str) -> None:
    score = DifferentModels(bound=False).play(bench, MODES[mode], 2)
    assert score.hits == score.trials >= 2


# What attacks compute


def reading_of(rows: np.ndarray, labels: np.ndarray, n_classes: int = 3) -> Reading:
    targets = np.eye(n_classes, dtype=np.int64)[labels]
    return Reading(gram=rows.T @ rows, cross=rows.T @ targets, count=len(rows))


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


# Rows out of a lattice: a basis that generates the same one, and is reduced

MATRICES = st.tuples(st.integers(1, 4), st.integers(1, 7)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(-9, 9))
)


def hermite(vectors: np.ndarray) -> list[list[int]]:
    """The Hermite normal form of the lattice that rows generate: one form for one lattice."""
    return [row for row in fmpz_mat(vectors.tolist()).hnf().tolist() if any(row)]


def gram_schmidt(basis: np.ndarray) -> tuple[list[list[Fraction]], list[Fraction]]:
    """The coefficients mu and the squared lengths of the orthogonal parts."""
    stars, mus = list[np.ndarray](), []
    for vector in basis:
        mus.append([vector @ star / (star @ star) for star in stars])
        stars.append(vector - sum((mu * star for mu, star in zip(mus[-1], stars, strict=True)), 0 * vector))
    return mus, [star @ star for star in stars]


@examples(2)
@given(MATRICES)
def test_the_lattice_stays_the_same_and_its_basis_is_reduced(columns: np.ndarray) -> None:
    """By Lovász's condition with delta = 3/4 and |mu| <= 0.51; columns may depend on each other, or be zero."""
    generators = columns.T
    found = reduced_basis(generators @ generators.T)
    assert found is not None
    rank = np.linalg.matrix_rank(generators)
    basis = found.reshape(rank, len(generators)) @ generators.astype(object)
    assert hermite(basis) == hermite(generators)
    mus, lengths = gram_schmidt(np.vectorize(lambda entry: Fraction(int(entry)), otypes=[object])(basis))
    assert all(abs(mu) <= Fraction(51, 100) for row in mus for mu in row)
    for k in range(1, len(lengths)):
        assert lengths[k] >= (Fraction(3, 4) - mus[k][k - 1] ** 2) * lengths[k - 1]


def test_an_attack_that_does_not_end_is_not_tried_and_never_without_evidence() -> None:
    """More rows than lattice reduction takes here; with fewer columns than rows there is an end: they are not there."""
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, MAX_ROWS + 1)
    with pytest.raises(TooLargeError, match=f"beyond {MAX_ROWS} it takes stronger reduction"):
        rebuild(reading_of(rng.integers(0, 9, (MAX_ROWS + 1, MAX_ROWS + 20)), labels))
    assert rebuild(reading_of(rng.integers(0, 9, (MAX_ROWS + 1, 30)), labels)) is None


def test_what_was_won_counts_though_another_target_was_too_large(bench: Bench) -> None:
    sizes = iter([4, MAX_ROWS + 1] * 100)

    def read(reading: Reading, rows: Any) -> Any:
        if next(sizes) > MAX_ROWS:
            raise TooLargeError("too many rows")
        return LATTICE_ROWS.read(reading, rows)

    attack = replace(LATTICE_ROWS, read=read)
    assert attack.play(bench, MODES["plain"], 1).leaked
    with pytest.raises(TooLargeError, match=r"All rows, where there are few, at \d+ of \d+ targets: too many rows"):
        attack.play(bench, MODES["masked"], 1)


def test_what_are_no_inner_products_has_no_basis() -> None:
    assert reduced_basis(np.array([[1, 0], [0, -1]])) is None
    assert reduced_basis(np.array([[1, 2], [2, 1]])) is None


@pytest.mark.parametrize(("n", "d"), [(15, 24), (72, 90)])
def test_the_lattice_gives_rows_back_with_a_certificate(n: int, d: int) -> None:
    """Of 72 rows one reduction misses some; what it finds is taken off, and the rest reduced again."""
    rng = np.random.default_rng(3)
    rows, labels = 64 * rng.integers(-40, 41, (n, d)), rng.integers(0, 3, n)
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


def test_the_lattice_of_no_rows_is_left_alone() -> None:
    """Three rows of one class, as said beside sums that no three rows have."""
    none = np.zeros((4, 3), dtype=np.int64)
    three = Reading(gram=np.diag([1, 4, 9, 1]), cross=none, count=3, target_sum=np.array([3, 0, 0]))
    indefinite = np.array([[1, 2, 0, 0], [2, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    dependent = np.ones((4, 4), dtype=np.int64)
    for gram in (np.diag([-1, 4, 9, 1]), np.diag([2**62, 1, 1, 1]), np.diag([1, 0, 0, 0]), dependent, indefinite):
        assert rebuild(replace(three, gram=gram)) is None, gram
    no_row = Reading(gram=np.array([[4, 1], [1, 5]]), cross=np.array([[2], [1]]), count=1)
    assert len(peel(no_row).rows) == 0


def test_a_lattice_of_volume_one_without_unit_vectors_is_not_decided() -> None:
    """E8, the first even unimodular lattice: nothing tells it from Z^8 but that no vector of length 1 is found."""
    bonds = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (2, 7)]
    gram = 2 * np.eye(8, dtype=np.int64)
    for one, other in bonds:
        gram[one, other] = gram[other, one] = -1
    reading = Reading(gram=gram, cross=2 * gram[:, :1], count=8, target_sum=np.array([8]))
    with pytest.raises(TooLargeError, match="of 8 rows: they are there, and it takes stronger reduction"):
        rebuild(reading)


def test_two_equal_rows_are_no_certified_rows() -> None:
    rows = np.random.default_rng(5).integers(0, 16, (5, 9))
    rows[4] = rows[3]
    found = rebuild(reading_of(rows, np.array([0, 1, 2, 1, 1])))
    assert found is None or not found.certified
