"""Rounds of a server: parties asked, parties that answered, and refused messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from secagg.config import SERVER, SumConfig
from secagg.errors import (
    HelperMissingError,
    LocalProtocolError,
    RemoteProtocolError,
    RepeatedMessageError,
    SecureSumError,
    TooFewSurvivorsError,
)
from secagg.party import Party
from secagg.ring import RingVector
from secagg.sessions import PartyId, SumResult
from secagg.snapshots import SERVER as SERVER_KIND
from secagg.snapshots import Stored, binding
from secagg.sums import PartySecrets
from secagg.wire import Frame, MessageType


@dataclass(slots=True, eq=False)
class Round:
    """The answers of one round. A refused message changes nothing.

    Args:
        answer: type of the message that is due.
        asked: parties that may answer, once each.
        answered: parties that have answered.
    """

    answer: MessageType
    asked: frozenset[PartyId]
    answered: set[PartyId] = field(default_factory=set)

    @classmethod
    def of(cls, answer: MessageType, asked: Iterable[PartyId]) -> Round:
        """Create a round without answers."""
        return cls(answer, frozenset(asked))

    def check(self, sender: PartyId, frame: Frame) -> None:
        """Refuse a message that is not due from its sender. Call ``accept`` after its content was checked too.

        Raises:
            RemoteProtocolError: the sender was not asked or has answered before, or the message is of another round.
        """
        if sender not in self.asked:
            raise RemoteProtocolError(
                f"only the {len(self.asked)} parties that took part in the previous round may send "
                f"{self.answer.name} now; this one is a stranger or dropped out. It can join the next session",
                peer=sender,
            )
        if frame.type is not self.answer:
            raise RemoteProtocolError(
                f"the server is waiting for {self.answer.name} and got {frame.type.name}; "
                "a late or early message is not taken",
                peer=sender,
            )
        if sender in self.answered:
            raise RepeatedMessageError(f"its {self.answer.name} was taken already and counts once", peer=sender)

    def accept(self, sender: PartyId) -> None:
        """Count the sender as having answered."""
        self.answered.add(sender)

    def need(self, needed: int) -> None:
        """Refuse to continue with fewer than ``needed`` answers.

        Raises:
            TooFewSurvivorsError: fewer parties answered.
        """
        if len(self.answered) < needed:
            raise TooFewSurvivorsError(
                stage=self.answer.name, needed=needed, came=len(self.answered), cohort=len(self.asked)
            )

    def need_all(self) -> None:
        """Refuse to continue without the answer of every helper that was asked.

        Raises:
            HelperMissingError: a helper has not answered.
        """
        if self.waiting_for:
            raise HelperMissingError(missing=tuple(sorted(self.waiting_for)))

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties that were asked and have not answered."""
        return self.asked - self.answered


@dataclass(slots=True, kw_only=True, eq=False)
class RoundState:
    """State of every server: the current round; after the last one the result."""

    round: Round | None
    result: SumResult | None = None


R = TypeVar("R", bound=RoundState)


class ServerRounds(Party, Stored[R]):
    """Base class of servers that work in rounds.

    Args:
        config: the sum.
        kept: initial state.
        secrets: the server's signing key, if the sum has identities.
    """

    _config: SumConfig

    def __init__(self, config: SumConfig, kept: R, secrets: PartySecrets) -> None:
        Party.__init__(self, config, SERVER, secrets)
        self._kept = kept

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored."""
        return binding(SERVER_KIND, self._config.digest, SERVER)

    @property
    def result(self) -> SumResult | None:
        """Result after the last round; None before."""
        return self._kept.result

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties that were asked in this round and have not answered."""
        return self._kept.round.waiting_for if self._kept.round else frozenset()

    @contextmanager
    def _taking(self) -> Iterator[Round]:
        """Yield the round in which a message is processed: a refusal changes nothing, an interrupt ends the session.

        An interrupt (Ctrl-C, out of memory) may have added half a vector; continuing would give a wrong total. Restore
        an earlier snapshot instead.
        """
        round_ = self._current()
        try:
            yield round_
        except SecureSumError:
            raise
        except BaseException:
            self._kept.round = None
            raise

    @contextmanager
    def _closing(self) -> Iterator[Round]:
        """Yield the round that is closed; any exception ends the session."""
        try:
            yield self._current()
        except BaseException:
            self._kept.round = None
            raise

    def _due(self, round_: Round, sender: PartyId, message: bytes) -> Frame:
        """Return the frame of a message that is due from its sender.

        Raises:
            RemoteProtocolError: the message is of another session or round, repeated, forged, or its sender was not
                asked.
        """
        frame = self._open_message(message, sender)
        round_.check(sender, frame)
        return frame

    def _end(
        self,
        words: RingVector,
        survivors: Iterable[PartyId],
        *,
        disputes: Iterable[tuple[PartyId, PartyId]] = (),
        complaints: Iterable[tuple[PartyId, PartyId]] = (),
    ) -> Mapping[PartyId, bytes]:
        """End the session with its total.

        Raises:
            SumOutOfBoundsError: the total exceeds the bounds of so many clients.
        """
        total, counted = words.decode(), tuple(sorted(survivors))
        words.clear()
        self._config.layout.check_total(total, len(counted), len(self._config.clients))
        self._kept.result = SumResult(
            total=total,
            survivors=counted,
            disputes=tuple(sorted(disputes)),
            complaints=tuple(sorted(complaints)),
        )
        self._kept.round = None
        return {}

    def _current(self) -> Round:
        if self._kept.round is None:
            raise LocalProtocolError(
                "this session is over: it released its sum, was aborted or was stopped halfway; start a new one, or go "
                "on from a snapshot"
            )
        return self._kept.round
