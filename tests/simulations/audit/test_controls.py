"""Planted faults are caught, each by the attacks that are named for it; what is not planted is not."""

from __future__ import annotations

import pytest

from federation.modes import MODES
from simulations.audit.attacks.told_apart import ToldApart
from simulations.audit.attacks.uniformity import Uniformity
from simulations.audit.controls import against, controls
from simulations.audit.evaluate import Verdict
from simulations.audit.planted_bugs import BUGS, with_bug
from simulations.audit.recorder import RecordedSum
from simulations.audit.workbench import Bench, Cohort

CAUGHT = (Verdict.LEAKS, Verdict.RECOVERED)
ATTACKS = {attack.name: attack for attack in (Uniformity(), ToldApart())}


@pytest.fixture
def run(bench: Bench) -> tuple[Cohort, RecordedSum]:
    cohort = bench.cohort(22)
    return cohort, bench.run(MODES["masked"], bench.vectors(cohort))


@pytest.mark.parametrize("name", BUGS)
def test_every_named_attack_catches_the_planted_fault(bench: Bench, run: tuple[Cohort, RecordedSum], name: str) -> None:
    cohort, recorded = run
    for attack in BUGS[name].caught_by:
        assert against(bench, ATTACKS[attack], [(cohort, with_bug(recorded, BUGS[name]))]).verdict in CAUGHT
        assert against(bench, ATTACKS[attack], [run]).verdict is Verdict.NO_EVIDENCE


def test_all_controls_are_caught(bench: Bench, run: tuple[Cohort, RecordedSum]) -> None:
    found = list(controls(bench, [run], 4))
    assert [control.name for control in found] == [*BUGS, "mask_reuse", "unbound"]
    assert all(control.caught for control in found)
