"""One sum over an engine's nodes: the server's session, driven by exchanges."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from analytic_secagg.server.exchange import Deadlines, NodeId, SessionExchange
from analytic_secagg.server.run_store import NodeAddresses, RunStore
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import DeploymentError, UnreachableError
from analytic_secagg.site.messages import INVITE, STEP, write_messages, write_proposal
from analytic_secagg.site.presence import check_presence
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.session import Session
from secagg import DurableServer, PartyId, PartySecrets, ServerSession, SumProtocol, SumResult
from secagg.errors import RemoteProtocolError
from secagg.sessions import FailureSession
from secagg.wire import HEADER_BYTES, PART_SIZE_BYTES, MessageType, message_type

_BEFORE_VECTORS = {MessageType.ROSTER.name, MessageType.SHARE_DELIVERY.name}
"""Requests whose answers come before clients' vectors, or have them, where first messages do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSide:
    """All that a server makes a sum with.

    Args:
        file: its own roster and key.
        exchange: the way to the nodes.
        deadlines: of every exchange.
        store: the run's state.
        addresses: where the parties are; in a series, that were met before. It is kept up to date.
    """

    file: ServerFile
    exchange: SessionExchange
    deadlines: Deadlines
    store: RunStore
    addresses: NodeAddresses


def run_sum(
    proposal: TrainingProposal, side: ServerSide, expected: frozenset[PartyId], needed: frozenset[PartyId]
) -> SumResult:
    """The sum that is proposed, by itself; it goes on where its store has a session of it.

    Args:
        proposal: the sum, with what helpers announced (``server.announcements``).
        side: the server's.
        expected: clients of the run's sum before. Without one of them the others refuse, so each of these is asked
            again until the deadline.
        needed: those of them without whom the sum stops before anybody agrees to it, since what the others paid for it
            would be lost.

    Raises:
        UnreachableError: a helper of the committee, the key holder or a needed client is not there.
        SecureSumError: too few clients stayed, or another reason for which no total is released.
    """
    protocol = Session.of(proposal, side.file.roster).protocol
    session = protocol.server(secrets=PartySecrets(identity=side.file.identity))
    sum_ = GridSum(protocol, session, side, expected, needed)
    return sum_.resume() if sum_.has_begun else sum_.begin(proposal)


def failure_of(proposal: TrainingProposal, server: ServerFile) -> FailureSession | None:
    """Return the session in which a failure of this sum is certified; None where the mode has no proofs.

    It needs nothing of the sum's own session, so that a server which was started again can ask for it.

    Raises:
        WireError, ConfigurationError, FederationError: as ``Session.of``.
    """
    return Session.of(proposal, server.roster).protocol.failure(secrets=PartySecrets(identity=server.identity))


def certify(failure: FailureSession, proposal: TrainingProposal, side: ServerSide) -> None:
    """Ask who can for a proof that a sum failed."""
    protocol = Session.of(proposal, side.file.roster).protocol
    with suppress(DeploymentError):  # the nodes cannot be reached, which is told elsewhere
        _Rounds(protocol, failure, side).request(failure.requests())


class _Rounds:
    """Requests to the parties of a sum, each at its node, and what they answer, which ``listening`` takes."""

    def __init__(
        self,
        protocol: SumProtocol,
        listening: DurableServer | FailureSession,
        side: ServerSide,
        expected: frozenset[PartyId] = frozenset(),
    ) -> None:
        self._expected = expected
        self._protocol, self._helpers, self._listening = protocol, protocol.helpers, listening
        self._exchange, self._deadlines, self._addresses = side.exchange, side.deadlines, side.addresses

    def request(self, requests: Mapping[PartyId, bytes]) -> None:
        """Ask these parties, and take what they answer."""
        session = self._exchange.session
        contents = {node: write_messages(asked, session=session) for node, asked in self._by_node(requests).items()}
        if requests.keys().isdisjoint(self._helpers):
            deadlines = replace(
                self._deadlines,
                of=self._n_client_nodes,
                complete=lambda: self._expected.isdisjoint(self._listening.waiting_for),
            )
        else:
            # so many that are lost are not waited for; who is slow is
            away = self._protocol.guarantee.helper_dropout_tolerance
            deadlines = replace(self._deadlines, quorum=1.0, complete=lambda: len(self._listening.waiting_for) <= away)
        self._exchange.ask(_name(next(iter(requests.values()))), STEP, contents, self._take, deadlines)

    def _by_node(self, requests: Mapping[PartyId, bytes]) -> dict[NodeId, dict[PartyId, bytes]]:
        by_node: dict[NodeId, dict[PartyId, bytes]] = {}
        for party, message in requests.items():  # a helper that never came has no seat, where a sum bears that
            if party in self._addresses.node_of:
                by_node.setdefault(self._addresses.node_of[party], {})[party] = message
        return by_node

    @property
    def _n_client_nodes(self) -> int:
        """Number of nodes that were invited as clients, as far as is known: all but those of helpers only."""
        node_of, helpers = self._addresses.node_of, set(self._helpers)
        helping = {node for party, node in node_of.items() if party in helpers}
        return self._addresses.n_invited - len(
            helping - {node for party, node in node_of.items() if party not in helpers}
        )

    def _take(self, node: NodeId, party: PartyId, message: bytes) -> None:
        if self._addresses.node_of.get(party) != node:
            self._exchange.refuse(node, f"party {party} is at another node")
        else:
            self._feed(node, party, message)

    def _feed(self, node: NodeId, party: PartyId, message: bytes) -> bool:
        """Return whether a message was taken; an empty one is fine, and presence is no message of the sum."""
        if not message:
            return True
        try:
            if party in self._helpers and party not in self._addresses.node_of:
                check_presence(self._protocol, party, message)
            else:
                self._listening.receive(party, message)
        except RemoteProtocolError as error:
            self._exchange.refuse(node, str(error))
            return False
        self._exchange.note(node, party, _name(message), message)
        return True


