"""Key rotation of helpers: a long-lived identity signs an encryption key for one epoch, whose secret is then erased.

This gives forward secrecy: recorded uploads cannot be decrypted after the secret of their epoch was erased, even if the
helper is compromised later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from secagg.durable import Store
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, PolicyError, SnapshotError
from secagg.primitives.agreement import BadPublicKeyError
from secagg.primitives.boxes import BOX_KEY_BYTES, SECRET_BYTES, BoxKey, check_box_key
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import IDENTITY_BYTES, SIGNATURE_BYTES, IdentityKey, is_signed
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal

_LABEL = "committee sealing key"
_EPOCH_BYTES, _UNTIL_BYTES = 4, 8
SEALING_KEY_BYTES = BOX_KEY_BYTES + _EPOCH_BYTES + _UNTIL_BYTES + SIGNATURE_BYTES

LAST_EPOCH, FOREVER = (1 << 8 * _EPOCH_BYTES) - 1, (1 << 8 * _UNTIL_BYTES) - 1
_MAGIC = b"analytic-secagg/1 sealing epochs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealingKey:
    """A helper's public encryption key of one epoch, signed by the helper's identity.

    Args:
        key: ``BoxKey.public``.
        epoch: number of the epoch, from 1, increasing.
        until: end of the epoch, in seconds since 1970.
        signature: Ed25519 signature of the helper's identity.

    >>> identity = IdentityKey.generate()
    >>> sealing = SealingKey.signed(identity, BoxKey.generate(os_entropy).public, epoch=1, until=2_000_000_000)
    >>> sealing.check(identity.public)
    >>> SealingKey.from_bytes(sealing.to_bytes()) == sealing
    True
    """

    key: bytes
    epoch: int
    until: int
    signature: bytes

    @classmethod
    def signed(cls, identity: IdentityKey, key: bytes, *, epoch: int = 1, until: int = FOREVER) -> SealingKey:
        """Sign a public encryption key."""
        return cls(key=key, epoch=epoch, until=until, signature=identity.sign(_LABEL, key, *_numbers(epoch, until)))

    def check(self, identity: bytes) -> None:
        """Verify the signature and the key.

        Args:
            identity: the helper's Ed25519 public key.

        Raises:
            ConfigurationError: the epoch is out of range, the signature is not valid, or the key has small order.
        """
        if not 1 <= self.epoch <= LAST_EPOCH:
            raise ConfigurationError(f"epochs of helpers are numbered 1 to {LAST_EPOCH}, not {self.epoch}")
        if not is_signed(identity, self.signature, _LABEL, self.key, *_numbers(self.epoch, self.until)):
            raise ConfigurationError(
                f"the sealing key of epoch {self.epoch} is not signed by the helper's identity; ask the helper for it, "
                "and nobody else"
            )
        try:
            check_box_key(self.key)
        except BadPublicKeyError as error:
            raise ConfigurationError(f"the sealing key is none, or has small order: {error}") from error

    def to_bytes(self) -> bytes:
        """Return the signed key as bytes, as in ``CommitteeSum.helper_keys``."""
        return self.key + b"".join(_numbers(self.epoch, self.until)) + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> SealingKey:
        """Parse a signed key; inverse of ``to_bytes``. It does not verify the signature.

        Raises:
            ConfigurationError: ``data`` has another length.
        """
        if type(data) is not bytes or len(data) != SEALING_KEY_BYTES:
            raise ConfigurationError(f"a helper's sealing key with epoch and signature has {SEALING_KEY_BYTES} bytes")
        numbers, signature = data[BOX_KEY_BYTES:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        epoch, until = (int.from_bytes(part, "big") for part in (numbers[:_EPOCH_BYTES], numbers[_EPOCH_BYTES:]))
        return cls(key=data[:BOX_KEY_BYTES], epoch=epoch, until=until, signature=signature)


class KeyRotation:
    """A helper's rotating encryption key in a store: the current secret, and the number of the last epoch.

    Args:
        store: storage; a replaced record must be unrecoverable, which most disks do not guarantee.
        identity: the helper's signing key; the record is encrypted with a key derived from it.
        entropy: source of the keys.

    >>> class MemoryStore:
    ...     record = None
    ...     def load(self): return self.record
    ...     def save(self, record): self.record = record
    >>> rotation = KeyRotation(MemoryStore(), IdentityKey.generate())
    >>> rotation.begin(now=0.0, seconds=3600.0).epoch
    1
    >>> rotation.current(now=7200.0) is None  # the secret was erased
    True
    """

    def __init__(self, store: Store, identity: IdentityKey, *, entropy: Entropy = os_entropy) -> None:
        self._store, self._identity, self._entropy = store, identity, entropy
        self._key = derive_key(identity.secret, "sealing epochs")

    def current(self, now: float) -> tuple[SealingKey, BoxKey] | None:
        """Return the signed key and the key pair of the running epoch, or None; an ended epoch is erased."""
        if self.has_ended(now):
            self.erase()
        epoch, until, secret = self._load()
        if not secret:
            return None
        boxes = BoxKey(secret)
        return SealingKey.signed(self._identity, boxes.public, epoch=epoch, until=until), boxes

    def begin(self, now: float, seconds: float, *, number: int | None = None) -> SealingKey:
        """Erase the secret of the previous epoch, begin the next one and return its signed key.

        Args:
            now: current time, in seconds since 1970.
            seconds: duration of the epoch.
            number: number of the epoch, needed if the store was lost or belongs to a previous identity; None takes the
                next number.

        Raises:
            ConfigurationError: the number is not larger than the last one, or the duration is not positive.
            SnapshotError: the store belongs to another identity and no number is given.
        """
        epoch = self.check_next(seconds, number)
        boxes, until = BoxKey.generate(self._entropy), int(now + seconds)
        self._save(epoch, until, boxes.secret)
        return SealingKey.signed(self._identity, boxes.public, epoch=epoch, until=until)

    def check_next(self, seconds: float, number: int | None = None) -> int:
        """Return the number that ``begin`` would take, without erasing anything.

        Raises:
            ConfigurationError: see ``begin``.
        """
        try:
            last, _, _ = self._load()
        except SnapshotError:
            if number is None:
                raise
            last = 0  # the store is of another identity; its owner gave the number
        epoch = last + 1 if number is None else number
        if not last < epoch <= LAST_EPOCH or seconds <= 0:
            raise ConfigurationError(
                f"the next epoch has a number of {last + 1} to {LAST_EPOCH} and lasts for a while, not {epoch} for "
                f"{seconds:g} seconds"
            )
        return epoch

    def has_ended(self, now: float) -> bool:
        """Return whether the store has the secret of an epoch that has ended."""
        _, until, secret = self._load()
        return bool(secret) and now >= until

    def erase(self) -> None:
        """Erase the secret: boxes encrypted to its key can no longer be decrypted."""
        epoch, until, _ = self._load()
        self._save(epoch, until, b"")

    def _load(self) -> tuple[int, int, bytes]:
        sealed = self._store.load()
        if sealed is None:
            return 0, 0, b""
        try:
            content = open_sealed(self._key, sealed, _LABEL.encode())
        except SealBrokenError as error:
            raise SnapshotError("the stored epoch does not open: another identity, or changed bytes") from error
        until = content[_EPOCH_BYTES : _EPOCH_BYTES + _UNTIL_BYTES]
        return (
            int.from_bytes(content[:_EPOCH_BYTES], "big"),
            int.from_bytes(until, "big"),
            content[_EPOCH_BYTES + _UNTIL_BYTES :],
        )

    def _save(self, epoch: int, until: int, secret: bytes) -> None:
        assert len(secret) in (0, SECRET_BYTES)
        content = b"".join(_numbers(epoch, until)) + secret
        self._store.save(seal(self._key, content, _LABEL.encode(), entropy=self._entropy))


@dataclass(frozen=True, slots=True)
class RollbackProtection:
    """Memory of the last accepted epoch of each helper: keys of older epochs are refused.

    Args:
        store: storage, needed as long as the helpers' identities are in use.

    >>> class MemoryStore:
    ...     record = None
    ...     def load(self): return self.record
    ...     def save(self, record): self.record = record
    >>> identity, protection = IdentityKey.generate(), RollbackProtection(MemoryStore())
    >>> first, second = (SealingKey.signed(identity, BoxKey.generate(os_entropy).public, epoch=n) for n in (1, 2))
    >>> protection.accept({identity.public: second}, now=0.0)
    >>> protection.accept({identity.public: first}, now=0.0)
    Traceback (most recent call last):
        ...
    secagg.errors.PolicyError: this party has accepted epoch 2 of a helper, and this sum's key is of epoch 1: ...
    """

    store: Store = field(repr=False)

    def accept(self, keys: Mapping[bytes, SealingKey], now: float) -> None:
        """Verify the keys of a sum and store their epochs before returning.

        Args:
            keys: signed keys by the helper's Ed25519 public key.
            now: current time, in seconds since 1970.

        Raises:
            ConfigurationError: a signature is not valid.
            PolicyError: an epoch has ended, is older than the last accepted one, or has a second key.
        """
        accepted = self._load()
        for identity, sealing in keys.items():
            sealing.check(identity)
            last, key = accepted.get(identity, (0, b""))
            if now >= sealing.until:
                raise PolicyError(
                    f"epoch {sealing.epoch} of a helper has ended; ask the helper's host for the key of its next one"
                )
            if sealing.epoch < last:
                raise PolicyError(
                    f"this party has accepted epoch {last} of a helper, and this sum's key is of epoch "
                    f"{sealing.epoch}: that key should be erased, and nothing is sealed to it"
                )
            if sealing.epoch == last and sealing.key != key:
                raise PolicyError(f"a helper signed two sealing keys for its epoch {last}; ask it which one is right")
            accepted[identity] = sealing.epoch, sealing.key
        rows = (party + number.to_bytes(_EPOCH_BYTES, "big") + key for party, (number, key) in accepted.items())
        self.store.save(_MAGIC + b"".join(rows))

    def _load(self) -> dict[bytes, tuple[int, bytes]]:
        record = self.store.load() or _MAGIC
        size, entries = IDENTITY_BYTES + _EPOCH_BYTES + BOX_KEY_BYTES, record[len(_MAGIC) :]
        if not record.startswith(_MAGIC) or len(entries) % size:
            raise SnapshotError("what was stored of accepted epochs does not read: changed bytes")
        rows = [entries[place : place + size] for place in range(0, len(entries), size)]
        number = slice(IDENTITY_BYTES, IDENTITY_BYTES + _EPOCH_BYTES)
        return {row[:IDENTITY_BYTES]: (int.from_bytes(row[number], "big"), row[number.stop :]) for row in rows}


def _numbers(epoch: int, until: int) -> tuple[bytes, bytes]:
    return epoch.to_bytes(_EPOCH_BYTES, "big"), until.to_bytes(_UNTIL_BYTES, "big")
