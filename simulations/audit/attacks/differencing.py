"""What a difference shows: of two totals, of a total and one's own part of it, of two uploads under the same masks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from federation.modes import Mode
from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.attack import VICTIM, Attack, Expectation, Outcome, VictimAttack, attacked, score_vector
from simulations.audit.evaluate import Picture, Score
from simulations.audit.population import Truth
from simulations.audit.reading import Reading
from simulations.audit.recorder import RecordedSum, record_sum, view_of
from simulations.audit.view import SERVER_ALONE, AdversaryView, Coalition
from simulations.audit.workbench import Bench


class _OfTotals(VictimAttack[IntVector | None]):
    """An attack on totals, which are meant to be seen: no mode hides anything from it."""

    def expected(self, mode: Mode | None) -> Expectation | None:
        """It wins in every mode."""
        return None if mode is None else Expectation.LEAKS

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a cohort."""
        return score_vector(guess, truth)


class Differencing(_OfTotals):
    """The target was in the first sum and not in the second; everybody else was in both with the same rows."""

    name = "differencing"
    title = "One client, from two totals that differ by it"
    explanation = (
        "Two totals over the same clients and rows, one of them without the target: their difference is the target's "
        "statistics. No mask helps, since both totals are meant to be seen. Success: every number exact. Chance: less "
        "than naming one row out of the pool."
    )

    def sums(self, bench: Bench, mode: Mode, vectors: Mapping[PartyId, IntVector]) -> tuple[RecordedSum, ...]:
        """Return two sums, the second without the victim, who did not show up."""
        others = {party: vector for party, vector in vectors.items() if party != VICTIM}
        second = record_sum(bench.parties(mode, tuple(vectors)), others, model=bench.model, entropy=bench.entropy)
        return bench.run(mode, vectors), second

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The first total less the second."""
        first, second = view.sums[0].read_rest(), view.sums[1].read_rest()
        return None if first is None or second is None else first - second


class InsiderDifferencing(_OfTotals):
    """FedHiP hands every client the total; a client takes its own part off. Of two clients, that leaves the other."""

    name = "insider_differencing"
    former_name = "own_part"
    title = "The other client, when clients receive the total (FedHiP)"
    explanation = (
        "FedHiP gives every client the total. A client that subtracts its own part knows the sum of all others; in a "
        "cohort of two that is the other client. Success: every number exact. Chance: less than naming one row out of "
        "the pool."
    )

    cohort_size = 2
    coalition = Coalition(name="another client", parties=frozenset({1}), given_total=True)

    def sums(self, bench: Bench, mode: Mode, vectors: Mapping[PartyId, IntVector]) -> tuple[RecordedSum, ...]:
        """Return one sum, of the insider and the victim."""
        return (bench.run(mode, vectors),)

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The total less everything that the coalition put in."""
        return view.sums[-1].read_rest()


@dataclass(frozen=True)
class MaskReuse(Attack):
    """Between two sums the target adds one row. Equal masks cancel in the difference of its uploads: x x^T is left.

    Args:
        run: makes each of the two sums.
    """

    run: Callable[[Bench, Mode, Mapping[PartyId, IntVector]], RecordedSum] = Bench.run

    name = "mask_reuse"
    title = "The row that a client added between two sums"
    explanation = (
        "The same client sends two messages and has one more row the second time. If a mask were ever used twice, the "
        "difference of the messages would be that row. Success: the row, every number exact. Chance: naming one row "
        "out of the pool."
    )

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Every client of one cohort, twice as many as trials, adds a row between two sums."""
        assert mode is not None
        return Outcome(score=self.on_clients(bench, mode, 2 * trials))

    def on_clients(self, bench: Bench, mode: Mode, n_clients: int) -> Score:
        """One trial for each client of a cohort."""
        cohort = {party: indices for party, indices in bench.cohort(max(2, n_clients), 6).items() if len(indices) > 1}
        before = {party: bench.vector(indices[:-1]) for party, indices in cohort.items()}
        after = bench.vectors(cohort)
        view = view_of((self.run(bench, mode, before), self.run(bench, mode, after)), SERVER_ALONE, bench.known())
        return Score.pooled(
            attacked(self, view, party, bench.truth(indices[-1:], after[party]), bench.rng)
            for party, indices in cohort.items()
        )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> NDArray[np.int64] | None:
        """The row, if the difference of the uploads is one row's statistics."""
        before, after = view.read(target, number=0), view.read(target, number=1)
        if target is None or before is None or after is None:
            return None
        change = Reading.of(view.sums[0].layout, after - before)
        columns = np.flatnonzero(change.cross.any(axis=0))
        if len(columns) != 1:
            return None
        row: NDArray[np.int64] = change.cross[:, columns[0]]
        return row if np.array_equal(np.outer(row, row), change.gram) else None

    def score(self, guess: NDArray[np.int64] | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a client; the added row is its last one."""
        exact = guess is not None and np.array_equal(guess, truth.rows[-1])
        picture = Picture(true=truth.rows[-1], rebuilt=guess, exact=exact)
        return Score(hits=int(exact), trials=1, chance=1 / truth.pool_size, pictures=(picture,))
