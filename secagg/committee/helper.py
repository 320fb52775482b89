"""The helper of a committee sum: it signs one survivor set and adds up the masks of these survivors only.

A helper session is created by ``CommitteeSum.helper`` from the helper's key pair. It sends nothing on its own:
``start()`` returns None. Each ``receive(message)`` returns the answer to the server, in this order:

1. SEED_DELIVERY, the clients' encrypted seeds: the helper decrypts and verifies them and answers SEED_COMPLAINTS, the
   clients whose seeds it cannot use. The key pair is erased from the session.
2. With identities only, SURVIVOR_SET: the helper fixes these survivors and answers SET_SIGNATURE. An empty set, also
   accepted as the first message, certifies that the sum failed and ends the session.
3. SET_CERTIFICATE, the survivors with the signatures of a quorum: it answers SUM_HASHES, a hash of the sum of the
   survivors' masks for each of its sets.
4. MASK_REQUEST, for some of these sets: it answers MASK_SUM, the sums themselves. This step may repeat for other sets.

>>> import numpy as np
>>> from secagg import CommitteeSum, Layout, new_session_id
>>> layout = Layout.of([("counts", 2, 100)])
>>> parties = CommitteeSum.generate(layout=layout, clients=(1, 2, 3), session_id=new_session_id(), n_helpers=2)
>>> server, helpers = parties.server(), {helper: parties.helper(helper) for helper in parties.helpers}
>>> for client in parties.clients:
...     server.receive(client, parties.client(client, np.array([client, 1])).start())
>>> while requests := server.close_round():
...     for helper, request in requests.items():
...         server.receive(helper, helpers[helper].receive(request))
>>> server.result.total
array([6, 3])
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from secagg.committee.messages import (
    BOX_LABEL,
    SET_LABEL,
    MaskSum,
    SeedDelivery,
    SeedEntry,
    SetCertificate,
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
from secagg.primitives.mask_stream import masked_pieces
from secagg.primitives.sealing import SealBrokenError
from secagg.sessions import PartyId
from secagg.snapshots import HELPER, Stored, binding
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader, read_parties, write_parties

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum

_Payload = tuple[bytes, Iterable[bytes | memoryview]]
"""A message's payload: its beginning, and the parts of vectors, made while they are written."""

ANSWERS = {
    MessageType.SEED_DELIVERY: MessageType.SEED_COMPLAINTS,
    MessageType.SURVIVOR_SET: MessageType.SET_SIGNATURE,
    MessageType.SET_CERTIFICATE: MessageType.SUM_HASHES,
    MessageType.MASK_REQUEST: MessageType.MASK_SUM,
}
"""Requests in their order, and the answers. Only the last may repeat, for other sets of the same survivors. Without
identities the second is omitted; with identities it may come first if it is empty."""


@dataclass(slots=True, kw_only=True)
class HelperKept:
    """State of a helper's session. It does not contain the key pair, which outlives the session."""

    due: MessageType | None = MessageType.SEED_DELIVERY
    """Type of the next request; None after the helper signed that the sum failed."""
    answered: bytes = b""
    """Hash of the last answered request; empty before the first."""
    seeds: dict[PartyId, bytes] = field(default_factory=dict, repr=False)
    """Seeds and data fingerprint by client; after the survivors are fixed, of the survivors only."""
    seed_digests: dict[PartyId, bytes] = field(default_factory=dict)
    """Hash of each client's signed statement about its seeds."""


