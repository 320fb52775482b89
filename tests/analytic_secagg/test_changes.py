"""Totals that are kept give their model again; what joins, leaves or is unlearned gives a fresh start's bits."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.composed import choosing, weighted

from analytic import (
    AFL,
    LDA,
    QDA,
    ClientRows,
    ColumnMap,
    DeepAFL,
    FedHiP,
    FixedThresholds,
    NaiveBayes,
    QuantileThresholds,
    RandomMap,
    RowFormat,
    SAFLe,
    load_model,
    save_model,
)
from analytic.errors import AnalyticError
from analytic_secagg import (
    Change,
    ChangeRefusedError,
    Gate,
    ReleasePolicy,
    changed,
    run_federation,
    with_classes,
)
from analytic_secagg.__main__ import main
from analytic_secagg.commands.change import ChangeOptions
from analytic_secagg.console.declaration import option_lines
from analytic_secagg.federation import Federation
from analytic_secagg.learners import LEARNERS, LearnerSettings
from analytic_secagg.modes import MODES as KNOWN
from analytic_secagg.modes import choose_modes
from analytic_secagg.totals import FILE, TotalsFileError, read_totals, totals_from_bytes, totals_to_bytes
from secagg import SumResult
from secagg.errors import InvalidVectorError

LINEAR: dict[str, Any] = {
    "n_features": 6,
    "n_targets": 3,
    "feature_format": RowFormat.parse("Q3.8"),
    "max_rows": 2000,
    "max_clients": 40,
}
FORMS: dict[str, Any] = {
    "afl": AFL(**LINEAR, ridge=0.5),
    "afl with RI": AFL(**LINEAR, ri_gamma=0.25),
    "fedhip": FedHiP(**LINEAR, ridge=1.0),
    "safle": SAFLe(n_features=6, n_classes=3, max_rows=2000, thresholds=FixedThresholds.evenly(-4, 4, 4), n_buckets=4),
}
MODES = [name for name, mode in KNOWN.items() if not mode.missing_extra]


def site(party: int, n: int = 12, classes: int = 3) -> ClientRows:
    rng = np.random.default_rng(party)
    return ClientRows(rng.uniform(-4, 4, (n, 6)), rng.integers(0, classes, n))


def sites(*parties: int) -> dict[int, ClientRows]:
    return {party: site(party) for party in parties}


def total_of(learner: Any, clients: dict[int, ClientRows], mode: str = "plain") -> SumResult:
    (total,) = run_federation(learner, clients, choose_modes([mode])[0]).totals
    return total


def is_as_if(learner: Any, found: Any, clients: dict[int, ClientRows]) -> bool:
    """Whether total, survivors and model are those of clients who were there from the start."""
    fresh = run_federation(learner, clients, choose_modes(["plain"])[0])
    (total,) = fresh.totals
    return (
        found.total.total.tobytes() == total.total.tobytes()
        and found.total.survivors == total.survivors
        and learner.weights_bytes(found.model) == learner.weights_bytes(fresh.model)
    )


OLD, NEW = range(1, 13), range(13, 19)


INTERCEPT = ColumnMap(exponents=(0,) * 6, intercept=0)
OF_ONE_SUM: dict[str, Any] = {
    "afl": AFL(**LINEAR, ri_gamma=0.25),
    "afl of real targets": AFL(**LINEAR, ri_gamma=0.25, target_format=RowFormat.parse("Q3.8")),
    "random": AFL(
        **LINEAR | {"feature_format": RowFormat.parse("Q5.8")},
        ri_gamma=0.25,
        lift=RandomMap(n_features=6, n_columns=9, seed=1, feature_bound=4.0),
    ),
    "weighted": weighted(AFL(**LINEAR, ri_gamma=0.25), max_weight=3),
    "fedhip": FedHiP(**LINEAR, ridge=1.0, ri_gamma=0.5),
    "lda": LDA(**LINEAR, ri_gamma=0.25, columns=INTERCEPT),
    "qda": QDA(**LINEAR, ri_gamma=0.25, columns=INTERCEPT),
    "naive-bayes": NaiveBayes(**LINEAR, ri_gamma=0.25, columns=INTERCEPT, shrinkage=0.5, ridge=1.0),
    "safle": replace(FORMS["safle"], ri_gamma=2, max_clients=40),
}


SMALL_PARTS = ReleasePolicy(allow=frozenset(Gate))
"""The classes of a QDA become small on a walk."""


def rows_of(party: int, name: str, start: int = 0, stop: int = 12) -> ClientRows:
    """Some of the rows of a site, of the form that a learner takes."""
    whole = site(party)
    targets = np.eye(3)[whole.targets] if name == "afl of real targets" else whole.targets
    weights = 1 + np.arange(12) % 3 if name == "weighted" else None
    return ClientRows(whole.features, targets, weights).taken(np.arange(start, stop))


@pytest.mark.parametrize("name", OF_ONE_SUM)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_every_walk_of_changes_gives_the_bits_of_a_fresh_start(name: str, seed: int) -> None:
    """Sites join, leave and take rows out in a random order, with the RI process: after each step the stored total is
    that of a fresh start over what is left, and so are the weights.
    """
    rng, learner = np.random.default_rng(seed), OF_ONE_SUM[name]
    first_row = dict.fromkeys(range(1, 15), 0)  # rows from here on are in the total
    held = lambda: {party: rows_of(party, name, start) for party, start in first_row.items()}  # noqa: E731
    total, newcomer = total_of(learner, held()), 15
    for step in range(6):
        change = Change.REMOVE_ROWS if step == 0 else list(Change)[rng.integers(3)]
        if change is Change.LEAVE and len(first_row) < 10:
            change = Change.JOIN
        there = [party for party, start in first_row.items() if start < 8 or change is Change.LEAVE]
        if change is Change.REMOVE_ROWS and len(there) < 5:
            change = Change.JOIN
        if change is Change.JOIN:
            batch = {party: rows_of(party, name) for party in range(newcomer, newcomer + 5)}
            newcomer += 5
            first_row |= dict.fromkeys(batch, 0)
        else:
            chosen = sorted(int(party) for party in rng.choice(there, 5, replace=False))
            if change is Change.LEAVE:
                batch = {party: rows_of(party, name, first_row.pop(party)) for party in chosen}
            else:
                batch = {party: rows_of(party, name, first_row[party], first_row[party] + 4) for party in chosen}
                first_row |= {party: first_row[party] + 4 for party in chosen}
        found = changed(learner, total, total_of(learner, batch), change, policy=SMALL_PARTS)
        fresh = run_federation(learner, held(), choose_modes(["plain"])[0])
        assert learner.weights_bytes(found.model) == learner.weights_bytes(fresh.model), change
        assert found.total.survivors == fresh.totals[0].survivors
        # a count of a class's sites does not know which of them kept other rows of the class
        if name not in ("qda", "naive-bayes"):
            assert found.total.total.tobytes() == fresh.totals[0].total.tobytes()
        total = found.total


@pytest.mark.parametrize("learner", [FORMS["afl"], FORMS["fedhip"]], ids=lambda learner: learner.name)
def test_classes_come_with_a_batch(learner: Any) -> None:
    wider, before = with_classes(learner, total_of(learner, sites(*OLD)), 5)
    newcomers = {party: site(party, classes=5) for party in NEW}
    found = changed(wider, before, total_of(wider, newcomers), Change.JOIN)
    assert is_as_if(wider, found, {**sites(*OLD), **newcomers})
    with pytest.raises(ChangeRefusedError, match="5 classes are in the total"):
        with_classes(wider, before, 3)
    real = AFL(**LINEAR, target_format=RowFormat.parse("Q3.8"))
    with pytest.raises(ChangeRefusedError, match="class labels, and this afl has real targets"):
        with_classes(real, SumResult(total=np.zeros(sum(s for _, s, _ in real.spec.segments)), survivors=(1,)), 5)


def test_classes_come_with_a_batch_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    learner, n = FORMS["afl"], FORMS["afl"].n_targets  # type: ignore[attr-defined]
    wider, before = with_classes(learner, total_of(learner, sites(*OLD)), n + 2)
    newcomers = {party: site(party, classes=n + 2) for party in NEW}
    batch = total_of(wider, newcomers)
    first = changed(learner, total_of(learner, sites(*OLD)), total_of(learner, sites(*NEW)), Change.JOIN).model
    Path("totals.safetensors").write_bytes(totals_to_bytes([total_of(learner, sites(*OLD))]))
    Path("batch.safetensors").write_bytes(totals_to_bytes([batch]))
    asked = ["change", "model.safetensors", "totals.safetensors", "batch.safetensors", "--new-classes"]
    for classes, wrong, right in (
        (("ape", "bee", "cat"), "bee,frog", "deer,frog"),
        (("ape", "bee", "cat"), "deer,deer", "deer,frog"),
        ((7, 8, 9), "8,10", "10,11"),
        (None, "deer,frog", f"{n},{n + 1}"),
    ):
        save_model("model.safetensors", learner, first, classes=classes)
        assert main([*asked, wrong]) == 2
        assert "--new-classes must be" in capsys.readouterr().err
        assert main([*asked, right]) == 0
        found = load_model("changed-model.safetensors")
        wanted = None if classes is None else (*classes, *(type(classes[0])(name) for name in right.split(",")))
        assert (found.classes, found.learner) == (wanted, wider)
        assert found.model.weights.tobytes() == changed(wider, before, batch, Change.JOIN).model.weights.tobytes()
        assert json.loads(Path("changed-record.json").read_text())["new_classes"] == right.split(",")
        for kind in ("model.safetensors", "totals.safetensors", "record.json"):
            Path(f"changed-{kind}").unlink()


@pytest.mark.parametrize("name", ["weighted", "safle", "chosen"])
def test_classes_come_to_no_learner_of_another_total(name: str) -> None:
    learner = choosing(AFL(**LINEAR)) if name == "chosen" else OF_ONE_SUM[name]
    before = total_of(learner, {party: rows_of(party, name) for party in OLD})
    with pytest.raises(ChangeRefusedError, match=f"not to {learner.name}"):
        with_classes(learner, before, 5)


@pytest.mark.parametrize("change", [Change.JOIN, Change.LEAVE, Change.REMOVE_ROWS])
def test_a_batch_of_few_needs_a_reason_and_the_record_says_whom_it_shows(change: Change) -> None:
    """The attack: the totals before and after are all it takes for the vector of the one who came or went."""
    learner, alone = FORMS["afl"], 20 if change is Change.JOIN else 3
    before, batch = total_of(learner, sites(*OLD)), total_of(learner, sites(alone))
    with pytest.raises(ChangeRefusedError, match="sum of 1 sites' vectors alone, where 5 are needed"):
        changed(learner, before, batch, change)
    found = changed(learner, before, batch, change, reason="the site closed, by contract 7")
    assert (found.reason, found.revealed) == ("the site closed, by contract 7", (alone,))
    shown = abs(found.total.total - before.total)
    assert shown.tobytes() == abs(batch.total).tobytes()
    let = ReleasePolicy(allow=frozenset({Gate.COHORT_DIFFERENCE}))
    assert changed(learner, before, batch, change, policy=let).revealed == ()


def test_the_command_offers_every_change() -> None:
    offered = next(one.metavar for one in option_lines(ChangeOptions) if one.flag == "--how")
    assert offered.split("|") == list(Change)


def test_the_few_who_stay_are_shown_as_well() -> None:
    learner = FORMS["afl"]
    before, batch = total_of(learner, sites(*OLD)), total_of(learner, sites(*OLD[:9]))
    with pytest.raises(ChangeRefusedError, match="sum of 3 sites' vectors"):
        changed(learner, before, batch, Change.LEAVE)
    assert changed(learner, before, batch, Change.LEAVE, reason="merger").revealed == tuple(OLD[9:])


def test_the_few_who_stay_with_a_class_are_shown_as_well() -> None:
    """Each class of a QDA is a total of its own: one whose sites leave but for one is that one's statistics."""
    learner = QDA(**LINEAR | {"n_targets": 2}, columns=ColumnMap(exponents=(0,) * 6, intercept=0))
    clients = {party: site(party, 40, 2) for party in range(1, 13)}
    for party in range(7, 13):
        clients[party] = ClientRows(clients[party].features, np.zeros(40, dtype=np.int64))
    before, batch = (total_of(learner, {one: clients[one] for one in some}) for some in (range(1, 13), range(2, 7)))
    with pytest.raises(ChangeRefusedError, match=r"part 2 of 2 .* needs at least 5 clients and has 1"):
        changed(learner, before, batch, Change.LEAVE)
    wider = ReleasePolicy(rows_per_rank=1.5)
    assert changed(learner, before, batch, Change.LEAVE, policy=wider, reason="the trial ends").reason
    with pytest.raises(ChangeRefusedError, match="not to qda"):
        with_classes(learner, before, 3)


