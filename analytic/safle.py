"""SAFLe: a sum of embeddings of bucketed features, which is a linear model on counts, from one sum or two.

Every row has exactly E ones, whatever its features: a fact of the encoding, and so the sensitivity of its counts, with
which noise covers them where thresholds are fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from analytic.afl import ri_taken_off
from analytic.bucketing import (
    Bucketing,
    Digits,
    Encoding,
    FixedThresholds,
    Grouping,
    QuantileThresholds,
)
from analytic.counts import MAX_CELLS, Counts, CountSpec, gram_gib, too_many_cells
from analytic.errors import NotReadyError, SpecificationError
from analytic.layers import Layer, Lookup
from analytic.learner import OPTIONAL, ClientRows, canonical_context, refuse_weights
from analytic.model_arrays import Parts
from analytic.noisy_solve import NoisySolver
from analytic.row_format import FloatMatrix, RowFormat
from analytic.row_map import CountMap, RowTerms
from analytic.sensitivity import Adjacency, BoundedSum, RecordSensitivity, Unit, noise_levels
from analytic.shape_repr import shape_html, shape_repr
from analytic.solve.digits import Digits as Exact
from analytic.solve.digits import digit_bits
from analytic.solve.minimum_norm import Solution, solve_ridge
from analytic.statistics import LABELS, IntVector, Statistics
from analytic.tallies import Tallies, TallySpec
from analytic.whole_numbers import settle_whole_numbers


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SAFLeModel:
    """Thresholds and weights as far as they are known; weights W are (E V, c), group by group."""

    thresholds: FloatMatrix | None = None
    solution: Solution | None = None

    __repr__ = shape_repr
    _repr_html_ = shape_html

    @property
    def weights(self) -> FloatMatrix:
        """W_global (eq. 9), shape (E V, c).

        Raises:
            NotReadyError: the total of counts has not arrived yet.
        """
        if self.solution is None:
            raise NotReadyError("this model has no weights yet: it still needs the total of its clients' counts")
        return self.solution.weights


@dataclass(frozen=True, slots=True, kw_only=True)
class SAFLe:
    """Single-round scalable analytic federated learning (Bacellar et al., 2025), exact for any partition.

    Features are bucketed into digits, digits are shuffled and grouped, and each group has an embedding; their
    sum is the score (eq. 3-5). That is a linear model on one-hot rows Phi (eq. 10), so clients add up counts and
    W = (sum Phi_k^T Phi_k)^+ sum Phi_k^T Y_k (eq. 12, 13). With ``QuantileThresholds`` a sum of histograms comes first
    and decides the thresholds.

    Args:
        n_features: d_b.
        n_classes: c; targets are integer labels of shape (n,), or real targets of shape (n, c).
        max_rows: largest number of rows that all clients together may hold.
        thresholds: fixed, or quantiles over a public grid.
        encoding: how buckets become digits.
        n_buckets: B; the paper's best is 8.
        group_size: G, which must divide d_b L.
        seed: public seed of the shuffle.
        ridge: penalty of the solve, in rows; 0 is the pseudo-inverse.
        ri_gamma: the paper's gamma, a whole number that each client adds to its Gram's diagonal.
        max_clients: largest cohort; sizes the room that the RI process needs (without one it limits nothing).
        real_format: the format of real targets, which the paper has none of; None for class labels.
        row_map: the private form's, which withholds the number of rows; None for exact counts.
        solver: what knows the noise of the total; None takes it for exact.
    """

    name: ClassVar[str] = "safle"

    n_features: int
    n_classes: int
    max_rows: int
    thresholds: FixedThresholds | QuantileThresholds
    encoding: Encoding = Encoding.BINARY_OVERLAPPING
    n_buckets: int = 8
    group_size: int = 2
    seed: int = 0
    ridge: float = 0.0
    ri_gamma: int = 0
    max_clients: int = 1
    real_format: RowFormat | None = field(default=None, metadata=OPTIONAL)
    row_map: CountMap | None = field(default=None, metadata=OPTIONAL)
    solver: NoisySolver | None = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_features", "n_classes", "max_rows", "n_buckets", "group_size", "seed")
        settle_whole_numbers(self, "ri_gamma", "max_clients")
        if self.n_features < 1 or self.max_clients < 1:
            raise SpecificationError(
                f"at least one feature and one client are needed, not {self.n_features} and {self.max_clients}"
            )
        if self.encoding not in list(Encoding):
            raise SpecificationError(f"the encoding must be one of {', '.join(Encoding)}, not {self.encoding!r}")
        if self.ri_gamma < 0:
            raise SpecificationError(f"gamma must be a whole number >= 0, not {self.ri_gamma}")
        if not (np.isfinite(self.ridge) and self.ridge >= 0):
            raise SpecificationError(f"a ridge must be a finite number >= 0, not {self.ridge}")
        if self.grouping.n_groups * self.grouping.n_values > MAX_CELLS:
            raise too_many_cells(self.grouping.n_groups, self.grouping.n_values, self._what_fits())
        if self.row_map is not None and (
            self.ri_gamma or self.real_format is not None or isinstance(self.thresholds, QuantileThresholds)
        ):
            raise SpecificationError(
                "the private form of safle is for class labels and fixed thresholds, without the RI process: quantiles"
                " have no private form; state thresholds, for example even ones"
            )
        if self.row_map is None and self.solver is not None:
            raise SpecificationError("a solver that knows noise needs the map of the private form")
        _ = self.spec
        if (grid := self._grid(self.init())) is not None:
            _ = grid.table(grid.histograms(np.zeros((0, 1)), 1), self.bucketing.n_thresholds)

    @property
    def n_targets(self) -> int:
        """The number of columns of scores, under the name that other learners give it."""
        return self.n_classes

    @property
    def target_format(self) -> RowFormat:
        """The format of real targets, or ``LABELS``."""
        return self.real_format or LABELS

    @property
    def bucketing(self) -> Bucketing:
        """The bucketing functions."""
        return Bucketing(encoding=Encoding(self.encoding), n_buckets=self.n_buckets)

    @property
    def grouping(self) -> Grouping:
        """The shuffle and the groups."""
        n_digits = self.n_features * self.bucketing.digits_per_feature
        return Grouping(n_digits=n_digits, group_size=self.group_size, base=self.bucketing.base, seed=self.seed)

    @property
    def spec(self) -> CountSpec:
        """The sum of counts."""
        return CountSpec(
            n_groups=self.grouping.n_groups,
            n_values=self.grouping.n_values,
            n_classes=self.n_classes,
            max_rows=self.max_rows,
            diagonal_allowance=self.max_clients * self.ri_gamma,
            diagonal_each=self.ri_gamma,
            target_format=self.target_format,
            fraction_bits=0 if self.row_map is None else self.row_map.fraction_bits,
        )

    def init(self) -> SAFLeModel:
        """The model before any sum; fixed thresholds are in it already."""
        if isinstance(self.thresholds, QuantileThresholds):
            return SAFLeModel()
        return SAFLeModel(thresholds=self.thresholds.table(self.n_features, self.bucketing.n_thresholds))

    def _grid(self, model: SAFLeModel) -> QuantileThresholds | None:
        """The grid of the histograms that are still to be summed; None where thresholds are known."""
        return self.thresholds if model.thresholds is None and isinstance(self.thresholds, QuantileThresholds) else None

    def next_sum(self, model: SAFLeModel) -> TallySpec | CountSpec | None:
        """Histograms if the thresholds are not known yet, then the counts, then nothing more."""
        if (grid := self._grid(model)) is not None:
            return grid.spec(self.n_features, self.max_rows)
        return self.spec if model.solution is None else None

    def client_statistics(self, model: SAFLeModel, rows: ClientRows) -> Tallies | Counts:
        """Local stage: the histograms of the features, or Phi_k^T Phi_k + gamma I and Phi_k^T Y_k (eq. 14, 15)."""
        refuse_weights(rows)
        if (grid := self._grid(model)) is not None:
            return grid.histograms(rows.features, self.n_features)
        counts = Counts.from_blocks(self.spec, self._blocks(model, rows)).with_diagonal(self.ri_gamma)
        return counts if self.row_map is None else counts.on_lattice(self.spec.fraction_bits)

    def update(self, model: SAFLeModel, total: Tallies | Counts, survivors: int) -> SAFLeModel:
        """Thresholds from a total of histograms; weights from one of counts, K gamma I taken off exactly (eq. 18).

        Raises:
            InvalidRowsError: more survivors than ``max_clients``, so that the RI process left its room; or noise in the
                total of a bounded learner without a solver.
            SpecificationError: a total of histograms where thresholds are fixed.
        """
        if not isinstance(total, Counts):
            if not isinstance(self.thresholds, QuantileThresholds):
                raise SpecificationError("fixed thresholds need no histograms; a total of them came")
            return SAFLeModel(thresholds=self.thresholds.table(total, self.bucketing.n_thresholds))
        bits = self.spec.fraction_bits
        if self.solver is not None:
            gram = np.ldexp(total.gram(np.arange(self.spec.n_cells)), -2 * bits)
            cross = np.ldexp(total.cross.astype(np.float64), -bits)
            solution = self.solver.solve(gram, cross, survivors=survivors, fraction_bits=bits, ridge=self.ridge)
            return SAFLeModel(thresholds=_known(model), solution=solution)
        total = total if self.row_map is None else total.off_lattice(bits)
        restored = ri_taken_off(total, survivors, units=self.ri_gamma, max_clients=self.max_clients)
        return SAFLeModel(thresholds=_known(model), solution=solve_counts(restored, self.spec, ridge=self.ridge))

    def over(self, denominator: int) -> SAFLe:
        """The learner for sums that hold everything so many times, a power of two: its penalty is so much larger."""
        return replace(self, ridge=self.ridge * denominator)

    def exact_total(self, model: SAFLeModel, total: Any, survivors: int) -> Statistics | IntVector | None:
        """The statistics of the one-hot rows, or the histograms; None of bounded rows.

        Without cells that no row has. Each group's cells add up to one in every row: so one cell of each group but the
        first, the most frequent, follows from the others and is left out, and labels say the rows of each class.
        """
        if not isinstance(total, Counts):
            histograms: IntVector = total["histograms"].ravel()
            return histograms
        if self.row_map is not None:
            return None
        counts = ri_taken_off(total, survivors, units=self.ri_gamma, max_clients=self.max_clients)
        live, cross, v = counts.diagonal > 0, counts.cross, self.spec.n_values
        live[counts.diagonal.reshape(-1, v).argmax(axis=1)[1:] + v * np.arange(1, self.spec.n_groups)] = False
        cells = np.flatnonzero(live)
        return Statistics(
            gram=counts.gram(cells).astype(np.int64),
            cross=cross[cells],
            count=counts.count,
            target_sum=cross[:v].sum(axis=0) if self.target_format == LABELS else None,
        )

    def decision_function(self, model: SAFLeModel, features: NDArray[Any]) -> FloatMatrix:
        """Scores (eq. 5), shape (n, c): the sum of each group's row of weights.

        Raises:
            NotReadyError: the model is not complete.
            RowsOutsideFormatError: features with NaN or infinity.
        """
        embeddings = model.weights.reshape(self.spec.n_groups, self.spec.n_values, self.n_classes)
        scores = np.zeros((len(features), self.n_classes))
        for start in range(0, len(features), self.spec.block_rows):
            block = slice(start, start + self.spec.block_rows)
            for embedding, column in zip(embeddings, self._indices(model, features[block]).T, strict=True):
                scores[block] += embedding[column]
        return scores

    def exact_scores(self, model: SAFLeModel, features: NDArray[Any]) -> FloatMatrix:
        """Return scores, each the float64 nearest to the exact one: the same bits on every machine.

        ``decision_function`` adds E numbers one after the other: it is within (E - 1) u / (1 - (E - 1) u) + u times the
        sum of their sizes, u = 2^-53.

        Raises:
            NotReadyError, RowsOutsideFormatError: as ``decision_function``.
        """
        scores, starts = np.empty((len(features), self.n_classes)), self.spec.n_values * np.arange(self.spec.n_groups)
        embeddings = Exact.of(model.weights, digit_bits(1))
        for start in range(0, len(features), self.spec.block_rows):
            block = slice(start, start + self.spec.block_rows)
            scores[block] = embeddings.sums_of(self._indices(model, features[block]) + starts).nearest()
        return scores

    def layers(self, model: SAFLeModel) -> tuple[Layer, ...]:
        """Return the lookup of each group's row of weights as one layer."""
        return (
            Lookup(
                thresholds=_known(model), bucketing=self.bucketing, grouping=self.grouping, embeddings=model.weights
            ),
        )

    def weights_bytes(self, model: SAFLeModel) -> bytes:
        """The bytes of thresholds and W."""
        return _known(model).tobytes() + model.weights.tobytes()

    def context_bytes(self, model: SAFLeModel) -> bytes:
        """The configuration and the model so far as canonical bytes: parties that differ in either differ here."""
        solution = model.solution
        known = (model.thresholds, None if solution is None else solution.weights)
        return canonical_context(self, *(array.astype("<f8").tobytes() for array in known if array is not None))

    def bounded(self, terms: RowTerms) -> Self:
        """The learner whose counts are priced by record; one that is bounded already stays as it is.

        Raises:
            SpecificationError: terms for clients, or a configuration whose sums have no price.
        """
        if terms.client_rows is not None:
            raise SpecificationError("counts are bounded by record only, not by client; take records")
        return replace(self, row_map=self.row_map or CountMap(fraction_bits=min(12, terms.fraction_bits)))

    def unbounded(self) -> Self:
        """The learner without the map and what knows its noise."""
        return replace(self, row_map=None, solver=None)

    def bounded_sums(self, unit: Unit, adjacency: Adjacency) -> tuple[BoundedSum, ...]:
        """The counts, to who prices their noise: a row phi has E ones, so |phi phi^T| = E and |phi y^T| = sqrt E.

        Raises:
            SpecificationError: no map, or a unit other than records.
        """
        if self.row_map is None or unit != "record":
            raise SpecificationError("noise for counts needs the map that bounded() makes, and is by record only")
        bits, spec = self.row_map.fraction_bits, self.spec
        of_rows = RecordSensitivity(squared_features=spec.n_groups << 2 * bits, adjacency=adjacency, nonnegative=True)
        return (BoundedSum(label="counts", sensitivity=of_rows, levels=noise_levels(spec), fraction_bits=bits),)

    def sums_made(self, model: SAFLeModel) -> int:
        """Return the number of ``bounded_sums`` that the model is the result of."""
        return int(model.solution is not None)

    def with_noise(self, gram_sigmas: Sequence[float], shares: int | None) -> Self:
        """The learner with a solver that knows the noise."""
        return replace(self, solver=NoisySolver(sigma=gram_sigmas[-1], shares=shares))

    def take_apart(self, model: SAFLeModel) -> Parts:
        """Return thresholds and weights as far as they are known."""
        parts = Parts()
        if model.thresholds is not None:
            parts.arrays["thresholds"] = model.thresholds
        if model.solution is not None:
            parts.add_solution("weights", model.solution)
        return parts

    def put_together(self, parts: Parts) -> SAFLeModel:
        """Return the model of these parts; weights need thresholds."""
        thresholds = solution = None
        if "thresholds" in parts or "weights" in parts:
            thresholds = parts.floats("thresholds", (self.n_features, self.bucketing.n_thresholds))
        if "weights" in parts:
            solution = parts.solution("weights", (self.spec.n_cells, self.n_classes))
        return SAFLeModel(thresholds=thresholds, solution=solution)

    def _what_fits(self) -> str:
        """Say which number of buckets has few enough cells, and what these cost."""
        for n_buckets in range(self.n_buckets - 1, 1, -1):
            bucketing = Bucketing(encoding=Encoding(self.encoding), n_buckets=n_buckets)
            n_groups, rest = divmod(self.n_features * bucketing.digits_per_feature, self.group_size)
            n_cells = n_groups * bucketing.base**self.group_size
            if not rest and n_cells <= MAX_CELLS:
                return (
                    f"n_buckets={n_buckets} fits: {n_cells} cells, a Gram of {gram_gib(n_cells):.2g} GiB at the server "
                    "and half of that in every client's vector"
                )
        return "no number of buckets fits: leave features out, or bring them to fewer columns by a public projection"

    def _blocks(self, model: SAFLeModel, rows: ClientRows) -> Iterator[tuple[Digits, NDArray[Any]]]:
        step = self.spec.block_rows
        for start in range(0, len(rows), step):
            block = slice(start, start + step)
            yield self._indices(model, rows.features[block]), rows.targets[block]

    def _indices(self, model: SAFLeModel, features: NDArray[Any]) -> Digits:
        return self.grouping.indices(self.bucketing.digits(features, _known(model)))


def _known(model: SAFLeModel) -> FloatMatrix:
    if model.thresholds is None:
        raise NotReadyError("this model has no thresholds yet: it still needs the total of its clients' histograms")
    return model.thresholds


def solve_counts(total: Counts, spec: CountSpec, *, ridge: float = 0.0) -> Solution:
    """Weights of the embeddings: the ridge solution, or for ``ridge`` 0 the one of minimum norm (SAFLe, eq. 18).

    Every group has exactly one value a row, so Phi^T Phi is singular: cells that never occur weigh nothing, and vectors
    that are constant c_j on group j, with constants that add up to zero, are in its kernel. So are others where digits
    of one feature follow from each other. They are vectors of whole numbers, by which the solve proves the rank.
    """
    weights = np.zeros((spec.n_cells, spec.n_classes))
    observed = np.flatnonzero(total.diagonal > 0)
    if len(observed) == 0:
        return Solution(weights=weights, method="minimum norm", rank=0, reciprocal_condition=0.0, certified=True)
    solution = solve_ridge(total.gram(observed).astype(np.int64), total.cross[observed], ridge=ridge)
    weights[observed] = np.ldexp(solution.weights, -spec.target_format.fraction_bits)  # a power of two rounds nothing
    return replace(solution, weights=weights)
