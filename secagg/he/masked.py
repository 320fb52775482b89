"""Sums that are masked, then encrypted; each a `SumProtocol`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from secagg.config import SERVER
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.errors import InvalidVectorError
from secagg.he.choice import choose_parameters
from secagg.he.config import HOLDER_ROLE, check_scheme
from secagg.he.key_holding import KeyHolding, fresh_keys
from secagg.he.masked_config import MaskedEncryptedParameters
from secagg.he.masked_sessions import (
    MaskedEncryptedClient,
    MaskedEncryptedServer,
    restore_encrypted_server,
    snapshot_encrypted_server,
)
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.in_memory import InOneProcess
from secagg.layout import Layout
from secagg.masked.adversary import opened_upload
from secagg.masked.protocol import MaskedSum
from secagg.masked.snapshots import restore_client
from secagg.primitives.identity import IdentityKey
from secagg.ring import RingVector
from secagg.sessions import ClientSession, Contribution, PartyId, ServerSession
from secagg.snapshots import own_session
from secagg.sums import NO_SECRETS, SERVER_ROLE, Guarantee, Knowledge, PartySecrets, Upload


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedEncryptedSum(KeyHolding, MaskedEncryptedParameters):
    """A sum of vectors that are masked and then encrypted; the base of ``MaskedCkksSum`` and ``MaskedBfvSum``.

    The rounds are those of ``MaskedSum``; the one heavy message carries ciphertexts of the masked words, and after the
    unmasking the key holder decrypts their sum. Who sees what: the key holder a masked sum, which is uniform words; the
    server no masked vector, and the total; both together what the server of a masked sum sees, so nothing about one
    client while at most ``harmless_colluders`` clients collude with them.
    """

    def __post_init__(self) -> None:
        check_scheme(self.SCHEME, self.parameters, type(self).__name__)
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
    ) -> InOneProcess:
        """All parties on the complete graph with fresh keys; for other graphs see ``around``."""
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
    ) -> InOneProcess:
        """All parties of a masked sum (such as ``MaskedSum.planned`` gives) that travels encrypted.

        Args:
            masked: layout, cohort, session, graph, threshold and identities.
            parameters: None chooses those with the smallest upload.
            key_holder: None takes the first number that no client has.
            holder: the key holder's signing key; with it the public context is signed for this session.
        """
        n_clients = len(masked.clients)
        chosen = parameters or choose_parameters(masked.layout, n_clients, scheme=cls.SCHEME, masked=True)
        public: dict[str, Any] = {f.name: getattr(masked, f.name) for f in fields(MaskedSum) if f.init}
        keys, secrets = fresh_keys(chosen, masked.clients, masked.session_id, key_holder=key_holder, identity=holder)
        return InOneProcess(protocol=cls(**public, **keys), secrets=secrets)

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """The clients' identities and the key holder's, where there are some."""
        return {**MaskedSum.public_keys.fget(self), **self._holder_keys()}  # type: ignore[attr-defined]

    @property
    def guarantee(self) -> Guarantee:
        """A masked sum's, whose uploads the key holder must decrypt first."""
        masked: Guarantee = MaskedSum.guarantee.fget(self)  # type: ignore[attr-defined]
        return replace(masked, opening_helpers=self.helpers, upload=Upload.CIPHERTEXT)

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """A client's and the key holder's."""
        return {**MaskedSum.costs.fget(self), HOLDER_ROLE: self._holder_cost()}  # type: ignore[attr-defined]

    def opened_by(self, knowledge: Knowledge, target: PartyId) -> RingVector | None:
        """The upload, decrypted where the coalition has the key, less every mask that it can rebuild."""
        return opened_upload(self, knowledge, target, self._opened(knowledge, target))

    def client(
        self,
        party: PartyId,
        contribution: Contribution,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """A client's session; ``entropy`` feeds keys, shares and masks, SEAL draws from the operating system."""
        if contribution is None:
            raise InvalidVectorError("a client needs its vector, or a call that makes it; none was given")
        return MaskedEncryptedClient(self, party, contribution, secrets=secrets, entropy=entropy)

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """The server's session; it holds no secret key and draws no entropy."""
        self.signer(SERVER_ROLE, SERVER, secrets)
        return MaskedEncryptedServer(self)

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
        return restore_client(
            self,
            party,
            contribution,
            snapshot,
            key,
            secrets=secrets,
            entropy=entropy,
            make=MaskedEncryptedClient,
        )

    def snapshot_server(self, session: ServerSession) -> bytes:
        """The server's session as bytes; keep them where only the server can read."""
        server = own_session(session, MaskedEncryptedServer, f"server of a {self.name} sum")
        return snapshot_encrypted_server(server)

    def restore_server(self, snapshot: bytes, *, secrets: PartySecrets = NO_SECRETS) -> ServerSession:
        """The server's session that a snapshot holds."""
        return restore_encrypted_server(self, snapshot)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedCkksSum(MaskedEncryptedSum):
    """A masked sum whose words travel in CKKS slots."""

    SCHEME: ClassVar[Scheme] = "ckks"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedBfvSum(MaskedEncryptedSum):
    """A masked sum whose words travel in BFV slots."""

    SCHEME: ClassVar[Scheme] = "bfv"
