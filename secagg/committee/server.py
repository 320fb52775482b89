"""The server of a committee sum.

A server session is created by ``CommitteeSum.server``. In every round the caller passes each message to
``receive(sender, message)`` and then calls ``close_round()``, which returns the next messages, all to helpers:

1. COMMITTEE_INPUT of the clients received (each vector is added at once): ``close_round`` returns a SEED_DELIVERY.
2. SEED_COMPLAINTS received: clients with unusable seeds are excluded; ``close_round`` returns the SURVIVOR_SET. Without
   identities this round and the next are replaced by SET_CERTIFICATE.
3. SET_SIGNATURE received: ``close_round`` returns a SET_CERTIFICATE with the signatures of a quorum.
4. SUM_HASHES received: ``close_round`` compares them and returns a MASK_REQUEST to one helper for each set.
5. MASK_SUM received and subtracted: ``close_round`` asks other helpers for missing sums, or returns {} and sets
   ``result``.

``secagg.committee.helper`` has a runnable example.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING

from secagg.committee.messages import (
    HASH_BYTES,
    SET_LABEL,
    CommitteeInput,
    MaskSum,
    SeedDelivery,
    SetCertificate,
    set_hash,
    sum_hash,
)
from secagg.committee.parts import PartialSums
from secagg.committee.seed_sharing import resolve_complaints
from secagg.errors import HelperDisputeError, HelperMissingError, RemoteProtocolError, TooFewSurvivorsError
from secagg.primitives.identity import SIGNATURE_BYTES, is_signed, verifies
from secagg.rounds import Round, RoundState, ServerRounds
from secagg.sessions import PartyId
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader, read_parties, write_parties

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum

T = MessageType


@dataclass(slots=True, kw_only=True, eq=False)
class CommitteeServerState(RoundState):
    """State of the server: the round, the running sum, and the messages of clients and helpers."""

    sum: PartialSums
    inputs: dict[PartyId, bytes] = field(default_factory=dict)
    """Each client's message without its vector, until it was sent to the helpers."""
    seed_digests: dict[PartyId, bytes] = field(default_factory=dict)
    """Hash of each client's signed statement about its seeds; after survivors are proposed, of these only."""
    complaints: dict[PartyId, tuple[PartyId, ...]] = field(default_factory=dict)
    signatures: dict[PartyId, bytes] = field(default_factory=dict)
    hashes: dict[PartyId, bytes] = field(default_factory=dict)
    disputes: list[tuple[PartyId, PartyId]] = field(default_factory=list)
    agreed: dict[int, tuple[PartyId, ...]] = field(default_factory=dict)
    """Sets whose sums are missing, with the holders that sent the accepted hash."""
    asked_for: dict[PartyId, list[int]] = field(default_factory=dict)


