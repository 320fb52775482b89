"""AFL's own upload, weights and regularised Gram, turned back into the two sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg import Layout, PartyId
from secagg.layout import IntVector
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score
from simulations.audit.reading import Reading
from simulations.audit.scoring import score_vector
from simulations.audit.view import AdversaryView

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class AflUpload:
    """H = C W, and gamma is the bottom of C's spectrum as long as there are fewer rows than features: G = C - gamma I.

    Args:
        fraction_bits: of the public row format, so that what was whole can be made whole again.
    """

    fraction_bits: int
    name: str = "afl_upload"
    title: str = "The sums behind AFL's published upload (W and C)"
    explanation: str = (
        "AFL's paper has clients send their own weights W and regularised Gram matrix C instead of sums, and calls "
        "that private. One matrix product and the smallest eigenvalue give the sums back. Success: every number exact. "
        "Chance: less than naming one row out of the pool. Our modes never send W and C."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The vector of sums, made whole."""
        payload = None if target is None else view.sums[-1].knowledge.upload(target)
        if payload is None:
            return None
        d, c = _shape(view.sums[-1].layout)
        numbers = np.frombuffer(payload, dtype="<f8")
        if numbers.size != d * (d + c):
            return None
        weights, regularised = numbers[: d * c].reshape(d, c), numbers[d * c :].reshape(d, d)
        gamma = float(np.linalg.eigvalsh(regularised)[0])
        gram = np.round(np.ldexp(regularised - gamma * np.eye(d), 2 * self.fraction_bits)).astype(np.int64)
        cross = np.round(np.ldexp(regularised @ weights, self.fraction_bits)).astype(np.int64)
        count = Reading(gram=gram, cross=cross, count=0).rank
        return np.concatenate([gram[np.triu_indices(d)], cross.ravel(), [count]])

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a client."""
        return score_vector(guess, truth)


def published_upload(reading: Reading, *, fraction_bits: int, gamma: float) -> bytes:
    """What AFL's client sends (He et al., CVPR 2025, Algorithm 1): W = C^-1 H, then C = G + gamma I, as float64."""
    gram = np.ldexp(reading.gram.astype(np.float64), -2 * fraction_bits)
    regularised = gram + gamma * np.eye(len(gram))
    weights = np.linalg.solve(regularised, np.ldexp(reading.cross.astype(np.float64), -fraction_bits))
    return weights.astype("<f8").tobytes() + regularised.astype("<f8").tobytes()


def _shape(layout: Layout) -> tuple[int, int]:
    sizes = {segment.name: segment.size for segment in layout.segments}
    d = (int(np.sqrt(8 * sizes["gram"] + 1)) - 1) // 2
    return d, sizes["cross"] // d
