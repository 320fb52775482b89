"""The interface of every mode of secure summation.

A protocol object (``SumProtocol``) holds the public parameters of one sum, states its guarantees as data
(``Guarantee``) and creates the sessions of all parties.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from secagg.beacon import DrawnGraph
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.layout import Layout
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey
from secagg.ring import RingVector
from secagg.sessions import ClientInput, ClientSession, FailureSession, PartyId, ServerSession
from secagg.wire import CARRIES_VECTOR, MessageType, message_type, payload_of, sender_of

CLIENT_ROLE, SERVER_ROLE = "client", "server"
"""Roles that exist in every sum. Each mode names the role of its helpers."""


Survivors = tuple[PartyId, ...]
"""The clients whose vectors a total contains, ascending."""

DataFingerprints = Mapping[PartyId, bytes]
"""Fingerprints of the data sets behind the survivors' vectors, by client. A client without a fingerprint is absent."""

Consent = Callable[["SumProtocol", Survivors | None, DataFingerprints], None]
"""Approval callback of a party: called with the sum, the survivors of its total and their data fingerprints.

The session calls it before it sends a message that the total depends on. Survivors are None if the party is never shown
them, or only by a server that it must trust; the call then precedes the party's vector. Otherwise it precedes the
party's signature on these survivors. It may be called again for the same survivors. To refuse, raise
``ConsentRefusedError``.
"""


FINGERPRINT_BYTES = 16
"""Length of a data set fingerprint. Two of n collide by chance with probability at most n^2 / 2^129."""

