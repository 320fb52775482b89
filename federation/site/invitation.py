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
from analytic.learner import AnalyticLearner, SumSpec
from analytic.model_files import load_model, save_model
from federation.modes import MODES, Mode
from federation.site.errors import WireError
from federation.site.roster import Roster
from federation.site.terms import Terms
from federation.sum_setup import SumSetup
from secagg import Layout, PartyId, SumProtocol
from secagg.encoding import length_prefixed
from secagg.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """An invitation that was understood.

    Args:
        terms: its public parameters, as the server proposes them.
        mode: how it is made.
        setup: what it is made from, keys of this party's own roster among it.
        protocol: the sum.
        learner: the closed form.
        model: what it has learned so far.
        spec: the sum that it needs next.
    """

    terms: Terms
    mode: Mode
    setup: SumSetup
    protocol: SumProtocol
    learner: AnalyticLearner[Any]
    model: Any
    spec: SumSpec[Any]


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
        learner, model, spec = self._load()
        terms, mode, setup = self._setup(roster, learner, model, spec)
        if terms.place:
            protocol: SumProtocol = mode.series(setup).sum(terms.place - 1, setup.layout, setup.context)
        else:
            protocol = mode.make(setup)
        return Agreement(
            terms=terms, mode=mode, setup=setup, protocol=protocol, learner=learner, model=model, spec=spec
        )

    def setup(self, roster: Roster) -> tuple[Mode, SumSetup]:
        """What the sum is made from, also while a helper has not announced anything yet.

        Raises:
            WireError: no terms or no model, or a model that needs no sum.
            ConfigurationError: other parties than this roster's.
        """
        _, mode, setup = self._setup(roster, *self._load())
        return mode, setup

    def _setup(
        self, roster: Roster, learner: AnalyticLearner[Any], model: Any, spec: SumSpec[Any]
    ) -> tuple[Terms, Mode, SumSetup]:
        """All that a party received goes into the session's context; an announcement has a place of its own."""
        terms = Terms.from_bytes(self.terms)
        if terms.mode not in MODES:
            raise ConfigurationError(f"a mode is one of {', '.join(MODES)}")
        mode = MODES[terms.mode]
        listed = roster.listed(mode.helper)
        if terms.place and mode.make_series is None:
            raise ConfigurationError(f"sums of the mode {mode.name} stand by themselves; there is no series of them")
        _check_parties(mode, "clients", terms.clients, roster.clients)
        _check_parties(mode, f"{mode.helper.name}s" if mode.helper else "helpers", terms.helpers, listed)
        received = length_prefixed(b"flower app", self.terms, learner.context_bytes(model))
        setup = SumSetup(
            layout=Layout.of(spec.segments),
            clients=terms.clients,
            session_id=terms.session,
            context=hashlib.sha256(received).digest(),
            client_keys=roster.clients,
            helper_keys={party: listed[party] for party in terms.helpers},
            server_key=roster.server,
            corruption=terms.corruption,
            dropout=terms.dropout,
            min_survivors=terms.min_survivors,
            announcement=self.signed_context,
        )
        return terms, mode, setup

    def _load(self) -> tuple[AnalyticLearner[Any], Any, SumSpec[Any]]:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.model_files.items():
                if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name):
                    raise WireError("a model's files have plain names")
                (Path(folder) / name).write_bytes(content)
            try:
                saved = load_model(Path(folder))
            except AnalyticError as error:
                raise WireError("these files hold no model of this version") from error
        spec = saved.learner.next_sum(saved.model)
        if spec is None:
            raise WireError("this model is complete; no sum is left to take part in")
        return saved.learner, saved.model, spec

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


def _check_parties(mode: Mode, who: str, named: tuple[PartyId, ...], listed: Mapping[PartyId, bytes]) -> None:
    """Only the roster says who takes part.

    A server that could leave helpers out would keep the one that it colludes with; one that could leave clients out
    would surround a client with its own. Who is away has a place in the terms, and is a dropout.
    """
    if named != tuple(sorted(listed)):
        raise ConfigurationError(
            f"the terms of a sum in the mode {mode.name} must name exactly the {len(listed)} {who} that this party's "
            f"roster lists, in their order; they name {len(named)}, of which {len(set(named) - listed.keys())} are not "
            "in the roster. Compare fingerprints of rosters; if they agree, the server chose for itself"
        )
