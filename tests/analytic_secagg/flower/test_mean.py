"""Flower's strategies over a secure mean train as they do over plain replies, and refuse what would show an update."""

from __future__ import annotations

import copy
import doctest
import gc
import json
import re
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

import flwr.serverapp.strategy as strategies
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable
from flwr.common.constant import ErrorCode
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    Strategy,
)
from support.rehearsed import edit_all, site, state

from analytic_secagg.__main__ import main
from analytic_secagg.errors import UsageError
from analytic_secagg.flower import mean
from analytic_secagg.flower.mean import PLAN, MeanTerms, SecureMean, SecureMeanMod
from analytic_secagg.flower.rehearsal import InProcessGrid
from analytic_secagg.flower.wire import unpack
from analytic_secagg.mean.plan import MeanPlan
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import REASONS, Refusal, SiteFileError
from analytic_secagg.trial import Trial
from secagg import ConfigurationError
from secagg.dp import Budget, Ledger, MeanPrivacy
from secagg.ring import RingVector
from secagg.wire import MessageType, carries_vector, message_type

TERMS = MeanTerms(max_weight=300, metrics=("train_loss",))
ROWS = {11: 100, 12: 140, 2**63 + 5: 180, 14: 220, 15: 260}
NUMBERED = list(enumerate(ROWS, 1))
FLOAT32 = 2.0**-18
"""Norm of a round's float32 roundings of 4 numbers below 4: 2 at a node and 6 at a server, in each of two runs."""
Fault = Callable[[int, Message], bool]


def train(message: Message, context: Context) -> Message:
    """Least squares on the node's own rows: five steps of gradient descent."""
    node = context.node_id
    rng = np.random.default_rng(node % 1000)
    x = rng.normal(size=(ROWS[node], 4))
    y = x @ np.array([1.0, -2.0, 0.5, 3.0]) + rng.normal(size=len(x))
    record = message.content["arrays"]
    assert isinstance(record, ArrayRecord)
    w = record["w"].numpy().astype(np.float64)
    for _ in range(5):
        w -= 0.1 * x.T @ (x @ w - y) / len(x)
    arrays = {"w": Array(w.astype(np.float32)), "n_batches": Array(np.asarray(record["n_batches"].numpy() + 1))}
    metrics = MetricRecord({"num-examples": len(x), "train_loss": float(np.mean((x @ w - y) ** 2))})
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)


class NodesInThisProcess(InProcessGrid):
    """Flower's grid as function calls; nothing of a node stays between messages but its state."""

    def __init__(
        self,
        *,
        secure: bool,
        terms: MeanTerms = TERMS,
        is_gone: Fault = lambda node, message: False,
        task: ClientAppCallable = train,
        trial: Trial | None = None,
        min_change: int | None = None,
        ledger: Path | None = None,
    ) -> None:
        """``ledger``: a file for all nodes, or a folder with one for each."""
        sites = {node: {} if trial is None else {"site": str(trial.site(n) / "site.toml")} for n, node in NUMBERED}
        super().__init__(sites)
        self.apps = {}
        for node in ROWS:
            own = ledger / str(node) if ledger is not None and ledger.is_dir() else ledger
            app = ClientApp(mods=[SecureMeanMod(terms, min_change=min_change, ledger=own)] if secure else [])
            app.train()(task)
            self.apps[node] = app
        self.gone = is_gone
        self.states = {node: RecordDict() for node in ROWS}
        self.seen: list[Message] = []

    def _deliver(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if self.gone(node, message):
            return Message(Error(code=ErrorCode.NODE_UNAVAILABLE), reply_to=message)
        arrived = copy.copy(message)
        arrived.content = copy.deepcopy(message.content)
        config: Any = dict(self._configs[node])
        context = Context(run_id=1, node_id=node, node_config=config, state=self.states[node], run_config={})
        self.seen.append(self.apps[node](arrived, context))
        return self.seen[-1]


def model(begin: float = 0.0) -> ArrayRecord:
    return ArrayRecord({"w": Array(np.full(4, begin, np.float32)), "n_batches": Array(np.array(0))})


def run(strategy: Strategy, nodes: NodesInThisProcess, n_rounds: int = 3) -> Any:
    return strategy.start(nodes, model(), num_rounds=n_rounds)  # type: ignore[arg-type]


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "FedAvg": lambda: FedAvg(fraction_evaluate=0.0),
    "FedProx": lambda: FedProx(fraction_evaluate=0.0, proximal_mu=0.1),
    "FedAvgM": lambda: FedAvgM(fraction_evaluate=0.0, server_momentum=0.5),
    "FedAdam": lambda: FedAdam(fraction_evaluate=0.0),
    "FedYogi": lambda: FedYogi(fraction_evaluate=0.0),
}


