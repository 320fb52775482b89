"""A whole run: nodes that come late or miss a message, quorums, progress, totals that are not released."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.extras import needs
from support.rehearsed import (
    agree_on,
    announced,
    declining,
    edit_all,
    events,
    few_rows,
    is_exact,
    is_wiped,
    misses,
    proposal,
    rehearse,
    run_config,
    site,
    vanishes,
    without_client,
)

from analytic.learner import ClientRows
from analytic.model_files import load_model
from analytic_secagg.datasets import bundled
from analytic_secagg.errors import FederationError
from analytic_secagg.release import ReleaseRefusedError
from analytic_secagg.server.exchange import Exchange
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.site.errors import RunSettingsError, UnreachableError
from analytic_secagg.site.messages import CONTEXT, END, INVITE, STEP
from analytic_secagg.site.roster import Roster
from analytic_secagg.trial import Trial, fitted_settings
from secagg import Layout
from secagg.errors import TooFewSurvivorsError
from secagg.masked.client import MaskedClient
from secagg.masked.messages import UnmaskShares
from secagg.primitives.identity import SIGNATURE_BYTES
from secagg.primitives.shamir import SHARE_BYTES
from secagg.wire import HEADER_BYTES, Reader


def test_a_key_holder_that_missed_its_last_word_as_a_client_still_decrypts(trial: Trial) -> None:
    """Node 5 is lost when survivors are agreed on; the next round asks it alone."""
    needs("tenseal")
    rehearse(trial.folder, run_config(mode="masked+bfv"), is_gone=misses(5, STEP, 4))
    is_exact(trial, [1, 2, 3, 4, 5])


def test_the_end_reaches_whoever_was_lost(trial: Trial) -> None:
    asked = []

    def tell(party: int, kind: str, content: bytes) -> bytes:
        if kind == END:
            asked.append(party)
        return content

    rehearse(trial.folder, run_config(), is_gone=misses(5, STEP, 3, 4), tell=tell)
    assert asked == list(trial.rows)
    asked.clear()
    with pytest.raises(TooFewSurvivorsError):
        rehearse(trial.folder, run_config(), hear=declining(*trial.rows, to=(STEP,)), tell=tell)
    assert asked == list(trial.rows)


@pytest.mark.parametrize("mode", ["plain", "masked", "ckks", "masked+bfv"])
def test_a_sum_waits_for_those_who_gave_no_answer(trial: Trial, mode: str) -> None:
    """No helper can certify that it failed, and vectors have left: its session goes on once they are back."""
    edit_all(trial, ("modes = [", 'modes = ["plain", '))
    for _ in range(2):
        with pytest.raises((TooFewSurvivorsError, UnreachableError)):
            rehearse(trial.folder, run_config(mode=mode), is_gone=lambda party, kind: party > 2 and kind != CONTEXT)
    first, *_ = (event["session"] for event in events(trial) if event["event"] == "goes on")
    rehearse(trial.folder, run_config(mode=mode))
    is_exact(trial, [1, 2, 3, 4, 5])
    assert {event["session"] for event in events(trial) if event["event"] == "goes on"} == {first}
    assert [site(trial, party).count_totals() for party in (1, 2, 3, 4)] == [(1, 0)] * 4
    assert is_wiped(trial)


@pytest.mark.parametrize(("mode", "party", "kind", "n"), [("committee", 2, STEP, 2), ("bfv", 5, STEP, 3)])
def test_whoever_nobody_can_do_without_is_asked_again_and_again(
    trial: Trial, mode: str, party: int, kind: str, n: int
) -> None:
    rehearse(trial.folder, run_config(mode=mode), is_gone=misses(party, kind, *range(1, n + 1)))
    is_exact(trial, [1, 2, 3, 4, 5])
    found = list(events(trial))
    lost = [event for event in found if event["event"] == "node lost"]
    assert len(lost) == n
    places = {event["party"]: event["node"] for event in found if event["event"] == "party"}
    assert all(places[at] == event["node"] for event in lost for at in event["parties"]), "named alike"
    assert all(party in event["parties"] for event in lost)


@pytest.mark.parametrize(("mode", "n_online"), [("bfv", (4, 5)), ("masked", (4, 5)), ("bfv", (1, 2, 4, 5))])
def test_nodes_that_come_while_a_sum_begins_are_in_it(trial: Trial, mode: str, n_online: tuple[int, ...]) -> None:
    """Four nodes are waited for; the fifth, where the key holder is, is there a moment later."""
    rehearse(trial.folder, run_config(mode=mode, nodes=4), n_online=n_online)
    is_exact(trial, [1, 2, 3, 4, 5])
    assert next(event for event in events(trial) if event["event"] == "nodes")["online"] == 4


def test_a_run_without_nodes_says_so(trial: Trial) -> None:
    with pytest.raises(UnreachableError, match="no node is online after 30 seconds; start the nodes"):
        rehearse(trial.folder, run_config(**{"join-seconds": 30.0}), n_online=(0,))


def test_a_run_begins_with_whoever_came(trial: Trial) -> None:
    rehearse(trial.folder, run_config(), n_online=(1, 3, 4))
    is_exact(trial, [1, 2, 3, 4])


@pytest.mark.parametrize("mode", ["masked", "masked+bfv"])
def test_a_quorum_is_the_same_number_in_every_round(trial: Trial, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Three quarters of five nodes are four, also when only four are left to ask."""
    enough = noted_quorums(monkeypatch)
    rehearse(trial.folder, run_config(mode=mode, quorum=0.75), is_gone=vanishes(4, INVITE))
    is_exact(trial, [1, 2, 3, 5])
    rounds = ["INVITATION", "ROSTER", "SHARE_DELIVERY", "UNMASK_REQUEST", "SURVIVOR_PROOF"]
    assert {title: enough[title] for title in rounds} == dict.fromkeys(rounds, 4)
    assert enough.get("DECRYPTION_REQUEST", 1) == 1


