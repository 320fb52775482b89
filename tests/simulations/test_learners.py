"""The registry of learners: each is built as asked, and wrong options say what there is."""

from __future__ import annotations

import pytest

from analytic.afl import AFL
from analytic.row_format import RowFormat
from analytic.safle import SAFLe
from simulations.errors import UsageError
from simulations.learners import LEARNERS, LearnerSettings, choose_learner


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


@pytest.mark.parametrize("name", list(LEARNERS))
def test_a_learner_carries_the_name_under_which_it_is_listed(name: str) -> None:
    learner = choose_learner(name).build(settings())
    assert learner.name == name
    assert learner.next_sum(learner.init()) is not None


def test_settings_reach_the_learner() -> None:
    learner = choose_learner("afl").build(settings(ri_gamma=3.0))
    assert isinstance(learner, AFL)
    assert (learner.ridge, learner.ri_gamma, learner.max_clients, str(learner.feature_format)) == (2.0, 3.0, 7, "Q5.11")


def test_options_are_read_by_their_kind() -> None:
    entry = choose_learner("deepafl")
    options = entry.parse_options(["n_layers=2", "gamma=0.5", "activation=relu", "fed_by_first=yes", "n_layers=3"])
    assert options == {"n_layers": 3, "gamma": 0.5, "activation": "relu", "fed_by_first": True}
    learner = choose_learner("safle").build(
        settings(options=choose_learner("safle").parse_options(["encoding=one-hot", "n_buckets=4", "n_bins=64"]))
    )
    assert isinstance(learner, SAFLe)
    assert (learner.encoding, learner.n_buckets, learner.thresholds.n_bins) == ("one-hot", 4, 64)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("learner", "option", "message"),
    [
        ("afl", "n_layers=2", "afl takes no options at all, not 'n_layers=2'"),
        ("deepafl", "layers=2", "deepafl takes NAME=VALUE with NAME out of n_layers, d_phi"),
        ("deepafl", "n_layers", "deepafl takes NAME=VALUE"),
        ("deepafl", "n_layers=two", "n_layers of deepafl must be a whole number, not 'two'"),
        ("deepafl", "gamma=much", "gamma of deepafl must be a number, not 'much'"),
        ("deepafl", "fed_by_first=perhaps", "fed_by_first of deepafl must be yes or no, not 'perhaps'"),
        ("safle", "encoding=hot", "encoding of safle must be one of integer, one-hot, binary-overlapping, not 'hot'"),
    ],
)
def test_wrong_options_are_refused(learner: str, option: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        choose_learner(learner).parse_options([option])


def test_what_a_learner_cannot_do_is_refused() -> None:
    with pytest.raises(UsageError, match="deepafl has no RI process, so --ri must stay 0"):
        choose_learner("deepafl").build(settings(ri_gamma=1.0))
    with pytest.raises(UsageError, match=r"--ri must be a whole number, not 0\.5"):
        choose_learner("safle").build(settings(ri_gamma=0.5))
    with pytest.raises(UsageError, match="a learner is one of afl"):
        choose_learner("transformer")
