"""The server takes a message apart with what it was sent, and with every secret of parties that collude with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from analytic_secagg.modes import Mode
from secagg import PartyId, SumProtocol
from secagg.layout import IntVector
from simulations.audit.attack import (
    FEW_CLIENTS,
    MASKED,
    Attack,
    Expectation,
    VectorGuesser,
    attacked,
    in_the_clear,
)
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure
from simulations.audit.knowledge import Known
from simulations.audit.population import Truth
from simulations.audit.view import RecordedSum, read_integers
from simulations.audit.workbench import Bench, who_spoke

COALITIONS = 4
"""Coalitions that attack a message, each drawn anew."""


class Collusion(VectorGuesser, Attack):
    """The server and its colluders take off every mask whose seed one of them, or some together, can rebuild."""

    name = "collusion"
    title = "One client, by a server that colludes with as many others as the mode withstands"
    explanation = (
        "The server pools all messages of a sum with the keys and random numbers of other clients and helpers, drawn "
        f"at random: of {FEW_CLIENTS} clients as many as the mode is stated to withstand. They take the target's "
        "message apart as far as the protocol's own mathematics allow, all together or some of them, also where it "
        "came late and is counted as lost. Success: every number exact. Chance: less than naming one row of the pool. "
        "Its control is one colluder more, who must win."
    )

    def expected(self, mode: Mode | None) -> Expectation | None:
        """Return that messages must hide it; there is nothing to take apart where they are in the clear."""
        return None if mode is None or in_the_clear(mode) else Expectation.HIDDEN

    def control(self, bench: Bench, trials: int) -> Score | None:
        """Attack with one client more than masks withstand."""
        return _score(bench, MASKED, beyond=1)

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        """Attack the clients of a sum, and of one for each client in which that one comes late."""
        assert mode is not None
        return _score(bench, mode)

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> IntVector | None:
        """Return the vector of the smallest numbers: the bare message, or what ever more of those who collude open."""
        (one,), target = seen.sums, seen.target
        if target is None or (bare := seen.read()) is None:
            return None
        members = rng.permutation(sorted(one.colluders)).tolist()
        opened = (
            one.protocol.reconstruct_upload(one.shared_by(frozenset(members[:size])).knowledge, target)
            for size in range(len(members) + 1)
        )
        read = (read_integers(one.layout, vector.to_bytes()) for vector in opened if vector is not None)
        return min((bare, *read), key=lambda vector: float(np.log1p(np.abs(vector.astype(np.float64))).sum()))


ATTACK = Collusion()


def _score(bench: Bench, mode: Mode, beyond: int = 0) -> Score:
    """Return one trial for each client's message of a sum, and of one for each client in which that one comes late."""
    taping = replace(bench, taping=True)
    everybody = bench.cohort(FEW_CLIENTS)
    vectors = bench.vectors(everybody)
    sums = [taping.run(mode, vectors), *(taping.run_with_dropouts(mode, vectors, late) for late in everybody)]
    return Score.pooled(
        _on_message(bench, recorded, party, bench.truth(rows, vectors[party]), beyond)
        for cohort, recorded in (who_spoke(everybody, one) for one in sums)
        for party, rows in cohort.items()
    )


def _on_message(bench: Bench, recorded: RecordedSum, target: PartyId, truth: Truth, beyond: int) -> Score:
    """Return one trial, which is won if any of some coalitions wins."""
    coalitions = (_drawn(recorded.protocol, target, beyond, bench.rng) for _ in range(COALITIONS))
    seen = (Exposure.of((recorded,), target, colluders=members) for members in coalitions)
    return max((attacked(ATTACK, one, bench.known(), truth, bench.rng) for one in seen), key=lambda score: score.hits)


def _drawn(protocol: SumProtocol, target: PartyId, beyond: int, rng: np.random.Generator) -> frozenset[PartyId]:
    """Draw as many clients, and helpers with what a message is made of, as are stated not to open one; or more."""
    stated, helpers = protocol.guarantee, protocol.guarantee.reconstruction_helpers
    if stated.client_reconstruction_threshold:
        n_clients, n_helpers = stated.client_reconstruction_threshold - 1 + beyond, len(helpers)
    else:
        n_clients = stated.max_colluding_clients
        n_helpers = (stated.helper_reconstruction_threshold or len(helpers)) - 1 + beyond
    others = [party for party in protocol.clients if party != target]
    drawn = *rng.permutation(others)[:n_clients].tolist(), *rng.permutation(protocol.helpers)[:n_helpers].tolist()
    return frozenset(drawn)
