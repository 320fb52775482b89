"""The peak of resident memory: it sees what was allocated, and on Linux forgets what went before."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from simulations.compare.memory import forget_peak, peak_rss_bytes

SIZE = 200_000_000


def test_a_large_array_shows() -> None:
    forget_peak()
    before = peak_rss_bytes()
    array = np.ones(SIZE, dtype=np.uint8)
    assert peak_rss_bytes() >= max(before, SIZE)
    del array


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can start a measurement anew")
def test_an_array_of_the_past_is_forgotten() -> None:
    array = np.ones(SIZE, dtype=np.uint8)
    held = peak_rss_bytes()
    del array
    forget_peak()
    assert peak_rss_bytes() <= held - SIZE // 2
