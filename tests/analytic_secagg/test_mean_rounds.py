"""Secure means without an engine: rounds that repeat give no client away, or a node takes no part."""

from __future__ import annotations

import doctest
import importlib
import tracemalloc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.disks import fill, small_disk

from analytic_secagg.mean import server
from analytic_secagg.mean.client import MeanClient
from analytic_secagg.mean.participation import Participation, ParticipationLog
from analytic_secagg.mean.server import MeanRound
from analytic_secagg.mean.terms import MeanTerms
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.store import SessionStore
from secagg import MeanResult
from secagg.errors import ConsentRefusedError

TERMS = MeanTerms(max_weight=1)
MEMBERS = tuple("123456")
Model = dict[str, Any]


@pytest.mark.parametrize("name", ["terms", "client", "participation"])
def test_every_example_in_a_docstring_is_true(name: str) -> None:
    done = doctest.testmod(importlib.import_module(f"analytic_secagg.mean.{name}"))
    assert done.attempted
    assert not done.failed


class Nodes:
    """Nodes that pull a model towards points of their own, with all their data in each step: updates change slowly."""

    def __init__(self, **options: Any) -> None:
        rng = np.random.default_rng(7)
        self.clients = {name: MeanClient(TERMS, **options) for name in MEMBERS}
        self.states: dict[str, dict[str, Any]] = {name: {} for name in MEMBERS}
        self.points = {name: rng.normal(size=20) for name in MEMBERS}

    def update(self, name: str, model: Model) -> Any:
        return 0.01 * (self.points[name] - model["w"])

    def mean(self, model: Model, members: tuple[str, ...] = MEMBERS, lost: tuple[str, ...] = ()) -> MeanResult:
        """One round over some of the nodes, of whom some vanish when their vector is due."""
        round_ = MeanRound(TERMS, model, b"", members=members)
        names = dict(zip(round_.parties, members, strict=True))

        def ask(stage: str, plan: bytes, contents: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
            for party, content in contents.items():
                name = names[party]
                yield party, self.clients[name].answer(stage, plan, party, content, self.states[name])

        for party, content in round_.set_up(ask).items():
            if (name := names[party]) not in lost:
                self.clients[name].check(round_.plan, party, model, b"", self.states[name])
                after = {"w": model["w"] + self.update(name, model)}
                round_.take(party, self.clients[name].upload(content, model, after, 1, {}, self.states[name]))
        return round_.finish(ask)


def difference(one: MeanResult, other: MeanResult) -> Any:
    """What a server reads off two means: the sum of one without that of the other."""
    return one.arrays["w"] * one.weight - other.arrays["w"] * other.weight


def likeness(read: Any, true: Any) -> float:
    return float(read @ true / np.linalg.norm(read) / np.linalg.norm(true))


def test_two_means_of_one_model_are_refused_and_would_show_a_client() -> None:
    """The attack reads the update of the node that was not in the second mean, to the last bit of its step."""
    model = {"w": np.zeros(20)}
    forgetful = Nodes()
    first = forgetful.mean(model)
    forgetful.states = {name: {} for name in MEMBERS}  # what a node without a log is
    second = forgetful.mean(model, lost=("4",))
    assert np.abs(difference(first, second) - forgetful.update("4", model)).max() < 1e-6
    nodes = Nodes()
    nodes.mean(model)
    with pytest.raises(ConsentRefusedError, match="update of this model is in a sum already"):
        nodes.mean(model, lost=("4",))


def test_cohorts_that_differ_by_few_are_refused_and_would_show_them() -> None:
    """Also over another model, where updates are alike: the attack's likeness to the lone update is above 0.98."""
    model = {"w": np.zeros(20)}
    trusting = Nodes(min_change=1)
    first = trusting.mean(model)
    following = {"w": model["w"] + first.arrays["w"]}
    second = trusting.mean(following, members=tuple("12356"))
    assert likeness(difference(first, second), trusting.update("4", model)) > 0.98
    nodes = Nodes()
    following = {"w": model["w"] + nodes.mean(model).arrays["w"]}
    with pytest.raises(ConsentRefusedError, match="differs from that of an earlier mean by 1 clients"):
        nodes.mean(following, members=tuple("12356"))
    assert nodes.mean(following, members=tuple("123")).weight == 3
    assert nodes.mean({"w": following["w"] / 2}).weight == 6


def test_a_session_id_serves_one_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that draws the same id again would have each line of the first mean taken for the second one's own."""
    monkeypatch.setattr(server, "new_session_id", lambda: bytes(32))
    nodes, model = Nodes(), {"w": np.zeros(20)}
    following = {"w": model["w"] + nodes.mean(model).arrays["w"]}
    with pytest.raises(ConsentRefusedError, match="a sum of this session id already"):
        nodes.mean(following, lost=("4",))


@pytest.mark.parametrize(("entry_bytes", "needed"), [(2, 2 + 2), (3, 4 + 3), (4, 4 + 4)])
@pytest.mark.parametrize("n_arrays", [1, 32])
def test_a_client_holds_its_words_and_its_message_alone(n_arrays: int, entry_bytes: int, needed: int) -> None:
    """Beside both models: words of 2 or 4 bytes a number, and what is sent of them."""
    size, terms, members = 1 << 20, MeanTerms(max_weight=1, entry_bytes=entry_bytes), (1, 2, 3)
    model = {f"w{place}": np.zeros(size // n_arrays, np.float32) for place in range(n_arrays)}
    after = {name: array + 1 for name, array in model.items()}
    nodes: dict[int, Any] = {party: MeanClient(terms) for party in members}
    states: dict[int, dict[str, Any]] = {party: {} for party in members}

    def ask(stage: str, plan: bytes, contents: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
        for party, content in contents.items():
            yield party, nodes[party].answer(stage, plan, party, content, states[party])

    round_ = MeanRound(terms, model, b"", members=("1", "2", "3"))
    content = round_.set_up(ask)[1]
    tracemalloc.start()
    try:
        nodes[1].check(round_.plan, 1, model, b"", states[1])
        nodes[1].upload(content, model, after, 1, {}, states[1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak / size <= needed + 2  # keys, and pieces of an array, of masks and of a message: below 2 MiB


def test_a_full_disk_takes_whole_lines_or_the_node_takes_no_part(tmp_path: Path) -> None:
    """What was noted is there, also after the disk was full."""
    store = SessionStore(tmp_path / "state")
    wanted = [Participation(session=f"{n:064}", model=f"{n:064}", clients=MEMBERS) for n in range(400)]
    noted: list[Participation] = []

    def note(those: list[Participation]) -> None:
        for one in those:
            with store.locked():
                ParticipationLog(store.means(), min_change=1, keep=store.note_mean).note(one)
            noted.append(one)

    with small_disk(store.path, 1 << 18):
        note(wanted[:1])
        fill(store.path)
        with pytest.raises(SiteFileError, match="disk full"):
            note(wanted[1:])
        (store.path / "filler").unlink()
        with store.locked():
            log = ParticipationLog(store.means(), min_change=1, keep=store.note_mean)
            assert len(noted) < len(wanted)
            for one in noted:
                with pytest.raises(ConsentRefusedError):
                    log.check(one)
