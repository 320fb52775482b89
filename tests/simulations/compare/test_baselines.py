from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from support.comparisons import exact, learner
from support.examples import examples

from analytic.learner import ClientRows
from analytic_secagg.console.arguments import parse_options
from analytic_secagg.datasets import bundled
from analytic_secagg.errors import FederationError, UsageError
from analytic_secagg.learners import LEARNERS
from simulations.compare.baselines import BASELINES, GradientSettings, train
from simulations.compare.comparison import compare
from simulations.compare.dropouts import Dropouts
from simulations.data.partitions import parse_partition

SHORT = GradientSettings(rounds=3, local_epochs=2, batch_size=4, learning_rate=0.1)


def _rows(seed: int, n: int, d: int = 3, c: int = 3) -> ClientRows:
    rng = np.random.default_rng(seed)
    return ClientRows(rng.normal(size=(n, d)), np.append(rng.integers(0, c, n - 1), c - 1))


def test_one_client_with_full_batches_is_plain_gradient_descent():
    rows = _rows(1, 50)
    settings = GradientSettings(rounds=7, local_epochs=4, batch_size=10**6, learning_rate=0.3)
    weights, bias = np.zeros((3, 3)), np.zeros(3)
    for _ in range(7 * 4):
        errors = softmax(rows.features @ weights + bias, axis=1) - np.eye(3)[rows.targets]
        weights, bias = weights - 0.3 * rows.features.T @ errors / 50, bias - 0.3 * errors.mean(axis=0)
    trained = train("fedavg", [rows], rows.features, rows.targets, settings=settings).weights
    # 28 steps that contract (a convex loss), each off by a few eps of weights below 3
    np.testing.assert_allclose(trained, np.column_stack([weights.T, bias]), rtol=0, atol=28 * 64 * 2.0**-52)


@examples(4)
@given(cuts=st.lists(st.integers(0, 40), max_size=5), seed=st.integers(0, 100))
def test_one_full_step_a_round_does_not_depend_on_who_holds_which_rows(cuts, seed):
    rows = _rows(seed, 40)
    parts = np.split(np.random.default_rng(seed).permutation(40), sorted(cuts))
    clients = [ClientRows(rows.features[part], rows.targets[part]) for part in parts]
    settings = GradientSettings(rounds=3, local_epochs=1, batch_size=10**6, learning_rate=0.5)
    dealt = train("fedavg", clients, rows.features, rows.targets, settings=settings)
    pooled = train("fedavg", [rows], rows.features, rows.targets, settings=settings)
    # A gradient baseline: its float64 gradients are added in another order, so it has no bitwise law.
    np.testing.assert_allclose(dealt.weights, pooled.weights, rtol=0, atol=1e-13)


def test_fedprox_without_mu_is_fedavg_to_the_bit():
    clients = [_rows(seed, 15) for seed in range(4)]
    test = _rows(9, 30)
    average = train("fedavg", clients, test.features, test.targets, settings=SHORT)
    unpulled = train("fedprox", clients, test.features, test.targets, settings=SHORT)
    assert unpulled.weights.tobytes() == average.weights.tobytes()
    pulled = train("fedprox", clients, test.features, test.targets, settings=replace(SHORT, mu=0.5))
    assert pulled.weights.tobytes() != average.weights.tobytes()


def test_mu_pulls_toward_the_common_head():
    rows = _rows(3, 30)
    settings = GradientSettings(rounds=1, local_epochs=200, batch_size=10**6, learning_rate=0.2, mu=1.0)
    # at the end of such training the pull balances the gradient: mu W = -grad(W), and the common head was zero
    weights = train("fedprox", [rows], rows.features, rows.targets, settings=settings).weights
    errors = softmax(rows.features @ weights[:, :-1].T + weights[:, -1], axis=1) - np.eye(3)[rows.targets]
    gradient = errors.T @ np.column_stack([rows.features, np.ones(30)]) / 30
    np.testing.assert_allclose(1.0 * weights, -gradient, rtol=0, atol=1e-9)


def test_clients_without_rows_are_left_out_and_every_round_is_heard_of():
    clients, ticks = [_rows(seed, 15) for seed in range(4)] + [ClientRows(np.zeros((0, 3)), np.zeros(0, dtype=int))], []
    result = train(
        "fedavg", clients, clients[0].features, clients[0].targets, settings=SHORT, tick=lambda: ticks.append(1)
    )
    assert len(result.accuracies) == len(ticks) == 3
    without = train("fedavg", clients[:-1], clients[0].features, clients[0].targets, settings=SHORT)
    assert result.weights.tobytes() == without.weights.tobytes()
    assert result.seconds > 0


