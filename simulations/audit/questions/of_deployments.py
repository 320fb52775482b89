"""Whole deployments: a server's run over sites with files and journals of their own, all of it in this process."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import FILE as MODELS
from analytic.model_files import model_from_bytes
from federation.audit_plan import AuditPlan, Hypothesis, signed_plan
from federation.datasets import Dataset
from federation.dossier import DossierError, Sources, problems
from federation.federation import Federation
from federation.server.exchange import Lost
from federation.server.run_settings import RunSettings, template_settings
from federation.server.server_file import ServerFile
from federation.server.training import train
from federation.site.errors import REASONS, Refusal
from federation.site.journal import Journal
from federation.site.key_files import read_secret
from federation.site.reception import respond
from federation.site.roster import Roster
from federation.site.site_file import SiteFile
from federation.site.state import FILE, SessionFolder
from federation.totals import FILE as TOTALS
from federation.totals import totals_from_bytes
from federation.trial import Trial
from secagg import IdentityKey, SumResult
from secagg.dp import Budget, Ledger
from simulations.audit.questions import Question
from simulations.audit.questions.of_sums import KEYS

SITES = (1, 2, 3, 4, 5)
TOLD = {
    "round opens": ("round", "expected"),
    "round closes": ("round", "arrived", "expected"),
    "sum": ("number", "survivors"),
    "node lost": ("node", "reason"),
    "refused": ("node", "reason"),
    "concern": ("gate",),
    "failure": ("certified",),
    "series ends": ("reason",),
    "evaluation": ("survivors", "accuracy"),
    "failed": ("kind",),
    "model": ("certified", "uncertified"),
    "different sums of masks": ("helpers",),
    "wrong share": ("owner", "holder"),
    "wrong seeds": ("client", "helper"),
}
"""What of each event of a run's log is the same in every run."""
SUMMARY = ("weights_sha256", "mode", "learner", "survivors", "certified", "privacy", "settings", "bill", "plan")
OF_SUMS = ("survivors", "segments", "concerns", "disputes", "complaints")

Between = Callable[[int, str, int, bytes], bytes | None]
"""(node, kind, how many of this kind it got, what it is told) -> what reaches it; None for nothing."""


@dataclass(slots=True)
class Nodes:
    """An engine whose nodes answer at once (``federation.server.exchange.Transport``)."""

    files: Mapping[int, Path]
    between: Between = lambda node, kind, number, content: content
    said: list[str] = field(default_factory=list)
    _came: dict[tuple[int, str], int] = field(default_factory=dict)
    _answers: dict[str, bytes | Lost] = field(default_factory=dict)
    _tickets: Iterator[int] = field(default_factory=itertools.count)

    def nodes(self) -> list[int]:
        """Return all of them."""
        return list(self.files)

    def send(self, kind: str, contents: Mapping[int, bytes], *, seconds: float, number: int) -> dict[str, int]:
        """Let each answer."""
        tickets = {}
        for node, content in sorted(contents.items()):
            ticket = str(next(self._tickets))
            tickets[ticket] = node
            self._came[node, kind] = self._came.get((node, kind), 0) + 1
            told = self.between(node, kind, self._came[node, kind], content)
            if told is None:
                self._answers[ticket] = Lost("gone")
                continue
            said = respond(partial(SiteFile.read, self.files[node]), kind, partial(bytes, told))
            self.said.append(f"{kind} {node} {said.name if isinstance(said, Refusal) else 'answered'}")
            self._answers[ticket] = Lost(REASONS[said]) if isinstance(said, Refusal) else said
        return tickets

    def receive(self, ticket: str) -> bytes | Lost | None:
        """Return what was answered."""
        return self._answers.pop(ticket, None)


