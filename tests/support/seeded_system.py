"""A seeded operating system: keys, masks, noise and session ids that are the same in each run of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest


@contextmanager
def seeded_system(seed: int = 0) -> Iterator[None]:
    """Have the operating system's generator give the same bytes each time; what C libraries draw is not reached."""
    draw = np.random.default_rng(seed).bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.urandom", draw)
        patch.setattr("secrets.token_bytes", draw)
        yield
