"""The server takes a message apart with every key and share that it was sent."""

from __future__ import annotations

import numpy as np

from analytic_secagg.modes import Mode
from secagg.layout import IntVector
from simulations.audit.attack import FEW_CLIENTS, Attack, Outcome, VectorGuesser, attacked
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure
from simulations.audit.knowledge import Known
from simulations.audit.view import read_integers
from simulations.audit.workbench import Bench, who_spoke


class Unmasking(VectorGuesser, Attack):
    """The server takes off every mask whose seed it can rebuild from the messages of a sum."""

    name = "unmasking"
    former_name = "collusion"
    title = "One client, by a server that puts all messages of a sum together"
    explanation = (
        "The server uses every key and share that it was sent to take the target's message apart, as far as the "
        "protocol's own mathematics allow; also where the target's message came late and it is counted as lost. "
        "Success: every number exact. Chance: less than naming one row out of the pool. A server that colludes with "
        "others is no attack here: see who must not collude."
    )

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Attack the clients of a sum, and of one for each client in which that one comes late."""
        assert mode is not None
        everybody = bench.cohort(FEW_CLIENTS)
        vectors = bench.vectors(everybody)
        sums = [bench.run(mode, vectors), *(bench.run_with_dropouts(mode, vectors, late) for late in everybody)]
        scores = (
            attacked(self, Exposure.of((recorded,), party), bench.known(), bench.truth(rows, vectors[party]), bench.rng)
            for cohort, recorded in (who_spoke(everybody, one) for one in sums)
            for party, rows in cohort.items()
        )
        return Outcome(score=Score.pooled(scores))

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> IntVector | None:
        """Return the target's vector, or what is left of the masks."""
        (one,), target = seen.sums, seen.target
        opened = None if target is None else one.protocol.reconstruct_upload(one.knowledge, target)
        return None if opened is None else read_integers(one.layout, opened.to_bytes())


ATTACK = Unmasking()
