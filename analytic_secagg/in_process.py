"""A federation whose parties are all in one process: the model, who took part in each sum, and what it cost whom."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from analytic.errors import InvalidRowsError
from analytic.learner import AnalyticLearner, ClientRows
from analytic.statistics import IntVector
from analytic_secagg.errors import FederationError
from analytic_secagg.federation import Federation, Step, SumRecord
from analytic_secagg.modes import Mode
from analytic_secagg.privacy import PrivacyPlan
from secagg import InMemoryRun, Layout, PartyId, SumResult, run_in_memory
from secagg.dp import Ledger

M = TypeVar("M")

Tick = Callable[[], None]
"""Called after each client's contribution, to move a progress bar."""


@dataclass(slots=True, kw_only=True)
class Cost:
    """Messages, bytes and seconds of one party over all sums of a run.

    ``statistics_seconds``, the time a client spent on its statistics, is part of ``seconds``.
    """

    messages_by_sum: list[int] = field(default_factory=list)
    vector_messages: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    statistics_seconds: float = 0.0

    @property
    def messages_up(self) -> int:
        """Messages sent, over all sums."""
        return sum(self.messages_by_sum)


@dataclass(slots=True, kw_only=True, eq=False)
class FederatedRun(Generic[M]):
    """A finished run.

    Args:
        learner: the closed form; where totals have noise the private form of the one that was given.
        model: its complete model.
        sums: what happened in each sum.
        costs: of each client and helper, over all sums.
        server_seconds: time of the server's sessions, of reading the totals and of the solves.
        uncertified: solved arrays of the model whose bits are this machine's, each with how it was solved.
        totals: of each sum, which ``analytic_secagg.changes`` goes on from; whoever has one takes his own part off it.
    """

    learner: AnalyticLearner[M]
    model: M
    sums: tuple[SumRecord, ...] = ()
    costs: dict[PartyId, Cost] = field(default_factory=dict)
    server_seconds: float = 0.0
    uncertified: tuple[str, ...] = ()
    totals: list[SumResult] = field(default_factory=list, repr=False)

    @property
    def survivors(self) -> tuple[tuple[PartyId, ...], ...]:
        """For each sum, the parties whose vectors are in it, ascending."""
        return tuple(one.survivors for one in self.sums)

    @property
    def largest_layout(self) -> Layout:
        """The layout whose vectors take the most bytes."""
        return max((one.layout for one in self.sums), key=lambda layout: layout.wire_bytes)

    def cost_of(self, party: PartyId) -> Cost:
        """A party's costs so far."""
        return self.costs.setdefault(party, Cost())

    def book(self, run: InMemoryRun) -> None:
        """Add what one sum cost."""
        self.server_seconds += run.server_seconds
        for party, traffic in run.traffic.items():
            cost = self.cost_of(party)
            cost.messages_by_sum.append(traffic.messages_up)
            cost.vector_messages += traffic.vector_messages
            cost.bytes_up += traffic.bytes_up
            cost.bytes_down += traffic.bytes_down
            cost.seconds += traffic.seconds


def run_federation(
    learner: AnalyticLearner[M],
    clients: Mapping[PartyId, ClientRows],
    mode: Mode,
    *,
    in_series: bool = False,
    dropouts: Callable[[int], Mapping[PartyId, int]] = lambda number: {},
    tick: Tick = lambda: None,
    privacy: PrivacyPlan | None = None,
    ledger: Ledger | None = None,
    max_client_rows: int | None = None,
    whose: Callable[[PartyId], str] = "client {}".format,
) -> FederatedRun[M]:
    """Return the learner's model over ``mode``, and what it cost.

    Contributions are made when their client sends them: one at a time is in memory. No release policy is asked: all
    rows are in this process anyway.

    Args:
        learner: the dialogue to run.
        clients: rows by party.
        mode: how sums are made.
        in_series: let sums carry each other's set-up where the mode can; a client that drops out then stays out. Sums
            with noise stand alone.
        dropouts: for the sum of a number, from 0: party -> messages that it still sends before it vanishes from it.
        tick: called after each contribution.
        privacy: a promise that noise in every total keeps, of as many survivors as it counts on; None for exact totals.
        ledger: is charged for each noisy sum before any of its messages is made.
        max_client_rows: most rows of one client; None where only all clients' rows together are bounded.
        whose: the name by which an error says whose rows it is about.

    Raises:
        FederationError: a party refused what another sent; nothing is lost on this network, so that is a fault.
        secagg.errors.SecureSumError, analytic.errors.AnalyticError: as their packages say.
    """
    federation = Federation(learner, release=None, privacy=privacy, max_client_rows=max_client_rows, sum_fits=True)
    fewest = None if privacy is None else privacy.min_noise_shares
    sums = mode.sums(tuple(clients), in_series=in_series and privacy is None, min_survivors=fewest)
    finished = FederatedRun(learner=federation.learner, model=federation.model)
    while (step := federation.next_sum) is not None:
        together = _Together(step.layout)
        contributions = {
            party: _timed(step, whose(party), rows, finished.cost_of(party), tick, together)
            for party, rows in clients.items()
        }
        parties = sums.next_sum(step.with_headroom(len(clients)), step.context)
        parties = replace(parties, protocol=step.over(parties.protocol))
        step.charge(ledger, session_id=parties.protocol.digest)
        run = run_in_memory(parties, contributions, dropouts=dropouts(len(federation.sums)))
        _check_no_refusals(run)
        finished.book(run)
        started = time.perf_counter()
        federation.take(run.result)
        finished.totals.append(run.result)
        finished.server_seconds += time.perf_counter() - started
    finished.model, finished.sums, finished.uncertified = federation.model, federation.sums, federation.uncertified
    return finished


def _check_no_refusals(run: InMemoryRun) -> None:
    if run.refused:
        envelope, error = run.refused[0]
        raise FederationError(
            f"{len(run.refused)} messages were refused on a network that loses nothing; the first went from party "
            f"{envelope.sender} to party {envelope.recipient}: {error}"
        ) from error


class _Together:
    """All vectors of a sum so far: the largest and the smallest total that any of their clients can have."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._above, self._below = (np.zeros(layout.size, dtype=np.int64) for _ in range(2))

    def add(self, vector: IntVector) -> None:
        """Take one more vector.

        Raises:
            InvalidRowsError: then a total could leave its bound, and wrap around.
        """
        for segment, place in self._layout.slices():
            own = vector[place]
            for reached, further in ((self._above, own), (self._below, -own)):
                more = np.maximum(further, 0)
                if (more > segment.bound - reached[place]).any():
                    raise InvalidRowsError(
                        f"with these rows the clients' sum may leave the bound {segment.bound} of {segment.name!r}, "
                        "and would wrap around: give fewer rows, or a learner of a larger max_rows"
                    )
                reached[place] += more


def _timed(
    step: Step[Any], whose: str, rows: ClientRows, cost: Cost, tick: Tick, together: _Together
) -> Callable[[], IntVector]:
    """A client's contribution, whose time is booked, and whose errors say whose rows they are about."""

    def contribution() -> IntVector:
        started = time.perf_counter()
        try:
            vector = step.vector(rows)
            cost.statistics_seconds += time.perf_counter() - started
            together.add(vector)
        except InvalidRowsError as error:
            error.args = (f"{whose}: {error}",)
            raise
        tick()
        return vector

    return contribution
