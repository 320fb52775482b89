"""Plan of one round: the public description from which server and clients make the same sum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Self

from pydantic import TypeAdapter

from analytic_secagg.errors import UsageError
from analytic_secagg.mean.terms import MeanTerms
from analytic_secagg.modes import MODES
from analytic_secagg.session_config import SessionConfig
from analytic_secagg.site.roster import Roster
from secagg import MeanSpec, PartyId, SumProtocol
from secagg.config import MAX_CLIENTS
from secagg.dp import NoisySum, PrivateMeanSpec
from secagg.encoding import length_prefixed


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanPlan:
    """The public description of one round's mean, which the server states.

    Args:
        session: id of the sum, in hexadecimal digits; likewise the digests.
        members: a name of each client that lasts from round to round: its number in the roster, or the engine's own
            name of its node.
        shapes: name and shape of each float array of the model.
        model: digest of the model to train.
        options: digest of all else that clients train with.
        exponents: scales of the round where they are carried; empty for those of the terms.
        helpers: number and public key of each helper of a committee.

    Raises:
        UsageError: something is of another kind.
    """

    session: str
    members: tuple[str, ...]
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    model: str
    options: str
    exponents: tuple[int, ...] = ()
    helpers: tuple[tuple[PartyId, str], ...] = ()

    def __post_init__(self) -> None:
        texts = [self.session, self.model, self.options, *self.members, *(key for _, key in self.helpers)]
        if not all(type(text) is str for text in texts) or not 1 <= len(self.members) <= MAX_CLIENTS:
            raise UsageError(f"a plan names 1 to {MAX_CLIENTS} clients and digests in hexadecimal digits")
        if len({*self.members}) != len(self.members):
            raise UsageError("a plan names each client once")
        if any(bytes.fromhex(text).hex() != text for text in (self.session, self.model, self.options)):
            raise UsageError("a plan's session and digests are small hexadecimal digits")

    def to_bytes(self) -> bytes:
        """Return its encoding."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> MeanPlan:
        """Return the plan of an encoding.

        Raises:
            ValueError: it is none.
        """
        return _PLANS.validate_json(data, strict=True)

    @property
    def parties(self) -> tuple[PartyId, ...]:
        """Numbers of the clients in a sum without a roster: their places in the plan, from 1."""
        return tuple(range(1, len(self.members) + 1))

    def with_helpers(self, keys: Mapping[PartyId, bytes]) -> Self:
        """Return the plan of a committee whose helpers announced these keys."""
        return replace(self, helpers=tuple((party, key.hex()) for party, key in sorted(keys.items())))

    def spec(self, terms: MeanTerms) -> MeanSpec | PrivateMeanSpec:
        """Return the mean of the round.

        Raises:
            ConfigurationError: the plan makes no mean.
        """
        return terms.spec(self.shapes, len(self.members), self.exponents if terms.carry_scales else ())

    def sum(self, terms: MeanTerms, roster: Roster | None) -> tuple[MeanSpec | PrivateMeanSpec, SumProtocol]:
        """Return the mean of the round, and its sum.

        Args:
            terms: that this party agreed on.
            roster: this party's copy; None for a semi-honest server.

        Raises:
            UsageError: scales that a malicious server could choose, or a client that the roster does not list.
            ConfigurationError: the plan makes no sum.
        """
        spec = self.spec(terms)
        received = (bytes.fromhex(self.model), bytes.fromhex(self.options), *(name.encode() for name in self.members))
        announced = {party: bytes.fromhex(key) for party, key in self.helpers}
        setup = SessionConfig(
            layout=spec.masked_layout if isinstance(spec, PrivateMeanSpec) else spec.layout,
            clients=self.parties,
            session_id=bytes.fromhex(self.session),
            context=hashlib.sha256(length_prefixed(*received)).digest(),
            helper_keys=announced,
            corrupt_helpers=terms.corrupt_helpers,
            announced=announced,
        )
        if roster is not None:
            setup = self._with_identities(setup, terms, roster)
        sum_ = MODES[terms.mode].make(setup)
        if isinstance(spec, PrivateMeanSpec):
            sum_ = NoisySum(protocol=sum_, layout=spec.layout, noise=spec.noise)
        return spec, sum_

    def _with_identities(self, setup: SessionConfig, terms: MeanTerms, roster: Roster) -> SessionConfig:
        if terms.carry_scales:
            raise UsageError("scales that a server names need a semi-honest one: leave carry_scales out of the terms")
        parties = tuple(int(name) for name in self.members)
        if tuple(map(str, parties)) != self.members:
            raise UsageError("a plan names clients by their numbers in the roster, in plain digits")
        if strangers := sorted({*parties} - roster.clients.keys()):
            raise UsageError(f"the roster lists no client {strangers[0]}; compare the rosters' fingerprints")
        return replace(
            setup,
            clients=parties,
            client_keys=roster.clients,
            server_key=roster.server,
            helper_keys=roster.listed(MODES[terms.mode].helper),
            corrupt_helpers=roster.corrupt_helpers,
        )


_PLANS = TypeAdapter(MeanPlan)
