"""What the server proposes for one sum, and what each party makes of it with its own roster."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner, SumSpec
from analytic.model_files import load_model, save_model
from secagg import Assumptions, CommitteeSum, Layout, MaskedSum, PartyId, PlainSum, SumProtocol
from secagg.encoding import length_prefixed
from secagg.errors import ConfigurationError
from simulations.flower.errors import WireError
from simulations.flower.roster import Roster

VERSION = 1
MODES = ("masked", "committee", "plain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The public parameters of one sum, beside the layout, which follows from learner and model.

    Args:
        mode: ``masked``, ``committee`` or ``plain``.
        session: a fresh session id.
        clients: the cohort, by number.
        helpers: the committee, by number; empty in other modes.
        corruption: largest fraction of clients that may collude with the server (masked).
        dropout: largest fraction of clients that may vanish (masked).
        min_survivors: fewest clients in a total (committee, plain).
        previous: the session of this run's sum before, which is over.
    """

    mode: str
    session: bytes
    clients: tuple[PartyId, ...]
    helpers: tuple[PartyId, ...] = ()
    corruption: float = 0.0
    dropout: float = 0.0
    min_survivors: int = 2
    previous: bytes = b""

    def to_bytes(self) -> bytes:
        """One line of JSON, the same for the same terms."""
        content = {
            "version": VERSION,
            "mode": self.mode,
            "session": self.session.hex(),
            "clients": list(self.clients),
            "helpers": list(self.helpers),
            "corruption": self.corruption,
            "dropout": self.dropout,
            "min_survivors": self.min_survivors,
            "previous": self.previous.hex(),
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Terms:
        """Read ``to_bytes``, and nothing that it would write in another way.

        Raises:
            WireError: other bytes.
        """
        try:
            content = json.loads(data)
            terms = cls(
                mode=str(content["mode"]),
                session=bytes.fromhex(content["session"]),
                clients=tuple(int(party) for party in content["clients"]),
                helpers=tuple(int(party) for party in content["helpers"]),
                corruption=float(content["corruption"]),
                dropout=float(content["dropout"]),
                min_survivors=int(content["min_survivors"]),
                previous=bytes.fromhex(content["previous"]),
            )
            canonical = terms.to_bytes()
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise WireError("these are no terms of a sum") from error
        if canonical != data:
            raise WireError(f"these terms are not written as version {VERSION} writes them; install the same version")
        return terms

    def protocol(self, roster: Roster, layout: Layout, context: bytes) -> SumProtocol:
        """The sum as a party sees it that holds this roster.

        Raises:
            ConfigurationError: the roster lacks a party, or the terms are unsafe.
        """
        strangers = set(self.clients) - roster.clients.keys() | set(self.helpers) - roster.helpers.keys()
        if strangers:
            raise ConfigurationError(f"{len(strangers)} parties of these terms are not in the roster")
        if self.mode == "masked":
            return self._masked(roster, layout, context)
        if self.mode == "committee":
            return self._committee(roster, layout, context)
        if self.mode != "plain":
            raise ConfigurationError(f"a mode is one of {', '.join(MODES)}")
        return PlainSum(
            layout=layout,
            clients=self.clients,
            session_id=self.session,
            context=context,
            min_survivors=self.min_survivors,
        )

    def _masked(self, roster: Roster, layout: Layout, context: bytes) -> MaskedSum:
        return MaskedSum(
            layout=layout,
            clients=self.clients,
            session_id=self.session,
            context=context,
            assumptions=Assumptions(corruption=self.corruption, dropout=self.dropout, malicious_server=True),
            identities=tuple(roster.clients[party] for party in self.clients),
        )

    def _committee(self, roster: Roster, layout: Layout, context: bytes) -> CommitteeSum:
        return CommitteeSum(
            layout=layout,
            clients=self.clients,
            session_id=self.session,
            context=context,
            helper_keys=tuple((party, roster.helpers[party]) for party in self.helpers),
            min_survivors=self.min_survivors,
            identities=tuple(roster.clients[party] for party in self.clients),
            server_identity=roster.server,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """An invitation that was understood.

    Args:
        protocol: the sum, built from this party's own roster.
        learner: the closed form.
        model: what it has learned so far.
        spec: the sum that it needs next.
    """

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
    """

    terms: bytes
    model_files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def make(cls, terms: Terms, learner: AnalyticLearner[Any], model: Any) -> Invitation:
        """The invitation to a learner's next sum."""
        with tempfile.TemporaryDirectory() as folder:
            save_model(Path(folder), learner, model)
            files = {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}
        return cls(terms=terms.to_bytes(), model_files=files)

    def agree(self, roster: Roster) -> Agreement:
        """What a party takes part in if it accepts. All that it received goes into the session's context.

        Raises:
            WireError: no terms or no model, or a model that needs no sum.
            ConfigurationError: parties that this roster lacks, or unsafe terms.
        """
        terms = Terms.from_bytes(self.terms)
        learner, model = self._load()
        spec = learner.next_sum(model)
        if spec is None:
            raise WireError("this model is complete; no sum is left to take part in")
        received = length_prefixed(b"flower app", self.terms, learner.context_bytes(model))
        protocol = terms.protocol(roster, Layout.of(spec.segments), hashlib.sha256(received).digest())
        return Agreement(protocol=protocol, learner=learner, model=model, spec=spec)

    def _load(self) -> tuple[AnalyticLearner[Any], Any]:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in self.model_files.items():
                if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]{0,127}", name):
                    raise WireError("a model's files have plain names")
                (Path(folder) / name).write_bytes(content)
            try:
                saved = load_model(Path(folder))
            except AnalyticError as error:
                raise WireError("these files hold no model of this version") from error
        return saved.learner, saved.model

    @property
    def session(self) -> bytes:
        """Its session id."""
        return Terms.from_bytes(self.terms).session

    def to_bytes(self) -> bytes:
        """For a site's own folder."""
        parts = [part for name, content in sorted(self.model_files.items()) for part in (name.encode(), content)]
        return length_prefixed(self.terms, *parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Invitation:
        """Read ``to_bytes``."""
        parts, place = [], 0
        while place < len(data):
            size = int.from_bytes(data[place : place + 8], "big")
            parts.append(data[place + 8 : place + 8 + size])
            place += 8 + size
        if not parts or place != len(data) or len(parts) % 2 == 0:
            raise WireError("these bytes are no stored invitation")
        names = [name.decode(errors="replace") for name in parts[1::2]]
        return cls(terms=parts[0], model_files=dict(zip(names, parts[2::2], strict=True)))
