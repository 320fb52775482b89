"""Attacks on what is meant to be seen: each wins over few rows, and is at chance where nothing is there to be found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from analytic.afl import AFL
from analytic.deepafl import DeepAFL
from analytic.random_map import RandomMap
from analytic_secagg.modes import MODES
from analytic_secagg.privacy import PrivacyPlan
from simulations.audit.attack import MASKED, VICTIM, ExposureAttack, NotTriedError, TooLargeError, attacked
from simulations.audit.attacks.differencing import Differencing
from simulations.audit.attacks.group_share import GroupShare
from simulations.audit.attacks.peeling import CRAFTED_FEATURES
from simulations.audit.attacks.raw_rows import RawRows
from simulations.audit.catalogue import ATTACKS
from simulations.audit.columns import Column, has_many_sums
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.workbench import Bench

ON_ROWS = ["attribute", "dictionary", "lattice_rows", "membership", "model_membership"]


def attack_of(name: str) -> ExposureAttack[object]:
    found = ATTACKS[name]
    assert isinstance(found, ExposureAttack)
    return found


def column(name: str, bench: Bench, clients: int) -> Column:
    """What an attack sees of a cohort: its model, or its total."""
    kind = Kind.MODEL if Kind.MODEL in attack_of(name).sees else Kind.TOTAL
    return Column(kind=kind, bench=bench, clients=clients)


def noisy(bench: Bench, clients: int, epsilon: float) -> Column:
    """Totals with noise, as the audit makes them."""
    promised = MASKED.guarantee(tuple(range(1, clients + 1))).min_survivors
    plan = PrivacyPlan(epsilon=epsilon, min_noise_shares=promised, colluders=1, nonnegative=True)
    form = plan.apply(bench.learner)
    return Column(kind=Kind.NOISY_TOTAL, bench=bench.under(form.learner), clients=clients, form=form)


def score_of(name: str, of: Column) -> Score:
    one = attack_of(name)
    return one.against(one.targets(of), of.bench.rng)


# A row


@pytest.mark.parametrize("name", ON_ROWS)
def test_few_rows_are_given_away(bench: Bench, name: str) -> None:
    """About 40 rows of 64 features: fewer than it takes for anything to be an average."""
    score = score_of(name, column(name, bench, 5))
    assert score.leaked
    if name == "attribute":
        assert score.rate > score.chance + 0.2
        assert np.mean([*score.columns.values()]) == pytest.approx(score.rate - score.chance)
    else:
        assert score.hits == score.trials


@pytest.mark.parametrize("name", ON_ROWS)
def test_rows_that_are_not_behind_it_are_not_found(bench: Bench, name: str) -> None:
    """It looks at one cohort's total or model, and is scored by the rows of another one."""
    made, parts = column(name, bench, 5), list(bench.cohort(10).values())
    seen, known, _ = made.target(dict(enumerate(parts[:5], start=1)))
    *_, truth = made.target(dict(enumerate(parts[5:], start=1)))
    score = attacked(attack_of(name), seen, known, truth, bench.rng)
    assert score.trials >= 20
    assert not score.leaked
    assert score.rate <= max(score.chance + 0.1, 0.01)


@pytest.mark.parametrize("name", [name for name in ON_ROWS if name != "model_membership"])
def test_much_noise_leaves_nothing(bench: Bench, name: str) -> None:
    score = score_of(name, noisy(bench, 20, 0.1))
    assert score.trials >= 100
    assert not score.leaked


def test_membership_in_a_total_with_noise_counts_its_rows_itself(bench: Bench) -> None:
    """No noisy total says how many rows it has; an attacker who then gives up would find nothing with no noise at all.

    Here the number of rows is taken out of an exact total: what is left must do nearly as well.
    """
    of = column("membership", bench, 20)
    seen, known, truth = of.standard
    exact = attacked(attack_of("membership"), seen, known, truth, bench.rng)
    (view,) = seen.sums
    assert view.result is not None
    total = view.result.total.copy()
    (place,) = (place for segment, place in view.layout.slices() if segment.name == "count")
    total[place] = 0
    silent = replace(seen, sums=(replace(view, result=replace(view.result, total=total)),))
    found = attacked(attack_of("membership"), silent, known, truth, bench.rng)
    assert exact.rate > 0.7
    assert found.rate > exact.rate - 0.1


def test_more_sums_of_a_deep_learner_show_more(bench: Bench) -> None:
    """By all totals of a run rows are told apart, and better than by the first one."""
    few = {"candidates": bench.population.candidates[:120], "public": bench.population.public[:100]}
    deep = DeepAFL(n_features=64, n_targets=10, feature_bound=32.0, max_rows=120, n_layers=1, d_phi=24, d_f=24)
    own = replace(bench, population=replace(bench.population, **few)).under(deep)
    made = Column(kind=Kind.TOTALS, bench=own, clients=5)
    assert made.name == "all totals of a run of 5 clients"
    assert has_many_sums(own)
    assert not has_many_sums(bench)
    targets, one = [made.target(made.cohort()) for _ in range(4)], attack_of("all_sums")
    everything = one.against(targets, own.rng)
    first = one.against([(replace(seen, sums=seen.sums[:1]), known, truth) for seen, known, truth in targets], own.rng)
    assert everything.leaked
    assert everything.rate > first.rate


