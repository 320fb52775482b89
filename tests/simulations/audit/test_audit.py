"""The audit from end to end: results, files, exit codes, and a page that people, readers and browsers can read."""

from __future__ import annotations

import html
import io
import json
import math
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from rich.console import Console
from support.pages import Page, browser, needs_chromium
from support.seeded_system import seeded_system

from analytic_secagg import size
from analytic_secagg.datasets import Dataset, bundled
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS
from analytic_secagg.modes import MODES, Mode, choose_modes
from simulations.__main__ import main
from simulations.audit import command as audit_command
from simulations.audit.attack import Unit
from simulations.audit.audit import ESTIMATE, audit
from simulations.audit.catalogue import choose_attacks, find_attack
from simulations.audit.decide import Outcome, Result, Rule, Verdict
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Kind
from simulations.audit.population import QUARTERS, with_labels
from simulations.audit.record import Audit
from simulations.audit.settings import AuditSettings, absent_modes
from simulations.report.audit_findings import DECISIONS, decision, print_audit, promise, sentences
from simulations.report.audit_page import to_html
from simulations.report.document import Mark

MOST_BYTES, MOST_SECONDS = 25_600, 40
"""Of the JSON of the default run, and of the processor for it."""


def settings(**changes: Any) -> AuditSettings:
    small: dict[str, Any] = {
        "modes": choose_modes(["plain", "masked"]),
        "attacks": choose_attacks(["lone_rows", "lattice_rows"]),
        "rows_per_client": 6,
        "trials": 3,
        "cohorts": (),
        "epsilon": (),
    }
    return AuditSettings(**(small | changes))


@pytest.fixture(scope="module")
def page(report: Audit) -> str:
    return to_html(report)


@pytest.fixture(scope="module")
def rebuilt(digits: Dataset) -> Audit:
    """Totals of two clients, whose rows come out, and messages in the clear."""
    with seeded_system():
        return audit(digits, settings(clients=2))


def with_outcome(report: Audit, rule: Rule, outcome: Outcome) -> Audit:
    """The same report, where one result of this rule comes to something else."""
    place = next(place for place, one in enumerate(report.results) if one.rule is rule)
    results = list(report.results)
    results[place] = results[place].model_copy(update={"outcome": outcome})
    return report.model_copy(update={"results": results})


# What is in it


def test_the_default_run_tries_every_attack_where_it_applies(report: Audit) -> None:
    """Messages of each mode; totals and models of the owner's cohort first; and noise."""
    kinds = [one.kind for one in report.exposures]
    assert {Kind.MESSAGE, Kind.TOTAL, Kind.MODEL, Kind.NOISY_TOTAL} <= {*kinds}
    assert [(one.kind, one.clients) for one in report.exposures if one.kind in (Kind.TOTAL, Kind.MODEL)] == [
        (Kind.TOTAL, 20), (Kind.MODEL, 20), (Kind.TOTAL, 14), (Kind.MODEL, 14), (Kind.TOTAL, 5), (Kind.MODEL, 5),
    ]  # fmt: skip
    tried = {one.attack for one in report.results}
    # one Gram is all that afl asks for, and rows of digits enter the sum as they are
    assert {one.name for one in report.attacks} - tried <= {
        "all_sums", "raw_rows",
    }  # fmt: skip
    deciding = {one.attack for one in report.results if one.rule in (Rule.MUST_HIDE, Rule.MAY_BE_SEEN)}
    assert {one.name for one in report.attacks if one.works} >= deciding  # each won its own positive control
    units = [find_attack(one.name).unit for one in report.attacks]
    assert units == sorted(units, key=list(Unit).index)
    assert report.settings.epsilon == (8.0,)


