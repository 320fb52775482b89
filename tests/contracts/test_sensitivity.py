"""Every private form's declared sensitivity covers what neighbouring data sets really move, and hardly more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.installed import importable, install
from support.sensitivities import Measured, measured

from analytic.errors import SpecificationError
from analytic.extensions import Group, installed
from analytic.row_format import RowFormat
from analytic_secagg.learners import LEARNERS, LearnerSettings, find_learner
from analytic_secagg.privacy import PrivacyPlan, PrivateForm
from secagg.dp import PrivacyError

N_FEATURES, N_CLASSES = 5, 3
PLAN = PrivacyPlan(epsilon=4.0, min_noise_shares=4, colluders=1)

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "deepafl": {"n_layers": 1, "d_phi": 8, "d_f": 8},
    "random": {"d_phi": 8},
    "logistic": {"n_rounds": 2, "residual_bound": 0.5},
    "safle": {"n_buckets": 2, "thresholds": "even", "low": -1.0, "high": 1.0},
}
"""Small sizes, and what a private form needs where the default has none."""

ATTAINED = 0.9
"""Part of the declared sensitivity that the worst pair comes to, in standard deviations, where nothing else is said."""

LOOSE: Mapping[tuple[str, str], float] = {
    ("client", "replace-one"): 0.69,  # priced by the triangle inequality; two Grams are never opposite
    ("deepafl", "add-remove"): 0.7,  # residuals are clipped to 2, which few come to
    ("deepafl", "replace-one"): 0.4,
    ("random", "replace-one"): 0.6,  # random features are not as free as rows
}
"""Where no pair attains what is declared: (unit or learner, adjacency) -> the least part, and why."""


def registry() -> list[str]:
    """Every learner that can be named: of this package, and of others."""
    return [*LEARNERS, *(one.name for one in installed(Group.LEARNERS))]


def private_form(name: str, plan: PrivacyPlan) -> PrivateForm | None:
    """The private form of a learner of the registry; None if it has none, or none of this plan."""
    options = dict(OPTIONS.get(name, {}))
    settings = LearnerSettings(
        n_features=N_FEATURES,
        n_classes=N_CLASSES,
        feature_format=RowFormat(integer_bits=1, fraction_bits=12),
        max_rows=500,
        max_clients=5,
        options=options,
    )
    try:
        return plan.apply(find_learner(name).build(settings))
    except (PrivacyError, SpecificationError):
        return None


PLANS = {
    f"{unit}, {adjacency}{', no signs' if nonnegative else ''}{'' if mean_share else ', no mean'}": replace(
        PLAN,
        unit=unit,
        adjacency=adjacency,
        nonnegative=nonnegative,
        mean_share=mean_share,
        client_rows=2 if unit == "client" else 1,
    )
    for unit in ("record", "client")
    for adjacency in ("add-remove", "replace-one")
    for nonnegative, mean_share in ((False, 0.05), (False, 0.0), (True, 0.0))
}


def complaints(found: list[Measured], least: float) -> list[str]:
    """What is wrong with a private form's declared sensitivities, or with the search for the worst pair."""
    said = [
        f"{one.label}: a pair moves {one.ratio:.3f} of what is declared" for one in found if one.worst > one.declared
    ]
    said += [f"{one.label}: pairs differ where there is no noise" for one in found if not one.leaves_withheld_alone]
    said += [f"{one.label}: no pair comes to more than {one.ratio:.3f}" for one in found if one.ratio < least]
    return said


def measured_form(name: str, plan: PrivacyPlan) -> list[Measured]:
    form = private_form(name, plan)
    assert form is not None
    return measured(form, N_FEATURES, N_CLASSES, np.random.default_rng(0))


CASES = [(name, kind) for name in registry() for kind, plan in PLANS.items() if private_form(name, plan) is not None]


@pytest.mark.parametrize(("name", "kind"), CASES, ids=[f"{name}, {kind}" for name, kind in CASES])
def test_no_pair_of_neighbours_moves_a_sum_by_more_than_is_declared(name: str, kind: str) -> None:
    found, plan = measured_form(name, PLANS[kind]), PLANS[kind]
    least = LOOSE.get((name, plan.adjacency)) or LOOSE.get((plan.unit, plan.adjacency), ATTAINED)
    assert complaints(found, least) == []


def test_every_learner_that_can_be_noisy_is_measured() -> None:
    assert {name for name, _ in CASES} >= {"afl", "fedhip", "random", "logistic", "deepafl", "safle"}


STRANGERS = """
from dataclasses import dataclass, replace

import numpy as np

from analytic.afl import AFL
from analytic.learner import ClientRows
from analytic_secagg.learners import LearnerEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Honest(AFL):
    @property
    def name(self):
        return "honest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cheap(AFL):
    # replaces a record for the price of adding one, twice
    @property
    def name(self):
        return "cheap"

    def bounded_sums(self, unit, adjacency):
        return AFL.bounded_sums(self, unit, "add-remove")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretched(AFL):
    # makes rows a tenth longer once they were clipped
    @property
    def name(self):
        return "stretched"

    def _placed(self, rows, centre):
        return 1.1 * AFL._placed(self, rows, centre)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adaptive(AFL):
    # takes off the mean of a client's own rows, so that each row moves all others
    @property
    def name(self):
        return "adaptive"

    def client_statistics(self, model, rows):
        x = np.asarray(rows.features, dtype=np.float64)
        x = x - x.mean(axis=0) if len(x) else x
        return AFL.client_statistics(self, model, ClientRows(x, rows.targets))


def _entry(kind, name):
    def head(settings):
        return kind(
            n_features=settings.n_features,
            n_targets=settings.n_classes,
            feature_format=settings.feature_format,
            max_rows=settings.max_rows,
            target_sums=False,
        )

    return LearnerEntry(name=name, head=head, learner_class=kind)


HONEST, CHEAP = _entry(Honest, "honest"), _entry(Cheap, "cheap")
STRETCHED, ADAPTIVE = _entry(Stretched, "stretched"), _entry(Adaptive, "adaptive")
"""
"""A package of somebody else: a private form that is right, and three that declare too little."""


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    names = ("honest", "cheap", "stretched", "adaptive")
    with importable(tmp_path_factory.mktemp("installed") / "site") as folder:
        entries = {name: f"noisy_strangers:{name.upper()}" for name in names}
        install(folder, "noisy-strangers", {str(Group.LEARNERS): entries}, [("noisy_strangers", STRANGERS)])
        assert set(names) <= set(registry())
        yield


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize(
    ("name", "kind", "noticed"),
    [
        ("honest", "record, replace-one, no mean", ""),
        ("honest", "client, add-remove", ""),
        ("cheap", "record, replace-one, no mean", "of what is declared"),
        ("cheap", "record, replace-one, no signs, no mean", "of what is declared"),
        ("stretched", "record, add-remove", "statistics: a pair moves 1.1"),
        ("adaptive", "record, add-remove, no mean", "of what is declared"),
    ],
)
def test_a_sensitivity_that_is_too_small_is_noticed(name: str, kind: str, noticed: str) -> None:
    said = complaints(measured_form(name, PLANS[kind]), ATTAINED)
    assert noticed in "\n".join(said) if noticed else said == [], said
