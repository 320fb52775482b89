"""The peak of resident memory: it sees what was allocated, and on Linux forgets what went before."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analytic.scaling import Agreement
from analytic_secagg import federate, size
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.size import available_bytes
from simulations.compare.build import build, check
from simulations.compare.memory import forget_peak, peak_rss_bytes
from simulations.compare.run import Run

SIZE = 200_000_000


def test_a_large_array_shows() -> None:
    forget_peak()
    before = peak_rss_bytes() or 0
    array = np.ones(SIZE, dtype=np.uint8)
    assert (peak_rss_bytes() or 0) >= max(before, SIZE)
    del array


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can start a measurement anew")
def test_an_array_of_the_past_is_forgotten() -> None:
    array = np.ones(SIZE, dtype=np.uint8)
    held = peak_rss_bytes()
    del array
    forget_peak()
    now = peak_rss_bytes()
    assert held
    assert now
    assert now <= held - SIZE // 2


def wide(n_features: int) -> Dataset:
    rows, labels = np.ones((4, n_features), dtype=np.float32), np.arange(4) % 2
    return Dataset(name="wide", x_train=rows, y_train=labels, x_test=rows[:2], y_test=labels[:2])


RUN = Run(learner="afl", mode="plain", clients=2, partition="iid")


def test_what_does_not_fit_is_refused_with_the_largest_that_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "available_bytes", lambda: 8 * size.MATRICES * 3000**2)
    with pytest.raises(UsageError, match=r"afl of 3001 columns needs about 0\.7 GB .*up to 3000 columns fit"):
        check(RUN, wide(3001))
    check(RUN, wide(3000))
    check(RUN.but(learner="naive-bayes"), wide(3001))  # has no Gram
    check(RUN.but(agreement=Agreement.AGREED), wide(300))
    with pytest.raises(UsageError, match="of 3001 columns"):
        check(RUN.but(agreement=Agreement.AGREED), wide(3001))
    with pytest.raises(UsageError, match="of 4096 columns"):
        check(RUN.but(learner="random", options={"d_phi": 4096}), wide(4))
    rows = wide(3001).training
    with pytest.raises(UsageError, match=r"afl of 3001 columns needs about 0\.7 GB .*up to 3000 columns fit"):
        federate(dict.fromkeys("ABC", (rows.features, rows.targets)))
    monkeypatch.setattr(size, "available_bytes", lambda: None)
    check(RUN, wide(3001))


def test_columns_of_any_size_have_a_way_out_by_name() -> None:
    large = wide(2)
    large = replace(large, x_train=large.x_train * 1e5)
    with pytest.raises(UsageError, match="or --format agreed, which brings each to a size of its own"):
        check(RUN, large)
    check(RUN.but(agreement=Agreement.AGREED), large)


def test_clients_that_do_not_fit_are_refused_with_the_most_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    many = RUN.but(mode="masked", clients=1000)
    built = build(many, wide(8))
    needed = size.needed_bytes(built, many.mode_of_sums(), 1000)
    monkeypatch.setattr(size, "available_bytes", lambda: needed // 2)
    with pytest.raises(
        UsageError, match=r"1000 clients in the mode masked need about .*up to (\d+) clients fit"
    ) as said:
        check(many, wide(8))
    fits = int(str(said.value).split("up to ")[1].split()[0])
    assert 490 < fits <= 500
    check(many.but(clients=fits), wide(8))
    check(many.but(mode="plain"), wide(8))


def test_the_estimate_follows_the_clients() -> None:
    run = RUN.but(mode="masked", clients=1000)
    built, mode = build(run, wide(8)), run.mode_of_sums()
    few, many = (size.seconds_of_clients(built, mode, n) for n in (1000, 2000))
    assert 2 * few < many < 4 * few  # each has a few neighbours more
    assert size.seconds_of_clients(built, mode, 50) == 0


def test_available_memory_is_the_least_of_machine_and_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:   3000 kB\n")
    (tmp_path / "memory.max").write_text("5000000\n")
    (tmp_path / "memory.current").write_text("4000000\n")
    monkeypatch.setattr(size, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(size, "_CGROUP", tmp_path)
    assert available_bytes() == 1_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes() == 3000 * 1024


def test_the_estimate_follows_the_columns() -> None:
    small, large = (build(RUN, wide(n)) for n in (100, 200))
    assert (size.gram_columns(small), size.gram_columns(large)) == (100, 200)
    assert size.seconds(large) == pytest.approx(8 * size.seconds(small))
