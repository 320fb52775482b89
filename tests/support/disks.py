"""Small disks of their own, that a test can fill or make read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[None]:
    """Mount a disk of so many bytes at a folder, which is made; skip the test where this user may not."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    options = f"size={n_bytes},mode=0700"
    if _run("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)):
        pytest.skip("only root may mount a disk")
    try:
        yield
    finally:
        assert not _run("umount", "-l", str(folder))


def make_read_only(folder: Path) -> None:
    assert not _run("mount", "-o", "remount,ro", str(folder))


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
