"""The rows of an audit: who holds which, what they contribute, and what is true of a client or a cohort."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import AnalyticLearner, ClientRows
from analytic.parts import together
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from secagg.layout import IntVector

QUARTERS = "low", "below the middle", "above the middle", "high"
"""What real targets are audited as."""

Indices = NDArray[np.intp]
IntRows = NDArray[np.int64]
Labels = NDArray[np.int64]
MAX_CANDIDATES = 2000
MAX_PUBLIC = 1000

MOST_PART = 0.9
"""Of all rows that clients hold on average, since attacks need rows that nobody holds."""

LEAST_PART = 0.8
"""Of a site's rows that are in a cohort at least."""

DEALS = 100
"""How often numbers of rows are drawn until there are enough rows for all."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """What the target really held.

    Args:
        rows: its rows in units of the row format, shape (n, d).
        labels: their labels.
        raw: the same rows as their holder has them, with labels.
        public: the public rows, in the same units.
        pool: all rows that a blind guess chooses from, as their holders have them.
        vector: its contribution to the sum.
        is_member: for each candidate, whether the target holds it.
        is_outlying: for each candidate, whether it is of the tenth that lies farthest from the public rows.
        row_counts: how many different numbers of rows a client may hold, all equally likely.
        n_classes: labels are 0 to n_classes - 1.
        likeliest_row: how often a blind guess names a row with its label: the most frequent one's part of the pool.
        columns: names of the columns of ``rows``, shape (d,).
    """

    rows: IntRows = field(repr=False)
    labels: Labels = field(repr=False)
    raw: ClientRows = field(repr=False)
    public: IntRows = field(repr=False)
    pool: ClientRows = field(repr=False)
    vector: IntVector = field(repr=False)
    is_member: NDArray[np.bool_] = field(repr=False)
    is_outlying: NDArray[np.bool_] = field(repr=False)
    row_counts: int
    n_classes: int
    likeliest_row: float
    columns: tuple[str, ...] = ()


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

        Where a column names sites, clients with as many rows as these have are sites, drawn at random where not all
        take part: each holds four fifths to all of its rows, since attacks need rows that nobody holds.

        Raises:
            UsageError: there are not enough rows.
        """
        if self.sites and n_clients <= len(self.sites) and rows_per_client == self.rows_of_sites:
            chosen = sorted(rng.permutation(len(self.sites))[:n_clients].tolist())
            return [_some(self.sites[place], rng) for place in chosen]
        low, high = sizes(rows_per_client)
        if n_clients * rows_per_client > MOST_PART * len(self.candidates):
            fit = int(MOST_PART * len(self.candidates)) // n_clients
            or_rows = f", or at most {fit} rows per client" if fit > 1 else ""
            raise UsageError(
                f"{n_clients} clients with about {rows_per_client} rows each need more than {len(self.candidates)} "
                f"training rows, a tenth of which nobody holds: audit fewer clients{or_rows}"
            )
        for _ in range(DEALS):
            counts = rng.integers(low, high + 1, n_clients)
            if counts.sum() < len(self.candidates):
                return list(np.split(rng.permutation(self.candidates)[: counts.sum()], np.cumsum(counts)[:-1]))
        raise UsageError(f"{n_clients} clients with about {rows_per_client} rows each: draw with another seed")

    @property
    def sites(self) -> tuple[Indices, ...]:
        """The candidates of each site that has some; empty where no column names sites."""
        whose = self.dataset.sites
        if whose is None:
            return ()
        own = whose.train[self.candidates]
        return tuple(self.candidates[own == place] for place in np.unique(own))

    @property
    def rows_of_sites(self) -> int:
        """The rows of a site in a cohort, on average."""
        return rows_of_sites(len(self.candidates), len(self.sites))

    def row_counts(self, rows_per_client: int) -> int:
        """Return how many different numbers of rows a client may hold, of the client of which it is guessed best."""
        if self.sites and rows_per_client == self.rows_of_sites:
            return min(len(own) - _least(len(own)) + 1 for own in self.sites)
        low, high = sizes(rows_per_client)
        return high - low + 1

    def columns(self, width: int) -> tuple[str, ...]:
        """Names of so many columns that enter a sum: the owner's where these are as many, else numbers from 1 on."""
        own = self.dataset.columns
        return own if len(own) == width else tuple(f"column {place}" for place in range(1, width + 1))

    def rows(self, indices: Indices) -> ClientRows:
        """A client's rows, as its learner takes them."""
        return self.dataset.training.taken(indices)

    @property
    def public_rows(self) -> ClientRows:
        """The public rows, as a learner takes them."""
        return ClientRows(self.dataset.x_test[self.public], self.dataset.y_test[self.public])


