"""Membership of a row in a sum, by the row space of few rows and by the leverage of a row among many."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.release import RANK_TOLERANCE
from simulations.audit.attack import ANY_SUM, Limit, ReadingAttack, Unit, score_members
from simulations.audit.knowledge import Knowledge
from simulations.audit.population import inverse_moment_norms
from simulations.audit.view import Reading

Floats = NDArray[np.float64]
IN_ROW_SPACE = 1e-6
"""A row whose part outside the row space is this much shorter than itself lies in it."""


def membership_evidence(reading: Reading, candidates: NDArray[Any], public: NDArray[Any]) -> Floats:
    """Return the score of each candidate, in units in which an entry of the Gram is at most 1."""
    unit, (gram, _) = reading.unit, reading.scaled()
    return membership_scores(gram, candidates / unit, public / unit, rows_in(reading, public))


def rows_in(reading: Reading, public: NDArray[Any]) -> int:
    """Return the rows of a sum; where noise hides their number, as many public rows as have its Gram's trace."""
    if reading.count > 0:
        return reading.count
    length = float((public.astype(np.float64) ** 2).sum(axis=1).mean()) if len(public) else 0.0
    return max(0, round(float(np.trace(reading.gram.astype(np.float64))) / length)) if length else 0


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
    population = inverse_moment_norms(rows @ basis, public @ basis)
    weight = max(count - rank - 2, 0) / 2
    evidence = weight * np.log1p(-np.clip(leverage, 0.0, 1 - 1e-12)) + population / 2
    impossible = strange | (leverage > 1 + 1e-6)
    if impossible.all():  # no Gram of any such rows: the evidence alone is the best guess left
        return np.asarray(evidence)
    return np.where(impossible, -1e300, evidence)


MEMBERSHIP = ReadingAttack(
    name="membership",
    title="Whether a given row was used",
    explanation=(
        "Somebody who has one row, and other rows of the same kind, asks whether it was used. A few rows span a small "
        "space, which tells exactly; many rows leave a statistical trace (leverage). Success: of a row that was used "
        "and one that was not, the right one. Chance: one half."
    ),
    read=lambda reading, rows: membership_evidence(reading, rows.candidates, rows.public),
    scored=score_members,
    needs=Knowledge.ONE_ROW,
    sees=ANY_SUM,
    unit=Unit.ROW,
    limit=Limit.MEMBERSHIP,
)
