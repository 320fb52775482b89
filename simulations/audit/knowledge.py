"""Prior knowledge of an attacker: graded, stated by each attack, and all that its guess is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from analytic.learner import ClientRows
from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.population import EnteringRows, Indices

NOBODY: Indices = np.zeros(0, dtype=np.intp)


class Knowledge(StrEnum):
    """Grades of knowledge, each with what the ones before it have."""

    NOTHING = "nothing"
    """The public settings alone."""
    PUBLIC_ROWS = "public rows"
    """Rows of the same population that nobody used, with labels."""
    ONE_ROW = "one row"
    """A row with its label, of which it asks whether it was used. Each candidate is tried in turn."""
    ALL_BUT_ONE = "all but one fact"
    """A list with every row that may have been used, or two data sets one of which was used."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Known:
    """The knowledge that an attacker is granted beside an exposure.

    Args:
        rows: the integer rows that a sum adds up: candidates, some of which were used, and public ones.
        candidates: the candidates as their holder has them, in the order of ``rows``.
        public: the public rows as their holder has them.
        worlds: for some clients two vectors, one of which it contributed.
    """

    rows: EnteringRows = field(repr=False)
    candidates: ClientRows = field(repr=False)
    public: ClientRows = field(repr=False)
    worlds: Mapping[PartyId, tuple[IntVector, IntVector]] = field(default_factory=dict, repr=False)

    def granted(self, needs: Knowledge) -> Known:
        """Return what an attack of this grade may look at."""
        if needs is Knowledge.ALL_BUT_ONE:
            return self
        if needs is Knowledge.ONE_ROW:
            return replace(self, worlds={})
        none = self.rows.candidates[:0], self.rows.candidate_labels[:0], self.rows.outlying[:0]
        rows = replace(self.rows, candidates=none[0], candidate_labels=none[1], outlying=none[2])
        known = replace(self, rows=rows, candidates=self.candidates.taken(NOBODY), worlds={})
        if needs is Knowledge.PUBLIC_ROWS:
            return known
        return replace(known, rows=replace(rows, public=rows.public[:0]), public=self.public.taken(NOBODY))
