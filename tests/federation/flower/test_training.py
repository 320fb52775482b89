"""A whole run's patience: nodes that come late, nodes that die where nobody can do without them, quorums."""

from __future__ import annotations

import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from rehearsed import CONTEXT, END, INVITE, STEP, events, is_exact, node_of, run_config, vanishes

from federation.flower import rehearsal
from federation.flower.rehearsal import InProcessGrid, rehearse
from federation.release import ReleaseRefusedError
from federation.server.exchange import Exchange
from federation.site.errors import UnreachableError
from federation.trial import Trial
from secagg.errors import TooFewSurvivorsError
from secagg.masked.client import MaskedClient
from secagg.masked.messages import UnmaskShares
from secagg.primitives.shamir import SHARE_BYTES
from secagg.wire import Reader


def misses(party: int, kind: str, *numbers: int) -> Callable[[int, Message], bool]:
    """A fault: this party's node is gone when these of its messages of a kind come, and there for all others."""
    seen: Counter[str] = Counter()

    def is_gone(node: int, message: Message) -> bool:
        if node != node_of(party):
            return False
        seen[message.metadata.message_type] += 1
        return message.metadata.message_type == kind and seen[kind] in numbers

    return is_gone


def arrivals(monkeypatch: pytest.MonkeyPatch, n_online: list[int]) -> None:
    """Nodes that are online one after the other: so many at each look, in the end the last number."""

    class Arriving(InProcessGrid):
        def get_node_ids(self) -> Iterable[int]:
            now = n_online.pop(0) if len(n_online) > 1 else n_online[0]
            return list(super().get_node_ids())[:now]

    monkeypatch.setattr(rehearsal, "InProcessGrid", Arriving)


def test_a_key_holder_that_missed_its_last_word_as_a_client_still_decrypts(trial: Trial, tmp_path: Path) -> None:
    """Node 5 is lost when survivors are agreed on; the next round asks it alone."""
    rehearse(trial.folder, run_config(tmp_path, mode="masked+bfv"), is_gone=misses(5, STEP, 4))
    is_exact(trial, [1, 2, 3, 4, 5])


def test_the_end_reaches_whoever_was_lost(trial: Trial, tmp_path: Path) -> None:
    asked = []

    def watch(node: int, message: Message, reply: Message) -> None:
        if message.metadata.message_type == END:
            asked.append(node)

    rehearse(trial.folder, run_config(tmp_path), is_gone=misses(5, STEP, 3, 4), watch=watch)
    assert asked == [node_of(party) for party in trial.rows]
    asked.clear()
    config, nobody_is_there = run_config(tmp_path / "2"), lambda node, message: message.metadata.message_type == STEP
    with pytest.raises(TooFewSurvivorsError):
        rehearse(trial.folder, config, is_gone=nobody_is_there, watch=watch)
    assert asked == [node_of(party) for party in trial.rows]


@pytest.mark.parametrize(
    ("mode", "party", "kind", "numbers"),
    [
        ("committee", 2, INVITE, (1, 2)),
        ("committee", 2, STEP, (1, 2)),
        ("bfv", 5, CONTEXT, (1, 2)),
        ("bfv", 5, INVITE, (1,)),
        ("bfv", 5, STEP, (1, 2, 3)),
    ],
)
def test_a_helper_or_key_holder_that_died_is_asked_again(
    trial: Trial, tmp_path: Path, mode: str, party: int, kind: str, numbers: tuple[int, ...]
) -> None:
    rehearse(trial.folder, run_config(tmp_path, mode=mode), is_gone=misses(party, kind, *numbers))
    is_exact(trial, [1, 2, 3, 4, 5])
    lost = [event for event in events(trial) if event["event"] == "node lost"]
    assert len(lost) == len(numbers)


@pytest.mark.parametrize(("mode", "number"), [("masked", 2), ("committee", 1)])
def test_a_client_that_died_while_it_answered_is_a_dropout(
    trial: Trial, tmp_path: Path, mode: str, number: int
) -> None:
    kind = STEP if mode == "masked" else INVITE
    rehearse(trial.folder, run_config(tmp_path, mode=mode), is_gone=misses(4, kind, number))
    is_exact(trial, [1, 2, 3, 5])


