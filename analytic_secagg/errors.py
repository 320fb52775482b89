"""Errors of `analytic_secagg` and `simulations`; a command line prints the text and ends with code 2."""

from __future__ import annotations


class FederationError(Exception):
    """Base of all errors of `analytic_secagg` and `simulations`."""


class UsageError(FederationError, ValueError):
    """The command asks for something that does not exist, is not installed or contradicts itself."""


class DataError(FederationError, ValueError):
    """A data file cannot be read, or does not hold what a comparison needs."""


class OutputError(FederationError, OSError):
    """A result cannot be written where it should go."""
