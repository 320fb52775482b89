"""One contract of all runs: exact over every kind of mode, under every kind of noise, and gradient methods."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.extras import needs

from analytic.scaling import Agreement
from analytic_secagg.datasets import Dataset, bundled
from analytic_secagg.errors import UsageError
from simulations.compare.comparison import compare
from simulations.compare.execute import execute
from simulations.compare.plan import private_run
from simulations.compare.record import RunRecord
from simulations.compare.run import BASELINE, Run
from simulations.compare.tuning import Task

SMALL: dict[str, Any] = {"clients": 6, "partition": "dirichlet:0.1", "seed": 4}
NOISE = {"target_epsilon": 4.0, **SMALL}
RUNS = {
    "exact": Run(learner="afl", mode="plain", ridge=1.0, **SMALL),
    "dropouts": Run(learner="safle", mode="masked", dropout=0.2, ridge=1.0, **SMALL),
    "drawn": Run(learner="afl", mode="plain", split="drawn", **SMALL),
    "personal": Run(learner="fedhip", mode="committee", options={"alphas": (2.0,)}, evaluate=True, **SMALL),
    "chosen": Run(learner="afl", mode="plain", ridge=None, agreement=Agreement.STANDARDISED, **SMALL),
    "non-private": private_run("random", {"d_phi": 16}, **SMALL),
    "distributed": private_run("afl", mode="committee", trust="distributed", **NOISE),
    "central": private_run("logistic", {"n_rounds": 2}, trust="central", dropout=0.2, **NOISE),
    "local": private_run("fedhip", {"alphas": (2.0,)}, trust="local", **NOISE),
    "fedavg": Run(learner="fedavg", mode=BASELINE, options={"rounds": 2}, dropout=0.2, **SMALL),
    "dpsgd": Run(
        learner="dpsgd",
        mode=BASELINE,
        options={"epochs": 1},
        split="drawn",
        trust="central",
        delta=1e-5,
        unit="record",
        adjacency="add-remove",
        **NOISE,
    ),
}


def unmeasured(document: dict[str, Any]) -> dict[str, Any]:
    """What a report says of a run, but for times, memory, and what else ran."""
    apart = ("peak_rss_bytes", "unbeaten")
    return {name: own for name, own in document.items() if name not in apart and not name.endswith("_seconds")}


@pytest.fixture(scope="module")
def wine() -> Dataset:
    return bundled("wine")


@pytest.mark.parametrize("kind", RUNS)
def test_a_record_is_its_run_and_what_came_of_it(wine: Dataset, kind: str) -> None:
    if kind == "dpsgd":
        needs("opacus")
    run = RUNS[kind]
    record = execute(run, wine)
    written_out = {"label", "format", "min_noise_shares", *(("options", "ridge") if run.is_baseline else ())}
    for name in Run.model_fields.keys() - written_out:
        assert getattr(record, name) == getattr(run, name), name
    assert (record.label, record.clients) == (run.label or run.learner, 6)
    assert record.test_accuracy is not None
    assert record.test_accuracy > 0.3
    assert (record.bitwise_equal_to_pooled is True) is run.is_exact is record.is_exact
    assert record.equal_to_pooled
    assert (record.epsilon is None) is (run.target_epsilon is None)
    assert run.target_epsilon is None or 0.98 * run.target_epsilon < record.epsilon <= run.target_epsilon
    check_reread(run, record, wine)


def check_reread(run: Run, record: RunRecord, data: Dataset) -> None:
    """The run that a report holds has an equal record, but for times and memory."""
    written = record.to_document()
    reread = Run.model_validate_json(json.dumps({name: written[name] for name in Run.model_fields if name in written}))
    again = execute(reread.but(evaluate=run.evaluate), data).to_document()
    assert unmeasured(again) == unmeasured(written)


def test_a_run_on_real_targets_in_agreed_columns_is_read_back() -> None:
    data, run = bundled("linnerud"), Run(learner="afl", mode="plain", agreement=Agreement.AGREED, ridge=1.0, **SMALL)
    record = execute(run, data)
    assert record.test_r2 is not None
    assert record.bitwise_equal_to_pooled
    check_reread(run, record, data)


def test_a_record_does_not_depend_on_what_else_runs_or_where(wine: Dataset) -> None:
    several = [run for kind, run in RUNS.items() if kind != "dpsgd"]
    alone = [unmeasured(execute(run, wine).to_document()) for run in several]
    for jobs in (1, 2):
        records = compare(wine, [Task(runs=tuple(several))], jobs=jobs).runs
        assert [unmeasured(record.to_document()) for record in records] == alone


def test_an_error_in_another_process_is_the_error_of_this_one(wine: Dataset) -> None:
    runs = tuple(RUNS["exact"].but(seed=seed, partition="shards:60") for seed in (0, 1))
    said = []
    for jobs in (1, 2):
        with pytest.raises(UsageError) as refused:
            compare(wine, [Task(runs=runs)], jobs=jobs)
        said.append(str(refused.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("kind", ["exact", "distributed", "central", "fedavg"])
def test_another_seed_is_another_run(wine: Dataset, kind: str) -> None:
    run = RUNS[kind]
    one, other = (unmeasured(execute(run.but(seed=seed), wine).to_document()) for seed in (4, 5))
    assert one.pop("seed") != other.pop("seed")
    assert one != other
