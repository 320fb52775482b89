"""Arguments that several commands have: where rows come from, which modes run, and the format of features."""

from __future__ import annotations

import argparse
from typing import Any

from analytic.row_format import RowFormat
from federation.console.arguments import checked, file, items
from federation.datasets import BUNDLED, Dataset, bundled, load_npz
from federation.modes import MODES, choose_modes

DEFAULT_DATASET = "digits"


def add_data_arguments(parser: argparse.ArgumentParser) -> None:
    """``--dataset`` and ``--data``, of which one may be given."""
    data = parser.add_argument_group("data").add_mutually_exclusive_group()
    data.add_argument(
        "--dataset",
        choices=tuple(BUNDLED),
        help=f"real data bundled with scikit-learn (default: {DEFAULT_DATASET})",
    )
    data.add_argument(
        "--data", type=checked(file), metavar="FILE.npz", help="x_train, y_train, x_test, y_test: features, labels"
    )


def dataset_of(arguments: argparse.Namespace) -> Dataset:
    """The rows that are asked for.

    Raises:
        federation.errors.DataError: a file that cannot be read, or does not hold what is needed.
    """
    return load_npz(arguments.data) if arguments.data else bundled(arguments.dataset or DEFAULT_DATASET)


def add_modes_argument(group: Any) -> None:
    """``--modes``."""
    group.add_argument(
        "--modes",
        type=checked(lambda text: choose_modes(items(text))),
        default=choose_modes(None),
        metavar="MODE,...",
        help=f"out of {', '.join(MODES)} (default: all that are installed)",
    )


def add_format_argument(group: Any, rows: str) -> None:
    """``--format``; ``rows`` says which of them ``auto`` looks at."""
    group.add_argument(
        "--format",
        type=checked(lambda text: None if text == "auto" else RowFormat.parse(text)),
        default=None,
        help=f"fixed-point format of features: Q5.11 (signed), UQ5.11, or auto, which looks at {rows} (default: auto)",
    )
