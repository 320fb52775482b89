"""Accuracy per epsilon: every kind of trust on real rows, the same integers in every mode, and honest reports."""

from __future__ import annotations

import argparse
import io
import json
import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from rich.console import Console
from support.extras import needs

from analytic.errors import SpecificationError
from analytic_secagg import in_process
from analytic_secagg.console.declaration import add_options, chosen
from analytic_secagg.datasets import Dataset, bundled
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS
from analytic_secagg.modes import MODES, choose_modes
from secagg import run_in_memory
from secagg.dp import PrivacyError, calibrate
from simulations.compare import command, private
from simulations.compare.dpsgd import DPSGD
from simulations.compare.dropouts import Dropouts
from simulations.compare.frontier import frontier
from simulations.compare.options import CompareOptions
from simulations.compare.private import (
    TRUSTS,
    PrivacyTerms,
    PrivateComparison,
    PrivateSettings,
    compare_private,
    depth_verdict,
    settings_from,
    standard_error,
    with_shares,
    without_depth,
)
from simulations.compare.rows import rows
from simulations.compare.tuning import Tuned, n_trials, read_grids, tune, tuning_sentences
from simulations.data.partitions import parse_partition
from simulations.report.table import accuracy_text, print_private

MASKED = (MODES["masked"],)
SMALL = PrivateSettings(epsilons=(1.0, 8.0), terms=PrivacyTerms(), n_clients=20, n_seeds=3)
KEYS = {"epsilon", "delta", "rho", "sigma_gram", "sigma_cross", "releases", "accuracy_mean", "accuracy_spread"}


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return bundled("digits")


@pytest.fixture(scope="module")
def comparison(digits: Dataset) -> PrivateComparison:
    return compare_private(digits, SMALL)


def test_trust_buys_accuracy_in_the_expected_order(comparison: PrivateComparison) -> None:
    """3 seeds, 20 clients; 100 clients and 20 seeds are the slow form. Spread over seeds is 1 to 3 points."""
    exact = comparison.of("non-private", None)
    assert exact.accuracy_mean > 0.92
    for epsilon in SMALL.epsilons:
        distributed, central, local = (comparison.of(t, epsilon) for t in ("distributed", "central", "local"))
        assert abs(distributed.accuracy_mean - central.accuracy_mean) < 0.04
        assert distributed.accuracy_mean < exact.accuracy_mean + 0.005
        assert local.accuracy_mean < distributed.accuracy_mean - (0.2 if epsilon == 1.0 else 0.01)
    assert comparison.of("distributed", 1.0).accuracy_mean > 0.82
    assert comparison.of("distributed", 8.0).accuracy_mean > 0.91


def test_records_say_what_the_noise_really_gives(comparison: PrivateComparison) -> None:
    for record in comparison.records:
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
        assert record.releases == 2
        for name, value in record.second_opinions.items():
            expected = record.epsilon_zcdp if "RDP" in name else record.epsilon
            assert value == pytest.approx(expected, abs=0.012, rel=1e-3), name


