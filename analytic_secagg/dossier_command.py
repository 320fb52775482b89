"""The commands ``dossier``, ``check-dossier`` and ``audit-plan``: evidence that an officer can file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from analytic_secagg.audit_plan import AuditPlan, signed_plan
from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option, part
from analytic_secagg.console.output_files import OutputFile, refuse_same_file
from analytic_secagg.dossier import Sources, gaps, problems, read_statement
from analytic_secagg.errors import UsageError
from analytic_secagg.site.key_files import read_secret
from secagg import IdentityKey


def _public_key(text: str) -> bytes:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise UsageError(f"a public key is 64 hexadecimal digits, as in the roster, not {text!r}")
    return bytes.fromhex(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DossierOptions:
    """Options of the command ``dossier``."""

    sources: Sources = part(Sources)
    identity: Path = option("the key that signs, such as the server's identity.key", file, metavar="FILE")
    out: Path = option("a new folder", file, default=Path("dossier"), metavar="FOLDER")


def _dossier(options: DossierOptions) -> int:
    identity = IdentityKey(read_secret(options.identity))
    names = options.sources.write(options.out, identity)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """Options of the command ``check-dossier``."""

    folder: Path = option("the dossier", file, positional=True, metavar="FOLDER")
    key: bytes = option("the expected signer's public key, not taken from the dossier", _public_key, metavar="HEX")


def _check(options: CheckOptions) -> int:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of the command ``audit-plan``."""

    hypotheses: Path = option("a TOML file of hypotheses and the rule", file, positional=True, metavar="FILE.toml")
    identity: Path = option("the key that signs", file, metavar="FILE")
    out: Path = option("where the signed plan goes", file, default=Path("plan.json"), metavar="FILE.json")

    def __post_init__(self) -> None:
        refuse_same_file({"FILE.toml": self.hypotheses, "--identity": self.identity, "--out": self.out})


def _plan(options: PlanOptions) -> int:
    plan, identity = AuditPlan.read(options.hypotheses), IdentityKey(read_secret(options.identity))
    OutputFile(options.out).write(signed_plan(plan, identity, datetime.now(UTC)))
    print(f"{options.out}: {len(plan.hypotheses)} hypotheses, signed by {identity.public.hex()}; publish it now")
    return 0


COMMANDS: tuple[Command[Any], ...] = (
    Command(
        name="dossier",
        summary="gather the evidence of a run in one signed folder that verifies offline",
        examples="""example:
  analytic-secagg dossier models/run-1 --identity identity.key --roster roster.toml --audit audit.json \\
      --plan plan.json
      agreements, totals and model, receipts, privacy costs, disclosure checks and audit, with annexes to file
""",
        options=DossierOptions,
        run=_dossier,
    ),
    Command(
        name="check-dossier",
        summary="verify a dossier offline, with nothing but it and a public key",
        examples="""example:
  analytic-secagg check-dossier dossier --key 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
      names every changed file and every contradiction, and lists what the dossier does not show
""",
        options=CheckOptions,
        run=_check,
        finding="a file was changed, or contradicts another",
    ),
    Command(
        name="audit-plan",
        summary="fix and sign an audit's hypotheses before a run",
        examples="""example:
  analytic-secagg audit-plan hypotheses.toml --identity identity.key
      publish plan.json, and give it to dossier with the audit's report
""",
        options=PlanOptions,
        run=_plan,
    ),
)
