"""A run whose server is killed at each save of its state, in a process of its own, and is started again.

The sites are real and on disk, so a process that is killed with all of them is a server that is killed, and more.
Over real processes: ``reliability/test_faults.py``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.rehearsed import (
    CLIENTS,
    Said,
    declining,
    edit_all,
    events,
    is_exact,
    is_wiped,
    rehearse,
    run_config,
    site,
    with_budgets,
)

from analytic_secagg.modes import MODES
from analytic_secagg.server.run_store import FILE, NodeAddresses, RunStore, StoppedRunError
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.server.training import folder_of
from analytic_secagg.site.errors import DeploymentError, Refusal, RunSettingsError
from analytic_secagg.site.messages import CONTEXT, END, INVITE, read_messages
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from secagg.errors import SecureSumError, TooFewSurvivorsError
from secagg.wire import carries_vector, message_type

MASKED, COMMITTEE = {"mode": "masked"}, {"mode": "committee"}
NOISE = {"epsilon": 8.0, "noise-survivors": 3, "min-survivors": 3}
RUNS: dict[str, dict[str, Any]] = {
    "masked": MASKED,
    "committee": COMMITTEE,
    "masked with noise": MASKED | NOISE,
    "committee with noise": COMMITTEE | NOISE,
    "masked with receipts": MASKED | {"receipts": "clients"},
    "committee with receipts": COMMITTEE | {"receipts": "helpers"},
    "a series": MASKED | {"learner": "deepafl", "options": "n_layers=1 d_phi=8 d_f=8", "ridge": 0.01},
    "committee, then judged": COMMITTEE | {"evaluate": True},
}
"""No encrypted mode: TenSEAL's threads do not outlive a fork. ``reliability`` kills real processes of those."""

Watch = Callable[[int, str, bytes, Said], Said]

STATE = Path("server", "models", "rehearsal", FILE)
"""The run's state in a trial's folder."""


def in_a_process(run: Callable[[], object], *, dies_at: int = 0, keep: Path | None = None) -> list[str]:
    """Run in a process of its own, which may be killed at a save of its state; return what was saved.

    Args:
        run: what it does.
        dies_at: the number of the save, of which each counts twice, right before and right after it; 0 for none.
        keep: a folder that gets a copy of the trial at each save, named by its number: what a death there leaves.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.close(reading)
            saved, save = list[str](), RunStore._save

            def saves(store: RunStore, records: Any, **options: Any) -> None:
                for moment in (lambda: None, lambda: save(store, records, **options)):
                    moment()
                    saved.append(" ".join(sorted(records)))
                    os.write(writing, f"{saved[-1]}\n".encode())
                    if keep is not None:
                        shutil.copytree(store._path.parents[3], keep / str(len(saved)))
                    if len(saved) == dies_at:
                        os.kill(os.getpid(), signal.SIGKILL)

            RunStore._save = saves  # type: ignore[method-assign]
            run()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        saved = said.read().splitlines()
    _, status = os.waitpid(child, 0)
    assert not dies_at or os.WTERMSIG(status) == signal.SIGKILL, "it died otherwise"
    return saved


def number_of(saved: list[str], what: str, place: int, *, after: bool = True) -> int:
    """The number of a save: of the ``place``-th one of such records, from 1, right after or right before it."""
    return [number for number, one in enumerate(saved, start=1) if one == what][2 * place - 2 + after]


@pytest.fixture
def seen(trial: Trial) -> Watch:
    """A watch that writes down the hash of each vector that a party sent in a session."""
    path = trial.folder / "vectors"

    def hear(party: int, kind: str, content: bytes, said: Said) -> Said:
        if not isinstance(said, Refusal):
            session, messages = read_messages(said)
            with path.open("a") as file:
                for sender, message in messages.items():
                    if sender in CLIENTS and message and carries_vector(message):
                        file.write(f"{session.hex()} {sender} {hashlib.sha256(message).hexdigest()}\n")
        return said

    return hear


def vectors(trial: Trial) -> dict[tuple[str, str], set[str]]:
    """What each party sent as its vector in each session; of a series' sums one each."""
    found = defaultdict[tuple[str, str], set[str]](set)
    for line in (trial.folder / "vectors").read_text().splitlines():
        session, sender, sent = line.split()
        found[session, sender].add(sent)
    return found


