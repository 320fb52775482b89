"""DeepAFL for noisy totals: each layer's rows in a public ball, so that all 2T + 1 sums can be paid for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import dequantised
from analytic.errors import NotReadyError, SpecificationError
from analytic.features import (
    PROJECTION_VERSION,
    Projection,
    activation_named,
    add_mapped_rows,
    check_projection,
    map_rows,
    random_projection,
)
from analytic.learner import ClientRows, canonical_context
from analytic.noisy_solve import noise_ridge, solve_noisy
from analytic.private_afl import CLIPPED_ROWS, NO_NOISE, GramNoise
from analytic.row_format import FloatMatrix, RowFormat
from analytic.sensitivity import RecordSensitivity, RowClip, check_labels_only, without_count
from analytic.solve import one_blas_thread, sandwiched_least_squares
from analytic.statistics import Statistics, StatisticsSpec, one_hot


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateDeepModel:
    """W_0, Omega_1, W_1, ... as far as they are known."""

    classifiers: tuple[FloatMatrix, ...] = ()
    transforms: tuple[FloatMatrix, ...] = ()

    @property
    def awaits_block(self) -> bool:
        """Whether W_t is known and Omega_{t+1} is not."""
        return len(self.classifiers) > len(self.transforms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateDeepAFL:
    """Deep analytic learning whose rows have norm 1 in every layer (DeepAFL, ICLR 2026, made bounded).

    With n(x) = x / |x|: Phi_0 = n(sigma(X A)), F_t = n(sigma(Phi_t B_t)), Phi_{t+1} = n(Phi_t + F_t Omega_{t+1}). The
    residuals R_t = Y - Phi_t W_t have no bound of their own, since noise moves W_t: rows longer than
    ``residual_bound`` are clipped. Without these three bounds no noise would cover a layer's sum.

    Args:
        n_given: columns of the rows as they are given.
        n_targets: c, classes.
        max_rows: largest number of rows that all clients together may hold.
        n_layers: T; 2T + 1 sums.
        d_phi: columns of Phi_t.
        d_f: columns of F_t.
        fraction_bits: lattice of every row.
        residual_bound: largest norm of a residual row in a sum.
        classifier_noise: what the Grams of Phi_t hold.
        block_noise: what the Grams of F_t hold.
        ridge: the penalty of each W_t beside the noise's.
        gamma: the penalty of each Omega_t beside the noise's.
        activation: as in DeepAFL.
        projection: law of A and B_t.
        seed: public seed of A and B_t.
    """

    n_given: int
    n_targets: int
    max_rows: int
    n_layers: int = 1
    d_phi: int = 64
    d_f: int = 64
    fraction_bits: int = 16
    residual_bound: float = 2.0
    classifier_noise: GramNoise = NO_NOISE
    block_noise: GramNoise = NO_NOISE
    ridge: float = 1e-3
    gamma: float = 1e-3
    activation: str = "gelu"
    projection: Projection = "nin"
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.n_given, self.n_targets, self.d_phi, self.d_f) < 1 or self.n_layers < 0:
            raise SpecificationError(
                "a deep learner needs at least one feature, target, d_phi and d_f, and n_layers >= 0"
            )
        if not (math.isfinite(self.ridge) and math.isfinite(self.gamma) and min(self.ridge, self.gamma) >= 0):
            raise SpecificationError(f"penalties are finite and >= 0, not {self.ridge} and {self.gamma}")
        check_projection(self.seed, self.projection)
        activation_named(self.activation)
        _ = self.classifier_spec, self.block_spec

    @property
    def name(self) -> str:
        """The learner's name in reports."""
        return "private-deepafl"

    @property
    def row_clip(self) -> RowClip:
        """The ball of Phi_t and F_t: norm 1."""
        return RowClip(
            bound=1.0, row_format=RowFormat(integer_bits=1, fraction_bits=self.fraction_bits), normalise=True
        )

    @property
    def residual_clip(self) -> RowClip:
        """The ball of R_t."""
        integer_bits = max(1, math.frexp(self.residual_bound)[1])
        return RowClip(
            bound=self.residual_bound,
            row_format=RowFormat(integer_bits=integer_bits, fraction_bits=self.fraction_bits),
        )

    def sensitivities(self, **of_a_record: Any) -> tuple[RecordSensitivity, RecordSensitivity]:
        """Of a sum with labels and of one with residuals, in the units of their lattices.

        Args:
            of_a_record: ``adjacency``; signs are mixed here, so nothing is gained from ``nonnegative``.
        """
        norm = self.row_clip.limit
        return (
            RecordSensitivity(feature_norm=norm, **of_a_record),
            RecordSensitivity(feature_norm=norm, target_norm=self.residual_clip.limit, **of_a_record),
        )

    @property
    def n_sums(self) -> int:
        """2T + 1: how many releases share the budget."""
        return 2 * self.n_layers + 1

    @property
    def classifier_spec(self) -> StatisticsSpec:
        """The sum of Phi_t with the labels."""
        return StatisticsSpec(
            n_features=self.d_phi,
            n_targets=self.n_targets,
            feature_format=self.row_clip.row_format,
            max_rows=self.max_rows,
        )

    @property
    def block_spec(self) -> StatisticsSpec:
        """The sum of F_t with the residuals."""
        return StatisticsSpec(
            n_features=self.d_f,
            n_targets=self.n_targets,
            feature_format=self.row_clip.row_format,
            target_format=self.residual_clip.row_format,
            max_rows=self.max_rows,
        )

    def init(self) -> PrivateDeepModel:
        """The model before any sum."""
        return PrivateDeepModel()

    def next_sum(self, model: PrivateDeepModel) -> StatisticsSpec | None:
        """The sum of Phi_t with Y, then of F_t with R_t, until W_T is known."""
        if not model.awaits_block:
            return self.classifier_spec
        return None if len(model.transforms) == self.n_layers else self.block_spec

    def client_statistics(self, model: PrivateDeepModel, rows: ClientRows) -> Statistics:
        """One client's statistics of the layer that is next, every row inside its ball, without the count.

        Raises:
            InvalidRowsError: targets that are no class labels of shape (n,), which the noise does not cover.
        """
        check_labels_only(rows.targets)
        spec = self.next_sum(model)
        assert spec is not None
        features = self._features(model, rows.features)
        if not model.awaits_block:
            own = Statistics.from_rows(spec, self.row_clip.apply(features).rows, rows.targets)
            return without_count(own)
        residuals = one_hot(rows.targets, self.n_targets) if len(rows) else np.zeros((0, self.n_targets))
        add_mapped_rows(residuals, features, -model.classifiers[-1])
        clipped = self.residual_clip.apply(residuals)
        rows.memory[CLIPPED_ROWS] = rows.memory.get(CLIPPED_ROWS, 0) + clipped.n_clipped
        hidden = self._hidden(features, len(model.transforms))
        return without_count(Statistics.from_rows(spec, self.row_clip.apply(hidden).rows, clipped.rows))

    def update(self, model: PrivateDeepModel, total: Statistics, survivors: int) -> PrivateDeepModel:
        """The model with the next W_t or Omega_{t+1}."""
        spec = self.next_sum(model)
        assert spec is not None
        gram, cross = dequantised(total, spec.feature_format, spec.target_format)
        unit = -2 * self.fraction_bits
        if model.awaits_block:
            sigma = math.ldexp(self.block_noise.realised(survivors), unit)
            transform = self._transform(gram, cross, model.classifiers[-1], sigma)
            return PrivateDeepModel(classifiers=model.classifiers, transforms=(*model.transforms, transform))
        sigma = math.ldexp(self.classifier_noise.realised(survivors), unit)
        weights = solve_noisy(gram, cross, sigma_gram=sigma, ridge=self.ridge).weights
        return PrivateDeepModel(classifiers=(*model.classifiers, weights), transforms=model.transforms)

    def decision_function(self, model: PrivateDeepModel, features: NDArray[Any]) -> FloatMatrix:
        """Phi_T W_T, shape (n, c).

        Raises:
            NotReadyError: some total has not arrived yet.
        """
        if self.next_sum(model) is not None:
            raise NotReadyError(f"this model still needs totals: it has {len(model.classifiers)} classifiers")
        return map_rows(self._features(model, features), model.classifiers[-1])

    def weights_bytes(self, model: PrivateDeepModel) -> bytes:
        """All that the model learned."""
        return b"".join(matrix.tobytes() for matrix in (*model.classifiers, *model.transforms))

    def context_bytes(self, model: PrivateDeepModel) -> bytes:
        """The configuration, the projections' version and all that was received."""
        received = [matrix.tobytes() for matrix in (*model.classifiers, *model.transforms)]
        return canonical_context(self, PROJECTION_VERSION.encode(), *received)

    def _features(self, model: PrivateDeepModel, features: NDArray[Any]) -> FloatMatrix:
        """Phi_t for all transforms that are known."""
        matrix = random_projection(self.seed, 0, "A", (self.n_given, self.d_phi), self.projection)
        rows = _normalised(map_rows(features, matrix, activation_named(self.activation)))
        for layer, transform in enumerate(model.transforms):
            add_mapped_rows(rows, self._hidden(rows, layer), transform)
            rows = _normalised(rows)
        return rows

    def _hidden(self, features: FloatMatrix, layer: int) -> FloatMatrix:
        matrix = random_projection(self.seed, layer, "B", (self.d_phi, self.d_f), self.projection)
        return _normalised(map_rows(features, matrix, activation_named(self.activation)))

    def _transform(self, gram: FloatMatrix, cross: FloatMatrix, weights: FloatMatrix, sigma: float) -> FloatMatrix:
        """Omega from a noisy Gram: negative eigenvalues cut, the noise's operator norm added to what is left."""
        with one_blas_thread():
            values, vectors = np.linalg.eigh((gram + gram.T) / 2.0)
            lifted = np.maximum(values, 0.0) + noise_ridge(sigma, len(gram))
            cleaned = (vectors * lifted) @ vectors.T
        return sandwiched_least_squares((cleaned + cleaned.T) / 2.0, cross, weights, gamma=self.gamma).transform


def noise_drowns(*, n_rows: int, row_norm: float, sigma_gram: float, n_features: int) -> bool:
    """Whether the noise's operator norm exceeds the *mean* eigenvalue n B^2 / d of the exact Gram.

    A public rule, so it costs nothing: beyond it most directions of a layer's Gram are noise, and a deeper model
    (each further layer divides the budget once more) is expected to do worse than T = 0.
    """
    return noise_ridge(sigma_gram, n_features) > n_rows * row_norm**2 / n_features


def _normalised(rows: FloatMatrix) -> FloatMatrix:
    """Rows of norm 1; zero rows stay."""
    norms = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    normalised: FloatMatrix = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return normalised
