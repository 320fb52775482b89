"""Differential privacy of a sum: exact integer noise, its privacy cost, and a ledger of the budget."""

from secagg.dp.accountant import PrivacyGuarantee, Release, calibrate, guarantee
from secagg.dp.audit import audit_noise
from secagg.dp.discrete_gaussian import DiscreteGaussian
from secagg.dp.errors import BudgetExceededError, LedgerError, MissingExtraError, PrivacyError
from secagg.dp.ledger import Budget, Ledger
from secagg.dp.noise import CoordinateNoise, DistributedNoise
from secagg.dp.noisy_sum import CentralNoisySum, NoisySum, with_headroom

__all__ = [
    "Budget",
    "BudgetExceededError",
    "CentralNoisySum",
    "CoordinateNoise",
    "DiscreteGaussian",
    "DistributedNoise",
    "Ledger",
    "LedgerError",
    "MissingExtraError",
    "NoisySum",
    "PrivacyError",
    "PrivacyGuarantee",
    "Release",
    "audit_noise",
    "calibrate",
    "guarantee",
    "with_headroom",
]
