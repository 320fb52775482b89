"""How the secrets of a masked sum are derived and what is signed; client and server read the same lines."""

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
    """s_uv, the seed of the mask that two clients share; the same from either side."""
    return own.agree(peer_public, "pairwise mask", digest)


def pairwise_sign(party: PartyId, peer: PartyId) -> int:
    """The sign with which ``party`` adds the mask it shares with ``peer``: the two cancel."""
    return 1 if party < peer else -1


def sealing_key(own: KeyPair, peer_public: bytes, setup_digest: bytes, sender: PartyId, recipient: PartyId) -> bytes:
    """The key that shares are sealed with on their way from ``sender`` to ``recipient``."""
    return own.agree(peer_public, "sealed shares", setup_digest, _number(sender), _number(recipient))


def seal_binding(
    setup_digest: bytes, sender: PartyId, recipient: PartyId, sender_masking_key: bytes, recipient_masking_key: bytes
) -> bytes:
    """The associated data of sealed shares.

    The masking keys are in it as each side knows them, so that a box does not open where the roster told one of the
    two another key: their masks would not cancel.
    """
    return setup_digest + _number(sender) + _number(recipient) + sender_masking_key + recipient_masking_key


def self_mask_commitment(seed: bytes, setup_digest: bytes, party: PartyId) -> bytes:
    """What a client publishes of its self-mask seed: a value derived for no other use.

    It is not in the paper. It lets the server notice a rebuilt seed that is wrong (a client lied about a share)
    instead of releasing noise, as it can for mask keys, whose public halves it knows.
    """
    return derive_key(seed, "self-mask commitment", setup_digest, _number(party))


def keys_are_signed(config: MaskedSum, keys: AdvertisedKeys, party: PartyId) -> bool:
    """Whether ``party`` signed the message that brought the server these keys, as the server passes them on."""
    said = signed_statement(
        MessageType.ADVERTISED_KEYS, keys.to_payload(), digest=config.setup_digest, sender=party, recipient=SERVER
    )
    return verifies(config.identity(party), keys.signature, said)


def sign_survivors(identity: IdentityKey, dropouts: Iterable[PartyId], digest: bytes) -> bytes:
    """A client's word that it was told this survivor set in this sum."""
    return identity.sign("survivors", digest, *map(_number, sorted(dropouts)))


def survivors_statement(dropouts: Iterable[PartyId], digest: bytes) -> bytes:
    """What each survivor signs; made once, since a client checks as many signatures as half the cohort."""
    return statement("survivors", digest, *map(_number, sorted(dropouts)))


def sign_peers(identity: IdentityKey, absent: Iterable[PartyId], digest: bytes) -> bytes:
    """A client's word that it masked its vector of this sum with all its neighbours but these."""
    return identity.sign("peers", digest, *map(_number, sorted(absent)))


def peers_statement(absent: Iterable[PartyId], digest: bytes) -> bytes:
    """What each client signs with its masked vector, where the graph is sparse and the server may lie."""
    return statement("peers", digest, *map(_number, sorted(absent)))


def _number(party: PartyId) -> bytes:
    return party.to_bytes(4, "big")