def trained(
    nodes: NodesInThisProcess,
    terms: MeanTerms = TERMS,
    n_rounds: int = 2,
    server: ServerFile | None = None,
    begin: float = 0.0,
) -> Any:
    """Train from a model of these numbers: sites answer once for each model, over all runs."""
    strategy: Any = SecureMean(FedAvg(fraction_evaluate=0.0), terms, server=server)
    return strategy.start(nodes, model(begin), num_rounds=n_rounds)


def distance(one: Any, other: Any) -> float:
    """Of two models."""
    return float(np.linalg.norm(np.subtract(one.arrays["w"].numpy(), other.arrays["w"].numpy(), dtype=np.float64)))


def allowed(n_rounds: int, terms: MeanTerms = TERMS) -> float:
    """Largest distance from plain training that these rounds' error bounds and float32 allow.

    Steps of gradient descent are contractions of the model, so errors of rounds add up at most. The bound is that of a
    cohort without its heaviest node.
    """
    bound = terms.spec((("w", (4,)),), len(ROWS)).error_bound(sum(ROWS.values()) - max(ROWS.values()))["w"]
    return n_rounds * (2 * bound + FLOAT32)


@pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES.keys())
def test_a_strategy_trains_as_it_does_over_plain_replies(make: Callable[[], Strategy]) -> None:
    """Momentum and adaptive steps make at most ten rounds' worth of errors of three: no step exceeds its update."""
    plain = run(make(), NodesInThisProcess(secure=False))
    nodes = NodesInThisProcess(secure=True)
    secure = run(SecureMean(make(), TERMS), nodes)
    assert distance(secure, plain) <= allowed(10)
    assert secure.arrays["w"].numpy().dtype == plain.arrays["w"].numpy().dtype
    for number, metrics in plain.train_metrics_clientapp.items():
        assert abs(secure.train_metrics_clientapp[number]["train_loss"] - metrics["train_loss"]) < 1e-4


def server_of(trial: Trial) -> ServerFile:
    return ServerFile.read(trial.folder / "server" / "server.toml")


def test_a_committee_takes_one_message_of_a_client(trial: Trial) -> None:
    """Without a roster the first nodes help; with one those that it lists, and all messages are signed."""
    plain = run(FedAvg(fraction_evaluate=0.0), NodesInThisProcess(secure=False), 2)
    committee = MeanTerms(max_weight=300, metrics=("train_loss",), mode="committee")
    for sites in (None, trial):
        nodes = NodesInThisProcess(secure=True, terms=committee, trial=sites)
        secure = trained(nodes, committee, server=None if sites is None else server_of(sites))
        assert distance(secure, plain) <= allowed(2, committee)
        of_clients = [reply for reply in nodes.seen if reply.metadata.src_node_id == max(ROWS)]
        sent = [unpack(reply.content) for reply in of_clients]  # the fifth node, which helps in neither
        assert [message_type(said) for said in sent[-2:]] == [MessageType.COMMITTEE_INPUT] * 2
        assert len(sent) == 2 + bool(sites)  # its number in the roster, once in a run


