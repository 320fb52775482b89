"""A trial's folder for NVFlare: beside keys, roster and sites what `nvflare provision` reads, and a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from analytic_secagg.datasets import Dataset
from analytic_secagg.nvflare.job import write_job
from analytic_secagg.server.run_settings import template_settings
from analytic_secagg.site.source import SiteTable
from analytic_secagg.trial import Trial, fitted_settings, new_folder

PROJECT = """\
api_version: 3
name: trial
description: sums that nobody may see
participants:
  - {{name: localhost, type: server, org: trial, fed_learn_port: {port}}}
{clients}  - {{name: operator@trial.org, type: admin, org: trial, role: lead}}
builders:
  - {{path: nvflare.lighter.impl.workspace.WorkspaceBuilder, args: {{template_file: [master_template.yml]}}}}
  - {{path: nvflare.lighter.impl.static_file.StaticFileBuilder, args: {{config_folder: config}}}}
  - {{path: nvflare.lighter.impl.cert.CertBuilder}}
  - {{path: nvflare.lighter.impl.signature.SignatureBuilder}}
"""

CLIENT = "  - {{name: {name}, type: client, org: trial}}\n"


def make_trial(
    folder: Path, dataset: Dataset, *, n_sites: int, n_helpers: int, port: int, tables: Sequence[SiteTable] = ()
) -> Trial:
    """Return a fresh trial with ``project.yml`` and ``job``.

    The rows of a trial are public, and its sites let them into as many totals as are asked for.

    Raises:
        SiteFileError: as ``Trial.create``.
    """
    with new_folder(folder):
        trial = Trial.fill(folder, dataset, n_sites=n_sites, n_helpers=n_helpers, are_rows_public=True, tables=tables)
        clients = "".join(CLIENT.format(name=trial.site(party).name) for party in trial.rows)
        (folder / "project.yml").write_text(PROJECT.format(port=port, clients=clients), encoding="utf-8")
        write_job(folder / "job", {"run": template_settings() | fitted_settings(dataset, n_sites)})
    return trial
