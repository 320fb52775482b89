"""The closed forms that comparisons, the audit, sites and engines know by name, built from public settings alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Literal, TypeVar

import numpy as np

from analytic.afl import AFL
from analytic.bucketing import Bucketing, Encoding, FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.discriminant import LDA, QDA
from analytic.extensions import Group, find, unknown
from analytic.fedhip import LARGEST_ALPHA, FedHiP
from analytic.learner import AnalyticLearner, ClientRows
from analytic.logistic import Logistic
from analytic.naive_bayes import NaiveBayes
from analytic.partial_labels import PartialLabels
from analytic.pipeline import Pipeline, settled
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, FloatMatrix, RowFormat
from analytic.safle import SAFLe
from analytic.scaling import TARGET_BITS, Agreement, Scaler, agreed_format
from analytic.selection import Criterion, RidgeCV
from analytic.statistics import LABELS
from analytic.validation_path import Rule
from analytic.weights import BALANCED, Weights, denominator_for
from analytic_secagg.console.arguments import (
    Option,
    Reader,
    class_weights,
    items,
    numbers,
    patterns,
    sets_of_classes,
    yes_or_no,
)
from analytic_secagg.errors import UsageError

DEFAULT_ALPHAS = (1.0, 10.0, 30.0)
"""Weights of a client's own rows: FedHiP's table II is best at 10 to 30."""

WIDEST = 1024
"""DeepAFL's own default of d_phi and d_f, for backbone features; narrower rows get less (see ``_deepafl``)."""

AUTHORS_LAW: dict[str, Option] = {"projection": "affine", "input_activation": "tanh"}
"""Options of DeepAFL's maps in its authors' code; ``reproduce-the-papers.md`` compares them with others."""

LAW_OF_MAPS = {"projection", "activation", "input_activation", "input_variance", "block_variance"}
"""DeepAFL's options that say what its random maps are; a stated one leaves the others as the class has them."""

WIDEST_RANDOM = 2048
"""Most columns of random features, where none are stated: 15 MB, where 50 000 rows take 7 bytes an entry."""

ABOUT_THRESHOLDS = ("thresholds", "n_bins", "low", "high")
"""SAFLe's options that say where its buckets end."""

CROSS_VALIDATED: Literal["cv"] = "cv"
"""The ridge that is chosen by cross-validation."""

Personalise = Callable[[Any, Any, ClientRows, Sequence[float]], list[Any]]
"""(learner, complete model, a client's own rows, alphas) -> that client's model for each alpha."""


class Ablation(StrEnum):
    """Part that AFL leaves out, as in table 3 of its paper."""

    NO_RI = "no-ri"
    """The removal of what clients add to their Grams: K gamma stays in the solve of a whole cohort of K clients."""


