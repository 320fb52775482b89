"""The masks themselves: whoever made the vectors can take them off, and masks that repeat are no masks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from federation.modes import Mode
from secagg.ring import RingVector
from secagg.sums import Upload
from simulations.audit.attack import PROBE, Expectation, SentAttack
from simulations.audit.evaluate import Score
from simulations.audit.view import SERVER_ALONE
from simulations.audit.workbench import Bench, Run

WORD = 8
"""Bytes of a word, looked for at every byte."""

COMPARED = 1 << 16
"""Bytes of a mask, at its beginning and at its end, that are compared with other clients' and other sums'."""

Words = NDArray[np.uint64]


class MaskWords(SentAttack):
    """Looks for words that a mask has twice, or shares with another client's mask or another sum's."""

    name = "mask_words"
    title = "Whether a mask repeats itself, or another mask"
    explanation = (
        "Not an attacker but a check: this report knows what every client put in, takes it off the message, and looks "
        f"for {WORD} bytes of the mask that come a second time: within it, in another client's mask of the sum, or in "
        "another sum. A key stream that begins again shows so. Success: a mask with such a word. Chance: that random "
        "masks of this length have one."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """A promise of modes whose messages are masks and nothing else."""
        uniform = mode is not None and mode.guarantee(PROBE).upload is Upload.UNIFORM
        return Expectation.HIDDEN if uniform else None

    def against_messages(self, bench: Bench, runs: list[Run]) -> Score:
        """One trial a message."""
        masks = [mask for run in runs for mask in _masks(run)]
        ends = [words_of(mask[:COMPARED] + mask[-COMPARED:]) for mask in masks]
        everywhere, times = np.unique(np.concatenate([np.unique(end) for end in ends]), return_counts=True)
        shared = everywhere[times > 1]
        hits = sum(repeats(mask) or bool(np.isin(end, shared).any()) for mask, end in zip(masks, ends, strict=True))
        longest, compared = max(map(len, masks)), sum(map(len, ends))
        return Score(hits=hits, trials=len(masks), chance=longest * (longest + compared) / 2.0 ** (8 * WORD))


def _masks(run: Run) -> Iterator[bytes]:
    _, recorded = run
    seen = recorded.view(SERVER_ALONE)
    for party, vector in recorded.inputs.items():
        if (data := seen.vector_bytes(party)) is not None:
            mask = RingVector.from_bytes(recorded.protocol.layout, data).copy()
            mask.subtract(RingVector.encode(recorded.protocol.layout, vector))
            yield mask.to_bytes()


def words_of(mask: bytes) -> Words:
    """The words that begin at every byte."""
    starts = range(min(WORD, max(0, len(mask) - WORD + 1)))
    found = [np.frombuffer(mask, dtype="<u8", count=(len(mask) - start) // WORD, offset=start) for start in starts]
    return np.concatenate([np.empty(0, dtype=np.uint64), *found])


def repeats(mask: bytes) -> bool:
    """Whether a word comes twice."""
    words = words_of(mask)
    return len(np.unique(words)) < len(words)
