"""Softmax rounds: a least-squares classifier's weights moved toward those of logistic regression by a few sums more.

The first sums are AFL's. From its weights, scaled, each further sum is the gradient X^T (Y - softmax(X W)) of all rows,
and W moves by a step times (G + ridge I)^-1 times it: Newton's direction with the Gram of the first sum in place of
every round's own Hessian, which is never larger than half of it (Boehning, Ann. Inst. Statist. Math. 1992). So a step
of 2 never overshoots, and the first one is 2. Where rows are classified with confidence the Hessian is far smaller, and
longer steps pay: each later step is the shorter secant step of the last two gradients in the metric of G + ridge I
(Barzilai and Borwein, IMA J. Numer. Anal. 1988), at least 2 and at most twice the one before. A constant step can be
stated instead; one that overshoots makes the gradient grow, which is refused.

Rows are those of AFL's sum, on its lattice; scores are exact products, correctly rounded, and ``softmax`` is one of
integers. So a gradient is a sum of integers like every other, the same on every machine. Behind a row map a gradient is
bounded too, |x| |y - p| with residuals clipped: that is its private form, in which each round is one more noisy sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL, LinearModel
from analytic.checked_products import check_product
from analytic.errors import DivergedError, InvalidRowsError, NotReadyError, SpecificationError
from analytic.integer_maps import EXACT_BITS, FixedRows, scores, softmax
from analytic.learner import OPTIONAL, ClientRows, SumSpec, canonical_context
from analytic.model_arrays import ModelFileError, Parts
from analytic.row_format import FloatMatrix, RowFormat
from analytic.row_map import CLIPPED_ROWS, RowClip, RowTerms, check_labels_only
from analytic.sensitivity import Adjacency, BoundedSum, Unit, gradient_sensitivity
from analytic.shape_repr import shape_html, shape_repr
from analytic.statistics import LABELS, Statistics, check_labels, one_hot
from analytic.tallies import TallySpec
from analytic.whole_numbers import settle_whole_numbers

SAFE_STEP, LONGEST_STEP = 2.0, 64.0
"""Range of the steps that follow from the gradients."""

DAMPING = 0.6
"""Multiple of the noise's operator norm in the ridge of a step behind a row map."""

RESIDUAL_BOUND = 1.0
"""Largest norm of a residual behind a row map, where none is stated."""

