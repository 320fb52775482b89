"""The audit from end to end: verdicts, files, exit codes, and a page that people, readers and browsers can read."""

from __future__ import annotations

import argparse
import io
import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from rich.console import Console
from simulations.report.audit_html import folded, promise, to_html
from support.pages import Page, browser, needs_chromium

from analytic_secagg.datasets import bundled
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS
from analytic_secagg.modes import MODES, choose_modes
from simulations.audit import command as audit_command
from simulations.audit.attack import Expectation
from simulations.audit.attacks.statistics import LONE_ROWS
from simulations.audit.audit import PRIVATE_TOTAL, TOTAL, Audit, AuditSettings, Cell, audit
from simulations.audit.catalogue import ATTACKS, choose_attacks
from simulations.audit.evaluate import Score, Verdict
from simulations.audit.negative_controls import MASK_FAULTS
from simulations.audit.noisy_totals import NOISE_FAULTS
from simulations.report.audit_findings import findings, print_audit
from simulations.report.page import row_picture

FOUR = ("lone_rows", "lattice_rows", "dictionary", "collusion")
"""On messages, on totals, on rows that are known, and of colluders; ``test_attacks.py`` plays each attack alone."""


def settings(**changes: object) -> AuditSettings:
    small: dict[str, object] = {
        "learner": LEARNERS["afl"],
        "modes": choose_modes(["plain", "masked"]),
        "attacks": choose_attacks(FOUR),
        "rows_per_client": 6,
        "sessions": 1,
        "trials": 3,
        "cohorts": (2, 20),
        "row_counts": (6, 20),
        "epsilon": (8.0,),
    }
    return AuditSettings(**(small | changes))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def report() -> Audit:
    return audit(bundled("digits"), settings())


@pytest.fixture(scope="module")
def page(report: Audit) -> str:
    return to_html(report)


def replace_cell(cell: Cell, **changes: object) -> Cell:
    return cell.model_copy(update=changes)


def leaky(report: Audit) -> Audit:
    """The same report with a masked cell that leaks."""
    bad = Cell(
        attack="lone_rows",
        mode="masked",
        score=Score(hits=40, trials=40, chance=0.01),
        expectation=Expectation.HIDDEN,
    )
    cells = [bad if (cell.attack, cell.mode) == ("lone_rows", "masked") else cell for cell in report.cells]
    return report.model_copy(update={"cells": cells})


def test_plain_loses_masked_holds_and_the_total_still_leaks(report: Audit) -> None:
    assert report.holds
    for name in ("lone_rows", "lattice_rows", "dictionary"):
        assert report.cell(name, "plain").verdict is Verdict.RECOVERED, name
        assert report.cell(name, "masked").verdict is Verdict.NO_EVIDENCE, name
    assert report.cell("dictionary", TOTAL).verdict is Verdict.RECOVERED
    assert report.cell("afl_upload", "masked").verdict is Verdict.DOES_NOT_APPLY
    assert report.coalitions
    assert all(one.as_stated for one in report.coalitions)
    assert [control.name for control in report.controls] == [
        *(one.name for one in MASK_FAULTS),
        "mask_reuse",
        "unbound",
    ]
    assert all(control.caught for control in report.controls)
    assert list(report.controls[0].scores) == ["uniformity", "told_apart"]
    assert all(one.as_expected for one in report.noise)
    assert [one.name for one in report.noise] == ["honest", *(fault.name for fault in NOISE_FAULTS)]
    assert report.noise[-1].canary_epsilon > 3 * report.noise[-1].epsilon  # rows beyond the bound
    assert 0.9 * report.noise[0].epsilon < report.noise[0].canary_epsilon <= report.noise[0].epsilon
    assert report.columns == ("plain", "masked", TOTAL, PRIVATE_TOTAL)


def test_what_is_held_follows_from_the_seed(report: Audit) -> None:
    few = {"attacks": choose_attacks(["lattice_rows"]), "epsilon": (), "cohorts": (2,), "row_counts": (6,)}
    few["modes"] = choose_modes(["plain"])
    first, again = (audit(bundled("digits"), settings(**few)) for _ in range(2))
    other = audit(bundled("digits"), settings(seed=1, **few))
    trials = [[cell.score.trials for cell in one.cells if cell.score] for one in (first, again, other)]
    assert trials[0] == trials[1] != trials[2]


