"""Faults of masks known from practice, planted into recorded sums: some attack of the audit must notice each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from secagg.in_memory import Envelope
from secagg.ring import RingVector
from secagg.wire import CARRIES_VECTOR, HEADER_BYTES, message_type, payload_of
from simulations.audit.attack import SentAttack
from simulations.audit.attacks.distinguishing import Distinguishing, Uniformity
from simulations.audit.attacks.mask_words import MaskWords
from simulations.audit.view import RecordedSum

DICE, WORLDS, WORDS = Uniformity(), Distinguishing(), MaskWords()


@dataclass(frozen=True, slots=True)
class MaskFault:
    """A faulty mask.

    Args:
        name: of the test.
        spoil: gives the faulty mask in place of the right one.
        caught_by: the attacks that must notice.
    """

    name: str
    spoil: Callable[[RingVector], RingVector]
    caught_by: tuple[SentAttack, ...] = (DICE, WORLDS)


def with_fault(recorded: RecordedSum, fault: MaskFault) -> RecordedSum:
    """The same masked sum as clients with that fault would have sent it.

    An upload is the vector plus a mask; here both are known, so the mask is taken out, spoiled, and put back.
    """
    return replace(recorded, envelopes=tuple(_spoiled(recorded, fault, one) for one in recorded.envelopes))


def _spoiled(recorded: RecordedSum, fault: MaskFault, envelope: Envelope) -> Envelope:
    if message_type(envelope.message) not in CARRIES_VECTOR:
        return envelope
    layout, message = recorded.protocol.layout, envelope.message
    end = HEADER_BYTES + len(payload_of(message))
    head = end - layout.wire_bytes
    assert head >= HEADER_BYTES
    vector = RingVector.encode(layout, recorded.inputs[envelope.sender])
    mask = RingVector.from_bytes(layout, message[head:end]).copy()
    mask.subtract(vector)
    vector.add(fault.spoil(mask))
    return replace(envelope, message=message[:head] + vector.to_bytes() + message[end:])


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
        single = (words & words.dtype.type(modulus - 1)).astype(np.float32).astype(np.float64)
        spoiled.append(np.where(single < modulus, single, 0.0).astype(words.dtype))
    return RingVector(mask.layout, spoiled)


def _tail_skipped(mask: RingVector) -> RingVector:
    """A mask that ends with its last whole block of 4096 bytes: what a loop over whole blocks leaves."""
    data = np.frombuffer(mask.to_bytes(), dtype=np.uint8).copy()
    data[len(data) // 4096 * 4096 :] = 0
    return RingVector.from_bytes(mask.layout, data.tobytes())


def _same_for_all_entries(mask: RingVector) -> RingVector:
    """One number added everywhere: what a generator that is seeded anew for each entry leaves."""
    return RingVector(mask.layout, [np.full_like(words, words[0]) for words in mask.words])


def _begins_again(mask: RingVector) -> RingVector:
    """A mask whose key stream begins again halfway: what a counter that is reset leaves."""
    data = np.frombuffer(mask.to_bytes(), dtype=np.uint8)
    return RingVector.from_bytes(mask.layout, np.resize(data[: len(data) // 2], len(data)).tobytes())


def _same_for_all_clients(mask: RingVector) -> RingVector:
    """One mask for everybody: what a seed without the client's name in it leaves."""
    words = np.random.default_rng(0).integers(0, 256, len(mask.to_bytes()), dtype=np.uint8)
    return RingVector.from_bytes(mask.layout, words.tobytes())


MASK_FAULTS = (
    MaskFault("truncated", _truncated),
    MaskFault("float", _float),
    MaskFault("tail_skipped", _tail_skipped),
    MaskFault("constant", _same_for_all_entries, (DICE, WORDS)),
    MaskFault("begins_again", _begins_again, (WORDS,)),
    MaskFault("shared", _same_for_all_clients, (WORDS,)),
)
"""Every fault of one mask; reuse takes two sums."""
