"""The server of a masked sum: sections 8 to 13 of docs/reference/wire-format.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import combinations

from slow_bytes import (
    SERVER,
    SIGNATURE,
    Cursor,
    Refused,
    Type,
    need,
    read_frame,
    write_entries,
    write_frame,
    write_parties,
)
from slow_client import SEALED_BYTES, commitment, is_safe_key, pairwise_mask, peers_statement, survivors_statement
from slow_curves import ed25519_verifies, x25519_public
from slow_session import Session
from slow_shamir import combine


class SlowServer:
    """Keeps every message of the round, and computes when the round closes."""

    def __init__(self, session: Session, secret: bytes = b"") -> None:
        self.session, self.secret = session, secret
        self.due: Type | None = Type.ADVERTISED_KEYS
        self.asked: Sequence[int] = session.clients
        self.payloads: dict[int, bytes] = {}
        self.survivors: list[int] = []
        self.total: list[int] | None = None

    def receive(self, sender: int, message: bytes) -> None:
        need(self.due is not None and sender in self.asked, "nothing is due from this party")
        assert self.due is not None
        public = self.session.identity(sender)
        payload = read_frame(message, self.due, self.session.digest_of(self.due), sender, SERVER, public)
        if public and self.due is Type.ADVERTISED_KEYS:
            payload += message[-SIGNATURE:]  # neighbours get it with the keys
        need(sender not in self.payloads, "its message counts once")
        check = {
            Type.ADVERTISED_KEYS: self.check_keys,
            Type.SEALED_SHARES: self.check_sealed,
            Type.MASKED_INPUT: self.check_input,
            Type.SURVIVOR_SIGNATURE: self.check_signature,
            Type.UNMASK_SHARES: self.check_shares,
        }[self.due]
        check(sender, payload)
        self.payloads[sender] = payload

    def close_round(self) -> dict[int, bytes]:
        assert self.due is not None
        answered, needed = sorted(self.payloads), self.session.survivors_needed
        if self.due is Type.SURVIVOR_SIGNATURE:
            needed = self.session.signatures_needed
        if self.due is Type.UNMASK_SHARES:
            needed = self.session.threshold
        need(len(answered) >= needed, f"{len(answered)} of {needed} {self.due.name}")
        closer = {
            Type.ADVERTISED_KEYS: self.rosters,
            Type.SEALED_SHARES: self.deliveries,
            Type.MASKED_INPUT: self.requests,
            Type.SURVIVOR_SIGNATURE: self.proofs,
            Type.UNMASK_SHARES: self.unmask,
        }[self.due]
        payloads, self.payloads, self.asked = self.payloads, {}, answered
        type_, messages = closer(payloads)
        digest = self.session.digest_of(type_)
        return {
            party: write_frame(type_, digest, SERVER, party, messages[party], self.secret) for party in sorted(messages)
        }

    # Round 0

    def check_keys(self, sender: int, payload: bytes) -> None:
        need(len(payload) == (128 if self.session.identities else 64), "another number of bytes")
        keys = [payload[:32], payload[32:64]]
        taken = [key for other in self.payloads.values() for key in (other[:32], other[32:64])]
        need(len({*keys, *taken}) == len(keys) + len(taken), "a repeated key")
        for key in keys:
            need(is_safe_key(key), "a key of small order, or one that is not reduced")

    def rosters(self, payloads: dict[int, bytes]) -> tuple[Type, dict[int, bytes]]:
        self.keys, self.due = payloads, Type.SEALED_SHARES
        return Type.ROSTER, {
            party: write_entries({peer: payloads[peer] for peer in self.near(party, payloads)}) for party in payloads
        }

    # Round 1

    def check_sealed(self, sender: int, payload: bytes) -> None:
        cursor = Cursor(payload)
        cursor.take(32)
        sealed = cursor.entries(SEALED_BYTES)
        cursor.end()
        need(list(sealed) == self.near(sender, self.keys), "shares for others than its neighbours")

    def deliveries(self, payloads: dict[int, bytes]) -> tuple[Type, dict[int, bytes]]:
        self.commitments = {party: payload[:32] for party, payload in payloads.items()}
        sealed = {party: Cursor(payload[32:]).entries(SEALED_BYTES) for party, payload in payloads.items()}
        self.due = Type.MASKED_INPUT
        self.absent = [party for party in self.session.clients if party not in payloads]
        first = write_parties(self.absent) if self.session.signs_peers else b""
        return Type.SHARE_DELIVERY, {
            party: first + write_entries({peer: sealed[peer][party] for peer in self.near(party, payloads)})
            for party in payloads
        }

    # Round 2

    def check_input(self, sender: int, payload: bytes) -> None:
        self.session.ring_from_bytes(payload[self.signed :])
        if self.signed:
            signed = peers_statement(self.session, self.absent)
            need(
                ed25519_verifies(self.session.identity(sender), signed, payload[: self.signed]), "a forged set of peers"
            )

    @property
    def signed(self) -> int:
        """What stands before a masked vector."""
        return 64 if self.session.signs_peers else 0

    def requests(self, payloads: dict[int, bytes]) -> tuple[Type, dict[int, bytes]]:
        session = self.session
        self.survivors = sorted(payloads)
        self.dropouts = [party for party in session.clients if party not in payloads]
        self.ring = session.to_ring([0] * sum(size for _, size, _ in session.layout))
        session.need_holders(self.survivors)
        for payload in payloads.values():
            self.ring = session.add(self.ring, session.ring_from_bytes(payload[self.signed :]))
        self.of_peers = {party: payload[: self.signed] for party, payload in payloads.items()}
        self.due = Type.SURVIVOR_SIGNATURE if session.identities else Type.UNMASK_SHARES
        return Type.UNMASK_REQUEST, dict.fromkeys(payloads, write_parties(self.dropouts))

    # Round 3, with identities

    def check_signature(self, sender: int, payload: bytes) -> None:
        signed = survivors_statement(self.session, self.dropouts)
        need(ed25519_verifies(self.session.identity(sender), signed, payload), "a forged signature of survivors")

    def proofs(self, payloads: dict[int, bytes]) -> tuple[Type, dict[int, bytes]]:
        enough = sorted(payloads)[: self.session.signatures_needed]
        self.due = Type.UNMASK_SHARES
        proof = write_entries({p: payloads[p] for p in enough})
        return Type.SURVIVOR_PROOF, {
            party: proof + (write_entries(self.peers_of(party)) if self.signed else b"") for party in payloads
        }

    def peers_of(self, party: int) -> dict[int, bytes]:
        return {peer: self.of_peers[peer] for peer in self.near(party, self.survivors)}

    # Round 4

    def check_shares(self, sender: int, payload: bytes) -> None:
        of_secrets, of_seeds = self.shares_in(payload)
        near = {sender, *self.near(sender, self.commitments)}
        need(of_secrets.keys() == near - set(self.survivors), "shares of mask keys of others than the dropouts")
        need(of_seeds.keys() == near & set(self.survivors), "shares of self-masks of others than the survivors")

    def unmask(self, payloads: dict[int, bytes]) -> tuple[Type, dict[int, bytes]]:
        session, revealed = self.session, {party: self.shares_in(payload) for party, payload in payloads.items()}
        for party in self.survivors:
            shares = {holder: of_seeds[party] for holder, (_, of_seeds) in revealed.items() if party in of_seeds}
            committed = self.commitments[party]
            seed = self.rebuild(shares, lambda seed, party=party, it=committed: commitment(session, seed, party) == it)
            self.ring = session.add(self.ring, session.mask(seed), -1)
        for party in sorted(self.commitments.keys() - set(self.survivors)):
            shares = {holder: of_secrets[party] for holder, (of_secrets, _) in revealed.items() if party in of_secrets}
            public = self.keys[party][32:64]
            secret = self.rebuild(shares, lambda secret, public=public: x25519_public(secret) == public)
            for peer in self.near(party, self.survivors):
                mask = pairwise_mask(session, secret, self.keys[peer][32:64])
                self.ring = session.add(self.ring, mask, -1 if peer < party else 1)
        self.total, self.due = session.from_ring(self.ring), None
        return Type.UNMASK_SHARES, {}

    def rebuild(self, shares: dict[int, bytes], is_right: Callable[[bytes], bool]) -> bytes:
        """The secret that ``threshold`` of the shares give back; a wrong one does no harm if one is to spare."""
        for holders in combinations(sorted(shares), self.session.threshold):
            with suppress(Refused):
                secret = combine({self.session.point(holder): shares[holder] for holder in holders})
                if is_right(secret):
                    return secret
        raise Refused("too few shares, or wrong ones")

    def shares_in(self, payload: bytes) -> tuple[dict[int, bytes], dict[int, bytes]]:
        cursor = Cursor(payload)
        of_secrets, of_seeds = cursor.entries(33), cursor.entries(33)
        cursor.end()
        return of_secrets, of_seeds

    def near(self, party: int, among: Iterable[int]) -> list[int]:
        return [peer for peer in self.session.neighbours(party) if peer in set(among)]
