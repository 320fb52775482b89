"""Membership of the rows of a list in a sum, by the exact moments that each of them adds to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy
from numpy.typing import NDArray

from simulations.audit.attack import ANY_SUM, ReadingAttack, Unit, score_members
from simulations.audit.knowledge import Knowledge
from simulations.audit.population import EnteringRows
from simulations.audit.view import Reading

Floats = NDArray[np.float64]
MAX_CANDIDATES = 2500


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
    values, vectors = scipy.linalg.eigh(inner**2 + inner * (labels[:, None] == labels))
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
    needs=Knowledge.ALL_BUT_ONE,
    sees=ANY_SUM,
    unit=Unit.ROW,
)
