"""A plan prices every sum of a learner before anything is sent, and refuses what it cannot price by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.composed import choosing, of_kind

from analytic.afl import AFL
from analytic.bucketing import FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.errors import SpecificationError
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows
from analytic.logistic import Logistic
from analytic.row_format import RowFormat
from analytic.row_map import RowMap
from analytic.safle import SAFLe
from analytic_secagg.privacy import PrivacyPlan
from secagg import InsecureSeededEntropy, Layout, PlainSum, new_session_id, run_in_memory
from secagg.dp import Budget, BudgetExceededError, DistributedNoise, Ledger, PrivacyError
from secagg.dp.audit import audit_noise
from secagg.dp.conversions import MAX_EPSILON
from secagg.dp.noise import CoordinateNoise

FORMAT = RowFormat.parse("UQ1.8")
LINEAR = AFL(n_features=6, n_targets=3, feature_format=FORMAT, max_rows=100, ridge=0.01)
DEEP = DeepAFL(n_features=6, n_targets=3, feature_bound=1.0, max_rows=100, n_layers=1, d_phi=8, d_f=7)
FEDHIP = FedHiP(n_features=6, n_targets=3, feature_format=FORMAT, max_rows=100, ridge=0.01)
COUNTS = SAFLe(n_features=6, n_classes=3, max_rows=100, thresholds=FixedThresholds.evenly(0.0, 1.0, 8))
PLAN = PrivacyPlan(epsilon=2.0, min_noise_shares=4, colluders=1, nonnegative=True)
CLIENTS = PrivacyPlan(epsilon=2.0, min_noise_shares=4, colluders=1, unit="client", client_rows=20)
PRICED: list[tuple[PrivacyPlan, Any, list[str]]] = [
    (PLAN, LINEAR, ["mean", "statistics"]),
    (replace(PLAN, mean_share=0.0), LINEAR, ["statistics"]),
    (replace(PLAN, min_noise_shares=None), LINEAR, ["mean", "statistics"]),
    (replace(PLAN, adjacency="replace-one"), LINEAR, ["mean", "statistics"]),
    (CLIENTS, LINEAR, ["mean", "statistics"]),
    (replace(CLIENTS, adjacency="replace-one", mean_share=0.0), LINEAR, ["statistics"]),
    (PLAN, FEDHIP, ["mean", "statistics"]),
    (PLAN, COUNTS, ["counts"]),
    (PLAN, DEEP, ["sum 0", "sum 1", "sum 2"]),
]


@pytest.mark.parametrize(("plan", "learner", "labels"), PRICED)
def test_the_bill_is_known_before_anything_is_sent_and_uses_the_budget(
    plan: PrivacyPlan, learner: Any, labels: list[str]
) -> None:
    private = plan.apply(learner)
    assert [release.label for release in private.releases] == labels
    assert {(r.unit, r.adjacency) for r in private.releases} == {(plan.unit, plan.adjacency)}
    assert 0.999 * plan.epsilon < private.guarantee.epsilon <= plan.epsilon
    words = private.explain()
    assert f"{len(labels)} noisy sums of {learner.name} together: epsilon 2 " in words
    assert f"for one {plan.unit}, {plan.adjacency}" in words
    assert ("The server adds" if plan.min_noise_shares is None else "at least 4 clients") in words
    assert all(f"{label}: rho " in words for label in labels)
    assert min(private.sigma_gram, private.sigma_cross) > 0
    if labels[0] == "mean":
        assert private.releases[0].rho / sum(r.rho for r in private.releases) == pytest.approx(0.05, rel=1e-3)


@pytest.mark.parametrize(("fraction_bits", "by_zcdp"), [(16, False), (8, False), (5, True)])
def test_a_coarse_lattice_is_calibrated_on_what_is_proven_for_it(fraction_bits: int, by_zcdp: bool) -> None:
    """Rounding costs the Gaussian curve more than it gains where noise is a few dozen units wide; zCDP pays none."""
    promise = replace(PLAN, epsilon=8.0, fraction_bits=fraction_bits).apply(LINEAR).guarantee
    assert 0.98 * 8 < promise.epsilon <= 8
    assert (promise.epsilon == promise.epsilon_zcdp) is by_zcdp
    assert (promise.epsilon_zcdp > 1.04 * 8) is not by_zcdp


@pytest.mark.parametrize("epsilon", [1e-3, MAX_EPSILON])
def test_the_stated_ends_of_epsilon_can_be_taken(epsilon: float) -> None:
    assert 0.98 * epsilon < replace(PLAN, epsilon=epsilon).apply(LINEAR).guarantee.epsilon <= epsilon


@pytest.mark.parametrize(("plan", "learner", "labels"), PRICED)
def test_every_sum_is_noisy_and_the_noise_is_the_one_on_the_bill(
    plan: PrivacyPlan, learner: Any, labels: list[str]
) -> None:
    """4 of 5 clients' sums against the exact total: the realised variance is what the survivors' shares make it."""
    seeded = replace(plan, noise_entropy=lambda number: InsecureSeededEntropy(7, f"noise {number}"))
    private, rng = seeded.apply(learner), np.random.default_rng(3)
    clients = {party: ClientRows(rng.random((9, 6)), rng.integers(0, 3, 9)) for party in range(1, 5)}
    model = private.learner.init()
    for number in range(len(labels)):
        spec = private.learner.next_sum(model)
        assert spec is not None
        assert private.due(model) == number
        layout = Layout.of(spec.segments)
        vectors = {p: spec.to_vector(private.learner.client_statistics(model, r)) for p, r in clients.items()}
        under = PlainSum(
            layout=private.with_headroom(number, layout, 5),
            clients=(*clients, 5),
            session_id=new_session_id(),
            min_survivors=4,
        )
        total = run_in_memory(private.over(number, under, layout), vectors).result.total
        noise = private.noises[number]
        realised = noise
        if not isinstance(noise, CoordinateNoise):
            realised = CoordinateNoise(levels=noise.total.levels, variances=noise.realised(4))
        residual = total - np.sum(list(vectors.values()), axis=0)
        assert residual.any()
        # few coordinates here, so the same claim is audited over repeated ones
        copies = -(-100 // realised.dimension)
        draws = [residual, *(realised.draw(InsecureSeededEntropy(k, "more")) for k in range(copies - 1))]
        claim = CoordinateNoise(levels=np.tile(realised.levels, copies), variances=realised.variances)
        found = audit_noise(np.concatenate(draws), claim)
        assert found.withheld_are_zero
        assert not found.too_little
        assert not found.too_much
        model = private.learner.update(model, spec.from_vector(total), 4)
    assert private.learner.next_sum(model) is None
    with pytest.raises(PrivacyError, match="a complete model needs no more"):
        private.due(model)
    assert private.learner.decision_function(model, rng.random((2, 6))).shape == (2, 3)


@pytest.mark.parametrize(("plan", "learner", "labels"), PRICED)
def test_who_is_handed_a_private_form_prices_it_anew_and_takes_no_other(
    plan: PrivacyPlan, learner: Any, labels: list[str]
) -> None:
    private = plan.apply(learner)
    again = PrivacyPlan.of_public(plan.to_public()).form_of(private.learner)
    assert (again.learner, again.releases) == (private.learner, private.releases)
    assert [noise.digest for noise in again.noises] == [noise.digest for noise in private.noises]
    for other in (learner, plan.bounded(learner), replace(plan, epsilon=1.0).apply(learner).learner):
        with pytest.raises(PrivacyError):
            plan.form_of(other)


def test_a_ledger_is_charged_for_each_sum_and_says_when_it_is_empty(tmp_path: Path) -> None:
    budget = Budget(epsilon=2.0, delta=1e-5, unit="record", adjacency="add-remove", population="a site's rows")
    ledger, private = Ledger.create(tmp_path / "ledger", budget), PLAN.apply(LINEAR)
    together = [private.charge(number, ledger, session_id=bytes(16)) for number in range(2)]
    assert together[-1] == private.guarantee
    assert ledger.releases == private.releases
    with pytest.raises(BudgetExceededError):
        private.charge(0, ledger, session_id=bytes(16))
    with pytest.raises(PrivacyError, match=r"privacy cost of .* for client"):
        CLIENTS.apply(LINEAR).charge(0, ledger, session_id=bytes(16))


def test_a_sum_that_breaks_the_promise_is_refused() -> None:
    private = PLAN.apply(replace(LINEAR, row_map=None))
    layout = Layout.of([("rows", 6, 100), ("count", 1, 100)])
    for min_survivors, room, message in ((3, True, "counts on 4 survivors"), (4, False, "with_headroom")):
        under = PlainSum(
            layout=private.with_headroom(0, layout, 5) if room else layout,
            clients=(1, 2, 3, 4, 5),
            session_id=new_session_id(),
            min_survivors=min_survivors,
        )
        with pytest.raises(PrivacyError, match=message):
            private.over(0, under, layout)


@pytest.mark.parametrize(
    ("learner", "mean_share", "seen"),
    [
        (LINEAR, 0.05, "mean"),
        (LINEAR, 0.0, None),
        (COUNTS, 0.05, None),
        (FEDHIP, 0.0, "statistics"),
        (DEEP, 0.0, "sum 0"),
        (of_kind(Logistic, LINEAR, n_rounds=1), 0.0, "statistics"),
    ],
)
def test_a_client_that_is_given_a_noisy_total_takes_its_own_share_off(
    learner: Any, mean_share: float, seen: str | None
) -> None:
    """So what is left must carry the promise: with no colluder it is a quarter too little, and is refused by name."""
    trusting = replace(PLAN, colluders=0, mean_share=mean_share)
    if seen is None:  # the one total is the server's
        assert len(trusting.apply(learner).releases) == 1
    else:
        with pytest.raises(PrivacyError, match=rf"a noisy total \({seen}\).* so state at least 1 colluder"):
            trusting.apply(learner)
    for alone in (1, None):  # each share suffices, or the server adds the noise
        replace(trusting, min_noise_shares=alone).apply(learner)
    for noise in replace(trusting, colluders=1).apply(learner).noises:
        assert isinstance(noise, DistributedNoise)
        refused = DistributedNoise(total=noise.total, min_noise_shares=4)
        shares = zip(refused.share.variances, noise.total.variances, noise.share.variances, strict=True)
        assert all(3 * too_small < needed <= 3 * own for too_small, needed, own in shares)


def test_a_map_of_the_learners_own_is_kept() -> None:
    """With a bias and another bound, say; the noise is sized for what that map promises."""
    own = RowMap.of(PLAN.row_terms)
    wide = replace(own.clip, bound=2.0, row_format=replace(own.clip.row_format, integer_bits=2))
    small, large = (PLAN.apply(replace(LINEAR, row_map=replace(own, clip=clip))) for clip in (own.clip, wide))
    assert small.sigma_gram == PLAN.apply(LINEAR).sigma_gram
    assert large.sigma_gram == pytest.approx(4 * small.sigma_gram, rel=1e-6)


@pytest.mark.parametrize(
    ("plan", "learner", "kind", "message"),
    [
        (
            PLAN,
            choosing(replace(LINEAR, ridge=0.0)),
            PrivacyError,
            "has no private form; take afl, fedhip, random, logistic, deepafl",
        ),
        (PLAN, replace(COUNTS, ri_gamma=1), SpecificationError, "without the RI process"),
        (
            PLAN,
            replace(COUNTS, thresholds=QuantileThresholds(low=0.0, high=1.0)),
            SpecificationError,
            "have no private form",
        ),
        (CLIENTS, COUNTS, SpecificationError, "bounded by record only"),
        (PLAN, replace(FEDHIP, ri_gamma=1.0), SpecificationError, "no RI process"),
        (PLAN, replace(LINEAR, ri_gamma=1.0), SpecificationError, "no RI process"),
        (PLAN, replace(LINEAR, target_format=FORMAT), SpecificationError, "for class labels"),
        (CLIENTS, DEEP, SpecificationError, "by record only"),
        (CLIENTS, replace(LINEAR, row_map=RowMap.of(PLAN.row_terms)), SpecificationError, "noise for a client needs"),
        (replace(PLAN, fraction_bits=3, epsilon=60.0), LINEAR, PrivacyError, "lattice unit"),
        (replace(PLAN, fraction_bits=3, epsilon=30.0), LINEAR, PrivacyError, "shares' sum is no discrete Gaussian"),
    ],
)
def test_what_cannot_be_priced_is_refused_by_name(
    plan: PrivacyPlan, learner: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        plan.apply(learner)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"delta": 0.7}, "delta must be at least"),
        ({"unit": "row"}, "a unit is one of record, client"),
        ({"adjacency": "swap"}, "an adjacency one of add-remove, replace-one"),
        ({"gram_share": 1.0}, "between 0 and 1"),
        ({"mean_share": 1.0}, "0 to below 1"),
        ({"client_rows": 0}, "at least 1 row"),
        ({"colluders": 4}, "4 colluders among 4 noise shares leave no share"),
        ({"colluders": -1}, "colluders"),
    ],
)
def test_a_plan_checks_itself(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PrivacyError, match=message):
        replace(PLAN, **change)
