"""A helper of a committee sum: it adds its masks up, once."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from secagg.committee.messages import (
    MaskRequest,
    MaskSum,
    SealedSeed,
    seed_binding,
    seed_is_signed,
    seed_key,
)
from secagg.config import SERVER
from secagg.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError, RepeatedMessageError
from secagg.party import Party
from secagg.primitives.agreement import BadPublicKeyError, KeyPair
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import SealBrokenError, open_sealed
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.snapshots import HELPER, Stored, binding
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


@dataclass(slots=True, kw_only=True)
class HelperKept:
    """What a helper's stored session says. Its key pair is not in it: that outlives the session."""

    answered: bytes = b""
    """The hash of the request that it answered; empty before."""


class CommitteeHelper(Party, Stored[HelperKept]):
    """Answers one request a session, and only for as many survivors as the parameters ask for.

    A request that it refuses reveals nothing, so it may still answer a better one.

    Its key pair serves many sessions; what it must not do is answer twice in one. Keep its answered sessions for as
    long as the key lives (``DurableClient`` does).
    """

    _config: CommitteeSum

    def __init__(self, config: CommitteeSum, party: PartyId, *, secrets: PartySecrets) -> None:
        keys, public = secrets.agreement, config.helper_key(party)
        if keys is None or keys.public != public:
            raise ConfigurationError(
                f"the secret key of helper {party} is needed, and "
                + ("none was given" if keys is None else "this is another one: its public key differs")
            )
        Party.__init__(self, config, party, secrets)
        self._keys: KeyPair | None = KeyPair(keys.secret)  # of its own: a pair remembers with whom it agreed on what
        self._kept = HelperKept()

    @property
    def bound_to(self) -> bytes:
        """What ties a stored session to this one."""
        return binding(HELPER, self._config.digest, self.party)

    def restore(self, snapshot: bytes) -> None:
        """Go where the snapshot says: one that has answered needs its keys no more."""
        Stored.restore(self, snapshot)
        if self._kept.answered:
            self._keys = None

    def start(self) -> None:
        """Nothing: a helper waits to be asked."""
        return

    def receive(self, message: bytes) -> bytes:
        """The sum of its masks over the survivors."""
        config = self._config
        frame = self._hear(message)
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint == self._kept.answered:
            raise RepeatedMessageError("this request was answered already", peer=SERVER)
        if self._keys is None:
            raise LocalProtocolError("this helper has answered in this session; it does so once")
        if frame.type is not MessageType.MASK_REQUEST:
            raise RemoteProtocolError(f"MASK_REQUEST is due, {frame.type.name} came", peer=SERVER)
        reader = Reader(frame.payload, peer=SERVER, max_entries=len(config.clients))
        request = MaskRequest.read(reader, config)
        self._check(request)
        vector = RingVector.zeros(config.layout)
        seeds = [self._open(self._keys, client, seed) for client, seed in request.seeds.items()]
        self._agree(tuple(request.seeds))
        add_masks(vector, [(seed, 1) for seed in seeds], config.digest)
        answer = MaskSum(survivors=tuple(request.seeds), vector=vector.to_bytes())
        self._kept.answered, self._keys = fingerprint, None
        return self._say(MessageType.MASK_SUM, answer.to_payload())

    def _check(self, request: MaskRequest) -> None:
        config, survivors = self._config, tuple(request.seeds)
        strangers = set(survivors) - set(config.clients)
        if strangers:
            raise RemoteProtocolError(f"the request names {len(strangers)} parties outside the cohort", peer=SERVER)
        if len(survivors) < config.min_survivors:
            raise RemoteProtocolError(
                f"masks come off sums of at least {config.min_survivors} clients, the server names {len(survivors)}",
                peer=SERVER,
            )
        if not config.is_authenticated:
            return
        for client, seed in request.seeds.items():
            if not seed_is_signed(config, seed, client, self.party):
                raise RemoteProtocolError(f"the seed of client {client} is not signed by its identity", peer=SERVER)

    def _open(self, keys: KeyPair, client: PartyId, seed: SealedSeed) -> bytes:
        digest = self._config.digest
        try:
            key = seed_key(keys, seed.ephemeral, digest, client, self.party)
            return open_sealed(key, seed.sealed, seed_binding(digest, client, self.party))
        except (BadPublicKeyError, SealBrokenError) as error:
            raise RemoteProtocolError(
                f"the seed of client {client} does not open: forged, replayed from another sum, or for another helper",
                peer=SERVER,
            ) from error
