"""A learner composed of slots: weights of rows, agreed columns, a chosen penalty, and the closed form itself.

There is one order in which these make sense, and it is a record's: rows are weighed, their columns are scaled, the
closed form's penalty is chosen by cross-validation. Each slot that is there asks for its own sums::

    class counts       weights, where they are balanced
    exponents, moments scaler: every site then knows the same map of columns
    folds (, errors)   selection, which makes the model of all rows from them
    the head's sums    where no penalty is chosen

Every sum after the class counts is one of weighted rows. A slot knows the closed form (the *head*) and no other slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.errors import NotReadyError, SpecificationError
from analytic.layers import Layer, Linear
from analytic.learner import OPTIONAL, AnalyticLearner, ClientRows, SumSpec, canonical_context, refuse_weights
from analytic.model_arrays import Parts
from analytic.parts import together
from analytic.row_format import ColumnMap, FloatMatrix, RowFormat
from analytic.scaling import Columns, Scaler, is_linear
from analytic.selection import Choice, RidgeCV
from analytic.statistics import LABELS, IntVector, Statistics
from analytic.validation_path import Path
from analytic.weights import Weights, weighted_sum, worth

SLOTS = ("weighted", "agreed", "chosen")
"""Prefix of a learner's name for each slot, in this order: weights, scaler, selection."""

MAPPED = "mapped rows"
"""Key in a client's own memory of its rows in the agreed columns."""


