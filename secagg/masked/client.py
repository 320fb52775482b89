"""A client of a masked sum."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from secagg.config import SERVER
from secagg.contribution import check_now, resolve
from secagg.entropy import Entropy
from secagg.errors import LocalProtocolError, RemoteProtocolError, RepeatedMessageError
from secagg.masked.config import MaskedSum
from secagg.masked.messages import (
    AdvertisedKeys,
    Roster,
    SealedShares,
    ShareDelivery,
    UnmaskRequest,
    UnmaskShares,
)
from secagg.masked.secrets import pairwise_seed, pairwise_sign, seal_binding, sealing_key, self_mask_commitment
from secagg.masked.states import CLIENT_TRANSITIONS, ClientState
from secagg.primitives.agreement import BadPublicKeyError, KeyPair
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal
from secagg.primitives.shamir import SHARE_BYTES, split
from secagg.ring import RingVector
from secagg.sessions import Contribution, PartyId
from secagg.wire import MessageType, Reader, open_frame, seal_frame


@dataclass(slots=True, eq=False, repr=False)
class _Secrets:
    """All that must be forgotten when the session ends."""

    contribution: Contribution
    sealing: KeyPair
    masking: KeyPair
    self_mask_seed: bytes = b""
    shares: dict[PartyId, bytes] = field(default_factory=dict)


class MaskedClient:
    """u's side of Bonawitz et al. 2017, Fig. 4. Every fault but a foreign or repeated message aborts it."""

    def __init__(self, config: MaskedSum, party: PartyId, contribution: Contribution, *, entropy: Entropy) -> None:
        config.index(party)
        check_now(config.layout, contribution)
        self.party = party
        self.state = ClientState.READY
        self._config = config
        self._entropy = entropy
        self._secrets: _Secrets | None = _Secrets(
            contribution=contribution, sealing=KeyPair.generate(entropy), masking=KeyPair.generate(entropy)
        )
        self._roster: dict[PartyId, AdvertisedKeys] = {}
        self._taken: set[bytes] = set()

    def start(self) -> bytes:
        """Round 0, AdvertiseKeys: two fresh key pairs."""
        if self.state is not ClientState.READY:
            raise LocalProtocolError(f"start() begins a session once; this one is {self.state.value}")
        self.state = ClientState.KEYS_SENT
        keys = AdvertisedKeys(sealing_key=self._own.sealing.public, masking_key=self._own.masking.public)
        return self._message(MessageType.ADVERTISED_KEYS, keys.to_payload())

    def receive(self, message: bytes) -> bytes:
        """Answer the server's next message."""
        frame = open_frame(message, digest=self._config.digest, sender=SERVER, recipient=self.party)
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint in self._taken:
            raise RepeatedMessageError(f"this {frame.type.name} was answered already", peer=SERVER)
        if self.state in (ClientState.READY, ClientState.DONE, ClientState.ABORTED):
            raise LocalProtocolError(f"this client is {self.state.value} and takes no {frame.type.name}")
        due, next_state = CLIENT_TRANSITIONS[self.state]
        try:
            if frame.type is not due:
                raise RemoteProtocolError(f"{due.name} is due, {frame.type.name} came", peer=SERVER)
            answer = self._answers()[due](Reader(frame.payload, peer=SERVER))
        except BaseException:
            self._forget(ClientState.ABORTED)
            raise
        self._taken.add(fingerprint)
        self.state = next_state
        if next_state is ClientState.DONE:
            self._forget(ClientState.DONE)
        return answer

    def _answers(self) -> dict[MessageType, Callable[[Reader], bytes]]:
        return {
            MessageType.ROSTER: self._share_secrets,
            MessageType.SHARE_DELIVERY: self._send_masked_vector,
            MessageType.UNMASK_REQUEST: self._reveal_shares,
        }

    def _share_secrets(self, reader: Reader) -> bytes:
        """Round 1, ShareKeys: shares of s^SK and of a fresh self-mask seed b, sealed to each neighbour."""
        self._roster = Roster.read(reader).keys
        self._check_roster()
        own = self._own
        own.self_mask_seed = self._entropy(32)
        holders = sorted([self.party, *self._roster])
        points = [self._config.point(holder) for holder in holders]
        needed = self._config.shares_needed
        of_key = split(own.masking.secret, threshold=needed, points=points, entropy=self._entropy)
        of_seed = split(own.self_mask_seed, threshold=needed, points=points, entropy=self._entropy)
        pairs = {holder: of_key[p] + of_seed[p] for holder, p in zip(holders, points, strict=True)}
        own.shares = {self.party: pairs.pop(self.party)}
        message = SealedShares(
            commitment=self_mask_commitment(own.self_mask_seed, self._config.digest, self.party),
            sealed={holder: self._seal(holder, pair) for holder, pair in pairs.items()},
        )
        return self._message(MessageType.SEALED_SHARES, message.to_payload())

    def _send_masked_vector(self, reader: Reader) -> bytes:
        """Round 2, MaskedInputCollection: y = x + PRG(b) + sum of +-PRG(s_uv)."""
        sealed = ShareDelivery.read(reader).sealed
        strangers = sealed.keys() - self._roster.keys()
        if strangers:
            raise RemoteProtocolError(f"shares came from {len(strangers)} parties outside the roster", peer=SERVER)
        self._need_enough(len(sealed) + 1, "shared their secrets")
        self._own.shares |= {sender: self._open(sender, box) for sender, box in sealed.items()}
        layout = self._config.layout
        vector = RingVector.encode(layout, resolve(layout, self._own.contribution))
        add_masks(vector, self._masks(), self._config.digest)
        return self._message(MessageType.MASKED_INPUT, vector.to_bytes())

    def _reveal_shares(self, reader: Reader) -> bytes:
        """Round 3, Unmasking: for each peer the share of its mask key or that of its self-mask, never both."""
        dropouts = set(UnmaskRequest.read(reader).dropouts)
        if self.party in dropouts:
            raise RemoteProtocolError("the unmask request calls this client a dropout, but asks it", peer=SERVER)
        all_shares = self._own.shares
        strangers = dropouts - all_shares.keys()
        if strangers:
            raise RemoteProtocolError(
                f"the unmask request names {len(strangers)} dropouts that shared no secret with this client",
                peer=SERVER,
            )
        self._need_enough(len(all_shares) - len(dropouts), "survived")
        shares = UnmaskShares(
            mask_key_shares={p: pair[:SHARE_BYTES] for p, pair in all_shares.items() if p in dropouts},
            self_mask_shares={p: pair[SHARE_BYTES:] for p, pair in all_shares.items() if p not in dropouts},
        )
        return self._message(MessageType.UNMASK_SHARES, shares.to_payload())

    def _check_roster(self) -> None:
        strangers = self._roster.keys() - set(self._config.neighbours(self.party))
        if strangers:
            raise RemoteProtocolError(
                f"the roster lists {len(strangers)} parties that are no neighbours of this client", peer=SERVER
            )
        self._need_enough(len(self._roster) + 1, "advertised keys")
        keys = [key for entry in self._roster.values() for key in (entry.sealing_key, entry.masking_key)]
        keys += [self._own.sealing.public, self._own.masking.public]
        if len(set(keys)) != len(keys):
            raise RemoteProtocolError("the roster lists one public key twice; every key must differ", peer=SERVER)

    def _need_enough(self, came: int, did_what: str) -> None:
        needed = self._config.shares_needed
        if came < needed:
            raise RemoteProtocolError(
                f"at least {needed} clients must have {did_what}, the server names {came} (this one included); "
                "nothing more is sent in this session",
                peer=SERVER,
            )

    def _masks(self) -> list[tuple[bytes, int]]:
        masks = [(self._own.self_mask_seed, 1)]
        for peer in sorted(self._own.shares.keys() - {self.party}):
            try:
                seed = pairwise_seed(self._own.masking, self._roster[peer].masking_key, self._config.digest)
            except BadPublicKeyError as error:
                raise RemoteProtocolError(f"party {peer}'s masking key is no safe key", peer=SERVER) from error
            masks.append((seed, pairwise_sign(self.party, peer)))
        return masks

    def _seal(self, recipient: PartyId, pair: bytes) -> bytes:
        key = self._sealing_key(recipient, sender=self.party, recipient=recipient)
        binding = seal_binding(self._config.digest, self.party, recipient)
        return seal(key, pair, binding, entropy=self._entropy)

    def _open(self, sender: PartyId, sealed: bytes) -> bytes:
        key = self._sealing_key(sender, sender=sender, recipient=self.party)
        try:
            return open_sealed(key, sealed, seal_binding(self._config.digest, sender, self.party))
        except SealBrokenError as error:
            raise RemoteProtocolError(
                f"the shares that party {sender} sealed do not open: forged, replayed or changed on the way",
                peer=SERVER,
            ) from error

    def _sealing_key(self, peer: PartyId, *, sender: PartyId, recipient: PartyId) -> bytes:
        try:
            return sealing_key(
                self._own.sealing, self._roster[peer].sealing_key, self._config.digest, sender, recipient
            )
        except BadPublicKeyError as error:
            raise RemoteProtocolError(f"party {peer}'s sealing key is no safe key", peer=SERVER) from error

    def _message(self, type_: MessageType, payload: bytes) -> bytes:
        return seal_frame(type_, payload, digest=self._config.digest, sender=self.party, recipient=SERVER)

    @property
    def _own(self) -> _Secrets:
        if self._secrets is None:
            raise LocalProtocolError(f"this client is {self.state.value} and has forgotten its secrets")
        return self._secrets

    def _forget(self, state: ClientState) -> None:
        """Enter a final state and drop every secret (Python may keep copies in memory: see the threat model)."""
        self.state = state
        self._secrets = None
        self._roster = {}
