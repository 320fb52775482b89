"""The server of a masked sum: Bonawitz et al., CCS 2017, Fig. 4.

A server session is created by ``MaskedSum.server``. In every round the caller passes each client's message to
``receive(sender, message)`` and then calls ``close_round()``, which returns the next messages by recipient:

1. ADVERTISED_KEYS received: ``close_round`` returns a ROSTER for each client.
2. SEALED_SHARES received: ``close_round`` returns a SHARE_DELIVERY for each client.
3. MASKED_INPUT received (each vector is added at once, not stored): ``close_round`` returns an UNMASK_REQUEST.
4. With identities only, SURVIVOR_SIGNATURE received: ``close_round`` returns a SURVIVOR_PROOF.
5. UNMASK_SHARES received: ``close_round`` reconstructs the masks, subtracts them and returns {}; ``result`` is set.
   With an ``Encrypted`` encoder it returns a DECRYPTION_REQUEST to the key holder first, whose DECRYPTED_SUM ends the
   sum.

The caller decides when a round ends; clients that have not answered by then are dropouts.

>>> import numpy as np
>>> from secagg import Layout, MaskedSum, new_session_id
>>> layout = Layout.of([("counts", 2, 100)])
>>> protocol = MaskedSum(layout=layout, clients=(1, 2, 3), session_id=new_session_id())
>>> clients = {party: protocol.client(party, np.array([party, 1])) for party in protocol.clients}
>>> server = protocol.server()
>>> for party, client in clients.items():
...     server.receive(party, client.start())
>>> while requests := server.close_round():
...     for party, request in requests.items():
...         server.receive(party, clients[party].receive(request))
>>> server.result.total
array([6, 3])
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from secagg.encoder import RunningSum
from secagg.errors import (
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
    TooFewSurvivorsError,
)
from secagg.masked.messages import (
    AdvertisedKeys,
    Roster,
    SealedShares,
    ShareDelivery,
    SurvivorProof,
    UnmaskShares,
)
from secagg.masked.secrets import (
    pairwise_seed,
    pairwise_sign,
    peers_statement,
    self_mask_commitment,
    survivors_statement,
)
from secagg.masked.states import SETUP_MESSAGES
from secagg.primitives.agreement import BadPublicKeyError, KeyPair, check_public_key
from secagg.primitives.identity import SIGNATURE_BYTES, verifies
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.shamir import BadSharesError, Interpolation, combine, decode, is_share, without_one
from secagg.rounds import Round, RoundState, ServerRounds
from secagg.sessions import PartyId
from secagg.sums import NO_SECRETS, PartySecrets
from secagg.wire import MessageType, Reader, write_parties

if TYPE_CHECKING:
    from secagg.masked.protocol import MaskedSum


@dataclass(slots=True, kw_only=True, eq=False)
class MaskedServerState(RoundState):
    """State of the server: the round, the clients' messages and revealed shares, the survivors and the running sum."""

    sum: RunningSum
    keys: dict[PartyId, AdvertisedKeys] = field(default_factory=dict)
    sealed: dict[PartyId, SealedShares] = field(default_factory=dict)
    peers: dict[PartyId, bytes] = field(default_factory=dict)
    """Each client's signature on its masking peers, on sparse graphs with identities."""
    survivors: frozenset[PartyId] = frozenset()
    signatures: dict[PartyId, bytes] = field(default_factory=dict)
    revealed: dict[PartyId, UnmaskShares] = field(default_factory=dict)
    disputes: list[tuple[PartyId, PartyId]] = field(default_factory=list)


