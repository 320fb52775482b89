"""What the scripts that write test vectors share: recorded entropy, plain vectors at their bounds, messages in JSON."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from secagg.entropy import InsecureSeededEntropy
from secagg.wire import message_type

SMALL = [("gram", 3, 1_000), ("counts", 2, 100)]


class Recorded:
    """Seeded entropy that remembers what it gave."""

    def __init__(self, seed: int, label: str) -> None:
        self._stream, self.drawn = InsecureSeededEntropy(seed, label), b""

    def __call__(self, n_bytes: int) -> bytes:
        self.drawn += (fresh := self._stream(n_bytes))
        return fresh


def every_width(beyond: str) -> list[tuple[str, int, int]]:
    """The largest bound of each width; then a bound that leaves one value, and the smallest that takes two bytes."""
    widths = [(f"{n}-byte", 3, 2 ** (8 * n - 1) - 1) for n in range(1, 9)]
    return [*widths, ("zero", 2, 0), (beyond, 2, 128)]


def vectors_for(name: str, layout: Sequence[tuple[Any, ...]], clients: Sequence[int]) -> dict[int, list[int]]:
    """Plain vectors whose sums stay within the bounds, whoever survives: both ends of the bound, then something.

    A segment with a bound for one client has that as its fourth part.
    """
    source = random.Random(name)
    vectors: dict[int, list[int]] = {party: [] for party in clients}
    for _, size, bound, *own in layout:
        most = min([bound, *own])
        for entry in range(size):
            for party in clients:
                share = min(most, bound // len(clients))
                at_end = (most, -most)[entry % 2] if party == clients[0] else 0
                vectors[party].append(at_end if entry < 2 else source.randint(-share, share))
    return vectors


def lines_of(messages: Iterable[tuple[int, int, bytes]]) -> list[dict[str, Any]]:
    """(sender, recipient, message) triples in JSON."""
    return [
        {
            "type": getattr(message_type(message), "name", "?"),
            "sender": sender,
            "recipient": recipient,
            "message": message.hex(),
        }
        for sender, recipient, message in messages
    ]
