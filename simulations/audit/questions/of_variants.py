"""What every option of every learner makes of the same rows: sums, models, scores, files, evaluations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from analytic.afl import AFL
from analytic.agreeing import Agreed, Agreement
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, fit_in_the_clear, fit_pooled
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic.row_format import ColumnMap
from analytic.statistics import Statistics
from analytic.total_error import r2, squared_errors, target_spreads
from analytic.weighted import Weighted
from federation.federation import Federation
from federation.learners import LEARNERS
from federation.server.run_settings import RunSettings, template_settings
from secagg import SumResult
from simulations.audit.questions import Question
from simulations.audit.questions.of_forms import (
    ALIKE,
    COLUMNS,
    LABELLED,
    REAL_TARGETS,
    C,
    D,
    clients_of,
    partly_labelled,
)
from simulations.audit.questions.said import answer

DEEP = "d_phi=8 d_f=6 n_layers=2"
WIDE = {"feature-format": "Q3.12"}
REAL = {"target-format": "Q4.8"}
ALL_ALIKE = {"feature-format": "standardised", "target-format": "agreed"}

VARIANTS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "afl": [
        ("", {}),
        ("intercept=yes", {"ridge": 0.5}),
        ("intercept=no", {**REAL, "ridge": 0.5}),
        ("clip=yes", {"feature-format": "Q1.6"}),
        ("", {"ri": 0.125}),
        ("patterns=0+1,1+2", {"ridge": 1.0}),
        ("patterns=0+1,1+2 intercept=yes", {"ridge": 1.0, "feature-format": "agreed"}),
        ("folds=3 ridges=0.1,1,10 rule=one-standard-error fold_seed=7", {"ridge": "cv"}),
        ("folds=2 ridges=0.1,1,10 criterion=classes", {"ridge": "cv"}),
        ("folds=2", {"ridge": "cv", **REAL}),
        ("folds=2 criterion=classes class_weights=balanced denominator=8", {"ridge": "cv"}),
        ("max_weight=7", {"ridge": 0.5}),
        ("max_weight=3 class_weights=3,1,2 denominator=2 intercept=yes", {"ridge": 0.5}),
        ("class_weights=balanced denominator=64", {"ridge": 0.5, "feature-format": "agreed"}),
        ("headroom=4", {"ridge": 0.5, "feature-format": "agreed"}),
        ("folds=2 ridges=0.1,1", {**ALL_ALIKE, "ridge": "cv"}),
    ],
    "fedhip": [
        ("alphas=0,5 intercept=yes", {"ridge": 0.5}),
        ("", {"ridge": 0.5, "ri": 2.0}),
        ("folds=2 ridges=0.1,5", {"ridge": "cv"}),
        ("folds=2 ridges=0.1,5 max_weight=3", {"ridge": "cv"}),
        ("", {**ALL_ALIKE, "ridge": 0.25}),
    ],
    "random": [
        ("d_phi=9 seed=3 variance=0.5", {"ridge": 0.5}),
        ("d_phi=9 activation=sine", {"ridge": 0.5}),
        ("d_phi=9 activation=tanh projection=affine format=Q1.8 clip=yes", {"ridge": 0.5}),
        ("d_phi=9 row_bits=9 intercept=yes", {"ridge": 0.5}),
        ("d_phi=9 folds=2 ridges=0.1,10", {"ridge": "cv"}),
        ("d_phi=9", {**REAL, "ridge": 0.5}),
        ("d_phi=9 class_weights=balanced denominator=16", {"ridge": 0.5, "feature-format": "standardised"}),
        ("", {"ridge": 0.5}),
    ],
    "logistic": [
        ("n_rounds=1 step=4 scale=5", {"ridge": 0.5}),
        ("n_rounds=2 intercept=yes", {"ridge": 0.5, "feature-format": "standardised"}),
        ("n_rounds=1 d_phi=9 max_weight=3", {"ridge": 0.5}),
    ],
    "lda": [
        ("d_phi=9", {"ridge": 0.5}),
        ("class_weights=balanced denominator=16", {"ridge": 0.5, "feature-format": "agreed"}),
        ("clip=yes", {"ridge": 0.5, "ri": 1.0, "feature-format": "Q1.6"}),
    ],
    "qda": [
        ("shrinkage=0", {"ridge": 0.5}),
        ("shrinkage=1 max_weight=4", {"ridge": 0.5}),
        ("shrinkage=0.25", {"ridge": 0.5, "feature-format": "standardised"}),
    ],
    "deepafl": [
        (DEEP, {"ridge": 0.5}),
        (f"{DEEP} activation=relu projection=nin seed=5", {"ridge": 0.5}),
        (f"{DEEP} activation=leaky_relu fed_by_first=yes", {"ridge": 0.5}),
        (f"{DEEP} activation=hardswish input_activation=none input_variance=2 block_variance=0.5", {"ridge": 0.5}),
        (f"{DEEP} activation=softshrink row_bits=9", {"ridge": 0.5}),
        (f"{DEEP} feature_bound=1 headroom_bits=1 clip=yes gamma=0.5", {"ridge": 0.5}),
        ("d_phi=6 d_f=6 n_layers=2 ablation=no-transform", {"ridge": 0.5}),
        (f"{DEEP} ablation=no-skip", {"ridge": 0.5}),
        (f"{DEEP} ablation=same-projection", {"ridge": 0.5}),
        (f"{DEEP} activation=tanh", {**ALL_ALIKE, "ridge": 0.5}),
        (f"{DEEP} class_weights=balanced denominator=16", {"ridge": 0.5}),
    ],
    "safle": [
        ("n_buckets=4 group_size=1 seed=3", {"ridge": 0.5}),
        ("n_buckets=8 encoding=one-hot thresholds=even low=-2 high=2 group_size=1", {"ridge": 0.0}),
        ("n_buckets=4 n_bins=64 low=-3 high=3", {"ridge": 0.5, "ri": 2}),
        ("n_buckets=4 max_weight=3", {"ridge": 0.5}),
        ("n_buckets=4", {**REAL, "ridge": 0.5}),
        ("n_buckets=4 thresholds=even", {**ALL_ALIKE, "ridge": 0.5}),
    ],
}

MANY: list[tuple[str, str, dict[str, Any]]] = [
    ("afl", "max_weight=3 class_weights=balanced denominator=4", {"feature-format": "standardised"}),
    ("afl", "folds=3 criterion=classes ridges=0.1,10", {"ridge": "cv"}),
    ("afl", "", {**ALL_ALIKE, "ridge": 0.5}),
    ("random", "d_phi=9", {"ridge": 0.5}),
    ("logistic", "n_rounds=1", {"ridge": 0.5}),
    ("qda", "", {"ridge": 0.5}),
    ("deepafl", "d_phi=8 d_f=6 n_layers=1", {"ridge": 0.5}),
    ("safle", "n_buckets=4", {"ridge": 0.5}),
    ("safle", "n_buckets=4 thresholds=even", {**REAL, "ridge": 0.5}),
]
"""Over clients of whom one has more rows than any product takes at once."""

BROAD: list[tuple[str, str, dict[str, Any]]] = [
    ("afl", "", {"allow-low-rank": True}),
    ("afl", "intercept=yes", {"ridge": 0.5}),
    ("fedhip", "", {"feature-format": "agreed", "ridge": 0.25}),
    ("random", "d_phi=96", {"ridge": 0.5}),
    ("deepafl", "n_layers=1 d_phi=48 d_f=40", {"ridge": 0.5}),
    ("safle", "n_buckets=2 group_size=1", {"ridge": 0.5}),
]
"""Over clients whose rows have more columns and classes than there are rows of some."""

EMPTY: list[tuple[str, str, dict[str, Any]]] = [
    ("afl", "", {}),
    ("afl", "class_weights=balanced denominator=4", {"ridge": 0.5}),
    ("afl", "folds=2 criterion=classes ridges=0.1,10", {"ridge": "cv", "feature-format": "standardised"}),
    ("lda", "", {"ridge": 0.5}),
    ("qda", "", {"ridge": 0.5}),
    ("qda", "shrinkage=0.5", {"ridge": 0.5, "feature-format": "agreed"}),
    ("logistic", "n_rounds=1", {"ridge": 0.5}),
    ("deepafl", "d_phi=8 d_f=6 n_layers=1", {"ridge": 0.5}),
    ("safle", "n_buckets=4", {"ridge": 0.5}),
]
"""Over clients none of whom has a row of the second class, or anything but noughts in the first column."""

N_MANY, N_BROAD, MANY_CLASSES = 9001, 70, 40


def about_variants() -> Iterator[Question]:
    """Return all of them."""
    usual = [(name, *variant) for name, variants in VARIANTS.items() for variant in variants]
    kinds = {"variant": usual, "many rows": MANY, "many columns": BROAD, "a class and a column of nothing": EMPTY}
    for kind, asked in kinds.items():
        for name, options, more in asked:
            said = " ".join([options, *(f"{key}={value}" for key, value in more.items())])
            yield f"{kind}, {name} {said}", partial(_of_settings, name, options, more, kind)
    filling = Agreed(
        learner=AFL(**ALIKE, ridge=0.5, columns=replace(COLUMNS, exponents=(0,) * D)),
        headroom=3,
        fill=True,
    )
    for agreement in Agreement:
        yield (
            f"variant, missing values that are filled, {agreement}",
            partial(_gaps_filled, replace(filling, agreement=agreement)),
        )
    centred = ColumnMap(
        exponents=(3, 4, 5, 3, 4), intercept=1, centres=(0.5, 0.0, -0.25, 0.0, 1.0), factors=(0.5, 1.0, 0.5, 1.0, 0.25)
    )
    yield "variant, columns that are centred", partial(_labelled, replace(LABELLED["afl, ridge"], columns=centred))
    filled = replace(LABELLED["afl, ridge"], columns=replace(centred, fill=True))
    yield "variant, columns that are filled", partial(_gaps_filled, filled)
    nested = Weighted(learner=LABELLED["chosen"], max_weight=9)
    yield "variant, weighted choice", partial(_labelled, nested, weights=True)
    yield "variant, what real targets leave over", _left_over
    yield "variant, personal models with an intercept", lambda: _personal(replace(LABELLED["fedhip"], columns=COLUMNS))


def _of_settings(name: str, options: str, more: dict[str, Any], kind: str) -> object:
    """All that a run of these settings shows, and what they are themselves."""
    n_features, n_classes = (N_BROAD, MANY_CLASSES) if kind == "many columns" else (D, C)
    sizes = {
        "n-features": n_features,
        "n-classes": n_classes,
        "max-rows": 20_000 if kind == "many rows" else 1000,
        "learner": name,
        "options": options,
    }
    settings = RunSettings.of({**template_settings(), **sizes, "mode": "masked", **WIDE, **more})
    learner: Any = settings.build_learner(8)
    is_real = settings.target_format != "labels"
    clients = OTHERS[kind](is_real) if kind in OTHERS else clients_of(real=is_real, n=4)
    features = clients[0].features[:6]
    if "patterns" in options:
        clients = [partly_labelled(rows, place) for place, rows in enumerate(clients)]
    if "max_weight" in options:
        clients = [ClientRows(rows.features, rows.targets, np.arange(len(rows)) % 4) for rows in clients]
    judging, entry = partial(settings.evaluation, learner), LEARNERS[name]
    told, model = _told(learner, clients, features, judging)
    shown: list[Callable[[], object]] = [
        lambda: learner.layers(model),
        lambda: entry.linear_weights and np.round(entry.linear_weights(learner, model), 9) + 0.0,
        lambda: (
            entry.personalise
            and [
                np.round(learner.decision_function(one, features), 9) + 0.0
                for one in entry.personalise(learner, model, clients[0], [0.0, 0.5, 20.0])
            ]
        ),
        lambda: hasattr(learner, "choose_alpha") and learner.choose_alpha(model, clients[0], (0.0, 1.0, 10.0)),
        lambda: hasattr(learner, "coarse_columns") and learner.coarse_columns(model, clients[0]),
        lambda: hasattr(learner, "losses") and learner.losses(model),
    ]
    return learner.context_bytes(learner.init()), settings.in_series, told, [*map(answer, shown)]


def _told(
    learner: Any, clients: list[ClientRows], features: Any, judging: Callable[[Any], Any] | None = None
) -> tuple[list[str], Any]:
    """Each sum's layout and vectors, the model, its scores, its file, what an evaluation of it says; and the model."""
    federation, found = Federation(learner, release=None), list[str]()
    while (step := federation.next_sum) is not None:
        vectors = [step.vector(rows) for rows in clients]
        shown = [step.layout.canonical(), step.context, *vectors]
        found.append(answer(partial(list, shown)))
        total = np.sum(vectors, axis=0)
        federation.take(SumResult(total=total, survivors=tuple(range(1, len(clients) + 1))))
    model = federation.model
    score = getattr(learner, "exact_scores", learner.decision_function)

    def written() -> object:
        saved = model_from_bytes(model_to_bytes(learner, model))
        return saved.learner == learner, saved.learner.weights_bytes(saved.model) == learner.weights_bytes(model)

    def judged(judging: Callable[[Any], Any]) -> object:
        own = judging(model)
        report = fit_pooled(own, ClientRows.pool([ClientRows(rows.features, rows.targets) for rows in clients]))
        return own.tallies(report), report.figures, own.weights_bytes(report), own.spec.client_bounds(7)

    told = [
        *found,
        *([] if judging is None else [answer(partial(judged, judging))]),
        answer(lambda: learner.weights_bytes(model)),
        answer(lambda: np.round(score(model, features), 9) + 0.0),
        answer(lambda: learner.weights_bytes(fit_pooled(learner, ClientRows.pool(clients)))),
        answer(written),
    ]
    return told, model


