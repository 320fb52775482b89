"""Personal models: rows kept for testing, means over clients, and the law that pooled totals give the same bytes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.comparisons import exact, learner

from analytic.fedhip import FedHiP, FedHiPModel
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic.statistics import Statistics
from analytic_secagg.datasets import bundled
from analytic_secagg.learners import LEARNERS
from simulations.compare.comparison import compare
from simulations.compare.personal import personal_scores, split_locally
from simulations.compare.reference import accuracy
from simulations.compare.tuning import Task
from simulations.data.partitions import parse_partition


@given(sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6), seed=st.integers(0, 2**32))
def test_a_fifth_of_each_clients_rows_is_kept(sizes: list[int], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(sum(sizes))
    dealt = np.split(order, np.cumsum(sizes)[:-1])
    parts = {party: np.sort(part) for party, part in enumerate(dealt, start=1)}
    split, again = split_locally(parts, seed), split_locally(parts, seed)
    for party, rows in parts.items():
        assert np.sort(np.concatenate([split.train[party], split.test[party]])).tolist() == rows.tolist()
        assert abs(len(split.test[party]) - len(rows) / 5) <= 0.5
        assert split.train[party].tolist() == again.train[party].tolist()


def test_another_seed_keeps_other_rows() -> None:
    parts = {1: np.arange(100), 2: np.arange(100, 200)}
    first, second = split_locally(parts, 0), split_locally(parts, 1)
    assert first.test[1].tolist() != second.test[1].tolist()
    assert (first.test[1] + 100).tolist() != first.test[2].tolist()


def fedhip(*modes: str, partition: str = "dirichlet:0.1") -> list[Task]:
    chosen = learner("fedhip", alphas=(0.0, 1.0, 50.0))
    return exact(chosen, modes=modes, clients=(8,), partitions=(partition,), ridge=1.0)


def test_a_comparison_reports_what_a_direct_computation_gives() -> None:
    """The same split, pooled total and P_k, put together by hand without the comparison."""
    data = bundled("digits")
    plain, masked = compare(data, fedhip("plain", "masked")).runs
    parts = parse_partition("dirichlet:0.1").deal(data.y_train, 8, np.random.default_rng([0, 8, *b"dirichlet:0.1"]))
    split = split_locally(dict(enumerate(parts, start=1)), 0)
    rows = {k: ClientRows(data.x_train[part], data.y_train[part]) for k, part in split.train.items()}
    closed_form = FedHiP(
        n_features=64, n_targets=10, feature_format=RowFormat.covering(data.x_train), max_rows=1438, ridge=1.0
    )
    model = fit_pooled(closed_form, ClientRows.pool(list(rows.values())))
    by_client = []
    for k, own in rows.items():
        kept = split.test[k]
        if len(kept):
            scores = [
                data.x_train[kept] @ p.weights for p in (model, *closed_form.personalise(model, own, (0.0, 1.0, 50.0)))
            ]
            by_client.append([float((score.argmax(axis=1) == data.y_train[kept]).mean()) for score in scores])
    expected = np.mean(by_client, axis=0)
    # Means of the clients' accuracies, which are added in another order here; the weights are compared by bytes below.
    for run in (plain, masked):
        assert run.local_test_accuracy == pytest.approx(expected[0], abs=1e-12)
        assert run.personalised_test_accuracy == pytest.approx(
            dict(zip(("0", "1", "50"), expected[1:], strict=True)), abs=1e-12
        )
        assert run.personalised_test_accuracy["0"] == run.local_test_accuracy
        assert run.personalised_bitwise_equal_to_pooled is True
        assert run.equal_to_pooled
    assert expected[3] > expected[0]


def test_a_wrong_total_shows_in_personal_models_too(off_by_one: str) -> None:
    data = bundled("digits")  # its first pixel is always black, and a change of nothing but its Gram changes nothing
    data = dataclasses.replace(data, x_train=data.x_train[:, 10:34], x_test=data.x_test[:, 10:34])
    (run,) = compare(data, fedhip(off_by_one)).runs
    assert run.personalised_bitwise_equal_to_pooled is False
    assert not run.equal_to_pooled


def test_one_wrong_personal_model_alone_is_a_difference() -> None:
    """The global weights are equal here; what clients received beside them is off by one unit in one entry."""
    data = bundled("digits")
    closed_form = FedHiP(n_features=64, n_targets=10, feature_format=RowFormat.covering(data.x_train), max_rows=1438)
    rows = ClientRows(data.x_train[:200], data.y_train[:200])
    good = fit_pooled(closed_form, rows)
    assert good.total is not None
    cross = good.total.cross.copy()
    cross[20, 0] += 1
    off = FedHiPModel(solution=good.solution, total=dataclasses.replace(good.total, cross=cross))
    entry, own = LEARNERS["fedhip"], ClientRows(data.x_train[:150], data.y_train[:150])
    assert entry.personalise is not None
    for model, equal in ((good, True), (off, False)):
        scores = personal_scores(
            closed_form, entry.personalise, (1.0, 2.0), model=model, pooled_model=good, clients=[(own, own)]
        )
        assert scores.bitwise_equal_to_pooled is equal
        assert isinstance(good.total, Statistics)
        assert scores.of_global == accuracy(closed_form.decision_function(good, own.features), own.targets)


def test_clients_without_rows_to_test_on_are_left_out_of_means() -> None:
    data = bundled("digits")
    two = dataclasses.replace(data, x_train=data.x_train[:2], y_train=np.array([0, 9]))
    (run,) = compare(two, fedhip("plain", partition="iid")).runs
    assert (run.local_test_accuracy, run.personalised_test_accuracy) == (None, None)
    assert run.personalised_bitwise_equal_to_pooled is True
