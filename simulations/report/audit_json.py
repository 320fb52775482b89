"""An audit as JSON: the models are the report's schema and its reference page. No row of anybody is in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from simulations.audit.attack import Expectation
from simulations.audit.audit import Audit
from simulations.audit.catalogue import ATTACKS
from simulations.audit.evaluate import ALPHA, CONFIDENCE, Score, Verdict, area_under_roc, roc_point
from simulations.report.document import (
    Count,
    DatasetRecord,
    FormatName,
    Natural,
    NotNegative,
    Part,
    Positive,
    Record,
    versions,
)

FALSE_POSITIVE_RATES = (0.001, 0.01)

AtLeastTwo = Annotated[int, Field(ge=2)]


class SettingsRecord(Record, title="settings"):
    """The settings of an audit."""

    learner: str
    """The closed form: afl, fedhip, deepafl, safle."""
    modes: tuple[str, ...] = Field(min_length=1)
    """Modes audited."""
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


class AttackRecord(Record, title="attack"):
    """An attack that was chosen."""

    name: str
    """Name on the command line."""
    title: str
    """What is attacked, in words."""
    explanation: str
    """How, what counts as success, and what chance is."""


class RateRecord(Record, title="true_positive_rate"):
    """Membership at a low rate of false alarms."""

    false_positive_rate: Part
    """Largest part of the other rows that is accused."""
    rate: Part
    """Part of the used rows that is found."""
    low: Part
    """Lower end of its exact interval."""
    high: Part
    """Upper end."""


class ScoreRecord(Record, title="score"):
    """What an attack achieved."""

    hits: Natural
    """Trials in which the attack was right."""
    trials: Natural
    """Trials."""
    chance: Part
    """How often a guess that saw no message is right."""
    rate: Part
    """hits / trials; 0 without trials."""
    low: Part
    """Lower end of the exact (Clopper-Pearson) interval of the success rate."""
    high: Part
    """Its upper end."""
    p_value: Part
    """How often a guess that saw no message does at least as well."""
    smallest_noticed: Part | None
    """The smallest true success rate that would have been called a leak nine times out of ten; null where no rate
    would, or without trials."""
    verdict: Verdict
    """The score in fixed words; none of them says that something is safe."""
    auc: Part | None
    """Area under the ROC curve, for attacks that give every candidate a score; null for others."""
    true_positive_rates: tuple[RateRecord, ...]
    """Part of the used rows that are found at low rates of false alarms; empty where auc is null."""

    @classmethod
    def of(cls, score: Score) -> ScoreRecord:
        """Describe a score, with its interval and what it could have noticed."""
        low, high = score.interval
        curve = (score.members, score.others)
        return cls(
            hits=score.hits,
            trials=score.trials,
            chance=score.chance,
            rate=score.rate,
            low=low,
            high=high,
            p_value=score.p_value,
            smallest_noticed=score.smallest_noticed,
            verdict=score.verdict,
            auc=area_under_roc(*curve) if all(curve) else None,
            true_positive_rates=tuple(
                RateRecord(false_positive_rate=p.false_positive_rate, rate=p.true_positive_rate, low=p.low, high=p.high)
                for p in (roc_point(*curve, rate) for rate in FALSE_POSITIVE_RATES if all(curve))
            ),
        )


AnyScore = Annotated[ScoreRecord, BeforeValidator(ScoreRecord.of)]


def _json_name(attack: str) -> str:
    """Return the name that reports have always had for an attack, whatever it is called now."""
    return ATTACKS[attack].json_name if attack in ATTACKS else attack


AttackName = Annotated[str, BeforeValidator(_json_name)]


class CellRecord(Record, title="cell"):
    """A cell of the verdict matrix."""

    attack: AttackName
    """Name of the attack."""
    mode: str
    """A mode, or total (the exact sum of a cohort), or private total (a sum with noise)."""
    verdict: Verdict
    """What came of it."""
    expectation: Expectation
    """What must come of it: leaks, hidden, or open where nothing is promised."""
    as_expected: bool
    """Whether nothing leaked that must be hidden, and the attack won where it must."""
    score: AnyScore | None
    """The numbers; null where the attack does not apply."""


class CurvePointRecord(Record, title="curve_point"):
    """An attack at one size."""

    attack: AttackName
    """Name of the attack."""
    clients: Count
    """Clients in the sum."""
    rows: Count
    """Rows in the sum; for a plain message those of one client on average."""
    score: AnyScore
    """What was achieved."""


class DeepPointRecord(Record, title="deep_point"):
    """Membership by how many of a deep learner's sums are used."""

    sums: Count
    """How many of the learner's sums were used."""
    score: AnyScore
    """What was achieved."""


class CoalitionRecord(Record, title="coalition"):
    """What a coalition achieved."""

    mode: str
    """The mode."""
    coalition: str
    """Who pooled secrets, in words."""
    members: Natural
    """Parties beside the server."""
    should_break: bool
    """Whether the protocol states that this coalition is too large."""
    as_stated: bool
    """Whether it opened all messages or none, as stated."""
    score: AnyScore
    """Over the clients outside the coalition."""