def test_what_does_not_belong_together_is_refused() -> None:
    learner = FORMS["afl"]
    before = total_of(learner, sites(*OLD))
    with pytest.raises(ChangeRefusedError, match="sites 3, 4 are in the total already"):
        changed(learner, before, total_of(learner, sites(3, 4, *NEW)), Change.JOIN)
    with pytest.raises(ChangeRefusedError, match="sites 20 are not in the total"):
        changed(learner, before, total_of(learner, sites(*OLD[:6], 20)), Change.LEAVE)
    other = replace(learner, n_targets=4)
    with pytest.raises(ChangeRefusedError, match="the batch has 50 numbers and the total 43"):
        changed(learner, before, total_of(other, sites(*NEW)), Change.JOIN)
    with pytest.raises(ChangeRefusedError, match="not of the sum that this afl asks for"):
        changed(other, before, total_of(learner, sites(*NEW)), Change.JOIN)
    more = total_of(learner, {party: site(party, n=40) for party in OLD[:6]})
    with pytest.raises((AnalyticError, InvalidVectorError)):  # fewer than no rows
        changed(learner, before, more, Change.REMOVE_ROWS)


@pytest.mark.parametrize(
    "learner",
    [
        DeepAFL(n_features=6, n_targets=3, feature_bound=4.0, max_rows=2000, n_layers=1, d_phi=8, d_f=8),
        SAFLe(n_features=6, n_classes=3, max_rows=2000, thresholds=QuantileThresholds(low=-4.0, high=4.0, n_bins=16)),
    ],
    ids=lambda learner: learner.name,
)
def test_learners_whose_later_sums_follow_from_the_first_start_again(learner: Any) -> None:
    first, batch = (
        run_federation(learner, sites(*parties), choose_modes(["plain"])[0]).totals[0] for parties in (OLD, NEW)
    )
    with pytest.raises(ChangeRefusedError, match="more than one sum"):
        changed(learner, first, batch, Change.JOIN)


