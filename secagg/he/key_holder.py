"""The key holder: the only party that can decrypt, and it decrypts one sum."""

from __future__ import annotations

import hashlib
from enum import Enum

from secagg.config import SERVER, SumConfig
from secagg.errors import LocalProtocolError, RemoteProtocolError, RepeatedMessageError, SumOutOfBoundsError
from secagg.he.carrier import EncryptedCarrier
from secagg.he.contexts import load_secret
from secagg.he.messages import DecryptedSumMessage, DecryptionRequest
from secagg.sessions import PartyId
from secagg.wire import MessageType, Reader, open_frame, seal_frame


class KeyHolderState(Enum):
    """Where the key holder stands."""

    WAITING = "waiting for the sum"
    DONE = "done"
    ABORTED = "aborted"


class KeyHolder:
    """Answers one ``DecryptionRequest`` and forgets the key. A fault of the server ends it too.

    Args:
        config: the session; its cohort and digest.
        party: the key holder's number.
        carrier: how the sum travels.
        survivors_needed: fewest clients in a sum that it decrypts, by its own policy.
        secret_context: the secret key.

    Raises:
        ConfigurationError: no secret context of the carrier's parameters.
    """

    def __init__(
        self,
        config: SumConfig,
        *,
        party: PartyId,
        carrier: EncryptedCarrier,
        survivors_needed: int,
        secret_context: bytes,
    ) -> None:
        load_secret(carrier.parameters, secret_context)
        self.party = party
        self.state = KeyHolderState.WAITING
        self.error: float | None = None
        """The largest limb error of the sum that was decrypted, for reports."""
        self._config, self._carrier, self._needed = config, carrier, survivors_needed
        self._secret_context: bytes | None = secret_context
        self._answered: bytes | None = None

    def start(self) -> None:
        """Nothing: the key holder waits to be asked."""
        return

    def receive(self, message: bytes) -> bytes:
        """The total of a sum over enough clients, once.

        Raises:
            MalformedMessageError: foreign bytes; nothing changes.
            RepeatedMessageError: this request was answered.
            LocalProtocolError: the session is over.
            RemoteProtocolError: too few survivors, strangers, or no sum of honest ciphertexts; the session is aborted.
        """
        frame = open_frame(message, digest=self._config.digest, sender=SERVER, recipient=self.party)
        fingerprint = hashlib.sha256(message).digest()
        if fingerprint == self._answered:
            raise RepeatedMessageError("this request was answered already; a sum is decrypted once", peer=SERVER)
        if self._secret_context is None:
            raise LocalProtocolError(
                f"this key holder is {self.state.value} and has forgotten its key; it decrypts one sum a session"
            )
        try:
            if frame.type is not MessageType.DECRYPTION_REQUEST:
                raise RemoteProtocolError(f"DECRYPTION_REQUEST is due, {frame.type.name} came", peer=SERVER)
            answer = self._decrypt(Reader(frame.payload, peer=SERVER), self._secret_context)
        except BaseException:
            self._forget(KeyHolderState.ABORTED)
            raise
        self._answered = fingerprint
        self._forget(KeyHolderState.DONE)
        return seal_frame(
            MessageType.DECRYPTED_SUM, answer, digest=self._config.digest, sender=self.party, recipient=SERVER
        )

    def _decrypt(self, reader: Reader, secret_context: bytes) -> bytes:
        request = DecryptionRequest.read(reader, self._carrier)
        survivors = frozenset(request.survivors)
        strangers = survivors - frozenset(self._config.clients)
        if strangers:
            raise RemoteProtocolError(f"{len(strangers)} survivors are not in this session's cohort", peer=SERVER)
        if len(survivors) < self._needed:
            raise RemoteProtocolError(
                f"the sum must be over at least {self._needed} clients and the server names {len(survivors)}; "
                "it is not decrypted",
                peer=SERVER,
            )
        try:
            decrypted = self._carrier.decrypt(request.encrypted_sum, secret_context)
        except SumOutOfBoundsError as error:
            raise RemoteProtocolError(str(error), peer=SERVER) from error
        self.error = decrypted.error
        return DecryptedSumMessage(vector=decrypted.vector).to_payload()

    def _forget(self, state: KeyHolderState) -> None:
        self.state = state
        self._secret_context = None
