"""Reader of an audit's signed report for the dossier: the only module here that knows the report's form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from analytic_secagg.attestation import AttestationError, Statement, read_signed, sign
from analytic_secagg.audit_plan import PlanError
from analytic_secagg.code_version import CodeVersion
from analytic_secagg.site.strict_models import StrictModel
from secagg import IdentityKey

REPORT_TYPE = "urn:analytic-secagg:audit-report:3"
"""Predicate type of a signed report; the predicate is the report."""

Outcome = Literal["hidden", "leaks", "not decided"]
LEARNER = {"learner": "", "options": "", "ridge": None, "feature_format": None, "target_format": "labels"}
"""Settings that an audit must share with a run, each with the value of an audit that states none."""

_WINS, _NOTHING = ("recovered", "leaks"), ("no evidence of leakage at this power",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One attack on one exposure.

    Args:
        attack: its name.
        exposure: what it read: the messages of a mode, or a total.
        outcome: whether it learnt something.
        found: its score in words.
    """

    attack: str
    exposure: str
    outcome: Outcome
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """An audit's report, as far as a decision and the annexes need it.

    Args:
        signer: Ed25519 public key that signed it; None where nobody did.
        plan_sha256: digest of the plan's file that it was made for; None for no plan.
        code: the code that ran.
        data_sha256: digest of the rows.
        settings: by the names that a plan may fix, ``alpha`` among them.
        learner: the names of ``LEARNER`` with the audited learner's values.
        findings: attacks in the report's order.
        decision: the report's own.
        problems: why no decision can rest on it: lost controls, verdicts that contradict their numbers.
    """

    signer: bytes | None
    plan_sha256: str | None
    code: CodeVersion
    data_sha256: str
    settings: Mapping[str, Any]
    learner: Mapping[str, Any]
    findings: tuple[Finding, ...]
    decision: Literal["passed", "failed", "not decided"]
    problems: tuple[str, ...]

    @classmethod
    def from_text(cls, text: str) -> AuditResult:
        """Read a report, signed or bare.

        Raises:
            PlanError: it is none of this version.
        """
        document, signer, subjects = _document(text)
        try:
            report = _Report.model_validate(document)
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"])) or "whole"
            raise PlanError(
                "the audit's report must be what python -m simulations audit --json writes, of version 3; its part "
                f"{place!r} is missing or of another kind. Run the audit with this release"
            ) from error
        if signer is not None and subjects != _subjects(report.dataset.sha256, report.plan_sha256):
            raise PlanError(
                "the audit's report is signed, but its subjects are not the rows and the plan that it states"
            )
        alpha = report.settings.get("alpha")
        wrong = [*report.contradictions(alpha if type(alpha) is float else 0.0)]
        stated = {**report.settings, "feature_format": report.settings.get("format")}
        return cls(
            signer=signer,
            plan_sha256=report.plan_sha256,
            code=CodeVersion(report.code.version, report.code.sha256),
            data_sha256=report.dataset.sha256,
            settings=report.settings,
            learner={name: stated.get(name, default) for name, default in LEARNER.items()},
            findings=tuple(cell.finding for cell in report.cells),
            decision="passed" if report.holds else "failed" if report.leaked else "not decided",
            problems=tuple(wrong),
        )


def signed_report(document: Mapping[str, Any], identity: IdentityKey) -> str:
    """Return a report as a DSSE envelope, signed by whoever ran the audit."""
    subjects = _subjects(document["dataset"]["sha256"], document["plan_sha256"])
    return sign(Statement(subjects=subjects, predicate_type=REPORT_TYPE, predicate=document), identity)


def _subjects(data_sha256: str, plan_sha256: str | None) -> dict[str, str]:
    return {"rows": data_sha256} | ({} if plan_sha256 is None else {"plan": plan_sha256})


def _document(text: str) -> tuple[Any, bytes | None, Mapping[str, str]]:
    """Return a report as JSON, the key that signed it (None for none), and the subjects of the statement."""
    try:
        document = json.loads(text)
    except ValueError:
        return None, None, {}
    if not isinstance(document, dict) or "payload" not in document:
        return document, None, {}
    try:
        statement, signer = read_signed(text)
    except AttestationError as error:
        raise PlanError(f"the audit's report is in an envelope that does not verify: {error}") from error
    return dict(statement.predicate), signer if statement.predicate_type == REPORT_TYPE else None, statement.subjects


