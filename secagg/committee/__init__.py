"""One-shot sums: each client speaks once, a committee of helpers takes the masks off the sum."""

from secagg.committee.epochs import AcceptedEpochs, OwnEpochs, SealingKey
from secagg.committee.protocol import CommitteeSum

__all__ = ["AcceptedEpochs", "CommitteeSum", "OwnEpochs", "SealingKey"]
