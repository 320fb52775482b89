"""A network in memory that loses, repeats and reorders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from secagg.config import SERVER
from secagg.in_memory import Envelope


class FaultyNetwork:
    """Loses, repeats and reorders; a repeated message may arrive rounds later.

    Args:
        rng: where the faults come from.
        loss: probability that a message never arrives.
        repetition: probability that it arrives again.
        reorder: whether the messages of a round arrive in random order.
    """

    def __init__(
        self, rng: np.random.Generator, *, loss: float = 0.0, repetition: float = 0.0, reorder: bool = False
    ) -> None:
        self._rng, self._loss, self._repetition, self._reorder = rng, loss, repetition, reorder
        self._late: dict[bool, list[Envelope]] = {True: [], False: []}

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        """What is left of a round, with repetitions of this and of earlier ones."""
        arriving: list[Envelope] = []
        late: list[Envelope] = []
        for envelope in envelopes:
            if self._rng.random() < self._loss:
                continue
            arriving.append(envelope)
            if self._rng.random() < self._repetition:
                (arriving if self._rng.random() < 0.5 else late).append(envelope)
        for to_server in {envelope.recipient == SERVER for envelope in arriving} or {True, False}:
            arriving += self._late[to_server]
            self._late[to_server] = []
        for envelope in late:
            self._late[envelope.recipient == SERVER].append(envelope)
        if self._reorder:
            self._rng.shuffle(arriving)
        return iter(arriving)
