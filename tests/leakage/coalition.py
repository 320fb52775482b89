"""What a coalition makes of bytes: boxes it opens, shares it puts together, seeds it expands, until nothing new comes.

It has no model of who knows what. It holds keys and every message on the wire, and tries: a box opens or does not,
shares give a secret that fits its public half or its commitment or do not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import combinations, product
from typing import Any

from secagg import CommitteeSum, MaskedSum, PlainSum
from secagg.committee.messages import BOX_LABEL, CommitteeInput, box_binding, mask_seed, seeds_by_set
from secagg.masked.messages import AdvertisedKeys, Roster, SealedShares, UnmaskShares
from secagg.masked.secrets import pairwise_seed, seal_binding, sealing_key, self_mask_commitment
from secagg.primitives.agreement import BadPublicKeyError, KeyPair
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import SIGNATURE_BYTES
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import SealBrokenError, open_sealed
from secagg.primitives.shamir import SHARE_BYTES, BadSharesError, combine
from secagg.ring import RingVector
from secagg.wire import Frame, MessageType, Reader, message_type, open_frame

Sum = MaskedSum | CommitteeSum | PlainSum
Once = Callable[[object, Callable[[], Any]], Any]


def opened(config: Sum, message: bytes, *, sender: int, recipient: int) -> Frame:
    """What a message of a sum says. Nobody's word is needed for it: the coalition reads what it saw."""
    digest, public = config.digest_of(message_type(message)), config.identity_of(sender)
    return _opened(message, digest, sender, recipient, public)


@lru_cache(maxsize=2**15)  # most strategies say most messages of others again
def _opened(message: bytes, digest: bytes, sender: int, recipient: int, public: bytes | None) -> Frame:
    return open_frame(message, digest=digest, sender=sender, recipient=recipient, public=public)


def reader(frame: Frame, sender: int) -> Reader:
    """Takes its payload apart."""
    return Reader(frame.payload, peer=sender)


def signature_bytes(config: Sum) -> int:
    """How long the signature on advertised keys is."""
    return SIGNATURE_BYTES if config.is_authenticated else 0


def mask_words(seed: bytes, config_digest: bytes, layout: object) -> bytes:
    """The words of a seed's mask in a sum: its name in equations."""
    vector = RingVector.zeros(layout)  # type: ignore[arg-type]
    add_masks(vector, [(seed, 1)], config_digest)
    return vector.to_bytes()


@dataclass
class Heard:
    """One sum as the wire saw it, taken apart."""

    config: Sum
    keys: dict[int, set[AdvertisedKeys]] = field(default_factory=lambda: defaultdict(set))
    told: dict[int, set[tuple[int, AdvertisedKeys]]] = field(default_factory=lambda: defaultdict(set))
    shared: list[tuple[int, SealedShares]] = field(default_factory=list)
    revealed: list[tuple[int, UnmaskShares]] = field(default_factory=list)
    inputs: list[tuple[int, CommitteeInput]] = field(default_factory=list)

    def take(self, message: bytes, *, sender: int, recipient: int) -> None:
        """Add a message that an honest party said or was told."""
        frame = opened(self.config, message, sender=sender, recipient=recipient)
        read = reader(frame, sender)
        if frame.type is MessageType.ADVERTISED_KEYS:
            self.keys[sender].add(AdvertisedKeys.read(read, signature=frame.signature))
        elif frame.type is MessageType.ROSTER:
            told = Roster.read(read, signature_bytes=signature_bytes(self.config))
            self.told[recipient] |= set(told.keys.items())
        elif frame.type is MessageType.SEALED_SHARES:
            self.shared.append((sender, SealedShares.read(read)))
        elif frame.type is MessageType.UNMASK_SHARES:
            self.revealed.append((sender, UnmaskShares.read(read)))
        elif frame.type is MessageType.COMMITTEE_INPUT:
            assert isinstance(self.config, CommitteeSum)
            self.inputs.append((sender, CommitteeInput.read(read, self.config)))


