"""What could go wrong in a mean: each row says what ours does, and beside it what Flower answers.

Flower answers twice: its strategy FedAvg, which sees every reply, and its own secure aggregation, SecAgg+, whose code
``benchmarks.secaggplus`` runs unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.server.workflow import SecAggPlusWorkflow
from flwr.serverapp.strategy import FedAvg, Krum, Strategy
from test_mean import PLAN, ROWS, NodesInThisProcess, _is_unmasking, _stage

from analytic_secagg.errors import UsageError
from analytic_secagg.flower.mean import MeanTerms, SecureMean
from analytic_secagg.site.errors import REASONS, Refusal
from benchmarks.secaggplus import flowers_round

MAX_WEIGHT = 300
TERMS = MeanTerms(max_weight=MAX_WEIGHT)
ODD = 12
"""The node with which something is wrong."""

VALUES = dict(zip(ROWS, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))
HONEST = sum(VALUES[node] * ROWS[node] for node in ROWS) / sum(ROWS.values())
WITHOUT = sum(VALUES[node] * n for node, n in ROWS.items() if node != ODD) / (sum(ROWS.values()) - ROWS[ODD])
"""The weighted means of all nodes, and of those without the odd one."""


def as_weighed(weight: int) -> float:
    """The mean in which the odd node has this weight."""
    rest = sum(ROWS.values()) - ROWS[ODD]
    return (WITHOUT * rest + VALUES[ODD] * weight) / (rest + weight)


@dataclass(frozen=True, kw_only=True)
class Wrong:
    """One row.

    Args:
        ours: the number in each entry of the model, to 1e-4; None where the model stays as it is.
        fedavg: Flower's strategy's number, NaN included; None where it has no model either, and what it raises.
        secaggplus: Flower's secure aggregation's number; None where it halts, and ``...`` where it cannot be asked.
        value: what the odd node trains to.
        shape: of its array.
        weight: its number of examples.
        lost: whether it is gone at one of our messages.
        lost_at: stage of Flower's at which it is gone there.
        model: what the server sends to the odd node in place of the model.
        first: whether the odd node answers before all others, or after them.
        n_rounds: over one model.
    """

    ours: float | None
    fedavg: float | type[Exception] | None
    secaggplus: Any
    value: float = VALUES[ODD]
    shape: tuple[int, ...] = (3,)
    weight: int = ROWS[ODD]
    lost: Callable[[Message], bool] = field(default=lambda message: False)
    lost_at: str = ""
    model: float | None = None
    first: bool = False
    n_rounds: int = 1


def _is(stage: str) -> Callable[[Message], bool]:
    return lambda message: PLAN in message.content and _stage(message) == stage


TABLE = {
    "nothing": Wrong(ours=HONEST, fedavg=HONEST, secaggplus=HONEST),
    "a weight beyond the largest": Wrong(
        ours=WITHOUT,
        fedavg=as_weighed(3000),
        secaggplus="wrong",
        weight=3000,
    ),
    "a weight of 0": Wrong(ours=WITHOUT, fedavg=WITHOUT, secaggplus=WITHOUT, weight=0),
    "a weight below 0": Wrong(ours=WITHOUT, fedavg=as_weighed(-700), secaggplus=as_weighed(-700), weight=-700),
    "NaN": Wrong(ours=WITHOUT, fedavg=np.nan, secaggplus="wrong", value=np.nan),
    "infinity": Wrong(ours=WITHOUT, fedavg=np.inf, secaggplus="wrong", value=np.inf),
    "an array of another shape": Wrong(ours=WITHOUT, fedavg=HONEST, secaggplus="wrong", shape=(1,)),
    "an array of another shape, before all others": Wrong(
        ours=WITHOUT, fedavg=ValueError, secaggplus=..., shape=(1,), first=True
    ),
    "a number beyond the clip": Wrong(
        ours=HONEST + 6.0 * ROWS[ODD] / sum(ROWS.values()),
        fedavg=HONEST + 998.0 * ROWS[ODD] / sum(ROWS.values()),
        secaggplus="wrong",
        value=1000.0,
    ),
    "another model to one node": Wrong(
        ours=WITHOUT,
        fedavg=HONEST + 4.0 * ROWS[ODD] / 900,
        secaggplus=HONEST + 4.0 * ROWS[ODD] / 900,
        model=4.0,
    ),
    "the same model twice": Wrong(ours=None, fedavg=HONEST, secaggplus=HONEST, n_rounds=2),
    "a node lost before its keys": Wrong(
        ours=WITHOUT, fedavg=WITHOUT, secaggplus=None, lost=_is("begin"), lost_at="setup"
    ),
    "a node lost before its shares": Wrong(
        ours=WITHOUT,
        fedavg=WITHOUT,
        secaggplus=None,
        lost=lambda message: _is("go on")(message) and not _is_unmasking(message),
        lost_at="share_keys",
    ),
    "a node lost before its vector": Wrong(
        ours=WITHOUT, fedavg=WITHOUT, secaggplus=WITHOUT, lost=_is("train"), lost_at="collect_masked_vectors"
    ),
    "a node lost before its unmasking": Wrong(
        ours=HONEST,
        fedavg=HONEST,
        secaggplus=HONEST,
        lost=lambda message: PLAN in message.content and _is_unmasking(message),
        lost_at="unmask",
    ),
}


class InOrder(NodesInThisProcess):
    """The odd node comes first or last, where Flower's strategies sample in an order that nobody knows."""

    first: bool

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return super().push_messages(sorted(messages, key=lambda m: (m.metadata.dst_node_id == ODD) != self.first))


