"""NVFlare's FedAvg over a secure mean: jobs that differ in four lines, and a simulation with the weighted mean."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey, ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.signal import Signal
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.fedavg import FedAvg
from support.page_diffs import applied
from support.rehearsed import site

from analytic_secagg.errors import UsageError
from analytic_secagg.nvflare.mean import TASK, SecureFedAvg, SecureMeanExecutor, SecureMeanFilter
from analytic_secagg.server.server_file import SERVER_VARIABLE
from analytic_secagg.site.errors import UnreachableError
from analytic_secagg.site.site_file import SITES_VARIABLE
from analytic_secagg.trial import Trial
from secagg import SecureSumError

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "average-with-nvflare.md").read_text(encoding="utf-8")
TRAIN, PLAIN = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
(DIFF,) = re.findall(r"```diff\n(.*?)```", PAGE, re.DOTALL)
(CARRIED,) = re.findall(r"`(.*carry_scales.*)` in all three terms", PAGE)
TERMS: dict[str, Any] = {"max_weight": 100, "metrics": ["loss"]}


def test_the_jobs_differ_in_four_lines() -> None:
    assert len([line for line in applied(PLAIN, DIFF).splitlines() if line not in PLAIN.splitlines()]) == 4


@pytest.mark.slow  # a simulation of five processes
@pytest.mark.parametrize(
    ("terms", "largest_error", "widths"), [("", 1e-5, [4]), (f"{CARRIED}, ", 4 * 2.0 ** (4 - 14), [4, 3])]
)
def test_the_job_leaves_the_weighted_mean(tmp_path: Path, terms: str, largest_error: float, widths: list[int]) -> None:
    """Two rounds over four clients, who add 1 to 4 with weights of 10 to 40: each round adds 3.

    Of carried scales: a clip of 16, and for the 2^23 of three bytes four clients of a weight of 100, so 14 bits each.
    """
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    own = '"max_weight": 100, '
    assert DIFF.count(own) == 3
    (tmp_path / "job.py").write_text(applied(PLAIN, DIFF.replace(own, own + terms)), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "job.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("simulation/server/simulate_job/models/server.npy")
    assert np.abs(np.load(path) - [[7.0, 8.0, 9.0]]).max() < largest_error
    found = re.findall("3 numbers in ([234]) bytes each", done.stdout + done.stderr)
    assert list(dict.fromkeys(map(int, found))) == widths
    assert (done.stdout + done.stderr).count("secure mean: 4 clients, weight 100") == 2


def test_what_needs_single_models_is_refused() -> None:
    for options in ({"aggregation_weights": {"site-1": 2.0}}, {"exclude_vars": "bias"}):
        with pytest.raises(UsageError, match="a secure mean has no single models"):
            SecureFedAvg(terms=TERMS, **options)


def test_a_training_that_no_mean_asked_for_leaves_no_model() -> None:
    """Such as a server with plain FedAvg: the filter sends nothing of the result."""
    trained = DXO(DataKind.WEIGHTS, data={"w": np.arange(4.0)}, meta={"loss": 0.25}).to_shareable()
    trained.set_header("current_round", 3)
    left = SecureMeanFilter(terms=TERMS).process(trained, FLContext())
    assert from_shareable(left).data == {}
    assert "loss" not in repr(left)
    assert "w'" not in repr(left)


class InThisProcess(SecureFedAvg):  # type: ignore[misc]
    """A server whose tasks are function calls at its clients, each with a context of its own."""

    def __init__(self, names: list[str], **options: Any) -> None:
        super().__init__(num_clients=len(names), **options)
        self.clients = {name: FLContext() for name in names}
        for name, context in self.clients.items():
            context.set_prop(ReservedKey.IDENTITY_NAME, name)
        self.fl_ctx, self.abort_signal, self.engine, self._received_count = FLContext(), Signal(), self, 0

    def get_clients(self) -> list[Client]:
        return [Client(name, name) for name in self.clients]

    def send(self, task: Task, fl_ctx: FLContext, targets: list[str]) -> None:
        (name,) = targets
        done = ClientTask(Client(name, name), task)
        executor = SecureMeanExecutor(terms=self.terms)
        done.result = executor.execute(task.name, task.data, self.clients[name], self.abort_signal)
        task.result_received_cb(done, fl_ctx)
        task.task_done_cb(task, fl_ctx)

    def train(self, model: FLModel) -> Any:
        """One round in which client k adds k, with a weight of 10 k."""
        self.send_model(data=model, targets=list(self.clients))
        sent = DXO(DataKind.WEIGHTS, data=dict(model.params), meta={TASK: model.meta[TASK]}).to_shareable()
        for k, (name, context) in enumerate(self.clients.items(), 1):
            context.set_prop(FLContextKey.TASK_NAME, "train")
            context.set_prop(FLContextKey.TASK_DATA, sent)
            SecureMeanExecutor(terms=self.terms).handle_event(EventType.BEFORE_TASK_EXECUTION, context)
            meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: 10 * k, MetaKey.INITIAL_METRICS: {"loss": 1.0}}
            trained = DXO(DataKind.WEIGHTS, data={"w": model.params["w"] + k}, meta=meta).to_shareable()
            left = from_shareable(SecureMeanFilter(terms=self.terms).process(trained, context))
            self._aggregate_one_result(FLModel(params=left.data, meta={"client_name": name}))
        return self._get_aggregated_result().params["w"]


def test_scales_are_carried_from_round_to_round(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next clip holds what one client alone could have put into the mean; a server that may lie names none."""
    monkeypatch.setattr(FedAvg, "send_model", lambda self, **options: None)
    terms, names = {**TERMS, **json.loads(f"{{{CARRIED.replace('True', 'true')}}}")}, [f"site-{p}" for p in trial.rows]
    server, model, true, specs = InThisProcess(names, terms=terms), np.zeros(3), 55 / 15, list[Any]()
    for _ in range(3):
        after = server.train(FLModel(params={"w": model}))
        specs.append(server._mean.spec)
        assert np.abs(after - model - true).max() <= specs[-1].error_bound(150)["w"]
        model = after
    assert [spec.entry_bytes for spec in specs] == [4, 3, 3]
    assert all(5 * true <= 2.0 ** spec.exponents[0] < 2 * 5 * true for spec in specs[1:])
    monkeypatch.setenv(SITES_VARIABLE, str(trial.folder))
    monkeypatch.setenv(SERVER_VARIABLE, str(trial.folder / "server" / "server.toml"))
    with pytest.raises(UsageError, match="need a semi-honest one"):
        InThisProcess(names, terms=terms, identities=True).train(FLModel(params={"w": model}))


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_sites_sign_where_their_hosts_name_their_files(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Without the server's key, and for the same model again, they take no part."""
    monkeypatch.setattr(FedAvg, "send_model", lambda self, **options: None)
    monkeypatch.setenv(SITES_VARIABLE, str(trial.folder))
    monkeypatch.setenv(SERVER_VARIABLE, str(trial.folder / "server" / "server.toml"))
    terms, names = {**TERMS, "mode": mode}, [f"site-{party}" for party in trial.rows]
    server = InThisProcess(names, terms=terms, identities=True)
    found = server.train(FLModel(params={"w": np.zeros(3)}))
    assert np.abs(found - sum(10 * k * k for k in range(1, 6)) / 150).max() <= server._mean.spec.error_bound(150)["w"]
    assert site(trial, 2).means()
    for options, begin in (({"identities": True}, 0.0), ({"identities": False}, 1.0)):
        with pytest.raises((SecureSumError, UnreachableError)):
            InThisProcess(names, terms=terms, **options).train(FLModel(params={"w": np.full(3, begin)}))
