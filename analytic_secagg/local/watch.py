"""The demonstration's actions and state: a run, a killed site, a malicious helper, the same rows again, in plain words.

Whoever watches sees the files of all parties, which in a deployment nobody does.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.local.deployment import SERVER, LocalDeployment
from analytic_secagg.local.server import GONE
from analytic_secagg.modes import MODES
from analytic_secagg.receipts import problems, told_by
from analytic_secagg.release import QUESTIONS, Gate
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.results import NAME_DIGITS
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.totals import read_totals
from analytic_secagg.trial import deal, fitted_settings
from secagg import PartyId, Receipt

N_BATCHES = 5
"""Number of batches of rows for a site, each of which is in no total at first."""

MOST_RESTARTS = 5
"""How often the server is started again in one run."""

BUDGET_IN_RUNS = 1.6
"""A site's budget beside what one run costs. It pays two, which together cost less than twice one, and not three."""

RECEIPTS = {"masked": "clients", "committee": "helpers"}
"""Parties that countersign a total, by mode."""

STEPS = {
    "ANNOUNCEMENT": "Helpers announce the keys that sites will seal their secrets to",
    "INVITATION": "Sites check the proposal against their own rules, and answer",
    "SEED_DELIVERY": "Helpers open their boxes: the seeds of the masks",
    "SURVIVOR_SET": "Helpers sign which sites are in the total",
    "SET_CERTIFICATE": "Helpers verify that the others signed the same, and commit to the sum of the masks",
    "MASK_REQUEST": "Helpers send the sum of the masks, and the server subtracts it",
    "ROSTER": "Sites receive each other's keys, and send each other sealed shares of their secrets",
    "SHARE_DELIVERY": "Sites send their masked numbers",
    "UNMASK_REQUEST": "Sites sign which sites are in the total",
    "SURVIVOR_PROOF": "Sites verify that the others signed the same, and send the shares that remove the masks",
    "COUNTERSIGN_REQUEST": "The total is countersigned, so that the server cannot show anybody another one",
    "RECEIPT": "Sites receive a receipt of the total",
    "END": "All parties erase this run's secrets; sites keep the model if there is one",
}
"""Description of an exchange, by its name in the log."""

_SAID = {"COMMITTEE_INPUT": "its masked numbers", "MASKED_INPUT": "its masked numbers", "PRESENCE": "that it is here"}

_REFUSAL = re.compile("(?:no answer given: [A-Za-z]+|takes no part): (?!this site has no part in this sum: none)(.*)")


