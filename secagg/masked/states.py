"""The automaton of a masked sum as tables; the sessions, the docs' diagram and the exhaustive tests read them."""

from __future__ import annotations

from enum import Enum

from secagg.wire import MessageType


class ClientState(Enum):
    """Where a client stands: what it said last."""

    READY = "ready"
    KEYS_SENT = "keys sent"
    SHARES_SENT = "shares sent"
    INPUT_SENT = "masked vector sent"
    SURVIVORS_SIGNED = "survivors signed"
    DONE = "done"
    ABORTED = "aborted"


ClientTable = dict[ClientState, tuple[MessageType, ClientState, MessageType]]
"""In a state, the message that is due, the state it leads to, the answer. A fault leads to ABORTED instead."""

SEMI_HONEST_CLIENT: ClientTable = {
    ClientState.KEYS_SENT: (MessageType.ROSTER, ClientState.SHARES_SENT, MessageType.SEALED_SHARES),
    ClientState.SHARES_SENT: (MessageType.SHARE_DELIVERY, ClientState.INPUT_SENT, MessageType.MASKED_INPUT),
    ClientState.INPUT_SENT: (MessageType.UNMASK_REQUEST, ClientState.DONE, MessageType.UNMASK_SHARES),
}
"""Without identities: the server may look, but not lie."""

AUTHENTICATED_CLIENT: ClientTable = SEMI_HONEST_CLIENT | {
    ClientState.INPUT_SENT: (
        MessageType.UNMASK_REQUEST,
        ClientState.SURVIVORS_SIGNED,
        MessageType.SURVIVOR_SIGNATURE,
    ),
    ClientState.SURVIVORS_SIGNED: (MessageType.SURVIVOR_PROOF, ClientState.DONE, MessageType.UNMASK_SHARES),
}
"""With identities: nothing is revealed before enough clients signed the same survivor set."""

SETUP_MESSAGES = frozenset({MessageType.ADVERTISED_KEYS, MessageType.ROSTER, MessageType.SEALED_SHARES})
"""Bound to the set-up's digest alone: they do not depend on layout or context, and so may travel before both."""
