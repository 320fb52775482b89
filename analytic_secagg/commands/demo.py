"""Declaration of the command ``demo``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from analytic_secagg.commands.trial import MIN_SITES
from analytic_secagg.console.arguments import LARGEST_EPSILON, number, whole
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.datasets import BUNDLED


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Options of the command ``demo``."""

    clients: int = option("sites with rows", partial(whole, at_least=MIN_SITES, at_most=20), default=5, metavar="N")
    dataset: str = option("whose rows", default="breast_cancer", choices=tuple(BUNDLED))
    epsilon: float = option(
        "privacy cost of one run, of a budget for two runs; 0 for exact totals",
        partial(number, wanted=f"0 to {LARGEST_EPSILON:g}", fits=lambda value: 0 <= value <= LARGEST_EPSILON),
        default=0.0,
    )
    pace: float = option(
        "seconds before each exchange, so that people can follow",
        partial(number, wanted="0 to 60", fits=lambda value: 0 <= value <= 60),
        default=1.0,
        metavar="SECONDS",
    )
    port: int = option(
        "of the page, on 127.0.0.1", partial(whole, at_least=0, at_most=65535), default=0, shown="one that is free"
    )
    no_browser: bool = option("only print the page's address", default=False)


COMMAND = Command(
    name="demo",
    summary="start a whole federation on this computer and a page to watch it, kill sites and make a helper malicious",
    examples="""examples:
  analytic-secagg demo
      five sites with rows of a breast cancer study, four helpers and a server, each a process
  analytic-secagg demo --epsilon 2 --no-browser
      with noise, of which each site's budget pays two runs; prints the page's address
""",
    options=DemoOptions,
    run="analytic_secagg.local.command:run",
)
