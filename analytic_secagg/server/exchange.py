"""One exchange with many nodes: everything out, each answer taken as it comes, until a deadline or a quorum."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from analytic_secagg.server.progress_log import ProgressLog
from analytic_secagg.site.errors import REASONS, REMEDIES, Refusal, UnreachableError, WireError
from analytic_secagg.site.messages import read_messages, signed
from secagg import IdentityKey, PartyId
from secagg.errors import HelperMissingError, TooFewSurvivorsError

NodeId = int
"""An engine's name of a node; it proves nothing about the party there."""

POLL_SECONDS = 0.2

ASK_AGAIN_SECONDS = 5.0
"""Delay before an indispensable node that died is asked again: about the time to start a node's process."""


@dataclass(frozen=True, slots=True)
class NoReply:
    """There will be no answer.

    Args:
        reason: in the engine's or this package's words, never in a node's.
        may_return: whether asking again may help: an answer or a process was lost, nobody refused.
        refusal: the class of reasons for which a site refused; None where it did not.
    """

    reason: str
    may_return: bool = False
    refusal: Refusal | None = None

    @classmethod
    def refused(cls, refusal: Refusal) -> NoReply:
        """Return what a site's refusal comes to."""
        return cls(REASONS[refusal], refusal=refusal)


class Transport(Protocol):
    """An engine's way to its nodes, at each of which ``site.message_handler.handle_message`` answers."""

    def nodes(self) -> Iterable[NodeId]:
        """Return who can be reached now."""
        ...

    def send(self, kind: str, contents: Mapping[NodeId, bytes], *, seconds: float, number: int) -> Mapping[str, NodeId]:
        """Send each node its content and return at once: a ticket for each message that was taken, and its node.

        Args:
            kind: one of ``analytic_secagg.site.messages.KINDS``.
            contents: the same object may go to many.
            seconds: after which an answer is of no use any more.
            number: of the exchange, in a run.

        Raises:
            UnreachableError: nothing can be sent.
        """
        ...

    def receive(self, ticket: str) -> bytes | NoReply | None:
        """Return the answer to one message; None while there is none. It is asked for one at a time."""
        ...

    def name(self, node: NodeId) -> str:
        """Return what the engine's own logs call a node."""
        return str(node)