class _Part(StrictModel, extra="ignore"):
    """A part of a report; other names are not read here."""


class _Code(_Part):
    version: str
    sha256: str


class _Data(_Part):
    sha256: str


class _Score(_Part):
    p_value: Annotated[float, Field(ge=0, le=1)]
    hits: int | None = None
    trials: int | None = None
    chance: float | None = None
    smallest_noticed: float | None = None

    @property
    def words(self) -> str:
        if self.hits is None or self.chance is None or not self.trials:
            return "no trials"
        noticed = "" if self.smallest_noticed is None else f"; would have noticed {self.smallest_noticed:.2g}"
        return f"right {self.hits} of {self.trials} times, guessing {self.chance:.2g}{noticed}"


class _Cell(_Part):
    attack: str
    mode: str
    verdict: Literal[
        "recovered",
        "leaks",
        "no evidence of leakage at this power",
        "too few trials to tell",
        "not tried at this size",
        "does not apply",
    ]
    expectation: Literal["hidden", "leaks", "open"]
    score: _Score | None

    @property
    def finding(self) -> Finding:
        outcome: Outcome = "leaks" if self.verdict in _WINS else "not decided"
        outcome = "hidden" if self.verdict in _NOTHING else outcome
        found = "" if self.score is None else self.score.words
        return Finding(attack=self.attack, exposure=self.mode, outcome=outcome, found=found)

    @property
    def is_as_expected(self) -> bool:
        """Whether nothing leaked that must be hidden, and the attack won where it must."""
        opposite = {"hidden": "leaks", "leaks": "hidden"}
        return self.finding.outcome != opposite.get(self.expectation)

    def follows(self, alpha: float) -> bool:
        """Whether the verdict is one that its own numbers give."""
        if self.score is None:
            return self.verdict in ("not tried at this size", "does not apply")
        return (self.score.p_value < alpha) == (self.verdict in _WINS)


class _Control(_Part):
    name: str
    caught: bool
    scores: dict[str, _Score]

    def was_caught(self, alpha: float) -> bool:
        """Whether it says so, and one of its scores does."""
        return self.caught and any(score.p_value < alpha for score in self.scores.values())


class _Coalition(_Part):
    mode: str
    as_stated: bool


class _Noise(_Part):
    name: str
    as_expected: bool


class _Report(_Part):
    kind: Literal["analytic-secagg/audit"] = Field(alias="schema")
    schema_version: Literal[3]
    code: _Code
    dataset: _Data
    plan_sha256: str | None
    settings: dict[str, Any]
    cells: list[_Cell]
    controls: list[_Control]
    coalitions: list[_Coalition]
    noise: list[_Noise]
    holds: bool

    @property
    def leaked(self) -> bool:
        """Whether something came out otherwise than the report itself expects; lost controls apart."""
        return not (
            all(one.is_as_expected for one in self.cells)
            and all(one.as_stated for one in self.coalitions)
            and all(one.as_expected for one in self.noise)
        )

    def contradictions(self, alpha: float) -> Iterator[str]:
        """Yield why no decision can rest on it."""
        parts: dict[str, list[str]] = {
            "results that are not as the report itself expects": [
                f"{one.attack} on {one.mode}" for one in self.cells if not one.is_as_expected
            ],
            "verdicts that do not follow from their score": [
                f"{one.attack} on {one.mode}" for one in self.cells if not one.follows(alpha)
            ],
            "coalitions that opened other messages than stated": [
                one.mode for one in self.coalitions if not one.as_stated
            ],
            "totals with noise that did not come out as expected": [
                one.name for one in self.noise if not one.as_expected
            ],
            "controls that no attack caught": [one.name for one in self.controls if not one.was_caught(alpha)],
        }
        yield from (f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
        if not self.controls:
            yield "the report has no controls: nothing shows that its attacks notice anything"
