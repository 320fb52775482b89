"""The public parameters, their two digests, and the ring: sections 4 and 7 of docs/reference/wire-format.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import slow_graph
from slow_bytes import PROTOCOL, Type, length_prefixed, need, number, sha256
from slow_symmetric import ctr_keystream, derive_key

SET_UP = (Type.ADVERTISED_KEYS, Type.ROSTER, Type.SEALED_SHARES)


@dataclass(frozen=True)
class Session:
    layout: tuple[tuple[str, int, int], ...]
    client_bounds: Mapping[str, int]
    clients: tuple[int, ...]
    session_id: bytes
    context: bytes
    threshold: int
    degree: int
    graph_seed: bytes
    identities: tuple[bytes, ...]
    server_identity: bytes
    promised: Mapping[str, Any] | None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Session:
        """The session of a vector's ``parameters``."""
        return cls(
            layout=tuple((name, size, bound) for name, size, bound, *_ in parameters["layout"]),
            client_bounds={name: own[0] for name, _, _, *own in parameters["layout"] if own},
            clients=tuple(parameters["clients"]),
            session_id=bytes.fromhex(parameters["session_id"]),
            context=bytes.fromhex(parameters["context"]),
            threshold=parameters["threshold"],
            degree=parameters["degree"],
            graph_seed=bytes.fromhex(parameters["graph_seed"]),
            identities=tuple(map(bytes.fromhex, parameters["identities"])),
            server_identity=bytes.fromhex(parameters["server_identity"]),
            promised=parameters["assumptions"],
        )

    @property
    def corrupt(self) -> int:
        n = len(self.clients)
        return _floor(self.promised["corruption"] * n) if self.promised else 2 * self.threshold - n - 1

    @property
    def signatures_needed(self) -> int:
        return (len(self.clients) + self.corrupt) // 2 + 1 if self.identities else 0

    @property
    def survivors_needed(self) -> int:
        n, fewest = len(self.clients), self.threshold
        if self.degree and self.promised:
            fewest = n - _floor(self.promised["dropout"] * n)
        return max(fewest, self.signatures_needed)

    @cached_property
    def _own_parameters(self) -> tuple[bytes, ...]:
        return (
            number(self.threshold),
            number(self.degree),
            self.graph_seed,
            number(self.survivors_needed),
            number(self.signatures_needed),
        )

    @property
    def parties(self) -> tuple[bytes, ...]:
        return b"".join(map(number, self.clients)), b"".join(self.identities), self.server_identity

    @cached_property
    def digest(self) -> bytes:
        segments = (bytes([len(name)]) + name.encode() + number(size, 8) + number(bound, 8) + self._own_bound(name)
                    for name, size, bound in self.layout)  # fmt: skip
        return sha256(
            length_prefixed(
                PROTOCOL,
                b"masked",
                self.session_id,
                self.context,
                b"".join(segments),
                *self.parties,
                *self._own_parameters,
            )
        )

    def _own_bound(self, name: str) -> bytes:
        return b"\xff" + number(self.client_bounds[name], 8) if name in self.client_bounds else b""

    @cached_property
    def setup_digest(self) -> bytes:
        return sha256(length_prefixed(b"masked set-up", self.session_id, *self.parties, *self._own_parameters))

    def digest_of(self, type_: Type) -> bytes:
        return self.setup_digest if type_ in SET_UP else self.digest

    def neighbours(self, party: int) -> list[int]:
        return slow_graph.neighbours(self.clients, self.degree, self.graph_seed, party, signed=bool(self.identities))

    @property
    def signs_peers(self) -> bool:
        return bool(self.degree and self.identities)

    def need_holders(self, survivors: Iterable[int]) -> None:
        """Section 11: enough survivors hold shares of each survivor."""
        alive = set(survivors)
        for party in alive if self.signs_peers else ():
            need(len(alive.intersection(self.neighbours(party))) + 1 >= self.threshold, "a survivor with few holders")

    def point(self, party: int) -> int:
        return self.clients.index(party) + 1

    def identity(self, party: int) -> bytes:
        return self.identities[self.clients.index(party)] if self.identities else b""

    # The ring: a vector is one list of integers a segment, each modulo 2^(8 wire bytes)

    def to_ring(self, vector: Sequence[int]) -> list[list[int]]:
        ring, start = [], 0
        for _, size, bound in self.layout:
            modulus = 2 ** (8 * wire_bytes(bound))
            ring.append([value % modulus for value in vector[start : start + size]])
            start += size
        return ring

    def from_ring(self, ring: Sequence[Sequence[int]]) -> list[int]:
        """The representatives of smallest absolute value."""
        vector = []
        for (_, _, bound), segment in zip(self.layout, ring, strict=True):
            modulus = 2 ** (8 * wire_bytes(bound))
            lifted = [value - modulus if value >= modulus // 2 else value for value in segment]
            need(all(-bound <= value <= bound for value in lifted), "the total lies outside its bound")
            vector += lifted
        return vector

    def ring_to_bytes(self, ring: Sequence[Sequence[int]]) -> bytes:
        return b"".join(
            value.to_bytes(wire_bytes(bound), "little")
            for (_, _, bound), segment in zip(self.layout, ring, strict=True)
            for value in segment
        )

    def ring_from_bytes(self, data: bytes) -> list[list[int]]:
        need(len(data) == sum(size * wire_bytes(bound) for _, size, bound in self.layout), "another number of bytes")
        ring, start = [], 0
        for _, size, bound in self.layout:
            n = wire_bytes(bound)
            ring.append([int.from_bytes(data[start + i * n : start + (i + 1) * n], "little") for i in range(size)])
            start += size * n
        return ring

    def add(self, ring: Sequence[Sequence[int]], other: Sequence[Sequence[int]], sign: int = 1) -> list[list[int]]:
        return [
            [(a + sign * b) % 2 ** (8 * wire_bytes(bound)) for a, b in zip(one, two, strict=True)]
            for (_, _, bound), one, two in zip(self.layout, ring, other, strict=True)
        ]

    def mask(self, seed: bytes) -> list[list[int]]:
        """The mask of a seed: one keystream, whose blocks count from 2, and one *word* of it an entry.

        Each segment begins with a block.
        """
        key, ring, start = derive_key(seed, "mask stream", self.digest), [], 0
        for _, size, bound in self.layout:
            word = word_bytes(bound)
            stream = ctr_keystream(key, size * word, 2 + start)
            words = [int.from_bytes(stream[i * word : (i + 1) * word], "little") for i in range(size)]
            ring.append([value % 2 ** (8 * wire_bytes(bound)) for value in words])
            start += -(-size * word // 16)
        return ring


def _floor(value: float) -> int:
    """Rounded down, where a product like 0.1 * 30 that float64 puts just below an integer counts as that integer."""
    return math.floor(value + 1e-9)


def wire_bytes(bound: int) -> int:
    """The fewest bytes that tell 2 bound + 1 values apart, at least one."""
    n_bytes = 1
    while 2 ** (8 * n_bytes) < 2 * bound + 1:
        n_bytes += 1
    return n_bytes


def word_bytes(bound: int) -> int:
    """The next of 1, 2, 4, 8."""
    return next(word for word in (1, 2, 4, 8) if word >= wire_bytes(bound))
