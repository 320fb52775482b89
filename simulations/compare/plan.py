"""The runs that options of the command line ask for."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from analytic.row_format import RowFormat
from analytic.scaling import Agreement
from analytic_secagg.console.arguments import Configurable, Option, Reader, parse_options
from analytic_secagg.console.declaration import changed
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import CROSS_VALIDATED, DEFAULT_ALPHAS, LEARNERS, LearnerEntry, Thresholds
from simulations.compare.dpsgd import NEEDS_BUDGET
from simulations.compare.options import CompareOptions, FederationOptions
from simulations.compare.privacy import FLAT
from simulations.compare.run import BASELINE, SHARES, Run
from simulations.compare.tuning import Grid, Task, read_grids

PRIVATE_FORMS: Mapping[str, Mapping[str, Any]] = {
    "afl": {},
    "fedhip": {"alphas": DEFAULT_ALPHAS},
    "random": {"d_phi": 64, "activation": "gelu", "variance": 1.0},
    "logistic": {
        "n_rounds": 5,
        "step": None,
        "scale": 10.0,
        "d_phi": None,
        "first_share": None,
        "residual_bound": None,
    },
    "deepafl": {"n_layers": 1, "d_phi": 64, "d_f": 64},
    "safle": {"n_buckets": 2, "group_size": 1, "low": 0.0, "high": 1.0},
}
"""The learners that have a private form, with the options that it has and their defaults; None leaves an option out."""

ALWAYS: Mapping[str, Mapping[str, Any]] = {
    "deepafl": {"gamma": 1e-3, "projection": "nin"},
    "safle": {"thresholds": Thresholds.EVEN},
}
"""What else their private forms are built with: no sum may ask rows for thresholds."""

NEVER_CENTRED = ("deepafl", "safle")
"""The learners whose budget buys no mean."""

PRIVATE: Mapping[str, Any] = {
    "mode": "plain",
    "ridge": 0.01,
    "format": "Q0.16",
    "split": "drawn",
    "dropout_stage": "first",
    "trust": "non-private",
    "delta": 1e-5,
    "unit": "record",
    "adjacency": "add-remove",
    "gram_share": 0.3,
    "mean_share": 0.05,
    "colluders": 1,
}
"""Fields of runs in private form that differ from those of exact runs, with their defaults; rows have norm 1."""


def product(*axes: Sequence[Mapping[str, Any]], **common: Any) -> tuple[Run, ...]:
    """Return a run for each combination, the last axis fastest.

    Args:
        axes: the values of each, as fields of a run.
        common: fields that all runs share.
    """
    return tuple(
        Run(**common, **{name: value for own in several for name, value in own.items()})
        for several in itertools.product(*axes)
    )


def private_run(learner: str, options: Mapping[str, Option] | None = None, **others: Any) -> Run:
    """Return a run of a learner's private form, all options of which are stated.

    Args:
        learner: one of ``PRIVATE_FORMS``.
        options: its own.
        others: further fields of ``Run``.

    Raises:
        UsageError: an option that the private form does not have.
    """
    known, own = PRIVATE_FORMS[learner], options or {}
    if unknown := own.keys() - known.keys():
        raise UsageError(
            f"with --epsilon {learner} takes {', '.join(known) or 'no options'} with --option, not "
            f"{', '.join(sorted(unknown))}; leave that out, or --epsilon"
        )
    whole = {name: value for name, value in {**known, **own}.items() if value is not None}
    depth = whole.get("n_layers", whole.get("n_rounds"))
    label = learner if depth is None else f"{learner} with T = {depth}"
    stated = {**PRIVATE, **others, "options": {**ALWAYS.get(learner, {}), **whole}}
    if learner in NEVER_CENTRED:
        stated["mean_share"] = 0.0
    return Run(learner=learner, label=label, **stated)


def private_tasks(
    run: Run,
    epsilons: Iterable[float],
    modes: Sequence[Mapping[str, Any]],
    *,
    seeds: range,
    grid: Grid | None = None,
    tune_seeds: int = 1,
) -> Iterator[Task]:
    """Yield every budget under every kind of trust, each for all seeds, and before them the run without noise.

    Args:
        run: a learner's private form.
        epsilons: budgets.
        modes: over each of which distributed noise runs, as fields of a run; what the server may see travels in the
            clear.
        seeds: of the repetitions, each with another split, deal and noise.
        grid: settings that are chosen for each budget.
        tune_seeds: how many repetitions' training rows they are chosen on.
    """
    exact = run.but(trust="non-private", target_epsilon=None, delta=None, mode="plain", mode_options={})
    yield Task(runs=tuple(exact.but(seed=seed) for seed in seeds))
    kinds = [*({"trust": "distributed", **mode} for mode in modes), {"trust": "central"}, {"trust": "local"}]
    for epsilon in sorted(set(epsilons)):
        runs = tuple(run.but(target_epsilon=epsilon, seed=seed, **kind) for kind in kinds for seed in seeds)
        yield Task(runs=runs, grid=grid or {}, seeds=tuple(seeds[:tune_seeds]))


def flat(run: Run) -> Run | None:
    """Return the same with T = 0, the random features of a deep learner alone; None of others, and of T = 0."""
    if run.learner != "deepafl" or not run.options["n_layers"]:
        return None
    rest = {name: value for name, value in PRIVATE_FORMS["random"].items() if name != "d_phi"}
    return run.but(learner="random", label=FLAT, options={"d_phi": run.options["d_phi"], **rest})


def with_shares(entry: LearnerEntry) -> Configurable:
    """Return a learner with what of its private form can be tuned: its options there, and shares of the budget."""
    shares = {name: float for name in SHARES if name == "gram_share" or entry.name not in NEVER_CENTRED}
    own = {name: entry.options[name] for name in PRIVATE_FORMS[entry.name]}
    return _Tunable(entry.name, {**own, **shares})


@dataclass(frozen=True, slots=True)
class _Tunable:
    """Settings that can be tuned, each with what reads it."""

    name: str
    options: Mapping[str, Reader]


def tasks_of(options: CompareOptions, dataset: Dataset) -> list[Task]:
    """Return all that is asked for: exact runs, gradient methods on the same rows, and every budget.

    Raises:
        UsageError: nothing to compare, a number out of range, or options that do not go together.
    """
    federation, learning = options.federation, options.learning
    entries = learning.learner
    if dataset.is_regression and len(entries) == len(LEARNERS):  # all that can
        entries = tuple(entry for entry in entries if not entry.labels_only)
    with_options = [mode for mode in federation.modes if mode.options]
    own = parse_options(learning.own, (*learning.learner, *learning.baselines, *with_options))
    modes = [{"mode": mode.name, "mode_options": own.get(mode.name, {})} for mode in federation.modes]
    if options.privacy.epsilon is None and any(one.is_private for one in learning.baselines):
        raise UsageError(NEEDS_BUDGET)
    gradient = [one for one in learning.baselines if not one.is_private]
    sizes = _sizes(learning.sweep, (*entries, *gradient), own)
    deals = _deals(federation, dataset)
    common = _fields(federation)
    closed_forms = product(
        [size for entry in entries for size in sizes[entry.name]],
        deals,
        modes,
        format=str(learning.feature_format) if isinstance(learning.feature_format, RowFormat) else None,
        agreement=learning.feature_format if isinstance(learning.feature_format, Agreement) else None,
        target_format=None if learning.target_format is None else str(learning.target_format),
        ridge=None if learning.ridge == CROSS_VALIDATED else learning.ridge or 0.0,
        ri_gamma=learning.ri_gamma,
        evaluate=learning.evaluate,
        explain=options.output.explain,
        **common,
    )
    beside = product([size for one in gradient for size in sizes[one.name]], deals, mode=BASELINE, **common)
    found = [Task(runs=(*closed_forms, *beside))]
    return found if options.privacy.epsilon is None else [*found, *_private(options, own, deals, modes)]


def _deals(federation: FederationOptions, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the cohorts, and how rows go to them: as a column says where there is one.

    Raises:
        UsageError: sites of a column, and another way to deal rows.
    """
    if dataset.sites is None:
        ways = itertools.product(federation.clients, federation.partitions)
        return [{"clients": n, "partition": way} for n, way in ways]
    if stated := {"--clients", "--partition"} & {*changed(federation)}:
        raise UsageError(f"{' and '.join(sorted(stated))}: --sites says whose rows are whose; leave one of the two out")
    return [{"clients": len(dataset.sites.names), "partition": dataset.sites.partition}]


