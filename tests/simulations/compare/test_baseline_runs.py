"""Baselines in a comparison: the rows of the clients that stay, their own options, and the mark of what they are."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from analytic.learner import ClientRows
from federation.console.arguments import named
from federation.console.options import parse_options
from federation.datasets import Dataset, bundled
from federation.errors import UsageError
from federation.learners import LEARNERS, ChosenLearner
from federation.modes import choose_modes
from simulations.compare.baselines import BASELINES, GradientSettings, train
from simulations.compare.comparison import CompareSettings, Progress, compare
from simulations.compare.dropouts import Dropouts
from simulations.data.partitions import parse_partition

QUICK = {"rounds": 10, "learning_rate": 0.01}


def digits() -> Dataset:
    return bundled("digits")


def settings(*partitions: str, dropouts: Dropouts | None = None, names: tuple[str, ...] = ("fedavg", "fedprox")):  # type: ignore[no-untyped-def]
    return CompareSettings(
        learners=(ChosenLearner(entry=LEARNERS["afl"]),),
        modes=choose_modes(["plain"]),
        n_clients=(10,),
        partitions=tuple(parse_partition(way) for way in partitions),
        baselines=tuple(BASELINES[name].with_values(QUICK) for name in names),
        dropouts=dropouts or Dropouts(),
    )


def test_heterogeneity_changes_the_baselines_and_not_the_closed_form() -> None:
    asked = settings("iid", "dirichlet:0.01")
    comparison = compare(digits(), asked)
    assert {run.test_accuracy for run in comparison.runs} == {comparison.runs[0].test_accuracy}
    assert len({run.weights_sha256 for run in comparison.runs}) == 1
    for name in ("fedavg", "fedprox"):
        even, uneven = (one.test_accuracy for one in comparison.baselines if one.learner == name)
        assert even > 0.85
        assert uneven < even - 0.05
    assert {one.mode for one in comparison.baselines} == {"baseline"}
    assert asked.n_runs == 6


def test_a_record_is_that_of_a_direct_run_on_the_clients_that_stay() -> None:
    data, gone = digits(), Dropouts(rate=0.3, seed=5)
    (record,) = compare(data, settings("dirichlet:0.1", dropouts=gone, names=("fedprox",))).baselines
    parts = parse_partition("dirichlet:0.1").deal(data.y_train, 10, np.random.default_rng([0, 10, *b"dirichlet:0.1"]))
    stay = [part for party, part in enumerate(parts, start=1) if party not in gone.lost(tuple(range(1, 11)))]
    direct = train(
        "fedprox",
        [ClientRows(data.x_train[part], data.y_train[part]) for part in stay],
        data.x_test,
        data.y_test,
        settings=GradientSettings(**QUICK, mu=0.01, seed=0),  # type: ignore[arg-type]
    )
    assert (record.survivors, record.clients, record.mu, record.rounds) == (7, 10, 0.01, 10)
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
    assert BASELINES["fedprox"].with_values({"mu": 0.5}).settings(7) == GradientSettings(mu=0.5, seed=7)
    assert BASELINES["fedprox"].settings(0).mu == 0.01


def test_wrong_baselines_are_refused_before_any_work() -> None:
    with pytest.raises(UsageError, match="a baseline is one of fedavg, fedprox, or all of them as all, not 'sgd'"):
        named("sgd", "baseline", BASELINES)
    wrong = BASELINES["fedavg"].with_values({"rounds": 0})
    with pytest.raises(UsageError, match="a gradient baseline needs rounds"):
        dataclasses.replace(settings("iid"), baselines=(wrong,))


def test_progress_hears_of_every_round() -> None:
    starts, ticks = [], []
    compare(
        digits(),
        settings("iid", names=("fedavg",)),
        Progress(start=lambda *run: starts.append(run), tick=lambda: ticks.append(1)),
    )
    assert starts == [("fedavg (baseline), 10 clients, iid", 10), ("afl plain, 10 clients, iid", 10)]
    assert len(ticks) == 20
