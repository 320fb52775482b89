"""The registry of learners: each is built as asked, and wrong options say what there is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analytic.afl import AFL
from analytic.bucketing import FixedThresholds
from analytic.deepafl import DeepAFL
from analytic.errors import SpecificationError
from analytic.learner import ClientRows, fit_pooled
from analytic.parts import together
from analytic.row_format import RowFormat
from analytic.safle import SAFLe
from analytic.scaling import Agreement
from analytic_secagg.console.arguments import parse_options
from analytic_secagg.errors import UsageError
from analytic_secagg.in_process import run_federation
from analytic_secagg.learners import LEARNERS, Ablation, LearnerSettings, choose_learners
from analytic_secagg.modes import MODES


def settings(**changes: object) -> LearnerSettings:
    common = {
        "n_features": 4,
        "n_classes": 3,
        "feature_format": RowFormat.parse("Q5.11"),
        "max_rows": 100,
        "max_clients": 7,
        "ridge": 2.0,
    }
    return LearnerSettings(**(common | changes))  # type: ignore[arg-type]


def test_settings_reach_the_learner() -> None:
    learner = LEARNERS["afl"].build(settings(ri_gamma=3.0))
    assert isinstance(learner, AFL)
    assert (learner.ridge, learner.ri_gamma, learner.max_clients, str(learner.feature_format)) == (2.0, 3.0, 7, "Q5.11")


def test_options_are_read_by_their_kind() -> None:
    texts = ["n_layers=2", "gamma=0.5", "activation=relu", "fed_by_first=yes", "n_layers=3"]
    options = parse_options(texts, [LEARNERS["deepafl"]])
    assert options == {"deepafl": {"n_layers": 3, "gamma": 0.5, "activation": "relu", "fed_by_first": True}}
    texts = ["encoding=one-hot", "n_buckets=4", "n_bins=64"]
    own = parse_options(texts, [LEARNERS["safle"]])["safle"]
    learner = LEARNERS["safle"].build(settings(options=own))
    assert isinstance(learner, SAFLe)
    assert (learner.encoding, learner.n_buckets, learner.thresholds.n_bins) == ("one-hot", 4, 64)  # type: ignore[union-attr]
    assert parse_options(["alphas=0,2.5,1e3"], [LEARNERS["fedhip"]])["fedhip"] == {"alphas": (0.0, 2.5, 1000.0)}


def test_an_option_goes_to_all_that_have_it_or_to_one() -> None:
    takers = choose_learners("afl,deepafl,safle")
    options = parse_options(["seed=3", "safle.seed=4", "deepafl.n_layers=1"], takers)
    assert options == {"afl": {}, "deepafl": {"seed": 3, "n_layers": 1}, "safle": {"seed": 4}}


@pytest.mark.parametrize(
    ("learners", "option", "message"),
    [
        ("afl", "n_layers=2", "afl takes NAME=VALUE with NAME out of intercept, clip, .*, not 'n_layers=2'"),
        ("deepafl", "layers=2", "deepafl takes NAME=VALUE with NAME out of n_layers, d_phi"),
        ("deepafl", "n_layers", "deepafl takes NAME=VALUE"),
        ("deepafl", "safle.seed=1", "deepafl takes NAME=VALUE"),
        ("deepafl", "n_layers=two", "n_layers of deepafl must be a whole number, not 'two'"),
        ("deepafl", "gamma=much", "gamma of deepafl must be a number, not 'much'"),
        ("deepafl", "fed_by_first=perhaps", "fed_by_first of deepafl must be yes or no, not 'perhaps'"),
        ("safle", "encoding=hot", "encoding of safle must be one of integer, one-hot, binary-overlapping, not 'hot'"),
        ("safle", "thresholds=odd", "thresholds of safle must be one of quantiles, even, not 'odd'"),
        ("fedhip", "alphas=1,", "alphas of fedhip must be numbers with commas between, such as 0,1,10, not '1,'"),
        (
            "afl,safle",
            "n_layers=2",
            "--option reads NAME=VALUE.* out of afl.intercept, afl.clip, .*safle.n_buckets",
        ),
        ("afl,safle", "afl.seed=2", "--option reads NAME=VALUE"),
    ],
)
def test_wrong_options_are_refused(learners: str, option: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_options([option], choose_learners(learners))


def test_what_a_learner_cannot_do_is_refused() -> None:
    with pytest.raises(UsageError, match=r"deepafl has no RI process, so the RI gamma must be 0"):
        LEARNERS["deepafl"].build(settings(ri_gamma=1.0))
    with pytest.raises(UsageError, match=r"the RI gamma must be a whole number, not 0\.5"):
        LEARNERS["safle"].build(settings(ri_gamma=0.5))
    with pytest.raises(UsageError, match=r"learner must be one of afl.*, not 'transformer'"):
        choose_learners("afl,transformer")


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("afl", {"ridge": "cv", "options": {"patterns": "0+1,1+2"}}, "partial labels have no ridge cv"),
        ("deepafl", {"ridge": "cv"}, r"deepafl cannot choose its ridge \(cv\), as afl and fedhip can"),
        ("afl", {"options": {"folds": 3}}, "folds of afl says how a ridge is chosen"),
        ("afl", {"agreement": Agreement.STANDARDISED, "options": {"intercept": False}}, "so need an intercept"),
    ],
)
def test_options_that_contradict_each_other_are_refused(name: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LEARNERS[name].build(settings(**changes))


def test_all_learners_can_be_asked_for_by_one_word() -> None:
    assert choose_learners("all") == tuple(LEARNERS.values())
    assert [entry.name for entry in choose_learners("safle,afl,safle")] == ["safle", "afl"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("afl", {}),
        ("fedhip", {"alphas": (1.0,)}),
        ("random", {}),
        ("random", {"activation": "sine", "d_phi": 9}),
        ("logistic", {}),
        ("logistic", {"n_rounds": 2, "d_phi": 9}),
        ("lda", {"class_weights": "balanced"}),
        ("qda", {"shrinkage": 0.25}),
        ("naive-bayes", {"shrinkage": 0.25}),
        ("deepafl", {"n_layers": 3}),
        ("deepafl", {"n_layers": 3, "ablation": "no-transform"}),
        ("deepafl", {}),
        ("safle", {}),
        ("safle", {"thresholds": "even", "high": 4.0}),
    ],
)
def test_a_learner_asks_for_the_sums_that_it_announces(name: str, options: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    clients = {1: ClientRows(rng.uniform(0, 4, size=(50, 4)), rng.integers(0, 3, 50))}
    finished = run_federation(LEARNERS[name].build(settings(options=options)), clients, MODES["plain"])
    assert LEARNERS[name].n_sums(options) == len(finished.sums)


@pytest.mark.parametrize(("n_features", "width"), [(4, 8), (30, 64), (64, 128), (512, 1024), (4096, 1024)])
def test_deepafl_is_as_wide_as_its_rows_need(n_features: int, width: int) -> None:
    learner = LEARNERS["deepafl"].build(settings(n_features=n_features))
    assert isinstance(learner, DeepAFL)
    assert (learner.d_phi, learner.d_f) == (width, width)
    narrow = LEARNERS["deepafl"].build(settings(n_features=n_features, options={"d_f": 3}))
    assert isinstance(narrow, DeepAFL)
    assert (narrow.d_phi, narrow.d_f) == (width, 3)


def test_random_features_end_where_their_format_does() -> None:
    """Proven for relu, seven bits for a sine, and what is stated where it is."""
    for own, row_format, limit in (
        ({}, "UQ9.7", None),
        ({"row_bits": 12}, "UQ9.3", None),
        ({"activation": "sine"}, "Q0.7", 127 / 128),
        ({"format": RowFormat.parse("UQ2.5")}, "UQ2.5", 4 - 1 / 32),
    ):
        learner: Any = LEARNERS["random"].build(settings(n_features=100, options=own))
        assert (str(learner.feature_format), learner.lift.limit, learner.lift.n_columns) == (row_format, limit, 512)
    with pytest.raises(SpecificationError, match=r"may reach 2\^9, and 8 bits do not hold them: allow more row_bits"):
        LEARNERS["random"].build(settings(n_features=100, options={"row_bits": 8}))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("random", {"intercept": True, "clip": True}),
        ("random", {}),
        ("logistic", {"d_phi": 9, "intercept": True, "clip": True}),
    ],
)
def test_random_features_have_an_intercept_where_one_is_asked_for(name: str, options: dict[str, object]) -> None:
    learner: Any = LEARNERS[name].build(settings(options=options))
    assert getattr(learner, "learner", learner).fit_intercept == ("intercept" in options)


def test_headroom_is_of_columns_that_are_agreed_on() -> None:
    learner: Any = LEARNERS["safle"].build(settings(agreement=Agreement.AGREED, options={"headroom": 2}))
    assert learner.scaler.headroom == 2
    with pytest.raises(UsageError, match="headroom is of columns that are agreed on"):
        LEARNERS["safle"].build(settings(options={"headroom": 2}))


def test_even_thresholds_cut_the_range_that_was_set() -> None:
    learner = LEARNERS["safle"].build(settings(options={"thresholds": "even", "low": 1.0, "high": 5.0, "n_buckets": 4}))
    assert isinstance(learner, SAFLe)
    assert learner.thresholds == FixedThresholds.evenly(1.0, 5.0, 4)
    assert learner.encoding == "binary-overlapping"


def test_the_ablation_of_afls_table_3_solves_the_sum_that_nobody_took_gamma_off() -> None:
    """The same bits as AFL of the clients' uploads C_k^r, added and solved as they are (eq. 15)."""
    rng = np.random.default_rng(5)
    clients = [ClientRows(rng.uniform(0, 4, size=(9, 4)), rng.integers(0, 3, 9)) for _ in range(4)]
    own = settings(ri_gamma=0.5, max_clients=4, ridge=0.25)
    whole, kept = (
        LEARNERS["afl"].build(replace(own, options=options)) for options in ({}, {"ablation": Ablation.NO_RI})
    )
    assert isinstance(whole, AFL)
    pooled = ClientRows(
        np.concatenate([rows.features for rows in clients]), np.concatenate([rows.targets for rows in clients])
    )
    uploads = [whole.client_statistics(whole.init(), rows) for rows in clients]
    unremoved = replace(whole, ri_gamma=0.0).update(whole.init(), together(uploads), 4)
    found = run_federation(kept, dict(enumerate(clients, start=1)), MODES["plain"])
    assert kept.weights_bytes(found.model) == whole.weights_bytes(unremoved)
    assert kept.weights_bytes(found.model) != whole.weights_bytes(fit_pooled(whole, pooled))


@pytest.mark.parametrize(
    ("changes", "message"), [({}, "state one, such as 1"), ({"ri_gamma": 1.0, "ridge": "cv"}, "state a number")]
)
def test_the_ablation_needs_a_gamma_and_a_ridge(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        LEARNERS["afl"].build(settings(options={"ablation": Ablation.NO_RI}, **changes))
