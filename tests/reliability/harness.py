"""Faults in real deployments: processes of the local engine over TLS that die, stop, lose their disk or their network.

A ``Fault`` names a case (mode and noise), a role, what happens and where. ``Theatre.suffer`` runs one training with it,
puts everything right again, and says what came of it (``Outcome``). Every total is compared with the pooled rows of its
survivors: bit by bit, or where there is noise within 12 of its standard deviations, which a mask left on is not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from reliability.proxy import Proxy
from support.disks import fill, make_read_only, mounted

from analytic.learner import ClientRows
from analytic_secagg.datasets import bundled
from analytic_secagg.local.command import PRIVACY
from analytic_secagg.local.deployment import SERVER, LocalDeployment
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.totals import read_totals
from analytic_secagg.trial import MIN_SURVIVORS, Trial, fitted_settings
from secagg import PartyId
from secagg.dp import Ledger

EPSILON, BUDGET_IN_RUNS = 2.0, 3.2
DATASET = "breast_cancer"
STEPPING = Path(__file__).with_name("stepping.py")
LIMIT_SECONDS = 600.0
"""A run that has not ended by then hangs: every deadline in it is over many times."""

STOP_SECONDS = 1.0
LARGEST_DEVIATION = 12.0


class Outcome(Enum):
    """What came of a fault."""

    EXACT = "exact total"
    RESUMED = "resumed, exact total"
    REFUSED = "clear refusal"
    WRONG = "wrong total"
    HANG = "hang"
    LOCKED = "locked rows without a total"
    SPENT = "spent budget without a total or certificate"

    @property
    def is_allowed(self) -> bool:
        return self in (Outcome.EXACT, Outcome.RESUMED, Outcome.REFUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is run.

    Args:
        mode: how it is summed.
        epsilon: of its noise; 0 for exact totals.
        n_sites: clients; of twelve, masks are on a sparse graph.
    """

    mode: str
    epsilon: float = 0.0
    n_sites: int = 5


CASES = {
    "plain": Case(mode="plain"),
    "masked": Case(mode="masked"),
    "masked, sparse graph": Case(mode="masked", n_sites=12),
    "masked, noise": Case(mode="masked", epsilon=EPSILON),
    "committee": Case(mode="committee"),
    "committee, noise": Case(mode="committee", epsilon=EPSILON),
    "bfv": Case(mode="bfv"),
    "ckks": Case(mode="ckks"),
    "masked+bfv": Case(mode="masked+bfv"),
}
"""By the name that the table has."""

SITE, OTHER = "site-2", "site-3"
"""The site that faults hit, behind a proxy, and another one, whose state has a small disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Args:
        role: ``server``, ``site``, ``helper``, ``network`` or ``disk``.
        what: its name in ``WHAT``.
        place: where in the run, from 0 to 1 of the steps that the party which is hit takes in a run without faults.
    """

    role: str
    what: str
    place: float = 0.5


@dataclass(slots=True, kw_only=True)
class Suffered:
    """What came of a fault: the outcome, at which step it hit, how often the server was started again, and details."""

    outcome: Outcome
    step: str
    n_restarts: int
    seconds: float
    said: str = ""


class SteppedDeployment(LocalDeployment):
    """Its processes count their steps, and one site's connection leads through a proxy."""

    proxy: Proxy | None = None

    @property
    def port(self) -> int:
        return int(self._port)

    def _command(self, name: str, module: str, argument: str) -> list[str]:
        if name == SITE:
            if self.proxy is None:
                self.proxy = Proxy(int(argument))
            argument = str(self.proxy.port)
        role = SERVER if name == SERVER else "node"
        return [sys.executable, str(STEPPING), role, str(self.trial.folder / name), argument]

    def close(self) -> None:
        super().close()
        if self.proxy is not None:
            self.proxy.close()


