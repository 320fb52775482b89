"""AFL for a noisy total: rows clipped to a public norm, and a solve that knows how much noise there is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import dequantised
from analytic.errors import NotReadyError, SpecificationError
from analytic.learner import ClientRows, SumSpec, canonical_context
from analytic.noisy_solve import solve_noisy
from analytic.private_mean import MeanSpec
from analytic.row_format import FloatMatrix
from analytic.sensitivity import JointClip, RowClip, check_labels_only, without_count
from analytic.solve import Solution
from analytic.statistics import Statistics, StatisticsSpec

CLIPPED_ROWS = "clipped rows"
CLIPPED_CONTRIBUTION = "clipped contribution"
"""Where a client finds in its own memory what was clipped. It depends on its rows and is never sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GramNoise:
    """What a solver knows about the noise of a total Gram.

    Args:
        sigma: standard deviation on the diagonal in lattice units, if just the promised shares are in it.
        shares: how many shares make ``sigma``; None when the server adds the noise, whoever survives.
    """

    sigma: float = 0.0
    shares: int | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.sigma) and self.sigma >= 0) or (self.shares is not None and self.shares < 1):
            raise SpecificationError(
                f"noise has a finite scale >= 0 and comes in at least one share, not {self.sigma} and {self.shares}"
            )

    def realised(self, survivors: int) -> float:
        """The standard deviation in a total of so many survivors: each adds its share, needed or not."""
        return self.sigma if self.shares is None else self.sigma * math.sqrt(survivors / self.shares)


NO_NOISE = GramNoise()
"""An exact total."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateModel:
    """What the totals so far have shown: the rows' noisy mean, then the weights.

    Args:
        centre: shape (1, d), read-only; None before its sum, or where none is asked for.
        solution: the weights and how they were found; None before the last sum.
    """

    centre: FloatMatrix | None = None
    solution: Solution | None = None

    def __post_init__(self) -> None:
        if self.centre is not None:
            self.centre.setflags(write=False)

    @property
    def weights(self) -> FloatMatrix:
        """W, shape (d, c).

        Raises:
            NotReadyError: a total is still missing.
        """
        if self.solution is None:
            raise NotReadyError("this model has no weights yet: it still needs a total of its clients' statistics")
        return self.solution.weights

    def to_bytes(self) -> bytes:
        """Everything learned as one byte string."""
        centre = b"" if self.centre is None else self.centre.tobytes()
        return centre + (b"" if self.solution is None else self.solution.weights.tobytes())


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateAFL:
    """A linear classifier from noisy totals of clipped rows: the mean first (if centred), then Gram and cross.

    Without noise it is AFL on clipped rows, exact like it.

    Args:
        n_given: columns of the rows as they are given.
        n_targets: c, classes.
        clip: the public norm bound of rows and their lattice.
        max_rows: largest number of rows that all clients together may hold.
        centred: whether a first sum buys the mean of the clipped rows; rows then enter the second sum centred and
            brought to the norm of the bound again.
        noise: what the second total's Gram holds.
        client_bounds: largest norms of a client's whole contributions, for privacy of clients: to the mean, in lattice
            units, and to the statistics. None for privacy of records.
        ridge: what the solve would have without noise.
        factor: multiple of the noise's operator norm in the solve's ridge.
    """

    n_given: int
    n_targets: int
    clip: RowClip
    max_rows: int
    centred: bool = False
    noise: GramNoise = NO_NOISE
    client_bounds: tuple[int, JointClip] | None = None
    ridge: float = 0.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ridge) and self.ridge >= 0):
            raise SpecificationError(f"a ridge must be a finite number >= 0, not {self.ridge}")
        _ = self.spec, self.mean_spec

    @property
    def name(self) -> str:
        """The learner's name in reports."""
        return "private-afl"

    @property
    def first_clip(self) -> RowClip:
        """The ball of rows as they are given."""
        return replace(self.clip, bias=0.0) if self.centred else self.clip

    @property
    def last_clip(self) -> RowClip:
        """The ball of rows in the last sum: centred ones have signs, and every one of them the bound's norm."""
        if not self.centred:
            return self.clip
        return replace(self.clip, normalise=True, clip=True, row_format=replace(self.clip.row_format, signed=True))

    @property
    def mean_spec(self) -> MeanSpec:
        """The sum for the mean."""
        return MeanSpec(
            n_features=self.n_given,
            limit=self.clip.limit,
            row_format=self.clip.row_format,
            max_rows=self.max_rows,
            client_limit=None if self.client_bounds is None else self.client_bounds[0],
        )

    @property
    def spec(self) -> StatisticsSpec:
        """The sum of the statistics."""
        return StatisticsSpec(
            n_features=self.clip.n_features(self.n_given),
            n_targets=self.n_targets,
            feature_format=self.last_clip.row_format,
            max_rows=self.max_rows,
        )

    def init(self) -> PrivateModel:
        """The model before any sum."""
        return PrivateModel()

    def next_sum(self, model: PrivateModel) -> SumSpec[Any] | None:
        """The mean's sum where it is asked for, then the statistics, then nothing more."""
        if model.solution is not None:
            return None
        return self.mean_spec if self.centred and model.centre is None else self.spec

    def client_statistics(self, model: PrivateModel, rows: ClientRows) -> Any:
        """The client's part of the next sum, every row clipped; what was clipped stays in ``rows.memory``.

        Raises:
            InvalidRowsError: targets that are no class labels of shape (n,), which the noise does not cover.
        """
        check_labels_only(rows.targets)
        first = self.first_clip.apply(rows.features)
        rows.memory[CLIPPED_ROWS] = first.n_clipped
        if self.centred and model.centre is None:
            return self.mean_spec.sum_of(first.rows)
        own = without_count(Statistics.from_rows(self.spec, self._placed(model, first.rows), rows.targets))
        if self.client_bounds is None:
            return own
        own, rows.memory[CLIPPED_CONTRIBUTION] = self.client_bounds[1].apply(own)
        return own

    def update(self, model: PrivateModel, total: Any, survivors: int) -> PrivateModel:
        """The centre, or the weights, from a noisy total."""
        if self.centred and model.centre is None:
            return PrivateModel(centre=self.mean_spec.mean(total))
        gram, cross = dequantised(total, self.spec.feature_format, self.spec.target_format)
        sigma = math.ldexp(self.noise.realised(survivors), -2 * self.spec.feature_format.fraction_bits)
        solution = solve_noisy(gram, cross, sigma_gram=sigma, factor=self.factor, ridge=self.ridge)
        return PrivateModel(centre=model.centre, solution=solution)

    def decision_function(self, model: PrivateModel, features: NDArray[Any]) -> FloatMatrix:
        """X W, shape (n, c), of features put through the same clips."""
        weights = model.weights
        return np.asarray(self._placed(model, self.first_clip.apply(features).rows) @ weights)

    def weights_bytes(self, model: PrivateModel) -> bytes:
        """The centre's and W's bytes."""
        return model.to_bytes()

    def context_bytes(self, model: PrivateModel) -> bytes:
        """The configuration and what was received so far."""
        return canonical_context(self, model.to_bytes())

    def _placed(self, model: PrivateModel, rows: FloatMatrix) -> FloatMatrix:
        """Clipped rows as the last sum takes them."""
        return rows if model.centre is None else self.last_clip.apply(rows - model.centre).rows
