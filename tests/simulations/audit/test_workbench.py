"""What a workbench has forgotten is the system's again."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from simulations.audit.workbench import give_memory_back

PIECES, BYTES = 2000, 100_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone keeps what was freed")
def test_memory_between_what_is_kept_is_given_back() -> None:
    pieces = [bytearray(BYTES) for _ in range(PIECES)]
    kept, before = pieces[::10], resident_bytes()
    del pieces
    give_memory_back()
    assert len(kept) == PIECES // 10
    assert resident_bytes() < before - PIECES * BYTES // 2


def test_other_systems_need_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for system in "darwin", "win32":
        monkeypatch.setattr("simulations.audit.workbench.sys.platform", system)
        monkeypatch.setattr("simulations.audit.workbench.ctypes.CDLL", None)
        give_memory_back()
