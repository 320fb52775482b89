"""The automaton of a masked sum as a table; the sessions, the docs and the exhaustive tests read it."""

from __future__ import annotations

from enum import Enum

from secagg.wire import MessageType


class ClientState(Enum):
    """Where a client stands: what it said last."""

    READY = "ready"
    KEYS_SENT = "keys sent"
    SHARES_SENT = "shares sent"
    INPUT_SENT = "masked vector sent"
    DONE = "done"
    ABORTED = "aborted"


CLIENT_TRANSITIONS: dict[ClientState, tuple[MessageType, ClientState]] = {
    ClientState.KEYS_SENT: (MessageType.ROSTER, ClientState.SHARES_SENT),
    ClientState.SHARES_SENT: (MessageType.SHARE_DELIVERY, ClientState.INPUT_SENT),
    ClientState.INPUT_SENT: (MessageType.UNMASK_REQUEST, ClientState.DONE),
}
"""In this state, this message leads there. Nothing else does, but a fault, which leads to ABORTED."""


SERVER_ROUNDS: tuple[MessageType, ...] = (
    MessageType.ADVERTISED_KEYS,
    MessageType.SEALED_SHARES,
    MessageType.MASKED_INPUT,
    MessageType.UNMASK_SHARES,
)
"""What the server collects, round by round."""