class GridSum(_Rounds):
    """One sum. What the server sends is stored before it leaves.

    Args:
        protocol: the sum.
        session: the server's, fresh; it goes on where the store has a record of it.
        side, expected, needed: see ``run_sum``.
    """

    def __init__(
        self,
        protocol: SumProtocol,
        session: ServerSession,
        side: ServerSide,
        expected: frozenset[PartyId] = frozenset(),
        needed: frozenset[PartyId] = frozenset(),
    ) -> None:
        self._store, self._needed = side.store, needed
        self._session = DurableServer(side.store.session, session, each_message=False)  # sites repeat what they sent
        _Rounds.__init__(self, protocol, self._session, side, expected)

    @property
    def has_begun(self) -> bool:
        """Whether the first round was closed, by this process or by one before."""
        return bool(self._session.requests) or self._session.result is not None

    def begin(self, proposal: TrainingProposal) -> SumResult:
        """Return the result of the sum, from its proposal on. Every node is invited that is there by now.

        Raises:
            UnreachableError: a helper is not there.
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        contents = dict.fromkeys(self._exchange.everybody(), write_proposal(proposal))
        n_parties = len(proposal.clients) + len(self._helpers)
        self._addresses.n_invited = max(self._addresses.n_invited, min(len(contents), n_parties))
        self._store.keep_addresses(self._addresses)  # who is asked now may have to be told how it ends
        deadlines = replace(
            self._deadlines,
            of=self._addresses.n_invited,
            complete=lambda: not self._helpers_missing() and self._expected <= self._addresses.node_of.keys(),
        )
        self._exchange.ask("INVITATION", INVITE, contents, self._take_first, deadlines)
        spare = self._protocol.guarantee.helper_dropout_tolerance
        if len(missing := self._helpers_missing()) > spare:
            raise UnreachableError(
                f"{len(missing)} of the {len(self._helpers)} helpers did not answer (party "
                f"{', '.join(map(str, missing))}); without {len(self._helpers) - spare} of them no total can be "
                "released. Start their nodes, or read in their logs why they declined (a node's reason is above), "
                "and run again",
                n_needed=len(missing) - spare,
            )
        self._store.keep_addresses(self._addresses)
        return self._finish()

    def begin_set_up(self) -> Mapping[PartyId, bytes]:
        """Return what the proposal of a later sum of a series brings to those that were set up for it.

        Raises:
            TooFewSurvivorsError: too few were.
        """
        return self._session.close_round()

    def go_on(self, proposal: TrainingProposal, requests: Mapping[PartyId, bytes]) -> SumResult:
        """A later sum of a series: the proposal travels with the first requests, to whom was set up for this sum.

        Raises:
            SecureSumError: as in ``begin``.
        """
        contents = {node: write_proposal(proposal, asked) for node, asked in self._by_node(requests).items()}
        deadlines = replace(self._deadlines, of=self._n_client_nodes)
        self._exchange.ask("INVITATION", INVITE, contents, self._take, deadlines)
        return self._finish()

    def resume(self) -> SumResult:
        """Go on with a sum that another process left: what it may have sent is sent again, and sites repeat themselves.

        Raises:
            SecureSumError: as in ``begin``.
        """
        if self._session.requests:
            self.request(self._session.requests)
        return self._finish()

    def resume_later(self, proposal: TrainingProposal) -> SumResult:
        """As ``resume``, in a later sum of a series, whose first requests travel with its proposal."""
        requests = self._session.requests
        is_first = any(_name(message) == MessageType.SHARE_DELIVERY.name for message in requests.values())
        return self.go_on(proposal, requests) if is_first else self.resume()

    def _finish(self) -> SumResult:
        while self._session.result is None:
            self._check_needed()
            if requests := self._session.close_round():
                self.request(requests)
        return self._session.result

    def _check_needed(self) -> None:
        """Stop before a round is closed without a vector that no total of this run may lack.

        Raises:
            UnreachableError: says whose.
        """
        last = next(iter(self._session.requests.values()), b"")
        if last and _name(last) not in _BEFORE_VECTORS:
            return
        if missing := sorted(self._needed & self._session.waiting_for):
            raise UnreachableError(
                f"clients {', '.join(map(str, missing))} must be in this sum too, since they are in the run's sum "
                "before; they are not, the others would refuse a total without them, and what they paid would be lost",
                n_needed=len(missing),
            )

    def _take_first(self, node: NodeId, party: PartyId, message: bytes) -> None:
        """A party belongs to the first node whose message for it was good; a helper only says that it is there."""
        if party in self._addresses.node_of:
            self._take(node, party, message)
        elif message and self._feed(node, party, message):
            self._addresses.node_of[party] = node

    def _helpers_missing(self) -> list[PartyId]:
        return sorted(set(self._helpers) - self._addresses.node_of.keys())


def _name(message: bytes) -> str:
    """Return the name of a message's type; of a bundle, that of its first message."""
    type_ = message_type(message)
    if type_ is MessageType.BUNDLE:
        type_ = message_type(message[HEADER_BYTES + PART_SIZE_BYTES :])
    return type_.name if type_ else "?"
