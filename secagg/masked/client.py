"""The client of a masked sum: Bonawitz et al., CCS 2017, Fig. 4.

A client session is created by ``MaskedSum.client`` and used in this order:

1. ``start()`` returns ADVERTISED_KEYS: two fresh public keys.
2. ``receive(roster)`` returns SEALED_SHARES: shares of the mask key and of the self-mask seed, encrypted to neighbours.
3. ``receive(delivery)`` returns MASKED_INPUT: y = x + PRG(b) + sum of +-PRG(s_uv) over the neighbours that shared.
4. With identities only: ``receive(request)`` returns SURVIVOR_SIGNATURE, a signature on the survivors.
5. ``receive(request)``, with identities ``receive(proof)``, returns UNMASK_SHARES: for every neighbour either the share
   of its mask key (a dropout) or of its self-mask seed (a survivor), never both. The session is done.

The caller transports the bytes. Any message that violates the protocol aborts the session and erases its secrets; a
message of another session or a repeated one changes nothing.

>>> import numpy as np
>>> from secagg import Layout, MaskedSum, new_session_id
>>> layout = Layout.of([("counts", 2, 100)])
>>> protocol = MaskedSum(layout=layout, clients=(1, 2, 3), session_id=new_session_id())
>>> client = protocol.client(1, np.array([3, 4]))
>>> keys = client.start()  # send it to the server; give every message that comes back to receive()
>>> client.state.value
'keys sent'
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from secagg.client_input import check_now, resolve
from secagg.config import SERVER
from secagg.entropy import Entropy
from secagg.errors import ConfigurationError, LocalProtocolError, RemoteProtocolError, RepeatedMessageError
from secagg.masked.messages import (
    AdvertisedKeys,
    Roster,
    SealedShares,
    ShareDelivery,
    SurvivorProof,
    UnmaskShares,
)
from secagg.masked.secrets import (
    keys_are_signed,
    pairwise_seed,
    pairwise_sign,
    peers_statement,
    seal_binding,
    sealing_key,
    self_mask_commitment,
    sign_peers,
    sign_survivors,
    survivors_statement,
)
from secagg.masked.states import AUTHENTICATED_CLIENT, SEMI_HONEST_CLIENT, ClientState
from secagg.party import Party
from secagg.primitives.agreement import BadPublicKeyError, KeyPair
from secagg.primitives.identity import verifies
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal
from secagg.primitives.shamir import SHARE_BYTES, split
from secagg.sessions import ClientInput, PartyId
from secagg.snapshots import CLIENT, Stored, binding
from secagg.sums import NO_SECRETS, PartySecrets
from secagg.wire import MessageType, Reader, read_parties

if TYPE_CHECKING:
    from secagg.masked.protocol import MaskedSum

_Payload = tuple[bytes, Iterable[bytes | memoryview]]
"""A message's payload: its beginning, and the parts of a vector, made while they are written."""


@dataclass(slots=True, eq=False, repr=False)
class ClientSecrets:
    """Secrets of a client, erased when its session ends."""

    sealing: KeyPair
    masking: KeyPair
    self_mask_seed: bytes = b""
    shares: dict[PartyId, bytes] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class MaskedClientState:
    """State of a client: its secrets until they are erased, and what it received.

    Store the state *before* sending the answer that led to it. A client restored from an older state would answer a
    second time, which the protocol forbids (``DurableClient`` keeps this order).
    """

    state: ClientState = ClientState.READY
    secrets: ClientSecrets | None
    roster: dict[PartyId, AdvertisedKeys] = field(default_factory=dict)
    absent: frozenset[PartyId] = frozenset()
    """Clients that shared no secrets, as received from the server and signed with the vector."""
    dropouts: frozenset[PartyId] = frozenset()
    taken: set[bytes] = field(default_factory=set)
    """Hashes of the answered messages."""


