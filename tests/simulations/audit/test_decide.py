"""The decision rule on results that are made by hand: what fails, what passes, and what is not decided."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from analytic_secagg.audit_plan import AuditPlan
from analytic_secagg.audit_result import decision_of
from analytic_secagg.datasets import Dataset, bundled
from simulations.audit.attack import Limit
from simulations.audit.decide import DecisionRule, Outcome, Result, Rule, Verdict, decided
from simulations.audit.evaluate import Area, Score
from simulations.audit.record import Audit
from simulations.audit.settings import AuditSettings, SettingsRecord

RULE = DecisionRule()
CLEAR = tuple(float(one) for one in range(40)), tuple(float(one) for one in range(-40, 0))
"""Scores of used rows and of others that no threshold mixes up."""


def result(rule: Rule = Rule.MUST_HIDE, score: Score | None = None, limit: Limit | None = None, **more: Any) -> Result:
    given_limit = more.pop("limited", RULE.limit_of(limit))
    own = {"attack": "one", "exposure": "masked", "limit_name": "" if limit is None else limit.value} | more
    return Result(rule=rule, score=score, limit=given_limit, **own)


def outcome(one: Result, *, works: bool = True, rule: DecisionRule = RULE) -> Outcome:
    (found,) = decided([one], rule, {"one": works})
    return found.outcome


def tail(p_value: float) -> Score:
    """One trial that was won, whose p-value is its chance."""
    return Score(hits=1, trials=1, chance=p_value)


# What must be hidden


@examples(2)
@given(st.lists(st.floats(1e-9, 1e-2), min_size=1, max_size=12))
def test_leaks_are_what_holm_rejects_at_one_in_a_thousand(chances: list[float]) -> None:
    """Holm (1979): in order, each p-value against what is left of the error, until one is too large."""
    found = decided([result(score=tail(chance), exposure=str(k)) for k, chance in enumerate(chances)], RULE, {})
    expected = set[int]()
    for place in sorted(range(len(chances)), key=chances.__getitem__):
        if chances[place] >= 1e-3 / (len(chances) - len(expected)):
            break
        expected.add(place)
    assert {place for place, one in enumerate(found) if one.outcome is Outcome.LEAK} == expected


def test_a_family_is_all_results_that_must_hide_and_were_tried() -> None:
    """0.0006 is no leak among two of a family; the other rules' results and those without trials are not of it."""
    beside = [
        result(Rule.CONTROL, tail(1e-9)),
        result(Rule.KNOWN, tail(1e-9)),
        result(score=None),
        result(score=Score(hits=0, trials=0, chance=0.5)),
    ]
    first, *_ = decided([result(score=tail(6e-4)), *beside], RULE, {})
    assert first.outcome is Outcome.LEAK
    first, *_ = decided([result(score=tail(6e-4)), result(score=tail(0.4)), *beside], RULE, {})
    assert first.outcome is not Outcome.LEAK


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (Score(hits=0, trials=40, chance=0.01), Outcome.NOTHING_FOUND),
        (Score(hits=0, trials=3, chance=0.01), Outcome.NOT_DECIDED),  # three wins of three would be needed
        (Score(hits=20, trials=40, chance=0.5), Outcome.NOT_DECIDED),  # 0.75 of 40 coins is no leak
        (Score(hits=130, trials=260, chance=0.5), Outcome.NOTHING_FOUND),
        (Score(hits=2, trials=2, chance=0.5), Outcome.NOT_DECIDED),  # all won, and no accident to speak of
        (Score(hits=0, trials=0, chance=0.5), Outcome.NOTHING_FOUND),  # no client has such a row
        (Score(hits=0, trials=4, chance=1e-12), Outcome.NOTHING_FOUND),  # one win of four would do
        (None, Outcome.NOT_DECIDED),
    ],
)
def test_too_little_power_is_not_decided(score: Score | None, expected: Outcome) -> None:
    assert outcome(result(score=score)) is expected


def test_an_attack_that_lost_its_control_decides_nothing_but_a_leak() -> None:
    nothing, leak = Score(hits=0, trials=40, chance=0.01), Score(hits=20, trials=40, chance=0.01)
    assert outcome(result(score=nothing), works=False) is Outcome.NOT_DECIDED
    assert outcome(result(score=Score(hits=0, trials=0, chance=0.5)), works=False) is Outcome.NOT_DECIDED
    assert outcome(result(score=leak), works=False) is Outcome.LEAK
    found = decided([result(score=nothing), result(score=nothing, attack="other")], RULE, {"other": True})
    assert [one.outcome for one in found] == [Outcome.NOT_DECIDED, Outcome.NOTHING_FOUND]


