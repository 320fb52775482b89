"""Sums of encrypted vectors with a key holder: BFV or CKKS, both with exact integer totals.

Clients encrypt, the server adds ciphertexts without a key, and the key holder decrypts the sum, once, if it is over
enough clients. With a plain sum the key holder learns the total, and the server must be semi-honest: it could present
one client's ciphertext as the sum. With a masked sum the key holder sees uniform masked words only.

**Use BFV.** Both schemes are proven exact here. BFV needs fewer bytes (a slot holds an integer modulo the plain
modulus, and a ciphertext has twice as many slots), needs no margin for floating-point transforms and has a noise
budget. Its key holder learns only the total, while the noise of a CKKS sum can confirm a guessed vector. CKKS (Cheon,
Kim, Kim and Song, ASIACRYPT 2017) is for deployments whose key holders use it already.

Source of BFV: Fan and Vercauteren, "Somewhat Practical Fully Homomorphic Encryption", ePrint 2012/144.

A server that chooses the public key would know the secret key. Therefore a client verifies the public context with data
from the operator: its SHA-256 fingerprint (``pin_context``), or the key holder's long-lived identity key, which signs
the context of each session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Self, cast

from secagg.config import MAX_PARTY, check_min_survivors, free_numbers, max_colluding_clients, of_two_clients
from secagg.costs import COUNT_BYTES, PARTY_BYTES, PartyCost
from secagg.encoder import EncodedSum, Encoder, RunningSum
from secagg.encryption.cipher import CiphertextSum, VectorCipher, choose_parameters
from secagg.encryption.key_holder import (
    KeyHolder,
    KeyHolderFailure,
    agrees_first,
    check_failure,
    read_words,
    write_request,
)
from secagg.encryption.schemes import EncryptionParameters, SchemeName
from secagg.encryption.seal import generate_contexts, load_public, load_secret
from secagg.errors import ConfigurationError
from secagg.in_memory import InOneProcess
from secagg.layout import Layout
from secagg.primitives.identity import IDENTITY_BYTES, IdentityKey, is_signed
from secagg.primitives.mask_stream import add_masks
from secagg.ring import ClientVector, RingVector
from secagg.sessions import ClientSession, FailureSession, PartyId
from secagg.sums import NO_SECRETS, CoalitionView, PartySecrets, SumProtocol
from secagg.wire import MessageType, Reader

HOLDER_ROLE = "key holder"
_LABELS = {False: "public context", True: "public context under masks"}
"""Labels of what a key holder signs, by whether vectors are masked: under masks it asks nobody's consent to a total."""