def test_sites_sign_and_their_roster_says_who_takes_part(trial: Trial) -> None:
    """A server without its key, and nodes whose keys another roster lists, get no mean."""
    plain = run(FedAvg(fraction_evaluate=0.0), NodesInThisProcess(secure=False), 2)
    nodes = NodesInThisProcess(secure=True, trial=trial)
    secure = trained(nodes, server=server_of(trial))
    assert distance(secure, plain) <= allowed(2)
    assert len(site(trial, 3).means()) == 4  # cohort, then survivors
    nodes.seen.clear()
    assert len(trained(nodes).arrays) == 0
    assert {reply.error.code for reply in nodes.seen} == {Refusal.DECLINED}
    server, roster = server_of(trial), server_of(trial).roster
    swapped = roster.model_copy(update={"clients": {**roster.clients, 1: roster.clients[2], 2: roster.clients[1]}})
    nodes = NodesInThisProcess(secure=True, trial=trial)
    assert len(trained(nodes, server=server.model_copy(update={"roster": swapped}), begin=0.5).arrays) == 0


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_no_survivors_that_differ_from_an_earlier_mean_by_few_are_agreed_to(trial: Trial, mode: Any) -> None:
    """A server that lets one client vanish after its vector was due gets the mean of no others.

    Under masks the clients sign no such survivors; in a committee its helpers take no mask off.
    """
    terms = MeanTerms(max_weight=300, mode=mode)
    nodes = NodesInThisProcess(secure=True, terms=terms, trial=trial, min_change=1)  # no app lowers a site's own
    nodes.gone = lambda node, message: node == 14 and _stage(message) == "train" and _round_of(message) == 2
    result = trained(nodes, terms, server=server_of(trial))
    assert sorted(result.train_metrics_clientapp) == [1]
    keys = [key.hex() for key in server_of(trial).roster.clients.values()]
    for number in trial.rows:
        assert {tuple(json.loads(line)["clients"]) for line in site(trial, number).means()} == {tuple(keys)}
    edit_all(trial, ("refused_tries", "min_change = 1\nrefused_tries"))
    assert sorted(trained(nodes, terms, server=server_of(trial), begin=0.5).train_metrics_clientapp) == [1, 2]