class Theatre:
    """One deployment, and runs over it, each of rows that nobody has seen.

    Args:
        deployment: its processes.
        case: what is run.
    """

    def __init__(self, deployment: SteppedDeployment, case: Case, *, has_disks: bool) -> None:
        self.deployment, self.case, self.has_disks = deployment, case, has_disks
        self._number, self._rng = 0, np.random.default_rng(7)
        self.rows: dict[PartyId, ClientRows] = {}
        self.steps: dict[str, list[str]] = {}

    @property
    def trial(self) -> Trial:
        return self.deployment.trial

    @property
    def sites(self) -> list[str]:
        return [self.trial.site(party).name for party in self.trial.rows]

    @property
    def helper(self) -> str | None:
        """A host that the mode needs beside clients, or which is a client's too."""
        if self.case.mode == "committee":
            return "helper-102" if "helper-102" in self.deployment.hosts else SITE
        return self.sites[-1] if self.case.mode in ("bfv", "ckks", "masked+bfv") else None

    @property
    def name(self) -> str:
        return f"run-{self._number}"

    def begin(self, *, new_rows: bool = True, deadline: float = 60.0) -> None:
        """Give every site rows of its own making, with a fresh budget, and order a run."""
        self._number += 1
        if new_rows:
            for party, dealt in self.trial.rows.items():
                shaken = dealt.features * self._rng.uniform(0.5, 1.0, dealt.features.shape)
                self.rows[party] = ClientRows(shaken, dealt.targets)
                self.trial.give_rows(party, self.rows[party])
                renew_budget(self.trial, party)
            self.before = self.counted()
        for host in (SERVER, *self.deployment.hosts):
            (self.trial.folder / host / "steps").write_text("")
        self._deadline = deadline
        self.order()

    def order(self) -> None:
        """Order the run; the same one again is one that goes on, or has ended."""
        said = {name.replace("-", "_"): value for name, value in self._settings.items()}
        self.deployment.order(
            self.name,
            **said,
            round_seconds=self._deadline,
            join_seconds=15.0 if self.steps else 200.0,
            nodes=self._n_nodes,
        )

    @property
    def _settings(self) -> dict[str, Any]:
        own: dict[str, Any] = {"mode": self.case.mode, "epsilon": self.case.epsilon}
        if self.case.n_sites > 5:
            own["dropout"] = 1 / self.case.n_sites
        return fitted_settings(bundled(DATASET), self.case.n_sites) | own

    @property
    def _n_nodes(self) -> int:
        return len(self.deployment.hosts)

    def record(self, case: Case | None = None) -> None:
        """Count the steps of a run that nothing happens to; it may be of another case over the same deployment."""
        self.case, self.steps = case or self.case, {}
        self.begin()
        error, _ = self._ended(lambda: None)
        assert error is None, error
        assert self.is_right(), "a run without faults"
        self.steps = {host: self.steps_of(host) for host in (SERVER, *self.deployment.hosts)}

    def steps_of(self, host: str) -> list[str]:
        return (self.trial.folder / host / "steps").read_text().splitlines()

    def suffer(self, fault: Fault) -> Suffered:
        """Run with a fault, put everything right, and say what came of it."""
        began, act = time.monotonic(), WHAT[fault.what]
        host = act.host(self)
        steps = self.steps[host]
        number = max(1, min(len(steps) - 1, round(fault.place * len(steps))))
        (self.trial.folder / host / "steps").write_text("")
        (self.trial.folder / host / "fault").write_text(f"{number} {act.action}")
        self.begin(deadline=act.deadline)
        held = self.trial.folder / host / "held"

        def look() -> None:
            if held.exists():
                act.begin(self)
                held.unlink()
            act.watch(self)

        try:
            error, n_restarts = self._ended(look)
        except TimeoutError as hang:
            self._put_right(act)
            step, said = steps[number - 1], str(hang)
            return Suffered(outcome=Outcome.HANG, step=step, n_restarts=0, seconds=LIMIT_SECONDS, said=said)
        is_hit = not (self.trial.folder / host / "fault").exists()
        (self.trial.folder / host / "fault").unlink(missing_ok=True)
        self._put_right(act)
        outcome, said = self._judged(error, n_restarts)
        step = steps[number - 1] if is_hit else ""
        return Suffered(outcome=outcome, step=step, n_restarts=n_restarts, seconds=time.monotonic() - began, said=said)

    def _judged(self, error: tuple[str, str] | None, n_restarts: int) -> tuple[Outcome, str]:
        first = error
        for _ in range(2):  # one that has ended says so again; others go on, or have their failure certified
            if error is not None:
                n_restarts += 1
                self.order()
                error, _ = self._ended(lambda: None)
        said = "" if first is None else f"{first[0]}: {first[1]}"
        if error is None:
            if not self.is_right():
                return Outcome.WRONG, said
            charged, paid = self.charged(), self._due()
            if charged != paid:
                return Outcome.SPENT, f"{said} charged {charged}, due {paid}"
            return (Outcome.RESUMED if n_restarts else Outcome.EXACT), said
        charged = self.charged()
        self.begin(new_rows=False)
        again, _ = self._ended(lambda: None)
        if again is not None:
            return Outcome.LOCKED, f"{said} THEN {again[0]}: {again[1]}"
        if not self.is_right():
            return Outcome.WRONG, said
        return (Outcome.SPENT if any(charged.values()) else Outcome.REFUSED), said

    def _progress(self) -> str:
        """The last lines of the run's log."""
        path = self.deployment.output(self.name) / "progress.jsonl"
        return "\n".join(path.read_text().splitlines()[-3:]) if path.exists() else ""

    def _ended(self, look: Any) -> tuple[tuple[str, str] | None, int]:
        """Wait for the run's end, and start the server again each time that it died; how it failed, and how often.

        Raises:
            TimeoutError: it did not end.
        """
        found: list[tuple[str, str] | None] = []
        restarts = [0]

        def wait() -> None:
            while not found:
                try:
                    found.append(self.deployment.wait())
                except DeploymentError:
                    restarts[0] += 1
                    time.sleep(0.05)
                    with contextlib.suppress(DeploymentError):
                        self.deployment.start(SERVER)

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        ends = time.monotonic() + LIMIT_SECONDS
        while waiting.is_alive():
            look()
            waiting.join(0.02)
            if time.monotonic() > ends:
                self.deployment.kill(SERVER)
                raise TimeoutError(self._progress())
        return found[0], restarts[0]

    def _put_right(self, act: What) -> None:
        """Everybody is there again."""
        act.end(self)
        for host in self.deployment.hosts:
            (self.trial.folder / host / "held").unlink(missing_ok=True)
            if (process := self.deployment.process(host)) is None:
                self.deployment.start(host)
            else:
                os.kill(process, signal.SIGCONT)
        ends = time.monotonic() + LIMIT_SECONDS
        while _n_connections(self.deployment.port) < self._n_nodes and time.monotonic() < ends:
            time.sleep(0.2)

    # --- what came of it ---

    def is_right(self) -> bool:
        """Whether every total of the run is that of its survivors' rows."""
        output = self.deployment.output(self.name)
        self.totals = read_totals(output / "totals.safetensors")
        return is_right(output, self.trial, self._settings, self.rows)

    def counted(self) -> dict[str, int]:
        """How many charges the ledger of each site has."""
        files = {site: SiteFile.read(self.trial.folder / site / "site.toml") for site in self.sites}
        return {site: 0 if file.ledger is None else len(file.ledger.releases) for site, file in files.items()}

    def charged(self) -> dict[str, int]:
        """What the run was charged at each site, beside what was given back."""
        return {site: count - self.before[site] for site, count in self.counted().items()}

    def _due(self) -> dict[str, int]:
        """What the run should be charged at each site; of a site that is in no total, what it was charged."""
        if not self.case.epsilon:
            return dict.fromkeys(self.sites, 0)
        charged = self.charged()
        return {
            site: sum(int(site[5:]) in one.survivors for one in self.totals) or charged[site] for site in self.sites
        }


