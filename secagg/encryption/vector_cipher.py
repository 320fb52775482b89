"""Ring vectors, encrypted: what clients encrypt, the server adds and the key holder decrypts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from secagg.encryption.digits import DigitPlan
from secagg.encryption.noise import MAX_SLOTS
from secagg.encryption.parameters import EncryptionParameters
from secagg.encryption.residues import CiphertextSum, pack, read_ciphertexts
from secagg.encryption.seal import SlotDecryptor, SlotEncryptor
from secagg.errors import ConfigurationError
from secagg.layout import Layout
from secagg.ring import RingVector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecryptedSum:
    """The total, and how sure it is.

    Args:
        vector: the total modulo 2^(8 wire_bytes).
        error: the largest error of a digit before rounding (for BFV, an upper bound of it).
    """

    vector: RingVector
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorCipher:
    """How the vectors of one layout travel as ciphertexts under given parameters.

    Args:
        layout: the vectors.
        parameters: scheme, ring and moduli.
        n_clients: most vectors that will be added; at most what the parameters are made for.
        masked: the words to carry are uniform under masks and not integers within their bounds.

    Raises:
        ConfigurationError: the parameters do not carry this layout's sum for so many clients.
    """

    layout: Layout
    parameters: EncryptionParameters
    n_clients: int
    masked: bool = False
    plan: DigitPlan = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parameters = self.parameters
        if self.n_clients > parameters.n_clients:
            raise ConfigurationError(
                f"the parameters carry the exact sum of {parameters.n_clients} clients, not of {self.n_clients}; "
                "choose parameters for this cohort"
            )
        plan = DigitPlan(
            layout=self.layout,
            n_clients=parameters.n_clients,
            slot_bound=parameters.slot_bound,
            slot_load=parameters.slot_load,
            masked=self.masked,
        )
        if plan.n_slots > MAX_SLOTS:
            raise ConfigurationError(f"the failure bound counts {MAX_SLOTS} slots, these vectors take {plan.n_slots}")
        object.__setattr__(self, "plan", plan)

    @property
    def n_ciphertexts(self) -> int:
        """Ciphertexts of one vector."""
        return -(-self.plan.n_slots // self.parameters.slots)

    @property
    def upload_bytes(self) -> int:
        """Bytes of one encrypted vector."""
        return self.n_ciphertexts * self.parameters.ciphertext_bytes

    def encrypt(self, vector: RingVector, public_context: bytes) -> bytes:
        """The ``upload_bytes`` bytes of an encrypted vector.

        Raises:
            ConfigurationError: no public context of these parameters.
            InvalidVectorError: an entry lies beyond its bound, unless the words are masked.
        """
        encryptor = SlotEncryptor(self.parameters, public_context)
        digits = self.plan.split(vector)
        step = self.parameters.slots
        return b"".join(
            pack(encryptor.encrypt(digits[start : start + step]), self.parameters)
            for start in range(0, len(digits), step)
        )

    def empty_sum(self) -> CiphertextSum:
        """A running sum; the server's part, which takes no key."""
        return CiphertextSum(self.parameters, self.n_ciphertexts)

    def decrypt(self, encrypted_sum: bytes | memoryview, secret_context: bytes) -> DecryptedSum:
        """The total of the vectors in an encrypted sum.

        Raises:
            ConfigurationError: no secret context of these parameters.
            MalformedMessageError: no encrypted vector of these parameters.
            SumOutOfBoundsError: it does not decrypt to integers beyond doubt.
        """
        ciphertexts = read_ciphertexts(encrypted_sum, self.parameters, self.n_ciphertexts)
        decryptor = SlotDecryptor(self.parameters, secret_context)
        left, step, worst = self.plan.n_slots, self.parameters.slots, 0.0
        sums = []
        for ciphertext in ciphertexts:
            values, error = decryptor.decrypt(ciphertext, min(left, step))
            sums.append(values)
            left, worst = left - step, max(worst, error)
        return DecryptedSum(vector=self.plan.join(np.concatenate(sums)), error=worst)
