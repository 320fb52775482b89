"""Train over several sites in one process, and predict: the shortest way from tables to a federated model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from analytic.discriminant import LDA
from analytic.errors import SpecificationError
from analytic.layers import Linear
from analytic.learner import AnalyticLearner, ClientRows
from analytic.logistic import Logistic
from analytic.model_files import load_model, save_model
from analytic.pipeline import Pipeline
from analytic.row_format import FloatMatrix, RowFormat
from analytic.scaling import HIGHEST, Agreement, agreed_format
from analytic.statistics import LABELS
from analytic_secagg import doubts
from analytic_secagg.errors import UsageError
from analytic_secagg.in_process import FederatedRun, run_federation
from analytic_secagg.learners import CROSS_VALIDATED, LearnerSettings, find_learner
from analytic_secagg.modes import MODES, Mode, choose_modes
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.site.offsets import proposed_offset
from analytic_secagg.site_rows import (
    Labels,
    Site,
    columns_of,
    matrix,
    names_of,
    refuse_unfit,
    site_rows,
    with_targets,
)
from analytic_secagg.size import refuse_too_large
from secagg import PartyId
from secagg.dp.conversions import large_delta

if TYPE_CHECKING:
    from analytic_secagg.site.table import TableSchema

FEWEST_SITES = 2

SHOWN = 5
"""Classes that are named where a model is printed."""

PROBABILISTIC = (Logistic, LDA)
"""Heads whose scores are logarithms of probabilities, up to what all classes share."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FederatedModel:
    """A model that sites trained together, with the labels that it predicts: a fitted estimator to scikit-learn.

    It has what scikit-learn asks a fitted estimator for, and loads scikit-learn where that is asked.

    Args:
        learner: the closed form.
        model: its complete model; ``learner.weights_bytes(model)`` compares two of them bit for bit.
        classes: the class labels in the order of scores; None for real targets, and where a row may have several
            classes.
        features: the names of the feature columns; None where the rows had none.
        is_flat: whether one real target is predicted as a vector.
        run: what happened in each sum and what it cost; None for a model that was loaded.
    """

    learner: AnalyticLearner[Any]
    model: Any
    classes: tuple[Any, ...] | None = None
    features: tuple[str, ...] | None = None
    is_flat: bool = False
    run: FederatedRun[Any] | None = None

    def __repr__(self) -> str:
        """What it predicts from what; ``learner`` and ``model`` hold the rest."""
        names = [str(name) for name in self.classes or ()]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        n_targets = getattr(self.learner, "n_targets", None)  # which a learner of another package may not say
        targets = "a real target" if n_targets == 1 else f"{n_targets or 'real'} targets"
        wanted = f"classes {', '.join(names[:SHOWN])}{more}" if names else targets
        sites = f", trained by {len(self.run.survivors[-1])} sites" if self.run and self.run.sums else ""
        return f"FederatedModel({self.learner.name}: {self.n_features_in_} features, {wanted}{sites})"

    @property
    def weights(self) -> FloatMatrix:
        """The weights of the closed form, shape (d, c), for learners that have one matrix of them."""
        weights: FloatMatrix = self.model.weights
        return weights

    @property
    def classes_(self) -> NDArray[Any]:
        """The class labels in the order of scores, as scikit-learn names them.

        Raises:
            AttributeError: a model of real targets, or of several classes a row.
        """
        if self.classes is None:
            raise AttributeError("a model of real targets, or of several classes a row, has no class labels")
        return np.array(self.classes)

    @property
    def n_features_in_(self) -> int:
        """Columns of the rows that it predicts."""
        return self.learner.n_features

    @property
    def coef_(self) -> FloatMatrix:
        """Weights of the features as they are, shape (c, d), of a linear model; (1, d) of two classes, the second's.

        Raises:
            AttributeError: a model that is no linear map of its features.
        """
        return np.ascontiguousarray(self._of_answers(self._linear.matrix).T)

    @property
    def intercept_(self) -> FloatMatrix:
        """Intercepts of a linear model, shape (c,), likewise; zeros where there are none."""
        layer = self._linear
        bias = np.zeros(layer.matrix.shape[1]) if layer.bias is None else layer.bias
        found: FloatMatrix = self._of_answers(bias[None, :])[0]
        return found

    def _of_answers(self, columns: FloatMatrix) -> FloatMatrix:
        """A column for each score; of two classes the second one's less the first one's, as scores are."""
        is_binary = self.classes is not None and len(self.classes) == 2
        return columns[:, 1:] - columns[:, :1] if is_binary else columns

    @property
    def _linear(self) -> Linear:
        learner: Any = self.learner
        try:
            layers = learner.layers(self.model)
        except SpecificationError as error:
            raise AttributeError(f"{learner.name} has no coefficients: {error}") from error
        if len(layers) > 1 or not isinstance(layers[0], Linear):
            raise AttributeError(f"{learner.name} has no coefficients: it is no linear map of its features")
        return layers[0]

    def decision_function(self, X: Any) -> FloatMatrix:
        """Return scores of the classes, or predicted real targets, shape (n, c).

        Of two classes it is the second one's score less the first one's, shape (n,), as in scikit-learn.

        Raises:
            UsageError: columns other than those of training.
        """
        scores = self._of_answers(self._scores(X))
        return scores[:, 0] if self.classes is not None and scores.shape[1] == 1 else scores

    def _scores(self, X: Any) -> FloatMatrix:
        return self.learner.decision_function(self.model, self._features(X))

    def _features(self, X: Any) -> NDArray[Any]:
        features, scaler = matrix("X", X), getattr(self.learner, "scaler", None)
        # where all sites agreed on a value of a missing feature, it is none
        if not (scaler and scaler.fill) and not (is_finite := np.isfinite(features)).all():
            bad = np.flatnonzero(~is_finite.all(axis=1))
            places = np.flatnonzero(~is_finite.all(axis=0)).tolist()
            columns = ", ".join(self.features[place] if self.features else str(place) for place in places)
            raise UsageError(
                f"X must hold finite numbers, and {len(bad)} of {len(features)} rows do not (the first is row "
                f"{bad[0]}; columns {columns}): the model was trained without missing values, so find these"
            )
        if self.features is not None and (names := names_of(X)) is not None and names != self.features:
            raise UsageError(f"X needs the columns {', '.join(self.features)} in this order, not {', '.join(names)}")
        return features

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class label of each row, shape (n,); 0 or 1 for each class where a row may have several.

        Real targets are predicted in the shape that they had.
        """
        return self._answers(self._scores(X))

    def exact_predict(self, X: Any) -> NDArray[Any]:
        """Return the same from scores that are exact and rounded once: the same answers on every machine."""
        learner: Any = self.learner
        return self._answers(learner.exact_scores(self.model, self._features(X)))

    def score(self, X: Any, y: Any) -> float:
        """Return the accuracy on these rows, or R2 of real targets, the mean over several."""
        from sklearn.metrics import accuracy_score, r2_score

        measure = r2_score if self.estimator_type == "regressor" else accuracy_score
        return float(measure(y, self.predict(X)))

    @property
    def estimator_type(self) -> str:
        """``classifier`` or ``regressor``."""
        is_real = self.classes is None and getattr(self.learner, "target_format", LABELS) != LABELS
        return "regressor" if is_real else "classifier"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        is_regressor = self.estimator_type == "regressor"
        return Tags(
            estimator_type=self.estimator_type,
            target_tags=TargetTags(required=True),
            classifier_tags=None if is_regressor else ClassifierTags(multi_label=self.classes is None),
            regressor_tags=RegressorTags() if is_regressor else None,
            input_tags=InputTags(),
        )

    def fit(self, X: Any, y: Any = None) -> Self:
        """Refuse: a model is trained over its sites. ``sklearn.frozen.FrozenEstimator`` keeps tools from trying.

        Raises:
            UsageError: always.
        """
        raise UsageError("a federated model is trained by federate(sites): wrap it in sklearn.frozen.FrozenEstimator")

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _answers(self, scores: FloatMatrix) -> NDArray[Any]:
        """Return what scores say, in the terms of the targets."""
        if self.classes is not None:
            labels: NDArray[Any] = np.array(self.classes)
            found: NDArray[Any] = labels[scores.argmax(axis=1)]
            return found
        if self.estimator_type == "classifier":
            return (scores > 0.5).astype(np.intp)
        return scores[:, 0] if self.is_flat and scores.shape[1] == 1 else scores

    @property
    def predict_proba(self) -> Callable[[Any], FloatMatrix]:
        """The method that returns probabilities of the classes, shape (n, c), where scores are their logarithms.

        Raises:
            AttributeError: another learner, whose scores are no probabilities; scikit-learn's tools then take scores.
        """
        head = self.learner.head if isinstance(self.learner, Pipeline) else self.learner
        if not isinstance(head, PROBABILISTIC):
            raise AttributeError(f"scores of {self.learner.name} are no probabilities: train learner='logistic'")
        return self._probabilities

    def _probabilities(self, X: Any) -> FloatMatrix:
        probabilities: FloatMatrix = scipy.special.softmax(self._scores(X), axis=1)
        return probabilities

    def save(self, path: Path | str) -> None:
        """Write the model, its class labels and the names of its columns into one file, which ``load`` reads.

        Raises:
            analytic.ModelFileError, analytic.SpecificationError: see ``analytic.save_model``.
        """
        save_model(path, self.learner, self.model, classes=self.classes, features=self.features)

    @classmethod
    def load(cls, path: Path | str) -> FederatedModel:
        """Return the model of a file, as it was saved or as a deployment wrote it.

        Raises:
            analytic.ModelFileError: it is no model.
        """
        saved = load_model(path)
        return cls(
            learner=saved.learner, model=saved.model, classes=saved.classes, features=saved.features, is_flat=True
        )


def federate(
    sites: Mapping[Any, Site],
    learner: str | AnalyticLearner[Any] = "afl",
    mode: str | Mode = "masked",
    *,
    classes: Sequence[Any] | None = None,
    schema: TableSchema | None = None,
    format: str = Agreement.AGREED,
    target_format: str | None = None,
    ridge: float | str = 0.0,
    max_rows: int | None = None,
    max_client_rows: int | None = None,
    privacy: PrivacyPlan | None = None,
    dropouts: Mapping[Any, int] | None = None,
    **options: Any,
) -> FederatedModel:
    """Train one model over the rows of all sites under a privacy mode, all parties in this process.

    The weights have the same bits in every exact mode, and the same as pooled rows give. No release policy is asked,
    since all rows are in this process anyway; a deployment's server and sites ask theirs.

    Args:
        sites: each site's rows by its name: ``(X, y)``, ``(X, y, weights)`` or ``ClientRows``. ``X`` is an array or
            data frame of shape (n, d), ``y`` class labels of any type, shape (n,); or real targets (floats), shape (n,)
            or (n, c); or zeros and ones, shape (n, c), where a row may have several classes.
        learner: a name such as ``afl``, ``logistic`` or ``deepafl``, or a learner with all its parameters, which takes
            class labels 0, 1, ... and to which none of the parameters below but the last three apply.
        mode: how vectors are summed, such as ``masked`` or ``committee``.
        classes: all class labels, in the order of scores; None takes those that occur at any site, which in a
            deployment nobody may look up: state them there.
        schema: where sites are ``ClientRows`` that it read from tables (``TableSchema.rows``): the model then has its
            classes and the names of its features.
        format: ``agreed`` or ``standardised`` scales columns by a first sum, or two; else a fixed-point format such as
            ``Q5.11``.
        target_format: of real targets, where ``format`` is stated.
        ridge: penalty of the solve, or ``cv`` to choose it by cross-validation (afl, fedhip, random).
        max_rows: most rows of all sites together, from which formats follow; None takes the largest number with as
            many bits as theirs, so formats are those of ``analytic.estimators``, however rows are distributed.
        max_client_rows: most rows of one site; None bounds all together alone.
        privacy: noise in every total, and its promise; None for exact totals.
        dropouts: the messages that a site still sends in each sum before it vanishes, by its name.
        options: parameters of the learner by name, such as ``n_layers=3`` (docs/reference/learner-options.md).

    Raises:
        UsageError: names the argument that is wrong, and what it must be; or the most features that fit into memory.
        secagg.errors.SecureSumError, analytic.errors.AnalyticError: no total, or none that gives a model.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> def hospital():
        ...     X = rng.normal(size=(40, 3))
        ...     return X, np.where(X[:, 0] > 0, "ill", "well")
        >>> model = federate({"A": hospital(), "B": hospital(), "C": hospital()}, ridge=1.0)
        >>> model.predict([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]).tolist()
        ['ill', 'well']
    """
    parties = _parties(sites)
    chosen, gone = _mode(mode), _dropouts(dropouts, parties)
    rows = {party: site_rows(name, sites[name]) for name, party in parties.items()}
    features = columns_of(sites, rows)
    labels = Labels()
    if schema is not None:
        features = _checked_schema(schema, sites, rows.values(), classes)
    if isinstance(learner, str):
        known = range(len(schema.classes)) if schema is not None and schema.classes else classes
        labels = Labels.of({name: rows[party].targets for name, party in parties.items()}, known)
        rows = {party: with_targets(rows[party], labels.encoded(name)) for name, party in parties.items()}
        for name, party in parties.items():
            refuse_unfit(name, rows[party], features, 2.0**HIGHEST if format in list(Agreement) else math.inf)
        for doubt in _doubts(
            {name: rows[party] for name, party in parties.items()}, labels, features, learner, format, options
        ):
            warnings.warn(f"sites: {doubt}", stacklevel=2)
        built = _built(learner, rows, labels, format, target_format, ridge, max_rows, options)
    else:
        stated = {"classes": classes, "target_format": target_format, "max_rows": max_rows, **options}
        if wrong := [name for name, value in stated.items() if value is not None]:
            raise UsageError(f"{wrong[0]} is for a learner by name, and learner is {learner.name} with its parameters")
        built = learner
    refuse_too_large(built, chosen, len(rows))
    if privacy is not None:
        n = len(rows) if privacy.unit == "client" else sum(map(len, rows.values()))
        if said := large_delta(privacy.delta, n, privacy.unit):
            warnings.warn(f"privacy: {said}", stacklevel=2)
    whose = {party: f"sites[{name!r}]" for name, party in parties.items()}
    run = run_federation(
        built,
        rows,
        chosen,
        dropouts=lambda number: gone,
        privacy=privacy,
        max_client_rows=max_client_rows,
        whose=whose.__getitem__,
    )
    if isinstance(learner, str):
        for doubt in _doubts_of_format(run, list(rows.values()), features):
            warnings.warn(f"sites: {doubt}", stacklevel=2)
    return FederatedModel(
        learner=run.learner,
        model=run.model,
        classes=labels.classes if schema is None else schema.classes or None,
        features=features,
        is_flat=labels.is_flat or (schema is not None and schema.n_targets == 1),
        run=run,
    )


def _doubts(
    sites: Mapping[Any, ClientRows],
    labels: Labels,
    columns: Sequence[str] | None,
    learner: str,
    format: str,
    options: Mapping[str, Any],
) -> Iterator[str]:
    """Yield what these rows may have been meant as, where they are taken otherwise."""
    pooled = ClientRows.pool(list(sites.values()))
    if pooled.weights is not None and not pooled.weights.any():
        raise UsageError("sites must have a row that counts, and all weights are 0")
    names = columns or [str(place) for place in range(pooled.features.shape[1])]
    yield from doubts.of_targets("y", pooled.targets, pooled.targets)
    yield from doubts.of_spelling(labels.classes)
    if labels.classes is not None:
        yield from doubts.of_codings(labels.targets)
    yield from doubts.of_copies(sites)
    yield from doubts.of_features(names, pooled.features)
    by_site = {name: own.features for name, own in sites.items()}
    yield from doubts.of_sites(names, by_site)
    yield from doubts.of_lone_columns(names, by_site)
    if format in list(Agreement) and labels.is_real:
        places = [place for place, own in enumerate(pooled.targets.T) if proposed_offset(own) is not None]
        yield from doubts.of_sizes([f"target {place}" for place in places], pooled.targets[:, places])
    is_linear = "intercept" in find_learner(learner).options and "intercept" not in options
    if is_linear and labels.classes is not None and format != Agreement.STANDARDISED:
        yield from doubts.of_origin(pooled.features, pooled.targets, labels.n_targets)


def _doubts_of_format(
    run: FederatedRun[Any], rows: Sequence[ClientRows], columns: Sequence[str] | None
) -> Iterator[str]:
    """Yield the columns of which a run's format kept next to nothing at some site."""
    found = getattr(run.learner, "coarse_columns", None)
    places = sorted({place for own in rows if len(own) and found for place in found(run.model, own)})
    pooled = ClientRows.pool(list(rows)).features[:, places]
    yield from doubts.of_sizes([f"column {columns[place] if columns else place}" for place in places], pooled)


