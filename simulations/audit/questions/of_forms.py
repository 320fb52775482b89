"""Questions about closed forms: rows in formats, statistics, vectors, bounds, models, model files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL, absolute_aggregation
from analytic.agreeing import Agreed
from analytic.array_file import ArrayFile
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.checked_products import GramSum, check_product
from analytic.choosing import Chosen, Path, Rule
from analytic.deepafl import DeepAFL
from analytic.digits import Digits
from analytic.errors import WrongProductError
from analytic.evaluation import ClassEvaluation
from analytic.fedhip import FedHiP
from analytic.lda import LDA
from analytic.learner import ClientRows, fit_in_the_clear, fit_pooled
from analytic.logistic import Logistic
from analytic.model_files import ModelFileError, model_from_bytes, model_to_bytes
from analytic.partial_labels import PartialLabels
from analytic.qda import QDA
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.safle import SAFLe
from analytic.solve import solve_ridge
from analytic.statistics import Statistics, StatisticsSpec, one_hot
from analytic.weighted import Weighted
from federation.federation import Federation, Step
from secagg import SumResult
from simulations.audit.questions import Question

D, C = 5, 3
SIZES: dict[str, Any] = {"n_features": D, "max_rows": 1000}
LINEAR: dict[str, Any] = {**SIZES, "n_targets": C, "feature_format": RowFormat.parse("Q5.11"), "max_clients": 8}
REAL = RowFormat.parse("Q3.8")
DEEP = DeepAFL(
    **SIZES, n_targets=C, feature_bound=32.0, n_layers=2, d_phi=12, d_f=9, headroom_bits=6, ridge=0.5, gamma=0.05
)
COUNTS = SAFLe(
    **SIZES, n_classes=C, thresholds=QuantileThresholds(low=-4.0, high=4.0, n_bins=32), n_buckets=4, ridge=0.5
)
COLUMNS = ColumnMap(exponents=(3, 4, 5, 3, 4), intercept=1)
LIFT = RandomMap(n_features=D, n_columns=9, feature_bound=32.0, fraction_bits=11, seed=4)
ALIKE: dict[str, Any] = {**LINEAR, "feature_format": RowFormat.parse("Q0.20")}

LABELLED: dict[str, Any] = {
    "afl": AFL(**LINEAR),
    "afl, ridge": AFL(**LINEAR, ridge=0.5),
    "afl, gamma": AFL(**LINEAR, ri_gamma=0.25),
    "afl, both": AFL(**LINEAR, ridge=2.0, ri_gamma=1.0),
    "afl, clipping": AFL(**{**LINEAR, "feature_format": RowFormat.parse("Q0.8")}, clip=True),
    "afl, intercept": AFL(**LINEAR, columns=COLUMNS, ridge=0.25),
    "afl, random features": AFL(**{**LINEAR, "feature_format": LIFT.row_format}, lift=LIFT, ridge=1.0),
    "fedhip": FedHiP(**LINEAR, ridge=0.1),
    "lda": LDA(**LINEAR, ridge=0.5, columns=COLUMNS),
    "qda": QDA(**LINEAR, ridge=0.5, columns=COLUMNS),
    "logistic": Logistic(learner=AFL(**LINEAR, ridge=0.5), n_rounds=2),
    "chosen": Chosen(learner=FedHiP(**LINEAR), n_folds=2, ridges=(0.25, 4.0)),
    "chosen by one error": Chosen(
        learner=AFL(**LINEAR),
        n_folds=3,
        ridges=(0.25, 4.0),
        rule="one-standard-error",
        seed=3,
    ),
    "agreed": Agreed(learner=AFL(**ALIKE, columns=replace(COLUMNS, exponents=(0,) * D)), headroom=6),
    "standardised": Agreed(
        learner=AFL(**ALIKE, columns=replace(COLUMNS, exponents=(0,) * D)),
        headroom=6,
        agreement="standardised",
    ),
    "weighted": Weighted(learner=AFL(**LINEAR), max_weight=5),
    "balanced": Weighted(
        learner=AFL(**{**LINEAR, "max_rows": 40_000}), max_weight=5, class_weights="balanced", denominator=1024
    ),
    "weighted classes": Weighted(learner=AFL(**LINEAR), class_weights=(1, 2, 3)),
    "deepafl": DEEP,
    "safle": COUNTS,
    "safle, even": replace(COUNTS, thresholds=FixedThresholds.evenly(-4, 4, 4)),
    "safle, one-hot": replace(COUNTS, encoding=Encoding.ONE_HOT),
    "safle, gamma": replace(COUNTS, ri_gamma=3, max_clients=8),
}
PARTIAL = PartialLabels(learner=AFL(**LINEAR, ridge=1.0), patterns=((0, 1), (1, 2)))
REAL_TARGETS: dict[str, Any] = {
    "afl, real": AFL(**LINEAR, target_format=REAL, ridge=0.5),
    "deepafl, real": replace(DEEP, target_format=REAL),
    "safle, real": replace(COUNTS, real_format=REAL),
}


def about_forms() -> Iterator[Question]:
    """Return all of them."""
    for name, learner in {**LABELLED, **REAL_TARGETS}.items():
        yield from _of(name, learner, clients_of(real=name in REAL_TARGETS))
    yield from _of(
        "partial labels", PARTIAL, [partly_labelled(rows, place) for place, rows in enumerate(clients_of(n=4))]
    )
    yield from _products()
    yield from _formats()
    yield from _statistics()
    yield from _rows()
    yield from _solved()
    yield from _paths()
    yield from _files()
    yield from _further()


def clients_of(*, real: bool = False, n: int = 3) -> list[ClientRows]:
    """Rows of a few clients, one of whom has none."""
    rng = np.random.default_rng(7)
    clients = []
    for size in (*range(14, 14 + n - 1), 0):
        features = np.round(rng.uniform(-3, 3, (size, D)), 3)
        targets = np.round(rng.uniform(-7, 7, (size, C)), 3) if real else rng.integers(0, C, size)
        clients.append(ClientRows(features, targets))
    return clients


def partly_labelled(rows: ClientRows, place: int) -> ClientRows:
    """The same rows, labelled for the classes of the first pattern, of the second, or of both in turn."""
    targets = one_hot(rows.targets, C).astype(np.int64)
    pattern = np.full(len(rows), place) if place < 2 else np.arange(len(rows)) % 2
    targets[pattern == 0, 2] = targets[pattern == 1, 0] = -1
    return ClientRows(rows.features, targets)


def _of(name: str, learner: Any, clients: list[ClientRows]) -> Iterator[Question]:
    """All that a run of a learner shows: layouts, bounds, contexts, vectors, model, scores, file."""

    def run() -> object:
        federation, found = Federation(learner, release=None, max_client_rows=40), list[object]()
        while (step := federation.next_sum) is not None:
            vectors = [step.vector(rows) for rows in clients]
            total = np.sum(vectors, axis=0)
            statistics = learner.exact_total(step.model, step.spec.from_vector(total), len(clients))
            judged = statistics if isinstance(statistics, tuple) else (statistics,)
            federation.take(SumResult(total=total, survivors=tuple(range(1, len(clients) + 1))))
            found += [step.layout.canonical(), step.context, *vectors, step.spec.client_bounds(7)]
            found += [one.to_bytes() if isinstance(one, Statistics) else one for one in judged]
        return found

    @cache
    def model() -> Any:
        return fit_in_the_clear(learner, clients)

    rows = clients[0].features[:6]
    yield f"{name}, sums", run
    yield f"{name}, model", lambda: learner.weights_bytes(model())
    yield f"{name}, configuration", lambda: learner.context_bytes(learner.init())
    yield f"{name}, configuration and model", lambda: learner.context_bytes(model())
    yield f"{name}, scores", lambda: np.round(learner.decision_function(model(), rows), 9) + 0.0
    yield f"{name}, exact scores", lambda: learner.exact_scores(model(), rows)
    yield (
        f"{name}, pooled",
        lambda: learner.weights_bytes(fit_pooled(learner, ClientRows.pool(clients))) == learner.weights_bytes(model()),
    )

    def written() -> object:
        content = model_to_bytes(learner, model())
        saved = model_from_bytes(content)
        same = saved.learner.weights_bytes(saved.model) == learner.weights_bytes(model())
        again = model_to_bytes(saved.learner, saved.model) == content
        without = model_to_bytes(learner, model(), with_totals=False)
        return same, again, len(content) - len(without), saved.learner == learner  # the rest names versions too

    yield f"{name}, file", written
    yield (
        f"{name}, too many rows",
        lambda: learner.client_statistics(
            learner.init(),
            ClientRows(np.zeros((1001, D)), np.zeros((1001, C)) if name in REAL_TARGETS else np.zeros(1001, np.int64)),
        ),
    )
    yield (
        f"{name}, not a number",
        lambda: Step.of(learner, learner.init()).vector(ClientRows(np.full((2, D), np.nan), clients[0].targets[:2])),
    )
    yield (
        f"{name}, other columns",
        lambda: Step.of(learner, learner.init()).vector(ClientRows(np.zeros((2, D + 1)), clients[0].targets[:2])),
    )
    yield (
        f"{name}, weights where none are",
        lambda: Step.of(learner, learner.init()).vector(
            ClientRows(clients[0].features[:2], clients[0].targets[:2], np.array([2, 9]))
        ),
    )
    if name not in REAL_TARGETS:
        for what, labels in {"another class": [0, C], "a class below 0": [0, -1], "a fraction": [0.5, 0.0]}.items():
            yield (
                f"{name}, {what}",
                lambda labels=labels: fit_pooled(learner, ClientRows(clients[0].features[:2], np.array(labels))),
            )


def _products() -> Iterator[Question]:
    """Products that a machine got wrong in one entry."""
    left, right = np.arange(12).reshape(4, 3) - 5, np.arange(6).reshape(3, 2) - 2
    wrong = left @ right
    wrong[2, 1] += 1

    def is_refused(check: Callable[[], None]) -> bool:
        """Whether it was; the words name this machine's libraries."""
        try:
            check()
        except WrongProductError:
            return True
        return False

    for name, product in {"right": left @ right, "wrong": wrong}.items():
        yield f"integers multiplied, {name}", lambda own=product: is_refused(lambda: check_product(left, right, own))

    for off in (0, 1):
        own = GramSum(3, np.float64)
        own.add(left.astype(np.float64))
        own.matrix[0, 2] += off
        yield f"Gram with {off} too many", lambda own=own: is_refused(own.check)


