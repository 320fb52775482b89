"""One sum over an engine's nodes: the server's session, driven by exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from analytic_secagg.server.exchange import Deadlines, NodeId, SessionExchange
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import DeploymentError, UnreachableError
from analytic_secagg.site.messages import INVITE, STEP, write_messages, write_proposal
from analytic_secagg.site.presence import check_presence
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.session import Session
from secagg import PartyId, PartySecrets, ServerSession, SumProtocol, SumResult
from secagg.errors import RemoteProtocolError
from secagg.sessions import FailureSession
from secagg.wire import HEADER_BYTES, PART_SIZE_BYTES, MessageType, message_type


@dataclass(slots=True)
class NodeAddresses:
    """Nodes of the parties of a sum, or of all sums of a series.

    Args:
        node_of: each party's node.
        n_invited: how many nodes were invited at first, of which every later quorum is a fraction; no more than there
            are parties, since other nodes have no part.
    """

    node_of: dict[PartyId, NodeId] = field(default_factory=dict)
    n_invited: int = 0


def run_sum(
    proposal: TrainingProposal,
    server: ServerFile,
    exchange: SessionExchange,
    deadlines: Deadlines,
    failed: Callable[[bytes], None],
) -> SumResult:
    """The sum that is proposed, by itself.

    Args:
        proposal: the sum, with what helpers announced (``server.announcements``).
        server: the server's own roster and key.
        exchange: the way to the nodes.
        deadlines: of every exchange.
        failed: gets what proves to the sites that the sum failed, where its helpers certify that.

    Raises:
        UnreachableError: a helper of the committee or the key holder is not there.
        SecureSumError: too few clients stayed, or another reason for which no total is released.
    """
    protocol = Session.of(proposal, server.roster).protocol
    secrets = PartySecrets(identity=server.identity)
    sum_ = GridSum(protocol, protocol.server(secrets=secrets), exchange, deadlines)
    try:
        return sum_.begin(proposal)
    except BaseException:  # however it ended, an operator's Ctrl-C too: else every site counts a total that is none
        if (failure := protocol.failure(secrets=secrets)) is not None:
            failed(sum_.certify(failure))
        raise


class GridSum:
    """One sum.

    Args:
        protocol: the sum.
        session: the server's.
        exchange: the way to the nodes.
        deadlines: of every exchange.
        addresses: in a series, where the parties are that were met before; they are kept up to date.
    """

    def __init__(
        self,
        protocol: SumProtocol,
        session: ServerSession,
        exchange: SessionExchange,
        deadlines: Deadlines,
        addresses: NodeAddresses | None = None,
    ) -> None:
        self._protocol, self._helpers = protocol, protocol.helpers
        self._session, self._exchange, self._deadlines = session, exchange, deadlines
        self._listening: ServerSession | FailureSession = session
        self._addresses = addresses or NodeAddresses()

    def begin(self, proposal: TrainingProposal) -> SumResult:
        """Return the result of the sum, from its proposal on. Every node is invited that is there by now.

        Raises:
            UnreachableError: a helper is not there.
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        contents = dict.fromkeys(self._exchange.everybody(), write_proposal(proposal))
        n_parties = len(proposal.clients) + len(self._helpers)
        self._addresses.n_invited = min(len(contents), n_parties)
        deadlines = replace(self._deadlines, of=self._addresses.n_invited, complete=lambda: not self._helpers_missing())
        self._exchange.ask("INVITATION", INVITE, contents, self._take_first, deadlines)
        needed = len(self._helpers) - self._protocol.guarantee.helper_dropout_tolerance
        if len(missing := self._helpers_missing()) > self._protocol.guarantee.helper_dropout_tolerance:
            raise UnreachableError(
                f"{len(missing)} of the {len(self._helpers)} helpers did not answer (party "
                f"{', '.join(map(str, missing))}); without {needed} of them no total can be released. Start their "
                "nodes, or read in their logs why they declined (a node's reason stands above), and run again"
            )
        return self._finish()

    def go_on(self, proposal: TrainingProposal, requests: Mapping[PartyId, bytes]) -> SumResult:
        """A later sum of a series: the proposal travels with the first requests, to whom was set up for this sum.

        Raises:
            SecureSumError: as in ``begin``.
        """
        contents = {node: write_proposal(proposal, asked) for node, asked in self._by_node(requests).items()}
        deadlines = replace(self._deadlines, of=self._n_client_nodes)
        self._exchange.ask("INVITATION", INVITE, contents, self._take, deadlines)
        return self._finish()

    def certify(self, failure: FailureSession) -> bytes:
        """Return the proof that this sum failed; empty where too few helpers certify it, or none is there."""
        self._listening = failure
        try:
            self._request(failure.requests())
        except DeploymentError:
            return b""  # the nodes cannot be reached, which is told elsewhere
        return failure.proof

    def _finish(self) -> SumResult:
        while self._session.result is None:
            if requests := self._session.close_round():
                self._request(requests)
        return self._session.result

    def _by_node(self, requests: Mapping[PartyId, bytes]) -> dict[NodeId, dict[PartyId, bytes]]:
        by_node: dict[NodeId, dict[PartyId, bytes]] = {}
        for party, message in requests.items():  # a helper that never came has no seat, where a sum bears that
            if party in self._addresses.node_of:
                by_node.setdefault(self._addresses.node_of[party], {})[party] = message
        return by_node

    def _request(self, requests: Mapping[PartyId, bytes]) -> None:
        session = self._exchange.session
        contents = {node: write_messages(asked, session=session) for node, asked in self._by_node(requests).items()}
        if requests.keys().isdisjoint(self._helpers):
            deadlines = replace(self._deadlines, of=self._n_client_nodes)
        else:
            # so many that are lost are not waited for; who is slow is
            away = self._protocol.guarantee.helper_dropout_tolerance
            deadlines = replace(self._deadlines, quorum=1.0, complete=lambda: len(self._listening.waiting_for) <= away)
        self._exchange.ask(_name(next(iter(requests.values()))), STEP, contents, self._take, deadlines)

    @property
    def _n_client_nodes(self) -> int:
        """Number of nodes that were invited as clients, as far as is known: all but those of helpers only."""
        node_of, helpers = self._addresses.node_of, set(self._helpers)
        helping = {node for party, node in node_of.items() if party in helpers}
        return self._addresses.n_invited - len(
            helping - {node for party, node in node_of.items() if party not in helpers}
        )

    def _take_first(self, node: NodeId, party: PartyId, message: bytes) -> None:
        """A party belongs to the first node whose message for it was good; a helper only says that it is there."""
        if party in self._addresses.node_of:
            self._take(node, party, message)
        elif message and self._feed(node, party, message):
            self._addresses.node_of[party] = node

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

    def _helpers_missing(self) -> list[PartyId]:
        return sorted(set(self._helpers) - self._addresses.node_of.keys())


def _name(message: bytes) -> str:
    """Return the name of a message's type; of a bundle, that of its first message."""
    type_ = message_type(message)
    if type_ is MessageType.BUNDLE:
        type_ = message_type(message[HEADER_BYTES + PART_SIZE_BYTES :])
    return type_.name if type_ else "?"
