"""Planted faults are caught, each by the attacks that are named for it; what is not planted is not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simulations.audit.attack import MASKED
from simulations.audit.evaluate import Verdict
from simulations.audit.negative_controls import MASK_FAULTS, MaskFault, negative_controls, with_fault
from simulations.audit.workbench import Bench

CAUGHT = (Verdict.LEAKS, Verdict.RECOVERED)


@pytest.mark.parametrize("fault", MASK_FAULTS, ids=lambda fault: fault.name)
def test_every_named_attack_catches_the_planted_fault(bench: Bench, fault: MaskFault) -> None:
    runs = replace(bench, clients=22).runs(MASKED)
    for attack in fault.caught_by:
        spoiled = [(cohort, with_fault(recorded, fault)) for cohort, recorded in runs]
        assert attack.against_messages(bench, spoiled).verdict in CAUGHT
        assert attack.against_messages(bench, runs).verdict is Verdict.NO_EVIDENCE


def test_all_controls_are_caught(bench: Bench) -> None:
    found = list(negative_controls(replace(bench, clients=22), 4))
    assert [control.name for control in found] == [*(fault.name for fault in MASK_FAULTS), "mask_reuse", "unbound"]
    assert all(control.caught for control in found)
    assert list(found[0].scores) == ["uniformity", "told_apart"]
