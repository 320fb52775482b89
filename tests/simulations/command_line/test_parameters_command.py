"""The table of parameters is what the command prints, of the sum that a learner asks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from analytic.afl import AFL
from analytic.row_format import RowFormat
from secagg import Assumptions, Layout
from simulations.__main__ import main
from simulations.command_line.parameters_command import layout_of_statistics, planned_sum

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "parameters.md"


@pytest.mark.parametrize("arguments", [[], ["--helpers", "3,4,5,6,7"]])
def test_the_documented_table_is_what_the_command_prints(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parameters", *arguments]) == 0
    assert capsys.readouterr().out in PAGE.read_text(encoding="utf-8")


def test_other_sizes_and_threat_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parameters", "--clients", "50", "--corruption", "0", "--dropout", "0.4", "--features", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["50", "50"]


@pytest.mark.parametrize("n_clients", [10, 10_000])
def test_it_is_what_afl_sums(n_clients: int) -> None:
    learner = AFL(n_features=512, n_targets=10, feature_format=RowFormat.parse("UQ5.11"), max_rows=1000 * n_clients)
    assert layout_of_statistics(n_clients) == Layout.of(learner.spec.segments)


@pytest.mark.parametrize("malicious", [False, True])
def test_a_planned_sum_is_of_this_layout(malicious: bool) -> None:
    """The table of parameters and the benchmark's bytes show it."""
    planned = planned_sum(100, Assumptions(malicious_server=malicious))
    assert planned.layout == layout_of_statistics(100)
    assert len(planned.identities) == (100 if malicious else 0)


def test_a_committee_bears_what_is_derived(capsys: pytest.CaptureFixture[str]) -> None:
    """The largest d with m >= max(f + 2 d + 1, 2 f + d + 1); none where there is none."""
    assert main(["parameters", "--helpers", "2,3,4,5,6,7,8,9", "--features", "4"]) == 0
    rows = [[int(cell) for cell in line.split("|")[1:4]] for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == sum(range(1, 9))
    for m, f, away in rows:
        assert away == max((d for d in range(m) if m >= max(f + 2 * d + 1, 2 * f + d + 1)), default=0), (m, f)


def test_corrupt_helpers_need_a_committee(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--corrupt", "1"], ["--helpers", "4", "--corrupt", "4"], ["--helpers", "20", "--corrupt", "10"]):
        assert main(["parameters", *wrong]) == 2
        assert "helper" in capsys.readouterr().err
