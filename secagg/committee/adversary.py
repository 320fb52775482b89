"""Reconstruction of a client's vector in a committee sum by a coalition, for the audit."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from secagg.committee.messages import (
    BOX_LABEL,
    HASH_BYTES,
    CommitteeInput,
    box_binding,
    mask_seed,
    seed_commitment,
    seeds_by_set,
)
from secagg.primitives.boxes import SECRET_BYTES, BoxKey
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import SealBrokenError
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.sums import CoalitionView
from secagg.wire import Reader

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


def unmask_upload(config: CommitteeSum, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
    """Return the upload minus the masks whose seeds the coalition can decrypt; None if it saw no upload.

    Each seed is also tried against the commitments of the other sets.
    """
    message = _upload(config, knowledge, target)
    if message is None:
        return None
    vector, seeds = RingVector.from_bytes(config.layout, message.vector).copy(), dict[int, bytes]()
    for of_box in opened_boxes(config, knowledge, target).values():
        seeds |= of_box
    for place, seed in product(range(config.seed_sharing.n_seeds), frozenset(seeds.values())):
        commitment = message.commitments[place * HASH_BYTES : (place + 1) * HASH_BYTES]
        if place not in seeds and commitment == seed_commitment(config.digest, target, place, seed):
            seeds[place] = seed
    masks = [(mask_seed(config.digest, target, place, seed), -1) for place, seed in seeds.items()]
    add_masks(vector, masks, config.digest)
    return vector


def opened_boxes(config: CommitteeSum, knowledge: CoalitionView, target: PartyId) -> dict[PartyId, dict[int, bytes]]:
    """Return the seeds, by set, of each box of an upload that a key of the coalition decrypts.

    Each helper's public key is also tried with a publicly known secret, which must fail.
    """
    message = _upload(config, knowledge, target)
    if message is None:
        return {}
    keys = [one.boxes for one in knowledge.secrets.values() if one.boxes is not None]
    found = {}
    for helper, box in message.boxes.items():
        for key in (*keys, _with_public(config.helper_key(helper))):
            with suppress(SealBrokenError):
                opened = key.open(box, BOX_LABEL, box_binding(config.digest, target, helper))
                found[helper] = seeds_by_set(config, helper, opened)
                break
    return found


def _upload(config: CommitteeSum, knowledge: CoalitionView, target: PartyId) -> CommitteeInput | None:
    payload = knowledge.upload(target)
    return None if payload is None else CommitteeInput.read(Reader(memoryview(payload), peer=target), config)


@lru_cache(maxsize=64)
def _with_public(public: bytes) -> BoxKey:
    """Return a key pair with this public key and a publicly known secret."""
    pair = BoxKey(bytes(SECRET_BYTES))
    object.__setattr__(pair, "public", public)
    return pair
