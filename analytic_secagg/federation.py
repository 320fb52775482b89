"""A learner's sums under a mode, as one dialogue without I/O: which sum is next, what a client puts in, what comes out.

In the order of calls:

1. ``Federation(learner, release=..., privacy=...)``; where noise is promised its ``learner`` is the private form, and
   ``noise`` has the cost of all sums before anything is sent;
2. ``next_sum`` gives a ``Step``. Every party works out the same one from what it received, and binds its session to
   ``step.context``: a client that holds another model is refused instead of summed;
3. a mode makes the sum of the layout ``step.with_headroom(n_clients)``, and ``step.over(protocol)`` puts its noise
   over it;
4. ``step.charge(ledger, ...)`` books the noise, and ``step.vector(rows)`` is what a client puts in;
5. ``take(result)``: the release policy looks at the total, the learner makes the next model of it;
6. again from 2, until ``next_sum`` is None and ``model`` is complete.

In-memory runs, the audit's recorder, private runs and every engine drive this one object, so that none of them can
forget the digest that protects a client, the gate before a model, or the record of what happened.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field
from typing import Any, Generic, Self, TypeVar

from analytic.errors import InvalidRowsError
from analytic.learner import AnalyticLearner, ClientRows, SumSpec
from analytic.statistics import IntVector
from analytic_secagg.errors import FederationError
from analytic_secagg.privacy import PrivacyPlan, PrivateForm, is_bounded, violates_sensitivity
from analytic_secagg.release import Concern, ReleasePolicy
from secagg import Layout, PartyId, SumProtocol, SumResult
from secagg.dp import Ledger, PrivacyError

M = TypeVar("M")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step(Generic[M]):
    """One sum of a learner, as every party of it can work it out from what it received.

    Args:
        learner: the closed form.
        model: what it has learned so far; every party holds it.
        spec: the sum that it asks for.
        number: which sum of the run it is, from 0.
        noise: the noise of all sums of the run; None where totals are exact.
        max_client_rows: most rows of one client, from which the layout's bounds for one client follow, of weighted rows
            as if each had the largest weight that the learner and its model allow. None for an equal share of the
            learner's ``max_rows`` where ``n_clients`` is given; without both only vectors are bounded, each by an equal
            share of the sum's bounds.
        n_clients: how many clients the sum has. With ``max_client_rows`` rows each, the learner must have room for all.
        sum_fits: that the caller knows all rows and looks after the sum: a client may then fill the sum's bounds alone,
            unless ``max_client_rows`` says otherwise.
        layout: the shape of the vectors, before noise.

    Raises:
        FederationError: the clients may together hold more rows than the learner has room for, or a number of clients
            or rows is no whole number of at least 1.
    """

    learner: AnalyticLearner[M]
    model: M
    spec: SumSpec[Any]
    number: int = 0
    noise: PrivateForm | None = field(default=None, repr=False)
    max_client_rows: int | None = None
    n_clients: int | None = None
    sum_fits: bool = False
    layout: Layout = field(init=False)

    def __post_init__(self) -> None:
        segments, most = self.spec.segments, self.max_client_rows
        if most is not None and (type(most) is not int or most < 1):
            raise FederationError(f"a client may hold one row or more, a whole number, not {most!r}")
        if self.n_clients is not None:
            self._check_room(self.n_clients)
        if (most := self._client_rows) is None:
            object.__setattr__(self, "layout", Layout.of(segments, sum_fits=self.sum_fits))
            return
        pairs = zip(segments, self.spec.client_bounds(most), strict=True)
        bounded = [(*segment, min(segment[2], own)) for segment, own in pairs]
        fits = self.sum_fits or self.n_clients is not None
        object.__setattr__(self, "layout", Layout.of(bounded, sum_fits=fits))

    @property
    def _client_rows(self) -> int | None:
        """Most rows of one client; None where its vector is bounded alone."""
        if self.max_client_rows is not None or self.n_clients is None:
            return self.max_client_rows
        return self.spec.max_rows // self.n_clients

    def _check_room(self, n_clients: int) -> None:
        """Refuse clients whose rows, as many as each may hold, would leave the bounds of the sum."""
        if type(n_clients) is not int or n_clients < 1:
            raise FederationError(f"a sum has one client or more, a whole number, not {n_clients!r}")
        room, most = self.spec.max_rows, self.max_client_rows or 1
        if n_clients * most > room:
            raise FederationError(
                f"{n_clients} clients of {most} rows each need room for {n_clients * most} rows together, and the "
                f"learner's max_rows leaves room for {room}: raise max_rows"
                + (f", or lower max_client_rows to {room // n_clients} at all parties" if room >= n_clients else "")
            )

    @classmethod
    def of(cls, learner: AnalyticLearner[M], model: M, **bounds: Any) -> Self | None:
        """Return the sum that a learner needs next, with these other fields; None where its model is complete."""
        spec = learner.next_sum(model)
        return None if spec is None else cls(learner=learner, model=model, spec=spec, **bounds)

    @property
    def received(self) -> bytes:
        """The learner's configuration and everything of the model that clients hold, as canonical public bytes."""
        return self.learner.context_bytes(self.model)

    @property
    def context(self) -> bytes:
        """The digest that a session is bound to: a client that holds another model is refused instead of summed."""
        return hashlib.sha256(self.received).digest()

    def vector(self, rows: ClientRows) -> IntVector:
        """Return what a client with these rows puts into the sum, int64 of the layout's shape, before noise.

        Raises:
            InvalidRowsError: they are more than one client may hold.
            PrivacyError: they reach beyond the bound that the noise is sized for.
        """
        most, held = self._client_rows, len(rows)
        if most is not None and held > most:
            n, stated = self.n_clients, self.max_client_rows is not None
            share = "" if stated else f", an equal share of the {self.spec.max_rows} of all {n} clients"
            mends = [f"raise max_client_rows to {held} at all parties"] if stated else []
            mends += [] if n is None else [f"have max_rows (the run's max-rows) raised to {n * held}"]
            raise InvalidRowsError(
                f"one client may hold {most} rows{share}, and these {held} are more; give fewer, or "
                + " and ".join(mends)
            )
        vector = self.spec.to_vector(self.learner.client_statistics(self.model, rows))
        weight = len(rows) if rows.weights is None else int(rows.weights.sum())
        if self.noise is not None and violates_sensitivity(self.learner, self.spec.from_vector(vector), weight):
            raise PrivacyError(
                f"the statistics of these {len(rows)} rows must have a trace and sums that so many rows within the "
                "public bound can have, since the noise is sized for it, and these exceed it. Nothing was sent. "
                "Rows were not clipped: take the learner that PrivacyPlan.apply returns"
            )
        return vector

    @property
    def n_columns(self) -> int:
        """Columns of the rows whose Gram its total shows, of several Grams the most; 0 where it shows none."""
        triangles = [segment.size for segment in self.layout.segments if segment.name.split()[0] == "gram"]
        return max((math.isqrt(2 * size) for size in triangles), default=0)

    def with_headroom(self, n_clients: int) -> Layout:
        """Return the layout that the sum must have: wide enough for the noise of so many clients."""
        return self.layout if self.noise is None else self.noise.with_headroom(self.number, self.layout, n_clients)

    def over(self, protocol: SumProtocol) -> SumProtocol:
        """Return the noisy sum over one with the layout ``with_headroom``; the same one where totals are exact.

        Raises:
            secagg.dp.PrivacyError: the sum under it releases totals of fewer survivors than promised, or has no room.
        """
        return protocol if self.noise is None else self.noise.over(self.number, protocol, self.layout)

    def charge(self, ledger: Ledger | None, *, session_id: bytes) -> None:
        """Book the sum's noise before anything of it leaves; exact sums cost nothing that a ledger could book.

        Raises:
            secagg.dp.BudgetExceededError, secagg.dp.LedgerError, secagg.dp.PrivacyError: the sum must not be made.
        """
        if ledger is not None and self.noise is not None:
            self.noise.charge(self.number, ledger, session_id=session_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SumRecord:
    """Record of one sum; all of it public.

    Args:
        layout: of its vectors.
        context: the digest of what its clients received before it; a deployment binds a session to it with the terms.
        survivors: the clients whose vectors are in the total, ascending.
        concerns: what the total gives away besides, where a release policy looked at it.
        disputes: (owner, holder) of each wrong share that was done without, or two helpers whose sums differ; see
            ``SumResult.malicious_parties``.
        complaints: (client, helper) where a helper says that it cannot use the client's seeds.
    """

    layout: Layout
    context: bytes
    survivors: tuple[PartyId, ...]
    concerns: tuple[Concern, ...] = ()
    disputes: tuple[tuple[PartyId, PartyId], ...] = ()
    complaints: tuple[tuple[PartyId, PartyId], ...] = ()


class Federation(Generic[M]):
    """A learner's sums, one after the other, until its model is complete.

    Ask for ``next_sum``, make that sum under any mode, ``take`` its result, and so on. A result that is refused changes
    nothing.

    Args:
        learner: the closed form.
        release: what a total must be before a model is made of it; None where that is nobody's question (simulations,
            where all rows are in one place anyway).
        privacy: a promise that each total's noise keeps; None for exact totals. ``learner`` then is the private form of
            the one that was given, and ``noise`` has the bill before anything is sent.
        max_client_rows: most rows of one client, whatever they weigh; None for an equal share where ``n_clients`` is
            given.
        n_clients: how many clients each sum has; see ``Step``.
        sum_fits: that the caller knows all rows and looks after the sum; see ``Step``.
    """

    def __init__(
        self,
        learner: AnalyticLearner[M],
        *,
        release: ReleasePolicy | None,
        privacy: PrivacyPlan | None = None,
        max_client_rows: int | None = None,
        n_clients: int | None = None,
        sum_fits: bool = False,
    ) -> None:
        self.noise = None if privacy is None else privacy.apply(learner)
        self.learner: AnalyticLearner[M] = learner if self.noise is None else self.noise.learner
        self._release = release
        self._bounds = {"max_client_rows": max_client_rows, "n_clients": n_clients, "sum_fits": sum_fits}
        self._model, self._sums = self.learner.init(), list[SumRecord]()
        self._step = self._due(self._model, 0)

    @property
    def next_sum(self) -> Step[M] | None:
        """The sum that is due; None once the model is complete."""
        return self._step

    @property
    def sums(self) -> tuple[SumRecord, ...]:
        """Records of the sums so far."""
        return tuple(self._sums)

    @property
    def model(self) -> M:
        """The model so far; complete once ``next_sum`` is None."""
        return self._model

    @property
    def uncertified(self) -> tuple[str, ...]:
        """The solved arrays of the model whose bits are this machine's, each with how it was solved."""
        return self.learner.take_apart(self._model).uncertified

    def take(self, result: SumResult) -> SumRecord:
        """Take the result of the sum that was due, and say what happened in it.

        Raises:
            FederationError: no sum is due.
            ReleaseRefusedError: the release policy does not let a model be made of such a total.
            AnalyticError: no rows add up to it (``ImpossibleTotalError``), or the learner cannot make a model of it.
        """
        step = self._step
        if step is None:
            raise FederationError("the model is complete and no sum is due; begin another federation for another one")
        total, survivors = step.spec.from_vector(result.total), result.survivors
        if self.noise is None and not is_bounded(self.learner):
            step.spec.check_total(total, len(survivors))
        concerns = self._judge(total, survivors)
        model = self.learner.update(self._model, total, len(survivors))
        record = SumRecord(
            layout=step.layout,
            context=step.context,
            survivors=survivors,
            concerns=concerns,
            disputes=result.disputes,
            complaints=result.complaints,
        )
        self._step = self._due(model, step.number + 1)
        self._model = model
        self._sums.append(record)
        return record

    def _due(self, model: M, number: int) -> Step[M] | None:
        return Step.of(self.learner, model, number=number, noise=self.noise, **self._bounds)

    def _judge(self, total: Any, survivors: tuple[PartyId, ...]) -> tuple[Concern, ...]:
        """Refuse a total that is of too few clients or gives rows away, and say what a total gives away besides.

        Noisy totals and those of other features are no ``exact_total`` of their learner: of these only clients are
        judged.
        """
        if self._release is None:
            return ()
        return self._release.before_release(self.learner.exact_total(self._model, total, len(survivors)), survivors)
