"""The exchanges of one session: answers that belong to it, party by party."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flwr.app import RecordDict

from federation.flower.exchange import Deadlines, Exchange, NodeId
from federation.flower.progress_log import ProgressLog
from federation.flower.wire import read_messages
from federation.site.errors import WireError
from secagg import PartyId

Take = Callable[[NodeId, PartyId, bytes], None]
"""Gets what a party said, and the node that says so."""


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
        """As ``Exchange.everybody``."""
        return self._exchange.everybody()

    def ask(
        self, title: str, kind: str, contents: Mapping[NodeId, RecordDict], take: Take, deadlines: Deadlines
    ) -> None:
        """As ``Exchange.ask``, with one call of ``take`` for each party in an answer."""

        def take_all(node: NodeId, content: RecordDict) -> int:
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
        self._progress.say("refused", node=str(node), reason=reason)

    def note(self, party: PartyId, sent: str, message: bytes) -> None:
        """Note that what a party said was taken."""
        self._progress.say("party", party=party, sent=sent, bytes=len(message))
