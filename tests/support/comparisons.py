"""Comparisons for tests: small ones by default, any field of a run in one word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from analytic_secagg.modes import Mode, choose_modes
from simulations.compare.plan import product
from simulations.compare.tuning import Task
from simulations.data.partitions import parse_partition


def learner(name: str, label: str = "", **options: Any) -> dict[str, Any]:
    """The fields of a run that say what is learned."""
    return {"learner": name, "options": options, "label": label}


def exact(
    *learners: Mapping[str, Any],
    modes: Iterable[str | Mode] = ("plain",),
    clients: Iterable[int] = (6,),
    partitions: Iterable[str] = ("dirichlet:0.1",),
    baselines: Iterable[Mapping[str, Any]] = (),
    **common: Any,
) -> list[Task]:
    """Every learner over every cohort, partition and mode, and gradient methods on the same rows."""
    deals = {"clients": tuple(clients), "partition": tuple(map(parse_partition, partitions))}
    known = tuple(one if isinstance(one, Mode) else choose_modes([one])[0] for one in modes)
    runs = product({"with": learners or (learner("afl"),), **deals, "mode": known}, **common)
    shared = {name: value for name, value in common.items() if name in ("dropout", "dropout_anew", "seed")}
    methods = tuple(baselines)
    beside = product({"with": methods, **deals}, mode=None, **shared) if methods else ()
    return [Task(runs=(*runs, *beside))]
