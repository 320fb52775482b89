"""Declaration of the command ``audit``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import count, file
from analytic_secagg.console.declaration import Command, option, part
from analytic_secagg.console.output_files import refuse_same_file
from analytic_secagg.errors import UsageError
from simulations.audit.settings import AuditSettings
from simulations.command_line.shared_arguments import DataOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """What stays."""

    json: Path | None = option("write every number (docs/reference/audit-json.md)", file, default=None, metavar="FILE")
    sign: Path | None = option(
        "sign the numbers with this identity: a dossier decides by a signed report alone",
        file,
        default=None,
        metavar="KEY",
    )
    plan: Path | None = option(
        "the plan of analytic-secagg audit-plan that it is made for",
        file,
        default=None,
        metavar="FILE",
    )
    html: Path | None = option("write one self-contained page", file, default=None, metavar="FILE")
    dpia: Path | None = option(
        "write a draft of a data protection impact assessment (GDPR, article 35), before any run",
        file,
        default=None,
        metavar="FILE.md",
    )
    jobs: int = option(
        "parts that are played at the same time, each in a process of its own: more than one fills the cores and takes "
        "the memory of as many",
        count,
        default=1,
        metavar="N",
    )

    def __post_init__(self) -> None:
        if (self.sign or self.plan) and not self.json:
            raise UsageError("--sign and --plan are about the report of --json, and there is none; add --json FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """All that ``audit`` understands."""

    data: DataOptions = part(DataOptions, "data")
    settings: AuditSettings = part(AuditSettings, "what is audited")
    finished_run: Path | None = option(
        "the folder of a finished run: attack its own totals and model in place of rehearsed ones, knowing your own "
        "rows (--data: x_train is in the run, x_test is not)",
        file,
        flag="--run",
        default=None,
        metavar="FOLDER",
    )
    output: OutputOptions = part(OutputOptions, "output")

    def __post_init__(self) -> None:
        output = self.output
        read = {"--data": self.data.data, "--sign": output.sign, "--plan": output.plan}
        refuse_same_file({**read, "--json": output.json, "--html": output.html, "--dpia": output.dpia})
        if output.dpia and self.finished_run:
            raise UsageError("--dpia is for before a run; of the run of --run the command dossier writes it")


COMMAND = Command(
    name="audit",
    summary="attack messages, totals and models of your federation, and report what they reveal about people",
    examples="""examples:
  analytic-secagg audit
      digits, without protection, masked and encrypted, every attack, about half a minute
  analytic-secagg audit --html report.html --json report.json
      the same as a page for the person who decides, and every number
  analytic-secagg audit --data features.npz --clients 10 --rows 30 --html report.html
      your own features (arrays x_train, y_train, x_test, y_test) and your own cohort: what would it reveal?
  analytic-secagg audit --limit rebuilt_rows=0 --limit membership=0.7
      stricter limits than the standard ones for what totals and models may show
  analytic-secagg audit --attacks uniformity,class_means --modes masked
      two attacks on one mode, in seconds
  analytic-secagg audit --thorough --jobs 4 --html report.html
      every mode, and three times as many runs for the noise: minutes
  analytic-secagg audit --plan plan.json --sign auditor.key --json audit.json
      a signed report, by which a dossier decides

""",
    options=AuditOptions,
    run="simulations.audit.command:run",
    fine="passed: nothing leaked that must be hidden, and nothing shows more than its limit",
    finding="failed, or not decided",
)
