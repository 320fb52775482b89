"""Runs of a trial in one process without an engine, and what tests of sites and servers share."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model, model_to_bytes
from analytic_secagg.__main__ import main
from analytic_secagg.configurations import configuration_digest
from analytic_secagg.datasets import Dataset
from analytic_secagg.local.deployment import SERVER as SERVER_HOST
from analytic_secagg.local.deployment import LocalDeployment
from analytic_secagg.server.exchange import NoReply, Transport
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.server.training import train
from analytic_secagg.site.errors import Refusal
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import CONTEXT, INVITE, STEP, opened, signed
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.store import FILE, PREPARE, Record, SessionStore
from analytic_secagg.trial import OPEN, Trial, fitted_settings
from secagg import IdentityKey, new_session_id

CLIENTS = (1, 2, 3, 4, 5)

Said = bytes | Refusal
"""A site's answer."""

IsGone = Callable[[int, str], bool]
"""(site, kind of message) -> whether the site does not answer this message."""

Tell = Callable[[int, str, bytes], bytes]
"""(site, kind, content) -> what the site receives in place of the content."""

Hear = Callable[[int, str, bytes, Said], Said]
"""(site, kind, content, answer) -> what the server receives in place of the answer."""


class Rehearsal(Transport):
    """A transport whose nodes are function calls, each of which knows nothing but its site's file.

    It is its own clock: seconds pass only while the server sleeps.

    Args:
        files: each site's file, by the number of its folder.
        is_gone: which site does not answer which message.
        tell: changes what sites receive.
        hear: sees every answer and changes what the server receives.
        deliveries: how often each message is delivered; only the last answer goes back.
        n_online: how many sites are online at each look; the last number holds from then on.
    """

    def __init__(
        self,
        files: Mapping[int, Path],
        *,
        identity: IdentityKey,
        is_gone: IsGone = lambda site, kind: False,
        tell: Tell = lambda site, kind, content: content,
        hear: Hear = lambda site, kind, content, said: said,
        deliveries: int = 1,
        n_online: tuple[int, ...] = (),
    ) -> None:
        self._identity = identity
        self._files, self._is_gone, self._tell, self._hear, self._deliveries = files, is_gone, tell, hear, deliveries
        self._n_online = list(n_online) or [len(files)]
        self._sent: dict[str, tuple[int, str, bytes]] = {}
        self._n_sent, self._seconds = 0, 0.0

    def nodes(self) -> list[int]:
        now = self._n_online.pop(0) if len(self._n_online) > 1 else self._n_online[0]
        return list(self._files)[:now]

    def send(self, kind: str, contents: Mapping[int, bytes], *, seconds: float, number: int) -> dict[str, int]:
        tickets = {f"{self._n_sent + place}": site for place, site in enumerate(contents)}
        self._n_sent += len(tickets)
        self._sent |= {ticket: (site, kind, contents[site]) for ticket, site in tickets.items()}
        return tickets

    def receive(self, ticket: str) -> bytes | NoReply | None:
        site, kind, content = self._sent.pop(ticket)
        if self._is_gone(site, kind):
            return NoReply("the node is gone", may_return=True)
        content = self._tell(site, kind, opened(self._identity.public, kind, content))
        message = signed(self._identity, kind, content)  # it is the server that lies
        for _ in range(self._deliveries):
            said = handle_message(partial(SiteFile.read, self._files[site]), kind, partial(bytes, message))
            said = self._hear(site, kind, content, said)
        return NoReply.refused(said) if isinstance(said, Refusal) else said

    def clock(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds


def rehearse(folder: Path, config: Mapping[str, Any], **options: Any) -> Any:
    """The model of a run over the sites of ``folder``."""
    files = {int(path.parent.name[5:]): path for path in sorted(folder.glob("site-*/site.toml"))}
    server = ServerFile.read(folder / "server" / "server.toml")
    rehearsal = Rehearsal(files, identity=server.identity, **options)
    output = server.output / "rehearsal"
    return train(config, server, rehearsal, output, clock=rehearsal.clock, sleep=rehearsal.sleep)


def assert_trained_by_processes(trial: Trial, dataset: Dataset, *, learner: str, mode: str) -> None:
    """Train over the local engine, a process for each party, and compare the model with the pooled one, bit for bit."""
    own = {name.replace("-", "_"): value for name, value in fitted_settings(dataset, len(trial.rows)).items()}
    with LocalDeployment(trial) as deployment:
        deployment.order("run-1", **own, learner=learner, mode=mode)
        assert deployment.wait() is None, deployment.log(SERVER_HOST).read_text()
        assert_pooled(deployment.output("run-1"), trial.rows)


def run_config(**changes: Any) -> dict[str, Any]:
    """The settings of the template, with a trial's promises and with changes."""
    config = template_settings()
    assert changes.keys() <= config.keys()
    return config | {"corruption": 0.0, "dropout": 0.4} | changes


def edit(trial: Trial, party: int, *replacements: tuple[str, str]) -> None:
    path = trial.folder / f"site-{party}" / "site.toml"
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def edit_all(trial: Trial, *replacements: tuple[str, str]) -> None:
    for party in trial.rows:
        edit(trial, party, *replacements)


BUDGET = """
[privacy]
epsilon = {epsilon}
run_epsilon = 8.0
ledger = "privacy.ledger"
"""


def with_budgets(trial: Trial, *, epsilon: float = 20.0) -> None:
    """Give the rows of every site a budget, and begin its ledger."""
    for party in trial.rows:
        path = trial.folder / f"site-{party}" / "site.toml"
        path.write_text(path.read_text() + BUDGET.format(epsilon=epsilon))
        assert main(["ledger", str(path)]) == 0


def agree_on(trial: Trial, **changes: Any) -> None:
    """Have all parties agree on another roster."""
    for path in trial.folder.glob("*/roster.toml"):
        path.write_text(Roster.read(path).model_copy(update=changes).to_toml())


def pin(trial: Trial, *learners: Any, more: str = "") -> None:
    """Have all parties agree on these configurations and on nothing else, with ``more`` in each site's [client]."""
    agree_on(trial, configurations=tuple(map(configuration_digest, learners)))
    if OPEN in (trial.site(1) / "site.toml").read_text():
        names = ", ".join(f'"{name}"' for name in dict.fromkeys(learner.name for learner in learners))
        edit_all(trial, (OPEN, ""), ('learners = ["afl"]', f"learners = [{names}]\n{more}"))


def pin_run(trial: Trial, **settings: Any) -> None:
    """Have all parties agree on what a run of these settings computes, and on nothing else."""
    roster = Roster.read(trial.folder / "server" / "roster.toml")
    pin(trial, RunSettings.of(run_config(**settings)).federation(roster).learner)


def weigh(trial: Trial) -> None:
    """Give every site's rows weights."""
    for party, rows in trial.rows.items():
        rows.weights = np.arange(len(rows)) % 5
        path = trial.folder / f"site-{party}" / "rows.npz"
        with np.load(path) as archive:
            np.savez(path, w_train=rows.weights, **archive)


def events(trial: Trial) -> list[dict[str, Any]]:
    path = trial.folder / "server" / "models" / "rehearsal" / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_pooled(output: Path, rows: Mapping[int, ClientRows], survivors: Sequence[int] | None = None) -> None:
    """The model in this folder has the bytes of the survivors' pooled rows, and of nobody else's; everybody's if None.

    Args:
        output: where a run left its files.
        rows: of every site.
        survivors: the sites that are in the total.
    """
    saved, everybody = load_model(output / "model.safetensors"), list(rows)
    pooled, whole = (
        saved.learner.weights_bytes(fit_pooled(saved.learner, ClientRows.pool([rows[party] for party in those])))
        for those in (survivors or everybody, everybody)
    )
    weights = saved.learner.weights_bytes(saved.model)
    assert weights == pooled
    assert (weights == whole) == (list(survivors or everybody) == everybody)
    if (output / "summary.json").exists():
        summary = json.loads((output / "summary.json").read_text())
        assert summary["survivors"][-1] == list(survivors or everybody)
        assert summary["weights_sha256"] == hashlib.sha256(weights).hexdigest()


def is_exact(trial: Trial, survivors: list[int]) -> None:
    assert_pooled(trial.folder / "server" / "models" / "rehearsal", trial.rows, survivors)


def few_rows(trial: Trial, n_rows: int = 6) -> None:
    """Leave every site so few rows that all together are far fewer than there are features."""
    for party in trial.rows:
        path = trial.site(party) / "rows.npz"
        with np.load(path) as archive:
            arrays = {name: archive[name][:n_rows] for name in archive}
        np.savez(path, **arrays)


def without_client(trial: Trial, party: int) -> None:
    """Have a site's host only help from now on."""
    path = trial.site(party) / "site.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[client]")] + text[text.index("[policy]") :])


