"""One exchange with many nodes: everything out, each answer taken as it comes, until a deadline or a quorum."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from simulations.flower.errors import REASONS, Refusal, UnreachableError
from simulations.flower.progress_log import ProgressLog

NodeId = int

POLL_SECONDS = 0.2

FLOWER_ERRORS = {
    1: "the node cannot load the app",
    2: "the app failed on the node",
    3: "no answer before the deadline",
    5: "the node is gone",
    8: "the node's client process died",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """When an exchange is over.

    Args:
        seconds: after so long, whoever is missing.
        quorum: as soon as this fraction of the nodes that were not lost before has answered.
        complete: asked before a quorum closes the round; False keeps it open (a helper is still missing).
        at_once: how many nodes are asked at a time, so that large answers do not pile up at the SuperLink; 0 asks all.
    """

    seconds: float
    quorum: float = 1.0
    at_once: int = 0
    complete: Callable[[], bool] = lambda: True


@dataclass(slots=True, kw_only=True)
class _Round:
    """One exchange while it is open."""

    title: str
    ends: float
    waiting: dict[str, NodeId]
    unasked: list[NodeId]
    counted: frozenset[NodeId]
    take: Callable[[NodeId, RecordDict], int]
    asked: int
    answered: int = 0
    answered_of_counted: int = 0
    volume: int = 0

    def is_over(self, deadlines: Deadlines, now: float) -> bool:
        """Whether nobody is worth waiting for any more."""
        left = {*self.waiting.values(), *self.unasked}
        if not left or now >= self.ends:
            return True
        enough = self.answered_of_counted >= math.ceil(deadlines.quorum * len(self.counted))
        return (enough or self.counted.isdisjoint(left)) and deadlines.complete()


class Exchange:
    """The nodes of one run. Who was lost once is still asked, but not waited for.

    Args:
        grid: Flower's way to them.
        progress: where the run is followed.
        clock: seconds that only go forward.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        grid: Grid,
        progress: ProgressLog,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._grid, self._progress, self._clock, self._sleep = grid, progress, clock, sleep
        self._number = 0
        self._lost: set[NodeId] = set()

    def online(self) -> list[NodeId]:
        """Who can be reached now. It is the SuperLink's word and proves nothing; identities do."""
        return sorted(self._grid.get_node_ids())

    def ask(
        self,
        title: str,
        kind: str,
        contents: Mapping[NodeId, RecordDict],
        take: Callable[[NodeId, RecordDict], int],
        deadlines: Deadlines,
    ) -> None:
        """Send each node its content and take the answers one at a time, so that they never pile up here.

        Args:
            title: the round's name, for the log.
            kind: the app's message type.
            contents: what each node is told; the same object may go to all.
            take: gets each answer, and returns how many bytes it brought.
            deadlines: when to stop waiting.
        """
        self._number += 1
        round_ = _Round(
            title=title,
            ends=self._clock() + deadlines.seconds,
            waiting={},
            unasked=sorted(contents, key=lambda node: node in self._lost),
            counted=frozenset(contents.keys() - self._lost),
            take=take,
            asked=len(contents),
        )
        self._progress.say("round opens", round=title, expected=round_.asked, deadline_seconds=deadlines.seconds)
        while not round_.is_over(deadlines, self._clock()):
            self._push_next(kind, contents, round_, deadlines.at_once or len(contents))
            for identifier in list(round_.waiting):
                self._pull(identifier, round_)
            if not round_.is_over(deadlines, self._clock()):
                self._sleep(POLL_SECONDS)
        self._lost.update(round_.waiting.values(), round_.unasked)
        counts = {"arrived": round_.answered, "expected": round_.asked, "bytes": round_.volume}
        self._progress.say("round closes", round=title, **counts)

    def _push_next(self, kind: str, contents: Mapping[NodeId, RecordDict], round_: _Round, at_once: int) -> None:
        """Ask as many nodes as may be asked at a time."""
        n_next = at_once - len(round_.waiting)
        chosen, round_.unasked = round_.unasked[:n_next], round_.unasked[n_next:]
        if chosen:
            seconds = max(1.0, round_.ends - self._clock())
            round_.waiting |= self._push(kind, {node: contents[node] for node in chosen}, seconds)

    def _push(self, kind: str, contents: Mapping[NodeId, RecordDict], seconds: float) -> dict[str, NodeId]:
        """Send; each message's id and its node.

        Raises:
            UnreachableError: the SuperLink did not take the messages.
        """
        messages = [
            Message(content, node, kind, ttl=seconds, group_id=str(self._number)) for node, content in contents.items()
        ]
        identifiers = list(self._grid.push_messages(messages))
        if len(identifiers) != len(messages):
            raise UnreachableError(f"the SuperLink took {len(identifiers)} of {len(messages)} messages; see its log")
        # Flower gives no id for a message that it could not store; its node is lost, which is for the session to judge.
        return {identifier: node for identifier, node in zip(identifiers, contents, strict=True) if identifier}

    def _pull(self, identifier: str, round_: _Round) -> None:
        """Take one node's answer, if it is there."""
        for reply in self._grid.pull_messages([identifier]):
            # An error's own sender field may name the SuperLink, so the node is the one that was asked.
            node = round_.waiting.pop(identifier)
            if reply.has_error():
                self._lost.add(node)
                self._progress.say("node lost", round=round_.title, node=str(node), reason=_reason(reply.error.code))
                continue
            self._lost.discard(node)
            round_.volume += round_.take(node, reply.content)
            round_.answered += 1
            round_.answered_of_counted += node in round_.counted
            self._progress.say(
                "answer",
                round=round_.title,
                arrived=round_.answered,
                expected=round_.asked,
                bytes=round_.volume,
                seconds_left=round(round_.ends - self._clock(), 1),
            )


def _reason(code: int) -> str:
    """Our own words for a code: a node's text is not repeated."""
    try:
        return REASONS[Refusal(code)]
    except ValueError:
        return FLOWER_ERRORS.get(code, f"Flower's error {code}")