def prepared(trial: Trial, settings: Mapping[str, Any]) -> dict[str, Any]:
    learners = 'learners = ["deepafl"]' if "learner" in settings else 'learners = ["afl", "evaluation-of-classes"]'
    edit_all(trial, ('learners = ["afl"]', learners))
    if "epsilon" in settings:
        with_budgets(trial)
    return run_config(**settings)


@contextlib.contextmanager
def as_it_was(trial: Trial) -> Iterator[None]:
    """The trial's folder is as it was before, after the ``with`` block."""
    copy = trial.folder.with_name("copy")
    shutil.copytree(trial.folder, copy)
    yield
    shutil.rmtree(trial.folder)
    copy.rename(trial.folder)


def check(trial: Trial, settings: Mapping[str, Any]) -> None:
    """The model is that of all rows, each site sent one vector a sum and paid once, and nobody keeps a secret."""
    if "epsilon" not in settings:
        is_exact(trial, list(CLIENTS))
    summary = json.loads((trial.folder / "server" / "models" / "rehearsal" / "summary.json").read_text())
    n_sums = len(summary["sums"]) + bool(settings.get("evaluate"))
    sent = vectors(trial)
    for party in CLIENTS:  # a series that is cut off between two sums goes on as another one
        assert sum(len(hashes) for (_, sender), hashes in sent.items() if sender == str(party)) == n_sums, "one a sum"
    assert [site(trial, party).count_totals() for party in (3, 4)] == [(n_sums, 0)] * 2, "others help, too"
    if "epsilon" in settings:
        files = [SiteFile.read(trial.site(party) / "site.toml") for party in CLIENTS]
        assert [len(file.ledger.releases) for file in files if file.ledger] == [n_sums] * 5
    assert is_wiped(trial)
    with closing(sqlite3.connect(trial.folder / STATE)) as state:
        assert {name for (name,) in state.execute("SELECT name FROM records")} == {"run", "ended"}


