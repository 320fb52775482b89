"""Statistics with the Gram on a graphics card beside the processor: ``python -m benchmarks.device [cuda]``.

The clock counts, since a device takes no CPU seconds. All candidates run in this process, one after the other, each
after a run that is not counted; the processor has one BLAS thread and then all of them. Each line ends in whether the
bytes are the same.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import scipy.linalg.blas  # noqa: F401 - its pool of threads must be there before it is limited
from threadpoolctl import threadpool_limits

from analytic.gram_device import DEVICE_VARIABLE
from analytic.row_format import RowFormat
from analytic.statistics import Statistics, StatisticsSpec

FORMAT = RowFormat(integer_bits=2, fraction_bits=13)
RUNS = 3


def client(n_rows: int, d: int) -> Callable[[], bytes]:
    """A client's statistics of float32 rows with the labels of ten classes."""
    rng = np.random.default_rng(d)
    features, labels = rng.random((n_rows, d), dtype=np.float32), rng.integers(0, 10, n_rows)
    spec = StatisticsSpec(n_features=d, n_targets=10, feature_format=FORMAT, max_rows=n_rows)
    return lambda: Statistics.from_rows(spec, features, labels).to_bytes()


SIZES = ((60_000, 512), (60_000, 1_024), (60_000, 2_048), (30_000, 8_192))
"""Rows and features."""


@contextmanager
def on(device: str) -> Iterator[None]:
    """Products go to this device."""
    os.environ[DEVICE_VARIABLE] = device
    try:
        yield
    finally:
        del os.environ[DEVICE_VARIABLE]


def median_seconds(work: Callable[[], bytes]) -> tuple[float, str]:
    """The median of some runs, and the hash of what they found."""
    seconds = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[1:])[RUNS // 2], hashlib.sha256(found).hexdigest()


def main(arguments: list[str]) -> None:
    """Print a line for each size."""
    device = arguments[0] if arguments else "cuda"
    print(f"{'seconds':20}{'one thread':>12}{'all threads':>12}{device:>12}")
    for n_rows, d in SIZES:
        work = client(n_rows, d)
        with threadpool_limits(1, "blas"):
            measured = [median_seconds(work)]
        measured.append(median_seconds(work))
        with on(device):
            measured.append(median_seconds(work))
        figures = "".join(f"{seconds:12.2f}" for seconds, _ in measured)
        same = len({found for _, found in measured}) == 1
        print(f"{n_rows:7} x {d:<10}{figures}  {'the same bytes' if same else 'OTHER BYTES'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