def _formats() -> Iterator[Question]:
    values = np.array([[0.0, 0.1, -0.1, 0.5, 1.5, 2.5, -2.5, 3.03125, -3.96875]])
    for text in ("Q2.4", "Q2.0", "UQ2.4", "Q5.11", "Q13.13", "Q14.13", "Q0.0", "5.11", "Q-1.3"):
        yield (
            f"format {text}",
            lambda t=text: (lambda f: (f.magnitude, f.range, f.quantise(np.abs(values))))(RowFormat.parse(t)),
        )
    small = RowFormat.parse("Q2.4")
    yield "format, rounding", lambda: small.quantise(values)
    yield "format, beyond", lambda: small.quantise(values * 2)
    yield "format, at its end", lambda: small.quantise(np.array([[3.9375, -3.9375]]))
    for kind in "f2", "f4", "f8", "i1", "i8", "u2":
        yield f"format, just beyond, {kind}", lambda k=kind: small.quantise(np.array([[4]], dtype=k))
    yield "format, clipping", lambda: small.quantise(values * 2, clip=True)
    yield "format, without a sign", lambda: RowFormat.parse("UQ2.4").quantise(values)
    yield "format, infinity", lambda: small.quantise(np.array([[np.inf]]), clip=True)
    yield "format, not a number", lambda: small.quantise(np.array([[np.nan]]), clip=True)
    yield "format, texts", lambda: small.quantise(np.array([["1"]]))
    yield "format, a masked array", lambda: small.quantise(np.ma.masked_array([[1.0, 9.0]], [[False, True]]))
    yield "format, covering", lambda: [RowFormat.covering(values * s) for s in (0.01, 1.0, 100.0)]
    yield "format, covering infinity", lambda: RowFormat.covering(values[:, 1:] * np.inf)
    yield "format, dequantised", lambda: small.dequantise(np.array([[17, -3]]))
    yield "format, coarse columns", lambda: small.coarse_columns(np.array([[0.01, 3.0]]))
    yield "columns", lambda: (COLUMNS.features(np.full((1, D), 3.0)), COLUMNS.units, COLUMNS.n_columns)
    yield "columns covering", lambda: ColumnMap.covering(np.diag([1e3, 1e-3, 1, 0, 5]), None, intercept=1)
    yield "columns, another number", lambda: COLUMNS.features(np.zeros((1, D + 1)))
    for name, bad in {
        "a far exponent": {"exponents": (2000,)},
        "a factor of 0": {"exponents": (0,), "centres": (0.0,), "factors": (0.0,)},
        "centres alone": {"exponents": (0,), "centres": (0.0,)},
    }.items():  # fmt: skip
        yield f"columns of {name}", lambda bad=bad: ColumnMap(**bad)
    own = values.reshape(-1, 1).repeat(D, axis=1)
    for kind in ("relu", "sine", "tanh"):
        more: dict[str, Any] = {"projection": "affine"} if kind == "tanh" else {}
        yield (
            f"random features, {kind}",
            lambda kind=kind, more=more: replace(LIFT, activation=kind, **more).apply(own).values,
        )
    yield "random features of another seed", lambda: replace(LIFT, seed=5).apply(own).values
    yield "random features beyond their bound", lambda: LIFT.apply(np.full((1, D), 33.0)).values


