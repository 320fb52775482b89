"""The masks themselves: whoever made the vectors can take them off, and masks that repeat are no masks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import scipy
from numpy.typing import NDArray

from analytic_secagg.modes import Mode
from secagg import InsecureSeededEntropy, Layout, MaskedSum, PartyId, new_session_id
from secagg.entropy import Entropy
from secagg.masked.adversary import revealed_self_masks
from secagg.ring import RingVector
from secagg.sums import Upload
from secagg.wire import payload_of, sender_of
from simulations.audit.attack import FEW_CLIENTS, MASKED, PROBE, Expectation, SentAttack
from simulations.audit.attacks.distinguishing import p_value
from simulations.audit.evaluate import Score
from simulations.audit.view import record_sum
from simulations.audit.workbench import Bench, Run

WORD = 8
"""Bytes of a word, looked for at every byte."""

COMPARED = 1 << 16
"""Bytes of a mask, at its beginning and at its end, that are compared with other clients' and other sums'."""

LONG = 1 << 17
"""Bytes above which one word of sixteen is compared, whichever they are: a stream that begins again repeats many."""

SMALL_SUMS = 600
"""Of three clients each: of a seed of 16 bits one comes again 93 times of 100, and 8 times of 10 one of 17 bits."""

KEY = 32
"""Bytes of a key or a seed. Shorter runs come again by themselves: lengths and numbers of parties are beside them."""

FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Odd, and otherwise of no meaning."""

Words = NDArray[np.uint64]


STRANGE, LEVEL = 1e-12, 1e-10
"""A p-value at which a mask is no fair dice, and how often fair dice have one: asymptotic ones are off that far out."""


class MaskWords(SentAttack):
    """Looks for words that a mask has twice, or shares with another client's mask or another sum's, and at its dice."""

    name = "mask_words"
    former_name = "mask_reuse"
    title = "Whether a mask repeats itself, or another mask"
    explanation = (
        "Not an attacker but a check: this report knows what every client put in, takes it off the message, and looks "
        f"for {WORD} bytes of the mask that come a second time: within it, in another client's mask of the sum, or in "
        f"another sum; the same for the low bytes of {WORD} entries in a row, whatever their width. A key stream that "
        "begins again shows so, and one that two segments share. And the mask must look like fair dice. In "
        f"{SMALL_SUMS} sums of one number, keys and seeds that the server sees must not come again, as they do if "
        "they are drawn out of few. Success: a mask, or a client, that is strange so. Chance: that random ones are."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """A promise of modes whose messages are masks and nothing else."""
        uniform = mode is not None and mode.guarantee(PROBE).upload is Upload.UNIFORM
        return Expectation.HIDDEN if uniform else None

    def control(self, bench: Bench, trials: int) -> Score | None:
        """Look at two sums under the same keys and session id, as parties restored from a snapshot would make them."""
        cohort = bench.cohort(FEW_CLIENTS)
        parties = MASKED.in_one_process(
            layout=bench.layout, clients=tuple(cohort), session_id=bytes(16), context=bench.context
        )
        restored = (InsecureSeededEntropy(0, "restored") for _ in range(2))
        vectors = bench.vectors(cohort)
        return self.against_messages(bench, [(cohort, record_sum(parties, vectors, entropy=one)) for one in restored])

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Look at the masks of the bench's sums, then at the secrets of many small ones."""
        assert mode is not None
        return Score.pooled((super().play(bench, mode, trials), _of_small_sums(mode, bench.entropy)))

    def against_messages(self, bench: Bench, runs: list[Run]) -> Score:
        """One trial a message."""
        masks = [mask for run in runs for mask in _masks(run)]
        seen = [_words(mask) for mask in masks]
        ends = [np.unique(words) for words, _ in seen]
        everywhere, times = np.unique(np.concatenate(ends), return_counts=True)
        shared = everywhere[times > 1]
        hits = sum(
            repeated
            or bool(np.isin(end, shared).any())
            or p_value(mask.layout, mask.to_bytes()) < STRANGE
            or any(one < STRANGE for one in _alike(mask))
            for mask, (_, repeated), end in zip(masks, seen, ends, strict=True)
        )
        longest, compared = max(len(mask.to_bytes()) for mask in masks), len(everywhere)
        chance = LEVEL + 2 * longest * (2 * longest + compared) / 2.0 ** (8 * WORD)
        return Score(hits=hits, trials=len(masks), chance=chance)


def _of_small_sums(mode: Mode, entropy: Entropy) -> Score:
    """Return a trial for each client: does a run of bytes of its messages, or a revealed seed, come in two sums?"""
    layout, seen = Layout.of([("one", 1, 1)]), list[tuple[PartyId, Words]]()
    vectors = {party: np.zeros(1, dtype=np.int64) for party in (1, 2, 3)}
    for _ in range(SMALL_SUMS):
        parties = mode.in_one_process(layout=layout, clients=tuple(vectors), session_id=new_session_id())
        view = record_sum(parties, vectors, entropy=entropy).seen
        masks = view.protocol
        seeds = revealed_self_masks(masks, view.knowledge) if isinstance(masks, MaskedSum) else {}
        for party in vectors:
            own = (bytes(payload_of(one)) for one in view.knowledge.messages if sender_of(one) == party)
            seen.append((party, _runs_of(b"".join(own) + seeds.get(party, b""))))
    everywhere, times = np.unique(np.concatenate([runs for _, runs in seen]), return_counts=True)
    again = {party for party, runs in seen if np.isin(runs, everywhere[times > 1]).any()}
    return Score(hits=len(again), trials=len(vectors), chance=float(len(everywhere)) ** 2 / 2.0 ** (8 * WORD))


def _runs_of(data: bytes) -> Words:
    """Return the different runs of ``KEY`` bytes, at every byte, each as a word by multiplications."""
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, dtype=np.uint8), WORD)
    words = np.ascontiguousarray(windows).view("<u8").ravel()
    n, mixed = len(words) - KEY + WORD, np.zeros(1, dtype=np.uint64)
    for start in range(0, KEY, WORD):
        mixed = mixed * FACTOR + words[start : start + n]
    return np.unique(mixed)


