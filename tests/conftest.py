"""Hypothesis profiles: `dev` while writing, `ci` for every change, `nightly` for long searches; where files lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # so that every test finds ``support``

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - its folders are their owner's alone
if os.access(SHARED_MEMORY, os.W_OK):  # a site flushes every word to its disk, which takes most of a rehearsal's time
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=25, deadline=None, suppress_health_check=_QUIET)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, suppress_health_check=_QUIET)
settings.register_profile("nightly", max_examples=5000, deadline=None, print_blob=True, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
