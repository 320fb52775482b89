"""What can go wrong between a noise scale and a promise of privacy."""

from __future__ import annotations

from secagg.errors import ConfigurationError, SecureSumError


class PrivacyError(ConfigurationError):
    """A privacy parameter is out of range, or this noise does not give what was asked of it; nothing was released."""


class BudgetExceededError(SecureSumError):
    """One more release would go beyond the budget; it was neither charged nor made."""


class LedgerError(SecureSumError):
    """The ledger's file is not what was written, or cannot be written; no release may start from it."""


class MissingExtraError(SecureSumError, ImportError):
    """What the extra brings, a second accountant or a baseline, is not installed."""
