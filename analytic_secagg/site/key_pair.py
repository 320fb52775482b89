"""Key pair of one session: a helper's announcement and the secret that goes with it, sealed in the site's store."""

from __future__ import annotations

from dataclasses import dataclass, field

from analytic_secagg.modes import Mode
from analytic_secagg.session_config import SessionConfig
from secagg import PartySecrets, os_entropy
from secagg.durable import Store
from secagg.errors import SnapshotError
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal

_BINDING = b"analytic-secagg/1 key holder's pair"
_SIZE_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKeyPair:
    """One session's announcement, such as the key holder's signed public context, and the secret that goes with it.

    Args:
        announcement: for everybody.
        decryption: what decrypts, for the key holder only.
    """

    announcement: bytes = field(repr=False)
    decryption: bytes = field(repr=False)

    @classmethod
    def generate(cls, mode: Mode, setup: SessionConfig, secrets: PartySecrets) -> SessionKeyPair:
        """Return a fresh one for the sum of a set-up.

        Raises:
            ConfigurationError: no parameters carry such a sum.
        """
        assert mode.announce is not None, "only helpers that announce something are asked to"
        announcement, own = mode.announce(setup, secrets)
        return cls(announcement=announcement, decryption=own.decryption)

    def save(self, store: Store, key: bytes) -> None:
        """Seal it under 32 bytes that only this site knows; once this returns it survives a crash."""
        size = len(self.announcement).to_bytes(_SIZE_BYTES, "big")
        store.save(seal(key, size + self.announcement + self.decryption, _BINDING, entropy=os_entropy))

    @classmethod
    def load(cls, store: Store, key: bytes) -> SessionKeyPair | None:
        """Return what was saved; None if nothing was.

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
        return cls(announcement=content[_SIZE_BYTES:size], decryption=content[size:])