def noted_quorums(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many answers each round asks for, by the round's name."""
    enough: dict[str, int] = {}
    ask = Exchange.ask

    def noted(self: Exchange, title: str, kind: str, contents: Any, take: Any, deadlines: Any) -> None:
        enough[title] = math.ceil(deadlines.quorum * (deadlines.of or len(contents)))
        ask(self, title, kind, contents, take, deadlines)

    monkeypatch.setattr(Exchange, "ask", noted)
    return enough


def test_a_node_that_has_no_part_does_not_raise_the_quorum(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node 6 is a helper's host, and no sum of the mode masked has helpers: nine tenths of five are five, not six."""
    shutil.copytree(trial.folder / "site-1", trial.folder / "site-6")
    without_client(trial, 6)
    enough = noted_quorums(monkeypatch)
    rehearse(trial.folder, run_config(mode="masked", quorum=0.9))
    is_exact(trial, [1, 2, 3, 4, 5])
    rounds = ["INVITATION", "ROSTER", "SHARE_DELIVERY", "UNMASK_REQUEST", "SURVIVOR_PROOF"]
    assert {title: enough[title] for title in rounds} == dict.fromkeys(rounds, 5)


def test_a_total_from_which_rows_can_be_rebuilt_makes_no_model(trial: Trial) -> None:
    few_rows(trial)
    with pytest.raises(ReleaseRefusedError, match="rank: the total has rank"):
        rehearse(trial.folder, run_config(mode="committee"))
    assert not (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()


def test_sites_with_more_rows_than_their_share_of_the_run_s_send_nothing(
    trial: Trial, caplog: pytest.LogCaptureFixture
) -> None:
    """1437 rows of five sites, 288 at the largest: no sum is made of more rows than it has room for."""
    with caplog.at_level("WARNING"), pytest.raises(UnreachableError):
        rehearse(trial.folder, run_config(mode="committee", **{"max-rows": 5 * 287 - 1}))
    said = "one client may hold 286 rows, an equal share of the 1434 of all 5 clients, and these 288 are more"
    assert f"{said}; give fewer, or have max_rows (the run's max-rows) raised to 1440" in caplog.text
    assert [site(trial, party).count_totals() for party in trial.rows] == [(0, 0)] * 5
    shutil.rmtree(trial.folder / "server" / "models" / "rehearsal")
    rehearse(trial.folder, run_config(mode="committee", **{"max-rows": 1440}))
    is_exact(trial, [1, 2, 3, 4, 5])


def test_a_roster_and_a_run_agree_on_the_rows_that_there_is_room_for(trial: Trial) -> None:
    """The server refuses before the first sum; a site whose roster allows more than a learner has room for refuses."""
    proposed = announced(trial, proposal(mode="committee", helpers=(101, 102), min_survivors=3))
    room = RunSettings.of(template_settings()).max_rows
    for place in ("server", *(f"site-{party}" for party in trial.rows)):
        path = trial.folder / place / "roster.toml"
        path.write_text(Roster.read(path).model_copy(update={"max_client_rows": room // 5 + 1}).to_toml())
    with pytest.raises(RunSettingsError, match=rf"max-rows must .* the {room // 5 + 1} rows .* 5 .* lower max_client"):
        rehearse(trial.folder, run_config(mode="committee"))
    with pytest.raises(
        FederationError, match=rf"5 clients of {room // 5 + 1} rows .* lower max_client_rows to {room // 5}"
    ):
        site(trial, 1).join(proposed)
    with pytest.raises(
        RunSettingsError, match=r"max-rows must have room .* 5 clients may hold, 5 in all, not 4: raise"
    ):
        RunSettings.of(run_config(**{"max-rows": 4})).check_roster(
            Roster.read(trial.folder / "site-1" / "roster.toml").model_copy(update={"max_client_rows": None})
        )


def test_such_a_total_can_be_allowed_by_name(trial: Trial) -> None:
    few_rows(trial)
    agree_on(trial, min_class_rows=1)
    rehearse(trial.folder, run_config(mode="committee", **{"allow-low-rank": True}))
    assert (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()
    assert {event["gate"] for event in events(trial) if event["event"] == "concern"} == {"rank", "membership"}


def test_a_column_without_spread_in_the_total_is_said_at_the_server(tmp_path: Path) -> None:
    """1e9 + {0, 1, 2} is a constant in every format, and the operator, who has no row, is told all the same."""
    trial = Trial.create(tmp_path / "trial", bundled("iris"), n_sites=4, n_helpers=0, are_rows_public=True)
    edit_all(trial, ('learners = ["afl"]', 'learners = ["agreed-afl"]'))
    for party, rows in trial.rows.items():
        features = rows.features.copy()
        features[:, 2] = 1e9 + np.arange(len(rows)) % 3
        trial.give_rows(party, ClientRows(features, rows.targets))
    rehearse(
        trial.folder,
        template_settings()
        | fitted_settings(bundled("iris"), 4)
        | {"feature-format": "standardised", "mode": "masked"},
    )
    (said,) = (event for event in events(trial) if event["event"] == "no spread")
    assert said["columns"] == [2]
    assert "agree on an offset" in said["remedy"]


def one_of_class_nine(trial: Trial) -> None:
    """One row of class 9 among all sites, at site 1."""
    for party in trial.rows:
        path = trial.folder / f"site-{party}" / "rows.npz"
        with np.load(path) as archive:
            arrays = dict(archive)
        nines = np.flatnonzero(arrays["y_train"] == 9)
        left_out = nines[1:] if party == 1 else nines
        arrays |= {name: np.delete(arrays[name], left_out, axis=0) for name in ("x_train", "y_train")}
        np.savez(path, **arrays)


def test_a_class_of_one_row_makes_no_model_unless_the_owners_agreed(trial: Trial) -> None:
    one_of_class_nine(trial)
    with pytest.raises(ReleaseRefusedError, match="class rows: 1 of 10 classes have fewer than 5 rows"):
        rehearse(trial.folder, run_config())
    models = trial.folder / "server" / "models" / "rehearsal"
    assert not (models / "model.safetensors").exists()
    assert not (models / "totals.safetensors").exists()


def test_owners_agree_on_the_fewest_rows_of_a_class_in_their_roster(trial: Trial) -> None:
    one_of_class_nine(trial)
    before = Roster.read(trial.folder / "site-1" / "roster.toml")
    agree_on(trial, min_rows=1000, min_class_rows=1)
    after = Roster.read(trial.folder / "site-1" / "roster.toml")
    assert (after.min_rows, after.min_class_rows) == (1000, 1)
    assert len({before.fingerprint, after.fingerprint, after.model_copy(update={"min_rows": None}).fingerprint}) == 3
    rehearse(trial.folder, run_config())
    assert (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()


def test_a_run_says_whose_shares_were_wrong(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Site 2 reveals what is no share; the total stands without it, and the run's log names both ends."""
    honest = MaskedClient._revealed

    def lying(client: MaskedClient) -> Any:
        payload, vector = honest(client)
        said = UnmaskShares.read(Reader(memoryview(payload), peer=client.party))
        wrong = dict.fromkeys(said.self_mask_shares, b"\xff" * SHARE_BYTES)
        return (payload if client.party != 2 else replace(said, self_mask_shares=wrong).to_payload()), vector

    monkeypatch.setattr(MaskedClient, "_revealed", lying)
    rehearse(trial.folder, run_config())
    is_exact(trial, [1, 2, 3, 4, 5])
    said = [(event["owner"], event["holder"]) for event in events(trial) if event["event"] == "wrong share"]
    assert said == [(owner, 2) for owner in trial.rows]


def test_progress_counts_arrivals_bytes_and_deadlines(trial: Trial) -> None:
    rehearse(trial.folder, run_config())
    rounds = [event["round"] for event in events(trial) if event["event"] == "round opens"]
    assert rounds == ["INVITATION", "ROSTER", "SHARE_DELIVERY", "UNMASK_REQUEST", "SURVIVOR_PROOF", "END"]
    closed = {event["round"]: event for event in events(trial) if event["event"] == "round closes"}
    assert all((event["arrived"], event["expected"]) == (5, 5) for event in closed.values())
    learner = load_model(trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").learner
    spec = learner.next_sum(learner.init())
    assert spec is not None
    assert closed["SHARE_DELIVERY"]["bytes"] == 5 * (
        HEADER_BYTES + Layout.of(spec.segments).wire_bytes + SIGNATURE_BYTES
    )
    deadlines = {event["deadline_seconds"] for event in events(trial) if event["event"] == "round opens"}
    assert deadlines == {120.0}
