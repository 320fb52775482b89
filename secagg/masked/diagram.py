"""State diagram of a client for the docs, generated from the transition table."""

from __future__ import annotations

from secagg.masked.states import ClientState, ClientTable
from secagg.wire import MessageType


def state_diagram(table: ClientTable) -> str:
    """Return a Mermaid state diagram: message received / message sent. Every fault leads to ABORTED."""
    lines = [
        "stateDiagram-v2",
        f"    [*] --> {ClientState.READY.name}",
        f"    {ClientState.READY.name} --> {ClientState.KEYS_SENT.name}: start / {MessageType.ADVERTISED_KEYS.name}",
        *(
            f"    {state.name} --> {next_state.name}: {due.name} / {answer.name}"
            for state, (due, next_state, answer) in table.items()
        ),
        *(f"    {state.name} --> {ClientState.ABORTED.name}: fault" for state in table),
        f"    {ClientState.DONE.name} --> [*]",
        f"    {ClientState.ABORTED.name} --> [*]",
    ]
    return "\n".join(lines)