class Coalition:
    """Pools keys and messages.

    Args:
        keys: the X25519 pairs that its members hold or made up, and the keys that boxes are sealed to.
        seeds: seeds of masks that they made up.
        sums: what went over the wire.
        once: keeps what was worked out in earlier plays.
    """

    def __init__(
        self, keys: Iterable[KeyPair | BoxKey], seeds: Iterable[bytes], sums: Iterable[Heard], once: Once
    ) -> None:
        keys = list(keys)
        self._keys = {pair.public: pair for pair in keys if isinstance(pair, KeyPair)}
        self._box_keys = {pair.public: pair for pair in keys if isinstance(pair, BoxKey)}
        self._sums = list(sums)
        self._seeds = set(seeds)
        self._once = once

    def known_masks(self) -> set[bytes]:
        """The words of every mask that it can expand: each seed, in each sum."""
        before = -1
        while before != len(self._keys) + len(self._seeds):
            before = len(self._keys) + len(self._seeds)
            for heard in self._sums:
                if isinstance(heard.config, MaskedSum):
                    self._rebuild(heard, heard.config)
                elif isinstance(heard.config, CommitteeSum):
                    self._seeds |= set(self._committee_seeds(heard, heard.config))
        for heard in self._sums:
            if isinstance(heard.config, MaskedSum):
                self._seeds |= set(self._pairwise_seeds(heard, heard.config))
        return {self._expanded(seed, heard.config) for seed in self._seeds for heard in self._sums}

    def _expanded(self, seed: bytes, config: Sum) -> bytes:
        words: bytes = self._once((seed, config.digest), lambda: mask_words(seed, config.digest, config.layout))
        return words

    def _rebuild(self, heard: Heard, config: MaskedSum) -> None:
        commitments = {sender: message.commitment for sender, message in heard.shared}
        keys_of, seeds_of = self._shares(heard, config)
        for owner, shares in keys_of.items():
            masking = {keys.masking_key for keys in heard.keys[owner]}
            for secret in _secrets(shares, config.shares_needed):
                pair = KeyPair(secret)
                if pair.public in masking:
                    self._keys[pair.public] = pair
                    break
        for owner, shares in seeds_of.items():
            for secret in _secrets(shares, config.shares_needed):
                if self_mask_commitment(secret, config.setup_digest, owner) == commitments.get(owner):
                    self._seeds.add(secret)
                    break

    def _shares(self, heard: Heard, config: MaskedSum) -> tuple[_Pool, _Pool]:
        """Shares of mask keys and of self-mask seeds, by owner and point: out of boxes, and revealed."""
        pools: tuple[_Pool, _Pool] = (defaultdict(lambda: defaultdict(set)), defaultdict(lambda: defaultdict(set)))
        for sender, message in heard.shared:
            for holder, box in message.sealed.items():
                for pair in self._opened(heard, config, sender, holder, box):
                    pools[0][sender][config.point(holder)].add(pair[:SHARE_BYTES])
                    pools[1][sender][config.point(holder)].add(pair[SHARE_BYTES:])
        for holder, revealed in heard.revealed:
            for pool, shares in zip(pools, (revealed.mask_key_shares, revealed.self_mask_shares), strict=True):
                for owner, share in shares.items():
                    pool[owner][config.point(holder)].add(share)
        return pools

    def _opened(self, heard: Heard, config: MaskedSum, sender: int, holder: int, box: bytes) -> Iterator[bytes]:
        """What a box holds, with the key of either end."""
        ends = product(heard.keys[sender], (keys for party, keys in heard.told[sender] if party == holder))
        for own, told in ends:
            for mine, theirs in ((own, told), (told, own)):
                if mine.sealing_key in self._keys:
                    with suppress(SealBrokenError, BadPublicKeyError):
                        pair = self._keys[mine.sealing_key]
                        key = sealing_key(pair, theirs.sealing_key, config.setup_digest, sender, holder)
                        binding = seal_binding(config.setup_digest, sender, holder, own.masking_key, told.masking_key)
                        yield open_sealed(key, box, binding)

    def _pairwise_seeds(self, heard: Heard, config: MaskedSum) -> Iterator[bytes]:
        entries = [keys for of_one in heard.keys.values() for keys in of_one]
        entries += [keys for told in heard.told.values() for _, keys in told]
        for public, pair in product({keys.masking_key for keys in entries}, list(self._keys.values())):
            with suppress(BadPublicKeyError):
                make = partial(pairwise_seed, pair, public, config.digest)
                yield self._once((pair.public, public, config.digest), make)

    def _committee_seeds(self, heard: Heard, config: CommitteeSum) -> Iterator[bytes]:
        """The seeds of masks in whatever boxes one of its keys opens."""
        for client, message in heard.inputs:
            for helper, box in message.boxes.items():
                pair = self._box_keys.get(config.helper_key(helper))
                if pair is not None:
                    with suppress(SealBrokenError):
                        opened = pair.open(box, BOX_LABEL, box_binding(config.digest, client, helper))
                        seeds = seeds_by_set(config, helper, opened).values()
                        for place, seed in product(range(config.seed_sharing.n_seeds), seeds):
                            yield mask_seed(config.digest, client, place, seed)


_Pool = dict[int, dict[int, set[bytes]]]


def _secrets(shares: Mapping[int, set[bytes]], threshold: int) -> Iterator[bytes]:
    """What any ``threshold`` of the shares give; whoever asks knows how to tell the secret from the rest."""
    for points in combinations(sorted(shares), threshold):
        for values in product(*(sorted(shares[point]) for point in points)):
            with suppress(BadSharesError):
                yield combine(dict(zip(points, values, strict=True)))
