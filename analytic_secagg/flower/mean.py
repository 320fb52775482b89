"""Flower's own strategies over a secure mean: a strategy around another one, and a mod for the client.

``SecureMean(FedAvg(...))`` samples, sends and aggregates as the inner strategy does, but what it aggregates is one
reply: the mean of the clients' updates, made by a secure sum. A round of masks takes three further exchanges: keys,
shares and unmasking; with identities one more. No code of Flower is changed.

Both sides state the same ``MeanTerms``; the sum admits no client with others. Without identities the server must be
semi-honest: it may look, but not lie.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp.typing import ClientAppCallable
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    Bulyan,
    DifferentialPrivacyClientSideAdaptiveClipping,
    DifferentialPrivacyClientSideFixedClipping,
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedXgbBagging,
    FedXgbCyclic,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Result,
    Strategy,
)

from analytic_secagg.errors import FederationError, UsageError
from analytic_secagg.flower.wire import no_reply, pack, unpack
from analytic_secagg.mean.client import REFUSALS, TRAIN, WHO, MeanClient, forget
from analytic_secagg.mean.server import MeanRound
from analytic_secagg.mean.terms import MeanTerms, Model
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import REASONS, Refusal, UnreachableError, WireError
from analytic_secagg.site.site_file import MIN_CHANGE, SiteFile
from secagg import ClientPolicy, MeanResult, MeanSpec, PartyId, SecureSumError
from secagg.fixed_point import rounded_up

__all__ = ["MeanTerms", "SecureMean", "SecureMeanMod"]

LOG = logging.getLogger("flwr")

PLAN = "secure-mean"
"""The record of this mean in a message, beside the app's own; and in a node's state."""

TAKEN = (FedAvg, FedProx, FedAvgM, FedAdam, FedYogi, FedAdagrad)
"""Strategies that use nothing of replies but their weighted mean."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks for replies; the pause doubles while none comes."""

_NOISED = (
    "it clips or noises single replies, which a server over a sum never has; state a noise of all clients in the terms"
)

REASONS_AGAINST: dict[type[Strategy], str] = {
    Krum: "it keeps the replies that are closest to others, and compares single ones",
    MultiKrum: "it keeps the replies that are closest to others, and compares single ones",
    Bulyan: "it keeps the replies that are closest to others, and compares single ones",
    FedMedian: "a median needs every reply",
    FedTrimmedAvg: "it leaves out the largest and smallest number of each entry, and needs every reply",
    QFedAvg: "it weighs each reply by that client's own loss",
    FedXgbBagging: "it puts the trees of all clients together, and trees do not add up",
    FedXgbCyclic: "one client trains in each round, and a sum of one is its reply",
    DifferentialPrivacyServerSideFixedClipping: _NOISED,
    DifferentialPrivacyServerSideAdaptiveClipping: _NOISED,
    DifferentialPrivacyClientSideFixedClipping: _NOISED,
    DifferentialPrivacyClientSideAdaptiveClipping: _NOISED,
}
"""Why each other strategy of Flower cannot work over a sum."""


def model_of(record: ArrayRecord) -> Model:
    """Return the arrays of a record."""
    return {name: array.numpy() for name, array in record.items()}