@pytest.mark.parametrize("n_clients", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_every_mode_carries_the_same_noisy_integers(digits: Dataset, n_clients: int) -> None:
    """Noise runs over the modes that are asked for, each of which releases no total of fewer than are promised."""
    modes = choose_modes(["masked", "committee", "plain"])
    settings = replace(SMALL, epsilons=(2.0,), n_clients=n_clients, n_seeds=1, modes=modes)
    comparison = compare_private(digits, settings)
    masked, committee, clear = (one for one in comparison.records if one.trust == "distributed")
    assert [one.mode for one in (masked, committee, clear)] == ["masked", "committee", "plain"]
    apart = {"mode", "bytes_up_per_client", "messages_per_client", "client_seconds"}
    assert clear.model_dump(exclude=apart) == masked.model_dump(exclude=apart) == committee.model_dump(exclude=apart)
    assert clear.messages_per_client == committee.messages_per_client == 2 < masked.messages_per_client == 8
    assert {one.mode for one in comparison.records if one.trust != "distributed"} == {"plain"}
    assert comparison.of("distributed", 2.0) == masked
    assert any("Over plain the server sees every upload" in sentence for sentence in comparison.statement)
    file = io.StringIO()
    print_private([comparison], Console(width=160, file=file))
    assert re.search(r"masked: 8 messages, [\d.]+ kB; committee: 2 messages, [\d.]+ kB; plain: 2", file.getvalue())
    assert [point.mode for point in frontier(rows([], [], [comparison], seed=0))] == ["masked", "committee", "plain"]


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
    dropouts = Dropouts(rate=0.25, anew=anew, seed=3)
    compare_private(digits, replace(SMALL, epsilons=(8.0,), n_clients=8, n_seeds=1, seed=3, dropouts=dropouts))
    clients = tuple(range(1, 9))
    stay = [set(clients) - set(dropouts.lost(clients, number)) for number in range(2)]
    assert present == len(TRUSTS) * stay
    assert (stay[0] != stay[1]) is anew


@pytest.mark.slow
def test_digits_keep_what_is_promised(digits: Dataset) -> None:
    """The project's own measure: 100 clients, delta 1e-5, records, add-remove, 20 seeds."""
    plain = (MODES["plain"],)  # the same integers sooner
    settings = PrivateSettings(epsilons=(1.0, 2.0, 4.0, 8.0), terms=PrivacyTerms(), n_seeds=20, modes=plain)
    comparison = compare_private(digits, settings)
    assert comparison.of("non-private", None).accuracy_mean >= 0.93
    for epsilon, least in ((1.0, 0.85), (2.0, 0.87), (4.0, 0.89), (8.0, 0.91)):
        distributed, central = comparison.of("distributed", epsilon), comparison.of("central", epsilon)
        assert distributed.accuracy_mean >= least
        assert distributed.accuracy_mean >= central.accuracy_mean - 0.01
        assert comparison.of("local", epsilon).accuracy_mean < distributed.accuracy_mean - 0.05


@pytest.mark.parametrize(
    "terms",
    [
        PrivacyTerms(unit="client", client_rows=180),
        PrivacyTerms(learner="deepafl", options={"d_phi": 32, "d_f": 16}),
        PrivacyTerms(learner="safle", options={"high": 16.0}),
        PrivacyTerms(learner="logistic", options={"n_rounds": 2}, adjacency="replace-one"),
        PrivacyTerms(learner="logistic", options={"n_rounds": 2, "d_phi": 96}),
        PrivacyTerms(unit="client", client_rows=180, adjacency="replace-one", mean_share=0.0),
    ],
    ids=["client", "deep", "counts", "logistic replace", "logistic of random features", "client replace"],
)
def test_other_terms_run_and_keep_their_budget(digits: Dataset, terms: PrivacyTerms) -> None:
    settings = replace(SMALL, epsilons=(8.0,), terms=terms, n_seeds=1, n_clients=8)
    comparison = compare_private(digits, settings)
    record = comparison.of("distributed", 8.0)
    assert record.epsilon is not None
    assert 7.98 < record.epsilon <= 8.0
    assert record.releases == terms.n_releases
    if terms.unit == "record":  # 8 clients are far too few for client level to learn much
        assert record.accuracy_mean > 0.3
    assert any(terms.adjacency in sentence and terms.unit in sentence for sentence in comparison.statement)


def test_personal_models_from_a_noisy_total_need_a_colluder(digits: Dataset) -> None:
    """Every client is given the total and knows its own share; local noise is whole without the others'."""
    settings = replace(SMALL, epsilons=(2.0,), n_clients=8, n_seeds=1, partition=parse_partition("dirichlet:0.1"))
    terms = PrivacyTerms(learner="fedhip", options={"alphas": (0.0, 30.0)})
    with pytest.raises(PrivacyError, match=r"each knows its own share of the noise.*at least 1 colluder"):
        replace(settings, terms=terms, colluders=0)
    comparison = compare_private(digits, replace(settings, terms=terms))
    for record in comparison.records:
        assert record.personalised_accuracy is not None
        assert record.personalised_accuracy["0"] == record.local_accuracy
        if record.trust != "local":
            assert record.personalised_accuracy["30"] > cast("float", record.local_accuracy)
    assert comparison.of("distributed", 2.0).sigma_gram == comparison.of("central", 2.0).sigma_gram
    over_two = replace(settings, terms=terms, modes=(*MASKED, MODES["plain"]))
    assert len(compare_private(digits, over_two).statement) == len(comparison.statement) + 1
    said = [sentence for sentence in comparison.statement if sentence.startswith("On clients' own test rows, ")]
    assert len(said) == len(TRUSTS)
    assert "0.000 by" not in "".join(said)


def test_more_survivors_than_promised_cost_accuracy_not_privacy(digits: Dataset) -> None:
    settings = replace(
        SMALL, epsilons=(1.0,), promised_survivors=10, colluders=2, dropouts=Dropouts(rate=0.1), n_seeds=1
    )
    record = compare_private(digits, settings).of("distributed", 1.0)
    assert (record.survivors, record.promised_survivors, record.colluders) == (18, 10, 2)
    assert record.epsilon is not None
    assert record.epsilon <= 1.0


def test_replacing_one_needs_more_noise_and_signs_matter() -> None:
    terms = PrivacyTerms(mean_share=0.0)
    learner = terms.build(n_features=8, n_classes=3, max_rows=100)
    one = terms.plan(1.0, nonnegative=True).apply(learner)
    replacing = replace(terms, adjacency="replace-one")
    replaced = replacing.plan(1.0, nonnegative=True).apply(learner)
    signed = replacing.plan(1.0).apply(learner)
    assert replaced.sigma_gram == pytest.approx(one.sigma_gram * 2**0.5, rel=1e-6)
    assert signed.sigma_gram > replaced.sigma_gram
    assert bundled("digits").is_nonnegative


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilons": ()}, "needs an epsilon"),
        ({"colluders": 20}, "nobody whose noise counts"),
        ({"promised_survivors": 19, "dropouts": Dropouts(rate=0.2)}, "19 survivors are promised and 16"),
        ({"n_clients": 2, "dropouts": Dropouts(rate=0.9)}, "masked needs 2 of 2 clients .* leaves 1:"),
        ({"n_clients": 200}, "planned for 20 that collude.*--colluders is 1: state 20"),
        ({"modes": ()}, "and a mode"),
        ({"n_seeds": 0}, "needs an epsilon"),
    ],
)
def test_settings_that_cannot_work_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        replace(SMALL, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"gram_share": 1.0},
        {"mean_share": 1.0},
        {"unit": "row"},
        {"adjacency": "x"},
        {"client_rows": 0},
        {"learner": "deepafl", "options": {"n_layers": -1}},
        {"learner": "deepafl", "options": {"d_f": 0}},
        {"learner": "afl", "options": {"intercept": True}},
        {"learner": "random", "options": {"row_bits": 8}},
    ],
)
def test_terms_that_mean_nothing_are_refused(change: dict[str, object]) -> None:
    with pytest.raises((UsageError, PrivacyError, SpecificationError)):
        PrivacyTerms(**change)  # type: ignore[arg-type]
    for learner in ("deepafl", "logistic", "safle"):
        with pytest.raises(SpecificationError, match="by record only"):
            PrivacyTerms(learner=learner, unit="client")


