"""What both kinds of encrypted sum do about their key: make it, keep it from the others, hold it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from secagg.config import SumConfig
from secagg.costs import COUNT_BYTES, PARTY_BYTES, PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError
from secagg.he.authenticity import sign_context
from secagg.he.carrier import EncryptedCarrier
from secagg.he.config import HOLDER_ROLE, first_free_number
from secagg.he.contexts import generate_contexts
from secagg.he.key_holder import KeyHolder
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.he.snapshots import restore_key_holder, snapshot_key_holder
from secagg.primitives.identity import IdentityKey
from secagg.ring import RingVector
from secagg.sessions import ClientSession, PartyId
from secagg.snapshots import own_session
from secagg.sums import NO_SECRETS, Knowledge, PartySecrets


def fresh_keys(
    parameters: EncryptionParameters,
    clients: tuple[PartyId, ...],
    session_id: bytes,
    *,
    key_holder: PartyId | None,
    identity: IdentityKey | None,
) -> tuple[dict[str, Any], dict[PartyId, PartySecrets]]:
    """A fresh key pair: a sum's fields, signed for its session where there is an identity; what the holder knows."""
    keys, holder = generate_contexts(parameters), first_free_number(clients) if key_holder is None else key_holder
    signature = b""
    if identity is not None:
        signature = sign_context(
            identity, keys.public_context, parameters=parameters, session_id=session_id, key_holder=holder
        )
    public = {
        "parameters": parameters,
        "public_context": keys.public_context,
        "key_holder": holder,
        "holder_identity": identity.public if identity else b"",
        "context_signature": signature,
    }
    return public, {holder: PartySecrets(identity=identity, decryption=keys.secret_context)}


class KeyHolding(SumConfig):
    """The first base of an encrypted sum: its methods around the key holder. The second base brings the parameters.

    It has no slots of its own: two bases with fields cannot stand side by side.
    """

    __slots__ = ()

    SCHEME: ClassVar[Scheme]

    parameters: EncryptionParameters
    key_holder: PartyId
    holder_identity: bytes
    carrier: EncryptedCarrier
    survivors_needed: int

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """The key holder."""
        return (self.key_holder,)

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """The key holder's session, from its secret context; it draws no entropy.

        Raises:
            ConfigurationError: another party, or no secret context of these parameters.
        """
        return self._fresh_holder(party, secrets)

    def snapshot_helper(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """The key holder's session as bytes, sealed under 32 bytes that only it knows; the secret key is not in it."""
        return snapshot_key_holder(own_session(session, KeyHolder, "key holder"), key, entropy=entropy)

    def restore_helper(
        self, party: PartyId, snapshot: bytes, key: bytes, *, secrets: PartySecrets = NO_SECRETS
    ) -> ClientSession:
        """The key holder's session that a snapshot holds; one that has answered answers no other request."""
        return restore_key_holder(self._fresh_holder(party, secrets), snapshot, key)

    def _holder_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        return {HOLDER_ROLE: {self.key_holder: self.holder_identity} if self.holder_identity else {}}

    def _fresh_holder(self, party: PartyId, secrets: PartySecrets) -> KeyHolder:
        if party != self.key_holder:
            raise ConfigurationError(f"party {party} does not hold this sum's key; party {self.key_holder} does")
        if not secrets.decryption:
            raise ConfigurationError(
                f"the secret context of the key holder, party {party}, is not here; "
                "only the key holder makes its session"
            )
        return KeyHolder(
            self,
            party=party,
            carrier=self.carrier,
            survivors_needed=self.survivors_needed,
            secret_context=secrets.decryption,
        )

    def _opened(self, knowledge: Knowledge, target: PartyId) -> RingVector | None:
        """What the coalition decrypts of an upload; None where it has no key or saw no upload."""
        payload, secrets = knowledge.upload(target), knowledge.secrets.get(self.key_holder, NO_SECRETS)
        if payload is None or not secrets.decryption:
            return None
        return self.carrier.decrypt(payload, secrets.decryption).vector.copy()

    def _holder_cost(self) -> PartyCost:
        survivors, vector = COUNT_BYTES + len(self.clients) * PARTY_BYTES, self.layout.wire_bytes
        return PartyCost.of_payloads([vector], [survivors + self.carrier.upload_bytes], vector_bytes=vector)