def survives(trial: Trial, settings: Mapping[str, Any], config: Mapping[str, Any], seen: Watch, number: int) -> None:
    with as_it_was(trial):
        in_a_process(lambda: rehearse(trial.folder, config, hear=seen), dies_at=number)
        rehearse(trial.folder, config, hear=seen)
        check(trial, settings)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_after_its_server_died(trial: Trial, seen: Watch, name: str) -> None:
    """At one save, which differs from run to run; the slow test has all, and ``reliability`` real processes."""
    config = prepared(trial, RUNS[name])
    with as_it_was(trial):
        saved = in_a_process(lambda: rehearse(trial.folder, config, hear=seen))
        check(trial, RUNS[name])
    part = 3 + 2 * (list(RUNS).index(name) % 3)
    survives(trial, RUNS[name], config, seen, len(saved) * part // 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_after_its_server_died_at_any_save(trial: Trial, seen: Watch, name: str) -> None:
    config = prepared(trial, RUNS[name])
    with as_it_was(trial):
        saved = in_a_process(lambda: rehearse(trial.folder, config, hear=seen))
    for number in range(1, len(saved)):  # after the last one the run has ended
        survives(trial, RUNS[name], config, seen, number)


# --- a server whose state was set back: what a malicious one would do with it --------------------------------


def said_by(trial: Trial) -> Callable[..., Said]:
    """A watch that writes down the types of the messages that parties send in a sum.

    Before it a helper announces a bare key, whose bytes are drawn and have no type.
    """

    def hear(party: int, kind: str, content: bytes, said: Said) -> Said:
        if not isinstance(said, Refusal) and kind != CONTEXT:
            with (trial.folder / "said").open("a") as file:
                for sender, message in read_messages(said)[1].items():
                    type_ = message_type(message)
                    file.write(f"{sender} {type_.name if type_ else 'nothing'}\n")
        return said

    return hear


def types(trial: Trial) -> set[str]:
    """The types of the messages that were sent since this was asked last."""
    path = trial.folder / "said"
    found = {line.split()[1] for line in path.read_text().splitlines()} if path.exists() else set()
    path.unlink(missing_ok=True)
    return found


OPENINGS = {"UNMASK_SHARES", "MASK_SUM", "SUM_HASHES"}
"""What takes masks off, or would with what the server has."""


SET_BACK = {
    "masked": [
        (5, 2),  # shares were given for the survivors of one total
        (5, 0),
        (4, 2),  # survivors were signed, and no share was given
        (4, 1),
    ],
    "committee": [
        (5, 0),  # sums of masks were given
        (4, 0),
        (3, 0),  # helpers signed survivors
        (2, 0),  # helpers opened their seeds
    ],
}
"""Right before which save of its session a server dies, and to which it is set back; 0 is before its first one."""


@pytest.mark.parametrize("mode", SET_BACK)
def test_a_server_that_is_set_back_opens_no_second_set_of_survivors(trial: Trial, tmp_path: Path, mode: str) -> None:
    """Its state is one of before, and it hides a site, so that it would ask for the masks of the other four."""
    config, kept = run_config(mode=mode, **{"min-survivors": 3}), tmp_path / "kept"
    saved = in_a_process(lambda: rehearse(trial.folder, config, hear=said_by(trial)), keep=kept)
    for dies, back in SET_BACK[mode]:
        dies_at = number_of(saved, "session", dies, after=False)
        back_to = number_of(saved, "session", back) if back else number_of(saved, "addresses", 2, after=False)
        shutil.rmtree(trial.folder)
        shutil.copytree(kept / str(dies_at), trial.folder)
        assert bool(types(trial) & {"UNMASK_SHARES", "MASK_SUM"}) == (dies == 5), "that it had its one opening, or not"
        shutil.copy(kept / str(back_to) / STATE, trial.folder / STATE)
        with pytest.raises((SecureSumError, DeploymentError)):
            rehearse(trial.folder, config, hear=said_by(trial), is_gone=lambda party, kind: party == 5 and kind != END)
        assert not types(trial) & OPENINGS
        assert is_wiped(trial)


def test_a_server_that_is_set_back_after_a_certified_failure_gets_no_total(trial: Trial, tmp_path: Path) -> None:
    """Helpers signed that the sum failed, and its rows are free; so nothing of it may come out any more."""
    config, kept = run_config(mode="committee", **{"min-survivors": 3}), tmp_path / "kept"
    too_few = declining(3, 4, 5)  # which is what the server finds; helpers are at sites 1 and 2
    saved = in_a_process(lambda: rehearse(trial.folder, config, hear=too_few), keep=kept)
    assert events(trial)[-1]["kind"] == "TooFewSurvivorsError"
    assert [event["certified"] for event in events(trial) if event["event"] == "failure"] == [True]
    assert [site(trial, party).count_totals() for party in CLIENTS] == [(0, 0)] * 5
    back_to = number_of(saved, "session sum", 2)
    shutil.copy(kept / str(back_to) / STATE, trial.folder / STATE)
    with pytest.raises((SecureSumError, DeploymentError)):
        rehearse(trial.folder, config, hear=said_by(trial))
    assert not types(trial)


# --- a run that failed -------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", range(1, 5))
def test_a_failure_is_certified_although_the_server_dies_meanwhile(trial: Trial, place: int) -> None:
    """All sites sent their vectors and too few arrived: rows are free again, whenever the server died."""
    config = run_config(mode="committee", **{"min-survivors": 3})
    too_few = declining(3, 4, 5)
    with as_it_was(trial):
        saved = in_a_process(lambda: rehearse(trial.folder, config, hear=too_few))
    assert "addresses failed session" in saved
    in_a_process(
        lambda: rehearse(trial.folder, config, hear=too_few), dies_at=saved.index("addresses failed session") + place
    )
    if place < 3:
        assert [site(trial, party).count_totals()[0] for party in CLIENTS] == [1] * 5
    with pytest.raises((SecureSumError, DeploymentError)):
        rehearse(trial.folder, config, hear=too_few)
    assert [site(trial, party).count_totals() for party in CLIENTS] == [(0, 0)] * 5
    assert is_wiped(trial)
    rehearse(trial.folder, config)
    is_exact(trial, list(CLIENTS))


def test_a_run_goes_on_with_its_own_settings_only(trial: Trial) -> None:
    config = run_config(mode="masked")
    with as_it_was(trial):
        saved = in_a_process(lambda: rehearse(trial.folder, config))
    in_a_process(lambda: rehearse(trial.folder, config), dies_at=number_of(saved, "session", 3))
    with pytest.raises(RunSettingsError, match="holds a run that has not ended, of other settings"):
        rehearse(trial.folder, run_config(mode="masked", ridge=0.5))
    rehearse(trial.folder, config)
    is_exact(trial, list(CLIENTS))


def test_a_node_may_have_any_number(tmp_path: Path) -> None:
    """Flower's take 64 bits."""
    addresses = NodeAddresses(node_of={1: 2**64 - 1, 2**32 - 1: 0}, n_invited=2)
    with RunStore.opened(tmp_path) as store:
        store.keep_addresses(addresses)
        assert store.addresses == addresses


def test_a_later_run_tells_the_sites_of_one_that_failed(trial: Trial) -> None:
    """The server died when its run had failed; the next run is another one."""
    config = run_config(mode="committee", **{"min-survivors": 3})
    too_few = declining(3, 4, 5)
    with as_it_was(trial):
        saved = in_a_process(lambda: rehearse(trial.folder, config, hear=too_few))
    in_a_process(
        lambda: rehearse(trial.folder, config, hear=too_few), dies_at=saved.index("addresses failed session") + 2
    )
    models = trial.folder / "server" / "models"
    (models / "rehearsal").rename(models / "earlier")
    assert [site(trial, party).count_totals()[0] for party in CLIENTS] == [1] * 5
    server = ServerFile.read(trial.folder / "server" / "server.toml")
    assert folder_of(config, server, "next") == models / "earlier"
    other = config | {"ridge": 0.5}
    assert folder_of(other, server, "next") == models / "next"
    rehearse(trial.folder, other)
    assert RunStore.left(models) == []
    assert [site(trial, party).count_totals()[0] for party in CLIENTS] == [2, 2, 1, 1, 1], "helpers helped once, too"
    is_exact(trial, list(CLIENTS))


@pytest.mark.parametrize(("mode", "lost"), [("committee", (3, 4, 5)), ("bfv", (2, 3, 4))])
def test_a_site_that_misses_the_end_is_told_later(trial: Trial, mode: str, lost: tuple[int, ...]) -> None:
    """Its vector left and was lost, and it is away when the others hear of the certificate."""
    if missing := MODES[mode].missing_extra:
        pytest.skip(f"needs {missing}")
    config, models = run_config(mode=mode, **{"min-survivors": 3}), trial.folder / "server" / "models"
    vectors_lost = declining(*lost, to=(INVITE,))
    with pytest.raises(TooFewSurvivorsError):
        rehearse(trial.folder, config, hear=vectors_lost, is_gone=lambda party, kind: (party, kind) == (4, END))
    assert events(trial)[-2] | {"seconds": 0} == {"seconds": 0, "event": "not told", "nodes": 1}
    assert [site(trial, party).count_totals()[0] for party in CLIENTS] == [0, 0, 0, 1, 0]
    with pytest.raises(StoppedRunError, match=r"TooFewSurvivorsError.*begin another run, under another name"):
        rehearse(trial.folder, config, is_gone=lambda party, kind: party == 4)
    assert events(trial)[-2] | {"seconds": 0} == {"seconds": 0, "event": "not told", "nodes": 1}
    (models / "rehearsal").rename(models / "before")
    server = ServerFile.read(trial.folder / "server" / "server.toml")
    assert folder_of(config, server, "next") == models / "next", "it is a run by itself"
    rehearse(trial.folder, config)
    assert RunStore.left(models) == []
    is_exact(trial, list(CLIENTS))
    assert site(trial, 4).count_totals()[0] == 1
    assert is_wiped(trial)


def test_who_was_invited_before_the_server_died_is_told_of_a_failure(trial: Trial) -> None:
    """A site sent its vector to a process that died at once; to the next one it is nobody, and is told all the same."""
    config, models = run_config(mode="committee", **{"min-survivors": 3}), trial.folder / "server" / "models"
    with as_it_was(trial):
        saved = in_a_process(lambda: rehearse(trial.folder, config))
    in_a_process(lambda: rehearse(trial.folder, config), dies_at=number_of(saved, "addresses", 2, after=False))
    assert events(trial)[-1]["event"] == "round closes"
    with pytest.raises(TooFewSurvivorsError):
        rehearse(trial.folder, config, hear=declining(3, 4, to=(INVITE,)), n_online=(4,))
    assert [site(trial, party).count_totals()[0] for party in CLIENTS] == [0, 0, 0, 0, 1]
    (models / "rehearsal").rename(models / "before")
    rehearse(trial.folder, config)
    assert [site(trial, party).count_totals()[0] for party in CLIENTS] == [2, 2, 1, 1, 1]
    assert is_wiped(trial)


def test_one_process_works_on_a_run(trial: Trial) -> None:
    folder = trial.folder / "server" / "models" / "rehearsal"
    with RunStore.opened(folder) as store:
        assert (folder / FILE).stat().st_mode & 0o777 == 0o600
        store.begin({}, moment="")
        with pytest.raises(DeploymentError, match="another process works on the run"):
            rehearse(trial.folder, run_config(mode="masked"))
