"""Reconstruction of a client's vector in a masked sum by a coalition, for the audit.

The coalition computes every mask whose seed it can reconstruct: from a threshold of shares, decrypted by its members or
revealed to the server, or from its members' keys. Keys that follow from public data alone are tried too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.masked.messages import AdvertisedKeys, SealedShares, UnmaskShares
from secagg.masked.secrets import pairwise_seed, pairwise_sign, seal_binding, sealing_key, self_mask_commitment
from secagg.primitives.agreement import SECRET_KEY_BYTES, KeyPair
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import SealBrokenError, open_sealed
from secagg.primitives.shamir import SHARE_BYTES, BadSharesError, combine
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.sums import CoalitionView
from secagg.wire import MessageType, Reader

if TYPE_CHECKING:
    from secagg.masked.protocol import MaskedSum


def unmask_upload(config: MaskedSum, knowledge: CoalitionView, target: PartyId, carried: RingVector) -> RingVector:
    """Subtract every mask that the coalition can reconstruct from an upload, in place.

    Args:
        config: the sum.
        knowledge: the coalition's view.
        target: client of the upload.
        carried: the masked words of the upload, as far as the coalition can decode them.
    """
    add_masks(carried, [(seed, -sign) for seed, sign in _masks(config, knowledge, target)], config.digest)
    return carried


def _masks(config: MaskedSum, knowledge: CoalitionView, target: PartyId) -> list[tuple[bytes, int]]:
    keys = {
        sender: AdvertisedKeys.parse(payload) for sender, payload in knowledge.payloads(MessageType.ADVERTISED_KEYS)
    }
    if target not in keys:
        return []
    of_key, of_seed, commitment = _shares(config, knowledge, target, keys)
    masks: list[tuple[bytes, int]] = []
    for self_mask in (_combined(config, of_seed), *revealed_self_masks(config, knowledge).values()):
        if self_mask is not None and self_mask_commitment(self_mask, config.setup_digest, target) == commitment:
            masks.append((self_mask, 1))
            break
    secret = _combined(config, of_key)
    own = None if secret is None else KeyPair(secret)
    for peer in config.neighbours(target):
        if peer not in keys:
            continue
        if own is not None and own.public == keys[target].masking_key:
            seed = pairwise_seed(own, keys[peer].masking_key, config.digest)
        elif peer in knowledge.tapes:
            seed = pairwise_seed(_keys_of(knowledge, peer)[1], keys[target].masking_key, config.digest)
        elif (public := _from_public(config, keys[target], keys[peer])) is not None:
            seed = public
        else:
            continue
        masks.append((seed, pairwise_sign(target, peer)))
    return masks


def _keys_of(knowledge: CoalitionView, party: PartyId) -> tuple[KeyPair, KeyPair]:
    """Return sealing and masking key of a member: the first random bytes that a client draws."""
    tape = knowledge.tapes[party]
    return KeyPair(tape[:SECRET_KEY_BYTES]), KeyPair(tape[SECRET_KEY_BYTES : 2 * SECRET_KEY_BYTES])


def _with_public(public: bytes, secret: int) -> KeyPair:
    """Return a key pair with this public key and a publicly known secret."""
    pair = KeyPair(bytes([secret]) * SECRET_KEY_BYTES)
    object.__setattr__(pair, "public", public)
    return pair


def _from_public(config: MaskedSum, target: AdvertisedKeys, peer: AdvertisedKeys) -> bytes | None:
    """Return the seed of two clients' mask if it does not depend on their secrets."""
    first, second = (
        pairwise_seed(_with_public(target.masking_key, secret), peer.masking_key, config.digest) for secret in (1, 2)
    )
    return first if first == second else None


def _shares(
    config: MaskedSum, knowledge: CoalitionView, target: PartyId, keys: dict[PartyId, AdvertisedKeys]
) -> tuple[dict[PartyId, bytes], dict[PartyId, bytes], bytes]:
    """Return the shares of the target's key and self-mask seed by holder, and the commitment to the seed."""
    of_key: dict[PartyId, bytes] = {}
    of_seed: dict[PartyId, bytes] = {}
    commitment = b""
    for sender, payload in knowledge.payloads(MessageType.SEALED_SHARES):
        if sender == target:
            message = SealedShares.read(Reader(memoryview(payload), peer=target))
            commitment = message.commitment
            for holder, box in message.sealed.items():
                pair = _opened(config, knowledge, target, holder, keys, box)
                if pair:
                    of_key[holder], of_seed[holder] = pair[:SHARE_BYTES], pair[SHARE_BYTES:]
    for sender, payload in knowledge.payloads(MessageType.UNMASK_SHARES):
        revealed = UnmaskShares.read(Reader(memoryview(payload), peer=sender))
        for shares, revealed_shares in ((of_key, revealed.mask_key_shares), (of_seed, revealed.self_mask_shares)):
            if target in revealed_shares:
                shares[sender] = revealed_shares[target]
    return of_key, of_seed, commitment


def _opened(
    config: MaskedSum,
    knowledge: CoalitionView,
    target: PartyId,
    holder: PartyId,
    keys: dict[PartyId, AdvertisedKeys],
    box: bytes,
) -> bytes:
    """Decrypt the pair of shares of a holder with its key, or with public keys; empty if this fails."""
    masking = keys[target].masking_key, keys[holder].masking_key
    member = _keys_of(knowledge, holder)[0] if holder in knowledge.tapes else _with_public(keys[holder].sealing_key, 1)
    key = sealing_key(member, keys[target].sealing_key, config.setup_digest, target, holder)
    try:
        return open_sealed(key, box, seal_binding(config.setup_digest, target, holder, *masking))
    except SealBrokenError:
        return b""


def revealed_self_masks(config: MaskedSum, knowledge: CoalitionView) -> dict[PartyId, bytes]:
    """Return the revealed self-mask seeds by owner; a seed must not match another client's commitment."""
    of_owner: dict[PartyId, dict[PartyId, bytes]] = {}
    for sender, payload in knowledge.payloads(MessageType.UNMASK_SHARES):
        for owner, share in UnmaskShares.read(Reader(memoryview(payload), peer=sender)).self_mask_shares.items():
            of_owner.setdefault(owner, {})[sender] = share
    combined = {owner: _combined(config, shares) for owner, shares in of_owner.items()}
    return {owner: seed for owner, seed in combined.items() if seed is not None}


def _combined(config: MaskedSum, shares: dict[PartyId, bytes]) -> bytes | None:
    """Combine up to a threshold of shares; with fewer shares the result is another secret."""
    chosen = sorted(shares)[: config.shares_needed]
    try:
        return combine({config.point(party): shares[party] for party in chosen}) if chosen else None
    except BadSharesError:
        return None
