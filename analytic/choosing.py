"""A penalty chosen by cross-validation from one sum: the statistics of k folds of everybody's rows.

Each site deals its own rows to folds by a public rule that sees no other site: the fold of a row is a hash of what the
row is in the sum's formats, and of a public seed. So it is the same wherever the row lies, and rows that are equal are
never on both sides. Sums of folds give, for every penalty, the model without a fold and its exact squared error on
that fold's rows: nobody is asked again, and the choice is that of the pooled rows, to the bit. Test rows have no part.

The number of errors of a classifier does not follow from sums: it takes a second sum of counts.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL, LinearModel, in_digits
from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.evaluation import Tallies, TallySpec
from analytic.fedhip import FedHiP, FedHiPModel
from analytic.learner import AroundLinear, ClientRows, SumSpec, canonical_context
from analytic.model_arrays import Parts
from analytic.parts import PartsSpec, together
from analytic.row_format import FloatMatrix
from analytic.statistics import LABELS, Statistics, check_labels
from analytic.total_error import squared_errors
from analytic.validation_path import Path, Rule
from analytic.whole_numbers import settle_whole_numbers

MAX_FOLDS = 1000
GRID = tuple(8.0**power for power in range(-8, 1))
"""Penalties that are tried where none are stated, in units of the total Gram's mean diagonal entry."""


