"""The certified solve: linear systems of exact sums, the same bits on every machine; it knows no rows."""

from analytic.solve.minimum_norm import Solution, solve_ridge

__all__ = ["Solution", "solve_ridge"]
