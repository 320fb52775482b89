"""A key holder that guesses a client's statistics asks the noise of the sums that it decrypts whether it is right."""

from __future__ import annotations

import numpy as np
from scipy import stats

from analytic_secagg.modes import Mode
from secagg.encoder import EncodedSum
from secagg.encryption.encrypted import Encrypted
from secagg.layout import IntVector
from secagg.ring import RingVector
from secagg.wire import MessageType
from simulations.audit.evaluate import Score
from simulations.audit.view import RecordedSum
from simulations.audit.workbench import Bench
from support.noise_of_sum import NoiseOfSum

LEVEL = 0.01
"""How often a guess is called right whatever was sent."""

SUMS, ENTRIES = 12, 2_731
"""Sums of the same vectors that a trial looks at, of vectors of so many entries (digits): they show what one sum of
vectors twelve times as long does, so of longer ones fewer are made."""


def confirmed(bench: Bench, mode: Mode, trials: int) -> Score:
    """Hand the key holder what a client sent, as a guess, for both clients of cohorts of two.

    It looks for traces of rounding the guess in the noise of up to twelve sums that it decrypts. A trial is won where
    the noise confirms the guess.
    """
    scores = []
    for _ in range(trials):
        cohort = bench.cohort(2)
        vectors = bench.vectors(cohort)
        n_sums = min(SUMS, -(-SUMS * ENTRIES // bench.layout.size))
        sums = [bench.run(mode, vectors) for _ in range(n_sums)]
        leanings = np.array([_leanings(one, list(vectors.values())) for one in sums])
        found = [bool(stats.norm.sf(one) < LEVEL) for one in leanings.sum(axis=0) / len(leanings) ** 0.5]
        scores.append(Score(hits=sum(found), trials=len(found), chance=LEVEL))
    return Score.pooled(scores)


def _leanings(one: RecordedSum, vectors: list[IntVector]) -> list[float]:
    """How far the noise of what the key holder was asked to decrypt leans towards each of some vectors."""
    protocol = one.protocol
    assert isinstance(protocol, EncodedSum)
    assert isinstance(protocol.encoder, Encrypted)
    ((_, request),) = one.seen.knowledge.payloads(MessageType.DECRYPTION_REQUEST)
    cipher, (secrets,) = protocol.encoder.cipher(protocol), one.parties.secrets.values()
    noise = NoiseOfSum(cipher, request[-cipher.upload_bytes :], secrets.decryption)
    return [noise.leaning(RingVector.encode(protocol.layout, vector)) for vector in vectors]
