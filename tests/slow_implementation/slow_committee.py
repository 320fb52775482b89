"""A committee sum from beginning to end in Python's integers: every message, from the entropy that clients drew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from slow_bytes import (
    PROTOCOL,
    Cursor,
    length_prefixed,
    need,
    number,
    read_frame,
    sha256,
    statement,
    write_entries,
    write_frame,
)
from slow_client import agree
from slow_curves import ed25519_sign, ed25519_verifies, x25519_public
from slow_driver import Drawn
from slow_session import Session
from slow_symmetric import open_sealed, seal

COMMITTEE_INPUT, MASK_REQUEST, MASK_SUM = 32, 33, 34
SEALED_BYTES = 12 + 32 + 16
Message = tuple[int, int, bytes]


@dataclass(frozen=True)
class CommitteeSession(Session):
    """The public parameters; ring and masks are those of a masked sum."""

    helper_keys: Mapping[int, bytes]
    helper_identities: Mapping[int, bytes]
    min_survivors: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> CommitteeSession:
        """The session of a vector's ``parameters``."""
        return cls(
            layout=tuple((name, size, bound) for name, size, bound in parameters["layout"]),
            clients=tuple(parameters["clients"]),
            session_id=bytes.fromhex(parameters["session_id"]),
            context=bytes.fromhex(parameters["context"]),
            threshold=0,
            degree=0,
            graph_seed=b"",
            identities=tuple(map(bytes.fromhex, parameters["identities"])),
            promised=None,
            helper_keys={int(party): bytes.fromhex(key) for party, key in parameters["helper_keys"].items()},
            helper_identities={int(p): bytes.fromhex(key) for p, key in parameters["helper_identities"].items()},
            min_survivors=parameters["min_survivors"],
            server_identity=bytes.fromhex(parameters["server_identity"]),
        )

    @cached_property
    def digest(self) -> bytes:
        segments = (bytes([len(name)]) + name.encode() + number(size, 8) + number(bound, 8)
                    for name, size, bound in self.layout)  # fmt: skip
        return sha256(
            length_prefixed(
                PROTOCOL,
                b"committee",
                self.session_id,
                self.context,
                b"".join(segments),
                *self.parties,
                b"".join(number(party) + key for party, key in self.helper_keys.items()),
                number(self.min_survivors),
                b"".join(number(party) + key for party, key in self.helper_identities.items()),
            )
        )

    @property
    def entry_bytes(self) -> int:
        return 32 + SEALED_BYTES + (64 if self.identities else 0)


def upload(session: CommitteeSession, party: int, vector: list[int], drawn: Drawn, identity: bytes) -> bytes:
    """A client's one message."""
    seeds = {helper: drawn(32) for helper in session.helper_keys}
    ring = session.to_ring(vector)
    entries = {}
    for helper, seed in seeds.items():
        ring = session.add(ring, session.mask(seed))
        ephemeral = drawn(32)
        binding = session.digest + number(party) + number(helper)
        parties = (number(party), number(helper))
        key = agree(ephemeral, session.helper_keys[helper], "committee seed", session.digest, *parties)
        sealed = seal(key, drawn(12), seed, binding)
        entry = x25519_public(ephemeral) + sealed
        if identity:
            entry += ed25519_sign(identity, statement("committee seed", binding, entry[:32], sealed))
        entries[helper] = entry
    payload = write_entries(entries) + session.ring_to_bytes(ring)
    return write_frame(COMMITTEE_INPUT, session.digest, party, 0, payload, identity)


def answer(session: CommitteeSession, helper: int, secret: bytes, identity: bytes, request: bytes) -> bytes:
    """A helper's sum of masks."""
    cursor = Cursor(read_frame(request, MASK_REQUEST, session.digest, 0, helper, session.server_identity))
    entries = cursor.entries(session.entry_bytes)
    survivors = write_entries(dict.fromkeys(entries, b""))
    need(len(entries) >= session.min_survivors and set(entries) <= set(session.clients), "enough of the cohort")
    cursor.end()
    masks = session.to_ring([0] * sum(size for _, size, _ in session.layout))
    for party, entry in entries.items():
        ephemeral, sealed, signature = entry[:32], entry[32 : 32 + SEALED_BYTES], entry[32 + SEALED_BYTES :]
        binding = session.digest + number(party) + number(helper)
        if session.identities:
            signed = statement("committee seed", binding, ephemeral, sealed)
            need(ed25519_verifies(session.identity(party), signed, signature), "a signed seed")
        parties = (number(party), number(helper))
        key = agree(secret, ephemeral, "committee seed", session.digest, *parties)
        masks = session.add(masks, session.mask(open_sealed(key, sealed, binding)))
    return write_frame(MASK_SUM, session.digest, helper, 0, survivors + session.ring_to_bytes(masks), identity)


def run(scenario: Mapping[str, Any]) -> tuple[list[Message], list[int], list[int]]:
    """All messages, the survivors and the total of a vector."""
    session = CommitteeSession.of(scenario["parameters"])
    need(session.digest.hex() == scenario["digest"], "the same digest")
    secrets = {int(party): bytes.fromhex(secret) for party, secret in scenario["identity_secrets"].items()}
    said: list[Message] = []
    entries, ring = {}, session.to_ring([0] * sum(size for _, size, _ in session.layout))
    for party in session.clients:
        if party in scenario["silent"]:
            continue
        drawn = Drawn(bytes.fromhex(scenario["entropy"][str(party)]))
        message = upload(session, party, scenario["vectors"][str(party)], drawn, secrets.get(party, b""))
        need(not drawn.left, "all entropy is used")
        said.append((party, 0, message))
        cursor = Cursor(read_frame(message, COMMITTEE_INPUT, session.digest, party, 0, session.identity(party)))
        entries[party] = cursor.entries(session.entry_bytes)
        ring = session.add(ring, session.ring_from_bytes(cursor.rest))
    survivors = write_entries(dict.fromkeys(entries, b""))
    server = bytes.fromhex(scenario["server_secret"])
    for helper in session.helper_keys:
        of_helper = write_entries({party: sealed[helper] for party, sealed in entries.items()})
        said.append((0, helper, write_frame(MASK_REQUEST, session.digest, 0, helper, of_helper, server)))
    for _, helper, request in said[-len(session.helper_keys) :]:
        identity = secrets.get(helper, b"")
        message = answer(session, helper, bytes.fromhex(scenario["helper_secrets"][str(helper)]), identity, request)
        said.append((helper, 0, message))
        payload = read_frame(message, MASK_SUM, session.digest, helper, 0, session.helper_identities.get(helper, b""))
        masks = session.ring_from_bytes(payload[len(survivors) :])
        ring = session.add(ring, masks, -1)
    return said, sorted(entries), session.from_ring(ring)