class Thresholds(StrEnum):
    """Kind of the bounds of SAFLe's buckets."""

    QUANTILES = "quantiles"
    EVEN = "even"


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """Public parameters from which every learner of a comparison is built.

    Args:
        n_features: columns of a feature row.
        n_classes: labels are 0 to n_classes - 1; or columns of real targets.
        feature_format: fixed-point format of the features; learners with formats of their own take its range. It is not
            looked at where columns are agreed on.
        max_rows: rows of all clients together.
        max_clients: the cohort's size.
        ridge: penalty of the solve, or ``cv`` for the one that cross-validation over everybody's rows takes.
        ri_gamma: what each client adds to its Gram's diagonal (AFL's RI process).
        target_format: ``LABELS``, or the format of real targets. Linear models of these, and of standardised columns,
            have an intercept unless an option says otherwise; those of labels have none, as in the papers.
        options: the learner's own parameters by name.
        agreement: how columns are made alike through a first sum, with real targets; None takes rows as they are.
    """

    n_features: int
    n_classes: int
    feature_format: RowFormat
    max_rows: int
    max_clients: int
    ridge: float | Literal["cv"] = 0.0
    ri_gamma: float = 0.0
    target_format: RowFormat = LABELS
    options: Mapping[str, Option] = field(default_factory=dict)
    agreement: Agreement | None = None

    @property
    def highest(self) -> float:
        """No feature of the format reaches it."""
        return 2.0**self.feature_format.integer_bits

    def columns(self, n_columns: int, row_format: RowFormat) -> ColumnMap | None:
        """The exact column of ones beside so many columns, for a model with an intercept; None for one without.

        Raises:
            UsageError: standardised columns without one, whose means would be lost.
        """
        is_centred = self.agreement is Agreement.STANDARDISED
        if not self.options.get("intercept", is_centred or self.target_format != LABELS):
            if is_centred:
                raise UsageError("standardised columns have mean 0 and so need an intercept: leave intercept out")
            return None
        return ColumnMap(exponents=(0,) * n_columns, intercept=int(row_format.integer_bits == 0))

    @property
    def lowest(self) -> float:
        """No feature of the format lies below it."""
        return -self.highest if self.feature_format.signed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerEntry:
    """A learner as the command line names it.

    Args:
        name: the name in ``--learner`` and in reports.
        head: makes the closed form from settings; the slots of a ``Pipeline`` are put around it where settings ask.
        options: its own parameters, and those of slots (``WEIGHING``, ``AGREEING``, ``CHOOSING``) that it goes with,
            each with what reads it from text.
        n_sums: how many sums it asks for with given options, which is public.
        linear_weights: (learner, model) -> weights of features as they are, with the intercepts as a last row, so that
            they can be compared with a float64 ridge; None where the model is no linear map.
        personalise: makes a model for each client, where it does that. A client's rows are then split for testing.
        labels_only: whether it takes no real targets.
        learner_class: of another package's learner, the class of what ``head`` makes, by which model files are read.
    """

    name: str
    head: Callable[[LearnerSettings], AnalyticLearner[Any]]
    options: Mapping[str, Reader] = field(default_factory=dict)
    n_sums: Callable[[Mapping[str, Option]], int] = lambda options: 1
    linear_weights: Callable[[Any, Any], FloatMatrix] | None = None
    personalise: Personalise | None = None
    labels_only: bool = False
    learner_class: type[Any] | None = None

    def build(self, settings: LearnerSettings) -> AnalyticLearner[Any]:
        """Return the closed form in a pipeline with the slots that settings ask for; alone where they ask for none.

        Raises:
            UsageError, analytic.errors.SpecificationError: settings that it, or a slot, cannot have.
        """
        own = {name: value for name, value in settings.options.items() if name not in SLOT_OPTIONS}
        weights, scaler = _weights(settings), _scaler(settings)
        within = replace(settings, options=own, max_rows=settings.max_rows * (1 if weights is None else _most(weights)))
        if scaler is not None:
            targets = within.target_format
            if targets != LABELS:
                targets = agreed_format(within.max_rows, most=TARGET_BITS)
            row_format = agreed_format(within.max_rows)
            within = replace(within, feature_format=row_format, target_format=targets)
        head = self.head(within)
        selection = _selection(head, settings)
        if weights is None and scaler is None and selection is None:
            return head
        return Pipeline(head=head, scaler=scaler, selection=selection, weights=weights)


CHOOSING: Mapping[str, Reader] = {
    "folds": int,
    "ridges": numbers,
    "rule": Rule,
    "criterion": Criterion,
    "fold_seed": int,
}
"""Options of linear learners whose ridge is chosen."""


WEIGHING: Mapping[str, Reader] = {"max_weight": int, "class_weights": class_weights, "denominator": int}
"""Options of every learner, whose rows then have weights of their own or of their class."""

LINEAR_OPTIONS: Mapping[str, Reader] = {"intercept": yes_or_no, "clip": yes_or_no}
"""Options of linear learners."""

AGREEING: Mapping[str, Reader] = {"headroom": int}
"""Options of every learner whose columns are agreed on."""

SLOT_OPTIONS = {*CHOOSING, *WEIGHING, *AGREEING}
"""Options of a pipeline's slots; a closed form has the others."""

_Linear = TypeVar("_Linear", bound=AFL)


def _scaler(settings: LearnerSettings) -> Scaler | None:
    own = {name: value for name, value in settings.options.items() if name in AGREEING}
    if settings.agreement is not None:
        return Scaler(agreement=settings.agreement, **own)
    if own:
        raise UsageError("headroom is of columns that are agreed on, and their format is stated: leave it out")
    return None


def _weights(settings: LearnerSettings) -> Weights | None:
    own = {name: value for name, value in settings.options.items() if name in WEIGHING}
    if own.get("class_weights") == BALANCED:
        own = {"denominator": denominator_for(settings.n_classes)} | own
    return Weights(**own) if own else None


def _most(weights: Weights) -> int:
    """Return the largest weight of a row; balanced classes weigh the denominator on average."""
    return weights.max_weight * (weights.denominator if weights.is_balanced else max((1, *weights.stated)))


