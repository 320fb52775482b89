"""How a client knows that a public context is the key holder's: a fingerprint to pin, or a signature to check.

A server that could choose the public key for everybody would know the secret one. So the context comes with what the
operator handed out beforehand: its SHA-256, or the key holder's long-lived identity key, which signs each session's.
"""

from __future__ import annotations

import hashlib

from secagg.errors import ConfigurationError
from secagg.he.parameters import EncryptionParameters
from secagg.primitives.identity import IDENTITY_BYTES, IdentityKey, is_signed
from secagg.sessions import PartyId

_LABEL = "public context"


def fingerprint(public_context: bytes) -> bytes:
    """SHA-256 of a public context: what an operator writes into the configuration, and what the digest holds."""
    return hashlib.sha256(public_context).digest()


def pin_context(public_context: bytes, expected: bytes) -> bytes:
    """The public context, if it is the one that the operator named.

    Args:
        public_context: what came, from whoever.
        expected: its fingerprint, from the operator.

    Raises:
        ConfigurationError: it is another one.
    """
    came = fingerprint(public_context)
    if came != expected:
        raise ConfigurationError(
            f"the public context has the fingerprint {came.hex()} and the operator names {expected.hex()}; somebody "
            "swapped the key: encrypt nothing under it, and ask the operator"
        )
    return public_context


def sign_context(
    identity: IdentityKey,
    public_context: bytes,
    *,
    parameters: EncryptionParameters,
    session_id: bytes,
    key_holder: PartyId,
) -> bytes:
    """The key holder's word that this is its public context for one session."""
    return identity.sign(_LABEL, *_statement(public_context, parameters, session_id, key_holder))


def check_signature(
    holder_identity: bytes,
    signature: bytes,
    public_context: bytes,
    *,
    parameters: EncryptionParameters,
    session_id: bytes,
    key_holder: PartyId,
) -> None:
    """Refuse a context that the key holder did not sign; nothing is asked for where no identity is given.

    Raises:
        ConfigurationError: no signature of this identity over this context, these parameters and this session.
    """
    if not holder_identity and not signature:
        return
    if len(holder_identity) != IDENTITY_BYTES:
        raise ConfigurationError(
            f"a signed context needs the key holder's identity, an Ed25519 public key of {IDENTITY_BYTES} bytes from "
            "the operator"
        )
    statement = _statement(public_context, parameters, session_id, key_holder)
    if not is_signed(holder_identity, signature, _LABEL, *statement):
        raise ConfigurationError(
            f"the public context is not signed by key holder {key_holder} for this session: somebody swapped the key, "
            "or the signature is of another session; encrypt nothing under it, and ask the operator"
        )


def _statement(
    public_context: bytes, parameters: EncryptionParameters, session_id: bytes, key_holder: PartyId
) -> tuple[bytes, ...]:
    return session_id, parameters.canonical(), key_holder.to_bytes(4, "big"), fingerprint(public_context)