def test_small_totals_are_rebuilt_and_large_ones_are_not(report: Audit) -> None:
    rates = {(point.attack, point.clients): point.score.rate for point in report.cohort_curve}
    assert rates["lattice_rows", 2] == 1.0
    assert rates["lattice_rows", 20] == 0.0
    assert rates["dictionary", 20] == 1.0


def test_too_many_clients_for_the_data_are_said_and_not_hidden() -> None:
    few = settings(attacks=choose_attacks(["lattice_rows"]), epsilon=(), cohorts=(2, 5000), row_counts=(6, 5000))
    found = audit(bundled("digits"), few)
    assert any("totals of 5000 clients" in item for item in found.not_tested)
    assert any("plain messages of 5000 rows" in item for item in found.not_tested)
    with pytest.raises(UsageError, match="audit fewer clients"):
        audit(bundled("digits"), settings(clients=5000))


@pytest.mark.parametrize("learner", ["fedhip", "safle"])
def test_every_learner_can_be_audited(learner: str) -> None:
    attacks = choose_attacks(["label_histogram", "class_means", "peeling", "membership", "afl_upload"])
    options = {"learner": LEARNERS[learner], "attacks": attacks, "epsilon": (), "cohorts": (2,), "row_counts": (6,)}
    rows = bundled("breast_cancer")
    narrow = replace(rows, x_train=rows.x_train[:, :8], x_test=rows.x_test[:, :8], columns=rows.columns[:8])
    found = audit(narrow, settings(clients=4, rows_per_client=4, **options))
    assert found.cell("class_means", "plain").verdict is Verdict.RECOVERED
    assert found.cell("class_means", "masked").verdict is Verdict.NO_EVIDENCE
    assert (found.cell("afl_upload", "plain").verdict is Verdict.RECOVERED) == (learner == "fedhip")
    assert any("AFL's published upload" in item for item in found.not_tested) == (learner != "fedhip")
    if learner == "safle":
        assert found.cell("peeling", "plain").verdict is Verdict.RECOVERED


def test_a_leak_and_a_toothless_attack_are_said_loudly(report: Audit) -> None:
    bad = leaky(report)
    assert not bad.holds
    assert any(not fine and f"LEAKS what it must hide: {LONE_ROWS.title}" in text for fine, text in findings(bad))
    assert "not as promised" in to_html(bad)
    blunt = Cell(
        attack="membership", mode="plain", score=Score(hits=0, trials=90, chance=0.5), expectation=Expectation.LEAKS
    )
    toothless = report.model_copy(update={"cells": [blunt]})
    assert any(not fine and "not won where it must be" in text for fine, text in findings(toothless))
    assert all(fine for fine, _ in findings(report))


def test_settings_check_themselves() -> None:
    for wrong in ({"clients": 1}, {"rows_per_client": 1}, {"cohorts": (1,)}, {"modes": ()}, {"epsilon": (0.0,)}):
        with pytest.raises(UsageError):
            settings(**wrong)


# JSON


def test_the_json_report_follows_its_schema_and_holds_no_row(report: Audit) -> None:
    schema = Audit.schema_of_report()
    jsonschema.Draft202012Validator.check_schema(schema)
    for one in (report, leaky(report)):
        document = json.loads(one.to_json())
        assert document == json.loads(json.dumps(one.to_document()))
        jsonschema.validate(document, schema)
    drawn = [picture.true for cell in report.cells if cell.score for picture in cell.score.pictures]
    assert drawn
    text = re.sub(r"\s+", " ", report.to_json())
    for row in drawn:
        assert json.dumps(row.tolist())[1:-1] not in text


# The page


