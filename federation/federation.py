"""A learner's sums under a mode, as one dialogue without I/O: which sum is next, what a client puts in, what comes out.

In-memory runs, the audit's recorder, private runs and every engine drive this one object, so that none of them can
forget the digest that protects a client, the gate before a model, or the record of what happened.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from analytic.learner import AnalyticLearner, ClientRows, SumSpec
from analytic.statistics import IntVector
from federation.errors import FederationError
from federation.release import Concern, ReleasePolicy
from secagg import Layout, PartyId, SumResult

M = TypeVar("M")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step(Generic[M]):
    """One sum of a learner, as every party of it can work it out from what it received.

    Args:
        learner: the closed form.
        model: what it has learned so far; every party holds it.
        spec: the sum that it asks for.
        layout: the shape of the vectors.
    """

    learner: AnalyticLearner[M]
    model: M
    spec: SumSpec[Any]
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "layout", Layout.of(self.spec.segments))

    @classmethod
    def of(cls, learner: AnalyticLearner[M], model: M) -> Self | None:
        """Return the sum that a learner needs next; None where its model is complete."""
        spec = learner.next_sum(model)
        return None if spec is None else cls(learner=learner, model=model, spec=spec)

    @property
    def received(self) -> bytes:
        """The learner's configuration and everything of the model that clients hold, as canonical public bytes."""
        return self.learner.context_bytes(self.model)

    @property
    def context(self) -> bytes:
        """The digest that a session is bound to: a client that holds another model is refused instead of summed."""
        return hashlib.sha256(self.received).digest()

    def vector(self, rows: ClientRows) -> IntVector:
        """Return what a client with these rows puts into the sum, int64 of the layout's shape."""
        return self.spec.to_vector(self.learner.client_statistics(self.model, rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRecord:
    """What happened in one sum; all of it public.

    Args:
        layout: of its vectors.
        context: the digest that its session was bound to.
        survivors: the clients whose vectors are in the total, ascending.
        concerns: what the total gives away besides, where a release policy looked at it.
    """

    layout: Layout
    context: bytes
    survivors: tuple[PartyId, ...]
    concerns: tuple[Concern, ...] = ()


class Federation(Generic[M]):
    """A learner's sums, one after the other, until its model is complete.

    Ask for ``next_sum``, make that sum under any mode, ``take`` its result, and so on. A result that is refused changes
    nothing.

    Args:
        learner: the closed form.
        release: what a total must be before a model is made of it; None where that is nobody's question (simulations,
            where all rows are in one place anyway).
    """

    def __init__(self, learner: AnalyticLearner[M], *, release: ReleasePolicy | None) -> None:
        self.learner, self._release = learner, release
        self._model, self._sums = learner.init(), list[SumRecord]()
        self._step = Step.of(learner, self._model)

    @property
    def next_sum(self) -> Step[M] | None:
        """The sum that is due; None once the model is complete."""
        return self._step

    @property
    def sums(self) -> tuple[SumRecord, ...]:
        """What happened so far, sum by sum."""
        return tuple(self._sums)

    @property
    def model(self) -> M:
        """What has been learned so far; complete once ``next_sum`` is None."""
        return self._model

    def take(self, result: SumResult) -> SumRecord:
        """Take the result of the sum that was due, and say what happened in it.

        Raises:
            FederationError: no sum is due.
            ReleaseRefusedError: the release policy does not let a model be made of such a total.
            AnalyticError: the learner cannot make a model of it.
        """
        step = self._step
        if step is None:
            raise FederationError("the model is complete and no sum is due; begin another federation for another one")
        total, survivors = step.spec.from_vector(result.total), result.survivors
        concerns = self._judge(total, survivors)
        model = self.learner.update(self._model, total, len(survivors))
        record = SumRecord(layout=step.layout, context=step.context, survivors=survivors, concerns=concerns)
        self._model, self._step = model, Step.of(self.learner, model)
        self._sums.append(record)
        return record

    def _judge(self, total: Any, survivors: tuple[PartyId, ...]) -> tuple[Concern, ...]:
        """Refuse a total of raw features that gives rows away, and say what a total gives away besides.

        Noisy totals and those of other features are no ``exact_total`` of their learner; they are not judged.
        """
        if self._release is None:
            return ()
        exact = self.learner.exact_total(self._model, total, len(survivors))
        return () if exact is None else self._release.before_release(exact, survivors)
