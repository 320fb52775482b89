"""The decision on an audit's hypotheses: by a report that its auditor signed, of the plan's code, data and settings."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from analytic_secagg.audit_plan import Hypothesis, PlanError, SignedPlan
from analytic_secagg.code_version import CodeVersion
from analytic_secagg.signed_json import signed_line, signer_of
from analytic_secagg.site.strict_models import StrictModel
from secagg import IdentityKey

_LABEL = "audit report"


class _Part(StrictModel, extra="ignore"):
    """A part of a report, of which other names are not read here."""


class _Code(_Part):
    version: str
    sha256: str


class _Data(_Part):
    sha256: str


class _Cell(_Part):
    attack: str
    mode: str
    verdict: str


class _Control(_Part):
    name: str
    caught: bool


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
    missing = [*_vouched(signer, allowed), *_about(plan, report, runs), *_own_verdict(report)]
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
    wins, nothing = ("recovered", "leaks"), ("no evidence of leakage at this power",)
    holds, fails = (nothing, wins) if hypothesis.expected == "hidden" else (wins, nothing)
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
    modes = {one.mode for one in plan.plan.hypotheses}
    for name, said in runs.items():
        if said.get("code") != plan.code._asdict():
            yield f"the plan is about {plan.code}, and {name} states other code, or none"
        if said["settings"]["learner"] != report.settings.get("learner"):
            yield f"the audit is of {report.settings.get('learner')}, and {name} is of {said['settings']['learner']}"
        if said["mode"] not in modes:
            yield f"{name} is over {said['mode']}, and no hypothesis is about this mode"


def _own_verdict(report: AuditReport) -> Iterator[str]:
    if not report.holds:
        yield "the report itself says that not everything came out as expected (holds: false)"
    if not report.controls:
        yield "the report has no controls: nothing shows that its attacks notice anything"
    if missed := [one.name for one in report.controls if not one.caught]:
        yield f"controls that no attack caught: {', '.join(missed)}"