def _checked_schema(
    schema: TableSchema, sites: Mapping[Any, Site], rows: Iterable[ClientRows], classes: Sequence[Any] | None
) -> tuple[str, ...]:
    """Return the names of the features of rows that a schema read."""
    if classes is not None:
        raise UsageError("schema states the classes: leave out classes")
    if not all(isinstance(site, ClientRows) for site in sites.values()):
        raise UsageError("schema is of rows that it read: give each site as schema.rows(FILE), or leave schema out")
    if any(own.features.shape[1] != len(schema.features) for own in rows):
        raise UsageError(f"schema has {len(schema.features)} features, and sites have rows of others")
    return schema.features


def _parties(sites: Any) -> dict[Any, PartyId]:
    """Return each site's party number: its own where names are numbers from 1 on, else its place."""
    if not isinstance(sites, Mapping):
        raise UsageError(f"sites must be a dict of each site's rows by its name, not {type(sites).__name__}")
    if len(sites) < FEWEST_SITES:
        raise UsageError(f"sites must be at least {FEWEST_SITES}, not {len(sites)}: the total of one is its own rows'")
    if len(sites) == FEWEST_SITES:
        warnings.warn(
            f"sites are {FEWEST_SITES}: each can take its own part off a total and sees the other's; take 3 or more",
            stacklevel=3,
        )
    if all(isinstance(name, int) and not isinstance(name, bool) and name > 0 for name in sites):
        return {name: name for name in sites}
    return {name: place for place, name in enumerate(sites, start=1)}


