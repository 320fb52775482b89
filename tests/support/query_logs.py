"""Attacks by further totals of the same rows, against sites that keep query logs."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from analytic_secagg.modes import Mode, fresh_identity
from analytic_secagg.site.query_log import QueryLog
from analytic_secagg.site.store import SessionStore
from secagg import ClientPolicy, InOneProcess, PartyId
from secagg.sums import PartySecrets
from simulations.audit.attack import (
    MASKED,
    PROBE,
    Attack,
    Expectation,
    in_the_clear,
)
from simulations.audit.evaluate import Score
from simulations.audit.view import Overlooked, RecordedSum, record_sum
from simulations.audit.workbench import Bench, Cohort

NEVER = 1e-12

FEW_ROWS = 8
"""Of a client, so that small data sets have enough."""

TARGET, GROUP = 1, 4
"""The attacked client; and clients of each of the two groups beside it, more than a site's policy asks that totals
differ by."""


class QueryLogDifferencing(Attack):
    """A server that makes further totals of the same rows, against sites that remember the earlier ones."""

    name = "query_log_differencing"
    title = "One client, from further totals of the same rows, where sites keep query logs"
    explanation = (
        "The server makes a sum, and a further one in which it calls the target lost, once of the same learner and "
        "once of another; or three sums of two groups of clients, the target beside each and in none. All sites sign "
        "and keep query logs; once, where clients are gone by then, helpers alone do. Success: a difference of totals "
        "is the target's vector, every number exact. Chance: none."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return that query logs must hide what totals would show, wherever a message hides something."""
        return None if mode is None or in_the_clear(mode) else Expectation.HIDDEN

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Make each series of totals of a cohort of its own, and one where helpers alone keep query logs."""
        assert mode is not None
        won = [_is_isolated(bench, mode, totals) for totals in (LOST, ANOTHER_LEARNER, GROUPS)]
        if mode.helper and not mode.guarantee(PROBE).messages_after_vector:  # else clients see survivors, and decide
            won.append(_is_isolated(bench, mode, LOST, at_clients=False))
        return Score(hits=sum(won), trials=len(won), chance=NEVER)

    def control(self, bench: Bench, trials: int) -> Score | None:
        """Attack sites that keep no query log."""
        won = [_is_isolated(bench, MASKED, totals, at_clients=False, at_helpers=False) for totals in (LOST, GROUPS)]
        return Score(hits=sum(won), trials=len(won), chance=NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """One of several totals of the same rows.

    Args:
        counts: how often it is added, to get a multiple of the target's vector.
        groups: the groups that are asked beside the target, 1 and 2.
        of_target: whether the target is asked.
        loses_target: whether the server calls it lost.
        other_learner: whether the sum is said to be of another learner.
    """

    counts: int
    groups: tuple[int, ...] = (1,)
    of_target: bool = True
    loses_target: bool = False
    other_learner: bool = False


LOST = Total(counts=1), Total(counts=-1, loses_target=True)
ANOTHER_LEARNER = Total(counts=1), Total(counts=-1, loses_target=True, other_learner=True)
GROUPS = Total(counts=1), Total(counts=1, groups=(2,)), Total(counts=-1, groups=(1, 2), of_target=False)


def _is_isolated(
    bench: Bench, mode: Mode, totals: tuple[Total, ...], *, at_clients: bool = True, at_helpers: bool = True
) -> bool:
    """Return whether totals of one cohort show the target's vector."""
    groups = {1: tuple(range(2, 2 + GROUP)), 2: tuple(range(2 + GROUP, 2 + 2 * GROUP))}
    others = {place for one in totals for place in one.groups}
    cohort = bench.cohort(1 + GROUP * max(others), FEW_ROWS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="audit-")))
        sites = _Sites(bench=bench, mode=mode, cohort=cohort, folder=folder, stack=stack)
        sites.at_clients, sites.at_helpers = at_clients, at_helpers
        sums = [
            sites.sum(
                bytes(len(bench.context)) if one.other_learner else bench.context,
                (TARGET,) * one.of_target + tuple(party for place in one.groups for party in groups[place]),
                lost=TARGET if one.loses_target else None,
            )
            for one in totals
        ]
    released = [one.result.total for one in sums if one.result is not None]
    if len(released) < len(sums):
        return False
    times = sum(one.counts * (one.of_target and not one.loses_target) for one in totals)
    found = sum(one.counts * total for one, total in zip(totals, released, strict=True))
    return np.array_equal(found, times * sums[0].inputs[TARGET])


class _Sites:
    """Parties that keep their identities and query logs over several sums."""

    def __init__(self, *, bench: Bench, mode: Mode, cohort: Cohort, folder: Path, stack: ExitStack) -> None:
        self._bench, self._mode, self._cohort, self._folder, self._stack = bench, mode, cohort, folder, stack
        self.at_clients = self.at_helpers = True
        self._identity_of, self._logs = lru_cache(maxsize=None)(fresh_identity), dict[PartyId, QueryLog]()

    def sum(self, context: bytes, clients: tuple[PartyId, ...], *, lost: PartyId | None) -> RecordedSum:
        """Return one sum of some clients, in which the server loses a vector that it saw."""
        bench = self._bench
        parties = bench.parties(self._mode, clients, identity_of=self._identity_of, context=context)
        secrets = {
            party: self._remembering(parties, party, own) if party in {*clients, *parties.helpers} else own
            for party, own in parties.secrets.items()
        }
        return record_sum(
            replace(parties, secrets=secrets),
            bench.vectors({party: self._cohort[party] for party in clients}),
            network=None if lost is None else Overlooked(lost),
            entropy=bench.entropy,
        )

    def _remembering(self, parties: InOneProcess, party: PartyId, own: PartySecrets) -> PartySecrets:
        log, protocol = self._log(party), parties.protocol
        if party not in self._cohort:
            return replace(own, consent=log.consent_to_help) if self.at_helpers else own
        if not (self.at_clients or self.at_helpers):
            return own
        log.note(protocol, self._bench.population.rows(self._cohort[party]))
        known = partial(log.rows_of, protocol) if parties.helpers else None
        return replace(own, consent=log.consent if self.at_clients else None, data_fingerprint=known)

    def _log(self, party: PartyId) -> QueryLog:
        if party not in self._logs:
            folder = SessionStore(self._folder / str(party))
            self._stack.enter_context(folder.locked())
            self._logs[party] = QueryLog(folder, policy=ClientPolicy(modes=frozenset({self._mode.name})))
        return self._logs[party]


ATTACK = QueryLogDifferencing()
