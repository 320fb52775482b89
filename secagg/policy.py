"""A client's own conditions for taking part, which no server can lower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from secagg.config import SERVER
from secagg.errors import ConfigurationError, PolicyError
from secagg.masked.assumptions import Assumptions
from secagg.sessions import PartyId
from secagg.sums import CLIENT_ROLE, SERVER_ROLE, SIGNING_HELPER_ROLE, SumProtocol


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
        helpers: the operator's helpers and key holders, public key by number; every party that a sum needs beside
            clients and server must be in it with that key. Empty accepts whatever helpers a sum has.
        helper_identities: the keys with which helpers sign that have others too (a committee's); likewise.
        server_identity: the key with which the server signs. Empty accepts any.
        accept_confirmed_guesses: whether a key holder may be able to confirm a guess of this site's whole vector, as in
            ``ckks``.
    """

    modes: frozenset[str] = frozenset({"masked"})
    min_clients: int = 3
    min_survivors: int = 3
    min_corruption: float = 0.0
    identities: Mapping[PartyId, bytes] = field(default_factory=dict)
    helpers: Mapping[PartyId, bytes] = field(default_factory=dict)
    helper_identities: Mapping[PartyId, bytes] = field(default_factory=dict)
    server_identity: bytes = b""
    accept_confirmed_guesses: bool = False

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
        guarantee = protocol.guarantee
        tolerated = Assumptions(corruption=self.min_corruption).corrupt(len(protocol.clients))
        if guarantee.harmless_clients < tolerated:
            raise PolicyError(
                f"this site asks for a sum that {tolerated} colluding clients ({self.min_corruption:g} of "
                f"{len(protocol.clients)}) cannot harm; this one bears {guarantee.harmless_clients}: release totals of "
                f"at least {tolerated + 2} clients and, where clients mask for each other, promise that corruption"
            )
        if guarantee.helpers_confirm_guesses and not self.accept_confirmed_guesses:
            raise PolicyError(
                f"this site takes part only where a key holder learns the total alone; in {protocol.name} it can "
                "confirm a guess of a site's whole vector: use bfv or a masked mode, or set accept_confirmed_guesses"
            )
        for role, keys in protocol.public_keys.items():
            self._check_keys(role, keys)

    def _check_keys(self, role: str, keys: Mapping[PartyId, bytes]) -> None:
        """Refuse parties of a role whose keys are not those that this site knows of it, if it knows any."""
        server = {SERVER: self.server_identity} if self.server_identity else {}
        pinned = {CLIENT_ROLE: self.identities, SERVER_ROLE: server, SIGNING_HELPER_ROLE: self.helper_identities}
        known = pinned.get(role, self.helpers)
        if not known:
            return
        if not keys:
            raise PolicyError(f"this site knows every {role} by its key; this sum has none and trusts the server")
        others = [party for party, key in keys.items() if known.get(party) != key]
        if others:
            raise PolicyError(
                f"{len(others)} of the {len(keys)} {role}s have another key in this site's roster, or none: "
                f"{others[:10]}"
            )

    def _at_least(self, what: str, needed: int, offered: int) -> None:
        if offered < needed:
            raise PolicyError(f"this site's policy needs {what} of at least {needed} clients, the sum has {offered}")
