"""Measuring side by side, a candidate after the other, so that a noisy machine disturbs all alike; and that machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Self, TypeVar

import scipy.linalg  # noqa: F401  (brings a BLAS of its own, which must be there before the pools are counted)
from pydantic import PlainSerializer
from threadpoolctl import threadpool_info, threadpool_limits

from analytic_secagg.console.arguments import whole
from analytic_secagg.console.declaration import option
from analytic_secagg.errors import FederationError
from simulations.report.document import Record, computed, versions

T = TypeVar("T")

Timed = Callable[[], float]
"""Does its work once and says how many seconds the measured part of it took."""

CHECKOUT = Path(__file__).resolve().parents[1]
"""Where ``python -m`` finds these modules, which are not installed."""

LEAST_RUNS = 5
LEAST_SECONDS = 0.1
MOST_RUNS = 60
"""Short work is repeated until it has taken LEAST_SECONDS in all, MOST_RUNS times at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How much is measured; the goals are stated for full sizes."""

    runs: int = option(
        "rounds of a comparison; short ones take more",
        lambda text: whole(text, at_least=LEAST_RUNS),
        default=LEAST_RUNS,
        shown=f"{LEAST_RUNS}, the least",
    )
    quick: bool = option("small sizes, for a look", default=False)

    def choose(self, *, full: T, quick: T) -> T:
        """Return the sizes that apply."""
        return quick if self.quick else full


class Spread(Record, title="spread"):
    """The median of several runs, between the smallest and the largest."""

    median: float
    """The middle of them."""
    low: float
    """The smallest."""
    high: float
    """The largest."""
    runs: int
    """How many."""

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Return the spread of at least one value."""
        return cls(median=statistics.median(values), low=min(values), high=max(values), runs=len(values))


Figure = Spread | float | int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a ratio's median should be: at most at ``limit``, or with ``at_least`` no lower."""

    limit: float
    at_least: bool = False

    def is_met(self, ratio: Spread) -> bool:
        """Whether the median keeps the limit."""
        return ratio.median >= self.limit if self.at_least else ratio.median <= self.limit

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.limit:g}"


class Row(Record, title="row"):
    """One case."""

    case: str
    """What was measured."""
    figures: Mapping[str, Figure]
    """By column, the unit in the column's name: a number, a text, or a spread."""
    ratio: Spread | None = None
    """The figure that has a goal; null where nothing is compared."""
    goal: Annotated[Goal | None, PlainSerializer(lambda goal: goal and str(goal), return_type=str | None)] = None
    """Such as `<= 1.25`, for the ratio's median; null where the ratio is for information only."""

    @computed
    def met(self) -> bool | None:
        """Whether it is; null without a goal."""
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


def cpu_seconds(work: Callable[[], object]) -> Timed:
    """Time CPU seconds of this process, all threads together: what other people's processes disturb least."""
    return _timed(work, time.process_time)


def wall_seconds(work: Callable[[], object]) -> Timed:
    """Time seconds on the clock, for work that is spread over threads."""
    return _timed(work, time.perf_counter)


def alternate(candidates: Mapping[str, Timed], *, runs: int) -> Mapping[str, tuple[float, ...]]:
    """Return seconds of each candidate, round by round, after a warming-up round that does not count: A B A B ..."""
    for candidate in candidates.values():
        candidate()
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    first = seconds[next(iter(candidates))]
    while len(first) < runs or (sum(first) < LEAST_SECONDS and len(first) < MOST_RUNS):
        for name, candidate in candidates.items():
            seconds[name].append(candidate())
    return {name: tuple(values) for name, values in seconds.items()}


def quotient(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Return the spread of the rounds' own quotients, each of two measurements that stood next to each other."""
    return Spread.of([a / b for a, b in zip(above, below, strict=True)])


def compared(
    case: str, candidates: Mapping[str, Timed], settings: Settings, *, ratio: tuple[str, str], goal: Goal | None
) -> Row:
    """Measure candidates by column; the row's ratio is of the first named column to the second."""
    seconds = alternate(candidates, runs=settings.runs)
    above, below = (seconds[name] for name in ratio)
    figures = {name: Spread.of(values) for name, values in seconds.items()}
    return Row(case=case, figures=figures, ratio=quotient(above, below), goal=goal)


def in_own_process(module: str, *arguments: object, what: str) -> Mapping[str, float]:
    """Return the JSON that a module prints when it is run with arguments: figures of a process that did nothing else.

    Raises:
        FederationError: it did not come to its end; names ``what`` it was.
    """
    done = subprocess.run(  # noqa: S603  (this interpreter and this package)
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=CHECKOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = (done.stderr.strip() or "it was killed, perhaps for memory").splitlines()[-1]
        raise FederationError(f"the session of {what} did not come to its end: {reason}")
    measured: Mapping[str, float] = json.loads(done.stdout)
    return measured


def spaced(number: int) -> str:
    """Write digits in groups of three."""
    return f"{number:,}".replace(",", " ")


def _timed(work: Callable[[], object], clock: Callable[[], float]) -> Timed:
    def timed() -> float:
        started = clock()
        work()
        return clock() - started

    return timed


PACKAGES = ("numpy", "scipy", "cryptography", "tenseal", "flwr")
THREADS = "BLAS pools held at one thread (threadpoolctl); subprocesses get OMP_NUM_THREADS=1; CPU seconds unless stated"


one_thread = partial(threadpool_limits, limits=1)
"""Hold every BLAS and OpenMP pool of this process at one thread, as a context."""


def describe_machine() -> Mapping[str, str]:
    """What a reader needs to judge the figures: facts by name."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        **versions(PACKAGES),
        "openssl": _openssl(),
        "blas": _blas(),
        "threads": THREADS,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _openssl() -> str:
    from cryptography.hazmat.backends.openssl import backend

    return backend.openssl_version_text()


def _blas() -> str:
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return ", ".join(sorted({f"{p['internal_api']} {p['version']} {p.get('architecture', '')}".strip() for p in pools}))
