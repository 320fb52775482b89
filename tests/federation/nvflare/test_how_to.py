"""docs/how-to/deploy-on-nvflare.md works to the letter; the commands that it names write what they say."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="the engine is the extra nvflare: pip install 'analytic-secagg[nvflare]'")

from child_processes import Processes, reserve_port, wait_until
from flare_deployment import BIN, ENVIRONMENT, ROOT

from federation.nvflare.__main__ import COMMANDS, main
from federation.nvflare.job import read_job

TEXT = (ROOT / "docs" / "how-to" / "deploy-on-nvflare.md").read_text(encoding="utf-8")


def test_every_command_exists() -> None:
    named = set(re.findall(r"python -m federation\.nvflare ([a-z-]+)", TEXT))
    assert {"trial", "job", "kit", "identity"} <= named <= {command.name for command in COMMANDS}


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


def test_a_trial_is_provisioned_and_its_kits_are_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial = tmp_path / "trial"
    assert main(["trial", str(trial), "--sites", "4"]) == 0
    provision = [BIN / "nvflare", "provision", "-p", "project.yml", "-w", "kits", "--force"]
    subprocess.run(provision, cwd=trial, capture_output=True, check=True, timeout=120)
    kits = trial / "kits" / "trial" / "prod_00"
    allowed, rights = {}, {}
    for name in ("localhost", "site-1"):
        assert main(["kit", str(kits / name)]) == 0
        resources = json.loads((kits / name / "local" / "resources.json").read_text())
        allowed[name] = resources["class_allow_list"]
        assert not resources["allow_log_streaming"]
        assert not [one["id"] for one in resources["components"] if "log" in one["id"]]
        lead = json.loads((kits / name / "local" / "authorization.json").read_text())["permissions"]["lead"]
        rights[name] = {right for right, whom in lead.items() if whom != "none"}
    assert allowed == {
        "localhost": ["federation.nvflare.controller.SumController"],
        "site-1": ["federation.nvflare.executor.SumExecutor"],
    }
    assert rights["site-1"] == {"submit_job", "view"}
    assert rights["localhost"] == {"submit_job", "view", "manage_job", "download_job", "operate"}
    capsys.readouterr()
    assert main(["kit", str(trial)]) == 2
    assert "start-up kit" in capsys.readouterr().err


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
