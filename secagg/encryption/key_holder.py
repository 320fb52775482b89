"""The key holder of an encrypted sum: it decrypts one sum per session, and only over enough clients.

With identities a key holder that sees totals first agrees to their survivors, before it is given their sum. Where it
does not, or too few clients are left, it certifies the failure: it signs the empty survivor set and erases the key.
It can then decrypt nothing of this session and has seen no sum of it, so the clients may use the same data again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from secagg.config import SERVER
from secagg.encoder import EncodedSum
from secagg.encryption.cipher import VectorCipher
from secagg.encryption.seal import load_secret
from secagg.errors import (
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    RepeatedMessageError,
    SumOutOfBoundsError,
)
from secagg.layout import Layout
from secagg.party import Party
from secagg.primitives.identity import verifies
from secagg.ring import RingVector
from secagg.rounds import Round
from secagg.sessions import PartyId
from secagg.snapshots import HELPER, Stored, binding
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader, read_parties, signed_statement, write_parties


def write_request(survivors: Iterable[PartyId], encrypted_sum: bytes) -> bytes:
    """Return the request to the key holder: the survivors and the encrypted sum."""
    return write_parties(survivors) + encrypted_sum


def read_request(reader: Reader, cipher: VectorCipher) -> tuple[tuple[PartyId, ...], memoryview]:
    """Parse a request: the survivors and the encrypted sum."""
    request = tuple(reader.entries(0)), reader.view(cipher.upload_bytes)
    reader.end()
    return request


def read_words(reader: Reader, layout: Layout) -> RingVector:
    """Parse the key holder's answer: the sum modulo 2^(8 wire_bytes)."""
    words = RingVector.from_bytes(layout, reader.view(layout.wire_bytes))
    reader.end()
    return words


class KeyHolderState(Enum):
    """State of the key holder."""

    WAITING = "waiting for the sum"
    DONE = "done"
    FAILED = "certified to have failed"
    ABORTED = "aborted"


@dataclass(slots=True, kw_only=True)
class KeyHolderKept:
    """Stored state of a key holder's session, without the secret key."""

    state: KeyHolderState = KeyHolderState.WAITING
    answered: bytes = b""
    survivors: tuple[PartyId, ...] = ()
    """The survivors that it agreed to; empty before."""
    error: float | None = None