class Criterion(StrEnum):
    """What an error is."""

    SQUARES = "squares"
    """Sum of squared residuals over a row's targets."""
    CLASSES = "classes"
    """A row whose largest score is not its class's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChosenModel:
    """What the sums so far have shown.

    Args:
        model: the model of all rows with the penalty that was chosen; None before.
        path: how it was chosen.
        candidates: each penalty's weights without each fold, shape (penalties, folds, d, c), while errors are counted.
        values: the penalties of the candidates.
        folds: the sums of the folds, which clients hold only where they personalise with them.
    """

    model: LinearModel | None = None
    path: Path | None = None
    candidates: NDArray[np.float64] | None = None
    values: tuple[float, ...] = ()
    folds: tuple[Statistics, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.candidates is not None:
            self.candidates.setflags(write=False)

    @property
    def complete(self) -> LinearModel:
        """The model of all rows.

        Raises:
            NotReadyError: a sum is still to come.
        """
        if self.model is None:
            raise NotReadyError(
                "this model still needs a sum to choose its penalty by: that of the folds, or that of the errors"
            )
        return self.model

    @property
    def weights(self) -> FloatMatrix:
        """W, shape (d, c)."""
        return self.complete.weights

    @property
    def ridge(self) -> float:
        """The penalty that was chosen.

        Raises:
            NotReadyError: none is.
        """
        _ = self.complete
        if self.path is None:
            raise NotReadyError("this model does not say how its penalty was chosen")
        return self.path.choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(AroundLinear):
    """AFL or FedHiP with the penalty that cross-validation over everybody's rows takes; a learner of one or two sums.

    Args:
        learner: the closed form, without a penalty, an RI process (which would be in every fold) or a row map.
        n_folds: k, 2 to ``MAX_FOLDS``; each fold is a total of its own, so it must have rows and sites enough.
        ridges: penalties to try; none takes ``GRID`` times a power of two near the total Gram's mean diagonal entry.
        rule: which of them is taken.
        criterion: by which error; that of classes asks for a second sum.
        seed: public, of the hash that deals rows to folds. Who knows rows and may choose it chooses their fold.

    Raises:
        SpecificationError: a learner that has no such sum, fewer than two folds, penalties below zero or not finite.
    """

    learner: AFL
    n_folds: int = 5
    ridges: tuple[float, ...] = ()
    rule: Rule = Rule.LEAST
    criterion: Criterion = Criterion.SQUARES
    seed: int = 0

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "n_folds", "seed")
        object.__setattr__(self, "rule", Rule(self.rule))
        object.__setattr__(self, "criterion", Criterion(self.criterion))
        object.__setattr__(self, "ridges", tuple(map(float, self.ridges)))
        inner = self.learner
        if type(inner) not in (AFL, FedHiP):
            raise SpecificationError(f"a penalty is chosen for afl, random or fedhip, and {inner.name} states its own")
        if inner.ridge or inner.ri_gamma or inner.row_map is not None or not inner.target_sums:
            raise SpecificationError(
                "a penalty is chosen for exact sums with the targets' own and without an RI process: set ridge and "
                "ri_gamma to 0, target_sums=True, and leave the row map out"
            )
        if self.criterion is Criterion.CLASSES and inner.target_format != LABELS:
            raise SpecificationError("errors are counted for class labels; choose by squares for real targets")
        if not 2 <= self.n_folds <= MAX_FOLDS or not all(math.isfinite(ridge) and ridge >= 0 for ridge in self.ridges):
            raise SpecificationError(
                f"choosing needs 2 to {MAX_FOLDS} folds and finite penalties >= 0, not {self.n_folds} and {self.ridges}"
            )
        if not -(2**63) <= self.seed < 2**63:
            raise SpecificationError(f"the folds' seed is a whole number of 64 bits, not {self.seed}")
        object.__setattr__(self, "ridges", tuple(sorted(set(self.ridges))))

    @property
    def name(self) -> str:
        """The learner's name in reports and files."""
        return f"chosen-{self.learner.name}"

    @property
    def spec(self) -> PartsSpec:
        """The first sum: k statistics."""
        return PartsSpec(parts=(self.learner.spec,) * self.n_folds)

    @property
    def n_ridges(self) -> int:
        """How many penalties are tried."""
        return len(self.ridges or GRID)

    @property
    def _counts(self) -> TallySpec:
        """The second sum: rows of each fold that a candidate classifies wrongly."""
        return TallySpec(
            shapes={"errors": (self.n_ridges, self.n_folds), "rows": (self.n_folds,)},
            bounds={"errors": self.learner.max_rows, "rows": self.learner.max_rows},
            max_rows=self.learner.max_rows,
        )

    def init(self) -> ChosenModel:
        """Nothing is known before the sum."""
        return ChosenModel()

    def next_sum(self, model: ChosenModel) -> SumSpec[Any] | None:
        """The folds, then the errors where these are counted, then nothing more."""
        if model.model is not None:
            return None
        return self.spec if model.candidates is None else self._counts

    def folds(self, rows: ClientRows) -> NDArray[np.intp]:
        """The fold of each row, 0 to k - 1, by the public rule: BLAKE2b of seed and row, modulo k.

        A row is the integers that stand for its features and its targets in the sum (64 bits each, little-endian).

        Raises:
            RowsOutsideFormatError, InvalidRowsError: rows that the sum would refuse.
        """
        learner = self.learner
        features, targets = learner.mapped(rows)
        units = learner.spec.feature_format.quantise(features, clip=learner.clip).astype("<i8")
        if targets.ndim == 1:
            if len(targets):
                check_labels(targets, self.n_targets)
            goals = targets[:, None]
        else:
            goals = learner.target_format.quantise(targets, clip=learner.clip)
        whole = np.concatenate([units, goals.astype("<i8")], axis=1)
        key = self.seed.to_bytes(8, "big", signed=True)
        digests = (hashlib.blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in whole)
        return np.array([int.from_bytes(digest, "big") % self.n_folds for digest in digests], dtype=np.intp)

    def client_statistics(self, model: ChosenModel, rows: ClientRows) -> Any:
        """One client's statistics of each fold, or its errors there."""
        if model.candidates is None:
            return self._dealt(rows)
        folds, errors = self.folds(rows), np.zeros((self.n_ridges, self.n_folds), dtype=np.int64)
        for fold in range(self.n_folds):
            own = rows.taken(folds == fold)
            if own.targets.ndim != 1:
                raise InvalidRowsError(f"errors are counted for labels of shape (n,), not {own.targets.shape}")
            for place in range(self.n_ridges):
                scores = self.learner.scores_by(model.candidates[place, fold], own.features)
                errors[place, fold] = np.count_nonzero(scores.argmax(axis=1) != own.targets)
        counts = np.bincount(folds, minlength=self.n_folds).astype(np.int64)
        return {"errors": errors, "rows": counts, "count": np.array(len(rows))}

    def coarse_columns(self, model: ChosenModel, rows: ClientRows) -> tuple[int, ...]:
        """Features of which the format keeps less than 8 bits in a client's rows."""
        return self.learner.coarse_columns(self.learner.init(), rows)

    def _dealt(self, rows: ClientRows) -> tuple[Statistics, ...]:
        folds = self.folds(rows)
        return tuple(self.learner.own_statistics(rows.taken(folds == fold)) for fold in range(self.n_folds))

    def update(self, model: ChosenModel, total: Any, survivors: int) -> ChosenModel:
        """The path and the model that it chooses, or the candidates whose errors clients are to count."""
        if model.candidates is not None:
            return self._by_errors(model, total)
        pooled = together(total)
        values = self.ridges or _grid(pooled, self.learner)
        rests = self._rests(total)
        found = [[learner.solve(rest).weights for rest in rests] for learner in map(self.at, values)]
        if self.criterion is Criterion.CLASSES:
            return ChosenModel(candidates=np.array(found), values=values, folds=tuple(total))
        sums = [
            [sum(squared_errors(self.learner, w, fold), Fraction(0)) for w, fold in zip(own, total, strict=True)]
            for own in found
        ]
        path = Path.of(values, sums, [fold.count for fold in total], self.rule)
        return self._settled(path, tuple(total))

    def _by_errors(self, model: ChosenModel, total: Tallies) -> ChosenModel:
        sums = [[Fraction(count) for count in own] for own in total["errors"].tolist()]
        path = Path.of(model.values, sums, total["rows"].tolist(), self.rule)
        if not model.folds:
            raise NotReadyError(
                "the model of all rows follows from the sums of the folds, which this party has not seen"
            )
        return self._settled(path, model.folds)

    def _rests(self, parts: Sequence[Statistics]) -> list[Statistics]:
        """For each fold the statistics of all the others."""
        return [together([one for place, one in enumerate(parts) if place != fold]) for fold in range(self.n_folds)]

    def _settled(self, path: Path, folds: tuple[Statistics, ...]) -> ChosenModel:
        chosen = self.at(path.choice)
        return ChosenModel(model=chosen.update(chosen.init(), together(folds), 1), path=path, folds=folds)

    def at(self, ridge: float) -> AFL:
        """The closed form with this penalty."""
        return replace(self.learner, ridge=ridge)

    def over(self, denominator: int) -> Chosen:
        """The learner for sums that hold everything so many times, a power of two."""
        ridges = tuple(ridge * denominator for ridge in self.ridges)
        return replace(self, learner=self.learner.over(denominator), ridges=ridges)

    def settled(self, model: ChosenModel) -> tuple[AFL, LinearModel]:
        """The closed form with the penalty that was chosen, and its model: what predicts, and what can be stored.

        Raises:
            NotReadyError: a sum is still to come.
        """
        return self.at(model.ridge), model.complete

    def personalise(self, model: ChosenModel, rows: ClientRows, alphas: Sequence[float]) -> list[LinearModel]:
        """Models of a client's own for each alpha (``FedHiP.personalise``).

        Raises:
            SpecificationError: AFL, which has none.
        """
        learner, complete = self._fedhip(), model.complete
        assert isinstance(complete, FedHiPModel)
        return replace(learner, ridge=model.ridge).personalise(complete, rows, alphas)

    def choose_alpha(self, model: ChosenModel, rows: ClientRows, alphas: Sequence[float]) -> Path:
        """The weight of a client's own rows, chosen at the client from the folds' sums: nothing is sent.

        Without a fold its personal model is that of the total without the fold and of its own rows without it; its
        error is that on its own rows in the fold. Of equal errors the largest alpha is taken; with the rule of one
        standard error, the largest within it.

        Raises:
            SpecificationError: AFL, no alphas, or negative ones.
            NotReadyError: the folds' sums are not at hand.
        """
        learner = replace(self._fedhip(), ridge=model.ridge)
        if not model.folds:
            raise NotReadyError("alpha is chosen with the sums of the folds, and this model came without them")
        if not alphas or not all(math.isfinite(alpha) and alpha >= 0 for alpha in alphas):
            raise SpecificationError(f"choosing needs finite alphas >= 0, not {tuple(alphas)}")
        own, values = self._dealt(rows), tuple(sorted(set(map(float, alphas))))
        everybody, mine = (
            [in_digits(rest, learner.feature_format, learner.target_format) for rest in self._rests(parts)]
            for parts in (model.folds, own)
        )

        def error(alpha: float, fold: int) -> Fraction:
            pairs = zip(everybody[fold], mine[fold], strict=True)
            gram, cross = (all_ + part.times(alpha) for all_, part in pairs)
            weights = learner.solve_digits(gram, cross).weights
            return sum(squared_errors(learner, weights, own[fold]), Fraction(0))

        sums = [[error(alpha, fold) for fold in range(self.n_folds)] for alpha in values]
        return Path.of(values, sums, [one.count for one in own], self.rule)

    def _fedhip(self) -> FedHiP:
        if not isinstance(self.learner, FedHiP):
            raise SpecificationError(f"{self.name} makes no personal models; choose for FedHiP")
        return self.learner

    def exact_total(self, model: ChosenModel, total: Any, survivors: int) -> Statistics | tuple[Statistics, ...]:
        """Each fold's statistics, which gates judge one by one; of counted errors the rows."""
        return tuple(total) if model.candidates is None else Statistics.of_counts(int(total["count"]))

    def _predicting(self, model: Any) -> tuple[AFL, LinearModel]:
        """Of a personal model, which is the closed form's, itself."""
        return self.learner, getattr(model, "complete", model)

    def context_bytes(self, model: ChosenModel) -> bytes:
        """The configuration and what a client received: candidates, then the model, the folds where it has them."""
        received = [] if model.candidates is None else [model.candidates.tobytes(), np.array(model.values).tobytes()]
        inner = [] if model.model is None else [self.learner.context_bytes(model.model)]
        return canonical_context(self, *received, *inner)

    def take_apart(self, model: ChosenModel) -> Parts:
        """The arrays of the model that was chosen, and of its path; before, the candidates. FedHiP's have the folds."""
        parts = Parts() if model.model is None else self.learner.take_apart(model.model)
        if model.candidates is not None:
            parts.arrays |= {"candidates": model.candidates, "ridges": np.array(model.values)}
        if model.path is not None:
            path = model.path
            parts.arrays |= {
                "ridges": np.array(path.values),
                "path.errors": np.nan_to_num(path.errors, nan=-1.0),
                "path.mean": np.array([path.mean, path.standard_error]),
                "path.places": np.array([path.least, path.chosen], dtype=np.int64),
            }
        if isinstance(self.learner, FedHiP) and model.model is not None and model.folds:
            parts.arrays["total.folds"] = self.spec.to_vector(model.folds)
        return parts

    def put_together(self, parts: Parts) -> ChosenModel:
        """The model of these parts."""
        inner, size = self.learner, (self.n_ridges, self.n_folds)
        if "candidates" in parts:
            shape = (*size, inner.spec.n_features, inner.n_targets)
            values = tuple(parts.floats("ridges", (self.n_ridges,)).tolist())
            return ChosenModel(candidates=parts.floats("candidates", shape), values=values)
        if "weights" not in parts:
            return ChosenModel()
        mean, spread = parts.floats("path.mean", (2, self.n_ridges)).tolist()
        errors = parts.floats("path.errors", size)
        least, chosen = parts.integers("path.places", (2,)).tolist()
        path = Path(
            values=tuple(parts.floats("ridges", (self.n_ridges,)).tolist()),
            errors=np.where(errors < 0, np.nan, errors),
            mean=tuple(mean),
            standard_error=tuple(spread),
            least=least,
            chosen=chosen,
        )
        length = sum(entries for _, entries, _ in self.spec.segments)
        folds = self.spec.from_vector(parts.integers("total.folds", (length,))) if "total.folds" in parts else ()
        return ChosenModel(model=inner.put_together(parts), path=path, folds=folds)


def _grid(pooled: Statistics, learner: AFL) -> tuple[float, ...]:
    """``GRID`` times the power of two at or below the Gram's mean diagonal entry; an intercept's has no part."""
    diagonal = pooled.gram.diagonal().tolist()[: learner.spec.n_features - learner.fit_intercept]
    mean = Fraction(sum(diagonal), len(diagonal) * 4**learner.feature_format.fraction_bits)
    unit = math.ldexp(1.0, math.frexp(float(mean))[1] - 1) if mean else 1.0
    return tuple(ridge * unit for ridge in GRID)
