"""The audit: what each attacker learns from each thing that a federation shows, by a rule that was fixed before."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from analytic.errors import AnalyticError
from analytic.row_format import RowFormat
from analytic_secagg.audit_plan import SignedPlan
from analytic_secagg.code_version import code_version
from analytic_secagg.console.arguments import budgets, count, items, natural, number, parse_options, whole, wholes
from analytic_secagg.console.declaration import option
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import FederationError, UsageError
from analytic_secagg.learners import LEARNERS, LearnerEntry, LearnerSettings, find_learner
from analytic_secagg.modes import MODES, Mode, choose_modes
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.release import Concern, ReleasePolicy, ReleaseRefusedError
from secagg.config import MAX_CLIENTS
from secagg.dp import PrivacyError
from simulations.audit.attack import (
    MASKED,
    PROBE,
    Attack,
    CoalitionScore,
    Expectation,
    ExposureAttack,
    Limit,
    NotTriedError,
    TooLargeError,
    in_the_clear,
)
from simulations.audit.catalogue import ATTACKS, NAMES, choose_attacks, find_attack
from simulations.audit.columns import Column, has_many_sums
from simulations.audit.decide import DecisionRule, ExposureRecord, Result, Rule, Verdict, decided, verdict_of
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Kind
from simulations.audit.finished_run import FinishedRun, RunColumn, RunRecord, with_others
from simulations.audit.negative_controls import Control, negative_controls
from simulations.audit.noisy_totals import NoiseEvidence, noise_evidence
from simulations.audit.population import MAX_CANDIDATES, Population
from simulations.audit.two_worlds import Outcome as EpsilonOutcome
from simulations.audit.two_worlds import TwoWorlds, two_worlds
from simulations.audit.workbench import Bench, give_memory_back
from simulations.command_line.shared_arguments import format_option
from simulations.report.document import (
    Count,
    DatasetRecord,
    FormatName,
    Natural,
    NotNegative,
    Positive,
    Record,
    Sha256,
    computed,
    versions,
)

DEFAULT_MODES = ("plain", "masked", "bfv")
"""Without protection, with masks, and with encryption; all others cost more time and promise no more."""

MOST_COLLUDERS = 6
"""Of the seven clients of the sum that coalitions are tried on, one is attacked."""

TOY_FEATURES, TOY_CLIENTS = 6, 5
"""Of the runs with and without one person."""

LEAST_MESSAGES = 30
"""Of a mode that are attacked: fewer would show too little, and in the clear as many are enough."""

CONTROL_CLIENTS = 2
"""Of the totals and models in which attacks on them must win: a total of two clients shows most."""

AtLeastTwo = Annotated[int, Field(ge=2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What to audit, as the command line takes it.

    Raises:
        UsageError: a number out of range, or nothing to do.
    """

    learner: LearnerEntry = option(
        f"the closed form, out of {', '.join(LEARNERS)}",
        find_learner,
        default=LEARNERS["afl"],
        metavar="NAME",
        shown="afl",
    )
    modes: tuple[Mode, ...] = option(
        f"out of {', '.join(MODES)}, or all",
        lambda text: choose_modes(None if text == "all" else items(text)),
        default=choose_modes([name for name in DEFAULT_MODES if MODES[name].installed]),
        metavar="MODE,...",
        shown=", ".join(DEFAULT_MODES),
    )
    own: tuple[str, ...] = option(
        "helpers=N or corrupt=F of a mode with helpers; a committee has 4, one of whom may collude, if nothing is said",
        str,
        default=(),
        flag="--option",
        metavar="NAME=VALUE",
        repeated=True,
    )
    attacks: frozenset[str] = option(
        f"out of {', '.join(NAMES)}",
        lambda text: choose_attacks(items(text)),
        default=choose_attacks(None),
        metavar="NAME,...",
        shown="all",
    )
    clients: int = option(
        "clients of your cohort", lambda text: whole(text, at_least=2, at_most=MAX_CLIENTS), default=20
    )
    rows_per_client: int = option(
        "rows of a client, on average",
        lambda text: whole(text, at_least=2, at_most=MAX_CANDIDATES),
        flag="--rows",
        default=40,
    )
    cohorts: tuple[int, ...] = option(
        "further cohort sizes whose totals and models are attacked, for comparison",
        lambda text: wholes(text, at_least=2, at_most=MAX_CLIENTS),
        default=(5,),
        metavar="N,...",
    )
    coalitions: tuple[int, ...] | None = option(
        "numbers of clients that collude with the server of a masked sum, in a cohort of its own of 7 clients, "
        "whatever --clients says",
        lambda text: wholes(text, at_least=0, at_most=MOST_COLLUDERS),
        default=None,
        metavar="T,...",
        shown="all",
    )
    sessions: int = option(
        "cohorts that every attack on a protected message is tried on: more of them notice smaller leaks",
        count,
        default=2,
    )
    trials: int = option("sums made for each attack that needs its own", count, default=5)
    two_world_runs: int = option(
        "small runs with and without one person, for each epsilon: more of them come nearer to the claim",
        lambda text: whole(text, at_least=40, at_most=100_000),
        default=300,
    )
    epsilon: tuple[float, ...] | None = option(
        "try totals with noise for these as well; none leaves them out, as does a choice of --attacks",
        lambda text: () if text == "none" else budgets(text),
        default=None,
        metavar="E,...",
        shown="8",
    )
    limits: tuple[tuple[str, float | None], ...] = option(
        f"how much totals and models may show, as NAME=NUMBER or NAME=none: {', '.join(Limit)}",
        lambda text: _limit(text),
        default=(),
        flag="--limit",
        metavar="NAME=X",
        repeated=True,
        shown="rebuilt_rows=0.01, membership=0.9, attribute=0.2, group_share=none",
    )
    feature_format: RowFormat | None = format_option("all rows")
    seed: int = option(
        "deals rows and tosses coins; keys, masks and noise come from the operating system",
        natural,
        default=0,
    )

    def __post_init__(self) -> None:
        if not self.modes or not self.attacks:
            raise UsageError("an audit needs at least one mode and one attack")
        if not all(math.isfinite(epsilon) and epsilon > 0 for epsilon in self.tried_epsilon):
            raise UsageError(f"an epsilon is a finite number above 0, not {self.epsilon}")
        numbers = (self.clients - 1, self.rows_per_client - 1, self.sessions, self.trials, self.seed + 1)
        if min(numbers) < 1 or min((*self.cohorts, 2)) < 2:
            raise UsageError(
                "an audit needs at least 2 clients a cohort, 2 rows per client, 1 session, 1 trial and a seed >= 0"
            )
        _ = self.tried_modes

    @property
    def tried_epsilon(self) -> tuple[float, ...]:
        """The epsilons that were asked for; 8 if nothing was said and all attacks are tried."""
        if self.epsilon is not None:
            return tuple(sorted(self.epsilon))
        return (8.0,) if self.attacks == choose_attacks(None) else ()

    @property
    def rule(self) -> DecisionRule:
        """The decision rule with the limits that were stated."""
        standard = DecisionRule()
        return standard.model_copy(update={"limits": standard.limits | dict(self.limits)})

    def format_for(self, dataset: Dataset) -> RowFormat:
        """Return the format that was asked for, or one that covers all rows."""
        return self.feature_format or RowFormat.covering(np.concatenate([dataset.x_train, dataset.x_test]))

    @property
    def tried_modes(self) -> tuple[Mode, ...]:
        """The modes with the helpers that were asked for, or those that a deployment should have.

        Raises:
            UsageError: an option that no mode has, or helpers that no committee has.
        """
        given = parse_options(self.own, [mode for mode in self.modes if mode.options])
        chosen = {mode.name: given.get(mode.name) or _as_deployed(mode) for mode in self.modes}
        return tuple(mode.with_options(**chosen[mode.name]) for mode in self.modes)


