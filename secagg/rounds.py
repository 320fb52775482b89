"""Rounds at the server: who is asked, who has answered, and what is refused."""

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
        answer: the type of message that is due.
        asked: who may answer, once each.
        answered: who did.
    """

    answer: MessageType
    asked: frozenset[PartyId]
    answered: set[PartyId] = field(default_factory=set)

    @classmethod
    def of(cls, answer: MessageType, asked: Iterable[PartyId]) -> Round:
        """Return a round that nobody has answered yet."""
        return cls(answer, frozenset(asked))

    def check(self, sender: PartyId, frame: Frame) -> None:
        """Refuse what is not due from its sender. Call ``accept`` once a message's content is checked too.

        Raises:
            RemoteProtocolError: a stranger, a repetition, or a message of another round.
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
        """Refuse to go on with fewer answers.

        Raises:
            TooFewSurvivorsError: fewer came.
        """
        if len(self.answered) < needed:
            raise TooFewSurvivorsError(
                stage=self.answer.name, needed=needed, came=len(self.answered), cohort=len(self.asked)
            )

    def need_all(self) -> None:
        """Refuse to go on without the answer of every helper that was asked.

        Raises:
            HelperMissingError: some are missing.
        """
        if self.waiting_for:
            raise HelperMissingError(missing=tuple(sorted(self.waiting_for)))

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Who was asked and has not answered."""
        return self.asked - self.answered


@dataclass(slots=True, kw_only=True, eq=False)
class RoundState:
    """What the servers of all sums keep: the round they are in, and the result once there is none."""

    round: Round | None
    result: SumResult | None = None


R = TypeVar("R", bound=RoundState)


class ServerRounds(Party, Stored[R]):
    """A server that is in one round after the other; its class says what else it keeps.

    Args:
        config: the sum.
        kept: the state that a session begins with.
        secrets: its signing key, if the sum has identities.
    """

    _config: SumConfig

    def __init__(self, config: SumConfig, kept: R, secrets: PartySecrets) -> None:
        Party.__init__(self, config, SERVER, secrets)
        self._kept = kept

    @property
    def snapshot_id(self) -> bytes:
        """What ties a stored session to this one."""
        return binding(SERVER_KIND, self._config.digest, SERVER)

    @property
    def result(self) -> SumResult | None:
        """The sum, once the last round is closed."""
        return self._kept.result

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Who was asked in this round and has not answered."""
        return self._kept.round.waiting_for if self._kept.round else frozenset()

    @contextmanager
    def _taking(self) -> Iterator[Round]:
        """The round in which a message is taken: refused it changes nothing, stopped halfway it ends the session.

        What is stopped halfway (Ctrl-C, no memory left) may have added half a vector. To go on from there would give a
        wrong total that looks like a right one; a snapshot from before is whole.
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
        """The round that is closed; what keeps it from being closed, a refusal or a stop halfway, ends the session."""
        try:
            yield self._current()
        except BaseException:
            self._kept.round = None
            raise

    def _due(self, round_: Round, sender: PartyId, message: bytes) -> Frame:
        """The frame of a message that is due from its sender.

        Raises:
            RemoteProtocolError: a message of another session, forged, of another round, repeated, or a stranger's.
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
        """End the session with its total; nobody is asked for more.

        Raises:
            SumOutOfBoundsError: no total of so many clients within their bounds.
        """
        total, counted = words.decode(), tuple(sorted(survivors))
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
