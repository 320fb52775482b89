"""Faulty masks are noticed by the attacks that are made for them, and honest ones are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from support.mask_faults import DICE, MASK_FAULTS, WORDS, WORLDS, MaskFault, with_fault

from simulations.audit.attack import MASKED, SentAttack
from simulations.audit.workbench import Bench


def wide(bench: Bench) -> Bench:
    """A bench with as many clients as it takes to tell a coin from luck."""
    return replace(bench, clients=22)


@pytest.mark.parametrize("fault", MASK_FAULTS, ids=lambda fault: fault.name)
def test_every_named_attack_catches_the_fault_of_masks_and_is_silent_without(bench: Bench, fault: MaskFault) -> None:
    runs = wide(bench).runs(MASKED)
    for attack in fault.caught_by:
        spoiled = [(cohort, with_fault(recorded, fault)) for cohort, recorded in runs]
        assert attack.against_messages(bench, spoiled).leaked
        assert not attack.against_messages(bench, runs).leaked


@pytest.mark.slow
@pytest.mark.parametrize("attack", [DICE, WORLDS, WORDS], ids=lambda attack: attack.name)
def test_honest_masks_raise_no_alarm(bench_of: Callable[[int], Bench], attack: SentAttack) -> None:
    for seed in range(2, 22):
        bench = wide(bench_of(seed))
        assert not attack.against_messages(bench, bench.runs(MASKED)).leaked
