"""The commands ``dossier``, ``check-dossier`` and ``audit-plan``: evidence that an officer can file."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from analytic_secagg.audit_plan import AuditPlan, signed_plan
from analytic_secagg.commands.dossier import CheckOptions, DossierOptions, PlanOptions
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.dossier import Sources, gaps, problems, read_statement
from analytic_secagg.site.key_files import read_secret
from secagg import IdentityKey


def gather(options: DossierOptions) -> int:
    """Write the signed folder; the exit code."""
    identity = IdentityKey(read_secret(options.identity))
    names = Sources(**asdict(options.sources)).write(options.out, identity)
    print(f"{options.out}: {len(names)} files, signed by {identity.public.hex()}")
    _print_decision(options.out, identity.public)
    print(f"analytic-secagg check-dossier {options.out} --key {identity.public.hex()}")
    return 0


def _print_decision(folder: Path, key: bytes) -> None:
    decision = read_statement(folder, key).predicate["audit"]
    if decision is not None:
        print(f"audit: {decision['decision']}")
        for what in decision["missing"]:
            print(f"  missing: {what}")


def check(options: CheckOptions) -> int:
    """Verify such a folder; the exit code."""
    wrong = list(problems(options.folder, options.key))
    for name, what in wrong:
        print(f"{name}: {what}")
    if wrong:
        return 1
    print("verified: the signature, every file, and all that follows from them")
    _print_decision(options.folder, options.key)
    print("not in it, or not recomputed:")
    for name, what in gaps(options.folder):
        print(f"  {name}: {what}")
    return 0


def sign_plan(options: PlanOptions) -> int:
    """Sign the hypotheses; the exit code."""
    plan, identity = AuditPlan.read(options.hypotheses), IdentityKey(read_secret(options.identity))
    OutputFile(options.out).write(signed_plan(plan, identity, datetime.now(UTC)))
    print(f"{options.out}: {len(plan.hypotheses)} hypotheses, signed by {identity.public.hex()}; publish it now")
    return 0
