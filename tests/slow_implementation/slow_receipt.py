"""A sum whose clients countersign its receipt: section 15 of docs/reference/wire-format.md."""

from __future__ import annotations

from collections.abc import Sequence

from slow_bytes import (
    SERVER,
    Cursor,
    Type,
    length_prefixed,
    need,
    number,
    read_frame,
    sha256,
    statement,
    write_entries,
    write_frame,
    write_parties,
)
from slow_client import SlowClient
from slow_curves import ed25519_sign, ed25519_verifies
from slow_server import SlowServer
from slow_symmetric import derive_key


def leaf(party: int, upload: bytes) -> bytes:
    return sha256(b"\0" + number(party) + upload)


def root_of(leaves: Sequence[bytes]) -> bytes:
    """MTH of RFC 9162, section 2.1.1, over hashed leaves."""
    if len(leaves) == 1:
        return leaves[0]
    k = max(2**power for power in range(20) if 2**power < len(leaves))
    return sha256(b"\1" + root_of(leaves[:k]) + root_of(leaves[k:]))


def path_of(place: int, leaves: Sequence[bytes]) -> list[bytes]:
    """PATH of section 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = max(2**power for power in range(20) if 2**power < len(leaves))
    if place < k:
        return [*path_of(place, leaves[:k]), root_of(leaves[k:])]
    return [*path_of(place - k, leaves[k:]), root_of(leaves[:k])]


def leads_to(root: bytes, place: int, size: int, hashed: bytes, path: Sequence[bytes]) -> bool:
    """The verification of section 2.1.3.2, step by step."""
    fn, sn, r = place, size - 1, hashed
    for p in path:
        if sn == 0:
            return False
        if fn % 2 or fn == sn:
            r = sha256(b"\1" + p + r)
            while fn and not fn % 2:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = sha256(b"\1" + r + p)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and r == root


class SlowReceiptedClient:
    """A client that countersigns one total that has its upload in it."""

    def __init__(self, client: SlowClient) -> None:
        self.client, self.upload, self.signed = client, b"", b""

    def start(self) -> bytes:
        return self.client.start()

    def receive(self, message: bytes) -> bytes | None:
        if message[5] in (Type.COUNTERSIGN_REQUEST, Type.RECEIPT):
            return self.countersign(message) if message[5] == Type.COUNTERSIGN_REQUEST else self.take(message)
        answer = self.client.receive(message)
        if answer[5] == Type.MASKED_INPUT:
            self.upload = sha256(answer)
        return answer

    def read(self, type_: Type, message: bytes) -> Cursor:
        session = self.client.session
        return Cursor(read_frame(message, type_, session.digest, SERVER, self.client.party, session.server_identity))

    def check(self, survivors: list[int], root: bytes, path: list[bytes]) -> None:
        party = self.client.party
        hashed = leaf(party, self.upload)
        need(party in survivors and bool(self.upload), "a statement without this client")
        need(set(self.client.session.clients) - set(survivors) == set(self.client.dropouts), "other survivors")
        need(leads_to(root, survivors.index(party), len(survivors), hashed, path), "a set without its upload")

    def countersign(self, message: bytes) -> bytes:
        session, cursor = self.client.session, self.read(Type.COUNTERSIGN_REQUEST, message)
        dropouts, root, total = cursor.entries(0), cursor.take(32), cursor.take(32)
        path = [cursor.take(32) for _ in range(cursor.number(1))]
        cursor.end()
        survivors = [party for party in session.clients if party not in dropouts]
        self.check(survivors, root, path)
        need(not self.signed, "it countersigns once")
        self.signed = session.digest + write_parties(survivors) + root + total
        parts = session.digest, write_parties(survivors), root, total
        signature = ed25519_sign(self.client.identity, statement("countersignature", *parts))
        party, secret = self.client.party, self.client.identity
        return write_frame(Type.COUNTERSIGNATURE, session.digest, party, SERVER, signature, secret)

    def take(self, message: bytes) -> None:
        session, cursor = self.client.session, self.read(Type.RECEIPT, message)
        need(cursor.take(5) == b"SAGR\2", "no receipt")
        digest, root, total, signature = cursor.take(32), cursor.take(32), cursor.take(32), cursor.take(64)
        survivors = list(cursor.entries(0))
        parts = digest, write_parties(survivors), root, total
        need(digest + parts[1] + root + total == self.signed, "another statement than it countersigned")
        need(ed25519_verifies(session.server_identity, statement("receipt", *parts), signature), "forged")
        countersigned = cursor.entries(64)
        need(len(countersigned) == 2 * len(session.clients) // 3 + 1, "no quorum")
        for party, own in countersigned.items():
            need(ed25519_verifies(session.identity(party), statement("countersignature", *parts), own), "forged")
        need(cursor.number(1) == 0 and cursor.number(1) == 1, "an opening, or no path")
        need((cursor.number(), cursor.take(32)) == (self.client.party, self.upload), "another's path")
        self.check(survivors, root, [cursor.take(32) for _ in range(cursor.number(1))])
        cursor.end()


class SlowReceiptedServer:
    """A server that has its total countersigned and gives receipts."""

    def __init__(self, server: SlowServer) -> None:
        self.server, self.uploads = server, dict[int, bytes]()
        self.countersignatures: dict[int, bytes] | None = None
        self.receipt = b""

    def __getattr__(self, name: str) -> object:
        return getattr(self.server, name)

    @property
    def total(self) -> list[int] | None:
        return self.server.total if self.receipt else None

    def receive(self, sender: int, message: bytes) -> None:
        session = self.server.session
        if self.countersignatures is None:
            self.server.receive(sender, message)
            if message[5] == Type.MASKED_INPUT:
                self.uploads[sender] = sha256(message)
            return
        need(sender in self.server.survivors and sender not in self.countersignatures, "nothing is due from it")
        public = session.identity(sender)
        signature = read_frame(message, Type.COUNTERSIGNATURE, session.digest, sender, SERVER, public)
        need(ed25519_verifies(public, statement("countersignature", *self.parts()), signature), "a forged one")
        self.countersignatures[sender] = signature

    def close_round(self) -> dict[int, bytes]:
        if self.countersignatures is None:
            requests = self.server.close_round()
            if self.server.total is None:
                return requests
            self.countersignatures = {}
            dropouts = [party for party in self.server.session.clients if party not in self.server.survivors]
            _, _, root, total = self.parts()
            beginning = write_parties(dropouts) + root + total
            return self.to_survivors(Type.COUNTERSIGN_REQUEST, {p: beginning + self.path(p) for p in self.uploads})
        needed = 2 * len(self.server.session.clients) // 3 + 1
        need(len(self.countersignatures) >= needed, "too few countersignatures")
        digest, survivors, root, total = self.parts()
        signature = ed25519_sign(self.server.secret, statement("receipt", *self.parts()))
        first = {party: self.countersignatures[party] for party in sorted(self.countersignatures)[:needed]}
        beginning = b"SAGR\2" + digest + root + total + signature + survivors + write_entries(first)
        self.receipt = beginning + b"\1" + self.opening() + b"\0"
        copies = {p: beginning + b"\0\1" + number(p) + self.uploads[p] + self.path(p) for p in self.uploads}
        return self.to_survivors(Type.RECEIPT, copies)

    def to_survivors(self, type_: Type, payloads: dict[int, bytes]) -> dict[int, bytes]:
        digest, secret = self.server.session.digest, self.server.secret
        return {p: write_frame(type_, digest, SERVER, p, payloads[p], secret) for p in self.server.survivors}

    def opening(self) -> bytes:
        return derive_key(self.server.secret, "opening of a total", self.server.session.digest)

    def leaves(self) -> list[bytes]:
        return [leaf(party, self.uploads[party]) for party in self.server.survivors]

    def path(self, party: int) -> bytes:
        path = path_of(self.server.survivors.index(party), self.leaves())
        return number(len(path), 1) + b"".join(path)

    def parts(self) -> tuple[bytes, bytes, bytes, bytes]:
        digest, total = self.server.session.digest, self.server.total
        assert total is not None
        content = b"".join((value % 2**64).to_bytes(8, "little") for value in total)
        committed = sha256(length_prefixed(self.opening(), digest, content))
        return digest, write_parties(self.server.survivors), root_of(self.leaves()), committed
