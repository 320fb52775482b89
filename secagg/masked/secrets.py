"""Key derivation and signed statements of a masked sum, shared by client and server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from secagg.config import SERVER
from secagg.masked.messages import AdvertisedKeys
from secagg.primitives.agreement import KeyPair
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import IdentityKey, statement, verifies
from secagg.sessions import PartyId
from secagg.wire import MessageType, signed_statement

if TYPE_CHECKING:
    from secagg.masked.protocol import MaskedSum


def pairwise_seed(own: KeyPair, peer_public: bytes, digest: bytes) -> bytes:
    """Return s_uv, the seed of the pairwise mask of two clients; both compute the same."""
    return own.agree(peer_public, "pairwise mask", digest)


def pairwise_sign(party: PartyId, peer: PartyId) -> int:
    """Return the sign of the pairwise mask in ``party``'s vector, opposite to that in ``peer``'s."""
    return 1 if party < peer else -1


def sealing_key(own: KeyPair, peer_public: bytes, setup_digest: bytes, sender: PartyId, recipient: PartyId) -> bytes:
    """Return the key that encrypts shares from ``sender`` to ``recipient``."""
    return own.agree(peer_public, "sealed shares", setup_digest, _number(sender), _number(recipient))


def seal_binding(
    setup_digest: bytes, sender: PartyId, recipient: PartyId, sender_masking_key: bytes, recipient_masking_key: bytes
) -> bytes:
    """Return the associated data of encrypted shares.

    It contains both masking keys, so that decryption fails if the two clients received different keys; their masks
    would not cancel.
    """
    return setup_digest + _number(sender) + _number(recipient) + sender_masking_key + recipient_masking_key


def self_mask_commitment(seed: bytes, setup_digest: bytes, party: PartyId) -> bytes:
    """Return a commitment to a client's self-mask seed, derived for this purpose only.

    It is not in the paper. It lets the server detect a wrong reconstructed seed (a malicious client's share) instead of
    releasing a wrong total, as the public keys do for mask keys.
    """
    return derive_key(seed, "self-mask commitment", setup_digest, _number(party))


def keys_are_signed(config: MaskedSum, keys: AdvertisedKeys, party: PartyId) -> bool:
    """Return whether ``party`` signed the message with these keys."""
    signed = signed_statement(
        MessageType.ADVERTISED_KEYS, keys.to_payload(), digest=config.setup_digest, sender=party, recipient=SERVER
    )
    return verifies(config.identity(party), keys.signature, signed)


def sign_survivors(identity: IdentityKey, dropouts: Iterable[PartyId], digest: bytes) -> bytes:
    """Sign the survivor set that a client received."""
    return identity.sign("survivors", digest, *map(_number, sorted(dropouts)))


def survivors_statement(dropouts: Iterable[PartyId], digest: bytes) -> bytes:
    """Return the statement that each survivor signs; computed once to verify many signatures."""
    return statement("survivors", digest, *map(_number, sorted(dropouts)))


def sign_peers(identity: IdentityKey, absent: Iterable[PartyId], digest: bytes) -> bytes:
    """Sign the set of masking peers: all neighbours except these."""
    return identity.sign("peers", digest, *map(_number, sorted(absent)))


def peers_statement(absent: Iterable[PartyId], digest: bytes) -> bytes:
    """Return the statement about masking peers that each client signs on a sparse graph with identities."""
    return statement("peers", digest, *map(_number, sorted(absent)))


def _number(party: PartyId) -> bytes:
    return party.to_bytes(4, "big")
