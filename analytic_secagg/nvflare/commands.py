"""The operator's commands: ``analytic-secagg nvflare``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from analytic_secagg.commands.trial import FolderOptions, TrialOptions
from analytic_secagg.console.arguments import file, whole
from analytic_secagg.console.command_line import Program
from analytic_secagg.console.declaration import Command, option


@dataclass(frozen=True, slots=True, kw_only=True)
class NVFlareTrialOptions(TrialOptions):
    """Options of the command ``trial``."""

    port: int = option(
        "where the server will listen", partial(whole, at_least=1, at_most=65535), default=8002, metavar="PORT"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions(FolderOptions):
    """Options of the command ``job``."""

    settings: str = option(
        "overrides of the settings, as one word", str, default="", positional=True, metavar="SETTINGS"
    )
    like: Path | None = option(
        "another job, whose settings it begins with", file, default=None, metavar="JOB", shown="the app's template"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class KitOptions:
    """Options of the command ``kit``."""

    folder: Path = option("a start-up kit that was provisioned for this host", file, positional=True, metavar="KIT")


def _trial(options: NVFlareTrialOptions) -> int:
    from analytic_secagg.nvflare.trial import make_trial

    trial = make_trial(options.folder, **options.made_of(), port=options.port)
    print(f"{options.folder}: project.yml, job, server, site-1 to site-{len(trial.rows)}")
    return 0


def _job(options: JobOptions) -> int:
    from analytic_secagg.nvflare.job import read_job, write_job
    from analytic_secagg.server.run_settings import overrides, template_settings

    settings = template_settings() if options.like is None else read_job(options.like)
    write_job(options.folder, {"run": settings | overrides(options.settings, settings)})
    print(f"{options.folder}: nvflare job submit -j {options.folder}")
    return 0


def _kit(options: KitOptions) -> int:
    from analytic_secagg.nvflare.kit import close_kit

    close_kit(options.folder)
    print(f"{options.folder}: jobs may name this library alone and bring no code; logs stay on this host")
    return 0


COMMANDS: tuple[Command[Any], ...] = (
    Command(
        name="trial",
        summary="make a whole deployment in one new folder, for one host",
        examples="""examples:
  analytic-secagg nvflare trial trial
      five sites with the digits data set; two of them are helpers too, one is the key holder
  analytic-secagg nvflare trial small --clients 4 --helpers 0 --dataset breast_cancer --port 9002
      four sites with other rows, no committee, and a server on another port
""",
        options=NVFlareTrialOptions,
        run=_trial,
    ),
    Command(
        name="job",
        summary="write a job's folder: settings alone, no code",
        examples="""examples:
  analytic-secagg nvflare job sums 'mode="masked" n-features=512'
  analytic-secagg nvflare job sums 'mode="committee"' --like trial/job
      then: nvflare job submit -j sums
""",
        options=JobOptions,
        run=_job,
    ),
    Command(
        name="kit",
        summary="write this host's own policies into its start-up kit, before it is started",
        examples="""example:
  analytic-secagg nvflare kit kits/site-1
""",
        options=KitOptions,
        run=_kit,
    ),
)
"""In the order of the list that --help prints."""

PROGRAM = Program(
    "nvflare",
    {"Commands": COMMANDS},
    help="Closed-form federated learning between real hosts, with NVFlare: jobs, kits and a trial.",
    epilog="""Start with: analytic-secagg nvflare trial --help. docs/how-to/deploy-on-nvflare.md leads on.
Keys, rosters and sites: analytic-secagg --help.
""",
    example="trial trial",
)