def nodes_of(row: Wrong, *, secure: bool) -> InOrder:
    def train(message: Message, context: Any) -> Message:
        record: Any = message.content["arrays"]
        node = context.node_id
        value, shape = (row.value, row.shape) if node == ODD else (VALUES[node], (3,))
        trained = record["w"].numpy().reshape(-1)[0] + np.full(shape, value, np.float32)
        metrics = MetricRecord({"num-examples": row.weight if node == ODD else ROWS[node]})
        arrays = ArrayRecord({"w": Array(trained)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    def gone(node: int, message: Message) -> bool:
        if node == ODD and row.model is not None and "arrays" in message.content:
            message.content = RecordDict(dict(message.content))
            message.content["arrays"] = ArrayRecord({"w": Array(np.full(3, row.model, np.float32))})
        if not secure:
            return node == ODD and row.lost_at not in ("", "unmask")
        return node == ODD and row.lost(message)

    nodes = InOrder(secure=secure, terms=TERMS, is_gone=gone, task=train)
    nodes.first = row.first
    return nodes


def model_of(row: Wrong, strategy: Any, nodes: InOrder) -> float | None:
    """The model after rounds over one and the same model; None where the last round gave none."""
    for _ in range(row.n_rounds):
        result = strategy().start(nodes, ArrayRecord({"w": Array(np.zeros(3, np.float32))}), num_rounds=1)
    return float(result.arrays["w"].numpy()[0]) if len(result.arrays) else None


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_ours_refuses_or_counts_by_name(row: Wrong) -> None:
    """Whatever is wrong, a node that takes no part says one class of reasons and no more."""
    nodes = nodes_of(row, secure=True)
    found = model_of(row, lambda: SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes)
    assert found == (None if row.ours is None else pytest.approx(row.ours, abs=1e-4))
    said = {(reply.error.code, reply.error.reason) for reply in nodes.seen if reply.has_error()}
    assert said <= {(Refusal.DECLINED, REASONS[Refusal.DECLINED])}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE.keys())
def test_flowers_strategy_beside_it(row: Wrong) -> None:
    if isinstance(row.fedavg, type):
        with pytest.raises(row.fedavg):
            model_of(row, lambda: FedAvg(fraction_evaluate=0.0), nodes_of(row, secure=False))
        return
    found = model_of(row, lambda: FedAvg(fraction_evaluate=0.0), nodes_of(row, secure=False))
    assert found == (None if row.fedavg is None else pytest.approx(row.fedavg, abs=1e-4, nan_ok=True))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "row",
    [row for row in TABLE.values() if row.secaggplus is not ...],
    ids=[name for name, row in TABLE.items() if row.secaggplus is not ...],
)
def test_flowers_secure_aggregation_beside_it(row: Wrong) -> None:
    """``wrong``: it states a finite number which is the mean of no nodes, and no error."""
    values = {node: [np.full(3, value, np.float32)] for node, value in VALUES.items()}
    values[ODD] = [np.full(row.shape, (row.model or 0.0) + row.value, np.float32)]
    weights = {node: row.weight if node == ODD else n for node, n in ROWS.items()}
    for _ in range(row.n_rounds):
        found = flowers_round(
            values, weights, max_weight=MAX_WEIGHT, is_gone=lambda node, stage: node == ODD and stage == row.lost_at
        ).mean
    if row.secaggplus is None or found is None:
        assert found is row.secaggplus
        return
    if row.secaggplus == "wrong":
        assert np.isfinite(found[0]).all()
        means = [mean for mean in (HONEST, WITHOUT, row.fedavg) if isinstance(mean, float) and np.isfinite(mean)]
        assert any(min(abs(number - mean) for mean in means) > 0.05 for number in map(float, found[0]))
    else:
        assert found[0] == pytest.approx(row.secaggplus, abs=1e-3)


def test_a_strategy_that_cannot_work() -> None:
    """Ours refuses it before a message. Over Flower's plain replies it works; its SecAgg+ takes no such strategy."""
    with pytest.raises(UsageError, match="cannot serve Krum: it keeps the replies that are closest to others"):
        SecureMean(Krum(), TERMS)
    with pytest.raises(TypeError, match="Expect a LegacyContext"):
        SecAggPlusWorkflow(1.0, 0.7)(nodes_of(TABLE["nothing"], secure=False), Context(1, 1, {}, RecordDict(), {}))
    krum: Strategy = Krum(fraction_evaluate=0.0)
    assert model_of(TABLE["nothing"], lambda: krum, nodes_of(TABLE["nothing"], secure=False)) is not None


def test_every_row_of_the_page_names_its_tests() -> None:
    """And every test that something goes wrong in has a row there."""
    page = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "average-with-flower.md"
    section = page.read_text(encoding="utf-8").split("## What could go wrong\n")[1].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    assert all("`" in row.rsplit("|", 2)[1] for row in rows)
    named = [name for row in rows for name in re.findall("`([^`]+)`", row.rsplit("|", 2)[1])]
    assert sorted(named) == sorted([*(TABLE.keys() - {"nothing"}), "a strategy that cannot work"])


def test_a_round_in_which_one_node_does_all_its_work_has_the_mean_of_all() -> None:
    """What ``python -m benchmarks.means`` measures Flower's client with; a step of Flower's is 16 in 2^22."""
    update = np.linspace(-1.0, 1.0, 5, dtype=np.float32)
    done = flowers_round({node: [update] for node in range(1, 5)}, dict.fromkeys(range(1, 5), 9), is_one_of_many=True)
    assert done.mean is not None
    assert np.abs(done.mean[0] - update).max() < 1000 / 9 * 2 * 16 / 2**22
    assert done.client_seconds.keys() == set(range(1, 5))