def _selection(head: Any, settings: LearnerSettings) -> RidgeCV | None:
    """Return the cross-validation of the ridge, if it is asked for."""
    own = {name: value for name, value in settings.options.items() if name in CHOOSING}
    if settings.ridge != CROSS_VALIDATED:
        if own:
            raise UsageError(
                f"{', '.join(own)} of {head.name} says how a ridge is chosen, and the ridge is stated as "
                f"{settings.ridge:g}: set it to {CROSS_VALIDATED}, or leave the option out"
            )
        return None
    if settings.ri_gamma:
        raise UsageError(
            f"{CROSS_VALIDATED} has no RI process, which would be in each fold's sum: leave the RI gamma at 0, or "
            "state the ridge"
        )
    names = {"folds": "n_folds", "fold_seed": "seed"}
    return RidgeCV(**{names.get(name, name): value for name, value in own.items()})


def _afl(settings: LearnerSettings) -> AFL:
    if "ablation" in settings.options:  # the ridge is all that a cohort's RI processes add, and that nobody takes off
        if not settings.ri_gamma:
            raise UsageError("the ablation no-ri leaves the RI gamma in the solve, and it is 0: state one, such as 1")
        ridge = _stated_ridge("the ablation no-ri", settings) + settings.max_clients * settings.ri_gamma
        settings = replace(settings, ridge=ridge, ri_gamma=0.0)
    return _labelled(_linear_parameters(settings), settings)


def _labelled(parameters: dict[str, Any], settings: LearnerSettings) -> AFL:
    """AFL, or the learner of rows that are labelled for some classes only, where an option names the patterns."""
    if "patterns" not in settings.options:
        return AFL(**parameters)
    if settings.ridge == CROSS_VALIDATED:
        raise UsageError("partial labels have no ridge cv: state the ridge as a number")
    return PartialLabels(**parameters, patterns=sets_of_classes(settings.options["patterns"]))


def _fedhip(settings: LearnerSettings) -> FedHiP:
    wrong = [alpha for alpha in settings.options.get("alphas", ()) if not 0 <= alpha <= LARGEST_ALPHA]
    if wrong:  # said here, before any sum, and not by the first client that personalises
        raise UsageError(f"alphas of fedhip must be numbers from 0 to 2^52, not {wrong[0]:g}")
    return FedHiP(**_linear_parameters(settings))


def _stated_ridge(name: str, settings: LearnerSettings) -> float:
    if settings.ridge == CROSS_VALIDATED:
        raise UsageError(
            f"{name} cannot choose its ridge ({CROSS_VALIDATED}), as afl and fedhip can: state a number, or leave "
            f"{name} out"
        )
    return float(settings.ridge)


def _n_sums(options: Mapping[str, Option]) -> int:
    return _balancing(options) + (options.get("criterion") is Criterion.CLASSES)


def _balancing(options: Mapping[str, Option]) -> int:
    """One, and one more where class weights follow from a first sum."""
    return 1 + (options.get("class_weights") == BALANCED)


def _linear_parameters(settings: LearnerSettings) -> dict[str, Any]:
    return {
        "n_features": settings.n_features,
        "n_targets": settings.n_classes,
        "feature_format": settings.feature_format,
        "max_rows": settings.max_rows,
        "max_clients": settings.max_clients,
        "ridge": 0.0 if settings.ridge == CROSS_VALIDATED else settings.ridge,
        "ri_gamma": settings.ri_gamma,
        "target_format": settings.target_format,
        "columns": settings.columns(settings.n_features, settings.feature_format),
        "clip": settings.options.get("clip", False),
    }


def _linear_weights(whole: AnalyticLearner[Any], found: Any) -> FloatMatrix:
    learner, model = settled(whole, found)
    if learner.columns is None:
        weights: FloatMatrix = model.weights
        return weights
    matrix, intercepts = learner.columns.own_units(model.weights)
    return np.vstack([matrix, intercepts]) if learner.fit_intercept else matrix


def _random(settings: LearnerSettings) -> AFL:
    """Random features and their sum. Left out, d_phi is four times the features up to a power of two, at most 2048.

    Features end where a stated format does. Without one that of relu is proven, and a sine's is Q0.7.
    """
    apart = {"patterns", *LINEAR_OPTIONS}
    options = {name: value for name, value in settings.options.items() if name not in apart}
    bits, stated = options.pop("row_bits", 16), options.pop("format", None)
    own = {"projection": "nin"}
    if options.get("activation") == "sine":
        own, stated = {"projection": "fourier"}, stated or RowFormat(integer_bits=0, fraction_bits=7)
    lift = RandomMap(
        n_features=settings.n_features,
        n_columns=options.pop("d_phi", min(WIDEST_RANDOM, 1 << (4 * settings.n_features - 1).bit_length())),
        feature_bound=settings.highest,
        **(own | options),
    )
    if stated is None:
        lift = lift.with_bits(bits)
    else:
        lift = replace(lift, fraction_bits=stated.fraction_bits, limit=stated.range[1])
    row_format = stated or lift.row_format
    own_columns = settings.columns(lift.n_columns, row_format)
    own_formats = {"feature_format": row_format, "columns": own_columns}
    return _labelled({"lift": lift} | _linear_parameters(settings) | own_formats, settings)


