"""The key holder: the only party that can decrypt, and it decrypts one sum. What it is asked and what it answers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from secagg.config import SERVER, SumConfig
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
from secagg.ring import RingVector
from secagg.sessions import PartyId
from secagg.snapshots import HELPER, Stored, binding
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader, write_parties


def write_request(survivors: Iterable[PartyId], encrypted_sum: bytes) -> bytes:
    """Return what the server asks the key holder: whose vectors are in the sum, and the sum."""
    return write_parties(survivors) + encrypted_sum


def read_request(reader: Reader, cipher: VectorCipher) -> tuple[tuple[PartyId, ...], bytes]:
    """Return the survivors and the encrypted sum of a request."""
    request = tuple(reader.entries(0)), reader.take(cipher.upload_bytes)
    reader.end()
    return request


def read_words(reader: Reader, layout: Layout) -> RingVector:
    """Return what the key holder answered: the sum modulo 2^(8 wire_bytes)."""
    words = RingVector.from_bytes(layout, reader.take(layout.wire_bytes))
    reader.end()
    return words


class KeyHolderState(Enum):
    """Where the key holder stands."""

    WAITING = "waiting for the sum"
    DONE = "done"
    ABORTED = "aborted"


@dataclass(slots=True, kw_only=True)
class KeyHolderKept:
    """What a key holder's stored session says. Its secret key is not in it: that stays where it was."""

    state: KeyHolderState = KeyHolderState.WAITING
    answered: bytes = b""
    error: float | None = None


class KeyHolder(Party, Stored[KeyHolderKept]):
    """Answers one request and forgets the key. A fault of the server ends it too.

    Args:
        config: the session; its cohort and digest.
        party: the key holder's number.
        cipher: how the sum travels.
        survivors_needed: fewest clients in a sum that it decrypts, by its own policy.
        secrets: the secret key, and its signing key where there are identities.

    Raises:
        ConfigurationError: no secret context of the cipher's parameters, or not its signing key.
    """

    _config: SumConfig

    def __init__(
        self,
        config: SumConfig,
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
        """Where it stands."""
        return self._kept.state

    @property
    def error(self) -> float | None:
        """The largest digit error of the sum that was decrypted, for reports."""
        return self._kept.error

    @property
    def snapshot_id(self) -> bytes:
        """What ties a stored session to this one."""
        return binding(HELPER, self._config.digest, self.party)

    def restore(self, snapshot: bytes) -> None:
        """Go where the snapshot says: one that has answered never does again."""
        Stored.restore(self, snapshot)
        if self.state is not KeyHolderState.WAITING:
            self._secret_context = None

    def start(self) -> None:
        """Nothing: the key holder waits to be asked."""
        return

    def receive(self, message: bytes) -> bytes:
        """Return the total of a sum over enough clients, once.

        Raises:
            MalformedMessageError: foreign bytes, and nothing changes; or a request that does not parse, which aborts.
            RepeatedMessageError: this request was answered.
            LocalProtocolError: the session is over.
            RemoteProtocolError: too few survivors, strangers, or no sum of honest ciphertexts; the session is aborted.
        """
        frame = self._open_message(message)
        asked = hashlib.sha256(message).digest()
        if asked == self._kept.answered:
            raise RepeatedMessageError("this request was answered already; a sum is decrypted once", peer=SERVER)
        if self._secret_context is None:
            raise LocalProtocolError(
                f"this key holder is {self.state.value} and has forgotten its key; it decrypts one sum a session"
            )
        try:
            if frame.type is not MessageType.DECRYPTION_REQUEST:
                raise RemoteProtocolError(f"DECRYPTION_REQUEST is due, {frame.type.name} came", peer=SERVER)
            words = self._decrypt(Reader(frame.payload, peer=SERVER), self._secret_context)
        except BaseException:
            self._forget(KeyHolderState.ABORTED)
            raise
        self._kept.answered = asked
        self._forget(KeyHolderState.DONE)
        return self._seal_message(MessageType.DECRYPTED_SUM, words.to_bytes())

    def _decrypt(self, reader: Reader, secret_context: bytes) -> RingVector:
        survivors, encrypted_sum = read_request(reader, self._cipher)
        strangers = set(survivors) - set(self._config.clients)
        if strangers:
            raise RemoteProtocolError(f"{len(strangers)} survivors are not in this session's cohort", peer=SERVER)
        if len(survivors) < self._needed:
            raise RemoteProtocolError(
                f"the sum must be over at least {self._needed} clients and the server names {len(survivors)}; "
                "it is not decrypted",
                peer=SERVER,
            )
        try:
            decrypted = self._cipher.decrypt(encrypted_sum, secret_context)
        except SumOutOfBoundsError as error:
            raise RemoteProtocolError(str(error), peer=SERVER) from error
        except MalformedMessageError as error:
            raise MalformedMessageError(str(error), peer=SERVER) from error
        if not self._cipher.masked:  # what it decrypts under masks is no total until the clients take them off
            self._ask_consent(survivors)
        self._kept.error = decrypted.error
        return decrypted.vector

    def _forget(self, state: KeyHolderState) -> None:
        self._kept.state, self._secret_context = state, None
