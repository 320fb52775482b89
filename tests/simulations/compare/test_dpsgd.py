"""DP-SGD as a baseline: its gradients, its budget, and that it is given what private learners have."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from support.extras import needs

from analytic_secagg.datasets import Dataset, bundled
from secagg.dp.conversions import gdp_epsilon, gdp_rho
from simulations.compare.dpsgd import METHODS, Steps, calibrated, placed, trained
from simulations.compare.execute import execute
from simulations.compare.run import BASELINE, Run


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return bundled("digits")


def test_a_step_is_the_mean_of_clipped_gradients_as_opacus_takes_it(digits: Dataset) -> None:
    needs("opacus")
    torch = importlib.import_module("torch")
    rows, _ = placed(digits, 0.0, 10, 0)
    rows, labels, own = rows[:300], digits.y_train[:300], Steps(epochs=1, learning_rate=1.0, clip=0.9, average=False)
    ours = trained(rows, labels, own, 10, 0.0, np.random.default_rng(0))
    head = torch.nn.Linear(65, 10, bias=False)
    torch.nn.init.zeros_(head.weight)
    private = importlib.import_module("opacus").GradSampleModule(head)
    optimizer = importlib.import_module("opacus.optimizers").DPOptimizer(
        torch.optim.SGD(private.parameters(), lr=1.0), noise_multiplier=0.0, max_grad_norm=0.9, expected_batch_size=300
    )
    scores = private(torch.from_numpy(rows).requires_grad_())
    torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels.astype(np.int64)), reduction="mean").backward()
    optimizer.step()
    assert np.abs(ours - head.weight.detach().numpy().T).max() < 1e-6
    assert np.abs(ours).max() > 0.001


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_the_budget_is_kept_and_used_by_another_accountant_too(epsilon: float, share: float) -> None:
    needs("opacus")
    needs("dp_accounting")
    events, pld = importlib.import_module("dp_accounting"), importlib.import_module("dp_accounting.pld")
    rho_mean = share * gdp_rho(epsilon, 1e-5)
    for rate, steps in ((1.0, 20), (0.2, 60)):
        multiplier, spent = calibrated(epsilon, 1e-5, rate, steps, rho_mean)
        one = events.PoissonSampledDpEvent(rate, events.GaussianDpEvent(multiplier))
        accountant = pld.PLDAccountant()
        accountant.compose(events.SelfComposedDpEvent(one, steps))
        if share:
            accountant.compose(events.GaussianDpEvent(1 / math.sqrt(2 * rho_mean)))
        assert 0.97 * epsilon < accountant.get_epsilon(1e-5) <= 1.001 * epsilon
        assert 0.98 * epsilon < spent <= epsilon


def test_full_batches_are_accounted_exactly() -> None:
    multiplier, spent = calibrated(1.0, 1e-5, 1.0, 20, 0.01)
    assert spent == gdp_epsilon(math.sqrt(2 * 0.01 + 20 / multiplier**2), 1e-5)


def test_rows_are_placed_as_private_learners_place_them(digits: Dataset) -> None:
    raw, _ = placed(digits, 0.0, 10, 0)
    centred, test = placed(digits, 0.02, 10, 0)
    for rows in (raw, centred, test):
        assert np.abs(np.linalg.norm(rows[:, :-1], axis=1) - 1).max() < 1e-3
        assert (rows[:, -1] == 1).all()
    assert np.linalg.norm(raw[:, :-1].mean(axis=0)) > 0.8 > 0.3 > np.linalg.norm(centred[:, :-1].mean(axis=0))
    again, _ = placed(digits, 0.02, 10, 1)
    assert not np.array_equal(again, centred)  # the mean has noise, by the seed


def test_full_batches_and_a_mean_are_worth_what_the_grid_lacked(digits: Dataset) -> None:
    """At epsilon 1: 0.85 with drawn batches and rates up to 16; with all rows and centred rows about 0.91."""
    common = {"learner": "dpsgd", "mode": BASELINE, "split": "drawn", "trust": "central", "delta": 1e-5}
    common |= {"clients": 5, "partition": "iid", "unit": "record", "adjacency": "add-remove", "target_epsilon": 1.0}
    settings = {"epochs": 20, "learning_rate": 100.0, "clip": 0.3}
    full = Run(**common, options=settings, mean_share=0.05)
    kinds = {
        "centred": full,
        "as they are": full.but(mean_share=0.0),
        "drawn": Run(
            **common, options={"epochs": 10, "batch_size": 256, "learning_rate": 4.0, "momentum": 0.9, "clip": 0.5}
        ),
    }
    needs("opacus")
    found = {
        name: np.mean([execute(run.but(seed=seed), digits).test_accuracy for seed in (1, 2, 3)])
        for name, run in kinds.items()
    }
    assert found["centred"] > 0.89
    assert found["centred"] > found["as they are"] + 0.01
    assert found["centred"] > found["drawn"] + 0.02


def test_batches_that_may_be_empty_and_momentum_of_one_are_refused() -> None:
    dpsgd = METHODS["dpsgd"]
    for wrong in ({"batch_size": 8}, {"momentum": 1.0}, {"clip": 0.0}, {"epochs": 0}):
        with pytest.raises(ValueError, match="DP-SGD"):
            dpsgd.complete(wrong)