def test_the_correct_product_passes(report: Audit) -> None:
    assert report.decision is Verdict.PASSED
    told = [(mark, sentence) for mark, sentence in sentences(report)]
    assert Mark.WRONG not in {mark for mark, _ in told}
    total = next(mark for mark, sentence in told if sentence.startswith("Total of 20 clients"))
    rebuilt_some = any(
        "rows come out exactly" in sentence for _, sentence in told if sentence.startswith("Total of 20")
    )
    judged = any(
        "what you must judge yourself" in sentence for _, sentence in told if sentence.startswith("Total of 20")
    )
    assert (rebuilt_some or judged) == (total is Mark.NOTICE)  # seldom, within the limit
    (noise,) = (mark for mark, sentence in told if sentence.startswith("Noise for epsilon 8"))
    assert noise is Mark.NOTICE  # as claimed, and next to no promise
    fine = [sentence for mark, sentence in told if mark is Mark.FINE]
    for beginning in ("Messages (masked", "Model of 20 clients"):
        assert any(sentence.startswith(beginning) for sentence in fine), beginning
    assert [one.epsilon for one in report.two_worlds] == [8.0]
    assert any("decide something win where nothing protects" in sentence for sentence in fine)
    exposed_by = {one.name: one.exposed_by for one in report.exposures if one.kind == Kind.MESSAGE}
    assert exposed_by == {
        "plain": "the server alone",
        "masked": "the server and 14 of 20 clients",
        "bfv": "the server and the key holder",
    }
    assert any(one.exposure == "total of 5 clients" for one in report.results)
    assert ("total of 20 clients", False) in {(check.exposure, check.refused) for check in report.checks}


def test_a_strong_attack_without_a_limit_is_the_readers_to_judge(report: Audit) -> None:
    """89 of 100 stood below a green line that said nothing of it; class counts are in every exact total."""
    of_total = [one for one in report.results if one.exposure == "total of 20 clients"]
    found = [one for one in report.results if one.attack == "dictionary" and one.exposure.startswith("total of")]
    counts = next(one for one in of_total if one.attack == "label_histogram")
    assert counts.score is not None
    assert counts.score.hits == counts.score.trials > 0

    def told(hits: int) -> tuple[Mark, str]:
        score = Score(hits=hits, trials=55, chance=0.5)
        results = [one.model_copy(update={"score": score}) if one in found else one for one in report.results]
        audit = report.model_copy(update={"results": results})
        mark, words = next(one for one in sentences(audit) if one[1].startswith("Total of 20 clients"))
        return mark, f"{decision(audit)} {words.splitlines()[0]}"

    mark, words = told(49)
    assert mark is Mark.NOTICE
    assert "What has no limit is for you to judge" in words
    assert "right in 49 of 55 tries" in words
    assert "how many rows of each class" not in words
    assert "judge" not in told(27)[1]
    assert "Nearest to its limit: " in words
    assert "limits of this program, since nobody stated others" in words
    stated = report.rule.model_copy(update={"limits": dict(report.rule.limits) | {"membership": 0.95}})
    of_owner = sentences(report.model_copy(update={"rule": stated}))
    assert any("within the limits that its owner stated" in sentence for _, sentence in of_owner)


def test_a_hidden_value_is_named_by_its_column(report: Audit, digits: Dataset) -> None:
    """In words, on terminal and page; by the owner's names where columns have some."""
    found = report.result("attribute", "total of 20 clients")
    assert found is not None
    assert len(found.columns) == 8
    most = max(found.columns, key=found.columns.__getitem__)
    assert re.fullmatch(r"column \d+", most)
    assert any(f"Told best: {most} " in sentence for _, sentence in sentences(report))
    named = replace(digits, columns=tuple(f"pixel {place}" for place in range(64)))
    owner = audit(named, settings(attacks=choose_attacks(["attribute"]), clients=5))
    of_owner = owner.result("attribute", "total of 5 clients")
    assert of_owner is not None
    assert all(re.fullmatch(r"pixel \d+", name) for name in of_owner.columns)


def test_a_default_mode_that_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not [*absent_modes(AuditSettings())]
    monkeypatch.setattr(Mode, "installed", property(lambda mode: False))
    told = [*absent_modes(replace(AuditSettings(), modes=(MODES["plain"],)))]
    assert any(one.startswith("bfv: not installed here, so nothing is known about it") for one in told)


