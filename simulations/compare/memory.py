"""How much memory a piece of work took at its worst, and how much there is."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_MEMINFO, _CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def forget_peak() -> None:
    """Start a new measurement where the system can (Linux); elsewhere the peak stays that of the whole process."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text("5")


def peak_rss_bytes() -> int:
    """Largest resident memory of this process since ``forget_peak``, all that it holds included."""
    with contextlib.suppress(OSError):
        match = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), flags=re.MULTILINE)
        if match is not None:
            return int(match[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


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
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        with contextlib.suppress(OSError):
            taken = re.search(r"^VmSize:\s+(\d+) kB$", _STATUS.read_text(), flags=re.MULTILINE)
            found.append(limit - (int(taken[1]) * 1024 if taken else 0))
    return min(found, default=None)
