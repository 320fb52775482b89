"""Whether a given row was used: by the row space of a small sum, by leverage in a large one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from federation.release import RANK_TOLERANCE
from secagg import PartyId
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score, paired
from simulations.audit.reading import Reading
from simulations.audit.view import AdversaryView

Floats = NDArray[np.float64]
IN_ROW_SPACE = 1e-6
"""A row whose part outside the row space is this much shorter than itself lies in it."""


@dataclass(frozen=True, slots=True)
class Membership:
    """Likelihood ratio of G with and without a row x, rows being normal with the public rows' second moment S.

    log p(G | x in it) - log p(G) = (n - d - 2) / 2 log(1 - x^T G^-1 x) + x^T S^-1 x / 2 + constant (Wishart). Where G
    is singular a row that was used lies in its row space, and hardly any other does.
    """

    name: str = "membership"
    title: str = "Whether a given row was used"
    explanation: str = (
        "Somebody who has one row, and other rows of the same kind, asks whether it was used. A few rows span a small "
        "space, which tells exactly; many rows leave a statistical trace (leverage). Success: of a row that was used "
        "and one that was not, the right one. Chance: one half."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> Floats | None:
        """A score for each candidate."""
        vector = view.read(target)
        if vector is None:
            return None
        reading = Reading.of(view.sums[-1].layout, vector)
        unit = max(1.0, float(np.sqrt(np.abs(reading.gram.diagonal()).max())))
        rows, public = view.known.candidates / unit, view.known.public / unit
        return membership_scores(reading.gram / unit**2, rows, public, reading.count)

    def score(self, guess: Floats | None, truth: Truth, rng: np.random.Generator) -> Score:
        """Pairs of a row that was used and one that was not."""
        scores = np.zeros(len(truth.is_member)) if guess is None else guess
        return paired(list(scores[truth.is_member]), list(scores[~truth.is_member]), rng)


def membership_scores(gram: Floats, rows: Floats, public: Floats, count: int) -> Floats:
    """For each row how much more likely the Gram is with it than without.

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
