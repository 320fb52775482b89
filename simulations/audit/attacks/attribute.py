"""One hidden value of a row that is known to be in a total: the value that fits the total best."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulations.audit.attack import TOTALS, ExposureAttack, Limit, Unit
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth

COLUMNS = 8
"""How many columns are hidden, one at a time: those whose values vary most among public rows."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HiddenValues:
    """Guesses of hidden values.

    Args:
        columns: which columns were hidden, shape (k,).
        cuts: the quartiles of the public rows in each of them, shape (k, 3).
        by_total: the guess for each candidate, shape (m, k).
        by_public: the same without the total.
    """

    columns: NDArray[np.intp]
    cuts: Floats
    by_total: Floats = field(repr=False)
    by_public: Floats = field(repr=False)


class Attribute(ExposureAttack[HiddenValues]):
    """Takes the hidden value that gives the row the least leverage in the total: x^T G^-1 x."""

    name = "attribute"
    title = "A hidden value of a row that is known to be in the total"
    explanation = (
        "Somebody who knows that a person is in the total, and all of the person's row but one value, takes the value "
        "that fits the total best. Success: the right quarter of the column's values. Chance: what the same guess "
        "comes to by public rows alone."
    )
    sees = TOTALS
    needs = Knowledge.ONE_ROW
    unit = Unit.ROW
    limit = Limit.ATTRIBUTE

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> HiddenValues:
        """Return a value for each candidate in each of the hidden columns, none of which enters its own guess."""
        public, rows = known.rows.public.astype(np.float64), known.rows.candidates.astype(np.float64)
        columns = np.argsort(-public.var(axis=0), kind="stable")[:COLUMNS]
        cuts = np.quantile(public[:, columns], [0.25, 0.5, 0.75], axis=0).T
        reading, moment = seen.reading, public.T @ public
        gram = moment if reading is None else reading.gram.astype(np.float64)
        if seen.kind is Kind.NOISY_TOTAL:  # no Gram of any rows: the nearest one, beside that of the public rows
            values, vectors = np.linalg.eigh(gram)
            gram = (vectors * np.maximum(values, 0.0)) @ vectors.T + moment
        return HiddenValues(
            columns=columns,
            cuts=cuts,
            by_total=_least_leverage(gram, rows, columns),
            by_public=_least_leverage(moment, rows, columns),
        )

    def score(self, guess: HiddenValues, truth: Truth, rng: np.random.Generator) -> Score:
        """Score one trial for each row of the total and hidden column."""
        true = truth.rows[:, guess.columns]

        def right(values: Floats) -> NDArray[np.intp]:
            found = [
                np.searchsorted(cuts, own[truth.is_member]) == np.searchsorted(cuts, real)
                for cuts, own, real in zip(guess.cuts, values.T, true.T, strict=True)
            ]
            return np.asarray(np.sum(found, axis=1))

        by_total, by_public, rows = right(guess.by_total), right(guess.by_public), max(1, len(true))
        gained = (by_total - by_public) / rows
        return Score(
            hits=int(by_total.sum()),
            trials=true.size,
            chance=float(by_public.sum() / max(1, true.size)),
            columns=dict(zip((truth.columns[place] for place in guess.columns), gained.tolist(), strict=True)),
        )


def _least_leverage(gram: Floats, rows: Floats, columns: NDArray[np.intp]) -> Floats:
    """Return the value in each column that minimises x^T (G + e I)^-1 x, given the row's other values; e is tiny."""
    scale = float(np.abs(gram.diagonal()).max(initial=0.0)) or 1.0
    inverse = np.linalg.pinv(gram / scale + 1e-9 * np.eye(len(gram)), hermitian=True)
    products = rows @ inverse[:, columns]
    own = inverse[columns, columns]
    return np.asarray(rows[:, columns] - products / np.where(own == 0.0, 1.0, own))


ATTACK = Attribute()
