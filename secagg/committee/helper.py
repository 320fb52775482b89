"""A helper of a committee sum: it signs one survivor set and adds up the masks of these clients alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from secagg.committee.messages import (
    BOX_LABEL,
    SET_LABEL,
    MaskRequest,
    MaskSum,
    Parties,
    SeedDelivery,
    SeedEntry,
    SetCertificate,
    SetSignature,
    SumHashes,
    box_binding,
    fingerprint_in,
    mask_seed,
    seeds_by_set,
    set_hash,
    sum_hash,
)
from secagg.config import SERVER
from secagg.errors import ConfigurationError, RemoteProtocolError, RepeatedMessageError
from secagg.party import Party
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import verifies
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import SealBrokenError
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.snapshots import HELPER, Stored, binding
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum

ANSWERS = {
    MessageType.SEED_DELIVERY: MessageType.SEED_COMPLAINTS,
    MessageType.SURVIVOR_SET: MessageType.SET_SIGNATURE,
    MessageType.SET_CERTIFICATE: MessageType.SUM_HASHES,
    MessageType.MASK_REQUEST: MessageType.MASK_SUM,
}
"""What a helper is asked, in this order, and what it says; only the last may come again, for other sets of the same
survivors. Without identities nothing is signed, and the second is left out; with them it may come first, if it names
nobody."""


@dataclass(slots=True, kw_only=True)
class HelperKept:
    """What a helper's stored session says. Its key pair is not in it: that outlives the session."""

    due: MessageType | None = MessageType.SEED_DELIVERY
    """None once it signed that the sum failed."""
    answered: bytes = b""
    """The hash of the request that it answered last; empty before."""
    seeds: dict[PartyId, bytes] = field(default_factory=dict, repr=False)
    """Each client's, one after the other, and what its rows are known by; once the survivors are fixed theirs alone."""
    seed_digests: dict[PartyId, bytes] = field(default_factory=dict)
    """The hash of what each of them said of its seeds."""


