"""Declaration of the command ``personalise``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from analytic_secagg.console.arguments import file, number
from analytic_secagg.console.declaration import Command, option
from analytic_secagg.console.output_files import refuse_same_file


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaliseOptions:
    """Options of the command ``personalise``."""

    model: Path = option("the model that the run left, with its total", file, positional=True, metavar="MODEL")
    site: Path = option("the site's own file, which says where its rows are", file, positional=True, metavar="SITE")
    alpha: tuple[float, ...] = option(
        "how many times more its own rows weigh; of several, such as 0,1,10, the one with the least error over the "
        "folds of a run that chose its ridge",
        lambda text: tuple(number(one) for one in text.split(",")),
        default=(10.0,),
        metavar="A,...",
        shown="10",
    )
    output: Path = option("where its model goes", file, default=Path("personal.safetensors"), metavar="FILE")

    def __post_init__(self) -> None:
        refuse_same_file({"MODEL": self.model, "SITE": self.site, "--output": self.output})


COMMAND = Command(
    name="personalise",
    summary="make a site's own model from a run's total and the site's rows, which stay where they are",
    examples="""example:
  analytic-secagg personalise results/model-0123456789abcdef.safetensors site.toml --alpha 10
      FedHiP's last phase (eq. 13-14): exact, of the total, the site's own statistics and alpha alone
""",
    options=PersonaliseOptions,
    run="analytic_secagg.personalise_command:run",
)
