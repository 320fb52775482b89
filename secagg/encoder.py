"""How a vector travels to the server: as ring bytes here, encrypted to a key holder in ``secagg.encryption``.

A sum asks its encoder what to send, what adds up, and whether somebody beside the clients must be asked for the total.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from secagg.config import SumConfig
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.errors import (
    ConfigurationError,
    InvalidVectorError,
    RemoteProtocolError,
    SumOutOfBoundsError,
)
from secagg.ring import RingVector
from secagg.sessions import ClientSession, PartyId
from secagg.sums import NO_SECRETS, CoalitionView, PartySecrets
from secagg.wire import MessageType, Reader

if TYPE_CHECKING:
    from secagg.layout import Layout


class RunningSum:
    """What a server has of its sum while messages arrive: here ring vectors, which it adds itself.

    Args:
        layout: their shape.
        checked_for: how many clients the sum has, where nothing hides a vector: each is then held to the bounds for
            one client; 0 where vectors are masked or encrypted.
    """

    def __init__(self, layout: Layout, *, checked_for: int = 0) -> None:
        self._layout, self._checked_for = layout, checked_for
        self.words = RingVector.zeros(layout)
        """What is known of the sum in the ring; whoever masked takes the masks off here."""

    def add(self, payload: bytes | memoryview, *, peer: PartyId) -> None:
        """Add one client's vector; a refused one changes nothing.

        Raises:
            MalformedMessageError: no vector of this sum.
            RemoteProtocolError: an entry beyond what one client may send.
        """
        reader = Reader(memoryview(payload), peer=peer)
        data = reader.take(self._layout.wire_bytes)
        reader.end()
        vector = RingVector.from_bytes(self._layout, data)
        if self._checked_for:
            try:
                self._layout.check(vector.decode(), self._checked_for)
            except (InvalidVectorError, SumOutOfBoundsError) as error:
                raise RemoteProtocolError(
                    f"its vector is beyond what one client may send: {error}", peer=peer
                ) from error
        self.words.add(vector)

    def decryption_request(self, survivors: tuple[PartyId, ...]) -> bytes | None:
        """Return what the key holder is asked for what is missing in ``words``; None where nothing is missing."""
        return None

    def add_decrypted(self, reader: Reader) -> None:
        """Add what the key holder answered to ``words``."""
        raise AssertionError("nobody was asked")

    def to_snapshot(self) -> bytes:
        """Return all of it as bytes."""
        return self.words.to_bytes()

    def read_snapshot(self, reader: Reader) -> Self:
        """Return the sum of the same parameters that ``to_snapshot`` gave; this one stays as it is."""
        stored = type(self)(self._layout, checked_for=self._checked_for)
        stored.words = RingVector.from_bytes(self._layout, reader.take(self._layout.wire_bytes)).copy()
        return stored


@dataclass(frozen=True, slots=True)
class Encoder:
    """One way for vectors to travel: here as ring bytes, with nobody beside clients and server.

    ``secagg.encryption.Encrypted`` is the other one.
    """

    def name_of(self, alone: str) -> str:
        """Return the name of a mode that is called ``alone`` when vectors travel as ring bytes."""
        return alone

    @property
    def input_type(self) -> MessageType:
        """The message that brings a vector where nothing masks it."""
        return MessageType.PLAIN_INPUT

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Whom the sum needs beside clients and server."""
        return ()

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """The keys of these, by role."""
        return {}

    @property
    def digested(self) -> tuple[bytes, ...]:
        """What a configuration digest takes of it, beside the key holder's identity; nothing for ring bytes."""
        return ()

    @property
    def holder_identity(self) -> bytes:
        """The key holder's public signing key; empty where there is none."""
        return b""

    @property
    def confirms_guesses(self) -> bool:
        """Whether unmasked vectors leave traces in the sum by which a key holder confirms a guess of one."""
        return False

    def check(self, config: EncodedSum) -> None:
        """Refuse a sum whose vectors cannot travel so.

        Raises:
            ConfigurationError: says why.
        """

    def vector_bytes(self, config: EncodedSum) -> int:
        """Return the bytes of a client's vector as it travels."""
        return config.layout.wire_bytes

    def helper_costs(self, config: EncodedSum) -> Mapping[str, PartyCost]:
        """Return what each role beside clients and server sends and receives."""
        return {}

    def explain(self, config: EncodedSum) -> list[str]:
        """Return lines about whom it needs to trust, for people."""
        if config.MASKED:
            return []
        return [
            f"{config.name} sum over {len(config.clients)} clients, session {config.session_id.hex()[:16]}...",
            "  NOT PRIVATE: whoever sees a client's message reads its vector (for tests and public data)",
            f"  a total holds at least {config.survivors_needed} clients, else none is released",
        ]

    def encode(self, vector: RingVector, config: EncodedSum) -> bytes:
        """Return a vector as it travels."""
        return vector.to_bytes()

    def begin(self, config: EncodedSum) -> RunningSum:
        """Return the sum of no vector."""
        return RunningSum(config.layout, checked_for=0 if config.MASKED else len(config.clients))

    def helper(self, config: EncodedSum, party: PartyId, secrets: PartySecrets) -> ClientSession:
        """Return the session of one of ``helpers``.

        Raises:
            ConfigurationError: that party is none.
        """
        raise ConfigurationError(f"a {config.name} sum has no helpers; party {party} has no part in it")

    def opened(self, config: EncodedSum, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the ring words of a client's upload as far as a coalition can tell; None if it saw no upload."""
        return knowledge.upload_as_sent(target, config.layout)


RING_BYTES = Encoder()
"""What sums take that say nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSum(SumConfig):
    """A sum whose vectors travel as its encoder says.

    Args:
        encoder: ring bytes by default; ``Encrypted`` for BFV and CKKS.
    """

    MASKED: ClassVar[bool] = False
    """Whether the words that travel are uniform under masks, and not integers within their bounds."""

    encoder: Encoder = RING_BYTES

    @property
    def survivors_needed(self) -> int:
        """Fewest clients whose vectors a released total holds."""
        raise NotImplementedError

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Whom the encoder needs."""
        return self.encoder.helpers

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Identities of clients and server where there are some, and the encoder's keys."""
        return {**self._signing_keys(), **self.encoder.public_keys}

    def helper_identity(self, helper: PartyId) -> bytes:
        """The key holder's."""
        return self.encoder.holder_identity

    @property
    def vector_bytes(self) -> int:
        """Bytes of a client's vector as it travels."""
        return self.encoder.vector_bytes(self)

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Return the session of a party that the encoder needs; it draws no entropy."""
        return self.encoder.helper(self, party, secrets)
