"""A wrapper that adds a receipt of the total to any sum with identities; optionally with countersignatures.

The messages of the wrapped sum do not change. After its total is known, the server requests countersignatures (one more
message of each countersigner) and sends each survivor its copy of the receipt. A party countersigns one total of a sum.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, Generic, TypeVar

from secagg.config import SERVER
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.errors import (
    ConfigurationError,
    LocalProtocolError,
    ReceiptError,
    RemoteProtocolError,
    RepeatedMessageError,
)
from secagg.layout import Layout
from secagg.party import Party
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey, statement, verifies
from secagg.protocol_wrapper import ProtocolWrapper
from secagg.receipts import (
    COUNTERSIGNER_LABEL,
    HASH_BYTES,
    SERVER_LABEL,
    Inclusion,
    Path,
    Receipt,
    Statement,
    check_path,
    commitment,
    commitment_opening,
    quorum,
    read_path,
    upload_tree,
    write_path,
)
from secagg.rounds import Round
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession, SumResult
from secagg.snapshots import read, write
from secagg.sums import CLIENT_ROLE, NO_SECRETS, DataFingerprints, Guarantee, PartySecrets, SumProtocol, Survivors
from secagg.wire import MessageType, Reader, carries_vector, message_type, write_parties

K = TypeVar("K", "ReceiptedPartyState", "ReceiptedServerState")
U = TypeVar("U", ClientSession, ServerSession)

_RECEIPTED = b"receipted "
"""Prefix of the snapshot identifier, so that the wrapped sum does not restore these sessions."""


class SignedBy(Enum):
    """Parties that sign a receipt.

    >>> SignedBy("clients")
    <SignedBy.CLIENTS: 'clients'>
    """

    SERVER = "server"
    """The server alone; no additional message."""
    CLIENTS = "clients"
    """The server and more than two thirds of the cohort, who must stay until the end."""
    HELPERS = "helpers"
    """The server and a quorum of helpers; see ``secagg.receipts.quorum``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptedSum(ProtocolWrapper):
    """A sum with identities and a receipt of its total.

    Args:
        protocol: the wrapped sum. Noise goes inside the receipts, not around them.
        signed_by: the parties that sign the receipt.

    Raises:
        ConfigurationError: a signing party has no identity, or the helpers do not see the survivors of a total.

    >>> from secagg import IdentityKey, Layout, PlainSum
    >>> keys = [IdentityKey.generate() for _ in range(3)]
    >>> plain = PlainSum(
    ...     layout=Layout.of([("counts", 2, 100)]), clients=(1, 2), session_id=bytes(16),
    ...     identities=(keys[0].public, keys[1].public), server_identity=keys[2].public,
    ... )
    >>> ReceiptedSum(protocol=plain, signed_by=SignedBy.CLIENTS).quorum
    2
    """

    EXPLANATION: ClassVar[str] = "the server signs a receipt of the total, for every survivor"

    signed_by: SignedBy = SignedBy.SERVER

    def __post_init__(self) -> None:
        unsigned = [party for party in (SERVER, *self.countersigners) if not self.identity_of(party)]
        if unsigned or (self.signed_by is not SignedBy.SERVER and not self.countersigners):
            raise ConfigurationError(
                f"a receipt is signed by the server and by {self.signed_by.value}, and {self.name} has no identities "
                "of these; give identities, or let others sign"
            )
        if self.signed_by is SignedBy.HELPERS and self.protocol.guarantee.threshold:
            raise ConfigurationError(
                f"in {self.name} clients remove the masks, so no helper sees a total that it could sign; let "
                "clients or the server sign"
            )

    @property
    def name(self) -> str:
        """Name of the mode."""
        return self.protocol.name

    @property
    def layout(self) -> Layout:
        """Public shape and bounds of the vectors."""
        return self.protocol.layout

    @property
    def countersigners(self) -> tuple[PartyId, ...]:
        """Parties that may countersign."""
        return {SignedBy.CLIENTS: self.clients, SignedBy.HELPERS: self.helpers}.get(self.signed_by, ())

    @property
    def quorum(self) -> int:
        """Number of countersignatures that a receipt needs."""
        return quorum(self.countersigners, self._corrupt) if self.countersigners else 0

    @property
    def _corrupt(self) -> int | None:
        """Number of countersigning helpers that may collude with the server; None if unknown."""
        to_open = self.protocol.guarantee.helper_reconstruction_threshold
        return None if self.signed_by is not SignedBy.HELPERS or to_open is None else to_open - 1

    @property
    def guarantee(self) -> Guarantee:
        """Guarantees of the wrapped sum, with the number of countersignatures."""
        under = self.protocol.guarantee
        asked = under.messages + (self.signed_by is SignedBy.CLIENTS)
        return replace(under, messages=asked, countersignatures=self.quorum)

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """Costs of the wrapped sum and of the receipts, with the longest Merkle path."""
        nothing = bytes(HASH_BYTES)
        costs, path = dict(self.protocol.costs), (nothing,) * (len(self.clients) - 1).bit_length()
        receipt = Receipt(
            statement=Statement(configuration=nothing, survivors=self.clients, uploads=nothing, total=nothing),
            signature=bytes(SIGNATURE_BYTES),
            countersignatures=dict.fromkeys(self.countersigners[: self.quorum], bytes(SIGNATURE_BYTES)),
            inclusion=Inclusion(party=SERVER, upload=nothing, path=path),
        )
        costs[CLIENT_ROLE] += _cost([], [len(receipt.to_bytes())])
        if self.countersigners:
            (role,) = {CLIENT_ROLE} if self.signed_by is SignedBy.CLIENTS else costs.keys() - {CLIENT_ROLE}
            own = path if role == CLIENT_ROLE else ()
            request = CountersignRequest(dropouts=(), uploads=nothing, total=nothing, path=own)
            costs[role] += _cost([SIGNATURE_BYTES], [len(request.to_payload())])
        return costs

    def digest_of(self, type_: MessageType | None) -> bytes:
        """Return the digest of the wrapped sum, which is also in the header of the wrapper's messages."""
        return self.digest

    def signer(self, party: PartyId, secrets: PartySecrets) -> IdentityKey | None:
        """Return the signing key of a party; the wrapped sum checks it."""
        return secrets.identity

    def verify(self, receipt: Receipt, *, party: PartyId = 0) -> None:
        """Verify a receipt of this sum; see ``Receipt.verify``.

        Args:
            receipt: the receipt.
            party: a client whose upload must be included; 0 for none.

        Raises:
            ReceiptError: the receipt is of another sum, not signed as required, or does not include the client.
        """
        if receipt.statement.configuration != self.digest:
            raise ReceiptError("this receipt is for another sum: session, cohort, layout or context differ")
        keys = {signer: self.identity_of(signer) for signer in self.countersigners}
        receipt.verify(self.identity_of(SERVER), keys or None, corrupt=self._corrupt, party=party)

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ReceiptedParty:
        """Create a client's session; its ``receipt`` is set after the server sent it."""
        return ReceiptedParty(
            self, party, secrets, lambda own: self.protocol.client(party, client_input, secrets=own, entropy=entropy)
        )

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Create a helper's session; it countersigns if ``signed_by`` is ``HELPERS``."""
        return ReceiptedParty(
            self, party, secrets, lambda own: self.protocol.helper(party, secrets=own, entropy=entropy)
        )

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ReceiptedServer:
        """Create the server's session; its ``receipt`` is set after the total was countersigned."""
        return ReceiptedServer(self, self.protocol.server(secrets=secrets, entropy=entropy), secrets)