def declining(*parties: int, to: Collection[str] = (CONTEXT, INVITE, STEP)) -> Hear:
    """A fault: the server hears of these sites that they decline messages of these kinds, whatever they do."""
    return lambda party, kind, content, said: Refusal.DECLINED if party in parties and kind in to else said


def vanishes(party: int, kind: str, number: int = 1) -> IsGone:
    """A fault: from its ``number``-th message of a kind on this party's site answers nothing."""
    return _gone(party, lambda came, seen: seen[kind] >= number)


def misses(party: int, kind: str, *numbers: int) -> IsGone:
    """A fault: this site is gone when these of its messages of a kind come, and there for all others."""
    return _gone(party, lambda came, seen: came == kind and seen[kind] in numbers)


def _gone(party: int, when: Callable[[str, Counter[str]], bool]) -> IsGone:
    seen: Counter[str] = Counter()

    def is_gone(site: int, came: str) -> bool:
        seen[came] += site == party
        return site == party and when(came, seen)

    return is_gone


def proposal(learner: Any = None, model: Any = None, **changes: Any) -> TrainingProposal:
    """The proposal of a masked sum of a learner, by default the template's, with changes to its terms."""
    learner = learner or RunSettings.of(template_settings()).build_learner(len(CLIENTS))
    values: dict[str, Any] = {"mode": "masked", "session": new_session_id(), "clients": CLIENTS, "dropout": 0.4}
    saved = model_to_bytes(learner, learner.init() if model is None else model)
    return TrainingProposal(**(values | changes), model=saved)