class KeyHolder(Party, Stored[KeyHolderKept]):
    """The key holder's session: it decrypts one sum and erases the key. A violation by the server ends it too.

    Args:
        config: public parameters of the sum.
        party: number of the key holder.
        cipher: encryption of the sum.
        survivors_needed: minimum number of clients in a sum that it decrypts, by its own policy.
        secrets: the secret context and, with identities, its signing key.

    Raises:
        ConfigurationError: ``secrets`` have no secret context of the cipher's parameters, or not the right signing key.
    """

    _config: EncodedSum

    def __init__(
        self,
        config: EncodedSum,
        *,
        party: PartyId,
        cipher: VectorCipher,
        survivors_needed: int,
        secrets: PartySecrets,
    ) -> None:
        load_secret(cipher.parameters, secrets.decryption)
        Party.__init__(self, config, party, secrets)
        self._kept, self._cipher, self._needed = KeyHolderKept(), cipher, survivors_needed
        self._secret_context: bytes | None = secrets.decryption

    @property
    def state(self) -> KeyHolderState:
        """State of the session."""
        return self._kept.state

    @property
    def error(self) -> float | None:
        """Largest digit error of the decrypted sum, for reports; None before."""
        return self._kept.error

    @property
    def snapshot_id(self) -> bytes:
        """Identifier that a snapshot must match to be restored."""
        return binding(HELPER, self._config.digest, self.party)

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of a snapshot; the key is erased if the session has ended."""
        Stored.restore(self, snapshot)
        if self.state is not KeyHolderState.WAITING:
            self._secret_context = None

    def start(self) -> None:
        """Return None: the key holder waits for a request."""
        return

    def receive(self, message: bytes) -> bytes:
        """Return the survivors that it agrees to, or the decrypted total of a sum over enough clients, once.

        Raises:
            MalformedMessageError: the frame belongs to another session, which changes nothing; or the request does not
                parse, which aborts.
            RepeatedMessageError: this request was answered before.
            LocalProtocolError: the session has ended.
            RemoteProtocolError: too few or unknown survivors, or no sum of honest ciphertexts; the session is aborted.
            ConsentRefusedError: it does not agree to these survivors; it has seen no sum, and can certify the failure.
        """
        frame = self._open_message(message)
        asked = hashlib.sha256(message).digest()
        if asked == self._kept.answered:
            raise RepeatedMessageError("this request was answered already; a sum is decrypted once", peer=SERVER)
        if self._secret_context is None:
            raise LocalProtocolError(
                f"this key holder is {self.state.value} and has forgotten its key; it decrypts one sum a session"
            )
        if frame.type is MessageType.SURVIVOR_SET and agrees_first(self._config):
            reader = Reader(frame.payload, peer=SERVER, max_entries=len(self._config.clients))
            return self._agree(read_parties(reader), asked)
        try:
            if frame.type is not MessageType.DECRYPTION_REQUEST:
                raise RemoteProtocolError(f"DECRYPTION_REQUEST is due, {frame.type.name} came", peer=SERVER)
            words = self._decrypt(Reader(frame.payload, peer=SERVER), self._secret_context)
        except BaseException:
            self._forget(KeyHolderState.ABORTED)
            raise
        self._kept.answered = asked
        self._forget(KeyHolderState.DONE)
        return self._seal_message(MessageType.DECRYPTED_SUM, b"", vector=words.wire_pieces())

    def _agree(self, survivors: tuple[PartyId, ...], asked: bytes) -> bytes:
        """Fix the survivors of the sum that will be decrypted, or erase the key: none will be.

        A refusal leaves all as it was: no sum was seen.
        """
        if survivors:
            self._check_survivors(survivors)
        else:
            self._forget(KeyHolderState.FAILED)
        self._kept.survivors, self._kept.answered = survivors, asked
        return self._seal_message(MessageType.SURVIVOR_SET, write_parties(survivors))

    def _decrypt(self, reader: Reader, secret_context: bytes) -> RingVector:
        survivors, encrypted_sum = read_request(reader, self._cipher)
        self._check_survivors(survivors)
        try:
            decrypted = self._cipher.decrypt(encrypted_sum, secret_context)
        except SumOutOfBoundsError as error:
            raise RemoteProtocolError(str(error), peer=SERVER) from error
        except MalformedMessageError as error:
            raise MalformedMessageError(str(error), peer=SERVER) from error
        self._kept.error = decrypted.error
        return decrypted.vector

    def _check_survivors(self, survivors: tuple[PartyId, ...]) -> None:
        """Refuse survivors that are too few, unknown or others than before, and those that the callback refuses."""
        if self._kept.survivors:
            if survivors != self._kept.survivors:
                raise RemoteProtocolError("this key holder agreed to other survivors; it decrypts one sum", peer=SERVER)
            return
        strangers = set(survivors) - set(self._config.clients)
        if strangers:
            raise RemoteProtocolError(f"{len(strangers)} survivors are not in this session's cohort", peer=SERVER)
        if len(survivors) < self._needed:
            raise RemoteProtocolError(
                f"the sum must be over at least {self._needed} clients and the server names {len(survivors)}; "
                "it is not decrypted",
                peer=SERVER,
            )
        if not self._cipher.masked:  # what it decrypts under masks is no total until the clients take them off
            self._ask_consent(survivors)

    def _forget(self, state: KeyHolderState) -> None:
        self._kept.state, self._secret_context = state, None


def agrees_first(config: EncodedSum) -> bool:
    """Return whether the key holder of a sum agrees to its survivors before it is given their sum.

    It signs then, and under masks it sees no total, which the clients' own signatures release.
    """
    return not config.MASKED and any(map(config.identity_of, config.helpers))


class KeyHolderFailure(Party):
    """The server's side of a certified failure: it asks the key holder and needs no state of the failed sum.

    Args:
        config: the sum.
        secrets: the server's signing key.
    """

    def __init__(self, config: EncodedSum, *, secrets: PartySecrets) -> None:
        Party.__init__(self, config, SERVER, secrets)
        self._round, self.proof = Round.of(MessageType.SURVIVOR_SET, config.helpers), b""

    def requests(self) -> Mapping[PartyId, bytes]:
        """Return the request; a key holder that was given a sum refuses."""
        nobody = write_parties(())
        return {party: self._seal_message(MessageType.SURVIVOR_SET, nobody, party) for party in self._round.waiting_for}

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process the key holder's answer.

        Raises:
            RemoteProtocolError: the message does not certify the failure.
        """
        frame = self._open_message(message, sender)
        self._round.check(sender, frame)
        if read_parties(Reader(frame.payload, peer=sender)):
            raise RemoteProtocolError("it did not sign that the sum failed", peer=sender)
        self._round.accept(sender)
        self.proof = frame.signature

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """The key holder, until it has signed."""
        return self._round.waiting_for

    @property
    def n_more(self) -> int:
        """Number of signatures that are missing: 1 until the key holder has signed."""
        return len(self.waiting_for)


def check_failure(config: EncodedSum, proof: bytes) -> None:
    """Verify a key holder's signature on the empty survivor set.

    Raises:
        RemoteProtocolError: it did not sign that this very sum failed.
    """
    (holder,), nobody = config.helpers, write_parties(())
    said = signed_statement(MessageType.SURVIVOR_SET, nobody, digest=config.digest, sender=holder, recipient=SERVER)
    if not verifies(config.identity_of(holder), proof, said):
        raise RemoteProtocolError(
            f"the key holder, party {holder}, must have signed that this very sum has no survivors, and did not; it "
            "counts as released",
            peer=SERVER,
        )
