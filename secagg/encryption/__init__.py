"""Encryption of vectors to a key holder with BFV or CKKS; the encoder of plain and masked sums."""

from secagg.encoder import RING_BYTES, Encoder
from secagg.encryption.cipher import VectorCipher, choose_parameters, explain_choice
from secagg.encryption.encrypted import Encrypted, encrypted, fingerprint, pin_context, sign_context
from secagg.encryption.key_holder import KeyHolder
from secagg.encryption.schemes import EncryptionParameters
from secagg.encryption.seal import ContextPair, generate_contexts

__all__ = [
    "RING_BYTES",
    "ContextPair",
    "Encoder",
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
