"""Flower's own strategies over a secure mean: a strategy around another one, and a mod for the client.

``SecureMean(FedAvg(...))`` samples, sends and aggregates as the inner strategy does, but what it aggregates is one
reply: the mean of the clients' updates, made by a masked sum. A round takes three further exchanges: keys, shares and
unmasking. No code of Flower is changed.

Both sides state the same ``MeanTerms``; the sum admits no client with others. Without identities the server must be
semi-honest: it may look, but not lie.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedProx, FedYogi, Result, Strategy
from numpy.typing import NDArray

from analytic_secagg.errors import UsageError
from analytic_secagg.flower.wire import pack, reason_of, unpack
from analytic_secagg.site.errors import REASONS, Refusal, WireError
from secagg import (
    ClientPolicy,
    IntVector,
    MaskedSum,
    MeanSpec,
    PartyId,
    RemoteProtocolError,
    SecureSumError,
    ServerSession,
    new_session_id,
)
from secagg.config import MAX_CLIENTS

LOG = logging.getLogger("flwr")

PLAN = "secure-mean"
"""The record of this mean in a message, beside the app's own; and in a node's state."""

TAKEN = (FedAvg, FedProx, FedAvgM, FedAdam, FedYogi, FedAdagrad)
"""Strategies that use nothing of replies but their weighted mean."""

Model = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTerms:
    """Terms that a federation agrees on before it trains: server and clients state the same.

    Args:
        max_weight: largest number of examples of a client. Twice of it costs one bit of accuracy: state the largest
            that occurs, and not a number that is surely enough.
        metrics: names of the numbers that are averaged; a client's other ones are not sent.
        clip: largest absolute change of a number in a round that is not clipped, of all float arrays or by name. In
            four bytes the default suits trained weights. Running statistics, such as the variance of BatchNorm, may
            change by more: state a larger one for them. It is the same in every round, so it tells nothing.
        entry_bytes: 2, 3 or 4 bytes a number.
        weighted_by: the metric that holds a client's number of examples.

    Example:
        >>> MeanTerms(max_weight=500, metrics=("train_loss",)).spec((("w", (2,)),), 10).layout.wire_bytes
        18

    Raises:
        UsageError: weighted_by among metrics.
        ConfigurationError: what makes no mean of one client (``MeanSpec``).
    """

    max_weight: int
    metrics: tuple[str, ...] = ()
    clip: float | Mapping[str, float] = 8.0
    entry_bytes: int = 4
    weighted_by: str = "num-examples"

    def __post_init__(self) -> None:
        if type(self.weighted_by) is not str or self.weighted_by in self.metrics:
            raise UsageError(
                f"weighted_by is the name of a metric that is not among metrics, not {self.weighted_by!r}: its sum is "
                "the mean's weight"
            )
        names = self.clip if isinstance(self.clip, Mapping) else ("an array's name",)
        self.spec(tuple((name, ()) for name in names), 1)

    def spec(self, shapes: tuple[tuple[str, tuple[int, ...]], ...], n_clients: int) -> MeanSpec:
        """Return the mean of updates of a model with these float arrays."""
        return MeanSpec.of(
            {name: np.broadcast_to(np.float64(0), shape) for name, shape in shapes},
            n_clients=n_clients,
            clip=self.clip,
            max_weight=self.max_weight,
            entry_bytes=self.entry_bytes,
            metrics=self.metrics,
        )


def floats_of(record: ArrayRecord) -> dict[str, NDArray[Any]]:
    """Return the float arrays of a model. Counters and other whole numbers are no part of a mean.

    Raises:
        UsageError: an array of another kind, such as complex numbers.
    """
    arrays = {name: array.numpy() for name, array in record.items()}
    unknown = [f"{name} ({array.dtype})" for name, array in arrays.items() if array.dtype.kind not in "fiub"]
    if unknown:
        raise UsageError(f"a secure mean has real and whole numbers, not {', '.join(unknown)}; split complex ones")
    return {name: array for name, array in arrays.items() if array.dtype.kind == "f"}


def digest_of(record: ArrayRecord) -> bytes:
    """Return the hash of every array of a model, which all clients must have received."""
    digest = hashlib.sha256()
    for name, array in record.items():
        values = array.numpy()
        digest.update(repr((name, values.dtype.str, values.shape, len(values.tobytes()))).encode() + values.tobytes())
    return digest.digest()


def digest_of_options(content: RecordDict) -> bytes:
    """Return the hash of all that a message holds beside the model and this mean's own record."""
    records = {**content.config_records, **content.metric_records}
    held = [(name, record.deflate()) for name, record in sorted(records.items()) if name != PLAN]
    return hashlib.sha256(repr(held).encode()).digest()


