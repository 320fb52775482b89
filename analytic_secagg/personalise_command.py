"""The command ``personalise``: a site's own model from what a run left at it and its own rows, on its own host."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from analytic.evaluation import evaluation_of
from analytic.fedhip import FedHiP, FedHiPModel
from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model, model_to_bytes
from analytic.pipeline import Pipeline, settled
from analytic_secagg.commands.personalise import PersonaliseOptions
from analytic_secagg.console.output_files import OutputFile
from analytic_secagg.errors import UsageError
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.site_file import SiteFile

SHOWN = ("accuracy", "accuracy_interval", "r2", "mae")
"""Figures of a report that are printed."""


def run(options: PersonaliseOptions) -> int:
    """Make a site's own model; the exit code."""
    saved, site = load_model(options.model), SiteFile.read(options.site)
    whole: Any = saved.learner
    learner, given = whole, saved.model
    if whole.name.endswith("fedhip"):
        learner, given = settled(whole, saved.model)
    if not isinstance(learner, FedHiP) or given.total is None:
        raise UsageError(
            f"{options.model} holds a model of {whole.name}{' without its total' * isinstance(learner, FedHiP)}, and "
            "must hold one of fedhip, its ridge chosen, its columns agreed on or its rows weighed if need be, with its "
            "total, which a run gives to whom the roster's totals name"
        )
    if site.client is None:
        raise UsageError(f"{options.site} has no [client], and so no rows to personalise with")
    own = site.client.rows()
    alpha = _alpha(whole, saved.model, own, options.alpha)
    if isinstance(whole, Pipeline):  # whose own rows weigh as they did in the sum
        (found,) = learner.personal_models(given, whole.own_statistics(saved.model, own), [alpha])
    else:
        (found,) = learner.personalise(given, own, [alpha])
    personal = FedHiPModel(solution=found.solution, centre=found.centre)
    content = model_to_bytes(learner, personal, classes=saved.classes, features=saved.features)
    OutputFile(options.output, private=True).write(content)
    weights = hashlib.sha256(learner.weights_bytes(personal)).hexdigest()
    print(f"the personal model with alpha {alpha:g} and weights {weights} is in {options.output}")
    try:
        rows = site.client.test_rows()
    except SiteFileError:
        return 0
    targets = whole.evaluation_format(saved.model) if isinstance(whole, Pipeline) else learner.target_format
    for which, model in (("global", given), ("personal", personal)):
        judge: Any = evaluation_of(
            learner, model, n_targets=learner.n_targets, target_format=targets, max_rows=len(rows) or 1
        )
        report: Any = fit_pooled(judge, rows)
        figures = {name: value for name, value in report.figures.items() if name in SHOWN}
        print(f"{which} model on this site's {len(rows)} rows for judging, told nobody: {figures}")
    return 0


def _alpha(learner: Any, model: Any, rows: ClientRows, alphas: Sequence[float]) -> float:
    """The stated weight of the site's own rows, or of several the one that the folds' sums and its own folds choose."""
    if len(alphas) == 1:
        return alphas[0]
    if learner.name.removeprefix("agreed-") != "chosen-fedhip":
        raise UsageError(
            "one of several --alpha is chosen with the folds of a run with ridge cv, of rows without weights, and this "
            f"model is of {learner.name}: name one"
        )
    path = learner.choose_alpha(model, rows, alphas)
    for value, error in zip(path.values, path.mean, strict=True):
        print(f"alpha {value:g}: mean error {error:.6g} of a row of this site, over {path.errors.shape[1]} folds")
    return float(path.choice)
