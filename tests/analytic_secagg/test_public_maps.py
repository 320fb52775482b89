"""A total of a public map's features gives raw rows away where there are few: the attack, and the gate that refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from analytic.afl import AFL
from analytic.bucketing import FixedThresholds
from analytic.deepafl import DeepAFL
from analytic.learner import ClientRows
from analytic.random_map import RandomMap
from analytic.row_format import FloatMatrix, RowFormat
from analytic.safle import SAFLe
from analytic_secagg.datasets import bundled
from analytic_secagg.federation import Federation
from analytic_secagg.in_process import FederatedRun, run_federation
from analytic_secagg.modes import MODES
from analytic_secagg.release import Gate, ReleasePolicy, ReleaseRefusedError
from secagg import Layout
from simulations.audit.attacks.rows import rebuild
from simulations.audit.view import Reading

DIGITS = bundled("digits").training
CLIENTS = {
    party: ClientRows(DIGITS.features[part] / 16, DIGITS.targets[part])
    for party in range(1, 6)
    for part in [slice(8 * party, 8 * party + 8)]
}
POOLED = ClientRows.pool(list(CLIENTS.values()))
RANDOM = AFL(
    n_features=64,
    n_targets=10,
    feature_format=RowFormat.parse("UQ4.8"),
    max_rows=4000,
    ridge=1.0,
    lift=RandomMap(n_features=64, n_columns=256, feature_bound=1.0, fraction_bits=8),
)
DEEP = DeepAFL(
    n_features=64, n_targets=10, feature_bound=1.0, max_rows=4000, n_layers=1, d_phi=128, d_f=32, activation="tanh"
)
SAFLE = SAFLe(
    n_features=64,
    n_classes=10,
    max_rows=4000,
    thresholds=FixedThresholds(values=((0.1, 0.3, 0.5, 0.8),)),
    n_buckets=4,
    ridge=1.0,
)


def first_total(learner: Any) -> tuple[FederatedRun[Any], Reading]:
    """A masked run of five clients with eight rows each, and what its server reads in the first total."""
    run = run_federation(learner, CLIENTS, MODES["masked"])
    layout = Layout.of(learner.next_sum(learner.init()).segments)
    return run, Reading.of(layout, run.totals[0].total)


def rebuilt(reading: Reading) -> set[tuple[int, ...]]:
    found = rebuild(reading)
    assert found is not None
    return {tuple(row) for row in found.rows.tolist()}


def raw_rows(phi: FloatMatrix, lift: RandomMap) -> set[tuple[int, ...]]:
    """Grey values 0 to 16 by least squares over what the public matrix says of units that are on."""
    matrix, found = lift.matrix, set[tuple[int, ...]]()
    for row in phi:
        is_on = row > 0
        x, *_ = np.linalg.lstsq(matrix.values[:, is_on].T, row[is_on], rcond=None)
        found.add(tuple(np.rint(16 * x).astype(int).tolist()))
    return found


def test_raw_rows_come_back_from_a_masked_total_of_random_features() -> None:
    _, reading = first_total(RANDOM)
    assert RANDOM.lift is not None
    phi = np.array(sorted(rebuilt(reading))) / 256.0
    raw = {tuple(row) for row in np.rint(16 * POOLED.features).astype(int).tolist()}
    assert len(raw) == 40
    assert raw_rows(phi, RANDOM.lift) == raw


def test_mapped_rows_come_back_from_deepafls_and_safles_first_total() -> None:
    _, reading = first_total(DEEP)
    spec = DEEP.next_sum(DEEP.init())
    assert spec is not None
    phi = DEEP.first_map.apply(POOLED.features).values
    bits = spec.feature_format.fraction_bits
    assert rebuilt(reading) == {tuple(row) for row in np.trunc(np.ldexp(phi, bits)).astype(int).tolist()}
    _, reading = first_total(SAFLE)
    cells = np.arange(SAFLE.spec.n_groups) * SAFLE.spec.n_values + SAFLE._indices(SAFLE.init(), POOLED.features)
    one_hot = np.zeros((len(POOLED), SAFLE.spec.n_cells), dtype=int)
    np.put_along_axis(one_hot, cells, 1, axis=1)
    assert rebuilt(reading) == {tuple(row) for row in one_hot.tolist()}


LEARNERS = pytest.mark.parametrize("learner", [RANDOM, DEEP, SAFLE], ids=lambda learner: learner.name)


@LEARNERS
def test_the_gate_refuses_such_a_total(learner: Any) -> None:
    run = run_federation(learner, CLIENTS, MODES["plain"])
    federation = Federation(learner, release=ReleasePolicy())
    with pytest.raises(ReleaseRefusedError) as refusal:
        federation.take(run.totals[0])
    assert Gate.RANK in {concern.gate for concern in refusal.value.concerns}


@LEARNERS
def test_the_gate_lets_every_total_of_many_rows_pass(learner: Any) -> None:
    clients = {party: ClientRows(DIGITS.features[party::5] / 16, DIGITS.targets[party::5]) for party in range(5)}
    run = run_federation(learner, {party + 1: rows for party, rows in clients.items()}, MODES["plain"])
    federation = Federation(learner, release=ReleasePolicy())
    for total in run.totals:
        federation.take(total)
    assert federation.next_sum is None
