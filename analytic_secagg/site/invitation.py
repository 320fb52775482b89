"""What the server proposes for one sum, and what each party makes of it with its own roster."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner
from analytic.model_files import learner_in, model_from_bytes, model_to_bytes, name_in
from analytic_secagg.federation import Step
from analytic_secagg.modes import MODES, Mode
from analytic_secagg.session_config import SessionConfig
from analytic_secagg.site.errors import WireError
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.terms import NO_RECEIPTS, Terms
from secagg import PartyId, ReceiptedSum, SignedBy, SumProtocol
from secagg.encoding import length_prefixed, split_parts
from secagg.errors import ConfigurationError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """An invitation that was understood.

    Args:
        terms: its public parameters, as the server proposes them.
        mode: how it is made.
        setup: what it is made from, keys of this party's own roster among it.
        protocol: the sum.
        step: the learner's sum.
    """

    terms: Terms
    mode: Mode
    setup: SessionConfig
    protocol: SumProtocol
    step: Step[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invitation:
    """One sum as the server proposes it.

    Args:
        terms: its public parameters, as bytes.
        model: the learner and its model, as ``model_to_bytes`` writes them.
        announced: what helpers said before, by party: the key holder's signature and public context, or the keys that
            boxes for a committee are sealed to. An invitation that asks helpers for it has none.
    """

    terms: bytes
    model: bytes = field(repr=False)
    announced: Mapping[PartyId, bytes] = field(default_factory=dict, repr=False)

    @classmethod
    def make(cls, terms: Terms, learner: AnalyticLearner[Any], model: Any) -> Invitation:
        """The invitation to a learner's next sum."""
        return cls(terms=terms.to_bytes(), model=model_to_bytes(learner, model))

    @property
    def question(self) -> Invitation:
        """The same without announcements: what helpers were asked."""
        return replace(self, announced={})

    def with_announced(self, announced: Mapping[PartyId, bytes]) -> Invitation:
        """The same with what helpers answered."""
        return replace(self, announced=dict(sorted(announced.items())))

    def agree(self, roster: Roster) -> Agreement:
        """What a party takes part in if it accepts.

        Raises:
            WireError: no terms or no model, or a model that needs no sum.
            ConfigurationError: other parties than this roster's, unsafe terms, another private form than the terms'
                privacy plan gives, or no context of the key holder.
            FederationError: clients that may hold more rows together than the learner's sums have room for.
        """
        step = self._load(roster)
        terms, mode, setup = self._setup(roster, step)
        if terms.place and (step.noise is not None or terms.receipts != NO_RECEIPTS):
            raise ConfigurationError("sums with noise or receipts stand by themselves; there is no series of them")
        if terms.place:
            protocol: SumProtocol = mode.series(setup).sum(terms.place - 1, setup.layout, setup.context)
        else:
            protocol = step.over(mode.make(setup))
        if terms.receipts != NO_RECEIPTS:
            protocol = ReceiptedSum(protocol=protocol, signed_by=_signed_by(terms.receipts))
        return Agreement(terms=terms, mode=mode, setup=setup, protocol=protocol, step=step)

    def setup(self, roster: Roster) -> tuple[Mode, SessionConfig]:
        """What the sum is made from, also while a helper has not announced anything yet.

        Raises:
            WireError: no terms or no model, or a model that needs no sum.
            ConfigurationError: other parties than this roster's.
        """
        _, mode, setup = self._setup(roster, self._load(roster))
        return mode, setup

    def _setup(self, roster: Roster, step: Step[Any]) -> tuple[Terms, Mode, SessionConfig]:
        """All that a party received goes into the session's context; an announcement has a place of its own."""
        terms = Terms.from_bytes(self.terms)
        if terms.mode not in MODES:
            raise ConfigurationError(f"a mode is one of {', '.join(MODES)}")
        mode = MODES[terms.mode]
        listed = roster.listed(mode.helper)
        _check_parties(mode, "clients", terms.clients, roster.clients)
        _check_parties(mode, f"{mode.helper.name}s" if mode.helper else "helpers", terms.helpers, listed)
        received = length_prefixed(b"flower app", self.terms, step.received)
        setup = SessionConfig(
            layout=step.room(len(terms.clients)),
            clients=terms.clients,
            session_id=terms.session,
            context=hashlib.sha256(received).digest(),
            client_keys=roster.clients,
            helper_keys={party: listed[party] for party in terms.helpers},
            corrupt_helpers=roster.corrupt_helpers,
            server_key=roster.server,
            beacon=roster.beacon,
            corruption=terms.corruption,
            dropout=terms.dropout,
            min_survivors=terms.min_survivors,
            announced=self.announced,
        )
        return terms, mode, setup

    def _load(self, roster: Roster) -> Step[Any]:
        saved = self._read(model_from_bytes)
        plan = Terms.from_bytes(self.terms).privacy
        noise = None if plan is None else plan.form_of(saved.learner)
        number = 0 if noise is None or saved.learner.next_sum(saved.model) is None else noise.due(saved.model)
        step = Step.of(
            saved.learner,
            saved.model,
            number=number,
            noise=noise,
            max_client_rows=roster.max_client_rows,
            n_clients=len(roster.clients),
        )
        if step is None:
            raise WireError("this model is complete; no sum is left to take part in")
        return step

    @property
    def learner_name(self) -> str:
        """The name of the learner, which is not made for it.

        Raises:
            WireError: no model.
        """
        return self._read(name_in)

    @property
    def learner(self) -> AnalyticLearner[Any]:
        """The learner; its model is not made for it.

        Raises:
            WireError: no model.
        """
        return self._read(learner_in)

    def _read(self, read: Callable[[bytes], T]) -> T:
        try:
            return read(self.model)
        except AnalyticError as error:
            raise WireError("these bytes are no model of this version") from error

    @property
    def session(self) -> bytes:
        """Its session id."""
        return Terms.from_bytes(self.terms).session

    def to_bytes(self) -> bytes:
        """For the wire, and for a site's own store."""
        announced = length_prefixed(*_parts_of(self.announced))
        return length_prefixed(self.terms, announced, self.model)

    @classmethod
    def from_bytes(cls, data: bytes) -> Invitation:
        """Read ``to_bytes``."""
        try:
            terms, announced, model = split_parts(data)
            parts = split_parts(announced)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            known = {int.from_bytes(party, "big"): said for party, said in pairs}
            if parts != list(_parts_of(known)):
                raise ValueError("announcements stand in the order of their parties, each once")
        except (ValueError, OverflowError) as error:
            raise WireError("these bytes are no stored invitation") from error
        return cls(terms=terms, announced=known, model=model)


def _parts_of(announced: Mapping[PartyId, bytes]) -> Iterable[bytes]:
    """Each party's number, then what it announced."""
    return (part for party, said in sorted(announced.items()) for part in (party.to_bytes(4, "big"), said))


def _signed_by(name: str) -> SignedBy:
    try:
        return SignedBy(name)
    except ValueError as error:
        raise ConfigurationError("a receipt is signed by server, clients or helpers, or there are none") from error


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
