"""How much a benchmark run measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from federation.errors import UsageError

T = TypeVar("T")

LEAST_RUNS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much is measured.

    Args:
        runs: rounds of each comparison; short ones take more.
        quick: small sizes, for a look or a smoke run; the goals are stated for the full ones.
    """

    runs: int = LEAST_RUNS
    quick: bool = False

    def __post_init__(self) -> None:
        if self.runs < LEAST_RUNS:
            raise UsageError(f"--runs needs at least {LEAST_RUNS} rounds for a median and a spread, not {self.runs}")

    def choose(self, *, full: T, quick: T) -> T:
        """The sizes that apply."""
        return quick if self.quick else full
