"""Small disks of their own, that a test can fill or make read-only."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BUSY_SECONDS = 120.0
"""A disk that is written to for so long is written to for ever."""


@contextmanager
def mounted(folder: Path, n_bytes: int) -> Iterator[bool]:
    """Mount a disk of so many bytes at a folder, which is made; False where this user may not."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = f"size={n_bytes},mode=0700"
    is_there = not _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))
    try:
        yield is_there
    finally:
        assert not is_there or not _run("umount", "-l", str(folder))


@contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[None]:
    """As ``mounted``; skip the test where this user may not."""
    with mounted(folder, n_bytes) as is_there:
        if not is_there:
            pytest.skip("only root may mount a disk")
        yield


def make_read_only(folder: Path, *, is_over: bool = False) -> None:
    """Mount a folder's disk anew, as soon as no process has a file open there that it writes to."""
    ends = time.monotonic() + BUSY_SECONDS
    while _run("mount", "-o", f"remount,{'rw' if is_over else 'ro'}", str(folder)):
        assert time.monotonic() < ends, f"files stay open for writing in {folder}"
        time.sleep(0.05)


def fill(folder: Path, *, but: int = 0) -> None:
    """Leave so many bytes free on a folder's disk, and none by default."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            size = file.tell()
    if but:
        with (folder / "filler").open("r+b") as file:
            file.truncate(size - but)


def _run(*command: str) -> int:
    return subprocess.run(command, check=False, capture_output=True).returncode
