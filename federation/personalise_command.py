"""The command ``personalise``: a site's own model from what a run left at it and its own rows, on its own host."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic.agreeing import Agreed, settled
from analytic.evaluation import evaluation_of
from analytic.fedhip import FedHiP, FedHiPModel
from analytic.learner import fit_pooled
from analytic.model_files import load_model, model_to_bytes
from federation.console.arguments import file, number
from federation.console.declaration import Command, option
from federation.console.output_files import OutputFile, refuse_same_file
from federation.errors import UsageError
from federation.site.errors import SiteFileError
from federation.site.site_file import SiteFile


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaliseOptions:
    """Of the command ``personalise``."""

    model: Path = option("the model that the run left, with its total", file, positional=True, metavar="MODEL")
    site: Path = option("the site's own file, which says where its rows are", file, positional=True, metavar="SITE")
    alpha: float = option("how many times more its own rows weigh", number, default=10.0, metavar="A")
    output: Path = option("where its model goes", file, default=Path("personal.safetensors"), metavar="FILE")

    def __post_init__(self) -> None:
        refuse_same_file({"MODEL": self.model, "SITE": self.site, "--output": self.output})


def _personalise(options: PersonaliseOptions) -> int:
    """Solve for the site's weights; where it keeps rows for judging, say how both models do on them."""
    saved, site = load_model(options.model), SiteFile.read(options.site)
    learner, given = saved.learner, saved.model
    if learner.name.endswith("fedhip"):
        learner, given = settled(learner, given)
    if not isinstance(learner, FedHiP) or given.total is None:
        raise UsageError(
            f"{options.model} must be a model of fedhip with its total, which a run gives to whom the roster's totals "
            "name"
        )
    if site.client is None:
        raise UsageError(f"{options.site} has no [client], and so no rows to personalise with")
    (found,) = learner.personalise(given, site.client.rows(), [options.alpha])
    personal = FedHiPModel(solution=found.solution)
    content = model_to_bytes(learner, personal, classes=saved.classes)
    OutputFile(options.output).fill(lambda out: out.write(content))
    weights = hashlib.sha256(learner.weights_bytes(personal)).hexdigest()
    print(f"the personal model with alpha {options.alpha:g} and weights {weights} is in {options.output}")
    try:
        rows = site.client.test_rows()
    except SiteFileError:
        return 0
    targets = (
        saved.learner.evaluation_format(saved.model) if isinstance(saved.learner, Agreed) else learner.target_format
    )
    for which, model in (("global", given), ("personal", personal)):
        judge: Any = evaluation_of(
            learner, model, n_targets=learner.n_targets, target_format=targets, max_rows=len(rows) or 1
        )
        report: Any = fit_pooled(judge, rows)
        figures = {name: value for name, value in report.figures.items() if name in ("accuracy", "r2", "mae")}
        print(f"{which} model on this site's {len(rows)} rows for judging, told nobody: {figures}")
    return 0


COMMAND = Command(
    name="personalise",
    summary="make a site's own model from a run's total and the site's rows, which stay where they are",
    examples="""example:
  python -m federation personalise results/model-0123456789abcdef.safetensors site.toml --alpha 10
      FedHiP's last phase (eq. 13-14): exact, of the total, the site's own statistics and alpha alone
""",
    options=PersonaliseOptions,
    run=_personalise,
)