class Demonstration:
    """One deployment and what becomes of it.

    Args:
        deployment: its processes.
        dataset: whose rows the sites have, a part at a time.
        epsilon: what one run costs each site's rows; 0 for exact totals.
    """

    def __init__(self, deployment: LocalDeployment, dataset: Dataset, *, epsilon: float = 0.0) -> None:
        self._deployment, self._dataset, self._epsilon = deployment, dataset, epsilon
        self._parties = tuple(deployment.trial.rows)
        self._settings = {
            name.replace("-", "_"): value for name, value in fitted_settings(dataset, len(self._parties)).items()
        } | {"epsilon": epsilon}
        self._parts = deal(dataset.training, N_BATCHES * len(self._parties))
        self._lock = threading.RLock()
        self._number, self._batch, self._mode = 0, -1, ""
        self._is_running, self._failure, self._findings = False, "", dict[str, Any]()
        self._log_starts: dict[str, int] = {}
        self._hosts = sorted(deployment.hosts, key=lambda host: int(host.rpartition("-")[2]))
        self.give_new_rows()

    def act(self, what: str, whom: str = "") -> None:
        """Do what a button says.

        Args:
            what: ``run`` (``whom`` is the mode), ``rows``, ``kill``, ``start`` or ``corrupt``.
            whom: a party, or a mode.

        Raises:
            UsageError: there is no such thing, or not now.
        """
        deeds: Mapping[str, Callable[[], None]] = {
            "run": lambda: self.run(whom),
            "rows": self.give_new_rows,
            "kill": lambda: self._deployment.kill(whom),
            "start": lambda: self._start(whom),
            "corrupt": lambda: self._corrupt(whom),
        }
        if what not in deeds:
            raise UsageError(f"one can {', '.join(deeds)} here, not {what!r}")
        with self._lock:
            deeds[what]()

    def run(self, mode: str) -> None:
        """Begin a run; it goes on by itself.

        Raises:
            UsageError: one is running, or there is no such mode.
        """
        if mode not in MODES:
            raise UsageError(f"a mode is one of {', '.join(MODES)}, not {mode!r}")
        self._refuse_while_running()
        self._number, self._mode, self._is_running, self._failure, self._findings = self._number + 1, mode, True, "", {}
        self._log_starts = {host: self._deployment.log(host).stat().st_size for host in self._deployment.hosts}
        receipts = RECEIPTS.get(mode, "server")
        self._deployment.order(self._run, **(self._settings | {"mode": mode, "receipts": receipts}))
        threading.Thread(target=self._follow, daemon=True).start()

    def give_new_rows(self) -> None:
        """Let every site hold rows that were in no total yet.

        Raises:
            UsageError: a run is on, or there are no more.
        """
        self._refuse_while_running()
        if self._batch + 1 == N_BATCHES:
            raise UsageError("all rows of the example have been used; stop this demonstration and start it again")
        self._batch += 1
        for party, rows in self._rows().items():
            self._deployment.trial.give_rows(party, rows)

    def wait(self) -> None:
        """Return once no run is on."""
        while self.state()["run"]["running"]:
            threading.Event().wait(0.05)

    def state(self) -> dict[str, Any]:
        """Everything that the page shows."""
        with self._lock:
            events = list(self._events())
            return {
                "dataset": self._dataset.name,
                "rows": {"part": self._batch + 1, "parts": N_BATCHES},
                "parties": [self._party(name, events) for name in (SERVER, *self._hosts)],
                "run": {
                    "number": self._number,
                    "mode": self._mode,
                    "running": self._is_running,
                    "failure": self._failure,
                    "steps": list(_steps(events)),
                    "seen": [*filter(None, map(self._told, events)), *self._disputes(events), *self._reasons()],
                },
                **self._findings,
            }

    @property
    def folder(self) -> Path:
        """Folder of all parties."""
        return self._deployment.trial.folder

    @property
    def _run(self) -> str:
        return f"run-{self._number}"

    def _refuse_while_running(self) -> None:
        if self._is_running:
            raise UsageError("a run is on; wait until it has ended")

    def _start(self, host: str) -> None:
        if host == SERVER:
            self._refuse_while_running()  # else it is started by itself
        self._deployment.start(host)

    def _corrupt(self, host: str) -> None:
        if not host.startswith("helper-"):
            raise UsageError(f"helpers can be made malicious here, and {host!r} is none")
        self._deployment.start(host, malicious=True)

    def _rows(self) -> dict[PartyId, ClientRows]:
        """Return the rows that each site holds now."""
        first = self._batch * len(self._parties)
        return {party: self._parts[first + place] for place, party in enumerate(self._parties, start=1)}

    def _follow(self) -> None:
        """Wait for the end of the run, start a server that died again, and look at what it left."""
        error: tuple[str, str] | None = None
        for is_last in (*MOST_RESTARTS * (False,), True):
            try:
                error = self._deployment.wait()
                break
            except (DeploymentError, ValueError) as gone:
                error = (type(gone).__name__, str(gone))
                if not is_last:
                    with suppress(DeploymentError):
                        self._deployment.start(SERVER)
        with self._lock:
            self._failure = "" if error is None else error[1]
            try:
                self._findings = self._look()
            except Exception as error_of_look:  # whatever it is, the page says it and the next run can begin
                self._failure = f"what this run left cannot be read: {type(error_of_look).__name__}: {error_of_look}"
            finally:
                self._is_running = False

    def _events(self) -> Iterator[dict[str, Any]]:
        """Yield the events of this run in the server's own log."""
        path = self._deployment.output(self._run) / "progress.jsonl"
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else ():
            if line.endswith("\n"):  # the last one may be half-written
                yield json.loads(line)

    def _party(self, name: str, events: list[dict[str, Any]]) -> dict[str, Any]:
        """One line of the table."""
        number = int(name.rpartition("-")[2]) if name != SERVER else 0
        said = [event for event in events if event["event"] == "party" and event["party"] == number]
        return {
            "name": name,
            "rows": len(self._rows()[number]) if number in self._parties else None,
            "process": self._deployment.process(name),
            "malicious": self._deployment.is_malicious(name),
            "said": _SAID.get(said[-1]["sent"], said[-1]["sent"].replace("_", " ").lower()) if said else "",
            "bytes": sum(event["bytes"] for event in said),
            "refused": name in self._log_starts and bool(self._why(name)),
        }

    def _why(self, host: str) -> str:
        """Return why a party gave no answer in this run, in the words of its own log, which stays with it."""
        if self._is_idle(int(host.rpartition("-")[2])):
            return ""
        with self._deployment.log(host).open("rb") as log:
            log.seek(self._log_starts[host])
            lines = log.read().decode(errors="replace").splitlines()
        return next((found[1] for line in lines if (found := _REFUSAL.search(line))), "")

    def _reasons(self) -> list[str]:
        """Each reason once, with everybody whose it is."""
        whose: dict[str, list[str]] = {}
        for host in self._log_starts:
            whose.setdefault(self._why(host), []).append(host)
        return [f"The own log of {', '.join(hosts)} says: {why}" for why, hosts in whose.items() if why]

    def _disputes(self, events: list[dict[str, Any]]) -> list[str]:
        """Return a sentence on the helpers whose sums differ from all others."""
        pairs = [set(event["helpers"]) for event in events if event["event"] == "different sums of masks"]
        if not pairs:
            return []
        malicious = map(self._name, sorted(set.intersection(*pairs)))
        return [f"{' or '.join(malicious)} sends other sums than the other helpers: it is malicious, and is left out"]

    def _told(self, event: Mapping[str, Any]) -> str:
        """Describe an unexpected event."""
        if event["event"] == "node lost" and event["reason"] == GONE:
            return f"{self._name(int(event['node']))} went away; the run goes on without it where it can"
        if event["event"] == "refused":
            return f"{self._name(int(event['node']))} said something that was refused: {event['reason']}"
        return ""

    def _is_idle(self, number: int) -> bool:
        """Return whether it is a helper in a run without helpers."""
        return number not in self._parties and MODES[self._mode].helper is None

    def _name(self, number: int) -> str:
        return next((host for host in self._deployment.hosts if host.endswith(f"-{number}")), f"party {number}")

    def _look(self) -> dict[str, Any]:
        """Read what the run left with the server and with the sites."""
        folder = self._deployment.trial.folder
        sites = {host: SiteFile.read(folder / host / "site.toml") for host in self._deployment.hosts}
        found: dict[str, Any] = {"logged_totals": {host: Site(file).count_totals()[0] for host, file in sites.items()}}
        spent = {host: file.ledger.spent() for host, file in sites.items() if file.ledger is not None}
        found["spent"] = {host: 0.0 if cost is None else cost.epsilon for host, cost in spent.items()}
        found["budget"] = BUDGET_IN_RUNS * self._epsilon
        if not self._failure:
            found |= self._look_at_model(json.loads((self._deployment.output(self._run) / "summary.json").read_text()))
        return found

    def _look_at_model(self, summary: Mapping[str, Any]) -> dict[str, Any]:
        output, folder = self._deployment.output(self._run), self.folder
        saved, survivors = load_model(output / "model.safetensors"), summary["survivors"][-1]
        pooled: Any = None
        if not self._epsilon:
            fitted = fit_pooled(saved.learner, ClientRows.pool([self._rows()[party] for party in survivors]))
            pooled = hashlib.sha256(saved.learner.weights_bytes(fitted)).hexdigest()
        scores = saved.learner.decision_function(saved.model, self._dataset.x_test)
        concerns = {one["gate"]: one["message"] for of_sum in summary["sums"] for one in of_sum["concerns"]}
        roster = Roster.read(folder / SERVER / "roster.toml")
        totals = read_totals(output / "totals.safetensors")
        of_sum = Receipt.from_bytes(totals[-1].receipt).statement.configuration.hex()[:NAME_DIGITS]
        kept = [Receipt.from_bytes(path.read_bytes()) for path in sorted(folder.glob(f"*/results/{of_sum}.receipt"))]
        return {
            "survivors": survivors,
            "away": [party for party in self._parties if party not in survivors],
            "model": summary["weights_sha256"],
            "pooled": pooled,
            "accuracy": float(np.mean(np.argmax(scores, axis=1) == self._dataset.y_test)),
            "gates": [
                {"asks": question, "finds": concerns.get(gate.value, "")}
                for gate, question in QUESTIONS.items()
                if gate is not Gate.COHORT_DIFFERENCE  # the sites' query logs answer it, and the server is told of none
            ],
            "bill": summary["bill"],
            "receipts": {
                "kept": len(kept),
                "says": told_by(kept[0], roster).partition(";")[0] if kept else "",
                "wrong": list(problems(kept, totals, roster)),
            },
        }


def _steps(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The exchanges of a run, with how far each has come."""
    step: dict[str, Any] = {}
    for event in events:
        if event["event"] == "round opens":
            if step:
                yield step
            step = {"says": STEPS.get(event["round"], event["round"]), "open": True, "arrived": 0, "bytes": 0}
            step["expected"] = event["expected"]
        elif event["event"] in ("answer", "round closes"):
            step |= {name: event[name] for name in ("arrived", "expected", "bytes")}
            step["open"] = event["event"] == "answer"
    if step:
        yield step
