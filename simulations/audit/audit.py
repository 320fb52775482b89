"""The audit: every attack against every mode on real rows, with controls, and what stays in a total."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PlainSerializer

from analytic.row_format import RowFormat
from analytic_secagg.audit_plan import SignedPlan
from analytic_secagg.code_version import code_version
from analytic_secagg.console.arguments import budgets, count, items, natural, parse_options, whole, wholes
from analytic_secagg.console.declaration import option
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS, LearnerEntry, LearnerSettings, find_learner
from analytic_secagg.modes import MODES, Mode
from secagg.config import MAX_CLIENTS
from simulations.audit.attack import (
    MASKED,
    PROBE,
    Attack,
    CoalitionScore,
    Expectation,
    NotTriedError,
    TooLargeError,
    in_the_clear,
)
from simulations.audit.attacks.membership import MEMBERSHIP
from simulations.audit.catalogue import ATTACKS, NAMES, choose_attacks, find_attack
from simulations.audit.evaluate import ALPHA, CONFIDENCE, Score, Verdict
from simulations.audit.negative_controls import Control, negative_controls
from simulations.audit.noisy_totals import NoiseEvidence, noise_evidence
from simulations.audit.population import MAX_CANDIDATES, Population
from simulations.audit.workbench import Bench, give_memory_back
from simulations.command_line.shared_arguments import format_option, modes_option
from simulations.report.document import (
    Count,
    DatasetRecord,
    FormatName,
    Natural,
    NotNegative,
    Part,
    Positive,
    Record,
    Sha256,
    computed,
    versions,
)

MOST_COLLUDERS = 6
"""Of the seven clients of the sum that coalitions are tried on, one is attacked."""

AtLeastTwo = Annotated[int, Field(ge=2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What to audit, as the command line takes it; ``row_counts`` are the rows per client of the curve of what a plain
    message gives away.

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
    modes: tuple[Mode, ...] = modes_option()
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
    clients: int = option("clients of a cohort", lambda text: whole(text, at_least=2, at_most=MAX_CLIENTS), default=20)
    rows_per_client: int = option(
        "rows of a client, on average",
        lambda text: whole(text, at_least=2, at_most=MAX_CANDIDATES),
        flag="--rows",
        default=12,
    )
    cohorts: tuple[int, ...] = option(
        "cohort sizes whose totals are attacked",
        lambda text: wholes(text, at_least=2, at_most=MAX_CLIENTS),
        default=(2, 5, 20, 100),
        metavar="N,...",
    )
    row_counts: tuple[int, ...] = (3, 6, 12, 24, 40, 60, 100)
    coalitions: tuple[int, ...] | None = option(
        "numbers of clients that collude with the server of a masked sum, in a cohort of its own of 7 clients, "
        "whatever --clients says",
        lambda text: wholes(text, at_least=0, at_most=MOST_COLLUDERS),
        default=None,
        metavar="T,...",
        shown="all",
    )
    sessions: int = option(
        "cohorts that every attack on a message is tried on: more of them notice smaller leaks", count, default=2
    )
    trials: int = option("sums made for each attack that needs its own", count, default=5)
    epsilon: tuple[float, ...] | None = option(
        "try totals with noise for these as well; none leaves them out, as does a choice of --attacks",
        lambda text: () if text == "none" else budgets(text),
        default=None,
        metavar="E,...",
        shown="1,8",
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
        if min(numbers) < 1 or min((*self.cohorts, 2)) < 2 or min((*self.row_counts, 1)) < 1:
            raise UsageError(
                "an audit needs at least 2 clients a cohort, 2 rows per client, 1 session, 1 trial and a seed >= 0"
            )
        _ = self.tried_modes

    @property
    def tried_epsilon(self) -> tuple[float, ...]:
        """The epsilons that were asked for; 1 and 8 if nothing was said and all attacks are tried."""
        if self.epsilon is not None:
            return self.epsilon
        return (1.0, 8.0) if self.attacks == choose_attacks(None) else ()

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
    """Cohort sizes whose totals were attacked."""
    row_counts: tuple[Count, ...]
    """Rows per client of the curve of plain messages."""
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
    confidence: Part
    """Confidence of the intervals."""
    alpha: Part
    """How often a cell that leaks nothing is called a leak, at most."""

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
            confidence=CONFIDENCE,
            alpha=ALPHA,
            **{name: getattr(settings, name) for name in same},
        )


TOTAL = "total"
"""The column of what everybody may see: the sum over the default cohort, whatever mode made it."""

PRIVATE_TOTAL = "private total"
"""The column of a sum with noise, for the smallest epsilon; further ones name theirs."""

SMALL = 5
"""Clients of a point of the curve of plain messages."""


def _json_name(attack: str) -> str:
    """Return the name that reports have always had for an attack, whatever it is called now."""
    return ATTACKS[attack].json_name if attack in ATTACKS else attack


AttackName = Annotated[str, PlainSerializer(_json_name)]


class AttackRecord(Record, title="attack"):
    """An attack that was chosen."""

    name: AttackName
    """Name on the command line."""
    title: str
    """What is attacked, in words."""
    explanation: str
    """How, what counts as success, and what chance is."""


class Cell(Record, title="cell"):
    """A cell of the verdict matrix."""

    attack: AttackName
    """Name of the attack."""
    mode: str
    """A mode, or total (the exact sum of a cohort), or private total (a sum with noise)."""
    score: Score | None
    """The numbers; null where the attack does not apply."""
    expectation: Expectation
    """What must come of it: leaks, hidden, or open where nothing is promised."""
    too_large: str = ""
    """Why the attack did not run to its end; empty where it did, or does not apply."""

    @computed
    def verdict(self) -> Verdict:
        """What came of it."""
        if self.score is None:
            return Verdict.NOT_TRIED if self.too_large else Verdict.DOES_NOT_APPLY
        return self.score.verdict

    @property
    def leaked(self) -> bool:
        """Whether the attack won."""
        return self.score is not None and self.score.leaked

    @computed
    def as_expected(self) -> bool:
        """Whether nothing leaked that must be hidden, and the attack won where it must."""
        if self.score is None or self.verdict is Verdict.TOO_FEW or self.expectation is Expectation.OPEN:
            return True
        return self.leaked == (self.expectation is Expectation.LEAKS)


class CurvePoint(Record, title="curve_point"):
    """An attack at one size."""

    attack: AttackName
    """Name of the attack."""
    clients: Count
    """Clients in the sum."""
    rows: Count
    """Rows in the sum; for a plain message those of one client on average."""
    score: Score
    """What was achieved."""


class DeepPoint(Record, title="deep_point"):
    """Membership by how many of a deep learner's sums are used."""

    sums: Count
    """How many of the learner's sums were used."""
    score: Score
    """What was achieved."""