ReceiptSink = Callable[[bytes], None]
"""Callback that stores a receipt, given as bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartySecrets:
    """Secrets and callbacks of one party. A sum uses what it needs and refuses a signing key without a purpose.

    Args:
        identity: Ed25519 signing key. With identities the party signs every message with it.
        boxes: encryption key pair of a committee's helper.
        decryption: secret TenSEAL context of a key holder.
        data_fingerprint: makes the ``FINGERPRINT_BYTES`` bytes by which a committee's helpers recognise its rows, the
            same for the same rows; called once its vector is there. None gives helpers no fingerprint.
        consent: approval callback, called before the party contributes to a total. None approves every total.
        on_receipt: called with the party's receipt after it was verified. None keeps it in the session only.

    >>> from secagg import IdentityKey
    >>> PartySecrets(identity=IdentityKey.generate())
    PartySecrets()
    """

    identity: IdentityKey | None = field(default=None, repr=False)
    boxes: BoxKey | None = field(default=None, repr=False)
    decryption: bytes = field(default=b"", repr=False)
    data_fingerprint: Callable[[], bytes] | None = field(default=None, repr=False)
    consent: Consent | None = field(default=None, repr=False)
    on_receipt: ReceiptSink | None = field(default=None, repr=False)


NO_SECRETS = PartySecrets()
"""Secrets of a party without long-lived keys."""


class Upload(Enum):
    """Form of the message that carries a client's vector."""

    PLAINTEXT = "the vector in the clear"
    UNIFORM = "uniform without the masks"
    CIPHERTEXT = "a ciphertext, which need not look uniform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """Security guarantees of a sum as data. Read by ``explain``, policies, dropout simulations and the audit.

    Args:
        min_survivors: minimum number of clients whose vectors a released total contains.
        max_colluding_clients: most clients that may collude with the server while every other client's vector stays
            hidden. With ``plaintext_upload`` nothing is hidden.
        threshold: Shamir threshold of the secrets that clients share with each other; 0 in modes without.
        client_reconstruction_threshold: fewest clients who, together with the server and enough helpers, can
            reconstruct another client's vector from its upload.
        reconstruction_helpers: the helpers whose secrets such a reconstruction needs.
        helper_reconstruction_threshold: how many of these helpers it needs; None for all.
        helper_dropout_tolerance: most helpers that may drop out or be malicious while the total is released and exact.
        detects_malicious_helpers: most colluding malicious helpers with which no wrong total is released.
        oldest_epoch: lowest epoch among the helpers' encryption keys; None if these are never rotated.
        malicious_server: True if the guarantees hold against a malicious server, False for a semi-honest one only.
        messages: number of messages that a client sends.
        vector_message: number of the message that carries the vector, counted from 1.
        upload: form of that message.
        binds_context: whether a client that received another context (another model) makes the sum fail.
        helpers_learn_total: whether a helper learns the total.
        assumed_colluders: colluding clients that the parameters were planned for; 0 if none were stated.
        security_bits: the guarantees fail with probability at most 2^-security_bits, in addition to the primitives'
            own failure probability. Infinite without a random graph.
        correctness_bits: the sum cannot be completed with probability at most 2^-correctness_bits.
        drawn_graph: the random graph behind these two probabilities; None without one.
        noise_colluders: clients whose shares of the total's noise do not count, since they may reveal them; None if
            clients add no noise.
        helpers_confirm_guesses: whether a helper can confirm a guess of a client's whole vector better than from the
            total alone (no circuit privacy).
        countersignatures: number of parties that sign a receipt in addition to the server; None without receipts.

    >>> from secagg import Layout, MaskedSum, new_session_id
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> masked = MaskedSum(layout=layout, clients=(1, 2, 3, 4), session_id=new_session_id())
    >>> masked.guarantee.min_survivors, masked.guarantee.max_colluding_clients, masked.guarantee.malicious_server
    (3, 1, False)
    """

    min_survivors: int
    max_colluding_clients: int
    threshold: int = 0
    client_reconstruction_threshold: int
    reconstruction_helpers: tuple[PartyId, ...] = ()
    helper_reconstruction_threshold: int | None = None
    helper_dropout_tolerance: int = 0
    detects_malicious_helpers: int = 0
    oldest_epoch: int | None = None
    malicious_server: bool = False
    messages: int = 1
    vector_message: int = 1
    upload: Upload
    binds_context: bool = True
    helpers_learn_total: bool = False
    assumed_colluders: int = 0
    security_bits: float = math.inf
    correctness_bits: float = math.inf
    drawn_graph: DrawnGraph | None = None
    noise_colluders: int | None = None
    helpers_confirm_guesses: bool = False
    countersignatures: int | None = None

    @property
    def plaintext_upload(self) -> bool:
        """True if a client's upload contains its vector in the clear."""
        return self.upload is Upload.PLAINTEXT

    @property
    def messages_before_vector(self) -> int:
        """Number of messages that a client sends before the one with its vector."""
        return self.vector_message - 1

    @property
    def messages_after_vector(self) -> int:
        """Number of messages that a client sends after the one with its vector."""
        return self.messages - self.vector_message

    def exposes_uploads_to(self, *, server: bool, n_clients: int, helpers: frozenset[PartyId]) -> bool:
        """Return whether a coalition can reconstruct the vectors of clients outside it, according to this guarantee.

        Args:
            server: whether the server is a member.
            n_clients: number of clients in the coalition.
            helpers: the helpers in the coalition.
        """
        of_helpers = len(helpers.intersection(self.reconstruction_helpers))
        needed = (
            len(self.reconstruction_helpers)
            if self.helper_reconstruction_threshold is None
            else self.helper_reconstruction_threshold
        )
        return self.plaintext_upload or (
            server and n_clients >= self.client_reconstruction_threshold and of_helpers >= needed
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalitionView:
    """View of a coalition of colluding parties on one sum.

    Args:
        messages: all messages that a member sent or received, in order.
        tapes: random tape of each client of the coalition: all random bytes that it drew, in order.
        secrets: the secrets of its parties.
    """

    messages: tuple[bytes, ...] = field(repr=False)
    tapes: Mapping[PartyId, bytes] = field(repr=False)
    secrets: Mapping[PartyId, PartySecrets] = field(repr=False)

    def payloads(self, type_: MessageType) -> Iterator[tuple[PartyId, bytes]]:
        """Yield sender and payload of each message of one type."""
        for message in self.messages:
            if message_type(message) is type_:
                yield sender_of(message), payload_of(message)

    def upload(self, sender: PartyId) -> bytes | None:
        """Return the payload of the message with a client's vector; None if the coalition did not see it."""
        for message in self.messages:
            if message_type(message) in CARRIES_VECTOR and sender_of(message) == sender:
                return payload_of(message)
        return None

    def upload_as_sent(self, sender: PartyId, layout: Layout) -> RingVector | None:
        """Return the vector bytes at the end of that payload, decoded; None if the coalition did not see it."""
        payload = self.upload(sender)
        return None if payload is None else RingVector.from_bytes(layout, payload[-layout.wire_bytes :]).copy()


class SumProtocol(Protocol):
    """Interface of a secure sum: its public parameters, and factories of the parties' sessions. It holds no secret.

    Implemented by ``PlainSum``, ``MaskedSum``, ``CommitteeSum`` and by wrappers of these.

    >>> from secagg import Layout, PlainSum, new_session_id
    >>> layout = Layout.of([("counts", 2, 100)])
    >>> protocol: SumProtocol = PlainSum(layout=layout, clients=(1, 2), session_id=new_session_id())
    >>> protocol.name, protocol.clients
    ('plain', (1, 2))
    """

    @property
    def name(self) -> str:
        """Name of the mode on the command line and in reports."""
        ...

    @property
    def layout(self) -> Layout:
        """Public shape and bounds of the vectors."""
        ...

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """Cohort of clients, ascending."""
        ...

    @property
    def digest(self) -> bytes:
        """Hash of all public parameters; every message contains it."""
        ...

    @property
    def survivors_needed(self) -> int:
        """Minimum number of clients whose vectors a released total contains."""
        ...

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Parties other than clients and server (a committee, a key holder); empty in most modes."""
        ...

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Public keys by role and party. A role without keys maps to no parties."""
        ...

    def identity_of(self, party: PartyId) -> bytes:
        """Return the Ed25519 public key of a party; empty without identities, and for unknown parties."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """Security guarantees of this sum."""
        ...

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """Communication cost of one party of each role when nobody drops out."""
        ...

    def explain(self) -> str:
        """Describe in words and numbers what these parameters guarantee and cost."""
        ...

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Create a client's session.

        Args:
            party: number of the client.
            client_input: its vector, int64 of shape (layout.size,), or a callable that returns it. An array is checked
                now, a callable's result when it is needed.
            secrets: its secrets and callbacks.
            entropy: source of its keys, seeds and shares.

        Raises:
            ConfigurationError: ``party`` is not in the cohort, or ``secrets`` do not match the public keys.
            InvalidVectorError: the vector does not fit the layout.
        """
        ...

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Create the session of one of ``helpers``.

        Raises:
            ConfigurationError: ``party`` is not a helper of this sum, or ``secrets`` do not match its public key.
        """
        ...

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Create the server's session.

        Raises:
            ConfigurationError: ``secrets`` do not match the server's public key.
        """
        ...

    def failure(self, *, secrets: PartySecrets = NO_SECRETS) -> FailureSession | None:
        """Create the server's session that certifies a failure of this sum; None in modes that cannot certify one."""
        ...

    def check_failure(self, proof: bytes) -> None:
        """Verify a proof (``FailureSession.proof``) that no total of this sum will ever be released.

        Raises:
            RemoteProtocolError: the proof is not valid, or this mode has no such proofs.
        """
        ...

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return a client's upload minus all masks that a coalition can compute; None if it saw no upload.

        Used by the audit. The result is the client's vector exactly if ``guarantee.exposes_uploads_to`` the coalition.
        """
        ...
