"""Which rows of a list are in a sum: by its exact moments, by its row space, by leverage, and by many sums."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from analytic.deepafl import DeepAFL
from analytic.learner import AnalyticLearner, ClientRows
from analytic_secagg.errors import UsageError
from analytic_secagg.modes import Mode
from analytic_secagg.release import RANK_TOLERANCE
from secagg import PartyId
from simulations.audit.attack import (
    MASKED,
    Attack,
    Expectation,
    NotTriedError,
    Outcome,
    ReadingAttack,
    attacked,
    score_members,
)
from simulations.audit.evaluate import Score
from simulations.audit.population import EnteringRows, Truth, pooled
from simulations.audit.view import SERVER_ALONE, AdversaryView, Reading, record_federation, view_of
from simulations.audit.workbench import Bench

Floats = NDArray[np.float64]
MAX_CANDIDATES = 2500
IN_ROW_SPACE = 1e-6
"""A row whose part outside the row space is this much shorter than itself lies in it."""


def _evidence(reading: Reading, candidates: NDArray[Any], public: NDArray[Any]) -> Floats:
    """The scores of ``candidates``, in units in which an entry of the Gram is at most 1."""
    unit, (gram, _) = reading.unit, reading.scaled()
    return membership_scores(gram, candidates / unit, public / unit, reading.count)


def membership_scores(gram: Floats, rows: Floats, public: Floats, count: int) -> Floats:
    """For each row how much more likely the Gram is with it than without.

    Rows are taken for normal with the public rows' second moment S, and then log p(G | x in it) - log p(G) =
    (n - d - 2) / 2 log(1 - x^T G^-1 x) + x^T S^-1 x / 2 + constant (Wishart). Where G is singular a row that was used
    lies in its row space, and hardly any other does.

    Args:
        gram: the sum's Gram.
        rows: candidates in the same units, shape (m, d).
        public: other rows of the population, shape (p, d).
        count: rows in the sum.
    """
    values, vectors = np.linalg.eigh(gram)
    kept = values > RANK_TOLERANCE * max(1.0, float(np.abs(values).max())) * len(gram)
    rank = int(kept.sum())
    lengths = (rows**2).sum(axis=1)
    outside = np.maximum(lengths - ((rows @ vectors[:, kept]) ** 2).sum(axis=1), 0.0)
    strange = outside > IN_ROW_SPACE * np.maximum(lengths, 1e-300)
    basis = vectors[:, kept]
    leverage = (((rows @ basis) ** 2) / values[kept]).sum(axis=1)
    population = _inverse_moment_norms(rows @ basis, public @ basis)
    weight = max(count - rank - 2, 0) / 2
    evidence = weight * np.log1p(-np.clip(leverage, 0.0, 1 - 1e-12)) + population / 2
    impossible = strange | (leverage > 1 + 1e-6)
    if impossible.all():  # no Gram of any such rows: the evidence alone is the best guess left
        return np.asarray(evidence)
    return np.where(impossible, -1e300, evidence)


def _inverse_moment_norms(rows: Floats, public: Floats) -> Floats:
    """x^T S^-1 x with S the mean of the public rows' outer products."""
    moment = public.T @ public / max(1, len(public))
    inverse = np.linalg.pinv(moment, rcond=1e-9, hermitian=True)
    return np.asarray(((rows @ inverse) * rows).sum(axis=1))


MEMBERSHIP = ReadingAttack(
    name="membership",
    title="Whether a given row was used",
    explanation=(
        "Somebody who has one row, and other rows of the same kind, asks whether it was used. A few rows span a small "
        "space, which tells exactly; many rows leave a statistical trace (leverage). Success: of a row that was used "
        "and one that was not, the right one. Chance: one half."
    ),
    read=lambda reading, rows: _evidence(reading, rows.candidates, rows.public),
    scored=score_members,
    on_totals=True,
    by_cohort=True,
)


# A list of rows, and a sum's moments


def moment_scores(reading: Reading, known: EnteringRows) -> Floats | None:
    """For each candidate how much of it is in the sum; None where there are too many.

    Least squares of (G, H) on the candidates' own (x x^T, x y^T): s = K^+ b with K_ij = (x_i . x_j)^2 +
    x_i . x_j [y_i = y_j] and b_i = x_i^T G x_i + x_i^T H y_i, in units of a mean row's length. With fewer candidates
    than the d (d + 1) / 2 + d c numbers of a total, s is 1 for each row in it, 0 for any other.
    """
    if len(known.candidates) > MAX_CANDIDATES:
        return None
    basis = _basis_of(known)
    rows, gram, cross = basis.rows, reading.gram / basis.unit**2, reading.cross / basis.unit
    of_label = (rows @ cross)[np.arange(len(rows)), known.candidate_labels]
    moments = ((rows @ gram) * rows).sum(axis=1) + of_label
    return np.asarray(basis.vectors @ ((basis.vectors.T @ moments) / basis.values))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Basis:
    """The candidates in units of their mean length, and the eigenpairs of K that float64 can see."""

    rows: Floats
    unit: float
    values: Floats
    vectors: Floats


@lru_cache(maxsize=4)
def _basis_of(known: EnteringRows) -> _Basis:
    rows = known.candidates.astype(np.float64)
    unit = float(np.sqrt((rows**2).sum(axis=1).mean())) or 1.0
    rows /= unit
    inner = rows @ rows.T
    labels = known.candidate_labels
    values, vectors = eigh(inner**2 + inner * (labels[:, None] == labels))
    kept = values > 1e-12 * values[-1]
    return _Basis(rows=rows, unit=unit, values=values[kept], vectors=vectors[:, kept])