def with_labels(dataset: Dataset) -> Dataset:
    """Return rows of classes as they are, and of one real target with its quarters for classes.

    A total of quarters has more numbers about the rows than one of the real target, and the same Gram.

    Raises:
        UsageError: rows have several targets or classes.
    """
    if dataset.is_multilabel or (dataset.is_regression and dataset.n_classes > 1):
        raise UsageError(
            f"attacks look for rows of one class each; {dataset.name} has several targets or classes a row: audit one "
            "of its columns as --target"
        )
    if not dataset.is_regression:
        return dataset
    cuts = np.quantile(dataset.y_train, [0.25, 0.5, 0.75])
    labels = (np.searchsorted(cuts, part[:, 0], side="right") for part in (dataset.y_train, dataset.y_test))
    y_train, y_test = (part.astype(np.int64) for part in labels)
    note = "the target is a number, of which the audit takes the quarter for the class"
    return replace(dataset, y_train=y_train, y_test=y_test, classes=QUARTERS, notes=(*dataset.notes, note))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EnteringRows:
    """The integer rows that a sum really adds up: features in their units, or a learner's own map of them.

    Args:
        candidates: shape (m, d).
        candidate_labels: shape (m,).
        public: shape (p, d).
        outlying: for each candidate, whether it is of the tenth that lies farthest from the public rows, by their
            second moment.
        likeliest: the part of the candidates that the most frequent row with its label makes up.
    """

    candidates: IntRows = field(repr=False)
    candidate_labels: Labels = field(repr=False)
    public: IntRows = field(repr=False)
    outlying: NDArray[np.bool_] = field(repr=False)
    likeliest: float = 0.0

    @classmethod
    def of(cls, learner: AnalyticLearner[Any], model: Any, population: Population) -> EnteringRows:
        """What one row contributes to H is the row itself, in its label's column."""
        labels = population.dataset.y_train[population.candidates].astype(np.int64)
        candidates = _entering(learner, model, population.rows(population.candidates))
        public = _entering(learner, model, population.public_rows)
        distance = inverse_moment_norms(candidates.astype(np.float64), public.astype(np.float64))
        times = np.unique(np.column_stack([candidates, labels]), axis=0, return_counts=True)[1]
        return cls(
            candidates=candidates,
            candidate_labels=labels,
            public=public,
            outlying=distance >= np.quantile(distance, 0.9),
            likeliest=float(times.max() / len(labels)),
        )


def inverse_moment_norms(rows: NDArray[np.float64], public: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x^T S^-1 x for each row x, with S the mean of the public rows' outer products."""
    moment = public.T @ public / max(1, len(public))
    inverse = np.linalg.pinv(moment, rcond=1e-9, hermitian=True)
    return np.asarray(((rows @ inverse) * rows).sum(axis=1))


def singles(rows: ClientRows) -> Iterator[ClientRows]:
    """Yield each row alone."""
    return (rows.taken(np.array([place])) for place in range(len(rows)))


def _entering(learner: AnalyticLearner[Any], model: Any, rows: ClientRows) -> IntRows:
    """Return what each row adds to H: rows of different classes enter together, each as its class's column."""
    labels = rows.targets.astype(np.intp)
    order = np.argsort(labels, kind="stable")
    place_in_class = np.arange(len(rows)) - np.searchsorted(labels[order], labels[order])
    entering = dict[int, IntRows]()
    for place in range(int(place_in_class.max(initial=-1)) + 1):
        some = order[place_in_class == place]
        cross = pooled(learner.client_statistics(model, rows.taken(some))).cross
        entering |= dict(zip(some.tolist(), cross[:, labels[some]].T, strict=True))
    return np.array([entering[place] for place in range(len(rows))])


def pooled(statistics: Any) -> Any:
    """A contribution with one Gram, also where it has several, each of a part of the rows."""
    return together(statistics) if isinstance(statistics, tuple) else statistics


def rows_of_sites(n_rows: int, n_sites: int) -> int:
    """The rows of a site in a cohort, on average, of so many rows of all sites; an audit has 2 or more."""
    return max(2, round((1 + LEAST_PART) / 2 * n_rows / n_sites))


def _least(n_rows: int) -> int:
    return max(1, math.ceil(LEAST_PART * n_rows))


def _some(own: Indices, rng: np.random.Generator) -> Indices:
    """Return some of a site's rows, each number of them from the least to all as likely."""
    return rng.permutation(own)[: rng.integers(_least(len(own)), len(own) + 1)]


def sizes(rows_per_client: int) -> tuple[int, int]:
    """The fewest and the most rows of a client of an audit."""
    return max(1, rows_per_client // 2), rows_per_client + rows_per_client // 2