class CommitteeHelper(Party, Stored[HelperKept]):
    """A helper of a committee sum; the module docstring lists the calls in order.

    It fixes one survivor set per session and reveals mask sums of this set only, after a quorum of helpers signed it.
    If it signed the empty set, it reveals none. A refused request reveals nothing and does not end the session. A
    complaint names a client whose seeds do not match its commitments, without a proof, which would reveal a secret.

    A key pair serves many sessions, but a helper must not sign twice in one: store its sessions as long as the key is
    in use (``DurableClient`` does).
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
        """Identifier that a snapshot must match to be restored."""
        return binding(HELPER, self._config.digest, self.party)

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of a snapshot; the key pair is erased if the seeds were decrypted."""
        Stored.restore(self, snapshot)
        if self._kept.due is not MessageType.SEED_DELIVERY:
            self._key = None

    def start(self) -> None:
        """Return None: a helper waits for requests."""
        return

    def receive(self, message: bytes) -> bytes:
        """Return the answer to the server's next request; see ``ClientSession.receive`` for the errors."""
        frame = self._open_message(message)
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint == self._kept.answered:
            raise RepeatedMessageError("this request was answered already", peer=SERVER)
        due, signs = self._kept.due, self._config.is_authenticated
        may_have_failed = signs and due is MessageType.SEED_DELIVERY and frame.type is MessageType.SURVIVOR_SET
        if frame.type is not due and not may_have_failed:
            raise RemoteProtocolError(
                f"{due.name if due else 'nothing'} is due, {frame.type.name} came: a helper fixes one survivor set a "
                "session (an empty one if the sum failed), and answers for that set alone",
                peer=SERVER,
            )
        answer: dict[MessageType, Callable[[Reader], _Payload]] = {
            MessageType.SEED_DELIVERY: self._take_seeds,
            MessageType.SURVIVOR_SET: self._sign_survivors,
            MessageType.SET_CERTIFICATE: self._hash_sums,
            MessageType.MASK_REQUEST: self._send_sums,
        }
        most = max(len(self._config.clients), self._config.seed_sharing.n_seeds)
        payload, vectors = answer[frame.type](Reader(frame.payload, peer=SERVER, max_entries=most))
        self._kept.answered = fingerprint
        return self._seal_message(ANSWERS[frame.type], payload, vector=vectors)

    def _take_seeds(self, reader: Reader) -> _Payload:
        """Decrypt the seeds; exclude and report clients whose seeds do not match their signed commitments."""
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
        return write_parties(client for client, opened in seeds.items() if not opened), ()

    def _check_signed(self, client: PartyId, entry: SeedEntry) -> None:
        """Refuse seeds that the client did not sign; the server, not the client, is at fault."""
        config = self._config
        identity = config.identity_of(client)
        is_its_word = not identity or verifies(identity, entry.signature, entry.statement(config.digest, client))
        if not (is_its_word and entry.holds_box_of(config, self.party)):
            raise RemoteProtocolError(f"the seeds of client {client} are not those that it signed", peer=SERVER)

    def _open(self, client: PartyId, entry: SeedEntry) -> bytes:
        """Return a client's decrypted seeds; empty if decryption fails or they do not match the commitments."""
        assert self._key is not None, "boxes are opened once"
        try:
            seeds = self._key.open(entry.box, BOX_LABEL, box_binding(self._config.digest, client, self.party))
        except SealBrokenError:
            return b""
        return seeds if entry.fits(self._config, client, self.party, seeds) else b""

    def _sign_survivors(self, reader: Reader) -> _Payload:
        if survivors := read_parties(reader):
            self._fix(survivors)
            self._kept.due = MessageType.SET_CERTIFICATE
        else:  # it failed: no mask comes off, and nothing that could take one off is kept
            self._kept.seeds, self._kept.seed_digests, self._kept.due, self._key = {}, {}, None, None
        assert self._identity is not None, "only sums with identities ask for signatures"
        agreed = set_hash(self._config.digest, self._kept.seed_digests)
        return self._identity.sign(SET_LABEL, agreed), ()

    def _fix(self, survivors: tuple[PartyId, ...]) -> None:
        """Fix the survivors, after the approval callback."""
        self._check_number(survivors, tuple(self._kept.seeds))
        fingerprints = {client: fingerprint_in(self._kept.seeds[client]) for client in survivors}
        self._ask_consent(survivors, {client: rows for client, rows in fingerprints.items() if rows})
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
                f"masks are removed from sums of at least {self._config.min_survivors} clients, the server names "
                f"{len(survivors)}",
                peer=SERVER,
            )

    def _hash_sums(self, reader: Reader) -> _Payload:
        config, certificate = self._config, SetCertificate.read(reader, self._config)
        if not config.is_authenticated:
            self._fix(certificate.survivors)
        self._check_certificate(certificate)
        agreed = set_hash(config.digest, self._kept.seed_digests)
        places, size = config.seed_sharing.sets_of(self.party), config.layout.wire_bytes
        hashes = b"".join(sum_hash(agreed, place, size, self._sum(place)) for place in places)
        self._kept.due = MessageType.MASK_REQUEST
        return hashes, ()

    def _check_certificate(self, certificate: SetCertificate) -> None:
        """Refuse survivors signed by fewer than a quorum of helpers: the others might sign a second set."""
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

    def _send_sums(self, reader: Reader) -> _Payload:
        asked = read_parties(reader)
        if not asked or not set(asked) <= set(self._config.seed_sharing.sets_of(self.party)):
            raise RemoteProtocolError("it asks for sums of sets that this helper is not in, or for none", peer=SERVER)
        return b"", MaskSum.parts({place: self._sum(place) for place in asked})

    def _sum(self, place: int) -> Iterator[memoryview]:
        """Yield the wire form of the sum of the survivors' masks for one set, a piece at a time."""
        config = self._config
        masks = [
            (mask_seed(config.digest, client, place, seeds_by_set(config, self.party, seeds)[place]), 1)
            for client, seeds in self._kept.seeds.items()
        ]
        nothing = np.broadcast_to(np.int64(0), config.layout.size)  # takes no memory
        return masked_pieces(config.layout, nothing, masks, config.digest)
