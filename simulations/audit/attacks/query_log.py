"""Attacks by further totals of the same rows, against sites that keep query logs."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
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
    VICTIM,
    Attack,
    Expectation,
    Outcome,
    in_the_clear,
)
from simulations.audit.evaluate import Score
from simulations.audit.view import Overlooked, RecordedSum, record_sum
from simulations.audit.workbench import Bench, Cohort

COHORT, NEVER = 5, 1e-12

COHORTS, FEW_ROWS = 3, 8
"""How many cohorts are tried, and rows of a client of them, so that small data sets have enough."""

GROUP = 4
"""Clients of each group that a total is made with: more than a site's policy asks that totals differ by."""


class _AgainstQueryLogs(Attack):
    """An attack on further totals, against sites that remember the earlier ones."""

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return that query logs must hide what totals would show, wherever a message hides something."""
        return None if mode is None or in_the_clear(mode) else Expectation.HIDDEN


class QueryLogDifferencing(_AgainstQueryLogs):
    """A server that calls the target lost in a second sum of the same rows, against sites that remember the first."""

    name = "query_log_differencing"
    former_name = "journal_differencing"
    title = "One client, from two totals that differ by it, where sites keep query logs"
    explanation = (
        "The server makes a sum, and a further one of the same rows in which it calls the target lost, once of the "
        "same learner and once of another. All sites sign and keep query logs; once, where clients are gone by then, "
        "helpers alone do. Success: the difference of both totals is the target's vector, every number exact. Chance: "
        "none."
    )

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack a cohort each for the same learner, for another one, and where helpers alone keep query logs."""
        assert mode is not None
        scores = []
        plans = [(bench.context, True), (bytes(len(bench.context)), True)] * 2
        if mode.helper and not mode.guarantee(PROBE).messages_after_vector:  # else clients see survivors, and decide
            plans.append((bench.context, False))
        for context, at_clients in plans:
            cohort = bench.cohort(COHORT, FEW_ROWS)
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="audit-")))
                sites = _Sites(bench=bench, mode=mode, cohort=cohort, folder=folder, stack=stack)
                sites.at_clients = at_clients
                first, second = sites.sum(bench.context), sites.sum(context, lost=VICTIM)
            hit = False
            if first.result is not None and second.result is not None:
                hit = np.array_equal(first.result.total - second.result.total, first.inputs[VICTIM])
            scores.append(Score(hits=int(hit), trials=1, chance=NEVER))
        return Outcome(score=Score.pooled(scores))


class SeveralTotals(_AgainstQueryLogs):
    """A server that makes three totals of three groups of clients, the target alone in one of the groups."""

    name = "several_totals"
    title = "One client, from three totals of different cohorts, where sites keep query logs"
    explanation = (
        "The target is in two sums, each with another group of clients, and both groups are in a third: the first two "
        "totals less the third are twice the target's vector, though any two of them differ by several clients. All "
        "sites sign and keep query logs. Success: the target's vector, every number exact. Chance: none."
    )

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack several cohorts, each by sums of parts of it."""
        assert mode is not None
        won = [_is_isolated(bench, mode, remember=True) for _ in range(COHORTS)]
        return Outcome(score=Score(hits=sum(won), trials=len(won), chance=NEVER))

    def control(self, bench: Bench, trials: int) -> Score | None:
        """Attack sites that keep no query log."""
        won = [_is_isolated(bench, MASKED, remember=False) for _ in range(2)]
        return Score(hits=sum(won), trials=len(won), chance=NEVER)


def _is_isolated(bench: Bench, mode: Mode, *, remember: bool) -> bool:
    """Return whether three totals of one cohort show the target's vector."""
    cohort = bench.cohort(1 + 2 * GROUP, FEW_ROWS)
    target, first, second = 1, range(2, 2 + GROUP), range(2 + GROUP, 2 + 2 * GROUP)
    cohorts = ((target, *first), (target, *second), (*first, *second))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="audit-")))
        sites = _Sites(bench=bench, mode=mode, cohort=cohort, folder=folder, stack=stack)
        sites.at_clients = sites.at_helpers = remember
        sums = [sites.sum(bench.context, clients=clients) for clients in cohorts]
    totals = [one.result.total for one in sums if one.result is not None]
    return len(totals) == len(sums) and np.array_equal(totals[0] + totals[1] - totals[2], 2 * sums[0].inputs[target])


class _Sites:
    """Parties that keep their identities and query logs over several sums."""

    def __init__(self, *, bench: Bench, mode: Mode, cohort: Cohort, folder: Path, stack: ExitStack) -> None:
        self._bench, self._mode, self._cohort, self._folder, self._stack = bench, mode, cohort, folder, stack
        self.at_clients = self.at_helpers = True
        self._identity_of, self._logs = lru_cache(maxsize=None)(fresh_identity), dict[PartyId, QueryLog]()

    def sum(
        self, context: bytes, *, lost: PartyId | None = None, clients: tuple[PartyId, ...] | None = None
    ) -> RecordedSum:
        """Return one sum, of all clients or some, in which the server loses a vector that it saw."""
        bench, clients = self._bench, clients or tuple(self._cohort)
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


DIFFERENCING, SEVERAL_TOTALS = QueryLogDifferencing(), SeveralTotals()
