"""What a section of the benchmark finds: rows of figures, a ratio, and whether it meets its goal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from simulations.bench.measure import Spread
from simulations.bench.settings import Settings

Figure = Spread | float | int | str


def spaced(number: int) -> str:
    """Digits in groups of three."""
    return f"{number:,}".replace(",", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a ratio should be.

    Args:
        limit: the ratio's largest median; its smallest with ``at_least``.
        at_least: whether more is better.
    """

    limit: float
    at_least: bool = False

    def is_met(self, ratio: Spread) -> bool:
        """Whether the median keeps the limit."""
        return ratio.median >= self.limit if self.at_least else ratio.median <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case.

    Args:
        case: what was measured.
        figures: by column; a unit stands in the column's name.
        ratio: the figure that has a goal; None where nothing is compared.
        goal: None where the ratio is only for information.
    """

    case: str
    figures: Mapping[str, Figure]
    ratio: Spread | None = None
    goal: Goal | None = field(default=None)

    @property
    def meets_goal(self) -> bool | None:
        """None where there is no goal."""
        return None if self.goal is None or self.ratio is None else self.goal.is_met(self.ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One question to the machine.

    Args:
        letter: its name on the command line.
        title: the question.
        method: what exactly is compared with what.
        run: measures, one row after the other.
    """

    letter: str
    title: str
    method: str
    run: Callable[[Settings], Iterable[Row]]
