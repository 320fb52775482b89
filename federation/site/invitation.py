"""What the server proposes for one sum, and what each party makes of it with its own roster."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner
from analytic.model_files import model_from_bytes, model_to_bytes
from federation.federation import Step
from federation.site.errors import WireError
from federation.site.modes import Basis, Sum
from federation.site.roster import Roster
from federation.site.terms import Terms
from secagg.encoding import length_prefixed, split_parts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """An invitation that was understood.

    Args:
        basis: what the sum is made from, this party's own roster among it.
        protocol: the sum.
        step: the learner's sum.
    """

    basis: Basis
    protocol: Sum
    step: Step[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """One sum as the server proposes it.

    Args:
        terms: its public parameters, as bytes.
        model: the learner and its model, as ``model_to_bytes`` writes them.
        signed_context: the key holder's signature and public context, where vectors are encrypted. An invitation that
            asks the key holder for them has none.
    """

    terms: bytes
    model: bytes = field(repr=False)
    signed_context: bytes = field(default=b"", repr=False)

    @classmethod
    def make(cls, terms: Terms, learner: AnalyticLearner[Any], model: Any) -> Invitation:
        """The invitation to a learner's next sum."""
        return cls(terms=terms.to_bytes(), model=model_to_bytes(learner, model))

    @property
    def question(self) -> Invitation:
        """The same without the key holder's context: what the key holder was asked."""
        return replace(self, signed_context=b"")

    def with_context(self, signed_context: bytes) -> Invitation:
        """The same with what the key holder answered."""
        return replace(self, signed_context=signed_context)

    def agree(self, roster: Roster) -> Agreement:
        """What a party takes part in if it accepts.

        Raises:
            WireError: no terms or no model, or a model that needs no sum.
            ConfigurationError: other parties than this roster's, unsafe terms, or no context of the key holder.
        """
        step = self._load()
        basis = self._basis(roster, step)
        return Agreement(basis=basis, protocol=basis.make_sum(), step=step)

    def basis(self, roster: Roster) -> Basis:
        """What the sum is made from, also while the key holder's context is still missing.

        Raises:
            WireError: no terms or no model, or a model that needs no sum.
        """
        return self._basis(roster, self._load())

    def _basis(self, roster: Roster, step: Step[Any]) -> Basis:
        """All that a party received goes into the session's context; the key holder's has a place of its own."""
        received = length_prefixed(b"flower app", self.terms, step.received)
        return Basis(
            terms=Terms.from_bytes(self.terms),
            roster=roster,
            layout=step.layout,
            context=hashlib.sha256(received).digest(),
            signed_context=self.signed_context,
        )

    def _load(self) -> Step[Any]:
        try:
            saved = model_from_bytes(self.model)
        except AnalyticError as error:
            raise WireError("these bytes are no model of this version") from error
        step = Step.of(saved.learner, saved.model)
        if step is None:
            raise WireError("this model is complete; no sum is left to take part in")
        return step

    @property
    def session(self) -> bytes:
        """Its session id."""
        return Terms.from_bytes(self.terms).session

    def to_bytes(self) -> bytes:
        """For the wire, and for a site's own store."""
        return length_prefixed(self.terms, self.signed_context, self.model)

    @classmethod
    def from_bytes(cls, data: bytes) -> Invitation:
        """Read ``to_bytes``."""
        try:
            terms, signed_context, model = split_parts(data)
        except ValueError as error:
            raise WireError("these bytes are no stored invitation") from error
        return cls(terms=terms, signed_context=signed_context, model=model)
