"""The audit: every attack against every mode on real rows, with controls, and what stays in a total."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from analytic.deepafl import DeepAFL
from analytic.row_format import RowFormat
from federation.datasets import Dataset
from federation.errors import UsageError
from federation.learners import LearnerSettings
from federation.modes import MODES, Mode
from secagg.errors import ConfigurationError
from simulations.audit.attack import attacked
from simulations.audit.attacks.lattice_rows import LatticeRows
from simulations.audit.attacks.lone_rows import LoneRows
from simulations.audit.catalogue import (
    NAMES,
    ON_A_TOTAL,
    Expectation,
    expected,
    on_a_message,
)
from simulations.audit.controls import Control, against, controls
from simulations.audit.evaluate import Score, Verdict
from simulations.audit.noisy_totals import NoiseEvidence, noise_evidence
from simulations.audit.population import Population
from simulations.audit.recorder import RecordedSum, view_of
from simulations.audit.scenarios import (
    CoalitionScore,
    afl_upload,
    collusion,
    differencing,
    different_models,
    many_sums,
    mask_reuse,
    own_part,
)
from simulations.audit.settings import AuditSettings
from simulations.audit.view import SERVER_ALONE
from simulations.audit.workbench import Bench, Cohort

TOTAL = "total"
"""The column of what everybody may see: the sum over the default cohort, whatever mode made it."""

PRIVATE_TOTAL = "private total"
"""The column of a sum with noise, for the smallest epsilon."""

DEEP_ROWS, DEEP_WIDTH, DEEP_LAYERS, DEEP_CLIENTS = 300, 64, 2, 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Cell:
    """A cell of the verdict matrix.

    Args:
        attack: its name.
        mode: a mode, or ``TOTAL``.
        score: what was achieved; None where it does not apply.
        expectation: what a protocol that keeps its promise makes of it.
    """

    attack: str
    mode: str
    score: Score | None
    expectation: Expectation

    @property
    def verdict(self) -> Verdict:
        """In fixed words."""
        return Verdict.DOES_NOT_APPLY if self.score is None else self.score.verdict

    @property
    def as_expected(self) -> bool:
        """Whether nothing leaked that must be hidden, and the attack won where it must."""
        leaked = self.verdict in (Verdict.LEAKS, Verdict.RECOVERED)
        if self.verdict in (Verdict.DOES_NOT_APPLY, Verdict.TOO_FEW) or self.expectation is Expectation.OPEN:
            return True
        return leaked == (self.expectation is Expectation.LEAKS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CurvePoint:
    """An attack at one size.

    Args:
        attack: its name.
        clients: in the sum.
        rows: in the sum, or, for a plain message, of one client on average.
        score: what was achieved.
    """

    attack: str
    clients: int
    rows: int
    score: Score


@dataclass(slots=True, kw_only=True, eq=False)
class Audit:
    """All that a report says."""

    settings: AuditSettings
    dataset: Dataset
    feature_format: RowFormat
    cells: list[Cell] = field(default_factory=list)
    cohort_curve: list[CurvePoint] = field(default_factory=list)
    row_curve: list[CurvePoint] = field(default_factory=list)
    deep_curve: dict[int, Score] = field(default_factory=dict)
    coalitions: list[CoalitionScore] = field(default_factory=list)
    controls: list[Control] = field(default_factory=list)
    privacy: list[NoiseEvidence] = field(default_factory=list)
    not_tested: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the matrix."""
        return (*(mode.name for mode in self.settings.modes), TOTAL, *((PRIVATE_TOTAL,) if self.privacy else ()))

    def cell(self, attack: str, mode: str) -> Cell:
        """One cell; one that was not filled does not apply."""
        for cell in self.cells:
            if (cell.attack, cell.mode) == (attack, mode):
                return cell
        return Cell(attack=attack, mode=mode, score=None, expectation=Expectation.OPEN)

    @property
    def holds(self) -> bool:
        """Whether everything turned out as the protocols promise and every control was caught."""
        return (
            all(cell.as_expected for cell in self.cells)
            and all(point.as_stated for point in self.coalitions)
            and all(control.caught for control in self.controls)
            and all(one.as_expected for one in self.privacy)
        )


Tick = Callable[[str], None]


