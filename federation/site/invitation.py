"""What the server proposes for one sum, and what each party makes of it with its own roster."""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner
from analytic.model_files import load_model, save_model
from federation.federation import Step
from federation.site.errors import WireError
from federation.site.modes import Basis, Sum
from federation.site.roster import Roster
from federation.site.terms import Terms
from secagg.encoding import length_prefixed


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
        model_files: the learner and its model, as ``save_model`` writes them, by file name.
        signed_context: the key holder's signature and public context, where vectors are encrypted. An invitation that
            asks the key holder for them has none.
    """

    terms: bytes
    model_files: Mapping[str, bytes] = field(repr=False)
    signed_context: bytes = field(default=b"", repr=False)

    @classmethod
    def make(cls, terms: Terms, learner: AnalyticLearner[Any], model: Any) -> Invitation:
        """The invitation to a learner's next sum."""
        with tempfile.TemporaryDirectory() as folder:
            save_model(Path(folder), learner, model)
            files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        return cls(terms=terms.to_bytes(), model_files=files)

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
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.model_files.items():
                if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name):
                    raise WireError("a model's files have plain names")
                (Path(folder) / name).write_bytes(content)
            try:
                saved = load_model(Path(folder))
            except AnalyticError as error:
                raise WireError("these files hold no model of this version") from error
        step = Step.of(saved.learner, saved.model)
        if step is None:
            raise WireError("this model is complete; no sum is left to take part in")
        return step

    @property
    def session(self) -> bytes:
        """Its session id."""
        return Terms.from_bytes(self.terms).session

    def to_bytes(self) -> bytes:
        """For a site's own folder."""
        parts = [part for name, content in sorted(self.model_files.items()) for part in (name.encode(), content)]
        return length_prefixed(self.terms, self.signed_context, *parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Invitation:
        """Read ``to_bytes``."""
        parts, place = [], 0
        while place < len(data):
            size = int.from_bytes(data[place : place + 8], "big")
            parts.append(data[place + 8 : place + 8 + size])
            place += 8 + size
        if not parts or place != len(data) or len(parts) % 2:
            raise WireError("these bytes are no stored invitation")
        names = [name.decode(errors="replace") for name in parts[2::2]]
        files = dict(zip(names, parts[3::2], strict=True))
        return cls(terms=parts[0], signed_context=parts[1], model_files=files)
