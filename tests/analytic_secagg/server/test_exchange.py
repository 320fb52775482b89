"""Exchanges over any engine: quorum, deadline, lost nodes, and answers that never pile up."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from analytic_secagg.server.exchange import Deadlines, Exchange, NoReply, Transport
from analytic_secagg.server.progress_log import ProgressLog
from analytic_secagg.site.messages import STEP, read_messages, write_messages
from secagg import IdentityKey

SESSION = bytes(16)

DIED = NoReply("died", may_return=True)


class Clock:
    """Seconds that pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SlowNodes(Transport):
    """A way to nodes that answer when their time has come, with a payload made only then.

    Args:
        clock: the time.
        seconds: after which each node answers; a node that is not listed never does.
        payload: bytes of an answer.
        lost: nodes of which the engine says that there will be no answer.
    """

    def __init__(
        self, clock: Clock, seconds: dict[int, float], *, payload: int = 1, lost: dict[int, NoReply] | None = None
    ) -> None:
        self.clock, self.seconds, self.payload, self.lost = clock, seconds, payload, lost or {}
        self.pushed: list[tuple[float, int]] = []
        self.open: dict[str, int] = {}

    def nodes(self) -> Iterable[int]:
        return list(self.seconds)

    def send(self, kind: str, contents: Mapping[int, bytes], *, seconds: float, number: int) -> dict[str, int]:
        tickets = {f"{len(self.pushed) + place}": node for place, node in enumerate(contents)}
        self.pushed += [(round(self.clock.now, 1), node) for node in contents]
        self.open |= tickets
        return tickets

    def receive(self, ticket: str) -> bytes | NoReply | None:
        node = self.open[ticket]
        if self.clock.now < self.seconds.get(node, float("inf")):
            return None
        del self.open[ticket]
        return self.lost.get(node) or write_messages({node: bytes([node]) * self.payload}, session=SESSION)


def exchange(nodes: Transport, clock: Clock, tmp_path: Path) -> Exchange:
    progress = ProgressLog(tmp_path / "progress.jsonl")
    return Exchange(nodes, progress, identity=IdentityKey.generate(), clock=clock, sleep=clock.sleep)


def ask(running: Exchange, nodes: Iterable[int], deadlines: Deadlines) -> list[int]:
    taken: list[int] = []

    def take(node: int, content: bytes) -> int:
        _, messages = read_messages(content)
        assert set(messages) == {node}
        assert set(messages[node]) == {node}
        taken.append(node)
        return len(messages[node])

    running.ask("ROUND", STEP, dict.fromkeys(nodes, b""), take, deadlines)
    return sorted(taken)


