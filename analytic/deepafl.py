"""DeepAFL: a deep residual network of random features whose every layer is a closed form, from 2T + 1 sums.

Phi_0 = sigma(X A); W_t is the ridge classifier of Phi_t; F_t = sigma(Phi_t B_t); Omega_{t+1} is the transform that
best lowers the residual R_t = Y - Phi_t W_t through W_t; Phi_{t+1} = Phi_t + F_t Omega_{t+1} (Algorithms 1 and 2).
The sums are, in turn, (Phi_t^T Phi_t, Phi_t^T Y) and (F_t^T F_t, F_t^T R_t).

Which integer bits a sum's rows get is public and proven, never guessed from rows. With G = sum_i q_i q_i^T known to
everybody and q_i the quantised rows, (q_i . b)^2 <= b^T G b for every row i that is in the sum. So the total of
one sum bounds the entries of the next sum's rows: pre-activations through B_t, scores through W_t, updates through
Omega_{t+1}; activations only shrink. Phi_0, which no sum precedes, is bounded by ``feature_bound`` and the column
norms of A. A row of a client that missed the earlier sum is not covered by that proof (formats always leave room for
``ROOM`` times the root mean square); a row that does leave a format raises an error before anything is sent.

Noisy totals prove nothing about rows. With a layer map every layer has rows of norm 1 instead, n(x) = x / |x|: Phi_0 =
n(sigma(X A)), F_t = n(sigma(Phi_t B_t)), Phi_{t+1} = n(Phi_t + F_t Omega_{t+1}); residuals longer than its bound are
clipped. Without these three bounds no noise would cover a layer's sum. Solvers that know the noise do the rest.
Normalising is float64 arithmetic, then rounded to fixed point, so the bits of a private layer are one machine's own.

Rows without a layer map are fixed-point numbers and every map of them is exact or correctly rounded
(``analytic.integer_maps``): X is truncated toward zero to ``WORKING_BITS`` at ``feature_bound``; Phi_t and F_t are
multiples of one public unit, ``WORKING_BITS`` at the bound of Phi_0; Omega_t and W_t are rounded to public units. A
format of a sum then truncates such rows. So a row is the same in every batch and on every machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from analytic.afl import dequantised, in_digits
from analytic.errors import (
    InvalidRowsError,
    NotReadyError,
    RowsOutsideFormatError,
    SpecificationError,
)
from analytic.features import (
    PROJECTION_VERSION,
    Projection,
    check_projection,
    random_projection,
)
from analytic.integer_maps import (
    WORKING_BITS,
    FixedMatrix,
    FixedRows,
    FloatVector,
    RowBounds,
    SummedRows,
    activation_named,
    add_mapped_rows,
    map_rows,
    rounded_transform,
    scores,
    split_classifier,
)
from analytic.layers import Activated, Layer, Linear, Residual
from analytic.learner import OPTIONAL, ClientRows, canonical_context, refuse_weights
from analytic.model_arrays import ModelFileError, Parts
from analytic.noisy_solve import NoisySolver
from analytic.random_map import RandomMap
from analytic.row_format import FloatMatrix, RowFormat
from analytic.row_map import (
    CLIPPED_ROWS,
    LayerMap,
    RowTerms,
    check_labels_only,
    normalised,
    refuse_row_map,
    without_count,
)
from analytic.sensitivity import Adjacency, BoundedSum, RecordSensitivity, Unit, noise_levels
from analytic.shape_repr import shape_html, shape_repr
from analytic.solve.digits import exact_product
from analytic.solve.minimum_norm import ResidualBlock, Solution, sandwiched_least_squares, solve_ridge
from analytic.statistics import LABELS, Statistics, StatisticsSpec, one_hot
from analytic.whole_numbers import INT64_MAX, settle_whole_numbers

MAX_LAYERS = 1000
MAPS_VERSION = 2
"""Version of the public maps, which weights belong to: 1 drew ``analytic/projection/v1`` and multiplied in float64."""


ABLATIONS = ("no-skip", "no-projection", "no-transform")
"""The paper's (1), (2) and (4), section E.3.6: Phi_{t+1} = F_t Omega_{t+1}; every B_t the identity; Phi_{t+1} = Phi_t +
F_t, from T + 1 sums. Its (3) is the activation ``none`` with an ``input_activation``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DeepModel:
    """The layers that are known so far: W_0, Omega_1, W_1, ..., at most up to W_T.

    Args:
        classifiers: W_t of shape (d_Phi, c), each with its rank and conditioning.
        blocks: Omega_{t+1}, one for each layer that has been passed.
        bounds: public bounds of the next sum's rows; none are needed behind a layer map.
    """

    bounds: RowBounds
    classifiers: tuple[Solution, ...] = ()
    blocks: tuple[ResidualBlock, ...] = ()

    _repr_html_ = shape_html

    @property
    def layer(self) -> int:
        """t, the layer that the next sum is about."""
        return len(self.blocks)

    @property
    def awaits_block(self) -> bool:
        """Whether W_t is known and Omega_{t+1} is not."""
        return len(self.classifiers) > len(self.blocks)


