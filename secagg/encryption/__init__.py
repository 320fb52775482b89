"""Encryption of vectors to a key holder with BFV or CKKS; the encoder of plain and masked sums."""

from secagg.encryption.cipher import choose_parameters, explain_choice
from secagg.encryption.encrypted import Encrypted, encrypted, fingerprint, pin_context, sign_context
from secagg.encryption.schemes import EncryptionParameters
from secagg.encryption.seal import generate_contexts

__all__ = [
    "Encrypted",
    "EncryptionParameters",
    "choose_parameters",
    "encrypted",
    "explain_choice",
    "fingerprint",
    "generate_contexts",
    "pin_context",
    "sign_context",
]
