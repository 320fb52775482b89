"""Encrypted sums, each a `SumProtocol`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

from secagg.entropy import Entropy, os_entropy
from secagg.he.choice import choose_parameters
from secagg.he.client import EncryptedClient
from secagg.he.config import EncryptedSumParameters
from secagg.he.key_holding import KeyHolding, fresh_keys
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.he.server import EncryptedServer
from secagg.he.snapshots import (
    restore_client,
    restore_server,
    snapshot_client,
    snapshot_server,
)
from secagg.layout import Layout
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession
from secagg.snapshots import own_session


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedSum(KeyHolding, EncryptedSumParameters):
    """A sum of homomorphically encrypted vectors; the base of ``CkksSum`` and ``BfvSum``.

    Each client sends one message, its vector encrypted to the key holder. The server adds ciphertexts and has no key;
    the key holder decrypts the sum, once, if it is over enough clients. The total is the same integers as in the clear.
    Who sees what: the key holder the total; the server, once it is released, the total; both together everything. The
    server must be semi-honest: it could pass one client's ciphertext for the sum (masks under the encryption
    prevent that).

    Args:
        secret_context: the secret key, where it is held; neither public nor in the digest.
    """

    secret_context: bytes | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_keys()
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
    ) -> Self:
        """The key holder's view with fresh keys: what a simulation runs, or gives away ``without_secrets``.

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
        return cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            min_survivors=2 * len(clients) // 3 + 1 if min_survivors is None else min_survivors,
            **fresh_keys(chosen, clients, session_id, key_holder=key_holder, identity=identity),
        )

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        """A client's session. SEAL draws its randomness from the operating system; ``entropy`` is not used."""
        return EncryptedClient(self.without_secrets(), party, contribution)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session; it holds no secret key and draws no entropy."""
        return EncryptedServer(self.without_secrets())

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
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """The client's session that a snapshot holds; its vector must be the same as before."""
        return restore_client(self.without_secrets(), party, contribution, snapshot, key)

    def snapshot_server(self, session: ServerSession) -> bytes:
        """The server's session as bytes; keep them where only the server can read."""
        return snapshot_server(own_session(session, EncryptedServer, "server of an encrypted sum"))

    def restore_server(self, snapshot: bytes) -> ServerSession:
        """The server's session that a snapshot holds."""
        return restore_server(self.without_secrets(), snapshot)


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