@pytest.mark.parametrize("min_change", [None, 1])
def test_a_cohort_that_lacks_a_node_of_an_earlier_mean_is_refused_unless_owners_state_otherwise(
    min_change: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's log says why, since nodes give no reason."""
    nodes = NodesInThisProcess(secure=True, min_change=min_change)
    own: Any = SecureMean(FedAvg(fraction_evaluate=0.0), TERMS)
    assert len(own.start(nodes, model(), num_rounds=1).arrays)
    nodes.get_node_ids = lambda: list(ROWS)[:4]  # type: ignore[method-assign]
    nodes.seen.clear()
    assert bool(own.start(nodes, model(0.5), num_rounds=1).arrays) == (min_change == 1)
    assert any(reply.has_error() for reply in nodes.seen) == (min_change is None)
    assert "this cohort differs from an earlier one by 1 clients" in caplog.text


def test_a_log_of_means_that_was_lost_is_noticed_and_its_site_takes_part_in_nothing(trial: Trial) -> None:
    """Deleted, emptied, and an older copy put back: each is named, until the site's owner accepts it."""
    nodes, before = NodesInThisProcess(secure=True, trial=trial), trial.folder / "before"
    for start in (0.0, 0.25):
        assert len(trained(nodes, n_rounds=1, server=server_of(trial), begin=start).arrays)
        if not before.exists():
            shutil.copytree(state(trial, 3), before)
    shutil.rmtree(state(trial, 1))
    (state(trial, 2) / "sessions.sqlite").write_bytes(b"")
    shutil.rmtree(state(trial, 3))
    shutil.copytree(before, state(trial, 3))
    nodes.seen.clear()
    assert len(trained(nodes, server=server_of(trial), begin=0.5).arrays) == 0
    assert sum(reply.has_error() for reply in nodes.seen) >= 3
    for party, name in ((1, "lost"), (2, "lost"), (3, "behind")):
        with pytest.raises(SiteFileError, match=f"{name}: the query log must have the 4 entries"):
            site(trial, party).sweep()
        site(trial, party).accept_loss()
    assert sorted(trained(nodes, server=server_of(trial), begin=0.75).train_metrics_clientapp) == [1, 2]


def test_a_plan_has_one_spelling_of_clients_and_digests(trial: Trial) -> None:
    """Else a server names the same clients, or the same sum, in a way that a node's log does not compare."""
    said: dict[str, Any] = {"session": "00" * 32, "shapes": (("w", (4,)),), "model": "00", "options": ""}
    plan = MeanPlan(members=("01", "2", "3", "4", "5"), **said)
    with pytest.raises(UsageError, match="in plain digits"):
        plan.sum(TERMS, server_of(trial).roster)
    with pytest.raises(UsageError, match="small hexadecimal digits"):
        MeanPlan(members=("1", "2", "3"), **said | {"session": "AA" * 32})


def _round_of(message: Message) -> Any:
    config: Any = message.content["config"]
    return config["server-round"]


def test_carried_scales_train_the_same_model_in_three_bytes(caplog: pytest.LogCaptureFixture, trial: Trial) -> None:
    carried = MeanTerms(max_weight=300, metrics=("train_loss",), entry_bytes=3, carry_scales=True)
    plain = run(FedAvg(fraction_evaluate=0.0), NodesInThisProcess(secure=False), 4)
    nodes = NodesInThisProcess(secure=True, terms=carried)
    with caplog.at_level("INFO", logger="flwr"):
        secure = trained(nodes, carried, 4)
    stated = [float(bound) for bound in re.findall(r"error at most (\S+) \('w'\)", caplog.text)]
    assert len(stated) == 4
    assert distance(secure, plain) <= sum(2 * bound + FLOAT32 for bound in stated)
    assert "numbers in 4 bytes each" in caplog.text
    assert "numbers in 3 bytes each" in caplog.text
    assert "beyond the clip" not in caplog.text
    clips = [float(clip) for clip in re.findall(r"w: clipped to \[-(\S+),", caplog.text)]
    assert clips == sorted(clips, reverse=True)
    largest = np.abs(plain.arrays["w"].numpy()).max()  # the first round's update is as large as the model, or nearly
    assert clips[1] <= 2 * len(ROWS) * largest
    assert max(stated[1:]) <= 2 * len(ROWS) * largest * 2.0**-23 * 2 * len(ROWS) * 300 / 180
    with pytest.raises(UsageError, match="need a semi-honest one"):
        trained(NodesInThisProcess(secure=True, terms=carried, trial=trial), carried, server=server_of(trial))


def test_private_means_are_charged_at_each_node_before_its_vector_leaves(tmp_path: Path) -> None:
    """Two rounds cost no more than was asked for, a third is refused, and so is a node without a ledger."""
    privacy = MeanPrivacy(norm=2.0, epsilon=8.0, delta=1e-5, rounds=2)
    terms = MeanTerms(max_weight=1, privacy=privacy)
    budget = Budget(epsilon=8.0, delta=1e-5, unit="client", adjacency="add-remove", population="everybody")
    ledger = Ledger.create(tmp_path / "ledger", budget)
    nodes = NodesInThisProcess(secure=True, terms=terms, trial=None, ledger=tmp_path / "ledger")
    assert sorted(trained(nodes, terms, 2).train_metrics_clientapp) == []  # one file for five nodes: five charges
    shared = ledger.spent()
    assert shared is not None
    assert shared.epsilon <= 8.0
    nodes = NodesInThisProcess(secure=True, terms=terms, ledger=tmp_path)
    for node in ROWS:
        Ledger.create(tmp_path / str(node), budget)
    result = trained(nodes, terms, 3)
    assert result.arrays["w"].numpy().shape == (4,)
    for node in ROWS:
        spent = Ledger.open(tmp_path / str(node)).spent()
        assert spent is not None
        assert (spent.releases, spent.epsilon <= 8.0) == (2, True)
    assert {reply.error.code for reply in nodes.seen[-len(ROWS) :]} == {Refusal.DECLINED}
    assert len(trained(NodesInThisProcess(secure=True, terms=terms), terms, 1).arrays) == 0
    with pytest.raises(UsageError, match="counts every client alike"):
        MeanTerms(max_weight=2, privacy=privacy)


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_private_means_of_a_rosters_sites_are_charged_to_their_own_ledgers(trial: Trial, mode: Any) -> None:
    """And a ledger that names a mean tells of no sum that the query log forgot."""
    for party in trial.rows:
        path = trial.site(party) / "site.toml"
        path.write_text(f'{path.read_text()}\n[privacy]\nepsilon = 8.0\nunit = "client"\nledger = "privacy.ledger"\n')
        assert main(["ledger", str(path)]) == 0
    privacy = MeanPrivacy(norm=2.0, epsilon=8.0, delta=1e-5, rounds=2)
    terms = MeanTerms(max_weight=1, privacy=privacy, mode=mode)
    beside = Ledger.create(trial.folder / "beside", Ledger.open(trial.site(1) / "privacy.ledger").budget)
    nodes = NodesInThisProcess(secure=True, terms=terms, trial=trial, ledger=beside.path)
    assert len(trained(nodes, terms, 1, server_of(trial)).arrays) == 0, "one ledger holds: the owner's"
    assert beside.spent() is None
    nodes = NodesInThisProcess(secure=True, terms=terms, trial=trial)
    result = trained(nodes, terms, 3, server_of(trial))
    assert {reply.error.code for reply in nodes.seen[-len(ROWS) :]} == {Refusal.DECLINED}
    assert np.abs(result.arrays["w"].numpy()).max() > 0
    for party in trial.rows:
        spent = Ledger.open(trial.site(party) / "privacy.ledger").spent()
        assert spent is not None
        assert (spent.releases, spent.epsilon <= 8.0) == (2, True)
        site(trial, party).sweep()


def test_vectors_are_added_as_they_come() -> None:
    """While a node's reply is made, the server holds one reply at most: that of the node before it."""
    nodes, replies, n_held = NodesInThisProcess(secure=True), list[weakref.ref[Message]](), list[int]()
    inner = nodes._deliver

    def watched(message: Message) -> Message:
        gc.collect()
        n_held.append(sum(reply() is not None for reply in replies))
        inner(message)
        reply = nodes.seen.pop()
        replies.extend([weakref.ref(reply)] if carries_vector(unpack(reply.content)) else [])
        return reply

    nodes._deliver = watched  # type: ignore[method-assign]
    gc.freeze()  # or each collection goes over all that was imported
    try:
        trained(nodes, n_rounds=1)
    finally:
        gc.unfreeze()
    assert len(replies) == len(ROWS)
    assert max(n_held) == 1


def test_no_reply_holds_an_update_or_a_metric() -> None:
    """Each holds one string of bytes: no plain number is in it, and the words of a vector are not the plain ones."""
    answers: dict[int, RecordDict] = {}

    def noted(message: Message, context: Context) -> Message:
        reply = train(message, context)
        answers[context.node_id] = copy.deepcopy(reply.content)
        return reply

    nodes = NodesInThisProcess(secure=True, task=noted)
    run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes, 1)
    assert len(nodes.seen) == 4 * len(ROWS)
    spec, n_vectors = TERMS.spec((("w", (4,)),), len(ROWS)), 0
    for reply in nodes.seen:
        assert {name: list(record) for name, record in reply.content.items()} == {"content": ["content"]}
        sent, own = unpack(reply.content), answers[reply.metadata.src_node_id]
        metrics: Any = own["metrics"]
        arrays: Any = own["arrays"]
        update = arrays["w"].numpy()
        numbers = [update, update[:1], update.astype("f8")[:1], np.float64(metrics["train_loss"])]
        assert not any(each.tobytes() in sent or each.byteswap().tobytes() in sent for each in numbers)
        if not carries_vector(sent):
            continue
        n_vectors += 1
        plain = spec.vector(
            {"w": update}, weight=metrics["num-examples"], metrics={"train_loss": metrics["train_loss"]}
        )
        masked = RingVector.from_bytes(spec.layout, sent[-spec.layout.wire_bytes :]).words[0].view("<i4")
        assert np.abs(masked - plain[:4]).min() > 1  # two roundings of a number differ by 1 at most
    assert n_vectors == len(ROWS)