class Answers:
    """Answers of one exchange, which an engine's own threads hand in and ``Transport.receive`` takes one at a time.

    The first answer to a message counts, and what is late for an earlier exchange is dropped.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number, self._open = 0, set[str]()
        self._arrived: dict[str, bytes | NoReply] = {}

    def expect(self, tickets: Iterable[str], *, number: int) -> None:
        """Wait for answers to these messages of an exchange; call it before they are sent."""
        with self._lock:
            if number != self._number:
                self._number, self._open, self._arrived = number, set(), {}
            self._open.update(tickets)

    def is_expected(self, ticket: str) -> bool:
        """Return whether an answer to this message would count."""
        return ticket in self._open

    def settle(self, ticket: str, answer: bytes | NoReply) -> None:
        """Keep an answer, or that there will be none."""
        with self._lock:
            if ticket in self._open:
                self._arrived[ticket] = answer
                self._open.discard(ticket)

    def take(self, ticket: str) -> bytes | NoReply | None:
        """Return the answer to a message and forget it; None while there is none."""
        return self._arrived.pop(ticket, None)


Take = Callable[[NodeId, PartyId, bytes], None]
"""Gets what a party said, and the node that says so."""


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
    take: Callable[[NodeId, bytes], int]
    asked: int
    ask_again: dict[NodeId, float] = field(default_factory=dict)
    not_taken: set[NodeId] = field(default_factory=set)
    answered: int = 0
    answered_of_counted: int = 0
    volume: int = 0

    def why(self, node: NodeId, now: float) -> str:
        """Return why a node that nobody heard from gave no answer until now, when the exchange closes."""
        if node in self.not_taken:
            return "the engine has no place for its message: it is not connected"
        return "no answer before the deadline" if now >= self.ends else "not waited for: enough had answered"

    def is_over(self, deadlines: Deadlines, now: float) -> bool:
        """Return whether nobody is worth waiting for any more."""
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
        transport: the engine's way to them.
        progress: where the run is followed.
        identity: of the server, which signs every message.
        clock: seconds that only go forward.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        transport: Transport,
        progress: ProgressLog,
        *,
        identity: IdentityKey,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._transport, self._progress, self._clock, self._sleep = transport, progress, clock, sleep
        self._identity = identity
        self._number = 0
        self._lost: set[NodeId] = set()
        self._met: set[NodeId] = set()
        self._silent: dict[NodeId, tuple[int, Refusal | None]] = {}
        """Who gave no answer in this sum, in which exchange last, and the class of reasons of who refused."""
        self._heard: set[NodeId] = set()
        """Who answered or refused in this sum when asked last."""
        self.parties: frozenset[PartyId] = frozenset()
        """Everybody who has a part in the sum at work."""
        self.node_of: dict[PartyId, NodeId] = {}
        """Node of each party, from its last valid message."""

    def online(self) -> list[NodeId]:
        """Return the nodes that can be reached now. It is the engine's word and proves nothing; identities do."""
        return sorted(self._transport.nodes())

    def everybody(self) -> list[NodeId]:
        """Return the nodes that can be reached now, and those asked before: a node may be back at any moment."""
        return sorted({*self.online(), *self._met})

    @contextmanager
    def accounted(self) -> Iterator[None]:
        """Let the error of a sum say how many nodes did not answer, and how many refused for which class of reasons."""
        self._silent, self._heard = {}, set()
        try:
            yield
        except TooFewSurvivorsError as error:
            raise TooFewSurvivorsError(
                stage=error.stage,
                needed=error.needed,
                came=error.came,
                cohort=error.cohort,
                advice=self._account(error),
            ) from error
        except HelperMissingError as error:
            raise HelperMissingError(
                missing=error.missing, needed=error.needed, n_more=error.n_more, advice=self._account(error)
            ) from error
        except UnreachableError as error:
            raise UnreachableError(f"{error}. {self._account(error)}", n_needed=error.n_needed) from error

    def may_still_end(self, error: BaseException) -> bool:
        """Return whether a sum that failed can go on: those whom it lacks gave no answer, and did not refuse.

        Args:
            error: what it failed with.
        """
        # a party whose node nobody knows may be at a node that refused
        is_told = bool(self._heard - set(self.node_of.values()))
        n_away = max(self.n_away, 0 if is_told else len(self.parties - self.node_of.keys()))
        if isinstance(error, TooFewSurvivorsError):
            return error.came + n_away >= error.needed
        if isinstance(error, HelperMissingError):
            return sum(party in self.node_of and self.is_away(party) for party in error.missing) >= error.n_more
        return isinstance(error, UnreachableError) and n_away >= error.n_needed

    def is_away(self, party: PartyId) -> bool:
        """Return whether the node of a party said nothing in this sum: it was not there, or gave no answer."""
        return self.node_of.get(party) not in self._heard

    @property
    def n_away(self) -> int:
        """Number of nodes that said nothing in this sum, or that they could not; those of parties count unasked."""
        return len(self._away)

    @property
    def _away(self) -> set[NodeId]:
        silent = {node for node, (_, refusal) in self._silent.items() if refusal in (None, Refusal.FAILED)}
        return silent | (set(self.node_of.values()) - self._heard)

    def _account(self, error: BaseException) -> str:
        """What the nodes did in this sum, in one or two sentences, with what to do."""
        classes = Counter(refusal for _, refusal in self._silent.values())
        classes.pop(None, 0)
        failed = {node for node, (_, refusal) in self._silent.items() if refusal is Refusal.FAILED}
        n_away, n_nodes = len(self._away - failed), len(self._met | set(self.node_of.values()))
        refused = [
            f'{count} refused ("{REASONS[code]}": {REMEDIES[code]})'
            for code, count in sorted(classes.items(), key=lambda item: item[0] or 0)
            if code is not None
        ]
        said = f"Of {n_nodes} nodes {', '.join([f'{n_away} did not answer', *(refused or ['none refused'])])}."
        if self.may_still_end(error):
            return f"{said} Start the run again with the same settings once they can be reached: it goes on if it can"
        if n_away:
            return f"{said} Too few would be left if all of them answered"
        if not refused:
            return f"{said} A party that takes no part leaves its message out: its site's own log says why"
        return said

    def ask(
        self,
        title: str,
        kind: str,
        contents: Mapping[NodeId, bytes],
        take: Callable[[NodeId, bytes], int],
        deadlines: Deadlines,
    ) -> None:
        """Send each node its content and take the answers one at a time, so that they never pile up here.

        Args:
            title: the round's name, for the log.
            kind: one of ``analytic_secagg.site.messages.KINDS``.
            contents: what each node is told; the same object may go to all.
            take: gets each answer, and returns how many bytes it brought.
            deadlines: when to stop waiting.
        """
        self._number += 1
        self._met.update(contents)
        messages = {id(content): signed(self._identity, kind, content) for content in contents.values()}
        contents = {node: messages[id(content)] for node, content in contents.items()}
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
            self._send_next(kind, contents, round_, deadlines)
            for identifier in list(round_.waiting):
                self._pull(identifier, round_)
            is_over = round_.is_over(deadlines, self._clock())
            if not is_over:
                self._sleep(POLL_SECONDS)
        missing = {*round_.waiting.values(), *round_.unasked, *round_.ask_again}
        for node in sorted(missing - self._lost):  # of the others a line says so already
            self._progress.say("no answer", round=title, **self.named(node), reason=round_.why(node, self._clock()))
        self._lost |= missing
        self._heard -= missing
        self._silent |= dict.fromkeys(missing, (self._number, None))
        counts = {"arrived": round_.answered, "expected": round_.asked, "bytes": round_.volume}
        self._progress.say("round closes", round=title, **counts)

    def _send_next(self, kind: str, contents: Mapping[NodeId, bytes], round_: _Round, deadlines: Deadlines) -> None:
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
            told, seconds = {node: contents[node] for node in chosen}, max(1.0, round_.ends - now)
            taken = self._transport.send(kind, told, seconds=seconds, number=self._number)
            round_.waiting |= taken
            # The engine has no place for the message, perhaps because the node has not registered again yet.
            not_taken = set(chosen).difference(taken.values())
            round_.ask_again |= dict.fromkeys(sorted(not_taken), now + ASK_AGAIN_SECONDS)
            round_.not_taken |= not_taken

    def named(self, node: NodeId) -> dict[str, object]:
        """Return what the log calls a node: the engine's name, and the parties that answered from there."""
        parties = sorted(party for party, place in self.node_of.items() if place == node)
        return {"node": self._transport.name(node)} | ({"parties": parties} if parties else {})

    def _pull(self, ticket: str, round_: _Round) -> None:
        """Take one node's answer, if it is there."""
        answer = self._transport.receive(ticket)
        if answer is None:
            return
        node = round_.waiting.pop(ticket)
        if isinstance(answer, NoReply):
            if answer.may_return:
                round_.ask_again[node] = self._clock() + ASK_AGAIN_SECONDS
            self._lost.add(node)
            self._silent[node] = self._number, answer.refusal
            could_not = answer.refusal in (None, Refusal.FAILED)  # which is no decision, and can be mended
            (self._heard.discard if could_not else self._heard.add)(node)
            self._progress.say("node lost", round=round_.title, **self.named(node), reason=answer.reason)
            return
        self._lost.discard(node)
        self._heard.add(node)
        if self._silent.get(node, (0, None))[0] == self._number:
            del self._silent[node]
        round_.volume += round_.take(node, answer)
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