@examples(4)
@given(st.integers(1, 300), st.floats(0.001, 0.5), st.data())
def test_nothing_found_says_that_a_leak_of_six_tenths_would_have_been_noticed(
    trials: int, chance: float, data: st.DataObject
) -> None:
    """Whatever the hits: found nothing means power 0.9 at 0.6, and at 0.75 for coins; and a leak is below the error."""
    score = Score(hits=data.draw(st.integers(0, trials)), trials=trials, chance=chance)
    found = outcome(result(score=score))
    assert (found is Outcome.LEAK) == (score.p_value < RULE.family_error)
    if found is Outcome.NOTHING_FOUND:
        smallest = score.smallest_noticed(RULE.family_error)
        assert smallest is not None
        assert smallest <= (0.75 if chance > 0.3 else 0.6)


# What may be seen


def seen(limit: Limit | None, score: Score | None, **more: Any) -> Result:
    return result(Rule.MAY_BE_SEEN, score, limit, **more)


def membership(value: float, half: float = 0.03) -> Score:
    """A score whose farthest tenth has about this area, over as many rows as the interval's half width takes."""
    n = math.ceil(0.5 / half**2)
    below = round(n * (1 - value))
    others = (0.0,) * n
    members = (-1.0,) * below + (1.0,) * (n - below)
    return Score(hits=1, trials=2, chance=0.5, outlying=(members, others))


@pytest.mark.parametrize(
    ("limit", "score", "expected"),
    [
        (Limit.REBUILT_ROWS, Score(hits=0, trials=100, chance=0.1), Outcome.WITHIN),
        (Limit.REBUILT_ROWS, Score(hits=1, trials=100, chance=0.1), Outcome.WITHIN),  # one in a hundred is the limit
        (Limit.REBUILT_ROWS, Score(hits=2, trials=100, chance=0.1), Outcome.OVER),
        (Limit.REBUILT_ROWS, Score(hits=1, trials=1, chance=0.5), Outcome.OVER),  # a row is a row
        (Limit.REBUILT_ROWS, Score(hits=0, trials=0, chance=0.5), Outcome.WITHIN),  # nobody was alone
        (Limit.REBUILT_ROWS, None, Outcome.NOT_DECIDED),
        (Limit.MEMBERSHIP, membership(0.6), Outcome.WITHIN),
        (Limit.MEMBERSHIP, membership(0.97), Outcome.OVER),
        (Limit.MEMBERSHIP, membership(0.9), Outcome.NOT_DECIDED),
        (Limit.ATTRIBUTE, Score(hits=50, trials=100, chance=0.45), Outcome.WITHIN),
        (Limit.ATTRIBUTE, Score(hits=90, trials=100, chance=0.3), Outcome.OVER),
        (Limit.ATTRIBUTE, Score(hits=54, trials=100, chance=0.3), Outcome.NOT_DECIDED),
        (None, Score(hits=100, trials=100, chance=0.1), Outcome.SEEN),
    ],
)
def test_a_number_is_over_its_limit_within_it_or_not_decided(
    limit: Limit | None, score: Score | None, expected: Outcome
) -> None:
    assert outcome(seen(limit, score)) is expected


def test_a_limit_that_nobody_states_decides_nothing() -> None:
    for limit in Limit:
        assert outcome(seen(limit, Score(hits=9, trials=9, chance=0.1, error=0.0), limited=None)) is Outcome.SEEN


@pytest.mark.parametrize(
    ("limit", "score"),
    [(Limit.REBUILT_ROWS, Score(hits=0, trials=100, chance=0.1)), (Limit.MEMBERSHIP, membership(0.6))],
)
def test_an_attack_that_does_not_work_shows_no_number_to_be_within_a_limit(limit: Limit, score: Score) -> None:
    assert outcome(seen(limit, score)) is Outcome.WITHIN
    assert outcome(seen(limit, score), works=False) is Outcome.NOT_DECIDED


def test_a_group_s_share_must_not_be_known_better_than_the_limit() -> None:
    """The other way round: a small error is much learnt."""
    known, unknown = (Score(hits=2, trials=4, chance=0.5, error=error, blind_error=0.2) for error in (0.01, 0.15))
    assert outcome(seen(Limit.GROUP_SHARE, known, limited=0.05)) is Outcome.OVER
    assert outcome(seen(Limit.GROUP_SHARE, unknown, limited=0.05)) is Outcome.WITHIN
    assert outcome(seen(Limit.GROUP_SHARE, known)) is Outcome.SEEN


def test_other_cohorts_and_known_leaks_decide_nothing() -> None:
    sure = Score(hits=40, trials=40, chance=0.01)
    assert outcome(result(Rule.COMPARISON, sure, Limit.REBUILT_ROWS)) is Outcome.SEEN
    assert outcome(result(Rule.KNOWN, sure)) is Outcome.SEEN
    assert outcome(result(Rule.COMPARISON, None)) is Outcome.SEEN
    assert outcome(result(Rule.CONTROL, sure)) is Outcome.WON
    assert outcome(result(Rule.CONTROL, Score(hits=0, trials=40, chance=0.01))) is Outcome.LOST


