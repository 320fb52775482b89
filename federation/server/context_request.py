"""Before an encrypted sum: the key holder's signed public context, which the invitation then brings to everybody."""

from __future__ import annotations

from dataclasses import replace

from federation.server.exchange import Deadlines, NodeId, SessionExchange
from federation.site.errors import UnreachableError
from federation.site.invitation import Invitation
from federation.site.messages import CONTEXT, write_invitation
from federation.site.roster import Roster
from secagg import PartyId
from secagg.errors import ConfigurationError

TITLE = "PUBLIC_CONTEXT"


def ask_for_context(
    question: Invitation, roster: Roster, exchange: SessionExchange, deadlines: Deadlines
) -> Invitation:
    """The invitation with the context. All nodes are asked: only an answer tells where the key holder is.

    Args:
        question: the invitation without a context.
        roster: names the key holder and its identity.
        exchange: the way to the nodes.
        deadlines: the exchange is over once the key holder has answered and the quorum is reached.

    Raises:
        UnreachableError: the key holder did not answer.
    """
    mode, setup = question.setup(roster)
    who = f"{mode.helper.name} {next(iter(setup.helper_keys))}" if mode.helper else "the helper"
    found: list[Invitation] = []

    def take(node: NodeId, party: PartyId, signed_context: bytes) -> None:
        answered = question.with_context(signed_context)
        try:
            answered.agree(roster)
        except ConfigurationError as error:
            exchange.refuse(node, str(error))
            return
        found.append(answered)
        exchange.note(node, party, TITLE, signed_context)

    content = write_invitation(question)
    complete = replace(deadlines, complete=lambda: bool(found))
    exchange.ask(TITLE, CONTEXT, dict.fromkeys(exchange.everybody(), content), take, complete)
    if not found:
        raise UnreachableError(
            f"{who} did not answer; without it nothing can be decrypted, and no client was asked. "
            "Start its node, or read in its log why it declined (the node's reason stands above), and run again"
        )
    return found[0]