def _of_labels(
    kind: type[_Linear], name: str, own: Collection[str] = (), *, has_ri: bool = True, **always: Option
) -> Callable[[LearnerSettings], _Linear]:
    """Build a learner of class labels from AFL's parameters, or those of random features where d_phi is stated.

    Args:
        kind, name: its class and name.
        own: names of the options that it has besides.
        has_ri: whether it has AFL's RI process.
        always: options of AFL that it always has.
    """

    def built(settings: LearnerSettings) -> _Linear:
        if settings.target_format != LABELS:
            raise UsageError(f"{name} is for class labels, and the targets are real numbers: take afl")
        if settings.ri_gamma and not has_ri:
            raise UsageError(f"{name} has no RI process: leave the RI gamma at 0, or take afl")
        options = {**settings.options, **always}
        stated = {key: options.pop(key) for key in own if key in options}
        start = replace(settings, ridge=_stated_ridge(name, settings), options=options)
        linear = _random(start) if "d_phi" in options else _afl(start)
        return kind(**{one.name: getattr(linear, one.name) for one in fields(linear)}, **stated)

    return built


def _deepafl(settings: LearnerSettings) -> AnalyticLearner[Any]:
    """DeepAFL whose d_phi and d_f are, when left out, twice the features rounded up to a power of two, at most 1024.

    Where nothing is said of the law of its maps, it is that of its authors' code.
    """
    if settings.ri_gamma:
        raise UsageError(
            "deepafl has no RI process, so the RI gamma must be 0; its own penalty is the option gamma, such as 0.01"
        )
    width = min(WIDEST, 1 << (2 * settings.n_features - 1).bit_length())
    own: dict[str, Option] = {"feature_bound": settings.highest, "d_phi": width, "d_f": width}
    if not LAW_OF_MAPS & settings.options.keys():
        own |= AUTHORS_LAW
    return DeepAFL(
        n_features=settings.n_features,
        n_targets=settings.n_classes,
        target_format=settings.target_format,
        max_rows=settings.max_rows,
        ridge=_stated_ridge("deepafl", settings),
        **(own | dict(settings.options)),
    )


def _safle(settings: LearnerSettings) -> AnalyticLearner[Any]:
    """SAFLe with thresholds at the quantiles of all rows, from a first sum of histograms, or evenly from low to high.

    Low and high are the ends of the range that the format of features has, where no option sets them.
    """
    if not float(settings.ri_gamma).is_integer():
        raise UsageError(f"safle sums counts, so the RI gamma must be a whole number, not {settings.ri_gamma:g}")
    own = {name: value for name, value in settings.options.items() if name not in ABOUT_THRESHOLDS}
    return SAFLe(
        n_features=settings.n_features,
        n_classes=settings.n_classes,
        real_format=None if settings.target_format == LABELS else settings.target_format,
        max_rows=settings.max_rows,
        max_clients=settings.max_clients,
        thresholds=_thresholds(settings),
        ridge=_stated_ridge("safle", settings),
        ri_gamma=int(settings.ri_gamma),
        **own,
    )


def _thresholds(settings: LearnerSettings) -> FixedThresholds | QuantileThresholds:
    options = settings.options
    low, high = options.get("low", settings.lowest), options.get("high", settings.highest)
    if _needs_histograms(options):
        return QuantileThresholds(low=low, high=high, n_bins=options.get("n_bins", 1024))
    bucketing = Bucketing(
        encoding=options.get("encoding", Encoding.BINARY_OVERLAPPING), n_buckets=options.get("n_buckets", 8)
    )
    return FixedThresholds.evenly(low, high, bucketing.n_thresholds)


def _needs_histograms(options: Mapping[str, Option]) -> bool:
    return options.get("thresholds", Thresholds.QUANTILES) is Thresholds.QUANTILES


