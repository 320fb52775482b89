"""Secure means without an engine: rounds that repeat give no client away, or a node takes no part."""

from __future__ import annotations

import doctest
import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from support.disks import fill, small_disk

from analytic_secagg.mean.client import MeanClient
from analytic_secagg.mean.participation import Participation, log_of_site
from analytic_secagg.mean.server import MeanRound
from analytic_secagg.mean.terms import MeanTerms
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
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


def test_a_full_disk_takes_whole_lines_or_the_node_takes_no_part(trial: Trial) -> None:
    """What was noted is there, also after the disk was full."""
    file = SiteFile.read(trial.folder / "site-1" / "site.toml")
    wanted = [Participation(session=f"{n:064}", model=f"{n:064}", clients=MEMBERS) for n in range(400)]
    noted: list[Participation] = []

    def note(those: list[Participation]) -> None:
        for one in those:
            with log_of_site(file, 1) as log:
                log.note(one)
            noted.append(one)

    with small_disk(file.state, 1 << 18):
        note(wanted[:1])
        fill(file.state)
        with pytest.raises(SiteFileError, match="disk full"):
            note(wanted[1:])
        (file.state / "filler").unlink()
        with log_of_site(file, 1) as log:
            assert len(noted) < len(wanted)
            for one in noted:
                with pytest.raises(ConsentRefusedError):
                    log.check(one)