class MaskedClient(Party, Stored[MaskedClientState]):
    """Client u of Bonawitz et al., CCS 2017, Fig. 4. The module docstring lists the calls in order.

    Args:
        config: the public parameters, from this client's own knowledge.
        party: number of the client.
        client_input: its vector, or a callable that returns it; None during a set-up ahead of the sum (``begin_sum``
            provides it).
        secrets: its signing key, with identities, and its approval callback.
        entropy: source of its keys, seeds and shares.
    """

    _config: MaskedSum

    def __init__(
        self,
        config: MaskedSum,
        party: PartyId,
        client_input: ClientInput | None,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy,
    ) -> None:
        config.index(party)
        if client_input is not None:
            check_now(config.layout, client_input, len(config.clients))
        Party.__init__(self, config, party, secrets)
        self._table = AUTHENTICATED_CLIENT if config.is_authenticated else SEMI_HONEST_CLIENT
        self._entropy = entropy
        self._client_input = client_input
        secrets_ = ClientSecrets(sealing=KeyPair.generate(entropy), masking=KeyPair.generate(entropy))
        self._kept = MaskedClientState(secrets=secrets_)

    @property
    def state(self) -> ClientState:
        """State of the session."""
        return self._kept.state

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored."""
        return binding(CLIENT, self._config.digest, self.party)

    @property
    def setup_digest(self) -> bytes:
        """Digest in the header of the set-up messages."""
        return self._config.setup_digest

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of a snapshot; a vector that was sent is erased."""
        Stored.restore(self, snapshot)
        if self.state not in (ClientState.READY, ClientState.KEYS_SENT, ClientState.SHARES_SENT):
            self._client_input = None

    def start(self) -> bytes:
        """Return the message of round 0, AdvertiseKeys: two fresh public keys."""
        if self.state is not ClientState.READY:
            raise LocalProtocolError(f"start() begins a session once; this one is {self.state.value}")
        self._kept.state = ClientState.KEYS_SENT
        keys = AdvertisedKeys(sealing_key=self._own.sealing.public, masking_key=self._own.masking.public)
        return self._seal_message(MessageType.ADVERTISED_KEYS, keys.to_payload())

    def begin_sum(self, config: MaskedSum, client_input: ClientInput) -> None:
        """Provide layout, context and vector of the sum to a client that was set up ahead.

        Raises:
            LocalProtocolError: the sum has begun before.
            ConfigurationError: ``config`` belongs to another set-up.
        """
        if self._client_input is not None or self.state not in (ClientState.KEYS_SENT, ClientState.SHARES_SENT):
            raise LocalProtocolError(f"this client is {self.state.value}; it takes the sum it was set up for, once")
        if config.setup_digest != self.setup_digest:
            raise ConfigurationError("the sum differs from its set-up in session, cohort, graph, threshold or roster")
        check_now(config.layout, client_input, len(config.clients))
        self._config, self._client_input = config, client_input

    def receive(self, message: bytes) -> bytes:
        """Return the answer to the server's next message; see ``ClientSession.receive`` for the errors."""
        frame = self._open_message(message)
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint in self._kept.taken:
            raise RepeatedMessageError(f"this {frame.type.name} was answered already", peer=SERVER)
        if self.state not in self._table:
            raise LocalProtocolError(f"this client is {self.state.value} and takes no {frame.type.name}")
        due, next_state, answer_type = self._table[self.state]
        if due is MessageType.SHARE_DELIVERY is frame.type and self._client_input is None:
            raise LocalProtocolError("the set-up is complete, but begin_sum() has brought no vector yet")
        answers: dict[MessageType, Callable[[Reader], _Payload]] = {
            MessageType.ROSTER: self._share_secrets,
            MessageType.SHARE_DELIVERY: self._mask_vector,
            MessageType.UNMASK_REQUEST: self._agree_on_survivors,
            MessageType.SURVIVOR_PROOF: self._check_proof_and_reveal,
        }
        try:
            if frame.type is not due:
                raise RemoteProtocolError(f"{due.name} is due, {frame.type.name} came", peer=SERVER)
            reader = Reader(frame.payload, peer=SERVER, max_entries=len(self._config.clients))
            payload, vector = answers[due](reader)
            answer = self._seal_message(answer_type, payload, vector=vector)
        except BaseException:
            self._forget(ClientState.ABORTED)
            raise
        self._kept.taken.add(fingerprint)
        self._kept.state = next_state
        if next_state is ClientState.DONE:
            self._forget(ClientState.DONE)
        return answer

    # Round 1, ShareKeys: shares of s^SK and of a fresh self-mask seed b, sealed to each neighbour

    def _share_secrets(self, reader: Reader) -> _Payload:
        self._kept.roster = Roster.read(reader, signature_bytes=self._config.signature_bytes).keys
        self._check_roster()
        own = self._own
        own.self_mask_seed = self._entropy(32)
        points = {holder: self._config.point(holder) for holder in sorted([self.party, *self._kept.roster])}
        of_key = self._split(own.masking.secret, points)
        of_seed = self._split(own.self_mask_seed, points)
        pairs = {holder: of_key[point] + of_seed[point] for holder, point in points.items()}
        own.shares = {self.party: pairs.pop(self.party)}
        shares = SealedShares(
            commitment=self_mask_commitment(own.self_mask_seed, self._config.setup_digest, self.party),
            sealed={holder: self._seal(holder, pair) for holder, pair in pairs.items()},
        )
        return shares.to_payload(), ()

    def _check_roster(self) -> None:
        strangers = self._kept.roster.keys() - set(self._config.neighbours(self.party))
        if strangers:
            raise RemoteProtocolError(
                f"the roster lists {len(strangers)} parties that are no neighbours of this client", peer=SERVER
            )
        self._need_holders(len(self._kept.roster) + 1, "advertised keys")
        keys = [key for entry in self._kept.roster.values() for key in (entry.sealing_key, entry.masking_key)]
        keys += [self._own.sealing.public, self._own.masking.public]
        if len(set(keys)) != len(keys):
            raise RemoteProtocolError("the roster lists one public key twice; every key must differ", peer=SERVER)
        if not self._config.is_authenticated:
            return
        for party, entry in self._kept.roster.items():
            if not keys_are_signed(self._config, entry, party):
                raise RemoteProtocolError(
                    f"the keys listed for party {party} are not signed by its identity for this session: "
                    "the server, or somebody between, swapped them",
                    peer=SERVER,
                )

    def _split(self, secret: bytes, points: dict[PartyId, int]) -> dict[int, bytes]:
        needed = self._config.shares_needed
        return split(secret, threshold=needed, points=list(points.values()), entropy=self._entropy)

    # Round 2, MaskedInputCollection: y = x + PRG(b) + sum of +-PRG(s_uv)

    def _mask_vector(self, reader: Reader) -> _Payload:
        delivery = ShareDelivery.read(reader, signs_peers=self._config.signs_peers)
        sealed = delivery.sealed
        strangers = sealed.keys() - self._kept.roster.keys()
        if strangers:
            raise RemoteProtocolError(f"shares came from {len(strangers)} parties outside the roster", peer=SERVER)
        self._need_holders(len(sealed) + 1, "shared their secrets")
        if delivery.absent is not None:
            self._kept.absent = frozenset(delivery.absent)
            self._check_absent(sealed.keys())
        self._own.shares |= {sender: self._open(sender, box) for sender, box in sealed.items()}
        assert self._client_input is not None
        vector = resolve(self._config.layout, self._client_input, len(self._config.clients))
        if self._identity is None:
            self._ask_consent(None)
        self._client_input, signature = None, b""
        if self._identity is not None and self._config.signs_peers:
            signature = sign_peers(self._identity, self._kept.absent, self._config.digest)
        return signature, self._config.encoder.encode(vector, self._config, self._masks())

    def _check_absent(self, came: Collection[PartyId]) -> None:
        """Refuse a delivery without the shares of exactly those neighbours that shared secrets."""
        absent = self._kept.absent
        if not absent <= set(self._config.clients) - {self.party} or (
            set(self._config.neighbours(self.party)) - absent != set(came)
        ):
            raise RemoteProtocolError(
                f"the server says that {len(absent)} parties shared nothing, but not the shares of exactly all other "
                "neighbours came; the vector is masked with all that share or with none",
                peer=SERVER,
            )

    def _masks(self) -> list[tuple[bytes, int]]:
        masks = [(self._own.self_mask_seed, 1)]
        for peer in sorted(self._own.shares.keys() - {self.party}):
            try:
                seed = pairwise_seed(self._own.masking, self._kept.roster[peer].masking_key, self._config.digest)
            except BadPublicKeyError as error:
                raise RemoteProtocolError(f"party {peer}'s masking key is no safe key", peer=SERVER) from error
            masks.append((seed, pairwise_sign(self.party, peer)))
        return masks

    # Round 3, ConsistencyCheck (with identities only)

    def _agree_on_survivors(self, reader: Reader) -> _Payload:
        self._kept.dropouts = frozenset(read_parties(reader))
        strangers = self._kept.dropouts - set(self._config.clients)
        if strangers:
            raise RemoteProtocolError(
                f"the unmask request names {len(strangers)} dropouts outside the cohort", peer=SERVER
            )
        unshared = set(self._config.neighbours(self.party)) - self._kept.dropouts - self._own.shares.keys()
        if unshared:
            raise RemoteProtocolError(
                f"the unmask request makes survivors of {len(unshared)} neighbours that shared no secret with this "
                "client; a sum without their masks is not the one that was agreed on",
                peer=SERVER,
            )
        if self.party in self._kept.dropouts:
            raise RemoteProtocolError("the unmask request calls this client a dropout, but asks it", peer=SERVER)
        survivors, needed = len(self._config.clients) - len(self._kept.dropouts), self._config.survivors_needed
        if survivors < needed:
            raise RemoteProtocolError(
                f"a total holds at least {needed} clients, the server names {survivors} survivors; nothing is revealed",
                peer=SERVER,
            )
        if self._identity is None:
            return self._revealed()
        self._check_parts()
        self._ask_consent(tuple(sorted(set(self._config.clients) - self._kept.dropouts)))
        signature = sign_survivors(self._identity, self._kept.dropouts, self._config.digest)
        return signature, ()

    def _check_parts(self) -> None:
        """Refuse survivors whose masking graph could be disconnected: see docs/explanation/expander.md."""
        if not self._kept.absent <= self._kept.dropouts:
            raise RemoteProtocolError(
                f"the unmask request makes survivors of some of the {len(self._kept.absent)} parties that shared "
                "nothing, as this client was told and signed; nothing is revealed",
                peer=SERVER,
            )
        unrecoverable = self._config.unrecoverable(set(self._config.clients) - self._kept.dropouts)
        if unrecoverable is not None:
            raise RemoteProtocolError(
                f"{self._config.shares_needed} survivors must hold shares of each survivor, the unmask request leaves "
                f"party {unrecoverable} fewer; nothing is revealed",
                peer=SERVER,
            )

    def _check_proof_and_reveal(self, reader: Reader) -> _Payload:
        proof = SurvivorProof.read(reader, signs_peers=self._config.signs_peers)
        signatures = proof.signatures
        strangers = signatures.keys() - (set(self._config.clients) - self._kept.dropouts)
        if strangers:
            raise RemoteProtocolError(f"{len(strangers)} signatures are not from survivors", peer=SERVER)
        needed = self._config.signatures_needed
        if len(signatures) < needed:
            raise RemoteProtocolError(
                f"{needed} survivors must have signed the same survivor set, {len(signatures)} signatures came; "
                "nothing is revealed",
                peer=SERVER,
            )
        told = survivors_statement(self._kept.dropouts, self._config.digest)
        self._check_signed(signatures, told, "sign the survivor set that this client was told")
        if proof.peers is not None:
            self._check_peers(proof.peers)
        return self._revealed()

    def _check_peers(self, signed: dict[PartyId, bytes]) -> None:
        """Refuse to reveal shares unless every surviving neighbour signed the same set of masking peers."""
        told = peers_statement(self._kept.absent, self._config.digest)
        near = set(self._config.neighbours(self.party)) - self._kept.dropouts
        if signed.keys() != near:
            raise RemoteProtocolError(
                f"exactly the {len(near)} surviving neighbours must have signed whom they masked with, {len(signed)} "
                "signatures came; nothing is revealed",
                peer=SERVER,
            )
        self._check_signed(signed, told, "mask with all that this client was told had shared")

    def _check_signed(self, signatures: Mapping[PartyId, bytes], told: bytes, deed: str) -> None:
        """Refuse to reveal shares unless every signature is of what this client was told."""
        for party, signature in signatures.items():
            if not verifies(self._config.identity(party), signature, told):
                raise RemoteProtocolError(
                    f"party {party} did not {deed}: the server told different clients different things, or forged; "
                    "nothing is revealed",
                    peer=SERVER,
                )

    # Round 4, Unmasking: for each peer the share of its mask key or that of its self-mask, never both

    def _revealed(self) -> _Payload:
        shares, dropouts = self._own.shares, self._kept.dropouts
        revealed = UnmaskShares(
            mask_key_shares={party: pair[:SHARE_BYTES] for party, pair in shares.items() if party in dropouts},
            self_mask_shares={party: pair[SHARE_BYTES:] for party, pair in shares.items() if party not in dropouts},
        )
        return revealed.to_payload(), ()

    def _need_holders(self, came: int, did_what: str) -> None:
        needed = self._config.shares_needed
        if came < needed:
            raise RemoteProtocolError(
                f"at least {needed} clients must have {did_what}, the server names {came} (this one included); "
                "nothing more is sent in this session",
                peer=SERVER,
            )

    def _seal(self, recipient: PartyId, pair: bytes) -> bytes:
        key = self._sealing_key(recipient, sender=self.party, recipient=recipient)
        binding = self._seal_binding(sender=self.party, recipient=recipient)
        return seal(key, pair, binding, entropy=self._entropy)

    def _open(self, sender: PartyId, sealed: bytes) -> bytes:
        key = self._sealing_key(sender, sender=sender, recipient=self.party)
        try:
            return open_sealed(key, sealed, self._seal_binding(sender=sender, recipient=self.party))
        except SealBrokenError as error:
            raise RemoteProtocolError(
                f"the shares that party {sender} sealed do not open: forged, replayed or changed on the way, or the "
                "two of you were told different masking keys",
                peer=SERVER,
            ) from error

    def _seal_binding(self, *, sender: PartyId, recipient: PartyId) -> bytes:
        own, peer = (
            self._own.masking.public,
            self._kept.roster[recipient if sender == self.party else sender].masking_key,
        )
        keys = (own, peer) if sender == self.party else (peer, own)
        return seal_binding(self._config.setup_digest, sender, recipient, *keys)

    def _sealing_key(self, peer: PartyId, *, sender: PartyId, recipient: PartyId) -> bytes:
        peer_key, setup = self._kept.roster[peer].sealing_key, self._config.setup_digest
        try:
            return sealing_key(self._own.sealing, peer_key, setup, sender, recipient)
        except BadPublicKeyError as error:
            raise RemoteProtocolError(f"party {peer}'s sealing key is no safe key", peer=SERVER) from error

    @property
    def _own(self) -> ClientSecrets:
        if self._kept.secrets is None:
            raise LocalProtocolError(f"this client is {self.state.value} and has forgotten its secrets")
        return self._kept.secrets

    def _forget(self, state: ClientState) -> None:
        """Enter a final state and erase every secret (Python may keep copies in memory: see the threat model)."""
        self._kept.state, self._kept.secrets, self._kept.roster = state, None, {}
        self._client_input = None
