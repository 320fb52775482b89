"""Sums that are masked, then encrypted; each a `SumProtocol`."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from secagg.entropy import Entropy, os_entropy
from secagg.errors import InvalidVectorError
from secagg.he.choice import choose_parameters
from secagg.he.key_holding import KeyHolding, fresh_keys
from secagg.he.masked_config import MaskedEncryptedParameters
from secagg.he.masked_sessions import (
    MaskedEncryptedClient,
    MaskedEncryptedServer,
    restore_encrypted_server,
    snapshot_encrypted_server,
)
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.layout import Layout
from secagg.masked.protocol import MaskedSum
from secagg.masked.snapshots import restore_client
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession
from secagg.snapshots import own_session


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedEncryptedSum(KeyHolding, MaskedEncryptedParameters):
    """A sum of vectors that are masked and then encrypted; the base of ``MaskedCkksSum`` and ``MaskedBfvSum``.

    The rounds are those of ``MaskedSum``; the one heavy message carries ciphertexts of the masked words, and after the
    unmasking the key holder decrypts their sum. Who sees what: the key holder a masked sum, which is uniform words; the
    server no masked vector, and the total; both together what the server of a masked sum sees, so nothing about one
    client while at most ``harmless_colluders`` clients collude with them.

    Args:
        secret_context: the secret key, where it is held; neither public nor in the digest.
    """

    secret_context: bytes | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check_keys()
        MaskedEncryptedParameters.__post_init__(self)

    @classmethod
    def generate(
        cls,
        *,
        layout: Layout,
        clients: tuple[PartyId, ...],
        session_id: bytes,
        context: bytes = b"",
        threshold: int | None = None,
        identities: tuple[bytes, ...] = (),
        parameters: EncryptionParameters | None = None,
        key_holder: PartyId | None = None,
        holder: IdentityKey | None = None,
    ) -> Self:
        """The key holder's view on the complete graph with fresh keys; for other graphs see ``around``."""
        masked = MaskedSum(
            layout=layout,
            clients=clients,
            session_id=session_id,
            context=context,
            threshold=threshold,
            identities=identities,
        )
        return cls.around(masked, parameters=parameters, key_holder=key_holder, holder=holder)

    @classmethod
    def around(
        cls,
        masked: MaskedSum,
        *,
        parameters: EncryptionParameters | None = None,
        key_holder: PartyId | None = None,
        holder: IdentityKey | None = None,
    ) -> Self:
        """The key holder's view of a masked sum (such as ``MaskedSum.planned`` gives) that travels encrypted.

        Args:
            masked: layout, cohort, session, graph, threshold and identities.
            parameters: None chooses those with the smallest upload.
            key_holder: None takes the first number that no client has.
            holder: the key holder's signing key; with it the public context is signed for this session.
        """
        n_clients = len(masked.clients)
        chosen = parameters or choose_parameters(masked.layout, n_clients, scheme=cls.SCHEME, masked=True)
        public: dict[str, Any] = {f.name: getattr(masked, f.name) for f in fields(MaskedSum) if f.init}
        return cls(
            **public,
            **fresh_keys(chosen, masked.clients, masked.session_id, key_holder=key_holder, identity=holder),
        )

    def client(
        self,
        party: PartyId,
        contribution: Contribution,
        *,
        entropy: Entropy = os_entropy,
        identity: IdentityKey | None = None,
    ) -> ClientSession:
        """A client's session; ``entropy`` feeds keys, shares and masks, SEAL draws from the operating system."""
        if contribution is None:
            raise InvalidVectorError("a client needs its vector, or a call that makes it; none was given")
        return MaskedEncryptedClient(self.without_secrets(), party, contribution, entropy=entropy, identity=identity)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session; it holds no secret key and draws no entropy."""
        return MaskedEncryptedServer(self.without_secrets())

    def restore_client(
        self,
        party: PartyId,
        contribution: Contribution,
        snapshot: bytes,
        key: bytes,
        *,
        entropy: Entropy = os_entropy,
        identity: IdentityKey | None = None,
    ) -> ClientSession:
        """The client's session that a snapshot holds; its vector must be the same as before."""
        return restore_client(
            self.without_secrets(),
            party,
            contribution,
            snapshot,
            key,
            entropy=entropy,
            identity=identity,
            make=MaskedEncryptedClient,
        )

    def snapshot_server(self, session: ServerSession) -> bytes:
        """The server's session as bytes; keep them where only the server can read."""
        server = own_session(session, MaskedEncryptedServer, f"server of a {self.name} sum")
        return snapshot_encrypted_server(server)

    def restore_server(self, snapshot: bytes) -> ServerSession:
        """The server's session that a snapshot holds."""
        return restore_encrypted_server(self.without_secrets(), snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedCkksSum(MaskedEncryptedSum):
    """A masked sum whose words travel in CKKS slots."""

    SCHEME: ClassVar[Scheme] = "ckks"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedBfvSum(MaskedEncryptedSum):
    """A masked sum whose words travel in BFV slots."""

    SCHEME: ClassVar[Scheme] = "bfv"