def is_right(output: Path, trial: Trial, settings: Mapping[str, Any], rows: Mapping[PartyId, ClientRows]) -> bool:
    """Whether every total that a run left is that of its survivors' rows, and all are there.

    Args:
        output: the run's folder.
        trial: its deployment.
        settings: of the run, where they differ from the template.
        rows: what each site held.
    """
    federation = RunSettings.of(template_settings() | settings).federation(
        Roster.read(trial.folder / SERVER / "roster.toml")
    )
    for result in read_totals(output / "totals.safetensors"):
        step = federation.next_sum
        if step is None or len(result.survivors) < MIN_SURVIVORS:
            return False
        pooled = np.sum([step.vector(rows[party]) for party in result.survivors], axis=0, dtype=np.int64)
        residual = (result.total - pooled).astype(np.float64)
        if step.noise is None:
            is_exact = not residual.any()
        else:
            share = step.noise.noises[step.number].share  # type: ignore[union-attr]
            variances = np.array([np.inf, *map(float, share.variances)])[share.levels]
            is_exact = bool((residual**2 <= LARGEST_DEVIATION**2 * len(result.survivors) * variances).all())
        if not is_exact:
            return False
        federation.take(result)
    return federation.next_sum is None


# --- faults ---


@dataclass(frozen=True, slots=True)
class What:
    """A kind of fault. By default it is what the process that is hit does to itself.

    Args:
        who: the host that is hit; ``helper`` for the one that the mode needs.
        action: what its process does: ``kill``, ``stop`` or ``hold``, in which ``begin`` acts.
        deadline: of the run's rounds, where one is waited for.
        comes_back: whether it is started again at once.
    """

    who: str
    action: str = "kill"
    deadline: float = 60.0
    comes_back: bool = True
    stopped: list[float] = field(default_factory=list)

    def host(self, theatre: Theatre) -> str:
        found = theatre.helper if self.who == "helper" else self.who
        assert found is not None, "a mode with a helper"
        return found

    def begin(self, theatre: Theatre) -> None:
        """Act while the process that is hit waits."""

    def watch(self, theatre: Theatre) -> None:
        """Start again who died, and let go on who stopped."""
        host = self.host(theatre)
        if (host == SERVER and self.action != "stop") or not self.comes_back:
            return  # whoever waits for the run starts the server
        process = theatre.deployment.process(host)
        if process is None:
            theatre.deployment.start(host)
        elif self.action == "stop" and _is_stopped(process):
            self.stopped.append(time.monotonic())
            if time.monotonic() > self.stopped[0] + STOP_SECONDS:
                self.stopped.clear()
                os.kill(process, signal.SIGCONT)

    def end(self, theatre: Theatre) -> None:
        """Undo it."""
        self.stopped.clear()


