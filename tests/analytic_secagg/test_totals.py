"""Stored totals give the stored model again, bit for bit, or the command says where they do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analytic.learner import ClientRows
from analytic.model_files import load_model, save_model
from analytic.row_format import RowFormat
from analytic_secagg.__main__ import main
from analytic_secagg.federation import Federation
from analytic_secagg.learners import LEARNERS, LearnerSettings
from analytic_secagg.totals import FILE, TotalsFileError, totals_from_bytes, totals_to_bytes
from secagg import SumResult

OPTIONS: dict[str, dict[str, Any]] = {"deepafl": {"n_layers": 1, "d_phi": 6, "d_f": 5}, "safle": {"n_bins": 64}}


@pytest.fixture(params=list(LEARNERS))
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a learner's model and the totals of its run, as a server leaves them."""
    learner = LEARNERS[request.param].build(
        LearnerSettings(
            n_features=4,
            n_classes=3,
            feature_format=RowFormat.parse("Q5.11"),
            max_rows=100,
            max_clients=7,
            ridge=2.0,
            options=OPTIONS.get(request.param, {}),
        )
    )
    rng = np.random.default_rng(0)
    rows = [ClientRows(rng.uniform(-9, 9, (20, 4)), rng.integers(0, 3, 20)) for _ in range(3)]
    federation, totals = Federation(learner, release=None), []
    while (step := federation.next_sum) is not None:
        result = SumResult(total=np.sum([step.vector(part) for part in rows], axis=0), survivors=(2, 5, 9))
        federation.take(result)
        totals.append(result)
    save_model(tmp_path / "model.safetensors", learner, federation.model)
    (tmp_path / "totals.safetensors").write_bytes(totals_to_bytes(totals))
    return tmp_path


def verify(folder: Path) -> int:
    return main(["verify", str(folder / "model.safetensors"), str(folder / "totals.safetensors")])


def stored(folder: Path) -> tuple[SumResult, ...]:
    return totals_from_bytes((folder / "totals.safetensors").read_bytes())


def test_a_model_is_verified_from_the_totals_of_its_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(run) == 0
    said = capsys.readouterr().out
    assert "equal, bit for bit" in said
    assert "certified" not in said
    assert all(one.survivors == (2, 5, 9) for one in stored(run))


def test_one_unit_in_one_total_is_noticed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *before, last = stored(run)
    changed = last.total.copy()
    changed[np.flatnonzero(np.abs(changed) > len(last.survivors))[0]] += 1  # smaller ones count clients, for gates
    totals = [*before, SumResult(total=changed, survivors=last.survivors)]
    (run / "totals.safetensors").write_bytes(totals_to_bytes(totals))
    assert verify(run) == 1
    said = capsys.readouterr().out
    assert "NOT EQUAL" in said
    assert "entries differ, first at (" in said or "no rows add up to it" in said


def test_one_bit_of_the_model_is_noticed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = load_model(run / "model.safetensors")
    learner: Any = saved.learner
    parts = learner.take_apart(saved.model)
    name = max(name for name, array in parts.arrays.items() if array.dtype == np.float64)
    flipped = parts.arrays[name].copy()
    flipped.reshape(-1).view(np.uint64)[0] ^= 1
    parts.arrays[name] = flipped
    save_model(run / "model.safetensors", learner, learner.put_together(parts))
    assert verify(run) == 1
    assert f"{name}: 1 of {flipped.size} entries differ, first at (0" in capsys.readouterr().out


@pytest.mark.parametrize("run", ["deepafl"], indirect=True)
def test_totals_of_another_run_and_damaged_files_are_refused_by_name(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = (run / "totals.safetensors").read_bytes()
    totals = stored(run)
    for content, complaint in (
        (whole[:-8], "is no safetensors file of numbers"),
        (whole[:-1] + bytes([whole[-1] ^ 1]), "was damaged or changed"),
        (totals_to_bytes([]), "needs more than the 0 sums"),
        (totals_to_bytes([*totals, totals[-1]]), f"complete after {len(totals)} sums"),
        (totals_to_bytes([SumResult(total=np.zeros(3, np.int64), survivors=(1,))]), "it is another run's"),
    ):
        (run / "totals.safetensors").write_bytes(content)
        assert verify(run) == 2
        assert complaint in capsys.readouterr().err


def test_totals_keep_their_bytes() -> None:
    first = SumResult(total=np.array([1, -(2**62), 3]), survivors=(1, 4))
    totals = [first, SumResult(total=np.arange(2), survivors=(4,), receipt=b"receipt")]
    content = totals_to_bytes(totals)
    assert totals_to_bytes(totals_from_bytes(content)) == content
    with pytest.raises(TotalsFileError, match="no safetensors file"):
        totals_from_bytes(b"")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("survivors", 1),
        ("survivors", [3]),
        ("survivors", [["3"]]),
        ("survivors", [[True]]),
        ("survivors", [[3], [3]]),
        ("receipts", ["x"]),
        ("receipts", 7),
    ],
)
def test_a_description_of_another_kind_is_refused_by_name(name: str, value: Any) -> None:
    """Whoever hands a file of totals on may have written it."""
    arrays, said = {"total 1": np.arange(3)}, {"survivors": [[3]], "receipts": ["aa"]}
    assert totals_from_bytes(FILE.to_bytes(arrays, said))[0].receipt == b"\xaa"
    with pytest.raises(TotalsFileError, match="no file of a run's totals"):
        totals_from_bytes(FILE.to_bytes(arrays, said | {name: value}))
