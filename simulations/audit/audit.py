"""The audit: what each attacker learns from each thing that a federation shows, by a rule that was fixed before."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from analytic.errors import AnalyticError, SpecificationError
from analytic.row_format import RowFormat
from analytic_secagg.audit_plan import SignedPlan
from analytic_secagg.code_version import code_version
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import FederationError, UsageError
from analytic_secagg.learners import LearnerSettings
from analytic_secagg.modes import MODES, Mode
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.release import Concern, ReleasePolicy, ReleaseRefusedError
from analytic_secagg.size import WORTH_SAYING, gram_columns, in_words, refuse_too_large, seconds
from secagg.dp import PrivacyError
from secagg.errors import SecureSumError
from simulations.audit.attack import (
    MASKED,
    Attack,
    Expectation,
    ExposureAttack,
    Limit,
    NotTriedError,
    TooLargeError,
    in_the_clear,
)
from simulations.audit.catalogue import ATTACKS, find_attack
from simulations.audit.columns import Column, has_many_sums
from simulations.audit.decide import ExposureRecord, Result, Rule, decided
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Kind
from simulations.audit.finished_run import FinishedRun, with_others
from simulations.audit.population import Population
from simulations.audit.record import AttackRecord, Audit, CheckRecord
from simulations.audit.settings import AuditSettings, SettingsRecord, absent_modes
from simulations.audit.two_worlds import two_worlds
from simulations.audit.workbench import Bench, give_memory_back, named, reference_bench
from simulations.processes import processes
from simulations.report.document import DatasetRecord

TOY_FEATURES, TOY_CLIENTS = 6, 5
"""Of the runs with and without one person."""

LEAST_MESSAGES = 30
"""Of a mode that are attacked: fewer would show too little, and in the clear as many are enough."""

CONTROL_CLIENTS, CONTROL_TOTALS = 2, 4
"""Clients of the totals and models in which attacks on them must win, since few show most; and how many are made, until
one has won."""

OUTLYING, MOST_TOTALS = 60, 20
"""Least rows of the outermost tenth behind a number about them; most totals, or models, that are made to have them."""


ESTIMATE = "estimate:"
"""The beginning of what is told of an audit's time."""

Tick = Callable[[str], None]


def audit(
    dataset: Dataset,
    settings: AuditSettings,
    tick: Tick = lambda what: None,
    *,
    plan: SignedPlan | None = None,
    run: FinishedRun | None = None,
    jobs: int = 1,
) -> Audit:
    """Run everything that was asked for.

    Args:
        dataset: real rows.
        settings: what to audit.
        tick: told what comes next, and before what takes long an estimate.
        plan: what the report is made for; None for no plan.
        run: a finished run, whose own totals and model are attacked in place of rehearsed ones; messages are
            rehearsed in its mode and at its cohort's size. The data set then has the rows of one owner: those of
            training are in the run, those of testing are not.
        jobs: how many parts are played at the same time, in processes of their own where that is more than one; what
            is found follows from seeds and names in the same way.

    Raises:
        UsageError: more clients and rows than the data have, more columns than there is memory for, or a plan that is
            about another audit.
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: as their packages say.
    """
    started = time.perf_counter()
    rehearsal = _prepared(dataset, settings, run, tick=tick, plan=plan)
    if jobs == 1:
        rehearsal.run(lambda parts: map(rehearsal.played, parts))
    else:
        with processes(jobs, _begin_worker, dataset, settings, run, what="a part of the audit") as submit:

            def played(parts: Sequence[Part]) -> Iterator[Found]:
                for part, found in [(part, submit(_played_in_worker, part)) for part in parts]:
                    tick(str(part))
                    yield found.result()

            rehearsal.run(played)
    report = rehearsal.report
    report.limitations += (*absent_modes(rehearsal.settings), *LIMITATIONS)
    report.seconds = round(time.perf_counter() - started, 1)
    return report


_HELD: list[_Rehearsal] = []
"""In a worker: the audit that its parts are of."""


def _begin_worker(dataset: Dataset, settings: AuditSettings, run: FinishedRun | None) -> None:
    _HELD.append(_prepared(dataset, settings, run))


