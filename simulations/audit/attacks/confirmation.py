"""A key holder that guesses a client's statistics asks the noise of the sums that it decrypts whether it is right."""

from __future__ import annotations

import numpy as np
from scipy import stats

from federation.modes import Mode
from secagg import PartyId
from secagg.carriers.adversary import leaning
from secagg.carriers.carrier import CarriedSum
from secagg.carriers.encrypted import Encrypted
from secagg.config import free_numbers
from secagg.layout import IntVector
from secagg.ring import RingVector
from secagg.wire import MessageType
from simulations.audit.attack import PROBE, Attack, Expectation, Outcome, attacked
from simulations.audit.evaluate import Score
from simulations.audit.population import Truth
from simulations.audit.view import AdversaryView, Coalition, SumView, view_of
from simulations.audit.workbench import Bench

LEVEL = 0.01
"""How often a guess is called right whatever was sent."""

SUMS, ENTRIES = 16, 2_731
"""Sums of the same vectors that a trial looks at, of vectors of so many entries (digits): they show what one sum of
vectors sixteen times as long does, so of longer ones fewer are made."""


class Confirmation(Attack):
    """The noise of the sums leans towards the rounding errors of what clients sent, by more than chance."""

    name = "confirmation"
    title = "Whether a guess of all that a client sent is right, asked of the key holder"
    explanation = (
        "The key holder of an encrypted sum is handed what a client sent, as a guess, and looks for traces of rounding "
        "it in the noise of up to sixteen sums that it decrypts. Success: the noise confirms the guess. Chance: a "
        "guess is confirmed by accident in one of a hundred cases at most."
    )
    if_open = "the noise of a CKKS sum confirms a guess; BFV and masks prevent it"

    def expected(self, mode: Mode | None) -> Expectation | None:
        """It applies where a key holder sees the total, and must fail unless the mode says otherwise."""
        guarantee = None if mode is None else mode.guarantee(PROBE)
        if guarantee is None or not guarantee.helpers_learn_total:
            return None
        return Expectation.OPEN if guarantee.helpers_confirm_guesses else Expectation.HIDDEN

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack both clients of cohorts of two."""
        assert mode is not None
        scores = []
        for _ in range(trials):
            cohort = bench.cohort(2)
            vectors = bench.vectors(cohort)
            holder = Coalition(name="key holder", parties=frozenset({next(free_numbers(tuple(cohort)))}))
            n_sums = min(SUMS, -(-SUMS * ENTRIES // bench.layout.size))
            sums = tuple(bench.run(mode, vectors) for _ in range(n_sums))
            view = view_of(sums, holder, bench.known({party: (one, one) for party, one in vectors.items()}))
            scores += [
                attacked(self, view, party, bench.truth(indices, vectors[party]), bench.rng)
                for party, indices in cohort.items()
            ]
        return Outcome(score=Score.pooled(scores))

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> bool:
        """Whether the noise of all sums together leans towards the vector it was handed."""
        assert target is not None
        vector, _ = view.known.worlds[target]
        together = sum(_leaning(one, vector) for one in view.sums) / len(view.sums) ** 0.5
        return bool(stats.norm.sf(together) < LEVEL)

    def score(self, guess: bool, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a client."""
        return Score(hits=int(guess), trials=1, chance=LEVEL)


def _leaning(one: SumView, vector: IntVector) -> float:
    """How far the noise of what the key holder was asked to decrypt leans towards a vector."""
    protocol = one.protocol
    assert isinstance(protocol, CarriedSum)
    assert isinstance(protocol.carrier, Encrypted)
    ((_, request),) = one.knowledge.payloads(MessageType.DECRYPTION_REQUEST)
    cipher, (secrets,) = protocol.carrier.cipher(protocol), one.secrets.values()
    ciphertexts = request[-cipher.upload_bytes :]
    return leaning(cipher, ciphertexts, secrets.decryption, RingVector.encode(one.layout, vector))