RESIDUALS = RowFormat(integer_bits=1, fraction_bits=15)
"""The lattice of residuals, labels minus probabilities."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Move:
    """The last round, from which the next step follows.

    Args:
        gradient: X^T (Y - softmax(X W)), shape (d, c), in units of the sum.
        direction: (G + ridge I)^-1 times it, shape (d, c).
        step: what W moved by along it.
    """

    gradient: NDArray[np.int64]
    direction: FloatMatrix
    step: float

    __repr__ = shape_repr
    _repr_html_ = shape_html

    @property
    def size(self) -> float:
        """The squared length of the gradient in the metric of (G + ridge I)^-1, rounded once."""
        return exact_inner(self.direction, self.gradient)

    def next_step(self, gradient: NDArray[np.int64], direction: FloatMatrix) -> float:
        """Return the secant step <s, y> / <y, (G + ridge I)^-1 y>, where W moved by s and the gradient fell by y.

        It is at least ``SAFE_STEP`` and at most twice the last one or ``LONGEST_STEP``. Each product is rounded once.
        """
        drop = self.gradient - gradient
        along = exact_inner(self.direction, drop)
        length = exact_inner(self.direction - direction, drop)
        if along <= 0 or length <= 0:  # no curvature was seen, because of noise
            return self.step
        return min(max(self.step * (along / length), SAFE_STEP), 2 * self.step, LONGEST_STEP)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LogisticModel(LinearModel):
    """The weights so far; ``solution`` and ``centre`` are as AFL has them.

    Args:
        n_rounds: rounds behind the weights.
        pooled: the statistics of the first sum; None at a party that did not receive them, such as a client.
        survivors: how many clients they are of.
        last: the last round; None before one, and where ``pooled`` is.
    """

    n_rounds: int = 0
    pooled: Statistics | None = None
    survivors: int = 0
    last: Move | None = None

    __repr__ = shape_repr
    _repr_html_ = shape_html


@dataclass(frozen=True, slots=True, kw_only=True)
class Logistic(AFL):
    """A multinomial logistic classifier from AFL's sum and ``n_rounds`` sums of d c entries.

    Args:
        n_features, n_targets, feature_format, max_rows, max_clients, clip, columns, lift: as in ``AFL``.
        ridge: penalty of the first solve; afterwards it only bounds the steps.
        row_map, solver: the private form's, as in ``AFL``.
        n_rounds: gradients, T.
        step: what each direction is multiplied by; None takes 2 and then secant steps.
        scale: what AFL's weights are multiplied by at first: least-squares scores lie between 0 and 1, and a softmax
            of these is nearly uniform.
        first_share: behind a row map, part of the budget of statistics and gradients that the statistics get.
        residual_bound: behind a row map, largest norm of a residual, to which longer ones are clipped; None for 1. A
            smaller one makes the noise as much smaller, and shortens the residuals of rows that are classified wrongly.

    Raises:
        SpecificationError: a parameter out of range, real targets, fewer than two classes or an RI process.
    """

    name: ClassVar[str] = "logistic"

    one_sum: ClassVar[bool] = False
    n_rounds: int = 5
    step: float | None = None
    scale: float = 10.0
    first_share: float = 0.4
    residual_bound: float | None = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        AFL.__post_init__(self)
        settle_whole_numbers(self, "n_rounds")
        if self.target_format != LABELS or self.ri_gamma or self.n_targets < 2:
            raise SpecificationError(
                f"softmax rounds are for at least two classes and no RI process, not for {self.n_targets} targets in "
                f"{self.target_format} with gamma {self.ri_gamma:g}"
            )
        stated = (self.scale,) if self.step is None else (self.step, self.scale)
        if self.n_rounds < 1 or not all(math.isfinite(own) and own > 0 for own in stated):
            raise SpecificationError(
                f"softmax rounds need at least one round, and a step and a scale above 0, not {self.n_rounds}, "
                f"{self.step} and {self.scale}"
            )
        if not 0 < self.first_share < 1:
            raise SpecificationError(f"the first sum's part lies between 0 and 1, not {self.first_share}")
        _ = self.gradient_spec, self._ball

    @property
    def gradient_spec(self) -> TallySpec:
        """The sum of one round: X^T R, shape (d, c), in units of the rows' lattice times that of ``RESIDUALS``."""
        rows = self.spec
        reach = rows.feature_format.magnitude << RESIDUALS.fraction_bits
        return TallySpec(
            shapes={"gradient": (rows.n_features, rows.n_targets)},
            bounds={"gradient": rows.max_rows * reach},
            max_rows=rows.max_rows,
        )

    def init(self) -> LogisticModel:
        """The model before any sum."""
        return LogisticModel()

    def next_sum(self, model: LinearModel) -> SumSpec[Any] | None:
        """AFL's sums, then a gradient for each round, then nothing more."""
        if model.solution is None:
            return AFL.next_sum(self, model)
        return self.gradient_spec if _rounds(model).n_rounds < self.n_rounds else None

    def client_statistics(self, model: LinearModel, rows: ClientRows) -> Any:
        """AFL's statistics, or X^T (Y - softmax(X W)) of one client's rows.

        Raises:
            InvalidRowsError: rows that AFL refuses, or targets that are no class labels of shape (n,).
        """
        count, targets = len(rows), rows.targets
        if self.row_map is not None:
            check_labels_only(targets)
        elif count and targets.ndim != 1:
            raise InvalidRowsError(
                f"softmax rounds need integer class labels of shape (n,), not targets of shape {targets.shape}"
            )
        if model.solution is None:
            return AFL.client_statistics(self, model, rows)
        if count:
            check_labels(targets, self.n_targets)
        own = self.lattice_rows(model, rows)
        labels = one_hot(targets if count else np.zeros(0, dtype=np.intp), self.n_targets)
        residuals = labels - softmax(scores(own, model.weights), RESIDUALS.fraction_bits)
        if self.row_map is not None:
            clipped = self._ball.apply(residuals)
            residuals, count = clipped.rows, 0  # how many rows there are is a fact about people too
            rows.memory[CLIPPED_ROWS] = rows.memory.get(CLIPPED_ROWS, 0) + clipped.n_clipped
        return {"gradient": _product(own, residuals), "count": np.array(count)}

    @property
    def _ball(self) -> RowClip:
        """Ball of the private form's residuals: |y - p| is at most sqrt 2, and above 1 where W is wrong."""
        bound = RESIDUAL_BOUND if self.residual_bound is None else self.residual_bound
        return RowClip(bound=bound, row_format=RESIDUALS)

    def update(self, model: LinearModel, total: Any, survivors: int) -> LogisticModel:
        """AFL's model, scaled when it is complete; then the weights after one more step.

        Raises:
            NotReadyError: a gradient where the first sum's total is not at hand.
            DivergedError: a stated step that overshoots: the exact gradient grew.
        """
        before = model.solution
        if before is None:
            linear = AFL.update(self, model, total, survivors)
            if linear.solution is None:
                return LogisticModel(centre=linear.centre)
            start = replace(linear.solution, weights=linear.solution.weights * self.scale)
            return LogisticModel(solution=start, centre=linear.centre, pooled=total, survivors=survivors)
        model = _rounds(model)
        if model.pooled is None:
            raise NotReadyError("a step needs the Gram of the first sum, which this party has not seen")
        directed = Statistics(gram=model.pooled.gram, cross=total["gradient"], count=model.pooled.count)
        direction = self._directing.solve(directed, model.survivors, target_format=RESIDUALS)
        move = self._move(model, total["gradient"], direction.weights)
        after = replace(
            direction,
            weights=before.weights + direction.weights * move.step,
            certified=before.certified and direction.certified,
        )
        return replace(model, solution=after, n_rounds=model.n_rounds + 1, last=move)

    def _move(self, model: LogisticModel, gradient: NDArray[np.int64], direction: FloatMatrix) -> Move:
        """Choose the step of a round, or refuse a stated one that overshot."""
        last = model.last
        if self.step is None:
            step = SAFE_STEP if last is None else last.next_step(gradient, direction)
            return Move(gradient=gradient, direction=direction, step=step)
        move = Move(gradient=gradient, direction=direction, step=self.step)
        if self.row_map is None and self.step > SAFE_STEP and last is not None and move.size > last.size:
            raise DivergedError(
                f"the gradient of round {model.n_rounds + 1} is longer than the one before: steps of {self.step:g} "
                "overshoot on these rows, and the weights would be worse than those of afl; leave step out"
            )
        return move

    @property
    def _directing(self) -> Self:
        """The learner as steps are solved: a gradient's noise asks for a larger ridge than a cross-correlation's."""
        return self if self.solver is None else replace(self, solver=replace(self.solver, factor=DAMPING))

    def exact_total(self, model: LinearModel, total: Any, survivors: int) -> Statistics | tuple[Statistics, ...] | None:
        """The first sum's statistics, as AFL says; of a gradient the rows; None behind a row map."""
        if model.solution is not None:
            return None if self.row_map is not None else Statistics.of_counts(int(total["count"]))
        return AFL.exact_total(self, model, total, survivors)

    def _complete(self, model: LinearModel) -> FloatMatrix:
        """The weights of the last round.

        Raises:
            NotReadyError: a round is still to come.
        """
        weights, n_rounds = model.weights, _rounds(model).n_rounds
        if n_rounds < self.n_rounds:
            raise NotReadyError(
                f"this model has {n_rounds} of {self.n_rounds} rounds behind it: it still needs totals of its clients' "
                "gradients"
            )
        return weights

    def context_bytes(self, model: LinearModel) -> bytes:
        """The configuration, what was received of the centre and W, and an empty part for each round behind them.

        So a run's bytes grow from sum to sum, by which a site's journal knows that it goes on.
        """
        return canonical_context(self, *model.received, *(b"",) * _rounds(model).n_rounds)

    # --- what the price of noise depends on -----------------------------------------------------------------

    def bounded(self, terms: RowTerms) -> Self:
        """The learner behind AFL's row map.

        Raises:
            SpecificationError: terms for clients.
        """
        if terms.client_rows is not None:
            raise SpecificationError("gradients are bounded by record only, not by client; take records")
        return AFL.bounded(self, terms)

    def bounded_sums(self, unit: Unit, adjacency: Adjacency) -> tuple[BoundedSum, ...]:
        """AFL's sums, then the gradients, in order, to who prices their noise.

        Raises:
            SpecificationError: no row map, or a unit other than records.
        """
        *before, first = AFL.bounded_sums(self, unit, adjacency)
        assert self.row_map is not None
        share, (size, _) = Fraction(self.first_share), (own for _, own, _ in self.gradient_spec.segments)
        of_rows = self.spec.feature_format.fraction_bits
        levels = np.append(np.ones(size, dtype=np.uint8), np.uint8(0))
        feature_norm = self.row_map.last.limit
        gradients = (
            BoundedSum(
                label=f"gradient {number}",
                sensitivity=gradient_sensitivity(feature_norm, self._ball.limit, adjacency),
                levels=levels,
                fraction_bits=of_rows,
            )
            for number in range(1, self.n_rounds + 1)
        )
        return (*before, replace(first, weight=share / (1 - share) * self.n_rounds), *gradients)

    def sums_made(self, model: LinearModel) -> int:
        """Return the number of ``bounded_sums`` that the model is the result of."""
        return AFL.sums_made(self, model) + _rounds(model).n_rounds

    def with_noise(self, gram_sigmas: Sequence[float], shares: int | None) -> Self:
        """The learner whose solver knows the noise of the first sum's Gram, which every step is solved with."""
        return AFL.with_noise(self, gram_sigmas[: -self.n_rounds], shares)

    # --- models as arrays -----------------------------------------------------------------------------------

    def take_apart(self, model: LinearModel) -> Parts:
        """AFL's arrays and the number of rounds; the first sum's total stays with who saw it."""
        parts = AFL.take_apart(self, model)
        parts.arrays["rounds"] = np.array([_rounds(model).n_rounds], dtype=np.int64)
        return parts

    def put_together(self, parts: Parts) -> LogisticModel:
        """The model of these parts."""
        n_rounds = int(parts.integers("rounds", (1,))[0])
        if not 0 <= n_rounds <= self.n_rounds:
            raise ModelFileError(f"{parts.source}: it has {n_rounds} rounds behind it, outside 0 to {self.n_rounds}")
        linear = AFL.put_together(self, parts)
        return LogisticModel(solution=linear.solution, centre=linear.centre, n_rounds=n_rounds)