class CommitteeHelper(Party, Stored[HelperKept]):
    """Fixes one survivor set a session and answers for that one, as soon as a quorum of helpers signed the same.

    It signs that there are no survivors if it is asked that before: then it takes no mask off, whatever comes.
    A request that it refuses reveals nothing, so it may still answer a better one. A client whose seeds are not what it
    committed to is named, and never how the helper knows: no secret leaves to prove it.

    Its key pair serves many sessions; what it must not do is sign twice in one. Keep its sessions for as long as the
    key lives (``DurableClient`` does).
    """

    _config: CommitteeSum

    def __init__(self, config: CommitteeSum, party: PartyId, *, secrets: PartySecrets) -> None:
        key, public = secrets.boxes, config.helper_key(party)
        if key is None or key.public != public:
            raise ConfigurationError(
                f"the secret key of helper {party} is needed, and "
                + ("none was given" if key is None else "this is another one: its public key differs")
            )
        Party.__init__(self, config, party, secrets)
        self._key: BoxKey | None = key
        self._kept = HelperKept()

    @property
    def snapshot_id(self) -> bytes:
        """What ties a stored session to this one."""
        return binding(HELPER, self._config.digest, self.party)

    def restore(self, snapshot: bytes) -> None:
        """Go where the snapshot says: one that has opened its boxes needs its keys no more."""
        Stored.restore(self, snapshot)
        if self._kept.due is not MessageType.SEED_DELIVERY:
            self._key = None

    def start(self) -> None:
        """Nothing: a helper waits to be asked."""
        return

    def receive(self, message: bytes) -> bytes:
        """What it says to what is due."""
        frame = self._open_message(message)
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint == self._kept.answered:
            raise RepeatedMessageError("this request was answered already", peer=SERVER)
        due, signs = self._kept.due, self._config.is_authenticated
        may_have_failed = signs and due is MessageType.SEED_DELIVERY and frame.type is MessageType.SURVIVOR_SET
        if frame.type is not due and not may_have_failed:
            raise RemoteProtocolError(
                f"{due.name if due else 'nothing'} is due, {frame.type.name} came: a helper fixes one survivor set a "
                "session, of nobody where the sum failed, and answers for that one",
                peer=SERVER,
            )
        answer: dict[MessageType, Callable[[Reader], bytes]] = {
            MessageType.SEED_DELIVERY: self._take_seeds,
            MessageType.SURVIVOR_SET: self._sign_survivors,
            MessageType.SET_CERTIFICATE: self._hash_sums,
            MessageType.MASK_REQUEST: self._send_sums,
        }
        most = max(len(self._config.clients), self._config.seed_sharing.n_seeds)
        payload = answer[frame.type](Reader(frame.payload, peer=SERVER, max_entries=most))
        self._kept.answered = fingerprint
        return self._seal_message(ANSWERS[frame.type], payload)

    def _take_seeds(self, reader: Reader) -> bytes:
        """Open what came; whose seeds are not what it signed is complained of, and not counted by this helper."""
        config, entries = self._config, SeedDelivery.read(reader, self._config).entries
        self._check_number(tuple(entries), config.clients)
        for client, entry in entries.items():
            self._check_signed(client, entry)
        seeds = {client: self._open(client, entry) for client, entry in entries.items()}
        self._kept.seeds = {client: opened for client, opened in seeds.items() if opened}
        self._kept.seed_digests = {
            client: hashlib.sha256(entries[client].statement(config.digest, client)).digest()
            for client in self._kept.seeds
        }
        self._key = None
        signs = config.is_authenticated
        self._kept.due = MessageType.SURVIVOR_SET if signs else MessageType.SET_CERTIFICATE
        return Parties(parties=tuple(client for client, opened in seeds.items() if not opened)).to_payload()

    def _check_signed(self, client: PartyId, entry: SeedEntry) -> None:
        """Refuse what the client did not sign: that is the server's fault, and says nothing of the client."""
        config = self._config
        identity = config.identity_of(client)
        is_its_word = not identity or verifies(identity, entry.signature, entry.statement(config.digest, client))
        if not (is_its_word and entry.holds_box_of(config, self.party)):
            raise RemoteProtocolError(f"the seeds of client {client} are not those that it signed", peer=SERVER)

    def _open(self, client: PartyId, entry: SeedEntry) -> bytes:
        """A client's seeds; empty where they do not open, or are others than it committed to."""
        assert self._key is not None, "boxes are opened once"
        try:
            seeds = self._key.open(entry.box, BOX_LABEL, box_binding(self._config.digest, client, self.party))
        except SealBrokenError:
            return b""
        return seeds if entry.fits(self._config, client, self.party, seeds) else b""

    def _sign_survivors(self, reader: Reader) -> bytes:
        if survivors := Parties.read(reader, self._config).parties:
            self._fix(survivors)
            self._kept.due = MessageType.SET_CERTIFICATE
        else:  # it failed: no mask comes off, and nothing that could take one off is kept
            self._kept.seeds, self._kept.seed_digests, self._kept.due, self._key = {}, {}, None, None
        assert self._identity is not None, "only sums with identities ask for signatures"
        agreed = set_hash(self._config.digest, self._kept.seed_digests)
        return SetSignature(signature=self._identity.sign(SET_LABEL, agreed)).to_payload()

    def _fix(self, survivors: tuple[PartyId, ...]) -> None:
        """Take these survivors as those of the total, once asked whether that is right."""
        self._check_number(survivors, tuple(self._kept.seeds))
        said = {client: fingerprint_in(self._kept.seeds[client]) for client in survivors}
        self._ask_consent(survivors, {client: rows for client, rows in said.items() if rows})
        self._kept.seeds = {client: self._kept.seeds[client] for client in survivors}
        self._kept.seed_digests = {client: self._kept.seed_digests[client] for client in survivors}

    def _check_number(self, survivors: tuple[PartyId, ...], known: tuple[PartyId, ...]) -> None:
        if strangers := set(survivors) - set(known):
            raise RemoteProtocolError(
                f"the request names {len(strangers)} parties outside the cohort, or whose seeds this helper lacks",
                peer=SERVER,
            )
        if len(survivors) < self._config.min_survivors:
            raise RemoteProtocolError(
                f"masks come off sums of at least {self._config.min_survivors} clients, the server names "
                f"{len(survivors)}",
                peer=SERVER,
            )

    def _hash_sums(self, reader: Reader) -> bytes:
        config, certificate = self._config, SetCertificate.read(reader, self._config)
        if not config.is_authenticated:
            self._fix(certificate.survivors)
        self._check_certificate(certificate)
        agreed = set_hash(config.digest, self._kept.seed_digests)
        sums = (sum_hash(agreed, place, self._sum(place)) for place in config.seed_sharing.sets_of(self.party))
        payload = SumHashes(hashes=b"".join(sums)).to_payload()
        self._kept.due = MessageType.MASK_REQUEST
        return payload

    def _check_certificate(self, certificate: SetCertificate) -> None:
        """Refuse survivors that fewer than a quorum of helpers signed: the others may be asked about a second set."""
        config, agreed = self._config, set_hash(self._config.digest, self._kept.seed_digests)
        if certificate.survivors != tuple(self._kept.seeds):
            raise RemoteProtocolError("this helper signed another survivor set", peer=SERVER)
        needed = config.seed_sharing.quorum if config.is_authenticated else 0
        signed = certificate.signers(config, agreed)
        if len(signed) < needed:
            raise RemoteProtocolError(
                f"{needed} helpers must have signed this survivor set, {len(signed)} of the "
                f"{len(certificate.signatures)} signatures are of helpers on it",
                peer=SERVER,
            )

    def _send_sums(self, reader: Reader) -> bytes:
        asked = MaskRequest.read(reader, self._config).sets
        if not asked or not set(asked) <= set(self._config.seed_sharing.sets_of(self.party)):
            raise RemoteProtocolError("it asks for sums of sets that this helper is not in, or for none", peer=SERVER)
        return MaskSum(sums={place: self._sum(place) for place in asked}).to_payload()

    def _sum(self, place: int) -> bytes:
        """The sum of the survivors' masks from the seed of one set."""
        config, vector = self._config, RingVector.zeros(self._config.layout)
        masks = [
            (mask_seed(config.digest, client, place, seeds_by_set(config, self.party, seeds)[place]), 1)
            for client, seeds in self._kept.seeds.items()
        ]
        add_masks(vector, masks, config.digest)
        return vector.to_bytes()
