"""Accuracy per epsilon: every kind of trust on real rows, the same integers in every mode, and honest reports."""

from __future__ import annotations

import io
import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

import click
import numpy as np
import pytest
from rich.console import Console
from support.extras import needs

from analytic.errors import SpecificationError
from analytic_secagg import in_process
from analytic_secagg.console.declaration import chosen
from analytic_secagg.datasets import Dataset, bundled
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS
from secagg import run_in_memory
from secagg.dp import PrivacyError, calibrate
from simulations.command_line.compare import COMMAND
from simulations.compare import command
from simulations.compare.comparison import Comparison, Progress, compare
from simulations.compare.deal import Deal
from simulations.compare.dpsgd import METHODS
from simulations.compare.dropouts import Dropouts
from simulations.compare.options import CompareOptions
from simulations.compare.plan import flat, private_run, private_tasks, tasks_of, with_shares
from simulations.compare.privacy import Budgets, depth_verdict, depth_verdicts, standard_error, statement
from simulations.compare.record import RunRecord
from simulations.compare.run import NOISY, Run
from simulations.compare.tuning import Task, read_grids, tuning_sentences
from simulations.report.document import DatasetRecord
from simulations.report.table import print_private

TRUSTS = (*NOISY, "non-private")
KEYS = {"epsilon", "delta", "rho", "sigma_gram", "sigma_cross", "sums", "test_accuracy", "clipped"}


def small(learner: str = "afl", options: Mapping[str, Any] | None = None, **fields: Any) -> Run:
    """A private form over 20 clients."""
    return private_run(learner, options, **({"clients": 20, "partition": "iid"} | fields))


def tasks(
    run: Run, epsilons: Iterable[float] = (1.0, 8.0), modes: Iterable[str] = ("masked",), **changes: Any
) -> list[Task]:
    """Every trust at every budget, with three seeds."""
    again = {"seeds": range(run.seed, run.seed + 3)} | changes
    return list(private_tasks(run, epsilons, [{"mode": mode} for mode in modes], **again))


def under_noise(data: Dataset, *given: Any, **changes: Any) -> Budgets:
    (found,) = compare(data, tasks(*given, **changes)).private
    return found


def said_of(found: Budgets, data: Dataset) -> list[str]:
    return list(statement(found, DatasetRecord.of(data)))


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return bundled("digits")


@pytest.fixture(scope="module")
def compared(digits: Dataset) -> Comparison:
    return compare(digits, tasks(small()))


@pytest.fixture(scope="module")
def comparison(compared: Comparison) -> Budgets:
    (found,) = compared.private
    return found


def test_trust_buys_accuracy_in_the_expected_order(comparison: Budgets) -> None:
    """3 seeds, 20 clients; 100 clients and 20 seeds are the slow form. Spread over seeds is 1 to 3 points."""
    exact = comparison.of("non-private", None).quality
    assert exact > 0.92
    for epsilon in (1.0, 8.0):
        distributed, central, local = (comparison.of(t, epsilon).quality for t in NOISY)
        assert abs(distributed - central) < 0.04
        assert distributed < exact + 0.005
        assert local < distributed - (0.2 if epsilon == 1.0 else 0.01)
    assert comparison.of("distributed", 1.0).quality > 0.82
    assert comparison.of("distributed", 8.0).quality > 0.91


def test_records_say_what_the_noise_really_gives(compared: Comparison) -> None:
    assert len(compared.runs) == (1 + 2 * 3) * 3
    for record in compared.runs:
        assert record.bitwise_equal_to_pooled is None
        if record.trust == "non-private":
            assert record.epsilon is record.delta is record.rho is None
            continue
        assert record.target_epsilon is not None
        assert record.epsilon is not None
        assert record.epsilon_zcdp is not None
        assert record.rho is not None
        assert 0.999 * record.target_epsilon < record.epsilon <= record.target_epsilon
        assert record.epsilon_zcdp > 1.03 * record.epsilon
        assert record.rho <= calibrate(record.target_epsilon, 1e-5)
        assert record.sums == 2
        for name, value in (record.second_opinions or {}).items():
            expected = record.epsilon_zcdp if "RDP" in name else record.epsilon
            assert value == pytest.approx(expected, abs=0.012, rel=1e-3), name