def test_the_matrix_can_be_read_from_the_page(report: Audit, page: str) -> None:
    parsed = Page(page)
    assert set(parsed.cells) == {(name, mode) for name in FOUR for mode in report.columns}
    for (name, mode), text in parsed.cells.items():
        assert text.startswith(report.cell(name, mode).verdict.value)
    assert parsed.cells["lone_rows", "plain"].startswith("recovered")
    assert parsed.unscoped == []


def test_who_checks_sees_equal_cells_as_one_and_of_a_hundred_people(report: Audit) -> None:
    modes = [MODES[name] for name in ("plain", "masked", "ckks", "bfv")]
    score = Score(hits=0, trials=40, chance=0.5)
    cells = [replace_cell(report.cell("dictionary", "masked"), mode=mode.name, score=score) for mode in modes[1:]]
    several = report.model_copy(
        update={
            "cells": [*cells[:2], replace_cell(cells[2], score=Score(hits=40, trials=40, chance=0.5))],
            "settings": report.settings.model_copy(update={"modes": tuple(mode.name for mode in modes)}),
        }
    )
    found = dict(folded(several))[ATTACKS["dictionary"].title]
    assert [len(one) for one in found] == [0, 2, 0, 0]
    alike, broken = found[1]
    assert (alike.fine, alike.words) == (True, "right for none of 100, by guessing alone for 50 (0 of 80 tries)")
    assert alike.where == "masked, encrypted (CKKS): "
    assert (broken.fine, broken.verdict) == (False, Verdict.RECOVERED)
    page = to_html(several)
    assert "recovered (not as promised)" in page
    assert page.index('id="folded"') < page.index('id="matrix"')


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_epsilon_is_said_as_what_one_person_is_promised(report: Audit, epsilon: float) -> None:
    """The likelihood of a right guess at even odds, exp(epsilon) / (1 + exp(epsilon)), and delta's share."""
    said = promise(report.noise[0].model_copy(update={"epsilon": epsilon}))
    (stated,) = re.findall(r"right at most ([\d.]+) times of 100", said)
    likely = 100 / (1 + math.exp(-epsilon))
    assert likely <= float(stated) < likely + 0.11  # rounded up to a tenth


def test_the_page_needs_nothing_from_elsewhere(page: str) -> None:
    parsed = Page(page)
    assert all(target.startswith("data:image/png;base64,") for target in parsed.loaded)
    assert "script" not in parsed.tags
    assert "Content-Security-Policy" in page
    assert "http://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", page).split("<h2>Configuration")[0]


def test_pictures_have_words_and_show_true_rows_beside_rebuilt_ones(page: str) -> None:
    pictures = Page(page).pictures
    assert len(pictures) >= 2
    assert all(picture["alt"] for picture in pictures)
    exact = [p for p in pairwise(pictures) if "equal to the true one" in str(p[1]["alt"])]
    assert exact
    assert all(left["src"] == right["src"] for left, right in exact)


def test_a_page_to_share_has_no_row(report: Audit, page: str) -> None:
    text = to_html(report, pictures=False)
    assert Page(text).pictures == []
    assert "Keep it like the data itself" not in text
    assert "Keep it like the data itself" in page


def test_nothing_on_the_page_says_safe(page: str) -> None:
    words = re.findall(r"\b[^.]*\bsafe\b[^.]*", re.sub(r"<[^>]+>", " ", page))
    assert all("No cell says" in sentence or "never" in sentence or "none of them" in sentence for sentence in words)


def test_every_plot_says_in_words_what_it_shows(page: str) -> None:
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', page)
    assert len(labels) == 3
    assert "lattice_rows: 2: 100%" in labels[1]


def test_a_picture_is_a_png_of_the_row() -> None:
    import base64

    from matplotlib.image import imread

    data = base64.b64decode(row_picture(np.array([0, 16, 8, 4]), 16).split(",")[1])
    assert np.round(255 * imread(io.BytesIO(data))).tolist() == [[255, 0], [127, 191]]
    padded = base64.b64decode(row_picture(np.array([16, 16, 16, 16, 16]), 16).split(",")[1])
    assert imread(io.BytesIO(padded)).shape == (3, 3)