def by_server(trial: Trial, kind: str, content: bytes) -> bytes:
    """A message as the trial's server signs it."""
    return signed(ServerFile.read(trial.folder / "server" / "server.toml").identity, kind, content)


def site(trial: Trial, party: int, **options: Any) -> Site:
    """A site in a process of its own, as far as it can tell."""
    return Site(SiteFile.read(trial.folder / f"site-{party}" / "site.toml"), **options)


def announced(trial: Trial, proposed: TrainingProposal) -> TrainingProposal:
    """The proposal with what the trial's helpers announce for it."""
    said: dict[int, bytes] = {}
    for party in trial.rows:
        said |= site(trial, party).announce(proposed)
    return proposed.with_announced(said)


def state(trial: Trial, party: int) -> Path:
    return trial.folder / f"site-{party}" / "state"


@contextlib.contextmanager
def database(trial: Trial, party: int) -> Iterator[sqlite3.Connection]:
    """A site's sessions; there are none where it never took part."""
    path = state(trial, party) / FILE
    with contextlib.closing(sqlite3.connect(path if path.exists() else ":memory:", isolation_level=None)) as opened:
        opened.executescript(PREPARE)
        yield opened


def kept(trial: Trial, party: int, session: bytes | None = None) -> set[str]:
    """What a site keeps of sessions, of one or of all: ``invitation``, the names of records, and ``over``."""
    with database(trial, party) as opened:
        sessions = opened.execute("SELECT id, iif(invitation IS NULL, 'over', 'invitation') FROM sessions").fetchall()
        records = opened.execute("SELECT session, name FROM records WHERE session != x''").fetchall()
    return {name for id_, name in [*sessions, *records] if session in (None, id_)}


def stored(trial: Trial, party: int) -> set[bytes]:
    """The bytes of a site's files, and of each record by itself."""
    with database(trial, party) as opened:
        records = {content for (content,) in opened.execute("SELECT content FROM records")}
    return records | {path.read_bytes() for path in state(trial, party).glob("*")}


def is_wiped(trial: Trial) -> bool:
    """Whether no site keeps more than that sessions are over."""
    return all(kept(trial, party) <= {"over"} for party in trial.rows)


def change_record(trial: Trial, party: int, session: bytes, name: str, change: Callable[[bytes], bytes]) -> None:
    folder = SessionStore(state(trial, party))
    with folder.locked():
        record = Record(folder, session, name)
        content = record.load()
        assert content is not None
        record.save(change(content))


def last_byte_changed(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])
