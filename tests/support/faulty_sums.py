"""Sums with faulty sessions, made from outside: modes, clients, helpers and servers that do something else.

Nothing here replaces a name of the library: a faulty mode goes wherever a mode goes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from analytic_secagg.modes import MODES, Mode
from secagg import InOneProcess, PartyId, SumProtocol
from secagg.config import SERVER
from secagg.entropy import Entropy, os_entropy
from secagg.errors import SecureSumError
from secagg.masked.messages import Roster, ShareDelivery
from secagg.masked.secrets import pairwise_seed, pairwise_sign, seal_binding, sealing_key
from secagg.primitives.agreement import KeyPair
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import open_sealed
from secagg.primitives.shamir import SHARE_BYTES
from secagg.ring import RingVector
from secagg.sessions import ClientInput, ClientSession, ServerSession, SumResult
from secagg.wire import CARRIES_VECTOR, MessageType, Reader, message_type, payload_of
from support.parties import resealed


class Sessions:
    """The sessions of a sum: honest ones, unless a fault makes others."""

    def client(self, sums: InOneProcess, party: PartyId, client_input: ClientInput, entropy: Entropy) -> ClientSession:
        return InOneProcess.client(sums, party, client_input, entropy=entropy)

    def helper(self, sums: InOneProcess, party: PartyId, entropy: Entropy) -> ClientSession:
        return InOneProcess.helper(sums, party, entropy=entropy)

    def server(self, sums: InOneProcess, entropy: Entropy) -> ServerSession:
        return InOneProcess.server(sums, entropy=entropy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulty(InOneProcess):
    """All parties of a sum, whose sessions are made by a fault."""

    sessions: Sessions

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        return self.sessions.client(self, party, client_input, entropy)

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        return self.sessions.helper(self, party, entropy)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        return self.sessions.server(self, entropy)


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyMode(Mode):
    """A mode with faulty sessions, and a source of entropy for everybody."""

    sessions: Sessions = field(default_factory=Sessions)
    entropy: Entropy = os_entropy

    def in_one_process(self, **options: Any) -> InOneProcess:
        honest = Mode.in_one_process(self, **options)
        return Faulty(protocol=honest.protocol, secrets=honest.secrets, sessions=self.sessions)


def faulty(name: str, sessions: Sessions | None = None, **changes: Any) -> FaultyMode:
    """Return a mode by name, a committee of four of whom one may be corrupt, with these faults."""
    mode = MODES[name].with_options(helpers=4, corrupt=1) if name == "committee" else MODES[name]
    given = {own.name: getattr(mode, own.name) for own in fields(Mode)}
    return FaultyMode(**{**given, **changes, "sessions": sessions or Sessions()})


class Drawing(Sessions):
    """Clients with another source of entropy, which is made from the sum, the client and the honest source."""

    def __init__(self, other: Callable[[SumProtocol, PartyId, Entropy], Entropy]) -> None:
        self._other = other

    def client(self, sums: InOneProcess, party: PartyId, client_input: ClientInput, entropy: Entropy) -> ClientSession:
        return InOneProcess.client(sums, party, client_input, entropy=self._other(sums.protocol, party, entropy))


class Client:
    """A client's session with all that it drew and heard, whose messages a fault changes."""

    def __init__(
        self,
        sums: InOneProcess,
        party: PartyId,
        client_input: ClientInput,
        entropy: Entropy,
        change: Callable[[Client, bytes], bytes],
    ) -> None:
        self.protocol: Any = sums.protocol
        self.party, self.vector, self.tape, self.heard = party, client_input, b"", dict[MessageType, Any]()
        self._entropy, self._change = entropy, change
        self.honest = InOneProcess.client(sums, party, client_input, entropy=self._drawn)

    def _drawn(self, n_bytes: int) -> bytes:
        drawn = self._entropy(n_bytes)
        self.tape += drawn
        return drawn

    def start(self) -> bytes | None:
        said = self.honest.start()
        return None if said is None else self._change(self, said)

    def receive(self, message: bytes) -> bytes | None:
        kind, reader = message_type(message), Reader(memoryview(bytes(payload_of(message))), peer=SERVER)
        if kind is MessageType.ROSTER:
            self.heard[kind] = Roster.read(reader, signature_bytes=self.protocol.signature_bytes).keys
        elif kind is MessageType.SHARE_DELIVERY:
            self.heard[kind] = ShareDelivery.read(reader).sealed
        said = self.honest.receive(message)
        return None if said is None else self._change(self, said)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.honest, name)

    @property
    def keys(self) -> tuple[KeyPair, KeyPair]:
        """Sealing and masking key of a masked client."""
        return KeyPair(self.tape[:32]), KeyPair(self.tape[32:64])

    @property
    def self_mask(self) -> bytes:
        """Seed of a masked client's own mask."""
        return self.tape[64:96]

    def pairwise(self) -> list[tuple[bytes, int]]:
        """Seeds and signs of a masked client's masks with others."""
        roster, digest = self.heard[MessageType.ROSTER], self.protocol.digest
        return [
            (pairwise_seed(self.keys[1], roster[peer].masking_key, digest), pairwise_sign(self.party, peer))
            for peer in self.heard[MessageType.SHARE_DELIVERY]
        ]

    def shares_of(self, peer: PartyId) -> tuple[bytes, bytes]:
        """Shares of another's masking key and self-mask that this client holds."""
        config, roster = self.protocol, self.heard[MessageType.ROSTER]
        key = sealing_key(self.keys[0], roster[peer].sealing_key, config.setup_digest, peer, self.party)
        bound = seal_binding(config.setup_digest, peer, self.party, roster[peer].masking_key, self.keys[1].public)
        pair = open_sealed(key, self.heard[MessageType.SHARE_DELIVERY][peer], bound)
        return pair[:SHARE_BYTES], pair[SHARE_BYTES:]