def test_too_few_survivors_leave_the_model_as_it_is() -> None:
    nodes = NodesInThisProcess(secure=True, is_gone=lambda node, message: node in (11, 12))
    result = run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes, 2)
    assert len(result.arrays) == 0
    assert result.train_metrics_clientapp == {}


def test_a_round_that_fails_after_vectors_left_is_not_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    """A server that says so may have the total: no node answers twice for one model, nor keeps a session's secrets."""
    nodes = NodesInThisProcess(
        secure=True, is_gone=lambda node, message: PLAN in message.content and _is_unmasking(message)
    )
    assert len(run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes, 1).arrays) == 0
    assert "Nodes that sent a vector refuse this model from now on: begin a new run" in caplog.text
    assert all(len(_snapshot(state)) > 100 for state in nodes.states.values())
    nodes.gone, nodes.seen = (lambda node, message: False), []
    assert len(run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes, 1).arrays) == 0
    assert {reply.error.code for reply in nodes.seen} == {Refusal.DECLINED}
    assert {_snapshot(state) for state in nodes.states.values()} == {b""}


def _snapshot(state: RecordDict) -> Any:
    kept: Any = state[PLAN]
    return kept["snapshot"]


def test_a_node_that_refused_goes_on_with_the_next_model() -> None:
    """A message of no stage ends the session of that round and not the run; no error but a refusal comes of it."""
    broken = []

    def other(node: int, message: Message) -> bool:
        plan: Any = message.content[PLAN]
        if node == 12 and plan["stage"] == "train" and not broken:
            broken.append(node)
            plan["content"] = b"no delivery"
            nodes._deliver(message)  # and again, to a node that has forgotten its session
        return False

    nodes = NodesInThisProcess(secure=True)
    nodes.gone = other
    result = run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes, 2)
    assert sorted(result.train_metrics_clientapp) == [1, 2]
    refused = [reply for reply in nodes.seen if reply.has_error()]
    assert [reply.error.code for reply in refused] == [Refusal.DECLINED] * 2


