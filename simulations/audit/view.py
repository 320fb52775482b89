"""What an adversary saw of real sums: the messages, and the inputs and random tapes of the parties it controls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from secagg import Layout, PartyId, PartySecrets, SumProtocol, SumResult
from secagg.config import SERVER
from secagg.in_memory import Envelope
from secagg.layout import IntVector
from secagg.ring import RingVector
from secagg.sums import Knowledge
from secagg.wire import MessageType, message_type, payload_of
from simulations.audit.population import SideInformation


@dataclass(frozen=True, slots=True, kw_only=True)
class Coalition:
    """Who pools what it saw.

    Args:
        name: what reports call it.
        server: whether the server takes part; every message goes through it, and it learns the total.
        parties: clients, helpers and key holders that take part, with all their secrets.
        wire: whether it reads every message on the wire. (Transport encryption would prevent that; here is none.)
        given_total: whether the learner hands it the total, as FedHiP does with its clients.
    """

    name: str
    server: bool = False
    parties: frozenset[PartyId] = frozenset()
    wire: bool = False
    given_total: bool = False

    def sees(self, envelope: Envelope) -> bool:
        """Whether this message passes one of its members."""
        ends = {envelope.sender, envelope.recipient}
        return self.wire or bool(ends & self.parties) or (self.server and SERVER in ends)


SERVER_ALONE = Coalition(name="server", server=True)
WIRE_TAPPER = Coalition(name="wire-tapper", wire=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumView:
    """What a coalition saw of one sum: the textbook's view of a party is its input, its tape and its messages.

    Args:
        protocol: the public half of the protocol.
        model: what every party knew of the model before this sum.
        messages: those that passed a member, in the order in which they were sent.
        result: what the server released, where a member learns it.
        inputs: the vectors of its clients.
        tapes: all random bytes that its clients drew, in order.
        secrets: the long-lived secrets of its parties.
    """

    protocol: SumProtocol
    model: Any
    messages: tuple[Envelope, ...] = field(repr=False)
    result: SumResult | None = field(repr=False)
    inputs: Mapping[PartyId, IntVector] = field(repr=False)
    tapes: Mapping[PartyId, bytes] = field(repr=False)
    secrets: Mapping[PartyId, PartySecrets] = field(repr=False)

    @property
    def layout(self) -> Layout:
        """The public shape of the vectors."""
        return self.protocol.layout

    def messages_of(self, kind: MessageType) -> tuple[Envelope, ...]:
        """Those messages that are of one kind."""
        return tuple(envelope for envelope in self.messages if message_type(envelope.message) is kind)

    @property
    def knowledge(self) -> Knowledge:
        """What the coalition pools, as the sum itself takes it apart."""
        messages = tuple(envelope.message for envelope in self.messages)
        return Knowledge(messages=messages, tapes=self.tapes, secrets=self.secrets)

    def vector_bytes(self, sender: PartyId) -> bytes | None:
        """The last bytes of a client's one heavy message, as many as a vector takes; every mode puts its vector there.

        None if the coalition did not see it.
        """
        payload = self.knowledge.upload(sender)
        return None if payload is None else payload[-self.layout.wire_bytes :]

    def read_upload(self, sender: PartyId) -> IntVector | None:
        """A client's upload taken for integers, whatever it is; None if the coalition did not see it."""
        data = self.vector_bytes(sender)
        return None if data is None else read_integers(self.layout, data)

    def read_rest(self) -> IntVector | None:
        """The total less what the coalition's own clients put in; None if no member learns the total."""
        total = self.read_total()
        if total is None:
            return None
        survivors = set(self.protocol.clients if self.result is None else self.result.survivors)
        return total - sum((own for party, own in self.inputs.items() if party in survivors), np.zeros_like(total))

    def read_total(self) -> IntVector | None:
        """The total: the server's result, or what a key holder decrypted, unless masks are still on it."""
        if self.result is not None:
            return self.result.total
        if not self.protocol.guarantee.helpers_learn_total:
            return None
        for envelope in self.messages_of(MessageType.DECRYPTED_SUM):
            return read_integers(self.layout, payload_of(envelope.message))
        return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AdversaryView:
    """All sums that a coalition took part in or overheard, and what it knew anyway.

    Args:
        coalition: who looks.
        sums: what it saw of each sum, in order.
        known: what it knows beside the messages.
    """

    coalition: Coalition
    sums: tuple[SumView, ...]
    known: SideInformation

    def read(self, target: PartyId | None, *, number: int = -1) -> IntVector | None:
        """Its best reading of one client's vector, or, for no client, of the sum of all that it does not control."""
        one = self.sums[number]
        return one.read_rest() if target is None else one.read_upload(target)


def read_integers(layout: Layout, data: bytes) -> IntVector:
    """Bytes taken for the signed integers of a layout, without a word about bounds: that is what an attacker does."""
    words = RingVector.from_bytes(layout, data).words
    vector = np.empty(layout.size, dtype=np.int64)
    for (segment, place), entries in zip(layout.slices(), words, strict=True):
        shift = np.int64(64 - 8 * segment.wire_bytes)
        vector[place] = entries.astype(np.uint64).view(np.int64) << shift >> shift
    return vector
