"""Reader of an audit's signed report for the dossier: the only module here that knows the report's form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from analytic_secagg.attestation import AttestationError, Statement, read_signed, sign
from analytic_secagg.audit_plan import PlanError
from analytic_secagg.code_version import CodeVersion
from analytic_secagg.site.strict_models import StrictModel
from secagg import IdentityKey

REPORT_TYPE = "urn:analytic-secagg:audit-report:5"
"""Predicate type of a signed report; the predicate is the report."""

Outcome = Literal["hidden", "leaks", "not decided"]
LEARNER = {"learner": "", "options": "", "ridge": None, "feature_format": None, "target_format": "labels"}
"""Settings that an audit must share with a run, each with the value of an audit that states none."""

Decision = Literal["passed", "failed", "not decided"]

_OUTCOMES: Mapping[str, Outcome] = {
    "nothing found": "hidden",
    "within the limit": "hidden",
    "leak": "leaks",
    "over the limit": "leaks",
    "attack works": "leaks",
}
"""What a result of the report comes to for a hypothesis; any other is not decided."""

GROUP_SHARE = "group_share"
"""The one number whose limit is the least that it must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One attack on one exposure.

    Args:
        attack: its name.
        exposure: what it read: the messages of a mode, or a total.
        outcome: whether it learnt something.
        said: the report's own word for that.
        found: its score in words, beside the owner's limit.
    """

    attack: str
    exposure: str
    outcome: Outcome
    said: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """An audit's report, as far as a decision and the annexes need it.

    Args:
        signer: Ed25519 public key that signed it; None where nobody did.
        plan_sha256: digest of the plan's file that it was made for; None for no plan.
        code: the code that ran.
        data_sha256: digest of the rows.
        n_features: columns of a row.
        settings: by the names that a plan may fix, the decision ``rule`` among them.
        learner: the names of ``LEARNER`` with the audited learner's values.
        run_weights: digest of the weights of the finished run whose totals and model were attacked; None where they
            were rehearsed.
        findings: attacks in the report's order.
        decision: the report's own.
        problems: why no decision can rest on it: lost controls, verdicts that contradict their numbers.
    """

    signer: bytes | None
    plan_sha256: str | None
    code: CodeVersion
    data_sha256: str
    n_features: int
    settings: Mapping[str, Any]
    learner: Mapping[str, Any]
    run_weights: str | None
    findings: tuple[Finding, ...]
    decision: Decision
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
                "the audit's report must be what analytic-secagg audit --json writes, of version 5; its part "
                f"{place!r} is missing or of another kind. Run the audit with this release"
            ) from error
        if signer is not None and subjects != _subjects(report.dataset.sha256, report.plan_sha256):
            raise PlanError(
                "the audit's report is signed, but its subjects are not the rows and the plan that it states"
            )
        stated = {**report.settings, "feature_format": report.settings.get("format")}
        return cls(
            signer=signer,
            plan_sha256=report.plan_sha256,
            code=CodeVersion(report.code.version, report.code.sha256),
            data_sha256=report.dataset.sha256,
            n_features=report.dataset.features,
            settings={**report.settings, "rule": report.rule.model_dump()},
            learner={name: stated.get(name, default) for name, default in LEARNER.items()},
            run_weights=None if report.run is None else report.run.weights_sha256,
            findings=tuple(one.finding(report.limit_of(one)) for one in report.results),
            decision=report.decision,
            problems=tuple(report.contradictions()),
        )


def decision_of(results: Iterable[tuple[str, str]], claims: Iterable[str], *, is_whole: bool) -> Decision:
    """Return what all of an audit comes to: the worst of it; passed only if messages had to hide something and did.

    Args:
        results: rule and outcome of each attack on each exposure.
        claims: outcomes of the tests of noise.
        is_whole: whether no part of the audit failed.
    """
    judged, tested = {one for one in results if one[0] in ("must hide", "may be seen")}, {*claims}
    outcomes = {outcome for _, outcome in judged}
    if outcomes & {"leak", "over the limit"} or "refuted" in tested:
        return "failed"
    hides = any(rule == "must hide" for rule, _ in judged)
    return "passed" if is_whole and hides and "not decided" not in outcomes | tested else "not decided"


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
    features: int


class _Run(_Part):
    weights_sha256: str


class _Attack(_Part):
    name: str
    limit: str | None
    works: bool | None


class _Rule(_Part):
    family_error: Annotated[float, Field(gt=0, lt=1)]
    notices: float
    notices_coins: float
    limits: dict[str, float | None]


class _Result(_Part):
    attack: str
    exposure: str
    rule: Literal["must hide", "may be seen", "comparison", "control", "known"]
    outcome: Literal[
        "nothing found",
        "leak",
        "within the limit",
        "over the limit",
        "not decided",
        "attack works",
        "attack does not work",
        "no limit",
    ]
    hits: int | None
    trials: int | None
    chance: float | None
    p_value: Annotated[float, Field(ge=0, le=1)] | None
    noticed: float | None
    value: float | None

    def finding(self, limit: float | None) -> Finding:
        """Return it with its outcome for a hypothesis, and its numbers in words."""
        words = "not tried to its end"
        if self.trials == 0:
            words = "nothing to look for"
        elif self.hits is not None and self.chance is not None:
            words = f"right {self.hits} of {self.trials} times, guessing {self.chance:.2g}"
            words += "" if self.noticed is None else f"; would have noticed {self.noticed:.2g}"
        if self.value is not None and limit is not None:
            words += f"; {self.value:.2g}, and the limit is {limit:.2g}"
        outcome = _OUTCOMES.get(self.outcome, "not decided")
        return Finding(attack=self.attack, exposure=self.exposure, outcome=outcome, said=self.outcome, found=words)

    def follows(self, rule: _Rule, n_hidden: int, limit_name: str | None) -> bool:
        """Whether the outcome is one that its own numbers can give."""
        if self.rule == "must hide" and self.p_value is not None:
            if self.p_value < rule.family_error / max(1, n_hidden):
                return self.outcome == "leak"
            return self.outcome != "leak" or self.p_value < rule.family_error
        limit = rule.limits.get(limit_name or "")
        if self.rule == "may be seen" and limit is not None and self.value is not None:
            over = self.value < limit if limit_name == GROUP_SHARE else self.value > limit
            return not (over and self.outcome == "within the limit")
        return True


class _TwoWorlds(_Part):
    epsilon: float
    outcome: Literal["refuted", "consistent", "not decided"]


class _Report(_Part):
    kind: Literal["analytic-secagg/audit"] = Field(alias="schema")
    schema_version: Literal[5]
    code: _Code
    dataset: _Data
    plan_sha256: str | None
    settings: dict[str, Any]
    run: _Run | None
    rule: _Rule
    attacks: list[_Attack]
    results: list[_Result]
    two_worlds: list[_TwoWorlds]
    failures: list[str]
    decision: Decision

    def limit_of(self, result: _Result) -> float | None:
        """The owner's limit of what an attack learns from something that may be seen; None where there is none."""
        names = {one.name: one.limit for one in self.attacks}
        return self.rule.limits.get(names.get(result.attack) or "") if result.rule == "may be seen" else None

    def contradictions(self) -> Iterator[str]:
        """Yield why no decision can rest on it."""
        limits = {one.name: one.limit for one in self.attacks}
        n_hidden = sum(one.rule == "must hide" for one in self.results)
        judged = [one for one in self.results if one.rule in ("must hide", "may be seen")]
        parts: dict[str, list[str]] = {
            "results that leak, or show more than their limit": [
                f"{one.attack} on {one.exposure}" for one in judged if one.outcome in ("leak", "over the limit")
            ],
            "outcomes that do not follow from their numbers": [
                f"{one.attack} on {one.exposure}"
                for one in self.results
                if not one.follows(self.rule, n_hidden, limits.get(one.attack))
            ],
            "claims of noise that were refuted": [
                f"epsilon {one.epsilon:g}" for one in self.two_worlds if one.outcome == "refuted"
            ],
            "attacks that lost where they must win": [one.name for one in self.attacks if one.works is False],
            "parts that failed": self.failures,
        }
        yield from (f"{what}: {', '.join(names)}" for what, names in parts.items() if names)
        if not any(one.works for one in self.attacks):
            yield "no attack of the report won where it must: nothing shows that they notice anything"
        pairs = ((one.rule, one.outcome) for one in self.results)
        follows = decision_of(pairs, (one.outcome for one in self.two_worlds), is_whole=not self.failures)
        if self.decision != follows:
            yield f"its decision is {self.decision}, and {follows} follows from its results"
