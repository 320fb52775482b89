"""What further totals of the same rows show: against sites that keep journals, after a removal, of folds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from analytic.afl import AFL
from analytic.errors import SpecificationError
from analytic.selection import RidgeCV
from analytic_secagg.modes import Mode, fresh_identity
from analytic_secagg.site.query_log import QueryLog
from analytic_secagg.site.store import SessionStore
from secagg import ClientPolicy, InOneProcess, PartyId
from secagg.layout import IntVector
from secagg.sums import PartySecrets
from simulations.audit.attack import (
    PROBE,
    VICTIM,
    Attack,
    Expectation,
    NotTriedError,
    Outcome,
    TooLargeError,
    in_the_clear,
    score_rows,
)
from simulations.audit.attacks.rows import rebuild
from simulations.audit.evaluate import Score
from simulations.audit.population import Indices
from simulations.audit.view import Overlooked, Reading, RecordedSum, record_sum
from simulations.audit.workbench import Bench, Cohort

COHORT, NEVER = 5, 1e-12

LEAVING, FOLDS, FOLDS_TRIED = 2, 5, 2


class JournalDifferencing(Attack):
    """A server that calls the target lost in a second sum of the same rows, against sites that remember the first."""

    name = "journal_differencing"
    title = "One client, from two totals that differ by it, where sites keep journals"
    explanation = (
        "The server makes a sum, and a further one of the same rows in which it calls the target lost, once of the "
        "same learner and once of another. All sites sign and keep journals; once, where clients are gone by then, "
        "helpers alone do. Success: the difference of both totals is the target's vector, every number exact. Chance: "
        "none."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Where a message hides something, journals must hide what totals would show."""
        return None if mode is None or in_the_clear(mode) else Expectation.HIDDEN

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """A cohort each for the same learner, for another one, and where helpers alone keep journals."""
        assert mode is not None
        scores = []
        plans = [(bench.context, True), (bytes(len(bench.context)), True)]
        if mode.helper and not mode.guarantee(PROBE).messages_after_vector:  # else clients see survivors, and decide
            plans.append((bench.context, False))
        for context, at_clients in plans:
            cohort = bench.cohort(COHORT)
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


class _Sites:
    """Parties that keep their identities and journals over several sums."""

    def __init__(self, *, bench: Bench, mode: Mode, cohort: Cohort, folder: Path, stack: ExitStack) -> None:
        self._bench, self._mode, self._cohort, self._folder, self._stack = bench, mode, cohort, folder, stack
        self.at_clients = True
        self._identity_of, self._journals = lru_cache(maxsize=None)(fresh_identity), dict[PartyId, QueryLog]()

    def sum(self, context: bytes, *, lost: PartyId | None = None) -> RecordedSum:
        """One sum, in which the server loses a vector that it saw."""
        bench, clients = self._bench, tuple(self._cohort)
        parties = bench.parties(self._mode, clients, identity_of=self._identity_of, context=context)
        secrets = {
            party: self._remembering(parties, party, own) if party in {*clients, *parties.helpers} else own
            for party, own in parties.secrets.items()
        }
        return record_sum(
            replace(parties, secrets=secrets),
            bench.vectors(self._cohort),
            network=None if lost is None else Overlooked(lost),
            entropy=bench.entropy,
        )

    def _remembering(self, parties: InOneProcess, party: PartyId, own: PartySecrets) -> PartySecrets:
        journal, protocol = self._journal(party), parties.protocol
        if party not in self._cohort:
            return replace(own, consent=journal.consent_to_help)
        journal.note(protocol, self._bench.population.rows(self._cohort[party]))
        known = partial(journal.rows_of, protocol) if parties.helpers else None
        return replace(own, consent=journal.consent if self.at_clients else None, data_fingerprint=known)

    def _journal(self, party: PartyId) -> QueryLog:
        if party not in self._journals:
            folder = SessionStore(self._folder / str(party))
            self._stack.enter_context(folder.locked())
            self._journals[party] = QueryLog(folder, policy=ClientPolicy(modes=frozenset({self._mode.name})))
        return self._journals[party]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """Exact statistics that totals show of a part of the rows."""

    reading: Reading
    indices: Indices
    vector: IntVector


class _OfParts(Attack):
    """An attack that rebuilds rows from what totals show of a part of them; nothing is promised of totals."""

    def expected(self, mode: Mode | None) -> Expectation | None:
        """It is about totals alone."""
        return Expectation.OPEN if mode is None else None

    def parts(self, bench: Bench, cohort: Cohort) -> Iterator[_Part]:
        """The parts of one cohort's rows."""
        raise NotImplementedError

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack the parts of the cohorts whose totals the others attack."""
        scores, too_large = list[Score](), list[TooLargeError]()
        for cohort, _ in bench.runs(bench.totals_of):
            for part in self.parts(bench, cohort):
                try:
                    guess = rebuild(part.reading)
                except TooLargeError as error:
                    too_large.append(error)
                    continue
                scores.append(score_rows(guess, bench.truth(part.indices, part.vector), bench.rng))
        score = Score.pooled(scores)
        if too_large and not score.leaked:
            raise TooLargeError(f"{self.title}: {too_large[0]}")
        return Outcome(score=score)


class Removal(_OfParts):
    """Clients leave: the total before, less the one after, is theirs."""

    name = "removal"
    title = "The rows of clients that leave, from the totals before and after"
    explanation = (
        f"{LEAVING} clients of a cohort leave, and their statistics come off the total. Whoever has both totals has "
        "theirs, and looks for their rows as in any small total. Success: a row, every entry and its label. Chance: "
        "naming a row out of the pool."
    )

    def parts(self, bench: Bench, cohort: Cohort) -> Iterator[_Part]:
        """Those that leave."""
        vectors = bench.vectors(cohort)
        leaving = list(cohort)[-LEAVING:]
        before = np.sum(list(vectors.values()), axis=0)
        after = np.sum([vector for party, vector in vectors.items() if party not in leaving], axis=0)
        indices = np.concatenate([cohort[party] for party in leaving])
        yield _Part(reading=Reading.of(bench.layout, before - after), indices=indices, vector=before - after)


class Folds(_OfParts):
    """A ridge is chosen from one total for each fold: each is a total of fewer rows."""

    name = "folds"
    title = "The rows of a fold, where a ridge is chosen by cross-validation"
    explanation = (
        f"A ridge that is chosen by cross-validation takes a total of each of {FOLDS} folds. With a fifth of the rows "
        "a total has fewer rows than features sooner, and its rows come out. Success: a row, every entry and its "
        "label. Chance: naming a row out of the pool."
    )

    def parts(self, bench: Bench, cohort: Cohort) -> Iterator[_Part]:
        """The first folds of a cohort, by the public rule that deals rows to them."""
        if not isinstance(bench.learner, AFL):
            raise NotTriedError(f"{self.title}: {bench.learner.name} chooses no ridge so")
        try:
            selection = RidgeCV(n_folds=FOLDS)
            selection.check(bench.learner)
        except SpecificationError as error:
            raise NotTriedError(f"{self.title}: {error}") from error
        indices = np.concatenate(list(cohort.values()))
        place = selection.deal(bench.population.rows(indices), bench.learner)
        for fold in range(FOLDS_TRIED):
            own = indices[place == fold]
            vector = bench.vector(own)
            yield _Part(reading=Reading.of(bench.layout, vector), indices=own, vector=vector)
