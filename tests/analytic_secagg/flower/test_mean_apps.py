"""The two apps of docs/how-to/average-with-flower.md differ in three lines and train the same model."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install '.[flower]'")

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from loopback_deployment import Deployment
from support.page_diffs import applied

from analytic_secagg.flower.rehearsal import InProcessGrid
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "average-with-flower.md").read_text(encoding="utf-8")
N_NODES, LOST = 4, 3
ONLY, DIFF, IDENTITIES = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL) for kind in ("python", "diff", "diff"))


PLAIN = ONLY[0]
SECURE = applied(PLAIN, DIFF[0])
_SERVER_FILE = "from analytic_secagg.server.server_file import ServerFile\n"
SIGNED = _SERVER_FILE + re.sub(r"(strategy = Secure.*)\)\n", r"\1, server=ServerFile.of_host())\n", SECURE)


def test_the_apps_differ_in_three_lines() -> None:
    plain, secure = PLAIN.splitlines(), SECURE.splitlines()
    assert len([line for line in secure if line not in plain]) == 3
    assert len([line for line in plain if line not in secure]) == 2
    assert "server=ServerFile.of_host()" in IDENTITIES[1]


class Nodes(InProcessGrid):
    """The app's nodes as function calls; nothing of one stays between messages but its state."""

    def __init__(self, names: dict[str, Any], lost: int = 0) -> None:
        super().__init__({node: {} for node in range(1001, 1001 + N_NODES)})
        self.lost = lost
        self.app, self.states = names["client"], {node: RecordDict() for node in range(1001, 1001 + N_NODES)}

    def _deliver(self, message: Message) -> Message:
        node, arrived = message.metadata.dst_node_id, copy.copy(message)
        if node == self.lost:
            return Message(Error(code=ErrorCode.NODE_UNAVAILABLE), reply_to=message)
        arrived.content = copy.deepcopy(message.content)
        config: Any = {"partition-id": node - 1001, "num-partitions": N_NODES}
        reply: Message = self.app(arrived, Context(1, node, config, self.states[node], {}))
        return reply


def in_this_process(source: str, folder: Path, lost: int = 0) -> Any:
    names: dict[str, Any] = {"__name__": "digits"}
    exec(source, names)
    path = str(folder / "model.npy")
    names["server"](Nodes(names, lost), Context(1, 1, {}, RecordDict(), {"model": path}))
    return np.load(path)


def test_the_apps_train_the_same_model(tmp_path: Path) -> None:
    assert_alike(in_this_process(PLAIN, tmp_path), in_this_process(SECURE, tmp_path))


def assert_alike(plain: Any, secure: Any) -> None:
    """As far as the mean's printed bound of 4 bytes and float32 go; training changes weights by far more."""
    assert np.abs(plain).max() > 0.1
    assert np.abs(plain - secure).max() < 1e-5


SIMULATION = """
from flwr.simulation import run_simulation
sizes = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
run_simulation(server_app=server, client_app=client, num_supernodes=4, backend_config=sizes)
"""


@pytest.mark.slow  # starts Ray, which not every machine lets run; half a minute
def test_flowers_own_simulation_trains_the_same_model(tmp_path: Path) -> None:
    """Each message may reach another process, so a node's session lives in its state alone."""
    pytest.importorskip("ray", reason="needs the extra: pip install '.[dev]'")
    found = []
    for name, source in (("plain", PLAIN), ("secure", SECURE)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "digits.py").write_text(source + SIMULATION, encoding="utf-8")
        environment = os.environ | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, "digits.py"]
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=3000)
        assert done.returncode == 0, done.stderr
        found.append(np.load(folder / "model.npy"))
    assert_alike(*found)


APP = """\
[project]
name = "digits"
version = "1.0.0"
description = "digits"
license = "Apache-2.0"
dependencies = ["flwr>=1.41,<1.43"]
[tool.flwr.app]
publisher = "somebody"
[tool.flwr.app.components]
serverapp = "digits:server"
clientapp = "digits:client"
[tool.flwr.app.config]
model = "model.npy"
"""

HOLD = """\
    from pathlib import Path
    if context.node_config["partition-id"] == 3:
        Path("FOLDER/reached").touch()
        __import__("time").sleep(600)
"""
"""What keeps the last node in its training, until it is killed."""


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with contextlib.closing(Deployment(tmp_path / "trial", n_sites=N_NODES, n_helpers=2)) as running:
        yield running


@pytest.mark.slow  # two minutes of real processes
def test_superlink_and_supernodes_train_the_same_model(deployment: Deployment) -> None:
    """With the identities of their sites, and then while a node is killed in the middle of a round."""
    folder, models = deployment.folder, dict[str, Any]()
    for site in deployment.sites:  # one node is lost after a mean in which it was
        path = folder / site / "site.toml"
        path.write_text(path.read_text().replace("refused_tries", "min_change = 1\nrefused_tries"))
    deployment.start_superlink()
    deployment.register(deployment.sites)
    for place, site in enumerate(deployment.sites):
        own = f'site="{folder}/{site}/site.toml" partition-id={place} num-partitions={N_NODES}'
        deployment.start_supernode(site, config=own)
    deployment.wait_online(deployment.sites)
    for kind in ("plain", "signed", "lost"):
        app = folder / kind
        app.mkdir()
        source = PLAIN if kind == "plain" else SIGNED
        source = source.replace("num_rounds=3", "num_rounds=1")
        if kind == "lost":  # from another model, since sites answer once for each
            source, hold = source.replace("np.zeros(", "0.01 + np.zeros("), HOLD.replace("FOLDER", str(folder))
            without = source.replace(", server=ServerFile.of_host()", "")
            source = source.replace("    x, y = load", f"{hold}    x, y = load")
        (app / "digits.py").write_text(source, encoding="utf-8")
        (app / "pyproject.toml").write_text(APP, encoding="utf-8")
        run = deployment.submit(app=kind, model=str(folder / f"{kind}.npy"))
        if kind == "lost":
            deployment.wait((folder / "reached").exists, "the last node trains")
            deployment.processes.kill("site-4")
            deployment.unregister("site-4")
        try:
            assert deployment.wait_status(run) == "finished:completed"
        except AssertionError as error:
            error.add_note(f"{kind}: {deployment.flwr_text('log', run, 'trial', '--show').stdout}")
            raise
        models[kind] = np.load(folder / f"{kind}.npy")
    assert_alike(models["plain"], models["signed"])
    survivors = Site(SiteFile.read(folder / "site-1" / "site.toml")).means()
    keys = Roster.read(folder / "site-1" / "roster.toml").clients
    assert json.loads(survivors[-1])["clients"] == [keys[number].hex() for number in (1, 2, 3)]
    assert_alike(in_this_process(without, folder, lost=1000 + N_NODES), models["lost"])
    assert deployment.addresses_seen == {"127.0.0.1"}
