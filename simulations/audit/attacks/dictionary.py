"""Which rows of a list are in a sum, from the sum's exact moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from secagg import PartyId
from simulations.audit.attack import MessageAttack, score_members
from simulations.audit.evaluate import Score
from simulations.audit.population import EnteringRows, Truth
from simulations.audit.reading import reading_of
from simulations.audit.view import AdversaryView

Floats = NDArray[np.float64]
MAX_CANDIDATES = 2500


class Dictionary(MessageAttack[Floats | None]):
    """Least squares of (G, H) on the candidates' own (x x^T, x y^T): s = K^+ b.

    K_ij = (x_i . x_j)^2 + x_i . x_j [y_i = y_j] and b_i = x_i^T G x_i + x_i^T H y_i, in units of a mean row's length.
    With fewer candidates than the d (d + 1) / 2 + d c numbers of a total, s is 1 for each row in it, 0 for any other.
    """

    name = "dictionary"
    title = "Which rows of a known list were used"
    explanation = (
        "Somebody who has a list of rows (a leaked or public data set) asks which of them were used, by solving for "
        "the combination of listed rows that gives the observed sums. Success: of a row that was used and one that was "
        "not, both from the list, the right one. Chance: one half."
    )
    on_totals = True
    by_cohort = True

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> Floats | None:
        """A score for each candidate: how much of it is in the sum."""
        reading = reading_of(view, target)
        known = view.known.rows
        if reading is None or len(known.candidates) > MAX_CANDIDATES:
            return None
        basis = _basis_of(known)
        rows, gram, cross = basis.rows, reading.gram / basis.unit**2, reading.cross / basis.unit
        of_label = (rows @ cross)[np.arange(len(rows)), known.candidate_labels]
        moments = ((rows @ gram) * rows).sum(axis=1) + of_label
        return np.asarray(basis.vectors @ ((basis.vectors.T @ moments) / basis.values))

    def score(self, guess: Floats | None, truth: Truth, rng: np.random.Generator) -> Score:
        """Pairs of a row that was used and one that was not."""
        return score_members(guess, truth, rng)


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
