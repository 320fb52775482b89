"""The key holder's key pair for one session: signed, used once, and sealed in the site's folder until then."""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.site.modes import Basis
from secagg import os_entropy
from secagg.durable import Store
from secagg.errors import SnapshotError
from secagg.he import generate_contexts, sign_context
from secagg.primitives.identity import IdentityKey
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal

_BINDING = b"analytic-secagg/1 key holder's pair"
_SIZE_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKeyPair:
    """One key pair.

    Args:
        signed_context: the key holder's signature and public context, for everybody.
        secret_context: what decrypts, for the key holder only.
    """

    signed_context: bytes = field(repr=False)
    secret_context: bytes = field(repr=False)

    @classmethod
    def generate(cls, basis: Basis, identity: IdentityKey) -> SessionKeyPair:
        """A fresh pair for the sum that this basis describes.

        Raises:
            ConfigurationError: nothing is encrypted in it, or no parameters carry it.
        """
        parameters, holder, session = basis.encryption, basis.key_holder, basis.terms.session
        keys = generate_contexts(parameters)
        signature = sign_context(
            identity, keys.public_context, parameters=parameters, session_id=session, key_holder=holder
        )
        return cls(signed_context=signature + keys.public_context, secret_context=keys.secret_context)

    def save(self, store: Store, key: bytes) -> None:
        """Seal it under 32 bytes that only this site knows; once this returns it survives a crash."""
        size = len(self.signed_context).to_bytes(_SIZE_BYTES, "big")
        store.save(seal(key, size + self.signed_context + self.secret_context, _BINDING, entropy=os_entropy))

    @classmethod
    def load(cls, store: Store, key: bytes) -> SessionKeyPair | None:
        """What was saved; None if nothing was.

        Raises:
            SnapshotError: another key, or changed bytes.
        """
        sealed = store.load()
        if sealed is None:
            return None
        try:
            content = open_sealed(key, sealed, _BINDING)
        except SealBrokenError as error:
            raise SnapshotError("the stored key pair does not open: another key, or changed bytes") from error
        size = _SIZE_BYTES + int.from_bytes(content[:_SIZE_BYTES], "big")
        return cls(signed_context=content[_SIZE_BYTES:size], secret_context=content[size:])
