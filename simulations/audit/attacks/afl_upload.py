"""AFL's own upload, weights and regularised Gram, turned back into the two sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from analytic_secagg.modes import Mode
from secagg import PartyId, PlainSum, new_session_id
from secagg.config import SERVER
from secagg.in_memory import Envelope
from secagg.layout import IntVector
from secagg.wire import MessageType, seal_frame
from simulations.audit.attack import Attack, Expectation, NotTriedError, Outcome, VectorGuesser, attacked, in_the_clear
from simulations.audit.evaluate import Score
from simulations.audit.view import SERVER_ALONE, AdversaryView, Reading, SumView, width_of
from simulations.audit.workbench import Bench

LEARNERS = ("afl", "fedhip")
"""Whose statistics are those of AFL's clients."""

GAMMA = 1.0


@dataclass(frozen=True)
class AflUpload(VectorGuesser, Attack):
    """H = C W, and gamma is the bottom of C's spectrum as long as there are fewer rows than features: G = C - gamma I.

    Args:
        fraction_bits: of the public row format, so that what was whole can be made whole again.
    """

    fraction_bits: int = 0

    name = "afl_upload"
    title = "The sums behind AFL's published upload (W and C)"
    explanation = (
        "AFL's paper has clients send their own weights W and regularised Gram matrix C instead of sums, and calls "
        "that private. One matrix product and the smallest eigenvalue give the sums back. Success: every number exact. "
        "Chance: less than naming one row out of the pool. Our modes never send W and C."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """It wins without protection; no protected mode sends such an upload."""
        return Expectation.LEAKS if mode and in_the_clear(mode) else None

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Twice as many clients as trials send W and C as AFL's paper has it, in a session without any protection.

        Raises:
            NotTriedError: the learner's statistics are not AFL's.
        """
        if bench.learner.name not in LEARNERS:
            raise NotTriedError(f"AFL's published upload: {bench.learner.name} has none, only {' and '.join(LEARNERS)}")
        informed = replace(self, fraction_bits=bench.feature_format.fraction_bits)
        cohort, scores = bench.cohort(2 * trials), list[Score]()
        for party, indices in cohort.items():
            vector = bench.vector(indices)
            view = _view_of_upload(bench, party, informed.upload(Reading.of(bench.layout, vector)))
            # the paper's clients upload no sums of targets
            own = np.concatenate([vector[: sum(segment.size for segment in bench.layout.segments[:2])], vector[-1:]])
            scores.append(attacked(informed, view, party, bench.truth(indices, own), bench.rng))
        return Outcome(score=Score.pooled(scores))

    def upload(self, reading: Reading) -> bytes:
        """What AFL's client sends (He et al., CVPR 2025, Algorithm 1): W = C^-1 H, then C = G + gamma I, as float64."""
        gram = np.ldexp(reading.gram.astype(np.float64), -2 * self.fraction_bits)
        regularised = gram + GAMMA * np.eye(len(gram))
        weights = np.linalg.solve(regularised, np.ldexp(reading.cross.astype(np.float64), -self.fraction_bits))
        return weights.astype("<f8").tobytes() + regularised.astype("<f8").tobytes()

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The vector of sums, made whole."""
        payload = None if target is None else view.sums[-1].knowledge.upload(target)
        if payload is None:
            return None
        sizes = {segment.name: segment.size for segment in view.sums[-1].layout.segments}
        d = width_of(sizes["gram"])
        numbers = np.frombuffer(payload, dtype="<f8")
        if numbers.size != d * d + sizes["cross"]:
            return None
        weights, regularised = numbers[: sizes["cross"]].reshape(d, -1), numbers[sizes["cross"] :].reshape(d, d)
        gamma = float(np.linalg.eigvalsh(regularised)[0])
        gram = np.round(np.ldexp(regularised - gamma * np.eye(d), 2 * self.fraction_bits)).astype(np.int64)
        cross = np.round(np.ldexp(regularised @ weights, self.fraction_bits)).astype(np.int64)
        count = Reading(gram=gram, cross=cross, count=0).rank
        return np.concatenate([gram[np.triu_indices(d)], cross.ravel(), [count]])


def _view_of_upload(bench: Bench, party: PartyId, payload: bytes) -> AdversaryView:
    message = seal_frame(MessageType.PLAIN_INPUT, payload, digest=bytes(32), sender=party, recipient=SERVER)
    seen = SumView(
        protocol=PlainSum(layout=bench.layout, clients=(party,), session_id=new_session_id()),
        model=bench.model,
        messages=(Envelope(sender=party, recipient=SERVER, message=message),),
        result=None,
        inputs={},
        tapes={},
        secrets={},
    )
    return AdversaryView(coalition=SERVER_ALONE, sums=(seen,), known=bench.known())
