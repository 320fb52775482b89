"""Planted faults of masks and of noise are caught, each by what is named for it; what is not planted is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.planted_faults import PLANTED, by_attack, table

from federation.datasets import Dataset, bundled
from federation.modes import MODES, Mode, choose_modes
from secagg.entropy import Entropy, os_entropy
from simulations.audit.attack import MASKED, Attack
from simulations.audit.audit import AuditSettings, Cell
from simulations.audit.catalogue import ATTACKS
from simulations.audit.evaluate import Verdict
from simulations.audit.negative_controls import MASK_FAULTS, MaskFault, with_fault
from simulations.audit.noisy_totals import NOISE_FAULTS, lattice_p_value, noise_evidence
from simulations.audit.population import Population
from simulations.audit.workbench import Bench


def alarmed(attack: Attack, bench: Bench, mode: Mode) -> bool:
    """Whether a report with this attack says that something is not as promised."""
    outcome = attack.play(bench, mode, 3)
    expectation = attack.expected(mode)
    assert expectation is not None
    cell = Cell(attack=attack.name, mode=mode.name, score=outcome.score, expectation=expectation)
    return not (cell.as_expected and all(one.as_stated for one in outcome.coalitions))


@pytest.fixture(autouse=True)
def five_clients_collude(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every coalition of five clients, and not of seven: a third of the time. Slow tests take the seven of a report."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr("simulations.audit.attacks.collusion.COHORT", 5)


def fresh(bench: Bench, entropy: Entropy = os_entropy) -> Bench:
    """A small bench whose sums are made anew."""
    return replace(bench, clients=7, sessions=2, entropy=entropy)


@pytest.mark.parametrize(("name", "attack"), list(by_attack()))
def test_a_planted_fault_is_noticed(bench: Bench, name: str, attack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[name]
    (mode,) = AuditSettings(modes=(MODES[planted.mode],)).tried_modes
    planted.plant(monkeypatch)
    assert alarmed(ATTACKS[attack], fresh(bench, planted.entropy()), mode)


@pytest.mark.parametrize(
    ("mode", "attack"), sorted({(PLANTED[name].mode, attack) for name, attack in by_attack()}), ids=str
)
@pytest.mark.parametrize("seeds", [range(1, 2), pytest.param(range(2, 51), marks=pytest.mark.slow)], ids=["", "50"])
def test_without_a_fault_nothing_is_noticed(
    bench_of: Callable[[int], Bench], mode: str, attack: str, seeds: range
) -> None:
    (tried,) = AuditSettings(modes=(MODES[mode],)).tried_modes
    assert [seed for seed in seeds if alarmed(ATTACKS[attack], fresh(bench_of(seed)), tried)] == []


def test_the_page_lists_every_fault() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "planted-faults.md").read_text(encoding="utf-8")
    assert table() in page
    assert f"{len(PLANTED)} are built into" in page
    assert all(f"| {fault.title} |" in page for fault in (*MASK_FAULTS, *NOISE_FAULTS))


CAUGHT = (Verdict.LEAKS, Verdict.RECOVERED)


@pytest.mark.parametrize("fault", MASK_FAULTS, ids=lambda fault: fault.name)
def test_every_named_attack_catches_the_planted_fault(bench: Bench, fault: MaskFault) -> None:
    runs = replace(bench, clients=22).runs(MASKED)
    for attack in fault.caught_by:
        spoiled = [(cohort, with_fault(recorded, fault)) for cohort, recorded in runs]
        assert attack.against_messages(bench, spoiled).verdict in CAUGHT
        assert attack.against_messages(bench, runs).verdict is Verdict.NO_EVIDENCE


# Of noise


def test_float32_noise_has_no_low_bits() -> None:
    rng = np.random.default_rng(2)
    assert lattice_p_value(rng.integers(-(2**40), 2**40, 10_000)) > 1e-4
    assert lattice_p_value((rng.normal(size=10_000).astype(np.float32) * np.float32(2**40)).astype(np.int64)) < 1e-6


def evidence_of(data: Dataset, epsilons: tuple[float, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    population = Population.of(data, rng)
    modes = tuple(mode for mode in choose_modes(None) if mode.name in ("masked", "committee", "bfv"))
    found = list(noise_evidence(population, epsilons, rng, modes))
    honest, faults = found[: len(epsilons)], {one.name: one for one in found[len(epsilons) :]}
    assert list(faults) == [fault.name for fault in NOISE_FAULTS]
    for one in found:
        assert one.as_expected, (one.title, one.words)
        assert one.fault or max(one.lower_bound, one.canary_epsilon) <= one.epsilon
        assert one.promised_survivors < one.clients
    assert [one.mode for one in honest] == [modes[place % len(modes)].name for place in range(len(honest))]
    assert all(0.9 * one.epsilon < one.canary_epsilon for one in honest)  # the bound is nearly reached, so it is tried
    assert faults["float_noise"].lattice_p_value < 1e-6
    assert faults["halved"].noise_ratio == pytest.approx(0.25, abs=0.02)
    assert faults["bare_mean"].mean_ratio == 0.0
    assert faults["long_rows"].canary_epsilon > 3 * faults["long_rows"].epsilon
    assert faults["long_rows"].beyond_bound > 0
    for name in ("from_session", "kept_noise"):
        assert faults[name].dependence_p_value < 1e-6
        assert not faults[name].too_little


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "breast_cancer"])
def test_noise_stands_for_every_epsilon(name: str) -> None:
    for seed in range(3):
        evidence_of(bundled(name), (0.5, 1.0, 4.0, 8.0), seed)