def _fields(options: Any) -> dict[str, Any]:
    """The fields of a run that options state under the same names, one value each."""
    stated = {one.name: getattr(options, one.name) for one in fields(options) if one.name in Run.model_fields}
    return {name: value for name, value in stated.items() if not isinstance(value, tuple)}


def _sizes(
    sweeps: Iterable[str], takers: Sequence[Configurable], own: Mapping[str, dict[str, Option]]
) -> dict[str, list[dict[str, Any]]]:
    """For each taker its sizes, as fields of a run; one where none are asked for.

    Raises:
        UsageError: an option that no taker has, or a value that it cannot have.
    """
    found: dict[str, list[dict[str, Any]]] = {taker.name: [] for taker in takers}
    for text in sweeps:
        place, _, values = text.partition("=")
        for value in values.split(","):
            for name, size in parse_options([f"{place}={value}"], takers, "--sweep").items():
                if size:
                    label = f"{name} {place.rpartition('.')[2]}={value}"
                    found[name].append({"learner": name, "options": own[name] | size, "label": label})
    return {name: sizes or [{"learner": name, "options": own[name]}] for name, sizes in found.items()}


def _private(
    options: CompareOptions,
    own: Mapping[str, Mapping[str, Option]],
    deals: Sequence[Mapping[str, Any]],
    modes: Sequence[Mapping[str, Any]],
) -> Iterator[Task]:
    """Yield every budget of each learner that has a private form; a deep learner's T = 0 beside it."""
    privacy, federation = options.privacy, options.federation
    names = [entry.name for entry in options.learning.learner]
    private = [name for name in PRIVATE_FORMS if name in names]
    if not private:
        raise UsageError(
            f"--epsilon needs a learner that has a private form, {', '.join(PRIVATE_FORMS)}, not {', '.join(names)}"
        )
    methods = [one for one in options.learning.baselines if one.is_private]
    takers: list[Configurable] = [with_shares(LEARNERS[name]) for name in private]
    takers += [_Tunable(one.name, {**one.options, "mean_share": float}) for one in methods]
    flags = {flag.removeprefix("--").replace("-", "_") for flag in changed(privacy)}
    stated = {name: flags | own[name].keys() for name in private}
    stated |= {one.name: flags | own[one.name].keys() for one in methods}
    grids = read_grids(privacy.tune, takers, stated)
    common = _fields(federation) | _fields(privacy)
    if options.learning.ridge is not None:
        common["ridge"] = options.learning.ridge
    epsilons = privacy.epsilon or ()
    again: dict[str, Any] = {
        "seeds": range(federation.seed, federation.seed + privacy.seeds),
        "tune_seeds": privacy.tune_seeds,
    }
    for name, deal in itertools.product(private, deals):
        run = private_run(name, own[name], **deal, **common)
        yield from private_tasks(run, epsilons, modes, **again, grid=grids[name])
        if (without_depth := flat(run)) is not None:
            grid = {setting: values for setting, values in grids[name].items() if setting not in ("n_layers", "d_f")}
            yield from private_tasks(without_depth, epsilons, modes, **again, grid=grid)
    for one in methods:  # which do not depend on learner, cohort or partition
        kept = {setting: values for setting, values in one.grid.items() if setting not in own[one.name]}
        for epsilon in sorted(set(epsilons)):
            run = Run(
                learner=one.name,
                options=own[one.name],
                mode=BASELINE,
                **deals[0],
                split="drawn",
                trust="central",
                target_epsilon=epsilon,
                delta=privacy.delta,
                unit="record",
                adjacency="add-remove",
                mean_share=privacy.mean_share,
            )
            seeds = again["seeds"]
            yield Task(
                runs=tuple(run.but(seed=seed) for seed in seeds),
                grid={**kept, **grids[one.name]},
                seeds=tuple(seeds[: privacy.tune_seeds]),
            )