def _masks(run: Run) -> Iterator[RingVector]:
    _, recorded = run
    seen = recorded.seen
    for party, vector in recorded.inputs.items():
        if (data := seen.vector_bytes(party)) is not None:
            mask = RingVector.from_bytes(recorded.protocol.layout, data).copy()
            mask.subtract(RingVector.encode(recorded.protocol.layout, vector))
            yield mask


def _words(mask: RingVector) -> tuple[Words, bool]:
    """What is compared with other masks: words at both ends and of low bytes; and whether one of any comes twice."""
    data = mask.to_bytes()
    low = [words.astype(np.uint8).tobytes() for words in mask.words]
    of_entries = np.concatenate([words_of(one) for one in low])
    twice = repeats(data) or len(np.unique(of_entries)) < len(of_entries)
    return np.concatenate([words_of(data[:COMPARED] + data[-COMPARED:]), of_entries]), twice


def _alike(mask: RingVector) -> Iterator[float]:
    """How often two key streams are so much alike by chance, byte by byte at the same place, whatever their widths."""
    streams = []
    for segment, words in zip(mask.layout.segments, mask.words, strict=True):
        known = np.full((segment.size, segment.word.itemsize), -1, dtype=np.int16)
        known[:, : segment.wire_bytes] = words.view(np.uint8).reshape(known.shape)[:, : segment.wire_bytes]
        streams.append(known.ravel())
    for one, other in combinations(streams, 2):
        n = min(len(one), len(other))
        both = (one[:n] >= 0) & (other[:n] >= 0)
        equal = int(np.count_nonzero((one[:n] == other[:n]) & both))
        yield float(scipy.stats.binom.sf(equal - 1, int(both.sum()), 1 / 256))


def words_of(mask: bytes) -> Words:
    """The words that begin at every byte; of long masks those alone that end in four zeros, which a repeat has too."""
    starts = range(min(WORD, max(0, len(mask) - WORD + 1)))
    found = [np.frombuffer(mask, dtype="<u8", count=(len(mask) - start) // WORD, offset=start) for start in starts]
    if len(mask) > LONG:
        found = [words[words & np.uint64(15) == 0] for words in found]
    return np.concatenate([np.empty(0, dtype=np.uint64), *found])


def repeats(mask: bytes) -> bool:
    """Whether a word comes twice."""
    words = words_of(mask)
    return len(np.unique(words)) < len(words)


ATTACK = MaskWords()