def _many(real: bool) -> list[ClientRows]:
    few, more = clients_of(real=real, n=3)[:2]
    drawn = np.random.default_rng(11).integers(0, len(more), N_MANY)
    shift = np.round(np.linspace(-0.5, 0.5, N_MANY), 4)[:, None]
    return [few, ClientRows(more.features[drawn] + shift, more.targets[drawn])]


def _broad(real: bool) -> list[ClientRows]:
    drawn, found = np.random.default_rng(12), []
    for size in (20, 36, 0):
        features = np.round(drawn.uniform(-3, 3, (size, N_BROAD)), 3)
        found.append(ClientRows(features, drawn.integers(0, MANY_CLASSES, size)))
    return found


def _lacking(real: bool) -> list[ClientRows]:
    return [
        ClientRows(rows.features * (np.arange(D) > 0), np.where(rows.targets == 1, 2, rows.targets))
        for rows in clients_of(n=4)
    ]


OTHERS = {"many rows": _many, "many columns": _broad, "a class and a column of nothing": _lacking}


def _labelled(learner: Any, *, weights: bool = False) -> list[str]:
    clients = clients_of(n=4)
    if weights:
        clients = [ClientRows(rows.features, rows.targets, np.arange(len(rows)) % 9) for rows in clients]
    return _told(learner, clients, clients[0].features[:6])[0]


def _gaps_filled(learner: Any) -> list[str]:
    clients = _with_gaps()
    return _told(learner, clients, clients[0].features)[0]


def _left_over() -> object:
    """Squared errors, spreads and R^2 of a total, from it alone."""
    learner, clients = REAL_TARGETS["afl, real"], clients_of(real=True, n=4)
    rows = ClientRows.pool(clients)
    total = Statistics.from_rows(learner.spec, rows.features, rows.targets)
    weights = fit_pooled(learner, rows).weights
    return squared_errors(learner, weights, total), target_spreads(learner, total), r2(learner, weights, total)


def _personal(learner: FedHiP) -> list[bytes]:
    clients = clients_of(n=4)
    model = fit_in_the_clear(learner, clients)
    return [learner.weights_bytes(one) for one in learner.personalise(model, clients[0], [0.0, 0.5, 20.0])]


def _with_gaps() -> list[ClientRows]:
    """Rows of which every seventh number is missing."""
    clients = []
    for rows in clients_of(n=4):
        features = rows.features.copy()
        features.ravel()[::7] = np.nan
        clients.append(ClientRows(features, rows.targets))
    return clients
