"""Interfaces of the sessions: state machines that exchange messages, without I/O, clocks or threads.

The calls in order: each client's ``start``, the server's ``receive`` for every message, the server's ``close_round``,
each client's ``receive`` for the server's message, and so on until ``ServerSession.result`` is not None.
``run_in_memory`` is such a driver.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from secagg.layout import IntVector
from secagg.ring import RingVector

PartyId = int
"""Public number of a party, 1 to 2^32 - 1. Clients and helpers of one session have different numbers."""

ClientInput = IntVector | Callable[[], IntVector | RingVector]
"""A client's vector, or a callable that returns it when it is needed (a simulation then need not store them all). Words
that a callable returns are the session's own from then on: it masks them where they are."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumResult:
    """Result of a sum: all that the server learns.

    Args:
        total: sum of the survivors' vectors, int64 of shape (layout.size,), read-only.
        survivors: the clients whose vectors are in the total, ascending.
        disputes: (owner, holder) of each wrong share that was found and left out: either the holder revealed another
            share than it received, or the owner sent a wrong one. In a committee: two helpers that sent different sums
            of the same masks.
        complaints: (client, helper) of each client whose seeds a helper could not open. Clients that were left out for
            it are not among the survivors.
        receipt: the server's copy of its receipt, as bytes; empty for sums without receipts.

    >>> import numpy as np
    >>> result = SumResult(total=np.array([4, 6]), survivors=(1, 2), disputes=((1, 3), (2, 3)))
    >>> result.malicious_parties(corrupt=1)
    (3,)
    """

    total: IntVector
    survivors: tuple[PartyId, ...]
    disputes: tuple[tuple[PartyId, PartyId], ...] = ()
    complaints: tuple[tuple[PartyId, PartyId], ...] = ()
    receipt: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        self.total.setflags(write=False)

    def malicious_parties(self, corrupt: int) -> tuple[PartyId, ...]:
        """Return the parties that are certainly malicious if at most ``corrupt`` are.

        These are the parties in a dispute with more than ``corrupt`` others.
        """
        times = Counter(party for dispute in self.disputes for party in set(dispute))
        return tuple(sorted(party for party, disputes in times.items() if disputes > corrupt))


class Session(Protocol):
    """Interface of a session that can be stored and restored in another process."""

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored: format, role, party and configuration."""
        ...

    def snapshot(self) -> bytes:
        """Return the state of the session as bytes. They contain its secrets: encrypt them or protect the file."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of ``snapshot`` into this new session.

        Raises:
            SnapshotError: the bytes were changed.
        """
        ...


class ClientSession(Session, Protocol):
    """Interface of a client's (or helper's) side of one sum. Messages are bytes.

    >>> import numpy as np
    >>> from secagg import Layout, PlainSum, new_session_id
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol = PlainSum(layout=layout, clients=(1, 2), session_id=new_session_id())
    >>> client = protocol.client(1, np.array([3, 4]))
    >>> message = client.start()  # to the server
    """

    @property
    def party(self) -> PartyId:
        """Number of the party."""
        ...

    def start(self) -> bytes | None:
        """Return the first message; call it once. None for a party that only answers."""
        ...

    def receive(self, message: bytes) -> bytes | None:
        """Return the answer to a message of the server; None if there is none.

        Raises:
            MalformedMessageError: the frame belongs to another session; this one continues. Or the payload does not
                parse, which aborts it.
            RepeatedMessageError: the message was answered before; the session continues.
            LocalProtocolError: the session has not started, has ended or was aborted.
            RemoteProtocolError: the server violated the protocol; the session is aborted and its secrets are erased.
        """
        ...


class ServerSession(Session, Protocol):
    """Interface of the server's side of one sum. The caller decides when a round ends.

    >>> import numpy as np
    >>> from secagg import Layout, PlainSum, new_session_id
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol = PlainSum(layout=layout, clients=(1, 2), session_id=new_session_id())
    >>> server = protocol.server()
    >>> for party in protocol.clients:
    ...     server.receive(party, protocol.client(party, np.array([party, 1])).start())
    >>> server.close_round()
    {}
    >>> server.result.total
    array([3, 2])
    """

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process one message of the current round.

        Raises:
            RemoteProtocolError: the message is refused; the session continues without it.
            LocalProtocolError: the session has its result or was aborted, as where a message comes late; or ``sender``
                is no plain int (such as a text of a URL) or ``message`` no bytes, which changes nothing.
        """
        ...

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round and return the next messages by recipient.

        After the last round ``result`` is set; the messages then are none, or receipts that nobody answers.

        Raises:
            TooFewSurvivorsError: too few parties answered; the session is aborted and no sum is released. Likewise for
                ``HelperMissingError``, ``HelperDisputeError``, ``SumOutOfBoundsError``, and a ``RemoteProtocolError``
                where what parties sent contradicts itself: catch ``SecureSumError``, and begin another session.
            LocalProtocolError: the session had its result, or was aborted, before.
        """
        ...

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties that were asked in this round and have not answered."""
        ...

    @property
    def result(self) -> SumResult | None:
        """Result after the last round; None before."""
        ...


class FailureSession(Protocol):
    """Interface of the server's side that certifies a failed sum: parties sign that no total of it will be released.

    It needs no state of the sum's own session, so it can be created again at any time.
    """

    def requests(self) -> Mapping[PartyId, bytes]:
        """Return the requests by recipient."""
        ...

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process one answer.

        Raises:
            RemoteProtocolError: the message is refused.
        """
        ...

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties that have not answered."""
        ...

    @property
    def n_more(self) -> int:
        """Number of answers that the proof still needs."""
        ...

    @property
    def proof(self) -> bytes:
        """Proof for ``SumProtocol.check_failure``; empty until enough parties have answered."""
        ...