def _played_in_worker(part: Part) -> Found:
    return _HELD[0].played(part)


def _prepared(
    dataset: Dataset,
    settings: AuditSettings,
    run: FinishedRun | None,
    *,
    tick: Tick = lambda what: None,
    plan: SignedPlan | None = None,
) -> _Rehearsal:
    """Check what was asked for, and make what every part needs: rows, learner and an empty report."""
    settings = settings.spelled_out(dataset)
    rehearsed = settings.sized(dataset)
    if run is not None:
        rehearsed = with_others(dataset)
        settings = _as_in(run, rehearsed, settings)
    rng = np.random.default_rng(settings.seed)
    feature_format = settings.format_for(dataset)
    stated = SettingsRecord.of(settings, feature_format)
    if run is not None:
        stated = stated.model_copy(update={"learner": run.learner.name})
    code, document = code_version(), stated.to_document() | {"rule": settings.rule.to_document()}
    if other := [] if plan is None else [*plan.differences(code=code, data_sha256=dataset.sha256, settings=document)]:
        raise UsageError(f"this audit must be the one of its plan: {'; '.join(other)}")
    population = Population.of(rehearsed, named(rng, "rows"))
    population.deal(settings.clients, settings.rows_per_client, np.random.default_rng(settings.seed))  # or refuse
    tick("rows")
    learner = (
        settings.learner.build(_learner_settings(dataset, settings, feature_format, len(population.candidates)))
        if run is None
        else run.learner
    )
    for mode in settings.tried_modes:
        refuse_too_large(learner, mode, settings.clients)
    if (least := seconds(learner)) > WORTH_SAYING:
        tick(f"{ESTIMATE} at least {in_words(least)} on one core, for {gram_columns(learner)} columns")
    enough = math.ceil(LEAST_MESSAGES / settings.clients)
    bench = Bench.of(
        learner,
        population,
        feature_format=feature_format,
        rows_per_client=settings.rows_per_client,
        rng=rng,
        clients=settings.clients,
        sessions=max(enough, settings.sessions),
    )
    attacks = [attack for name, attack in ATTACKS.items() if name in settings.attacks]
    attacks += map(find_attack, sorted(settings.attacks - ATTACKS.keys()))
    report = Audit(
        plan_sha256=None if plan is None else plan.sha256,
        dataset=DatasetRecord.of(dataset),
        notes=rehearsed.notes,
        sites=None if dataset.sites is None else dataset.sites.column,
        settings=stated,
        run=None if run is None else run.record,
        rule=settings.rule,
        attacks=tuple(map(AttackRecord.model_validate, attacks)),
    )
    return _Rehearsal(
        report=report,
        bench=bench,
        clear=replace(bench, sessions=enough),
        attacks=attacks,
        settings=settings,
        tick=tick,
        own=dataset,
        finished=run,
    )


