"""The comparison: every learner, mode, partition and dropout gives its pooled bytes, or says that it does not."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.comparisons import exact, learner

from analytic.errors import AnalyticError
from analytic.row_format import RowFormat
from analytic.scaling import Agreement
from analytic_secagg.datasets import Dataset, bundled
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS
from analytic_secagg.modes import choose_modes
from secagg import Layout
from simulations.__main__ import main
from simulations.compare.build import build
from simulations.compare.comparison import Progress, compare
from simulations.compare.evaluated import RegressionEvaluationRecord
from simulations.compare.reference import r2
from simulations.compare.tuning import Task
from simulations.report.document import Mark
from simulations.report.findings import findings

SMALL: Mapping[str, Mapping[str, Any]] = {
    "afl": {},
    "fedhip": {},
    "random": {"d_phi": 24},
    "logistic": {"n_rounds": 2},
    "lda": {"d_phi": 12},
    "qda": {"shrinkage": 0.75},
    "naive-bayes": {"shrinkage": 0.25},
    "deepafl": {"n_layers": 2, "d_phi": 24, "d_f": 16},
    "safle": {"n_buckets": 4, "n_bins": 32, "group_size": 1},
}
"""Options that keep the learners quick."""

INSTALLED = tuple(mode.name for mode in choose_modes(None))


def small_digits() -> Dataset:
    data = bundled("digits")
    return dataclasses.replace(
        data, x_train=data.x_train[:300, 10:34], y_train=data.y_train[:300], x_test=data.x_test[:, 10:34]
    )


def settings(name: str = "afl", **changes: Any) -> list[Task]:
    return several(learner(name, **SMALL[name]), **changes)


def several(*learners: Mapping[str, Any], **changes: Any) -> list[Task]:
    return exact(*learners, **({"modes": ("plain", "masked", "committee")} | changes))


@pytest.mark.parametrize("rate", [0.0, 0.2])
@pytest.mark.parametrize("name", ["afl", "deepafl"])
def test_models_are_judged_by_clients_that_hold_the_test_rows(name: str, rate: float) -> None:
    """One more sum over the run's own mode, with its own dropouts, says what all rows in one place say."""
    asked = settings(name, evaluate=True, dropout=rate, ridge=1.0)
    for run in compare(small_digits(), asked).runs:
        found = run.evaluation
        assert found is not None
        assert found.bitwise_equal_to_pooled
        assert run.equal_to_pooled
        assert (found.rows == 359) == (rate == 0.0)
        assert found.accuracy == run.test_accuracy or rate
        assert len(found.auc) == len(found.recall) == 10
    judged = run.model_copy(update={"evaluation": found.model_copy(update={"bitwise_equal_to_pooled": False})})
    assert not judged.equal_to_pooled


def test_real_targets_take_every_learner_and_mode_and_an_intercept() -> None:
    """Least squares with intercept is scikit-learn's, and an evaluation is what all test rows in one place say."""
    from sklearn.linear_model import LinearRegression

    data = bundled("diabetes")
    rng = np.random.default_rng(0)
    data = dataclasses.replace(
        data,
        y_train=np.column_stack([data.y_train, rng.uniform(-1, 1, len(data.y_train))]),
        y_test=np.column_stack([data.y_test, rng.uniform(-1, 1, len(data.y_test))]),
    )
    chosen = [learner(name, **own) for name, own in SMALL.items() if not LEARNERS[name].labels_only]
    chosen.append(learner("afl", "afl without intercept", intercept=False))
    modes = ("plain", "masked")
    comparison = compare(data, several(*chosen, evaluate=True, modes=modes, dropout=0.2))
    assert comparison.all_bitwise_equal_to_pooled
    assert len({run.weights_sha256 for run in comparison.runs}) == len(chosen)
    judged = compare(data, settings(evaluate=True, modes=modes[:1])).runs[0]
    oracle = LinearRegression().fit(data.x_train, data.y_train)
    own = r2(oracle.predict(data.x_test), data.y_test)
    assert own == oracle.score(data.x_test, data.y_test)
    assert judged.test_r2 == pytest.approx(own, abs=1e-3)
    assert judged.float64_ridge_test_r2 == pytest.approx(own, abs=1e-10)
    assert judged.test_accuracy is None
    assert isinstance(judged.evaluation, RegressionEvaluationRecord)
    assert np.mean(judged.evaluation.r2) == pytest.approx(own, abs=1e-2)
    assert comparison.runs[-1].test_r2 < 0 < judged.test_r2  # no intercept, no fit
    assert comparison.runs[2].personalised_test_r2 is not None


