"""What is asked of the library beside sums, and what parties are led to: a fault in it is named, and nothing else."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from federation.modes import MODES
from secagg import Layout, SignedBy
from secagg.errors import RemoteProtocolError
from simulations.audit.held import to_its_end
from simulations.audit.led_astray import taken_or_said
from simulations.audit.questions import ask
from simulations.audit.questions.ask import ANSWERS, other_answers, questions
from simulations.audit.questions.changed import other_values
from simulations.audit.questions.said import answer


def test_every_question_is_answered_as_it_was() -> None:
    names = [name for name, _ in questions()]
    assert len(names) == len(set(names)) > 1000
    assert json.loads(ANSWERS.read_text(encoding="utf-8")).keys() >= set(names)
    assert list(other_answers()) == [], (
        "where this is meant, python -m simulations.audit.questions.ask and read the diff"
    )


@pytest.mark.parametrize("mode", ["plain", "masked", "committee", "bfv", "masked+bfv"])
def test_nobody_is_led_astray(mode: str) -> None:
    if not MODES[mode].installed:
        pytest.skip("its extra is missing")
    assert list(taken_or_said(MODES[mode])) == []


def stays(own: Any, state: Any) -> None:
    own._kept.state = state


@pytest.mark.parametrize(
    ("mode", "where", "other", "named"),
    [
        ("masked", "secagg.masked.client.MaskedClient._forget", stays, "keep secrets of a sum that is over"),
        ("plain", "secagg.wire.verifies", lambda *said: True, "PLAIN_INPUT is taken with a bit changed"),
        ("plain", "secagg.one_message.SpeaksOnce._spoke", lambda own: None, "a restored session begins again"),
        ("plain", "secagg.party.Party._agree", lambda own, *asked: None, "were not asked"),
        ("plain", "secagg.rounds.Round.check", lambda own, sender, frame: None, "PLAIN_INPUT is taken twice"),
    ],
)
def test_what_leads_a_party_astray_is_named(
    mode: str, where: str, other: Any, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, other)
    assert any(named in line for line in to_its_end(taken_or_said(MODES[mode])))


def ask_only(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out all questions but those of one kind."""
    for name in vars(ask):
        if name.startswith("about_") and name != kept:
            monkeypatch.setattr(ask, name, lambda: iter(()))


def test_another_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_only("about_sums", monkeypatch)
    monkeypatch.setattr("secagg.policy.ClientPolicy._at_least", lambda *asked: None)
    assert {"policy, cohort", "policy, survivors"} <= set(other_answers())
    monkeypatch.setattr("simulations.audit.questions.ask.about_sums", lambda: 1 / 0)
    assert list(other_answers()) == ["questions end in ZeroDivisionError"]


@pytest.mark.parametrize(
    ("where", "named"),
    [
        ("secagg.committee.server.is_signed", "SET_SIGNATURE of 9"),
        ("secagg.receipted_sum.verifies", "COUNTERSIGNATURE of 4"),
    ],
)
def test_what_a_session_takes_from_its_sender_is_an_answer(
    where: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_only("about_sessions", monkeypatch)
    monkeypatch.setattr(where, lambda *said: True)
    assert any(named in name for name in other_answers())


def test_a_probe_that_does_not_come_to_its_end_says_so() -> None:
    def probe() -> Any:
        yield "first"
        raise RemoteProtocolError("broken", peer=1)

    assert list(to_its_end(probe())) == ["first", "probe ended in RemoteProtocolError"]


@pytest.mark.parametrize(
    "place",
    [
        "secagg.masked.series.MaskedSeries.__post_init__",
        "analytic.counts.CountSpec.__post_init__",
        "analytic.weighted.Weighted.__post_init__",
        "federation.release.ReleasePolicy.__post_init__",
    ],
)
def test_a_check_that_is_gone_is_named_though_nobody_asked_for_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_only("about_values", monkeypatch)
    assert list(other_answers()) == []
    monkeypatch.setattr(place, lambda own: None)
    assert any(name.startswith("value, ") for name in other_answers())


def test_every_way_to_be_wrong_is_the_same_each_time() -> None:
    layout = Layout.of([("counts", 3, 10)])
    values: list[Any] = [
        True,
        3,
        2.5,
        Fraction(1, 3),
        b"ab",
        "ab",
        (1, 2),
        frozenset({1}),
        {1: b"x"},
        np.eye(2),
        layout,
    ]
    for value in [*values, SignedBy.SERVER]:
        others = [answer(lambda other=other: other) for other in other_values(value)]  # type: ignore[misc]
        assert others == [answer(lambda other=other: other) for other in other_values(value)]  # type: ignore[misc]
        assert len(set(others)) > 1 or isinstance(value, bool)
    assert not list(other_values(None))
