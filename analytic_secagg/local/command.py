"""The command ``demo``: a whole federation on this computer, and a page to watch and break it."""

from __future__ import annotations

import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from analytic_secagg.commands.demo import DemoOptions
from analytic_secagg.datasets import Dataset, bundled
from analytic_secagg.errors import UsageError
from analytic_secagg.local.deployment import LocalDeployment
from analytic_secagg.local.page import PageServer
from analytic_secagg.local.watch import BUDGET_IN_RUNS, Demonstration
from analytic_secagg.site.key_files import write_new
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from secagg.dp import Ledger

N_HELPERS = 4
"""Number of helpers, of which one may be malicious or unavailable."""

PRIVACY = """
[privacy]
epsilon = {budget}
run_epsilon = {epsilon}
ledger = "ledger"
"""


@contextmanager
def demonstration(options: DemoOptions) -> Iterator[Demonstration]:
    """All processes over a fresh folder, which is gone afterwards.

    Raises:
        UsageError: rows that cannot be shown like this.
    """
    dataset = bundled(options.dataset)
    if dataset.is_regression or dataset.is_multilabel:
        raise UsageError(f"the demonstration is of rows with one class each, and {dataset.name} has others")
    with tempfile.TemporaryDirectory(prefix="federation-demo-") as place:
        trial = make_trial(Path(place) / "trial", dataset, options)
        with LocalDeployment(trial, pace_seconds=options.pace) as deployment:
            yield Demonstration(deployment, dataset, epsilon=options.epsilon)


def make_trial(folder: Path, dataset: Dataset, options: DemoOptions) -> Trial:
    """Return a trial whose helpers stand apart, and whose sites have a ledger each where there is noise."""
    private = PRIVACY.format(budget=BUDGET_IN_RUNS * options.epsilon, epsilon=options.epsilon)
    trial = Trial.create(
        folder,
        dataset,
        n_sites=options.clients,
        n_helpers=N_HELPERS,
        are_helpers_apart=True,
        of_clients=private if options.epsilon else "",
        settings={"epsilon": options.epsilon},
    )
    for party in trial.rows if options.epsilon else ():
        site = SiteFile.read(trial.site(party) / "site.toml")
        assert site.privacy is not None, "this was just written"
        assert site.budget is not None, "and its rows are there"
        Ledger.create(site.privacy.ledger, site.budget)
    return trial


def _page(shown: Demonstration, port: int) -> PageServer:
    try:
        return PageServer(shown, port)
    except OSError as error:
        raise UsageError(f"the page cannot be at port {port}: {error.strerror}; name another with --port") from error


def _leading_to(address: str, folder: Path) -> str:
    """Return where a file leads to an address: a browser's command line, which every user can list, holds no token."""
    path = folder / "open.html"
    write_new(path, f'<!doctype html><meta http-equiv="refresh" content="0; url={address}">\n'.encode())
    return path.as_uri()


def run(options: DemoOptions) -> int:
    """Show a federation until it is stopped; the exit code."""
    with suppress(KeyboardInterrupt), demonstration(options) as shown, _page(shown, options.port) as page:
        print(f"{options.clients} sites, {N_HELPERS} helpers and a server run; open {page.address}", flush=True)
        print("Ctrl-C ends all of them", flush=True)
        if not options.no_browser:
            webbrowser.open(_leading_to(page.address, shown.folder.parent))
        page.serve_forever()
    print("all processes have ended")  # a signal is how a demonstration ends
    return 0
