"""How the secrets of a masked sum are derived; client and server read the same lines."""

from __future__ import annotations

from secagg.primitives.agreement import KeyPair
from secagg.primitives.derivation import derive_key
from secagg.sessions import PartyId


def pairwise_seed(own: KeyPair, peer_public: bytes, digest: bytes) -> bytes:
    """s_uv, the seed of the mask that two clients share; the same from either side."""
    return own.agree(peer_public, "pairwise mask", digest)


def pairwise_sign(party: PartyId, peer: PartyId) -> int:
    """The sign with which ``party`` adds the mask it shares with ``peer``: the two cancel."""
    return 1 if party < peer else -1


def sealing_key(own: KeyPair, peer_public: bytes, digest: bytes, sender: PartyId, recipient: PartyId) -> bytes:
    """The key that shares are sealed with on their way from ``sender`` to ``recipient``."""
    return own.agree(peer_public, "sealed shares", digest, _pair(sender, recipient))


def seal_binding(digest: bytes, sender: PartyId, recipient: PartyId) -> bytes:
    """The associated data of sealed shares."""
    return digest + _pair(sender, recipient)


def self_mask_commitment(seed: bytes, digest: bytes, party: PartyId) -> bytes:
    """What a client publishes of its self-mask seed: a value derived for no other use.

    It is not in the paper. It lets the server notice a rebuilt seed that is wrong (a client lied about a share)
    instead of releasing noise, as it can for mask keys, whose public halves it knows.
    """
    return derive_key(seed, "self-mask commitment", digest, party.to_bytes(4, "big"))


def _pair(sender: PartyId, recipient: PartyId) -> bytes:
    return sender.to_bytes(4, "big") + recipient.to_bytes(4, "big")
