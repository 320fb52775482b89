"""The rows behind a public feature map: rows that come out of a total are mapped ones, and a decoder undoes the map."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy
from numpy.typing import NDArray

from analytic.afl import AFL
from analytic.random_map import RandomMap
from simulations.audit.attack import ANY_SUM, ExposureAttack, Limit, NotTriedError, Unit, on_a_total
from simulations.audit.attacks.rows import MAX_ROWS, rebuilt_rows
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth
from simulations.audit.workbench import Bench

Floats = NDArray[np.float64]

RIDGE = 1e-6
"""Of the decoder, in units of the mean squared length of a mapped row."""

MAPPED, FEW_ROWS = 256, 8
"""Random features, and rows of each of two clients, of the total that must give its rows away."""


class RawRows(ExposureAttack[Floats | None]):
    """Rebuilds the mapped rows as ``lattice_rows`` does, and takes them back by a linear decoder from public pairs."""

    name = "raw_rows"
    title = "The person's own row, behind a public feature map"
    explanation = (
        "Where a learner maps rows first (random features, a frozen backbone), what comes out of a small total are "
        "mapped rows. Public rows and their images give a linear decoder, which takes them back. Success: a decoded "
        "row is at most half as far from the true one as from any other of the pool. Chance: less than naming one row "
        "of the pool."
    )
    sees = ANY_SUM
    needs = Knowledge.PUBLIC_ROWS
    unit = Unit.ROW
    limit = Limit.REBUILT_ROWS

    def control(self, bench: Bench, trials: int) -> Score | None:
        """Decode a total of few rows behind random features."""
        data, public = bench.population.dataset, bench.population.public_rows.features
        bound = float(np.abs(public).max(initial=0.0)) or 1.0
        learner = AFL(
            n_features=data.n_features,
            n_targets=data.n_classes,
            feature_format=bench.feature_format,
            max_rows=MAX_ROWS,
            lift=RandomMap(n_features=data.n_features, n_columns=MAPPED, feature_bound=bound, fraction_bits=8),
            clip=True,
        )
        return on_a_total(self, replace(bench.under(learner), rows_per_client=FEW_ROWS), 2)

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> Floats | None:
        """Return the decoded rows; None where no mapped ones come out.

        Raises:
            NotTriedError: rows enter the sum as they are.
            TooLargeError: see ``lattice_rows``.
        """
        images, raw = known.rows.public.astype(np.float64), np.asarray(known.public.features, dtype=np.float64)
        if not len(raw) or is_the_same(images, raw):
            raise NotTriedError(f"{self.title}: rows enter the sum as they are, which {'lattice_rows'} tries")
        found = None if seen.reading is None else rebuilt_rows(seen.reading)
        if found is None or not len(found.rows):
            return None
        unit = float((images**2).sum(axis=1).mean())
        decoder = np.linalg.solve(images.T @ images + RIDGE * unit * np.eye(images.shape[1]), images.T @ raw)
        return np.asarray(found.rows @ decoder)

    def score(self, guess: Floats | None, truth: Truth, rng: np.random.Generator) -> Score:
        """Score a trial for each row: is some decoded row at most half as far from it as from any other of the pool?

        A decoded row that follows from no row of the total is so near to none, however many rows there are.
        """
        pool, named = np.unique(np.asarray(truth.pool.features, dtype=np.float64), axis=0), set[bytes]()
        if guess is not None and len(guess):
            distances, places = map(np.asarray, scipy.spatial.cKDTree(pool).query(guess, k=2))
            named = {row.tobytes() for row in pool[places[distances[:, 0] <= distances[:, 1] / 2, 0]]}
        hits = sum(np.asarray(row, dtype=np.float64).tobytes() in named for row in truth.raw.features)
        return Score(hits=hits, trials=len(truth.rows), chance=truth.likeliest_row)


def is_the_same(images: Floats, raw: Floats) -> bool:
    """Return whether images are the rows themselves, in other units and rounded."""
    if images.shape != raw.shape:
        return False
    scale = np.abs(images).max() / max(np.abs(raw).max(), 1e-300)
    return bool(np.abs(images - raw * scale).max() <= 2.0 + 1e-3 * np.abs(images).max())


ATTACK = RawRows()
