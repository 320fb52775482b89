"""The rows of a run: what it trains and tests on, and who holds which of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from analytic.learner import ClientRows
from analytic_secagg.datasets import Dataset
from secagg import PartyId
from simulations.compare.personal import LocalSplit, split_locally
from simulations.compare.run import Run, Split
from simulations.data.partitions import Indices, parse_partition


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deal:
    """Training rows by client, and test rows.

    Args:
        data: the rows.
        parts: training rows by party.
        split: the same in two parts, for learners that test personal models on rows of their clients.
    """

    data: Dataset
    parts: Mapping[PartyId, Indices]
    split: LocalSplit

    @classmethod
    def of(cls, run: Run, dataset: Dataset) -> Deal:
        """Deal a run's rows with its seed.

        Of the data set's own split the draw depends on nothing but seed, cohort and partition. Where the split is drawn
        too, rows are dealt with the generator that drew it.
        """
        if run.split == "given":
            rng, data = np.random.default_rng([run.seed, run.clients, *run.partition.encode()]), dataset
        else:
            rng = np.random.default_rng([run.seed, *b"private compare"])
            data = _drawn(dataset, rng, run.split)
        if data.sites is not None and run.partition == data.sites.partition:
            dealt = data.sites.parts()
        else:
            dealt = parse_partition(run.partition).deal(data.strata, run.clients, rng)
        parts = dict(zip(run.parties, dealt, strict=True))
        return cls(data=data, parts=parts, split=split_locally(parts, run.seed))

    def rows(self, rows: Indices) -> ClientRows:
        """Training rows by their numbers."""
        return self.data.training.taken(rows)


def _drawn(dataset: Dataset, rng: np.random.Generator, split: Split) -> Dataset:
    """All rows split anew in the data set's own proportion; held out are training rows, the last fifth for testing."""
    features = np.concatenate([dataset.x_train, dataset.x_test])
    labels = np.concatenate([dataset.y_train, dataset.y_test])
    order, n_train = rng.permutation(len(features)), len(dataset.x_train)
    train, test = np.split(order, [n_train])
    if split == "held-out":
        train, test = np.split(train, [n_train * 4 // 5])
    sites = dataset.sites
    if sites is not None:
        whose = np.concatenate([sites.train, sites.test])
        sites = replace(sites, train=whose[train], test=whose[test])
    return replace(
        dataset,
        x_train=features[train],
        y_train=labels[train],
        x_test=features[test],
        y_test=labels[test],
        w_train=None,
        sites=sites,
    )
