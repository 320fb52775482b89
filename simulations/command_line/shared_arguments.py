"""Options that several commands have: where rows come from, which modes run, and the format of features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analytic.row_format import RowFormat
from federation.console.arguments import file, items
from federation.console.declaration import option
from federation.datasets import BUNDLED, Dataset, bundled, load_npz
from federation.errors import UsageError
from federation.modes import MODES, choose_modes

DEFAULT_DATASET = "digits"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOptions:
    """Where rows come from.

    Raises:
        UsageError: from two places.
    """

    dataset: str | None = option(
        "real data bundled with scikit-learn", choices=tuple(BUNDLED), default=None, shown=DEFAULT_DATASET
    )
    data: Path | None = option(
        "x_train, y_train, x_test, y_test: features, labels", file, metavar="FILE.npz", default=None
    )

    def __post_init__(self) -> None:
        if self.dataset and self.data:
            raise UsageError("argument --data: not allowed with argument --dataset; give one of the two")

    def rows(self) -> Dataset:
        """Return the rows that are asked for.

        Raises:
            federation.errors.DataError: a file that cannot be read, or does not hold what is needed.
        """
        return load_npz(self.data) if self.data else bundled(self.dataset or DEFAULT_DATASET)


def modes_option() -> Any:
    """Declare ``--modes``."""
    return option(
        f"out of {', '.join(MODES)}",
        lambda text: choose_modes(items(text)),
        default=choose_modes(None),
        metavar="MODE,...",
        shown="all that are installed",
    )


def format_option(rows: str) -> Any:
    """Declare ``--format``; ``rows`` says which of them ``auto`` looks at."""
    return option(
        f"fixed-point format of features: Q5.11 (signed), UQ5.11, or auto, which looks at {rows}",
        lambda text: None if text == "auto" else RowFormat.parse(text),
        flag="--format",
        default=None,
        shown="auto",
    )
