"""Labels that are wrong: what learners make of training rows whose annotators err."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError


def with_label_noise(dataset: Dataset, rate: float, seed: int) -> Dataset:
    """The rows with that part of their training labels replaced, each by one of the other classes, all as likely.

    Args:
        dataset: the rows; test labels stay.
        rate: from 0 to below 1; 0 returns the rows as they are.
        seed: draws whose label is wrong, and which it is.

    Raises:
        UsageError: rows with real targets.
    """
    if not rate:
        return dataset
    if dataset.is_regression or dataset.is_multilabel:
        raise UsageError(
            f"--label-noise is for class labels, and {dataset.name} has real targets or several a row; leave it out"
        )
    rng = np.random.default_rng([seed, *b"label noise"])
    wrong = rng.permutation(len(dataset.y_train))[: round(rate * len(dataset.y_train))]
    labels = dataset.y_train.copy()
    steps = rng.integers(1, max(2, dataset.n_classes), len(wrong))
    labels[wrong] = (labels[wrong].astype(np.int64) + steps) % dataset.n_classes
    return replace(dataset, name=f"{dataset.name} with {rate:.0%} wrong labels", y_train=labels)
