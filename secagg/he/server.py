"""The server of an encrypted sum."""

from __future__ import annotations

from collections.abc import Mapping

from secagg.config import SERVER
from secagg.errors import HelperMissingError, TooFewSurvivorsError
from secagg.he.config import EncryptedSumParameters
from secagg.he.messages import DecryptedSumMessage, DecryptionRequest, EncryptedInput
from secagg.he.residues import CiphertextSum
from secagg.ring import RingVector
from secagg.rounds import Round, ServerRounds
from secagg.sessions import PartyId, SumResult
from secagg.wire import MessageType, Reader, seal_frame


class EncryptedServer(ServerRounds):
    """Adds ciphertexts as they arrive, keeps the sum only, and has the key holder decrypt it. It holds no key."""

    def __init__(self, config: EncryptedSumParameters) -> None:
        ServerRounds.__init__(self, Round(config.digest, EncryptedInput.TYPE, config.clients))
        self._config = config
        self._carrier = config.carrier
        self._sum: CiphertextSum | None = self._carrier.empty_sum()
        self._survivors: tuple[PartyId, ...] = ()
        self._total: RingVector | None = None

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Take a client's ciphertexts or the key holder's answer, or refuse it and stay as before."""
        with self._taking() as round_:
            reader = Reader(round_.open(sender, message).payload, peer=sender)
            if self._sum is not None:
                self._sum.add(EncryptedInput.read(reader, self._carrier).ciphertexts, peer=sender)
            else:
                self._total = DecryptedSumMessage.read(reader, self._config.layout).vector
            round_.accept(sender, message)

    def close_round(self) -> Mapping[PartyId, bytes]:
        """Ask the key holder, or release the total that it decrypted.

        Raises:
            TooFewSurvivorsError: too few clients sent a vector.
            HelperMissingError: the key holder has not answered.
            SumOutOfBoundsError: the total lies outside its bound.
        """
        try:
            with self._closing() as round_:
                return self._request_decryption(round_) if self._sum is not None else self._release(round_)
        except BaseException:
            self._sum = self._total = None
            raise

    def _request_decryption(self, round_: Round) -> Mapping[PartyId, bytes]:
        needed, came = self._config.min_survivors, len(round_.answered)
        if came < needed:
            raise TooFewSurvivorsError(
                stage=round_.answer.name, needed=needed, came=came, cohort=len(self._config.clients)
            )
        assert self._sum is not None
        self._survivors = tuple(sorted(round_.answered))
        request = DecryptionRequest(survivors=self._survivors, encrypted_sum=self._sum.to_bytes())
        self._sum = None
        holder = self._config.key_holder
        self._round = Round(self._config.digest, MessageType.DECRYPTED_SUM, [holder])
        return {
            holder: seal_frame(
                request.TYPE, request.to_payload(), digest=self._config.digest, sender=SERVER, recipient=holder
            )
        }

    def _release(self, round_: Round) -> Mapping[PartyId, bytes]:
        if self._total is None:
            raise HelperMissingError(missing=(self._config.key_holder,))
        self._result = SumResult(total=self._total.decode(), survivors=self._survivors)
        self._round = self._total = None
        return {}
