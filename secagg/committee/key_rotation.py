"""Epochs of a helper: a long-lived identity signs the key that boxes are sealed to, for a while, and then erases it.

Uploads that somebody recorded stay closed once the secret of their epoch is gone, whatever is taken from the helper
later: nothing that lasts opens a box.
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
    """The key that a helper's boxes are sealed to in one epoch, with the helper's word that it is.

    Args:
        key: ``BoxKey.public``.
        epoch: its number, from 1; each of a helper's is larger than the one before.
        until: the second since 1970 at which it ends.
        signature: Ed25519, by the helper's identity.
    """

    key: bytes
    epoch: int
    until: int
    signature: bytes

    @classmethod
    def signed(cls, identity: IdentityKey, key: bytes, *, epoch: int = 1, until: int = FOREVER) -> SealingKey:
        """Return a helper's word on a key."""
        return cls(key=key, epoch=epoch, until=until, signature=identity.sign(_LABEL, key, *_numbers(epoch, until)))

    def check(self, identity: bytes) -> None:
        """Refuse what the holder of an identity did not sign, or what nobody should seal to.

        Raises:
            ConfigurationError: says which.
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
        """For a sum's parameters, and for whoever hands it on."""
        return self.key + b"".join(_numbers(self.epoch, self.until)) + self.signature

    @classmethod
    def from_bytes(cls, data: bytes) -> SealingKey:
        """Read ``to_bytes``.

        Raises:
            ConfigurationError: other bytes.
        """
        if type(data) is not bytes or len(data) != SEALING_KEY_BYTES:
            raise ConfigurationError(f"a helper's sealing key with epoch and signature has {SEALING_KEY_BYTES} bytes")
        numbers, signature = data[BOX_KEY_BYTES:-SIGNATURE_BYTES], data[-SIGNATURE_BYTES:]
        epoch, until = (int.from_bytes(part, "big") for part in (numbers[:_EPOCH_BYTES], numbers[_EPOCH_BYTES:]))
        return cls(key=data[:BOX_KEY_BYTES], epoch=epoch, until=until, signature=signature)


class KeyRotation:
    """A helper's own epochs in a store: one secret at a time, and the number of the last one for good.

    Args:
        store: where they are kept. What it replaces must be gone; on most disks that takes more than a new file.
        identity: the helper's signing key, under a key of which the record is sealed.
    """

    def __init__(self, store: Store, identity: IdentityKey, *, entropy: Entropy = os_entropy) -> None:
        self._store, self._identity, self._entropy = store, identity, entropy
        self._key = derive_key(identity.secret, "sealing epochs")

    def current(self, now: float) -> tuple[SealingKey, BoxKey] | None:
        """The running epoch's key and its secret; None where none is running. One that has ended is erased."""
        if self.has_ended(now):
            self.erase()
        epoch, until, secret = self._load()
        if not secret:
            return None
        boxes = BoxKey(secret)
        return SealingKey.signed(self._identity, boxes.public, epoch=epoch, until=until), boxes

    def begin(self, now: float, seconds: float, *, number: int | None = None) -> SealingKey:
        """Erase the secret of the epoch before and begin the next one; return its key.

        Args:
            now: the second since 1970.
            seconds: how long it lasts.
            number: its number, where the store was lost and others have accepted higher ones, or is of the identity
                before this one; None for the next.

        Raises:
            ConfigurationError: a number that is not larger than the last one.
            SnapshotError: the store is of another identity, and no number is given.
        """
        epoch = self.check_next(seconds, number)
        boxes, until = BoxKey.generate(self._entropy), int(now + seconds)
        self._save(epoch, until, boxes.secret)
        return SealingKey.signed(self._identity, boxes.public, epoch=epoch, until=until)

    def check_next(self, seconds: float, number: int | None = None) -> int:
        """The number that ``begin`` would take, before anything is erased for it.

        Raises:
            ConfigurationError: see ``begin``.
        """
        try:
            last, _, _ = self._load()
        except SnapshotError:
            if number is None:
                raise
            last = 0  # of another identity: its owner's word for the number stands in
        epoch = last + 1 if number is None else number
        if not last < epoch <= LAST_EPOCH or seconds <= 0:
            raise ConfigurationError(
                f"the next epoch has a number of {last + 1} to {LAST_EPOCH} and lasts for a while, not {epoch} for "
                f"{seconds:g} seconds"
            )
        return epoch

    def has_ended(self, now: float) -> bool:
        """Whether there is a secret of an epoch that is over."""
        _, until, secret = self._load()
        return bool(secret) and now >= until

    def erase(self) -> None:
        """Erase the secret: what was sealed to its key opens no more."""
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
    """Which epoch of each helper a party has accepted last, so that nobody takes it back to an older one.

    Args:
        store: where that is kept, for as long as the helpers' identities are used.
    """

    store: Store = field(repr=False)

    def accept(self, keys: Mapping[bytes, SealingKey], now: float) -> None:
        """Accept the sealing keys of a sum, by the identity of their helpers; once this returns that is for good.

        Raises:
            ConfigurationError: a key that its helper did not sign.
            PolicyError: an epoch that has ended, one before the last that was accepted, or a second key of one epoch.
        """
        accepted = self._load()
        for identity, sealing in keys.items():
            sealing.check(identity)
            last, key = accepted.get(identity, (0, b""))
            if now >= sealing.until:
                raise PolicyError(
                    f"epoch {sealing.epoch} of a helper has ended; seal to the key of its next one, which its host "
                    "says when it is asked"
                )
            if sealing.epoch < last:
                raise PolicyError(
                    f"this party has accepted epoch {last} of a helper, and this sum's key is of epoch "
                    f"{sealing.epoch}: nobody seals to what was to be erased"
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