# Rows behind a public map


@pytest.fixture
def mapped(bench: Bench) -> Bench:
    """The bench of random features."""
    lift = RandomMap(n_features=64, n_columns=256, feature_bound=16.0, fraction_bits=8)
    learner = AFL(
        n_features=64, n_targets=10, feature_format=bench.feature_format, max_rows=400, ridge=1.0, lift=lift, clip=True
    )
    return bench.under(learner)


def test_random_features_hide_no_row_of_few(mapped: Bench) -> None:
    """Five clients with eight rows each: nearly every person's own row comes back, also from a single message."""
    total = score_of("raw_rows", Column(kind=Kind.TOTAL, bench=mapped, clients=5))
    assert total.leaked
    assert total.rate > 0.9
    clear = RawRows().play(mapped, MODES["plain"], 1)
    assert clear.leaked
    assert clear.rate > 0.9
    assert RawRows().play(mapped, MODES["masked"], 1).hits == 0


def test_who_decodes_nothing_rebuilds_no_row_of_a_total_of_most_of_the_pool(mapped: Bench) -> None:
    """Naming rows at random is right for most rows of such a total, and was called a success."""
    _, known, truth = Column(kind=Kind.TOTAL, bench=mapped, clients=28).standard
    blind = np.asarray(known.public.features, dtype=np.float64)
    for guess in (blind, np.repeat(blind.mean(axis=0)[None], len(blind), axis=0), None):
        score = RawRows().score(guess, truth, mapped.rng)
        assert score.trials > len(truth.pool) / 2
        assert score.rate <= 0.01
        assert score.chance < 0.01
    assert RawRows().score(np.asarray(truth.raw.features), truth, mapped.rng).rate == 1.0


def test_rows_behind_a_map_are_not_tried_where_there_is_no_map_or_too_many_rows(bench: Bench, mapped: Bench) -> None:
    with pytest.raises(NotTriedError, match="rows enter the sum as they are, which lattice_rows tries"):
        score_of("raw_rows", Column(kind=Kind.TOTAL, bench=bench, clients=5))
    with pytest.raises(TooLargeError, match="beyond 100 it takes stronger reduction"):
        score_of("raw_rows", Column(kind=Kind.TOTAL, bench=mapped, clients=25))


def test_a_crafted_map_gives_rows_of_a_large_total_away(bench: Bench) -> None:
    """Of more rows than features, which the map that was agreed on hides."""
    attack = CRAFTED_FEATURES
    score = attack.play(bench, None, 1)
    assert score.trials > 100
    assert score.hits >= 10
    of = Column(kind=Kind.TOTAL, bench=bench, clients=20).standard
    agreed = attacked(attack, *of, bench.rng)  # a row may be alone in a feature of its own
    assert agreed.hits <= score.hits / 5


# The cohort, and one of its clients


def test_group_shares_are_known_far_better_than_blind_from_a_total_and_not_under_noise(bench: Bench) -> None:
    """More clients are no help: the mean error of a share is below half of that by the public rows."""
    for clients in (5, 20):
        score = score_of("group_share", column("group_share", bench, clients))
        assert score.error is not None
        assert score.blind_error is not None
        assert score.error < score.blind_error / 2
    hidden = score_of("group_share", noisy(bench, 20, 0.1))
    assert hidden.error is not None
    assert hidden.blind_error is not None
    assert hidden.error > hidden.blind_error / 2


def test_no_total_gives_no_share(bench: Bench) -> None:
    """Who sees nothing says what the public rows say."""
    (_, known, truth), *_ = GroupShare().targets(column("group_share", bench, 5))
    score = attacked(GroupShare(), Exposure(kind=Kind.TOTAL), known, truth, bench.rng)
    assert score.error == score.blind_error


def test_totals_of_changing_cohorts_isolate_a_client_whose_sites_keep_no_query_log(bench: Bench) -> None:
    """Two totals, or three; that they do not where sites keep logs is a contract (``contracts/test_coalitions.py``)."""
    attack, made = Differencing(), set[int]()
    for _ in range(8):
        vectors = bench.vectors(cohort := bench.cohort(5))
        seen = Exposure.of(attack.sums(bench, MASKED, vectors))
        made.add(len(seen.sums))
        assert attacked(attack, seen, bench.known(), bench.truth(cohort[VICTIM], vectors[VICTIM]), bench.rng).hits == 1
    assert made == {2, 3}
