"""Faults in real deployments end in the exact (or noisy) total or in a clear refusal; rows and budgets stay free."""

from __future__ import annotations

from pathlib import Path

import pytest
from reliability.faults import SHORT, full_list, run
from reliability.harness import CASES, SERVER, Fault, Outcome, theatre


def test_no_fault_of_the_short_list_costs_a_total_rows_or_budget() -> None:
    for line in run(SHORT, are_helpers_apart=False):
        assert line["step"], f"{line['what']} came after the run had ended"
        assert Outcome[line["outcome"]].is_allowed, line


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_no_fault_of_the_full_list_costs_a_total_rows_or_budget(case: str) -> None:
    lines = list(run({case: list(full_list(case))}))
    assert [line for line in lines if not Outcome[line["outcome"]].is_allowed] == []
    assert sum(bool(line["step"]) for line in lines) > 20


@pytest.mark.slow
@pytest.mark.parametrize("case", ["masked", "masked, noise", "committee", "committee, noise"])
def test_a_run_survives_its_server_at_every_step(tmp_path: Path, case: str) -> None:
    """Right before and right after each save of its state, and at each event of its log."""
    with theatre(tmp_path, CASES[case]) as of:
        of.record()
        steps = of.steps[SERVER]
        for number, step in enumerate(steps):
            came = of.suffer(Fault(role="server", what="kill", place=number / len(steps)))
            print(f"died at {number}, {step}: {came.outcome.name}", flush=True)
            assert came.outcome in (Outcome.EXACT, Outcome.RESUMED), came
            assert (came.outcome is Outcome.RESUMED) == bool(came.step)
