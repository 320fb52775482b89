"""Errors of differential privacy."""

from __future__ import annotations

from secagg.errors import ConfigurationError, SecureSumError


class PrivacyError(ConfigurationError):
    """A privacy parameter is out of range, or the noise does not suffice; nothing was released."""


class BudgetExceededError(SecureSumError):
    """A further release would exceed the budget; it was neither charged nor made."""


class LedgerError(SecureSumError):
    """The ledger's file was changed or cannot be written; no release may start from it."""


class MissingExtraError(SecureSumError, ImportError):
    """An optional package, such as a second accountant or a baseline, is not installed."""
