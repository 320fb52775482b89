"""Committee sums: each client speaks once, helpers take the masks off the sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from secagg.committee.adversary import unmask_upload
from secagg.committee.client import CommitteeClient
from secagg.committee.explain import client_cost, explain, helper_cost
from secagg.committee.failure import CommitteeFailure, check_failure
from secagg.committee.helper import CommitteeHelper
from secagg.committee.key_rotation import SealingKey
from secagg.committee.seed_sharing import MOST_SEEDS, ReplicatedSharing
from secagg.committee.server import CommitteeServer
from secagg.config import (
    MAX_PARTY,
    SumConfig,
    check_min_survivors,
    free_numbers,
    max_colluding_clients,
    two_thirds,
)
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError
from secagg.in_memory import InOneProcess
from secagg.layout import Layout
from secagg.primitives.agreement import BadPublicKeyError
from secagg.primitives.boxes import BOX_KEY_BYTES, BoxKey, check_box_key
from secagg.ring import RingVector
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession
from secagg.sums import CLIENT_ROLE, NO_SECRETS, CoalitionView, Guarantee, PartySecrets, Upload

HELPER_ROLE = "helper"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeSum(SumConfig):
    """Each client sends one message and may vanish; helpers take the masks off the sum.

    A vector is masked with one seed for each set of m - f of the m helpers (a sum of one-time pads over the ring, each
    from a seed that is sealed to the set's members), so the server learns the total alone unless it colludes with more
    than f helpers, or with all clients but one of a total (``min_survivors - 1`` of them); helpers see seeds and
    survivors but no vector. Seeds are replicated as in pseudo-random secret sharing (Cramer, Damgard and Ishai, TCC
    2005), and the shape is that of "decryptor" protocols (Flamingo, Ma et al., IEEE S&P 2023; Willow, Bell-Clark et
    al., 2024). ``docs/explanation/committee.md`` argues what it promises.

    Args:
        helper_keys: what boxes are sealed to, by helper: with identities the key of its epoch and its word on it
            (``SealingKey.to_bytes``), without ``BoxKey.public`` (X25519 and ML-KEM-768). The numbers differ from the
            clients'. A helper may well be a client's organisation, under another number.
        min_survivors: fewest vectors for which a helper takes its masks off; at least 2.
        helper_identities: Ed25519 public key of each helper, by party number; goes with ``identities``. With these
            helpers count only clients that signed their seeds, so that a lying server cannot fill a cohort with
            inventions of its own, and answer for one survivor set that a quorum of them signed; without, the server
            must be semi-honest.
        corrupt_helpers: f, how many helpers may collude with the server; None for all but one, which bears no helper
            that is away. 4 helpers with 1 bear one that is away or lies, 7 with 2 two.
    """

    helper_keys: tuple[tuple[PartyId, bytes], ...]
    min_survivors: int
    helper_identities: tuple[tuple[PartyId, bytes], ...] = field(default=(), repr=False)
    corrupt_helpers: int | None = None

    def _check(self) -> None:
        parties = [party for party, _ in self.helper_keys]
        are_numbers = all(type(party) is int and 1 <= party <= MAX_PARTY for party in parties)
        if not parties or not are_numbers or parties != sorted(set(parties)) or set(parties) & set(self.clients):
            raise ConfigurationError(
                "a committee needs at least one helper, ascending, with numbers that no client has, "
                f"from 1 to {MAX_PARTY}; these came: {parties[:10]}"
            )
        if len({key[:BOX_KEY_BYTES] for _, key in self.helper_keys}) != len(parties):
            raise ConfigurationError("two helpers with one key are one party: give each helper a key of its own")
        if not (type(self.corrupt) is int and 0 <= self.corrupt < len(parties)):
            raise ConfigurationError(
                f"of {len(parties)} helpers 0 to {len(parties) - 1} may collude with the server, not {self.corrupt}"
            )
        if self.seed_sharing.n_seeds > MOST_SEEDS:
            raise ConfigurationError(
                f"{len(parties)} helpers of whom {self.corrupt} may collude take {self.seed_sharing.n_seeds} seeds of "
                f"each client, and {MOST_SEEDS} are the most: take fewer helpers"
            )
        check_min_survivors(self.min_survivors, self.clients)
        signing = [party for party, _ in self.helper_identities]
        if signing != (parties if self.identities else []):
            raise ConfigurationError(
                "where clients and server have identities each helper has one of its own, and elsewhere none does; the "
                f"helpers are {parties[:10]}, identities came for {signing[:10]}"
            )
        if len({key for _, key in self.helper_identities}) != len(signing):
            raise ConfigurationError("two helpers with one identity are one party: give each helper one of its own")
        for party, key in self.helper_keys:
            self._check_key(party, key)

    def _check_key(self, party: PartyId, key: bytes) -> None:
        if self.is_authenticated:
            try:
                SealingKey.from_bytes(key).check(self.helper_identity(party))
            except ConfigurationError as error:
                raise ConfigurationError(f"helper {party}: {error}") from error
            return
        try:
            check_box_key(key)
        except BadPublicKeyError as error:
            raise ConfigurationError(
                f"the public key of helper {party} is none, or has small order: {error}"
            ) from error

    @property
    def name(self) -> str:
        """The mode's name."""
        return "committee"

    @classmethod
    def generate(
        cls,
        *,
        layout: Layout,
        clients: tuple[PartyId, ...],
        session_id: bytes,
        context: bytes = b"",
        n_helpers: int = 2,
        corrupt_helpers: int | None = None,
        min_survivors: int | None = None,
        entropy: Entropy = os_entropy,
    ) -> InOneProcess:
        """Return a sum with fresh helpers, all in this process: for simulations. Two thirds must stay."""
        keys = {number: BoxKey.generate(entropy) for number in islice(free_numbers(clients), n_helpers)}
        protocol = cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            helper_keys=tuple((party, pair.public) for party, pair in keys.items()),
            min_survivors=two_thirds(clients) if min_survivors is None else min_survivors,
            corrupt_helpers=corrupt_helpers,
        )
        return InOneProcess(
            protocol=protocol, secrets={party: PartySecrets(boxes=pair) for party, pair in keys.items()}
        )

    @property
    def corrupt(self) -> int:
        """How many helpers may collude with the server."""
        return len(self.helper_keys) - 1 if self.corrupt_helpers is None else self.corrupt_helpers

    @property
    def seed_sharing(self) -> ReplicatedSharing:
        """Which helpers hold which seeds."""
        return ReplicatedSharing(self.helpers, self.corrupt)

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        return self.min_survivors

    def helper_key(self, helper: PartyId) -> bytes:
        """The public key that a helper's boxes are sealed to.

        Raises:
            ConfigurationError: no helper of this sum.
        """
        keys = dict(self.helper_keys)
        if helper not in keys:
            raise ConfigurationError(f"party {helper} is no helper of this sum; its helpers are {sorted(keys)}")
        return keys[helper][:BOX_KEY_BYTES]

    def helper_identity(self, helper: PartyId) -> bytes:
        """A helper's public signing key."""
        return dict(self.helper_identities).get(helper, b"")

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """The committee."""
        return tuple(party for party, _ in self.helper_keys)

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Identities where there are some; elsewhere the key of every helper that boxes are sealed to."""
        return {**self._signing_keys(), HELPER_ROLE: dict(self.helper_identities or self.helper_keys)}

    @property
    def guarantee(self) -> Guarantee:
        """Uploads open to the server with more than f helpers; a total hides who is in it with one other."""
        seed_sharing = self.seed_sharing
        return Guarantee(
            min_survivors=self.min_survivors,
            max_colluding_clients=max_colluding_clients(self.min_survivors),
            client_reconstruction_threshold=0,
            reconstruction_helpers=self.helpers,
            helper_reconstruction_threshold=self.corrupt + 1,
            helper_dropout_tolerance=len(self.helpers) - seed_sharing.needed(signing=self.is_authenticated),
            detects_malicious_helpers=seed_sharing.agreement_threshold - 1,
            oldest_epoch=min((SealingKey.from_bytes(key).epoch for _, key in self.helper_keys), default=0)
            if self.is_authenticated
            else None,
            malicious_server=self.is_authenticated,
            upload=Upload.UNIFORM,
        )

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """A client's and a helper's."""
        return {CLIENT_ROLE: client_cost(self), HELPER_ROLE: helper_cost(self)}

    def explain(self) -> str:
        """What these parameters guarantee and cost, in words and numbers."""
        return explain(self)

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Return a client's session; with a roster of identities it needs the client's own signing key."""
        return CommitteeClient(self, party, client_input, secrets=secrets, entropy=entropy)

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Return one helper's session, from its own key pair; it draws no entropy."""
        return CommitteeHelper(self, party, secrets=secrets)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Return the server's session; it draws no entropy."""
        return CommitteeServer(self, secrets=secrets)

    def failure(self, *, secrets: PartySecrets = NO_SECRETS) -> CommitteeFailure | None:
        """Return a session in which helpers certify that the sum failed; None where nobody signs."""
        return CommitteeFailure(self, secrets=secrets) if self.is_authenticated else None

    def check_failure(self, proof: bytes) -> None:
        """Refuse what does not prove that no total of this sum comes out, whoever hands it in.

        Raises:
            RemoteProtocolError: fewer than a quorum of its helpers signed so.
        """
        check_failure(self, proof)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the upload less the masks of the helpers whose key the coalition has."""
        return unmask_upload(self, knowledge, target)

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            b"".join(party.to_bytes(4, "big") + key for party, key in self.helper_keys),
            self.min_survivors.to_bytes(4, "big"),
            b"".join(party.to_bytes(4, "big") + key for party, key in self.helper_identities),
            self.corrupt.to_bytes(4, "big"),
        )
