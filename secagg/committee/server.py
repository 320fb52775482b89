"""The server of a committee sum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from secagg.carriers.carrier import RingSum, RunningSum
from secagg.committee.messages import (
    CommitteeInput,
    MaskRequest,
    MaskSum,
    SealedSeed,
    seed_is_signed,
)
from secagg.errors import RemoteProtocolError
from secagg.primitives.agreement import BadPublicKeyError, check_public_key
from secagg.ring import RingVector
from secagg.rounds import Round, RoundState, ServerRounds
from secagg.sessions import PartyId
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


@dataclass(slots=True, kw_only=True, eq=False)
class CommitteeServerState(RoundState):
    """Beside the round, the sum so far and each client's sealed seeds by helper."""

    sum: RunningSum
    seeds: dict[PartyId, dict[PartyId, SealedSeed]] = field(default_factory=dict)


class CommitteeServer(ServerRounds[CommitteeServerState]):
    """Adds masked vectors as they arrive, then asks every helper once for its masks' sum and takes it off."""

    _config: CommitteeSum

    def __init__(self, config: CommitteeSum, *, secrets: PartySecrets) -> None:
        first = Round.of(MessageType.COMMITTEE_INPUT, config.clients)
        ServerRounds.__init__(self, config, CommitteeServerState(round=first, sum=RingSum(config.layout)), secrets)

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Take one client's vector or one helper's mask sum."""
        with self._taking() as round_:
            frame = self._due(round_, sender, message)
            reader = Reader(frame.payload, peer=sender, max_entries=len(self._config.clients))
            if round_.answer is MessageType.COMMITTEE_INPUT:
                self._take_vector(sender, CommitteeInput.read(reader, self._config))
            else:
                self._take_masks(sender, MaskSum.read(reader, self._config))
            round_.accept(sender)

    def close_round(self) -> Mapping[PartyId, bytes]:
        """Ask the helpers; then release the sum."""
        with self._closing() as round_:
            if round_.answer is MessageType.COMMITTEE_INPUT:
                return self._ask_helpers(round_)
            round_.need_all()
            return self._end(self._kept.sum.words, self._kept.seeds)

    def _take_vector(self, sender: PartyId, message: CommitteeInput) -> None:
        if message.seeds.keys() != dict(self._config.helper_keys).keys():
            raise RemoteProtocolError("it must seal one seed for each helper of this sum", peer=sender)
        for helper, seed in message.seeds.items():
            self._check_seed(sender, helper, seed)
        self._kept.sum.add(message.vector, peer=sender)
        self._kept.seeds[sender] = message.seeds

    def _check_seed(self, sender: PartyId, helper: PartyId, seed: SealedSeed) -> None:
        """Refuse here what every helper would refuse later: then it costs one client its place, and not all the sum."""
        try:
            check_public_key(seed.ephemeral)
        except BadPublicKeyError as error:
            raise RemoteProtocolError(
                f"it sealed its seed for helper {helper} with a key of small order; it must draw a fresh one",
                peer=sender,
            ) from error
        if self._config.is_authenticated and not seed_is_signed(self._config, seed, sender, helper):
            raise RemoteProtocolError(f"its seed for helper {helper} is not signed by its identity", peer=sender)

    def _ask_helpers(self, round_: Round) -> Mapping[PartyId, bytes]:
        config = self._config
        round_.need(config.min_survivors)
        survivors = tuple(sorted(self._kept.seeds))
        helpers = [helper for helper, _ in config.helper_keys]
        self._kept.round = Round.of(MessageType.MASK_SUM, helpers)
        return {
            helper: self._say(
                MessageType.MASK_REQUEST,
                MaskRequest(seeds={party: self._kept.seeds[party][helper] for party in survivors}).to_payload(),
                helper,
            )
            for helper in helpers
        }

    def _take_masks(self, helper: PartyId, message: MaskSum) -> None:
        if message.survivors != tuple(sorted(self._kept.seeds)):
            raise RemoteProtocolError(
                "its masks are for another survivor set than the one it was asked about; every helper must be told the "
                "same survivors",
                peer=helper,
            )
        self._kept.sum.words.subtract(RingVector.from_bytes(self._config.layout, message.vector))