class CommitteeServer(ServerRounds[CommitteeServerState]):
    """The server of a committee sum; the module docstring lists the calls in order.

    Helpers that answer one round are asked in the next. A total is released only if for every seed enough holders sent
    the same hash of its mask sum (``ReplicatedSharing.agreement_threshold``); each sum is received once, from one of
    them.
    """

    _config: CommitteeSum

    def __init__(self, config: CommitteeSum, *, secrets: PartySecrets) -> None:
        first = Round.of(T.COMMITTEE_INPUT, config.clients)
        kept = CommitteeServerState(round=first, sum=PartialSums(config.layout, config.clients))
        ServerRounds.__init__(self, config, kept, secrets)

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process a client's or helper's message; a refused message changes nothing."""
        take: dict[MessageType, Callable[[PartyId, Reader], None]] = {
            T.COMMITTEE_INPUT: self._take_vector,
            T.SEED_COMPLAINTS: self._take_complaints,
            T.SET_SIGNATURE: self._take_signature,
            T.SUM_HASHES: self._take_hashes,
            T.MASK_SUM: self._take_sums,
        }
        with self._taking() as round_:
            frame = self._due(round_, sender, message)
            most = max(len(self._config.clients), len(self._config.helpers), self._config.seed_sharing.n_seeds)
            take[round_.answer](sender, Reader(frame.payload, peer=sender, max_entries=most))
            round_.accept(sender)

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round and return the next messages by helper; empty after the last round."""
        close: dict[MessageType, Callable[[Round], Mapping[PartyId, bytes]]] = {
            T.COMMITTEE_INPUT: self._deliver_seeds,
            T.SEED_COMPLAINTS: self._propose_survivors,
            T.SET_SIGNATURE: self._certify,
            T.SUM_HASHES: self._compare,
            T.MASK_SUM: self._ask_for_sums,
        }
        with self._closing() as round_:
            return close[round_.answer](round_)

    # Vectors and seeds

    def _take_vector(self, sender: PartyId, reader: Reader) -> None:
        """Verify what every helper will verify, so that an invalid upload excludes one client and not the whole sum."""
        config, message = self._config, CommitteeInput.read(reader, self._config)
        if tuple(message.boxes) != config.helpers:
            raise RemoteProtocolError("it must seal a box for each helper of this sum", peer=sender)
        signed = message.entry(config.helpers[0]).statement(config.digest, sender)
        if config.is_authenticated and not verifies(config.identity(sender), message.signature, signed):
            raise RemoteProtocolError("its seeds are not signed by its identity", peer=sender)
        self._kept.sum.add(sender, message.vector)
        self._kept.inputs[sender] = replace(message, vector=b"").to_payload()
        self._kept.seed_digests[sender] = hashlib.sha256(signed).digest()

    def _deliver_seeds(self, round_: Round) -> Mapping[PartyId, bytes]:
        config, inputs = self._config, self._kept.inputs
        round_.need(config.min_survivors)
        read = {  # one copy of all boxes at a time, in addition to the messages
            party: CommitteeInput.read(Reader(memoryview(inputs.pop(party)), peer=party), config, has_vector=False)
            for party in sorted(inputs)
        }
        self._kept.round = Round.of(T.SEED_COMPLAINTS, config.helpers)
        deliveries = (
            (helper, SeedDelivery(entries={party: message.entry(helper) for party, message in read.items()}))
            for helper in config.helpers
        )
        return {
            helper: self._seal_message(T.SEED_DELIVERY, delivery.to_payload(), helper)
            for helper, delivery in deliveries
        }

    # The survivors

    def _take_complaints(self, helper: PartyId, reader: Reader) -> None:
        parties = read_parties(reader)
        if not set(parties) <= self._kept.seed_digests.keys():
            raise RemoteProtocolError("it complains of parties that it was told nothing of", peer=helper)
        self._kept.complaints[helper] = parties

    def _propose_survivors(self, round_: Round) -> Mapping[PartyId, bytes]:
        """Exclude clients with unusable seeds, and those in the same partial sum."""
        config, kept = self._config, self._kept
        self._need_helpers(round_.answered)
        in_a_part = -(-len(config.clients) // kept.sum.n_parts)
        spare = (len(kept.seed_digests) - config.min_survivors) // in_a_part
        most_each = spare // max(1, config.corrupt)
        named, ignored = resolve_complaints(kept.complaints, corrupt=config.corrupt, most_each=most_each)
        left_out = kept.sum.sharing(named)
        kept.sum.leave_out(left_out)
        kept.seed_digests = {p: one for p, one in sorted(kept.seed_digests.items()) if p not in left_out}
        if len(kept.seed_digests) < config.min_survivors:
            came, cohort = len(kept.seed_digests), len(config.clients)
            raise TooFewSurvivorsError(stage=round_.answer.name, needed=config.min_survivors, came=came, cohort=cohort)
        asked = [helper for helper in sorted(round_.answered) if helper not in ignored]
        self._need_helpers(asked)
        survivors = write_parties(kept.seed_digests)
        if config.is_authenticated:
            return self._ask(T.SURVIVOR_SET, T.SET_SIGNATURE, dict.fromkeys(asked, survivors))
        return self._send_certificate(asked)

    def _take_signature(self, helper: PartyId, reader: Reader) -> None:
        signature = reader.only(SIGNATURE_BYTES)
        if not is_signed(self._config.helper_identity(helper), signature, SET_LABEL, self._set_hash):
            raise RemoteProtocolError("it signed another survivor set than the one it was asked about", peer=helper)
        self._kept.signatures[helper] = signature

    def _certify(self, round_: Round) -> Mapping[PartyId, bytes]:
        self._need_helpers(round_.answered)
        return self._send_certificate(sorted(round_.answered))

    def _send_certificate(self, helpers: Iterable[PartyId]) -> Mapping[PartyId, bytes]:
        certificate = SetCertificate(survivors=tuple(self._kept.seed_digests), signatures=self._kept.signatures)
        return self._ask(T.SET_CERTIFICATE, T.SUM_HASHES, dict.fromkeys(helpers, certificate.to_payload()))

    # The masks

    def _take_hashes(self, helper: PartyId, reader: Reader) -> None:
        self._kept.hashes[helper] = reader.only(self._config.seed_sharing.seeds_per_helper * HASH_BYTES)

    def _compare(self, round_: Round) -> Mapping[PartyId, bytes]:
        """Record disputes between helpers, and continue if enough holders of each set agree."""
        self._need_helpers(round_.answered)
        kept, seed_sharing = self._kept, self._config.seed_sharing
        disputes: set[tuple[PartyId, PartyId]] = set()
        for place in range(seed_sharing.n_seeds):
            hashes = self._hashes_of(place)
            kept.agreed[place] = seed_sharing.agreed(hashes)
            disputes |= {pair for pair in combinations(sorted(hashes), 2) if hashes[pair[0]] != hashes[pair[1]]}
        kept.disputes = sorted(disputes)
        if not all(kept.agreed.values()):
            raise HelperDisputeError(disputes=tuple(kept.disputes), needed=seed_sharing.agreement_threshold)
        return self._ask_for_sums(round_)

    def _hashes_of(self, place: int) -> dict[PartyId, bytes]:
        """Return the hashes of a set's mask sum, by holder."""
        hashes = {}
        for helper, theirs in self._kept.hashes.items():
            places = self._config.seed_sharing.sets_of(helper)
            if place in places:
                start = places.index(place) * HASH_BYTES
                hashes[helper] = theirs[start : start + HASH_BYTES]
        return hashes

    def _ask_for_sums(self, round_: Round) -> Mapping[PartyId, bytes]:
        """Request each missing sum from one agreeing holder that has not failed to answer."""
        kept = self._kept
        if round_.answer is T.MASK_SUM:
            silent = round_.waiting_for
            kept.agreed = {place: tuple(p for p in able if p not in silent) for place, able in kept.agreed.items()}
        if not kept.agreed:
            complaints = [(client, helper) for helper, named in kept.complaints.items() for client in named]
            return self._end(kept.sum.merged().words, kept.seed_digests, disputes=kept.disputes, complaints=complaints)
        if not all(kept.agreed.values()):
            raise HelperMissingError(missing=tuple(sorted(round_.waiting_for)), n_more=1)
        kept.asked_for = self._config.seed_sharing.assign(kept.agreed)
        asked = {helper: write_parties(sets) for helper, sets in kept.asked_for.items()}
        return self._ask(T.MASK_REQUEST, T.MASK_SUM, asked)

    def _take_sums(self, helper: PartyId, reader: Reader) -> None:
        kept, sums = self._kept, MaskSum.read(reader, self._config).sums
        if list(sums) != kept.asked_for[helper]:
            raise RemoteProtocolError("its sums are of other sets than it was asked about", peer=helper)
        for place, vector in sums.items():
            if sum_hash(self._set_hash, place, len(vector), [vector]) != self._hashes_of(place)[helper]:
                raise RemoteProtocolError("its sum of masks is not the one that it gave the hash of", peer=helper)
        for place, vector in sums.items():
            kept.sum.subtract(vector)
            del kept.agreed[place]

    @property
    def _set_hash(self) -> bytes:
        return set_hash(self._config.digest, self._kept.seed_digests)

    def _ask(
        self, type_: MessageType, answer: MessageType, payloads: Mapping[PartyId, bytes]
    ) -> Mapping[PartyId, bytes]:
        self._kept.round = Round.of(answer, payloads)
        return {helper: self._seal_message(type_, payload, helper) for helper, payload in payloads.items()}

    def _need_helpers(self, answered: Iterable[PartyId]) -> None:
        """Refuse to continue with fewer helpers than a total needs.

        Raises:
            HelperMissingError: fewer are left.
        """
        config, left = self._config, set(answered)
        needed = config.seed_sharing.needed(signing=config.is_authenticated)
        if len(left) < needed:
            missing = tuple(helper for helper in config.helpers if helper not in left)
            raise HelperMissingError(missing=missing, needed=needed, n_more=needed - len(left))
