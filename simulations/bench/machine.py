"""What a measurement depends on: processor, load, versions and the number of threads."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import scipy.linalg  # noqa: F401  (brings a BLAS of its own, which must be there before the pools are counted)
from threadpoolctl import threadpool_info, threadpool_limits

PACKAGES = ("numpy", "scipy", "cryptography", "tenseal", "flwr")
THREADS = "BLAS pools held at one thread (threadpoolctl); subprocesses get OMP_NUM_THREADS=1; CPU seconds unless stated"


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold every BLAS and OpenMP pool of this process at one thread."""
    with threadpool_limits(limits=1):
        yield


def describe_machine() -> Mapping[str, str]:
    """What a reader needs to judge the figures: facts by name."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
        "openssl": _openssl(),
        "blas": _blas(),
        "threads": THREADS,
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _openssl() -> str:
    from cryptography.hazmat.backends.openssl import backend

    return backend.openssl_version_text()


def _blas() -> str:
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return ", ".join(sorted({f"{p['internal_api']} {p['version']} {p.get('architecture', '')}".strip() for p in pools}))