def about_deployments() -> Iterator[Question]:
    """Return all of them."""
    deep = {"learner": "deepafl", "options": "n_layers=1 d_phi=4 d_f=4", "ridge": 1.0}
    alone: dict[str, dict[str, Any]] = {
        "masked": {},
        "masked, with receipts": {"receipts": "clients"},
        "plain": {"mode": "plain", "min-survivors": 3},
        "committee": {"mode": "committee", "min-survivors": 3},
        "committee, with receipts": {"mode": "committee", "min-survivors": 3, "receipts": "helpers"},
        "masked, several sums": deep,
        "masked, with noise": {"epsilon": 2.0, "noise-survivors": 3, "noise-colluders": 1},
    }
    for name, settings in alone.items():
        yield f"deployed, {name}", partial(_deployed, settings)
    for mode in ("masked", "committee"):
        own: dict[str, Any] = {"mode": mode} | ({"min-survivors": 3} if mode == "committee" else {})
        gone: dict[str, Between] = {
            "one is gone after its vector": lambda node, kind, number, content: (
                None if node == 5 and kind in ("step", "end") else content
            ),
            "three are gone": lambda node, kind, number, content: None if node > 2 else content,
        }
        if mode == "masked":
            gone["one gets what is cut"] = lambda node, kind, number, content: content[:-1] if node == 3 else content
        for name, between in gone.items():
            yield f"deployed, {mode}, {name}", partial(_deployed, own, between=between)
    yield "deployed, few rows of a committee", partial(_deployed, {"mode": "committee"}, n_rows=1, n_features=12)
    yield "deployed, few rows that are allowed", partial(_deployed, {"allow-low-rank": True}, n_rows=1, n_features=12)
    yield "deployed, the same rows again", partial(_deployed, {}, runs=2)
    yield "deployed, with one who gets totals", partial(_deployed, {"evaluate": True}, totals=(2,))
    yield "deployed, of another kind, with one who gets totals", partial(_deployed, {"learner": "fedhip"}, totals=(2,))
    yield "deployed, a dossier", _evidence
    yield "deployed, with clients who hold little", partial(_deployed, {}, max_client_rows=8)


def _deployed(
    settings: Mapping[str, Any],
    *,
    between: Between = lambda node, kind, number, content: content,
    runs: int = 1,
    **options: Any,
) -> object:
    """What the server and each site have of it afterwards."""
    with _deployment(settings, between=between, **options) as (config, server, nodes, trial):
        found = [_run(config, server, nodes, server.output / f"{number}", trial) for number in range(runs)]
        return found, nodes.said, [_left(trial.site(party)) for party in SITES]


