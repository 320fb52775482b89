"""Ways to deal training rows to clients, from even to extremely heterogeneous."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.errors import UsageError

Indices = NDArray[np.intp]

MIN_ALPHA, MAX_ALPHA = 1e-6, 1e6
"""Beyond these a Dirichlet law in float64 is its own limit: one client holds a class, or all hold the same part."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A way to deal rows, by the name that the command line and reports use (``dirichlet:0.1``)."""

    name: str
    _deal: Callable[[NDArray[Any], int, np.random.Generator], list[Indices]]

    def deal(self, labels: NDArray[Any], n_clients: int, rng: np.random.Generator) -> list[Indices]:
        """Row indices for each client, ascending: every row goes to exactly one client, some may get none.

        Args:
            labels: integer class labels, shape (n,).
            n_clients: at least 1.
            rng: draws who gets which rows.

        Raises:
            UsageError: fewer rows than this way of dealing needs.
        """
        if n_clients < 1:
            raise UsageError(f"rows need at least one client to go to, not {n_clients}")
        return [np.sort(part).astype(np.intp) for part in self._deal(labels, n_clients, rng)]


def parse_partition(text: str) -> Partition:
    """The partition that ``iid``, ``dirichlet:ALPHA`` or ``shards:S`` names.

    Raises:
        UsageError: another word, or a parameter that is missing or out of range.
    """
    kind, _, parameter = text.partition(":")
    if kind == "iid" and not parameter:
        return Partition("iid", deal_iid)
    if kind == "dirichlet":
        alpha = _number(text, parameter, float)
        if not MIN_ALPHA <= alpha <= MAX_ALPHA:
            raise UsageError(
                f"dirichlet:ALPHA needs an ALPHA from {MIN_ALPHA:g} to {MAX_ALPHA:g}, not {parameter}; 0.1 is strongly "
                "heterogeneous, 100 nearly even"
            )
        return Partition(f"dirichlet:{alpha}", lambda *args: deal_dirichlet(*args, alpha=alpha))
    if kind == "shards":
        shards = _number(text, parameter, int)
        if shards < 1:
            raise UsageError(f"shards:S needs a whole number S >= 1 of shards for each client, not {parameter}")
        return Partition(f"shards:{shards}", lambda *args: deal_shards(*args, shards_per_client=shards))
    raise UsageError(f"a partition is iid, dirichlet:ALPHA or shards:S (dirichlet:0.1, shards:2), not {text!r}")


def deal_iid(labels: NDArray[Any], n_clients: int, rng: np.random.Generator) -> list[Indices]:
    """Shuffled rows in equal parts, their sizes at most one apart."""
    return np.array_split(rng.permutation(len(labels)), n_clients)


def deal_dirichlet(labels: NDArray[Any], n_clients: int, rng: np.random.Generator, *, alpha: float) -> list[Indices]:
    """Each class split by proportions drawn from a symmetric Dirichlet law (AFL's NIID-1; Lin et al., NeurIPS 2020).

    The smaller ``alpha``, the fewer clients share a class; clients without any row are common and stay.
    """
    parts: list[list[Indices]] = [[] for _ in range(n_clients)]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cumulative = np.cumsum(rng.dirichlet(np.full(n_clients, alpha)))[:-1]
        cuts = np.minimum(np.floor(cumulative * len(rows)).astype(np.intp), len(rows))
        for part, own in zip(parts, np.split(rows, cuts), strict=True):
            part.append(own)
    return [np.concatenate(part) for part in parts]


def deal_shards(
    labels: NDArray[Any], n_clients: int, rng: np.random.Generator, *, shards_per_client: int
) -> list[Indices]:
    """Rows sorted by class, cut into equal shards, a few for each client (AFL's NIID-2; McMahan et al., 2017).

    Raises:
        UsageError: fewer rows than shards.
    """
    n_shards = n_clients * shards_per_client
    if n_shards > len(labels):
        raise UsageError(
            f"shards:{shards_per_client} for {n_clients} clients needs at least {n_shards} training rows, there are "
            f"{len(labels)}; use fewer clients or shards"
        )
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    shards = np.array_split(by_class, n_shards)
    hands = rng.permutation(n_shards).reshape(n_clients, shards_per_client)
    return [np.concatenate([shards[shard] for shard in hand]) for hand in hands]


def _number(text: str, parameter: str, kind: Callable[[str], Any]) -> Any:
    try:
        return kind(parameter)
    except ValueError:
        wanted = "a number" if kind is float else "a whole number"
        example = "dirichlet:0.1" if kind is float else "shards:2"
        raise UsageError(f"{text!r} needs {wanted} after the colon, as in {example}") from None
