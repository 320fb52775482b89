"""The command ``audit``: its verdicts and files from its options."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from analytic_secagg.audit_plan import SignedPlan, read_plan
from analytic_secagg.audit_result import AuditResult, signed_report
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.datasets import Dataset
from analytic_secagg.dossier_annexes import draft_assessment
from analytic_secagg.site.key_files import read_secret
from secagg import IdentityKey
from simulations.audit.audit import ESTIMATE, audit
from simulations.audit.decide import Verdict
from simulations.audit.finished_run import FinishedRun
from simulations.audit.population import with_labels
from simulations.audit.settings import AuditSettings
from simulations.command_line.audit import AuditOptions
from simulations.command_line.printing import print_tables
from simulations.command_line.progress import SILENT_SECONDS
from simulations.report.audit_findings import decision, print_audit, sentences

WIDTH_WITHOUT_TERMINAL = 160
"""The table has a line for each result."""


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
    dpia_file = OutputFile(output.dpia) if output.dpia else None
    dataset = with_labels(options.data.rows())
    finished = None if options.finished_run is None else FinishedRun.read(options.finished_run)
    settings, begun = options.settings.spelled_out(dataset), False
    console, started = Console(file=sys.stderr), time.monotonic()
    with console.status("audit") as status:

        def tell(what: str) -> None:
            """On a terminal one line that changes; in a file, of what takes long, a line for each part."""
            nonlocal begun
            if not begun:
                begun = True
                _print_heading(settings, dataset, options.finished_run)
            if what.startswith(ESTIMATE):
                console.print(what)
                return
            status.update(f"audit: {what}")
            if not console.is_terminal and (passed := time.monotonic() - started) > SILENT_SECONDS:
                console.print(f"audit, after {passed:.0f} s: {what}")

        report = audit(dataset, settings, tell, plan=plan, run=finished, jobs=output.jobs)
    try:
        if json_file:
            json_file.write(signed_report(report.to_document(), identity) if identity else report.to_json())
        if html_file:
            from simulations.report.audit_page import to_html  # draws, and so loads matplotlib

            html_file.write(to_html(report))
        if dpia_file:
            learnt = [decision(report), *(sentence for _, sentence in sentences(report))]
            dpia_file.write(draft_assessment(report, AuditResult.from_text(report.to_json()), learnt))
    finally:  # whatever became of the files, the verdicts are not lost
        print_tables(lambda console: print_audit(report, console), width_without_terminal=WIDTH_WITHOUT_TERMINAL)
    for file in filter(None, (json_file, html_file, dpia_file)):
        print(f"written: {file.path}", file=sys.stderr)
    return 0 if report.decision is Verdict.PASSED else 1


def _print_heading(settings: AuditSettings, dataset: Dataset, run: Path | None) -> None:
    """Say at once what is audited; the decision follows when all sums are made."""
    cohort = f"{settings.clients} clients with about {settings.rows_per_client} rows each"
    what = f"{settings.learner.name} on {dataset.name}: {cohort}" if run is None else f"the run in {run.name}"
    with suppress(BrokenPipeError):  # nobody reads it; the files are still wanted
        print(f"audit of {what}, format {settings.format_for(dataset)}, seed {settings.seed}", flush=True)
        for line in (
            *settings.sized(dataset).notes,
            *dataset.private_notes,
            *(f"WARNING: {doubt}" for doubt in dataset.doubts),
        ):
            print(line, flush=True)
