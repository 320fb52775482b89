"""Preparation of a run: formats, learner, privacy plan, and the refusal of settings that cannot work."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from analytic.errors import SpecificationError
from analytic.learner import AnalyticLearner
from analytic.row_format import RowFormat
from analytic.scaling import Agreement, agreed_format
from analytic.statistics import LABELS, bits_of_squares
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import CROSS_VALIDATED, LearnerSettings, find_learner
from analytic_secagg.privacy import Boundable, PrivacyPlan
from analytic_secagg.size import refuse_too_large
from secagg import InsecureSeededEntropy
from simulations.compare.dpsgd import METHODS
from simulations.compare.run import SHARES, Run

TARGET_BITS = 22
"""Bits of a target format that covers all rows, as far as so many squares add up exactly."""


@lru_cache(maxsize=1)
def covering(dataset: Dataset) -> RowFormat:
    """Return the format that holds every training row, which reads them all; each part of a run asks for it.

    Raises:
        SpecificationError: none does.
    """
    return RowFormat.covering(dataset.x_train)


def feature_format_of(run: Run, dataset: Dataset) -> RowFormat:
    """Return the format of features: stated, or one that covers all training rows; that of columns agreed on.

    Raises:
        UsageError: no format covers them.
    """
    if run.agreement:
        return agreed_format(len(dataset.x_train))
    if run.format:
        return RowFormat.parse(run.format)
    try:
        return covering(dataset)
    except SpecificationError as error:
        raise UsageError(
            f"{dataset.name} needs columns that one format holds, or --format agreed, which brings each to a size of "
            f"its own: {error}"
        ) from error


def target_format_of(run: Run, dataset: Dataset) -> RowFormat:
    """Return the format of real targets, stated or covering all training rows; ``LABELS`` of classes.

    Raises:
        UsageError: a target format for class labels, or gradient methods or noise for anything but one class a row, or
            for rows that weigh.
    """
    if dataset.w_train is not None and not run.is_exact:
        raise UsageError(
            f"--baselines and --epsilon count every row once, and {dataset.name} has weights of rows (w_train): leave "
            "these or those out"
        )
    if not dataset.is_regression:
        if run.target_format is not None:
            raise UsageError(f"--target-format is for real targets, and {dataset.name} has class labels; leave it out")
        if dataset.is_multilabel and not run.is_exact:
            raise UsageError(
                f"--baselines and --epsilon are for one class a row, and {dataset.name} has several: its baselines "
                "are softmax heads, and a row's sensitivity is bounded for one class; leave them out"
            )
        return LABELS
    if not run.is_exact:
        raise UsageError(
            f"--baselines and --epsilon are for class labels, and {dataset.name} has real targets; leave them out"
        )
    if run.agreement:
        agreed = agreed_format(len(dataset.y_train))
        if run.target_format not in (None, str(agreed)):
            raise UsageError(f"--format {run.agreement} agrees on targets too; leave --target-format out")
        return agreed
    bits = min(TARGET_BITS, bits_of_squares(len(dataset.y_train)))
    return RowFormat.parse(run.target_format) if run.target_format else RowFormat.covering(dataset.y_train, bits=bits)


def stated(run: Run, dataset: Dataset) -> Run:
    """Return the run with all written out that follows from rows, dropouts and a method's defaults."""
    target_format, label = target_format_of(run, dataset), run.label or run.learner
    if run.is_baseline:
        return run.but(label=label, options=METHODS[run.learner].complete(run.options), ridge=None)
    return run.but(
        label=label,
        format=str(feature_format_of(run, dataset)),
        target_format=str(target_format) if dataset.is_regression else None,
        min_noise_shares=run.min_survivors,
    )


def build(run: Run, dataset: Dataset, *, max_clients: int | None = None) -> AnalyticLearner[Any]:
    """Return a run's closed form, for its own cohort or another number of clients, before its rows are bounded.

    Raises:
        UsageError, analytic.errors.SpecificationError: options that it cannot have.
    """
    return find_learner(run.learner).build(
        LearnerSettings(
            n_features=dataset.n_features,
            n_classes=dataset.n_classes,
            feature_format=feature_format_of(run, dataset),
            max_rows=len(dataset.x_train),
            max_clients=run.clients if max_clients is None else max_clients,
            ridge=CROSS_VALIDATED if run.ridge is None else run.ridge,
            ri_gamma=run.ri_gamma,
            target_format=target_format_of(run, dataset),
            options=run.options,
            agreement=run.agreement,
        )
    )


def check(run: Run, dataset: Dataset, *, at_once: int = 1) -> int:
    """Refuse wrong settings of a run, before hours of work for another one.

    Args:
        run: what is to be trained.
        dataset: its rows.
        at_once: how many such runs go on at the same time.

    Returns:
        How many times ``execute`` says that it goes on, at most: contributions of clients, or rounds.

    Raises:
        FederationError, analytic.errors.AnalyticError, secagg.dp.PrivacyError: what ``execute`` would say at its start.
    """
    asked = stated(run, dataset)
    if run.is_baseline:
        return int(asked.options.get("rounds", 1))
    refuse_too_large(build(run, dataset), run.mode_of_sums(), run.clients, at_once=at_once)
    return run.clients * n_sums(run, dataset)


def has_intercept(run: Run, dataset: Dataset) -> bool:
    """Whether a float64 ridge beside a learner has an intercept: as the learner has, see ``LearnerSettings``."""
    return bool(run.options.get("intercept", dataset.is_regression or run.agreement is Agreement.STANDARDISED))


def bounded(run: Run, dataset: Dataset) -> Boundable:
    """Return the closed form of a run under noise, with every row inside a public ball, and no noise yet."""
    return plan(run, dataset).bounded(build(run, dataset))


def n_sums(run: Run, dataset: Dataset) -> int:
    """Return how many sums a run takes, at most."""
    if run.trust is not None:
        terms = plan(run, dataset)
        return len(bounded(run, dataset).bounded_sums(terms.unit, terms.adjacency))
    agreed = 0 if run.agreement is None else run.agreement.n_sums
    return find_learner(run.learner).n_sums(run.options) + agreed


def plan(run: Run, dataset: Dataset) -> PrivacyPlan:
    """Return the privacy plan of a run under noise; of one without noise, in private form, what bounds its rows."""
    terms = {name: getattr(run, name) for name in ("delta", "unit", "adjacency", *SHARES)}
    shares = {"distributed": run.min_survivors, "local": 1}.get(run.trust or "")
    return PrivacyPlan(
        epsilon=1.0 if run.target_epsilon is None else run.target_epsilon,
        min_noise_shares=shares,
        colluders=(run.colluders or 0) if run.trust == "distributed" else 0,
        fraction_bits=feature_format_of(run, dataset).fraction_bits,
        nonnegative=dataset.is_nonnegative,
        client_rows=-(-len(dataset.x_train) // run.clients),
        noise_entropy=lambda number: InsecureSeededEntropy(run.seed, f"noise {run.trust} {number}"),
        **{name: value for name, value in terms.items() if value is not None},
    )