def _is_unmasking(message: Message) -> bool:
    """Whether the server asks for shares of the secrets behind masks."""
    plan: Any = message.content[PLAN]
    return bool(plan["stage"] == "go on" and message_type(plan["content"]) is MessageType.UNMASK_REQUEST)


def _stage(message: Message) -> Any:
    plan: Any = message.content[PLAN]
    return plan["stage"]


def test_a_node_that_is_sent_another_model_does_not_train_on_it() -> None:
    """The set-up bound all nodes to one model; a server that gives one node a crafted one gets nothing from it."""

    def other(node: int, message: Message) -> bool:
        if node == 12 and _stage(message) == "train":
            message.content["arrays"] = ArrayRecord(
                {"w": Array(np.ones(4, np.float32)), "n_batches": Array(np.array(0))}
            )
        return False

    nodes = NodesInThisProcess(secure=True, is_gone=other)
    result = run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes, 1)
    assert [reply.error.code for reply in nodes.seen if reply.has_error()] == [Refusal.DECLINED]
    gone = NodesInThisProcess(secure=True, is_gone=lambda node, message: node == 12 and _stage(message) == "train")
    left = run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), gone, 1)
    assert distance(result, left) <= allowed(2)  # each is one round away from the plain one


@pytest.mark.parametrize("name", sorted({*strategies.__all__} - {"Result", "Strategy"}))
def test_every_strategy_of_flower_is_served_or_refused_with_the_reason(name: str) -> None:
    """All of its own are known; a class of a user's own may look at single replies."""
    kind = getattr(strategies, name)
    made: Any = Strategy.__new__(kind) if kind not in mean.TAKEN else kind(fraction_evaluate=0.0)
    if kind in mean.TAKEN:
        assert SecureMean(made, TERMS).strategy is made
        own: Any = type(f"Own{name}", (kind,), {})
        kind, made = own, Strategy.__new__(own)
    reason = mean.REASONS_AGAINST.get(kind, "a class of your own may look at single replies")
    with pytest.raises(UsageError, match=re.escape(f"cannot serve {type(made).__name__}: {reason}")):
        SecureMean(made, TERMS)


@pytest.mark.parametrize(
    "around",
    [
        lambda inner: DifferentialPrivacyServerSideFixedClipping(inner, 0.0, 0.5, 5),
        lambda inner: DifferentialPrivacyServerSideAdaptiveClipping(inner, 0.1, 5),
    ],
)
def test_a_strategy_around_a_secure_mean_is_refused(around: Callable[[Strategy], Strategy]) -> None:
    """It would clip the mean in place of each update, and say that it clipped. A run before it changes nothing."""
    inner = SecureMean(FedAvg(fraction_evaluate=0.0), TERMS)
    nodes = NodesInThisProcess(secure=True)
    run(inner, nodes, 1)
    nodes.seen = []
    with pytest.raises(UsageError, match="SecureMean must be the outermost strategy"):
        run(around(inner), nodes, 1)
    assert nodes.seen == []


