"""What a coalition opens of a masked sum's upload: every mask whose seed it can rebuild.

The self-mask is revealed to the server by design; pairwise masks need the target's key, which a threshold of shares
gives back, or the peers'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.masked.messages import AdvertisedKeys, SealedShares, UnmaskShares
from secagg.masked.secrets import pairwise_seed, pairwise_sign, seal_binding, sealing_key
from secagg.primitives.agreement import SECRET_KEY_BYTES, KeyPair
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import open_sealed
from secagg.primitives.shamir import SHARE_BYTES, BadSharesError, combine
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.sums import Knowledge
from secagg.wire import MessageType, Reader

if TYPE_CHECKING:
    from secagg.masked.protocol import MaskedSum


def opened_upload(config: MaskedSum, knowledge: Knowledge, target: PartyId, carried: RingVector) -> RingVector:
    """Return the upload less every mask that the coalition can rebuild.

    Args:
        config: the sum.
        knowledge: what the coalition pools.
        target: whose upload.
        carried: the masked words that it carried, as far as the coalition can tell.
    """
    add_masks(carried, [(seed, -sign) for seed, sign in _masks(config, knowledge, target)], config.digest)
    return carried


def _masks(config: MaskedSum, knowledge: Knowledge, target: PartyId) -> list[tuple[bytes, int]]:
    keys = {
        sender: AdvertisedKeys.parse(payload) for sender, payload in knowledge.payloads(MessageType.ADVERTISED_KEYS)
    }
    masks: list[tuple[bytes, int]] = []
    self_mask = _combined(config, _revealed_self_shares(knowledge, target))
    if self_mask is not None:
        masks.append((self_mask, 1))
    masking = _rebuilt_key(config, knowledge, target, keys)
    for peer in config.neighbours(target):
        if peer not in keys:
            continue
        if masking is not None:
            seed = pairwise_seed(masking, keys[peer].masking_key, config.digest)
        elif peer in knowledge.tapes:
            seed = pairwise_seed(_keys_of(knowledge, peer)[1], keys[target].masking_key, config.digest)
        else:
            continue
        masks.append((seed, pairwise_sign(target, peer)))
    return masks


def _keys_of(knowledge: Knowledge, party: PartyId) -> tuple[KeyPair, KeyPair]:
    """Return sealing and masking key of a member: the first two things that a client draws."""
    tape = knowledge.tapes[party]
    return KeyPair(tape[:SECRET_KEY_BYTES]), KeyPair(tape[SECRET_KEY_BYTES : 2 * SECRET_KEY_BYTES])


def _revealed_self_shares(knowledge: Knowledge, target: PartyId) -> dict[PartyId, bytes]:
    shares = {}
    for sender, payload in knowledge.payloads(MessageType.UNMASK_SHARES):
        revealed = UnmaskShares.read(Reader(memoryview(payload), peer=sender)).self_mask_shares
        if target in revealed:
            shares[sender] = revealed[target]
    return shares


def _rebuilt_key(
    config: MaskedSum, knowledge: Knowledge, target: PartyId, keys: dict[PartyId, AdvertisedKeys]
) -> KeyPair | None:
    """Return the target's masking key from the shares that members hold, if they are enough."""
    shares: dict[PartyId, bytes] = {}
    for sender, payload in knowledge.payloads(MessageType.SEALED_SHARES):
        if sender != target:
            continue
        sealed = SealedShares.read(Reader(memoryview(payload), peer=target)).sealed
        for member in sealed.keys() & knowledge.tapes.keys():
            own = _keys_of(knowledge, member)[0]
            key = sealing_key(own, keys[target].sealing_key, config.setup_digest, target, member)
            masking = keys[target].masking_key, keys[member].masking_key
            pair = open_sealed(key, sealed[member], seal_binding(config.setup_digest, target, member, *masking))
            shares[member] = pair[:SHARE_BYTES]
    secret = _combined(config, shares)
    if secret is None or KeyPair(secret).public != keys[target].masking_key:
        return None
    return KeyPair(secret)


def _combined(config: MaskedSum, shares: dict[PartyId, bytes]) -> bytes | None:
    """Return the secret behind shares, tried with as many as there are up to the threshold: too few give another."""
    chosen = sorted(shares)[: config.shares_needed]
    try:
        return combine({config.point(party): shares[party] for party in chosen}) if chosen else None
    except BadSharesError:
        return None
