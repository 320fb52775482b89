"""Faults in masks that are known from practice, planted on purpose: a report that misses one is not to be trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from secagg.in_memory import Envelope
from secagg.ring import RingVector
from secagg.wire import CARRIES_VECTOR, HEADER_BYTES, message_type
from simulations.audit.recorder import RecordedSum

Fault = Callable[[RingVector], RingVector]
"""What becomes of a mask."""


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """A faulty mask.

    Args:
        name: in JSON.
        title: in words.
        fault: the faulty mask in place of the right one.
        caught_by: names of the attacks that must notice.
    """

    name: str
    title: str
    fault: Fault
    caught_by: tuple[str, ...]


def with_bug(recorded: RecordedSum, bug: PlantedBug) -> RecordedSum:
    """The same masked sum as clients with that fault would have sent it.

    An upload is the vector plus a mask; here both are known, so the mask is taken out, spoiled, and put back.
    """
    return replace(recorded, envelopes=tuple(_spoiled(recorded, bug, one) for one in recorded.envelopes))


def _spoiled(recorded: RecordedSum, bug: PlantedBug, envelope: Envelope) -> Envelope:
    if message_type(envelope.message) not in CARRIES_VECTOR:
        return envelope
    layout = recorded.protocol.layout
    head = len(envelope.message) - layout.wire_bytes
    assert head >= HEADER_BYTES
    vector = RingVector.encode(layout, recorded.inputs[envelope.sender])
    mask = RingVector.from_bytes(layout, envelope.message[head:]).copy()
    mask.subtract(vector)
    vector.add(bug.fault(mask))
    return replace(envelope, message=envelope.message[:head] + vector.to_bytes())


def _truncated(mask: RingVector) -> RingVector:
    """Two bytes of mask where the entry has more: what a 16-bit generator leaves."""
    return RingVector(
        mask.layout, [words & words.dtype.type(0xFFFF) if words.itemsize > 2 else words for words in mask.words]
    )


def _float(mask: RingVector) -> RingVector:
    """A mask that went through float32: its low bits are zero, so those of the vector show."""
    spoiled = []
    for segment, words in zip(mask.layout.segments, mask.words, strict=True):
        modulus = 1 << 8 * segment.wire_bytes
        whole = [int(np.float32(int(word) % modulus)) % modulus for word in words]
        spoiled.append(np.array(whole, dtype=words.dtype))
    return RingVector(mask.layout, spoiled)


def _tail_skipped(mask: RingVector) -> RingVector:
    """A mask that ends with its last whole block of 4096 bytes: what a loop over whole blocks leaves."""
    data = np.frombuffer(mask.to_bytes(), dtype=np.uint8).copy()
    data[len(data) // 4096 * 4096 :] = 0
    return RingVector.from_bytes(mask.layout, data.tobytes())


def _same_for_all_entries(mask: RingVector) -> RingVector:
    """One number added everywhere: what a generator that is seeded anew for each entry leaves."""
    return RingVector(mask.layout, [np.full_like(words, words[0]) for words in mask.words])


BUGS: Mapping[str, PlantedBug] = {
    bug.name: bug
    for bug in (
        PlantedBug("truncated", "masks of 16 bits only", _truncated, ("uniformity", "told_apart")),
        PlantedBug("float", "masks that went through float32", _float, ("uniformity", "told_apart")),
        PlantedBug(
            "tail_skipped", "masks that end before the vector does", _tail_skipped, ("uniformity", "told_apart")
        ),
        PlantedBug("constant", "one mask word for all entries", _same_for_all_entries, ("uniformity",)),
    )
}
"""Every planted bug but mask reuse, which takes two sums (see ``mask_reuse``)."""
