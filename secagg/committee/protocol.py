"""Committee sums: each client speaks once, helpers take the masks off the sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from secagg.committee.adversary import opened_upload
from secagg.committee.client import CommitteeClient
from secagg.committee.explain import client_cost, explain, helper_cost
from secagg.committee.helper import CommitteeHelper
from secagg.committee.server import CommitteeServer
from secagg.config import (
    MAX_PARTY,
    SumConfig,
    check_min_survivors,
    free_numbers,
    harmless_colluders,
    two_thirds,
)
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError
from secagg.in_memory import InOneProcess
from secagg.layout import Layout
from secagg.primitives.agreement import PUBLIC_KEY_BYTES, BadPublicKeyError, KeyPair, check_public_key
from secagg.ring import RingVector
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession
from secagg.sums import CLIENT_ROLE, NO_SECRETS, SIGNING_HELPER_ROLE, Guarantee, Knowledge, PartySecrets, Upload

HELPER_ROLE = "helper"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteeSum(SumConfig):
    """Each client sends one message and may vanish; helpers take the masks off the sum.

    A vector is masked with one seed for each helper (a sum of one-time pads over the ring, each from a seed that is
    sealed to its helper), so the server learns the total alone unless it colludes with *all* helpers, or with all
    clients but one of a total (``min_survivors - 1`` of them); helpers see seeds and survivors but no vector. The shape
    is that of the server-aided and "decryptor" protocols in the literature (Flamingo, Ma et al., IEEE S&P 2023; Willow,
    Bell-Clark et al., 2024) with symmetric masks and honest helpers for each sum.

    Args:
        helper_keys: X25519 public key of each helper, by party number; the numbers differ from the clients'. A
            helper may well be a client's organisation, under another number.
        min_survivors: fewest vectors for which a helper takes its masks off; at least 2.
        helper_identities: Ed25519 public key of each helper, by party number; goes with ``identities``. With these
            helpers count only clients that signed their seeds, so that a lying server cannot fill a cohort with
            inventions of its own; without, the server must be semi-honest.
    """

    helper_keys: tuple[tuple[PartyId, bytes], ...]
    min_survivors: int
    helper_identities: tuple[tuple[PartyId, bytes], ...] = field(default=(), repr=False)

    def _check(self) -> None:
        parties = [party for party, _ in self.helper_keys]
        are_numbers = all(type(party) is int and 1 <= party <= MAX_PARTY for party in parties)
        if not parties or not are_numbers or parties != sorted(set(parties)) or set(parties) & set(self.clients):
            raise ConfigurationError(
                "a committee needs at least one helper, ascending, with numbers that no client has, "
                f"from 1 to {MAX_PARTY}; these came: {parties[:10]}"
            )
        for party, key in self.helper_keys:
            _check_key(party, key)
        if len({key for _, key in self.helper_keys}) != len(parties):
            raise ConfigurationError("two helpers with one key are one party: give each helper a key of its own")
        check_min_survivors(self.min_survivors, self.clients)
        signing = [party for party, _ in self.helper_identities]
        if signing != (parties if self.identities else []):
            raise ConfigurationError(
                "where clients and server have identities each helper has one of its own, and elsewhere none does; the "
                f"helpers are {parties[:10]}, identities came for {signing[:10]}"
            )
        if len({key for _, key in self.helper_identities}) != len(signing):
            raise ConfigurationError("two helpers with one identity are one party: give each helper one of its own")

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
        min_survivors: int | None = None,
        entropy: Entropy = os_entropy,
    ) -> InOneProcess:
        """Return a sum with fresh helpers, all in this process: for simulations. Two thirds must stay."""
        keys = {number: KeyPair.generate(entropy) for number in islice(free_numbers(clients), n_helpers)}
        protocol = cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            helper_keys=tuple((party, pair.public) for party, pair in keys.items()),
            min_survivors=two_thirds(clients) if min_survivors is None else min_survivors,
        )
        return InOneProcess(
            protocol=protocol, secrets={party: PartySecrets(agreement=pair) for party, pair in keys.items()}
        )

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        return self.min_survivors

    def helper_key(self, helper: PartyId) -> bytes:
        """A helper's public key.

        Raises:
            ConfigurationError: no helper of this sum.
        """
        keys = dict(self.helper_keys)
        if helper not in keys:
            raise ConfigurationError(f"party {helper} is no helper of this sum; its helpers are {sorted(keys)}")
        return keys[helper]

    def helper_identity(self, helper: PartyId) -> bytes:
        """A helper's public signing key."""
        return dict(self.helper_identities).get(helper, b"")

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """The committee."""
        return tuple(party for party, _ in self.helper_keys)

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Identities where there are some, and every helper's X25519 key."""
        return {
            **self._signing_keys(),
            HELPER_ROLE: dict(self.helper_keys),
            SIGNING_HELPER_ROLE: dict(self.helper_identities),
        }

    @property
    def guarantee(self) -> Guarantee:
        """Uploads open to the server with all helpers; a total hides who is in it with one other."""
        return Guarantee(
            survivors_needed=self.min_survivors,
            harmless_clients=harmless_colluders(self.min_survivors),
            opening_clients=0,
            opening_helpers=self.helpers,
            server_may_lie=self.is_authenticated,
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
        contribution: Contribution,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Return a client's session; with a roster of identities it needs the client's own signing key."""
        return CommitteeClient(self, party, contribution, secrets=secrets, entropy=entropy)

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Return one helper's session, from its own key pair; it draws no entropy."""
        return CommitteeHelper(self, party, secrets=secrets)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Return the server's session; it draws no entropy."""
        return CommitteeServer(self, secrets=secrets)

    def opened_by(self, knowledge: Knowledge, target: PartyId) -> RingVector | None:
        """Return the upload less the masks of the helpers whose key the coalition has."""
        return opened_upload(self, knowledge, target)

    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            b"".join(party.to_bytes(4, "big") + key for party, key in self.helper_keys),
            self.min_survivors.to_bytes(4, "big"),
            b"".join(party.to_bytes(4, "big") + key for party, key in self.helper_identities),
        )


def _check_key(party: PartyId, key: bytes) -> None:
    try:
        if type(key) is not bytes or len(key) != PUBLIC_KEY_BYTES:
            raise BadPublicKeyError
        check_public_key(key)
    except BadPublicKeyError as error:
        raise ConfigurationError(f"the X25519 public key of helper {party} is none, or has small order") from error
