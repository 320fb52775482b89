"""Comparisons for tests: small ones by default, any field of a run in one word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simulations.compare.plan import product
from simulations.compare.run import BASELINE
from simulations.compare.tuning import Task


def learner(name: str, label: str = "", **options: Any) -> dict[str, Any]:
    """The fields of a run that say what is learned."""
    return {"learner": name, "options": options, "label": label}


def exact(
    *learners: Mapping[str, Any],
    modes: Iterable[str] = ("plain",),
    clients: Iterable[int] = (6,),
    partitions: Iterable[str] = ("dirichlet:0.1",),
    baselines: Iterable[Mapping[str, Any]] = (),
    **common: Any,
) -> list[Task]:
    """Every learner over every cohort, partition and mode, and gradient methods on the same rows."""
    ways = tuple(partitions)
    deals = [{"clients": n_clients, "partition": way} for n_clients in clients for way in ways]
    runs = product(learners or (learner("afl"),), deals, [{"mode": mode} for mode in modes], **common)
    shared = {name: value for name, value in common.items() if name in ("dropout", "dropout_anew", "seed")}
    beside = product(tuple(baselines), deals, mode=BASELINE, **shared)
    return [Task(runs=(*runs, *beside))]