_CONFIRMS = (
    "  the key holder can confirm a guess of a client's whole vector: how CKKS' encoding rounded it stays in the sum's "
    "noise (bfv and masks prevent it)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encrypted(Encoder):
    """Encoder that encrypts vectors to a key holder.

    Args:
        parameters: scheme, ring and moduli; see ``choose_parameters``.
        public_context: the key holder's public TenSEAL context, of a key pair for this session only. A client receives
            it from the operator, or verifies it with ``pin_context`` or the next two fields.
        key_holder: number of the key holder, different from the clients'.
        holder_identity: the key holder's Ed25519 public key, from the operator. If given, the context must be signed
            for this session.
        signature: signature from ``sign_context``; required with ``holder_identity``.

    Raises:
        ConfigurationError: raised by the sum: the parameters do not fit it, or the context or signature is not valid.

    >>> from secagg import Layout, PlainSum
    >>> layout = Layout.of([("counts", 100, 1000)])
    >>> parameters = choose_parameters(layout, 3, scheme="bfv")
    >>> contexts = generate_contexts(parameters)  # by the key holder
    >>> encoder = Encrypted(parameters=parameters, public_context=contexts.public_context, key_holder=4)
    >>> PlainSum(layout=layout, clients=(1, 2, 3), session_id=bytes(16), encoder=encoder).name
    'bfv'
    """

    input_type: ClassVar[MessageType] = MessageType.ENCRYPTED_INPUT

    parameters: EncryptionParameters
    public_context: bytes = field(repr=False)
    key_holder: PartyId
    holder_identity: bytes = b""
    signature: bytes = field(default=b"", repr=False)

    def name_of(self, alone: str) -> str:
        """Return the name of a mode with this encoder: the scheme, after the name of the masks if any."""
        scheme = self.parameters.scheme
        return scheme if alone == "plain" else f"{alone}+{scheme}"

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        """The key holder."""
        return (self.key_holder,)

    @property
    def public_keys(self) -> Mapping[str, Mapping[PartyId, bytes]]:
        """Public keys by role and party: the key holder's identity, if it has one."""
        return {HOLDER_ROLE: {self.key_holder: self.holder_identity} if self.holder_identity else {}}

    @property
    def digested(self) -> tuple[bytes, bytes, bytes]:
        """Encodings for the configuration digest, without the key holder's identity."""
        return self.parameters.canonical(), fingerprint(self.public_context), self.key_holder.to_bytes(4, "big")

    @property
    def confirms_guesses(self) -> bool:
        """True for CKKS, whose encoding error stays in the noise; BFV uses randomised rounding."""
        return self.parameters.rules.confirms_guesses

    def cipher(self, config: EncodedSum) -> VectorCipher:
        """Return the cipher for the vectors of a sum.

        Raises:
            ConfigurationError: the parameters do not fit the sum.
        """
        return VectorCipher(
            layout=config.layout, parameters=self.parameters, n_clients=len(config.clients), masked=config.MASKED
        )

    def check(self, config: EncodedSum) -> None:
        """Refuse a sum that the parameters do not fit, or a context that the key holder did not sign for it."""
        check_key_holder(self.key_holder, config.clients)
        check_min_survivors(config.survivors_needed, config.clients)
        _ = self.cipher(config)
        # Before TenSEAL's parser sees a byte of it: a context may have come by way of the server.
        self._check_signature(config)
        load_public(self.parameters, self.public_context)

    def vector_bytes(self, config: EncodedSum) -> int:
        """Return the number of bytes of an encrypted vector."""
        return self.cipher(config).upload_bytes

    def helper_costs(self, config: EncodedSum) -> Mapping[str, PartyCost]:
        """Return the cost of the key holder."""
        survivors, vector = COUNT_BYTES + len(config.clients) * PARTY_BYTES, config.layout.wire_bytes
        before = [survivors] * agrees_first(config)
        cost = PartyCost.of_payloads(
            [*before, vector],
            [*before, survivors + self.vector_bytes(config)],
            vector_bytes=vector,
            signature_bytes=config.signature_bytes,
        )
        return {HOLDER_ROLE: cost}

    def encode(
        self, vector: ClientVector, config: EncodedSum, masks: Sequence[tuple[bytes, int]] = ()
    ) -> Iterable[bytes | memoryview]:
        """Return the encrypted vector. SEAL draws its randomness from the operating system."""
        words = vector.copy() if isinstance(vector, RingVector) else RingVector.encode(config.layout, vector)
        add_masks(words, masks, config.digest)
        return self.encrypt(words, config)

    def encrypt(self, words: RingVector, config: EncodedSum) -> Iterable[bytes]:
        """Yield the ciphertexts of these words, one at a time."""
        return self.cipher(config).ciphertexts(words, self.public_context)

    def begin(self, config: EncodedSum) -> RunningSum:
        """Return an empty running sum of ciphertexts."""
        return EncryptedSum(config.layout, self.cipher(config))

    def helper(self, config: EncodedSum, party: PartyId, secrets: PartySecrets) -> ClientSession:
        """Create the key holder's session from its secret context.

        Raises:
            ConfigurationError: ``party`` is not the key holder, or ``secrets`` have no secret context of these
                parameters.
        """
        if party != self.key_holder:
            raise ConfigurationError(f"party {party} does not hold this sum's key; party {self.key_holder} does")
        if not secrets.decryption:
            raise ConfigurationError(
                f"the secret context of the key holder, party {party}, is not here; "
                "only the key holder makes its session"
            )
        return KeyHolder(
            config,
            party=party,
            cipher=self.cipher(config),
            survivors_needed=config.survivors_needed,
            secrets=secrets,
        )

    def agrees_first(self, config: EncodedSum) -> bool:
        """Return whether the key holder agrees to the survivors before it is given their sum."""
        return agrees_first(config)

    def failure(self, config: EncodedSum, secrets: PartySecrets) -> FailureSession | None:
        """Return the session in which the key holder certifies a failure; None where it cannot."""
        return KeyHolderFailure(config, secrets=secrets) if agrees_first(config) else None

    def check_failure(self, config: EncodedSum, proof: bytes) -> None:
        """Verify the key holder's signature on a failure."""
        if not agrees_first(config):
            Encoder.check_failure(self, config, proof)
        check_failure(config, proof)

    def opened(self, config: EncodedSum, knowledge: CoalitionView, target: PartyId) -> RingVector | None:
        """Return the upload decrypted with the coalition's key, if it has one; otherwise its last bytes."""
        payload, secret = knowledge.upload(target), knowledge.secrets.get(self.key_holder, NO_SECRETS).decryption
        if not secret and _opens(self.parameters, self.public_context):
            secret = self.public_context
        if payload is None or not secret:
            return knowledge.upload_as_sent(target, config.layout)
        return _decrypted(self.cipher(config), payload[-self.vector_bytes(config) :], secret).copy()

    def explain(self, config: EncodedSum) -> list[str]:
        """Return lines of text: parameters, digits, margin, failure probability, sizes, trust assumptions."""
        choice = self.cipher(config).explain()
        if config.MASKED:
            return [
                f"  over it {choice}",
                f"  the key holder, party {self.key_holder}, sees a masked sum alone and the server no masked vector; "
                "both together see what the server of a masked sum sees",
                self._origin(),
            ]
        return [
            choice,
            "  SEMI-HONEST: the server must follow the protocol; a malicious one can have the key holder decrypt "
            f"one client's vector (masked+{config.name} prevents it). Server and key holder must not collude",
            *([_CONFIRMS] if self.confirms_guesses else []),
            f"  and private while at most {max_colluding_clients(config.survivors_needed)} of the "
            f"{len(config.clients)} clients collude with the server: they can subtract their own vectors from a total",
            *of_two_clients(config.survivors_needed),
            self._origin(),
        ]

    def _origin(self) -> str:
        origin = (
            f"signed for this session by the key holder's identity {self.holder_identity.hex()[:16]}..."
            if self.holder_identity
            else "not signed: compare its fingerprint with the operator's (pin_context)"
        )
        return f"  public context {fingerprint(self.public_context).hex()[:16]}..., {origin}"

    def _check_signature(self, config: EncodedSum) -> None:
        if not self.holder_identity and not self.signature:
            return
        if len(self.holder_identity) != IDENTITY_BYTES:
            raise ConfigurationError(
                f"a signed context needs the key holder's identity, an Ed25519 public key of {IDENTITY_BYTES} bytes "
                "from the operator"
            )
        signed = _statement(self.public_context, self.parameters, config.session_id, self.key_holder)
        if not is_signed(self.holder_identity, self.signature, _LABELS[config.MASKED], *signed):
            raise ConfigurationError(
                f"the public context is not signed by key holder {self.key_holder} for this session: somebody swapped "
                "the key, or it signed for another session or mode; encrypt nothing under it, and ask the operator"
            )


@lru_cache(maxsize=32)
def _decrypted(cipher: VectorCipher, upload: bytes, secret_context: bytes) -> RingVector:
    """Decrypt an upload; cached, since an audit does it for many coalitions."""
    return cipher.decrypt(upload, secret_context).vector


class EncryptedSum(RunningSum):
    """A running sum of ciphertexts; after the decryption a sum of words."""

    def __init__(self, layout: Layout, cipher: VectorCipher) -> None:
        RunningSum.__init__(self, layout)
        self._cipher = cipher
        self.ciphertexts: CiphertextSum | None = cipher.empty_sum()

    def add(self, payload: bytes | memoryview, *, peer: PartyId) -> None:
        """Add one client's ciphertexts."""
        assert self.ciphertexts is not None
        self.ciphertexts.add(payload, peer=peer)

    def decryption_request(self, survivors: tuple[PartyId, ...]) -> bytes | None:
        """Return the request to decrypt the sum, and discard the ciphertexts."""
        assert self.ciphertexts is not None
        asked, self.ciphertexts = write_request(survivors, self.ciphertexts.to_bytes()), None
        return asked

    def add_decrypted(self, reader: Reader) -> None:
        """Add the words that the key holder decrypted."""
        self.words.add(read_words(reader, self._layout))

    def to_snapshot(self) -> Iterator[bytes | memoryview]:
        """Yield the words and, before the decryption, the ciphertexts as bytes."""
        yield from self.words.wire_pieces()
        yield bytes([self.ciphertexts is not None])
        if self.ciphertexts is not None:
            yield from self.ciphertexts.to_snapshot()

    def read_snapshot(self, reader: Reader) -> Self:
        """Read a running sum; inverse of ``to_snapshot``."""
        stored = type(self)(self._layout, self._cipher)
        stored.words = RingVector.from_bytes(self._layout, reader.view(self._layout.wire_bytes))
        stored.ciphertexts = self._cipher.empty_sum().read_snapshot(reader) if reader.take(1) == b"\1" else None
        return stored


def encrypted(
    protocol: EncodedSum,
    scheme: SchemeName | None = None,
    *,
    parameters: EncryptionParameters | None = None,
    key_holder: PartyId | None = None,
    identity: IdentityKey | None = None,
) -> InOneProcess:
    """Return a plain or masked sum with a new encryption key pair and its key holder, for simulations and tests.

    Args:
        protocol: a plain or masked sum without encryption.
        scheme: ``bfv`` or ``ckks``; None takes the one with the smaller upload.
        parameters: None takes those with the smallest upload.
        key_holder: number of the key holder; None takes the lowest number that no client has.
        identity: signing key of the key holder; if given, the public context is signed for this session.

    Raises:
        ConfigurationError: no parameters fit, or TenSEAL is not installed.
    """
    if scheme is not None and parameters is not None and parameters.scheme != scheme:
        raise ConfigurationError(
            f"{scheme} parameters are needed, not {parameters.scheme}; choose_parameters finds some"
        )
    chosen = parameters or choose_parameters(
        protocol.layout, len(protocol.clients), scheme=scheme, masked=protocol.MASKED
    )
    holder = next(free_numbers(protocol.clients)) if key_holder is None else key_holder
    check_key_holder(holder, protocol.clients)
    keys, signature = generate_contexts(chosen), b""
    if identity is not None:
        signature = sign_context(
            identity,
            keys.public_context,
            parameters=chosen,
            session_id=protocol.session_id,
            key_holder=holder,
            masked=protocol.MASKED,
        )
    encoder = Encrypted(
        parameters=chosen,
        public_context=keys.public_context,
        key_holder=holder,
        holder_identity=identity.public if identity else b"",
        signature=signature,
    )
    secrets = PartySecrets(identity=identity, decryption=keys.secret_context)
    carried = cast(SumProtocol, replace(protocol, encoder=encoder))  # plain or masked: both are sums
    return InOneProcess(protocol=carried, secrets={holder: secrets})


def check_key_holder(key_holder: PartyId, clients: tuple[PartyId, ...]) -> None:
    """Refuse an invalid number of a key holder, or one that a client has.

    Raises:
        ConfigurationError: the number is not valid.
    """
    if not 1 <= key_holder <= MAX_PARTY or key_holder in clients:
        raise ConfigurationError(
            f"the key holder needs a number of 1 to {MAX_PARTY} that is no client's, not {key_holder}"
        )


def fingerprint(public_context: bytes) -> bytes:
    """Return the SHA-256 of a public context, which the operator publishes and the configuration digest contains."""
    return hashlib.sha256(public_context).digest()


def pin_context(public_context: bytes, expected: bytes) -> bytes:
    """Return a received public context after comparing its fingerprint with the operator's.

    Args:
        public_context: the received bytes.
        expected: SHA-256 fingerprint, 32 bytes, from the operator.

    Raises:
        ConfigurationError: the fingerprints differ.
    """
    came = fingerprint(public_context)
    if came != expected:
        raise ConfigurationError(
            f"the public context has the fingerprint {came.hex()} and the operator names {expected.hex()}; somebody "
            "swapped the key: encrypt nothing under it, and ask the operator"
        )
    return public_context


def sign_context(
    identity: IdentityKey,
    public_context: bytes,
    *,
    parameters: EncryptionParameters,
    session_id: bytes,
    key_holder: PartyId,
    masked: bool = False,
) -> bytes:
    """Sign a public context for one session, as the key holder.

    Args:
        identity: signing key of the key holder.
        public_context: its public context.
        parameters: scheme, ring and moduli.
        session_id: id of the session.
        key_holder: number of the key holder.
        masked: whether for a masked sum. A signature for one kind is refused by the other.

    Returns:
        The Ed25519 signature, 64 bytes.
    """
    return identity.sign(_LABELS[masked], *_statement(public_context, parameters, session_id, key_holder))


def _statement(
    public_context: bytes, parameters: EncryptionParameters, session_id: bytes, key_holder: PartyId
) -> tuple[bytes, ...]:
    return session_id, parameters.canonical(), key_holder.to_bytes(4, "big"), fingerprint(public_context)


@lru_cache(maxsize=64)
def _opens(parameters: EncryptionParameters, context: bytes) -> bool:
    """Return whether a public context contains the secret key."""
    try:
        load_secret(parameters, context)
    except ConfigurationError:
        return False
    return True