class MaskedServer(ServerRounds[MaskedServerState]):
    """Server S of Bonawitz et al., CCS 2017, Fig. 4. The module docstring lists the calls in order.

    The sets of the paper: U1 advertised keys, U2 shared secrets, U3 sent a masked vector, U4 signed the survivors, U5
    revealed shares. Each is a subset of the one before. Masked vectors are added as they arrive and not stored.
    """

    _config: MaskedSum

    def __init__(self, config: MaskedSum, *, secrets: PartySecrets = NO_SECRETS) -> None:
        first = Round.of(MessageType.ADVERTISED_KEYS, config.clients)
        ServerRounds.__init__(self, config, MaskedServerState(round=first, sum=config.encoder.begin(config)), secrets)
        self._owners: dict[bytes, PartyId] = {}
        self._begun = False
        self._statement = self._signed_peers = b""
        self._interpolations: dict[tuple[int, ...], Interpolation] = {}

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of a snapshot."""
        ServerRounds.restore(self, snapshot)
        keys = self._kept.keys.items()
        self._owners = {key: party for party, entry in keys for key in (entry.sealing_key, entry.masking_key)}

    def begin_sum(self, config: MaskedSum) -> None:
        """Provide layout and context of the sum to a server that was set up ahead.

        Raises:
            LocalProtocolError: the sum has begun before.
            ConfigurationError: ``config`` belongs to another set-up.
        """
        if self._begun or self._current().answer not in SETUP_MESSAGES:
            raise LocalProtocolError("the sum of this server has begun; it takes the one it was set up for, once")
        if config.setup_digest != self._config.setup_digest:
            raise ConfigurationError("the sum differs from its set-up in session, cohort, graph, threshold or roster")
        self._config, self._kept.sum, self._begun = config, config.encoder.begin(config), True

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process one message of the current round; a refused message changes nothing."""
        with self._taking() as round_:
            frame = self._due(round_, sender, message)
            take: dict[MessageType, Callable[[PartyId, Reader], None]] = {
                MessageType.ADVERTISED_KEYS: partial(self._take_keys, signature=frame.signature),
                MessageType.SEALED_SHARES: self._take_sealed_shares,
                MessageType.MASKED_INPUT: self._take_masked_vector,
                MessageType.SURVIVOR_SIGNATURE: self._take_survivor_signature,
                MessageType.UNMASK_SHARES: self._take_unmask_shares,
                MessageType.DECRYPTED_SUM: self._take_decrypted_sum,
            }
            take[round_.answer](sender, Reader(frame.payload, peer=sender, max_entries=len(self._config.clients)))
            round_.accept(sender)

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round and return the next messages by recipient; empty after the last round."""
        close: dict[MessageType, Callable[[frozenset[PartyId]], Mapping[PartyId, bytes]]] = {
            MessageType.ADVERTISED_KEYS: self._send_rosters,
            MessageType.SEALED_SHARES: self._deliver_shares,
            MessageType.MASKED_INPUT: self._request_unmasking,
            MessageType.SURVIVOR_SIGNATURE: self._send_proof,
            MessageType.UNMASK_SHARES: self._unmask,
            MessageType.DECRYPTED_SUM: self._release,
        }
        with self._closing() as round_:
            self._need_enough(round_)
            return close[round_.answer](frozenset(round_.answered))

    # Round 0, AdvertiseKeys

    def _take_keys(self, sender: PartyId, reader: Reader, *, signature: bytes) -> None:
        keys = AdvertisedKeys.read(reader, signature=signature)
        both = (keys.sealing_key, keys.masking_key)
        if keys.sealing_key == keys.masking_key:
            raise RemoteProtocolError("it advertised one key for two uses; it must draw two", peer=sender)
        if owners := [self._owners[key] for key in both if key in self._owners]:
            raise RemoteProtocolError(
                f"every client draws keys of its own, and parties {owners[0]} and {sender} sent the same one: one of "
                f"them copied it, and their signatures do not show which. The keys that came first are used; ask both"
            )
        try:
            check_public_key(keys.sealing_key)
            check_public_key(keys.masking_key)
        except BadPublicKeyError as error:
            raise RemoteProtocolError(
                "it advertised a key of small order; it must draw a fresh one", peer=sender
            ) from error
        self._owners |= dict.fromkeys(both, sender)
        self._kept.keys[sender] = keys

    def _send_rosters(self, advertised: frozenset[PartyId]) -> Mapping[PartyId, bytes]:
        self._ask(MessageType.SEALED_SHARES, advertised)
        return {
            party: self._seal_message(
                MessageType.ROSTER,
                Roster(keys={peer: self._kept.keys[peer] for peer in self._near(party, advertised)}).to_payload(),
                party,
            )
            for party in sorted(advertised)
        }

    # Round 1, ShareKeys

    def _take_sealed_shares(self, sender: PartyId, reader: Reader) -> None:
        message = SealedShares.read(reader)
        due = set(self._near(sender, self._kept.keys.keys()))
        if message.sealed.keys() != due:
            raise RemoteProtocolError(
                f"it must seal shares for exactly the {len(due)} neighbours of its roster, not {len(message.sealed)}",
                peer=sender,
            )
        self._kept.sealed[sender] = message

    def _deliver_shares(self, shared: frozenset[PartyId]) -> Mapping[PartyId, bytes]:
        self._ask(MessageType.MASKED_INPUT, shared)
        absent = self._absent if self._config.signs_peers else None
        return {
            party: self._seal_message(
                MessageType.SHARE_DELIVERY,
                ShareDelivery(
                    sealed={peer: self._kept.sealed[peer].sealed[party] for peer in self._near(party, shared)},
                    absent=absent,
                ).to_payload(),
                party,
            )
            for party in sorted(shared)
        }

    # Round 2, MaskedInputCollection

    def _take_masked_vector(self, sender: PartyId, reader: Reader) -> None:
        if self._config.signs_peers:
            signature = reader.take(SIGNATURE_BYTES)
            if not verifies(self._config.identity(sender), signature, self._peers_statement()):
                raise RemoteProtocolError("its signature is not one on whom it masked with", peer=sender)
        self._kept.sum.add(reader.rest_view(), peer=sender)
        if self._config.signs_peers:
            self._kept.peers[sender] = signature

    def _request_unmasking(self, survivors: frozenset[PartyId]) -> Mapping[PartyId, bytes]:
        unrecoverable = self._config.unrecoverable(survivors)
        if unrecoverable is not None:
            raise TooFewSurvivorsError(
                stage=f"{MessageType.MASKED_INPUT.name} of party {unrecoverable} and of holders of its shares",
                needed=self._config.shares_needed,
                came=len(self._near(unrecoverable, survivors)) + 1,
                cohort=len(self._config.clients),
            )
        self._kept.survivors = survivors
        self._ask(
            MessageType.SURVIVOR_SIGNATURE if self._config.is_authenticated else MessageType.UNMASK_SHARES, survivors
        )
        request = write_parties(self._dropouts)
        return {party: self._seal_message(MessageType.UNMASK_REQUEST, request, party) for party in sorted(survivors)}

    # Round 3, ConsistencyCheck (with identities only)

    def _take_survivor_signature(self, sender: PartyId, reader: Reader) -> None:
        signature = reader.only(SIGNATURE_BYTES)
        if not verifies(self._config.identity(sender), signature, self._survivors_statement()):
            raise RemoteProtocolError("its signature is not one on this sum's survivors", peer=sender)
        self._kept.signatures[sender] = signature

    def _send_proof(self, signed: frozenset[PartyId]) -> Mapping[PartyId, bytes]:
        self._ask(MessageType.UNMASK_SHARES, signed)
        enough = sorted(signed)[: self._config.signatures_needed]
        signatures = {party: self._kept.signatures[party] for party in enough}
        return {
            party: self._seal_message(
                MessageType.SURVIVOR_PROOF,
                SurvivorProof(signatures=signatures, peers=self._peers_of(party)).to_payload(),
                party,
            )
            for party in sorted(signed)
        }

    def _peers_of(self, party: PartyId) -> dict[PartyId, bytes] | None:
        if not self._config.signs_peers:
            return None
        return {peer: self._kept.peers[peer] for peer in self._near(party, self._kept.survivors)}

    # Round 4, Unmasking

    def _take_unmask_shares(self, sender: PartyId, reader: Reader) -> None:
        shares = UnmaskShares.read(reader)
        dropouts = set(self._near(sender, self._kept.sealed.keys())) - self._kept.survivors
        survivors = {sender, *self._near(sender, self._kept.survivors)}
        if shares.mask_key_shares.keys() != dropouts or shares.self_mask_shares.keys() != survivors:
            raise RemoteProtocolError(
                f"it must reveal one share of each of {len(dropouts)} dropouts and {len(survivors)} survivors, "
                f"not of {len(shares.mask_key_shares)} and {len(shares.self_mask_shares)}",
                peer=sender,
            )
        self._kept.revealed[sender] = shares

    def _unmask(self, helped: frozenset[PartyId]) -> Mapping[PartyId, bytes]:
        masks: list[tuple[bytes, int]] = [(self._self_mask_seed(party), -1) for party in sorted(self._kept.survivors)]
        for dropout in sorted(self._kept.sealed.keys() - self._kept.survivors):
            masks += self._masks_shared_with(dropout)
        add_masks(self._kept.sum.words, masks, self._config.digest)
        self._kept.revealed = {}
        decryption_request = self._kept.sum.decryption_request(tuple(sorted(self._kept.survivors)))
        if decryption_request is None:
            return self._release(helped)
        (holder,) = self._config.helpers  # asked last, when it is certain that its answer gives a total
        self._ask(MessageType.DECRYPTED_SUM, [holder])
        return {holder: self._seal_message(MessageType.DECRYPTION_REQUEST, decryption_request, holder)}

    # Where vectors are encrypted too: the key holder decrypts the masked sum, which is short of its masks by now

    def _take_decrypted_sum(self, sender: PartyId, reader: Reader) -> None:
        self._kept.sum.add_decrypted(reader)

    def _release(self, answered: frozenset[PartyId]) -> Mapping[PartyId, bytes]:
        return self._end(self._kept.sum.words, self._kept.survivors, disputes=self._kept.disputes)

    def _self_mask_seed(self, survivor: PartyId) -> bytes:
        shares = {
            p: m.self_mask_shares[survivor]
            for p, m in self._revealed_of(survivor).items()
            if survivor in m.self_mask_shares
        }
        committed = self._kept.sealed[survivor].commitment
        return self._rebuilt(
            survivor,
            shares,
            lambda seed: self_mask_commitment(seed, self._config.setup_digest, survivor) == committed,
        )

    def _masks_shared_with(self, dropout: PartyId) -> list[tuple[bytes, int]]:
        """Return seeds and signs of the pairwise masks between a dropout and the survivors, which did not cancel."""
        revealed = self._revealed_of(dropout).items()
        shares = {p: m.mask_key_shares[dropout] for p, m in revealed if dropout in m.mask_key_shares}
        public = self._kept.keys[dropout].masking_key
        masking = KeyPair(self._rebuilt(dropout, shares, lambda secret: KeyPair(secret).public == public))
        return [
            (
                pairwise_seed(masking, self._kept.keys[survivor].masking_key, self._config.digest),
                -pairwise_sign(survivor, dropout),
            )
            for survivor in self._near(dropout, self._kept.survivors)
        ]

    def _rebuilt(self, owner: PartyId, shares: dict[PartyId, bytes], is_right: Callable[[bytes], bool]) -> bytes:
        """Reconstruct a secret from enough shares; wrong ones among them are identified and left out from then on."""
        needed = self._config.shares_needed
        if len(shares) < needed:
            raise TooFewSurvivorsError(
                stage=f"{MessageType.UNMASK_SHARES.name} about party {owner}",
                needed=needed,
                came=len(shares),
                cohort=len(self._config.clients),
            )
        self._kept.disputes += [(owner, holder) for holder, share in shares.items() if not is_share(share)]
        shares = {holder: share for holder, share in shares.items() if is_share(share)}
        suspects = shares.keys() & {holder for _, holder in self._kept.disputes}
        trusted = sorted(shares.keys() - suspects)
        for secret, agreeing, wrong in self._candidates(shares, trusted + sorted(suspects), len(trusted)):
            if is_right(secret):
                self._dispute(owner, shares, suspects | wrong)
                return secret
            if agreeing >= needed + max(1, self._config.corrupt):  # the honest among them have it from their owner
                raise RemoteProtocolError(
                    "it shared another secret than the one that it is bound to; no sum is released. Start a new "
                    "session without it",
                    peer=owner,
                )
        raise RemoteProtocolError(
            f"the {len(shares)} revealed shares do not rebuild party {owner}'s secret, which takes {needed}: it "
            "shared, or too many others revealed, wrong ones; no sum is released. Start a new session"
        )

    def _candidates(
        self, shares: dict[PartyId, bytes], holders: Sequence[PartyId], n_trusted: int
    ) -> Iterator[tuple[bytes, int, set[PartyId]]]:
        """Yield candidate secrets, each with the number of shares that agree and the holders of those that do not.

        The most likely candidates come first. Suspects are left out at first: a wrong share then costs one spare share
        and not two. With one spare share each of the others is left out in turn, since a right secret is recognised.
        """
        needed, holder_of = self._config.shares_needed, {self._config.point(holder): holder for holder in holders}
        at_points = {point: shares[holder] for point, holder in holder_of.items()}
        first = dict(islice(at_points.items(), needed))
        with suppress(BadSharesError):
            yield combine(first, self._interpolation(tuple(first)).weights()), needed, set()
        for among in (n_trusted, len(holders)):
            some = dict(islice(at_points.items(), among))
            with suppress(BadSharesError):
                secret, wrong = decode(some, needed)
                yield secret, among - len(wrong), {holder_of[point] for point in wrong}
            if among == needed + 1:
                yield from ((secret, needed, {holder_of[point]}) for point, secret in without_one(some))

    def _dispute(self, owner: PartyId, shares: dict[PartyId, bytes], doubtful: set[PartyId]) -> None:
        """Record which of the doubtful shares do not belong to the reconstructed secret."""
        if not doubtful:
            return
        needed, point = self._config.shares_needed, self._config.point
        right = sorted(shares, key=lambda holder: (holder in doubtful, holder))[:needed]
        over = self._interpolation(tuple(map(point, right)))
        values = [shares[holder] for holder in right]
        self._kept.disputes += [
            (owner, holder) for holder in sorted(doubtful) if over.share(values, at=point(holder)) != shares[holder]
        ]

    def _interpolation(self, points: tuple[int, ...]) -> Interpolation:
        if points not in self._interpolations:
            self._interpolations[points] = Interpolation(points)
        return self._interpolations[points]

    def _near(self, party: PartyId, among: Container[PartyId]) -> list[PartyId]:
        """Return the neighbours of ``party`` among these parties, ascending; takes no longer for a larger cohort."""
        return [peer for peer in self._config.neighbours(party) if peer in among]

    def _revealed_of(self, party: PartyId) -> dict[PartyId, UnmaskShares]:
        """Return the shares revealed by those who can hold some of a party's: its neighbours, and itself."""
        holders = sorted([party, *self._config.neighbours(party)])
        return {holder: self._kept.revealed[holder] for holder in holders if holder in self._kept.revealed}

    def _peers_statement(self) -> bytes:
        if not self._signed_peers:
            self._signed_peers = peers_statement(self._absent, self._config.digest)
        return self._signed_peers

    def _survivors_statement(self) -> bytes:
        if not self._statement:
            self._statement = survivors_statement(self._dropouts, self._config.digest)
        return self._statement

    @property
    def _absent(self) -> tuple[PartyId, ...]:
        """Clients of the cohort that shared no secrets."""
        return tuple(party for party in self._config.clients if party not in self._kept.sealed)

    @property
    def _dropouts(self) -> tuple[PartyId, ...]:
        """Clients of the cohort that are not in the sum."""
        return tuple(party for party in self._config.clients if party not in self._kept.survivors)

    def _ask(self, answer: MessageType, parties: Iterable[PartyId]) -> None:
        self._kept.round = Round.of(answer, parties)

    def _need_enough(self, round_: Round) -> None:
        """Refuse to close a round with too few answers: the minimum of survivors, in the last round the threshold."""
        config = self._config
        if round_.answer is MessageType.DECRYPTED_SUM:
            round_.need_all()
            return
        needed = {
            MessageType.SURVIVOR_SIGNATURE: config.signatures_needed,
            MessageType.UNMASK_SHARES: config.shares_needed,
        }.get(round_.answer, config.survivors_needed)
        round_.need(needed)
