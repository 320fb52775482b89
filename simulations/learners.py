"""The closed forms that a comparison can run, built from public settings alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import EnumMeta
from typing import Any

from analytic.afl import AFL
from analytic.bucketing import Encoding, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.fedhip import FedHiP
from analytic.learner import AnalyticLearner
from analytic.row_format import FloatMatrix, RowFormat
from analytic.safle import SAFLe
from simulations.errors import UsageError

Option = Any
"""The value of a learner's own parameter: a text, a number, or yes or no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """What every learner of a comparison is built from; all of it public.

    Args:
        n_features: columns of a feature row.
        n_classes: labels are 0 to n_classes - 1.
        feature_format: fixed-point format of the features; learners with formats of their own take its range.
        max_rows: rows of all clients together.
        max_clients: the cohort's size.
        ridge: penalty of the solve.
        ri_gamma: what each client adds to its Gram's diagonal (AFL's RI process).
        options: the learner's own parameters by name.
    """

    n_features: int
    n_classes: int
    feature_format: RowFormat
    max_rows: int
    max_clients: int
    ridge: float = 0.0
    ri_gamma: float = 0.0
    options: Mapping[str, Option] = field(default_factory=dict)

    @property
    def highest(self) -> float:
        """No feature of the format reaches it."""
        return 2.0**self.feature_format.integer_bits

    @property
    def lowest(self) -> float:
        """No feature of the format lies below it."""
        return -self.highest if self.feature_format.signed else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerEntry:
    """A learner as the command line names it.

    Args:
        name: the name in ``--learner`` and in reports.
        build: makes it from settings.
        options: its own parameters, each with what reads it from text.
        linear_weights: its weights where they are a linear map of the features, so that they can be compared with
            a float64 ridge; None where they are not.
    """

    name: str
    build: Callable[[LearnerSettings], AnalyticLearner[Any]]
    options: Mapping[str, Callable[[str], Option]] = field(default_factory=dict)
    linear_weights: Callable[[Any], FloatMatrix] | None = None

    def parse_options(self, texts: Iterable[str]) -> dict[str, Option]:
        """The options that ``NAME=VALUE`` texts set.

        Raises:
            UsageError: no option of this learner, or a value that it cannot have.
        """
        return dict(self._parse_option(text) for text in texts)

    def _parse_option(self, text: str) -> tuple[str, Option]:
        name, equals, value = text.partition("=")
        if name not in self.options or not equals:
            known = f"NAME=VALUE with NAME out of {', '.join(self.options)}" if self.options else "no options at all"
            raise UsageError(f"{self.name} takes {known}, not {text!r}")
        try:
            return name, self.options[name](value)
        except ValueError:
            raise UsageError(f"{name} of {self.name} must be {_wanted(self.options[name])}, not {value!r}") from None


def choose_learner(name: str) -> LearnerEntry:
    """The learner of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in LEARNERS:
        raise UsageError(f"a learner is one of {', '.join(LEARNERS)}, not {name!r}")
    return LEARNERS[name]


def _wanted(parse: Callable[[str], Option]) -> str:
    if isinstance(parse, EnumMeta):
        return f"one of {', '.join(parse)}"
    return {int: "a whole number", float: "a number", _yes_or_no: "yes or no"}.get(parse, "a text")


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"


def _afl(settings: LearnerSettings) -> AnalyticLearner[Any]:
    return AFL(**_linear_parameters(settings))


def _fedhip(settings: LearnerSettings) -> AnalyticLearner[Any]:
    return FedHiP(**_linear_parameters(settings))


def _linear_parameters(settings: LearnerSettings) -> dict[str, Any]:
    return {
        "n_features": settings.n_features,
        "n_targets": settings.n_classes,
        "feature_format": settings.feature_format,
        "max_rows": settings.max_rows,
        "max_clients": settings.max_clients,
        "ridge": settings.ridge,
        "ri_gamma": settings.ri_gamma,
    }


def _deepafl(settings: LearnerSettings) -> AnalyticLearner[Any]:
    if settings.ri_gamma:
        raise UsageError("deepafl has no RI process, so --ri must stay 0; its own penalty is --option gamma=0.01")
    return DeepAFL(
        n_features=settings.n_features,
        n_targets=settings.n_classes,
        feature_bound=settings.highest,
        max_rows=settings.max_rows,
        ridge=settings.ridge,
        **settings.options,
    )


def _safle(settings: LearnerSettings) -> AnalyticLearner[Any]:
    """SAFLe with thresholds at the quantiles of all rows, from a first sum of histograms over the format's range."""
    if settings.ri_gamma != int(settings.ri_gamma):
        raise UsageError(f"safle sums counts, so --ri must be a whole number, not {settings.ri_gamma:g}")
    options = dict(settings.options)
    n_bins = int(options.pop("n_bins", 1024))
    return SAFLe(
        n_features=settings.n_features,
        n_classes=settings.n_classes,
        max_rows=settings.max_rows,
        max_clients=settings.max_clients,
        thresholds=QuantileThresholds(low=settings.lowest, high=settings.highest, n_bins=n_bins),
        ridge=settings.ridge,
        ri_gamma=int(settings.ri_gamma),
        **options,
    )


LEARNERS: Mapping[str, LearnerEntry] = {
    entry.name: entry
    for entry in (
        LearnerEntry(name="afl", build=_afl, linear_weights=lambda model: model.weights),
        LearnerEntry(name="fedhip", build=_fedhip, linear_weights=lambda model: model.weights),
        LearnerEntry(
            name="deepafl",
            build=_deepafl,
            options={
                "n_layers": int,
                "d_phi": int,
                "d_f": int,
                "gamma": float,
                "activation": str,
                "projection": str,
                "seed": int,
                "fed_by_first": _yes_or_no,
                "row_bits": int,
            },
        ),
        LearnerEntry(
            name="safle",
            build=_safle,
            options={"n_buckets": int, "group_size": int, "encoding": Encoding, "n_bins": int, "seed": int},
        ),
    )
}
"""Every learner by name."""
