"""Telling a message from another one, or from dice: the game that defines secrecy."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy
from numpy.typing import NDArray

from analytic_secagg.modes import Mode
from secagg import Layout
from secagg.layout import IntVector
from secagg.ring import RingVector
from secagg.sums import Upload
from simulations.audit.attack import PROBE, Expectation, ExposureAttack
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure
from simulations.audit.knowledge import Knowledge, Known
from simulations.audit.population import Truth
from simulations.audit.workbench import GAMES

SUSPICION = 0.01
"""Level of one message's test: fair dice are suspected this often at most."""

TAILS = (256, 64, 16)
"""Last bytes that get a look of their own: a mask that ends early leaves the end bare."""

BY_CHANCE = 1 / 256
"""How often a byte of dice equals one of a vector."""

Bytes = NDArray[np.uint8]


class Distinguishing(ExposureAttack[IntVector | None]):
    """The adversary knows two vectors and takes the one that the message equals in more bytes, in any part of it."""

    name = "distinguishing"
    former_name = "told_apart"
    title = "Which of two known data sets a message carries"
    explanation = (
        "The attacker is handed two complete sets of statistics, one of which the client sent, and looks at the "
        "message to tell which. Success: the right one. Chance: one half."
    )
    needs = Knowledge.ALL_BUT_ONE
    least = GAMES

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> IntVector | None:
        """The vector that it believes was sent; None where it was offered none."""
        target = seen.target
        if target is None or target not in known.worlds:
            return None
        worlds = known.worlds[target]
        data = seen.sums[-1].vector_bytes(target)
        if data is None:
            return worlds[int(rng.integers(2))]
        first, second = (_alike(seen.sums[-1].layout, world, data) for world in worlds)
        return worlds[int(rng.integers(2)) if first == second else int(second > first)]

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a client."""
        if guess is None:
            return Score(hits=0, trials=0, chance=0.5)
        return Score(hits=int(np.array_equal(guess, truth.vector)), trials=1, chance=0.5)


def _alike(layout: Layout, vector: IntVector, data: bytes) -> float:
    """Return how much more a message equals a vector than dice would, in the part of it where it does so most.

    Parts are the whole, each segment, however short, and the last bytes: a mask that leaves out any of them is seen.
    """
    encoded = np.frombuffer(RingVector.encode(layout, vector).to_bytes(), dtype=np.uint8)
    equal = encoded == np.frombuffer(data, dtype=np.uint8)
    widths = [segment.size * segment.wire_bytes for segment in layout.segments]
    parts = [equal, *np.split(equal, np.cumsum(widths)[:-1]), *(equal[-tail:] for tail in TAILS)]
    lengths = np.array([len(part) for part in parts])
    rates = np.maximum([np.count_nonzero(part) for part in parts] / lengths, BY_CHANCE)
    relative = scipy.special.rel_entr
    excess = relative(rates, BY_CHANCE) + relative(1 - rates, 1 - BY_CHANCE)  # Chernoff's bound of the p-value, its log
    return float((lengths * excess).max())


class Uniformity(ExposureAttack[bool | None]):
    """Chi-square, repeated-entry and serial tests of the bytes of an upload, joined by Bonferroni's bound."""

    name = "uniformity"
    title = "Whether a message looks like anything but random bytes"
    explanation = (
        "A masked message alone should be indistinguishable from fair dice. Counts of bytes by place, their order and "
        "repeated entries are tested. Success: a message that is called suspicious. Chance: fair dice are called "
        "suspicious in one of a hundred messages at most. Ciphertexts need not look like dice, so they are not tested."
    )
    needs = Knowledge.NOTHING

    def expected(self, mode: Mode | None) -> Expectation | None:
        """As every attack on a message; ciphertexts are not looked at."""
        is_cipher = mode is not None and mode.guarantee(PROBE).upload is Upload.CIPHERTEXT
        return None if is_cipher else super().expected(mode)

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> bool | None:
        """Whether the message is suspicious; None where there is none."""
        one = seen.sums[-1]
        data = None if seen.target is None else one.vector_bytes(seen.target)
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
            yield from _halves(places)
            yield _serial(places[:, -1].astype(np.float64))
            yield _repeated(places)
        start = end


def _bits(data: Bytes) -> float:
    """Ones among all bits, exact."""
    return float(scipy.stats.binomtest(int(np.unpackbits(data).sum()), 8 * len(data)).pvalue)


def _zeros(data: Bytes) -> float:
    """Zero bytes, too many: exact."""
    return float(scipy.stats.binom.sf(int(np.count_nonzero(data == 0)) - 1, len(data), 1 / 256))


def _halves(places: Bytes) -> list[float]:
    """Counts of each place's high halves and low halves."""
    counts = [np.bincount(half, minlength=16) for place in places.T for half in (place >> 4, place & 15)]
    return [float(one) for one in np.asarray(scipy.stats.chisquare(counts, axis=1).pvalue)]


def _repeated(entries: Bytes) -> float:
    """Pairs of equal entries, too many: nearly Poisson where less than one is expected, and else not asked."""
    n, width = entries.shape
    words = np.zeros((n, 8), dtype=np.uint8)
    words[:, :width] = entries
    _, times = np.unique(words.view(np.uint64), return_counts=True)
    expected = n * (n - 1) / 2 / 256.0**width
    pairs = int((times * (times - 1) // 2).sum())
    return float(scipy.stats.poisson.sf(pairs - 1, expected)) if expected < 1 and pairs else 1.0


def _serial(values: NDArray[np.float64]) -> float:
    """Two-sided p-value of the lag-one correlation, normal with variance 1 / n for fair dice."""
    centred = values - values.mean()
    spread = float(centred @ centred)
    if spread == 0.0:
        return 0.0
    return float(2 * scipy.stats.norm.sf(abs(float(centred[1:] @ centred[:-1])) / spread * np.sqrt(len(values))))


DISTINGUISHING, UNIFORMITY = Distinguishing(), Uniformity()