def audit(dataset: Dataset, settings: AuditSettings, tick: Tick = lambda what: None) -> Audit:
    """Run everything that was asked for.

    Args:
        dataset: real rows.
        settings: what to audit.
        tick: told what comes next.

    Raises:
        UsageError: more clients and rows than the data have.
        FederationError, analytic.errors.AnalyticError, secagg.errors.SecureSumError: as their packages say.
    """
    started = time.perf_counter()
    rng = np.random.default_rng(settings.seed)
    feature_format = settings.feature_format or RowFormat.covering(np.concatenate([dataset.x_train, dataset.x_test]))
    population = Population.of(dataset, rng)
    learner = settings.learner.build(_learner_settings(dataset, settings, feature_format, len(population.candidates)))
    bench = Bench.of(learner, population, rows_per_client=settings.rows_per_client, rng=rng)
    report = Audit(settings=settings, dataset=dataset, feature_format=feature_format)
    runs = _matrix(report, bench, tick)
    _own_sums(report, bench, tick)
    _curves(report, bench, tick)
    tick("controls")
    report.controls = list(controls(bench, runs, max(3, settings.trials)))
    if settings.epsilon:
        tick("totals with noise")
        _noise(report, bench)
    report.not_tested += NOT_TESTED
    report.seconds = time.perf_counter() - started
    return report


def _learner_settings(
    dataset: Dataset, settings: AuditSettings, feature_format: RowFormat, max_rows: int
) -> LearnerSettings:
    return LearnerSettings(
        n_features=dataset.n_features,
        n_classes=dataset.n_classes,
        feature_format=feature_format,
        max_rows=max(max_rows, len(dataset.x_test)),
        max_clients=max(settings.clients, *settings.cohorts, 100),
    )


def _matrix(report: Audit, bench: Bench, tick: Tick) -> list[tuple[Cohort, RecordedSum]]:
    """Attacks on each client's message, in each mode, and on the total; the masked runs, for the controls."""
    settings, masked = report.settings, list[tuple[Cohort, RecordedSum]]()
    runs: list[tuple[Cohort, RecordedSum]] = []
    for mode in (*settings.modes, *(() if any(m.name == "masked" for m in settings.modes) else (MODES["masked"],))):
        tick(f"{mode.name}: one message")
        cohorts = [bench.cohort(settings.clients) for _ in range(settings.sessions)]
        runs = [(cohort, bench.run(mode, bench.vectors(cohort))) for cohort in cohorts]
        masked = runs if mode.name == "masked" else masked
        if mode not in settings.modes:
            continue
        for attack in on_a_message(settings.attacks):
            expectation = expected(attack.name, mode.name)
            score = against(bench, attack, runs)
            report.cells.append(Cell(attack=attack.name, mode=mode.name, score=score, expectation=expectation))
    for attack in on_a_message(settings.attacks):
        if attack.name in ON_A_TOTAL:
            score = Score.pooled(_on_total(bench, attack, *run) for run in runs)
            report.cells.append(Cell(attack=attack.name, mode=TOTAL, score=score, expectation=Expectation.OPEN))
    return masked


def _on_total(bench: Bench, attack: Any, cohort: Cohort, recorded: RecordedSum) -> Score:
    assert recorded.result is not None
    truth = bench.truth(np.concatenate(list(cohort.values())), recorded.result.total)
    return attacked(attack, view_of((recorded,), SERVER_ALONE, bench.known()), None, truth, bench.rng)


def _own_sums(report: Audit, bench: Bench, tick: Tick) -> None:
    """Attacks that need sums made for them."""
    chosen, trials = report.settings.attacks, report.settings.trials
    for mode in report.settings.modes:
        tick(f"{mode.name}: sums made for an attack")
        made: dict[str, Callable[[], Score]] = {
            "mask_reuse": lambda mode=mode: mask_reuse(bench, mode, 2 * trials),  # type: ignore[misc]
            "differencing": lambda mode=mode: differencing(bench, mode, trials),  # type: ignore[misc]
            "different_models": lambda mode=mode: different_models(bench, mode, trials),  # type: ignore[misc]
            "own_part": lambda mode=mode: own_part(bench, mode, trials),  # type: ignore[misc]
        }
        for name, run in made.items():
            if name in chosen:
                report.cells.append(_cell(name, mode.name, run()))
        if "collusion" in chosen:
            report.coalitions += _collusions(report, bench, mode)
    if "collusion" in chosen:
        report.cells += _collusion_cells(report)
    if "afl_upload" in chosen and report.settings.learner.name in ("afl", "fedhip"):
        bits = report.feature_format.fraction_bits
        report.cells.append(_cell("afl_upload", "plain", afl_upload(bench, 2 * trials, fraction_bits=bits)))
    if "many_sums" in chosen:
        tick("a deep learner's many sums")
        _deep(report, bench)


