"""Transition tables of a client of a masked sum; read by sessions, docs and exhaustive tests."""

from __future__ import annotations

from enum import Enum

from secagg.wire import MessageType


class ClientState(Enum):
    """State of a client, named after its last message."""

    READY = "ready"
    KEYS_SENT = "keys sent"
    SHARES_SENT = "shares sent"
    INPUT_SENT = "masked vector sent"
    SURVIVORS_SIGNED = "survivors signed"
    DONE = "done"
    ABORTED = "aborted"


ClientTable = dict[ClientState, tuple[MessageType, ClientState, MessageType]]
"""Transition by state: the message that is due, the next state, the answer. A fault leads to ABORTED instead."""

SEMI_HONEST_CLIENT: ClientTable = {
    ClientState.KEYS_SENT: (MessageType.ROSTER, ClientState.SHARES_SENT, MessageType.SEALED_SHARES),
    ClientState.SHARES_SENT: (MessageType.SHARE_DELIVERY, ClientState.INPUT_SENT, MessageType.MASKED_INPUT),
    ClientState.INPUT_SENT: (MessageType.UNMASK_REQUEST, ClientState.DONE, MessageType.UNMASK_SHARES),
}
"""Transitions without identities, for a semi-honest server."""

AUTHENTICATED_CLIENT: ClientTable = SEMI_HONEST_CLIENT | {
    ClientState.INPUT_SENT: (
        MessageType.UNMASK_REQUEST,
        ClientState.SURVIVORS_SIGNED,
        MessageType.SURVIVOR_SIGNATURE,
    ),
    ClientState.SURVIVORS_SIGNED: (MessageType.SURVIVOR_PROOF, ClientState.DONE, MessageType.UNMASK_SHARES),
}
"""Transitions with identities: no share is revealed before enough clients signed the same survivor set."""

SETUP_MESSAGES = frozenset({MessageType.ADVERTISED_KEYS, MessageType.ROSTER, MessageType.SEALED_SHARES})
"""Messages of the set-up. They do not depend on layout or context and may be sent before both are known."""