class CodeRecord(Record, title="code"):
    """The code that ran."""

    version: str
    """Version of the installed package."""
    sha256: Sha256
    """Digest of the package's Python files; python -m analytic_secagg doctor prints that of an installation."""


class Audit(Record, title="Report of python -m simulations audit", frozen=False):
    """Readers must ignore names that they do not know."""

    kind: Literal["analytic-secagg/audit"] = Field(default="analytic-secagg/audit", serialization_alias="schema")
    """Says what kind of document this is."""
    schema_version: Literal[3] = 3
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
    attacks: tuple[AttackRecord, ...] = Field(min_length=1)
    """The attacks that were chosen."""
    cells: list[Cell] = Field(default=[])
    """The verdict matrix; a cell that is missing does not apply."""
    cohort_curve: list[CurvePoint] = Field(default=[])
    """Attacks on exact totals, by the size of the cohort."""
    row_curve: list[CurvePoint] = Field(default=[])
    """Attacks on plain messages, by rows of a client."""
    deep_curve: list[DeepPoint] = Field(default=[])
    """Membership against a deep learner, by how many of its sums are used."""
    coalitions: list[CoalitionScore] = Field(default=[])
    """Who can open a client's message together."""
    controls: list[Control] = Field(default=[])
    """Planted faults in masks."""
    noise: list[NoiseEvidence] = Field(default=[])
    """Totals with noise: claim, evidence and planted faults."""
    not_tested: list[str] = Field(default=[], min_length=1)
    """What this report says nothing about."""
    seconds: NotNegative = 0.0
    """Time of the audit."""
    signer: Sha256 | None = None
    """Ed25519 public key of whoever ran the audit and signed this report; null where nobody did."""
    signature: Annotated[str, Field(pattern="^[0-9a-f]{128}$")] | None = None
    """Its signature; null where there is none."""

    @computed
    def holds(self) -> bool:
        """Whether every cell turned out as expected, every coalition as stated, and every planted fault was caught."""
        return (
            all(cell.as_expected for cell in self.cells)
            and all(point.as_stated for point in self.coalitions)
            and all(control.caught for control in self.controls)
            and all(one.as_expected for one in self.noise)
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the matrix."""
        return (*self.settings.modes, TOTAL, *self.private_columns)

    @property
    def private_columns(self) -> tuple[str, ...]:
        """One for each epsilon, the smallest first."""
        honest = [one.epsilon for one in self.noise if not one.fault]
        return tuple(
            f"{PRIVATE_TOTAL}, epsilon {one:g}" if place else PRIVATE_TOTAL for place, one in enumerate(honest)
        )

    def cell(self, attack: str, mode: str) -> Cell:
        """One cell; one that was not filled does not apply."""
        for cell in self.cells:
            if (cell.attack, cell.mode) == (attack, mode):
                return cell
        return Cell(attack=attack, mode=mode, score=None, expectation=Expectation.OPEN)


Tick = Callable[[str], None]


def audit(
    dataset: Dataset, settings: AuditSettings, tick: Tick = lambda what: None, *, plan: SignedPlan | None = None
) -> Audit:
    """Run everything that was asked for.

    Args:
        dataset: real rows.
        settings: what to audit.
        tick: told what comes next.
        plan: what the report is made for; None for no plan.

    Raises:
        UsageError: more clients and rows than the data have, or a plan that is about another audit.
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: as their packages say.
    """

    def begins(what: str) -> None:
        give_memory_back()
        tick(what)

    started = time.perf_counter()
    rng = np.random.default_rng(settings.seed)
    feature_format = settings.format_for(dataset)
    stated = SettingsRecord.of(settings, feature_format)
    code, document = code_version(), stated.to_document()
    if other := [] if plan is None else [*plan.differences(code=code, data_sha256=dataset.sha256, settings=document)]:
        raise UsageError(f"this audit must be the one of its plan: {'; '.join(other)}")
    population = Population.of(dataset, rng)
    population.deal(settings.clients, settings.rows_per_client, np.random.default_rng(settings.seed))  # or refuse
    learner = settings.learner.build(_learner_settings(dataset, settings, feature_format, len(population.candidates)))
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
        attacks=tuple(map(AttackRecord.model_validate, attacks)),
    )
    for mode in (*settings.tried_modes, None):
        _column(report, bench, attacks, mode, begins)
        if mode is not None and mode.name != MASKED.name:
            bench.forget(mode)
    _cohort_curve(report, bench, attacks, begins)
    _row_curve(report, bench, attacks, begins)
    begins("controls")
    report.controls += negative_controls(bench, max(3, settings.trials))
    if settings.tried_epsilon:
        begins("totals with noise")
        hiding = tuple(mode for mode in settings.tried_modes if not in_the_clear(mode))
        _noise(report, bench, hiding or (MASKED,))
    report.not_tested += NOT_TESTED
    report.seconds = time.perf_counter() - started
    return report


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


def _column(report: Audit, bench: Bench, attacks: list[Attack], mode: Mode | None, tick: Tick) -> None:
    """Every attack that applies to a mode, or, for none, to the total."""
    column = TOTAL if mode is None else mode.name
    for attack in attacks:
        expectation = attack.expected(mode)
        if expectation is None:
            continue
        tick(f"{column}: {attack.name}")
        try:
            outcome = attack.play(bench, mode, report.settings.trials)
        except NotTriedError as error:
            report.not_tested.append(str(error))
            if isinstance(error, TooLargeError):
                cell = Cell(attack=attack.name, mode=column, score=None, expectation=expectation, too_large=str(error))
                report.cells.append(cell)
            continue
        report.cells.append(Cell(attack=attack.name, mode=column, score=outcome.score, expectation=expectation))
        report.coalitions += outcome.coalitions
        report.deep_curve += (DeepPoint(sums=sums, score=score) for sums, score in outcome.by_sums.items())


def _cohort_curve(report: Audit, bench: Bench, attacks: list[Attack], tick: Tick) -> None:
    """What stays in a total as the cohort grows."""
    chosen = [attack for attack in attacks if attack.by_cohort]
    if not chosen:
        return
    for n_clients in report.settings.cohorts:
        tick(f"totals of {n_clients} clients")
        point = replace(bench, clients=n_clients, sessions=1, totals_of=MODES["committee"])  # grows as n, not n^2
        try:
            ((cohort, _),) = point.runs(point.totals_of)
        except UsageError as error:
            report.not_tested.append(f"totals of {n_clients} clients: {error}")
            continue
        rows = sum(len(indices) for indices in cohort.values())
        report.cohort_curve += _points(report, point, chosen, None, f"totals of {n_clients} clients", n_clients, rows)


def _row_curve(report: Audit, bench: Bench, attacks: list[Attack], tick: Tick) -> None:
    """What a plain message gives away as a client grows."""
    chosen = [attack for attack in attacks if attack.by_rows]
    if not chosen:
        return
    for rows in report.settings.row_counts:
        tick(f"plain messages of {rows} rows")
        if SMALL * (rows + rows // 2) >= len(bench.population.candidates):
            report.not_tested.append(f"plain messages of {rows} rows: not enough training rows")
            continue
        point = replace(bench, clients=SMALL, sessions=1, rows_per_client=rows)
        report.row_curve += _points(report, point, chosen, MODES["plain"], f"plain messages of {rows} rows", 1, rows)


def _points(
    report: Audit, bench: Bench, attacks: list[Attack], mode: Mode | None, what: str, clients: int, rows: int
) -> Iterator[CurvePoint]:
    """Each attack at one size; who does not run to its end has no point there."""
    for attack in attacks:
        try:
            score = attack.play(bench, mode, report.settings.trials).score
        except TooLargeError as error:
            report.not_tested.append(f"{what}: {error}")
            continue
        yield CurvePoint(attack=attack.name, clients=clients, rows=rows, score=score)


def _noise(report: Audit, bench: Bench, modes: tuple[Mode, ...]) -> None:
    report.noise += noise_evidence(bench.population, tuple(sorted(report.settings.epsilon)), bench.rng, modes)
    if MEMBERSHIP.name in {attack.name for attack in report.attacks}:
        report.cells += [
            Cell(attack=MEMBERSHIP.name, mode=column, score=one.membership, expectation=Expectation.OPEN)
            for column, one in zip(report.private_columns, report.noise, strict=False)
        ]


NOT_TESTED = (
    "the computers themselves: timing, memory, swap, logs, backups, or anybody who can read a client's disk",
    "transport: the in-memory network has none; in a deployment TLS must keep wire-tappers out",
    "active attacks beyond a server that hands out different models: see the tests of the protocols for those",
    "attackers who know more than this report grants them, or who use better statistics: verdicts are about these",
    "whether the pseudorandom generator is one: that is the assumption of the proof, and no test can show it",
    "what the trained model itself gives away when others use it",
)
