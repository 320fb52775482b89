"""The negative controls of every report: planted faults of masks and of noise are caught, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from analytic_secagg.datasets import bundled
from analytic_secagg.modes import choose_modes
from simulations.audit.attack import MASKED, SentAttack
from simulations.audit.negative_controls import (
    DICE,
    MASK_FAULTS,
    WORDS,
    WORLDS,
    MaskFault,
    negative_controls,
    with_fault,
)
from simulations.audit.noisy_totals import NOISE_FAULTS, NoiseEvidence, lattice_p_value, noise_evidence
from simulations.audit.population import Population
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


def test_a_report_s_controls_are_caught_by_all_attacks_that_they_name(bench: Bench) -> None:
    found = {control.name: control for control in negative_controls(wide(bench), 3)}
    assert list(found) == [*(fault.name for fault in MASK_FAULTS), "mask_reuse", "unbound"]
    assert all(score.leaked for control in found.values() for score in control.scores.values())


@pytest.mark.slow
@pytest.mark.parametrize("attack", [DICE, WORLDS, WORDS], ids=lambda attack: attack.name)
def test_honest_masks_raise_no_alarm(bench_of: Callable[[int], Bench], attack: SentAttack) -> None:
    for seed in range(2, 22):
        bench = wide(bench_of(seed))
        assert not attack.against_messages(bench, bench.runs(MASKED)).leaked


# Noise


def test_float32_noise_has_no_low_bits() -> None:
    rng = np.random.default_rng(2)
    assert lattice_p_value(rng.integers(-(2**40), 2**40, 10_000)) > 1e-4
    assert lattice_p_value((rng.normal(size=10_000).astype(np.float32) * np.float32(2**40)).astype(np.int64)) < 1e-6


def evidence(name: str, epsilons: tuple[float, ...], seed: int) -> tuple[list[NoiseEvidence], dict[str, NoiseEvidence]]:
    """Honest runs, and the planted faults by name."""
    rng = np.random.default_rng(seed)
    modes = tuple(mode for mode in choose_modes(None) if mode.name in ("masked", "committee", "bfv"))
    found = list(noise_evidence(Population.of(bundled(name), rng), epsilons, rng, modes))
    honest, faults = found[: len(epsilons)], {one.name: one for one in found[len(epsilons) :]}
    assert list(faults) == [fault.name for fault in NOISE_FAULTS]
    assert [one.mode for one in honest] == [modes[place % len(modes)].name for place in range(len(honest))]
    return honest, faults


def check(honest: list[NoiseEvidence], faults: dict[str, NoiseEvidence]) -> None:
    """Assert that honest noise stands, nearly at its bound, and that each fault shows where it must."""
    for one in (*honest, *faults.values()):
        assert one.as_expected, one.title
        assert one.promised_survivors < one.clients
    assert faults["float_noise"].lattice_p_value < 1e-6
    assert faults["halved"].noise_ratio == pytest.approx(0.25, abs=0.02)
    assert faults["bare_mean"].mean_ratio == 0.0
    for name in ("from_session", "kept_noise"):
        assert faults[name].dependence_p_value < 1e-6
        assert not faults[name].too_little


def test_honest_noise_stands_and_every_fault_of_noise_is_caught() -> None:
    check(*evidence("digits", (8.0,), 0))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_noise_stands_for_every_epsilon(name: str, seed: int) -> None:
    check(*evidence(name, (0.5, 1.0, 4.0, 8.0), seed))