def _as_in(run: FinishedRun, dataset: Dataset, settings: AuditSettings) -> AuditSettings:
    """Return settings that rehearse messages as the run had them: its mode, its cohort, as many rows as there are."""
    clients = run.record.survivors
    rows = min(settings.rows_per_client, max(2, len(dataset.x_train) // (2 * clients)))
    modes = tuple(dict.fromkeys((MODES["plain"], run.mode)))
    return replace(settings, modes=modes, clients=clients, rows_per_client=rows, cohorts=(), epsilon=())


def _learner_settings(
    dataset: Dataset, settings: AuditSettings, feature_format: RowFormat, max_rows: int
) -> LearnerSettings:
    return LearnerSettings(
        n_features=dataset.n_features,
        n_classes=dataset.n_classes,
        feature_format=feature_format,
        max_rows=max(max_rows, len(dataset.x_test)),
        max_clients=max(settings.clients, *settings.cohorts, 100),
    )


class PartKind(StrEnum):
    """What a part of an audit does, in the words that tell of its progress."""

    MESSAGES = "messages of the mode"
    SEEN = "attacks on the"
    OWN_TOTALS = "attacks on totals of their own"
    NOISE = "noise, with and without one person, of epsilon"
    CONTROL = "positive control of"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an audit that needs no other: all messages of a mode, all attacks on a total, a control.

    Args:
        kind: what it does.
        name: of a mode, a column or an attack; or epsilon.
    """

    kind: PartKind
    name: Any = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


@dataclass(frozen=True, slots=True)
class Found:
    """What a part found: lists of a report, and of a positive control whether the attack won."""

    report: Audit
    works: bool


FOUND = ("exposures", "results", "checks", "two_worlds", "failures", "limitations")
SAID_ONCE = ("exposures", "limitations")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rehearsal:
    """One audit under way: it makes the exposures and fills the report.

    Args:
        report: what is filled.
        bench: rows and learner, and the protected sums whose messages are attacked.
        clear: the same rows, and the sums in the clear.
        attacks: those that were chosen.
        settings: what to audit.
        tick: told what comes next.
        own: the rows that were given.
        finished: the run that is audited; None where totals and models are rehearsed.
        columns: totals and models that are still to be attacked, and their rules, by name; made when first asked for.
    """

    report: Audit
    bench: Bench
    clear: Bench
    attacks: list[Attack]
    settings: AuditSettings
    tick: Tick
    own: Dataset
    finished: FinishedRun | None = None
    columns: dict[str, tuple[Column, Rule]] = field(default_factory=dict)

    def run(self, played: Callable[[Sequence[Part]], Iterable[Found]]) -> None:
        """Attack messages, totals and models, test the noise, make sure that the attacks work, and decide.

        Args:
            played: plays parts, here or elsewhere, and returns what each found, in their order.
        """
        for found in played(self._parts()):
            self._take(found.report)
        working = self._working_in_the_clear()
        controls = [Part(PartKind.CONTROL, name) for name in self._deciding() if not working.get(name)]
        for part, found in zip(controls, played(controls), strict=True):
            self._take(found.report)
            working[part.name] = found.works
        self.report.results = decided(self.report.results, self.report.rule, working)
        self.report.attacks = tuple(
            one.model_copy(update={"works": working.get(one.name)}) for one in self.report.attacks
        )

    def _parts(self) -> list[Part]:
        messages = [Part(PartKind.MESSAGES, mode.name) for mode in self.settings.tried_modes]
        self._make_columns()
        columns = [Part(PartKind.SEEN, name) for name in self.columns]
        noise = [Part(PartKind.NOISE, epsilon) for epsilon in self.settings.tried_epsilon]
        return [*messages, *columns, Part(PartKind.OWN_TOTALS), *noise]

    def played(self, part: Part) -> Found:
        """Play one part on a report of its own."""
        own = replace(self, report=self.report.model_copy(update={name: [] for name in FOUND}))
        works = own._play(part)
        return Found(own.report, works)

    def _play(self, part: Part) -> bool:
        if part.kind is PartKind.MESSAGES:
            mode = next(mode for mode in self.settings.tried_modes if mode.name == part.name)
            self._messages(mode)
            self.bench.forget(mode)
        elif part.kind is PartKind.SEEN:
            if part.name not in self.columns:  # in a worker, once
                self._make_columns()
            self._seen(*self.columns.pop(part.name))  # and its totals go with it
        elif part.kind is PartKind.OWN_TOTALS:
            self._of_own_totals()
        elif part.kind is PartKind.NOISE:
            self._two_worlds(part.name)
        else:
            return self._wins(next(attack for attack in self.attacks if attack.name == part.name))
        return False

    def _take(self, found: Audit) -> None:
        """Add what a part found, and what several parts say once."""
        for name in FOUND:
            known = getattr(self.report, name)
            known += [one for one in getattr(found, name) if name not in SAID_ONCE or one not in known]

    def _fail(self, what: str, error: Exception) -> None:
        """Note that a part of the audit failed, in words that hold no row: of errors of other code their kind alone."""
        own = isinstance(error, (SecureSumError, AnalyticError, FederationError, NotTriedError))
        why = str(error) if own else f"{type(error).__name__} in the code of the mode, the learner or the attack"
        self.report.failures.append(f"{what}: {why}")

    def _begin(self, what: str) -> None:
        give_memory_back()
        self.tick(what)

    def _messages(self, mode: Mode) -> None:
        """Play every attack that applies to a mode's messages."""
        bench, settings = self.clear if in_the_clear(mode) else self.bench, self.settings
        exposure = ExposureRecord(
            name=mode.name,
            kind=Kind.MESSAGE,
            clients=settings.clients,
            rows=settings.rows_per_client,
            exposed_by=_who_exposes(mode, settings.clients),
        )
        for attack in self.attacks:
            if (expectation := attack.expected(mode)) is not None:
                self._begin(f"{mode.name} messages: {attack.name}")
                play = partial(attack.play, bench.named(mode.name, attack.name), mode, settings.trials)
                self._add(attack, _rule_of(expectation, mode), exposure, play)

    def _make_columns(self) -> None:
        self.columns.update((column.name, (column, rule)) for column, rule in self._columns())

    def _columns(self) -> Iterator[tuple[Column, Rule]]:
        """Yield totals, models, and totals with noise, or those of a finished run.

        Of the owner's cohort first, whole and with as many clients lost as may be: either may be what a run releases.
        """
        if self.finished is not None:
            for column in self.finished.columns(self.own, self.bench.feature_format, self.bench.rng):
                yield column, Rule.MAY_BE_SEEN
            return
        own = {self.settings.clients, self._fewest()}
        kinds = [Kind.TOTAL, *([Kind.TOTALS] if has_many_sums(self.bench) else []), Kind.MODEL]
        for clients in dict.fromkeys((*sorted(own, reverse=True), *self.settings.cohorts)):
            rule = Rule.MAY_BE_SEEN if clients in own else Rule.COMPARISON
            for kind in kinds:
                yield Column(kind=kind, bench=self.bench.named(kind, clients), clients=clients), rule
        for epsilon in self.settings.tried_epsilon:
            if (noisy := self._noisy_column(epsilon)) is not None:
                yield noisy, Rule.MAY_BE_SEEN

    def _fewest(self) -> int:
        """Return how many clients are left at least in a total that a protected mode releases of the owner's cohort."""
        clients = tuple(range(1, self.settings.clients + 1))
        stated = [mode.guarantee(clients) for mode in self.settings.tried_modes]
        return min((one.min_survivors for one in stated if not one.plaintext_upload), default=len(clients))

    def _noisy_column(self, epsilon: float) -> Column | None:
        clients = self.settings.clients
        promised = MASKED.guarantee(tuple(range(1, clients + 1))).min_survivors
        plan = PrivacyPlan(
            epsilon=epsilon,
            min_noise_shares=promised,
            colluders=1,
            nonnegative=self.bench.population.dataset.is_nonnegative,
        )
        try:
            form = plan.apply(self.bench.learner)
        except NO_NOISE as error:
            self.report.limitations.append(f"totals with noise: {error}")
            return None
        bench = self.bench.under(form.learner).named(Kind.NOISY_TOTAL, epsilon)
        return Column(kind=Kind.NOISY_TOTAL, bench=bench, clients=clients, form=form)

    def _seen(self, column: Column, rule: Rule) -> None:
        """Play every attack that reads this kind of exposure, and ask a server's disclosure checks about it."""
        readers = [one for one in self.attacks if isinstance(one, ExposureAttack) and column.kind in one.sees]
        if not readers:
            return
        try:
            exposure = ExposureRecord(name=column.name, kind=column.kind, clients=column.clients, rows=column.rows)
        except UsageError as error:
            self.report.limitations.append(f"{column.name}: {error}")
            return
        except FAILURES as error:
            self._fail(column.name, error)
            return
        for attack in readers:
            self._begin(f"{column.name}: {attack.name}")
            self._add(attack, rule, exposure, partial(_against, attack, column.named(attack.name)))
        if column.kind is Kind.TOTAL:
            self.report.checks.append(_checked(column))

    def _of_own_totals(self) -> None:
        """Play the attacks that make totals of their own, such as those under a crafted map, or means."""
        clients, rows = self.settings.clients, self.settings.rows_per_client
        for attack in self.attacks:
            if not isinstance(attack, ExposureAttack) and (expectation := attack.expected(None)) is not None:
                self._begin(f"totals: {attack.name}")
                name = attack.made.format(clients=clients)
                exposure = ExposureRecord(name=name, kind=Kind.TOTALS, clients=clients, rows=clients * rows)
                play = partial(attack.play, self.bench.named(attack.name), None, self.settings.trials)
                self._add(attack, _rule_of(expectation, None), exposure, play)

    def _working_in_the_clear(self) -> dict[str, bool]:
        """Return whether attacks won over messages in the clear."""
        results = self.report.results
        return {one.attack: one.score.leaked for one in results if one.rule is Rule.CONTROL and one.score}

    def _deciding(self) -> list[str]:
        """Return the attacks that decide something, each of which must win where nothing protects."""
        deciding = {one.attack for one in self.report.results if one.rule in (Rule.MUST_HIDE, Rule.MAY_BE_SEEN)}
        return [attack.name for attack in self.attacks if attack.name in deciding]

    def _wins(self, attack: Attack) -> bool:
        """Whether an attack wins over reference rows, of which every attack wins something.

        Whether one wins on the owner's rows depends on these, and shows in its results.
        """
        self._begin(f"positive control: {attack.name}")
        try:
            control = self._control(attack, reference_bench().named(attack.name))
        except (NotTriedError, *FAILURES) as error:
            self._fail(f"positive control of {attack.name}", error)
            return False
        return control is not None and control.leaked

    def _control(self, attack: Attack, bench: Bench) -> Score | None:
        """Attack where nothing protects: the attack's own control, messages in the clear, or a total of two clients."""
        plain, trials = MODES["plain"], self.settings.trials
        if (control := attack.control(bench, trials)) is not None:
            return control
        if attack.expected(plain) is Expectation.LEAKS:
            return attack.play(bench, plain, trials)
        if isinstance(attack, ExposureAttack) and (kinds := attack.sees - {Kind.MESSAGE}):
            kind = Kind.TOTAL if Kind.TOTAL in kinds else min(kinds)
            columns = (Column(kind=kind, bench=bench, clients=CONTROL_CLIENTS) for _ in range(CONTROL_TOTALS))
            targets = (target for column in columns for target in attack.targets(column))
            return attack.against(targets, bench.rng, until_won=True)
        return None

    def _add(self, attack: Attack, rule: Rule, exposure: ExposureRecord, play: Callable[[], Score]) -> None:
        """Play one attack and note what it comes to."""
        score, reason = None, ""
        try:
            score = play()
        except (NotTriedError, UsageError) as error:
            words = f"{attack.title}: {error}" if isinstance(error, UsageError) else f"{exposure.name}: {error}"
            if words not in self.report.limitations:
                self.report.limitations.append(words)
            if not isinstance(error, TooLargeError):
                return
            reason = str(error)
        except FAILURES as error:
            self._fail(f"{exposure.name}, {attack.name}", error)
            reason = "it failed"
        limit = attack.limit if exposure.kind != Kind.MESSAGE else None
        if exposure not in self.report.exposures:
            self.report.exposures.append(exposure)
        self.report.results.append(
            Result(
                attack=attack.name,
                exposure=exposure.name,
                rule=rule,
                limit_name="" if limit is None else limit.value,
                limit=self.report.rule.limit_of(limit),
                score=score,
                reason=reason,
            )
        )

    def _two_worlds(self, epsilon: float) -> None:
        """Run the audited learner many times at a toy size, with and without one person."""
        self._begin(f"noise: with and without one person, epsilon {epsilon:g}")
        toy = LearnerSettings(
            n_features=TOY_FEATURES,
            n_classes=2,
            feature_format=RowFormat(integer_bits=1, fraction_bits=16),
            max_rows=8 * TOY_CLIENTS,
            max_clients=TOY_CLIENTS,
        )
        promised = MASKED.guarantee(tuple(range(1, TOY_CLIENTS + 1))).min_survivors
        plan = PrivacyPlan(epsilon=epsilon, min_noise_shares=promised, colluders=1)
        try:
            learner = self.settings.learner.build(toy)
            rng, runs = named(self.bench.rng, "two worlds", epsilon), self.settings.two_world_runs
            found = two_worlds(learner, plan, rng, n_clients=TOY_CLIENTS, runs=runs)
        except NO_NOISE as error:
            self.report.limitations.append(f"noise, with and without one person: {error}")
            return
        except FAILURES as error:
            self._fail("noise, with and without one person", error)
            return
        self.report.two_worlds.append(found)


def _against(attack: ExposureAttack[Any], column: Column) -> Score:
    """Attack a column, and further totals of other cohorts until there is enough to look for.

    That is, enough outlying rows; or, where the first one had nothing, anything, such as a class of one row.
    """
    score = attack.against(attack.targets(column), column.bench.rng)
    if not column.is_repeatable:
        return score
    further = (column.target(column.cohort()) for _ in range(MOST_TOTALS - 1))
    if attack.limit is Limit.MEMBERSHIP:
        times = min(MOST_TOTALS, math.ceil(OUTLYING / max(1, min(map(len, score.outlying)))))
        score = Score.pooled((score, attack.against(islice(further, times - 1), column.bench.rng)))
    elif attack.limit is Limit.REBUILT_ROWS and column.kind is Kind.TOTAL:
        while not score.trials and (target := next(further, None)):
            score = attack.against([target], column.bench.rng)
    return score


NO_NOISE = (PrivacyError, FederationError, SpecificationError)
"""Errors of a learner that has no private form: it makes no claim about noise."""

FAILURES = (
    SecureSumError,
    AnalyticError,
    FederationError,
    ArithmeticError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Errors of a mode, a learner or an attack, a stranger's too, which end one result and not the report."""


def _rule_of(expectation: Expectation, mode: Mode | None) -> Rule:
    if expectation is Expectation.HIDDEN:
        return Rule.MUST_HIDE
    in_clear = mode is not None and in_the_clear(mode)
    return Rule.CONTROL if expectation is Expectation.LEAKS and in_clear else Rule.KNOWN


def _who_exposes(mode: Mode, clients: int) -> str:
    """Say who opens a client's message of a cohort together, by the protocol's own statement."""
    guarantee = mode.guarantee(tuple(range(1, clients + 1)))
    if guarantee.plaintext_upload:
        return "the server alone"
    helpers, who = len(guarantee.reconstruction_helpers), ["the server"]
    if guarantee.client_reconstruction_threshold:
        who.append(f"{guarantee.client_reconstruction_threshold} of {clients} clients")
    if mode.helper is not None and helpers:
        needed = guarantee.helper_reconstruction_threshold or helpers
        who.append(f"the {mode.helper.name}" if helpers == 1 else f"{needed} of {helpers} {mode.helper.name}s")
    return " and ".join(who)


def _checked(column: Column) -> CheckRecord:
    """Ask the release policy that a server has by default about a total."""
    seen, _, _ = column.standard
    vector, bench = seen.read(), column.bench
    assert vector is not None
    total = bench.spec.from_vector(vector)
    statistics = bench.learner.exact_total(bench.model, total, column.clients)
    try:
        concerns: tuple[Concern, ...] = ReleasePolicy().before_release(statistics, range(1, column.clients + 1))
        refused = False
    except ReleaseRefusedError as error:
        concerns, refused = error.concerns, True
    found = tuple(f"{one.gate.value}: {one.message}" for one in concerns)
    return CheckRecord(exposure=column.name, refused=refused, findings=found)


LIMITATIONS = (
    "the computers themselves: timing, memory, swap, logs, backups, or anybody who can read a client's disk",
    "transport: the in-memory network has none; in a deployment TLS must keep wire-tappers out",
    "active attacks beyond a server that hands out different models: see the tests of the protocols for those",
    "attackers who know more than each line grants them, or who use better statistics: results are about these attacks",
    "sums without a Gram matrix, such as gradients of later rounds and counts: no attack here reads them",
    "whether the pseudorandom generator is one: that is the assumption of the proof, and no test can show it",
    "rows that sites made up: an attacker who is a site itself may put in rows of its choice",
)
