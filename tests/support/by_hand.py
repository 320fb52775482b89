"""A sum whose messages a test moves by hand, half a round at a time, so that it can lie for whom it likes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from secagg import IntVector, PartyId, SumResult, os_entropy
from secagg.committee.messages import (
    CommitteeInput,
    MaskSum,
    SeedDelivery,
    SetCertificate,
)
from secagg.config import SERVER
from secagg.encryption.key_holder import read_request
from secagg.entropy import Entropy
from secagg.in_memory import Parties as Everybody
from secagg.masked.messages import (
    AdvertisedKeys,
    Roster,
    SealedShares,
    ShareDelivery,
    SurvivorProof,
    UnmaskShares,
)
from secagg.wire import (
    HEADER_BYTES,
    MessageType,
    Reader,
    message_type,
    payload_of,
    read_parties,
    seal_frame,
    sender_of,
)
from support.parties import key_of, resealed

LISTS = frozenset(
    {
        MessageType.SEED_COMPLAINTS,
        MessageType.SURVIVOR_SET,
        MessageType.MASK_REQUEST,
        MessageType.UNMASK_REQUEST,
    }
)
"""Messages that are a list of parties, or of sets."""


class ByHand:
    """Everybody's sessions in one sum.

    Args:
        parties: who makes them.
        vectors: each client's.
        gone: client to how many messages of its arrive.
        entropy: where a party's randomness comes from.
        noise: what a total of some clients holds beside their vectors.
    """

    def __init__(
        self,
        parties: Everybody,
        vectors: Mapping[PartyId, IntVector],
        *,
        gone: Mapping[PartyId, int] | None = None,
        entropy: Callable[[PartyId], Entropy] = lambda _: os_entropy,
        noise: Callable[[tuple[PartyId, ...]], Any] = lambda _: 0,
    ) -> None:
        self.parties, self.vectors, self.gone, self._noise = parties, vectors, gone or {}, noise
        self.config: Any = getattr(parties, "protocol", parties)
        self.server: Any = parties.server()
        self.sessions: dict[PartyId, Any] = {p: parties.client(p, v, entropy=entropy(p)) for p, v in vectors.items()}
        self.sessions |= {p: parties.helper(p) for p in parties.helpers}
        self.sent: dict[MessageType, dict[PartyId, bytes]] = {}
        """Every message by its type and by who is no server at its other end."""
        self.requests: dict[PartyId, bytes] = {}
        self.said: dict[PartyId, bytes] = {}
        self._heard = dict.fromkeys(self.sessions, 0)
        self._say({party: session.start() for party, session in self.sessions.items()})

    def to_server(self) -> dict[PartyId, bytes]:
        """Deliver what was said by those who have not vanished, and close the round; the server's next requests."""
        said, self.said = self.said, {}
        for party, message in said.items():
            if self._heard[party] < self.gone.get(party, 99):
                self.server.receive(party, message)
            self._heard[party] += 1
        self.requests = dict(self.server.close_round())
        self._remember(self.requests)
        return self.requests

    def to_parties(self) -> dict[PartyId, bytes]:
        """Deliver the requests; what clients and helpers say."""
        requests, self.requests = self.requests, {}
        return self._say({party: self.sessions[party].receive(request) for party, request in requests.items()})

    def go_on(self) -> dict[PartyId, bytes]:
        """Deliver what lies undelivered."""
        return self.to_parties() if self.requests else self.to_server()

    def first_answers(self) -> dict[PartyId, bytes]:
        """What clients say first; in later sums of a series the server asks them to."""
        while not self.said:
            self.go_on()
        return self.said

    def until(self, due: MessageType) -> dict[PartyId, bytes]:
        """The messages of this type, made and not yet delivered: change them, and what is delivered changes."""
        while True:
            for box in (self.requests, self.said):
                if box and message_type(next(iter(box.values()))) is due:
                    return box
            self.go_on()

    def finish(self) -> SumResult:
        """What comes out if everybody goes on honestly."""
        while self.server.result is None:
            self.go_on()
        result: SumResult = self.server.result
        return result

    def finishes_exactly(self) -> tuple[PartyId, ...]:
        """Whose vectors are in the total; it is exact."""
        result = self.finish()
        total = sum(self.vectors[party] for party in result.survivors) + self._noise(result.survivors)
        assert result.total.tobytes() == total.tobytes()
        return result.survivors

    def framed(self, type_: MessageType, content: Any, party: PartyId, *, up: bool = False) -> bytes:
        """A message between the server and a party that says this."""
        digest = self.config.digest_of(type_)
        payload = content if isinstance(content, bytes) else content.to_payload()
        sender, recipient = (party, SERVER) if up else (SERVER, party)
        identity = key_of(sender) if self.config.is_authenticated else None
        return seal_frame(type_, payload, digest=digest, sender=sender, recipient=recipient, identity=identity)

    def read(self, message: bytes) -> Any:
        """What a message says."""
        return content_of(message, self.config)

    def _say(self, answers: Mapping[PartyId, bytes | None]) -> dict[PartyId, bytes]:
        self.said = {party: answer for party, answer in answers.items() if answer is not None}
        self._remember(self.said)
        return self.said

    def _remember(self, messages: Mapping[PartyId, bytes]) -> None:
        for party, message in messages.items():
            self.sent.setdefault(MessageType(message[5]), {})[party] = message


def forged(message: bytes, content: Any) -> bytes:
    """The message with another payload, signed by its sender where it was (``key_of``): what a liar can always make."""
    return resealed(message, content if isinstance(content, bytes) else content.to_payload())


def content_of(message: bytes, config: Any) -> Any:
    """What a message says: an object of its class, or the bytes of its payload where it has none."""
    reader, type_ = Reader(memoryview(payload_of(message)), peer=sender_of(message)), message_type(message)
    if type_ is MessageType.ADVERTISED_KEYS:
        return AdvertisedKeys.read(reader, signature=message[len(message) - message[HEADER_BYTES - 1] :])
    if type_ is MessageType.ROSTER:
        return Roster.read(reader, signature_bytes=message[HEADER_BYTES - 1])
    of_committee = {
        MessageType.COMMITTEE_INPUT: CommitteeInput,
        MessageType.SEED_DELIVERY: SeedDelivery,
        MessageType.SET_CERTIFICATE: SetCertificate,
        MessageType.MASK_SUM: MaskSum,
    }
    if type_ in of_committee:
        return of_committee[type_].read(reader, config)
    if type_ in LISTS:
        return read_parties(reader)
    if type_ is MessageType.DECRYPTION_REQUEST:
        return read_request(reader, config.encoder.cipher(config))
    plainly = {
        MessageType.SEALED_SHARES: SealedShares,
        MessageType.SHARE_DELIVERY: ShareDelivery,
        MessageType.SURVIVOR_PROOF: SurvivorProof,
        MessageType.UNMASK_SHARES: UnmaskShares,
    }
    return plainly[type_].read(reader) if type_ in plainly else payload_of(message)