@dataclass(slots=True, eq=False)
class _Kept:
    """A client's own features between sums, and what they were computed from."""

    source: NDArray[Any]
    key: bytes
    layer: int
    features: FixedRows
    first: FixedRows | None = None
    hidden: FixedRows | None = None

    __repr__ = shape_repr

    def serves(self, rows: ClientRows, keys: list[bytes]) -> bool:
        """Whether these are the features of ``rows`` at one of the layers whose histories are ``keys``."""
        return self.source is rows.features and self.layer < len(keys) and self.key == keys[self.layer]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeepAFL:
    """Deep analytic federated learning (DeepAFL, ICLR 2026): T residual blocks by sandwiched least squares.

    Rows beyond ``feature_bound`` are no error before they leave the format of a sum: products take more bits then.
    Prediction (Algorithm 2) runs the same maps on the same fixed-point rows, before a sum's format truncates them.

    Args:
        n_features: d_X, columns of the input.
        n_targets: c: classes, or columns of real targets.
        feature_bound: public bound on |x| over all input entries; it sizes the format of Phi_0.
        target_format: ``LABELS`` for class labels, else the format of real targets.
        max_rows: largest number of rows that all clients together may hold.
        n_layers: T, residual blocks, 1 to ``MAX_LAYERS``; 2T + 1 sums.
        d_phi: columns of Phi_t.
        d_f: columns of F_t.
        ridge: lambda, the penalty of each W_t.
        gamma: the penalty of each Omega_t.
        activation: gelu (exact), relu, leaky_relu, tanh, hardswish, softshrink or none.
        projection: law and scale of A and B_t, see ``analytic.features``.
        seed: public seed of A and B_t.
        fed_by_first: feed every block from Phi_0 instead of Phi_t (eq. 89).
        row_bits: bits of each fixed-point entry of Phi_t, F_t and R_t, the sign aside; 0 becomes the most, at most 22,
            with which sums of ``max_rows`` are exact.
        headroom_bits: integer bits beyond the proven bound, for clients that miss sums and for noisy totals.
        clip: clip rows into their formats instead of refusing them.
        row_map: the norms of every layer's rows, and their lattice, in place of proven formats; for class labels. The
            count of rows is then withheld. None takes rows as they are.
        solver: what knows the noise of the sums with Phi_t; None takes their totals for exact.
        block_solver: the same of the sums with F_t.
        input_activation: of Phi_0 where it is another one than the blocks'; the authors' code has tanh there.
        input_variance: what the variance of A's law is multiplied by; None for 1.
        block_variance: the same of B_t.
        ablation: what is left out, one of ``ABLATIONS``; None for nothing.

    Raises:
        SpecificationError: parameters outside their range, or sums that cannot be exact.
    """

    name: ClassVar[str] = "deepafl"

    n_features: int
    n_targets: int
    feature_bound: float
    target_format: RowFormat = LABELS
    max_rows: int
    n_layers: int = 5
    d_phi: int = 1024
    d_f: int = 1024
    ridge: float = 1.0
    gamma: float = 0.01
    activation: str = "gelu"
    projection: Projection = "nin"
    seed: int = 0
    fed_by_first: bool = False
    row_bits: int = 0
    headroom_bits: int = 0
    clip: bool = False
    row_map: LayerMap | None = field(default=None, metadata=OPTIONAL)
    solver: NoisySolver | None = field(default=None, metadata=OPTIONAL)
    block_solver: NoisySolver | None = field(default=None, metadata=OPTIONAL)
    input_activation: str | None = field(default=None, metadata=OPTIONAL)
    input_variance: float | None = field(default=None, metadata=OPTIONAL)
    block_variance: float | None = field(default=None, metadata=OPTIONAL)
    ablation: str | None = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_features", "n_targets", "max_rows", "n_layers", "d_phi", "d_f", "seed")
        settle_whole_numbers(self, "row_bits", "headroom_bits")
        sizes = (self.n_features, self.n_targets, self.d_phi, self.d_f, self.n_layers)
        if min(sizes) < 1 or self.headroom_bits < 0:
            raise SpecificationError(
                "DeepAFL needs at least one feature, target, d_phi, d_f and layer, and headroom_bits >= 0, not "
                f"{', '.join(map(str, sizes))} and {self.headroom_bits}; without layers it is AFL of random features"
            )
        if self.n_layers > MAX_LAYERS:
            raise SpecificationError(f"DeepAFL has at most {MAX_LAYERS} layers, not {self.n_layers}")
        for name in ("ridge", "gamma"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise SpecificationError(f"{name} must be a finite number >= 0, not {getattr(self, name)}")
        _ = self._first_map(fraction_bits=0), activation_named(self.activation)
        check_projection(self.seed, self.projection, inputs=self.d_phi, variance=_or_one(self.block_variance))
        if self.ablation is not None and self.ablation not in ABLATIONS:
            raise SpecificationError(f"an ablation is one of {', '.join(ABLATIONS)}, not {self.ablation!r}")
        if self.ablation is not None and self.fed_by_first:
            raise SpecificationError("an ablation is of the chain of layers: leave fed_by_first, or the ablation, out")
        if self.ablation in ("no-transform", "no-projection") and self.d_f != self.d_phi:
            raise SpecificationError(
                f"with the ablation {self.ablation} F_t has the columns of Phi_t: d_f must be d_phi, not {self.d_f} "
                f"and {self.d_phi}"
            )
        if self.row_map is not None and self.target_format != LABELS:
            raise SpecificationError(
                f"a layer map is for class labels, and these targets are in {self.target_format}; leave the map out"
            )
        if self.row_map is None and (self.solver or self.block_solver):
            raise SpecificationError("a solver that knows noise needs a row map: no noise covers rows without a bound")
        if self.row_bits == 0:
            object.__setattr__(self, "row_bits", most_row_bits(self.max_rows, self.target_format))
        # what makes a sum exact depends on row_bits, and not on how a bound splits them
        _ = self._spec(self.d_phi, 0.0, self.target_format), self._block_spec(0.0, 0.0)

    @property
    def first_map(self) -> RandomMap:
        """X to Phi_0, with what leaves ``WORKING_BITS`` for its a-priori bound (before a layer map)."""
        coarse = self._first_map(fraction_bits=0)
        return replace(coarse, fraction_bits=WORKING_BITS - max(0, math.frexp(float(coarse.reach.max()))[1]))

    def _first_map(self, fraction_bits: int) -> RandomMap:
        return RandomMap(
            n_features=self.n_features,
            n_columns=self.d_phi,
            feature_bound=self.feature_bound,
            fraction_bits=fraction_bits,
            activation=self.input_activation or self.activation,
            projection=self.projection,
            variance=_or_one(self.input_variance),
            seed=self.seed,
        )

    @property
    def unit(self) -> float:
        """Unit of Phi_t and F_t, to which they are rounded before a sum's format truncates them."""
        return math.ldexp(1.0, -self._fraction_bits)

    def init(self) -> DeepModel:
        """The model before any sum: |x . a_j| <= feature_bound |a_j|_1 is all that is known of Phi_0.

        Raises:
            SpecificationError: that bound needs more than ``row_bits``.
        """
        if self.row_map is not None:
            return DeepModel(bounds=RowBounds(features=np.zeros(self.d_phi)))
        first = self.first_map
        model = DeepModel(bounds=RowBounds(features=self._activated(first.reach, first.activation)))
        _ = self.next_sum(model)
        return model

    def next_sum(self, model: DeepModel) -> StatisticsSpec | None:
        """The sum of Phi_t with Y, then of F_t with R_t, until W_T is known."""
        if model.awaits_block:
            if model.layer == self.n_layers:
                return None
            hidden = 0.0 if self.row_map is not None else self._hidden_bound(model)
            return self._block_spec(hidden, model.bounds.residuals)
        return self._spec(self.d_phi, float(model.bounds.features.max()), self.target_format)

    def client_statistics(self, model: DeepModel, rows: ClientRows) -> Statistics:
        """One client's G_t and H_t (eq. 11), or Pi_t and Upsilon_t (eq. 15).

        It keeps the features of its rows in ``rows.memory``, so all sums together cost O(T).

        Raises:
            InvalidRowsError: shapes disagree, labels out of range, too many rows; behind a layer map, targets that are
                no class labels of shape (n,), which noise does not cover.
            RowsOutsideFormatError: NaN, infinity or rows beyond the public format; nothing is sent then.
        """
        spec = self._required_sum(model)
        refuse_weights(rows)
        if self.row_map is not None:
            check_labels_only(rows.targets)
        kept = self._kept(model, rows)
        if not model.awaits_block:
            return self._summed(spec, f"features or targets of layer {model.layer}", kept.features, rows.targets)
        residuals = self._real_targets(rows.targets) - scores(kept.features, model.classifiers[-1].weights)
        if self.row_map is not None:
            clipped = self.row_map.residuals.apply(residuals)
            residuals = clipped.rows
            rows.memory[CLIPPED_ROWS] = rows.memory.get(CLIPPED_ROWS, 0) + clipped.n_clipped
        hidden = self._hidden(kept, model.layer)
        return self._summed(spec, f"hidden features or residuals of layer {model.layer}", hidden, residuals)

    def update(self, model: DeepModel, total: Statistics, survivors: int) -> DeepModel:
        """The model with the next W_t (eq. 13) or Omega_{t+1} (eq. 17), and the bounds that the total proves.

        A total stands for the rows of its own survivors: a later sum may have others (appendix M).
        """
        spec = self._required_sum(model)
        rows = SummedRows(gram=total.gram, count=total.count, fraction_bits=spec.feature_format.fraction_bits)
        solver = self.block_solver if model.awaits_block else self.solver
        parts = (total, spec.feature_format, spec.target_format)
        if self.row_map is None or solver is None:
            exact = in_digits(*parts, inner=max(self.d_phi, self.n_targets))
            if not model.awaits_block:
                return self._untransformed(self._with_classifier(model, rows, solve_ridge(*exact, ridge=self.ridge)))
            weights = model.classifiers[-1].weights
            return self._with_block(model, rows, sandwiched_least_squares(*exact, weights, gamma=self.gamma))
        gram, cross, bits = *dequantised(*parts), self.row_map.fraction_bits
        if model.awaits_block:
            gram = solver.cleaned(gram, survivors=survivors, fraction_bits=bits)
            block = sandwiched_least_squares(gram, cross, model.classifiers[-1].weights, gamma=self.gamma)
            return self._with_block(model, rows, replace(block, certified=False))  # the Gram is this machine's
        noisy = solver.solve(gram, cross, survivors=survivors, fraction_bits=bits, ridge=self.ridge)
        return self._untransformed(self._with_classifier(model, rows, noisy))

    def widened(self, bits: int) -> Self:
        """The learner of columns that reach up to 2^bits times its bound."""
        return replace(self, feature_bound=self.feature_bound * 2**bits)

    def over(self, denominator: int) -> Self:
        """The learner for sums that hold everything so many times, a power of two: its penalties are so much larger."""
        return replace(self, ridge=self.ridge * denominator, gamma=self.gamma * denominator)

    def exact_total(self, model: DeepModel, total: Any, survivors: int) -> Statistics | None:
        """The statistics of the layer's rows, which public maps make of raw ones; None behind a layer map."""
        found: Statistics = total
        return found if self.row_map is None else None

    def layer_scores(self, model: DeepModel, features: NDArray[Any]) -> Iterator[FloatMatrix]:
        """Phi_t W_t of every known layer t = 0, 1, ... in one pass, each of shape (n, c)."""
        kept = self._start(np.asarray(features))
        for layer, classifier in enumerate(model.classifiers):
            if layer:
                self._advance(kept, model.blocks[layer - 1])
            yield scores(kept.features, classifier.weights)

    def decision_function(self, model: DeepModel, features: NDArray[Any]) -> FloatMatrix:
        """Phi_T W_T, shape (n, c) (Algorithm 2), of the integer rows: the same bits on every machine.

        W_T enters in two parts of 20 bits each. For up to 2 048 columns a score is within 2^-40 max |W_T| sum |phi| of
        ``exact_scores``, and three roundings.

        Raises:
            RowsOutsideFormatError: NaN, infinity, or rows some thousand times beyond ``feature_bound``.
            NotReadyError: some total has not arrived yet.
        """
        self._check_complete(model)
        *_, scores = self.layer_scores(model, features)
        return scores

    def exact_scores(self, model: DeepModel, features: NDArray[Any]) -> FloatMatrix:
        """Phi_T W_T of the same integer rows and of all of W_T, each the float64 nearest to the exact score.

        Raises:
            SpecificationError: a layer map, which normalises rows in float64: they are one machine's own.
            RowsOutsideFormatError, NotReadyError: as ``decision_function``.
        """
        refuse_row_map(self)
        self._check_complete(model)
        kept = self._start(np.asarray(features))
        for block in model.blocks:
            self._advance(kept, block)
        return exact_product(kept.features.values, model.classifiers[-1].weights)

    def _check_complete(self, model: DeepModel) -> None:
        if self.next_sum(model) is not None:
            raise NotReadyError(
                f"this model has {len(model.classifiers)} of {self.n_layers + 1} classifiers and {len(model.blocks)} "
                f"of {self.n_layers} transforms: it still needs totals of its clients' statistics"
            )

    def layers(self, model: DeepModel) -> tuple[Layer, ...]:
        """Return Phi_T W_T as layers (Algorithm 2), the projections drawn again from the public seed.

        Matrices are the public fixed-point ones; layers round no rows in between.

        Raises:
            SpecificationError: a layer map, which normalises between layers.
        """
        refuse_row_map(self)
        activated = Activated(self.activation)
        blocks: list[Layer] = []
        for layer, block in enumerate(model.blocks):
            own = self._block_projection(layer)
            branch = (Linear(own.values, own.biases), activated, Linear(_transform(block).values))
            skipped = self.ablation == "no-skip"
            blocks += branch if skipped else [Residual(branch=branch, of_first=self.fed_by_first)]
        high, low = split_classifier(model.classifiers[-1].weights)
        return *self.first_map.layers(), *blocks, Linear(high.values + low.values)

    def weights_bytes(self, model: DeepModel) -> bytes:
        """W_0, Omega_1, W_1, ..., as far as they are known."""
        parts = [model.classifiers[0].weights.tobytes()] if model.classifiers else []
        for layer, block in enumerate(model.blocks, start=1):
            parts.append(block.transform.tobytes())
            parts += [classifier.weights.tobytes() for classifier in model.classifiers[layer : layer + 1]]
        return b"".join(parts)

    def context_bytes(self, model: DeepModel) -> bytes:
        """The configuration with the projections' version, then digests of all that was received: see the interface."""
        weights = [hashlib.sha256(classifier.weights.tobytes()).digest() for classifier in model.classifiers]
        transforms = [block.digest for block in model.blocks]
        bounds = hashlib.sha256(model.bounds.to_bytes()).digest()
        return canonical_context(self, PROJECTION_VERSION.encode(), bounds, *weights, *transforms)

    # --- what the price of noise depends on -----------------------------------------------------------------

    def bounded(self, terms: RowTerms) -> Self:
        """The learner behind a layer map on the lattice of these terms; one that has a map keeps it.

        Raises:
            SpecificationError: terms for clients.
        """
        if terms.client_rows is not None:
            raise SpecificationError("a deep learner's layers are bounded by record only, not by client; take records")
        return self if self.row_map is not None else replace(self, row_map=LayerMap(fraction_bits=terms.fraction_bits))

    def unbounded(self) -> Self:
        """The learner without a layer map and what knows its noise."""
        return replace(self, row_map=None, solver=None, block_solver=None)

    def bounded_sums(self, unit: Unit, adjacency: Adjacency) -> tuple[BoundedSum, ...]:
        """Return the bounds of each of the 2T + 1 sums, in order, for its noise. Signs are mixed in every layer.

        Raises:
            SpecificationError: no layer map, or a unit other than records.
        """
        if self.row_map is None or unit != "record":
            raise SpecificationError(
                f"noise for a {unit} needs a layer map, which bounds records, and {self.name} "
                f"{'has none' if self.row_map is None else 'bounds no clients'}: take the map that bounded() makes"
            )
        norm, residual_norm = self.row_map.features.limit, self.row_map.residuals.limit
        kinds = (
            (noise_levels(self._spec(self.d_phi, 0.0, self.target_format)), 1),
            (noise_levels(self._block_spec(0.0, 0.0)), residual_norm),
        )
        return tuple(
            BoundedSum(
                label=f"sum {number}",
                sensitivity=RecordSensitivity(
                    squared_features=norm**2, squared_targets=target_norm**2, adjacency=adjacency
                ),
                levels=levels,
                fraction_bits=self.row_map.fraction_bits,
            )
            for number in range(self.n_sums)
            for levels, target_norm in [kinds[0 if self.ablation == "no-transform" else number % 2]]
        )

    def sums_made(self, model: DeepModel) -> int:
        """Return the number of ``bounded_sums`` that the model is the result of."""
        return len(model.classifiers) + (0 if self.ablation == "no-transform" else len(model.blocks))

    @property
    def n_sums(self) -> int:
        """Number of sums that a model needs."""
        return self.n_layers + 1 if self.ablation == "no-transform" else 2 * self.n_layers + 1

    def with_noise(self, gram_sigmas: Sequence[float], shares: int | None) -> Self:
        """The learner with solvers that know the noise.

        Args:
            gram_sigmas: for each sum, the standard deviation on its Gram's diagonal in lattice units; sums of a kind
                have the same.
            shares: how many shares make them; None when the server adds the noise.
        """
        solvers = [NoisySolver(sigma=sigma, shares=shares) for sigma in gram_sigmas[:2]]
        return replace(self, solver=solvers[0], block_solver=solvers[-1])

    # --- models as arrays -----------------------------------------------------------------------------------

    def take_apart(self, model: DeepModel) -> Parts:
        """Return the layers that are known, and the bounds of the rows of sums to come."""
        parts = Parts(
            {
                "bounds.features": model.bounds.features,
                "bounds.hidden": np.array(model.bounds.hidden, dtype=np.float64),
                "bounds.residuals": np.array([model.bounds.residuals], dtype=np.float64),
                "maps.version": np.array([MAPS_VERSION], dtype=np.int64),
            }
        )
        for layer, solution in enumerate(model.classifiers):
            parts.add_solution(f"classifier.{layer}", solution)
        for layer, block in enumerate(model.blocks):
            parts.arrays[f"transform.{layer}"] = block.transform
            parts.conditioning[f"transform.{layer}"] = {
                "rank": int(block.rank),
                "reciprocal_condition": float(block.reciprocal_condition),
                "certified": bool(block.certified),
            }
        return parts

    def put_together(self, parts: Parts) -> DeepModel:
        """Return the model of these parts. They come in turn: a gap is a missing array and not a smaller model."""
        version = int(parts.integers("maps.version", (1,))[0]) if "maps.version" in parts else 1
        if version != MAPS_VERSION:
            raise ModelFileError(
                f"{parts.source}: its model was trained with version {version} of the public maps, and this program "
                f"has version {MAPS_VERSION}, with which its weights mean nothing: train it again"
            )
        n_classifiers = max((t + 1 for t in range(self.n_layers + 1) if f"classifier.{t}" in parts), default=0)
        n_blocks = max((t + 1 for t in range(self.n_layers) if f"transform.{t}" in parts), default=0)
        n_classifiers, n_blocks = max(n_classifiers, n_blocks), max(n_blocks, n_classifiers - 1)
        n_hidden = int(n_blocks < min(n_classifiers, self.n_layers)) if self.row_map is None else 0
        if self.fed_by_first and self.row_map is None:
            n_hidden = self.n_layers * min(n_classifiers, 1)
        bounds = RowBounds(
            features=parts.floats("bounds.features", (self.d_phi,)),
            hidden=tuple(float(bound) for bound in parts.floats("bounds.hidden", (n_hidden,))),
            residuals=float(parts.floats("bounds.residuals", (1,))[0]),
        )
        classifiers = (parts.solution(f"classifier.{t}", (self.d_phi, self.n_targets)) for t in range(n_classifiers))
        blocks = (
            ResidualBlock(
                transform=parts.floats(f"transform.{t}", (self.d_f, self.d_phi)),
                **parts.report(f"transform.{t}", "rank", "reciprocal_condition", "certified"),
            )
            for t in range(n_blocks)
        )
        return DeepModel(bounds=bounds, classifiers=tuple(classifiers), blocks=tuple(blocks))

    # --- public shapes and bounds ---------------------------------------------------------------------------

    def _required_sum(self, model: DeepModel) -> StatisticsSpec:
        spec = self.next_sum(model)
        if spec is None:
            raise SpecificationError(f"this model of {self.n_layers} layers is complete; it needs no further sum")
        return spec

    def _spec(self, n_columns: int, bound: float, target_format: RowFormat) -> StatisticsSpec:
        return StatisticsSpec(
            n_features=n_columns,
            n_targets=self.n_targets,
            feature_format=self._format(bound) if self.row_map is None else self.row_map.features.row_format,
            target_format=target_format,
            max_rows=self.max_rows,
            target_sums=self.row_map is None and target_format == LABELS,
        )

    def _block_spec(self, hidden: float, residuals: float) -> StatisticsSpec:
        residual_format = self._format(residuals) if self.row_map is None else self.row_map.residuals.row_format
        return self._spec(self.d_f, hidden, residual_format)

    def _format(self, bound: float) -> RowFormat:
        integer_bits = max(0, int(np.frexp(bound)[1])) + self.headroom_bits
        if not math.isfinite(bound) or integer_bits > self.row_bits:
            raise SpecificationError(
                f"rows that may reach {bound:g} need {integer_bits} integer bits ({self.headroom_bits} of them "
                f"headroom), and row_bits allows {self.row_bits}: scale the features or targets down, use a projection "
                "with a smaller scale or a larger ridge and gamma, or allow more bits"
            )
        return RowFormat(integer_bits=integer_bits, fraction_bits=self.row_bits - integer_bits)

    def _activated(self, bounds: FloatVector, activation: str) -> FloatVector:
        """Bounds of sigma(z), rounded to the unit of Phi_t and F_t, where ``bounds`` are those of |z|.

        Rounding keeps order, so what a row's float64 sums round to stays below what its bounds' sums round to.
        """
        smaller: FloatVector = np.minimum(bounds + self.unit, activation_named(activation).ceiling)
        return smaller

    @property
    def _fraction_bits(self) -> int:
        """Fraction bits of Phi_t and F_t."""
        return self.first_map.fraction_bits

    def _hidden_bound(self, model: DeepModel) -> float:
        return model.bounds.hidden[model.layer if self.fed_by_first else 0]

    # --- what the server does with a total ------------------------------------------------------------------

    def _with_classifier(self, model: DeepModel, rows: SummedRows, solution: Solution) -> DeepModel:
        if self.row_map is not None:
            return replace(model, classifiers=(*model.classifiers, solution))
        largest_target = math.ldexp(1.0, self.target_format.integer_bits)
        largest_scores = sum(float(rows.largest_products(part).max()) for part in split_classifier(solution.weights))
        bounds = RowBounds(
            features=rows.largest_entries(),
            hidden=self._hidden_bounds(model, rows),
            residuals=largest_target + largest_scores,
        )
        return DeepModel(bounds=bounds, classifiers=(*model.classifiers, solution), blocks=model.blocks)

    def _hidden_bounds(self, model: DeepModel, rows: SummedRows) -> tuple[float, ...]:
        """Bounds of the hidden features that these rows feed: the next block's, or every block's from Phi_0."""
        if not self.fed_by_first:
            layers = range(model.layer, min(model.layer + 1, self.n_layers))
        elif model.layer == 0:
            layers = range(self.n_layers)
        else:
            return model.bounds.hidden
        projections = (self._block_projection(layer) for layer in layers)
        return tuple(
            float(self._activated(rows.largest_products(matrix), self.activation).max()) for matrix in projections
        )

    def _with_block(self, model: DeepModel, rows: SummedRows, block: ResidualBlock) -> DeepModel:
        if self.row_map is not None:
            return replace(model, blocks=(*model.blocks, block))
        before = np.zeros(self.d_phi) if self.ablation == "no-skip" else model.bounds.features
        bounds = RowBounds(
            features=before + (rows.largest_products(_transform(block)) + self.unit),
            hidden=model.bounds.hidden if self.fed_by_first else (),
        )
        return DeepModel(bounds=bounds, classifiers=model.classifiers, blocks=(*model.blocks, block))

    def _untransformed(self, model: DeepModel) -> DeepModel:
        """Return the model past its next block, Phi_{t+1} = Phi_t + F_t, if transforms are left out; else the model."""
        if self.ablation != "no-transform" or model.layer == self.n_layers:
            return model
        same = ResidualBlock(transform=np.eye(self.d_phi), rank=self.d_phi, reciprocal_condition=1.0, certified=True)
        bounds = model.bounds
        if self.row_map is None:
            hidden = bounds.hidden if self.fed_by_first else ()
            bounds = RowBounds(features=bounds.features + (self._hidden_bound(model) + self.unit), hidden=hidden)
        return DeepModel(bounds=bounds, classifiers=model.classifiers, blocks=(*model.blocks, same))

    # --- what a client computes and keeps -------------------------------------------------------------------

    def _block_projection(self, layer: int) -> FixedMatrix:
        shape = self.d_phi, self.d_f
        if self.ablation == "no-projection":
            return FixedMatrix(values=np.eye(self.d_phi), fraction_bits=0)
        return random_projection(self.seed, layer, "B", shape, self.projection, _or_one(self.block_variance))

    def _feature_key(self) -> bytes:
        """Digest of all that Phi_0 depends on but the rows."""
        settings = (self.first_map, self.d_f, self.activation, self.block_variance, self.fed_by_first, self.ablation)
        return hashlib.sha256(repr((*settings, self.row_map is not None)).encode()).digest()

    def _start(self, features: NDArray[Any]) -> _Kept:
        own = self._in_ball(self.first_map.apply(features))
        first = replace(own, values=own.values.copy()) if self.fed_by_first else None
        return _Kept(source=features, key=self._feature_key(), layer=0, features=own, first=first)

    def _kept(self, model: DeepModel, rows: ClientRows) -> _Kept:
        """The features of layer ``model.layer``, from the latest kept layer that has the same history."""
        keys = [self._feature_key()]
        for block in model.blocks:
            keys.append(_next_key(keys[-1], block))
        # taken out while it changes, so that an interrupted update is never kept
        kept: _Kept | None = rows.memory.pop(self.name, None)
        if kept is None or not kept.serves(rows, keys):
            kept = self._start(rows.features)
        for block in model.blocks[kept.layer :]:
            self._advance(kept, block)
        rows.memory[self.name] = kept
        return kept

    def _hidden(self, kept: _Kept, layer: int) -> FixedRows:
        """F_t = sigma(Phi_t B_t), or sigma(Phi_0 B_t) (eq. 89)."""
        if kept.hidden is None:
            source = kept.features if kept.first is None else kept.first
            activation = activation_named(self.activation)
            mapped = map_rows(source, self._block_projection(layer), activation, self._fraction_bits)
            kept.hidden = self._in_ball(mapped)
        return kept.hidden

    def _in_ball(self, features: FixedRows) -> FixedRows:
        """Features of norm 1 behind a layer map, to the nearest unit; else as they are."""
        if self.row_map is None:
            return features
        bits = WORKING_BITS - 1
        values = np.ldexp(np.rint(np.ldexp(normalised(features.values), bits)), -bits)
        return FixedRows(values=values, fraction_bits=bits)

    def _advance(self, kept: _Kept, block: ResidualBlock) -> None:
        """Phi_{t+1} = Phi_t + F_t Omega_{t+1} (eq. 19), in place."""
        hidden = self._hidden(kept, kept.layer)
        if self.ablation == "no-skip":
            kept.features.values.fill(0.0)
        add_mapped_rows(kept.features, hidden, _transform(block))
        kept.features = self._in_ball(kept.features)
        kept.key, kept.layer, kept.hidden = _next_key(kept.key, block), kept.layer + 1, None

    def _real_targets(self, targets: NDArray[Any]) -> FloatMatrix:
        if targets.ndim == 1:
            return one_hot(targets if len(targets) else targets.astype(np.intp), self.n_targets)
        if targets.shape[1:] != (self.n_targets,):
            raise InvalidRowsError(f"targets must have shape (n, {self.n_targets}), not {targets.shape}")
        units = self.target_format.quantise(targets, clip=self.clip)  # what the first sum took
        return self.target_format.dequantise(units)

    def _summed(self, spec: StatisticsSpec, what: str, features: FixedRows, targets: NDArray[Any]) -> Statistics:
        if self.row_map is not None:
            return without_count(Statistics.from_rows(spec, self.row_map.features.apply(features.values).rows, targets))
        try:
            return Statistics.from_rows(spec, features.values, targets, clip=self.clip)
        except RowsOutsideFormatError as error:
            raise RowsOutsideFormatError(
                f"{what}: {error}. The formats follow from feature_bound ({self.feature_bound:g}) and earlier totals: "
                "all clients need a larger feature_bound for layer 0, or more headroom_bits",
                n_rows=error.n_rows,
                largest=error.largest,
            ) from error


def _or_one(variance: float | None) -> float:
    return 1.0 if variance is None else variance


def most_row_bits(max_rows: int, target_format: RowFormat) -> int:
    """Return the most bits of an entry, at most 22, of which all products of so many rows have room in int64."""
    widest = (max(2**bits - 1, target_format.magnitude) * (2**bits - 1) for bits in range(22, 1, -1))
    fitting = (bits for bits, product in zip(range(22, 1, -1), widest, strict=True) if max_rows * product <= INT64_MAX)
    return next(fitting, 1)


@lru_cache(maxsize=2)  # in a simulation every client asks for the same one
def _transform(block: ResidualBlock) -> FixedMatrix:
    """Omega_t in public fixed point."""
    return rounded_transform(block.transform)


def _next_key(key: bytes, block: ResidualBlock) -> bytes:
    return hashlib.sha256(key + block.digest).digest()
