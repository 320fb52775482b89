"""Committee sums (`secagg.CommitteeSum`): one-shot clients and helpers that remove the masks. Here: key rotation."""

from secagg.committee.key_rotation import KeyRotation, RollbackProtection, SealingKey

__all__ = ["KeyRotation", "RollbackProtection", "SealingKey"]
