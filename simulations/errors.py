"""Every error that `simulations` raises on purpose; the command line prints its text and ends with code 2."""

from __future__ import annotations


class SimulationError(Exception):
    """Base of all errors of this package."""


class UsageError(SimulationError, ValueError):
    """The command asks for something that does not exist, is not installed or contradicts itself."""


class DataError(SimulationError, ValueError):
    """A data file cannot be read, or does not hold what a comparison needs."""


class OutputError(SimulationError, OSError):
    """A result cannot be written where it should go."""
