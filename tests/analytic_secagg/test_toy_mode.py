"""A mode of another package whose helper has a role of its own, through everything that knows modes.

It is in ``support/stranger/veiled.py``, and no file of ours names it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.collusion import coalitions, wrongly_stated
from support.installed import importable, install, install_stranger
from support.parties import garbled, knows
from support.rehearsed import CLIENTS as SITES
from support.rehearsed import (
    announced,
    assert_trained_by_processes,
    edit,
    is_exact,
    proposal,
    rehearse,
    run_config,
    site,
)

from analytic.extensions import Group
from analytic_secagg.__main__ import main as command
from analytic_secagg.datasets import bundled
from analytic_secagg.modes import Mode, find_mode
from analytic_secagg.site.errors import DeclinedError, SiteFileError
from analytic_secagg.site.key_files import read_secret, write_secret
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from secagg import Layout, PartyId, run_in_memory
from secagg.config import SERVER
from secagg.errors import ConfigurationError, LocalProtocolError, PolicyError
from secagg.policy import ClientPolicy
from secagg.primitives.identity import IdentityKey
from secagg.sums import CLIENT_ROLE
from simulations.__main__ import main
from simulations.audit.attack import Expectation
from simulations.audit.catalogue import ATTACKS

VEILER_ROLE = "veiler"
VEILER: PartyId = 301
LAYOUT = Layout.of([("entries", 3, 1000)])
COHORT = (1, 2, 3, 4, 5)


@pytest.fixture
def mode(tmp_path: Path) -> Iterator[Mode]:
    """The mode, found by its entry point."""
    with importable(tmp_path / "site-packages") as folder:
        install_stranger(folder)
        yield find_mode("veiled")


def test_it_adds_up_in_one_process_and_costs_what_it_says(mode: Mode) -> None:
    parties = mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16))
    vectors = {party: np.array([party, -party, 7]) for party in COHORT}
    run = run_in_memory(parties, vectors, dropouts={3: 0})
    assert run.result.survivors == (1, 2, 4, 5)
    assert run.result.total.tolist() == [12, -12, 28]
    whole = run_in_memory(mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16)), vectors).traffic
    for role, party in ((CLIENT_ROLE, 1), (VEILER_ROLE, parties.helpers[0])):
        cost = parties.protocol.costs[role]
        assert (whole[party].bytes_up, whole[party].bytes_down) == (cost.bytes_up, cost.bytes_down)


def test_a_policy_judges_it_by_its_own_word(mode: Mode) -> None:
    protocol = mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16)).protocol
    accepts = ClientPolicy(modes=frozenset({"veiled"}), helpers=protocol.public_keys[VEILER_ROLE])
    accepts.check(protocol)
    with pytest.raises(PolicyError, match="1 of the 1 veilers have another key"):
        replace(accepts, helpers={protocol.helpers[0]: bytes(32)}).check(protocol)
    with pytest.raises(PolicyError, match="that 3 colluding clients"):
        replace(accepts, min_corruption=0.6).check(protocol)
    with pytest.raises(PolicyError, match="in masked only"):
        ClientPolicy().check(protocol)


def test_comparisons_and_the_audit_take_it_by_its_name(mode: Mode, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--modes", "plain,veiled", "--clients", "5", "--dropout", "0.2"]) == 0
    assert "all 2 runs equal the pooled model of the surviving clients, bit for bit" in capsys.readouterr().out
    few = ["--attacks", "label_histogram,uniformity", "--epsilon", "none", "--cohorts", "3", "--sessions", "1"]
    assert main(["audit", "--modes", "plain,veiled", *few, "--clients", "10"]) == 0
    assert "Messages (veiled): whoever sees a client's message learnt nothing" in capsys.readouterr().out


def deployed(trial: Trial, *, sites: tuple[PartyId, ...] = SITES) -> None:
    """Give a trial a veiler: in every roster, and in the file of site 2."""
    own = IdentityKey.generate()
    for path in trial.folder.glob("*/roster.toml"):
        roster = Roster.read(path)
        beside = {**roster.beside, "veilers": {VEILER: own.public}}
        path.write_text(roster.model_copy(update={"beside": beside}).to_toml())
    write_secret(trial.folder / "site-2" / "veiler.key", own.secret)
    with (trial.folder / "site-2" / "site.toml").open("a") as file:
        file.write(f'\n[veiler]\nparty = {VEILER}\nidentity = "veiler.key"\n')
    for party in sites:
        edit(trial, party, ("modes = [", 'modes = ["veiled", '))


def test_a_rehearsal_whose_sites_know_nothing_but_their_files_is_exact(mode: Mode, trial: Trial) -> None:
    """Each delivery is a fresh process, and comes twice: sessions are stored, restored and repeat themselves."""
    deployed(trial)
    rehearse(trial.folder, run_config(mode="veiled"), deliveries=2)
    is_exact(trial, list(SITES))


def test_a_veiler_that_was_killed_answers_the_same_and_nothing_else(mode: Mode, trial: Trial) -> None:
    deployed(trial)
    proposed = announced(trial, proposal(mode="veiled", helpers=(VEILER,), min_survivors=3))
    joined = {party: message for number in SITES for party, message in site(trial, number).join(proposed).items()}
    agreed = Session.of(proposed, Roster.read(trial.folder / "server" / "roster.toml"))
    own = IdentityKey(read_secret(trial.folder / "server" / "identity.key"))
    server = agreed.protocol.server(secrets=knows(own))
    for party in agreed.protocol.clients:
        server.receive(party, joined[party])
    (request,) = server.close_round().values()
    answer = site(trial, 2).answer(proposed.session, {VEILER: request})
    assert site(trial, 2).answer(proposed.session, {VEILER: request}) == answer
    with pytest.raises(LocalProtocolError, match="answers once"):
        site(trial, 2).answer(proposed.session, {VEILER: garbled(request, -1, 1, {SERVER: own})})


def test_a_trial_of_processes_has_a_veiler(mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local engine: each party is a process that finds the package as any process does."""
    path = [str(tmp_path / "site-packages"), str(Path(__file__).parents[2])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    iris = bundled("iris")
    trial = Trial.create(tmp_path / "trial", iris, n_sites=4, n_helpers=0, are_rows_public=True)
    deployed(trial, sites=(1, 2, 3, 4))
    assert_trained_by_processes(trial, iris, learner="afl", mode="veiled")


def test_who_does_not_name_the_mode_reads_the_roster_and_imports_nothing(
    mode: Mode, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed(trial)
    edit(trial, 3, ('modes = ["veiled", ', "modes = ["))
    edit(trial, 2, ('modes = ["veiled", ', "modes = ["))
    roster = trial.folder / "server" / "roster.toml"
    del sys.modules["veiled"]
    assert SiteFile.read(trial.site(3) / "site.toml").roster.beside["veilers"].keys() == {VEILER}
    assert command(["roster", str(roster)]) == 0
    assert "1 veilers" in capsys.readouterr().out
    with pytest.raises(SiteFileError, match="no place for veiler"):
        site(trial, 2)
    assert "veiled" not in sys.modules


def test_a_roster_keeps_its_parties_and_a_role_its_number(mode: Mode, trial: Trial) -> None:
    path = trial.folder / "server" / "roster.toml"
    before = Roster.read(path)
    deployed(trial)
    roster = Roster.read(path)
    assert Roster.read(path).to_toml() == path.read_text()
    assert "[beside.veilers]" in path.read_text()
    assert roster.fingerprint != before.fingerprint
    path.write_text(f'{path.read_text()}302 = "{IdentityKey.generate().public.hex()}"\n')
    with pytest.raises(ConfigurationError, match=r"\[veilers\] names one party, not 2"):
        rehearse(trial.folder, run_config(mode="veiled"))


def test_two_roles_never_share_a_table(mode: Mode, trial: Trial, tmp_path: Path) -> None:
    role = "HelperRole(name='aide', table='helpers')"
    source = f"from veiled import *\nMODE = Mode(name='other', make=make, helper={role})"
    install(tmp_path / "site-packages", "other", {Group.MODES: {"other": "other:MODE"}}, [("other", source)])
    edit(trial, 1, ("modes = [", 'modes = ["other", '))
    with pytest.raises(SiteFileError, match="the mode other has the role aide, whose table helpers another role has"):
        site(trial, 1)


def test_a_site_that_does_not_list_the_mode_declines(mode: Mode, trial: Trial) -> None:
    deployed(trial)
    edit(trial, 3, ('modes = ["veiled", ', "modes = ["))
    with pytest.raises(DeclinedError, match="which this site's file does not name"):
        site(trial, 3).join(announced(trial, proposal(mode="veiled", helpers=(VEILER,), min_survivors=3)))


def test_it_breaks_where_it_says_and_the_audit_expects_that_it_hides(mode: Mode) -> None:
    parties = mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16))
    assert {stated for _, stated in coalitions(parties.protocol)} == {True, False}
    assert wrongly_stated(parties, {party: np.array([party, -party, 7]) for party in COHORT}) == []
    assert ATTACKS["label_histogram"].expected(mode) is Expectation.HIDDEN
