"""The rows of an audit: who holds which, what an adversary knows of them, and what is true of a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import AnalyticLearner, ClientRows
from analytic.parts import together
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from secagg import PartyId
from secagg.layout import IntVector

Indices = NDArray[np.intp]
IntRows = NDArray[np.int64]
Labels = NDArray[np.int64]
MAX_CANDIDATES = 2000
MAX_PUBLIC = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideInformation:
    """What an adversary is granted beside the messages; a report says so, since a stronger adversary finds more.

    Args:
        rows: candidates, of which some were used and some were not (does the adversary see which?), and public rows of
            the same population, which nobody used.
        worlds: for some clients two vectors, one of which it contributed.
    """

    rows: EnteringRows = field(repr=False)
    worlds: Mapping[PartyId, tuple[IntVector, IntVector]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """What the target really held.

    Args:
        rows: its rows in units of the row format, shape (n, d).
        labels: their labels.
        vector: its contribution to the sum.
        is_member: for each candidate of the side information, whether the target holds it.
        pool_size: how many rows a blind guess chooses from.
        row_counts: how many different numbers of rows a client may hold, all equally likely.
        n_classes: labels are 0 to n_classes - 1.
    """

    rows: IntRows = field(repr=False)
    labels: Labels = field(repr=False)
    vector: IntVector = field(repr=False)
    is_member: NDArray[np.bool_] = field(repr=False)
    pool_size: int
    row_counts: int
    n_classes: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Population:
    """Training rows, some of which clients hold, and test rows, which everybody may know.

    Args:
        dataset: where they are from.
        candidates: indices of the training rows in play; the adversary knows them all.
        public: indices of the test rows that the adversary has.
    """

    dataset: Dataset
    candidates: Indices = field(repr=False)
    public: Indices = field(repr=False)

    @classmethod
    def of(cls, dataset: Dataset, rng: np.random.Generator) -> Population:
        """All rows, or a random part of them where there are more than the attacks can compare."""
        return cls(
            dataset=dataset,
            candidates=rng.permutation(len(dataset.x_train))[:MAX_CANDIDATES],
            public=rng.permutation(len(dataset.x_test))[:MAX_PUBLIC],
        )

    def deal(self, n_clients: int, rows_per_client: int, rng: np.random.Generator) -> list[Indices]:
        """Different rows for each client, each number of rows from half to one and a half times the mean as likely.

        Raises:
            UsageError: there are not enough rows.
        """
        low, high = sizes(rows_per_client)
        counts = rng.integers(low, high + 1, n_clients)
        if counts.sum() >= len(self.candidates):
            raise UsageError(
                f"{n_clients} clients with about {rows_per_client} rows each need more than {len(self.candidates)} "
                "training rows, some of which nobody holds; audit fewer clients or rows per client"
            )
        return list(np.split(rng.permutation(self.candidates)[: counts.sum()], np.cumsum(counts)[:-1]))

    def rows(self, indices: Indices) -> ClientRows:
        """A client's rows, as its learner takes them."""
        return self.dataset.training.taken(indices)

    def single_candidates(self) -> tuple[ClientRows, ...]:
        """Each candidate alone."""
        return tuple(self.rows(self.candidates[[place]]) for place in range(len(self.candidates)))

    def single_public(self) -> tuple[ClientRows, ...]:
        """Each public row alone."""
        x, y = self.dataset.x_test[self.public], self.dataset.y_test[self.public]
        return tuple(ClientRows(x[[place]], y[[place]]) for place in range(len(self.public)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EnteringRows:
    """The integer rows that a sum really adds up: features in their units, or a learner's own map of them.

    Args:
        candidates: shape (m, d).
        candidate_labels: shape (m,).
        public: shape (p, d).
    """

    candidates: IntRows = field(repr=False)
    candidate_labels: Labels = field(repr=False)
    public: IntRows = field(repr=False)

    @classmethod
    def of(cls, learner: AnalyticLearner[Any], model: Any, population: Population) -> EnteringRows:
        """What one row contributes to H is the row itself, in its label's column."""
        labels = population.dataset.y_train[population.candidates].astype(np.int64)
        return cls(
            candidates=np.array(list(_entering(learner, model, population.single_candidates()))),
            candidate_labels=labels,
            public=np.array(list(_entering(learner, model, population.single_public()))),
        )


def _entering(
    learner: AnalyticLearner[Any], model: Any, singles: tuple[ClientRows, ...]
) -> Iterator[NDArray[np.int64]]:
    for single in singles:
        yield pooled(learner.client_statistics(model, single)).cross.sum(axis=1)


def pooled(statistics: Any) -> Any:
    """A contribution with one Gram, also where it has several, each of a part of the rows."""
    return together(statistics) if isinstance(statistics, tuple) else statistics


def sizes(rows_per_client: int) -> tuple[int, int]:
    """The fewest and the most rows of a client of an audit."""
    return max(1, rows_per_client // 2), rows_per_client + rows_per_client // 2
