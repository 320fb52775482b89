"""Membership of a row by all sums of a run, each of which is about another layer of the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner, ClientRows
from simulations.audit.attack import MembershipAttack
from simulations.audit.attacks.membership import membership_evidence
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.knowledge import Known
from simulations.audit.population import Truth, pooled, singles
from simulations.audit.view import Reading

Floats = NDArray[np.float64]

ASKED = 300
"""Candidates that are asked about, half of them outlying: the client's code runs on each of them in each sum."""

LEAST = -1e6
"""What a row scores in a sum that it cannot be in, so that other sums still count."""


class AllSums(MembershipAttack):
    """Adds up the membership evidence of every sum of a run that has a Gram."""

    name = "all_sums"
    former_name = "many_sums"
    title = "Whether a given row was used, when a learner asks for many sums"
    explanation = (
        "A deep learner asks for several sums, each about another layer of the same rows, and the trace that a row "
        "leaves in each adds up. Success: of a row that was used and one that was not, the right one. Chance: one half."
    )
    sees = frozenset({Kind.TOTALS})

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> Floats:
        """Return a score for each candidate that is asked about, and NaN for others.

        Everything that a client does with a row is public, so the attacker runs the client's code on one candidate; the
        Gram of one row is its outer product, and any column of that is the row of that layer, up to a factor.
        """
        assert seen.learner is not None
        far, near = np.flatnonzero(known.rows.outlying), np.flatnonzero(~known.rows.outlying)
        asked = np.concatenate([rng.permutation(far)[: ASKED // 2], rng.permutation(near)[: ASKED // 2]])
        some = list(singles(known.candidates.taken(asked)))  # each remembers its layers from one sum to the next
        public_rows = list(singles(known.public.taken(np.arange(min(ASKED, len(known.public))))))
        total = np.zeros(len(asked))
        for number, one in enumerate(seen.sums):
            vector = seen.read(number)
            if vector is None or {"gram", "cross"} - {segment.name for segment in one.layout.segments}:
                continue
            candidates, fits = _layer(seen.learner, one.model, some)
            public, of_public = _layer(seen.learner, one.model, public_rows)
            evidence = membership_evidence(Reading.of(one.layout, vector), candidates[fits], public[of_public])
            total[fits] += np.maximum(evidence, LEAST)
            total[~fits] += LEAST  # a client with such a row would have been refused
        scores = np.full(len(known.candidates), np.nan)
        scores[asked] = total
        return scores

    def score(self, guess: Floats, truth: Truth, rng: np.random.Generator) -> Score:
        """Score pairs of a row that was used and one that was not."""
        asked = ~np.isnan(guess)
        few = replace(truth, is_member=truth.is_member[asked], is_outlying=truth.is_outlying[asked])
        return super().score(guess[asked], few, rng)


def _layer(learner: AnalyticLearner[Any], model: Any, rows: Sequence[ClientRows]) -> tuple[Floats, NDArray[np.bool_]]:
    """Return what each row adds to a sum, as a row of that layer, and whether the sum's format takes it."""
    found = list[Floats | None]()
    for row in rows:
        try:
            found.append(_row_of(pooled(learner.client_statistics(model, row)).gram))
        except AnalyticError:
            found.append(None)
    width = next((len(one) for one in found if one is not None), 0)
    fits = np.array([one is not None for one in found], dtype=np.bool_)
    return np.array([np.zeros(width) if one is None else one for one in found]), fits


def _row_of(gram: NDArray[np.int64]) -> Floats:
    """Return the row whose outer product this is, up to its sign."""
    place = int(np.argmax(gram.diagonal()))
    length = np.sqrt(float(gram[place, place]))
    return np.asarray(gram[place] / length if length else gram[place].astype(np.float64))


ATTACK = AllSums()
