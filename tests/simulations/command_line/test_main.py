"""The command line, as a newcomer meets it: results, exit codes, and one clear message for every mistake."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from support.extras import needs

from analytic_secagg.modes import Mode, choose_modes
from simulations.__main__ import main
from simulations.compare.comparison import Comparison


def comparing(*arguments: str) -> list[str]:
    """The command with few clients, so that it is quick."""
    return ["compare", *(() if "--clients" in arguments else ("--clients", "4")), *arguments]


def test_the_default_compares_every_installed_mode(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare"]) == 0
    output = capsys.readouterr()
    assert all(re.fullmatch(r"after \d+ s: run \d+ of \d+, afl .*", line) for line in output.err.splitlines())
    assert output.out.startswith("afl on digits: 1438 training and 359 test rows")
    installed = choose_modes(None)
    for mode in installed:
        assert f"\n{mode.name} " in output.out
    assert f"all {len(installed)} runs equal the pooled model" in output.out


def test_modes_that_are_not_installed_are_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Mode, "installed", property(lambda mode: mode.requires is None))
    line = "not installed, so not compared: ckks, bfv, masked+ckks, masked+bfv; pip install '.[he]' brings them\n"
    assert main(comparing("--modes", "all")) == 0
    assert line in capsys.readouterr().err
    assert main(comparing("--modes", "plain")) == 0
    assert line not in capsys.readouterr().err


def test_a_frontier_has_every_size_and_what_nothing_beats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each point is judged anew here, from the runs of the report alone."""
    monkeypatch.setattr("simulations.compare.execute.opinions", lambda releases, delta: {})  # which load for seconds
    arguments = (
        "--learner afl,random --sweep random.d_phi=8,96 --baselines fedavg --sweep rounds=1,3 --partition iid "
        "--modes plain,masked --epsilon 8 --seeds 1"
    )
    places = ["--json", str(tmp_path / "out.json"), "--frontier", str(tmp_path / "front.svg")]
    assert main(comparing(*arguments.split(), *places)) == 0
    document = json.loads((tmp_path / "out.json").read_text())
    points = [run for run in document["runs"] if run["unbeaten"] is not None]
    sizes = ["afl", "random d_phi=8", "random d_phi=96"]
    assert [(one["label"], one["mode"]) for one in points if one["target_epsilon"] is None] == [
        *itertools.product(sizes, ("plain", "masked")),
        ("fedavg rounds=1", "baseline"),
        ("fedavg rounds=3", "baseline"),
    ]
    assert {one["learner"] for one in points if one["target_epsilon"] == 8.0} == {"afl", "random"}
    assert {run["trust"] for run in document["runs"] if run["unbeaten"] is None} == {"non-private", "central", "local"}
    assert points[2]["options"] == {"d_phi": 8}
    for cost, field in (("bytes", "bytes_up_per_client"), ("messages", "messages_per_client")):
        for one in points:
            rivals = [
                other
                for other in points
                if other["target_epsilon"] == one["target_epsilon"]
                and {one["mode"], other["mode"]} != {"plain", "masked"}
            ]
            better = [
                other
                for other in rivals
                if other["test_accuracy"] >= one["test_accuracy"] and other[field] <= one[field]
            ]
            beaten = any(
                (other["test_accuracy"], other[field]) != (one["test_accuracy"], one[field]) for other in better
            )
            assert (cost in one["unbeaten"]) is not beaten, one
    assert len({cost for one in points for cost in one["unbeaten"]}) == 3
    (described,) = re.findall(r'aria-label="([^"]+)"', (tmp_path / "front.svg").read_text())
    assert all(f"{one['label']} " in described for one in points)
    assert "afl, epsilon 8 " in described


def test_one_command_shows_baselines_and_explanations(capsys: pytest.CaptureFixture[str]) -> None:
    needs("tenseal")
    arguments = ("--modes", "committee,bfv", "--baselines", "fedavg", "--option", "rounds=1", "--explain", "--verbose")
    assert main(comparing(*arguments)) == 0
    text = capsys.readouterr().out
    assert re.search(r"^baseline +fedavg +4 dirichlet:0.1", text, flags=re.MULTILINE)
    assert "committee: vector messages 1, messages 1" in text
    assert "afl, bfv, 4 clients, largest sum:" in text
    assert "128-bit security" in text


