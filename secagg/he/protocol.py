"""Encrypted sums as `SumProtocol`s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from secagg.entropy import Entropy, os_entropy
from secagg.errors import LocalProtocolError
from secagg.he.authenticity import sign_context
from secagg.he.choice import choose_parameters
from secagg.he.client import EncryptedClient
from secagg.he.config import EncryptedSumParameters, check_scheme, first_free_number, need_secret
from secagg.he.contexts import generate_contexts, load_secret
from secagg.he.key_holder import KeyHolder
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.he.server import EncryptedServer
from secagg.he.snapshots import (
    restore_client,
    restore_key_holder,
    restore_server,
    snapshot_client,
    snapshot_key_holder,
    snapshot_server,
)
from secagg.layout import Layout
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptedSum(EncryptedSumParameters):
    """A sum of homomorphically encrypted vectors; the base of ``CkksSum`` and ``BfvSum``.

    Each client sends one message, its vector encrypted to the key holder. The server adds ciphertexts and has no key;
    the key holder decrypts the sum, once, if it is over enough clients. The total is the same integers as in the clear.
    Who sees what: the key holder the total; the server, once it is released, the total; both together everything. The
    server must be semi-honest: it could pass one client's ciphertext for the sum (masks under the encryption
    prevent that).

    Args:
        secret_context: the secret key, where it is held; neither public nor in the digest.
    """

    SCHEME: ClassVar[Scheme]

    secret_context: bytes | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_scheme(self.SCHEME, self.parameters, type(self).__name__)
        EncryptedSumParameters.__post_init__(self)
        if self.secret_context is not None:
            load_secret(self.parameters, self.secret_context)

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
        keys, holder = generate_contexts(chosen), first_free_number(clients) if key_holder is None else key_holder
        signature = b""
        if identity is not None:
            signature = sign_context(
                identity, keys.public_context, parameters=chosen, session_id=session_id, key_holder=holder
            )
        return cls(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            parameters=chosen,
            public_context=keys.public_context,
            key_holder=holder,
            min_survivors=2 * len(clients) // 3 + 1 if min_survivors is None else min_survivors,
            holder_identity=identity.public if identity else b"",
            context_signature=signature,
            secret_context=keys.secret_context,
        )

    def without_secrets(self) -> Self:
        """What clients and server get: the same session, with the same digest, and no secret key."""
        return self if self.secret_context is None else replace(self, secret_context=None)

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        """A client's session. SEAL draws its randomness from the operating system; ``entropy`` is not used."""
        return EncryptedClient(self.without_secrets(), party, contribution)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session; it holds no secret key and draws no entropy."""
        return EncryptedServer(self.without_secrets())

    def helpers(self, *, entropy: Entropy = os_entropy) -> Mapping[PartyId, ClientSession]:
        """The key holder's session, where its secret key is.

        Raises:
            ConfigurationError: this is the public half only.
        """
        return {self.key_holder: self._key_holder()}

    def snapshot_client(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """A client's session as bytes, sealed under 32 bytes that only its owner knows."""
        if not isinstance(session, EncryptedClient):
            raise LocalProtocolError(f"this is no client of an encrypted sum: {type(session).__name__}")
        return snapshot_client(session, key, entropy=entropy)

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

    def snapshot_helper(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """The key holder's session as bytes, sealed under 32 bytes that only it knows; the secret key is not in it."""
        if not isinstance(session, KeyHolder):
            raise LocalProtocolError(f"this is no key holder: {type(session).__name__}")
        return snapshot_key_holder(session, key, entropy=entropy)

    def restore_helper(self, snapshot: bytes, key: bytes) -> ClientSession:
        """The key holder's session that a snapshot holds; one that has answered answers no other request."""
        return restore_key_holder(self._key_holder(), snapshot, key)

    def snapshot_server(self, session: ServerSession) -> bytes:
        """The server's session as bytes; keep them where only the server can read."""
        if not isinstance(session, EncryptedServer):
            raise LocalProtocolError(f"this is no server of an encrypted sum: {type(session).__name__}")
        return snapshot_server(session)

    def restore_server(self, snapshot: bytes) -> ServerSession:
        """The server's session that a snapshot holds."""
        return restore_server(self.without_secrets(), snapshot)

    def _key_holder(self) -> KeyHolder:
        return KeyHolder(
            self.without_secrets(),
            party=self.key_holder,
            carrier=self.carrier,
            survivors_needed=self.min_survivors,
            secret_context=need_secret(self.secret_context, self.key_holder),
        )


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
