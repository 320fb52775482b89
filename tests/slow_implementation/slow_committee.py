"""A committee sum from beginning to end in Python's integers: every message, from the entropy that clients drew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

from slow_bytes import (
    PROTOCOL,
    Cursor,
    Refused,
    length_prefixed,
    need,
    number,
    read_frame,
    sha256,
    statement,
    write_entries,
    write_frame,
)
from slow_curves import ed25519_sign, ed25519_verifies
from slow_driver import Drawn
from slow_hpke import box_key, open_box
from slow_session import Session
from slow_symmetric import derive_key

COMMITTEE_INPUT, SEED_DELIVERY, SEED_COMPLAINTS, SURVIVOR_SET, SET_SIGNATURE = 32, 33, 34, 35, 36
SET_CERTIFICATE, SUM_HASHES, MASK_REQUEST, MASK_SUM = 37, 38, 39, 41
Message = tuple[int, int, bytes]


@dataclass(frozen=True)
class CommitteeSession(Session):
    """The public parameters; ring and masks are those of a masked sum."""

    helper_keys: Mapping[int, bytes]
    helper_identities: Mapping[int, bytes]
    min_survivors: int
    corrupt_helpers: int

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> CommitteeSession:
        """The session of a vector's ``parameters``."""
        return cls(
            layout=tuple((name, size, bound) for name, size, bound in parameters["layout"]),
            client_bounds={},
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
            corrupt_helpers=parameters["corrupt_helpers"],
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
                number(self.corrupt_helpers),
            )
        )

    @cached_property
    def sets(self) -> list[tuple[int, ...]]:
        """All sets of m - f helpers, the smallest first difference first."""
        return sorted(combinations(self.helper_keys, len(self.helper_keys) - self.corrupt_helpers))

    def places(self, helper: int) -> list[int]:
        return [place for place, members in enumerate(self.sets) if helper in members]

    @property
    def box_bytes(self) -> int:
        return 1088 + 32 + 32 * len(self.places(next(iter(self.helper_keys)))) + 16 + 16

    @property
    def commitments_bytes(self) -> int:
        return 32 * len(self.sets)

    @property
    def signature_bytes(self) -> int:
        return 64 if self.identities else 0

    def seed_of_mask(self, client: int, place: int, seed: bytes) -> bytes:
        return derive_key(seed, "committee mask", self.digest, number(client), number(place))

    def commitment(self, client: int, place: int, seed: bytes) -> bytes:
        return sha256(statement("committee commitment", self.digest, number(client), number(place), seed))

    def said(self, client: int, commitments: bytes, hashes: bytes) -> bytes:
        return statement("committee seeds", self.digest, number(client), commitments, hashes)

    def set_hash(self, said: Mapping[int, bytes]) -> bytes:
        entries = b"".join(number(party) + sha256(said[party]) for party in sorted(said))
        return sha256(statement("committee set", self.digest, entries))


def check_sealing_key(session: CommitteeSession, helper: int) -> None:
    """With identities key 1216 | epoch 4 | until 8 | signature 64, else the key alone."""
    whole = session.helper_keys[helper]
    if not session.identities:
        need(len(whole) == 1216, "a key")
        return
    key, epoch, until, signature = whole[:1216], whole[1216:1220], whole[1220:1228], whole[1228:]
    said = statement("committee sealing key", key, epoch, until)
    need(ed25519_verifies(session.helper_identities[helper], said, signature), "a signed sealing key")


def upload(
    session: CommitteeSession, party: int, vector: list[int], drawn: Drawn, identity: bytes, boxes: Mapping[int, bytes]
) -> bytes:
    """A client's one message around its boxes, which nobody makes twice: each helper opens its own."""
    seeds = [drawn(32) for _ in session.sets]
    ring = session.to_ring(vector)
    for place, seed in enumerate(seeds):
        ring = session.add(ring, session.mask(session.seed_of_mask(party, place, seed)))
    commitments = b"".join(session.commitment(party, place, seed) for place, seed in enumerate(seeds))
    said = session.said(party, commitments, b"".join(sha256(boxes[helper]) for helper in boxes))
    signature = ed25519_sign(identity, said) if identity else b""
    payload = write_entries(boxes) + commitments + signature + session.ring_to_bytes(ring)
    return write_frame(COMMITTEE_INPUT, session.digest, party, 0, payload, identity)


def boxes_in(session: CommitteeSession, message: bytes) -> dict[int, bytes]:
    return Cursor(message[47:]).entries(session.box_bytes)