def test_terms_whose_step_is_larger_than_the_clip_are_no_terms(caplog: pytest.LogCaptureFixture) -> None:
    worthless = MeanTerms(max_weight=10_000, metrics=("train_loss",), entry_bytes=2)
    nodes = NodesInThisProcess(secure=True, terms=worthless)
    assert len(run(SecureMean(FedAvg(fraction_evaluate=0.0), worthless), nodes, 1).arrays) == 0
    assert "5 clients of max_weight 10000 leave a step larger than the clip in 2 bytes" in caplog.text
    assert nodes.seen == []


def far(message: Message, context: Context) -> Message:
    """A change of 50 in one array, as of a running variance, and none in the other."""
    record: Any = message.content["arrays"]
    arrays = {name: Array(record[name].numpy() + np.float32(50 * (name == "bn"))) for name in record}
    metrics = MetricRecord({"num-examples": ROWS[context.node_id], "train_loss": 1.0})
    return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": metrics}), reply_to=message)


def test_numbers_beyond_the_clip_are_warned_of_by_name_and_a_clip_by_name_holds_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = ArrayRecord({"w": Array(np.zeros(3, np.float32)), "bn": Array(np.zeros(2, np.float32))})
    found = []
    for clip in (8.0, {"w": 8.0, "bn": 100.0}):
        caplog.clear()
        terms = MeanTerms(max_weight=300, metrics=("train_loss",), clip=clip)
        nodes = NodesInThisProcess(secure=True, terms=terms, task=far)
        strategy: Any = SecureMean(FedAvg(fraction_evaluate=0.0), terms)
        result = strategy.start(nodes, start, num_rounds=1)
        found.append((result.arrays["bn"].numpy().tolist(), "Numbers by array: {'bn': 10}" in caplog.text))
    assert found == [([8.0, 8.0], True), ([50.0, 50.0], False)]


def test_an_app_may_write_into_its_message() -> None:
    def write(message: Message, context: Context) -> Message:
        reply = train(message, context)
        message.content["arrays"], message.content["metrics"] = reply.content["arrays"], reply.content["metrics"]
        return Message(message.content, reply_to=message)

    plain = run(FedAvg(fraction_evaluate=0.0), NodesInThisProcess(secure=False), 1)
    secure = run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), NodesInThisProcess(secure=True, task=write), 1)
    assert np.abs(plain.arrays["w"].numpy()).min() > 0.1
    assert distance(secure, plain) <= allowed(1)


def test_a_strategy_with_its_own_mean_of_metrics_is_refused() -> None:
    with pytest.raises(UsageError, match="leave out train_metrics_aggr_fn"):
        SecureMean(FedAvg(train_metrics_aggr_fn=lambda records, key: MetricRecord()), TERMS)


@pytest.mark.parametrize("name", ["config", "more"])
def test_a_node_that_is_sent_another_configuration_does_not_train_with_it(name: str) -> None:
    """A learning rate of 0 for all others would make the mean one client's update."""

    def other(node: int, message: Message) -> bool:
        if node != 12 and _stage(message) == "train":
            message.content = RecordDict(dict(message.content))
            message.content[name] = ConfigRecord({"lr": 0.0, "server-round": 1})
        return False

    nodes = NodesInThisProcess(secure=True, is_gone=other)
    strategy: Any = SecureMean(FedAvg(fraction_evaluate=0.0), TERMS)
    result = strategy.start(nodes, model(), num_rounds=1, train_config=ConfigRecord({"lr": 0.1}))
    assert len(result.arrays) == 0
    assert [reply.error.code for reply in nodes.seen if reply.has_error()] == [Refusal.DECLINED] * 4


def test_the_log_counts_the_nodes_that_left_by_reason(caplog: pytest.LogCaptureFixture) -> None:
    nodes = NodesInThisProcess(secure=True, terms=MeanTerms(max_weight=250, metrics=("train_loss",)))
    nodes.gone = lambda node, message: node == 11 and _stage(message) == "begin"
    run(SecureMean(FedAvg(fraction_evaluate=0.0), MeanTerms(max_weight=250, metrics=("train_loss",))), nodes, 1)
    assert "1 of 5 nodes left the round: the node is gone" in caplog.text
    assert f"1 of 4 nodes left the round: {REASONS[Refusal.DECLINED]}" in caplog.text


