"""The decision on an audit's hypotheses: by a report that its auditor signed, of the plan's code, data and settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from analytic_secagg.audit_plan import Hypothesis, SignedPlan
from analytic_secagg.audit_result import LEARNER, AuditResult


def decide(
    plan: SignedPlan, result: AuditResult, *, signers: Mapping[bytes, str], run: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the outcome of each hypothesis, the decision, and the reasons why none can be made.

    The decision is ``failed`` where a hypothesis or the report itself failed, and ``passed`` only where all passed and
    nothing is missing; otherwise it is ``not decided``.

    Args:
        plan: signed before the run.
        result: the audit's report.
        signers: who may have run the audit, in words by public key, where the plan names nobody.
        run: the summary of the run that it is filed with.
    """
    auditor = plan.plan.auditor
    allowed = {bytes.fromhex(auditor): "the auditor whom the plan names"} if auditor else signers
    hypotheses = [{**one.model_dump(), "outcome": _outcome(one, result)} for one in plan.plan.hypotheses]
    missing = [*_vouched(result.signer, allowed), *_about(plan, result, run), *result.problems]
    if result.decision != "passed":
        missing.append(f"the report itself says that the audit is {result.decision}")
    outcomes = {one["outcome"] for one in hypotheses} | {result.decision}
    passed = outcomes == {"passed"} and not missing
    return {
        "decision": "failed" if "failed" in outcomes else "passed" if passed else "not decided",
        "hypotheses": hypotheses,
        "missing": missing,
    }


def _outcome(hypothesis: Hypothesis, result: AuditResult) -> str:
    found = {
        one.outcome for one in result.findings if (one.attack, one.exposure) == (hypothesis.attack, hypothesis.mode)
    }
    if found == {hypothesis.expected}:
        return "passed"
    return "failed" if found - {hypothesis.expected, "not decided"} else "not decided"


def _vouched(signer: bytes | None, allowed: Mapping[bytes, str]) -> Iterator[str]:
    if signer is None:
        yield "nobody signed the report: run the audit with --sign"
    elif signer not in allowed:
        yield f"the report is signed by {signer.hex()}, and it must be signed by {' or '.join(allowed.values())}"


def _about(plan: SignedPlan, result: AuditResult, run: Mapping[str, Any]) -> Iterator[str]:
    if result.plan_sha256 != plan.sha256:
        made = "no plan" if result.plan_sha256 is None else f"the plan {result.plan_sha256[:16]}"
        yield f"the report was made for {made}, and this is the plan {plan.sha256[:16]}: run the audit with --plan"
    yield from plan.differences(code=result.code, data_sha256=result.data_sha256, settings=result.settings)
    if run.get("plan") is None:
        yield "the run was bound to no plan: name the plan in server.toml before the run begins"
    if run.get("code") != plan.code._asdict():
        yield f"the plan is about {plan.code}, and the run states other code, or none"
    if result.run_weights not in (None, run["weights_sha256"]):
        yield "the audit attacked the totals and the model of another run: name this run's folder with --run"
    if run["mode"] not in {one.mode for one in plan.plan.hypotheses if one.expected == "hidden"}:
        yield f"the run is over {run['mode']}, and no hypothesis says that something is hidden in this mode"
    for setting in LEARNER:
        audited, own = result.learner[setting], run["settings"][setting]
        if setting == "ridge" and audited is None and own != "cv":
            continue  # a report without a ridge is of the sums of every stated ridge, which enters the solve alone
        if own != audited:
            stated = "none" if audited is None else repr(audited)
            yield f"the audit has {setting} {stated}, and the run has {own!r}"
