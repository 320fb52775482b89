"""k. What whole commands take, from the start of their process on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from analytic_secagg.errors import FederationError
from benchmarks.measure import CHECKOUT, Goal, Row, Section, Settings, Spread

WITHIN_GOAL = Goal(limit=1.0)
HELP_SECONDS, COMPARE_SECONDS = 0.4, 2.5

REFUSED, FINE = 2, 0


def commands(settings: Settings) -> Iterator[Row]:
    """Measure help and refusals, then ``compare`` on floats of 32 and of 16 bits."""
    yield _row("audit --help", ["audit", "--help"], FINE, HELP_SECONDS, settings)
    yield _row("compare --help", ["compare", "--help"], FINE, HELP_SECONDS, settings)
    yield _row("compare --clinets 5, a refusal", ["compare", "--clinets", "5"], REFUSED, HELP_SECONDS, settings)
    n, d = settings.choose(full=(50_000, 512), quick=(2_000, 32))
    with TemporaryDirectory() as folder:
        for dtype in (np.float32, np.float16):
            file = Path(folder) / "rows.npz"
            _write_rows(file, n, d, dtype)
            words = ["compare", "--data", str(file), "--modes", "masked", "--clients", "10"]
            case = f"compare, masked, 10 clients, {n:_} x {d} rows of {np.dtype(dtype).itemsize * 8}-bit floats"
            yield _row(case.replace("_", " "), words, FINE, COMPARE_SECONDS, settings)


def _row(case: str, words: Sequence[str], code: int, allowed: float, settings: Settings) -> Row:
    _cpu_seconds(words, code)  # which compiles what was not compiled yet
    seconds = [_cpu_seconds(words, code) for _ in range(settings.runs)]
    return Row(
        case=case,
        figures={"CPU, s": Spread.of(seconds), "goal, s": allowed},
        ratio=Spread.of([found / allowed for found in seconds]),
        goal=None if settings.quick else WITHIN_GOAL,
    )


def _cpu_seconds(words: Sequence[str], code: int) -> float:
    """Run one command of ours, with as many threads as it takes by itself.

    Raises:
        FederationError: it ends with another exit code.
    """
    own = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OPENBLAS_THREAD_TIMEOUT", "PYTHONDONTWRITEBYTECODE")
    before = _of_children()
    done = subprocess.run(  # noqa: S603  (this interpreter and this package)
        [sys.executable, "-m", "simulations", *words],
        cwd=CHECKOUT,
        env={name: value for name, value in os.environ.items() if name not in own},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != code:
        raise FederationError(f"{' '.join(words)} ended with {done.returncode} and not {code}: {done.stderr.strip()}")
    return _of_children() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _write_rows(file: Path, n_rows: int, n_features: int, dtype: type[np.floating]) -> None:
    """Ten classes that are far apart, and a fifth as many rows for testing."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(10, n_features))
    arrays: dict[str, np.ndarray] = {}
    for part, n in (("train", n_rows), ("test", n_rows // 5)):
        labels = rng.integers(0, 10, n)
        arrays[f"x_{part}"] = (centres[labels] + rng.normal(size=(n, n_features))).astype(dtype)
        arrays[f"y_{part}"] = labels
    np.savez(file, allow_pickle=False, **arrays)


COMMANDS = Section(
    letter="k",
    title="Whole commands",
    method=(
        "CPU seconds of a process and all of its threads, from its start on, its modules being compiled, with the "
        "environment of a user who set nothing. The ratio is to the goal in seconds. The rows are of ten classes that "
        "are far apart; statistics are made twice, of the clients' rows and of the pooled ones that they are held "
        "against."
    ),
    run=commands,
)
