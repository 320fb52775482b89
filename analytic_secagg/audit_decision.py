"""The decision on an audit's hypotheses: by a report that its auditor signed, of the plan's code, data and settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from analytic_secagg.audit_plan import Hypothesis, PlanError, SignedPlan
from analytic_secagg.code_version import CodeVersion
from analytic_secagg.signed_json import signed_line, signer_of
from analytic_secagg.site.strict_models import StrictModel
from secagg import IdentityKey

_LABEL = "audit report"
_WINS, _NOTHING = ("recovered", "leaks"), ("no evidence of leakage at this power",)
_LEARNER = {"options": "", "ridge": None, "feature_format": None, "target_format": "labels"}
"""What an audit must share with a run beside the learner's name, and what it has of it if its report states nothing."""


class _Part(StrictModel, extra="ignore"):
    """A part of a report, of which other names are not read here."""


class _Code(_Part):
    version: str
    sha256: str


class _Data(_Part):
    sha256: str


class _Score(_Part):
    p_value: Annotated[float, Field(ge=0, le=1)]


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
    def is_as_expected(self) -> bool:
        """Whether nothing leaked that must be hidden, and the attack did not come back empty where it must win."""
        wrong: dict[str, tuple[str, ...]] = {"hidden": _WINS, "leaks": _NOTHING}
        return self.verdict not in wrong.get(self.expectation, ())

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


class AuditReport(_Part):
    """All that a decision reads of the report of ``python -m simulations audit --json``."""

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

    @classmethod
    def from_text(cls, text: str) -> AuditReport:
        """Read a report.

        Raises:
            PlanError: it is none of this version.
        """
        try:
            return cls.model_validate(json.loads(text))
        except ValidationError as error:
            place = ".".join(map(str, error.errors()[0]["loc"])) or "whole"
        except ValueError:
            place = "whole"
        raise PlanError(
            "the audit's report must be what python -m simulations audit --json writes, of version 3; its part "
            f"{place!r} is missing or of another kind. Run the audit with this release"
        )


def signed_report(document: Mapping[str, Any], identity: IdentityKey) -> str:
    """Return a report as one line, signed by whoever ran the audit."""
    unsigned = {name: value for name, value in document.items() if name not in ("signer", "signature")}
    return signed_line(_LABEL, unsigned, identity)


def report_signer(text: str) -> bytes | None:
    """Return the public key that signed a report; None where nobody did, or it was changed since."""
    return signer_of(_LABEL, text)


def decide(
    plan: SignedPlan, text: str, *, signers: Mapping[bytes, str], runs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what each hypothesis comes to, all together, and what a decision lacks.

    It is ``holds`` only if every hypothesis does and nothing is missing, and ``fails`` wherever one fails.

    Args:
        plan: signed before the runs.
        text: the report of the audit.
        signers: who may have run the audit, in words by public key, where the plan names nobody.
        runs: the summaries of the runs that it is filed with.

    Raises:
        PlanError: the text is no report.
    """
    report = AuditReport.from_text(text)
    auditor = plan.plan.auditor
    allowed = {bytes.fromhex(auditor): "the auditor whom the plan names"} if auditor else signers
    signer = report_signer(text)
    hypotheses = [{**one.model_dump(), "outcome": _outcome(one, report)} for one in plan.plan.hypotheses]
    missing = [*_vouched(signer, allowed), *_about(plan, report, runs), *_own_verdict(report, plan.plan.alpha)]
    outcomes = {one["outcome"] for one in hypotheses}
    fine = outcomes == {"holds"} and not missing
    return {
        "decision": "fails" if "fails" in outcomes else "holds" if fine else "not decided",
        "hypotheses": hypotheses,
        "missing": missing,
        "report_signed_by": None if signer is None else allowed.get(signer, signer.hex()),
    }


def _outcome(hypothesis: Hypothesis, report: AuditReport) -> str:
    cells = [cell.verdict for cell in report.cells if (cell.attack, cell.mode) == (hypothesis.attack, hypothesis.mode)]
    holds, fails = (_NOTHING, _WINS) if hypothesis.expected == "hidden" else (_WINS, _NOTHING)
    if any(verdict in fails for verdict in cells):
        return "fails"
    return "holds" if cells and all(verdict in holds for verdict in cells) else "not decided"


def _vouched(signer: bytes | None, allowed: Mapping[bytes, str]) -> Iterator[str]:
    if signer is None:
        yield "nobody signed the report, or it was changed after it was signed: run the audit with --sign"
    elif signer not in allowed:
        yield f"the report is signed by {signer.hex()}, and it must be signed by {' or '.join(allowed.values())}"


def _about(plan: SignedPlan, report: AuditReport, runs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if report.plan_sha256 != plan.sha256:
        made = "no plan" if report.plan_sha256 is None else f"the plan {report.plan_sha256[:16]}"
        yield f"the report was made for {made}, and this is the plan {plan.sha256[:16]}: run the audit with --plan"
    code = CodeVersion(report.code.version, report.code.sha256)
    yield from plan.differences(code=code, data_sha256=report.dataset.sha256, settings=report.settings)
    modes = {one.mode for one in plan.plan.hypotheses if one.expected == "hidden"}
    for name, said in runs.items():
        if said.get("code") != plan.code._asdict():
            yield f"the plan is about {plan.code}, and {name} states other code, or none"
        yield from _of_another_learner(report.settings, name, said["settings"])
        if said["mode"] not in modes:
            yield f"{name} is over {said['mode']}, and no hypothesis says that something is hidden in this mode"


def _of_another_learner(audited: Mapping[str, Any], name: str, run: Mapping[str, Any]) -> Iterator[str]:
    """Where the learner that was attacked is not the run's.

    A report that states no ridge fits every ridge but a chosen one, whose sums are others: a stated one enters the
    solve alone.
    """
    if run["learner"] != audited.get("learner"):
        yield f"the audit is of {audited.get('learner')}, and {name} is of {run['learner']}"
    stated = {**audited, "feature_format": audited.get("format")}
    for setting, default in _LEARNER.items():
        found = stated.get(setting, default)
        if setting == "ridge" and found is None and run[setting] != "cv":
            continue
        if run[setting] != found:
            what = "none" if found is None else repr(found)
            yield f"the audit is of a learner with {setting} {what}, and {name} has {run[setting]!r}"


def _own_verdict(report: AuditReport, alpha: float) -> Iterator[str]:
    """Where a report does not say that all is well, or says it beside numbers that it does not follow from."""
    if not report.holds:
        yield "the report itself says that not everything came out as expected (holds: false)"
    if other := [f"{one.attack} on {one.mode}" for one in report.cells if not one.is_as_expected]:
        yield f"cells that did not come out as the report itself expects: {', '.join(other)}"
    if other := [f"{one.attack} on {one.mode}" for one in report.cells if not one.follows(alpha)]:
        yield f"cells whose verdict does not follow from their score: {', '.join(other)}"
    if other := [one.mode for one in report.coalitions if not one.as_stated]:
        yield f"coalitions that opened other messages than stated: {', '.join(other)}"
    if other := [one.name for one in report.noise if not one.as_expected]:
        yield f"totals with noise that did not come out as expected: {', '.join(other)}"
    if not report.controls:
        yield "the report has no controls: nothing shows that its attacks notice anything"
    if missed := [one.name for one in report.controls if not one.was_caught(alpha)]:
        yield f"controls that no attack caught: {', '.join(missed)}"