@pytest.mark.parametrize(("mode", "n_online"), [("bfv", [4, 5]), ("masked", [4, 5]), ("bfv", [1, 2, 4, 5])])
def test_nodes_that_come_while_a_sum_begins_are_in_it(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, n_online: list[int]
) -> None:
    """Four nodes are waited for; the fifth, where the key holder is, is there a moment later."""
    arrivals(monkeypatch, n_online)
    rehearse(trial.folder, run_config(tmp_path, mode=mode) | {"nodes": 4})
    is_exact(trial, [1, 2, 3, 4, 5])
    assert next(event for event in events(trial) if event["event"] == "nodes")["online"] == 4


def test_a_run_without_nodes_says_so(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals(monkeypatch, [0])
    with pytest.raises(UnreachableError, match="no node is online after 30 seconds; start the nodes"):
        rehearse(trial.folder, run_config(tmp_path) | {"join-seconds": 30.0})


def test_a_run_begins_with_whoever_came(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrivals(monkeypatch, [1, 3, 4])
    rehearse(trial.folder, run_config(tmp_path))
    is_exact(trial, [1, 2, 3, 4])


@pytest.mark.parametrize("mode", ["masked", "masked+bfv"])
def test_a_quorum_is_the_same_number_in_every_round(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Three quarters of five nodes are four, also when only four are left to ask."""
    enough = noted_quorums(monkeypatch)
    rehearse(trial.folder, run_config(tmp_path, mode=mode, quorum=0.75), is_gone=vanishes(4, INVITE))
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


def test_a_node_that_has_no_part_does_not_raise_the_quorum(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Node 6 is a helper's host, and no sum of the mode masked has helpers: nine tenths of five are five, not six."""
    shutil.copytree(trial.folder / "site-1", trial.folder / "site-6")
    path = trial.folder / "site-6" / "site.toml"
    path.write_text(re.sub(r"\[client\].*?\n\n", "", path.read_text(), flags=re.DOTALL))
    enough = noted_quorums(monkeypatch)
    rehearse(trial.folder, run_config(tmp_path, mode="masked", quorum=0.9))
    is_exact(trial, [1, 2, 3, 4, 5])
    rounds = ["INVITATION", "ROSTER", "SHARE_DELIVERY", "UNMASK_REQUEST", "SURVIVOR_PROOF"]
    assert {title: enough[title] for title in rounds} == dict.fromkeys(rounds, 5)


def few_rows(trial: Trial) -> None:
    """Six rows at each site: together far fewer than there are features."""
    for party in trial.rows:
        path = trial.folder / f"site-{party}" / "rows.npz"
        with np.load(path) as archive:
            arrays = {name: archive[name][:6] for name in archive}
        np.savez(path, **arrays)


def test_a_total_from_which_rows_can_be_rebuilt_makes_no_model(trial: Trial, tmp_path: Path) -> None:
    few_rows(trial)
    with pytest.raises(ReleaseRefusedError, match="rank: the total has rank"):
        rehearse(trial.folder, run_config(tmp_path, mode="committee"))
    assert not (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()


def test_such_a_total_can_be_allowed_by_name(trial: Trial, tmp_path: Path) -> None:
    few_rows(trial)
    rehearse(trial.folder, run_config(tmp_path, mode="committee", **{"allow-low-rank": True}))
    assert (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()
    assert {event["gate"] for event in events(trial) if event["event"] == "concern"} == {"rank", "membership"}


def test_a_run_says_whose_shares_were_wrong(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Site 2 reveals what is no share; the total stands without it, and the run's log names both ends."""
    honest = MaskedClient._revealed

    def lying(client: MaskedClient) -> bytes:
        said = UnmaskShares.read(Reader(memoryview(honest(client)), peer=client.party))
        wrong = dict.fromkeys(said.self_mask_shares, b"\xff" * SHARE_BYTES)
        return honest(client) if client.party != 2 else replace(said, self_mask_shares=wrong).to_payload()

    monkeypatch.setattr(MaskedClient, "_revealed", lying)
    rehearse(trial.folder, run_config(tmp_path))
    is_exact(trial, [1, 2, 3, 4, 5])
    said = [(event["owner"], event["holder"]) for event in events(trial) if event["event"] == "wrong share"]
    assert said == [(owner, 2) for owner in trial.rows]