def test_the_number_beside_a_limit() -> None:
    """The tenth that lies farthest, not all rows; what is added to a blind guess, not below 0; the error."""
    even = Score(hits=5, trials=10, chance=0.5, outlying=CLEAR)
    assert seen(Limit.MEMBERSHIP, even).number == Area.of(*CLEAR)
    assert seen(Limit.ATTRIBUTE, Score(hits=2, trials=10, chance=0.5)).value == 0.0
    assert seen(Limit.ATTRIBUTE, Score(hits=7, trials=10, chance=0.5)).value == pytest.approx(0.2)
    assert seen(Limit.GROUP_SHARE, Score(hits=2, trials=4, chance=0.5, error=0.03)).value == 0.03
    assert seen(Limit.REBUILT_ROWS, Score(hits=1, trials=4, chance=0.5)).value == 0.25
    assert seen(Limit.REBUILT_ROWS, Score(hits=0, trials=0, chance=0.5)).value is None


# All together


CLAIMS = "refuted", "consistent", "not decided"


@given(
    st.lists(st.tuples(st.sampled_from(list(Rule)), st.sampled_from(list(Outcome)))),
    st.lists(st.sampled_from(CLAIMS)),
    st.booleans(),
)
def test_the_decision_is_the_worst_of_all(results: list[tuple[Rule, Outcome]], claims: list[str], whole: bool) -> None:
    found = Verdict(decision_of(results, claims, is_whole=whole))
    judged = [one for one in results if one[0] in (Rule.MUST_HIDE, Rule.MAY_BE_SEEN)]
    bad = any(outcome in (Outcome.LEAK, Outcome.OVER) for _, outcome in judged) or "refuted" in claims
    hides = any(rule is Rule.MUST_HIDE for rule, _ in judged)
    open_ = not hides or not whole or any(outcome == "not decided" for outcome in [*claims, *(o for _, o in judged)])
    assert found is (Verdict.FAILED if bad else Verdict.NOT_DECIDED if open_ else Verdict.PASSED)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return bundled("iris")


def report(dataset: Dataset, *results: Result) -> Audit:
    """A report with these results and nothing else."""
    settings = AuditSettings().spelled_out(dataset)
    return Audit.model_construct(
        settings=SettingsRecord.of(settings, settings.format_for(dataset)),
        rule=RULE,
        results=list(results),
    )


def test_nothing_audited_or_messages_in_the_clear_alone_are_not_decided(dataset: Dataset) -> None:
    fine = {
        "hidden": result(Rule.MUST_HIDE, outcome=Outcome.NOTHING_FOUND),
        "control": result(Rule.CONTROL, outcome=Outcome.WON),
        "seen": result(Rule.MAY_BE_SEEN, outcome=Outcome.WITHIN),
        "other": result(Rule.COMPARISON, outcome=Outcome.SEEN),
    }
    assert report(dataset, *fine.values()).decision is Verdict.PASSED
    assert report(dataset, fine["hidden"]).decision is Verdict.PASSED
    assert report(dataset).decision is Verdict.NOT_DECIDED
    assert report(dataset, fine["control"], fine["seen"], fine["other"]).decision is Verdict.NOT_DECIDED


def test_parts_that_failed_decide_too(dataset: Dataset) -> None:
    passed = report(dataset, result(Rule.MUST_HIDE, outcome=Outcome.NOTHING_FOUND))
    assert passed.model_copy(update={"failures": ["masked: no end"]}).decision is Verdict.NOT_DECIDED


def test_limits_are_stated_by_name() -> None:
    own = replace(AuditSettings(), limits=(("group_share", 0.05), ("membership", None)))
    assert own.rule.limits == RULE.limits | {"group_share": 0.05, "membership": None}
    assert AuditSettings().rule == RULE
    assert {limit.value for limit in Limit} == RULE.limits.keys()


def test_a_plan_names_settings_as_a_report_does() -> None:
    """A name that no report has could never be met: it is refused before anybody signs it."""
    plan: dict[str, Any] = {"data_sha256": "0" * 64, "hypotheses": [{"attack": "a", "mode": "m", "expected": "hidden"}]}
    assert AuditPlan.model_validate(plan | {"settings": {"rows_per_client": 40}}).settings == {"rows_per_client": 40}
    with pytest.raises(ValueError, match=r"settings are named as in a report, .*rows_per_client.*, and not rows"):
        AuditPlan.model_validate(plan | {"settings": {"rows": 40}})
