"""One sum over Flower's nodes: the server's session, driven by exchanges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from flwr.app import RecordDict

from secagg import CommitteeSum, PartyId, ServerSession, SumProtocol, SumResult
from secagg.errors import RemoteProtocolError
from secagg.primitives.identity import IdentityKey
from secagg.wire import message_type
from simulations.flower.errors import UnreachableError, WireError
from simulations.flower.exchange import Deadlines, Exchange, NodeId
from simulations.flower.invitation import Invitation
from simulations.flower.progress_log import ProgressLog
from simulations.flower.wire import INVITE, STEP, read_messages, write_invitation, write_messages


class GridSum:
    """One sum.

    Args:
        protocol: its public parameters.
        identity: the server's signing key.
        exchange: the way to the nodes.
        progress: where the run is followed.
        deadlines: of every exchange.
    """

    def __init__(
        self,
        protocol: SumProtocol,
        *,
        identity: IdentityKey,
        exchange: Exchange,
        progress: ProgressLog,
        deadlines: Deadlines,
    ) -> None:
        self._protocol, self._exchange, self._progress, self._deadlines = protocol, exchange, progress, deadlines
        self._session: ServerSession = (
            protocol.server(identity=identity) if isinstance(protocol, CommitteeSum) else protocol.server()
        )
        self._node_of: dict[PartyId, NodeId] = {}
        self._helpers = [party for party, _ in protocol.helper_keys] if isinstance(protocol, CommitteeSum) else []

    def run(self, invitation: Invitation, nodes: list[NodeId]) -> SumResult:
        """The sum.

        Raises:
            UnreachableError: a helper of the committee is not there.
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        session = invitation.session
        record = write_invitation(invitation)
        deadlines = replace(self._deadlines, complete=lambda: self._helpers_missing() == 0)
        self._exchange.ask(
            "INVITATION", INVITE, dict.fromkeys(nodes, record), self._taker(session, joining=True), deadlines
        )
        if self._helpers_missing():
            raise UnreachableError(
                f"{self._helpers_missing()} of the committee's {len(self._helpers)} helpers did not answer; without "
                "all of them no total can be unmasked. Start their nodes and run again"
            )
        while (requests := self._session.close_round()) or self._session.result is None:
            self._request(session, requests)
        return self._session.result

    def _request(self, session: bytes, requests: Mapping[PartyId, bytes]) -> None:
        by_node: dict[NodeId, dict[PartyId, bytes]] = {}
        for party, message in requests.items():
            by_node.setdefault(self._node_of[party], {})[party] = message
        contents = {node: write_messages(messages, session=session) for node, messages in by_node.items()}
        type_ = message_type(next(iter(requests.values())))
        deadlines = replace(self._deadlines, quorum=1.0) if self._asks_helpers(requests) else self._deadlines
        self._exchange.ask(type_.name if type_ else "?", STEP, contents, self._taker(session, joining=False), deadlines)

    def _taker(self, session: bytes, *, joining: bool) -> Callable[[NodeId, RecordDict], int]:
        def take(node: NodeId, content: RecordDict) -> int:
            try:
                answered, messages = read_messages(content)
            except WireError:
                answered, messages = b"", {}
            if answered != session:
                self._refused(node, "its answer belongs to no message of this sum")
                return 0
            for party, message in messages.items():
                self._take(node, party, message, joining=joining)
            return sum(map(len, messages.values()))

        return take

    def _take(self, node: NodeId, party: PartyId, message: bytes, *, joining: bool) -> None:
        """Feed one party's message to the session. A party belongs to the first node whose message for it was good."""
        if self._node_of.get(party, node if joining else None) != node:
            self._refused(node, f"party {party} is at another node")
            return
        if message:
            try:
                self._session.receive(party, message)
            except RemoteProtocolError as error:
                self._refused(node, str(error))
                return
            self._progress.say("party", party=party, sent=_name(message), bytes=len(message))
        elif party not in self._helpers:
            return
        self._node_of[party] = node

    def _refused(self, node: NodeId, reason: str) -> None:
        self._progress.say("refused", node=str(node), reason=reason)

    def _helpers_missing(self) -> int:
        return len(set(self._helpers) - self._node_of.keys())

    def _asks_helpers(self, requests: Mapping[PartyId, bytes]) -> bool:
        return not requests.keys().isdisjoint(self._helpers)


def _name(message: bytes) -> str:
    type_ = message_type(message)
    return type_.name if type_ else "?"