def _mode(mode: Any) -> Mode:
    if isinstance(mode, Mode):
        return mode
    if not isinstance(mode, str):
        raise UsageError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    return choose_modes([mode])[0]


def _dropouts(dropouts: Any, parties: Mapping[Any, PartyId]) -> dict[PartyId, int]:
    if dropouts is not None and not isinstance(dropouts, Mapping):
        raise UsageError(f"dropouts must be a dict of a number of messages by site, not {type(dropouts).__name__}")
    if unknown := [name for name in dropouts or () if name not in parties]:
        raise UsageError(f"dropouts must name sites, and {unknown[0]!r} is none of {', '.join(map(str, parties))}")
    return {parties[name]: messages for name, messages in (dropouts or {}).items()}


def _built(
    name: str,
    rows: Mapping[PartyId, ClientRows],
    labels: Labels,
    format: str,
    target_format: str | None,
    ridge: Any,
    max_rows: int | None,
    options: Mapping[str, Any],
) -> AnalyticLearner[Any]:
    """Return the learner of a name for rows such as these."""
    entry = find_learner(name)
    if unknown := options.keys() - entry.options.keys():
        raise UsageError(f"{min(unknown)} is no parameter of {name}; it has {', '.join(sorted(entry.options))}")
    if labels.is_real and entry.labels_only:
        raise UsageError(f"{name} takes class labels, and y has real targets (floats); state classes, or take afl")
    if ridge != CROSS_VALIDATED and (isinstance(ridge, str) or not np.isfinite(ridge) or ridge < 0):
        raise UsageError(f"ridge must be a number of at least 0, or {CROSS_VALIDATED}, not {ridge!r}")
    most = max_rows or (1 << sum(map(len, rows.values())).bit_length()) - 1
    agreement = Agreement(format) if format in list(Agreement) else None
    if agreement is None and labels.is_real and target_format is None:
        raise UsageError("target_format must be stated with format, such as Q5.11; or leave format out")
    real = agreed_format(most) if agreement is not None else RowFormat.parse(target_format or "Q0.1")
    weights = [own.weights.max(initial=1) for own in rows.values() if own.weights is not None]
    settings = LearnerSettings(
        n_features=next(iter(rows.values())).features.shape[1],
        n_classes=labels.n_targets,
        feature_format=agreed_format(most) if agreement is not None else RowFormat.parse(format),
        max_rows=most,
        max_clients=len(rows),
        ridge=ridge,
        target_format=real if labels.is_real else LABELS,
        options=({"max_weight": int(max(weights))} if weights else {}) | dict(options),
        agreement=agreement,
    )
    try:
        return entry.build(settings)
    except TypeError as error:
        raise UsageError(f"a parameter of {name} has a value that it cannot have: {error}") from error