def _fail(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))


def test_files_change_from_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Join, then verify; a small batch needs its reason; a run of several sums is none."""
    monkeypatch.chdir(tmp_path)
    learner = FORMS["afl"]
    before, batch, alone = (total_of(learner, sites(*parties)) for parties in (OLD, NEW, [20]))
    save_model("model.safetensors", learner, changed(learner, before, batch, Change.JOIN).model)
    for name, totals in {"totals": [before], "batch": [batch], "alone": [alone], "two": [before, batch]}.items():
        Path(f"{name}.safetensors").write_bytes(totals_to_bytes(totals))
    asked = ["change", "model.safetensors", "totals.safetensors"]
    assert main([*asked, "batch.safetensors"]) == 0
    assert "18 are in the total now" in capsys.readouterr().out
    assert main(["verify", "changed-model.safetensors", "changed-totals.safetensors"]) == 0
    assert read_totals(Path("changed-totals.safetensors"))[0].survivors == (*OLD, *NEW)
    new = {name: Path("changed-" + name) for name in ("model.safetensors", "totals.safetensors", "record.json")}
    for kept in new.values():
        before_it = {path: path.read_bytes() for path in new.values() if path.exists()}
        assert main([*asked, "alone.safetensors", "--reason", "contract 7"]) == 2
        assert "is there, of an earlier change, and is never replaced" in capsys.readouterr().err
        assert {path: path.read_bytes() for path in new.values() if path.exists()} == before_it
        kept.unlink()
    assert main([*asked, "alone.safetensors"]) == 2
    assert "wait for a larger batch" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        # A disk that is full once the record lies there: nothing is left, neither a claim nor half a change.
        fills = iter([0, errno.ENOSPC])
        patch.setattr("os.fsync", lambda file: _fail(next(fills)))
        assert main([*asked, "alone.safetensors", "--reason", "contract 7"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not [path for path in new.values() if path.exists()]
    assert main([*asked, "alone.safetensors", "--reason", "contract 7"]) == 0
    assert "show the sum of sites 20 alone, whose reason is: contract 7" in capsys.readouterr().out.replace("\n", " ")
    filed = json.loads(Path("changed-record.json").read_text())
    after = hashlib.sha256(Path("changed-totals.safetensors").read_bytes()).hexdigest()
    assert filed["totals_sha256"]["after"] == after
    assert (filed["batch"], filed["reason"], filed["revealed"]) == ([20], "contract 7", [20])
    assert filed["in_total"] == [*OLD, 20]
    for path in new.values():
        path.unlink()
    assert main([*asked, "two.safetensors"]) == 2
    assert "totals of 2 sums" in capsys.readouterr().err
    assert main([*asked, "none.safetensors"]) == 2
    assert "cannot read none.safetensors" in capsys.readouterr().err
    assert main([*asked, "batch.safetensors", "--new-model", "totals.safetensors"]) == 2


def test_a_changed_model_s_file_holds_its_total_only_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    learner = FORMS["fedhip"]
    before, batch = (total_of(learner, sites(*parties)) for parties in (OLD, NEW))
    joined = changed(learner, before, batch, Change.JOIN).model
    save_model("model.safetensors", learner, joined)
    for name, total in {"totals": before, "batch": batch}.items():
        Path(f"{name}.safetensors").write_bytes(totals_to_bytes([total]))
    asked = ["change", *(f"{name}.safetensors" for name in ("model", "totals", "batch"))]
    for place, more in (("bare", []), ("whole", ["--with-totals"])):
        words = [f"--{kind}={place}-{kind}" for kind in ("new-model", "new-totals", "record")]
        assert main([*asked, *words, *more]) == 0
    bare, whole = (load_model(f"{place}-new-model").model for place in ("bare", "whole"))
    assert bare.total is None
    assert whole.total.to_bytes() == joined.total.to_bytes()
    assert whole.weights.tobytes() == bare.weights.tobytes()


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