@needs_chromium
def test_a_browser_opens_the_page_without_a_complaint(report: Audit, page: str, tmp_path: Path) -> None:
    file = tmp_path / "audit.html"
    file.write_text(page, encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        tab.open(file)
        assert tab.seen("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded") == []
        shown = "[...document.querySelectorAll('#folded, #matrix')].map(table => table.offsetHeight > 0)"
        assert tab.evaluate(shown) == [True, False]  # whoever checks comes first
        tab.evaluate("document.getElementById('researcher').click()")
        assert tab.evaluate(shown) == [False, True]
        cells = tab.evaluate(
            "[...document.querySelectorAll('td[data-attack]')].map("
            "c => [c.dataset.attack, c.dataset.mode, c.querySelector('b').textContent, c.offsetHeight])"
        )
    assert all(height > 10 for *_, height in cells)
    assert {(name, mode): verdict for name, mode, verdict, _ in cells} == {
        (name, mode): report.cell(name, mode).verdict.value for name in FOUR for mode in report.columns
    }


# The command


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    audit_command.COMMAND.add_arguments(parser)
    return audit_command.COMMAND(parser.parse_args(arguments))


def test_one_command_leaves_verdicts_json_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 300)
    features = (rng.normal(size=(300, 20)) + 2 * np.eye(20)[labels]).astype(np.float32)
    np.savez(
        tmp_path / "own.npz", x_train=features[:200], y_train=labels[:200], x_test=features[200:], y_test=labels[200:]
    )
    code = command(
        "--data", str(tmp_path / "own.npz"), "--modes", "plain,masked", "--clients", "8", "--rows", "6",
        "--cohorts", "2,9", "--attacks", "class_means,lattice_rows,membership,collusion", "--epsilon", "none",
        "--coalitions", "4,5", "--format", "Q4.12", "--json", str(tmp_path / "out.json"),
        "--html", str(tmp_path / "out.html"), "--no-pictures",
    )  # fmt: skip
    assert code == 0
    document = json.loads((tmp_path / "out.json").read_text())
    jsonschema.validate(document, Audit.schema_of_report())
    assert document["settings"]["format"] == "Q4.12"
    assert [one["members"] for one in document["coalitions"] if "of 7" in one["coalition"]] == [4, 5]
    assert str(tmp_path) not in json.dumps(document)
    assert Page((tmp_path / "out.html").read_text()).pictures == []
    output = capsys.readouterr()
    assert "audit of afl on own" in output.out
    assert output.out.count("recovered") >= 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "out.json", "own.npz"]


def test_a_finding_ends_with_code_1_and_is_an_error(
    report: Audit, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit_command, "audit", lambda *_, **__: leaky(report))
    assert command() == 1
    assert f"error: masked: LEAKS what it must hide: {LONE_ROWS.title}" in capsys.readouterr().err


def test_a_choice_of_attacks_makes_no_other_sums() -> None:
    two = choose_attacks(["row_count", "class_means"])
    found = audit(bundled("digits"), settings(modes=choose_modes(["masked"]), attacks=two, epsilon=None))
    assert {cell.attack for cell in found.cells} == {"row_count", "class_means"}
    assert (found.noise, found.cohort_curve, found.settings.epsilon) == ([], [], ())
    assert settings(attacks=choose_attacks(None), epsilon=None).tried_epsilon == (1.0, 8.0)


def test_the_terminal_shows_the_whole_matrix(report: Audit) -> None:
    file = io.StringIO()
    print_audit(report, Console(file=file, width=200))
    lines = [line.split() for line in file.getvalue().splitlines()]
    for name in FOUR:
        assert any(line and line[0] == name for line in lines)
    assert "no evidence of leakage at this power" in file.getvalue()


@pytest.mark.slow
def test_the_default_audit_of_digits_takes_less_than_five_minutes() -> None:
    found = audit(
        bundled("digits"),
        AuditSettings(learner=LEARNERS["afl"], modes=choose_modes(None), attacks=choose_attacks(None)),
    )
    assert found.holds
    assert found.seconds < 300
    assert {point.clients for point in found.cohort_curve} == {2, 5, 20, 100}
