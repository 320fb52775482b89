"""Wrong labels: as many as asked for, all of them wrong, in training rows alone, the same for one seed."""

from __future__ import annotations

import numpy as np
import pytest

from analytic_secagg.datasets import bundled
from simulations.data.label_noise import with_label_noise


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5])
def test_that_part_of_the_training_labels_is_wrong(rate: float) -> None:
    clean = bundled("digits")
    noisy, again, other = (with_label_noise(clean, rate, seed) for seed in (1, 1, 2))
    wrong = noisy.y_train != clean.y_train
    assert wrong.sum() == round(rate * len(clean.y_train))
    assert noisy.y_test is clean.y_test
    assert noisy.y_train.tobytes() == again.y_train.tobytes()
    assert (noisy.sha256 != other.sha256) == (rate > 0)
    if rate:
        assert np.bincount(noisy.y_train[wrong], minlength=10).min() > 0
        assert noisy.name == f"digits with {rate:.0%} wrong labels"