def test_labels_with_gaps_are_warned_about() -> None:
    data = small_digits()
    sparse = dataclasses.replace(data, y_train=10 * data.y_train, y_test=10 * data.y_test)
    comparison = compare(sparse, settings(modes=("plain",)))
    (said,) = [(mark, finding) for mark, finding in findings(comparison) if "no row has" in finding]
    assert said[0] is Mark.NOTICE
    assert "no row has 81 of the labels 0 to 90" in said[1]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("digits", {"target_format": "Q3.8"}, "--target-format is for real targets"),
        ("diabetes", {"baselines": (learner("fedavg"),)}, "--baselines and --epsilon are for class labels"),
    ],
)
def test_labels_and_targets_take_their_own_options(name: str, changes: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare(bundled(name), settings(**changes))


def test_every_listed_learner_is_tried() -> None:
    assert set(SMALL) == set(LEARNERS)


@pytest.mark.parametrize("name", list(SMALL))
def test_one_hash_whatever_the_mode_partition_and_cohort(name: str) -> None:
    ways = ("dirichlet:0.01", "shards:2")
    comparison = compare(small_digits(), settings(name, partitions=ways, clients=(2, 7), ridge=1.0))
    assert len(comparison.runs) == 2 * len(ways) * 3
    assert comparison.all_bitwise_equal_to_pooled
    # FedHiP keeps a fifth of each client's rows for testing, so another deal trains on other rows.
    alike = [{run.weights_sha256 for run in comparison.runs}]
    if LEARNERS[name].personalise is not None:
        cases = {(run.clients, run.partition) for run in comparison.runs}
        alike = [
            {run.weights_sha256 for run in comparison.runs if (run.clients, run.partition) == case} for case in cases
        ]
    assert {len(hashes) for hashes in alike} == {1}
    assert {run.max_abs_weight_deviation for run in comparison.runs} == {0.0}
    assert {run.survivors for run in comparison.runs} == {2, 7}
    assert {(run.certified, run.uncertified) for run in comparison.runs} == {(True, ())}
    assert any("the same on every machine" in finding for _, finding in findings(comparison))


def test_what_is_this_machines_alone_is_named() -> None:
    """Digits have columns of zeros: without gamma nothing proves a transform."""
    chosen = learner("deepafl", **SMALL["deepafl"] | {"gamma": 0.0, "projection": "nin"})
    (run,) = (comparison := compare(small_digits(), several(chosen, modes=("plain",)))).runs
    assert not run.certified
    assert run.uncertified == ("transform.0 by eigenvectors in float64",)
    (said,) = [finding for _, finding in findings(comparison) if "certified" in finding]
    assert said.startswith("not certified, the bits are this machine's: deepafl's transform.0 by eigenvectors")
    assert comparison.all_bitwise_equal_to_pooled


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("name", list(SMALL))
def test_survivors_alone_decide_and_all_modes_lose_the_same(name: str, anew: bool) -> None:
    gone = {"dropout": 0.25, "dropout_anew": anew, "seed": 3}
    comparison = compare(small_digits(), settings(name, clients=(8,), ridge=1.0, **gone))
    everybody = compare(small_digits(), settings(name, clients=(8,), modes=("plain",), ridge=1.0))
    assert comparison.all_bitwise_equal_to_pooled
    assert {run.survivors for run in comparison.runs} == {6}
    assert len({run.weights_sha256 for run in comparison.runs}) == 1
    assert comparison.runs[0].weights_sha256 != everybody.runs[0].weights_sha256


def test_modes_without_series_lose_no_client_more() -> None:
    """Of 20 clients four leave before their vectors and two after them: a series says after how many messages."""
    comparison = compare(small_digits(), settings("safle", dropout=0.2, clients=(20,), modes=INSTALLED))
    assert len(comparison.runs) == len(INSTALLED)
    assert {run.survivors for run in comparison.runs} == {16}
    assert len({run.weights_sha256 for run in comparison.runs}) == 1


def test_columns_that_a_format_hardly_holds_are_named() -> None:
    """As raw breast cancer has them: one column of thousands takes the bits of all others.

    Column 7 has few bits too, and all of them are kept.
    """
    data = small_digits()
    scales = np.ones(data.x_train.shape[1])
    scales[[3, 5, 7, 20]] = [30.0, 2.0**-10, 2.0**-4, 2.0**-4 + 2.0**-10]
    mixed = dataclasses.replace(data, x_train=data.x_train * scales, x_test=data.x_test * scales)
    comparison = compare(mixed, settings(modes=("plain",)))
    assert comparison.runs[0].format == "UQ9.7"
    assert comparison.coarse_columns == {"5": 7 / 1024, "20": 15 / 16 + 15 / 1024}
    (said,) = [finding for _, finding in findings(comparison) if finding.startswith("WARNING")]
    assert "a unit of 0.0078125, which is coarse for 2 of 24 columns: 5 (all zeros), 20 (at most 0.952)" in said
    run = comparison.runs[0]
    assert 0.001 < run.float64_quality - run.quality < 0.02
    said = [text for mark, text in findings(comparison) if mark is Mark.FINE]
    assert any("within one standard error of 359 test rows" in text for text in said)
    named = dataclasses.replace(mixed, columns=tuple(f"pixel {place}" for place in range(24)))
    assert list(compare(named, settings(modes=("plain",))).coarse_columns) == ["pixel 5", "pixel 20"]
    assert compare(data, settings(modes=("plain",))).coarse_columns == {}


def test_what_a_format_costs_beyond_chance_is_a_warning() -> None:
    data = small_digits()
    scales = np.ones(data.x_train.shape[1])
    scales[6:18] = 2.0**-14
    scales[3] = 30.0
    mixed = dataclasses.replace(data, x_train=data.x_train * scales, x_test=data.x_test * scales)
    comparison = compare(mixed, settings(modes=("plain",)))
    (run,) = comparison.runs
    gap = run.float64_quality - run.quality
    lost = f"the federated model {run.quality:.4f}, {gap:.4f} less: fixed-point rows differ by that"
    assert gap > 0.05
    assert any(lost in text for mark, text in findings(comparison) if mark is Mark.NOTICE)


@pytest.mark.parametrize("agreement", list(Agreement))
def test_sums_that_agree_on_columns_lose_nothing_in_any_mode(agreement: Agreement) -> None:
    """The same columns, whose sizes nobody stated: every learner equals its pooled model, least squares float64's."""
    data = small_digits()
    used = (data.x_train > 0).mean(axis=0) > 0.5
    scales = np.geomspace(1e-4, 1e4, used.sum())
    mixed = dataclasses.replace(data, x_train=data.x_train[:, used] * scales, x_test=data.x_test[:, used] * scales)
    chosen = (learner(name, **own) for name, own in SMALL.items())
    comparison = compare(mixed, several(*chosen, agreement=agreement, dropout=0.2, ridge=1.0))
    assert comparison.all_bitwise_equal_to_pooled
    assert (comparison.runs[0].agreement, comparison.runs[0].format, comparison.coarse_columns) == (
        agreement,
        "Q0.26",
        {},
    )
    for run in comparison.runs:
        if run.float64_ridge_max_abs_weight_deviation is not None:
            assert run.test_accuracy == run.float64_ridge_test_accuracy
    assert len(comparison.hashes) == len(SMALL)
    with pytest.raises(UsageError, match="agrees on targets too"):
        compare(bundled("diabetes"), settings(agreement=agreement, target_format="Q9.10"))


@pytest.mark.parametrize("names", [["plain", "masked", "committee"], pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("own", [{}, {"criterion": "classes"}], ids=["squares", "classes"])
def test_a_ridge_is_chosen_alike_in_every_mode(names: list[str] | None, own: Mapping[str, Any]) -> None:
    modes = names or INSTALLED
    own = own | {"folds": 2, "ridges": (0.1, 1.0)}
    chosen = (learner("fedhip", **own, alphas=(3.0,)), learner("random", **own, d_phi=12))
    asked = {"ridge": None, "agreement": Agreement.STANDARDISED, "modes": modes, "evaluate": True}
    found = compare(small_digits(), several(*chosen, **asked))
    assert found.all_bitwise_equal_to_pooled
    assert len(found.runs) == 2 * len(modes)
    assert len({(run.learner, run.weights_sha256, run.choice) for run in found.runs}) == 2


def test_a_column_that_an_outlier_spoils_is_named_where_columns_are_agreed_on() -> None:
    data = small_digits()
    spoilt = data.x_train + 0.01
    spoilt[7, 3] = 1e9
    named = dataclasses.replace(data, x_train=spoilt, columns=tuple(f"pixel {place}" for place in range(24)))
    comparison = compare(named, settings(modes=("plain",), agreement=Agreement.AGREED))
    assert comparison.coarse_columns == {"pixel 3": 1e9}
    assert any(
        "1 of 24 columns keep less than 8 bits beside the largest: pixel 3;" in text for _, text in findings(comparison)
    )


def test_numbers_of_a_run_are_what_they_say() -> None:
    data = bundled("breast_cancer")
    plain, masked, committee = compare(data, settings(ridge=0.01)).runs
    assert (plain.mode, masked.mode, plain.sums, plain.clients) == ("plain", "masked", 1, 6)
    assert (plain.messages_per_client, plain.vector_messages_per_client) == (1, 1)
    assert (masked.messages_per_client, masked.vector_messages_per_client) == (4, 1)
    assert (committee.messages_per_client, committee.vector_messages_per_client) == (1, 1)
    assert committee.helpers == 2
    four = {"mode_options": {"helpers": 4, "corrupt": 1}}
    (of_four,) = compare(data, settings(modes=("committee",), ridge=0.01, **four)).runs
    assert (of_four.helpers, of_four.weights_sha256) == (4, plain.weights_sha256)
    assert min(committee.helper_bytes_up, committee.helper_bytes_down, committee.helper_seconds) > 0
    assert plain.bytes_up_per_client < masked.bytes_up_per_client
    assert plain.float64_ridge_test_accuracy > 0.9
    # Truncation moves an entry by less than 2^-16; with this penalty the weights stay within a hundredth.
    assert plain.float64_ridge_max_abs_weight_deviation is not None
    assert 0 < plain.float64_ridge_max_abs_weight_deviation < 0.01
    assert abs(plain.test_accuracy - plain.float64_ridge_test_accuracy) <= 1 / len(data.y_test)
    assert plain.peak_rss_bytes > 10_000_000
    assert plain.wall_seconds >= plain.server_seconds > 0
    assert plain.helpers == 0


def test_wrong_options_of_a_later_learner_stop_before_any_work() -> None:
    wrong = learner("deepafl", d_phi=0)
    starts: list[object] = []
    with pytest.raises(AnalyticError, match="at least one feature"):
        compare(
            small_digits(),
            several(learner("afl"), wrong),
            Progress(start=lambda *run: starts.append(run)),
        )
    assert starts == []


def test_explanations_are_those_of_the_largest_sum() -> None:
    asked = settings("safle", modes=("masked",), explain=True, clients=(4, 5))
    explained = compare(small_digits(), asked).explanations
    assert list(explained) == ["safle, masked, 4 clients", "safle, masked, 5 clients"]
    assert explained["safle, masked, 4 clients"].startswith("masked sum over 4 clients, complete graph")
    first_sum: Any = build(asked[0].runs[0], small_digits())
    vector_bytes = Layout.of(first_sum.spec.segments).wire_bytes
    assert f"({vector_bytes} of them the vector)" in explained["safle, masked, 4 clients"]


def test_progress_hears_of_every_run_and_contribution() -> None:
    starts, ticks = [], []
    compare(small_digits(), settings(), Progress(start=lambda *run: starts.append(run), tick=lambda: ticks.append(1)))
    assert [steps for _, steps in starts] == [6, 6, 6]
    assert "masked, 6 clients, dirichlet:0.1" in starts[1][0]
    assert len(ticks) == 18


def test_a_run_with_another_total_is_noticed(off_by_one: str) -> None:
    comparison = compare(small_digits(), settings(modes=("plain", off_by_one)))
    assert [run.bitwise_equal_to_pooled for run in comparison.runs] == [True, False]
    assert not comparison.all_bitwise_equal_to_pooled
    deviation = comparison.runs[1].max_abs_weight_deviation
    assert deviation is not None
    assert 0 < deviation < 1


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"modes": ()}, UsageError, "at least one run"),
        ({"clients": (0,)}, ValueError, "greater than or equal to 1"),
        ({"seed": -1}, ValueError, "greater than or equal to 0"),
        ({"clients": (20, 1)}, UsageError, "--modes plain serves any number"),
        ({"dropout": 0.9}, UsageError, "masked needs 5 of 6 clients to stay to the end"),
        ({"modes": ("plain", "telepathy")}, UsageError, "mode must be one of"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(changes: Any, error: type[Exception], message: str) -> None:
    starts: list[object] = []
    with pytest.raises(error, match=message):
        compare(small_digits(), settings(**changes), Progress(start=lambda *run: starts.append(run)))
    assert starts == []


@pytest.mark.parametrize("words", [["--epsilon", "1"], ["--baselines", "fedavg", "--option", "max_weight=2"]])
def test_weights_of_rows_are_not_passed_over(words: list[str], tmp_path: Path, capsys: Any) -> None:
    """Noise and gradient methods count every row once; they did so in silence."""
    data = small_digits()
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "weighed.npz", **arrays, w_train=np.full(len(data.x_train), 2))
    asked = ["compare", "--data", str(tmp_path / "weighed.npz"), *words]
    assert main(asked) == 2
    assert "has weights of rows (w_train)" in capsys.readouterr().err


def test_an_option_that_is_a_format_is_in_the_record() -> None:
    chosen = learner("random", d_phi=12, format=RowFormat.parse("UQ5.11"))
    (run,) = compare(small_digits(), several(chosen, modes=("plain",))).runs
    assert run.to_document()["options"] == {"d_phi": 12, "format": "UQ5.11"}


def test_several_classes_a_row_and_labels_that_some_rows_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 5))
    y = (x @ rng.normal(size=(5, 3)) > 0).astype(np.int64)
    np.savez(tmp_path / "whole.npz", x_train=x[:120], y_train=y[:120], x_test=x[120:], y_test=y[120:])
    y[:60, 2], y[60:120, 0] = -1, -1
    np.savez(tmp_path / "partial.npz", x_train=x[:120], y_train=y[:120], x_test=x[120:], y_test=y[120:])
    words = [
        "compare",
        "--modes",
        "plain,masked",
        "--clients",
        "5",
        "--option",
        "intercept=yes",
        "--evaluate",
        "--json",
    ]
    runs = []
    for name, more in (("whole", ["--learner", "afl,fedhip"]), ("partial", ["--option", "patterns=0+1,1+2"])):
        report = tmp_path / f"{name}.json"
        assert main([*words, str(report), "--data", str(tmp_path / f"{name}.npz"), *more]) == 0
        runs += json.loads(report.read_text())["runs"]
    assert all(run["bitwise_equal_to_pooled"] and run["test_accuracy"] > 0.75 for run in runs)
    assert all(run["float64_ridge_max_abs_weight_deviation"] < 1e-3 for run in runs)
    assert all(run["evaluation"]["accuracy"] == run["test_accuracy"] for run in runs)
    assert all(run["evaluation"]["bitwise_equal_to_pooled"] and min(run["evaluation"]["auc"]) > 0.8 for run in runs)
    no = [str(tmp_path / "no.json"), "--data", str(tmp_path / "whole.npz")]
    assert main([*words, *no, "--baselines", "fedavg"]) == 2
    assert "are for one class a row" in capsys.readouterr().err


def test_features_that_float64_hardly_holds_are_named_and_nothing_falls_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Least squares of them has weights beyond float64."""
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 1e-310, (60, 3)), rng.integers(0, 2, 60)
    np.savez(tmp_path / "tiny.npz", x_train=x[:40], y_train=y[:40], x_test=x[40:], y_test=y[40:])
    words = ["compare", "--data", str(tmp_path / "tiny.npz"), "--modes", "plain", "--clients", "3", "--json"]
    assert main([*words, str(tmp_path / "tiny.json")]) == 0
    (run,) = json.loads((tmp_path / "tiny.json").read_text())["runs"]
    assert run["bitwise_equal_to_pooled"]
    assert run["float64_ridge_max_abs_weight_deviation"] is None
    assert "coarse for 3 of 3 columns" in " ".join(capsys.readouterr().out.split())