def _sum_of(terms: MeanTerms, plan: Mapping[str, Any]) -> tuple[MeanSpec, MaskedSum]:
    """Return the mean of a round, and its sum."""
    shapes = tuple((str(name), tuple(map(int, shape))) for name, shape in json.loads(plan["shapes"]))
    if type(plan["clients"]) is not int or plan["clients"] > MAX_CLIENTS:
        raise UsageError(f"a mean has a number of clients, at most {MAX_CLIENTS}; the server stated something else")
    clients = tuple(range(1, plan["clients"] + 1))
    spec = terms.spec(shapes, len(clients))
    context = plan["model"] + plan["options"]
    return spec, MaskedSum(layout=spec.layout, clients=clients, session_id=plan["session"], context=context)


class SecureMean(Strategy):
    """A strategy around another one, to which it hands the secure mean of all replies as its only reply.

    A round in which too few clients stay leaves the model as it is. Where they left after vectors were sent, or a mean
    changed nothing, nodes refuse further rounds over that model: begin a new run.

    It is the outermost strategy. A strategy around it, such as Flower's differential privacy at the server, would see
    one reply, the mean, and clip that in place of each client's update: ``configure_train`` refuses it.

    Args:
        strategy: FedAvg, FedProx, FedAvgM, FedAdam, FedYogi or FedAdagrad. What looks at single replies (Krum,
            medians, trimmed means) cannot be aggregated over a sum, and is refused.
        terms: as the clients state them.
        timeout: seconds to wait for the answers of one exchange.

    Raises:
        UsageError: another strategy, or terms that do not fit it.

    Example:
        >>> SecureMean(FedAvg(), MeanTerms(max_weight=500)).strategy.fraction_train
        1.0
    """

    def __init__(self, strategy: Strategy, terms: MeanTerms, *, timeout: float = 3600) -> None:
        if type(strategy) not in TAKEN:
            taken = ", ".join(kind.__name__ for kind in TAKEN)
            raise UsageError(
                f"a secure mean serves strategies that use nothing but the mean of replies: {taken}; not "
                f"{type(strategy).__name__}"
            )
        assert isinstance(strategy, FedAvg)
        if strategy.weighted_by_key != terms.weighted_by:
            raise UsageError(
                f"the strategy weighs by {strategy.weighted_by_key!r} and the terms by {terms.weighted_by!r}; state one"
            )
        if strategy.train_metrics_aggr_fn is not FedAvg().train_metrics_aggr_fn:
            raise UsageError(
                "a secure mean has the weighted mean of the metrics that its terms name and no client's own: leave out "
                "train_metrics_aggr_fn"
            )
        self.strategy, self._terms, self._timeout = strategy, terms, timeout
        self._round: _Round | None = None
        self._is_outermost = False
        self._explained = ""

    def start(self, *args: Any, **options: Any) -> Result:
        """Run all rounds, as ``Strategy.start`` does."""
        self._is_outermost = True
        try:
            return super().start(*args, **options)
        finally:
            self._is_outermost = False

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Agree on keys and shares with the clients that the inner strategy samples; then let it ask for training.

        Raises:
            UsageError: a strategy around this one, and not this one, was started.
        """
        if not self._is_outermost:
            raise UsageError(
                "SecureMean must be the outermost strategy: one around it would see only the mean, so what it does to "
                "single replies, such as clipping, would be done to none. Call SecureMean(...).start"
            )
        messages = list(self.strategy.configure_train(server_round, arrays, config, grid))
        self._round = None
        if not messages:
            return []
        try:
            opened = _Round(self._terms, arrays, messages, grid, self._timeout)
            deliveries = opened.set_up()
        except SecureSumError as error:
            LOG.error("secure mean of round %s: %s", server_round, error)
            return []
        if self._explained != (explained := opened.spec.explain()):
            self._explained = explained
            LOG.info("secure mean: %s", explained)
        self._round = opened
        return deliveries

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the mean of the masked updates to the inner strategy."""
        if self._round is None:
            return None, None
        opened, self._round = self._round, None
        try:
            reply = opened.mean(list(replies))
        except SecureSumError as error:
            LOG.error(
                "secure mean of round %s: %s. Nodes that sent a vector refuse this model from now on: begin a new run",
                server_round,
                error,
            )
            return None, None
        arrays, metrics = self.strategy.aggregate_train(server_round, [reply])
        if arrays is not None:
            arrays.update(opened.whole_numbers)  # which Flower's strategies turn into float64
        return arrays, metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Let the inner strategy ask for evaluations. Each client's metrics travel in the clear."""
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Let the inner strategy aggregate evaluations."""
        return self.strategy.aggregate_evaluate(server_round, replies)

    def summary(self) -> None:
        """Log the summary of the inner strategy."""
        self.strategy.summary()


class _Round:
    """The server's side of one round."""

    def __init__(
        self, terms: MeanTerms, arrays: ArrayRecord, messages: list[Message], grid: Grid, timeout: float
    ) -> None:
        self._arrays, self._grid, self._timeout, self._terms = arrays, grid, timeout, terms
        self._messages = {message.metadata.dst_node_id: message for message in messages}
        self._party: dict[int, PartyId] = {node: place for place, node in enumerate(sorted(self._messages), 1)}
        floats = floats_of(arrays)
        self.whole_numbers = {name: array for name, array in arrays.items() if name not in floats}
        shapes = [(name, array.shape) for name, array in floats.items()]
        self._plan: dict[str, Any] = {
            "session": new_session_id(),
            "clients": len(messages),
            "shapes": json.dumps(shapes),
            "model": digest_of(arrays),
            "options": digest_of_options(messages[0].content),
        }
        self.spec, sum_ = _sum_of(terms, self._plan)
        self._session: ServerSession = sum_.server()

    def set_up(self) -> list[Message]:
        """Exchange keys and shares, and return the inner strategy's messages with what clients need to mask."""
        self._exchange("keys", dict.fromkeys(self._party, b""), self._plan)
        self._exchange("shares", self._close())
        asked = []
        for node, delivery in self._close().items():
            content = RecordDict(dict(self._messages[node].content))
            content[PLAN] = ConfigRecord({"stage": "train", "content": delivery})
            asked.append(Message(content, node, self._messages[node].metadata.message_type))
        self._n_asked = len(asked)
        return asked

    def mean(self, replies: list[Message]) -> Message:
        """Unmask the sum of what came, and return it as one reply to the inner strategy."""
        self._take(replies, self._n_asked)
        self._exchange("unmask", self._close())
        self._close()
        assert self._session.result is not None
        mean = self.spec.mean(self._session.result)
        name, bound = max(mean.error_bound.items(), key=lambda item: item[1] if item[0] in mean.arrays else -1)
        LOG.info("secure mean: %s clients; error at most %.3g (%r)", len(mean.survivors), bound, name)
        if mean.clipped:
            LOG.warning(
                "secure mean: numbers beyond the clip entered at the clip, so the mean is not that of plain training; "
                "state a larger clip for these arrays, or send less of them. Numbers by array: %s",
                dict(mean.clipped),
            )
        model = {name: array.numpy() for name, array in self._arrays.items()}
        model |= {name: (model[name] + update).astype(model[name].dtype) for name, update in mean.arrays.items()}
        reply = next(reply for reply in replies if not reply.has_error())
        metrics = MetricRecord({self._terms.weighted_by: mean.weight, **mean.metrics})
        whole = copy(reply)
        whole.content = RecordDict(
            {
                "arrays": ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()}),
                "metrics": metrics,
            }
        )
        return whole

    def _exchange(self, stage: str, contents: Mapping[int, bytes], more: Mapping[str, Any] | None = None) -> None:
        messages = []
        for node, content in contents.items():
            plan = ConfigRecord({"stage": stage, "content": content, "party": self._party[node], **(more or {})})
            messages.append(Message(RecordDict({PLAN: plan}), node, "train"))
        self._take(list(self._grid.send_and_receive(messages, timeout=self._timeout)), len(messages))

    def _take(self, replies: list[Message], n_asked: int) -> None:
        """Hand answers to the session, and log how many are none, by reason; those count as if they had not come."""
        reasons = Counter({"no answer": n_asked - len(replies)})
        for reply in replies:
            party = self._party.get(reply.metadata.src_node_id)
            if reply.has_error():
                reasons[reason_of(reply.error.code)] += 1
            elif party is not None:
                try:
                    self._session.receive(party, unpack(reply.content))
                except (WireError, RemoteProtocolError) as error:
                    reasons[type(error).__name__] += 1
        for reason, count in (+reasons).items():
            LOG.warning("secure mean: %s of %s nodes left the round: %s", count, n_asked, reason)

    def _close(self) -> dict[int, bytes]:
        nodes = {party: node for node, party in self._party.items()}
        return {nodes[party]: request for party, request in self._session.close_round().items()}


