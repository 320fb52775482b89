"""FedHiP: a personal model for each client from its own rows and one sum of everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from analytic.afl import AFL, LinearModel, dequantised, in_digits
from analytic.errors import NotReadyError, SpecificationError
from analytic.learner import ClientRows, canonical_context
from analytic.model_arrays import ModelFileError, Parts
from analytic.noisy_solve import NoisySolver
from analytic.sensitivity import Adjacency, BoundedSum, Unit
from analytic.shape_repr import shape_html, shape_repr
from analytic.statistics import LABELS, Statistics

LARGEST_ALPHA = 2.0**52
"""Above it float64 no longer sees the total beside alpha times a client's own rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FedHiPModel(LinearModel):
    """The global weights and the total that clients receive to personalise with; before the sum both are None.

    Args:
        survivors: how many clients it is of, which says how much noise is in it where there is some.
    """

    total: Statistics | None = None
    survivors: int = 1

    __repr__ = shape_repr
    _repr_html_ = shape_html


@dataclass(frozen=True, slots=True, kw_only=True)
class FedHiP(AFL):
    """Heterogeneity-invariant personalised federated learning (FedHiP, eq. 4-14).

    The sum is AFL's: each client uploads G_k + beta I and H_k (eq. 6, 9). All clients receive the total, never each
    other's part, and each solves for its own weights (eq. 14, Theorem 2)

        P_k = (G + alpha G_k + beta I)^-1 (H + alpha H_k),

    which minimise |Y - X P|^2 + alpha |Y_k - X_k P|^2 + beta |P|^2. Everything they depend on is an exact integer,
    so P_k has the same bits however the *other* clients' rows are dealt, and in whatever order its own stand.

    The paper uses one beta for two things: ``ridge`` is its penalty, ``ri_gamma`` what each client adds before the
    upload, so that the paper's sum carries K beta I; set both to beta for the paper's setting. What clients added
    is taken off exactly.

    A client that holds the total can subtract its own part: of two clients, each learns the other's statistics, and
    of K, any K - 1 that collude the last one's. Use large cohorts, or noise.

    Behind a row map the total is AFL's noisy one, and a personal model that stays with its client costs nothing more:
    beside the release it is made of the client's own rows, mapped alike. One that leaves the client tells of them what
    no noise covers. Clients that get the total know their own shares of its noise: noise without a colluder is refused.

    Args:
        n_features: d, columns of a row.
        n_targets: c: classes, or columns of real targets.
        feature_format: fixed-point format of the features.
        target_format: ``LABELS`` for class labels, else the format of real targets.
        max_rows: largest number of rows that all clients together may hold.
        max_clients: largest cohort; sizes the room that the RI process needs.
        ridge: the paper's beta of eq. 1, in the features' own units squared.
        ri_gamma: the paper's beta of eq. 6, what each client adds to its Gram's diagonal.
        clip: clip features into the format instead of refusing them.
        row_map, solver: the private form's, as in ``AFL``.
        columns: public scales of columns, and whether there is an intercept; the paper has none.
    """

    name: ClassVar[str] = "fedhip"

    def bounded_sums(self, unit: Unit, adjacency: Adjacency) -> tuple[BoundedSum, ...]:
        """AFL's sums, of which clients are given the last one's total."""
        *before, last = AFL.bounded_sums(self, unit, adjacency)
        return (*before, replace(last, given=True))

    def init(self) -> FedHiPModel:
        """The model before its sum."""
        return FedHiPModel()

    def update(self, model: LinearModel, total: Any, survivors: int) -> FedHiPModel:
        """Aggregation stage (eq. 9-12): the pooled statistics and the global weights; before them, the centre."""
        if self.mean_spec is not None and model.centre is None:
            return FedHiPModel(centre=self.mean_spec.mean(total))
        pooled = self.without_ri(total, survivors)
        solution = self.solve(pooled, survivors)
        return FedHiPModel(solution=solution, centre=model.centre, total=pooled, survivors=survivors)

    def personalise(self, model: FedHiPModel, rows: ClientRows, alphas: Sequence[float]) -> list[LinearModel]:
        """Personalisation stage at one client (eq. 13-14): its weights P_k for each alpha.

        The bits of P_k are a function of the total, of the client's own exact statistics and of that alpha alone.
        Alpha 0 gives the global weights. Each alpha is a certified solve of its own, so its bits are no machine's.

        Args:
            model: the complete global model.
            rows: the client's own rows, in the form of the sum; they may be none.
            alphas: weights of the client's own rows beside everybody's, each 0 to 2^52.

        Raises:
            NotReadyError: the total has not arrived, or was left out of the file.
            SpecificationError: an alpha that is negative, too large or not finite.
        """
        own = self.own_statistics(rows) if self.row_map is None else self.client_statistics(model, rows)
        return self.personal_models(model, own, alphas)

    def personal_models(self, model: LinearModel, own: Statistics, alphas: Sequence[float]) -> list[LinearModel]:
        """Return personal models from a client's own statistics.

        Raises:
            NotReadyError, SpecificationError: see ``personalise``.
        """
        if not isinstance(model, FedHiPModel) or model.total is None or model.solution is None:
            raise NotReadyError(
                "personalising needs the total of all clients' statistics, and this model has none: its sum is still "
                "to come, or it was saved without (with_totals=True keeps it in a client's file)"
            )
        for alpha in alphas:
            if not 0 <= alpha <= LARGEST_ALPHA:
                raise SpecificationError(f"an alpha must be a number from 0 to 2^52, not {alpha}")
        if self.solver is not None:
            return [self._noisy_personal(self.solver, model, model.total, own, alpha) for alpha in alphas]
        formats = self.spec.feature_format, self.target_format
        gram, cross = in_digits(model.total, *formats)
        own_gram, own_cross = in_digits(own, *formats)

        def personal(alpha: float) -> LinearModel:
            parts = gram + own_gram.times(alpha), cross + own_cross.times(alpha)
            return LinearModel(solution=self.solve_digits(*parts), centre=model.centre)

        return [personal(float(alpha)) for alpha in alphas]

    def _noisy_personal(
        self, solver: NoisySolver, model: FedHiPModel, total: Statistics, own: Statistics, alpha: float
    ) -> LinearModel:
        """Return the personal model from a noisy total: its noise is the total's, whatever rows are added."""
        row_format = self.spec.feature_format
        parts = zip(*(dequantised(one, row_format, self.target_format) for one in (total, own)), strict=True)
        gram, cross = (everybody + alpha * mine for everybody, mine in parts)
        solution = solver.solve(
            gram, cross, survivors=model.survivors, fraction_bits=row_format.fraction_bits, ridge=self.ridge
        )
        return LinearModel(solution=solution, centre=model.centre)

    def context_bytes(self, model: LinearModel) -> bytes:
        """The configuration, the centre where there is one, and the total once clients have received it."""
        total = model.total if isinstance(model, FedHiPModel) else None
        received = [] if model.centre is None else [model.centre.tobytes()]
        return canonical_context(self, *received, *([] if total is None else [total.to_bytes()]))

    def take_apart(self, model: LinearModel) -> Parts:
        """Return the weights, and the total where the model has it."""
        parts = AFL.take_apart(self, model)
        if isinstance(model, FedHiPModel) and model.total is not None:
            count = np.array([model.total.count], dtype=np.int64)
            parts.arrays |= {"total.gram": model.total.gram, "total.cross": model.total.cross, "total.count": count}
            for name in ("target_sum", "target_gram"):
                if (part := getattr(model.total, name)) is not None:
                    parts.arrays[f"total.{name}"] = part
            if self.row_map is not None:
                parts.arrays["total.survivors"] = np.array([model.survivors], dtype=np.int64)
        return parts

    def put_together(self, parts: Parts) -> FedHiPModel:
        """Return the model of these parts; without a total it is the weights alone."""
        linear, total = AFL.put_together(self, parts), None
        if "total.gram" in parts:
            d, c = self.spec.n_features, self.n_targets
            count = int(parts.integers("total.count", (1,))[0])
            if count < 0:
                raise ModelFileError(f"{parts.source}: a total is of no rows or of more, and {count} came")
            total = Statistics(
                gram=parts.integers("total.gram", (d, d)),
                cross=parts.integers("total.cross", (d, c)),
                count=count,
                target_sum=parts.integers("total.target_sum", (c,)) if self.spec.target_sums else None,
                target_gram=parts.integers("total.target_gram", (c, c))
                if self.spec.target_sums and self.target_format != LABELS
                else None,
            )
        survivors = 1
        if total is not None and self.row_map is not None:  # as many shares of noise are in it
            survivors = int(parts.integers("total.survivors", (1,))[0])
            if survivors < 1:
                raise ModelFileError(f"{parts.source}: a total is of at least one client, and {survivors} came")
        return FedHiPModel(solution=linear.solution, centre=linear.centre, total=total, survivors=survivors)
