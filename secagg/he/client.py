"""A client of an encrypted sum."""

from __future__ import annotations

from secagg.config import SERVER
from secagg.contribution import check_now, resolve
from secagg.errors import LocalProtocolError, RemoteProtocolError
from secagg.he.config import EncryptedSumParameters
from secagg.he.messages import EncryptedInput
from secagg.ring import RingVector
from secagg.sessions import Contribution, PartyId
from secagg.wire import seal_frame


class EncryptedClient:
    """Sends one message, its encrypted vector, and expects none."""

    def __init__(self, config: EncryptedSumParameters, party: PartyId, contribution: Contribution) -> None:
        config.index(party)
        check_now(config.layout, contribution)
        self._config = config
        self._contribution: Contribution | None = contribution
        self.party = party

    @property
    def has_spoken(self) -> bool:
        """Whether its one message is out."""
        return self._contribution is None

    def start(self) -> bytes:
        """The encrypted vector."""
        if self._contribution is None:
            raise LocalProtocolError("start() was called already; one session sends one vector")
        config = self._config
        vector = RingVector.encode(config.layout, resolve(config.layout, self._contribution))
        message = EncryptedInput(ciphertexts=config.carrier.encrypt(vector, config.public_context))
        self._contribution = None
        return seal_frame(
            EncryptedInput.TYPE, message.to_payload(), digest=config.digest, sender=self.party, recipient=SERVER
        )

    def receive(self, message: bytes) -> bytes | None:
        """Refuse everything: this client is asked nothing."""
        raise RemoteProtocolError("an encrypted sum has no messages from the server to a client", peer=SERVER)