def test_budgets_out_of_range_and_noise_too_fine_are_refused(digits: Dataset) -> None:
    for terms, epsilon, message in (
        ({"delta": 0.7}, 1.0, "delta"),
        ({}, 70.0, "epsilon"),
        ({"fraction_bits": 3}, 8.0, r"lattice unit"),
    ):
        with pytest.raises(PrivacyError, match=message):
            compare_private(digits, replace(SMALL, terms=PrivacyTerms(**terms), epsilons=(epsilon,), n_seeds=1))


def test_json_and_table_say_the_same(comparison: PrivateComparison) -> None:
    found = json.loads(comparison.to_json())
    assert {record["trust"] for record in found["records"]} == set(TRUSTS)
    assert all(set(record) >= KEYS for record in found["records"])
    assert {tuple(record["uncertified"]) for record in found["records"]} == {("weights by shrunk eigenvalues",)}
    assert "Not certified, the bits are this machine's: weights by shrunk eigenvalues." in found["statement"]
    assert "Unit of privacy: one record. Adjacency: add-remove" in found["statement"][0]
    assert "at least 20 of 20 clients" in found["statement"][1]
    file = io.StringIO()
    print_private([comparison], Console(width=160, file=file))
    text = file.getvalue()
    for trust in ("distributed", "central", "local"):
        shown = f"{comparison.of(trust, 8.0).accuracy_mean:.3f}"  # type: ignore[arg-type]
        assert shown in text


def test_arguments_become_settings(digits: Dataset) -> None:
    asked = options("--epsilon 4,1 --adjacency replace-one --seeds 1 --promise 8")
    settings = settings_from(
        asked, digits, partition=parse_partition("dirichlet:0.1"), n_clients=10, modes=MASKED, learner="afl", own={}
    )
    assert settings.epsilons == (4.0, 1.0)
    assert settings.promised == 8
    assert settings.terms.ridge == PrivacyTerms().ridge
    records = compare_private(digits, settings).records
    assert [record.target_epsilon for record in records] == [None, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0]
    with pytest.raises(SystemExit):
        options("--epsilon 0,1")
    with pytest.raises(SystemExit):
        options("--epsilon one")
    with pytest.raises(UsageError, match="--epsilon"):
        settings_of(options(""), digits, "afl")