class _Kills(What):
    """Several hosts die while the server waits, and are back when the run is over."""

    def begin(self, theatre: Theatre) -> None:
        for host in self._hosts(theatre):
            theatre.deployment.kill(host)

    def _hosts(self, theatre: Theatre) -> list[str]:
        return theatre.sites[2:]


class _KillsHelpers(_Kills):
    def _hosts(self, theatre: Theatre) -> list[str]:
        return [host for host in theatre.deployment.hosts if host.startswith("helper-")][1:] or theatre.sites[-1:]


class _KillsAll(_Kills):
    def _hosts(self, theatre: Theatre) -> list[str]:
        return theatre.deployment.hosts


class _KillsOneThenServer(_Kills):
    """A site dies for the rest of the run, and the server with it."""

    def begin(self, theatre: Theatre) -> None:
        theatre.deployment.kill(OTHER)
        process = theatre.deployment.process(SERVER)
        assert process is not None, "it waits"
        os.kill(process, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class _Network(What):
    """Something happens to a site's connection while the server waits, and is over when the run is.

    Args:
        change: attributes of the proxy.
        seconds: after which it is over; 0 for the end of the run.
    """

    change: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    since: list[float] = field(default_factory=list)

    def begin(self, theatre: Theatre) -> None:
        for name, value in self.change.items():
            setattr(theatre.deployment.proxy, name, value)
        self.since.append(time.monotonic())

    def watch(self, theatre: Theatre) -> None:
        if self.seconds and self.since and time.monotonic() > self.since[0] + self.seconds:
            self.end(theatre)

    def end(self, theatre: Theatre) -> None:
        self.since.clear()
        proxy = theatre.deployment.proxy
        assert proxy is not None, "the site was started"
        proxy.seconds, proxy.piece_bytes, proxy.is_black = 0.0, 1 << 16, False
        proxy.cut_after.clear()


class _FullServer(What):
    """The server's disk is full for a second."""

    def begin(self, theatre: Theatre) -> None:
        fill(self._folder(theatre))
        self.stopped.append(time.monotonic())

    def watch(self, theatre: Theatre) -> None:
        if self.stopped and time.monotonic() > self.stopped[0] + STOP_SECONDS:
            self.end(theatre)

    def end(self, theatre: Theatre) -> None:
        self.stopped.clear()
        (self._folder(theatre) / "filler").unlink(missing_ok=True)

    def _folder(self, theatre: Theatre) -> Path:
        return theatre.trial.folder / SERVER / "models"


class _FullSite(_FullServer):
    """A site's disk is full until the run is over."""

    def watch(self, theatre: Theatre) -> None:
        """It stays full."""

    def _folder(self, theatre: Theatre) -> Path:
        return theatre.trial.folder / OTHER / "state"


class _ReadOnlySite(_FullSite):
    """A site's disk is read-only until the run is over."""

    def begin(self, theatre: Theatre) -> None:
        make_read_only(self._folder(theatre))

    def end(self, theatre: Theatre) -> None:
        make_read_only(self._folder(theatre), is_over=True)


def _n_connections(port: int) -> int:
    """How many connections to a port of this host are established."""
    ends = [line.split()[2:4] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(to.endswith(f":{port:04X}") and state == "01" for to, state in ends)


def _is_stopped(process: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    return False


WHAT: dict[str, What] = {
    "kill": What(SERVER),
    "stop": What(SERVER, "stop"),
    "kill and a site stays away": _KillsOneThenServer(SERVER, "hold", deadline=15.0),
    "kill a site": What(SITE),
    "kill a site for good": What(SITE, comes_back=False),
    "stop a site": What(SITE, "stop"),
    "stop a site for good": What(SITE, "stop", deadline=6.0, comes_back=False),
    "kill all but two sites": _Kills(SERVER, "hold", deadline=15.0),
    "kill everybody": _KillsAll(SERVER, "hold", deadline=15.0),
    "kill a helper": What("helper"),
    "kill a helper for good": What("helper", deadline=6.0, comes_back=False),
    "stop a helper": What("helper", "stop"),
    "kill all but one helper": _KillsHelpers(SERVER, "hold", deadline=15.0),
    "cut an answer": _Network(SERVER, "hold", change={"cut_after": {"up": 100}}),
    "cut a request": _Network(SERVER, "hold", change={"cut_after": {"down": 40}}),
    "swallow for a second": _Network(SERVER, "hold", deadline=6.0, change={"is_black": True}, seconds=1.0),
    "swallow for good": _Network(SERVER, "hold", deadline=6.0, change={"is_black": True}),
    "slow": _Network(SERVER, "hold", change={"seconds": 0.3, "piece_bytes": 1 << 14}),
    "full at the server": _FullServer(SERVER, "hold"),
    "full at a site": _FullSite(SERVER, "hold"),
    "read-only at a site": _ReadOnlySite(SERVER, "hold"),
}


def renew_budget(trial: Trial, party: PartyId) -> None:
    """Begin a ledger for rows that nobody has seen."""
    site = SiteFile.read(trial.site(party) / "site.toml")
    if site.privacy is not None and site.budget is not None:
        site.privacy.ledger.unlink(missing_ok=True)
        Ledger.create(site.privacy.ledger, site.budget)


@contextmanager
def theatre(folder: Path, case: Case, *, are_helpers_apart: bool = True) -> Iterator[Theatre]:
    """A deployment with helpers where the mode needs them; disks are small where this user may mount.

    Args:
        folder: where all that goes.
        case: what is run first.
        are_helpers_apart: whether helpers are hosts of their own, or sites are.
    """
    private = PRIVACY.format(budget=BUDGET_IN_RUNS * case.epsilon, epsilon=case.epsilon)
    trial = Trial.create(
        folder / "trial",
        bundled(DATASET),
        n_sites=case.n_sites,
        n_helpers=4 if case.mode == "committee" else 0,
        are_helpers_apart=are_helpers_apart,
        of_clients=private if case.epsilon else "",
        settings={"epsilon": case.epsilon, **({"dropout": 1 / case.n_sites} if case.n_sites > 5 else {})},
    )
    for path in trial.folder.glob("*-*/site.toml"):
        path.write_text(path.read_text().replace("modes = [", 'modes = ["plain", '))
    for party in trial.rows:
        renew_budget(trial, party)
    with ExitStack() as stack:
        disks = {trial.folder / SERVER / "models": 1 << 24, trial.folder / OTHER / "state": 1 << 23}
        has_disks = False not in [stack.enter_context(mounted(place, n_bytes)) for place, n_bytes in disks.items()]
        yield Theatre(stack.enter_context(SteppedDeployment(trial)), case, has_disks=has_disks)
