"""Certified failure of a committee sum: a quorum of helpers signs the empty survivor set.

A helper signs one set per session and two quorums share an honest helper. With a quorum on the empty set no other set
can have one, so no masks are ever removed. Clients may then use the same data again
(``docs/explanation/committee-proofs.md``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from secagg.committee.messages import SET_LABEL, SetCertificate, set_hash
from secagg.config import SERVER
from secagg.errors import RemoteProtocolError
from secagg.party import Party
from secagg.primitives.identity import SIGNATURE_BYTES, is_signed
from secagg.rounds import Round
from secagg.sessions import PartyId
from secagg.sums import PartySecrets
from secagg.wire import MessageType, Reader, write_parties

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


class CommitteeFailure(Party):
    """The server's side: it asks every helper and needs no state of the failed sum."""

    _config: CommitteeSum

    def __init__(self, config: CommitteeSum, *, secrets: PartySecrets) -> None:
        Party.__init__(self, config, SERVER, secrets)
        self._round = Round.of(MessageType.SET_SIGNATURE, config.helpers)
        self._signatures: dict[PartyId, bytes] = {}

    def requests(self) -> Mapping[PartyId, bytes]:
        """Return the requests by helper; a helper that signed survivors refuses."""
        nobody = write_parties(())
        return {helper: self._seal_message(MessageType.SURVIVOR_SET, nobody, helper) for helper in self._config.helpers}

    def receive(self, sender: PartyId, message: bytes) -> None:
        """Process a helper's signature.

        Raises:
            RemoteProtocolError: the message is no valid signature on the failure.
        """
        config, frame = self._config, self._open_message(message, sender)
        self._round.check(sender, frame)
        signature = Reader(frame.payload, peer=sender).only(SIGNATURE_BYTES)
        if not is_signed(config.helper_identity(sender), signature, SET_LABEL, set_hash(config.digest, {})):
            raise RemoteProtocolError("it did not sign that the sum failed", peer=sender)
        self._round.accept(sender)
        self._signatures[sender] = signature

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        """Helpers that have not signed."""
        return self._round.waiting_for

    @property
    def n_more(self) -> int:
        """Number of helpers that must still sign."""
        return max(0, self._config.seed_sharing.quorum - len(self._signatures))

    @property
    def proof(self) -> bytes:
        """Proof for ``CommitteeSum.check_failure``; empty until a quorum signed."""
        if self.n_more:
            return b""
        return SetCertificate(survivors=(), signatures=self._signatures).to_payload()


def check_failure(config: CommitteeSum, proof: bytes) -> None:
    """Verify a proof that a sum failed.

    Raises:
        RemoteProtocolError: fewer than a quorum of its helpers signed the failure.
    """
    reader = Reader(memoryview(proof), peer=SERVER, max_entries=len(config.helpers))
    certificate, needed = SetCertificate.read(reader, config), config.seed_sharing.quorum
    signed = certificate.signers(config, set_hash(config.digest, {}))
    if certificate.survivors or len(signed) < needed:
        raise RemoteProtocolError(
            f"{needed} helpers of this very sum must have signed that it has no survivors, and {len(signed)} of the "
            f"{len(certificate.signatures)} signatures say so; it counts as released",
            peer=SERVER,
        )
