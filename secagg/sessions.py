"""The interfaces: a secure sum as a dialogue of messages between sessions without I/O, clock or threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from secagg.layout import IntVector

PartyId = int
"""A party's public number, 1 to 2^32 - 1. Clients and helpers of one session share the number space."""

ClientInput = IntVector | Callable[[], IntVector]
"""A client's vector, or a call that makes it when it is needed (so that a simulation need not hold them all)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumResult:
    """What the server learned, and all it learned.

    Args:
        total: the sum over the survivors' vectors, int64 of shape (layout.size,), read-only.
        survivors: the parties whose vectors are in it, ascending.
        disputes: (owner, holder) of each wrong share that stood in the way and was done without: the holder revealed
            another one than it was given, or the owner gave it a wrong one. In a committee, two helpers that gave
            different sums of the same masks. ``malicious_parties`` says what follows from them.
        complaints: (client, helper) of each client whose sealed seeds a helper could not use, as the helper says. Whom
            it was believed about is no survivor.
        receipt: the server's own copy of its receipt, as bytes; empty where the sum gives none.
    """

    total: IntVector
    survivors: tuple[PartyId, ...]
    disputes: tuple[tuple[PartyId, PartyId], ...] = ()
    complaints: tuple[tuple[PartyId, PartyId], ...] = ()
    receipt: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        self.total.setflags(write=False)

    def malicious_parties(self, corrupt: int) -> tuple[PartyId, ...]:
        """Who lied for sure, if at most ``corrupt`` parties do: whoever is in dispute with more others than that."""
        times = Counter(party for dispute in self.disputes for party in set(dispute))
        return tuple(sorted(party for party, disputes in times.items() if disputes > corrupt))


class Session(Protocol):
    """What both sides of a sum have: they can be stored, and go on in another process."""

    @property
    def snapshot_id(self) -> bytes:
        """What ties a stored session to this one: format, role, party and configuration."""
        ...

    def snapshot(self) -> bytes:
        """Return the session as bytes that hold its secrets: seal them, or keep them where only their owner reads."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Put this fresh session where ``snapshot`` says.

        Raises:
            SnapshotError: changed bytes.
        """
        ...


class ClientSession(Session, Protocol):
    """One client's (or helper's) side of one sum. Bytes in, bytes out."""

    @property
    def party(self) -> PartyId:
        """Whose side this is."""
        ...

    def start(self) -> bytes | None:
        """The first message, to be called once; None for a party that only answers."""
        ...

    def receive(self, message: bytes) -> bytes | None:
        """Answer the server's message; None ends this side.

        Raises:
            MalformedMessageError: a foreign frame, and the session goes on; or a broken payload, as below.
            RepeatedMessageError: answered before; the session goes on.
            LocalProtocolError: the session has not started, is over or was aborted; it stays so.
            RemoteProtocolError: the server broke the protocol; the session is aborted, its secrets forgotten.
        """
        ...


class ServerSession(Session, Protocol):
    """The server's side of one sum. The driver decides when a round is over."""

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Take one message of the current round.

        Raises:
            RemoteProtocolError: the message is refused; the session goes on without it.
        """
        ...

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round and return the next messages by recipient; once the result stands none, or such as end a sum.

        Raises:
            TooFewSurvivorsError: the round came up short; the session is aborted and no sum released.
        """
        ...

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties asked in this round that have not answered yet."""
        ...

    @property
    def result(self) -> SumResult | None:
        """The sum once the last round is closed, None before."""
        ...


class FailureSession(Protocol):
    """The server's side after a sum failed: it asks those who can tell to certify that no total of it comes out.

    It needs nothing of the sum's own session, so it may be made anew as often as one likes.
    """

    def requests(self) -> Mapping[PartyId, bytes]:
        """Return what each of them is asked."""
        ...

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Take one answer.

        Raises:
            RemoteProtocolError: the message is refused.
        """
        ...

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Who has not answered."""
        ...

    @property
    def proof(self) -> bytes:
        """What convinces whoever knows the sum (``SumProtocol.check_failure``); empty while too few have answered."""
        ...