class SessionExchange:
    """The way to the nodes for one session.

    Args:
        session: its id.
        exchange: the way to the nodes.
        progress: where the run is followed.
    """

    def __init__(self, session: bytes, exchange: Exchange, progress: ProgressLog) -> None:
        self.session = session
        self._exchange, self._progress = exchange, progress

    def everybody(self) -> list[NodeId]:
        """Return ``Exchange.everybody``."""
        return self._exchange.everybody()

    def ask(self, title: str, kind: str, contents: Mapping[NodeId, bytes], take: Take, deadlines: Deadlines) -> None:
        """Ask as ``Exchange.ask``, with one call of ``take`` for each party in an answer."""

        def take_all(node: NodeId, content: bytes) -> int:
            try:
                answered, messages = read_messages(content)
            except WireError:
                answered, messages = b"", {}
            if answered != self.session:
                self.refuse(node, "its answer belongs to no message of this sum")
                return 0
            for party, message in messages.items():
                take(node, party, message)
            return sum(map(len, messages.values()))

        self._exchange.ask(title, kind, contents, take_all, deadlines)

    def refuse(self, node: NodeId, reason: str) -> None:
        """Note that what a node said was not taken."""
        self._progress.say("refused", **self._exchange.named(node), reason=reason)

    def note(self, node: NodeId, party: PartyId, sent: str, message: bytes) -> None:
        """Note that what a party said was taken, and where it is."""
        self._exchange.node_of[party] = node
        self._progress.say("party", node=self._exchange.named(node)["node"], party=party, sent=sent, bytes=len(message))
