"""docs/how-to/deploy-on-nvflare.md works to the letter; the commands that it names write what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from child_processes import Processes, reserve_port, wait_until
from flare_deployment import ENVIRONMENT, ROOT
from support.commands import nvflare as main

from analytic_secagg.nvflare.commands import COMMANDS
from analytic_secagg.nvflare.job import read_job

TEXT = (ROOT / "docs" / "how-to" / "deploy-on-nvflare.md").read_text(encoding="utf-8")


def test_every_command_exists() -> None:
    named = set(re.findall(r"(?:python -m analytic_secagg\.nvflare|analytic-secagg nvflare) ([a-z-]+)", TEXT))
    assert {"trial", "job", "kit"} <= named <= {command.name for command in COMMANDS}


@pytest.mark.slow  # half a minute of real processes each
@pytest.mark.parametrize("block", ["simulation", "trial"])
def test_it_works_to_the_letter(block: str, tmp_path: Path) -> None:
    (script,) = re.findall(rf"^```bash {block}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    processes = Processes(tmp_path, ENVIRONMENT)
    try:
        processes.start("reader", ["bash", "-e", "-c", script.replace("8002", str(reserve_port()))])
        wait_until(lambda: processes.exit_code("reader") is not None, "its end")
        assert processes.exit_code("reader") == 0, processes.log("reader")
    finally:
        processes.close()
    (summary,) = tmp_path.glob("trial/server/models/run-*/summary.json")
    assert json.loads(summary.read_text())["survivors"] == [[1, 2, 3, 4]]


def test_a_job_begins_with_another_s_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["job", str(first), "n-features=3"]) == 0
    assert main(["job", str(second), 'mode="committee"', "--like", str(first)]) == 0
    assert read_job(second) == read_job(first) | {"mode": "committee"}
    capsys.readouterr()
    for words, said in [
        ([str(tmp_path / "third"), "--like", str(tmp_path)], "must be of a job that the command job"),
        ([str(tmp_path / "third"), 'mode="none"'], "mode must be one of"),
        ([str(second)], "exists already"),
    ]:
        assert main(["job", *words]) == 2
        assert said in capsys.readouterr().err