@pytest.mark.parametrize("n_clients", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_every_mode_carries_the_same_noisy_integers(digits: Dataset, n_clients: int) -> None:
    """Noise runs over the modes that are asked for, each of which releases no total of fewer than are promised."""
    run = small(clients=n_clients)
    comparison = under_noise(digits, run, (2.0,), ("masked", "committee", "plain"), seeds=range(1))
    masked, committee, clear = (one.first for one in comparison.every if one.first.trust == "distributed")
    assert [one.mode for one in (masked, committee, clear)] == ["masked", "committee", "plain"]
    apart = {name for name in RunRecord.model_fields if "bytes" in name or "seconds" in name or "messages" in name}
    apart |= {"mode", "unbeaten", "helpers"}
    assert clear.model_dump(exclude=apart) == masked.model_dump(exclude=apart) == committee.model_dump(exclude=apart)
    assert clear.messages_per_client == committee.messages_per_client == 2 < masked.messages_per_client == 8
    assert {one.first.mode for one in comparison.every if one.first.trust != "distributed"} == {"plain"}
    assert comparison.of("distributed", 2.0).first == masked
    assert any("Over plain the server sees every upload" in sentence for sentence in said_of(comparison, digits))
    file = io.StringIO()
    found = compare(digits, tasks(run, (2.0,), ("masked", "committee", "plain"), seeds=range(1)))
    print_private(found, Console(width=160, file=file))
    assert re.search(r"masked: 8 messages, [\d.]+ kB; committee: 2 messages, [\d.]+ kB; plain: 2", file.getvalue())
    assert [one.mode for one in found.runs if one.unbeaten is not None] == ["masked", "committee", "plain"]


@pytest.mark.parametrize("anew", [False, True])
def test_the_clients_vanish_that_vanish_from_exact_runs(
    digits: Dataset, anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = []

    def recorded(protocol: Any, contributions: Any, *, dropouts: Any) -> Any:
        run = run_in_memory(protocol, contributions, dropouts=dropouts)
        present.append(set(run.result.survivors))
        return run

    monkeypatch.setattr(in_process, "run_in_memory", recorded)
    run = small(clients=8, seed=3, dropout=0.25, dropout_anew=anew)
    under_noise(digits, run, (8.0,), seeds=range(3, 4))
    clients, dropouts = run.parties, Dropouts(rate=0.25, anew=anew, seed=3)
    stay = [set(clients) - set(dropouts.lost(clients, number)) for number in range(2)]
    assert present == len(TRUSTS) * stay
    assert (stay[0] != stay[1]) is anew


@pytest.mark.slow
def test_digits_keep_what_is_promised(digits: Dataset) -> None:
    """The project's own measure: 100 clients, delta 1e-5, records, add-remove, 20 seeds."""
    plain = ("plain",)  # the same integers sooner
    comparison = under_noise(digits, small(clients=100), (1.0, 2.0, 4.0, 8.0), plain, seeds=range(20))
    assert comparison.of("non-private", None).quality >= 0.93
    for epsilon, least in ((1.0, 0.85), (2.0, 0.87), (4.0, 0.89), (8.0, 0.91)):
        distributed, central, local = (comparison.of(trust, epsilon).quality for trust in NOISY)
        assert distributed >= least
        assert distributed >= central - 0.01
        assert local < distributed - 0.05


@pytest.mark.parametrize(
    "run",
    [
        small(clients=8, unit="client"),
        small("deepafl", {"d_phi": 32, "d_f": 16}, clients=8),
        small("safle", {"high": 16.0}, clients=8),
        small("logistic", {"n_rounds": 2}, clients=8, adjacency="replace-one"),
        small("logistic", {"n_rounds": 2, "d_phi": 96}, clients=8),
        small(clients=8, unit="client", adjacency="replace-one", mean_share=0.0),
    ],
    ids=["client", "deep", "counts", "logistic replace", "logistic of random features", "client replace"],
)
def test_other_terms_run_and_keep_their_budget(digits: Dataset, run: Run) -> None:
    comparison = under_noise(digits, run, (8.0,), seeds=range(1))
    record = comparison.of("distributed", 8.0).first
    assert record.epsilon is not None
    assert 7.98 < record.epsilon <= 8.0
    assert {one.first.sums for one in comparison.every} == {record.sums}
    if record.unit == "record":  # 8 clients are far too few for client level to learn much
        assert record.quality > 0.3
    assert any(f"{record.adjacency}" in one and f"{record.unit}" in one for one in said_of(comparison, digits))


def test_personal_models_from_a_noisy_total_need_a_colluder(digits: Dataset) -> None:
    """Every client is given the total and knows its own share; local noise is whole without the others'."""
    own = {"clients": 8, "partition": "dirichlet:0.1"}
    run = small("fedhip", {"alphas": (0.0, 30.0)}, **own)
    with pytest.raises(PrivacyError, match=r"each knows its own share of the noise.*at least 1 colluder"):
        compare(digits, tasks(small("fedhip", {"alphas": (0.0, 30.0)}, colluders=0, **own), (2.0,)))
    comparison = under_noise(digits, run, (2.0,), seeds=range(1))
    for one in comparison.every:
        record = one.first
        assert record.personalised_test_accuracy is not None
        assert record.personalised_test_accuracy["0"] == record.local_test_accuracy
        if record.trust != "local":
            assert record.personalised_test_accuracy["30"] > cast("float", record.local_test_accuracy)
    sigmas = {comparison.of(trust, 2.0).first.sigma_gram for trust in ("distributed", "central")}
    assert len(sigmas) == 1
    over_two = under_noise(digits, run, (2.0,), ("masked", "plain"), seeds=range(1))
    said = said_of(comparison, digits)
    assert len(said_of(over_two, digits)) == len(said) + 1
    said = [sentence for sentence in said if sentence.startswith("On clients' own test rows, ")]
    assert len(said) == len(TRUSTS)
    assert "0.000 by" not in "".join(said)


def test_more_survivors_than_promised_cost_accuracy_not_privacy(digits: Dataset) -> None:
    run = small(min_noise_shares=10, colluders=2, dropout=0.1)
    record = under_noise(digits, run, (1.0,), seeds=range(1)).of("distributed", 1.0).first
    assert (record.survivors, record.min_noise_shares, record.colluders) == (18, 10, 2)
    assert record.epsilon is not None
    assert record.epsilon <= 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colluders": 20}, "no share that counts"),
        ({"min_noise_shares": 19, "dropout": 0.2}, "19 noise shares are the minimum and 16"),
        ({"clients": 2, "dropout": 0.9}, "masked needs 2 of 2 clients .* leaves 1:"),
        ({"clients": 200}, "planned for 20 that collude.*--colluders is 1: state 20"),
    ],
)
def test_settings_that_cannot_work_are_refused(digits: Dataset, change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        compare(digits, tasks(small(**change)))
    with pytest.raises(UsageError, match="needs at least one run"):
        tasks(small(), seeds=range(0))


@pytest.mark.parametrize(
    "run",
    [
        lambda: small(gram_share=1.0),
        lambda: small(mean_share=1.0),
        lambda: small(unit="row"),
        lambda: small(adjacency="x"),
        lambda: small(unknown_field=1),
        lambda: small("deepafl", {"n_layers": -1}),
        lambda: small("deepafl", {"d_f": 0}),
        lambda: small("afl", {"intercept": True}),
        lambda: small("random", {"row_bits": 8}),
        *(lambda name=name: small(name, unit="client") for name in ("deepafl", "logistic", "safle")),
    ],
)
def test_terms_that_mean_nothing_are_refused_before_any_work(digits: Dataset, run: Callable[[], Run]) -> None:
    starts: list[object] = []
    with pytest.raises((ValueError, PrivacyError, SpecificationError)):
        compare(digits, tasks(run()), Progress(start=lambda *run: starts.append(run)))
    assert starts == []


def test_budgets_out_of_range_and_noise_too_fine_are_refused(digits: Dataset) -> None:
    for fields, epsilon, message in (
        ({"delta": 0.7}, 1.0, "delta"),
        ({}, 70.0, "epsilon"),
        ({"format": "Q0.3"}, 8.0, r"lattice unit"),
    ):
        with pytest.raises(PrivacyError, match=message):
            compare(digits, tasks(small(**fields), (epsilon,), seeds=range(1)))


def test_json_and_table_say_the_same(compared: Comparison, comparison: Budgets) -> None:
    found = json.loads(compared.to_json())
    assert {record["trust"] for record in found["runs"]} == set(TRUSTS)
    assert all(set(record) >= KEYS for record in found["runs"])
    assert {tuple(record["uncertified"]) for record in found["runs"]} == {("weights by shrunk eigenvalues",)}
    ((title, said),) = found["statement"].items()
    assert title == comparison.title == "afl, 20 clients, iid"
    assert "Not certified, the bits are this machine's: weights by shrunk eigenvalues." in said
    assert "Unit of privacy: one record. Adjacency: add-remove" in said[0]
    assert "at least 20 of 20 clients" in said[1]
    file = io.StringIO()
    print_private(compared, Console(width=160, file=file))
    text = file.getvalue()
    for trust in NOISY:
        assert f"{comparison.of(trust, 8.0).quality:.3f}" in text


def test_arguments_become_runs(digits: Dataset) -> None:
    line = "--epsilon 4,1 --adjacency replace-one --seeds 1 --min-noise-shares 8 --clients 10 --modes masked"
    found = [run for task in asked_for(line, digits) for run in task.runs]
    assert found[0].trust is None
    assert [run.target_epsilon for run in found[1:]] == [None, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0]
    assert [run.trust for run in found[1:5]] == ["non-private", *NOISY]
    assert {(run.min_noise_shares, run.ridge, run.split) for run in found[1:]} == {(8, 0.01, "drawn")}
    assert {run.partition for run in found} == {"dirichlet:0.1"}
    with pytest.warns(DeprecationWarning, match="--promise is --min-noise-shares now"):
        assert asked_for(line.replace("--min-noise-shares", "--promise"), digits) == asked_for(line, digits)
    with pytest.raises(click.BadParameter, match="numbers above 0"):
        options("--epsilon 0,1")
    with pytest.raises(click.BadParameter, match="numbers above 0"):
        options("--epsilon one")
    assert all(run.trust is None for task in asked_for("", digits) for run in task.runs)


def asked_for(line: str, data: Dataset) -> list[Task]:
    return tasks_of(options(line), data)


def options(line: str) -> CompareOptions:
    """Return what ``tasks_of`` reads."""
    return chosen(CompareOptions, COMMAND.make_context("compare", line.split()).params)


def test_arguments_of_exact_runs_reach_the_private_ones(digits: Dataset) -> None:
    line = "--epsilon 1 --ridge 0 --dropout 0.25 --dropout-anew --seed 9 --clients 8 --modes masked --learner "
    linear = asked_for(f"{line} afl", digits)[1].runs[0]
    assert (linear.ridge, linear.dropouts) == (0.0, Dropouts(rate=0.25, anew=True, seed=9))
    assert (linear.delta, linear.gram_share, linear.mean_share, linear.colluders) == (None, 0.3, 0.05, 1)
    deep = asked_for(f"{line} deepafl", digits)[1].runs[0]
    always = {"gamma": 1e-3, "projection": "nin"}
    assert deep.options == always | {"n_layers": 1, "d_phi": 64, "d_f": 64}
    assert (deep.gram_share, deep.mean_share) == (0.3, 0.0)
    deep = asked_for(f"{line} deepafl --option n_layers=2 --option d_f=16", digits)[1].runs[0]
    assert deep.options == always | {"n_layers": 2, "d_phi": 64, "d_f": 16}
    with pytest.raises(UsageError, match="takes n_layers, d_phi, d_f with --option, not gamma; leave that out"):
        asked_for(f"{line} deepafl --option gamma=1", digits)


def test_softmax_rounds_and_dp_sgd_have_the_same_budget_splits_and_release_of_the_mean(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two splits, both tuned over two settings; five splits, wide grids and every budget stand in the docs."""
    needs("opacus")
    line = (
        "--epsilon 1 --learner logistic --baselines dpsgd --option dpsgd.batch_size=256 --option dpsgd.clip=0.3 "
        "--clients 5 --partition iid --modes masked --seeds 2 --tune dpsgd.learning_rate=10,30 "
        "--tune gram_share=0.3,0.5"
    )
    asked, starts = asked_for(line, digits)[1:], []
    found = compare(digits, asked, Progress(start=lambda *run: starts.append(run)))
    assert len(starts) == sum(task.n_runs for task in asked) == 2 + (2 + 6) + (2 + 2)
    (one,) = found.private
    (theirs,), ours = one.beside, one.of("distributed", 1.0)
    assert 0.99 < theirs.first.epsilon <= 1.0
    for own, setting, tried in ((theirs, "learning_rate", (10.0, 30.0)), (ours, "gram_share", (0.3, 0.5))):
        tuned = own.first.tuned
        assert tuned is not None
        assert (tuned.tried, tuned.repetitions, tuned.grid) == (2, 1, {setting: tried})
        assert (tuned.at_edge, tuned.of_two) == ((), (setting,))
        at_edge = own.first.model_copy(update={"tuned": tuned.model_copy(update={"at_edge": (setting,)})})
        assert replace(own, records=(at_edge, *own.records[1:])).text == f"{own.text}*"
    assert (theirs.first.mean_share, theirs.first.gram_share) == (0.05, None)
    assert (theirs.first.messages_per_client, theirs.first.bytes_up_per_client) == (113, 65 * (112 * 10 + 1) * 4)
    assert min(theirs.quality, ours.quality) > 0.8
    said = "\n".join(said_of(one, digits))
    for sentence in (
        "dpsgd: a softmax head by DP-SGD",
        "dpsgd at epsilon 1: learning_rate=",
        "the training rows of 1 repetition, which shares rows with the test rows of others",
        "logistic with T = 5 at epsilon 1: of gram_share two values were tried, and none between",
        f", distributed, minus dpsgd at epsilon 1: {ours.quality - theirs.quality:+.4f}, standard error",
        f", central, minus dpsgd at epsilon 1: {one.of('central', 1.0).quality - theirs.quality:+.4f}, standard error",
    ):
        assert sentence in said
    records = theirs.records
    assert [one.seed for one in records] == [0, 1]
    assert {(one.trust, one.mode, one.split, one.clients) for one in records} == {("central", "baseline", "drawn", 5)}
    assert {one.gram_share for one in ours.records} == {ours.first.tuned.chosen["gram_share"]}
    assert "bytes" in ours.first.unbeaten
    assert records[0].client_seconds == records[0].wall_seconds / 5 > 0


def test_a_grid_is_tried_whole_and_its_edges_are_said() -> None:
    """On training rows alone, with the server's noise, whatever kind of noise is asked for."""
    grid = {"step": (4.0, 8.0, 16.0), "n_rounds": (3, 5)}
    runs = tasks(small("logistic"), (1.0,))[1].runs

    def scores(task: Task) -> Iterator[float]:
        for run in task.trial_runs:
            assert (run.split, run.mode, run.trust) == ("held-out", "plain", "central")
            yield -abs(run.options["step"] - 8.0) + run.seed * 0.1 * run.options["n_rounds"]

    whole = Task(runs=runs, grid=grid, seeds=(1, 2))
    asked = [(run.options["step"], run.options["n_rounds"], run.seed) for run in whole.trial_runs]
    assert asked == [(step, n, seed) for step in grid["step"] for n in grid["n_rounds"] for seed in (1, 2)]
    chosen, tuned = whole.tuned(scores(whole))
    assert tuned is not None
    assert (tuned.chosen, tuned.tried, tuned.repetitions) == ({"step": 8.0, "n_rounds": 5}, 6, 2)
    assert {(run.options["step"], run.options["n_rounds"]) for run in chosen} == {(8.0, 5)}
    assert [(run.seed, run.trust, run.mode) for run in chosen] == [(run.seed, run.trust, run.mode) for run in runs]
    assert (tuned.at_edge, tuned.of_two) == ((), ("n_rounds",))
    edges = Task(runs=runs, grid={"step": (4.0, 8.0), "n_rounds": (3, 5, 7), "activation": ("a", "b", "c")}, seeds=(1,))
    _, at_edge = edges.tuned(scores(edges))
    assert at_edge is not None
    assert (at_edge.at_edge, at_edge.of_two) == (("n_rounds",), ("step",))
    assert any("WARNING: x at epsilon 1: n_rounds lies" in said for said in tuning_sentences("x", [(1.0, at_edge)]))
    assert Task(runs=runs, seeds=(1,)).tuned([]) == (runs, None)
    with pytest.raises(UsageError, match="a grid needs a value for each of step"):
        Task(runs=runs, grid={"step": ()}, seeds=(1,))
    single = Task(runs=runs, grid={"step": (2.0,)}, seeds=(1,))
    only, one = single.tuned([])
    assert (single.n_runs, single.trial_runs, only[0].options["step"]) == (len(runs), (), 2.0)
    assert list(tuning_sentences("x", [(1.0, None), (2.0, one)])) == []


def test_held_out_rows_are_the_last_fifth_of_training_rows(digits: Dataset) -> None:
    run = tasks(small(clients=5), (1.0,))[1].runs[0]
    whole, held = Deal.of(run, digits).data, Deal.of(run.held_out(run.seed), digits).data
    cut = len(whole.x_train) * 4 // 5
    assert np.array_equal(held.x_train, whole.x_train[:cut])
    assert np.array_equal(held.x_test, whole.x_train[cut:])
    assert np.array_equal(held.y_test, whole.y_train[cut:])


@pytest.mark.parametrize(("unit", "delta", "is_large"), [("record", 0.1, 1), ("record", 1e-5, 0), ("client", 0.06, 1)])
def test_a_delta_that_protects_nobody_is_said_below_the_table(
    digits: Dataset, unit: Any, delta: float, is_large: int, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small(unit=unit, delta=delta)
    asked = tasks(run, (1.0,), seeds=range(1))
    found = compare(digits, asked)
    print_private(found, Console(width=200))
    said = capsys.readouterr().out
    n = 20 if unit == "client" else len(digits.x_train)
    assert f"WARNING: delta {delta:g} is too large for {n} {unit}s" in " ".join(said.split()) or not is_large
    assert ("WARNING" in said) == bool(is_large)


def test_stated_options_of_dpsgd_are_not_tuned(digits: Dataset) -> None:
    line = "--epsilon 1 --baselines dpsgd --clients 5 --partition iid --modes masked"
    grid = METHODS["dpsgd"].grid
    for more, tried in (
        ("--option dpsgd.learning_rate=4", {name: own for name, own in grid.items() if name != "learning_rate"}),
        ("--option dpsgd.epochs=3", grid),
        ("--tune dpsgd.epochs=3,4 --tune dpsgd.mean_share=0,0.1", {**grid, "epochs": (3, 4), "mean_share": (0.0, 0.1)}),
    ):
        task = asked_for(f"{line} {more}", digits)[-1]
        assert (task.grid, task.runs[0].mean_share) == (tried, 0.05)


def test_grids_are_read_by_their_owners_each_value_once() -> None:
    takers = (with_shares(LEARNERS["logistic"]), with_shares(LEARNERS["safle"]), METHODS["dpsgd"])
    asked = ["step=4,8,4.0", "logistic.n_rounds=3", "logistic.step=16", "mean_share=0,0.1"]
    assert read_grids(asked, takers, {}) == {
        "logistic": {"step": (4.0, 8.0, 16.0), "n_rounds": (3,), "mean_share": (0.0, 0.1)},
        "safle": {},
        "dpsgd": {},
    }
    with pytest.raises(UsageError, match=r"--tune .*safle\.mean_share=0"):
        read_grids(["safle.mean_share=0,0.1"], takers, {})
    for line in ("--option logistic.step=4 --tune logistic.step=8,16", "--gram-share 0.5 --tune gram_share=0.3,0.4"):
        with pytest.raises(UsageError, match=r"of logistic is both stated and tuned: leave one"):
            command.run(options(f"--epsilon 1 --learner logistic --clients 5 --partition iid --modes plain {line}"))
    with pytest.raises(UsageError, match="epochs of dpsgd is both stated and tuned"):
        read_grids(["epochs=2,3"], takers, {"dpsgd": {"epochs"}})


def test_errors_over_overlapping_splits_are_those_of_a_pool() -> None:
    """Means over splits of one pool of 60 rows: the usual formula says far too little, the corrected one enough."""
    rng = np.random.default_rng(0)
    spread, naive, corrected = [], [], []
    for _ in range(400):
        pool = rng.normal(size=60)
        found = [float(rng.permutation(pool)[:48].mean()) for _ in range(5)]
        spread.append(statistics.fmean(found))
        naive.append(statistics.stdev(found) / 5**0.5)
        corrected.append(standard_error(found, n_train=48, n_test=12))
    really = statistics.stdev(spread)
    assert statistics.fmean(naive) < 0.5 * really
    assert statistics.fmean(corrected) == pytest.approx(statistics.fmean(naive) * 1.5, rel=1e-12)
    assert math.isnan(standard_error([0.5], n_train=4, n_test=1))


def test_a_tuned_depth_is_judged_as_it_was_chosen(digits: Dataset) -> None:
    """T = 0 stays T = 0 whatever depths are tried beside it, and advice is about the width that was chosen."""
    deep = small("deepafl", {"d_phi": 8, "d_f": 8})
    without = flat(deep)
    assert without is not None
    assert flat(small()) is None
    assert (without.learner, without.options["d_phi"]) == ("random", 8)
    assert without.mean_share == 0.0
    line = "--epsilon 0.5 --learner deepafl --seeds 1 --tune n_layers=1,2 --tune d_phi=8,16 --tune d_f=8,16"
    grids = [task.grid for task in asked_for(line, digits) if task.grid]
    assert grids == [{"n_layers": (1, 2), "d_phi": (8, 16), "d_f": (8, 16)}, {"d_phi": (8, 16)}]
    tried = tasks(deep.but(clients=5), (0.5,), ("plain",), seeds=range(1), grid={"d_phi": (16, 32)})
    (found,) = compare(digits, tried).private
    width = found.noisy[0].tuned.chosen["d_phi"]
    assert sum(f"width {width}): T = 0 is expected to do better" in said for said in said_of(found, digits)) == 1


def test_a_deep_learner_is_told_when_it_should_be_flat(digits: Dataset) -> None:
    run = small("deepafl", {"d_phi": 32, "d_f": 32})
    without = flat(run)
    assert without is not None
    both = [*tasks(run, (0.5,), seeds=range(1)), *tasks(without, (0.5,), seeds=range(1))]
    deep, shallow = (found := compare(digits, both)).private
    assert any("T = 0 is expected to do better" in sentence for sentence in said_of(deep, digits))
    told = list(depth_verdict(deep, shallow))
    better = [t for t in NOISY if shallow.of(t, 0.5).quality > deep.of(t, 0.5).quality]
    assert len(told) == len(better)
    assert all("T = 0 does better" in sentence for sentence in told)
    assert list(depth_verdicts(found.private)) == [(deep, sentence) for sentence in told]
    assert list(depth_verdict(shallow, deep)) == []
