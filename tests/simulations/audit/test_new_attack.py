"""A further attack is one file: a stranger's, and a toy that makes sums of its own, go through a whole audit."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console
from support import stranger
from support.pages import Page

from analytic_secagg.datasets import Dataset
from analytic_secagg.modes import Mode, choose_modes
from simulations.audit import attacks, catalogue
from simulations.audit.attack import Attack, NotTriedError, in_the_clear
from simulations.audit.audit import audit
from simulations.audit.decide import Outcome as Comes
from simulations.audit.decide import Verdict
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Kind
from simulations.audit.record import Audit
from simulations.audit.settings import AuditSettings
from simulations.audit.workbench import Bench
from simulations.report.audit_findings import print_audit
from simulations.report.audit_page import to_html


class Eavesdropping(Attack):
    """Sums of its own, of two clients; it reads the first one's message."""

    name = "eavesdropping"
    title = "One client of two"
    explanation = "Reads a message. Success: every number exact. Chance: less than naming one row out of the pool."

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Score:
        assert mode is not None
        if mode.name == "committee":
            raise NotTriedError("eavesdropping: a committee does not meet for two")
        hits = 0
        for _ in range(trials):
            recorded = bench.run(mode, bench.vectors(bench.cohort(2)))
            upload = next(one.message for one in recorded.envelopes if one.sender == 1)
            hits += in_the_clear(mode) and recorded.inputs[1].size > 0 and len(upload) > 0
        return Score(hits=hits, trials=trials, chance=1 / 1000)


@pytest.fixture
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> frozenset[str]:
    """The stranger's file lies in the folder of attacks; nothing else knows of it."""
    (file,) = (path for folder in stranger.__path__ for path in Path(folder).glob("last_number.py"))
    assert sum(bool(line.strip()) for line in file.read_text().splitlines()) <= 20
    shutil.copy(file, tmp_path)
    monkeypatch.setattr(attacks, "__path__", [*attacks.__path__, str(tmp_path)])
    found = {one.name: one for one in catalogue._found()}
    new = {name: found[name] for name in found.keys() - catalogue.ATTACKS.keys()}
    assert set(new) == {"last_number"}
    for name, one in (new | {"eavesdropping": Eavesdropping()}).items():
        monkeypatch.setitem(catalogue.ATTACKS, name, one)  # type: ignore[arg-type]
    return catalogue.choose_attacks(["last_number", "eavesdropping"])


def test_a_stranger_s_attack_is_in_results_json_page_and_terminal(digits: Dataset, strangers: frozenset[str]) -> None:
    report = audit(
        digits,
        AuditSettings(
            modes=choose_modes(["plain", "masked", "committee"]),
            attacks=strangers,
            cohorts=(3,),
            epsilon=(8.0,),
            two_world_runs=100,
            clients=12,
            rows_per_client=10,
        ),
    )
    outcomes = {(one.attack, one.exposure): one.outcome for one in report.results}
    assert outcomes["last_number", "plain"] is outcomes["eavesdropping", "plain"] is Comes.WON
    for mode in ("masked", "committee"):
        assert outcomes["last_number", mode] is Comes.NOTHING_FOUND
    kinds = {one.name: one.kind for one in report.exposures}
    assert {kinds[exposure] for attack, exposure in outcomes if attack == "last_number"} == {
        Kind.MESSAGE, Kind.TOTAL, Kind.MODEL, Kind.NOISY_TOTAL,
    }  # fmt: skip
    totals = [one for one in report.results if kinds[one.exposure] == Kind.TOTAL]
    assert [(one.exposure, one.hits, one.outcome) for one in totals] == [
        ("total of 12 clients", 1, Comes.SEEN), ("total of 9 clients", 1, Comes.SEEN),
        ("total of 3 clients", 1, Comes.SEEN),
    ]  # fmt: skip
    assert ("eavesdropping", "committee") not in outcomes
    assert "committee: eavesdropping: a committee does not meet for two" in report.limitations
    assert report.decision is Verdict.PASSED
    document = json.loads(report.to_json())
    jsonschema.validate(document, Audit.schema_of_report())
    assert {one["attack"] for one in document["results"]} == {"last_number", "eavesdropping"}
    assert [one["name"] for one in document["attacks"]] == ["last_number", "eavesdropping"]
    cells = Page(to_html(report)).cells
    for place, outcome in outcomes.items():
        assert cells[place].startswith(outcome.value)
    file = io.StringIO()
    print_audit(report, Console(file=file, width=200))
    assert file.getvalue().count("last_number") == sum(attack == "last_number" for attack, _ in outcomes)