def has_agreed_columns(name: str) -> bool:
    """Test whether the columns of the learner of this name are agreed on through a sum, as those of ``agreed-afl``."""
    return "agreed" in name.split("-")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PipelineModel:
    """A model, as far as the sums so far determine it, slot by slot.

    Args:
        class_weights: of each class, in units of one over the denominator; empty where classes weigh the same.
        columns: what is agreed of columns; None before, or without a scaler.
        choice: of a penalty; None without a selection.
        head: the closed form's own model; None while a sum before it is still to come.
        denominator: what class weights are counted in.
    """

    class_weights: tuple[int, ...] = ()
    columns: Columns | None = None
    choice: Choice | None = None
    head: Any = None
    denominator: int = 1

    @property
    def own(self) -> Any:
        """The closed form's own model.

        Raises:
            NotReadyError: a sum before it is still to come.
        """
        if self.head is None:
            raise NotReadyError(
                "this model still needs a sum to choose its penalty by: that of the folds, or that of the errors"
                if self.choice is not None
                else "this model still needs the sum that its columns are agreed by"
            )
        return self.head

    @property
    def weights(self) -> FloatMatrix:
        """W of rows as the closed form takes them, shape (d, c)."""
        weights: FloatMatrix = self.own.weights
        return weights

    @property
    def path(self) -> Path:
        """Path of the penalty's selection, in the units in which a ridge is stated.

        Raises:
            AttributeError: none is to be chosen.
            NotReadyError: a sum is still to come.
        """
        if self.choice is None:
            raise AttributeError("no penalty was chosen: this pipeline has no selection")
        _ = self.own
        if self.choice.path is None:
            raise NotReadyError("this model does not say how its penalty was chosen")
        return self.choice.path.of_one(self.denominator)

    @property
    def ridge(self) -> float:
        """The penalty that was chosen, likewise."""
        return self.path.choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A closed form whose rows weigh, whose columns are agreed on, or whose penalty is chosen.

    Args:
        head: the closed form: AFL, FedHiP, DeepAFL, SAFLe, or any other ``AnalyticLearner``.
        scaler: how columns become alike; None takes rows as they are.
        selection: how the penalty of AFL or FedHiP is chosen; None takes the stated one.
        weights: what rows weigh; None counts each once.

    Raises:
        SpecificationError: no slot (the head is a learner by itself), a pipeline in a pipeline, or a head that a slot
            does not go with.

    Example:
        >>> from analytic import AFL, ClientRows, agreed_format, fit_pooled
        >>> head = AFL(n_features=2, n_targets=2, feature_format=agreed_format(100), max_rows=100, ridge=0.1)
        >>> learner = Pipeline(head=head, scaler=Scaler())
        >>> rows = ClientRows(np.array([[1e6, 0.0], [-1e6, 0.1], [2e6, 0.0]]), np.array([0, 1, 0]))
        >>> learner.decision_function(fit_pooled(learner, rows), rows.features).argmax(axis=1).tolist()
        [0, 1, 0]
    """

    head: Any
    scaler: Scaler | None = field(default=None, metadata=OPTIONAL)
    selection: RidgeCV | None = field(default=None, metadata=OPTIONAL)
    weights: Weights | None = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        if isinstance(self.head, Pipeline):
            raise SpecificationError("the head of a pipeline is a closed form: state all slots in one pipeline")
        kinds = {"scaler": Scaler, "selection": RidgeCV, "weights": Weights}
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind | None):
                raise SpecificationError(f"{name} must be a {kind.__name__}, not {getattr(self, name)!r}")
        slots = [slot for slot in (self.scaler, self.selection, self.weights) if slot is not None]
        if not slots:
            raise SpecificationError(f"a pipeline needs a scaler, a selection or weights; take {self.head.name} itself")
        if missing := [name for name in ("n_targets", "target_format", "max_rows") if not hasattr(self.head, name)]:
            raise SpecificationError(f"the head of a pipeline needs {', '.join(missing)}, which {self.head.name} lacks")
        for slot in slots:
            slot.check(self.head)

    @property
    def name(self) -> str:
        """The learner's name in reports, policies and files: its slots before the head's name."""
        slots = zip(SLOTS, (self.weights, self.scaler, self.selection), strict=True)
        return "-".join([*(name for name, slot in slots if slot is not None), self.head.name])

    @property
    def n_features(self) -> int:
        """D, columns of a row."""
        return int(self.head.n_features)

    @property
    def n_targets(self) -> int:
        """C, columns of the targets."""
        return int(self.head.n_targets)

    @property
    def target_format(self) -> RowFormat:
        """The format of targets, or ``LABELS``."""
        found: RowFormat = self.head.target_format
        return found

    @property
    def max_rows(self) -> int:
        """Largest number of rows, or sum of their weights, of all clients together."""
        return int(self.head.max_rows)

    # --- the dialogue ---------------------------------------------------------------------------------------

    def init(self) -> PipelineModel:
        """Class weights are known before any sum where they are stated."""
        return self._begun(self._empty())

    def _empty(self) -> PipelineModel:
        weights, choice = self.weights or Weights(), None if self.selection is None else Choice()
        return PipelineModel(class_weights=weights.stated, choice=choice, denominator=weights.denominator)

    def _begun(self, model: PipelineModel) -> PipelineModel:
        """The model whose head begins, where no sum comes before its own."""
        if self.selection is not None or self._scaler_sum(model) is not None:
            return model
        return replace(model, head=self.fitted_head(model).init())

    def _awaits_classes(self, model: PipelineModel) -> bool:
        return self.weights is not None and self.weights.is_balanced and not model.class_weights

    def _scaler_sum(self, model: PipelineModel) -> SumSpec[Any] | None:
        return None if self.scaler is None else self.scaler.next_sum(model.columns, self.head)

    def fitted_head(self, model: PipelineModel) -> Any:
        """The closed form as sums so far have settled it: its formats, and its penalty in the units of the sum."""
        head = self.head if self.weights is None else self.head.over(self.weights.denominator)
        if self.scaler is not None and model.columns is not None:
            head = self.scaler.fitted(model.columns, head)
        path = None if model.choice is None else model.choice.path
        return head if path is None else replace(head, ridge=path.choice)

    def _chosen(self, model: PipelineModel) -> tuple[RidgeCV, Choice]:
        """The selection, of penalties in the units of the sum, and what it knows so far."""
        assert self.selection is not None
        assert model.choice is not None
        selection = self.selection if self.weights is None else self.selection.over(self.weights.denominator)
        return selection, model.choice

    def next_sum(self, model: PipelineModel) -> SumSpec[Any] | None:
        """The first sum that a slot still needs, of weighted rows where they weigh; None where all is known."""
        if self.weights is None:
            return self._own_sum(model)
        if self._awaits_classes(model):
            return self.weights.counts_spec(self.head)
        own = self._own_sum(model)
        return None if own is None else self.weights.spec(own, model.class_weights, self.head)

    def _own_sum(self, model: PipelineModel) -> SumSpec[Any] | None:
        """The sum without its weights."""
        if (spec := self._scaler_sum(model)) is not None:
            return spec
        head = self.fitted_head(model)
        if model.head is None:
            selection, choice = self._chosen(model)
            return selection.next_sum(choice, head)
        found: SumSpec[Any] | None = head.next_sum(model.head)
        return found

    def client_statistics(self, model: PipelineModel, rows: ClientRows) -> Any:
        """One client's contribution to the sum that is next.

        Raises:
            InvalidRowsError: weights that are too large or add up to too much, rows with weights where none weighs, and
                what the slot or the head refuses.
        """
        if self.weights is None:
            refuse_weights(rows)
            return self._contribution(model, rows)
        if self._awaits_classes(model):
            return self.weights.class_counts(rows, self.head)
        weights = self.weights_of(model, rows)
        own: Any = self._own_sum(model)
        total = weighted_sum(rows, weights, own, lambda part: self._contribution(model, part), self.max_rows)
        return self.weights.squares_of(rows, weights, self.head), total

    def weights_of(self, model: PipelineModel, rows: ClientRows) -> IntVector:
        """Return the weight of each row, shape (n,), in units of one over the denominator.

        Raises:
            InvalidRowsError: a weight above the largest one, or rows without a class where classes weigh.
            NotReadyError: the class counts are still to come.
        """
        return (self.weights or Weights()).of(rows, model.class_weights, self.n_targets)

    def _contribution(self, model: PipelineModel, rows: ClientRows) -> Any:
        """The contribution of rows that count once each."""
        if self.scaler is not None and self._scaler_sum(model) is not None:
            return self.scaler.client_statistics(model.columns, rows, self.head)
        head, mapped = self.fitted_head(model), self.mapped(model, rows)
        if model.head is None:
            selection, choice = self._chosen(model)
            return selection.client_statistics(choice, mapped, head)
        return head.client_statistics(model.head, mapped)

    def mapped(self, model: PipelineModel, rows: ClientRows) -> ClientRows:
        """A client's rows as the head takes them; what it keeps of them stays with the client's own.

        A learner of several sums gets the same object in each, so that it finds what it kept of these rows.
        """
        if self.scaler is None or model.columns is None:
            return rows
        own = self.scaler.map(model.columns, self.head)
        known, source, kept = rows.memory.get(MAPPED, (None, None, None))
        if kept is not None and known == own and source is rows.features:
            return kept  # type: ignore[no-any-return]
        found = ClientRows(own.features(rows.features), own.targets(rows.targets), memory=rows.memory)
        if self.selection is not None or not getattr(self.head, "one_sum", False):
            rows.memory[MAPPED] = own, rows.features, found
        return found

    def update(self, model: PipelineModel, total: Any, survivors: int) -> PipelineModel:
        """Return the model after a total, which goes to the slot that asked for the sum.

        Raises:
            SpecificationError: counts whose balanced weights add up to more than ``max_rows``.
            InvalidRowsError: a column that cannot be standardised, and what the head refuses.
        """
        if self.weights is not None:
            if self._awaits_classes(model):
                found = self.weights.balanced(total["classes"].tolist(), self.max_rows)
                return replace(model, class_weights=found)
            _, total = total
        if self.scaler is not None and self._scaler_sum(model) is not None:
            return self._begun(replace(model, columns=self.scaler.update(model.columns, total, self.head)))
        head = self.fitted_head(model)
        if model.head is not None:
            return replace(model, head=head.update(model.head, total, survivors))
        selection, choice = self._chosen(model)
        choice = selection.update(choice, total, head)
        model = replace(model, choice=choice)
        if choice.path is None:
            return model
        chosen = self.fitted_head(model)
        return replace(model, head=chosen.update(chosen.init(), together(choice.folds), 1))

    def exact_total(
        self, model: PipelineModel, total: Any, survivors: int
    ) -> Statistics | tuple[Statistics, ...] | IntVector | None:
        """Return what release gates judge of this sum: the head's total, a slot's counts, or each fold's statistics.

        Of weighted rows statistics have as their counts the rows that the weights are worth (``analytic.weights``).
        """
        if self.weights is None:
            return self._shown(model, total, survivors)
        if self._awaits_classes(model):
            return Statistics.of_counts(int(total["count"]), total["classes"])
        squares, own = total
        found = self._shown(model, own, survivors)
        if found is None or isinstance(found, np.ndarray):
            return found
        parts = worth((found,) if isinstance(found, Statistics) else found, squares)
        return parts[0] if isinstance(found, Statistics) else parts

    def _shown(
        self, model: PipelineModel, total: Any, survivors: int
    ) -> Statistics | tuple[Statistics, ...] | IntVector | None:
        if self.scaler is not None and self._scaler_sum(model) is not None:
            return self.scaler.exact_total(model.columns, total)
        if model.head is None:
            selection, choice = self._chosen(model)
            return selection.exact_total(choice, total)
        found: Statistics | tuple[Statistics, ...] | IntVector | None = self.fitted_head(model).exact_total(
            model.head, total, survivors
        )
        return found

    def context_bytes(self, model: PipelineModel) -> bytes:
        """The configuration and what a client received: class weights, columns, candidates, then what the head says."""
        received = [] if self.weights is None else [np.array(model.class_weights, dtype="<i8").tobytes()]
        received += [] if model.columns is None else model.columns.received
        received += [] if model.choice is None else model.choice.received
        head = [] if model.head is None else [self.fitted_head(model).context_bytes(model.head)]
        return canonical_context(self, *received, *head)

    # --- what a site, or a user of the model, asks ------------------------------------------------------------

    def coarse_columns(self, model: PipelineModel, rows: ClientRows) -> tuple[int, ...]:
        """Name columns most of whose values, or whose deviation, keep less than 8 bits.

        Where columns are agreed on the values are those of all clients, by the first total, and the deviations those of
        a client's own rows.
        """
        if self.scaler is not None:
            if model.columns is None:
                return ()
            few = np.flatnonzero(model.columns.coarse).tolist()
            return tuple(sorted({*few, *self.scaler.unresolved(model.columns, self.head, rows.features)}))
        found = getattr(self.head, "coarse_columns", None)
        return () if found is None else found(self.head.init(), rows.unweighted)

    def column_map(self, model: PipelineModel) -> ColumnMap:
        """The map that rows go through before the head.

        Raises:
            NotReadyError: columns are still to be agreed on.
            SpecificationError: no scaler.
        """
        scaler, columns = self._agreed(model)
        return scaler.map(columns, self.head)

    def _agreed(self, model: PipelineModel) -> tuple[Scaler, Columns]:
        """The scaler, and what is agreed of columns."""
        if self.scaler is None:
            raise SpecificationError(f"{self.name} takes columns as they are: it has no scaler")
        if model.columns is None:
            raise NotReadyError("this model still needs the sum that its columns are agreed by")
        return self.scaler, model.columns

    def losses(self, model: PipelineModel) -> tuple[float, ...]:
        """By how much an entry of each column moves at most (``Scaler.losses``).

        Raises:
            NotReadyError, SpecificationError: see ``column_map``.
        """
        scaler, columns = self._agreed(model)
        return scaler.losses(columns, self.head)

    def evaluation_format(self, model: PipelineModel) -> RowFormat:
        """The format in which real targets are judged: the stated one, or that of the agreed size.

        Raises:
            NotReadyError: columns are still to be agreed on.
            SpecificationError: targets so small or so large that no such format holds them.
        """
        if self.scaler is None:
            return self.target_format
        scaler, columns = self._agreed(model)
        return scaler.evaluation_format(columns, self.head)

    def settled(self, model: PipelineModel) -> tuple[Any, Any]:
        """The closed form of rows as they are, with its model: what personalises, exports and is stored alone.

        Raises:
            NotReadyError: a sum is still to come.
            SpecificationError: behind agreed columns, a learner that is no linear map of them.
        """
        head, own = self.fitted_head(model), model.own
        if self.scaler is None:
            return head, own
        if not is_linear(head):
            raise SpecificationError(f"{self.head.name} is no linear map of columns; use {self.name} as it is")
        _ = own.weights
        intercept = None if head.columns is None else head.columns.intercept
        return replace(head, columns=replace(self.column_map(model), intercept=intercept)), own

    def own_statistics(self, model: PipelineModel, rows: ClientRows) -> Statistics:
        """A client's own statistics as a complete linear model's total holds them, of its weighted rows.

        Raises:
            InvalidRowsError: rows with weights where none weighs, and what the head refuses.
        """
        if self.weights is None:
            refuse_weights(rows)
        learner, _ = self.settled(model)
        weights = self.weights_of(model, rows)
        found: Statistics = weighted_sum(rows, weights, learner.spec, learner.own_statistics, self.max_rows)
        return found

    def personalise(self, model: PipelineModel, rows: ClientRows, alphas: Sequence[float]) -> list[PipelineModel]:
        """Models of a client's own for each alpha, from its weighted rows (``FedHiP.personalise``).

        Raises:
            SpecificationError: a head that makes none.
        """
        if not hasattr(self.head, "personal_models"):
            raise SpecificationError(f"{self.name} makes no personal models; take fedhip")
        learner, complete = self.settled(model)
        found = learner.personal_models(complete, self.own_statistics(model, rows), alphas)
        choice = None if model.choice is None else replace(model.choice, folds=())
        return [replace(model, head=one, choice=choice) for one in found]

    def choose_alpha(self, model: PipelineModel, rows: ClientRows, alphas: Sequence[float]) -> Path:
        """The weight of a client's own rows (``RidgeCV.choose_alpha``).

        Raises:
            SpecificationError: no selection to take folds from, weighted rows, or a head without personal models.
        """
        _ = model.own
        if self.selection is None or self.weights is not None or model.choice is None:
            raise SpecificationError(
                f"{self.name} has no folds of rows that count once to choose an alpha by; take a chosen fedhip, or "
                "state one"
            )
        refuse_weights(rows)
        return self.selection.choose_alpha(model.choice, self.mapped(model, rows), alphas, self.fitted_head(model))

    def decision_function(self, model: PipelineModel, features: NDArray[Any]) -> FloatMatrix:
        """Scores in the targets' own units, shape (n, c), of features as they are.

        Raises:
            NotReadyError: the model still needs a sum.
            InvalidRowsError: features of another shape than (n, d).
        """
        return self._scores(model, features, self.fitted_head(model).decision_function)

    def exact_scores(self, model: PipelineModel, features: NDArray[Any]) -> FloatMatrix:
        """Scores that are exact and rounded once, of columns that were rounded where they are standardised."""
        return self._scores(model, features, self.fitted_head(model).exact_scores)

    def _scores(self, model: PipelineModel, features: NDArray[Any], score: Callable[..., FloatMatrix]) -> FloatMatrix:
        own = model.own
        if self.scaler is None:
            return score(own, features)
        columns = self.column_map(model)
        return columns.scores(score(own, columns.features(np.asarray(features, dtype=np.float64))))

    def layers(self, model: PipelineModel) -> tuple[Layer, ...]:
        """The map of columns as a layer, then the head's own, then the targets' scales."""
        own, head = model.own, self.fitted_head(model)
        if self.scaler is None or is_linear(head):
            learner, own = self.settled(model)
            found: tuple[Layer, ...] = learner.layers(own)
            return found
        columns = self.column_map(model)
        first = Linear(*replace(columns, target_exponents=()).own_units(np.eye(self.n_features)))
        last = () if self.target_format == LABELS else (Linear(columns.scores(np.eye(self.n_targets))),)
        return first, *head.layers(own), *last

    def weights_bytes(self, model: PipelineModel) -> bytes:
        """The bytes of the head's weights, after those of the map of columns.

        Raises:
            NotReadyError: a sum is still to come.
        """
        learned: bytes = self.fitted_head(model).weights_bytes(model.own)
        return b"".join([] if model.columns is None else model.columns.received) + learned

    # --- models as arrays -----------------------------------------------------------------------------------

    def take_apart(self, model: PipelineModel) -> Parts:
        """The arrays of the head's model, of its columns and its path, and the class weights that were found."""
        head = self.fitted_head(model)
        parts: Parts = Parts() if model.head is None else head.take_apart(model.head)
        if model.columns is not None:
            parts.arrays |= model.columns.arrays
        if model.choice is not None:
            selection, choice = self._chosen(model)
            selection.take_apart(choice, parts, head)
        if self.weights is not None and self.weights.is_balanced and model.class_weights:
            parts.arrays["class_weights"] = np.array(model.class_weights, dtype=np.int64)
        return parts

    def put_together(self, parts: Parts) -> PipelineModel:
        """The model of these parts."""
        model = self._empty()
        if "class_weights" in parts:
            found = tuple(parts.integers("class_weights", (self.n_targets,)).tolist())
            if not 0 <= min(found) <= max(found) <= self.max_rows:
                raise SpecificationError(f"weights of classes are 0 to {self.max_rows}, not {found}")
            model = replace(model, class_weights=found)
        if self.scaler is not None:
            model = replace(model, columns=self.scaler.put_together(parts, self.head))
            if self._scaler_sum(model) is not None:
                return model
        if self.selection is not None:
            selection, _ = self._chosen(model)
            choice = selection.put_together(parts, self.fitted_head(model))
            model = replace(model, choice=choice)
            if choice.path is None:
                return model
        return replace(model, head=self.fitted_head(model).put_together(parts))


def settled(learner: AnalyticLearner[Any], model: Any) -> tuple[Any, Any]:
    """Return a complete model as the closed form of rows as they are, with its own model (``Pipeline.settled``)."""
    return learner.settled(model) if isinstance(learner, Pipeline) else (learner, model)