class Server:
    """A server's session that is given other messages, or tells another result."""

    def __init__(
        self,
        honest: ServerSession,
        read: Callable[[bytes], bytes] = lambda message: message,
        told: Callable[[SumResult], SumResult] = lambda result: result,
    ) -> None:
        self._honest, self._read, self._told = honest, read, told

    def receive(self, sender: PartyId, message: bytes) -> None:
        self._honest.receive(sender, self._read(message))

    @property
    def result(self) -> SumResult | None:
        return None if self._honest.result is None else self._told(self._honest.result)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)


Change = Callable[[Client, MessageType, bytes], bytes]
"""Returns what a client sends instead, given the client and type and payload of its message."""


class Saying(Sessions):
    """Clients that send something else, and a server that puts it right: totals stay exact."""

    def __init__(self, change: Change) -> None:
        self._change, self._honest = change, dict[bytes, bytes]()

    def client(self, sums: InOneProcess, party: PartyId, client_input: ClientInput, entropy: Entropy) -> ClientSession:
        return Client(sums, party, client_input, entropy, self._said)  # type: ignore[return-value]

    def server(self, sums: InOneProcess, entropy: Entropy) -> ServerSession:
        honest = InOneProcess.server(sums, entropy=entropy)
        return Server(honest, lambda message: self._honest.get(message, message))  # type: ignore[return-value]

    def _said(self, client: Client, message: bytes) -> bytes:
        kind, payload = message_type(message), bytes(payload_of(message))
        assert kind is not None
        said = resealed(message, self._change(client, kind, payload))
        self._honest[said] = message
        return said


def masking(spoil: Callable[[Client, RingVector], RingVector]) -> Saying:
    """Make clients with other masks: ``spoil`` is given the right one."""

    def change(client: Client, kind: MessageType, payload: bytes) -> bytes:
        if kind not in CARRIES_VECTOR:
            return payload
        layout = client.protocol.layout
        vector = RingVector.encode(layout, client.vector)  # type: ignore[arg-type]
        mask = RingVector.from_bytes(layout, payload[-layout.wire_bytes :]).copy()
        mask.subtract(vector)
        vector.add(spoil(client, mask))
        return payload[: -layout.wire_bytes] + vector.to_bytes()

    return Saying(change)


def by_words(spoil: Callable[[Any], Any]) -> Saying:
    """Spoil the words of masks, segment by segment."""
    return masking(lambda client, mask: RingVector(mask.layout, [spoil(words) for words in mask.words]))


