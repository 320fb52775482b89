"""Whether a message looks like anything but fair dice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from secagg import Layout, PartyId
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score
from simulations.audit.view import AdversaryView

SUSPICION = 0.01
"""Level of one message's test: fair dice are suspected this often at most."""

TAILS = (256, 64, 16)
"""Last bytes that get a look of their own: a mask that ends early leaves the end bare."""

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Uniformity:
    """Chi-square, repeated-entry and serial tests of the bytes of an upload, joined by Bonferroni's bound."""

    name: str = "uniformity"
    title: str = "Whether a message looks like anything but random bytes"
    explanation: str = (
        "A masked message alone should be indistinguishable from fair dice. Counts of bytes by place, their order and "
        "repeated entries are tested. Success: a message that is called suspicious. Chance: fair dice are called "
        "suspicious in one of a hundred messages at most. Ciphertexts need not look like dice, so they are not tested."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> bool | None:
        """Whether the message is suspicious; None where there is none."""
        one = view.sums[-1]
        data = None if target is None else one.vector_bytes(target)
        return None if data is None else p_value(one.layout, data) < SUSPICION

    def score(self, guess: bool | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a message."""
        return Score(hits=int(guess is True), trials=int(guess is not None), chance=SUSPICION)


def p_value(layout: Layout, data: bytes) -> float:
    """An upper bound of the probability that fair dice look as strange as this."""
    found = list(_p_values(layout, np.frombuffer(data, dtype=np.uint8)))
    return min(1.0, len(found) * min(found))


def _p_values(layout: Layout, data: Bytes) -> Iterator[float]:
    yield _bits(data)
    for tail in TAILS:
        yield _zeros(data[-tail:])
    start = 0
    for segment in layout.segments:
        end = start + segment.size * segment.wire_bytes
        places = data[start:end].reshape(segment.size, segment.wire_bytes)
        if segment.size >= 320:  # chi-square needs five a cell; here cells are a byte's high and low halves
            for place in places.T:
                yield _halves(place >> 4)
                yield _halves(place & 15)
            yield _serial(places[:, -1].astype(np.float64))
        start = end


def _bits(data: Bytes) -> float:
    """Ones among all bits, exact."""
    return float(stats.binomtest(int(np.unpackbits(data).sum()), 8 * len(data)).pvalue)


def _zeros(data: Bytes) -> float:
    """Zero bytes, too many: exact."""
    return float(stats.binom.sf(int(np.count_nonzero(data == 0)) - 1, len(data), 1 / 256))


def _halves(values: NDArray[Any]) -> float:
    return float(stats.chisquare(np.bincount(values, minlength=16)).pvalue)


def _serial(values: NDArray[np.float64]) -> float:
    """Two-sided p-value of the lag-one correlation, normal with variance 1 / n for fair dice."""
    centred = values - values.mean()
    spread = float(centred @ centred)
    if spread == 0.0:
        return 0.0
    return float(2 * stats.norm.sf(abs(float(centred[1:] @ centred[:-1])) / spread * np.sqrt(len(values))))