def test_two_nodes_make_no_mean_and_no_end_of_the_run(caplog: pytest.LogCaptureFixture) -> None:
    nodes = NodesInThisProcess(secure=True)
    nodes.get_node_ids = lambda: list(ROWS)[:2]  # type: ignore[method-assign]
    assert len(run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes, 2).arrays) == 0
    assert caplog.text.count("secure mean of round") == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_weight": 0}, "max_weight is a plain int"),
        ({"max_weight": 2**40}, "max_weight is a plain int"),
        ({"clip": -1.0}, "a clip is a number above 0"),
        ({"clip": {"w": 1.0, "b": 0.0}}, "a clip is a number above 0"),
        ({"entry_bytes": 9}, "entry_bytes is one of 2, 3, 4"),
        ({"metrics": "mse"}, "metrics is a tuple of names"),
        ({"metrics": (1,)}, "metrics is a tuple of names"),
        ({"metrics": ("loss", "loss")}, "metrics is a tuple of names"),
        ({"metrics": ("num-examples",)}, "not among metrics"),
    ],
)
def test_terms_that_make_no_mean_are_never_made(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ConfigurationError, UsageError), match=says):
        MeanTerms(**{"max_weight": 300, **options})


def test_complex_numbers_end_the_run_by_name() -> None:
    start = ArrayRecord({"w": Array(np.zeros(3, np.float32)), "phase": Array(np.zeros(2, np.complex64))})
    strategy: Any = SecureMean(FedAvg(fraction_evaluate=0.0), TERMS)
    with pytest.raises(UsageError, match=r"real and whole numbers, not phase \(complex64\)"):
        strategy.start(NodesInThisProcess(secure=True), start, num_rounds=1)


def test_whole_numbers_of_a_model_stay_the_servers() -> None:
    result = run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), NodesInThisProcess(secure=True))
    assert result.arrays["n_batches"].numpy().tolist() == 0


def test_a_strategy_that_weighs_by_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="weighs by 'rows' and the terms by 'num-examples'"):
        SecureMean(FedAvg(weighted_by_key="rows"), TERMS)


def test_other_terms_leave_no_mean() -> None:
    terms = MeanTerms(max_weight=299, metrics=("train_loss",))
    nodes = NodesInThisProcess(secure=True)
    result = run(SecureMean(FedAvg(fraction_evaluate=0.0), terms), nodes, 1)
    assert len(result.arrays) == 0


def test_a_node_trains_for_nobody_without_a_mean_and_once_for_a_model() -> None:
    nodes = NodesInThisProcess(secure=True)
    run(FedAvg(fraction_evaluate=0.0), nodes, 1)
    assert {reply.error.code for reply in nodes.seen} == {Refusal.DECLINED}
    first, again = NodesInThisProcess(secure=True), NodesInThisProcess(secure=True)
    run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), first, 1)
    again.states = first.states
    assert len(run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), again, 1).arrays) == 0
    assert {reply.error.code for reply in again.seen} == {Refusal.DECLINED}


@pytest.mark.parametrize(
    "changes",
    [
        {"members": 2**40},
        {"members": ["11", "11", "14"]},
        {"members": ["11", "12"]},
        {"shapes": "[["},
        {"shapes": [["w", [-1]]]},
        {"shapes": [["w", [100000, 100000]]]},
        {"model": 2**40},
        {"model": "no digits"},
        {"session": "aa"},
        {"helpers": [[1]]},
        {"party": 9},
        {"party": "one"},
        {"stage": "go on"},
        {"stage": 7},
    ],
)
def test_a_plan_that_makes_no_sum_is_declined(changes: dict[str, Any]) -> None:
    def other(node: int, message: Message) -> bool:
        plan: Any = message.content[PLAN]
        if node == 12 and plan["stage"] == "begin":
            inner = json.loads(plan["plan"])
            for name, value in changes.items():
                if name in inner:
                    inner[name] = value
                else:
                    plan[name] = value
            plan["plan"] = json.dumps(inner).encode()
        return False

    nodes = NodesInThisProcess(secure=True, is_gone=other)
    result = run(SecureMean(FedAvg(fraction_evaluate=0.0), TERMS), nodes, 1)
    assert result.train_metrics_clientapp[1]["train_loss"] > 0
    assert {reply.error.code for reply in nodes.seen if reply.has_error()} == {Refusal.DECLINED}


def test_every_example_in_a_docstring_is_true() -> None:
    done = doctest.testmod(mean)
    assert (done.attempted, done.failed) == (3, 0)