def _cell(attack: str, mode: str, score: Score) -> Cell:
    return Cell(attack=attack, mode=mode, score=score, expectation=expected(attack, mode))


def _collusions(report: Audit, bench: Bench, mode: Mode) -> Iterator[CoalitionScore]:
    try:
        yield from collusion(bench, mode, sizes=report.settings.coalitions)
    except ConfigurationError as error:
        report.not_tested.append(f"collusion in mode {mode.name}: {error}")


def _collusion_cells(report: Audit) -> Iterator[Cell]:
    """One cell a mode: all coalitions that its protocol claims to withstand."""
    for mode in report.settings.modes:
        small = [c.score for c in report.coalitions if c.mode == mode.name and not c.should_break]
        small = small or [c.score for c in report.coalitions if c.mode == mode.name]
        yield _cell("collusion", mode.name, Score.pooled(small))


def _deep(report: Audit, bench: Bench) -> None:
    data, rng = report.dataset, bench.rng
    population = replace(
        bench.population,
        candidates=rng.permutation(bench.population.candidates)[:DEEP_ROWS],
        public=bench.population.public[:DEEP_ROWS],
    )
    few = Bench.of(bench.learner, population, rows_per_client=DEEP_ROWS // 2 // DEEP_CLIENTS, rng=rng)
    deep = DeepAFL(
        n_features=data.n_features,
        n_targets=data.n_classes,
        feature_bound=2.0**report.feature_format.integer_bits,
        max_rows=DEEP_ROWS,
        n_layers=DEEP_LAYERS,
        d_phi=DEEP_WIDTH,
        d_f=DEEP_WIDTH,
    )
    try:
        report.deep_curve = many_sums(few, deep, MODES["masked"], DEEP_CLIENTS)
    except UsageError as error:
        report.not_tested.append(f"a deep learner's many sums: {error}")
        return
    last = report.deep_curve[max(report.deep_curve)]
    report.cells.append(Cell(attack="many_sums", mode=TOTAL, score=last, expectation=Expectation.LEAKS))


def _noise(report: Audit, bench: Bench) -> None:
    report.privacy = list(noise_evidence(bench.population, tuple(sorted(report.settings.epsilon)), bench.rng))
    if "membership" in report.settings.attacks:
        score = report.privacy[0].membership
        report.cells.append(Cell(attack="membership", mode=PRIVATE_TOTAL, score=score, expectation=Expectation.OPEN))


def _curves(report: Audit, bench: Bench, tick: Tick) -> None:
    """What stays in a total as the cohort grows, and what a plain message gives away as a client grows."""
    settings = report.settings
    attacks = [a for a in on_a_message(settings.attacks) if a.name in ("lattice_rows", "dictionary", "membership")]
    for n_clients in settings.cohorts:
        tick(f"totals of {n_clients} clients")
        try:
            cohort = bench.cohort(n_clients)
        except UsageError as error:
            report.not_tested.append(f"totals of {n_clients} clients: {error}")
            continue
        recorded = bench.run(MODES["masked"], bench.vectors(cohort))
        rows = sum(len(indices) for indices in cohort.values())
        for attack in attacks:
            score = _on_total(bench, attack, cohort, recorded)
            report.cohort_curve.append(CurvePoint(attack=attack.name, clients=n_clients, rows=rows, score=score))
    for rows in settings.row_counts:
        tick(f"plain messages of {rows} rows")
        if SMALL * (rows + rows // 2) >= len(bench.population.candidates):
            report.not_tested.append(f"plain messages of {rows} rows: not enough training rows")
            continue
        cohort = bench.cohort(SMALL, rows)
        run = cohort, bench.run(MODES["plain"], bench.vectors(cohort))
        for plain in (LoneRows(), LatticeRows()):
            if plain.name in settings.attacks:
                score = against(bench, plain, [run])
                report.row_curve.append(CurvePoint(attack=plain.name, clients=1, rows=rows, score=score))


SMALL = 5
"""Clients of a point of the curve of plain messages."""

NOT_TESTED = (
    "the computers themselves: timing, memory, swap, logs, backups, or anybody who can read a client's disk",
    "transport: the in-memory network has none; in a deployment TLS must keep wire-tappers out",
    "active attacks beyond a server that hands out different models: see the tests of the protocols for those",
    "attackers who know more than this report grants them, or who use better statistics: verdicts are about these",
    "whether the pseudorandom generator is one: that is the assumption of the proof, and no test can show it",
    "what the trained model itself gives away when others use it",
)

assert set(ON_A_TOTAL) <= set(NAMES)
