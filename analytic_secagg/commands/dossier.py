"""Declaration of the command ``dossier``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option, part
from analytic_secagg.console.output_files import refuse_same_file
from analytic_secagg.errors import UsageError


def _public_key(text: str) -> bytes:
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise UsageError(f"a public key is 64 hexadecimal digits, as in the roster, not {text!r}")
    return bytes.fromhex(text)


def _several(help_text: str, flag: str) -> Any:
    """Declare a file that may be given several times."""
    return option(help_text, file, default=(), flag=flag, repeated=True, metavar="FILE", shown="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFiles:
    """The files that a dossier is made of, as the command ``dossier`` takes them."""

    folder: Path = option("the folder of a finished run", file, positional=True, metavar="RUN")
    roster: Path = option("the operator's roster", file, metavar="FILE")
    sites: tuple[Path, ...] = _several("a site's file, from which its policy is copied and no key", "--site")
    receipts: tuple[Path, ...] = _several("a receipt that a site kept", "--receipt")
    ledgers: tuple[Path, ...] = _several("a ledger of privacy costs", "--ledger")
    audit: Path | None = option(
        "the report of analytic-secagg audit --json --plan --sign",
        file,
        default=None,
        metavar="FILE",
        shown="none",
    )
    plan: Path | None = option(
        "the plan that audit-plan signed before the run", file, default=None, metavar="FILE", shown="none"
    )
    without_totals: bool = option(
        "leave out totals, for readers who may not have them: the model can then not be recomputed",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DossierOptions:
    """Options of the command ``dossier``."""

    sources: SourceFiles = part(SourceFiles)
    identity: Path = option("the key that signs, such as the server's identity.key", file, metavar="FILE")
    out: Path = option("a new folder", file, default=Path("dossier"), metavar="FOLDER")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """Options of the command ``check-dossier``."""

    folder: Path = option("the dossier", file, positional=True, metavar="FOLDER")
    key: bytes = option("the expected signer's public key, not taken from the dossier", _public_key, metavar="HEX")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Options of the command ``audit-plan``."""

    hypotheses: Path = option("a TOML file of hypotheses and the rule", file, positional=True, metavar="FILE.toml")
    identity: Path = option("the key that signs", file, metavar="FILE")
    out: Path = option("where the signed plan goes", file, default=Path("plan.json"), metavar="FILE.json")

    def __post_init__(self) -> None:
        refuse_same_file({"FILE.toml": self.hypotheses, "--identity": self.identity, "--out": self.out})


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
        run="analytic_secagg.dossier_command:gather",
    ),
    Command(
        name="check-dossier",
        summary="verify a dossier offline, with nothing but it and a public key",
        examples="""example:
  analytic-secagg check-dossier dossier --key 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
      names every changed file and every contradiction, and lists what the dossier does not show
""",
        options=CheckOptions,
        run="analytic_secagg.dossier_command:check",
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
        run="analytic_secagg.dossier_command:sign_plan",
    ),
)
