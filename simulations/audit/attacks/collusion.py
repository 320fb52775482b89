"""One client's vector, from all secrets that a coalition holds together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from secagg import CommitteeSum, MaskedSum, PartyId
from secagg.committee.messages import CommitteeInput, seed_binding, seed_key
from secagg.layout import IntVector
from secagg.masked.messages import AdvertisedKeys, SealedShares, UnmaskShares
from secagg.masked.secrets import pairwise_seed, pairwise_sign, seal_binding, sealing_key
from secagg.primitives.agreement import SECRET_KEY_BYTES, KeyPair
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import open_sealed
from secagg.primitives.shamir import SHARE_BYTES, BadSharesError, combine
from secagg.ring import RingVector
from secagg.wire import HEADER_BYTES, MessageType, Reader
from simulations.audit.attack import score_vector
from simulations.audit.evaluate import Score
from simulations.audit.population import Truth
from simulations.audit.view import AdversaryView, SumView, read_integers

Masks = list[tuple[bytes, int]]


@dataclass(frozen=True, slots=True)
class Collusion:
    """Takes off every mask whose seed the coalition can rebuild, whether or not that is all of them."""

    name: str = "collusion"
    title: str = "One client, by a coalition that pools its secrets"
    explanation: str = (
        "The coalition uses every key, share and random number of its members to take the target's message apart, as "
        "far as the protocol's own mathematics allow. Success: every number exact. Chance: less than naming one row "
        "out of the pool."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """The target's vector, or what is left of the masks."""
        one = view.sums[-1]
        if target is None or one.payload(target) is None:
            return None
        if isinstance(one.protocol, MaskedSum):
            return _less(one, target, _masks_of_masked(one, one.protocol, target))
        if isinstance(one.protocol, CommitteeSum):
            return _less(one, target, _masks_of_committee(one, one.protocol, target))
        if _is_encrypted(one) and one.helper_secrets:
            return _less(one, target, [])
        return one.read_upload(target)

    def score(self, guess: IntVector | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a coalition."""
        return score_vector(guess, truth)


def _less(one: SumView, target: PartyId, masks: Masks) -> IntVector | None:
    vector = _opened(one, target) if _is_encrypted(one) and one.helper_secrets else _as_sent(one, target)
    if vector is None:
        return None
    digest: bytes = getattr(one.protocol, "digest")  # noqa: B009 - the interface does not have it, both protocols do
    add_masks(vector, [(seed, -sign) for seed, sign in masks], digest)
    return read_integers(one.layout, vector.to_bytes())


def _as_sent(one: SumView, target: PartyId) -> RingVector | None:
    data = one.vector_bytes(target)
    return None if data is None else RingVector.from_bytes(one.layout, data).copy()


# Masked sums: the self-mask is revealed to the server by design; pairwise masks need the target's key or the peers'


def _masks_of_masked(one: SumView, config: MaskedSum, target: PartyId) -> Masks:
    keys = {
        envelope.sender: AdvertisedKeys.parse(envelope.message[HEADER_BYTES:])
        for envelope in one.messages_of(MessageType.ADVERTISED_KEYS)
    }
    masks: Masks = []
    self_mask = _combined(config, _revealed_self_shares(one, target))
    if self_mask is not None:
        masks.append((self_mask, 1))
    masking = _rebuilt_key(one, config, target, keys)
    for peer in config.neighbours(target):
        if peer not in keys:
            continue
        if masking is not None:
            seed = pairwise_seed(masking, keys[peer].masking_key, config.digest)
        elif peer in one.tapes:
            seed = pairwise_seed(_keys_of(one, peer)[1], keys[target].masking_key, config.digest)
        else:
            continue
        masks.append((seed, pairwise_sign(target, peer)))
    return masks


def _keys_of(one: SumView, party: PartyId) -> tuple[KeyPair, KeyPair]:
    """Sealing and masking key of a member: the first two things that a client draws."""
    tape = one.tapes[party]
    return KeyPair(tape[:SECRET_KEY_BYTES]), KeyPair(tape[SECRET_KEY_BYTES : 2 * SECRET_KEY_BYTES])


def _revealed_self_shares(one: SumView, target: PartyId) -> dict[PartyId, bytes]:
    shares = {}
    for envelope in one.messages_of(MessageType.UNMASK_SHARES):
        revealed = UnmaskShares.read(_reader(envelope.message, envelope.sender)).self_mask_shares
        if target in revealed:
            shares[envelope.sender] = revealed[target]
    return shares


def _rebuilt_key(
    one: SumView, config: MaskedSum, target: PartyId, keys: dict[PartyId, AdvertisedKeys]
) -> KeyPair | None:
    """The target's masking key from the shares that members hold, if they are enough."""
    shares: dict[PartyId, bytes] = {}
    for envelope in one.messages_of(MessageType.SEALED_SHARES):
        if envelope.sender != target:
            continue
        sealed = SealedShares.read(_reader(envelope.message, target)).sealed
        for member in sealed.keys() & one.tapes.keys():
            key = sealing_key(_keys_of(one, member)[0], keys[target].sealing_key, config.setup_digest, target, member)
            masking = keys[target].masking_key, keys[member].masking_key
            pair = open_sealed(key, sealed[member], seal_binding(config.setup_digest, target, member, *masking))
            shares[member] = pair[:SHARE_BYTES]
    secret = _combined(config, shares)
    if secret is None or KeyPair(secret).public != keys[target].masking_key:
        return None
    return KeyPair(secret)


def _combined(config: MaskedSum, shares: dict[PartyId, bytes]) -> bytes | None:
    """The secret behind shares, tried with as many as there are up to the threshold: too few give another number."""
    chosen = sorted(shares)[: config.shares_needed]
    try:
        return combine({config.point(party): shares[party] for party in chosen}) if chosen else None
    except BadSharesError:
        return None


# Committee sums: one seed a helper, each sealed to it


def _masks_of_committee(one: SumView, config: CommitteeSum, target: PartyId) -> Masks:
    payload = one.payload(target)
    assert payload is not None
    message = CommitteeInput.read(Reader(memoryview(payload), peer=target), config)
    masks: Masks = []
    for helper, secret in one.helper_secrets.items():
        seed = message.seeds[helper]
        key = seed_key(KeyPair(secret), seed.ephemeral, config.digest, target, helper)
        masks.append((open_sealed(key, seed.sealed, seed_binding(config.digest, target, helper)), 1))
    return masks


# Encrypted sums: the key holder's key opens everything


def _is_encrypted(one: SumView) -> bool:
    return hasattr(one.protocol, "key_holder")


def _opened(one: SumView, target: PartyId) -> RingVector | None:
    protocol: Any = one.protocol
    payload = one.payload(target)
    if payload is None:
        return None
    (secret,) = one.helper_secrets.values()
    words: RingVector = protocol.carrier.decrypt(payload, secret).vector
    return words.copy()


def _reader(message: bytes, sender: PartyId) -> Reader:
    return Reader(memoryview(message)[HEADER_BYTES:], peer=sender)
