"""The reference pages of the command line say what the code does: learners' options, columns, exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from analytic.afl import AFL
from analytic.bucketing import MAX_BUCKETS, Encoding, QuantileThresholds
from analytic.deepafl import ABLATIONS, DeepAFL
from analytic.discriminant import QDA
from analytic.features import PROJECTIONS
from analytic.integer_maps import ACTIVATIONS
from analytic.logistic import Logistic
from analytic.naive_bayes import NaiveBayes
from analytic.random_map import RandomMap
from analytic.row_format import RowFormat
from analytic.safle import SAFLe
from analytic.scaling import Scaler
from analytic.selection import RidgeCV
from analytic.weights import Weights
from analytic_secagg.console.process import EXIT_CODES
from analytic_secagg.learners import (
    AUTHORS_LAW,
    DEFAULT_ALPHAS,
    LEARNERS,
    WIDEST,
    Ablation,
    LearnerSettings,
    Thresholds,
)
from simulations.compare.dpsgd import METHODS
from simulations.compare.plan import PRIVATE_FORMS
from simulations.data.partitions import MAX_ALPHA, MIN_ALPHA
from simulations.report.table import COLUMNS

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGE = (REFERENCE / "command-line.md").read_text(encoding="utf-8")
OPTIONS = (REFERENCE / "learner-options.md").read_text(encoding="utf-8")
FROM_DATA = {"d_phi": "from the features", "d_f": "from the features", "low": "lowest", "high": "highest"}
FROM_DATA |= {"ridges": "the mean diagonal"}
FROM_DATA |= {"format": "proven", "feature_bound": "from the format"}
FROM_DATA |= {"intercept": "real targets", "input_variance": "`1`", "block_variance": "`1`", "ablation": "none"}
FROM_DATA |= {"class_weights": "none", "patterns": "none", "step": "from the gradients", "residual_bound": "`1`"}
"""Defaults that are no numbers, by what the page says of them."""


def table_below(heading: str, page: str = PAGE) -> list[list[str]]:
    """The cells of the first table below a heading, without its first two lines."""
    lines = page.split(f"\n{heading}\n")[1].split("\n#")[0].splitlines()
    table = [line.strip("|").split(" | ") for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in table[2:]]


def options_of(learner: str) -> dict[str, list[str]]:
    """Default, permitted values and meaning of each option: those of its own table, and shared ones that name it."""
    shared = table_below("## Shared options", OPTIONS)
    is_of = {row[0]: learner in LEARNERS and _is_named(learner, row[1]) for row in shared}
    own = [(name, rest) for name, *rest in table_below(f"## {learner}", OPTIONS)]
    rows = [*own, *((name, rest) for name, _, *rest in shared if is_of[name])]
    assert len(dict(rows)) == len(rows)
    return {name.strip("`"): rest for name, rest in rows}


def _is_named(learner: str, named: str) -> bool:
    """Whether a cell such as "all but `safle`" names a learner."""
    return (f"`{learner}`" in named) != named.startswith("all")


def defaults(kind: type[Any]) -> dict[str, Any]:
    return {field.name: field.default for field in fields(kind)}


def shown(value: Any) -> str:
    """A default as the command line takes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ",".join(map(shown, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def options() -> Iterator[tuple[str, str, Any]]:
    """(heading, option, default) of every option of every learner and baseline, as the code has them."""
    own = defaults(RidgeCV)
    choosing = own | {"folds": own["n_folds"], "fold_seed": own["seed"]}
    of_learners = {
        "afl": defaults(AFL) | choosing | {"intercept": None, "ablation": None},
        "fedhip": defaults(AFL) | choosing | {"alphas": DEFAULT_ALPHAS, "intercept": None},
        "random": defaults(AFL)
        | defaults(RandomMap)
        | choosing
        | {"row_bits": 16, "d_phi": None, "format": None, "intercept": None},
        "logistic": defaults(Logistic) | defaults(AFL) | {"d_phi": None, "intercept": None},
        "lda": defaults(AFL) | {"d_phi": None},
        "qda": defaults(QDA),
        "naive-bayes": defaults(NaiveBayes),
        "deepafl": defaults(DeepAFL) | AUTHORS_LAW,
        "safle": defaults(SAFLe) | defaults(QuantileThresholds) | {"thresholds": Thresholds.QUANTILES},
    }
    weighing = defaults(Weights) | {"patterns": None, "headroom": defaults(Scaler)["headroom"]}
    for name, entry in LEARNERS.items():
        for option in entry.options:
            yield name, option, (weighing | of_learners[name])[option]
    for heading, method in (("dpsgd", METHODS["dpsgd"]), ("fedavg, fedprox", METHODS["fedprox"])):
        for option, default in method.complete({}).items():
            yield heading, option, default


@pytest.mark.parametrize("heading", [*LEARNERS, "fedavg, fedprox", "dpsgd"])
def test_every_option_stands_there_with_its_default(heading: str) -> None:
    rows = options_of(heading)
    known = {option: default for own, option, default in options() if own == heading}
    assert rows.keys() == known.keys()
    for option, default in known.items():
        said = rows[option][0]
        assert FROM_DATA[option] in said if option in FROM_DATA else said == f"`{shown(default)}`"


@pytest.mark.parametrize(
    ("heading", "option", "words"),
    [
        *((name, "activation", list(ACTIVATIONS)) for name in ("random", "deepafl")),
        *((name, "projection", list(PROJECTIONS)) for name in ("random", "deepafl")),
        ("safle", "encoding", list(Encoding)),
        ("safle", "thresholds", list(Thresholds)),
        ("deepafl", "fed_by_first", ["yes", "no"]),
        ("deepafl", "ablation", list(ABLATIONS)),
        ("afl", "ablation", list(Ablation)),
    ],
)
def test_every_word_that_an_option_takes(heading: str, option: str, words: list[str]) -> None:
    assert re.findall(r"`([\w-]+)`", options_of(heading)[option][1]) == [str(word) for word in words]


@pytest.mark.parametrize("n_features", [3, 64, 65, 4096])
def test_the_widths_of_deepafl_follow_the_features(n_features: int) -> None:
    assert "twice the features, rounded up to a power of two, at most 1024" in OPTIONS
    learner = LEARNERS["deepafl"].build(
        LearnerSettings(
            n_features=n_features,
            n_classes=2,
            feature_format=RowFormat.parse("Q1.7"),
            max_rows=100,
            max_clients=2,
        )
    )
    width = next(2**power for power in range(20) if 2**power >= 2 * n_features)
    assert isinstance(learner, DeepAFL)
    assert learner.d_phi == learner.d_f == min(width, WIDEST)


def test_limits_and_the_private_form() -> None:
    assert f"whole, 2 to {MAX_BUCKETS} " in OPTIONS
    assert f"ALPHA from {MIN_ALPHA:g} to {MAX_ALPHA:g}" in PAGE
    assert PRIVATE_FORMS["deepafl"] == {"n_layers": 1, "d_phi": 64, "d_f": 64}
    assert "only `n_layers`, `d_phi` and `d_f` can be set; the private form has 1, 64 and 64" in OPTIONS


def test_every_column_of_the_table() -> None:
    headings = (column.heading for column in COLUMNS.values())
    names = [" ".join(column.replace("-\n", "").split()) for column in headings]
    assert [row[0] for row in table_below("## The table of `compare`")] == [*names, "weights"]


def test_every_exit_code() -> None:
    rows = table_below("## Exit codes")
    assert [row[0] for row in rows] == ["0", "1", *map(str, EXIT_CODES)]
    assert [row[1] for row in rows[2:]] == list(EXIT_CODES.values())
