"""Encrypted sums: CKKS and BFV that return the exact integers, alone and over masks."""

from secagg.he.authenticity import fingerprint, pin_context, sign_context
from secagg.he.carrier import EncryptedCarrier
from secagg.he.choice import choose_parameters, explain_choice
from secagg.he.contexts import ContextPair, generate_contexts
from secagg.he.key_holder import KeyHolder
from secagg.he.masked import MaskedBfvSum, MaskedCkksSum
from secagg.he.parameters import EncryptionParameters
from secagg.he.protocol import BfvSum, CkksSum

__all__ = [
    "BfvSum",
    "CkksSum",
    "ContextPair",
    "EncryptedCarrier",
    "EncryptionParameters",
    "KeyHolder",
    "MaskedBfvSum",
    "MaskedCkksSum",
    "choose_parameters",
    "explain_choice",
    "fingerprint",
    "generate_contexts",
    "pin_context",
    "sign_context",
]
