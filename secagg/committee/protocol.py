"""Committee sums: public parameters, checked on construction, and the sessions of all parties."""

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
    """A sum with one-shot clients: each sends one message and may go offline; a committee of helpers removes the masks.

    A vector is masked with one seed for each set of m - f of the m helpers, encrypted to the members of the set. The
    server learns the total only, unless it colludes with more than f helpers, or with all but one of the clients in a
    total. Helpers see seeds and survivors but no vector. The seeds form a replicated secret sharing (Cramer, Damgard
    and Ishai, TCC 2005); the structure is that of Flamingo (Ma et al., IEEE S&P 2023) and Willow (Bell-Clark et al.,
    2024). ``docs/explanation/committee-proofs.md`` has the security argument.

    Args:
        layout: see ``secagg.config.SumConfig``; likewise ``clients``, ``session_id``, ``context``, ``identities``,
            ``server_identity``.
        helper_keys: (number, public key) of each helper, ascending. The key is ``SealingKey.to_bytes()`` with
            identities, ``BoxKey.public`` (X25519 and ML-KEM-768) without. The numbers must differ from the clients'.
        min_survivors: minimum number of vectors in a total for which a helper reveals mask sums; at least 2.
        helper_identities: (number, Ed25519 public key) of each helper; required with ``identities``. With them helpers
            accept only seeds that clients signed, and reveal sums for one survivor set signed by a quorum of them, so
            that the server may be malicious; without them it must be semi-honest.
        corrupt_helpers: f, the number of helpers that may collude with the server. None takes all but one; no helper
            may then drop out. 4 helpers with f = 1 tolerate one that drops out or is malicious, 7 with f = 2 two.

    Raises:
        ConfigurationError: the parameters are unsafe or contradict each other.

    >>> import numpy as np
    >>> from secagg import new_session_id, run_in_memory
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> parties = CommitteeSum.generate(layout=layout, clients=(1, 2, 3), session_id=new_session_id(), n_helpers=2)
    >>> run = run_in_memory(parties, {party: np.array([party, 10]) for party in parties.clients})
    >>> run.result.total, run.traffic[1].messages_up
    (array([ 6, 30]), 1)
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
        """Name of the mode."""
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
        """Create a sum with new helpers and their secrets, for simulations and tests.

        Args:
            layout: see ``CommitteeSum``; likewise ``clients``, ``session_id``, ``context`` and ``corrupt_helpers``.
            n_helpers: number of helpers; they get the lowest numbers that no client has.
            min_survivors: None takes two thirds of the cohort, rounded down, plus one.
            entropy: source of the helpers' keys.
        """
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
        """f, the number of helpers that may collude with the server."""
        return len(self.helper_keys) - 1 if self.corrupt_helpers is None else self.corrupt_helpers

    @property
    def seed_sharing(self) -> ReplicatedSharing:
        """Replicated sharing of the mask seeds among the helpers."""
        return ReplicatedSharing(self.helpers, self.corrupt)

    @property
    def survivors_needed(self) -> int:
        """Minimum number of clients whose vectors a released total contains."""
        return self.min_survivors

    def helper_key(self, helper: PartyId) -> bytes:
        """Return the public encryption key of a helper.

        Raises:
            ConfigurationError: ``helper`` is not a helper of this sum.
        """
        keys = dict(self.helper_keys)
        if helper not in keys:
            raise ConfigurationError(f"party {helper} is no helper of this sum; its helpers are {sorted(keys)}")
        return keys[helper][:BOX_KEY_BYTES]

    def helper_identity(self, helper: PartyId) -> bytes:
        """Return the Ed25519 public key of a helper; empty without identities."""
        return dict(self.helper_identities).get(helper, b"")

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Numbers of the helpers, ascending."""
        return tuple(party for party, _ in self.helper_keys)

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Public keys by role and party: identities; without them the helpers' encryption keys."""
        return {**self._signing_keys(), HELPER_ROLE: dict(self.helper_identities or self.helper_keys)}

    @property
    def guarantee(self) -> Guarantee:
        """Guarantees: the server needs more than f helpers to read an upload."""
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
        """Costs of a client and of a helper."""
        return {CLIENT_ROLE: client_cost(self), HELPER_ROLE: helper_cost(self)}

    def explain(self) -> str:
        """Describe in words and numbers what these parameters guarantee and cost."""
        return explain(self)

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Create a client's session; with identities ``secrets`` must contain its signing key."""
        return CommitteeClient(self, party, client_input, secrets=secrets, entropy=entropy)

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Create a helper's session from its key pair in ``secrets``; it uses no ``entropy``."""
        return CommitteeHelper(self, party, secrets=secrets)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Create the server's session; it uses no ``entropy``."""
        return CommitteeServer(self, secrets=secrets)

    def failure(self, *, secrets: PartySecrets = NO_SECRETS) -> CommitteeFailure | None:
        """Create the server's session in which helpers certify a failure; None without identities."""
        return CommitteeFailure(self, secrets=secrets) if self.is_authenticated else None

    def check_failure(self, proof: bytes) -> None:
        """Verify a proof that no total of this sum will ever be released.

        Raises:
            RemoteProtocolError: fewer than a quorum of its helpers signed the failure.
        """
        check_failure(self, proof)

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the upload minus the masks whose seeds the coalition can decrypt; None if it saw no upload."""
        return unmask_upload(self, knowledge, target)

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            b"".join(party.to_bytes(4, "big") + key for party, key in self.helper_keys),
            self.min_survivors.to_bytes(4, "big"),
            b"".join(party.to_bytes(4, "big") + key for party, key in self.helper_identities),
            self.corrupt.to_bytes(4, "big"),
        )
