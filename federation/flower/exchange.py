"""One exchange with many nodes: everything out, each answer taken as it comes, until a deadline or a quorum."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from federation.flower.progress_log import ProgressLog
from federation.site.errors import REASONS, Refusal, UnreachableError

NodeId = int

POLL_SECONDS = 0.2

ASK_AGAIN_SECONDS = 5.0
"""How long after it died an indispensable node is asked again; starting a node's process takes about so long."""

FLOWER_ERRORS = {
    1: "the node cannot load the app",
    2: "the app failed on the node",
    3: "no answer before the deadline",
    4: "its answer was lost",
    5: "the node is gone",
    8: "the node's client process died",
}

DIED = frozenset({3, 4, 5, 8})
"""The errors after which asking again may help: an answer or a process was lost, nobody refused."""

UNREADABLE = (AttributeError, LookupError, TypeError, ValueError, DecodeError)
"""What Flower raises while it puts together an answer whose objects a node forged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """When an exchange is over.

    Args:
        seconds: after so long, whoever is missing.
        quorum: as soon as this fraction of the nodes has answered.
        of: how many nodes the quorum is a fraction of, so that it stays what it was while nodes are lost from round to
            round; 0 for those asked now that were not lost before.
        complete: whether everybody indispensable has answered. Before that no quorum closes the round, and a node that
            died is asked again until the deadline: sites repeat what they said, so this is safe.
        at_once: how many nodes are asked at a time, so that large answers do not pile up at the SuperLink; 0 asks all.
    """

    seconds: float
    quorum: float = 1.0
    of: int = 0
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
    ask_again: dict[NodeId, float] = field(default_factory=dict)
    answered: int = 0
    answered_of_counted: int = 0
    volume: int = 0

    def is_over(self, deadlines: Deadlines, now: float) -> bool:
        """Whether nobody is worth waiting for any more."""
        left = {*self.waiting.values(), *self.unasked}
        if now >= self.ends:
            return True
        if not deadlines.complete():
            return not left and not self.ask_again
        enough = self.answered_of_counted >= math.ceil(deadlines.quorum * (deadlines.of or len(self.counted)))
        return enough or self.counted.isdisjoint(left)


class Exchange:
    """The nodes of one run. Who was lost once is asked last and not waited for, unless everybody asked was lost once.

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
        self._met: set[NodeId] = set()

    def online(self) -> list[NodeId]:
        """Who can be reached now. It is the SuperLink's word and proves nothing; identities do."""
        return sorted(self._grid.get_node_ids())

    def everybody(self) -> list[NodeId]:
        """Who can be reached now, and whoever was asked before: a node may be back at any moment."""
        return sorted({*self.online(), *self._met})

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
        self._met.update(contents)
        round_ = _Round(
            title=title,
            ends=self._clock() + deadlines.seconds,
            waiting={},
            unasked=sorted(contents, key=lambda node: node in self._lost),
            counted=frozenset(contents.keys() - self._lost) or frozenset(contents),
            take=take,
            asked=len(contents),
        )
        self._progress.say("round opens", round=title, expected=round_.asked, deadline_seconds=deadlines.seconds)
        is_over = False
        while not is_over:
            self._push_next(kind, contents, round_, deadlines)
            for identifier in list(round_.waiting):
                self._pull(identifier, round_)
            is_over = round_.is_over(deadlines, self._clock())
            if not is_over:
                self._sleep(POLL_SECONDS)
        self._lost.update(round_.waiting.values(), round_.unasked, round_.ask_again)
        counts = {"arrived": round_.answered, "expected": round_.asked, "bytes": round_.volume}
        self._progress.say("round closes", round=title, **counts)

    def _push_next(
        self, kind: str, contents: Mapping[NodeId, RecordDict], round_: _Round, deadlines: Deadlines
    ) -> None:
        """Ask as many nodes as may be asked at a time; those first that died and are to be asked again."""
        now = self._clock()
        if now >= round_.ends:
            return
        if not deadlines.complete():
            due = [node for node, moment in round_.ask_again.items() if moment <= now]
            round_.ask_again = {node: moment for node, moment in round_.ask_again.items() if node not in due}
            round_.unasked = [*due, *round_.unasked]
        n_next = (deadlines.at_once or len(contents)) - len(round_.waiting)
        chosen, round_.unasked = round_.unasked[:n_next], round_.unasked[n_next:]
        if chosen:
            pushed = self._push(kind, {node: contents[node] for node in chosen}, max(1.0, round_.ends - now))
            round_.waiting |= pushed
            # Flower could not store the message, perhaps because the node has not registered again yet.
            not_stored = set(chosen).difference(pushed.values())
            round_.ask_again |= dict.fromkeys(sorted(not_stored), now + ASK_AGAIN_SECONDS)

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
        # Flower gives no id for a message that it could not store.
        return {identifier: node for identifier, node in zip(identifiers, contents, strict=True) if identifier}

    def _pull(self, identifier: str, round_: _Round) -> None:
        """Take one node's answer, if it is there."""
        try:
            replies = list(self._grid.pull_messages([identifier]))
        except UNREADABLE as error:
            self._lose(round_.waiting.pop(identifier), round_, f"its answer does not read ({type(error).__name__})")
            return
        for reply in replies[:1]:
            # An error's own sender field may name the SuperLink, so the node is the one that was asked.
            node = round_.waiting.pop(identifier)
            if reply.has_error():
                if reply.error.code in DIED:
                    round_.ask_again[node] = self._clock() + ASK_AGAIN_SECONDS
                self._lose(node, round_, _reason(reply.error.code))
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

    def _lose(self, node: NodeId, round_: _Round, reason: str) -> None:
        self._lost.add(node)
        self._progress.say("node lost", round=round_.title, node=str(node), reason=reason)


def _reason(code: int) -> str:
    """Our own words for a code: a node's text is not repeated."""
    try:
        return REASONS[Refusal(code)]
    except ValueError:
        return FLOWER_ERRORS.get(code, f"Flower's error {code}")
