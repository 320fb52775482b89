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

from analytic.afl import AFL, in_digits
from analytic.errors import InvalidRowsError, NotReadyError, SpecificationError
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, SumSpec
from analytic.model_arrays import Parts
from analytic.parts import PartsSpec, together
from analytic.shape_repr import shape_repr
from analytic.statistics import LABELS, Statistics, check_labels
from analytic.tallies import Tallies, TallySpec
from analytic.total_error import squared_errors
from analytic.validation_path import Path, Rule
from analytic.whole_numbers import settle_whole_numbers

MAX_FOLDS = 1000
GRID = tuple(8.0**power for power in range(-8, 1))
"""Penalties that are tried where none are stated, in units of the total Gram's mean diagonal entry."""


class Criterion(StrEnum):
    """Measure of a validation error."""

    SQUARES = "squares"
    """Sum of squared residuals over a row's targets."""
    CLASSES = "classes"
    """A row whose largest score is not its class's."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Choice:
    """Choice of a penalty, as far as the sums so far determine it.

    Args:
        path: how one was chosen; None before.
        candidates: each penalty's weights without each fold, shape (penalties, folds, d, c), while errors are counted.
        values: the penalties of the candidates.
        folds: the sums of the folds, which clients hold only where they personalise with them.
    """

    path: Path | None = None
    candidates: NDArray[np.float64] | None = None
    values: tuple[float, ...] = ()
    folds: tuple[Statistics, ...] = field(default=(), repr=False)

    __repr__ = shape_repr

    def __post_init__(self) -> None:
        if self.candidates is not None:
            self.candidates.setflags(write=False)

    @property
    def received(self) -> list[bytes]:
        """The bytes of the candidates, as clients receive them."""
        return [] if self.candidates is None else [self.candidates.tobytes(), np.array(self.values).tobytes()]


@dataclass(frozen=True, slots=True, kw_only=True)
class RidgeCV:
    """A penalty chosen by cross-validation over everybody's rows, from one sum or two: a slot of ``Pipeline``.

    It is for AFL and FedHiP without a penalty, an RI process (which would be in every fold) or a row map.

    Args:
        n_folds: k, 2 to ``MAX_FOLDS``; each fold is a total of its own, so it must have rows and sites enough.
        ridges: penalties to try; none takes ``GRID`` times a power of two near the total Gram's mean diagonal entry.
        rule: which of them is taken.
        criterion: by which error; that of classes asks for a second sum.
        seed: public, of the hash that deals rows to folds. Who knows rows and may choose it chooses their fold.

    Raises:
        SpecificationError: fewer than two folds, penalties below zero or not finite, a seed beyond 64 bits.

    Example:
        >>> RidgeCV(ridges=[10, 1]).ridges
        (1.0, 10.0)
    """

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
        if not 2 <= self.n_folds <= MAX_FOLDS or not all(math.isfinite(ridge) and ridge >= 0 for ridge in self.ridges):
            raise SpecificationError(
                f"choosing needs 2 to {MAX_FOLDS} folds and finite penalties >= 0, not {self.n_folds} and {self.ridges}"
            )
        if not -(2**63) <= self.seed < 2**63:
            raise SpecificationError(f"the folds' seed is a whole number of 64 bits, not {self.seed}")
        object.__setattr__(self, "ridges", tuple(sorted(set(self.ridges))))

    def check(self, head: Any) -> None:
        """Refuse a learner that has no such sum.

        Raises:
            SpecificationError: which.
        """
        if type(head) not in (AFL, FedHiP):
            raise SpecificationError(f"a penalty is chosen for afl, random or fedhip, and {head.name} states its own")
        if head.ridge or head.ri_gamma or head.row_map is not None or not head.target_sums:
            raise SpecificationError(
                "a penalty is chosen for exact sums with the targets' own and without an RI process: set ridge and "
                "ri_gamma to 0, target_sums=True, and leave the row map out"
            )
        if self.criterion is Criterion.CLASSES and head.target_format != LABELS:
            raise SpecificationError("errors are counted for class labels; choose by squares for real targets")

    def folds_spec(self, head: AFL) -> PartsSpec:
        """The first sum: k statistics."""
        return PartsSpec(parts=(head.spec,) * self.n_folds)

    @property
    def n_ridges(self) -> int:
        """Number of penalties that are tried."""
        return len(self.ridges or GRID)

    def errors_spec(self, max_rows: int) -> TallySpec:
        """The second sum: rows of each fold that a candidate classifies wrongly."""
        return TallySpec(
            shapes={"errors": (self.n_ridges, self.n_folds), "rows": (self.n_folds,)},
            bounds={"errors": max_rows, "rows": max_rows},
            max_rows=max_rows,
        )

    def next_sum(self, found: Choice, head: AFL) -> SumSpec[Any]:
        """The folds, or the errors where these are counted."""
        return self.folds_spec(head) if found.candidates is None else self.errors_spec(head.max_rows)

    def deal(self, rows: ClientRows, head: AFL) -> NDArray[np.intp]:
        """The fold of each row, 0 to k - 1, by the public rule: BLAKE2b of seed and row, modulo k.

        A row is the integers that stand for its features and its targets in the sum (64 bits each, little-endian).

        Raises:
            RowsOutsideFormatError, InvalidRowsError: rows that the sum would refuse.
        """
        features, targets = head.mapped(rows)
        units = head.spec.feature_format.quantise(features, clip=head.clip).astype("<i8")
        if targets.ndim == 1:
            if len(targets):
                check_labels(targets, head.n_targets)
            goals = targets[:, None]
        else:
            goals = head.target_format.quantise(targets, clip=head.clip)
        whole = np.concatenate([units, goals.astype("<i8")], axis=1)
        key = self.seed.to_bytes(8, "big", signed=True)
        digests = (hashlib.blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in whole)
        return np.array([int.from_bytes(digest, "big") % self.n_folds for digest in digests], dtype=np.intp)

    def client_statistics(self, found: Choice, rows: ClientRows, head: AFL) -> Any:
        """One client's statistics of each fold, or its errors there."""
        if found.candidates is None:
            return self._dealt(rows, head)
        folds, errors = self.deal(rows, head), np.zeros((self.n_ridges, self.n_folds), dtype=np.int64)
        for fold in range(self.n_folds):
            own = rows.taken(folds == fold)
            if own.targets.ndim != 1:
                raise InvalidRowsError(f"errors are counted for labels of shape (n,), not {own.targets.shape}")
            for place in range(self.n_ridges):
                scores = head.scores_by(found.candidates[place, fold], own.features)
                errors[place, fold] = np.count_nonzero(scores.argmax(axis=1) != own.targets)
        counts = np.bincount(folds, minlength=self.n_folds).astype(np.int64)
        return {"errors": errors, "rows": counts, "count": np.array(len(rows))}

    def _dealt(self, rows: ClientRows, head: AFL) -> tuple[Statistics, ...]:
        folds = self.deal(rows, head)
        return tuple(head.own_statistics(rows.taken(folds == fold)) for fold in range(self.n_folds))

    def update(self, found: Choice, total: Any, head: AFL) -> Choice:
        """The path that chooses, or the candidates whose errors clients are to count."""
        if found.candidates is not None:
            return self._by_errors(found, total)
        values = self.ridges or _grid(together(total), head)
        rests = self._rests(total)
        weights = [[replace(head, ridge=own).solve(rest).weights for rest in rests] for own in values]
        if self.criterion is Criterion.CLASSES:
            return Choice(candidates=np.array(weights), values=values, folds=tuple(total))
        sums = [
            [sum(squared_errors(head, w, fold), Fraction(0)) for w, fold in zip(own, total, strict=True)]
            for own in weights
        ]
        path = Path.of(values, sums, [fold.count for fold in total], self.rule)
        return Choice(path=path, folds=tuple(total))

    def _by_errors(self, found: Choice, total: Tallies) -> Choice:
        sums = [[Fraction(count) for count in own] for own in total["errors"].tolist()]
        path = Path.of(found.values, sums, total["rows"].tolist(), self.rule)
        if not found.folds:
            raise NotReadyError(
                "the model of all rows follows from the sums of the folds, which this party has not seen"
            )
        return Choice(path=path, folds=found.folds)

    @staticmethod
    def _rests(parts: Sequence[Statistics]) -> list[Statistics]:
        """For each fold the statistics of all the others."""
        return [together([one for place, one in enumerate(parts) if place != fold]) for fold in range(len(parts))]

    def over(self, denominator: int) -> RidgeCV:
        """The choice for sums that hold everything so many times, a power of two."""
        return replace(self, ridges=tuple(ridge * denominator for ridge in self.ridges))

    def choose_alpha(self, found: Choice, rows: ClientRows, alphas: Sequence[float], head: AFL) -> Path:
        """The weight of a client's own rows, chosen at the client from the folds' sums: nothing is sent.

        Without a fold its personal model is that of the total without the fold and of its own rows without it; its
        error is that on its own rows in the fold. Of equal errors the largest alpha is taken; with the rule of one
        standard error, the largest within it.

        Raises:
            SpecificationError: AFL, no alphas, or negative ones.
            NotReadyError: the folds' sums are not at hand.
        """
        if not isinstance(head, FedHiP):
            raise SpecificationError(f"{head.name} makes no personal models; choose for FedHiP")
        if not found.folds:
            raise NotReadyError("alpha is chosen with the sums of the folds, and this model came without them")
        if not alphas or not all(math.isfinite(alpha) and alpha >= 0 for alpha in alphas):
            raise SpecificationError(f"choosing needs finite alphas >= 0, not {tuple(alphas)}")
        own, values = self._dealt(rows, head), tuple(sorted(set(map(float, alphas))))
        everybody, mine = (
            [in_digits(rest, head.feature_format, head.target_format) for rest in self._rests(parts)]
            for parts in (found.folds, own)
        )

        def error(alpha: float, fold: int) -> Fraction:
            pairs = zip(everybody[fold], mine[fold], strict=True)
            gram, cross = (all_ + part.times(alpha) for all_, part in pairs)
            weights = head.solve_digits(gram, cross).weights
            return sum(squared_errors(head, weights, own[fold]), Fraction(0))

        sums = [[error(alpha, fold) for fold in range(self.n_folds)] for alpha in values]
        return Path.of(values, sums, [one.count for one in own], self.rule)

    @staticmethod
    def exact_total(found: Choice, total: Any) -> Statistics | tuple[Statistics, ...]:
        """Each fold's statistics, which gates judge one by one; of counted errors the rows."""
        return tuple(total) if found.candidates is None else Statistics.of_counts(int(total["count"]))

    # --- a choice as arrays ---------------------------------------------------------------------------------

    def take_apart(self, found: Choice, parts: Parts, head: AFL) -> None:
        """Put in the path; before it, the candidates. FedHiP's have the folds."""
        if found.candidates is not None:
            parts.arrays |= {"candidates": found.candidates, "ridges": np.array(found.values)}
        if (path := found.path) is not None:
            parts.arrays |= {
                "ridges": np.array(path.values),
                "path.errors": np.nan_to_num(path.errors, nan=-1.0),
                "path.mean": np.array([path.mean, path.standard_error]),
                "path.places": np.array([path.least, path.chosen], dtype=np.int64),
            }
            if isinstance(head, FedHiP) and found.folds:
                parts.arrays["total.folds"] = self.folds_spec(head).to_vector(found.folds)

    def put_together(self, parts: Parts, head: AFL) -> Choice:
        """Return the choice in these parts."""
        size = self.n_ridges, self.n_folds
        if "candidates" in parts:
            shape = (*size, head.spec.n_features, head.n_targets)
            values = tuple(parts.floats("ridges", (self.n_ridges,)).tolist())
            return Choice(candidates=parts.floats("candidates", shape), values=values)
        if "weights" not in parts:
            return Choice()
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
        spec = self.folds_spec(head)
        length = sum(entries for _, entries, _ in spec.segments)
        folds = spec.from_vector(parts.integers("total.folds", (length,))) if "total.folds" in parts else ()
        return Choice(path=path, folds=folds)


def _grid(pooled: Statistics, learner: AFL) -> tuple[float, ...]:
    """``GRID`` times the power of two at or below the Gram's mean diagonal entry; an intercept's has no part."""
    diagonal = pooled.gram.diagonal().tolist()[: learner.spec.n_features - learner.fit_intercept]
    mean = Fraction(sum(diagonal), len(diagonal) * 4**learner.feature_format.fraction_bits)
    unit = math.ldexp(1.0, math.frexp(float(mean))[1] - 1) if mean else 1.0
    return tuple(ridge * unit for ridge in GRID)