@dataclass
class Helper:
    """One helper from what it is asked to what it says."""

    session: CommitteeSession
    party: int
    secret: bytes
    identity: bytes
    seeds: dict[int, dict[int, bytes]]
    said: dict[int, bytes]
    rows: dict[int, str]

    def answer(self, request: bytes) -> bytes:
        session, type_ = self.session, request[5]
        cursor = Cursor(read_frame(request, type_, session.digest, 0, self.party, session.server_identity))
        answer, say = {
            SEED_DELIVERY: (SEED_COMPLAINTS, self.open),
            SURVIVOR_SET: (SET_SIGNATURE, self.sign),
            SET_CERTIFICATE: (SUM_HASHES, self.hash_sums),
            MASK_REQUEST: (MASK_SUM, self.send_sums),
        }[type_]
        payload = say(cursor)
        cursor.end()
        return write_frame(answer, session.digest, self.party, 0, payload, self.identity)

    def open(self, cursor: Cursor) -> bytes:
        session, bad = self.session, []
        helpers = list(session.helper_keys)
        size = session.box_bytes + session.commitments_bytes + 32 * len(helpers) + session.signature_bytes
        for client, entry in cursor.entries(size).items():
            box, rest = entry[: session.box_bytes], entry[session.box_bytes :]
            commitments, rest = rest[: session.commitments_bytes], rest[session.commitments_bytes :]
            hashes, signature = rest[: 32 * len(helpers)], rest[32 * len(helpers) :]
            said = session.said(client, commitments, hashes)
            need(not session.identities or ed25519_verifies(session.identity(client), said, signature), "signed seeds")
            at = 32 * helpers.index(self.party)
            need(hashes[at : at + 32] == sha256(box), "the box that was signed")
            binding = session.digest + number(client) + number(self.party)
            try:
                opened = open_box(self.secret, box, statement("committee box", binding))
            except Refused:
                bad.append(client)
                continue
            seeds = {place: opened[32 * i : 32 * i + 32] for i, place in enumerate(session.places(self.party))}
            if any(commitments[32 * p : 32 * p + 32] != session.commitment(client, p, s) for p, s in seeds.items()):
                bad.append(client)
                continue
            self.seeds[client], self.said[client], self.rows[client] = seeds, said, opened[-16:].hex()
        return write_entries(dict.fromkeys(bad, b""))

    def fix(self, survivors: Mapping[int, bytes]) -> None:
        need(len(survivors) >= self.session.min_survivors, "enough survivors")
        self.seeds = {party: self.seeds[party] for party in survivors}
        self.said = {party: self.said[party] for party in survivors}

    def sign(self, cursor: Cursor) -> bytes:
        if survivors := cursor.entries(0):
            self.fix(survivors)
        else:
            self.seeds, self.said = {}, {}
        return ed25519_sign(self.identity, statement("committee set", self.session.set_hash(self.said)))

    def hash_sums(self, cursor: Cursor) -> bytes:
        session, survivors, signatures = self.session, cursor.entries(0), cursor.entries(64)
        need(bool(survivors), "a sum that did not fail")
        if session.identities:
            need(list(survivors) == sorted(self.seeds), "the set that it signed")
            said = statement("committee set", session.set_hash(self.said))
            signed = [p for p, s in signatures.items() if ed25519_verifies(session.helper_identities[p], said, s)]
            need(2 * len(signed) > len(session.helper_keys) + session.corrupt_helpers, "a quorum")
        else:
            self.fix(survivors)
        return b"".join(sum_hash(session, self.said, place, self.sum(place)) for place in session.places(self.party))

    def send_sums(self, cursor: Cursor) -> bytes:
        return write_entries({place: self.sum(place) for place in cursor.entries(0)})

    def sum(self, place: int) -> bytes:
        session = self.session
        masks = session.to_ring([0] * sum(size for _, size, _ in session.layout))
        for client, seeds in self.seeds.items():
            masks = session.add(masks, session.mask(session.seed_of_mask(client, place, seeds[place])))
        return session.ring_to_bytes(masks)


def sum_hash(session: CommitteeSession, said: Mapping[int, bytes], place: int, vector: bytes) -> bytes:
    return sha256(statement("committee sum", session.set_hash(said), number(place), vector))


class Server:
    """The server from what it hears to what it asks; nobody lies, but helpers may be away."""

    def __init__(self, session: CommitteeSession, secret: bytes) -> None:
        self.session, self.secret = session, secret
        self.inputs: dict[int, tuple[dict[int, bytes], bytes, bytes]] = {}
        self.said: dict[int, bytes] = {}
        self.ring = session.to_ring([0] * sum(size for _, size, _ in session.layout))

    def take(self, party: int, message: bytes) -> None:
        session = self.session
        cursor = Cursor(read_frame(message, COMMITTEE_INPUT, session.digest, party, 0, session.identity(party)))
        boxes, rest = cursor.entries(session.box_bytes), cursor.rest
        commitments, rest = rest[: session.commitments_bytes], rest[session.commitments_bytes :]
        signature, vector = rest[: session.signature_bytes], rest[session.signature_bytes :]
        hashes = b"".join(sha256(box) for box in boxes.values())
        self.inputs[party] = boxes, commitments + hashes, signature
        self.said[party] = session.said(party, commitments, hashes)
        self.ring = session.add(self.ring, session.ring_from_bytes(vector))

    def ask(self, type_: int, payloads: Mapping[int, bytes]) -> list[Message]:
        session = self.session
        return [(0, h, write_frame(type_, session.digest, 0, h, p, self.secret)) for h, p in payloads.items()]

    def delivery(self, helper: int) -> bytes:
        of = {party: boxes[helper] + rest + signature for party, (boxes, rest, signature) in self.inputs.items()}
        return write_entries(of)

    def shared_out(self, hashes: Mapping[int, bytes]) -> dict[int, list[int]]:
        """Each set to the holder that was given fewest, of those that answered."""
        given: dict[int, list[int]] = {}
        for place, members in enumerate(self.session.sets):
            able = [helper for helper in members if helper in hashes]
            need(len({self.hash_of(hashes, helper, place) for helper in able}) == 1, "one sum")
            helper = min(able, key=lambda party: (len(given.get(party, [])), party))
            given.setdefault(helper, []).append(place)
        return given

    def hash_of(self, hashes: Mapping[int, bytes], helper: int, place: int) -> bytes:
        at = 32 * self.session.places(helper).index(place)
        return hashes[helper][at : at + 32]


