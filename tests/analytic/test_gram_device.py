"""Grams on a device of PyTorch: the bits of BLAS, checked as they are, and a clear refusal where there is none.

Here PyTorch's own processor is the device; ``ANALYTIC_SECAGG_TEST_DEVICE=cuda`` runs the same tests on a graphics card.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from analytic import AFL, ClientRows, RowFormat, SAFLe, gram_device
from analytic.bucketing import FixedThresholds
from analytic.checked_products import GramSum
from analytic.errors import DeviceError, WrongProductError
from analytic.gram_device import DEVICE_VARIABLE, DeviceGram
from analytic.learner import fit_in_the_clear

pytest.importorskip("torch")

TEST_DEVICE = os.environ.get("ANALYTIC_SECAGG_TEST_DEVICE", "cpu")
WIDTH, CLASSES = 20, 3
ROWS = [
    ClientRows(np.random.default_rng(seed).normal(size=(90, WIDTH)).clip(-3.9, 3.9), np.arange(90) % CLASSES)
    for seed in range(2)
]
LEARNERS: dict[str, Callable[[], Any]] = {
    "float64": lambda: AFL(
        n_features=WIDTH,
        n_targets=CLASSES,
        feature_format=RowFormat(integer_bits=2, fraction_bits=13),
        max_rows=180,
        max_clients=2,
    ),
    "float64, moved to int64 on the way": lambda: AFL(
        n_features=WIDTH,
        n_targets=CLASSES,
        feature_format=RowFormat(integer_bits=2, fraction_bits=22),
        max_rows=180,
        max_clients=2,
    ),
    "float32": lambda: SAFLe(
        n_features=WIDTH, n_classes=CLASSES, max_rows=180, thresholds=FixedThresholds.evenly(-3.9, 3.9, 8)
    ),
}


def weights(name: str) -> bytes:
    learner = LEARNERS[name]()
    found: bytes = learner.weights_bytes(fit_in_the_clear(learner, ROWS))
    return found


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gram_device, "LEAST_WIDTH", 0)
    monkeypatch.setenv(DEVICE_VARIABLE, TEST_DEVICE)


@pytest.mark.parametrize("name", LEARNERS)
def test_weights_are_the_same_bits(name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, went, add = weights(name), 0, DeviceGram.add

    def counted(self: DeviceGram, block: Any) -> None:
        nonlocal went
        went += len(block)
        add(self, block)

    request.getfixturevalue("on_device")
    monkeypatch.setattr(DeviceGram, "add", counted)
    assert weights(name) == expected
    assert went == sum(len(rows.features) for rows in ROWS)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("place", [(1, 2), (2, 2)])
def test_a_device_that_multiplies_wrongly_is_found_out(place: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    right = DeviceGram.matrix

    def off_by_one(self: DeviceGram) -> Any:
        found = right(self)
        found[place] += 1
        found[place[::-1]] = found[place]
        return found

    monkeypatch.setattr(DeviceGram, "matrix", off_by_one)
    with pytest.raises(WrongProductError, match=DEVICE_VARIABLE):
        weights("float64")


def test_narrow_grams_stay_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, "a device that would be refused")
    GramSum(gram_device.LEAST_WIDTH - 1, np.float64)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("name", ["cuda:99", "meta", "no such device"])
def test_a_device_that_is_not_there_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DEVICE_VARIABLE, name)
    with pytest.raises(DeviceError, match=f"{DEVICE_VARIABLE}={name} cannot multiply"):
        weights("float64")