ROUNDS: Mapping[str, Reader] = {
    "n_rounds": int,
    "step": float,
    "scale": float,
    "first_share": float,
    "residual_bound": float,
}
"""Options of softmax rounds; the last two are of their private form."""

_DISCRIMINANTS: tuple[tuple[str, type[AFL], Mapping[str, Reader]], ...] = (
    ("lda", LDA, {}),
    ("qda", QDA, {"shrinkage": float}),
    ("naive-bayes", NaiveBayes, {"shrinkage": float}),
)
"""Discriminants with the options of their own; where there are none random features may take the place of rows."""

LEARNERS: Mapping[str, LearnerEntry] = {
    entry.name: entry
    for entry in (
        LearnerEntry(
            name="afl",
            head=_afl,
            options={**LINEAR_OPTIONS, **CHOOSING, **WEIGHING, **AGREEING, "patterns": patterns, "ablation": Ablation},
            n_sums=_n_sums,
            linear_weights=_linear_weights,
        ),
        LearnerEntry(
            name="fedhip",
            head=_fedhip,
            options={"alphas": numbers, **LINEAR_OPTIONS, **CHOOSING, **WEIGHING, **AGREEING},
            n_sums=_n_sums,
            linear_weights=_linear_weights,
            personalise=lambda learner, model, rows, alphas: list(learner.personalise(model, rows, alphas)),
        ),
        LearnerEntry(
            name="random",
            head=_random,
            options={
                "d_phi": int,
                "activation": str,
                "projection": str,
                "variance": float,
                "seed": int,
                "row_bits": int,
                "format": RowFormat.parse,
                **LINEAR_OPTIONS,
                **CHOOSING,
                **WEIGHING,
                **AGREEING,
                "patterns": patterns,
            },
            n_sums=_n_sums,
        ),
        LearnerEntry(
            name="logistic",
            head=_of_labels(Logistic, "logistic", ROUNDS, has_ri=False),
            options={**ROUNDS, "d_phi": int, **LINEAR_OPTIONS, **WEIGHING, **AGREEING},
            n_sums=lambda options: int(options.get("n_rounds", 5)) + _balancing(options),
            labels_only=True,
        ),
        *(
            LearnerEntry(
                name=name,
                head=_of_labels(kind, name, own, intercept=True),
                options={**(own or {"d_phi": int}), "clip": yes_or_no, **WEIGHING, **AGREEING},
                n_sums=_balancing,
                labels_only=True,
            )
            for name, kind, own in _DISCRIMINANTS
        ),
        LearnerEntry(
            name="deepafl",
            head=_deepafl,
            options={
                "n_layers": int,
                "d_phi": int,
                "d_f": int,
                "gamma": float,
                "activation": str,
                "projection": str,
                "seed": int,
                "input_activation": str,
                "input_variance": float,
                "block_variance": float,
                "ablation": str,
                "fed_by_first": yes_or_no,
                "feature_bound": float,
                "row_bits": int,
                "headroom_bits": int,
                "clip": yes_or_no,
                **WEIGHING,
                **AGREEING,
            },
            n_sums=lambda options: (
                int(options.get("n_layers", 5)) * (1 if options.get("ablation") == "no-transform" else 2)
                + _balancing(options)
            ),
        ),
        LearnerEntry(
            name="safle",
            head=_safle,
            options={
                "n_buckets": int,
                "group_size": int,
                "encoding": Encoding,
                "thresholds": Thresholds,
                "n_bins": int,
                "low": float,
                "high": float,
                "seed": int,
                **WEIGHING,
                **AGREEING,
            },
            n_sums=lambda options: _balancing(options) + _needs_histograms(options),
        ),
    )
}
"""Every learner of this package by name."""


def find_learner(name: str) -> LearnerEntry:
    """Return the learner of a name: of this package, or else of the one that has an entry point of this name.

    Raises:
        UsageError: there is none.
        analytic.extensions.ExtensionError: see ``analytic.extensions.find``.
    """
    entry: LearnerEntry | None = LEARNERS.get(name) or find(Group.LEARNERS, name, LearnerEntry)
    if entry is None:
        raise UsageError(unknown(Group.LEARNERS, name, LEARNERS))
    return entry


def choose_learners(text: str) -> tuple[LearnerEntry, ...]:
    """Return different learners by their names with commas between, in their order; those of this package for ``all``.

    Raises:
        UsageError: an empty place, or a name of no learner.
        analytic.extensions.ExtensionError: as ``find_learner``.
    """
    return tuple(LEARNERS.values()) if text == "all" else tuple(map(find_learner, dict.fromkeys(items(text))))