def check_failure(session: CommitteeSession, proof: bytes) -> None:
    cursor = Cursor(proof)
    survivors, signatures = cursor.entries(0), cursor.entries(64)
    cursor.end()
    said = statement("committee set", session.set_hash({}))
    signed = [p for p, s in signatures.items() if ed25519_verifies(session.helper_identities[p], said, s)]
    need(not survivors and 2 * len(signed) > len(session.helper_keys) + session.corrupt_helpers, "a quorum on nobody")


def run(scenario: Mapping[str, Any]) -> tuple[list[Message], list[int], list[int]]:
    """All messages, the survivors and the total of a vector; of a sum that failed nobody, and the total is nothing."""
    session = CommitteeSession.of(scenario["parameters"])
    need(session.digest.hex() == scenario["digest"], "the same digest")
    secrets = {int(party): bytes.fromhex(secret) for party, secret in scenario["identity_secrets"].items()}
    server, said = Server(session, bytes.fromhex(scenario["server_secret"])), list[Message]()
    recorded = {
        m["sender"]: bytes.fromhex(m["message"]) for m in scenario["messages"] if m["type"] == "COMMITTEE_INPUT"
    }
    for party in session.clients:
        if party not in scenario["silent"]:
            drawn = Drawn(bytes.fromhex(scenario["entropy"][str(party)]))
            boxes = boxes_in(session, recorded[party])
            message = upload(session, party, scenario["vectors"][str(party)], drawn, secrets.get(party, b""), boxes)
            need(not drawn.left, "all entropy is used")
            said.append((party, 0, message))
            server.take(party, message)
    for party, secret in scenario["helper_secrets"].items():
        check_sealing_key(session, int(party))
        need(box_key(bytes.fromhex(secret)) == session.helper_keys[int(party)][:1216], "the helper's own key")
    helpers = {
        party: Helper(
            session, party, bytes.fromhex(scenario["helper_secrets"][str(party)]), secrets.get(party, b""), {}, {}, {}
        )
        for party in session.helper_keys
    }

    def exchange(type_: int, answer: int, payloads: Mapping[int, bytes]) -> dict[int, bytes]:
        asked = server.ask(type_, payloads)
        answers = [(helper, 0, helpers[helper].answer(request)) for _, helper, request in asked
                   if helper not in scenario["silent"]]  # fmt: skip
        said.extend([*asked, *answers])
        identities = session.helper_identities
        return {h: read_frame(m, answer, session.digest, h, 0, identities.get(h, b"")) for h, _, m in answers}

    complaints = exchange(SEED_DELIVERY, SEED_COMPLAINTS, {helper: server.delivery(helper) for helper in helpers})
    need(set(complaints.values()) == {number(0)}, "no complaints")
    known = {party: scenario["rows"][str(party)] for party in server.said}
    need(all(helpers[helper].rows == known for helper in complaints), "what rows are known by")
    if "failure" in scenario:
        signatures = exchange(SURVIVOR_SET, SET_SIGNATURE, dict.fromkeys(helpers, number(0)))
        proof = number(0) + write_entries(signatures)
        need(proof.hex() == scenario["failure"], "the same proof")
        check_failure(session, proof)
        return said, [], []
    survivors, signatures = write_entries(dict.fromkeys(server.said, b"")), dict[int, bytes]()
    if session.identities:
        signatures = exchange(SURVIVOR_SET, SET_SIGNATURE, dict.fromkeys(complaints, survivors))
    certificate = survivors + write_entries(signatures)
    hashes = exchange(SET_CERTIFICATE, SUM_HASHES, dict.fromkeys(complaints, certificate))
    given = server.shared_out(hashes)
    requests = {helper: write_entries(dict.fromkeys(places, b"")) for helper, places in given.items()}
    for helper, payload in exchange(MASK_REQUEST, MASK_SUM, requests).items():
        for place, vector in Cursor(payload).entries(len(session.ring_to_bytes(server.ring))).items():
            hashed = sum_hash(session, server.said, place, vector)
            need(hashed == server.hash_of(hashes, helper, place), "the sum that was hashed")
            server.ring = session.add(server.ring, session.ring_from_bytes(vector), -1)
    return said, sorted(server.said), session.from_ring(server.ring)
