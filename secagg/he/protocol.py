"""Encrypted sums, each a `SumProtocol`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from secagg.config import SERVER, harmless_colluders, two_thirds
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.he.choice import choose_parameters
from secagg.he.client import EncryptedClient
from secagg.he.config import HOLDER_ROLE, EncryptedSumParameters, check_scheme
from secagg.he.key_holding import KeyHolding, fresh_keys
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.he.server import EncryptedServer
from secagg.he.snapshots import (
    restore_client,
    restore_server,
    snapshot_client,
    snapshot_server,
)
from secagg.in_memory import InOneProcess
from secagg.layout import Layout
from secagg.primitives.identity import IdentityKey
from secagg.ring import RingVector
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession
from secagg.snapshots import own_session
from secagg.sums import CLIENT_ROLE, NO_SECRETS, SERVER_ROLE, Guarantee, Knowledge, PartySecrets, Upload


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedSum(KeyHolding, EncryptedSumParameters):
    """A sum of homomorphically encrypted vectors; the base of ``CkksSum`` and ``BfvSum``.

    Each client sends one message, its vector encrypted to the key holder. The server adds ciphertexts and has no key;
    the key holder decrypts the sum, once, if it is over enough clients. The total is the same integers as in the clear.
    Who sees what: the key holder the total; the server, once it is released, the total; both together everything. The
    server must be semi-honest: it could pass one client's ciphertext for the sum (masks under the encryption
    prevent that).

    Args: see ``EncryptedSumParameters``.
    """

    def __post_init__(self) -> None:
        check_scheme(self.SCHEME, self.parameters, type(self).__name__)
        EncryptedSumParameters.__post_init__(self)

    @classmethod
    def generate(
        cls,
        *,
        layout: Layout,
        clients: tuple[PartyId, ...],
        session_id: bytes,
        context: bytes = b"",
        parameters: EncryptionParameters | None = None,
        key_holder: PartyId | None = None,
        min_survivors: int | None = None,
        identity: IdentityKey | None = None,
    ) -> InOneProcess:
        """All parties of a sum with fresh keys.

        Args:
            layout: the vectors.
            clients: the cohort.
            session_id: 16 to 64 fresh bytes.
            context: digest of everything that clients received before this sum.
            parameters: None chooses those with the smallest upload.
            key_holder: None takes the first number that no client has.
            min_survivors: None asks for two thirds, rounded down, plus one.
            identity: the key holder's signing key; with it the public context is signed for this session.
        """
        chosen = parameters or choose_parameters(layout, len(clients), scheme=cls.SCHEME)
        keys, secrets = fresh_keys(chosen, clients, session_id, key_holder=key_holder, identity=identity)
        protocol = cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            min_survivors=two_thirds(clients) if min_survivors is None else min_survivors,
            **keys,
        )
        return InOneProcess(protocol=protocol, secrets=secrets)

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """The key holder's identity, where it has one."""
        return self._holder_keys()

    @property
    def guarantee(self) -> Guarantee:
        """Uploads open to whoever has the secret key; nothing binds a ciphertext to the context."""
        return Guarantee(
            survivors_needed=self.min_survivors,
            harmless_clients=harmless_colluders(self.min_survivors),
            opening_clients=0,
            opening_helpers=self.helpers,
            upload=Upload.CIPHERTEXT,
            binds_context=False,
            helpers_learn_total=True,
        )

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """A client's and the key holder's."""
        upload = self.carrier.upload_bytes
        client = PartyCost.of_payloads([upload], [], vector_bytes=upload)
        return {CLIENT_ROLE: client, HOLDER_ROLE: self._holder_cost()}

    def opened_by(self, knowledge: Knowledge, target: PartyId) -> RingVector | None:
        """The client's vector, where the coalition has the secret key; else its ciphertext's bytes."""
        opened = self._opened(knowledge, target)
        return knowledge.upload_as_sent(target, self.layout) if opened is None else opened

    def client(
        self,
        party: PartyId,
        contribution: Contribution,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """A client's session. SEAL draws its randomness from the operating system; ``entropy`` is not used."""
        self.signer(CLIENT_ROLE, party, secrets)
        return EncryptedClient(self, party, contribution)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session; it holds no secret key and draws no entropy."""
        self.signer(SERVER_ROLE, SERVER, secrets)
        return EncryptedServer(self)

    def snapshot_client(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """A client's session as bytes, sealed under 32 bytes that only its owner knows."""
        client = own_session(session, EncryptedClient, "client of an encrypted sum")
        return snapshot_client(client, key, entropy=entropy)

    def restore_client(
        self,
        party: PartyId,
        contribution: Contribution,
        snapshot: bytes,
        key: bytes,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """The client's session that a snapshot holds; its vector must be the same as before."""
        self.signer(CLIENT_ROLE, party, secrets)
        return restore_client(self, party, contribution, snapshot, key)

    def snapshot_server(self, session: ServerSession) -> bytes:
        """The server's session as bytes; keep them where only the server can read."""
        return snapshot_server(own_session(session, EncryptedServer, "server of an encrypted sum"))

    def restore_server(self, snapshot: bytes, *, secrets: PartySecrets = NO_SECRETS) -> ServerSession:
        """The server's session that a snapshot holds."""
        return restore_server(self, snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class CkksSum(EncryptedSum):
    """An encrypted sum with CKKS: real slots that round to the exact integer.

    Source: Cheon, Kim, Kim and Song, "Homomorphic Encryption for Arithmetic of Approximate Numbers", ASIACRYPT 2017.
    """

    SCHEME: ClassVar[Scheme] = "ckks"


@dataclass(frozen=True, slots=True, kw_only=True)
class BfvSum(EncryptedSum):
    """An encrypted sum with BFV: integer slots.

    Source: Fan and Vercauteren, "Somewhat Practical Fully Homomorphic Encryption", ePrint 2012/144.
    """

    SCHEME: ClassVar[Scheme] = "bfv"
