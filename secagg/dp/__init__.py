"""Differential privacy of a sum: exact integer noise, its privacy cost, and a ledger of the budget."""

from secagg.dp.accountant import PrivacyGuarantee, Release, calibrate, guarantee
from secagg.dp.errors import BudgetExceededError, LedgerError, PrivacyError
from secagg.dp.ledger import Budget, Ledger
from secagg.dp.noise import DistributedNoise
from secagg.dp.noisy_sum import CentralNoisySum, NoisySum
from secagg.dp.private_mean import MeanPrivacy, PrivateMeanSpec

__all__ = [
    "Budget",
    "BudgetExceededError",
    "CentralNoisySum",
    "DistributedNoise",
    "Ledger",
    "LedgerError",
    "MeanPrivacy",
    "NoisySum",
    "PrivacyError",
    "PrivacyGuarantee",
    "PrivateMeanSpec",
    "Release",
    "calibrate",
    "guarantee",
]
