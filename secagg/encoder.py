"""Encoding of vectors for the upload: as ring bytes here, encrypted to a key holder in ``secagg.encryption``.

A sum uses its encoder to encode a client's vector, to add encoded vectors, and to request a decryption of the sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from secagg.config import SumConfig
from secagg.costs import PartyCost
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, RemoteProtocolError
from secagg.layout import count_beyond
from secagg.primitives.mask_stream import masked_pieces
from secagg.ring import ClientVector, RingVector, lift, read_words
from secagg.sessions import ClientSession, FailureSession, PartyId
from secagg.sums import NO_SECRETS, CoalitionView, PartySecrets
from secagg.wire import MessageType, Reader

if TYPE_CHECKING:
    from secagg.layout import Layout


class RunningSum:
    """The server's running sum of ring vectors.

    Args:
        layout: shape of the vectors.
        checked_for: number of clients of a sum of unmasked vectors: each vector is checked against the bounds for one
            client. 0 for masked or encrypted vectors.
    """

    def __init__(self, layout: Layout, *, checked_for: int = 0) -> None:
        self._layout, self._checked_for = layout, checked_for
        self.words = RingVector.zeros(layout)
        """The sum in the ring, from which the masks are subtracted."""

    def add(self, payload: bytes | memoryview, *, peer: PartyId) -> None:
        """Add one client's vector; a refused one changes nothing.

        Raises:
            MalformedMessageError: the payload is no vector of this layout.
            RemoteProtocolError: an entry exceeds the bound for one client.
        """
        reader = Reader(memoryview(payload), peer=peer)
        data = reader.view(self._layout.wire_bytes)
        reader.end()
        if self._checked_for:
            self._check(data, peer)
        self.words.add_bytes(data)

    def _check(self, data: memoryview, peer: PartyId) -> None:
        """Refuse a vector that exceeds the bounds for one client, before any of it is added."""
        segments = self._layout.segments
        bounds = [self._layout.client_bound(segment, self._checked_for) for segment in segments]
        beyond = [0] * len(segments)
        for number, _, words in read_words(self._layout, data):
            beyond[number] += count_beyond(lift(segments[number], words), bounds[number])
        for segment, count in zip(segments, beyond, strict=True):
            if count:
                error = self._layout.refusal(segment, count, self._checked_for)
                raise RemoteProtocolError(f"its vector is beyond what one client may send: {error}", peer=peer)

    def decryption_request(self, survivors: tuple[PartyId, ...]) -> bytes | None:
        """Return the request to the key holder; None if there is nothing to decrypt."""
        return None

    def add_decrypted(self, reader: Reader) -> None:
        """Add the words that the key holder decrypted."""
        raise AssertionError("nobody was asked")

    def to_snapshot(self) -> Iterator[bytes | memoryview]:
        """Yield the running sum as bytes, in parts."""
        return self.words.wire_pieces()

    def read_snapshot(self, reader: Reader) -> Self:
        """Read a running sum of the same parameters; inverse of ``to_snapshot``. This one does not change."""
        stored = type(self)(self._layout, checked_for=self._checked_for)
        stored.words = RingVector.from_bytes(self._layout, reader.view(self._layout.wire_bytes))
        return stored


@dataclass(frozen=True, slots=True)
class Encoder:
    """Encoding of vectors as ring bytes, without a key holder.

    ``secagg.encryption.Encrypted`` encrypts them.
    """

    input_type: ClassVar[MessageType] = MessageType.PLAIN_INPUT
    """Type of the message with an unmasked vector."""

    def name_of(self, alone: str) -> str:
        """Return the name of a mode with this encoder; ``alone`` is its name with ring bytes."""
        return alone

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Key holder of the encoder; empty for ring bytes."""
        return ()

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Public keys of the helpers, by role and party."""
        return {}

    @property
    def digested(self) -> tuple[bytes, ...]:
        """Encodings for the configuration digest, without the key holder's identity; empty for ring bytes."""
        return ()

    @property
    def holder_identity(self) -> bytes:
        """Ed25519 public key of the key holder; empty if there is none."""
        return b""

    @property
    def confirms_guesses(self) -> bool:
        """True if a key holder can confirm a guess of a vector from the noise of the sum (no circuit privacy)."""
        return False

    def check(self, config: EncodedSum) -> None:
        """Refuse a sum that this encoder cannot encode.

        Raises:
            ConfigurationError: the parameters do not fit the sum.
        """

    def vector_bytes(self, config: EncodedSum) -> int:
        """Return the number of bytes of an encoded vector."""
        return config.layout.wire_bytes

    def helper_costs(self, config: EncodedSum) -> Mapping[str, PartyCost]:
        """Return the costs of the encoder's helpers, by role."""
        return {}

    def explain(self, config: EncodedSum) -> list[str]:
        """Return lines of text about trust assumptions."""
        if config.MASKED:
            return []
        return [
            f"{config.name} sum over {len(config.clients)} clients, session {config.session_id.hex()[:16]}...",
            "  NOT PRIVATE: every reader of a client's message reads its vector (for tests and public data)",
            f"  a total holds at least {config.survivors_needed} clients, else none is released",
        ]

    def encode(
        self, vector: ClientVector, config: EncodedSum, masks: Sequence[tuple[bytes, int]] = ()
    ) -> Iterable[bytes | memoryview]:
        """Return a client's encoded vector, in parts that are made while they are written into its message.

        Args:
            vector: checked.
            config: the sum.
            masks: (seed, sign) of each mask that is added before.
        """
        return masked_pieces(config.layout, vector, masks, config.digest)

    def begin(self, config: EncodedSum) -> RunningSum:
        """Return an empty running sum."""
        return RunningSum(config.layout, checked_for=0 if config.MASKED else len(config.clients))

    def helper(self, config: EncodedSum, party: PartyId, secrets: PartySecrets) -> ClientSession:
        """Create the session of one of ``helpers``.

        Raises:
            ConfigurationError: ``party`` is not one of them.
        """
        raise ConfigurationError(f"a {config.name} sum has no helpers; party {party} has no part in it")

    def agrees_first(self, config: EncodedSum) -> bool:
        """Return whether a helper agrees to the survivors before it is given their sum."""
        return False

    def failure(self, config: EncodedSum, secrets: PartySecrets) -> FailureSession | None:
        """Return the server's session that certifies a failure; None where nobody can."""
        return None

    def check_failure(self, config: EncodedSum, proof: bytes) -> None:
        """Refuse: nobody certifies a failure.

        Raises:
            RemoteProtocolError: always.
        """
        SumConfig.check_failure(config, proof)

    def opened(self, config: EncodedSum, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the ring words of a client's upload that a coalition can decode; None if it saw no upload."""
        return knowledge.upload_as_sent(target, config.layout)


RING_BYTES = Encoder()
"""Default encoder of plain and masked sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedSum(SumConfig):
    """Base class of sums with an encoder.

    Args:
        encoder: ring bytes by default; ``Encrypted`` for BFV and CKKS.
    """

    MASKED: ClassVar[bool] = False
    """True if the encoded words are uniform (masked) and not integers within their bounds."""

    encoder: Encoder = RING_BYTES

    @property
    def survivors_needed(self) -> int:
        """Minimum number of clients whose vectors a released total contains."""
        raise NotImplementedError

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """Key holder of the encoder, if there is one."""
        return self.encoder.helpers

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Public keys by role and party: identities of clients and server, and the encoder's keys."""
        return {**self._signing_keys(), **self.encoder.public_keys}

    def helper_identity(self, helper: PartyId) -> bytes:
        """Return the Ed25519 public key of the key holder; empty if it has none."""
        return self.encoder.holder_identity

    @property
    def vector_bytes(self) -> int:
        """Number of bytes of an encoded vector."""
        return self.encoder.vector_bytes(self)

    def helper(
        self, party: PartyId, *, secrets: PartySecrets = NO_SECRETS, entropy: Entropy = os_entropy
    ) -> ClientSession:
        """Create the key holder's session; it uses no ``entropy``."""
        return self.encoder.helper(self, party, secrets)

    def failure(self, *, secrets: PartySecrets = NO_SECRETS) -> FailureSession | None:
        """Create the server's session in which the key holder certifies a failure; None where it cannot."""
        return self.encoder.failure(self, secrets)

    def check_failure(self, proof: bytes) -> None:
        """Verify a proof that no total of this sum is released.

        Raises:
            RemoteProtocolError: the key holder did not sign the failure.
        """
        self.encoder.check_failure(self, proof)
