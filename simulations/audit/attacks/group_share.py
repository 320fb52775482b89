"""Share of a group that nobody was asked about among all rows, by the moments of a total."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy
from numpy.typing import NDArray

from simulations.audit.attack import TOTALS, ExposureAttack, Limit, Target, Unit
from simulations.audit.attacks.membership import rows_in
from simulations.audit.columns import Column
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth

GROUPS, COHORTS = 4, 8
"""How many groups the population has, and of how many cohorts of other composition the shares are estimated."""

Floats = NDArray[np.float64]


class GroupShare(ExposureAttack[tuple[Floats, Floats]]):
    """Fits a total's moments as a mixture of the moments of each group's public rows (nonnegative least squares)."""

    name = "group_share"
    title = "Which part of all rows belongs to a group that nobody was asked about"
    explanation = (
        f"Public rows of the same kind are known by group (here {GROUPS} groups of rows that resemble each other). The "
        "total's moments are a mixture of the groups' moments, and its weights are the shares. Learnt: the mean error "
        "of a share, beside that of somebody who takes the public shares. More clients do not help against it."
    )
    sees = TOTALS
    needs = Knowledge.PUBLIC_ROWS
    unit = Unit.COHORT
    limit = Limit.GROUP_SHARE

    def targets(self, column: Column) -> Iterator[Target]:
        """Yield totals of cohorts whose composition is not the population's: shares are drawn evenly at random."""
        bench = column.bench
        groups = _groups(bench.entering.public.astype(np.float64), bench.entering.candidates.astype(np.float64))
        for _ in range(COHORTS):
            cohort = column.cohort()
            n_rows = sum(map(len, cohort.values()))
            weights = bench.rng.dirichlet(np.ones(GROUPS))[groups] / np.bincount(groups, minlength=GROUPS)[groups]
            drawn = bench.rng.choice(bench.population.candidates, n_rows, replace=False, p=weights / weights.sum())
            sizes = np.cumsum([len(rows) for rows in cohort.values()])[:-1]
            yield column.target(dict(zip(cohort, np.split(drawn, sizes), strict=True)))

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return the estimated shares, and those of the public rows."""
        public = known.rows.public.astype(np.float64)
        groups = _groups(public, public)
        blind = np.bincount(groups, minlength=GROUPS) / len(groups)
        reading = seen.reading
        n_rows = 0 if reading is None else rows_in(reading, public)
        if reading is None or n_rows <= 0:
            return blind, blind
        unit = max(1.0, float(np.abs(public).max()))
        by_group = [public[groups == group] / unit for group in range(GROUPS)]
        of_group = [_moments(rows.T @ rows, rows.sum(axis=0), len(rows)) for rows in by_group]
        seen_moments = _moments(reading.gram / unit**2, reading.cross.sum(axis=1) / unit, n_rows)
        shares, _ = scipy.optimize.nnls(np.column_stack(of_group), seen_moments)
        return (shares / shares.sum() if shares.sum() else blind), blind

    def score(self, guess: tuple[Floats, Floats], truth: Truth, rng: np.random.Generator) -> Score:
        """Score the mean error of a share; a trial is a share that was told better than by the public rows."""
        shares, blind = guess
        groups = _groups(truth.public.astype(np.float64), truth.rows.astype(np.float64))
        true = np.bincount(groups, minlength=GROUPS) / max(1, len(groups))
        errors, blind_errors = np.abs(shares - true), np.abs(blind - true)
        return Score(
            hits=int((errors < blind_errors).sum()),
            trials=GROUPS,
            chance=0.5,
            error=float(errors.mean()),
            blind_error=float(blind_errors.mean()),
        )


def _moments(gram: Floats, sums: Floats, n_rows: int) -> Floats:
    """Return the mean row and the mean outer product as one vector, the latter weighed to count about as much."""
    upper = gram[np.triu_indices(len(gram))] / max(1, n_rows)
    return np.concatenate([sums / max(1, n_rows), upper / len(gram) ** 0.5])


def _groups(public: Floats, rows: Floats) -> NDArray[np.intp]:
    """Return the group of each row: the nearest of ``GROUPS`` public rows that are far from each other."""
    centres = [public[0]]
    for _ in range(GROUPS - 1):
        nearest = np.min([((public - centre) ** 2).sum(axis=1) for centre in centres], axis=0)
        centres.append(public[int(np.argmax(nearest))])
    return np.asarray(np.argmin([((rows - centre) ** 2).sum(axis=1) for centre in centres], axis=0))


ATTACK = GroupShare()
