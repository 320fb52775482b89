"""Which of OpenBLAS's kernels this processor can run: another ends the process with an illegal instruction."""

from __future__ import annotations

from pathlib import Path

KERNELS = {"SkylakeX": "avx512f", "Haswell": "avx2", "Sandybridge": "avx", "Nehalem": "sse4_2", "Prescott": "pni"}
"""A kernel's name (``OPENBLAS_CORETYPE``) to what a processor of x86_64 needs for it, as Linux says it."""


def kernels_that_run() -> list[str]:
    """Those of :data:`KERNELS` that run here, newest first; none where Linux says nothing."""
    found = Path("/proc/cpuinfo")
    text = found.read_text(encoding="utf-8") if found.exists() else ""
    flags = {flag for line in text.splitlines() if line.startswith("flags") for flag in line.split()}
    return [kernel for kernel, needed in KERNELS.items() if needed in flags]
