"""What a coalition opens of a committee sum's upload: the masks of every set that one of its helpers is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.committee.messages import BOX_LABEL, CommitteeInput, box_binding, mask_seed, seeds_by_set
from secagg.primitives.mask_stream import add_masks
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.sums import Knowledge
from secagg.wire import Reader

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


def opened_upload(config: CommitteeSum, knowledge: Knowledge, target: PartyId) -> RingVector | None:
    """Return the upload less the masks that the coalition's helpers know the seeds of; None if it saw no upload."""
    payload = knowledge.upload(target)
    if payload is None:
        return None
    message = CommitteeInput.read(Reader(memoryview(payload), peer=target), config)
    vector, seeds = RingVector.from_bytes(config.layout, message.vector).copy(), dict[int, bytes]()
    for helper in config.helpers:
        secrets = knowledge.secrets.get(helper)
        if secrets is not None and secrets.boxes is not None:
            binding = box_binding(config.digest, target, helper)
            opened = secrets.boxes.open(message.boxes[helper], BOX_LABEL, binding)
            seeds |= seeds_by_set(config, helper, opened)
    masks = [(mask_seed(config.digest, target, place, seed), -1) for place, seed in seeds.items()]
    add_masks(vector, masks, config.digest)
    return vector
