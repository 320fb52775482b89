"""Secrets themselves: whoever recorded what every party drew can see whether it was fresh, and whether it was said."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy import stats

from secagg import MaskedSum, PartyId
from secagg.committee.adversary import opened_boxes
from secagg.committee.protocol import CommitteeSum
from secagg.entropy import Entropy, os_entropy
from secagg.masked.adversary import revealed_self_masks
from secagg.primitives.shamir import SECRET_BYTES
from secagg.sums import CoalitionView
from secagg.wire import payload_of
from simulations.audit.attacks.mask_words import WORD, Words, repeats, words_of
from simulations.audit.evaluate import Score
from simulations.audit.view import RecordedSum, read_integers
from simulations.audit.workbench import Bench, Run

LEVEL = 1e-10
"""How often fresh bytes are called strange."""

RUN = 2 * WORD
"""Bytes in a row that nobody says of a secret, or twice; a nonce, which is drawn and said, is shorter."""

SEARCHED = 1 << 13
"""Bytes at a message's beginning in which secrets are looked for."""

DRAWS, DRAW_BYTES, OF_A_PROCESS = 1 << 17, 8, 1 << 12


def strange_secrets(bench: Bench, runs: list[Run]) -> Score:
    """Look at all that parties drew, which was recorded, and at what helpers get of it.

    It must not look made up, nor come twice, in another client, sum or process; it must be enough, and hold the seeds
    of masks that others get to see; no message shows it, and what a client says in one sum comes in no other. Seeds in
    helpers' boxes must differ, be the same for all who hold one, and together be all of the mask.

    Returns:
        One trial a client, one each for the generator, here and in other processes, for seeds and for keys; won where
        one of this is not so. Chance: that fresh bytes look so.
    """
    drawn = _Drawn.of([recorded for _, recorded in runs])
    hits = [not is_fresh(bench.entropy)]
    said = [_said(recorded) for _, recorded in runs]
    for place, (cohort, recorded) in enumerate(runs):
        others = np.concatenate([np.empty(0, np.uint64), *said[:place], *said[place + 1 :]])
        again, boxes = _has_run(said[place], others), _boxes(recorded)
        used = _seeds_used(recorded, boxes)
        tapes = [words_of(tape) for tape in recorded.tapes.values()]
        aloud = _has_run(said[place], np.concatenate([np.empty(0, np.uint64), *tapes]))
        for party in cohort:
            tape = recorded.tapes.get(party, b"")
            made_up = len(tape) < _least_drawn(recorded) or any(seed not in tape for seed in used[party])
            hits.append(again or aloud or made_up or drawn.is_stale(tape) or _is_amiss(recorded, party, boxes))
    seeds = Counter(seed for _, recorded in runs for seed in _seeds(_boxes(recorded)))
    hits.append(max(seeds.values(), default=1) > 1 or _looks_made_up(b"".join(seeds)))
    hits.append(_looks_made_up(b"".join({key for _, one in runs for key in _long_lived(one)})))
    return Score(hits=sum(hits), trials=len(hits), chance=4 * LEVEL + drawn.chance)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawn:
    """What all parties drew, and which words of it come more than once."""

    shared: Words = field(repr=False)
    chance: float

    @classmethod
    def of(cls, sums: list[RecordedSum]) -> _Drawn:
        strings = [tape for one in sums for tape in one.tapes.values()]
        strings += [own.boxes.secret for one in sums for own in one.parties.secrets.values() if own.boxes is not None]
        words = [np.unique(words_of(one)) for one in strings]
        everywhere, times = np.unique(np.concatenate([np.empty(0, np.uint64), *words]), return_counts=True)
        longest = max(map(len, words), default=0)
        return cls(shared=everywhere[times > 1], chance=longest * len(everywhere) / 2.0 ** (8 * WORD))

    def is_stale(self, tape: bytes) -> bool:
        """Whether a client's bytes repeat themselves or another's, or look made up."""
        return repeats(tape) or bool(np.isin(words_of(tape), self.shared).any()) or _looks_made_up(tape)


def _long_lived(recorded: RecordedSum) -> Iterator[bytes]:
    """The secrets that parties bring into a sum: what they sign with, and what boxes are opened with."""
    for own in recorded.parties.secrets.values():
        yield own.identity.secret if own.identity else b""
        yield own.boxes.secret if own.boxes else b""


def _looks_made_up(data: bytes) -> bool:
    """Whether fair dice give so many, or so few, ones or zero bytes less often than ``LEVEL``."""
    if len(data) < 2 * WORD:
        return False
    ones = int(np.unpackbits(np.frombuffer(data, dtype=np.uint8)).sum())
    zeros = float(stats.binom.sf(data.count(0) - 1, len(data), 1 / 256))
    return min(float(stats.binomtest(ones, 8 * len(data)).pvalue), zeros) < LEVEL