DICTIONARY = ReadingAttack(
    name="dictionary",
    title="Which rows of a known list were used",
    explanation=(
        "Somebody who has a list of rows (a leaked or public data set) asks which of them were used, by solving for "
        "the combination of listed rows that gives the observed sums. Success: of a row that was used and one that was "
        "not, both from the list, the right one. Chance: one half."
    ),
    read=moment_scores,
    scored=score_members,
    on_totals=True,
    by_cohort=True,
)


# A learner that asks for many sums


DEEP_ROWS, DEEP_WIDTH, DEEP_LAYERS, DEEP_CLIENTS = 300, 64, 2, 10
"""Of the deep learner's own small federation."""


class ManySums(Attack):
    """Membership against the first sum, the first three, ... of a deep learner, on the totals alone."""

    name = "many_sums"
    title = "Whether a given row was used, when a learner asks for many sums (DeepAFL)"
    explanation = (
        "A deep learner asks for several sums, each about another layer of the same rows, and the trace that a row "
        "leaves in each adds up. Success: of a row that was used and one that was not, the right one. Chance: one half."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Totals are meant to be seen, whatever mode makes them, and these show more than one should."""
        return Expectation.LEAKS if mode is None else None

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Train DeepAFL on a part of the rows.

        Raises:
            NotTriedError: there are too few of them.
        """
        population = replace(
            bench.population,
            candidates=bench.rng.permutation(bench.population.candidates)[:DEEP_ROWS],
            public=bench.population.public[:DEEP_ROWS],
        )
        deep = DeepAFL(
            n_features=population.dataset.n_features,
            n_targets=population.dataset.n_classes,
            feature_bound=2.0**bench.feature_format.integer_bits,
            max_rows=DEEP_ROWS,
            n_layers=DEEP_LAYERS,
            d_phi=DEEP_WIDTH,
            d_f=DEEP_WIDTH,
        )
        few = Bench.of(
            bench.learner,
            population,
            feature_format=bench.feature_format,
            rows_per_client=DEEP_ROWS // 2 // DEEP_CLIENTS,
            rng=bench.rng,
            entropy=bench.entropy,
        )
        try:
            scores = by_number_of_sums(few, deep, DEEP_CLIENTS)
        except UsageError as error:
            raise NotTriedError(f"a deep learner's many sums: {error}") from error
        return Outcome(score=scores[max(scores)], by_sums=scores)


def by_number_of_sums(bench: Bench, deep: AnalyticLearner[Any], n_clients: int) -> dict[int, Score]:
    """Scores by how many sums the adversary uses."""
    cohort = bench.cohort(n_clients)
    clients = {party: bench.population.rows(indices) for party, indices in cohort.items()}
    sums = record_federation(deep, clients, MASKED, entropy=bench.entropy)
    truth = bench.truth(np.concatenate(list(cohort.values())), sums[0].inputs[1])
    view = view_of(sums, SERVER_ALONE, bench.known())
    candidates, public = bench.population.single_candidates(), bench.population.single_public()
    known = _Layers(deep, candidates, public)
    return {n: attacked(_FirstSums(known, n), view, None, truth, bench.rng) for n in range(1, len(sums) + 1, 2)}


@dataclass(frozen=True, slots=True)
class _Layers:
    """What each sum says of each candidate: a sum is about another layer of the same rows.

    Everything that a client does with a row is public, so the adversary runs the client's code on one candidate; the
    Gram of one row is its outer product, and any column of that is the row of that layer, up to a factor.

    Args:
        learner: the public learner.
        candidates: the candidates' inputs, one client's rows with one row each, in the order of the side information.
        public: inputs of rows that nobody used.
        evidence: what was worked out, by a sum's number.
    """

    learner: AnalyticLearner[Any]
    candidates: tuple[ClientRows, ...]
    public: tuple[ClientRows, ...]
    evidence: dict[int, Floats] = field(default_factory=dict)

    def of(self, view: AdversaryView, number: int) -> Floats:
        """Membership evidence of one sum, a number for each candidate."""
        if number not in self.evidence:
            one = view.sums[number]
            vector = one.read_rest()
            assert vector is not None
            layers = self._layer(one.model, self.candidates), self._layer(one.model, self.public)
            self.evidence[number] = np.maximum(_evidence(Reading.of(one.layout, vector), *layers), -1e6)
        return self.evidence[number]

    def _layer(self, model: Any, rows: tuple[ClientRows, ...]) -> Floats:
        return np.array([_row_of(pooled(self.learner.client_statistics(model, row)).gram) for row in rows])


@dataclass(frozen=True, slots=True)
class _FirstSums:
    """Adds up the membership evidence of the first sums."""

    known: _Layers
    n_sums: int

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> Floats:
        """A score for each candidate."""
        return np.asarray(sum(self.known.of(view, number) for number in range(self.n_sums)))

    def score(self, guess: Floats, truth: Truth, rng: np.random.Generator) -> Score:
        """Pairs of a row that was used and one that was not."""
        return score_members(guess, truth, rng)


def _row_of(gram: NDArray[np.int64]) -> Floats:
    """The row whose outer product this is, up to its sign."""
    place = int(np.argmax(gram.diagonal()))
    length = np.sqrt(float(gram[place, place]))
    return np.asarray(gram[place] / length if length else gram[place].astype(np.float64))