def options(line: str) -> CompareOptions:
    """Return what ``settings_from`` reads."""
    parser = argparse.ArgumentParser()
    add_options(parser, CompareOptions)
    return chosen(CompareOptions, parser.parse_args(line.split()))


def test_arguments_of_exact_runs_reach_the_private_ones(digits: Dataset) -> None:
    asked = options("--epsilon 1 --ridge 0 --dropout 0.25 --dropout-anew --seed 9")
    linear = settings_of(asked, digits, "afl")
    assert linear.terms == PrivacyTerms(ridge=0.0, client_rows=180)
    assert linear.dropouts == Dropouts(rate=0.25, anew=True, seed=9)
    deep = settings_of(asked, digits, "deepafl").terms
    assert (deep.options, deep.mean_share) == ({"n_layers": 1, "d_phi": 64, "d_f": 64}, 0.0)
    deep = settings_of(asked, digits, "deepafl", n_layers=2, d_f=16).terms
    assert deep.options == {"n_layers": 2, "d_phi": 64, "d_f": 16}
    with pytest.raises(UsageError, match="takes n_layers, d_phi, d_f with --option, not gamma; leave that out"):
        settings_of(asked, digits, "deepafl", gamma=1)


def settings_of(asked: CompareOptions, dataset: Dataset, learner: str, **own: Any) -> PrivateSettings:
    """Eight clients, dealt evenly, under masks."""
    iid = parse_partition("iid")
    return settings_from(asked, dataset, n_clients=8, partition=iid, modes=MASKED, learner=learner, own=own)


