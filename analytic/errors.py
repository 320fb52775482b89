"""Every error that `analytic` raises on purpose, one leaf for each thing a caller can act on."""

from __future__ import annotations


class AnalyticError(Exception):
    """Base of all errors of this package."""


class SpecificationError(AnalyticError, ValueError):
    """Public parameters contradict each other or cannot be carried exactly; nothing was computed."""


class InvalidRowsError(AnalyticError, ValueError):
    """Rows, labels or statistics do not have the shape, type or size that the specification asks for."""


class RowsOutsideFormatError(InvalidRowsError):
    """Rows hold NaN, infinity or values that their fixed-point format cannot hold.

    Args:
        n_rows: how many rows are outside.
        largest: the largest absolute value among the finite entries.
    """

    def __init__(self, message: str, *, n_rows: int, largest: float) -> None:
        self.n_rows, self.largest = n_rows, largest
        super().__init__(message)


class NotPositiveDefiniteError(AnalyticError):
    """G + ridge I has no Cholesky factor and G is no Gram matrix: noise in the sum, or a wrong total."""


class ImpossibleTotalError(AnalyticError):
    """A total that no rows add up to: a client, or a key holder, gave something else."""


class WrongProductError(AnalyticError):
    """The BLAS of a machine multiplied whole numbers wrongly; what it computed is not to be trusted."""


class DeviceError(AnalyticError):
    """The device that the environment names for Grams is not there or cannot multiply float64."""


class DivergedError(AnalyticError):
    """Rounds with a stated step went away from the answer."""


class NotReadyError(AnalyticError):
    """A model was asked for something before the total it needs has arrived."""
