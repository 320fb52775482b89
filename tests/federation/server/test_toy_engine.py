"""An engine made here, of threads and queues, runs a whole deployment; nothing of Flower's takes part."""

from __future__ import annotations

import json
import queue
import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from federation.__main__ import main as verify
from federation.server.exchange import Lost
from federation.server.server_file import ServerFile
from federation.server.training import train
from federation.site.errors import REASONS, Refusal
from federation.site.messages import END, INVITE, STEP
from federation.site.reception import respond
from federation.site.site_file import SiteFile
from federation.site.state import SessionFolder
from federation.trial import Trial
from secagg.errors import TooFewSurvivorsError

SPEED = 20
"""Seconds of a run in one of the test's."""

Dies = Callable[[int, str, int], str]
"""(node, kind, how many of this kind came) -> ``before`` or ``after`` it did its work a node dies; empty: it lives."""


class ThreadEngine:
    """Each node is a thread with a queue, and knows nothing but the place of its site's file.

    A node that dies is started again at once, as by a service manager; its message is lost.
    """

    def __init__(self, files: Mapping[int, Path], dies: Dies = lambda node, kind, number: "") -> None:
        self._files, self._dies = files, dies
        self._letters: dict[int, queue.Queue[Any]] = {node: queue.Queue() for node in files}
        self._answers: dict[str, bytes | Lost] = {}
        self._came: dict[tuple[int, str], int] = {}
        self._n_sent = 0
        self.said: list[bytes | Refusal] = []

    @contextmanager
    def running(self) -> Iterator[ThreadEngine]:
        for node in self._files:
            self._start(node)
        try:
            yield self
        finally:
            for letters in self._letters.values():
                letters.put(None)

    def nodes(self) -> list[int]:
        return list(self._files)

    def send(self, kind: str, contents: Mapping[int, bytes], *, seconds: float, number: int) -> dict[str, int]:
        tickets = {f"{self._n_sent + place}": node for place, node in enumerate(contents)}
        self._n_sent += len(tickets)
        for ticket, node in tickets.items():
            self._letters[node].put((ticket, kind, contents[node]))
        return tickets

    def receive(self, ticket: str) -> bytes | Lost | None:
        return self._answers.pop(ticket, None)

    def _start(self, node: int) -> None:
        threading.Thread(target=self._live, args=(node,), daemon=True).start()

    def _live(self, node: int) -> None:
        while (letter := self._letters[node].get()) is not None:
            ticket, kind, content = letter
            self._came[node, kind] = self._came.get((node, kind), 0) + 1
            fate = self._dies(node, kind, self._came[node, kind])
            if fate != "before":
                said = respond(partial(SiteFile.read, self._files[node]), kind, partial(bytes, content))
            if fate:
                self._answers[ticket] = Lost("its process died", may_return=True)
                self._start(node)
                return
            self.said.append(said)
            self._answers[ticket] = Lost(REASONS[said]) if isinstance(said, Refusal) else said


def run(trial: Trial, dies: Dies = lambda node, kind, number: "", **settings: Any) -> tuple[Any, ThreadEngine]:
    app = tomllib.loads((trial.folder / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    files = {10 * party: trial.folder / f"site-{party}" / "site.toml" for party in trial.rows}
    server = ServerFile.read(trial.folder / "server" / "server.toml")
    with ThreadEngine(files, dies).running() as engine:
        model = train(
            app | {name.replace("_", "-"): value for name, value in settings.items()},
            server,
            engine,
            server.output / "toy",
            clock=lambda: SPEED * time.monotonic(),
            sleep=lambda seconds: time.sleep(seconds / SPEED),
        )
    return model, engine


def assert_exact(trial: Trial, survivors: list[int]) -> None:
    """The model that lies there has the bytes of the survivors' pooled rows, and no site keeps a secret."""
    output = trial.folder / "server" / "models" / "toy"
    saved = load_model(output / "model.safetensors")
    pooled = fit_pooled(saved.learner, ClientRows.pool([trial.rows[party] for party in survivors]))
    assert saved.learner.weights_bytes(saved.model) == saved.learner.weights_bytes(pooled)
    assert verify(["verify", str(output / "model.safetensors"), str(output / "totals.safetensors")]) == 0
    assert json.loads((output / "summary.json").read_text())["survivors"][-1] == survivors
    for path in trial.folder.glob("site-*/state"):
        folder = SessionFolder(path)
        with folder.locked():
            assert folder.held() == ()


@pytest.mark.parametrize("mode", ["masked", "committee", "bfv"])
def test_a_whole_deployment(trial: Trial, mode: str) -> None:
    run(trial, mode=mode)
    assert_exact(trial, [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("learner", "settings"),
    [
        ("deepafl", {"learner": "deepafl", "options": "n_layers=1 d_phi=8 d_f=8", "ridge": 0.01}),
        ("chosen-afl", {"ridge": "cv", "options": "folds=2 ridges=0.1,10 criterion=classes", "allow_low_rank": True}),
    ],
)
def test_several_sums_in_series(trial: Trial, learner: str, settings: dict[str, Any]) -> None:
    for path in trial.folder.glob("site-*/site.toml"):
        path.write_text(path.read_text().replace('["afl"]', f'["{learner}"]'))
    run(trial, **settings)
    assert_exact(trial, [1, 2, 3, 4, 5])


def test_a_site_s_own_file_decides(trial: Trial) -> None:
    path = trial.folder / "site-4" / "site.toml"
    path.write_text(re.sub("modes = .*", 'modes = ["committee"]', path.read_text()))
    _, engine = run(trial, mode="masked")
    assert [said for said in engine.said if isinstance(said, Refusal)] == [Refusal.DECLINED]
    assert_exact(trial, [1, 2, 3, 5])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("kind", "number"), [(INVITE, 1), (STEP, 1)])
def test_a_helper_that_is_killed_and_started_again_is_asked_again(
    trial: Trial, when: str, kind: str, number: int
) -> None:
    """It answers from what it stored; nobody can do without it."""
    run(trial, lambda node, came, n: when if (node, came, n) == (10, kind, number) else "", mode="committee")
    assert_exact(trial, [1, 2, 3, 4, 5])


def test_a_client_that_is_killed_is_a_dropout_and_forgets_at_the_end(trial: Trial) -> None:
    run(trial, lambda node, kind, number: "after" if (node, kind, number) == (30, STEP, 2) else "", mode="masked")
    assert_exact(trial, [1, 2, 4, 5])


def test_too_few_survivors_leave_no_model(trial: Trial) -> None:
    with pytest.raises(TooFewSurvivorsError):
        run(trial, lambda node, kind, number: "before" if node > 20 and kind != END else "", mode="masked")
    output = trial.folder / "server" / "models" / "toy"
    assert [path.name for path in output.iterdir()] == ["progress.jsonl"]
    assert json.loads(output.joinpath("progress.jsonl").read_text().splitlines()[-1])["event"] == "failed"