def _cost(up: list[int], down: list[int]) -> PartyCost:
    return PartyCost.of_payloads(up, down, vector_bytes=0, signature_bytes=SIGNATURE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersignRequest:
    """Message of the server to a countersigner: the statement to sign and the Merkle path of its own upload."""

    dropouts: tuple[PartyId, ...]
    uploads: bytes
    total: bytes
    path: Path

    def to_payload(self) -> bytes:
        """Return the payload."""
        return write_parties(self.dropouts) + self.uploads + self.total + write_path(self.path)

    @classmethod
    def read(cls, reader: Reader) -> CountersignRequest:
        """Parse a payload."""
        dropouts, uploads, total = tuple(reader.entries(0)), reader.take(HASH_BYTES), reader.take(HASH_BYTES)
        request = cls(dropouts=dropouts, uploads=uploads, total=total, path=read_path(reader))
        reader.end()
        return request


class _Receipted(Party, Generic[K, U]):
    """Base class of both sides; a snapshot contains that of the wrapped session."""

    _config: ReceiptedSum
    _kept: K
    _under: U

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored."""
        return _RECEIPTED + self._under.snapshot_id

    def snapshot(self) -> bytes:
        """Return the session as bytes."""
        return write(replace(self._kept, under=self._under.snapshot()))

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of a snapshot."""
        kept = read(self._kept, snapshot)
        self._under.restore(kept.under)
        self._kept = kept


@dataclass(slots=True, kw_only=True, repr=False)
class ReceiptedPartyState:
    """State of a client or helper in addition to the wrapped session.

    Args:
        upload: hash of the message with its vector.
        survivors: the survivors that it approved; None if it was not asked.
        signed: hash of the statement that it countersigned.
        receipt: the receipt that it received.
        under: snapshot of the wrapped session.
    """

    upload: bytes = b""
    survivors: tuple[PartyId, ...] | None = None
    signed: bytes = b""
    receipt: bytes = b""
    under: bytes = b""


class ReceiptedParty(_Receipted[ReceiptedPartyState, ClientSession]):
    """A client or helper: the wrapped session, then its countersignature and its receipt.

    A client signs no statement without its own upload; no party signs one about survivors that it did not approve.
    """

    def __init__(
        self,
        config: ReceiptedSum,
        party: PartyId,
        secrets: PartySecrets,
        make: Callable[[PartySecrets], ClientSession],
    ) -> None:
        self._asked, self._keep = secrets.consent, secrets.on_receipt
        self._under = make(replace(secrets, consent=self._consented))
        Party.__init__(self, config, party, secrets)
        self._kept = ReceiptedPartyState()

    @property
    def receipt(self) -> Receipt | None:
        """The party's copy of the receipt; None before it arrived."""
        return Receipt.from_bytes(self._kept.receipt) if self._kept.receipt else None

    def start(self) -> bytes | None:
        """Return the first message of the wrapped session."""
        return self._noted(self._under.start())

    def receive(self, message: bytes) -> bytes | None:
        """Countersign, store the receipt, or answer as the wrapped session does."""
        type_ = message_type(message)
        if type_ is MessageType.COUNTERSIGN_REQUEST:
            return self._countersign(message)
        if type_ is MessageType.RECEIPT:
            self._take(message)
            return None
        return self._noted(self._under.receive(message))

    def _noted(self, message: bytes | None) -> bytes | None:
        if message is not None and carries_vector(message):
            self._kept.upload = hashlib.sha256(message).digest()
        return message

    def _consented(self, protocol: SumProtocol, survivors: Survivors | None, rows: DataFingerprints) -> None:
        self._kept.survivors = ()  # after a no it signs nothing of this total
        if self._asked is not None:
            self._asked(protocol, survivors, rows)
        self._kept.survivors = survivors

    def _countersign(self, message: bytes) -> bytes:
        config = self._config
        reader = Reader(self._open_message(message).payload, peer=SERVER, max_entries=len(config.clients))
        asked = CountersignRequest.read(reader)
        if self.party not in config.countersigners:
            raise RemoteProtocolError("it asks for a countersignature of a party that gives none", peer=SERVER)
        stated = Statement(
            configuration=config.digest,
            survivors=tuple(party for party in config.clients if party not in set(asked.dropouts)),
            uploads=asked.uploads,
            total=asked.total,
        )
        own = Inclusion(party=self.party, upload=self._kept.upload, path=asked.path)
        self._check(stated, own if self.party in config.clients else None)
        fingerprint = hashlib.sha256(statement(COUNTERSIGNER_LABEL, *stated.parts)).digest()
        if self._kept.signed == fingerprint:
            raise RepeatedMessageError("this request for a countersignature was answered already", peer=SERVER)
        if self._kept.signed:
            raise RemoteProtocolError("it wants a second total of one sum countersigned; a sum has one", peer=SERVER)
        assert self._identity is not None
        self._kept.signed = fingerprint
        return self._seal_message(MessageType.COUNTERSIGNATURE, self._identity.sign(COUNTERSIGNER_LABEL, *stated.parts))

    def _take(self, message: bytes) -> None:
        """Verify and store a receipt: it must include this party's upload and match the countersigned statement."""
        payload = bytes(self._open_message(message).payload)
        if payload == self._kept.receipt:
            raise RepeatedMessageError("this receipt was taken, and so answered already", peer=SERVER)
        try:
            receipt = Receipt.from_bytes(payload)
            self._config.verify(receipt, party=self.party)
        except ReceiptError as error:
            raise RemoteProtocolError(f"its receipt is not valid: {error}", peer=SERVER) from error
        self._check(receipt.statement, receipt.inclusion)
        signed = hashlib.sha256(statement(COUNTERSIGNER_LABEL, *receipt.statement.parts)).digest()
        if self._kept.receipt or self._kept.signed not in (b"", signed):
            raise RemoteProtocolError("its receipt is of another total than before; keep both against it", peer=SERVER)
        if self._keep is not None:
            self._keep(payload)
        self._kept.receipt = payload

    def _check(self, stated: Statement, inclusion: Inclusion | None) -> None:
        """Refuse a statement without this client's own upload, or about survivors that were not approved."""
        kept = self._kept
        if inclusion is not None:
            if not kept.upload or inclusion.upload != kept.upload:
                raise RemoteProtocolError(
                    "it has a total signed that says nothing of this client's upload", peer=SERVER
                )
            try:
                check_path(stated, inclusion)
            except ReceiptError as error:
                raise RemoteProtocolError(
                    f"it left this client out, or changed its upload: {error}", peer=SERVER
                ) from error
        if kept.survivors is None and self._config.protocol.guarantee.messages_after_vector:
            raise RemoteProtocolError(
                "it has a total signed before this client was asked to agree to the survivors", peer=SERVER
            )
        if kept.survivors != stated.survivors and (kept.survivors is not None or inclusion is None):
            raise RemoteProtocolError("it has other survivors signed than this party agreed to", peer=SERVER)


class Stage(Enum):
    """State of a server with receipts."""

    SUMMING = "summing"
    COUNTERSIGNING = "countersigning"
    DONE = "done"
    FAILED = "failed"


@dataclass(slots=True, kw_only=True, eq=False)
class ReceiptedServerState:
    """State of the server in addition to the wrapped session: hashes of uploads, and countersignatures."""

    stage: Stage = Stage.SUMMING
    uploads: dict[PartyId, bytes] = field(default_factory=dict)
    round: Round | None = None
    countersignatures: dict[PartyId, bytes] = field(default_factory=dict)
    under: bytes = b""


class ReceiptedServer(_Receipted[ReceiptedServerState, ServerSession]):
    """A server: the wrapped session, then a round of countersignatures, if any, and the receipts."""

    def __init__(self, config: ReceiptedSum, under: ServerSession, secrets: PartySecrets) -> None:
        Party.__init__(self, config, SERVER, secrets)
        self._under, self._kept = under, ReceiptedServerState()
        self._made: tuple[Statement, dict[PartyId, Path]] | None = None

    @property
    def result(self) -> SumResult | None:
        """Result after the last round, with the server's receipt; None before."""
        if self._kept.stage is not Stage.DONE or self._under.result is None:
            return None
        return replace(self._under.result, receipt=self._issue().to_bytes())

    @property
    def receipt(self) -> Receipt | None:
        """The server's copy of the receipt, with the opening of the total; None before the last round."""
        return self._issue() if self._kept.stage is Stage.DONE else None

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Parties that were asked in this round and have not answered."""
        if self._kept.stage is Stage.SUMMING:
            return self._under.waiting_for
        return self._kept.round.waiting_for if self._kept.round else frozenset()

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process a message of the wrapped sum, or a countersignature."""
        if self._kept.stage is Stage.SUMMING:
            self._under.receive(sender, message)
            if carries_vector(message):
                self._kept.uploads[sender] = hashlib.sha256(message).digest()
            return
        if self._kept.round is None:
            raise RemoteProtocolError("this session has its total, or none; nothing more is taken", peer=sender)
        frame = self._open_message(message, sender)
        self._kept.round.check(sender, frame)
        signature = bytes(frame.payload)
        signed = statement(COUNTERSIGNER_LABEL, *self._statement()[0].parts)
        if len(signature) != SIGNATURE_BYTES or not verifies(self._config.identity_of(sender), signature, signed):
            raise RemoteProtocolError("its countersignature is not one on this total", peer=sender)
        self._kept.round.accept(sender)
        self._kept.countersignatures[sender] = signature

    def close_round(self) -> Mapping[PartyId, bytes]:
        """End the round and return the next messages by recipient; after the last round these are the receipts.

        Raises:
            TooFewSurvivorsError, HelperMissingError: too few parties countersigned.
        """
        kept = self._kept
        if kept.stage is Stage.SUMMING:
            requests = self._under.close_round()
            return requests if self._under.result is None else self._ask()
        if kept.stage is Stage.COUNTERSIGNING and kept.round is not None:
            round_, kept.round, kept.stage = kept.round, None, Stage.FAILED
            if self._config.signed_by is SignedBy.HELPERS and len(round_.answered) < self._config.quorum:
                round_.need_all()
            round_.need(self._config.quorum)
            return self._give()
        raise LocalProtocolError("this session is over; start a new one")

    def _ask(self) -> Mapping[PartyId, bytes]:
        stated, paths = self._statement()
        asked = {SignedBy.CLIENTS: stated.survivors, SignedBy.HELPERS: self._config.helpers}.get(self._config.signed_by)
        if asked is None:
            return self._give()
        self._kept.stage, self._kept.round = Stage.COUNTERSIGNING, Round.of(MessageType.COUNTERSIGNATURE, asked)
        dropouts = tuple(party for party in self._config.clients if party not in set(stated.survivors))
        return {
            party: self._seal_message(
                MessageType.COUNTERSIGN_REQUEST,
                CountersignRequest(
                    dropouts=dropouts, uploads=stated.uploads, total=stated.total, path=paths.get(party, ())
                ).to_payload(),
                party,
            )
            for party in asked
        }

    def _give(self) -> Mapping[PartyId, bytes]:
        """Return each survivor's copy of the receipt, with a quorum of countersignatures."""
        self._kept.stage = Stage.DONE
        receipt, uploads = self._issue().without_opening, self._kept.uploads
        return {
            party: self._seal_message(
                MessageType.RECEIPT,
                replace(receipt, inclusion=Inclusion(party=party, upload=uploads[party], path=path)).to_bytes(),
                party,
            )
            for party, path in self._statement()[1].items()
        }

    def _issue(self) -> Receipt:
        (stated, _), identity = self._statement(), self._identity
        assert identity is not None
        enough = sorted(self._kept.countersignatures)[: self._config.quorum]
        return Receipt(
            statement=stated,
            signature=identity.sign(SERVER_LABEL, *stated.parts),
            countersignatures={party: self._kept.countersignatures[party] for party in enough},
            opening=commitment_opening(identity, stated.configuration),
        )

    def _statement(self) -> tuple[Statement, dict[PartyId, Path]]:
        """Return the statement about the total and the Merkle path of each upload (cached)."""
        if self._made is None:
            result, identity, digest = self._under.result, self._identity, self._config.digest
            assert result is not None
            assert identity is not None
            root, paths = upload_tree({party: self._kept.uploads[party] for party in result.survivors})
            total = commitment(result.total, commitment_opening(identity, digest), digest)
            stated = Statement(configuration=digest, survivors=result.survivors, uploads=root, total=total)
            self._made = stated, paths
        return self._made
