"""A client's own requirements for taking part in a sum; no server can weaken them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from secagg.beacon import DrawnGraph, grinding_bits, seed_of_beacon
from secagg.config import SERVER
from secagg.dp.accountant import Release, check_unit_and_adjacency, guarantee
from secagg.dp.conversions import check_epsilon_delta, large_delta
from secagg.encryption.encrypted import HOLDER_ROLE
from secagg.errors import ConfigurationError, PolicyError
from secagg.masked.assumptions import Assumptions
from secagg.sessions import PartyId
from secagg.sums import CLIENT_ROLE, SERVER_ROLE, Guarantee, SumProtocol

MIN_CORRUPTION = 0.2
"""Default fraction of clients whose collusion with the server must be harmless."""


RECEIPTS = {"none": -1, "server": 0, "countersigned": 1}
"""Kinds of receipts, with the minimum number of countersignatures; -1 for no receipt."""

MAX_GRAPHS = 1024
"""Largest number of graphs of one beacon; each is hashed to check a seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseDemand:
    """Minimum noise that a site requires: an (epsilon, delta) for all releases of a run together.

    Args:
        epsilon: largest epsilon of all releases of one run together.
        delta: the delta for it.
        unit: unit of privacy: ``record`` or ``client``.
        adjacency: neighbouring relation: ``add-remove`` or ``replace-one``.
        refuse_large_delta: whether ``check_delta`` refuses a delta that is not below one over the number of those whom
            a run protects.

    Raises:
        secagg.dp.PrivacyError: a field is out of range.

    >>> from fractions import Fraction
    >>> from secagg.dp import Release
    >>> release = Release(label="Gram", unit="record", adjacency="add-remove", rho=Fraction(1, 100))
    >>> NoiseDemand(epsilon=1.0).check([release])
    """

    epsilon: float
    delta: float = 1e-5
    unit: str = "record"
    adjacency: str = "add-remove"
    refuse_large_delta: bool = False

    def __post_init__(self) -> None:
        check_epsilon_delta(self.epsilon, self.delta)
        check_unit_and_adjacency(self.unit, self.adjacency)

    def check(self, releases: Sequence[Release]) -> None:
        """Refuse a run whose releases give weaker privacy.

        Raises:
            PolicyError: the releases cost more epsilon together, or are for another unit or adjacency.
        """
        kinds = {(release.unit, release.adjacency) for release in releases}
        demanded = f"epsilon of at most {self.epsilon:g} at delta {self.delta:g} for one {self.unit}, {self.adjacency}"
        if kinds != {(self.unit, self.adjacency)}:
            came = ", ".join(sorted(f"{unit}, {adjacency}" for unit, adjacency in kinds)) or "no release"
            raise PolicyError(f"this site asks for an {demanded}; what came is for: {came}")
        together = guarantee(releases, self.delta)
        if together.epsilon > self.epsilon:
            raise PolicyError(
                f"this site asks for an {demanded}; {together.releases} releases cost {together.epsilon:.4g} together: "
                "ask for more noise"
            )

    def check_delta(self, delta: float, n: int, *, is_bound: bool = False) -> None:
        """Refuse a run that states too large a delta, or whose cost this site computes at one; does nothing if off.

        Args:
            delta: what the run states.
            n: how many records, or clients, it protects.
            is_bound: whether n only bounds their number, which is below it.

        Raises:
            PolicyError: one of the two is not below 1 / n.
        """
        for whose, own in (("the run's", delta), ("this site's own", self.delta)) if self.refuse_large_delta else ():
            if wrong := large_delta(own, n, self.unit, is_bound=is_bound):
                raise PolicyError(f"{whose} {wrong} (refuse_large_delta)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """Requirements of a site for every sum that it joins. They come from the site's own file, never from the server.

    Args:
        modes: names of the accepted modes. ``plain`` must be listed to be accepted. In ``ckks`` and ``bfv`` the server
            must be semi-honest even with identities.
        min_clients: minimum size of the cohort.
        min_survivors: minimum number of clients in a released total.
        min_corruption: fraction of clients whose collusion with the server must be harmless: they can reconstruct no
            secret, and every total contains at least two other clients.
        identities: the operator's roster: Ed25519 public key by client. Every client of the cohort must be listed with
            its key. Empty accepts sums without identities (semi-honest server, for simulations only).
        helpers: the operator's helpers: by number the Ed25519 public key (or, without identities, the encryption key).
            A committee must consist of these helpers with these keys. Empty accepts any helpers.
        min_helpers: minimum number of listed helpers in a committee; None requires all of them.
        min_corrupt_helpers: minimum number of helpers that may collude with the server without learning a vector. None
            requires all but one.
        min_epoch: oldest accepted epoch of a helper's encryption key. ``RollbackProtection`` refuses epochs that were
            replaced by a newer one.
        key_holders: the operator's key holders: public key by number. Empty accepts any.
        min_security_bits: the privacy of a sparse graph must fail with probability at most 2^-min_security_bits.
        min_correctness_bits: a sum must be impossible to complete with probability at most 2^-min_correctness_bits.
        beacon: the operator's random value, 32 bytes. A sparse graph must be drawn from it over the whole roster, and
            be planned with ``Assumptions.against_grinding``. Empty refuses every sparse graph.
        graphs: number of graphs of the beacon that a server may choose from.
        noise: required noise, added by the clients and sized for at least ``min_corruption`` colluders. None requires
            no noise.
        server_identity: the server's Ed25519 public key. Empty accepts any.
        max_entries: largest number of entries of a vector, a limit on memory. A vector takes four to five times its 8
            bytes an entry while it is computed (4.1 measured for AFL with 50 million entries): about 2.2 GiB for the
            default 2^26, which is 11 500 features.
        total_holders: number of clients that receive the total. It must then contain at least two other clients.
        accept_confirmed_guesses: whether a key holder may be able to confirm a guess of this site's whole vector, as in
            ``ckks``.
        receipts: ``none``; ``server`` requires a receipt of the total; ``countersigned`` requires that other parties
            sign it too, so that no second total of the same sum can have one.

    Raises:
        ConfigurationError: a field is out of range.

    >>> from secagg import Layout, MaskedSum, PlainSum, new_session_id
    >>> public = {"layout": Layout.of([("counts", 2, 100)]), "clients": (1, 2, 3, 4), "session_id": new_session_id()}
    >>> policy = ClientPolicy(modes=frozenset({"masked"}))
    >>> policy.check(MaskedSum(**public))
    >>> policy.check(PlainSum(**public))
    Traceback (most recent call last):
        ...
    secagg.errors.PolicyError: this site takes part in masked only, not in plain
    """

    modes: frozenset[str] = frozenset({"masked"})
    min_clients: int = 3
    min_survivors: int = 3
    min_corruption: float = MIN_CORRUPTION
    min_security_bits: float = 40.0
    min_correctness_bits: float = 20.0
    beacon: bytes = b""
    graphs: int = 1
    identities: Mapping[PartyId, bytes] = field(default_factory=dict)
    helpers: Mapping[PartyId, bytes] = field(default_factory=dict)
    min_helpers: int | None = None
    min_corrupt_helpers: int | None = None
    min_epoch: int = 1
    key_holders: Mapping[PartyId, bytes] = field(default_factory=dict)
    server_identity: bytes = b""
    noise: NoiseDemand | None = None
    max_entries: int = 2**26
    total_holders: int = 0
    accept_confirmed_guesses: bool = False
    receipts: str = "none"

    def __post_init__(self) -> None:
        if self.min_epoch < 1:
            raise ConfigurationError(f"epochs of helpers are numbered from 1, not {self.min_epoch}")
        if not isinstance(self.modes, set | frozenset) or not all(isinstance(mode, str) for mode in self.modes):
            raise ConfigurationError(
                f"modes is a set of names such as {{'masked'}}, not {type(self.modes).__name__}; a text would accept "
                "every part of it"
            )
        for name in ("identities", "helpers", "key_holders"):
            roster = getattr(self, name)
            if not isinstance(roster, Mapping) or any(type(key) is not bytes for key in roster.values()):
                raise ConfigurationError(
                    f"a policy's {name} are public keys by number, such as {{1: key}}, and each key is bytes: "
                    "bytes.fromhex reads a text"
                )
        if type(self.server_identity) is not bytes:
            raise ConfigurationError(
                f"a policy's server_identity is a public key as bytes, not {type(self.server_identity).__name__}"
            )
        if self.min_clients < 1 or self.min_survivors < 1 or not 0 <= self.min_corruption < 1:
            raise ConfigurationError("a policy needs cohorts and survivors of at least 1 and a corruption below 1")
        if self.max_entries < 1:
            raise ConfigurationError(f"a policy takes vectors of at least 1 entry, not {self.max_entries}")
        if self.total_holders < 0:
            raise ConfigurationError(f"total_holders must be 0 or more, not {self.total_holders}")
        if not (self.min_security_bits > 0 and self.min_correctness_bits > 0):
            raise ConfigurationError("a policy needs a positive number of bits of security and of correctness")
        if self.min_helpers is not None and self.min_helpers < 1:
            raise ConfigurationError(f"a policy needs at least 1 helper, not {self.min_helpers}; None asks for all")
        if self.min_corrupt_helpers is not None and self.min_corrupt_helpers < 0:
            raise ConfigurationError(f"a policy needs min_corrupt_helpers of 0 or more, not {self.min_corrupt_helpers}")
        if not 1 <= self.graphs <= MAX_GRAPHS:
            raise ConfigurationError(f"a policy accepts 1 to {MAX_GRAPHS} graphs of a beacon, not {self.graphs}")
        if self.receipts not in RECEIPTS:
            raise ConfigurationError(f"a policy asks for receipts of {', '.join(RECEIPTS)}, not {self.receipts!r}")
        if self.beacon:
            seed_of_beacon(self.beacon, ())

    def check(self, protocol: SumProtocol, releases: Sequence[Release] = ()) -> None:
        """Refuse a sum that does not meet this policy. Call it before creating a client session.

        Args:
            protocol: the sum.
            releases: privacy costs of all noisy sums of the run, computed by the site itself; empty for exact totals.

        Raises:
            PolicyError: names the requirement, its value and the sum's.
        """
        if protocol.name not in self.modes:
            raise PolicyError(f"this site takes part in {', '.join(sorted(self.modes))} only, not in {protocol.name}")
        if protocol.layout.size > self.max_entries:
            raise PolicyError(
                f"this site makes vectors of at most {self.max_entries} entries, and this sum's have "
                f"{protocol.layout.size}: take fewer features or classes, or raise max_entries where memory allows it"
            )
        self._at_least("a cohort", self.min_clients, len(protocol.clients))
        self._at_least("survivors in a total", self.min_survivors, protocol.survivors_needed)
        guarantee = protocol.guarantee
        tolerated = Assumptions(corruption=self.min_corruption).corrupt(len(protocol.clients))
        if guarantee.max_colluding_clients < tolerated:
            raise PolicyError(
                f"this site asks for a sum that {tolerated} colluding clients ({self.min_corruption:g} of "
                f"{len(protocol.clients)}) cannot harm; this one tolerates {guarantee.max_colluding_clients}: release "
                f"totals of at least {tolerated + 2} clients and, in masked modes, assume that corruption"
            )
        if self.total_holders and guarantee.min_survivors < self.total_holders + 2:
            raise PolicyError(
                f"{self.total_holders} clients are given the totals and subtract their own parts: totals must hold at "
                f"least {self.total_holders + 2} clients, and this sum's may hold {guarantee.min_survivors}; ask "
                "for more survivors, or give totals to fewer"
            )
        lost = 0.0
        if guarantee.drawn_graph is not None:
            self._check_graph(guarantee.drawn_graph)
            lost = grinding_bits(len(protocol.clients), graphs=self.graphs)
        self._at_least_bits("privacy", self.min_security_bits + lost, guarantee.security_bits)
        self._at_least_bits("not being stuck", self.min_correctness_bits, guarantee.correctness_bits)
        if guarantee.helper_reconstruction_threshold is not None:
            self._check_corrupt_helpers(
                guarantee.helper_reconstruction_threshold - 1, len(guarantee.reconstruction_helpers)
            )
        if guarantee.oldest_epoch is not None and guarantee.oldest_epoch < self.min_epoch:
            raise PolicyError(
                f"this site seals to helpers' keys of epoch {self.min_epoch} or later, one of this sum has epoch "
                f"{guarantee.oldest_epoch}: have that helper begin a new one, or lower min_epoch"
            )
        if self.noise is not None:
            self._check_noise(guarantee, tolerated)
            self.noise.check(releases)
        if guarantee.helpers_confirm_guesses and not self.accept_confirmed_guesses:
            raise PolicyError(
                f"this site takes part only where a key holder learns the total alone; in {protocol.name} it can "
                "confirm a guess of a site's whole vector: use bfv or a masked mode, or set accept_confirmed_guesses"
            )
        signatures = -1 if guarantee.countersignatures is None else guarantee.countersignatures
        if signatures < RECEIPTS[self.receipts]:
            raise PolicyError(
                f"this site asks for receipts of the kind {self.receipts!r}, and a total of this sum is signed by "
                f"{'nobody' if signatures < 0 else 'the server alone'}: set receipts of the run to clients or helpers"
                f"{', or to server' if RECEIPTS[self.receipts] == 0 else ''}"
            )
        for role, keys in protocol.public_keys.items():
            self._check_keys(role, keys)

    def _check_graph(self, graph: DrawnGraph) -> None:
        """Refuse a graph that could have been chosen after it was known which clients are corrupt."""
        if not self.beacon:
            raise PolicyError(
                "this site knows no beacon, and a sparse graph whose seed a server may choose protects nobody: take "
                "the operator's beacon into the policy, or ask for the complete graph"
            )
        if self.identities and graph.clients != tuple(sorted(self.identities)):
            raise PolicyError(
                f"a sparse graph is drawn over all {len(self.identities)} clients of this site's roster, and this one "
                f"is over {len(graph.clients)}: a server that chooses the cohort would choose among graphs"
            )
        if not graph.is_of(self.beacon, graphs=self.graphs):
            raise PolicyError(
                f"the graph's seed must be one of the first {self.graphs} of this site's beacon, and is another: take "
                "seed_of_beacon, and never what a server can choose; compare the rosters' fingerprints"
            )

    def _check_noise(self, guarantee: Guarantee, tolerated: int) -> None:
        if guarantee.noise_colluders is None:
            raise PolicyError(
                "this site asks for noise of which every client adds a share; this sum's clients add none"
            )
        if guarantee.noise_colluders < tolerated:
            raise PolicyError(
                f"this site expects {tolerated} colluding clients, who know their own shares of the noise; this "
                f"sum's shares are sized for {guarantee.noise_colluders}: make them larger"
            )

    def _check_keys(self, role: str, keys: Mapping[PartyId, bytes]) -> None:
        """Refuse parties of a role whose keys differ from those in this site's roster."""
        server = {SERVER: self.server_identity} if self.server_identity else {}
        others = {CLIENT_ROLE: self.identities, SERVER_ROLE: server, HOLDER_ROLE: self.key_holders}
        known = others.get(role, self.helpers)
        if role not in others:
            self._check_number(role, len(keys))
        if not known:
            return
        if not keys:
            raise PolicyError(f"this site knows every {role} by its key; this sum has none and trusts the server")
        strangers = [party for party, key in keys.items() if known.get(party) != key]
        if strangers:
            raise PolicyError(
                f"{len(strangers)} of the {len(keys)} {role}s have another key in this site's roster, or none: "
                f"{strangers[:10]}"
            )

    def _check_number(self, role: str, offered: int) -> None:
        """Refuse a committee with too few of the listed helpers: a server could choose those that it colludes with."""
        needed = len(self.helpers) if self.min_helpers is None else self.min_helpers
        if offered < needed:
            raise PolicyError(
                f"this site lists {len(self.helpers)} {role}s and asks for {needed} of them in every sum, this one has "
                f"{offered}: a server could keep those that it colludes with; name all, or relax min_helpers"
            )

    def _check_corrupt_helpers(self, offered: int, helpers: int) -> None:
        """Refuse a committee in which too few colluding helpers can reconstruct a vector."""
        needed = helpers - 1 if self.min_corrupt_helpers is None else self.min_corrupt_helpers
        if offered < needed:
            raise PolicyError(
                f"this site asks for a committee that {needed} of its {helpers} helpers cannot open with the server, "
                f"this one tolerates {offered}: raise corrupt_helpers, or relax min_corrupt_helpers"
            )

    def _at_least_bits(self, what: str, needed: float, offered: float) -> None:
        if not offered >= needed:
            raise PolicyError(
                f"this site asks for {needed:.4g} bits of {what}, the sum's graph is drawn for {offered:.4g}: plan it "
                "with Assumptions of as many bits, for privacy with against_grinding"
            )

    def _at_least(self, what: str, needed: int, offered: int) -> None:
        if offered < needed:
            raise PolicyError(f"this site's policy needs {what} of at least {needed} clients, the sum has {offered}")