def test_one_command_leaves_table_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 80).astype(np.uint8)
    features = (rng.normal(size=(80, 6)) + 3 * np.eye(6)[labels]).astype(np.float16)
    np.savez(
        tmp_path / "made.npz", x_train=features[:60], y_train=labels[:60], x_test=features[60:], y_test=labels[60:]
    )
    code = main(
        [
            "compare", "--data", str(tmp_path / "made.npz"), "--clients", "5,9", "--partition", "iid",
            "--partition", "dirichlet:0.05", "--partition", "shards:2", "--dropout", "0.2", "--ri", "10", "--ridge",
            "0.5", "--format", "Q4.8", "--seed", "7", "--modes", "masked,plain", "--json", str(tmp_path / "out.json"),
            "--html", str(tmp_path / "out.html"),
        ]
    )  # fmt: skip
    assert code == 0
    document = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(document, Comparison.schema_of_report())
    asked = [[run[key] for key in ("format", "ridge", "ri_gamma", "dropout", "seed")] for run in document["runs"]]
    assert asked == [["Q4.8", 0.5, 10.0, 0.2, 7]] * 12
    assert document["format_chosen_from_rows"] is False
    assert document["dataset"]["name"] == "made"
    assert str(tmp_path) not in json.dumps(document)
    cases = {(run["clients"], run["partition"]) for run in document["runs"]}
    assert cases == {(n, way) for n in (5, 9) for way in ("iid", "dirichlet:0.05", "shards:2")}
    for case in cases:
        runs = [run for run in document["runs"] if (run["clients"], run["partition"]) == case]
        assert [run["mode"] for run in runs] == ["masked", "plain"]
        assert len({run["weights_sha256"] for run in runs}) == 1
    assert document["all_bitwise_equal_to_pooled"] is True
    assert (tmp_path / "out.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(os.listdir(tmp_path)) == ["made.npz", "out.html", "out.json"]
    assert "made: 60 training and 20 test rows" in capsys.readouterr().out


def test_a_difference_from_pooled_ends_with_code_1_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], off_by_one: str
) -> None:
    assert main(comparing("--modes", f"plain,{off_by_one}", "--json", str(tmp_path / "out.json"))) == 1
    output = capsys.readouterr()
    assert output.err.startswith("error: NOT EQUAL: 1 of 2 runs differ from the pooled model of their survivors")
    assert "off-by-one with 4 clients, dirichlet:0.1" in output.err
    assert "NOT EQUAL" in output.out
    document = json.loads((tmp_path / "out.json").read_text())
    assert document["all_bitwise_equal_to_pooled"] is False
    assert [run["bitwise_equal_to_pooled"] for run in document["runs"]] == [True, False]


def test_the_module_runs_and_its_bar_goes_to_a_terminal_only(tmp_path: Path) -> None:
    """One real process: standard error is a terminal and shows the bar, standard output is a pipe and stays clean."""
    shown = ("--modes", "plain,masked", "--clients", "30", "--html", "out.html")
    terminal, child = pty.openpty()
    process = subprocess.Popen(  # our own command
        [sys.executable, "-W", "error", "-m", "simulations", *comparing(*shown)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=child,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(child)
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side has closed
            break
        if not piece:
            break
        seen += piece
    os.close(terminal)
    output, _ = process.communicate()
    assert process.returncode == 0
    assert b"afl masked, 30 clients, dirichlet:0.1" in seen
    assert b"Traceback" not in seen
    assert b"\x1b" not in output
    assert b"all 2 runs equal the pooled model" in output
    assert os.listdir(tmp_path) == ["out.html"]


@pytest.mark.parametrize(
    "line",
    [
        "compare --clients 4 --modes plain",
        "audit --clients 4 --modes plain --attacks label_histogram --cohorts 2 --epsilon none --trials 1",
    ],
    ids=lambda line: line.split()[0],
)
def test_nobody_reading_the_output_is_no_error(line: str, tmp_path: Path) -> None:
    """The reading end is closed before the command has anything to say. A slow machine is told of its progress."""
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run(
        [sys.executable, "-m", "simulations", *line.split(), "--json", "out.json"],
        cwd=tmp_path,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    said = [line for line in process.stderr.splitlines() if not line.startswith(b"audit, after ")]  # on a slow machine
    assert (process.returncode, said) == (141, [])
    assert os.listdir(tmp_path) == ["out.json"]
