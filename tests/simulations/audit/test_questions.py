"""What is asked of the library beside sums, and what parties are led to: a fault in it is named, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from federation.modes import MODES
from secagg.errors import RemoteProtocolError
from simulations.audit.held import to_its_end
from simulations.audit.led_astray import taken_or_said
from simulations.audit.questions.ask import ANSWERS, other_answers, questions


def test_every_question_is_answered_as_it_was() -> None:
    names = [name for name, _ in questions()]
    assert len(names) == len(set(names)) > 1000
    assert json.loads(ANSWERS.read_text(encoding="utf-8")).keys() >= set(names)
    assert list(other_answers()) == []


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


def test_another_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for others in ("privacy", "forms", "sites"):
        monkeypatch.setattr(f"simulations.audit.questions.ask.about_{others}", lambda: iter(()))
    monkeypatch.setattr("secagg.policy.ClientPolicy._at_least", lambda *asked: None)
    assert {"policy, cohort", "policy, survivors"} <= set(other_answers())
    monkeypatch.setattr("simulations.audit.questions.ask.about_sums", lambda: 1 / 0)
    assert list(other_answers()) == ["questions end in ZeroDivisionError"]


def test_a_probe_that_does_not_come_to_its_end_says_so() -> None:
    def probe() -> Any:
        yield "first"
        raise RemoteProtocolError("broken", peer=1)

    assert list(to_its_end(probe())) == ["first", "probe ended in RemoteProtocolError"]