def _statistics() -> Iterator[Question]:
    spec = StatisticsSpec(n_features=2, n_targets=2, feature_format=RowFormat.parse("Q2.4"), max_rows=10)
    rows, labels = np.array([[1.0, -2.0], [0.5, 3.0], [-1.25, 0.0]]), np.array([0, 1, 1])

    def own() -> Statistics:
        return Statistics.from_rows(spec, rows, labels)

    yield (
        "specification",
        lambda: (spec.segments, spec.gram_bound, spec.cross_bound, spec.target_bound, spec.exact_rows),
    )
    yield "specification, one client's", lambda: spec.client_bounds(3)
    yield "statistics", own

    def by_hand() -> object:
        units = np.rint(rows * 16).astype(np.int64)
        return (own().gram == units.T @ units).all(), (own().cross == units.T @ np.eye(2, dtype=np.int64)[labels]).all()

    yield "statistics by hand", by_hand
    vector = spec.to_vector
    yield "statistics, vector", lambda: vector(own())
    yield "statistics back", lambda: spec.from_vector(vector(own())).to_bytes() == own().to_bytes()
    yield "statistics added", lambda: (own() + own()).to_bytes()
    yield "statistics with a diagonal", lambda: own().with_diagonal(3).to_bytes()
    yield (
        "statistics in batches",
        lambda: (
            Statistics.from_batches(spec, [(rows[:1], labels[:1]), (rows[1:], labels[1:])]).to_bytes()
            == own().to_bytes()
        ),
    )
    other = replace(spec, n_features=3)
    yield "statistics of another shape", lambda: other.to_vector(own())
    yield "statistics of two shapes", lambda: own() + Statistics.from_rows(other, rows[:, [0, 1, 1]], labels)
    yield "statistics of many rows", lambda: Statistics.from_rows(replace(spec, max_rows=2), rows, labels)
    yield "statistics of many batches", lambda: Statistics.from_batches(replace(spec, max_rows=2), [(rows, labels)] * 2)
    good = np.arange(sum(size for _, size, _ in spec.segments)) * 0
    for name, changed in {
        "with a count below 0": np.append(good[:-1], -1), "with a count beyond": np.append(good[:-1], 11),
        "cut": good[:-1], "of floats": good.astype(float),
    }.items():  # fmt: skip
        yield f"total {name}", lambda c=changed: spec.from_vector(c)
    for name, bad in {
        "no rows": {"max_rows": 0}, "no features": {"n_features": 0}, "too many rows": {"max_rows": 2**60},
        "a diagonal below 0": {"diagonal_allowance": -1},
    }.items():  # fmt: skip
        yield f"specification of {name}", lambda bad=bad: replace(spec, **bad)