def _limit(text: str) -> tuple[str, float | None]:
    """Read the limit of one number.

    Raises:
        UsageError: there is no such number, or it is none that can be a limit.
    """
    name, _, value = text.partition("=")
    if name not in {limit.value for limit in Limit}:
        raise UsageError(f"a limit is NAME=NUMBER with a name out of {', '.join(Limit)}, not {text!r}")
    return name, None if value == "none" else number(value, "a number from 0 to 1, or none", lambda one: 0 <= one <= 1)


def _as_deployed(mode: Mode) -> dict[str, int]:
    """Return the fewest helpers that tolerate an unavailable or malicious one, where helpers share a mode's masks."""
    shared = mode.options and mode.guarantee(PROBE).helper_reconstruction_threshold is not None
    return {"helpers": 4, "corrupt": 1} if shared else {}


class SettingsRecord(Record, title="settings"):
    """The settings of an audit."""

    learner: str
    """The closed form: afl, fedhip, deepafl, safle."""
    modes: tuple[str, ...] = Field(min_length=1)
    """Modes audited."""
    own: tuple[str, ...]
    """Options of modes as they were given."""
    clients: AtLeastTwo
    """Clients of a cohort."""
    rows_per_client: AtLeastTwo
    """Mean rows of a client."""
    cohorts: tuple[AtLeastTwo, ...]
    """Further cohort sizes whose totals and models were attacked."""
    coalitions: tuple[Natural, ...] | None
    """Numbers of clients that colluded with the server of a masked sum; null for all."""
    sessions: Count
    """Cohorts that each cell of an attack on a message pools."""
    trials: Count
    """Sums made for each attack that needs its own."""
    format: FormatName
    """Fixed-point format of the features."""
    format_chosen_from_rows: bool
    """Whether the format was chosen by looking at all training rows, which only a simulation can do."""
    epsilon: tuple[Positive, ...]
    """Epsilons of the totals with noise."""
    seed: Natural
    """Seed of who holds which rows and of the attackers' coins."""

    @classmethod
    def of(cls, settings: AuditSettings, feature_format: RowFormat) -> SettingsRecord:
        """State the settings of an audit whose rows have this format."""
        same = {one.name for one in fields(settings)} & cls.model_fields.keys() - {"learner", "modes", "epsilon"}
        return cls(
            learner=settings.learner.name,
            modes=tuple(mode.name for mode in settings.modes),
            format=str(feature_format),
            epsilon=settings.tried_epsilon,
            format_chosen_from_rows=settings.feature_format is None,
            **{name: getattr(settings, name) for name in same},
        )


