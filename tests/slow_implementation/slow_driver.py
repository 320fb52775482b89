"""Carries messages between any clients and any server, round by round, and writes each one down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Message = tuple[int, int, bytes]
"""(sender, recipient, bytes)."""


def run(clients: Mapping[int, Any], server: Any, messages_sent: Mapping[int, int]) -> list[Message]:
    """All messages in order: in each round what the clients say, then what the server says, both ascending by client.

    Args:
        clients: sessions with ``start`` and ``receive``.
        server: a session with ``receive`` and ``close_round``, and the ``result`` or ``total``.
        messages_sent: how many messages a client sends before it vanishes; one that is not listed stays.
    """
    said: list[Message] = []
    left = {party: messages_sent.get(party, 1 << 30) for party in clients}

    def say(party: int, speak: Callable[[], bytes | None]) -> None:
        answer = speak() if left[party] else None
        if answer is not None:
            left[party] -= 1
            said.append((party, 0, answer))
            server.receive(party, answer)

    for party, client in sorted(clients.items()):
        say(party, client.start)
    while getattr(server, "result", getattr(server, "total", None)) is None and (requests := server.close_round()):
        said += [(0, party, request) for party, request in sorted(requests.items())]
        for party, request in sorted(requests.items()):
            say(party, lambda party=party, request=request: clients[party].receive(request))
    return said


class Drawn:
    """Gives recorded entropy out again, in order."""

    def __init__(self, drawn: bytes) -> None:
        self.left = drawn

    def __call__(self, n_bytes: int) -> bytes:
        assert len(self.left) >= n_bytes, "more entropy is drawn than was recorded"
        taken, self.left = self.left[:n_bytes], self.left[n_bytes:]
        return taken


class Playback:
    """Feeds recorded messages to sessions one by one, and checks that the sessions say what was recorded."""

    def __init__(self, clients: Mapping[int, Any], server: Any, said: list[Message]) -> None:
        self.clients, self.server, self.said, self.position = clients, server, said, 0
        starting = sorted({sender for sender, _, _ in said if sender})
        self._answers = {party: clients[party].start() for party in starting}
        self._requests: dict[int, bytes] = {}

    def advance(self, position: int) -> None:
        """Deliver the messages before ``position``."""
        while self.position < position:
            sender, recipient, message = self.said[self.position]
            self.open_round()
            if sender:
                assert self._answers.pop(sender) == message
                self.server.receive(sender, message)
            else:
                assert self._requests.pop(recipient) == message
                self._deliver(recipient, message)
            self.position += 1

    def open_round(self) -> None:
        """Close the clients' round if the server is the next to speak."""
        if self.position < len(self.said) and self.said[self.position][0] == 0 and not self._requests:
            self._requests = dict(self.close_round())

    def instead(self, message: bytes) -> None:
        """Give the server another message than the one that its sender says now."""
        sender, _, _ = self.said[self.position]
        self.server.receive(sender, message)
        del self._answers[sender]
        self.position += 1

    def end_of_round(self) -> int:
        """Where the clients' round that is on ends."""
        end = self.position
        while end < len(self.said) and self.said[end][0]:
            end += 1
        return end

    def finish(self) -> None:
        """Deliver the rest and close the last round."""
        self.advance(len(self.said))
        assert not self.close_round()

    def close_round(self) -> Mapping[int, bytes]:
        closed: Mapping[int, bytes] = self.server.close_round()
        return closed

    def _deliver(self, recipient: int, message: bytes) -> None:
        if any(sender == recipient for sender, _, _ in self.said[self.position :]):  # else it has vanished
            self._answers[recipient] = self.clients[recipient].receive(message)