class ControlRecord(Record, title="control"):
    """A planted fault in masks."""

    name: str
    """Name of the planted fault."""
    title: str
    """What it is."""
    caught: bool
    """Whether an attack noticed it."""
    scores: Mapping[str, AnyScore]
    """By attack."""


class NoiseRecord(Record, title="noise"):
    """A total with noise: claim and evidence."""

    name: str
    """honest, or the name of the planted fault."""
    title: str
    """In words."""
    planted: bool
    """Whether a fault was planted."""
    epsilon: Positive
    """Claimed epsilon, an upper bound by proof."""
    delta: Part
    """Claimed delta."""
    lower_bound: NotNegative
    """Epsilon at least, by attack in one run, at 95 % confidence (Steinke et al. 2023)."""
    canaries: Natural
    """Rows that a coin put in or left out."""
    guesses: Natural
    """How many of them were guessed."""
    correct: Natural
    """How many guesses were right."""
    noise_ratio: NotNegative
    """Variance of the noise found, over the claimed one."""
    noise_low: NotNegative
    """Lower end of its interval."""
    noise_high: NotNegative
    """Upper end."""
    lattice_p_value: Part
    """How likely noise of whole units has such low bits; floating-point noise has not."""
    refuted: bool
    """Whether anything contradicts the claim."""
    as_expected: bool
    """Whether the honest run stands, or the planted fault was caught."""
    membership: AnyScore
    """The same attack in pairs."""


class AuditReport(Record, title="Report of python -m simulations audit"):
    """Readers must ignore names that they do not know."""

    kind: Literal["analytic-secagg/audit"] = Field(default="analytic-secagg/audit", serialization_alias="schema")
    """Says what kind of document this is."""
    schema_version: Literal[1] = 1
    """Raised when a name changes its meaning or goes away; new names do not raise it."""
    versions: Mapping[str, str]
    """Versions of Python and of the packages that decide the numbers."""
    dataset: DatasetRecord
    """The rows."""
    settings: SettingsRecord
    """What was audited."""
    holds: bool
    """Whether every cell turned out as expected, every coalition as stated, and every planted fault was caught."""
    attacks: tuple[AttackRecord, ...] = Field(min_length=1)
    """The attacks that were chosen."""
    cells: tuple[CellRecord, ...]
    """The verdict matrix; a cell that is missing does not apply."""
    cohort_curve: tuple[CurvePointRecord, ...]
    """Attacks on exact totals, by the size of the cohort."""
    row_curve: tuple[CurvePointRecord, ...]
    """Attacks on plain messages, by rows of a client."""
    deep_curve: tuple[DeepPointRecord, ...]
    """Membership against a deep learner, by how many of its sums are used."""
    coalitions: tuple[CoalitionRecord, ...]
    """Who can open a client's message together."""
    controls: tuple[ControlRecord, ...]
    """Planted faults in masks."""
    noise: tuple[NoiseRecord, ...]
    """Totals with noise: claim, evidence and planted faults."""
    not_tested: tuple[str, ...] = Field(min_length=1)
    """What this report says nothing about."""
    seconds: NotNegative
    """Time of the audit."""


def report_of(audit: Audit) -> AuditReport:
    """Return the report of an audit."""
    settings = audit.settings
    same = {one.name for one in fields(settings)} & SettingsRecord.model_fields.keys() - {"learner", "modes"}
    return AuditReport(
        versions=versions(),
        dataset=DatasetRecord.of(audit.dataset),
        settings=SettingsRecord(
            learner=settings.learner.name,
            modes=tuple(mode.name for mode in settings.modes),
            format=str(audit.feature_format),
            format_chosen_from_rows=settings.feature_format is None,
            confidence=CONFIDENCE,
            alpha=ALPHA,
            **{name: getattr(settings, name) for name in same},
        ),
        holds=audit.holds,
        attacks=tuple(
            AttackRecord(name=attack.json_name, title=attack.title, explanation=attack.explanation)
            for attack in audit.attacks
        ),
        cells=tuple(map(CellRecord.model_validate, audit.cells)),
        cohort_curve=tuple(map(CurvePointRecord.model_validate, audit.cohort_curve)),
        row_curve=tuple(map(CurvePointRecord.model_validate, audit.row_curve)),
        deep_curve=tuple(
            DeepPointRecord.model_validate({"sums": sums, "score": one}) for sums, one in audit.deep_curve.items()
        ),
        coalitions=tuple(map(CoalitionRecord.model_validate, audit.coalitions)),
        controls=tuple(map(ControlRecord.model_validate, audit.controls)),
        noise=tuple(map(NoiseRecord.model_validate, audit.privacy)),
        not_tested=tuple(audit.not_tested),
        seconds=audit.seconds,
    )
