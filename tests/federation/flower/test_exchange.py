"""Exchanges: quorum, deadline, lost nodes, and answers that never pile up."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message, RecordDict
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from federation.flower.exchange import Deadlines, Exchange
from federation.flower.progress_log import ProgressLog
from federation.flower.rehearsal import InProcessGrid
from federation.flower.wire import read_messages, write_messages
from federation.site.errors import REASONS, Refusal, UnreachableError

SESSION = bytes(16)


class Clock:
    """Seconds that pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class SlowGrid(InProcessGrid):
    """Nodes that answer when their time has come, with a payload made only then.

    Args:
        clock: the time.
        seconds: after which each node answers; a node that is not listed never does.
        payload: bytes of an answer.
        errors: nodes that answer with this code.
    """

    def __init__(
        self, clock: Clock, seconds: dict[int, float], *, payload: int = 1, errors: dict[int, int] | None = None
    ) -> None:
        super().__init__({node: {} for node in seconds})
        self.clock, self.seconds, self.payload, self.errors = clock, seconds, payload, errors or {}
        self.largest_pull = 0
        self.pushed: list[tuple[float, int]] = []

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        messages = list(messages)
        self.pushed += [(round(self.clock.now, 1), message.metadata.dst_node_id) for message in messages]
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        ready = [i for i in message_ids if i in self._sent and self._is_due(self._sent[i])]
        self.largest_pull = max(self.largest_pull, len(ready))
        return [self._reply(self._sent.pop(identifier)) for identifier in ready]

    def _is_due(self, message: Message) -> bool:
        return self.clock.now >= self.seconds.get(message.metadata.dst_node_id, float("inf"))

    def _reply(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        if node in self.errors:
            return Message(Error(code=self.errors[node], reason="a node's own words"), reply_to=message)
        vector = np.full(self.payload, node, np.uint8).tobytes()
        return Message(write_messages({node: vector}, session=SESSION), reply_to=message)


def exchange(grid: Grid, clock: Clock, tmp_path: Path) -> Exchange:
    return Exchange(grid, ProgressLog(tmp_path / "progress.jsonl"), clock=clock, sleep=clock.sleep)


def ask(running: Exchange, nodes: Iterable[int], deadlines: Deadlines) -> list[int]:
    taken: list[int] = []

    def take(node: int, content: RecordDict) -> int:
        _, messages = read_messages(content)
        assert set(messages) == {node}
        assert set(messages[node]) == {node}
        taken.append(node)
        return len(messages[node])

    running.ask("ROUND", "query.step", dict.fromkeys(nodes, write_messages({}, session=SESSION)), take, deadlines)
    return sorted(taken)


def test_a_round_closes_when_everybody_answered(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowGrid(clock, {1: 1.0, 2: 5.0})
    assert ask(exchange(grid, clock, tmp_path), [1, 2], Deadlines(seconds=60)) == [1, 2]
    assert 5.0 <= clock.now < 5.5


def test_a_round_closes_at_its_deadline_and_the_lost_are_not_waited_for_again(tmp_path: Path) -> None:
    clock = Clock()
    running = exchange(SlowGrid(clock, {1: 1.0, 2: 2.0}), clock, tmp_path)
    assert ask(running, [1, 2, 3], Deadlines(seconds=30)) == [1, 2]
    assert 30.0 <= clock.now < 30.5
    assert ask(running, [1, 2, 3], Deadlines(seconds=30)) == [1, 2]
    assert clock.now < 30.5


def test_a_lost_node_that_answers_is_back(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowGrid(clock, {1: 0.0, 2: 100.0})
    running = exchange(grid, clock, tmp_path)
    assert ask(running, [1, 2], Deadlines(seconds=10)) == [1]
    clock.now = 100.0
    assert ask(running, [1, 2], Deadlines(seconds=10)) == [1, 2]
    grid.seconds = {1: 0.0, 2: 105.0}
    assert ask(running, [1, 2], Deadlines(seconds=10)) == [1, 2]


def test_who_is_asked_alone_is_asked_and_waited_for_however_often_it_was_lost(tmp_path: Path) -> None:
    clock = Clock()
    running = exchange(SlowGrid(clock, {1: 0.0, 2: 20.0}), clock, tmp_path)
    assert ask(running, [1, 2], Deadlines(seconds=10)) == [1]
    assert ask(running, [2], Deadlines(seconds=5)) == []
    assert 15.0 <= clock.now < 15.5
    assert ask(running, [2], Deadlines(seconds=10)) == [2]


def test_a_quorum_may_be_a_fraction_of_more_nodes_than_are_asked(tmp_path: Path) -> None:
    """Eight of ten are left and nine tenths of ten are nine: all eight are waited for."""
    clock = Clock()
    seconds = {node: float(node) for node in range(1, 9)}
    running = exchange(SlowGrid(clock, seconds), clock, tmp_path)
    assert ask(running, seconds, Deadlines(seconds=60, quorum=0.9, of=10)) == list(seconds)
    assert ask(running, seconds, Deadlines(seconds=60, quorum=0.9, of=8)) == list(seconds)
    assert ask(running, seconds, Deadlines(seconds=60, quorum=0.5, of=10)) == list(seconds)


@pytest.mark.parametrize("code", [3, 4, 5, 8])
def test_an_indispensable_node_that_died_is_asked_again_until_the_deadline(tmp_path: Path, code: int) -> None:
    clock = Clock()
    grid = SlowGrid(clock, {1: 0.0, 2: 0.0}, errors={2: code})
    running = exchange(grid, clock, tmp_path)
    taken: list[int] = []
    late = Deadlines(seconds=18, complete=lambda: 2 in taken)
    record = write_messages({}, session=SESSION)

    def take(node: int, content: RecordDict) -> int:
        taken.append(node)
        return 0

    running.ask("ROUND", "query.step", {1: record, 2: record}, take, late)
    assert taken == [1]
    assert [node for _, node in grid.pushed] == [1, 2, 2, 2, 2]
    assert [b - a >= 5.0 for (a, _), (b, _) in zip(grid.pushed[1:], grid.pushed[2:], strict=False)] == [True] * 3
    assert 18.0 <= clock.now < 18.5
    grid.errors.clear()
    running.ask("ROUND", "query.step", {2: record}, take, late)
    assert taken == [1, 2]
    assert clock.now < 18.5


@pytest.mark.parametrize("code", [1, 2, Refusal.DECLINED, Refusal.NO_SESSION, Refusal.FAILED])
def test_a_node_that_refuses_is_not_asked_again(tmp_path: Path, code: int) -> None:
    clock = Clock()
    grid = SlowGrid(clock, {1: 0.0}, errors={1: code})
    assert ask(exchange(grid, clock, tmp_path), [1], Deadlines(seconds=60, complete=lambda: False)) == []
    assert grid.pushed == [(0.0, 1)]
    assert clock.now < 1.0


def test_a_dispensable_node_that_died_is_not_asked_again(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowGrid(clock, {1: 0.0, 2: 8.0}, errors={1: 5})
    assert ask(exchange(grid, clock, tmp_path), [1, 2], Deadlines(seconds=60)) == [2]
    assert [node for _, node in grid.pushed] == [1, 2]


@pytest.mark.parametrize("error", [KeyError, ValueError, DecodeError])
def test_an_answer_that_flower_cannot_put_together_loses_its_node(tmp_path: Path, error: type[Exception]) -> None:
    class Forged(SlowGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            replies = list(super().pull_messages(message_ids))
            if replies and replies[0].metadata.src_node_id == 1:
                raise error("no such class of objects")
            return replies * 2

    clock = Clock()
    assert ask(exchange(Forged(clock, {1: 0.0, 2: 0.0}), clock, tmp_path), [1, 2], Deadlines(seconds=60)) == [2]
    assert f"its answer does not read ({error.__name__})" in (tmp_path / "progress.jsonl").read_text()


def test_a_superlink_that_cannot_be_reached_ends_the_run(tmp_path: Path) -> None:
    class Unreachable(SlowGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            raise ConnectionError("gone")

    clock = Clock()
    with pytest.raises(ConnectionError, match="gone"):
        ask(exchange(Unreachable(clock, {1: 0.0}), clock, tmp_path), [1], Deadlines(seconds=60))


def test_a_quorum_closes_early_unless_somebody_is_indispensable(tmp_path: Path) -> None:
    clock = Clock()
    seconds = {node: float(node) for node in range(1, 11)}
    assert ask(exchange(SlowGrid(clock, seconds), clock, tmp_path), seconds, Deadlines(seconds=60, quorum=0.75)) == [
        1, 2, 3, 4, 5, 6, 7, 8,
    ]  # fmt: skip
    clock = Clock()
    late = Deadlines(seconds=60, quorum=0.75, complete=lambda: clock.now >= 9.1)
    assert ask(exchange(SlowGrid(clock, seconds), clock, tmp_path), seconds, late) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_an_error_ends_the_wait_and_its_words_are_not_repeated(tmp_path: Path) -> None:
    clock = Clock()
    grid = SlowGrid(clock, {1: 0.0, 2: 1.0, 3: 1.0}, errors={2: Refusal.DECLINED, 3: 5})
    assert ask(exchange(grid, clock, tmp_path), [1, 2, 3], Deadlines(seconds=60)) == [1]
    assert clock.now < 2.0
    text = (tmp_path / "progress.jsonl").read_text()
    assert "own words" not in text
    lost = {line["node"]: line["reason"] for line in map(json.loads, text.splitlines()) if line["event"] == "node lost"}
    assert lost == {"2": REASONS[Refusal.DECLINED], "3": "the node is gone"}


def test_uploads_are_taken_one_at_a_time(tmp_path: Path) -> None:
    """Memory grows with one upload, not with the number of clients: 24 uploads of 8 MB are all ready at once."""
    clock, n_bytes = Clock(), 8 << 20
    grid = SlowGrid(clock, dict.fromkeys(range(1, 25), 0.0), payload=n_bytes)
    running = exchange(grid, clock, tmp_path)
    taken: list[int] = []

    def take(node: int, content: RecordDict) -> int:
        _, messages = read_messages(content)
        assert len(messages[node]) == n_bytes
        taken.append(node)
        return n_bytes

    tracemalloc.start()
    try:
        record = write_messages({}, session=SESSION)
        running.ask("ROUND", "query.step", dict.fromkeys(range(1, 25), record), take, Deadlines(seconds=60))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(taken) == 24
    assert grid.largest_pull == 1
    assert peak < 6 * n_bytes  # an upload and its copies on the way from records to bytes


def test_no_more_nodes_are_asked_at_a_time_than_allowed(tmp_path: Path) -> None:
    class Counting(SlowGrid):
        most = 0

        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            identifiers = list(super().push_messages(messages))
            self.most = max(self.most, len(self._sent))
            return identifiers

    clock = Clock()
    grid = Counting(clock, {node: 0.0 for node in range(1, 12) if node != 4})
    assert ask(exchange(grid, clock, tmp_path), range(1, 12), Deadlines(seconds=60, at_once=3)) == [
        node for node in range(1, 12) if node != 4
    ]
    assert grid.most == 3
    assert clock.now >= 60.0


def test_messages_that_flower_does_not_take_are_an_error(tmp_path: Path) -> None:
    class Full(SlowGrid):
        def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
            return []

    clock = Clock()
    with pytest.raises(UnreachableError, match="took 0 of 2"):
        ask(exchange(Full(clock, {}), clock, tmp_path), [1, 2], Deadlines(seconds=60))


def test_a_message_that_flower_cannot_store_loses_its_node(tmp_path: Path) -> None:
    class Leaky(SlowGrid):
        def push_messages(self, messages: Iterable[Message]) -> Any:
            first, *rest = super().push_messages(messages)
            return [first, *[None for _ in rest]]

    clock = Clock()
    assert ask(exchange(Leaky(clock, {1: 0.0, 2: 0.0}), clock, tmp_path), [1, 2], Deadlines(seconds=60)) == [1]
