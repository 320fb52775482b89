"""Attacks with sums of their own: what they must win, what they must not, and the threshold of collusion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from analytic.deepafl import DeepAFL
from federation.modes import MODES
from secagg import Assumptions, InOneProcess, MaskedSum, new_session_id
from simulations.audit.attack import attacked
from simulations.audit.attacks.collusion import Collusion
from simulations.audit.evaluate import Verdict
from simulations.audit.recorder import record_sum, view_of
from simulations.audit.scenarios import (
    afl_upload,
    collusion,
    differencing,
    different_models,
    many_sums,
    mask_reuse,
    own_part,
)
from simulations.audit.view import Coalition
from simulations.audit.workbench import Bench

INSTALLED = [mode for mode in MODES.values() if mode.installed]


@pytest.mark.parametrize("mode", INSTALLED, ids=lambda mode: mode.name)
def test_coalitions_break_exactly_where_the_protocol_says(bench: Bench, mode: object) -> None:
    scores = list(collusion(bench, mode, n_clients=5))  # type: ignore[arg-type]
    assert all(score.as_stated for score in scores), [(s.coalition, s.score.hits) for s in scores]
    assert any(score.should_break for score in scores)
    assert any(not score.should_break for score in scores) == (mode.name != "plain")  # type: ignore[attr-defined]


@pytest.mark.parametrize("threshold", [4, 5, 6, 7])
def test_a_masked_sum_opens_at_its_threshold_and_one_share_below_it_does_not(bench: Bench, threshold: int) -> None:
    clients = tuple(range(1, 8))
    cohort = bench.cohort(7)
    protocol = MaskedSum(
        layout=bench.layout, clients=clients, session_id=new_session_id(), context=bench.context, threshold=threshold
    )
    recorded = record_sum(InOneProcess(protocol=protocol), bench.vectors(cohort), entropy=bench.entropy)
    for members in range(7):
        coalition = Coalition(name="test", server=True, parties=frozenset(clients[:members]))
        view = view_of((recorded,), coalition, bench.known())
        guess = Collusion().guess(view, 7, bench.rng)
        opened = np.array_equal(guess, recorded.inputs[7])
        assert opened == (members >= threshold or members == 6), members


def test_on_a_sparse_graph_only_neighbours_count(bench: Bench) -> None:
    clients = tuple(range(1, 25))
    cohort = bench.cohort(24, 4)
    protocol = MaskedSum(
        layout=bench.layout,
        clients=clients,
        session_id=new_session_id(),
        threshold=6,
        degree=8,
        graph_seed=bytes(16),
        assumptions=Assumptions(corruption=0.05, dropout=0.0, security_bits=5, correctness_bits=5),
    )
    recorded = record_sum(InOneProcess(protocol=protocol), bench.vectors(cohort), entropy=bench.entropy)
    near = protocol.neighbours(1)
    far = [party for party in clients[1:] if party not in near]
    for members, opens in ((near[:6], True), ((*near[:5], *far), False), (tuple(far), False)):
        view = view_of((recorded,), Coalition(name="t", server=True, parties=frozenset(members)), bench.known())
        truth = bench.truth(cohort[1], recorded.inputs[1])
        assert attacked(Collusion(), view, 1, truth, bench.rng).hits == opens


@pytest.mark.parametrize("mode", INSTALLED, ids=lambda mode: mode.name)
def test_totals_that_differ_by_one_client_show_it_in_every_mode(bench: Bench, mode: object) -> None:
    score = differencing(bench, mode, 2)  # type: ignore[arg-type]
    assert (score.hits, score.trials) == (2, 2)


def test_of_two_clients_each_learns_the_other_from_the_total(bench: Bench) -> None:
    score = own_part(bench, MODES["masked"], 3)
    assert (score.hits, score.trials) == (3, 3)


@pytest.mark.parametrize("mode", INSTALLED, ids=lambda mode: mode.name)
def test_another_model_for_one_client_gives_noise_where_keys_are_bound_to_it(bench: Bench, mode: object) -> None:
    score = different_models(bench, mode, 2)  # type: ignore[arg-type]
    assert score.hits == (2 if mode.name in ("plain", "ckks", "bfv") else 0)  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_without_that_binding_the_same_server_wins(bench: Bench, mode: str) -> None:
    assert different_models(bench, MODES[mode], 2, bound=False).hits == 2


@pytest.mark.parametrize("mode", INSTALLED, ids=lambda mode: mode.name)
def test_two_messages_of_a_client_show_its_new_row_in_plain_sums_only(
    bench_of: Callable[[int], Bench], mode: object
) -> None:
    from secagg import os_entropy

    bench = replace(bench_of(3), entropy=os_entropy)
    score = mask_reuse(bench, mode, 4)  # type: ignore[arg-type]
    assert score.hits == (score.trials if mode.name == "plain" else 0)  # type: ignore[attr-defined]


def test_weights_and_regularised_gram_give_the_sums_back(bench: Bench) -> None:
    bits = bench.learner.feature_format.fraction_bits
    score = afl_upload(bench, 5, fraction_bits=bits)
    assert (score.hits, score.trials) == (5, 5)


def test_many_sums_of_a_deep_learner_show_who_was_used(bench: Bench) -> None:
    population = replace(
        bench.population, candidates=bench.population.candidates[:120], public=bench.population.public[:100]
    )
    few = Bench.of(bench.learner, population, rows_per_client=10, rng=bench.rng)
    deep = DeepAFL(n_features=64, n_targets=10, feature_bound=32.0, max_rows=120, n_layers=1, d_phi=24, d_f=24)
    scores = many_sums(few, deep, MODES["plain"], 5)
    assert list(scores) == [1, 3]
    assert all(score.rate > 0.5 for score in scores.values())
    assert scores[3].verdict in (Verdict.LEAKS, Verdict.RECOVERED)
