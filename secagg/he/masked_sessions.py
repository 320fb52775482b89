"""Client and server of a sum that is masked, then encrypted: the masked sum's, but for how a vector travels."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from secagg.entropy import Entropy
from secagg.errors import HelperMissingError
from secagg.he.masked_config import MaskedEncryptedParameters
from secagg.he.messages import DecryptedSumMessage, DecryptionRequest, EncryptedInput
from secagg.he.residues import CiphertextSum
from secagg.he.snapshots import read_sum, write_sum
from secagg.masked.client import MaskedClient
from secagg.masked.server import MaskedServer
from secagg.masked.snapshots import restore_server, snapshot_server
from secagg.ring import RingVector
from secagg.rounds import Round
from secagg.sessions import Contribution, PartyId
from secagg.snapshots import hash_snapshot, server_snapshot
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader


class MaskedEncryptedClient(MaskedClient):
    """Encrypts its masked vector to the key holder; MASKED_INPUT carries the ciphertexts."""

    def __init__(
        self,
        config: MaskedEncryptedParameters,
        party: PartyId,
        contribution: Contribution | None,
        *,
        secrets: PartySecrets,
        entropy: Entropy,
    ) -> None:
        MaskedClient.__init__(self, config, party, contribution, secrets=secrets, entropy=entropy)
        self._carrier, self._public_context = config.carrier, config.public_context

    def _carried(self, masked: RingVector) -> bytes:
        return self._carrier.encrypt(masked, self._public_context)


class MaskedEncryptedServer(MaskedServer):
    """Adds ciphertexts, rebuilds the masks as ever, then has the key holder decrypt the masked sum and takes them off.

    The key holder is asked last, when it is certain that its answer gives a total.
    """

    def __init__(self, config: MaskedEncryptedParameters) -> None:
        MaskedServer.__init__(self, config)
        self._carrier, self._key_holder = config.carrier, config.key_holder
        self._encrypted: CiphertextSum | None = self._carrier.empty_sum()
        self._decrypted: RingVector | None = None

    def _takers(self) -> dict[MessageType, Callable[[PartyId, Reader], None]]:
        return MaskedServer._takers(self) | {MessageType.DECRYPTED_SUM: self._take_decrypted_sum}

    def _closers(self) -> dict[MessageType, Callable[[frozenset[PartyId]], Mapping[PartyId, bytes]]]:
        return MaskedServer._closers(self) | {MessageType.DECRYPTED_SUM: self._release}

    def _need_enough(self, round_: Round) -> None:
        if round_.answer is not MessageType.DECRYPTED_SUM:
            MaskedServer._need_enough(self, round_)
        elif round_.waiting_for:
            raise HelperMissingError(missing=(self._key_holder,))

    def _take_masked_vector(self, sender: PartyId, reader: Reader) -> None:
        ciphertexts = EncryptedInput.read(reader, self._carrier).ciphertexts
        assert self._encrypted is not None
        self._encrypted.add(ciphertexts, peer=sender)

    def _without_masks(self) -> Mapping[PartyId, bytes]:
        """The masks are known, ``_sum`` holds them negated: ask for what they are to be taken off."""
        assert self._encrypted is not None
        request = DecryptionRequest(survivors=tuple(sorted(self._survivors)), encrypted_sum=self._encrypted.to_bytes())
        self._encrypted = None
        self._ask(MessageType.DECRYPTED_SUM, [self._key_holder])
        return {self._key_holder: self._message(self._key_holder, request.TYPE, request.to_payload())}

    def _take_decrypted_sum(self, sender: PartyId, reader: Reader) -> None:
        self._decrypted = DecryptedSumMessage.read(reader, self._config.layout).vector

    def _release(self, answered: frozenset[PartyId]) -> Mapping[PartyId, bytes]:
        assert self._decrypted is not None
        self._sum.add(self._decrypted)
        self._decrypted = None
        return MaskedServer._without_masks(self)


def snapshot_encrypted_server(server: MaskedEncryptedServer) -> bytes:
    """The masked sum's snapshot, then the ciphertexts or what they decrypted to."""
    inner = snapshot_server(server)
    carried = write_sum(server._encrypted, server._decrypted)
    return hash_snapshot(server._config, len(inner).to_bytes(4, "big") + inner + carried)


def restore_encrypted_server(config: MaskedEncryptedParameters, snapshot: bytes) -> MaskedEncryptedServer:
    """The server that a snapshot holds.

    Raises:
        SnapshotError: another session, or changed bytes.
    """
    with server_snapshot(config, snapshot) as reader:
        inner = reader.take(reader.number())
        carried = read_sum(reader, config.carrier.empty_sum(), config.layout)
    server = restore_server(config, inner, make=MaskedEncryptedServer)
    assert isinstance(server, MaskedEncryptedServer)
    server._encrypted, server._decrypted = carried
    return server
