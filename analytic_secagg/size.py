"""The size of a run before it begins: an estimate of memory and time, and a refusal where the memory is not there.

Columns are measured with ``compare --learner afl`` on random rows of 10 classes, plain and masked, 5 and 20 clients,
one core: 0.20 GB and 25 s at 1024 columns, 0.47 GB and 178 s at 2048; ``federate`` takes as much memory (10.5 matrices
at 1024 columns, masked) and a tenth of the time. Clients are measured with ``federate`` on 4 rows of 8 columns each: 50
to 800 clients, masked, take 14 to 26 ms and 0.1 MB each, in a committee 3 ms, in plain sums 1 to 2 ms; of encrypted
sums the estimate is too low.
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
from analytic_secagg.modes import Mode
from secagg.sums import CLIENT_ROLE

_STATUS = Path("/proc/self/status")
_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")

MATRICES = 10
"""Square matrices of 8 bytes an entry that are there at once: totals, digits of the solve, references in float64."""

SECONDS_OF_A_CUBE = 2.1e-8
"""For each column cubed: sums, the certified solve, the pooled model and the float64 models beside it."""

FEW_CLIENTS = 100
"""Up to so many clients cost next to nothing."""

SECONDS_OF_A_CLIENT, SECONDS_OF_A_BYTE, SECONDS_OF_A_VECTOR_BYTE = 1e-3, 0.9e-6, 2e-8
"""In each sum: for a client, for a byte of its messages beside its vector (keys, shares), and for one of its vector."""

HELD_BYTES = 4
"""Bytes of memory for each byte of a client's messages beside its vector: all clients of a sum are there at once."""

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


def _client_bytes(learner: AnalyticLearner[Any], mode: Mode, n_clients: int) -> tuple[int, int]:
    """Return the bytes of a client's messages in the first sum, beside its vector and of it; 0 of few clients."""
    step = Step[Any].of(learner, learner.init())
    if n_clients <= FEW_CLIENTS or step is None:
        return 0, 0
    parties = mode.sums(tuple(range(1, n_clients + 1))).next_sum(step.layout, step.context)
    cost = parties.protocol.costs[CLIENT_ROLE]
    return cost.bytes_up + cost.bytes_down - cost.vector_bytes, cost.vector_bytes


def needed_bytes(learner: AnalyticLearner[Any], mode: Mode, n_clients: int) -> int:
    """Return about how much memory a run in one process takes at once."""
    beside, _ = _client_bytes(learner, mode, n_clients)
    return 8 * MATRICES * gram_columns(learner) ** 2 + n_clients * HELD_BYTES * beside


def refuse_too_large(learner: AnalyticLearner[Any], mode: Mode, n_clients: int, *, at_once: int = 1) -> None:
    """Refuse a run whose matrices, or whose clients, its process has no memory for.

    Args:
        learner: what is trained.
        mode: how its sums are made.
        n_clients: the cohort, all in this process.
        at_once: how many such runs go on at the same time, each in a process of its own.

    Raises:
        UsageError: how much it needs, and the largest that fits.
    """
    columns, available = gram_columns(learner), available_bytes()
    needed = 8 * MATRICES * columns**2
    if available is None:
        return
    available //= at_once
    free = f"{available / 1e9:.1f} GB are free here" + (f" for each of {at_once} runs at a time" if at_once > 1 else "")
    if needed > available:
        fits = math.isqrt(max(0, available) // (8 * MATRICES))
        raise UsageError(
            f"{learner.name} of {columns} columns needs about {needed / 1e9:.1f} GB of memory in one process, and "
            f"{free}: up to {fits} columns fit; use fewer features, or a larger machine"
        )
    if (both := needed_bytes(learner, mode, n_clients)) > available:
        fits = (available - needed) * n_clients // (both - needed)
        raise UsageError(
            f"{n_clients} clients in the mode {mode.name} need about {both / 1e9:.1f} GB of memory in one process, and "
            f"{free}: up to {fits} clients fit; use fewer clients, or a larger machine"
        )


def seconds_of_clients(learner: AnalyticLearner[Any], mode: Mode, n_clients: int) -> float:
    """Return about how long the messages of all clients in one sum take on one core; 0 of few clients."""
    beside, vector = _client_bytes(learner, mode, n_clients)
    if not beside:
        return 0.0
    return n_clients * (SECONDS_OF_A_CLIENT + SECONDS_OF_A_BYTE * beside + SECONDS_OF_A_VECTOR_BYTE * vector)


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
    if minutes < 1.5:
        return "1 minute"
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
