"""Differential privacy of a sum: exact integer noise, its privacy cost, and a ledger of the budget."""

from secagg.dp.accountant import PrivacyGuarantee, Release, calibrate, guarantee
from secagg.dp.errors import BudgetExceededError, LedgerError, PrivacyError
from secagg.dp.ledger import Budget, Ledger
from secagg.dp.noise import CoordinateNoise, DistributedNoise
from secagg.dp.noisy_sum import CentralNoisySum, NoisySum, with_headroom

__all__ = [
    "Budget",
    "BudgetExceededError",
    "CentralNoisySum",
    "CoordinateNoise",
    "DistributedNoise",
    "Ledger",
    "LedgerError",
    "NoisySum",
    "PrivacyError",
    "PrivacyGuarantee",
    "Release",
    "calibrate",
    "guarantee",
    "with_headroom",
]