def digest_of_options(content: RecordDict) -> bytes:
    """Return the hash of all that a message holds beside the model and this mean's own record."""
    records = {**content.config_records, **content.metric_records}
    held = [(name, record.deflate()) for name, record in sorted(records.items()) if name != PLAN]
    return hashlib.sha256(repr(held).encode()).digest()


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
        server: the server's file, whose roster and signing key messages are then checked with; None where clients
            trust the server not to lie.
        timeout: seconds to wait for the answers of one exchange.

    Raises:
        UsageError: another strategy, or terms that do not fit it.

    Example:
        >>> SecureMean(FedAvg(), MeanTerms(max_weight=500)).strategy.fraction_train
        1.0
    """

    def __init__(
        self, strategy: Strategy, terms: MeanTerms, *, server: ServerFile | None = None, timeout: float = 3600
    ) -> None:
        if type(strategy) not in TAKEN:
            taken = ", ".join(kind.__name__ for kind in TAKEN)
            reason = next(
                (why for kind, why in REASONS_AGAINST.items() if isinstance(strategy, kind)),
                "a class of your own may look at single replies, which do not exist here",
            )
            raise UsageError(
                f"a secure mean cannot serve {type(strategy).__name__}: {reason}. Take one that uses nothing but the "
                f"mean of replies: {taken}"
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
        self.strategy, self._terms, self._server, self._timeout = strategy, terms, server, timeout
        self._round: _Round | None = None
        self._exponents: tuple[int, ...] = ()
        self._numbers: dict[int, dict[str, PartyId]] = {}
        self._cohorts: list[frozenset[str]] = []
        self._is_outermost = False
        self._explained = ""

    def start(self, grid: Grid, *args: Any, **options: Any) -> Result:
        """Run all rounds, as ``Strategy.start`` does."""
        self._is_outermost = True
        try:
            return super().start(_AddingGrid(grid, self), *args, **options)  # type: ignore[arg-type]
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
            opened = _Round(arrays, messages, grid, self._timeout)
            self._ask_for_numbers(opened)
            members = opened.take_names(self._server, self._numbers)
            self._compare_cohort(server_round, frozenset(members))
            deliveries = opened.begin(self._terms, self._exponents, self._server, members)
        except (SecureSumError, FederationError) as error:
            if isinstance(error, UsageError):
                raise
            LOG.error("secure mean of round %s: %s", server_round, error)
            return []
        if self._explained != (explained := opened.secure.spec.explain()):
            self._explained = explained
            LOG.info("secure mean: %s", explained)
        self._round = opened
        return deliveries

    def add(self, messages: list[Message], timeout: float | None) -> bool:
        """Add the vectors of the replies to these messages as they come; False where they are no requests for them."""
        if self._round is None or not any(PLAN in message.content for message in messages):
            return False
        self._round.add(messages, timeout)
        return True

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Hand the mean of the masked updates to the inner strategy."""
        if self._round is None:
            return None, None
        opened, self._round = self._round, None
        try:
            mean = opened.secure.finish(opened.ask)
        except SecureSumError as error:
            LOG.error(
                "secure mean of round %s: %s. Nodes that sent a vector refuse this model from now on: begin a new run",
                server_round,
                error,
            )
            return None, None
        _tell(mean)
        if isinstance(spec := opened.secure.spec, MeanSpec):
            following = spec.next_round(mean).exponents
            if self._terms.carry_scales:
                self._exponents = following
            elif max(following) < max(spec.exponents):
                LOG.info("secure mean: a clip of %.3g would hold the numbers of such a round", 2.0 ** max(following))
        arrays, metrics = self.strategy.aggregate_train(server_round, [opened.reply(mean, self._terms)])
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

    def _compare_cohort(self, server_round: int, cohort: frozenset[str]) -> None:
        """Log why nodes refuse a cohort that is too near to an earlier one; they say so in their own logs alone."""
        n_changed = min((len(cohort ^ earlier) for earlier in self._cohorts if cohort != earlier), default=MIN_CHANGE)
        if n_changed < MIN_CHANGE and self._terms.privacy is None:
            LOG.warning(
                "secure mean of round %s: this cohort differs from an earlier one by %s clients, whose updates could "
                "be read off the two means: nodes refuse it unless their owners state a min_change of at most %s. "
                "Train with the earlier cohort, or with one that differs by at least %s",
                server_round,
                n_changed,
                n_changed,
                MIN_CHANGE,
            )
        self._cohorts.append(cohort)

    def _ask_for_numbers(self, opened: _Round) -> None:
        """Learn the numbers in the roster of all nodes that are new. What they state is checked by their signatures."""
        unknown = [] if self._server is None else [node for node in opened.all_nodes if node not in self._numbers]
        for node, said in opened.ask_nodes(WHO, b"", dict.fromkeys(unknown, (0, b""))):
            try:
                self._numbers[node] = {str(role): int(number) for role, number in json.loads(said).items()}
            except (ValueError, TypeError, AttributeError):
                LOG.warning("secure mean: a node states no numbers of a roster")


