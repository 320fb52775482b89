"""How much memory a piece of work took at its worst."""

from __future__ import annotations

import contextlib
import re
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def forget_peak() -> None:
    """Start a new measurement where the system can (Linux); elsewhere the peak stays that of the whole process."""
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text("5")


def peak_rss_bytes() -> int | None:
    """Return the largest resident memory of this process since ``forget_peak``; None where the system does not say."""
    with contextlib.suppress(OSError):
        match = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), flags=re.MULTILINE)
        if match is not None:
            return int(match[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
