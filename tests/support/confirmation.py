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
from simulations.audit.attack import PROBE, Attack, Expectation
from simulations.audit.evaluate import Score
from simulations.audit.view import RecordedSum
from simulations.audit.workbench import Bench
from support.noise_of_sum import NoiseOfSum

LEVEL = 0.01
"""How often a guess is called right whatever was sent."""

SUMS, ENTRIES = 12, 2_731
"""Sums of the same vectors that a trial looks at, of vectors of so many entries (digits): they show what one sum of
vectors twelve times as long does, so of longer ones fewer are made."""


class Confirmation(Attack):
    """The noise of the sums leans towards the rounding errors of what clients sent, by more than chance."""

    name = "confirmation"
    title = "Whether a guess of all that a client sent is right, asked of the key holder"
    explanation = (
        "The key holder of an encrypted sum is handed what a client sent, as a guess, and looks for traces of rounding "
        "it in the noise of up to twelve sums that it decrypts. Success: the noise confirms the guess. Chance: a "
        "guess is confirmed by accident in one of a hundred cases at most."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """It applies where a key holder sees the total, and must fail unless the mode says otherwise."""
        guarantee = None if mode is None else mode.guarantee(PROBE)
        if guarantee is None or not guarantee.helpers_learn_total:
            return None
        return Expectation.OPEN if guarantee.helpers_confirm_guesses else Expectation.HIDDEN

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack both clients of cohorts of two."""
        assert mode is not None
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


ATTACK = Confirmation()


def _leanings(one: RecordedSum, vectors: list[IntVector]) -> list[float]:
    """How far the noise of what the key holder was asked to decrypt leans towards each of some vectors."""
    protocol = one.protocol
    assert isinstance(protocol, EncodedSum)
    assert isinstance(protocol.encoder, Encrypted)
    ((_, request),) = one.seen.knowledge.payloads(MessageType.DECRYPTION_REQUEST)
    cipher, (secrets,) = protocol.encoder.cipher(protocol), one.parties.secrets.values()
    noise = NoiseOfSum(cipher, request[-cipher.upload_bytes :], secrets.decryption)
    return [noise.leaning(RingVector.encode(protocol.layout, vector)) for vector in vectors]