def _rounds(model: LinearModel) -> LogisticModel:
    assert isinstance(model, LogisticModel)  # its own, and no other learner's
    return model


def exact_inner(weights: FloatMatrix, units: NDArray[np.int64]) -> float:
    """Return the sum of products of float64 numbers and integers, exact and rounded once.

    Each factor is split into halves of at most 27 bits, whose products are exact in float64; ``math.fsum`` rounds their
    sum once. Products below 2^-1022 or beyond 2^1023 are out of reach of weights and of integers below 2^63.
    """
    if not units.size:
        return 0.0
    mantissas, exponents = np.frexp(weights.ravel())
    high = np.ldexp(np.trunc(np.ldexp(mantissas, 26)), -26)
    parts = [np.ldexp(high, exponents), np.ldexp(mantissas - high, exponents)]
    whole = units.ravel()
    lower = whole & ((1 << 26) - 1)
    middle = (whole >> 26) & ((1 << 26) - 1)
    digits = [lower, middle << 26, (whole >> 52) << 52]
    products = (part * digit.astype(np.float64) for part in parts for digit in digits)
    return math.fsum(chain.from_iterable(product.tolist() for product in products))


def _product(rows: FixedRows, residuals: FloatMatrix) -> NDArray[np.int64]:
    """X^T R in exact units: blocks so short that no float64 sum of theirs is rounded, added in int64."""
    n_columns = rows.values.shape[1]
    total = np.zeros((n_columns, residuals.shape[1]), dtype=np.int64)
    units = np.ldexp(rows.values, rows.fraction_bits)
    goals = np.ldexp(residuals, RESIDUALS.fraction_bits)
    largest = int(np.abs(units).max(initial=1.0)) << RESIDUALS.fraction_bits
    step = max(1, min(4096, (1 << EXACT_BITS) // largest))
    for start in range(0, len(units), step):
        place = slice(start, start + step)
        left, right = units[place].T, goals[place]
        product = (left @ right).astype(np.int64)
        check_product(left.astype(np.int64), right.astype(np.int64), product)
        total += product
    return total