def test_a_round_closes_when_everybody_answered(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowNodes(clock, {1: 1.0, 2: 5.0})
    assert ask(exchange(grid, clock, tmp_path), [1, 2], Deadlines(seconds=60)) == [1, 2]
    assert 5.0 <= clock.now < 5.5


def test_a_round_closes_at_its_deadline_and_the_lost_are_not_waited_for_again(tmp_path: Path) -> None:
    clock = Clock()
    running = exchange(SlowNodes(clock, {1: 1.0, 2: 2.0}), clock, tmp_path)
    assert ask(running, [1, 2, 3], Deadlines(seconds=30)) == [1, 2]
    assert 30.0 <= clock.now < 30.5
    assert ask(running, [1, 2, 3], Deadlines(seconds=30)) == [1, 2]
    assert clock.now < 30.5


def test_a_lost_node_that_answers_is_back(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowNodes(clock, {1: 0.0, 2: 100.0})
    running = exchange(grid, clock, tmp_path)
    assert ask(running, [1, 2], Deadlines(seconds=10)) == [1]
    clock.now = 100.0
    assert ask(running, [1, 2], Deadlines(seconds=10)) == [1, 2]
    grid.seconds = {1: 0.0, 2: 105.0}
    assert ask(running, [1, 2], Deadlines(seconds=10)) == [1, 2]


def test_who_is_asked_alone_is_asked_and_waited_for_however_often_it_was_lost(tmp_path: Path) -> None:
    clock = Clock()
    running = exchange(SlowNodes(clock, {1: 0.0, 2: 20.0}), clock, tmp_path)
    assert ask(running, [1, 2], Deadlines(seconds=10)) == [1]
    assert ask(running, [2], Deadlines(seconds=5)) == []
    assert 15.0 <= clock.now < 15.5
    assert ask(running, [2], Deadlines(seconds=10)) == [2]


def test_a_quorum_may_be_a_fraction_of_more_nodes_than_are_asked(tmp_path: Path) -> None:
    """Eight of ten are left and nine tenths of ten are nine: all eight are waited for."""
    clock = Clock()
    seconds = {node: float(node) for node in range(1, 9)}
    running = exchange(SlowNodes(clock, seconds), clock, tmp_path)
    assert ask(running, seconds, Deadlines(seconds=60, quorum=0.9, of=10)) == list(seconds)
    assert ask(running, seconds, Deadlines(seconds=60, quorum=0.9, of=8)) == list(seconds)
    assert ask(running, seconds, Deadlines(seconds=60, quorum=0.5, of=10)) == list(seconds)


def test_an_indispensable_node_that_died_is_asked_again_until_the_deadline(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowNodes(clock, {1: 0.0, 2: 0.0}, lost={2: DIED})
    running = exchange(grid, clock, tmp_path)
    taken: list[int] = []
    late = Deadlines(seconds=18, complete=lambda: 2 in taken)

    def take(node: int, content: bytes) -> int:
        taken.append(node)
        return 0

    running.ask("ROUND", STEP, {1: b"", 2: b""}, take, late)
    assert taken == [1]
    assert [node for _, node in grid.pushed] == [1, 2, 2, 2, 2]
    assert [b - a >= 5.0 for (a, _), (b, _) in zip(grid.pushed[1:], grid.pushed[2:], strict=False)] == [True] * 3
    assert 18.0 <= clock.now < 18.5
    grid.lost.clear()
    running.ask("ROUND", STEP, {2: b""}, take, late)
    assert taken == [1, 2]
    assert clock.now < 18.5


def test_a_node_that_refuses_is_not_asked_again(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowNodes(clock, {1: 0.0}, lost={1: NoReply("refused")})
    assert ask(exchange(grid, clock, tmp_path), [1], Deadlines(seconds=60, complete=lambda: False)) == []
    assert grid.pushed == [(0.0, 1)]
    assert clock.now < 1.0


def test_a_dispensable_node_that_died_is_not_asked_again(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowNodes(clock, {1: 0.0, 2: 8.0}, lost={1: DIED})
    assert ask(exchange(grid, clock, tmp_path), [1, 2], Deadlines(seconds=60)) == [2]
    assert [node for _, node in grid.pushed] == [1, 2]


def test_an_engine_that_cannot_be_reached_ends_the_run(tmp_path: Path) -> None:
    class Unreachable(SlowNodes):
        def receive(self, ticket: str) -> bytes | NoReply | None:
            raise ConnectionError("gone")

    clock = Clock()
    with pytest.raises(ConnectionError, match="gone"):
        ask(exchange(Unreachable(clock, {1: 0.0}), clock, tmp_path), [1], Deadlines(seconds=60))


def test_a_quorum_closes_early_unless_somebody_is_indispensable(tmp_path: Path) -> None:
    clock = Clock()
    seconds = {node: float(node) for node in range(1, 11)}
    assert ask(exchange(SlowNodes(clock, seconds), clock, tmp_path), seconds, Deadlines(seconds=60, quorum=0.75)) == [
        1, 2, 3, 4, 5, 6, 7, 8,
    ]  # fmt: skip
    clock = Clock()
    late = Deadlines(seconds=60, quorum=0.75, complete=lambda: clock.now >= 9.1)
    assert ask(exchange(SlowNodes(clock, seconds), clock, tmp_path), seconds, late) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_a_lost_answer_ends_the_wait_and_its_reason_is_noted(tmp_path: Path) -> None:
    clock = Clock()
    nodes = SlowNodes(clock, {1: 0.0, 2: 1.0, 3: 1.0}, lost={2: NoReply("declined"), 3: DIED})
    assert ask(exchange(nodes, clock, tmp_path), [1, 2, 3], Deadlines(seconds=60)) == [1]
    assert clock.now < 2.0
    lines = map(json.loads, (tmp_path / "progress.jsonl").read_text().splitlines())
    assert {line["node"]: line["reason"] for line in lines if line["event"] == "node lost"} == {
        "2": "declined",
        "3": "died",
    }


def test_who_gave_no_answer_is_named_with_its_reason_once(tmp_path: Path) -> None:
    class Named(SlowNodes):
        def send(self, kind: str, contents: Mapping[int, bytes], *, seconds: float, number: int) -> dict[str, int]:
            return super().send(kind, {node: one for node, one in contents.items() if node != 3}, seconds=9, number=1)

        def name(self, node: int) -> str:
            return f"site-{node}"

    clock = Clock()
    running = exchange(Named(clock, {1: 0.0, 4: 1.0}, lost={4: DIED}), clock, tmp_path)
    running.node_of[7] = 2
    for _ in range(2):
        assert ask(running, [1, 2, 3, 4], Deadlines(seconds=9)) == [1]
    lines = list(map(json.loads, (tmp_path / "progress.jsonl").read_text().splitlines()))
    assert [(line["node"], line["reason"]) for line in lines if line["event"] == "no answer"] == [
        ("site-2", "no answer before the deadline"),
        ("site-3", "the engine has no place for its message: it is not connected"),
    ]
    assert [line["parties"] for line in lines if line["event"] == "no answer" and "parties" in line] == [[7]]
    assert {line["node"] for line in lines if line["event"] == "node lost"} == {"site-4"}


def test_uploads_are_taken_one_at_a_time(tmp_path: Path) -> None:
    """Memory grows with one upload, not with the number of clients: 24 uploads of 8 MB are all ready at once."""
    clock, n_bytes = Clock(), 8 << 20
    grid = SlowNodes(clock, dict.fromkeys(range(1, 25), 0.0), payload=n_bytes)
    running = exchange(grid, clock, tmp_path)
    taken: list[int] = []

    def take(node: int, content: bytes) -> int:
        _, messages = read_messages(content)
        assert len(messages[node]) == n_bytes
        taken.append(node)
        return n_bytes

    tracemalloc.start()
    try:
        running.ask("ROUND", STEP, dict.fromkeys(range(1, 25), b""), take, Deadlines(seconds=60))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(taken) == 24
    assert peak < 5 * n_bytes  # an upload and its copies on the way from a node to a session


def test_no_more_nodes_are_asked_at_a_time_than_allowed(tmp_path: Path) -> None:
    class Counting(SlowNodes):
        most = 0

        def send(self, *arguments: Any, **settings: Any) -> dict[str, int]:
            tickets = super().send(*arguments, **settings)
            self.most = max(self.most, len(self.open))
            return tickets

    clock = Clock()
    grid = Counting(clock, {node: 0.0 for node in range(1, 12) if node != 4})
    assert ask(exchange(grid, clock, tmp_path), range(1, 12), Deadlines(seconds=60, at_once=3)) == [
        node for node in range(1, 12) if node != 4
    ]
    assert grid.most == 3
    assert clock.now >= 60.0


def test_a_message_that_is_not_taken_loses_its_node(tmp_path: Path) -> None:
    class Leaky(SlowNodes):
        def send(self, *arguments: Any, **settings: Any) -> dict[str, int]:
            first, *_ = super().send(*arguments, **settings).items()
            return dict([first])

    clock = Clock()
    assert ask(exchange(Leaky(clock, {1: 0.0, 2: 0.0}), clock, tmp_path), [1, 2], Deadlines(seconds=60)) == [1]
