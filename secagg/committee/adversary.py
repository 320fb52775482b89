"""What a coalition opens of a committee sum's upload: one mask for each helper whose key it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.committee.messages import CommitteeInput, seed_binding, seed_key
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import open_sealed
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.sums import Knowledge
from secagg.wire import Reader

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


def opened_upload(config: CommitteeSum, knowledge: Knowledge, target: PartyId) -> RingVector | None:
    """Return the upload less the masks of the helpers whose key pair the coalition has; None if it saw no upload."""
    payload = knowledge.upload(target)
    if payload is None:
        return None
    message = CommitteeInput.read(Reader(memoryview(payload), peer=target), config)
    vector = RingVector.from_bytes(config.layout, message.vector).copy()
    masks: list[tuple[bytes, int]] = []
    for helper in config.helpers:
        secrets = knowledge.secrets.get(helper)
        if secrets is not None and secrets.agreement is not None:
            seed = message.seeds[helper]
            key = seed_key(secrets.agreement, seed.ephemeral, config.digest, target, helper)
            masks.append((open_sealed(key, seed.sealed, seed_binding(config.digest, target, helper)), -1))
    add_masks(vector, masks, config.digest)
    return vector
