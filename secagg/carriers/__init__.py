"""How vectors travel: as ring bytes, or encrypted to a key holder with BFV or CKKS; plain and masked sums take both."""

from secagg.carriers.carrier import RING_BYTES, Carrier
from secagg.carriers.choice import choose_parameters, explain_choice
from secagg.carriers.encrypted import Encrypted, encrypted, fingerprint, pin_context, sign_context
from secagg.carriers.key_holder import KeyHolder
from secagg.carriers.parameters import EncryptionParameters
from secagg.carriers.seal import ContextPair, generate_contexts
from secagg.carriers.vector_cipher import VectorCipher

__all__ = [
    "RING_BYTES",
    "Carrier",
    "ContextPair",
    "Encrypted",
    "EncryptionParameters",
    "KeyHolder",
    "VectorCipher",
    "choose_parameters",
    "encrypted",
    "explain_choice",
    "fingerprint",
    "generate_contexts",
    "pin_context",
    "sign_context",
]
