"""An exposure: one thing that somebody sees of a federation, such as a message, a total, or the released model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from analytic.learner import AnalyticLearner
from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.view import Reading, RecordedSum, SumView


class Kind(StrEnum):
    """Kinds of exposures."""

    MESSAGE = "message"
    """The message that carries one client's vector."""
    TOTAL = "total"
    """The exact sum over a cohort."""
    TOTALS = "totals"
    """Several sums of the same rows: of a run, or of cohorts that differ."""
    NOISY_TOTAL = "noisy total"
    """A sum over a cohort with noise for differential privacy in it."""
    MODEL = "model"
    """The model that a run ends in, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Exposure:
    """A thing that an attacker looks at; all that it knows besides comes as ``knowledge.Known``.

    Args:
        kind: what it is.
        sums: what the server saw of each sum, in order; none for a model.
        target: whose message it is; None where it is about all clients together.
        learner: the closed form, whose configuration is public.
        model: the released model, for a kind ``MODEL``.
    """

    kind: Kind
    sums: tuple[SumView, ...] = ()
    target: PartyId | None = None
    learner: AnalyticLearner[Any] | None = None
    model: Any = None

    @classmethod
    def of(
        cls,
        sums: tuple[RecordedSum, ...],
        target: PartyId | None = None,
        *,
        kind: Kind | None = None,
        learner: AnalyticLearner[Any] | None = None,
        colluders: frozenset[PartyId] = frozenset(),
    ) -> Self:
        """Return what the server saw of recorded sums: of one client, or, for no client, of what they add up to.

        Args:
            sums: the sums.
            target: the client.
            kind: what it is; by default a message, one total or several.
            learner: the closed form.
            colluders: who shares all that it drew and knows with the server.
        """
        about_total = Kind.TOTAL if len(sums) == 1 else Kind.TOTALS
        return cls(
            kind=kind or (about_total if target is None else Kind.MESSAGE),
            sums=tuple(one.seen_by(colluders) for one in sums),
            target=target,
            learner=learner,
        )

    def read(self, number: int = -1) -> IntVector | None:
        """Return the target's message taken for integers, or, without a target, the total; None where there is none."""
        if not self.sums:
            return None
        one = self.sums[number]
        return one.read_total() if self.target is None else one.read_upload(self.target)

    @property
    def reading(self) -> Reading | None:
        """The last sum's vector taken for a Gram and a cross-correlation; None where nothing was seen."""
        vector = self.read()
        return None if vector is None else Reading.of(self.sums[-1].layout, vector)