class _AddingGrid:
    """Flower's grid, but the replies that carry vectors are added up one by one in place of being kept.

    Args:
        grid: Flower's own.
        strategy: whose rounds these are.
    """

    def __init__(self, grid: Grid, strategy: SecureMean) -> None:
        self._grid, self._strategy = grid, strategy

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send, and return the replies that the strategy does not take itself."""
        sent = list(messages)
        return [] if self._strategy.add(sent, timeout) else self._grid.send_and_receive(sent, timeout=timeout)


class _Round:
    """One round over Flower's nodes: which node is which party, and the messages of the inner strategy."""

    def __init__(self, arrays: ArrayRecord, messages: list[Message], grid: Grid, timeout: float) -> None:
        self._arrays, self._grid, self._timeout = arrays, grid, timeout
        self._messages = {message.metadata.dst_node_id: message for message in messages}
        self.all_nodes = sorted({*self._messages, *grid.get_node_ids()})
        self._node_of: dict[PartyId, int] = {}

    def take_names(self, server: ServerFile | None, numbers: Mapping[int, Mapping[str, PartyId]]) -> list[str]:
        """Note which node has which name in the plan, and return the names in their order.

        Args:
            server: the server's file; without it a node's name is its own number.
            numbers: of each node in the roster, by role.

        Raises:
            UnreachableError: no sampled node is a client.
        """
        named = {node: node for node in self._messages}
        if server is not None:
            named = {node: numbers[node]["client"] for node in named if "client" in numbers.get(node, {})}
        self._nodes = dict(sorted((name, node) for node, name in named.items()))
        if not self._nodes:
            raise UnreachableError("none of the sampled nodes states its number as a client in the roster")
        self._helpers = {said["helper"]: node for node, said in numbers.items() if "helper" in said}
        return [str(name) for name in self._nodes]

    def begin(
        self, terms: MeanTerms, exponents: tuple[int, ...], server: ServerFile | None, members: list[str]
    ) -> list[Message]:
        """Set the mean up; the inner strategy's messages with what clients need to mask.

        Raises:
            UnreachableError: a helper is missing.
        """
        model = model_of(self._arrays)
        options = digest_of_options(next(iter(self._messages.values())).content)
        self.secure = MeanRound(terms, model, options, members=members, exponents=exponents, server=server)
        floats = dict(self.secure.spec.shapes)
        self.whole_numbers = {name: array for name, array in self._arrays.items() if name not in floats}
        self._node_of = dict(zip(self.secure.parties, self._nodes.values(), strict=True))
        if server is None:
            self._node_of |= zip(self.secure.helpers, self.all_nodes, strict=False)
        else:
            self._node_of |= self._helpers
        deliveries = self.secure.set_up(self.ask).items()
        return [self._message(self._node_of[party], TRAIN, self.secure.plan, party, said) for party, said in deliveries]

    def add(self, messages: list[Message], timeout: float | None) -> None:
        """Add the vectors as they come."""
        parties = {node: party for party, node in reversed(self._node_of.items())}
        for node, answer in self._answers(messages, self._timeout if timeout is None else timeout):
            self.secure.take(parties[node], answer)

    def ask(self, stage: str, plan: bytes, contents: Mapping[PartyId, bytes]) -> Iterator[tuple[PartyId, bytes]]:
        """Exchange messages of the sum (``analytic_secagg.mean.server.Ask``)."""
        sent = {self._node_of[party]: (party, said) for party, said in contents.items() if party in self._node_of}
        parties = {node: party for node, (party, _) in sent.items()}
        for node, answer in self.ask_nodes(stage, plan, sent):
            yield parties[node], answer

    def ask_nodes(
        self, stage: str, plan: bytes, contents: Mapping[int, tuple[PartyId, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """Send each node its party's number and content, and yield answers as they come."""
        messages = [self._message(node, stage, plan, *part) for node, part in contents.items()]
        return self._answers(messages, self._timeout)

    def _message(self, node: int, stage: str, plan: bytes, party: PartyId, content: bytes) -> Message:
        inner = self._messages.get(node)
        record = RecordDict(dict(inner.content)) if stage == TRAIN and inner is not None else RecordDict()
        record[PLAN] = ConfigRecord({"stage": stage, "plan": plan, "party": party, "content": content})
        return Message(record, node, "train" if inner is None else inner.metadata.message_type)

    def _answers(self, messages: list[Message], timeout: float) -> Iterator[tuple[int, bytes]]:
        """Yield each node's answer; the others are logged, by reason."""
        reasons, n_replies = Counter[str](), 0
        for reply in as_they_come(self._grid, messages, timeout):
            n_replies += 1
            if reply.has_error():
                reasons[no_reply(reply.error.code).reason] += 1
                continue
            try:
                answer = unpack(reply.content)
            except WireError as error:
                reasons[type(error).__name__] += 1
                continue
            yield reply.metadata.src_node_id, answer
        reasons["no answer"] = len(messages) - n_replies
        for reason, count in (+reasons).items():
            LOG.warning("secure mean: %s of %s nodes left the round: %s", count, len(messages), reason)

    def reply(self, mean: MeanResult, terms: MeanTerms) -> Message:
        """Return the mean as one reply to the inner strategy."""
        model = dict(model_of(self._arrays))
        model |= {name: (model[name] + update).astype(model[name].dtype) for name, update in mean.arrays.items()}
        arrays = ArrayRecord({name: Array(np.asarray(array)) for name, array in model.items()})
        metrics = MetricRecord({terms.weighted_by: mean.weight, **mean.metrics})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=next(iter(self._messages.values())))


def as_they_come(grid: Grid, messages: list[Message], timeout: float) -> Iterator[Message]:
    """Send messages and yield replies, each as soon as it is there, until all are or the deadline has passed."""
    waiting = [identifier for identifier in grid.push_messages(messages) if identifier]
    deadline, pause = time.monotonic() + timeout, SHORTEST_PAUSE
    while waiting:
        n_before = len(waiting)
        for identifier in list(waiting):
            for reply in grid.pull_messages([identifier]):
                waiting.remove(identifier)
                yield reply
        pause = SHORTEST_PAUSE if len(waiting) < n_before else min(2 * pause, LONGEST_PAUSE)
        if time.monotonic() + pause > deadline:
            return
        if waiting:
            time.sleep(pause)


def _tell(mean: MeanResult) -> None:
    """Log how exact a mean is, and what was clipped."""
    name, bound = max(mean.error_bound.items(), key=lambda item: item[1] if item[0] in mean.arrays else -1)
    LOG.info("secure mean: %s clients; error at most %s (%r)", len(mean.survivors), rounded_up(bound), name)
    if mean.clipped:
        LOG.warning(
            "secure mean: numbers beyond the clip entered at the clip, so the mean is not that of plain training; "
            "state a larger clip for these arrays, or send less of them. Numbers by array: %s",
            dict(mean.clipped),
        )


class SecureMeanMod:
    """A mod of a ClientApp whose updates leave under masks only: ``ClientApp(mods=[SecureMeanMod(terms)])``.

    It answers keys, shares and unmasking itself, and lets the app train in between. A request to train without a
    secure mean is refused, and so is a second one over the same model: two means over clients that differ by one would
    show that client. Its session lies in the node's state, with its secrets.

    A node whose node-config names a ``site`` (its ``site.toml``) signs what it sends, takes part with the clients and
    the server of its roster alone, by the policy of that file, and logs its participation with its query log, for all
    runs.

    Args:
        terms: as the server states them.
        policy: what this client asks of the sum; None takes the site's, and without a site asks for three clients and
            survivors, and for no identities.
        min_change: fewest clients by which the cohorts of two means may differ where they differ at all; 1 permits any
            change. None takes 3; a site's ``[journal]`` counts where it says more. Private means permit any change.
        ledger: the file that private means are charged to, of a node without a site; a node whose site's file is named
            refuses one, since the site has its own.

    Example:
        >>> from flwr.clientapp import ClientApp
        >>> app = ClientApp(mods=[SecureMeanMod(MeanTerms(max_weight=500))])
    """

    def __init__(
        self,
        terms: MeanTerms,
        *,
        policy: ClientPolicy | None = None,
        min_change: int | None = None,
        ledger: Path | None = None,
    ) -> None:
        self._terms, self._policy, self._min_change, self._ledger = terms, policy, min_change, ledger

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """Answer a message of a secure mean, or let the app answer what is no training."""
        if PLAN not in message.content:
            if message.metadata.message_type.split(".")[0] == "train":
                return _refused(message, context, "the server asks for an update without a secure mean")
            return call_next(message, context)
        try:
            said: Any = message.content[PLAN]
            stage, plan, party, content = said["stage"], said["plan"], said["party"], said["content"]
            client, state = self._client(context), _state(context)
            if stage != TRAIN:
                return Message(pack(client.answer(stage, plan, party, content, state)), reply_to=message)
            record = _only(message.content.array_records)
            before = model_of(record)
            client.check(plan, party, before, digest_of_options(message.content), state)
        except REFUSALS as error:
            return _refused(message, context, error)
        del message.content[PLAN]
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        try:
            metrics: Mapping[str, Any] = _only(reply.content.metric_records)
            after = model_of(_only(reply.content.array_records))
            vector = client.upload(content, before, after, metrics[self._terms.weighted_by], metrics, state)
            return Message(pack(vector), reply_to=message)
        except REFUSALS as error:
            return _refused(message, context, error)

    def _client(self, context: Context) -> MeanClient:
        named = context.node_config.get("site")
        site = None if named is None else SiteFile.read(Path(str(named)))
        return MeanClient(self._terms, policy=self._policy, site=site, min_change=self._min_change, ledger=self._ledger)


def _state(context: Context) -> Any:
    """Return the record of a node's state that is this mean's."""
    if PLAN not in context.state:
        context.state[PLAN] = ConfigRecord()
    return context.state[PLAN]


def _refused(message: Message, context: Context, reason: object) -> Message:
    """Decline, and log why in this node's own log only; the session ends, and its secrets are forgotten."""
    LOG.error("secure mean: refused: %s", reason)
    forget(_state(context))
    return Message(Error(code=Refusal.DECLINED, reason=REASONS[Refusal.DECLINED]), reply_to=message)


def _only(records: Mapping[str, Any]) -> Any:
    """Return the one record of a kind."""
    if len(records) != 1:
        raise UsageError(f"exactly one record of arrays and one of metrics is needed, not {len(records)}")
    return next(iter(records.values()))
