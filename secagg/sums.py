"""The contract of every mode: one object that says who takes part, what it guarantees, and makes sessions."""

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
"""The roles that every sum has. A mode names the role of its helpers itself."""


Survivors = tuple[PartyId, ...]
"""The clients whose vectors a total holds, ascending."""

DataFingerprints = Mapping[PartyId, bytes]
"""What is known of the rows behind survivors' vectors: each one's own keyed fingerprint, where it gave one."""

Consent = Callable[["SumProtocol", Survivors | None, DataFingerprints], None]
"""Asks whether a party is in a total, before it says what the total needs of it: the sum, whose total it is, and of
what rows.

None stands for survivors that the party is never shown, or only by a server that it has to believe: the question then
comes before its vector leaves. Else it comes before its word on these survivors does. It may come again for the same
survivors, and raises ``ConsentRefusedError`` to say no.
"""


FINGERPRINT_BYTES = 16
"""Of a fingerprint of rows: two of n have one by chance with probability n^2 / 2^129."""

ReceiptSink = Callable[[bytes], None]
"""Takes a receipt, as bytes, to where its owner keeps it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartySecrets:
    """What one party alone knows. A sum takes what it needs and refuses a signing key that serves no purpose in it.

    Args:
        identity: its Ed25519 signing key, with which it signs every message where the sum has identities.
        boxes: its key pair that others seal to (a committee's helper has one).
        decryption: the secret context of a session (a key holder has one).
        data_fingerprint: makes the ``FINGERPRINT_BYTES`` bytes by which a committee's helpers recognise its rows, the
            same for the same rows; called once its vector is there. None gives helpers no fingerprint.
        consent: whom it asks before a total is made with it; None for a party that is in whatever it is asked for.
        on_receipt: where its receipt goes, once it was checked; None for who reads it from the session.
    """

    identity: IdentityKey | None = field(default=None, repr=False)
    boxes: BoxKey | None = field(default=None, repr=False)
    decryption: bytes = field(default=b"", repr=False)
    data_fingerprint: Callable[[], bytes] | None = field(default=None, repr=False)
    consent: Consent | None = field(default=None, repr=False)
    on_receipt: ReceiptSink | None = field(default=None, repr=False)


NO_SECRETS = PartySecrets()
"""Of a party that takes part without long-lived keys."""


class Upload(Enum):
    """What the bytes are that carry a client's vector."""

    PLAINTEXT = "the vector as it is"
    UNIFORM = "uniform to whoever cannot rebuild its masks"
    CIPHERTEXT = "a ciphertext, which need not look uniform"


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """What a sum promises, as data: ``explain``, policies, dropout simulations and the audit read it.

    Args:
        min_survivors: fewest clients whose vectors a released total holds.
        max_colluding_clients: most clients that may collude with the server while a total and the messages hide every
            other client's vector. Where ``plaintext_upload`` the messages hide nothing.
        threshold: shares that open a secret, where clients hold shares of each other's; 0 where they do not.
        client_reconstruction_threshold: fewest clients whose secrets open another client's upload for the server ...
        reconstruction_helpers: ... if enough of these parties collude too: ...
        helper_reconstruction_threshold: ... so many; None for all of them.
        helper_dropout_tolerance: most helpers that may be away or lie while the total still comes out, exact.
        detects_malicious_helpers: how many helpers may lie together and no wrong total comes out.
        oldest_epoch: of the keys that clients seal something to, the lowest number; None where they last for good.
        malicious_server: whether all this holds against a server that breaks the protocol, or only looks on.
        messages: how many messages a client sends from the first to the last.
        vector_message: which of them carries its vector, from 1.
        upload: what that message looks like.
        binds_context: whether a client that was told another context (another model) than the rest leaves no total.
        helpers_learn_total: whether a helper sees the total, too.
        assumed_colluders: clients that its parameters are stated to bear; 0 where nothing is stated.
        security_bits: all this fails with probability at most 2^-this, beyond the primitives' own; infinite where no
            graph is drawn.
        correctness_bits: the same for a sum that gets stuck.
        drawn_graph: what these bits are about, if its seed is not chosen for the purpose; None where there is none.
        noise_colluders: of the clients that add shares of the total's noise, how many count for nothing, because they
            may tell theirs; None where clients add none.
        helpers_confirm_guesses: whether a helper that guesses a client's whole vector can tell from its part of the sum
            that the guess is right, with more than the total's help.
        countersignatures: how many parties sign a receipt of the total beside the server; None where there is no
            receipt.
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
        """Whether whoever sees a client's upload reads its vector."""
        return self.upload is Upload.PLAINTEXT

    @property
    def messages_before_vector(self) -> int:
        """How many messages a client sends before the one with its vector."""
        return self.vector_message - 1

    @property
    def messages_after_vector(self) -> int:
        """How many it sends after that."""
        return self.messages - self.vector_message

    def exposes_uploads_to(self, *, server: bool, n_clients: int, helpers: frozenset[PartyId]) -> bool:
        """Whether a coalition is stated to open the uploads of clients outside it."""
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
    """What a coalition pools about one sum.

    Args:
        messages: the messages that passed a member, in the order in which they were sent.
        tapes: all random bytes that its clients drew, in order.
        secrets: the secrets of its parties.
    """

    messages: tuple[bytes, ...] = field(repr=False)
    tapes: Mapping[PartyId, bytes] = field(repr=False)
    secrets: Mapping[PartyId, PartySecrets] = field(repr=False)

    def payloads(self, type_: MessageType) -> Iterator[tuple[PartyId, bytes]]:
        """Sender and payload of each message of one kind."""
        for message in self.messages:
            if message_type(message) is type_:
                yield sender_of(message), payload_of(message)

    def upload(self, sender: PartyId) -> bytes | None:
        """The payload of a client's one heavy message; None if the coalition did not see it."""
        for message in self.messages:
            if message_type(message) in CARRIES_VECTOR and sender_of(message) == sender:
                return payload_of(message)
        return None

    def upload_as_sent(self, sender: PartyId, layout: Layout) -> RingVector | None:
        """The last bytes of that payload, as many as a vector takes: every mode puts its vector there."""
        payload = self.upload(sender)
        return None if payload is None else RingVector.from_bytes(layout, payload[-layout.wire_bytes :]).copy()


class SumProtocol(Protocol):
    """One way to add vectors that nobody may see: public parameters, and never a secret."""

    @property
    def name(self) -> str:
        """The mode's name on the command line and in reports."""
        ...

    @property
    def layout(self) -> Layout:
        """The public shape of the vectors."""
        ...

    @property
    def clients(self) -> tuple[PartyId, ...]:
        """The cohort, ascending."""
        ...

    @property
    def digest(self) -> bytes:
        """What all messages are bound to: a hash of every public parameter."""
        ...

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        ...

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """The parties beside clients and server that it needs (a committee, a key holder); mostly none."""
        ...

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Role -> party -> public key, for every role that has keys in this mode; no parties where it runs without."""
        ...

    def identity_of(self, party: PartyId) -> bytes:
        """Return the key that a party's messages are signed with; empty where nobody signs, and for strangers."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """What it promises."""
        ...

    @property
    def costs(self) -> Mapping[str, PartyCost]:
        """Role -> what a party of it sends and receives when nobody drops out."""
        ...

    def explain(self) -> str:
        """What these parameters guarantee and cost, in words and numbers."""
        ...

    def client(
        self,
        party: PartyId,
        client_input: ClientInput,
        *,
        secrets: PartySecrets = NO_SECRETS,
        entropy: Entropy = os_entropy,
    ) -> ClientSession:
        """Return a client's session. A given vector is checked now, a callable's when it is needed.

        Raises:
            ConfigurationError: no client of this cohort, or not the secrets that its public keys ask for.
            InvalidVectorError: the vector does not fit the layout.
        """
        ...

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Return the session of one of ``helpers``.

        Raises:
            ConfigurationError: no helper of this sum, or not its secrets.
        """
        ...

    def server(self, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy) -> ServerSession:
        """Return the server's session.

        Raises:
            ConfigurationError: not the secrets that its public key asks for.
        """
        ...

    def failure(self, *, secrets: PartySecrets = NO_SECRETS) -> FailureSession | None:
        """Return the server's session in which it has certified that this sum failed; None where nobody can tell."""
        ...

    def check_failure(self, proof: bytes) -> None:
        """Refuse what does not prove that no total of this sum ever comes out (``FailureSession.proof``).

        Raises:
            RemoteProtocolError: it proves nothing, or nobody can tell in this mode.
        """
        ...

    def reconstruct_upload(self, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return a client's upload less all that a coalition can take off it; None if it saw no upload.

        Whether that is the client's vector is for the caller to find out: ``guarantee`` says when it should be.
        """
        ...
