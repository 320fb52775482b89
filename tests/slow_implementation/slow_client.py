"""A client of a masked sum: sections 8 to 12 of docs/reference/wire-format.md, one method a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from slow_bytes import (
    SERVER,
    SIGNATURE,
    Cursor,
    Type,
    message_statement,
    need,
    number,
    read_frame,
    statement,
    write_entries,
    write_frame,
    write_header,
)
from slow_curves import ed25519_sign, ed25519_verifies, x25519, x25519_public
from slow_session import Session
from slow_shamir import split
from slow_symmetric import derive_key, open_sealed, seal

SEALED_BYTES = 12 + 66 + 16


def agree(secret: bytes, peer_public: bytes, label: str, *context: bytes) -> bytes:
    """A key that two parties share for one purpose."""
    need(is_safe_key(peer_public), "a public key of small order, or one that is not reduced")
    shared = x25519(secret, peer_public)
    return derive_key(shared, label, *sorted([x25519_public(secret), peer_public]), *context)


def is_safe_key(public: bytes) -> bool:
    """Every scalar is a multiple of 8, so any one takes a point of small order to zero."""
    return int.from_bytes(public, "little") < 2**255 - 19 and any(x25519(bytes(32), public))


def pairwise_mask(session: Session, secret: bytes, peer_public: bytes) -> list[list[int]]:
    return session.mask(agree(secret, peer_public, "pairwise mask", session.digest))


def commitment(session: Session, seed: bytes, party: int) -> bytes:
    return derive_key(seed, "self-mask commitment", session.setup_digest, number(party))


def keys_statement(session: Session, party: int, keys: bytes) -> bytes:
    """What a client signed when it advertised its keys."""
    return message_statement(
        write_header(Type.ADVERTISED_KEYS, session.setup_digest, party, SERVER, SIGNATURE), keys[:64]
    )


def survivors_statement(session: Session, dropouts: Sequence[int]) -> bytes:
    return statement("survivors", session.digest, *map(number, sorted(dropouts)))


def peers_statement(session: Session, absent: Sequence[int]) -> bytes:
    return statement("peers", session.digest, *map(number, sorted(absent)))


class SlowClient:
    """Gives each answer of one client; whatever it must not answer is ``Refused``."""

    def __init__(
        self, session: Session, party: int, vector: Sequence[int], draw: Callable[[int], bytes], identity: bytes = b""
    ) -> None:
        self.session, self.party, self.vector, self.draw, self.identity = session, party, vector, draw, identity
        self.sealing_secret, self.masking_secret = draw(32), draw(32)
        self.due = Type.ROSTER
        self.peers: dict[int, bytes] = {}  # the advertised keys of the roster
        self.shares: dict[int, bytes] = {}  # by owner: a share of its masking secret, then one of its self-mask seed
        self.absent: list[int] = []
        self.dropouts: list[int] = []

    def start(self) -> bytes:
        keys = x25519_public(self.sealing_secret) + x25519_public(self.masking_secret)
        return self.say(Type.ADVERTISED_KEYS, keys)

    def receive(self, message: bytes) -> bytes:
        digest, server = self.session.digest_of(self.due), self.session.server_identity
        payload = read_frame(message, self.due, digest, SERVER, self.party, server)
        answer = {
            Type.ROSTER: self.share,
            Type.SHARE_DELIVERY: self.mask,
            Type.UNMASK_REQUEST: self.agree_on_survivors,
            Type.SURVIVOR_PROOF: self.check_proof,
        }[self.due]
        return answer(Cursor(payload))

    def share(self, cursor: Cursor) -> bytes:
        session = self.session
        self.peers = cursor.entries(128 if session.identities else 64)
        cursor.end()
        self.check_roster()
        self.seed = self.draw(32)
        holders = sorted([self.party, *self.peers])
        points = [session.point(holder) for holder in holders]
        of_secret = split(self.masking_secret, session.threshold, points, self.draw)
        of_seed = split(self.seed, session.threshold, points, self.draw)
        pairs = {holder: of_secret[session.point(holder)] + of_seed[session.point(holder)] for holder in holders}
        self.shares = {self.party: pairs.pop(self.party)}
        sealed = {}
        for holder, pair in pairs.items():
            key = self.sealing_key(holder, self.party, holder)
            sealed[holder] = seal(key, self.draw(12), pair, self.binding(self.party, holder))
        self.due = Type.SHARE_DELIVERY
        return self.say(Type.SEALED_SHARES, commitment(session, self.seed, self.party) + write_entries(sealed))

    def check_roster(self) -> None:
        need(self.peers.keys() <= set(self.session.neighbours(self.party)), "a stranger in the roster")
        need(len(self.peers) + 1 >= self.session.threshold, "too few advertised keys")
        keys = [key for entry in self.peers.values() for key in (entry[:32], entry[32:64])]
        keys += [x25519_public(self.sealing_secret), x25519_public(self.masking_secret)]
        need(len(keys) == len(set(keys)), "a repeated key")
        for peer, entry in self.peers.items() if self.session.identities else ():
            signed = keys_statement(self.session, peer, entry)
            need(ed25519_verifies(self.session.identity(peer), signed, entry[64:]), "a forged signature of keys")

    def mask(self, cursor: Cursor) -> bytes:
        self.absent = list(cursor.entries(0)) if self.session.signs_peers else []
        sealed = cursor.entries(SEALED_BYTES)
        cursor.end()
        need(sealed.keys() <= self.peers.keys(), "shares of a stranger")
        need(len(sealed) + 1 >= self.session.threshold, "too few shared their secrets")
        if self.session.signs_peers:
            need(set(self.absent) <= set(self.session.clients) - {self.party}, "a stranger among the absent")
            near = set(self.session.neighbours(self.party))
            need(sealed.keys() == near - set(self.absent), "shares of others than of all that shared")
        for peer, box in sealed.items():
            self.shares[peer] = open_sealed(
                self.sealing_key(peer, peer, self.party), box, self.binding(peer, self.party)
            )
        ring = self.session.add(self.session.to_ring(self.vector), self.session.mask(self.seed))
        for peer in sealed:
            mask = pairwise_mask(self.session, self.masking_secret, self.peers[peer][32:64])
            ring = self.session.add(ring, mask, 1 if self.party < peer else -1)
        self.due = Type.UNMASK_REQUEST
        signature = b""
        if self.session.signs_peers:
            signature = ed25519_sign(self.identity, peers_statement(self.session, self.absent))
        return self.say(Type.MASKED_INPUT, signature + self.session.ring_to_bytes(ring))

    def agree_on_survivors(self, cursor: Cursor) -> bytes:
        session = self.session
        self.dropouts = list(cursor.entries(0))
        cursor.end()
        need(set(self.dropouts) <= set(session.clients), "a stranger among the dropouts")
        need(self.party not in self.dropouts, "this client is no dropout")
        survivors = set(session.neighbours(self.party)) - set(self.dropouts)
        need(survivors <= self.shares.keys(), "a survivor that shared nothing")
        need(len(session.clients) - len(self.dropouts) >= session.survivors_needed, "too few survivors")
        if not session.identities:
            return self.reveal()
        need(set(self.absent) <= set(self.dropouts), "a survivor that shared nothing")
        session.need_holders(set(session.clients) - set(self.dropouts))
        self.due = Type.SURVIVOR_PROOF
        return self.say(
            Type.SURVIVOR_SIGNATURE, ed25519_sign(self.identity, survivors_statement(session, self.dropouts))
        )

    def check_proof(self, cursor: Cursor) -> bytes:
        signatures = cursor.entries(64)
        of_peers = cursor.entries(64) if self.session.signs_peers else {}
        cursor.end()
        need(signatures.keys() <= set(self.session.clients) - set(self.dropouts), "a signature of no survivor")
        need(len(signatures) >= self.session.signatures_needed, "too few signatures")
        signed = survivors_statement(self.session, self.dropouts)
        for peer, signature in signatures.items():
            need(ed25519_verifies(self.session.identity(peer), signed, signature), "another survivor set was signed")
        if self.session.signs_peers:
            self.check_peers(of_peers)
        return self.reveal()

    def check_peers(self, signatures: Mapping[int, bytes]) -> None:
        near = set(self.session.neighbours(self.party)) - set(self.dropouts)
        need(signatures.keys() == near, "signatures of others than the surviving neighbours")
        for peer, signature in signatures.items():
            signed = peers_statement(self.session, self.absent)
            need(ed25519_verifies(self.session.identity(peer), signed, signature), "another set of peers was signed")

    def reveal(self) -> bytes:
        of_secrets = {peer: pair[:33] for peer, pair in self.shares.items() if peer in self.dropouts}
        of_seeds = {peer: pair[33:] for peer, pair in self.shares.items() if peer not in self.dropouts}
        return self.say(Type.UNMASK_SHARES, write_entries(of_secrets) + write_entries(of_seeds))

    def sealing_key(self, peer: int, sender: int, recipient: int) -> bytes:
        context = (self.session.setup_digest, number(sender), number(recipient))
        return agree(self.sealing_secret, self.peers[peer][:32], "sealed shares", *context)

    def binding(self, sender: int, recipient: int) -> bytes:
        masking_key = {peer: keys[32:64] for peer, keys in self.peers.items()}
        masking_key[self.party] = x25519_public(self.masking_secret)
        parties = number(sender) + number(recipient)
        return self.session.setup_digest + parties + masking_key[sender] + masking_key[recipient]

    def say(self, type_: Type, payload: bytes) -> bytes:
        return write_frame(type_, self.session.digest_of(type_), self.party, SERVER, payload, self.identity)
