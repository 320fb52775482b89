"""The certified solve: linear systems of exact sums, the same bits on every machine; it knows no rows."""

from analytic.solve.certified import one_blas_thread
from analytic.solve.minimum_norm import ResidualBlock, Solution, sandwiched_least_squares, solve_ridge

__all__ = ["ResidualBlock", "Solution", "one_blas_thread", "sandwiched_least_squares", "solve_ridge"]