def test_the_page_says_what_was_audited(digits: Dataset) -> None:
    named = replace(digits, notes=("albumin: -9 taken for missing",))
    text = to_html(audit(named, settings(attacks=choose_attacks(["lone_rows"]), clients=3)))
    assert "albumin: -9 taken for missing" in text
    assert "Cohorts of 3 clients with about 6 rows each" in " ".join(text.split())


def test_each_result_is_judged_by_the_rule_of_its_exposure(report: Audit) -> None:
    exposures = {one.name: one for one in report.exposures}
    for one in report.results:
        seen = exposures[one.exposure]
        if seen.kind in (Kind.TOTAL, Kind.MODEL, Kind.NOISY_TOTAL):
            assert one.rule is (Rule.MAY_BE_SEEN if seen.clients in (20, 14) else Rule.COMPARISON)
        elif one.exposure == "plain":
            assert one.rule in (Rule.CONTROL, Rule.KNOWN)
        elif seen.kind == Kind.MESSAGE:
            known = {"differencing", "different_models"}
            assert one.rule is (Rule.KNOWN if one.attack in known and one.rule is Rule.KNOWN else Rule.MUST_HIDE)


def test_what_is_held_follows_from_the_seed(digits: Dataset) -> None:
    few: dict[str, Any] = {"attacks": choose_attacks(["lattice_rows"]), "modes": choose_modes(["plain"]), "clients": 5}
    first, again, other = (audit(digits, settings(seed=seed, **few)) for seed in (0, 0, 1))
    trials = [[one.trials for one in found.results] for found in (first, again, other)]
    assert trials[0] == trials[1] != trials[2]


def test_an_attack_finds_the_same_alone_and_among_others(digits: Dataset) -> None:
    """Its coins and the rows that it is shown follow from the seed and from names, not from what was drawn before."""
    names = ["attribute", "membership", "group_share", "crafted_features"]
    few: dict[str, Any] = {"modes": choose_modes(["plain"]), "clients": 4}
    together = {(one.attack, one.exposure): one.score for one in audited(digits, names, **few)}
    assert {exposure for _, exposure in together} >= {"plain", "total of 4 clients"}
    for name in names[1:]:
        for one in audited(digits, [name], **few):
            assert one.score == together[name, one.exposure]


def audited(digits: Dataset, names: list[str], **changes: Any) -> list[Result]:
    """The results of a small audit by these attacks."""
    return audit(digits, settings(attacks=choose_attacks(names), **changes)).results


def test_processes_find_the_same(digits: Dataset) -> None:
    alone, together = (audit(digits, settings(modes=choose_modes(["plain"])), jobs=jobs) for jobs in (1, 2))
    for part in ("attacks", "exposures", "results", "checks", "failures", "limitations"):
        assert getattr(alone, part) == getattr(together, part), part
    assert {one.rule for one in alone.results} == {Rule.CONTROL, Rule.MAY_BE_SEEN}


