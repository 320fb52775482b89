"""Telling which of two data sets a message carries: the game that defines secrecy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg import Layout, PartyId
from secagg.layout import IntVector
from secagg.ring import RingVector
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score
from simulations.audit.view import AdversaryView


@dataclass(frozen=True, slots=True)
class ToldApart:
    """The adversary knows two vectors and takes the one that shares more bytes with the message."""

    name: str = "told_apart"
    title: str = "Which of two known data sets a message carries"
    explanation: str = (
        "The attacker is handed two complete sets of statistics, one of which the client sent, and looks at the "
        "message to tell which. Success: the right one. Chance: one half."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The vector that it believes was sent; None where it was offered none."""
        if target is None or target not in view.known.worlds:
            return None
        worlds = view.known.worlds[target]
        data = view.sums[-1].vector_bytes(target)
        if data is None:
            return worlds[int(rng.integers(2))]
        first, second = (_equal_bytes(view.sums[-1].layout, world, data) for world in worlds)
        return worlds[int(rng.integers(2)) if first == second else int(second > first)]

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a client."""
        if guess is None:
            return Score(hits=0, trials=0, chance=0.5)
        return Score(hits=int(np.array_equal(guess, truth.vector)), trials=1, chance=0.5)


def _equal_bytes(layout: Layout, vector: IntVector, data: bytes) -> int:
    encoded = np.frombuffer(RingVector.encode(layout, vector).to_bytes(), dtype=np.uint8)
    return int(np.count_nonzero(encoded == np.frombuffer(data, dtype=np.uint8)))
