"""A further attack is one object: two toys, defined here, go through a whole audit, its pages and its JSON."""

from __future__ import annotations

import io
import json

import jsonschema
import numpy as np
import pytest
from rich.console import Console
from simulations.report.audit_html import to_html

from analytic_secagg.datasets import Dataset
from analytic_secagg.learners import LEARNERS
from analytic_secagg.modes import Mode, choose_modes
from secagg import PartyId
from simulations.audit.attack import Attack, MessageAttack, NotTriedError, Outcome, in_the_clear
from simulations.audit.audit import TOTAL, Audit, AuditSettings, audit
from simulations.audit.catalogue import ATTACKS, choose_attacks
from simulations.audit.evaluate import Score, Verdict
from simulations.audit.population import Truth
from simulations.audit.view import AdversaryView
from simulations.audit.workbench import Bench
from simulations.report.audit_findings import print_audit


class LastNumber(MessageAttack[int | None]):
    """The last number of a vector is the number of rows."""

    name = "last_number"
    former_name = "tail"
    title = "The number of rows, as it is sent"
    explanation = "Reads the last number of a message. Success: the number of rows. Chance: any number of rows."
    on_totals = True
    by_cohort = True
    by_rows = True

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> int | None:
        vector = view.read(target)
        return None if vector is None else int(vector[-1])

    def score(self, guess: int | None, truth: Truth, rng: np.random.Generator) -> Score:
        return Score(hits=int(guess == len(truth.rows)), trials=1, chance=1 / truth.row_counts)


class Eavesdropping(Attack):
    """Sums of its own, of two clients; it reads the first one's message."""

    name = "eavesdropping"
    title = "One client of two"
    explanation = "Reads a message. Success: every number exact. Chance: less than naming one row out of the pool."

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        assert mode is not None
        if mode.name == "committee":
            raise NotTriedError("eavesdropping: a committee does not meet for two")
        hits = 0
        for _ in range(trials):
            recorded = bench.run(mode, bench.vectors(bench.cohort(2)))
            upload = next(one.message for one in recorded.envelopes if one.sender == 1)
            hits += in_the_clear(mode) and recorded.inputs[1].size > 0 and len(upload) > 0
        return Outcome(score=Score(hits=hits, trials=trials, chance=1 / 1000))


def test_two_toys_go_through_everything(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    for attack in (LastNumber(), Eavesdropping()):
        monkeypatch.setitem(ATTACKS, attack.name, attack)  # type: ignore[arg-type]
    report = audit(
        digits,
        AuditSettings(
            learner=LEARNERS["afl"],
            modes=choose_modes(["plain", "masked", "committee"]),
            attacks=choose_attacks(["tail", "eavesdropping"]),
            sessions=2,
            rows_per_client=10,
            cohorts=(3,),
            row_counts=(6,),
            epsilon=(),
        ),
    )
    assert report.holds
    assert report.cell("last_number", "plain").verdict is Verdict.RECOVERED
    assert report.cell("last_number", "masked").verdict is Verdict.NO_EVIDENCE
    assert report.cell("last_number", TOTAL).score is not None
    assert report.cell("eavesdropping", "plain").verdict is Verdict.RECOVERED
    assert report.cell("eavesdropping", "masked").verdict is Verdict.NO_EVIDENCE
    assert report.cell("eavesdropping", "committee").verdict is Verdict.DOES_NOT_APPLY
    assert "eavesdropping: a committee does not meet for two" in report.not_tested
    assert [point.clients for point in report.cohort_curve] == [3]
    assert [point.rows for point in report.row_curve] == [6]
    document = json.loads(report.to_json())
    jsonschema.validate(document, Audit.schema_of_report())
    assert [one["name"] for one in document["attacks"]] == ["tail", "eavesdropping"]
    assert {cell["attack"] for cell in document["cells"]} == {"tail", "eavesdropping"}
    assert 'data-attack="last_number"' in to_html(report)
    console = Console(file=io.StringIO(), width=200)
    print_audit(report, console)
    assert isinstance(console.file, io.StringIO)
    assert "last_number" in console.file.getvalue()
