"""The command ``audit``: its verdicts and files from its options."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from analytic_secagg.audit_plan import SignedPlan, read_plan
from analytic_secagg.audit_result import signed_report
from analytic_secagg.console.arguments import file
from analytic_secagg.console.declaration import Command, option, part
from analytic_secagg.console.output_files import OutputFile, refuse_same_file
from analytic_secagg.console.printing import print_tables
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.site.key_files import read_secret
from secagg import IdentityKey
from simulations.audit.audit import AuditSettings, audit
from simulations.command_line.progress import SILENT_SECONDS
from simulations.command_line.shared_arguments import DataOptions
from simulations.report.audit_findings import findings, print_audit
from simulations.report.document import Mark

WIDTH_WITHOUT_TERMINAL = 240
"""The matrix has a column for each mode."""


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
        "the plan of python -m analytic_secagg audit-plan that it is made for",
        file,
        default=None,
        metavar="FILE",
    )
    html: Path | None = option("write one self-contained page", file, default=None, metavar="FILE")
    no_pictures: bool = option("leave rows of the data out of the page, so that it may be shared", default=False)

    def __post_init__(self) -> None:
        if self.no_pictures and not self.html:
            raise UsageError("--no-pictures needs a page to leave them out of, and there is none; add --html FILE")
        if (self.sign or self.plan) and not self.json:
            raise UsageError("--sign and --plan are about the report of --json, and there is none; add --json FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """All that ``audit`` understands."""

    data: DataOptions = part(DataOptions, "data")
    settings: AuditSettings = part(AuditSettings, "what is audited")
    output: OutputOptions = part(OutputOptions, "output")

    def __post_init__(self) -> None:
        output = self.output
        read = {"--data": self.data.data, "--sign": output.sign, "--plan": output.plan}
        refuse_same_file({**read, "--json": output.json, "--html": output.html})


def run(options: AuditOptions) -> int:
    """Audit as asked; the exit code.

    Raises:
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: wrong input, or a failed sum.
    """
    output = options.output
    identity = IdentityKey(read_secret(output.sign)) if output.sign else None
    plan = SignedPlan.from_text(read_plan(output.plan)) if output.plan else None
    json_file = OutputFile(output.json) if output.json else None
    html_file = OutputFile(output.html) if output.html else None
    dataset = options.data.rows()
    if dataset.is_regression or dataset.is_multilabel:
        raise UsageError(
            f"attacks look for rows of classes; {dataset.name} has real targets or several a row: name data with labels"
        )
    settings, begun = options.settings, False
    console, started = Console(file=sys.stderr), time.monotonic()
    with console.status("audit") as status:

        def tell(what: str) -> None:
            """On a terminal one line that changes; in a file, of what takes long, a line for each part."""
            nonlocal begun
            if not begun:
                begun = True
                _print_heading(settings, dataset)
            status.update(f"audit: {what}")
            if not console.is_terminal and (passed := time.monotonic() - started) > SILENT_SECONDS:
                console.print(f"audit, after {passed:.0f} s: {what}")

        report = audit(dataset, settings, tell, plan=plan)
    try:
        if json_file:
            json_file.write(signed_report(report.to_document(), identity) if identity else report.to_json())
        if html_file:
            from simulations.report.audit_html import to_html  # draws, and so loads matplotlib

            html_file.write(to_html(report, pictures=not output.no_pictures))
    finally:  # whatever became of the files, the verdicts are not lost
        print_tables(lambda console: print_audit(report, console), width_without_terminal=WIDTH_WITHOUT_TERMINAL)
    for mark, finding in findings(report):
        if mark is Mark.WRONG:
            print(f"error: {finding}", file=sys.stderr)
    return 0 if report.holds else 1


def _print_heading(settings: AuditSettings, dataset: Dataset) -> None:
    """Say at once what is audited; the verdicts follow when all sums are made."""
    with suppress(BrokenPipeError):  # nobody reads it; the files are still wanted
        print(
            f"audit of {settings.learner.name} on {dataset.name}: {settings.sessions} cohorts of {settings.clients} "
            f"clients with about {settings.rows_per_client} rows each, "
            f"format {settings.format_for(dataset)}, seed {settings.seed}",
            flush=True,
        )


COMMAND = Command(
    name="audit",
    summary="attack what clients really send, in every privacy mode, and report what of their data comes back",
    examples="""examples:
  python -m simulations audit
      digits, every mode that is installed, every attack, about a minute
  python -m simulations audit --html report.html --json report.json
      the same as a page for a privacy officer, and every number
  python -m simulations audit --data features.npz --modes plain,masked --clients 10 --rows 30 --html report.html
      your own features (arrays x_train, y_train, x_test, y_test): what would your clients give away?
  python -m simulations audit --attacks row_count,class_means --modes masked
      two attacks on one mode, in seconds
  python -m simulations audit --plan plan.json --sign auditor.key --json audit.json
      a signed report, by which a dossier decides the plan's hypotheses

""",
    options=AuditOptions,
    run=run,
    fine="every protection held and every planted fault was caught",
    finding="not so",
)