def test_softmax_rounds_beat_dp_sgd_for_the_same_budget(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two splits, both tuned over two settings; five splits, wide grids and every budget stand in the docs."""
    needs("opacus")
    beside = DPSGD(batch_size=256, grid={"learning_rate": (2.0, 4.0)})
    terms, seen, drawn, split = PrivacyTerms(learner="logistic"), [], [], private._split
    monkeypatch.setattr(private, "_split", lambda *given: drawn.append(1) or split(*given))
    settings = replace(SMALL, epsilons=(1.0,), terms=terms, n_seeds=2, n_clients=5, baselines=(beside,))
    settings = replace(settings, grid={"gram_share": (0.3, 0.5)})
    comparison = compare_private(digits, settings, lambda: seen.append(1))
    assert len(drawn) == len(seen) == settings.n_runs
    (found,), ours = comparison.baselines, comparison.of("distributed", 1.0)
    assert 0.99 < found.epsilon <= 1.0
    for one, setting in ((found, "learning_rate"), (ours, "gram_share")):
        assert one.tuned is not None
        assert (one.tuned.tried, one.tuned.repetitions) == (2, 1)
        assert (one.tuned.at_edge, one.tuned.of_two) == ((), (setting,))
        at_edge = one.model_copy(update={"tuned": one.tuned.model_copy(update={"at_edge": (setting,)})})
        assert f"{one.accuracy_spread:.3f}*" in accuracy_text(at_edge)
    assert (found.rounds, found.bytes_up_per_client) == (56, 56 * 65 * 10 * 4)
    assert 0.7 < found.accuracy_mean < ours.accuracy_mean
    said = "\n".join(comparison.statement)
    for sentence in (
        "dpsgd: a softmax head by Opacus",
        "dpsgd at epsilon 1: learning_rate=",
        "the training rows of 1 repetition, which shares rows with the test rows of others",
        "logistic with T = 5 at epsilon 1: of gram_share two values were tried, and none between",
        f"distributed minus dpsgd at epsilon 1: {ours.accuracy_mean - found.accuracy_mean:+.4f}, standard error",
    ):
        assert sentence in said
    found_rows = list(rows([], [], [comparison], seed=0))
    beside = [row for row in found_rows if row.learner == "dpsgd"]
    assert [(row.seed, row.test_accuracy) for row in beside] == list(enumerate(found.accuracies))
    assert {(row.trust, row.mode, row.split) for row in beside} == {("central", "baseline", "drawn")}
    assert {row.gram_share for row in found_rows if row.trust == "distributed"} == {ours.tuned.chosen["gram_share"]}
    ours, theirs = frontier(found_rows)
    assert (theirs.learner, theirs.mode, theirs.messages_per_client) == ("dpsgd", "baseline", 56)
    assert "bytes" in ours.unbeaten
    assert "bytes" not in theirs.unbeaten
    assert theirs.client_seconds == found.train_seconds / 5 > 0


def test_a_grid_is_tried_whole_and_its_edges_are_said() -> None:
    grid, asked = {"step": (4.0, 8.0, 16.0), "n_rounds": (3, 5)}, []

    def score(own: Mapping[str, Any], seed: int) -> float:
        asked.append((own["step"], own["n_rounds"], seed))
        return -abs(own["step"] - 8.0) + seed * 0.1 * own["n_rounds"]

    found = tune(grid, score, repetitions=range(2))
    assert (found.chosen, found.tried) == ({"step": 8.0, "n_rounds": 5}, 6)
    assert (found.at_edge, found.of_two) == ((), ("n_rounds",))
    assert len(set(asked)) == len(asked) == 12 == n_trials(grid, 2)
    edges: dict[str, Any] = {"step": (4.0, 8.0), "n_rounds": (3, 5, 7), "activation": ("relu", "gelu", "sine")}
    at_edge = tune(edges, score, repetitions=range(1, 2))
    assert (at_edge.at_edge, at_edge.of_two) == (("n_rounds",), ("step",))
    assert any("WARNING: x at epsilon 1: n_rounds lies" in said for said in tuning_sentences("x", [(1.0, at_edge)]))
    assert (n_trials({}, 2), tune({}, score, repetitions=range(1)).chosen) == (0, {})
    with pytest.raises(UsageError, match="a grid needs a value for each of step"):
        tune({"step": ()}, score, repetitions=range(1))
    assert list(tuning_sentences("x", [(1.0, None), (2.0, tune({"step": (1.0,)}, score, repetitions=range(1)))])) == []
    assert DPSGD().with_values({"learning_rate": 4.0}, {}).grid == {}
    assert DPSGD().with_values({"epochs": 3}, {}).grid == DPSGD().grid
    assert DPSGD().with_values({}, {"epochs": (3, 4)}).grid == {**DPSGD().grid, "epochs": (3, 4)}


def test_grids_are_read_by_their_owners_each_value_once() -> None:
    takers = (with_shares(LEARNERS["logistic"]), with_shares(LEARNERS["safle"]), DPSGD())
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


def test_a_tuned_depth_is_judged_as_it_was_chosen(digits: Dataset, comparison: PrivateComparison) -> None:
    """T = 0 stays T = 0 whatever depths are tried beside it, and advice is about the width that was chosen."""
    terms = PrivacyTerms(learner="deepafl", options={"d_phi": 8, "d_f": 8})
    grid = {"n_layers": (1, 2), "d_phi": (8, 16), "d_f": (8, 16)}
    flat = without_depth(replace(SMALL, terms=terms, grid=grid))
    assert flat is not None
    assert without_depth(SMALL) is None
    assert (flat.terms.learner, flat.terms.options["d_phi"], flat.terms.mean_share) == ("random", 8, 0.0)
    assert dict(flat.grid) == {"d_phi": (8, 16)}
    chosen = Tuned(chosen={"n_layers": 2, "d_phi": 128}, tried=2, repetitions=1, at_edge=(), of_two=())
    records = [one.model_copy(update={"tuned": chosen, "layers": 2, "sigma_gram": 1.0}) for one in comparison.records]
    deep = comparison.model_copy(update={"terms": terms, "records": tuple(records)})
    assert sum("width 128): T = 0 is expected to do better" in sentence for sentence in deep.statement) == 2
    shallow = deep.model_copy(update={"records": tuple(one.model_copy(update={"layers": 0}) for one in records)})
    better = [one.model_copy(update={"accuracy_mean": 1.0}) for one in records]
    assert list(depth_verdict(shallow, deep.model_copy(update={"records": tuple(better)}))) == []


def test_a_deep_learner_is_told_when_it_should_be_flat(digits: Dataset) -> None:
    terms = PrivacyTerms(learner="deepafl", options={"d_phi": 32, "d_f": 32})
    settings = replace(SMALL, epsilons=(0.5,), terms=terms, n_seeds=1)
    deep = compare_private(digits, settings)
    flat = compare_private(digits, cast("PrivateSettings", without_depth(settings)))
    assert any("T = 0 is expected to do better" in sentence for sentence in deep.statement)
    told = list(depth_verdict(deep, flat))
    better = [t for t in TRUSTS[:3] if flat.of(t, 0.5).accuracy_mean > deep.of(t, 0.5).accuracy_mean]
    assert len(told) == len(better)
    assert all("T = 0 does better" in sentence for sentence in told)
