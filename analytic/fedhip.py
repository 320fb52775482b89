"""FedHiP: a personal model for each client from its own rows and one sum of everybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from analytic.afl import AFL, LinearModel, in_digits
from analytic.errors import NotReadyError, SpecificationError
from analytic.learner import ClientRows, canonical_context
from analytic.model_arrays import Parts
from analytic.statistics import LABELS, Statistics

LARGEST_ALPHA = 2.0**52
"""Above it float64 no longer sees the total beside alpha times a client's own rows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FedHiPModel(LinearModel):
    """The global weights and the exact total that clients receive to personalise with; before the sum both are None."""

    total: Statistics | None = None


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

    Args:
        n_features: d.
        n_targets: c: classes, or columns of real targets.
        feature_format: fixed-point format of the features.
        target_format: ``LABELS`` for class labels, else the format of real targets.
        max_rows: largest number of rows that all clients together may hold.
        max_clients: largest cohort; sizes the room that the RI process needs.
        ridge: the paper's beta of eq. 1, in the features' own units squared.
        ri_gamma: the paper's beta of eq. 6, what each client adds to its Gram's diagonal.
        clip: clip features into the format instead of refusing them.
        row_map: must be None: clients personalise with the exact total of their rows as they are.
        solver: must be None too.
        columns: public scales of columns, and whether there is an intercept; the paper has none.
    """

    def __post_init__(self) -> None:
        if self.row_map is not None or self.solver is not None:
            raise SpecificationError(
                "fedhip has no private form: its clients receive the exact total and personalise with it; take afl"
            )
        AFL.__post_init__(self)

    @property
    def name(self) -> str:
        """The learner's name on the command line and in reports."""
        return "fedhip"

    def init(self) -> FedHiPModel:
        """The model before its sum."""
        return FedHiPModel()

    def update(self, model: LinearModel, total: Statistics, survivors: int) -> FedHiPModel:
        """Aggregation stage (eq. 9-12): the pooled statistics, exact, and the global weights."""
        pooled = self.without_ri(total, survivors)
        return FedHiPModel(solution=self.solve(pooled), total=pooled)

    def personalise(self, model: FedHiPModel, rows: ClientRows, alphas: Sequence[float]) -> list[LinearModel]:
        """Personalisation stage at one client (eq. 13-14): its weights P_k for each alpha.

        The bits of P_k are a function of the total, of the client's own exact statistics and of that alpha alone.
        Alpha 0 gives the global weights. Each alpha is a certified solve of its own, so its bits are no machine's.

        Args:
            model: the complete global model.
            rows: the client's own rows, in the form of the sum; they may be none.
            alphas: weights of the client's own rows beside everybody's, each 0 to 2^52.

        Raises:
            NotReadyError: the total has not arrived yet.
            SpecificationError: an alpha that is negative, too large or not finite.
        """
        return self.personal_models(model, self.own_statistics(rows), alphas)

    def personal_models(self, model: LinearModel, own: Statistics, alphas: Sequence[float]) -> list[LinearModel]:
        """The same from a client's own statistics.

        Raises:
            NotReadyError, SpecificationError: see ``personalise``.
        """
        if not isinstance(model, FedHiPModel) or model.total is None or model.solution is None:
            raise NotReadyError("personalising needs the total of all clients' statistics, which has not arrived yet")
        for alpha in alphas:
            if not 0 <= alpha <= LARGEST_ALPHA:
                raise SpecificationError(f"an alpha must be a number from 0 to 2^52, not {alpha}")
        gram, cross = in_digits(model.total, self.feature_format, self.target_format)
        own_gram, own_cross = in_digits(own, self.feature_format, self.target_format)

        def personal(alpha: float) -> LinearModel:
            parts = gram + own_gram.times(alpha), cross + own_cross.times(alpha)
            return LinearModel(solution=self.solve_digits(*parts))

        return [personal(float(alpha)) for alpha in alphas]

    def context_bytes(self, model: LinearModel) -> bytes:
        """The configuration, and the total once clients have received it."""
        total = model.total if isinstance(model, FedHiPModel) else None
        return canonical_context(self, *([] if total is None else [total.to_bytes()]))

    def take_apart(self, model: LinearModel) -> Parts:
        """Return the weights, and the total where the model has it."""
        parts = AFL.take_apart(self, model)
        if isinstance(model, FedHiPModel) and model.total is not None:
            count = np.array([model.total.count], dtype=np.int64)
            parts.arrays |= {"total.gram": model.total.gram, "total.cross": model.total.cross, "total.count": count}
            for name in ("target_sum", "target_gram"):
                if (part := getattr(model.total, name)) is not None:
                    parts.arrays[f"total.{name}"] = part
        return parts

    def put_together(self, parts: Parts) -> FedHiPModel:
        """Return the model of these parts; without a total it is the weights alone."""
        solution, total = AFL.put_together(self, parts).solution, None
        if "total.gram" in parts:
            d, c = self.spec.n_features, self.n_targets
            total = Statistics(
                gram=parts.integers("total.gram", (d, d)),
                cross=parts.integers("total.cross", (d, c)),
                count=int(parts.integers("total.count", (1,))[0]),
                target_sum=parts.integers("total.target_sum", (c,)) if self.target_sums else None,
                target_gram=parts.integers("total.target_gram", (c, c))
                if self.target_sums and self.target_format != LABELS
                else None,
            )
        return FedHiPModel(solution=solution, total=total)