class AttackRecord(Record, title="attack"):
    """An attack that was chosen."""

    name: str
    """Name on the command line."""
    title: str
    """What is attacked, in words."""
    needs: str
    """What the attacker knows beforehand."""
    unit: str
    """Whom it learns something about: a row, a site or the cohort."""
    limit: str | None
    """The number of a total or a model that is limited; null for none."""


class CodeRecord(Record, title="code"):
    """The code that ran."""

    version: str
    """Version of the installed package."""
    sha256: Sha256
    """Digest of the package's Python files; python -m analytic_secagg doctor prints that of an installation."""


class CheckRecord(Record, title="check"):
    """What the disclosure checks of a server say of a total, if it has the default release policy."""

    exposure: str
    """Which total."""
    refused: bool
    """Whether such a server would not release it."""
    findings: tuple[str, ...]
    """What the checks say, in words."""


class Audit(Record, title="Report of python -m simulations audit", frozen=False):
    """Readers must ignore names that they do not know."""

    kind: Literal["analytic-secagg/audit"] = Field(default="analytic-secagg/audit", serialization_alias="schema")
    """Says what kind of document this is."""
    schema_version: Literal[4] = 4
    """Raised when a name changes its meaning or goes away; new names do not raise it."""
    date: str = Field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    """When it was made."""
    versions: dict[str, str] = Field(default_factory=versions)
    """Versions of Python and of the packages that decide the numbers."""
    code: CodeRecord = Field(default_factory=lambda: CodeRecord.model_validate(code_version()))
    """The installation that made the report."""
    plan_sha256: Sha256 | None = None
    """Digest of the file of the audit plan that it was made for; null for none."""
    dataset: DatasetRecord
    """The rows."""
    settings: SettingsRecord
    """What was audited."""
    run: RunRecord | None = None
    """The finished run whose totals and model were attacked; null where totals and models were rehearsed."""
    rule: DecisionRule
    """How results were judged."""
    attacks: tuple[AttackRecord, ...] = Field(min_length=1)
    """The attacks that were chosen."""
    exposures: list[ExposureRecord] = Field(default=[])
    """What was seen."""
    results: list[Result] = Field(default=[])
    """What each attack learnt from each exposure that it can read."""
    checks: list[CheckRecord] = Field(default=[])
    """What a server's disclosure checks say of each total."""
    coalitions: list[CoalitionScore] = Field(default=[])
    """Who can open a client's message together."""
    controls: list[Control] = Field(default=[])
    """Faults of masks and noise that were planted on purpose."""
    noise: list[NoiseEvidence] = Field(default=[])
    """Totals with noise: claim and evidence."""
    two_worlds: list[TwoWorlds] = Field(default=[])
    """What the best attack comes to, in many small runs with and without one person."""
    limitations: list[str] = Field(default=[], min_length=1)
    """What this report says nothing about."""
    seconds: NotNegative = 0.0
    """Time of the audit."""

    @computed
    def decision(self) -> Verdict:
        """What everything comes to: passed only if nothing failed and nothing is undecided."""
        return verdict_of(
            (one.outcome for one in self.results if one.rule in (Rule.MUST_HIDE, Rule.MAY_BE_SEEN)),
            further=self._further(),
        )

    def _further(self) -> Iterator[Verdict]:
        if any(not one.as_stated for one in self.coalitions) or any(not one.as_expected for one in self.noise):
            yield Verdict.FAILED
        outcomes = {one.outcome for one in self.two_worlds}
        if EpsilonOutcome.REFUTED in outcomes:
            yield Verdict.FAILED
        if not all(one.caught for one in self.controls) or not self.controls or EpsilonOutcome.NOT_DECIDED in outcomes:
            yield Verdict.NOT_DECIDED
        if not any(one.rule is Rule.MUST_HIDE for one in self.results):
            yield Verdict.NOT_DECIDED

    def result(self, attack: str, exposure: str) -> Result | None:
        """Return what an attack learnt from an exposure; None where it cannot read such."""
        found = (one for one in self.results if (one.attack, one.exposure) == (attack, exposure))
        return next(found, None)

    def to_json(self) -> str:
        """Return the report as JSON, a line for each of its parts."""
        document = self.to_document()
        lines = []
        for name, value in document.items():
            if isinstance(value, list) and value:
                text = "[\n" + ",\n".join(_line(one) for one in value) + "\n]"
            else:
                text = _line(value)
            lines.append(f"{json.dumps(name)}: {text}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


def _line(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


Tick = Callable[[str], None]


def audit(
    dataset: Dataset,
    settings: AuditSettings,
    tick: Tick = lambda what: None,
    *,
    plan: SignedPlan | None = None,
    run: FinishedRun | None = None,
) -> Audit:
    """Run everything that was asked for.

    Args:
        dataset: real rows.
        settings: what to audit.
        tick: told what comes next.
        plan: what the report is made for; None for no plan.
        run: a finished run, whose own totals and model are attacked in place of rehearsed ones; messages are
            rehearsed in its mode and at its cohort's size. The data set then has the rows of one owner: those of
            training are in the run, those of testing are not.

    Raises:
        UsageError: more clients and rows than the data have, or a plan that is about another audit.
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: as their packages say.
    """
    started = time.perf_counter()
    rehearsed = dataset
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
    population = Population.of(rehearsed, rng)
    population.deal(settings.clients, settings.rows_per_client, np.random.default_rng(settings.seed))  # or refuse
    tick("rows")
    learner = (
        settings.learner.build(_learner_settings(dataset, settings, feature_format, len(population.candidates)))
        if run is None
        else run.learner
    )
    bench = Bench.of(
        learner,
        population,
        feature_format=feature_format,
        rows_per_client=settings.rows_per_client,
        rng=rng,
        clients=settings.clients,
        sessions=settings.sessions,
        coalitions=settings.coalitions,
    )
    attacks = [attack for name, attack in ATTACKS.items() if name in settings.attacks]
    attacks += map(find_attack, sorted(settings.attacks - ATTACKS.keys()))
    report = Audit(
        plan_sha256=None if plan is None else plan.sha256,
        dataset=DatasetRecord.of(dataset),
        settings=stated,
        run=None if run is None else run.record,
        rule=settings.rule,
        attacks=tuple(map(AttackRecord.model_validate, attacks)),
    )
    _Rehearsal(
        report=report, bench=bench, attacks=attacks, settings=settings, tick=tick, own=dataset, finished=run
    ).run()
    report.limitations += LIMITATIONS
    report.seconds = time.perf_counter() - started
    return report


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rehearsal:
    """One audit under way: it makes the exposures and fills the report."""

    report: Audit
    bench: Bench
    attacks: list[Attack]
    settings: AuditSettings
    tick: Tick
    own: Dataset
    finished: FinishedRun | None = None

    def run(self) -> None:
        """Attack messages, then totals and models, then plant faults, and decide."""
        for mode in self.settings.tried_modes:
            self._messages(mode)
            if mode.name != MASKED.name:
                self.bench.forget(mode)
        working = self._working()
        for column, rule in self._columns():
            self._seen(column, rule)
        self._of_own_totals()
        self._begin("planted faults of masks")
        try:
            self.report.controls += negative_controls(self.bench, max(3, self.settings.trials))
        except UsageError as error:
            self.report.limitations.append(f"planted faults of masks: {error}")
        for control in self.report.controls:
            for name, score in control.scores.items():  # one fault that it notices shows that it works
                working[name] = working.get(name, False) or score.leaked
        self._noise()
        self.report.results = decided(self.report.results, self.report.rule, working)

    def _begin(self, what: str) -> None:
        give_memory_back()
        self.tick(what)

    def _messages(self, mode: Mode) -> None:
        """Every attack that applies to a mode's messages; of one in the clear few cohorts show enough."""
        enough = math.ceil(LEAST_MESSAGES / self.settings.clients)
        bench = replace(self.bench, sessions=enough if in_the_clear(mode) else max(enough, self.bench.sessions))
        for attack in self.attacks:
            expectation = attack.expected(mode)
            if expectation is None:
                continue
            self._begin(f"{mode.name} messages: {attack.name}")
            self._add(
                attack,
                _rule_of(expectation, mode),
                exposure=mode.name,
                kind=Kind.MESSAGE,
                play=partial(attack.play, bench, mode, self.settings.trials),
            )

    def _columns(self) -> Iterator[tuple[Column | RunColumn, Rule]]:
        """Yield totals, models, and totals with noise, of the owner's cohort first; or those of a finished run."""
        if self.finished is not None:
            for column in self.finished.columns(self.own, self.bench.feature_format, self.bench.rng):
                yield column, Rule.MAY_BE_SEEN
            return
        sizes = dict.fromkeys((self.settings.clients, *self.settings.cohorts))
        kinds = [Kind.TOTAL, *([Kind.TOTALS] if has_many_sums(self.bench) else []), Kind.MODEL]
        for clients in sizes:
            rule = Rule.MAY_BE_SEEN if clients == self.settings.clients else Rule.COMPARISON
            for kind in kinds:
                yield Column(kind=kind, bench=self.bench, clients=clients), rule
        for epsilon in self.settings.tried_epsilon:
            if (noisy := self._noisy_column(epsilon)) is not None:
                yield noisy, Rule.MAY_BE_SEEN

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
        except (PrivacyError, FederationError) as error:
            self.report.limitations.append(f"totals with noise: {error}")
            return None
        bench = Bench.of(
            form.learner,
            self.bench.population,
            feature_format=self.bench.feature_format,
            rows_per_client=self.bench.rows_per_client,
            rng=self.bench.rng,
            clients=clients,
            entropy=self.bench.entropy,
        )
        return Column(kind=Kind.NOISY_TOTAL, bench=bench, clients=clients, plan=plan)

    def _seen(self, column: Column | RunColumn, rule: Rule) -> None:
        """Every attack that reads this kind of exposure, and what a server's disclosure checks say of it."""
        readers = [one for one in self.attacks if isinstance(one, ExposureAttack) and column.kind in one.sees]
        if not readers:
            return
        try:
            rows = column.rows
        except UsageError as error:
            self.report.limitations.append(f"{column.name}: {error}")
            return
        for attack in readers:
            self._begin(f"{column.name}: {attack.name}")
            self._add(
                attack,
                rule,
                exposure=column.name,
                kind=column.kind,
                clients=column.clients,
                rows=rows,
                play=partial(_against, attack, column),
            )
        if column.kind is Kind.TOTAL:
            self.report.checks.append(_checked(column))

    def _of_own_totals(self) -> None:
        """Attacks that make totals of their own, such as those under a crafted map."""
        for attack in self.attacks:
            if isinstance(attack, ExposureAttack) or (expectation := attack.expected(None)) is None:
                continue
            self._begin(f"totals: {attack.name}")
            self._add(
                attack,
                _rule_of(expectation, None),
                exposure=f"total of {self.settings.clients} clients under a crafted map",
                kind=Kind.TOTALS,
                rows=self.settings.clients * self.settings.rows_per_client,
                play=partial(attack.play, self.bench, None, self.settings.trials),
            )

    def _working(self) -> dict[str, bool]:
        """Whether each attack wins where nothing protects: over messages in the clear, or the total of two clients.

        Attacks that have no such place have planted faults, or none.
        """
        plain = MODES["plain"]
        alone = replace(self.bench, sessions=1)
        working = {
            one.attack: one.score.leaked for one in self.report.results if one.rule is Rule.CONTROL and one.score
        }
        for attack in self.attacks:
            if attack.name in working:
                continue
            self._begin(f"positive control: {attack.name}")
            try:
                if attack.expected(plain) is Expectation.LEAKS and isinstance(attack, ExposureAttack):
                    working[attack.name] = attack.play(alone, plain, self.settings.trials).score.leaked
                elif (control := attack.control(self.bench, self.settings.trials)) is not None:
                    working[attack.name] = control.leaked
                elif attack.expected(plain) is Expectation.OPEN:
                    continue  # not even there it is sure to win
                elif isinstance(attack, ExposureAttack) and (kinds := attack.sees - {Kind.MESSAGE, Kind.TOTALS}):
                    kind = Kind.TOTAL if Kind.TOTAL in kinds else min(kinds)
                    column = Column(kind=kind, bench=self.bench, clients=CONTROL_CLIENTS)
                    working[attack.name] = attack.against(attack.targets(column), self.bench.rng).leaked
            except (NotTriedError, UsageError):
                continue
        return working

    def _add(
        self,
        attack: Attack,
        rule: Rule,
        *,
        exposure: str,
        kind: Kind,
        play: Callable[[], Any],
        clients: int | None = None,
        rows: int | None = None,
    ) -> None:
        score, reason = None, ""
        try:
            played = play()
        except (NotTriedError, UsageError) as error:
            words = f"{attack.title}: {error}" if isinstance(error, UsageError) else str(error)
            if words not in self.report.limitations:
                self.report.limitations.append(words)
            if not isinstance(error, TooLargeError):
                return
            reason = str(error)
        else:
            score = played if isinstance(played, Score) else played.score
            self.report.coalitions += () if isinstance(played, Score) else played.coalitions
        limit = attack.limit if kind is not Kind.MESSAGE else None
        if exposure not in {one.name for one in self.report.exposures}:
            self.report.exposures.append(
                ExposureRecord(
                    name=exposure,
                    kind=kind.value,
                    clients=self.settings.clients if clients is None else clients,
                    rows=self.settings.rows_per_client if rows is None else rows,
                )
            )
        self.report.results.append(
            Result(
                attack=attack.name,
                exposure=exposure,
                rule=rule,
                limit_name="" if limit is None else limit.value,
                limit=self.report.rule.limit_of(limit),
                score=score,
                reason=reason,
            )
        )

    def _noise(self) -> None:
        if not self.settings.tried_epsilon:
            return
        self._begin("noise: is it what is claimed?")
        hiding = tuple(mode for mode in self.settings.tried_modes if not in_the_clear(mode)) or (MASKED,)
        for one in noise_evidence(self.bench.population, self.settings.tried_epsilon, self.bench.rng, hiding):
            if one.fault:
                fault = Control(name=f"noise: {one.name}", title=one.title, caught=one.as_expected)
                self.report.controls.append(fault)
            else:
                self.report.noise.append(one)
        for epsilon in self.settings.tried_epsilon:
            self._two_worlds(epsilon)

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
            found = two_worlds(learner, plan, self.bench.rng, n_clients=TOY_CLIENTS, runs=self.settings.two_world_runs)
        except (PrivacyError, FederationError, AnalyticError) as error:
            self.report.limitations.append(f"noise, with and without one person: {error}")
            return
        self.report.two_worlds.append(found)


def _against(attack: ExposureAttack[Any], column: Column | RunColumn) -> Score:
    return attack.against(attack.targets(column), column.bench.rng)


def _rule_of(expectation: Expectation, mode: Mode | None) -> Rule:
    if expectation is Expectation.HIDDEN:
        return Rule.MUST_HIDE
    in_clear = mode is not None and in_the_clear(mode)
    return Rule.CONTROL if expectation is Expectation.LEAKS and in_clear else Rule.KNOWN


def _checked(column: Column | RunColumn) -> CheckRecord:
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
