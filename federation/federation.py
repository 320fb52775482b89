"""A learner run over a privacy mode: its sums, who took part in each, and what it cost whom."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from analytic.learner import AnalyticLearner, ClientRows, SumSpec
from analytic.statistics import IntVector
from federation.errors import FederationError
from federation.modes import Mode
from secagg import InMemoryRun, Layout, PartyId, run_in_memory

Tick = Callable[[], None]
"""Called after each client's contribution, to move a progress bar."""


@dataclass(slots=True, kw_only=True)
class Cost:
    """What one party sent, received and computed over all sums of a run.

    ``statistics_seconds``, the time a client spent on its statistics, is part of ``seconds``.
    """

    messages_by_sum: list[int] = field(default_factory=list)
    heavy_messages: int = 0
    bytes_up: int = 0
    bytes_down: int = 0
    seconds: float = 0.0
    statistics_seconds: float = 0.0

    @property
    def messages_up(self) -> int:
        """Messages sent, over all sums."""
        return sum(self.messages_by_sum)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Federation:
    """A finished run.

    Args:
        model: the learner's complete model.
        survivors: for each sum, the parties whose vector is in it, ascending.
        layouts: of each sum's vectors.
        costs: of each client and helper, over all sums.
        server_seconds: time of the server's sessions, of reading the totals and of the solves.
    """

    model: Any
    survivors: tuple[tuple[PartyId, ...], ...]
    layouts: tuple[Layout, ...]
    costs: Mapping[PartyId, Cost]
    server_seconds: float

    @property
    def largest_layout(self) -> Layout:
        """The layout whose vectors take the most bytes."""
        return max(self.layouts, key=lambda layout: layout.wire_bytes)


@dataclass(slots=True, eq=False)
class _Account:
    """Collects a run's costs while it goes on."""

    costs: dict[PartyId, Cost] = field(default_factory=dict)
    survivors: list[tuple[PartyId, ...]] = field(default_factory=list)
    layouts: list[Layout] = field(default_factory=list)
    server_seconds: float = 0.0

    def of(self, party: PartyId) -> Cost:
        """A party's costs so far."""
        return self.costs.setdefault(party, Cost())

    def add(self, layout: Layout, run: InMemoryRun) -> None:
        """Book one sum."""
        self.layouts.append(layout)
        self.survivors.append(run.result.survivors)
        self.server_seconds += run.server_seconds
        for party, traffic in run.traffic.items():
            cost = self.of(party)
            cost.messages_by_sum.append(traffic.messages_up)
            cost.heavy_messages += traffic.heavy_messages
            cost.bytes_up += traffic.bytes_up
            cost.bytes_down += traffic.bytes_down
            cost.seconds += traffic.seconds


def federate(
    learner: AnalyticLearner[Any],
    clients: Mapping[PartyId, ClientRows],
    mode: Mode,
    *,
    in_series: bool = False,
    dropouts: Callable[[int], Mapping[PartyId, int]] = lambda number: {},
    tick: Tick = lambda: None,
) -> Federation:
    """The learner's model over ``mode``, and what it cost.

    Each sum's session is bound to a digest of the model that its clients hold, so that a client with another model is
    refused instead of summed. Contributions are made when their client sends them: one at a time is in memory.

    Args:
        learner: the dialogue to run.
        clients: rows by party.
        mode: how sums are made.
        in_series: let sums carry each other's set-up where the mode can; a client that drops out then stays out.
        dropouts: for the sum of a number, from 0: party -> messages that it still sends before it vanishes from it.
        tick: called after each contribution.

    Raises:
        FederationError: a party refused what another sent; nothing is lost on this network, so that is a fault.
        secagg.errors.SecureSumError, analytic.errors.AnalyticError: as their packages say.
    """
    model, account, sums = learner.init(), _Account(), mode.sums(tuple(clients), in_series=in_series)
    while (spec := learner.next_sum(model)) is not None:
        layout = Layout.of(spec.segments)
        parties = sums.next_sum(layout, hashlib.sha256(learner.context_bytes(model)).digest())
        contributions = {
            party: _contribution(learner, model, spec, rows, account.of(party), tick) for party, rows in clients.items()
        }
        run = run_in_memory(parties, contributions, dropouts=dropouts(len(account.survivors)))
        _check_no_refusals(run)
        account.add(layout, run)
        started = time.perf_counter()
        model = learner.update(model, spec.from_vector(run.result.total), len(run.result.survivors))
        account.server_seconds += time.perf_counter() - started
    return Federation(
        model=model,
        survivors=tuple(account.survivors),
        layouts=tuple(account.layouts),
        costs=account.costs,
        server_seconds=account.server_seconds,
    )


def _check_no_refusals(run: InMemoryRun) -> None:
    if run.refused:
        envelope, error = run.refused[0]
        raise FederationError(
            f"{len(run.refused)} messages were refused on a network that loses nothing; the first went from party "
            f"{envelope.sender} to party {envelope.recipient}: {error}"
        ) from error


def _contribution(
    learner: AnalyticLearner[Any], model: Any, spec: SumSpec[Any], rows: ClientRows, cost: Cost, tick: Tick
) -> Callable[[], IntVector]:
    def make() -> IntVector:
        started = time.perf_counter()
        vector = spec.to_vector(learner.client_statistics(model, rows))
        cost.statistics_seconds += time.perf_counter() - started
        tick()
        return vector

    return make