def test_too_many_clients_for_the_data_are_said_and_not_hidden(digits: Dataset) -> None:
    found = audit(digits, settings(attacks=choose_attacks(["lone_rows"]), clients=3, cohorts=(5000,)))
    assert any(item.startswith("total of 5000 clients: ") for item in found.limitations)
    with pytest.raises(UsageError, match="audit fewer clients"):
        audit(digits, settings(clients=5000))
    with pytest.raises(UsageError, match=f"at most {int(0.9 * len(digits.x_train)) // 5} rows per client"):
        audit(digits, settings(clients=5, rows_per_client=len(digits.x_train) // 5))


def test_too_many_columns_are_refused_and_many_have_an_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 000 features took memory and hours without a word."""
    rng = np.random.default_rng(0)
    x_train, x_test = rng.normal(size=(60, 3001)), rng.normal(size=(20, 3001))
    data = Dataset(name="wide", x_train=x_train, x_test=x_test, y_train=np.arange(60) % 2, y_test=np.arange(20) % 2)
    few = settings(attacks=choose_attacks(["uniformity"]), modes=choose_modes(["masked"]), clients=4, rows_per_client=4)
    monkeypatch.setattr(size, "available_bytes", lambda: 8 * size.MATRICES * 3000**2)
    with pytest.raises(UsageError, match=r"afl of 3001 columns needs about .*up to 3000 columns fit"):
        audit(data, few)
    monkeypatch.setattr(size, "available_bytes", lambda: None)
    told: list[str] = []

    def stop(what: str) -> None:
        told.append(what)
        if what.startswith(ESTIMATE):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        audit(data, few, stop)
    assert told[-1] == "estimate: at least 9 minutes on one core, for 3001 columns"


@pytest.mark.parametrize("learner", ["fedhip", "safle", "deepafl", "logistic"])
def test_every_learner_can_be_audited(learner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulations.audit.audit.MOST_TOTALS", 1)
    rows = bundled("iris")
    attacks = choose_attacks(["class_means", "peeling", "membership", "all_sums", "model_membership"])
    found = audit(rows, settings(learner=LEARNERS[learner], attacks=attacks, clients=4, rows_per_client=8, cohorts=()))
    outcomes = {(one.attack, one.exposure): one.outcome for one in found.results}
    assert outcomes["class_means", "plain"] is Outcome.WON
    assert outcomes["class_means", "masked"] is Outcome.NOTHING_FOUND
    assert ("model_membership", "model of 4 clients") in outcomes
    many = ("all_sums", "all totals of a run of 4 clients") in outcomes
    assert many == (learner == "deepafl")  # all others ask for one Gram


def test_a_learner_without_noise_is_audited_without() -> None:
    """By default noise is asked for; an audit of safle ended with an error at that, after minutes."""
    own = settings(learner=LEARNERS["safle"], attacks=choose_attacks(["class_means"]), clients=4, epsilon=(8.0,))
    found = audit(bundled("iris"), own)
    assert (found.decision, found.failures, found.two_worlds) == (Verdict.PASSED, [], [])
    for beginning in ("totals with noise: ", "noise, with and without one person: "):
        assert any(one.startswith(f"{beginning}the private form of safle") for one in found.limitations)


def test_settings_check_themselves() -> None:
    wrongs: list[dict[str, Any]] = [
        {"clients": 1}, {"rows_per_client": 1}, {"cohorts": (1,)}, {"modes": ()}, {"attacks": frozenset()},
        {"epsilon": (0.0,)}, {"epsilon": (math.inf,)}, {"sessions": 0}, {"seed": -1},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(UsageError):
            settings(**wrong)


def test_a_choice_of_attacks_makes_no_other_sums(digits: Dataset) -> None:
    two = choose_attacks(["uniformity", "class_means"])
    found = audit(digits, settings(modes=choose_modes(["masked"]), attacks=two, epsilon=None, clients=5))
    assert {one.attack for one in found.results} == {"uniformity", "class_means"}
    assert {one.exposure for one in found.results} == {"masked"}
    assert (found.two_worlds, found.settings.epsilon) == ([], ())
    assert settings(attacks=choose_attacks(None), epsilon=None).tried_epsilon == (8.0,)


def test_a_table_with_more_rows_than_columns_is_decided() -> None:
    """The attacks on few rows are tried on clients with few rows too, as many as it takes."""
    names = ["lone_rows", "lattice_rows", "attribute", "membership", "model_membership", "different_models"]
    chosen = settings(attacks=choose_attacks(names), clients=5, rows_per_client=14, trials=5)
    found = audit(bundled("iris"), chosen)
    assert all(one.works for one in found.attacks)
    assert found.decision is Verdict.PASSED
    assert found.result("lattice_rows", "masked").trials > 5 * 14  # type: ignore[union-attr, operator]


def test_real_targets_are_audited_by_their_quarters() -> None:
    one = bundled("diabetes")
    rows = with_labels(one)
    assert (rows.n_classes, rows.classes) == (4, QUARTERS)
    assert np.ptp(np.bincount(rows.y_train)) <= 8  # ties
    assert audit(rows, settings(attacks=choose_attacks(["class_means"]))).decision is Verdict.PASSED
    with pytest.raises(UsageError, match="several targets"):
        with_labels(replace(one, y_train=np.hstack([one.y_train] * 2), y_test=np.hstack([one.y_test] * 2)))


def test_a_cohort_is_chosen_for_a_table_where_none_was_named(digits: Dataset) -> None:
    sizes = {
        (one.clients, one.rows_per_client)
        for one in (AuditSettings().spelled_out(digits), AuditSettings(clients=20, rows_per_client=40))
    }
    assert sizes == {(20, 40)}
    small = AuditSettings().spelled_out(bundled("iris"))
    assert small.clients * small.rows_per_client <= 0.6 * 120
    assert AuditSettings(clients=4).spelled_out(bundled("iris")).rows_per_client == 18


def test_a_part_that_fails_is_named_and_decides_nothing(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mode whose sums come to no end, or code that raises an error, ends one result and not the report."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a row: 1 2 3")

    monkeypatch.setattr(type(find_attack("lone_rows")), "against", fail)
    found = audit(digits, settings(attacks=choose_attacks(["lone_rows", "uniformity"]), modes=choose_modes(["masked"])))
    assert found.decision is Verdict.NOT_DECIDED
    assert any(one.startswith("masked, lone_rows: ZeroDivisionError") for one in found.failures)
    assert "1 2 3" not in found.to_json()
    assert found.result("uniformity", "masked") is not None
    assert any(mark is Mark.WRONG and "Could not be tried" in sentence for mark, sentence in sentences(found))


def test_a_thorough_audit_states_what_it_stands_for(digits: Dataset) -> None:
    thorough = settings(thorough=True).spelled_out(digits)
    assert {mode.name for mode in thorough.tried_modes} == {name for name in MODES if MODES[name].installed}
    assert thorough.two_world_runs == 1000
    assert thorough.spelled_out(digits) == thorough


# JSON


def test_the_json_report_follows_its_schema_and_is_small(report: Audit) -> None:
    schema = Audit.schema_of_report()
    jsonschema.Draft202012Validator.check_schema(schema)
    for one in (report, with_outcome(report, Rule.MUST_HIDE, Outcome.LEAK)):
        document = json.loads(one.to_json())
        assert document == json.loads(json.dumps(one.to_document()))
        jsonschema.validate(document, schema)
    assert len(report.to_json().encode()) <= MOST_BYTES
    assert document["decision"] == "failed"
    assert json.loads(report.to_json())["decision"] == "passed"


def test_results_are_a_frame(report: Audit) -> None:
    pytest.importorskip("pandas", reason="only data frames need it")
    frame = report.to_frame()
    assert list(zip(frame["attack"], frame["outcome"], strict=True)) == [
        (one.attack, one.outcome) for one in report.results
    ]


def test_no_row_is_in_a_report(rebuilt: Audit) -> None:
    assert any(one.hits for one in rebuilt.results if one.attack == "lattice_rows")
    for text in (re.sub(r"\s+", "", rebuilt.to_json()), to_html(rebuilt)):
        assert not re.search(r"(\d+,){20}", text)
    assert Page(to_html(rebuilt)).pictures == []


# The page


def test_the_table_can_be_read_from_the_page(report: Audit, page: str) -> None:
    parsed = Page(page)
    for one in report.results:
        assert parsed.cells[one.attack, one.exposure].startswith(one.outcome.value)
    empty = {place for place, text in parsed.cells.items() if text == "-"}
    assert parsed.cells.keys() - empty == {(one.attack, one.exposure) for one in report.results}
    assert parsed.unscoped == []


def test_who_decides_reads_the_decision_first_and_what_it_takes_for_granted(report: Audit, page: str) -> None:
    assert page.index(DECISIONS[report.decision]) < page.index('id="matrix"')
    for _, sentence in sentences(report):
        assert all(line in html.unescape(page) for line in sentence.splitlines())
    assert page.index('id="matrix"') < page.index('id="assumptions"') < page.index('id="limitations"')
    assert "agreed on" in page


@pytest.mark.parametrize(
    ("rule", "outcome", "verdict", "mark"),
    [
        (Rule.MUST_HIDE, Outcome.LEAK, Verdict.FAILED, Mark.WRONG),
        (Rule.MAY_BE_SEEN, Outcome.OVER, Verdict.FAILED, Mark.WRONG),
        (Rule.MUST_HIDE, Outcome.NOT_DECIDED, Verdict.NOT_DECIDED, Mark.NOTICE),
        (Rule.MAY_BE_SEEN, Outcome.NOT_DECIDED, Verdict.NOT_DECIDED, Mark.NOTICE),
    ],
)
def test_what_is_wrong_or_undecided_is_said_first_and_by_name(
    report: Audit, rule: Rule, outcome: Outcome, verdict: Verdict, mark: Mark
) -> None:
    changed = with_outcome(report, rule, outcome)
    (one,) = (one for one in changed.results if (one.rule, one.outcome) == (rule, outcome))
    assert changed.decision is verdict
    assert DECISIONS[verdict] in to_html(changed)
    title = find_attack(one.attack).title
    assert any(found is mark and title in sentence for found, sentence in sentences(changed))


def test_no_verdict_is_said_beyond_what_was_tried_or_would_be_released(report: Audit) -> None:
    two = report.model_copy(update={"settings": report.settings.model_copy(update={"clients": 2})})
    assert any(mark is Mark.WRONG and "has the other's, exactly" in sentence for mark, sentence in sentences(two))
    assert "left out" not in decision(report)
    fewer = report.model_copy(update={"attacks": report.attacks[1:]})
    assert decision(fewer).endswith(f"; {report.attacks[0].name} were left out.")
    checks = [one.model_copy(update={"refused": True, "findings": ("too few rows",)}) for one in report.checks]
    total = report.checks[0].exposure
    (found,) = (
        (mark, sentence)
        for mark, sentence in sentences(report.model_copy(update={"checks": checks}))
        if sentence.lower().startswith(f"{total} (")
    )
    assert found[0] is not Mark.FINE
    assert "checks does not release it: too few rows." in found[1]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_epsilon_is_said_as_what_one_person_is_promised(report: Audit, epsilon: float) -> None:
    """The likelihood of a right guess at even odds, exp(epsilon) / (1 + exp(epsilon)), and delta's share."""
    said = promise(report.two_worlds[0].model_copy(update={"epsilon": epsilon}), 20)
    (stated,) = re.findall(r"right at most ([\d.]+) times of 100", said)
    likely = 100 / (1 + math.exp(-epsilon))
    assert likely <= float(stated) < likely + 0.11  # rounded up to a tenth


def test_the_page_needs_nothing_from_elsewhere(page: str) -> None:
    parsed = Page(page)
    assert parsed.loaded == []
    assert "script" not in parsed.tags
    assert "Content-Security-Policy" in page
    assert "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", page).split("<h2>Configuration")[0]


def test_nothing_on_the_page_says_safe(page: str) -> None:
    words = re.findall(r"\b[^.]*\bsafe\b[^.]*", re.sub(r"<[^>]+>", " ", page))
    assert all("No line says" in sentence for sentence in words)


def test_the_curve_says_in_words_what_it_shows_and_marks_the_owner_s_size(page: str) -> None:
    (label,) = re.findall(r'<svg role="img" aria-label="([^"]+)"', page)
    assert "5 clients" in label
    assert "20 clients" in label
    assert "20 (yours)" in page


@needs_chromium
def test_a_browser_opens_the_page_without_a_complaint(report: Audit, page: str, tmp_path: Path) -> None:
    file = tmp_path / "audit.html"
    file.write_text(page, encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.open(file)
        assert tab.seen("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
        cells = tab.evaluate(
            "[...document.querySelectorAll('td[data-attack]')].filter(c => c.querySelector('b')).map("
            "c => [c.dataset.attack, c.dataset.exposure, c.querySelector('b').textContent, c.offsetHeight])"
        )
        assert tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert all(height > 10 for *_, height in cells)
    assert {(name, seen): outcome for name, seen, outcome, _ in cells} == {
        (one.attack, one.exposure): one.outcome.value for one in report.results
    }


# The command


def test_one_command_leaves_a_decision_json_page_and_assessment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 600)
    features = (rng.normal(size=(600, 20)) + 2 * np.eye(20)[labels]).astype(np.float32)
    np.savez(
        tmp_path / "own.npz", x_train=features[:500], y_train=labels[:500], x_test=features[500:], y_test=labels[500:]
    )
    code = main([
        "audit", "--data", str(tmp_path / "own.npz"), "--modes", "plain,masked", "--clients", "8", "--rows", "30",
        "--cohorts", "2,9", "--attacks", "class_means,membership,collusion", "--epsilon", "none",
        "--limit", "membership=none", "--format", "Q4.12", "--json", str(tmp_path / "out.json"),
        "--html", str(tmp_path / "out.html"), "--dpia", str(tmp_path / "dpia.md"),
    ])  # fmt: skip
    output = capsys.readouterr()
    assert code == 0, output
    document = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(document, Audit.schema_of_report())
    assert document["settings"]["format"] == "Q4.12"
    assert document["rule"]["limits"]["membership"] is None
    assert str(tmp_path) not in json.dumps(document)
    assert Page((tmp_path / "out.html").read_text()).pictures == []
    assert "audit of afl on own" in output.out
    assert DECISIONS[Verdict.PASSED] in output.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dpia.md", "out.html", "out.json", "own.npz"]
    draft = (tmp_path / "dpia.md").read_text()
    stated = (
        DECISIONS[Verdict.PASSED],
        document["dataset"]["sha256"],
        "8, with about 30 rows each",
        "total of 9 clients",
    )
    for words in (*stated, *(one["exposed_by"] for one in document["exposures"]), *document["limitations"]):
        assert words in draft, words
    assert all(f"| {one['attack']} | {one['exposure']} | {one['outcome']} |" in draft for one in document["results"])


@pytest.mark.parametrize(
    ("outcome", "code", "decision"),
    [(None, 0, Verdict.PASSED), (Outcome.LEAK, 1, Verdict.FAILED), (Outcome.NOT_DECIDED, 1, Verdict.NOT_DECIDED)],
)
def test_the_exit_code_is_0_for_passed_alone(
    report: Audit,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outcome: Outcome | None,
    code: int,
    decision: Verdict,
) -> None:
    found = report if outcome is None else with_outcome(report, Rule.MUST_HIDE, outcome)
    monkeypatch.setattr(audit_command, "audit", lambda *_, **__: found)
    assert main(["audit"]) == code
    assert DECISIONS[decision] in capsys.readouterr().out.replace("\n", " ")


def test_what_cannot_be_audited_ends_with_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--clients", "1000"]) == 2
    assert "audit fewer clients" in capsys.readouterr().err
    assert main(["audit", "--limit", "rows=1"]) == 2
    assert "a limit is NAME=NUMBER" in capsys.readouterr().err


def test_the_terminal_shows_every_result(report: Audit) -> None:
    file = io.StringIO()
    print_audit(report, Console(file=file, width=400))
    lines = file.getvalue().splitlines()
    for one in report.results:
        assert any(one.attack in line and line.startswith(one.exposure) for line in lines), one


@pytest.mark.slow
def test_the_default_run_takes_at_most_40_seconds_of_a_processor(digits: Dataset) -> None:
    began = time.process_time()
    audit(digits, AuditSettings())
    assert time.process_time() - began <= MOST_SECONDS
