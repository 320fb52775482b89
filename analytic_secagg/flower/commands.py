"""The operator's commands: ``analytic-secagg flower``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic_secagg.commands.trial import FolderOptions, TrialOptions
from analytic_secagg.console.arguments import file
from analytic_secagg.console.command_line import Program
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.errors import UsageError


def _address(text: str) -> str:
    """An address of this host that the trial's certificate is for.

    Raises:
        UsageError: another host, or no port.
    """
    if not re.fullmatch("(127.0.0.1|localhost):[1-9][0-9]{0,4}", text) or int(text.rpartition(":")[2]) >= 1 << 16:
        raise UsageError(f"a trial's certificate is for 127.0.0.1:PORT or localhost:PORT, not {text!r}")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerTrialOptions(TrialOptions):
    """Options of the command ``trial``."""

    address: str = option(
        "where the SuperLink will listen, on this host", _address, default="127.0.0.1:8000", metavar="HOST:PORT"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearseOptions:
    """Options of the command ``rehearse``."""

    folder: Path = option("what the command trial made", file, positional=True, metavar="FOLDER")
    settings: str = option(
        "overrides of the app's configuration, as one word", str, default="", positional=True, metavar="SETTINGS"
    )


def _app(options: FolderOptions) -> int:
    from analytic_secagg.flower.trial import copy_template

    copy_template(options.folder)
    print(f"{options.folder}: edit [tool.flwr.app.config] in pyproject.toml, then: flwr run {options.folder} NAME")
    return 0


def _trial(options: FlowerTrialOptions) -> int:
    from analytic_secagg.flower.trial import make_trial

    trial = make_trial(options.folder, **options.made_of(), address=options.address)
    print(f"{options.folder}: app, tls, server, operator-home, site-1 to site-{len(trial.rows)}")
    return 0


def _rehearse(options: RehearseOptions) -> int:
    try:
        from analytic_secagg.flower.rehearsal import rehearse
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a rehearsal needs Flower, and there is no module {error.name}; pip install '.[flower]'"
        ) from error
    from analytic_secagg.flower.trial import app_settings
    from analytic_secagg.server.run_settings import overrides

    config = app_settings(options.folder / "app")
    rehearse(options.folder, config | overrides(options.settings, config))
    print(f"the model is in {options.folder / 'server' / 'models' / 'rehearsal' / 'model.safetensors'}")
    return 0


COMMANDS: tuple[Command[Any], ...] = (
    Command(
        name="trial",
        summary="make a whole deployment in one new folder, for one host",
        examples="""examples:
  analytic-secagg flower trial trial
      five sites with the digits data set; two of them are helpers too, one is the key holder
  analytic-secagg flower trial small --clients 4 --helpers 0 --dataset breast_cancer --address 127.0.0.1:9000
      four sites with other rows, no committee, and a SuperLink on another port
  analytic-secagg flower trial trial --data heart.csv --columns columns.toml --reading reading.toml
      five sites with the rows of a table; the command schema drafts the other two files
  analytic-secagg flower trial trial --columns columns.toml --data a.csv --data b.csv --data c.xlsx --data d.csv \\
    --reading a.toml --reading b.toml --reading c.toml --reading d.toml
      four sites, each with its own table, read as its own file says
""",
        options=FlowerTrialOptions,
        run=_trial,
    ),
    Command(
        name="rehearse",
        summary="run the apps over a trial's folder in this one process",
        examples="""examples:
  analytic-secagg flower rehearse trial
  analytic-secagg flower rehearse trial 'mode="committee"'
  analytic-secagg flower rehearse trial 'mode="masked+bfv" dropout=0.2 ridge=0.5'

Settings not named are those of trial/app/pyproject.toml. The model, a summary and a log of all rounds lie in
trial/server/models/rehearsal.
""",
        options=RehearseOptions,
        run=_rehearse,
    ),
    Command(
        name="app",
        summary="copy the thin Flower app into a new folder",
        examples="""example:
  analytic-secagg flower app secure-sum-app
      then edit its pyproject.toml and: flwr run secure-sum-app remote --stream
""",
        options=FolderOptions,
        run=_app,
    ),
)
"""In the order of the list that --help prints."""

PROGRAM = Program(
    "flower",
    {"Commands": COMMANDS},
    help="Closed-form federated learning between real hosts, with Flower: an app and a trial.",
    epilog="""Start with: analytic-secagg flower trial --help. docs/how-to/try-flower.md goes on from there.
Keys, rosters and sites: analytic-secagg --help.
""",
    example="trial trial",
)