class SecureMeanMod:
    """A mod of a ClientApp whose updates leave under masks only: ``ClientApp(mods=[SecureMeanMod(terms)])``.

    It answers keys, shares and unmasking itself, and lets the app train in between. A request to train without a
    secure mean is refused, and so is a second one over the same model in a run: two means over clients that differ by
    one would show that client. Its session lies in the node's state, with its secrets.

    Args:
        terms: as the server states them.
        policy: what this client asks of the sum; None asks for three clients and survivors, and for no identities.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp(mods=[SecureMeanMod(MeanTerms(max_weight=500))])
    """

    def __init__(self, terms: MeanTerms, *, policy: ClientPolicy | None = None) -> None:
        self._terms, self._policy = terms, policy or ClientPolicy(min_corruption=0.0)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message of a secure mean, or let the app answer what is no training."""
        if PLAN not in message.content:
            if message.metadata.message_type.split(".")[0] == "train":
                return self._refuse(message, context, "the server asks for an update without a secure mean")
            return call_next(message, context)
        plan: Any = message.content[PLAN]
        try:
            stage, content = plan["stage"], plan["content"]
            if stage == "keys":
                return Message(pack(self._begin(plan, context)), reply_to=message)
            if stage == "train":
                before = self._model_of(message, context)
            else:
                return Message(pack(self._go_on(content, context, _no_vector)), reply_to=message)
        except _NOT_OURS as error:
            return self._refuse(message, context, error)
        del message.content[PLAN]
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        try:
            vector = self._vector(before, reply, context)
            return Message(pack(self._go_on(content, context, vector)), reply_to=message)
        except _NOT_OURS as error:
            return self._refuse(message, context, error)

    def _begin(self, plan: Any, context: Context) -> bytes:
        _, sum_ = _sum_of(self._terms, plan)
        self._policy.check(sum_)
        stored: Any = context.state.get(PLAN, {"used": []})
        if plan["model"] in stored["used"]:
            raise UsageError("this node's update of this model is in a sum already; a second one could expose it")
        session = sum_.client(int(plan["party"]), _no_vector)
        said = session.start()
        kept = {name: plan[name] for name in ("session", "clients", "shapes", "model", "options", "party")}
        context.state[PLAN] = ConfigRecord({**kept, "used": stored["used"], "snapshot": session.snapshot()})
        return said or b""

    def _model_of(self, message: Message, context: Context) -> Model:
        """Return the model to train, before the app may write into its message."""
        kept: Any = context.state[PLAN]
        arrays = _only(message.content.array_records)
        if digest_of(arrays) != kept["model"]:
            raise UsageError("the model to train is another one than this round agreed on")
        if digest_of_options(message.content) != kept["options"]:
            raise UsageError("the configuration to train with is another one than this round agreed on")
        return floats_of(arrays)

    def _vector(self, before: Model, reply: Message, context: Context) -> IntVector:
        kept: Any = context.state[PLAN]
        spec, _ = _sum_of(self._terms, kept)
        after = floats_of(_only(reply.content.array_records))
        if {name: array.shape for name, array in before.items()} != {name: a.shape for name, a in after.items()}:
            raise UsageError("the app must return arrays of the names and shapes that it was sent")
        metrics: Mapping[str, Any] = _only(reply.content.metric_records)
        updates = {name: after[name].astype(np.float64) - before[name] for name in before}
        named = {name: metrics[name] for name in self._terms.metrics}
        return spec.vector(updates, weight=metrics[self._terms.weighted_by], metrics=named)

    def _go_on(self, request: Any, context: Context, contribution: Any) -> bytes:
        kept: Any = context.state[PLAN]
        _, sum_ = _sum_of(self._terms, kept)
        session = sum_.client(int(kept["party"]), contribution)
        session.restore(kept["snapshot"])
        said = session.receive(request)
        kept["snapshot"] = session.snapshot()
        if contribution is not _no_vector:
            kept["used"] = [*kept["used"], kept["model"]]
        return said or b""

    def _refuse(self, message: Message, context: Context, reason: object) -> Message:
        """Decline, and log why in this node's own log only; the session ends, and its secrets are forgotten."""
        LOG.error("secure mean: refused: %s", reason)
        kept: Any = context.state.get(PLAN)
        if kept is not None:
            kept["snapshot"] = b""
        return Message(Error(code=Refusal.DECLINED, reason=REASONS[Refusal.DECLINED]), reply_to=message)


def _no_vector() -> IntVector:
    raise UsageError("the server asks for a vector in a message that is no request to train")


def _only(records: Mapping[str, Any]) -> Any:
    """Return the one record of a kind."""
    if len(records) != 1:
        raise UsageError(f"exactly one record of arrays and one of metrics is needed, not {len(records)}")
    return next(iter(records.values()))


_NOT_OURS = (SecureSumError, UsageError, LookupError, TypeError, ValueError)
"""Errors that a wrong message of a server or of an app raises."""
