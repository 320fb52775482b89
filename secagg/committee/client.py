"""A client of a committee sum: it speaks once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.committee.messages import SEED_BYTES, CommitteeInput, SealedSeed, seed_binding, seed_key, sign_seed
from secagg.config import SERVER
from secagg.contribution import check_now, resolve
from secagg.entropy import Entropy
from secagg.errors import LocalProtocolError, RemoteProtocolError
from secagg.party import Party
from secagg.primitives.agreement import KeyPair
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import seal
from secagg.ring import RingVector
from secagg.sessions import Contribution, PartyId
from secagg.snapshots import CLIENT, SpeaksOnce, Spoken, binding
from secagg.sums import PartySecrets
from secagg.wire import MessageType

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


class CommitteeClient(Party, SpeaksOnce):
    """Masks its vector with a fresh seed for each helper and seals each seed to that helper."""

    _config: CommitteeSum

    def __init__(
        self,
        config: CommitteeSum,
        party: PartyId,
        contribution: Contribution,
        *,
        secrets: PartySecrets,
        entropy: Entropy,
    ) -> None:
        config.index(party)
        check_now(config.layout, contribution)
        Party.__init__(self, config, party, secrets)
        self._entropy = entropy
        self._contribution = contribution
        self._kept = Spoken()

    @property
    def bound_to(self) -> bytes:
        """What ties a stored session to this one."""
        return binding(CLIENT, self._config.digest, self.party)

    def start(self) -> bytes:
        """Its one message. The seeds are forgotten with it."""
        if self._kept.has_spoken or self._contribution is None:
            raise LocalProtocolError("this client has sent its vector; one session sends one vector, once")
        config = self._config
        vector = RingVector.encode(config.layout, resolve(config.layout, self._contribution))
        self._kept.has_spoken, self._contribution = True, None
        seeds = {helper: self._entropy(SEED_BYTES) for helper, _ in config.helper_keys}
        add_masks(vector, [(seed, 1) for seed in seeds.values()], config.digest)
        message = CommitteeInput(
            seeds={helper: self._sealed(helper, seed) for helper, seed in seeds.items()}, vector=vector.to_bytes()
        )
        return self._say(MessageType.COMMITTEE_INPUT, message.to_payload())

    def receive(self, message: bytes) -> bytes | None:
        """Refuse everything: a client of a committee is asked nothing."""
        raise RemoteProtocolError("in a committee sum the server asks clients nothing", peer=SERVER)

    def _sealed(self, helper: PartyId, seed: bytes) -> SealedSeed:
        config = self._config
        ephemeral = KeyPair.generate(self._entropy)
        key = seed_key(ephemeral, config.helper_key(helper), config.digest, self.party, helper)
        binding = seed_binding(config.digest, self.party, helper)
        sealed = seal(key, seed, binding, entropy=self._entropy)
        signature = sign_seed(self._identity, binding, ephemeral.public, sealed) if self._identity else b""
        return SealedSeed(ephemeral=ephemeral.public, sealed=sealed, signature=signature)