def _said(recorded: RecordedSum) -> Words:
    """The words at the beginnings of what clients say, in the order in which they stand there."""
    own = (payload_of(one.message)[:SEARCHED] for one in recorded.envelopes if one.sender in recorded.inputs)
    return _in_order(b"".join(map(bytes, own)))


def _in_order(data: bytes) -> Words:
    if len(data) < WORD:
        return np.empty(0, dtype=np.uint64)
    windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, dtype=np.uint8), WORD)
    return np.ascontiguousarray(windows).view("<u8").ravel()


def _has_run(words: Words, known: Words) -> bool:
    """Whether ``RUN`` bytes in a row are made of known words."""
    found = np.isin(words, known)
    return bool((found[: -RUN + WORD] & found[RUN - WORD :]).any())


_Boxes = dict[PartyId, dict[PartyId, dict[int, bytes]]]
"""By client and helper: the seeds in a box, by set."""


def _knows_all(recorded: RecordedSum) -> CoalitionView:
    return recorded.seen_by(frozenset(recorded.protocol.helpers)).knowledge


def _boxes(recorded: RecordedSum) -> _Boxes:
    config = recorded.protocol
    if not isinstance(config, CommitteeSum):
        return {}
    return {party: opened_boxes(config, _knows_all(recorded), party) for party in recorded.inputs}


def _seeds(boxes: _Boxes) -> Iterator[bytes]:
    """Every seed of every client once, however many hold it."""
    for of_client in boxes.values():
        yield from {place: seed for of_helper in of_client.values() for place, seed in of_helper.items()}.values()


def _seeds_used(recorded: RecordedSum, boxes: _Boxes) -> dict[PartyId, list[bytes]]:
    """The seeds of masks that anybody but their owner gets to see, by owner: each should have been drawn."""
    config = recorded.protocol
    used = {party: [seed for of in boxes.get(party, {}).values() for seed in of.values()] for party in recorded.inputs}
    if isinstance(config, MaskedSum):
        for owner, seed in revealed_self_masks(config, _knows_all(recorded)).items():
            used[owner].append(seed)
    return used


def _least_drawn(recorded: RecordedSum) -> int:
    """The bytes that a client draws at least: two key pairs, a self-mask, two polynomials; or a seed for each set."""
    config = recorded.protocol
    if isinstance(config, MaskedSum):
        return SECRET_BYTES * (2 * config.shares_needed + 1)
    return SECRET_BYTES * config.seed_sharing.n_seeds if isinstance(config, CommitteeSum) else 0


def _is_amiss(recorded: RecordedSum, party: PartyId, boxes: _Boxes) -> bool:
    """Whether helpers disagree on a client's seeds, or these are not all of its mask."""
    config = recorded.protocol
    if not isinstance(config, CommitteeSum):
        return False
    held = boxes[party]
    told: dict[int, set[bytes]] = {}
    for of_helper in held.values():
        for place, seed in of_helper.items():
            told.setdefault(place, set()).add(seed)
    opened = config.reconstruct_upload(_knows_all(recorded), party)
    bare = opened is not None and np.array_equal(
        read_integers(config.layout, opened.to_bytes()), recorded.inputs[party]
    )
    return set(held) != set(config.helpers) or any(len(seeds) > 1 for seeds in told.values()) or not bare


@lru_cache(maxsize=8)
def is_fresh(entropy: Entropy) -> bool:
    """Whether a generator never says the same again, here or in a process that is a copy of this one or a new one."""
    draws = [entropy(DRAW_BYTES) for _ in range(DRAWS)]
    processes = [entropy(OF_A_PROCESS), *_copies(entropy)]
    if entropy is os_entropy:
        processes += [_new_process(), _new_process()]
    words = np.concatenate([np.unique(words_of(one)) for one in processes])
    return len(set(draws)) == DRAWS and len(np.unique(words)) == len(words)


def _copies(entropy: Entropy) -> Iterator[bytes]:
    """What two forks of this process draw; nothing where there are none."""
    for _ in range(2 if hasattr(os, "fork") else 0):
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the child draws, speaks and ends
            child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                os.write(writer, entropy(OF_A_PROCESS))
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as said:
            yield said.read()
        os.waitpid(child, 0)


def _new_process() -> bytes:
    program = f"import sys, secagg.entropy as own; sys.stdout.buffer.write(own.os_entropy({OF_A_PROCESS}))"
    return subprocess.run((sys.executable, "-c", program), check=True, capture_output=True).stdout
