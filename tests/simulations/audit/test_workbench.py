"""What a workbench has forgotten is the system's again."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.benches import small_bench

from analytic_secagg.modes import MODES
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


def test_one_client_may_hold_most_rows_of_a_class() -> None:
    """An equal share of the bound for all would refuse it: tables of two classes could not be audited."""
    bench = small_bench(1)
    data = bench.population.dataset
    one_class = replace(data, y_train=np.zeros_like(data.y_train))
    narrow = bench.under(replace(bench.learner, max_rows=30), one_class)
    cohort = dict(enumerate(np.split(narrow.population.candidates[:30], [20, 25]), start=1))
    recorded = narrow.run(MODES["plain"], narrow.vectors(cohort))
    assert (recorded.result.total == sum(narrow.vectors(cohort).values())).all()
