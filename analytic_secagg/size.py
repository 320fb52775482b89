"""The size of a run before it begins: an estimate of memory and time, and a refusal where the memory is not there.

Measured with ``compare --learner afl`` on random rows of 10 classes, plain and masked, 5 and 20 clients, one
core: 0.20 GB and 25 s at 1024 columns, 0.47 GB and 178 s at 2048; ``federate`` takes as much memory (10.5 matrices at
1024 columns, masked) and a tenth of the time.
"""

from __future__ import annotations

import contextlib
import math
import re
from pathlib import Path
from typing import Any

from analytic.learner import AnalyticLearner
from analytic_secagg.errors import UsageError
from analytic_secagg.federation import Step

_STATUS = Path("/proc/self/status")
_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")

MATRICES = 10
"""Square matrices of 8 bytes an entry that are there at once: totals, digits of the solve, references in float64."""

SECONDS_OF_A_CUBE = 2.1e-8
"""For each column cubed: sums, the certified solve, the pooled model and the float64 models beside it."""

WORTH_SAYING = 60.0
"""Seconds that are announced."""


def available_bytes() -> int | None:
    """Return how much memory this process may still take: of the machine, its container and its own limit.

    None where the system does not say.
    """
    found = []
    with contextlib.suppress(OSError):
        if match := re.search(r"^MemAvailable:\s+(\d+) kB$", _MEMINFO.read_text(), flags=re.MULTILINE):
            found.append(int(match[1]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # "max" is no limit
        found.append(int((_CGROUP / "memory.max").read_text()) - int((_CGROUP / "memory.current").read_text()))
    with contextlib.suppress(OSError, ImportError):
        import resource  # Windows has none

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit != resource.RLIM_INFINITY:
            taken = re.search(r"^VmSize:\s+(\d+) kB$", _STATUS.read_text(), flags=re.MULTILINE)
            found.append(limit - (int(taken[1]) * 1024 if taken else 0))
    return min(found, default=None)


def gram_columns(learner: AnalyticLearner[Any]) -> int:
    """Return how many columns the Gram of a learner's first sum has, after its columns are agreed; 0 without a Gram."""
    head: Any = getattr(learner, "head", learner)
    step = Step[Any].of(head, head.init())
    return 0 if step is None else step.n_columns


def refuse_too_large(learner: AnalyticLearner[Any], *, at_once: int = 1) -> None:
    """Refuse a run whose matrices this machine has no memory for.

    Args:
        learner: what is trained.
        at_once: how many such runs go on at the same time, each in a process of its own.

    Raises:
        UsageError: how much it needs, and the largest that fits.
    """
    columns, available = gram_columns(learner), available_bytes()
    needed = 8 * MATRICES * columns**2
    if available is not None and at_once * needed > available:
        fits = math.isqrt(max(0, available) // (8 * MATRICES * at_once))
        processes = "one process" if at_once == 1 else f"each of {at_once} processes"
        raise UsageError(
            f"{learner.name} of {columns} columns needs about {needed / 1e9:.1f} GB of memory in {processes}, and "
            f"{available / 1e9:.1f} GB are free here: up to {fits} columns fit; use fewer features, "
            f"{'' if at_once == 1 else 'fewer jobs at a time, '}or a larger machine"
        )


def seconds(learner: AnalyticLearner[Any]) -> float:
    """Return about how long a learner's first run takes on one core; every further run of it takes less."""
    return SECONDS_OF_A_CUBE * float(gram_columns(learner)) ** 3


def in_words(total: float) -> str:
    """``3 minutes``: a duration to one digit or two.

    Example:
        >>> in_words(178.0), in_words(170_000.0)
        ('3 minutes', '47 hours')
    """
    minutes = total / 60
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
