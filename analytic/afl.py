"""AFL: the linear least-squares classifier or regressor of all clients' rows, from one sum.

With a public row map every row enters inside a ball (and a first sum may buy the centre of them all), and with a solver
that knows the noise of a total its ridge follows from it: that is AFL's private form. Without them it is exact.

With public random features in place of the rows it is the learner ``random``: see ``analytic.random_map``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from analytic.counts import Counts
from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.integer_maps import FixedRows
from analytic.layers import Layer, Linear, Rounded
from analytic.learner import OPTIONAL, STORED_WITHOUT, ClientRows, SumSpec, canonical_context, refuse_weights
from analytic.model_arrays import Parts
from analytic.noisy_solve import NoisySolver
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, FloatMatrix, RowFormat
from analytic.row_map import (
    CLIPPED_CONTRIBUTION,
    CLIPPED_ROWS,
    MeanSpec,
    RowMap,
    RowTerms,
    check_labels_only,
    refuse_row_map,
    without_count,
)
from analytic.sensitivity import (
    Adjacency,
    BoundedSum,
    ClientSensitivity,
    RecordSensitivity,
    Sensitivity,
    Unit,
    mean_sensitivity,
    noise_levels,
)
from analytic.shape_repr import shape_html, shape_repr
from analytic.solve.digits import Digits, digit_bits, exact_product
from analytic.solve.minimum_norm import Solution, solve_ridge
from analytic.statistics import LABELS, Statistics, StatisticsSpec
from analytic.whole_numbers import INT64_MAX, settle_whole_numbers

Total = TypeVar("Total", Statistics, Counts)
"""What the RI process adds to."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearModel:
    """A linear map, as far as the totals so far determine it.

    Args:
        solution: the weights and how they were found; None before the last sum.
        centre: the rows' mean, shape (1, d), read-only; None before its sum, or where none is asked for.
    """

    solution: Solution | None = None
    centre: FloatMatrix | None = None

    __repr__ = shape_repr
    _repr_html_ = shape_html

    def __post_init__(self) -> None:
        if self.centre is not None:
            self.centre.setflags(write=False)

    @property
    def weights(self) -> FloatMatrix:
        """W, shape (d, c).

        Raises:
            NotReadyError: the total has not arrived yet.
        """
        if self.solution is None:
            raise NotReadyError("this model has no weights yet: it still needs the total of its clients' statistics")
        return self.solution.weights

    @property
    def received(self) -> tuple[bytes, ...]:
        """The bytes of the centre and of the weights, as far as they are known."""
        weights = None if self.solution is None else self.solution.weights
        return tuple(matrix.tobytes() for matrix in (self.centre, weights) if matrix is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AFL:
    """Analytic federated learning (He et al., CVPR 2025): W = (sum G_k)^-1 sum H_k.

    The paper's clients upload C_k^r = G_k + gamma I and W_k^r = (C_k^r)^-1 H_k, and its server joins them
    by the absolute aggregation law (eq. 7-11). Since C_k^r W_k^r = H_k, sums suffice: after K clients
    W = (sum C_k^r - K gamma I + ridge I)^-1 sum H_k, which is what a secure sum can compute. In integers
    the RI process (eq. 16) is removed exactly, for any gamma and K.

    Args:
        n_features: d, columns of a row.
        n_targets: c: classes, or columns of real targets.
        feature_format: fixed-point format of the features.
        target_format: ``LABELS`` for class labels, else the format of real targets.
        max_rows: largest number of rows that all clients together may hold.
        max_clients: largest cohort; sizes the room that the RI process needs (without one it limits nothing).
        ridge: penalty of the one solve, in the features' own units squared.
        ri_gamma: the paper's gamma, what each client adds to its Gram's diagonal.
        clip: clip features into the format instead of refusing them.
        row_map: a public rule that bounds every row, whose lattice then takes the place of ``feature_format``; None
            takes rows as they are. It is for class labels, and leaves no room for the RI process.
        solver: what knows the noise of the total; None takes it for exact. The count of rows is withheld with a map.
        columns: public scales of columns, and whether there is an intercept, which no ridge shrinks; None takes rows as
            they are, without one, as the paper does. Weights are then of mapped rows, and the ridge of those units.
        lift: public random features that take the place of the rows: the learner ``random``. Formats, map of columns
            and row map are then theirs, and n_features still the rows' own.
        target_sums: whether the sum holds the targets' own sums too, from which a model's error on the rows of a total
            follows (``analytic.total_error``). Behind a row map there are none: noise would have to cover them.
    """

    one_sum: ClassVar[bool] = True
    """Whether rows are needed once only, so that nobody has to keep them mapped."""

    _one_class: ClassVar[bool] = False
    """Whether every row has one class: here it may have several, or none."""

    n_features: int
    n_targets: int
    feature_format: RowFormat
    target_format: RowFormat = LABELS
    max_rows: int
    max_clients: int = 1
    ridge: float = 0.0
    ri_gamma: float = 0.0
    clip: bool = False
    row_map: RowMap | None = field(default=None, metadata=OPTIONAL)
    solver: NoisySolver | None = field(default=None, metadata=OPTIONAL)
    columns: ColumnMap | None = field(default=None, metadata=OPTIONAL)
    lift: RandomMap | None = field(default=None, metadata=OPTIONAL)
    target_sums: bool = field(default=True, metadata={STORED_WITHOUT: False})

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_features", "n_targets", "max_rows", "max_clients")
        if not (isinstance(self.feature_format, RowFormat) and isinstance(self.target_format, RowFormat)):
            raise SpecificationError(
                f"formats are RowFormats, not {self.feature_format!r} and {self.target_format!r}; RowFormat.parse "
                "makes one of a text"
            )
        if not (np.isfinite(self.ri_gamma) and self.ri_gamma >= 0):
            raise SpecificationError(f"gamma must be a finite number >= 0, not {self.ri_gamma}")
        if self.ri_gamma > 0 and self.ri_units == 0:
            raise SpecificationError(
                f"gamma {self.ri_gamma:g} is below half a unit of the Gram, "
                f"2^-{2 * self.feature_format.fraction_bits}; use a larger gamma or 0"
            )
        if self.max_clients < 1:
            raise SpecificationError(f"a cohort needs at least one client, not {self.max_clients}")
        if not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise SpecificationError(f"a ridge must be a finite number >= 0, not {self.ridge}")
        if self.row_map is not None and (self.ri_gamma or self.target_format != LABELS):
            raise SpecificationError(
                f"a row map is for class labels and has no RI process, and {self.name} has targets in "
                f"{self.target_format} and gamma {self.ri_gamma:g}: leave them, or the map, out"
            )
        if self.row_map is None and self.solver is not None:
            raise SpecificationError("a solver that knows noise needs a row map: no noise covers rows without a bound")
        if self.columns is not None:
            self._check_columns(self.columns)
        if self.lift is not None and self.lift.n_features != self.n_features:
            raise SpecificationError(
                f"random features of rows of {self.lift.n_features} features came, and n_features={self.n_features}: "
                "they are of the same rows"
            )
        _ = self.spec, self.mean_spec

    def _check_columns(self, columns: ColumnMap) -> None:
        if self.row_map is not None:
            raise SpecificationError("a row map bounds rows by itself: leave the map of columns, or the row map, out")
        n_targets = self.n_targets if columns.target_exponents and self.target_format != LABELS else 0
        if (len(columns.exponents), len(columns.target_exponents)) != (self._n_mapped, n_targets):
            raise SpecificationError(
                f"a map of columns has an exponent for each of {self._n_mapped} features, and for each of "
                f"{self.n_targets} real targets or none, not {len(columns.exponents)} and "
                f"{len(columns.target_exponents)}"
            )
        one = columns.intercept
        if one is not None and not -self.feature_format.integer_bits < one <= self.feature_format.fraction_bits:
            raise SpecificationError(f"{self.feature_format} does not hold a column of 2^{-one}; take another power")

    @property
    def fit_intercept(self) -> bool:
        """Whether the model has an intercept."""
        return self.columns is not None and self.columns.intercept is not None

    @property
    def name(self) -> str:
        """The learner's name on the command line and in reports."""
        return "afl" if self.lift is None else "random"

    @property
    def _n_mapped(self) -> int:
        """Columns of a row before the intercept's: its features, or random ones."""
        return self.n_features if self.lift is None else self.lift.n_columns

    @property
    def ri_units(self) -> int:
        """Gamma in units of the Gram: what is added, and so what is taken off again."""
        units = round(Fraction(float(self.ri_gamma)) * (1 << 2 * self.feature_format.fraction_bits))
        if self.max_clients * units > INT64_MAX:
            raise SpecificationError(
                f"gamma {self.ri_gamma:g} from {self.max_clients} clients does not fit an int64 Gram; use a smaller one"
            )
        return units

    @property
    def spec(self) -> StatisticsSpec:
        """The one sum that AFL needs; behind a map that centres, the second of two."""
        mapped, one = self.row_map, None if self.columns is None else self.columns.intercept
        return StatisticsSpec(
            n_features=self._n_mapped + self.fit_intercept
            if mapped is None
            else mapped.clip.n_features(self._n_mapped),
            n_targets=self.n_targets,
            feature_format=self.feature_format if mapped is None else mapped.last.row_format,
            target_format=self.target_format,
            max_rows=self.max_rows,
            diagonal_allowance=self.max_clients * self.ri_units,
            diagonal_each=self.ri_units,
            constant=0 if one is None else 1 << (self.feature_format.fraction_bits - one),
            one_class=self._one_class,
            target_sums=self.target_sums and mapped is None,
        )

    @property
    def mean_spec(self) -> MeanSpec | None:
        """The sum for the rows' mean; None where they are not centred."""
        if self.row_map is None or not self.row_map.centred:
            return None
        bounds = self.row_map.client_bounds
        return MeanSpec(
            n_features=self._n_mapped,
            limit=self.row_map.clip.limit,
            row_format=self.row_map.clip.row_format,
            max_rows=self.max_rows,
            client_limit=None if bounds is None else bounds[0],
        )

    def init(self) -> LinearModel:
        """The model before its sum."""
        return LinearModel()

    def next_sum(self, model: LinearModel) -> SumSpec[Any] | None:
        """The mean's sum where rows are to be centred, then the statistics, then nothing more."""
        if model.solution is not None:
            return None
        return self.spec if model.centre is not None else self.mean_spec or self.spec

    def client_statistics(self, model: LinearModel, rows: ClientRows) -> Any:
        """Local stage: G_k + gamma I and H_k; through a row map, what was clipped stays in ``rows.memory``.

        Raises:
            InvalidRowsError: behind a row map, targets that are no class labels of shape (n,): noise covers no others.
        """
        if self.row_map is None:
            return self.own_statistics(rows).with_diagonal(self.ri_units)
        refuse_weights(rows)
        check_labels_only(rows.targets)
        first = self.row_map.first.apply(self._lifted(rows.features))
        rows.memory[CLIPPED_ROWS] = first.n_clipped
        if self.mean_spec is not None and model.centre is None:
            return self.mean_spec.sum_of(first.rows)
        own = without_count(Statistics.from_rows(self.spec, self._placed(first.rows, model.centre), rows.targets))
        if self.row_map.client_bounds is not None:
            own, rows.memory[CLIPPED_CONTRIBUTION] = self.row_map.client_bounds[1].apply(own)
        return own

    def own_statistics(self, rows: ClientRows) -> Statistics:
        """G_k and H_k of a client's rows, scaled and with the intercept's column where there is a map of columns."""
        return Statistics.from_rows(self.spec, *self.mapped(rows), clip=self.clip)

    def mapped(self, rows: ClientRows) -> tuple[NDArray[Any], NDArray[Any]]:
        """Features and targets as they are put into their formats."""
        refuse_weights(rows)
        features, targets = self._lifted(rows.features), rows.targets
        if self.columns is None:
            return features, targets
        return self.columns.features(features), self.columns.targets(targets)

    def coarse_columns(self, model: LinearModel, rows: ClientRows) -> tuple[int, ...]:
        """Features of which the format keeps less than 8 bits in a client's rows; none where it is not their own."""
        if self.row_map is not None or self.lift is not None or rows.features.shape[1:] != (self.n_features,):
            return ()
        return self.feature_format.coarse_columns(self.mapped(rows)[0][:, : self.n_features])

    def lattice_rows(self, model: LinearModel, rows: ClientRows) -> FixedRows:
        """Rows as the last sum takes them, on its lattice, for sums that come after it."""
        row_format, (features, _) = self.spec.feature_format, self.mapped(rows)
        if self.row_map is not None:
            features = self._placed(self.row_map.first.apply(features).rows, model.centre)
        units = row_format.quantise(features, clip=self.clip)
        return FixedRows(values=row_format.dequantise(units), fraction_bits=row_format.fraction_bits)

    def update(self, model: LinearModel, total: Any, survivors: int) -> LinearModel:
        """Aggregation stage: the centre, or the weights once K gamma I is taken off again, exactly.

        Raises:
            InvalidRowsError: more survivors than ``max_clients``, so that the RI process left its room.
        """
        if self.mean_spec is not None and model.centre is None:
            return LinearModel(centre=self.mean_spec.mean(total))
        pooled = self.without_ri(total, survivors)
        return LinearModel(solution=self.solve(pooled, survivors), centre=model.centre)

    def exact_total(self, model: LinearModel, total: Any, survivors: int) -> Statistics | tuple[Statistics, ...] | None:
        """The survivors' pooled statistics, of rows or of their random features; None behind a row map."""
        return None if self.row_map else self.without_ri(total, survivors)

    def without_ri(self, total: Statistics, survivors: int) -> Statistics:
        """The survivors' pooled statistics: the total without the K gamma I that they added."""
        return ri_taken_off(total, survivors, units=self.ri_units, max_clients=self.max_clients)

    def solve(self, pooled: Statistics, survivors: int = 1, *, target_format: RowFormat | None = None) -> Solution:
        """Weights of pooled statistics: the exact solution, each entry rounded to float64 once, unless there is noise.

        Args:
            pooled: the statistics.
            survivors: how many clients they are of, which tells the solver how much noise they hold.
            target_format: of what stands in for targets in them; None for the learner's own targets.
        """
        formats = self.spec.feature_format, target_format or self.target_format
        if self.solver is None:
            return self.solve_digits(*in_digits(pooled, *formats))
        gram, cross = dequantised(pooled, *formats)
        bits = formats[0].fraction_bits
        return self.solver.solve(gram, cross, survivors=survivors, fraction_bits=bits, ridge=self.ridge)

    def over(self, denominator: int) -> Self:
        """The learner for sums that hold everything so many times, a power of two: its penalty is so much larger."""
        return replace(self, ridge=self.ridge * denominator)

    def widened(self, bits: int) -> Self | None:
        """The learner of columns that reach up to 2^bits in place of 1; None of random features, whose bound is proven.

        The format keeps its size: columns lose so many fraction bits.
        """
        if self.lift is not None:
            return None
        fraction_bits = self.feature_format.fraction_bits - bits
        return replace(self, feature_format=RowFormat(integer_bits=bits, fraction_bits=fraction_bits))

    def solve_digits(self, gram: Digits, cross: Digits) -> Solution:
        """The certified solve with the ridge, of which an intercept has none."""
        if not (self.fit_intercept and self.ridge):
            return solve_ridge(gram, cross, ridge=self.ridge)
        shrunk = np.diag(np.append(np.ones(self._n_mapped), 0.0))
        return solve_ridge(gram + Digits.of(shrunk, gram.bits).times(self.ridge), cross)

    def decision_function(self, model: LinearModel, features: NDArray[Any]) -> FloatMatrix:
        """X W, shape (n, c), of features as they are: only training rows are quantised. A row map maps these too.

        Each score is within g sum_i |x_i w_i| of ``exact_scores``, g = d u / (1 - d u) + u, u = 2^-53, in whatever
        order BLAS adds (Higham, Accuracy and Stability, section 3.1), while no product leaves float64's normal range.

        Raises:
            NotReadyError: the total has not arrived yet.
            InvalidRowsError: features of another shape than (n, d).
        """
        weights = self._complete(model)
        return self._in_own_units(self._rows(features, model.centre) @ weights)

    def _complete(self, model: LinearModel) -> FloatMatrix:
        """The weights that predict."""
        return model.weights

    def exact_scores(self, model: LinearModel, features: NDArray[Any]) -> FloatMatrix:
        """X W of the same rows, each the float64 nearest to the exact score: the same bits on every machine.

        Raises:
            NotReadyError: the total has not arrived yet.
            InvalidRowsError: features of another shape than (n, d), NaN or infinity, or a score beyond float64.
            SpecificationError: a row map, which scales rows in float64.
        """
        refuse_row_map(self)
        weights = self._complete(model)
        return self._exactly(self._rows(features, model.centre), weights)

    def scores_by(self, weights: FloatMatrix, features: NDArray[Any]) -> FloatMatrix:
        """Return scores by any weights, shape (n, c)."""
        rows = self._lifted(np.asarray(features, dtype=np.float64))
        return self._exactly(rows if self.columns is None else self.columns.features(rows), weights)

    def _exactly(self, rows: FloatMatrix, weights: FloatMatrix) -> FloatMatrix:
        if not np.isfinite(rows).all():
            raise InvalidRowsError("exact scores need finite features, and NaN or infinity came: repair these rows")
        try:
            return self._in_own_units(self._exact(rows, weights))
        except OverflowError as error:
            raise InvalidRowsError("scores of these features leave float64; scale them as in training") from error

    def _exact(self, rows: FloatMatrix, weights: FloatMatrix) -> FloatMatrix:
        return exact_product(rows, weights)

    def _lifted(self, features: NDArray[Any]) -> NDArray[Any]:
        """Random features in place of the rows, where they are asked for."""
        return features if self.lift is None else self.lift.apply(features).values

    def _rows(self, features: NDArray[Any], centre: FloatMatrix | None) -> FloatMatrix:
        """Features as the weights multiply them."""
        rows = np.asarray(features, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self.n_features:
            raise InvalidRowsError(f"features must have shape (n, {self.n_features}), not {rows.shape}")
        rows = self._lifted(rows)
        if self.columns is not None:
            return self.columns.features(rows)
        return rows if self.row_map is None else self._placed(self.row_map.first.apply(rows).rows, centre)

    def _in_own_units(self, scores: FloatMatrix) -> FloatMatrix:
        return scores if self.columns is None else self.columns.scores(scores)

    def layers(self, model: LinearModel) -> tuple[Layer, ...]:
        """Return X W, or X W + b in the features' own units, as one layer; random features, rounded, go before it.

        Raises:
            SpecificationError: a row map, which is no layer.
        """
        refuse_row_map(self)
        first = () if self.lift is None else (*self.lift.layers(), Rounded(self.lift.fraction_bits))
        weights = self._complete(model)
        if self.columns is None:
            return *first, Linear(weights)
        return *first, Linear(*self.columns.own_units(weights))

    def weights_bytes(self, model: LinearModel) -> bytes:
        """W's bytes, after the centre's where there is one.

        Raises:
            NotReadyError: the total has not arrived yet.
        """
        _ = model.weights
        return b"".join(model.received)

    def context_bytes(self, model: LinearModel) -> bytes:
        """The configuration, and what was received of the centre and W: before its sums a client receives nothing."""
        return canonical_context(self, *model.received)

    def bounded(self, terms: RowTerms) -> Self:
        """The learner behind the row map of these terms; one that has a row map keeps it."""
        if self.lift is not None:
            terms = replace(terms, nonnegative=not self.lift.row_format.signed)
        return self if self.row_map is not None else replace(self, row_map=RowMap.of(terms))

    def unbounded(self) -> Self:
        """The learner without a row map and what knows its noise."""
        return replace(self, row_map=None, solver=None)

    def bounded_sums(self, unit: Unit, adjacency: Adjacency) -> tuple[BoundedSum, ...]:
        """Return each sum's bounds, in order, from which its noise is computed.

        Raises:
            SpecificationError: no row map, or one that bounds another unit of privacy.
        """
        mapped = self.row_map
        if mapped is None or (unit == "client") != (mapped.client_bounds is not None):
            raise SpecificationError(
                f"noise for a {unit} needs a row map that bounds one {unit}'s part of a sum, and that of {self.name} "
                f"{'is not there' if mapped is None else 'does not'}: take the map that bounded() makes"
            )
        bits, signed = mapped.clip.row_format.fraction_bits, mapped.last.row_format.signed
        sums = []
        if self.mean_spec is not None:
            nonnegative = not mapped.first.row_format.signed
            of_mean = mean_sensitivity(self.mean_spec, adjacency, nonnegative=nonnegative)
            levels = np.ones(self._n_mapped + 1, dtype=np.uint8)
            sums.append(
                BoundedSum(label="mean", sensitivity=of_mean, levels=levels, fraction_bits=bits, preparatory=True)
            )
        of_rows: Sensitivity = (
            RecordSensitivity(squared_features=mapped.last.limit**2, adjacency=adjacency, nonnegative=not signed)
            if mapped.client_bounds is None
            else ClientSensitivity(clip=mapped.client_bounds[1], adjacency=adjacency)
        )
        levels = noise_levels(self.spec)
        return (*sums, BoundedSum(label="statistics", sensitivity=of_rows, levels=levels, fraction_bits=bits))

    def sums_made(self, model: LinearModel) -> int:
        """Return the number of ``bounded_sums`` that the model is the result of."""
        return int(model.solution is not None) + int(self.mean_spec is not None and model.centre is not None)

    def with_noise(self, gram_sigmas: Sequence[float], shares: int | None) -> Self:
        """The learner with a solver that knows the noise.

        Args:
            gram_sigmas: for each sum, the standard deviation at its first noise level in lattice units.
            shares: how many shares make them; None when the server adds the noise.
        """
        return replace(self, solver=NoisySolver(sigma=gram_sigmas[-1], shares=shares))

    def _placed(self, rows: FloatMatrix, centre: FloatMatrix | None) -> FloatMatrix:
        """Clipped rows as the last sum takes them."""
        if self.row_map is None or centre is None:
            return rows
        return self.row_map.last.apply(rows - centre).rows

    def take_apart(self, model: LinearModel) -> Parts:
        """Return the centre and the weights with their conditioning, as far as they are known."""
        parts = Parts({} if model.centre is None else {"centre": model.centre})
        if model.solution is not None:
            parts.add_solution("weights", model.solution)
        return parts

    def put_together(self, parts: Parts) -> LinearModel:
        """Return the model of these parts."""
        shape = self.spec.n_features, self.n_targets
        centre = parts.floats("centre", (1, self._n_mapped)) if "centre" in parts else None
        solution = parts.solution("weights", shape) if "weights" in parts else None
        return LinearModel(solution=solution, centre=centre)


def ri_taken_off(total: Total, survivors: int, *, units: int, max_clients: int) -> Total:
    """A total without the K gamma I that K survivors added to its Gram (the RI process), exact.

    Args:
        total: statistics or counts.
        survivors: K, how many.
        units: gamma in units of the Gram.
        max_clients: for how many clients the layout had room.

    Raises:
        InvalidRowsError: more survivors than that, whose diagonals may have wrapped around.
    """
    if units and not 0 <= survivors <= max_clients:
        raise InvalidRowsError(
            f"the RI process has room for {max_clients} clients and {survivors} took part; agree on a larger "
            "max_clients"
        )
    return total.with_diagonal(-survivors * units)


def dequantised(
    total: Statistics, feature_format: RowFormat, target_format: RowFormat
) -> tuple[FloatMatrix, FloatMatrix]:
    """Gram and cross-correlation of a total as float64, each entry rounded once."""
    f, f_target = feature_format.fraction_bits, target_format.fraction_bits
    return (
        np.ldexp(total.gram.astype(np.float64), -2 * f),
        np.ldexp(total.cross.astype(np.float64), -f - f_target),
    )


def in_digits(
    total: Statistics, feature_format: RowFormat, target_format: RowFormat, *, inner: int = 1
) -> tuple[Digits, Digits]:
    """Gram and cross-correlation of a total, exactly, in digits whose sums of ``inner`` products are exact too."""
    f, f_target = feature_format.fraction_bits, target_format.fraction_bits
    bits = digit_bits(max(len(total.gram), inner))
    return Digits.of(total.gram, bits).shifted(-2 * f), Digits.of(total.cross, bits).shifted(-f - f_target)
