"""A client's own conditions for taking part, which no server can lower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from secagg.committee.parameters import CommitteeParameters
from secagg.config import harmless_colluders
from secagg.errors import ConfigurationError, PolicyError
from secagg.he.config import EncryptedSumParameters
from secagg.he.masked_config import MaskedEncryptedParameters
from secagg.masked.assumptions import Assumptions
from secagg.masked.parameters import MaskedParameters
from secagg.sessions import PartyId, SumProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """What a site demands of every sum it joins; it comes from the site's own file, never from the server.

    Args:
        modes: the modes it accepts. ``plain`` is refused unless it is listed: never in the clear by accident. Like it
            ``ckks`` and ``bfv`` know no identities of clients: list them only where the server does not lie.
        min_clients: smallest cohort.
        min_survivors: fewest clients that a released total may hold.
        min_corruption: fraction of clients whose collusion with the server must not hurt: they open no secret, and
            every total holds at least two clients beside them.
        identities: the operator's roster, public key by client; every client of the cohort must be in it with
            that key. Empty accepts sessions without identities (semi-honest: for simulations only).
        helpers: the operator's helpers, public key by number; every helper of a committee must be in it with that
            key. Empty accepts whatever helpers a sum has.
        server_identity: the key with which a committee's server signs its survivors. Empty accepts any.
        holder_identity: the key with which the key holder of an encrypted sum signs its context. Empty accepts any.
    """

    modes: frozenset[str] = frozenset({"masked"})
    min_clients: int = 3
    min_survivors: int = 3
    min_corruption: float = 0.0
    identities: Mapping[PartyId, bytes] = field(default_factory=dict)
    helpers: Mapping[PartyId, bytes] = field(default_factory=dict)
    server_identity: bytes = b""
    holder_identity: bytes = b""

    def __post_init__(self) -> None:
        if not isinstance(self.modes, set | frozenset) or not all(isinstance(mode, str) for mode in self.modes):
            raise ConfigurationError(
                f"modes is a set of names such as {{'masked'}}, not {type(self.modes).__name__}; a text would accept "
                "every part of it"
            )
        if self.min_clients < 1 or self.min_survivors < 1 or not 0 <= self.min_corruption < 1:
            raise ConfigurationError("a policy needs cohorts and survivors of at least 1 and a corruption below 1")

    def check(self, protocol: SumProtocol) -> None:
        """Refuse a sum that falls short of this policy; call it before making a client session.

        Raises:
            PolicyError: names the condition, what it asks for and what the sum offers.
        """
        if protocol.name not in self.modes:
            raise PolicyError(f"this site takes part in {', '.join(sorted(self.modes))} only, not in {protocol.name}")
        self._at_least("a cohort", self.min_clients, len(protocol.clients))
        self._at_least("survivors in a total", self.min_survivors, protocol.survivors_needed)
        inner = _innermost(protocol)
        tolerated = Assumptions(corruption=self.min_corruption).corrupt(len(protocol.clients))
        harmless = (
            inner.harmless_colluders
            if isinstance(inner, MaskedParameters)
            else harmless_colluders(protocol.survivors_needed)
        )
        if harmless < tolerated:
            raise PolicyError(
                f"this site asks for a sum that {tolerated} colluding clients ({self.min_corruption:g} of "
                f"{len(protocol.clients)}) cannot harm; this one bears {harmless}: release totals of at least "
                f"{tolerated + 2} clients and, where clients mask for each other, promise that corruption"
            )
        if self.identities and isinstance(inner, MaskedParameters | CommitteeParameters):
            self._check_roster(inner)
        self._check_beside_the_clients(inner)

    def _check_roster(self, config: MaskedParameters | CommitteeParameters) -> None:
        if not config.is_authenticated:
            raise PolicyError("this site knows its peers by identity keys; this sum has none and trusts the server")
        listed = zip(config.clients, config.identities, strict=True)
        unknown = [party for party, identity in listed if self.identities.get(party) != identity]
        if unknown:
            raise PolicyError(
                f"{len(unknown)} of the {len(config.clients)} clients have another key in this site's roster, or none: "
                f"{unknown[:10]}"
            )

    def _check_beside_the_clients(self, inner: SumProtocol) -> None:
        if isinstance(inner, CommitteeParameters):
            others = [party for party, key in inner.helper_keys if self.helpers.get(party) != key]
            if self.helpers and others:
                raise PolicyError(f"helpers {others[:10]} have another key in this site's list of helpers, or none")
            self._same_identity("server", self.server_identity, inner.server_identity)
        if isinstance(inner, EncryptedSumParameters | MaskedEncryptedParameters):
            self._same_identity("key holder", self.holder_identity, inner.holder_identity)

    def _same_identity(self, whose: str, needed: bytes, offered: bytes) -> None:
        if needed and needed != offered:
            came = "another one" if offered else "none"
            raise PolicyError(f"this site knows the {whose} by its identity key, and the sum has {came}")

    def _at_least(self, what: str, needed: int, offered: int) -> None:
        if offered < needed:
            raise PolicyError(f"this site's policy needs {what} of at least {needed} clients, the sum has {offered}")


def _innermost(protocol: SumProtocol) -> SumProtocol:
    """The sum that protects the vectors: one under noise, or with simulated identities, wraps it."""
    while (wrapped := getattr(protocol, "protocol", None)) is not None:
        protocol = wrapped
    return protocol