@pytest.mark.parametrize(
    "wrong", [{"rounds": 0}, {"local_epochs": 0}, {"batch_size": 0}, {"learning_rate": 0.0}, {"mu": -1.0}, {"seed": -1}]
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(UsageError, match="a gradient baseline needs"):
        GradientSettings(**wrong)


def test_what_cannot_be_trained_is_refused():
    rows = _rows(0, 10)
    nobody = ClientRows(np.zeros((0, 3)), np.zeros(0, dtype=int))
    with pytest.raises(UsageError, match="a client with rows"):
        train("fedavg", [nobody], rows.features, rows.targets, settings=SHORT)
    with pytest.raises(UsageError, match="FedAvg has no mu"):
        train("fedavg", [rows], rows.features, rows.targets, settings=GradientSettings(mu=0.1))
    huge = ClientRows(rows.features * 1e200, rows.targets)
    with pytest.raises(FederationError, match="diverged in round"):
        train("fedavg", [huge], rows.features, rows.targets, settings=replace(SHORT, learning_rate=1e200))


# In a comparison: the rows of the clients that stay, their own options, and the mark of what they are


QUICK = {"rounds": 10, "learning_rate": 0.01}


def compared(*partitions: str, names: tuple[str, ...] = ("fedavg", "fedprox"), **common):  # type: ignore[no-untyped-def]
    methods = (learner(name, **QUICK) for name in names)
    return exact(clients=(10,), partitions=partitions, baselines=methods, **common)


def test_heterogeneity_changes_the_baselines_and_not_the_closed_form() -> None:
    asked = compared("iid", "dirichlet:0.01")
    comparison = compare(bundled("digits"), asked)
    assert {run.test_accuracy for run in comparison.exact} == {comparison.exact[0].test_accuracy}
    assert len({run.weights_sha256 for run in comparison.exact}) == 1
    for name in ("fedavg", "fedprox"):
        even, uneven = (one.test_accuracy for one in comparison.baselines if one.learner == name)
        assert even > 0.85
        assert uneven < even - 0.05
    assert {one.mode for one in comparison.baselines} == {"baseline"}
    assert {one.bitwise_equal_to_pooled for one in comparison.baselines} == {None}
    assert sum(task.n_runs for task in asked) == 6


def test_a_record_is_that_of_a_direct_run_on_the_clients_that_stay() -> None:
    data, gone = bundled("digits"), Dropouts(rate=0.3, seed=5)
    (record,) = compare(data, compared("dirichlet:0.1", names=("fedprox",), dropout=0.3, seed=5)).baselines
    parts = parse_partition("dirichlet:0.1").deal(data.y_train, 10, np.random.default_rng([5, 10, *b"dirichlet:0.1"]))
    stay = [part for party, part in enumerate(parts, start=1) if party not in gone.lost(tuple(range(1, 11)))]
    direct = train(
        "fedprox",
        [ClientRows(data.x_train[part], data.y_train[part]) for part in stay],
        data.x_test,
        data.y_test,
        settings=GradientSettings(**QUICK, mu=0.01, seed=5),  # type: ignore[arg-type]
    )
    assert (record.survivors, record.clients, record.messages_per_client) == (7, 10, 10)
    assert record.options == {"rounds": 10, "local_epochs": 3, "batch_size": 32, "learning_rate": 0.01, "mu": 0.01}
    assert record.test_accuracy == direct.accuracies[-1] <= record.best_test_accuracy == max(direct.accuracies)
    assert record.bytes_up_per_client == record.bytes_down_per_client == 10 * (64 + 1) * 10 * 4


def test_options_go_to_the_baselines_that_have_them() -> None:
    takers = (LEARNERS["deepafl"], *BASELINES.values())
    options = parse_options(["rounds=3", "fedavg.local_epochs=2", "mu=0.5", "n_layers=1"], takers)
    assert options == {
        "deepafl": {"n_layers": 1},
        "fedavg": {"rounds": 3, "local_epochs": 2},
        "fedprox": {"rounds": 3, "mu": 0.5},
    }
    assert BASELINES["fedprox"].complete({"mu": 0.5})["mu"] == 0.5
    assert BASELINES["fedprox"].complete({})["mu"] == 0.01