def _rows() -> Iterator[Question]:
    x, y = np.ones((3, 2)), np.array([0, 1, 0])
    for name, make in {
        "another number of targets": lambda: ClientRows(x, y[:2]),
        "one dimension": lambda: ClientRows(x[0], y),
        "lists": lambda: ClientRows([[1.0]], [0]),
        "a weight below 0": lambda: ClientRows(x, y, np.array([1, -1, 1])),
        "half a weight": lambda: ClientRows(x, y, np.array([1, 0.5, 1])),
        "few weights": lambda: ClientRows(x, y, np.array([1, 1])),
        "a masked array": lambda: ClientRows(np.ma.masked_array(x), y),
        "nobody": lambda: ClientRows.pool([]),
    }.items():
        yield f"rows of {name}", make
    for most in (13, 14, 15):
        rows = clients_of()[0]
        yield (
            f"rows of a client that may have {most}",
            lambda most=most, rows=rows: Step.of(AFL(**LINEAR), AFL(**LINEAR).init(), max_client_rows=most).vector(
                rows
            ),
        )


def _large(top: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A definite Gram matrix and a cross-correlation whose last bits float64 does not hold."""
    rng, below = np.random.default_rng(8), 2 ** (top - 4)
    rest, cross = rng.integers(-below, below, (4, 4)), rng.integers(-below, below, (4, 2))
    return np.tril(rest, -1) + np.tril(rest, -1).T + np.diag(2 ** (top - 1) + np.abs(rest.diagonal())), cross


def _paths() -> Iterator[Question]:
    """What is chosen where errors are far below one, about one and far above."""
    rng, rows = np.random.default_rng(9), (5, 7, 0, 6)
    around, spread = (102, 100, 101, 104, 112), rng.integers(-9, 10, 4)
    drawn = [[n * int(mean + more) for n, more in zip(rows, spread, strict=True)] for mean in around]
    for rule in Rule:
        for scale in (Fraction(1, 10**6), Fraction(1, 100), Fraction(1, 10), Fraction(1), Fraction(1000)):
            sums = [[error * scale for error in own] for own in drawn]
            yield (
                f"path, {rule} of errors times {scale}",
                lambda sums=sums, rule=rule: (lambda p: (p.least, p.chosen, p.mean, p.standard_error))(
                    Path.of((0.1, 0.3, 1.0, 3.0, 9.0), sums, rows, rule)
                ),
            )


def _solved() -> Iterator[Question]:
    rng = np.random.default_rng(3)
    rows, targets = rng.integers(-50, 50, (12, 6)), rng.integers(-9, 9, (12, 2))
    gram, cross = rows.T @ rows, rows.T @ targets
    for ridge in (0.0, 1.0, 2.0**-30, 1e6):
        yield f"solved with {ridge}", lambda ridge=ridge: solve_ridge(gram, cross, ridge=ridge)

    def close() -> object:
        solved = solve_ridge(gram, cross, ridge=1.0).weights
        return bool(np.abs((gram + np.eye(6)) @ solved - cross).max() < 1e-9 * np.abs(cross).max())

    yield "solved, and put in again", close
    few = rows[:3]
    yield "solved of low rank", lambda: np.round(solve_ridge(few.T @ few, few.T @ targets[:3]).weights, 9) + 0.0
    for top in (61, 62, 63):
        yield f"solved, numbers up to 2^{top}", lambda top=top: solve_ridge(*_large(top)).weights.tobytes()
        yield (
            f"digits, numbers up to 2^{top}",
            lambda top=top: [
                [bits, (own := Digits.of(_large(top)[0], bits)).exponent, own.planes] for bits in (17, 21, 26)
            ],
        )
    yield "solved, ridge below 0", lambda: solve_ridge(gram, cross, ridge=-1.0)
    yield "solved, no number", lambda: solve_ridge(gram, cross, ridge=float("nan"))
    yield "solved, not definite", lambda: solve_ridge(-gram, cross, ridge=0.0)
    yield "solved, other shapes", lambda: solve_ridge(gram, cross[:5])
    halves = [(h.T @ h + np.eye(6), h.T @ t) for h, t in ((rows[:6], targets[:6]), (rows[6:], targets[6:]))]
    yield (
        "absolute aggregation",
        lambda: [
            np.round(one, 8) + 0.0
            for one in absolute_aggregation(
                np.linalg.solve(*halves[0]), halves[0][0], np.linalg.solve(*halves[1]), halves[1][0]
            )
        ],
    )


def _files() -> Iterator[Question]:
    learner = AFL(**LINEAR, ridge=0.5)
    content = model_to_bytes(learner, fit_in_the_clear(learner, clients_of()), classes=("a", "b", "c"))
    read = model_from_bytes(content)  # its bytes also name an estimate of the condition, which differs by machine
    yield "model file", lambda: (read.learner.weights_bytes(read.model), read.classes)
    for name, bad in {
        "cut": content[:-1], "empty": b"", "of another version": content.replace(b"version", b"versiom", 1),
        "longer": content + b"\0", "of another learner": content.replace(b"afl", b"xyz"),
    }.items():  # fmt: skip
        yield f"model file {name}", lambda bad=bad: model_from_bytes(bad).classes
    wide = ArrayFile(entry="questions", version=1, what="numbers", remedy="ask again", error=ModelFileError)
    large = wide.to_bytes({"numbers": np.arange(5000)}, {})
    other = bytearray(large)
    other[-8] ^= 1
    yield "array file", lambda: wide.from_bytes(large, "it")[0]["numbers"].sum()
    yield "array file, its last number another", lambda: wide.from_bytes(bytes(other), "it")[0]["numbers"].sum()
    yield "model file of no model", lambda: model_to_bytes(learner, learner.init())


def _further() -> Iterator[Question]:
    """What only some learners do."""
    clients = clients_of()
    fedhip = FedHiP(**LINEAR, ridge=0.1)
    yield (
        "personal models",
        lambda: [
            fedhip.weights_bytes(one)
            for one in fedhip.personalise(fit_in_the_clear(fedhip, clients), clients[0], [0.0, 0.3, 30.0])
        ],
    )
    afl = AFL(**LINEAR, ri_gamma=0.25)
    spec: Any = afl.next_sum(afl.init())
    total = spec.from_vector(np.sum([spec.to_vector(afl.client_statistics(afl.init(), r)) for r in clients], axis=0))
    yield "without what clients added", lambda: afl.without_ri(total, 3).to_bytes()
    yield "without what nine clients added", lambda: afl.without_ri(total, 9)
    weighing = Weighted(learner=AFL(**LINEAR), max_weight=5)
    heavy = ClientRows(clients[0].features, clients[0].targets, np.arange(14) % 6)
    copies = ClientRows(
        np.repeat(heavy.features, heavy.weights, axis=0),
        np.repeat(heavy.targets, heavy.weights, axis=0),
    )
    plain = AFL(**LINEAR)
    yield (
        "weights are copies",
        lambda: weighing.weights_bytes(fit_pooled(weighing, heavy)) == plain.weights_bytes(fit_pooled(plain, copies)),
    )
    yield (
        "weights beyond the largest",
        lambda: weighing.client_statistics(weighing.init(), ClientRows(heavy.features, heavy.targets, np.full(14, 6))),
    )
    yield (
        "partial labels of no pattern",
        lambda: fit_pooled(PARTIAL, ClientRows(clients[0].features[:1], np.array([[1, -1, 0]]))),
    )
    mine, others = clients[0], replace(DEEP, seed=1)

    def first_sum(learner: DeepAFL, rows: ClientRows) -> bytes:
        spec: Any = learner.next_sum(learner.init())
        return bytes(spec.to_vector(learner.client_statistics(learner.init(), rows)))

    def after_another(rows: ClientRows) -> bool:
        """Whether a client's rows give the same where they went into another learner's sum before."""
        fresh = first_sum(others, ClientRows(rows.features, rows.targets))
        return first_sum(DEEP, rows) != fresh == first_sum(others, rows)

    yield "rows that another learner used", lambda: after_another(mine)
    inner = AFL(**LINEAR, ridge=0.5)
    judged = ClassEvaluation(learner=inner, model=fit_in_the_clear(inner, clients), max_rows=100, n_classes=C)
    yield "evaluation", lambda: judged.weights_bytes(fit_in_the_clear(judged, clients))
    for name, bad in {
        "ridge below 0": {"ridge": -1.0}, "gamma below 0": {"ri_gamma": -0.5}, "no rows": {"max_rows": 0},
        "no classes": {"n_targets": 0}, "too wide a gamma": {"ri_gamma": 2.0**50}, "no clients": {"max_clients": 0},
        "ridge of no number": {"ridge": float("nan")},
    }.items():  # fmt: skip
        yield f"afl of {name}", lambda bad=bad: AFL(**{**LINEAR, **bad})
