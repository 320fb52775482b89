"""One-shot sums: each client speaks once, a committee of helpers takes the masks off the sum."""

from secagg.committee.key_rotation import KeyRotation, RollbackProtection, SealingKey
from secagg.committee.protocol import CommitteeSum

__all__ = ["CommitteeSum", "KeyRotation", "RollbackProtection", "SealingKey"]