def by_bytes(spoil: Callable[[Any], Any]) -> Saying:
    """Spoil the bytes of masks, as one array."""

    def spoiled(client: Client, mask: RingVector) -> RingVector:
        data = spoil(np.frombuffer(mask.to_bytes(), dtype=np.uint8).copy())
        return RingVector.from_bytes(mask.layout, data.astype(np.uint8).tobytes())

    return masking(spoiled)


def leaving_out(seeds: Callable[[Client], Iterable[tuple[bytes, int]]]) -> Saying:
    """Make clients that leave the masks of these seeds out."""

    def without(client: Client, mask: RingVector) -> RingVector:
        add_masks(mask, [(seed, -sign) for seed, sign in seeds(client)], client.protocol.digest)
        return mask

    return masking(without)


def in_message(kind: MessageType, change: Callable[[Client, bytes], bytes]) -> Saying:
    """Make clients that change one kind of message."""
    return Saying(lambda client, came, payload: change(client, payload) if came is kind else payload)


def telling(told: Callable[[SumResult], SumResult]) -> Sessions:
    """Make a server that tells another result than its session has."""

    class Telling(Sessions):
        def server(self, sums: InOneProcess, entropy: Entropy) -> ServerSession:
            return Server(InOneProcess.server(sums, entropy=entropy), told=told)  # type: ignore[return-value]

    return Telling()


class Restored:
    """A session that is restored from an older state where it refuses."""

    def __init__(self, make: Callable[[], ClientSession]) -> None:
        self._make, self._honest, self._before = make, make(), list[bytes]()

    def receive(self, message: bytes) -> bytes | None:
        try:
            before = self._honest.snapshot()
            answer = self._honest.receive(message)
        except SecureSumError as error:
            for snapshot in reversed(self._before):
                again = self._make()
                again.restore(snapshot)
                with suppress(SecureSumError):
                    answer = again.receive(message)
                    self._honest = again
                    return answer
            raise error
        self._before.append(before)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._honest, name)


class Restoring(Sessions):
    """Clients and helpers that are restored from an older state where they refuse."""

    def client(self, sums: InOneProcess, party: PartyId, client_input: ClientInput, entropy: Entropy) -> ClientSession:
        make = partial(InOneProcess.client, sums, party, client_input, entropy=entropy)
        return Restored(make)  # type: ignore[return-value]

    def helper(self, sums: InOneProcess, party: PartyId, entropy: Entropy) -> ClientSession:
        return Restored(partial(InOneProcess.helper, sums, party))  # type: ignore[return-value]


class Keeping(Sessions):
    """Clients that store what they were before their last answer."""

    def client(self, sums: InOneProcess, party: PartyId, client_input: ClientInput, entropy: Entropy) -> ClientSession:
        class Kept(Client):
            before = b""

            def receive(self, message: bytes) -> bytes | None:
                self.before = self.honest.snapshot()
                return Client.receive(self, message)

            def snapshot(self) -> bytes:
                return self.before

        return Kept(sums, party, client_input, entropy, lambda client, said: said)  # type: ignore[return-value]


class Unasked(Sessions):
    """Sites that keep no journal: nobody is asked for consent."""

    def client(self, sums: InOneProcess, party: PartyId, client_input: ClientInput, entropy: Entropy) -> ClientSession:
        return InOneProcess.client(self._without(sums, party), party, client_input, entropy=entropy)

    def helper(self, sums: InOneProcess, party: PartyId, entropy: Entropy) -> ClientSession:
        return InOneProcess.helper(self._without(sums, party), party, entropy=entropy)

    def _without(self, sums: InOneProcess, party: PartyId) -> InOneProcess:
        return replace(sums, secrets={**sums.secrets, party: replace(sums.of_party(party), consent=None)})


class Kept:
    """All parties of a sum, whose sessions and draws are kept."""

    def __init__(self, parties: InOneProcess) -> None:
        self.parties, self.clients, self.helpers = parties, parties.clients, parties.helpers
        self.sessions, self.drawn = dict[PartyId, Any](), set[bytes]()

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        def noted(n_bytes: int) -> bytes:
            drawn = entropy(n_bytes)
            self.drawn.add(drawn if n_bytes >= 32 else b"")
            return drawn

        self.sessions[party] = self.parties.client(party, client_input, entropy=noted)
        return self.sessions[party]

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        self.sessions[party] = self.parties.helper(party, entropy=entropy)
        return self.sessions[party]

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        return self.parties.server(entropy=entropy)
