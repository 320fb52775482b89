"""What both kinds of encrypted sum do about their key: make it, keep it from the others, hold it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

from secagg.config import SumConfig
from secagg.entropy import Entropy, os_entropy
from secagg.he.authenticity import sign_context
from secagg.he.carrier import EncryptedCarrier
from secagg.he.config import check_scheme, first_free_number, need_secret
from secagg.he.contexts import generate_contexts, load_secret
from secagg.he.key_holder import KeyHolder
from secagg.he.parameters import EncryptionParameters, Scheme
from secagg.he.snapshots import restore_key_holder, snapshot_key_holder
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ClientSession, PartyId
from secagg.snapshots import own_session


def fresh_keys(
    parameters: EncryptionParameters,
    clients: tuple[PartyId, ...],
    session_id: bytes,
    *,
    key_holder: PartyId | None,
    identity: IdentityKey | None,
) -> dict[str, Any]:
    """A fresh key pair as the fields of a sum, signed for its session where the key holder has an identity."""
    keys, holder = generate_contexts(parameters), first_free_number(clients) if key_holder is None else key_holder
    signature = b""
    if identity is not None:
        signature = sign_context(
            identity, keys.public_context, parameters=parameters, session_id=session_id, key_holder=holder
        )
    return {
        "parameters": parameters,
        "public_context": keys.public_context,
        "key_holder": holder,
        "holder_identity": identity.public if identity else b"",
        "context_signature": signature,
        "secret_context": keys.secret_context,
    }


class KeyHolding(SumConfig):
    """The first base of an encrypted sum: its methods around the key holder. The second base brings the parameters.

    It has no slots of its own: two bases with fields cannot stand side by side.
    """

    __slots__ = ()

    SCHEME: ClassVar[Scheme]

    parameters: EncryptionParameters
    key_holder: PartyId
    secret_context: bytes | None
    carrier: EncryptedCarrier
    survivors_needed: int

    def without_secrets(self) -> Self:
        """What clients and server get: the same session, with the same digest, and no secret key."""
        # mypy looks for the field in this base, and it stands in the dataclasses that have it.
        return self if self.secret_context is None else replace(self, secret_context=None)  # type: ignore[call-arg]

    def helpers(self, *, entropy: Entropy = os_entropy) -> Mapping[PartyId, ClientSession]:
        """The key holder's session, where its secret key is.

        Raises:
            ConfigurationError: this is the public half only.
        """
        return {self.key_holder: self._fresh_holder()}

    def snapshot_helper(self, session: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
        """The key holder's session as bytes, sealed under 32 bytes that only it knows; the secret key is not in it."""
        return snapshot_key_holder(own_session(session, KeyHolder, "key holder"), key, entropy=entropy)

    def restore_helper(self, snapshot: bytes, key: bytes) -> ClientSession:
        """The key holder's session that a snapshot holds; one that has answered answers no other request."""
        return restore_key_holder(self._fresh_holder(), snapshot, key)

    def _fresh_holder(self) -> KeyHolder:
        return KeyHolder(
            self.without_secrets(),
            party=self.key_holder,
            carrier=self.carrier,
            survivors_needed=self.survivors_needed,
            secret_context=need_secret(self.secret_context, self.key_holder),
        )

    def _check_keys(self) -> None:
        check_scheme(self.SCHEME, self.parameters, type(self).__name__)
        if self.secret_context is not None:
            load_secret(self.parameters, self.secret_context)