@contextmanager
def _deployment(
    settings: Mapping[str, Any],
    *,
    between: Between = lambda node, kind, number, content: content,
    n_rows: int = 9,
    n_features: int = 2,
    **roster: Any,
) -> Iterator[tuple[dict[str, Any], ServerFile, Nodes, Trial]]:
    """A run's settings, the server, its nodes and all their files, while it stands."""
    rng = np.random.default_rng(5)
    data = Dataset(
        name="questions",
        x_train=np.round(rng.normal(size=(n_rows * len(SITES), n_features)), 2),
        y_train=np.arange(n_rows * len(SITES)) % 3,
        x_test=np.round(rng.normal(size=(15, n_features)), 2),
        y_test=np.arange(15) % 3,
    )
    fitted = {
        "n-features": n_features, "n-classes": 3, "feature-format": "Q3.7", "corruption": 0.0, "dropout": 0.4,
        "ridge": 1.0, "mode": "masked", "round-seconds": 1.0, "join-seconds": 1.0,
    }  # fmt: skip
    config = {**template_settings(), **fitted, **settings}
    learner = RunSettings.of(config).build_learner(len(SITES))
    with TemporaryDirectory() as name:
        demand = '[privacy]\nepsilon = 9.0\nrun_epsilon = 9.0\nledger = "ledger"\n' if config["epsilon"] else ""
        trial = Trial.create(Path(name) / "trial", data, n_sites=len(SITES), n_helpers=2, of_clients=demand)
        files = {10 * party: trial.site(party) / "site.toml" for party in SITES}
        for host in (*trial.folder.glob("site-*"), trial.folder / "server"):
            path = host / "roster.toml"
            path.write_text(Roster.read(path).model_copy(update=roster).to_toml())
        for path in files.values():
            text = path.read_text().replace("modes = [", 'modes = ["plain", ')
            path.write_text(text.replace('["afl"]', json.dumps([learner.name, "evaluation-of-classes"])))
            budget = SiteFile.read(path).budget
            if budget is not None:
                Ledger.create(path.with_name("ledger"), budget)
        nodes = Nodes(files, lambda node, *told: between(node // 10, *told))
        yield config, ServerFile.read(trial.folder / "server" / "server.toml"), nodes, trial


def _run(config: Mapping[str, Any], server: ServerFile, nodes: Nodes, folder: Path, trial: Trial) -> object:
    clock = itertools.count(0.0, 0.01)
    try:
        train(config, server, nodes, folder, clock=lambda: next(clock), sleep=lambda seconds: None)
    except Exception as error:  # by its name
        failure = type(error).__name__
    else:
        failure = ""
    events = [json.loads(line) for line in (folder / "progress.jsonl").read_text().splitlines()]
    told = [
        [event["event"], *(event[part] for part in TOLD[event["event"]])] for event in events if event["event"] in TOLD
    ]
    if failure or not (folder / "summary.json").exists():
        return failure, told, sorted(path.name for path in folder.iterdir())
    said = json.loads((folder / "summary.json").read_text())
    saved = model_from_bytes((folder / "model.safetensors").read_bytes())
    rows = [trial.rows[party] for party in said["survivors"][-1]]
    pooled = saved.learner.weights_bytes(fit_pooled(saved.learner, ClientRows.pool(rows))) if said["certified"] else b""
    totals = totals_from_bytes((folder / "totals.safetensors").read_bytes())
    parts = SUMMARY if said["certified"] else SUMMARY[1:]  # what is solved under noise has this run's bits
    return (
        told,
        pooled == saved.learner.weights_bytes(saved.model),
        sorted(path.name for path in folder.iterdir()),
        [str(said[part]) for part in parts],
        [[str(one[part]) for part in OF_SUMS] for one in said["sums"]],
        said["certified"] and [one["context"] for one in said["sums"]],
        list(_off(saved.learner, totals, rows)),
    )


def _off(learner: Any, totals: Sequence[SumResult], rows: Sequence[ClientRows]) -> Iterator[bool]:
    """Whether each total is another one than the rows have."""
    federation: Federation[Any] = Federation(learner, release=None)
    for total in totals:
        step = federation.next_sum
        assert step is not None
        yield bool((np.sum([step.vector(own) for own in rows], axis=0) != total.total).any())
        federation.take(total)


def _left(site: Path) -> object:
    """What a site has afterwards: results by what they hold, totals that it is in, sessions, what it paid."""
    file = SiteFile.read(site / "site.toml")
    folder = SessionFolder(site / "state")
    with folder.locked():
        held, count = len(folder.held()), Journal(folder, policy=file.policy).count()
    kept = [_kept(path) for path in (site / "results").glob("*")]
    ledger = site / "ledger"
    return held, count, sorted(kept, key=str), len(Ledger.open(ledger).releases) if ledger.exists() else 0


def _kept(path: Path) -> list[object]:
    """What a result is: of a model or totals the arrays that are in it."""
    kind = path.name.partition("-")[0]
    if path.suffix != ".safetensors":
        return [path.suffix]
    arrays, _ = (TOTALS if kind == "totals" else MODELS).from_bytes(path.read_bytes(), "it")
    return [kind, *sorted(arrays)]


def _evidence() -> object:
    """What a dossier of a run with a plan, receipts, a ledger and a report names, whatever of it is another."""
    claimed = Hypothesis(attack="lone_rows", mode="masked", expected="hidden")
    plan = AuditPlan(alpha=0.01, hypotheses=(claimed,))
    cell = {
        "attack": "lone_rows", "mode": "masked", "verdict": "no evidence of leakage at this power",
        "expectation": "hidden", "score": {"rate": 0.1, "auc": None, "p_value": 0.5},
    }  # fmt: skip
    report = {"date": "2025-01-01", "settings": {"alpha": 0.01}, "cells": [cell], "noise": []}
    budget = Budget(epsilon=2.0, delta=1e-5, unit="record", adjacency="add-remove", population="questions")
    early, late = datetime(2025, 1, 2, tzinfo=UTC), datetime(2099, 1, 2, tzinfo=UTC)
    with _deployment({"receipts": "clients"}) as (config, plain_server, nodes, trial):
        folder, own = trial.folder / "evidence", plain_server.identity
        folder.mkdir()
        server = plain_server.model_copy(update={"plan": folder / "plan.json"})
        (folder / "plan.json").write_text(signed_plan(plan, own, early))
        (folder / "audit.json").write_text(json.dumps(report))
        (folder / "other.json").write_text(json.dumps({**report, "cells": [{**cell, "verdict": "leaks"}]}))
        (folder / "cut.json").write_text(json.dumps({**report, "cells": [{**cell, "score": 1}]}))
        Ledger.create(folder / "ledger", budget)
        (folder / "torn").write_bytes((folder / "ledger").read_bytes().replace(b"2.0", b"3.0"))
        (folder / "nothing").mkdir()
        for name, used in (("bound", server), ("free", plain_server)):
            clock = itertools.count(0.0, 0.01)
            train(config, used, nodes, folder / name, clock=partial(next, clock), sleep=lambda seconds: None)
            for path in nodes.files.values():  # the rows are public, and other ones each time
                (path.parent / "state" / FILE).unlink()
        for name, signer, when in (
            ("stranger", KEYS[1], early),
            ("client", _identity(trial, 1), early),
            ("late", own, late),
        ):
            (folder / f"{name}.json").write_text(signed_plan(plan, signer, when))
        good = Sources(
            runs=[folder / "bound"],
            roster=trial.folder / "server" / "roster.toml",
            sites=[trial.site(1) / "site.toml"],
            receipts=sorted((trial.site(1) / "results").glob("*.receipt")),
            ledgers=[folder / "ledger"],
            plan=folder / "plan.json",
            audit=folder / "audit.json",
            now=datetime(2100, 1, 2, tzinfo=UTC),
        )
        (folder / "roster.toml").write_text(
            Roster.read(good.roster).model_copy(update={"max_client_rows": 9}).to_toml()
        )
        others: dict[str, dict[str, Any]] = {
            "": {},
            "a run that was bound to no plan": {"runs": [folder / "free"]},
            "two runs": {"runs": [folder / "bound", folder / "free"]},
            "another report": {"audit": folder / "other.json"},
            "a report without scores": {"audit": folder / "cut.json"},
            "no report": {"audit": None},
            "a folder that is no run": {"runs": [folder / "nothing"]},
            "a ledger that was changed": {"ledgers": [folder / "torn"]},
            "no plan": {"plan": None},
            "a stranger's plan": {"plan": folder / "stranger.json"},
            "a client's plan": {"plan": folder / "client.json"},
            "a late plan": {"plan": folder / "late.json"},
            "a late plan of a free run": {"plan": folder / "late.json", "runs": [folder / "free"]},
            "another roster": {"roster": folder / "roster.toml"},
            "no totals": {"with_totals": False},
            "the same policy twice": {"sites": [trial.site(1) / "site.toml"] * 2},
        }
        found: dict[str, object] = {}
        for number, (name, other) in enumerate(others.items()):
            found[name] = _named(replace(good, **other), folder / str(number), own)
        for path in sorted((folder / "0").rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
                found[_plain(str(path.relative_to(folder / "0")))] = sorted(
                    {_plain(file) for file, _ in problems(folder / "0", own.public)}
                )
                path.write_bytes(content)
        return found


def _named(sources: Sources, place: Path, identity: IdentityKey) -> object:
    """The files of a dossier, its decision, and what does not hold; or that there is none."""
    try:
        files = sources.write(place, identity)
    except DossierError as error:
        return type(error).__name__
    decision = place / "audit" / "decision.json"
    said = json.loads(decision.read_text()) if decision.exists() else {}
    wrong = sorted({_plain(file) for file, _ in problems(place, identity.public)})
    return sorted(map(_plain, files)), said.get("decision"), said.get("before"), wrong


def _plain(name: str) -> str:
    """A name without what differs from run to run."""
    return re.sub(r"[0-9a-f]{16}", "", name)


def _identity(trial: Trial, party: int) -> IdentityKey:
    return IdentityKey(read_secret(trial.site(party) / "identity.key"))
