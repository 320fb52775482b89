"""Formats that no party sees rows for: a first sum of exponents says how large columns are, a second where they lie.

Each site counts, column by column, the binary exponents of its values, its zeros and its missing values. The total
says the largest exponent of each column, and with it a public scale by a power of two, which loses nothing: every
column then fills one format ``Q0.f``, so that no entry moves by more than 2^-f of its column's range. Standardised
columns take one sum more, of the scaled columns' sums and squares. All of it is public and the same for everybody, and
what follows is the learner's own dialogue on the columns that were agreed.

What the first total shows beside the largest exponents: how many values there are of each size, a lone largest one
among them. ``docs/explanation/threat-model.md`` says so, and a release policy counts such cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL, LinearModel
from analytic.deepafl import DeepAFL
from analytic.errors import InvalidRowsError, NotReadyError, RowsOutsideFormatError, SpecificationError
from analytic.evaluation import Tallies, TallySpec
from analytic.layers import Layer, Linear
from analytic.learner import Around, ClientRows, SumSpec, canonical_context, refuse_weights
from analytic.model_arrays import Parts
from analytic.row_format import FEWEST_BITS, MAX_BITS, ColumnMap, FloatMatrix, RowFormat
from analytic.statistics import LABELS, IntVector, Statistics, bits_of_squares
from analytic.validation_path import Path
from analytic.whole_numbers import settle_whole_numbers

LOWEST, HIGHEST = -64, 64
"""Binary exponents that are told apart: below 2^-65 all are counted as one, and from 2^64 on a value is refused."""

CELLS = HIGHEST - LOWEST + 3
"""Counts of a column: missing values, zeros, and one for each exponent."""

MAPPED = "mapped rows"
"""Where a client keeps its rows in the columns that were agreed, in its own memory."""

TARGET_BITS = 24
"""Bits of scaled targets at most. DeepAFL's rows have the more bits the fewer its targets have."""


class Agreement(StrEnum):
    """How columns become alike."""

    AGREED = "agreed"
    """Each is scaled by a power of two."""
    STANDARDISED = "standardised"
    """Each has mean 0 and variance 1 besides."""

    @property
    def n_sums(self) -> int:
        """How many sums it takes."""
        return 1 + (self is Agreement.STANDARDISED)


def agreed_format(max_rows: int, *, most: int = MAX_BITS) -> RowFormat:
    """Return the format ``Q0.f`` of columns that are scaled below one, with the most bits that so many rows can have.

    Raises:
        SpecificationError: so many rows leave no bit.
    """
    return RowFormat(integer_bits=0, fraction_bits=min(most, bits_of_squares(max_rows)))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgreedModel:
    """What the sums so far have shown.

    Args:
        exponents: of features, then of real targets: all values are below 2^exponent. None before the first sum.
        missing: of features, how many values are missing.
        coarse: of features, how many values keep less than 8 bits where that is most of those that are not zero.
        moments: of scaled features, their means and standard deviations; None where they are not asked for, or not yet.
        inner: the learner's own model; None while columns are still to be agreed on.
    """

    exponents: tuple[int, ...] | None = None
    missing: tuple[int, ...] = ()
    coarse: tuple[int, ...] = ()
    moments: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    inner: Any = None

    @property
    def own(self) -> Any:
        """The learner's own model.

        Raises:
            NotReadyError: columns are still to be agreed on.
        """
        if self.inner is None:
            raise NotReadyError("this model still needs the sum that its columns are agreed by")
        return self.inner

    @property
    def weights(self) -> FloatMatrix:
        """W of the columns as they were agreed, shape (d, c)."""
        weights: FloatMatrix = self.own.weights
        return weights

    @property
    def ridge(self) -> float:
        """The penalty that was chosen, of the columns as they were agreed."""
        return float(self.own.ridge)

    @property
    def path(self) -> Any:
        """How it was chosen."""
        return self.own.path


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed(Around):
    """A learner whose columns are agreed through one sum, or two, before its own.

    Args:
        learner: the closed form of columns below one: its formats of features, and of real targets, are ``Q0.f``
            (``agreed_format``), its ``feature_bound`` is 1, its thresholds lie between -1 and 1.
        agreement: how columns become alike.
        fill: whether missing features (NaN) are counted and become 0 as they were agreed, which is their mean where
            columns are standardised; without it rows that have some are refused.
        headroom: bits by which values may be larger than those of the first sum. A site that was not in it, or joins
            late, has no other room.

    Raises:
        SpecificationError: a learner of other formats, one of weighted rows, or no headroom from 0 to 8.
    """

    learner: Any
    agreement: Agreement = Agreement.AGREED
    fill: bool = False
    headroom: int = 0

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "headroom")
        object.__setattr__(self, "agreement", Agreement(self.agreement))
        if self.learner.name.startswith("weighted-"):
            raise SpecificationError(
                "columns are agreed on before rows are weighed: take Weighted(learner=Agreed(learner=...))"
            )
        own = self._linear
        formats = () if own is None else (own.feature_format, own.target_format)
        if any(one.integer_bits or not one.signed for one in formats if one != LABELS):
            raise SpecificationError(
                f"columns that are agreed lie between -1 and 1 in signed formats Q0.f, not in "
                f"{', '.join(map(str, formats))}: take agreed_format(max_rows)"
            )
        if not 0 <= self.headroom <= FEWEST_BITS:
            raise SpecificationError(f"headroom is 0 to {FEWEST_BITS} bits, not {self.headroom}")
        if own is not None and (own.row_map is not None or (own.columns and any(own.columns.exponents))):
            raise SpecificationError("columns are scaled by what is agreed; leave the row map, or other scales, out")

    @property
    def name(self) -> str:
        """The learner's name in reports and files."""
        return f"agreed-{self.learner.name}"

    @property
    def _linear(self) -> AFL | None:
        """The linear learner of the features themselves, if it is one: its format follows what is agreed."""
        own = _plain(self.learner)
        return own if isinstance(own, AFL) and own.lift is None else None

    @property
    def _bits(self) -> int:
        """Fraction bits of scaled columns."""
        own = agreed_format(self.max_rows) if self._linear is None else self._linear.feature_format
        return own.fraction_bits

    @property
    def _n_columns(self) -> int:
        return self.n_features + (0 if self.target_format == LABELS else self.n_targets)

    @property
    def spec(self) -> TallySpec:
        """The first sum: counts of missing values, of zeros and of each exponent, column by column."""
        return TallySpec(
            shapes={"exponents": (self._n_columns, CELLS)},
            bounds={"exponents": self.max_rows},
            max_rows=self.max_rows,
            partitions=("exponents",),
        )

    @property
    def moments_spec(self) -> TallySpec:
        """The second sum: of scaled features the values that are there, their sum and the sum of their squares."""
        n, largest = self.max_rows, (1 << self._bits) - 1
        return TallySpec(
            shapes=dict.fromkeys(("present", "sums", "squares"), (self.n_features,)),
            bounds={"present": n, "sums": n * largest, "squares": n * largest**2},
            max_rows=n,
        )

    def init(self) -> AgreedModel:
        """Nothing is known before the first sum."""
        return AgreedModel()

    def next_sum(self, model: AgreedModel) -> SumSpec[Any] | None:
        """The exponents, the moments where columns are standardised, then the learner's own sums."""
        if model.inner is not None:
            found: SumSpec[Any] | None = self.at(model).next_sum(model.inner)
            return found
        return self.spec if model.exponents is None else self.moments_spec

    def client_statistics(self, model: AgreedModel, rows: ClientRows) -> Any:
        """One client's counts, its moments, or its part in the learner's own sum.

        Raises:
            RowsOutsideFormatError: missing values without ``fill``, infinity, values from 2^64 on, or larger ones than
                the first sum's clients had.
        """
        refuse_weights(rows)
        if model.inner is not None:
            return self.at(model).client_statistics(model.inner, self.mapped(model, rows))
        if model.exponents is None:
            return {"exponents": self._counted(rows), "count": np.array(len(rows))}
        scaled = replace(self._map(model), fill=None).features(rows.features)
        is_there = ~np.isnan(scaled)
        if not (self.fill or is_there.all()):
            raise RowsOutsideFormatError(
                f"{int(np.count_nonzero(~is_there))} values are missing (NaN), and this agreement fills none: repair "
                "them",
                n_rows=int(np.count_nonzero(~is_there.all(axis=1))),
                largest=0.0,
            )
        row_format = RowFormat(integer_bits=0, fraction_bits=self._bits)
        units = row_format.quantise(np.where(is_there, scaled, 0.0)).astype(np.int64)
        present = is_there.sum(axis=0)
        sums, squares = units.sum(axis=0), (units * units).sum(axis=0)
        return {"present": present, "sums": sums, "squares": squares, "count": np.array(len(rows))}

    def _counted(self, rows: ClientRows) -> NDArray[np.int64]:
        d, c = self.n_features, self._n_columns - self.n_features
        values = ColumnMap(exponents=(0,) * d).features(rows.features)
        if c:
            if len(rows) and rows.targets.shape != (len(rows), c):
                raise InvalidRowsError(f"targets must have shape (n, {c}), not {rows.targets.shape}")
            targets = rows.targets if len(rows) else np.zeros((0, c))
            values = np.concatenate([values, ColumnMap(exponents=(0,) * c).features(targets)], axis=1)
        is_missing = np.isnan(values)
        is_refused = np.isinf(values) | (np.frexp(values)[1] > HIGHEST)
        if not self.fill:
            is_refused |= is_missing
        else:
            is_refused[:, self.n_features :] |= is_missing[:, self.n_features :]
        if is_refused.any():
            raise self._refusal(values, is_refused)
        exponents = np.frexp(values)[1].clip(LOWEST, HIGHEST) - LOWEST + 2
        places = np.where(is_missing, 0, np.where(values == 0, 1, exponents))
        cells = places + CELLS * np.arange(values.shape[1])
        counts = np.bincount(cells.ravel(), minlength=CELLS * values.shape[1])
        return counts.astype(np.int64).reshape(-1, CELLS)

    def _refusal(self, values: FloatMatrix, is_refused: NDArray[np.bool_]) -> RowsOutsideFormatError:
        bad, finite = int(is_refused.any(axis=1).sum()), np.isfinite(values)
        columns = ", ".join(map(str, np.flatnonzero(is_refused.any(axis=0)).tolist()))
        broken = int((~finite & is_refused).any(axis=1).sum())
        return RowsOutsideFormatError(
            f"{broken} of {len(values)} rows hold NaN or infinity, and {bad - broken} more a value from 2^{HIGHEST} on "
            f"(columns {columns}, targets after the features): repair or leave out these rows; with fill=True missing "
            "features are counted and filled",
            n_rows=bad,
            largest=float(np.max(np.abs(values), where=finite, initial=0.0)),
        )

    def update(self, model: AgreedModel, total: Any, survivors: int) -> AgreedModel:
        """The scales, then means and deviations, then what the learner makes of its own total.

        Raises:
            InvalidRowsError: a column that cannot be standardised.
        """
        if model.inner is not None:
            return replace(model, inner=self.at(model).update(model.inner, total, survivors))
        if model.exponents is None:
            model = self._scaled(total["exponents"])
            if self.agreement is Agreement.STANDARDISED:
                return model
        else:
            model = replace(model, moments=self._moments(total))
            _ = self._range(model)
        return replace(model, inner=self.at(model).init())

    def _scaled(self, counts: NDArray[np.int64]) -> AgreedModel:
        missing, sizes = counts[: self.n_features, 0], counts[:, 2:]
        found = sizes > 0
        largest = np.where(found.any(axis=1), CELLS - 3 - found[:, ::-1].argmax(axis=1) + LOWEST, -self.headroom)
        exponents = largest + self.headroom
        kept = np.arange(LOWEST, HIGHEST + 1) - exponents[: self.n_features, None] + self._bits
        kept[:, 0] = 0  # what is counted as one lies anywhere below
        few = np.where(kept < FEWEST_BITS, sizes[: self.n_features], 0).sum(axis=1)
        coarse = np.where(2 * few > sizes[: self.n_features].sum(axis=1), few, 0)
        return AgreedModel(
            exponents=tuple(exponents.tolist()), missing=tuple(missing.tolist()), coarse=tuple(coarse.tolist())
        )

    def _moments(self, total: Tallies) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Means and standard deviations of scaled features: exact rationals, rounded, and a square root rounded once.

        A column without spread, or without values, has the deviation 1.
        """
        columns = list(zip(*(total[name].tolist() for name in ("present", "sums", "squares")), strict=True))
        means = tuple(float(Fraction(s, n << self._bits)) if n else 0.0 for n, s, _ in columns)
        variances = (Fraction(n * q - s * s, n * n << 2 * self._bits) if n else Fraction(0) for n, s, q in columns)
        return means, tuple(math.sqrt(variance) if variance else 1.0 for variance in variances)

    def _range(self, model: AgreedModel) -> int:
        """Integer bits that hold every standardised value."""
        if model.moments is None:
            return 0
        reach = [(1 + abs(mean)) / deviation for mean, deviation in zip(*model.moments, strict=True)]
        bits = [math.frexp(one)[1] for one in reach]
        most = self._bits - FEWEST_BITS
        if wrong := [str(place) for place, own in enumerate(bits) if own > most]:
            raise InvalidRowsError(
                f"standardised values of columns {', '.join(wrong)} need more than {most} integer bits, so that fewer "
                f"than {FEWEST_BITS} would be left of a deviation: these columns hardly vary beside their range; leave "
                f"them out, or take the agreement {Agreement.AGREED}"
            )
        return max(bits)

    def _map(self, model: AgreedModel) -> ColumnMap:
        """What rows go through before the learner."""
        if model.exponents is None:
            raise NotReadyError("this model still needs the sum that its columns are agreed by")
        d, moments = self.n_features, model.moments
        centres, factors = None, None
        if moments is not None:
            is_moved = self._linear is not None or isinstance(_plain(self.learner), DeepAFL)
            further = 0 if is_moved else self._range(model)
            centres, factors = moments[0], tuple(math.ldexp(1.0 / one, -further) for one in moments[1])
        return ColumnMap(
            exponents=model.exponents[:d],
            target_exponents=model.exponents[d:],
            centres=centres,
            factors=factors,
            fill=self.fill or None,
        )

    def at(self, model: AgreedModel) -> Any:
        """The learner in the formats that were agreed, of rows that have gone through the map.

        Standardised columns reach beyond one: a linear learner's format and DeepAFL's bound are then wider; for others
        all columns are divided by one power of two.
        """
        if not (bits := self._range(model)):
            return self.learner
        own = _plain(self.learner)
        if isinstance(own, DeepAFL):
            own = replace(own, feature_bound=own.feature_bound * 2**bits)
        elif self._linear is not None:
            row_format = RowFormat(integer_bits=bits, fraction_bits=own.feature_format.fraction_bits - bits)
            own = replace(own, feature_format=row_format)
        return _rebuilt(self.learner, own)

    def mapped(self, model: AgreedModel, rows: ClientRows) -> ClientRows:
        """A client's rows as the learner takes them; what it keeps of them stays with the client's own.

        A learner of several sums gets the same object in each, so that it finds what it kept of these rows.
        """
        key = b"".join(self._received(model))
        known, source, kept = rows.memory.get(MAPPED, (b"", None, None))
        if kept is not None and known == key and source is rows.features:
            return kept  # type: ignore[no-any-return]
        own = self._map(model)
        found = ClientRows(own.features(rows.features), own.targets(rows.targets), memory=rows.memory)
        if not isinstance(self.learner, AFL):  # one sum takes the rows once
            rows.memory[MAPPED] = key, rows.features, found
        return found

    def units(self, model: AgreedModel) -> tuple[float, ...]:
        """How large 1 of each column is in the features' own units."""
        return self._map(model).units

    def losses(self, model: AgreedModel) -> tuple[float, ...]:
        """By how much an entry of each column moves at most, in the features' own units; rounding aside.

        Of a learner with formats of its own it is what the columns are told apart by before it begins.
        """
        bits = self._bits if self._linear is None else self._bits - self._range(model)
        return tuple(math.ldexp(unit, -bits) for unit in self.units(model))

    def evaluation_format(self, model: AgreedModel) -> RowFormat:
        """The format in which real targets of the agreed size are judged (``evaluation_of``), or ``LABELS``.

        Raises:
            SpecificationError: targets so small or so large that no such format holds them.
        """
        if self.target_format == LABELS:
            return LABELS
        exponents = self._map(model).target_exponents
        if min(exponents) < FEWEST_BITS - MAX_BITS // 2 or max(exponents) > MAX_BITS // 2:
            raise SpecificationError(
                f"targets are judged from 2^{FEWEST_BITS - MAX_BITS // 2} to 2^{MAX_BITS // 2}, and these are below "
                f"2^{min(exponents)} to 2^{max(exponents)}: give them in another unit"
            )
        integer_bits = max(0, *exponents)
        return RowFormat(integer_bits=integer_bits, fraction_bits=MAX_BITS - integer_bits)

    def coarse_columns(self, model: AgreedModel, rows: ClientRows) -> tuple[int, ...]:
        """Columns most of whose values keep less than 8 bits beside the largest, by the first total."""
        return tuple(place for place, few in enumerate(model.coarse) if few)

    def settled(self, model: AgreedModel) -> tuple[AFL, LinearModel]:
        """A linear learner with the columns that were agreed, and its model: what personalises, exports and is stored.

        Raises:
            NotReadyError: a sum is still to come.
            SpecificationError: another learner.
        """
        if self._linear is None:
            raise SpecificationError(f"{self.learner.name} is no linear map of columns; use {self.name} as it is")
        inner, found = settled(self.at(model), model.own)
        inner = _plain(inner)
        _ = found.weights
        intercept = None if inner.columns is None else inner.columns.intercept
        return replace(inner, columns=replace(self._map(model), intercept=intercept)), found

    def personalise(self, model: AgreedModel, rows: ClientRows, alphas: Sequence[float]) -> list[AgreedModel]:
        """Models of a client's own for each alpha (``FedHiP.personalise``).

        Raises:
            SpecificationError: a learner that makes none.
        """
        if not hasattr(self.learner, "personalise"):
            raise SpecificationError(f"{self.name} makes no personal models; take fedhip")
        found = self.at(model).personalise(model.own, self.mapped(model, rows), alphas)
        return [self.adopted(model, one) for one in found]

    def choose_alpha(self, model: AgreedModel, rows: ClientRows, alphas: Sequence[float]) -> Path:
        """The weight of a client's own rows (``Chosen.choose_alpha``).

        Raises:
            SpecificationError: a learner that chooses none.
        """
        if not hasattr(self.learner, "choose_alpha"):
            raise SpecificationError(
                f"{self.name} has no folds to choose an alpha by; take a chosen fedhip, or state one"
            )
        path: Path = self.at(model).choose_alpha(model.own, self.mapped(model, rows), alphas)
        return path

    @staticmethod
    def adopted(model: AgreedModel, own: Any) -> AgreedModel:
        """The same columns with another model of the learner's."""
        return replace(model, inner=own)

    def over(self, denominator: int) -> Agreed:
        """The learner for sums that hold everything so many times, a power of two."""
        return replace(self, learner=self.learner.over(denominator))

    def exact_total(
        self, model: AgreedModel, total: Any, survivors: int
    ) -> Statistics | tuple[Statistics, ...] | IntVector | None:
        """The counts of the first sum, the rows of the moments', and of the learner's own what it says."""
        if model.inner is not None:
            found: Statistics | tuple[Statistics, ...] | IntVector | None = self.at(model).exact_total(
                model.inner, total, survivors
            )
            return found
        if model.exponents is not None:
            return Statistics.of_counts(int(total["count"]))
        counts: IntVector = total["exponents"].ravel()
        return counts

    def decision_function(self, model: AgreedModel, features: NDArray[Any]) -> FloatMatrix:
        """Scores in the targets' own units, shape (n, c), of features as they are."""
        return self._scores(model, features, _plain(self.at(model)).decision_function)

    def exact_scores(self, model: AgreedModel, features: NDArray[Any]) -> FloatMatrix:
        """Scores that are exact and rounded once, of columns that were rounded where they are standardised."""
        return self._scores(model, features, _plain(self.at(model)).exact_scores)

    def _scores(self, model: AgreedModel, features: NDArray[Any], score: Any) -> FloatMatrix:
        inner, own = model.own, self._map(model)
        return own.scores(
            score(getattr(inner, "complete", inner), own.features(np.asarray(features, dtype=np.float64)))
        )

    def layers(self, model: AgreedModel) -> tuple[Layer, ...]:
        """The map of columns as a layer, then the learner's own, then the targets' scales."""
        if self._linear is not None:
            learner, found = self.settled(model)
            return learner.layers(found)
        own = self._map(model)
        first = Linear(*replace(own, target_exponents=()).own_units(np.eye(self.n_features)))
        last = () if self.target_format == LABELS else (Linear(own.scores(np.eye(self.n_targets))),)
        return first, *self.at(model).layers(model.own), *last

    def weights_bytes(self, model: AgreedModel) -> bytes:
        """The bytes of the weights, after those of the map.

        Raises:
            NotReadyError: a sum is still to come.
        """
        learned: bytes = self.at(model).weights_bytes(model.own)
        return b"".join(self._received(model)) + learned

    def context_bytes(self, model: AgreedModel) -> bytes:
        """The configuration and what a client received: the map, then what the learner says."""
        inner = [] if model.inner is None else [self.at(model).context_bytes(model.inner)]
        return canonical_context(self, self.learner.name.encode(), *self._received(model), *inner)

    def _received(self, model: AgreedModel) -> list[bytes]:
        facts = () if model.exponents is None else (model.exponents, model.missing, model.coarse)
        found = [np.array(one, dtype="<i8").tobytes() for one in facts]
        return found + [np.array(one, dtype="<f8").tobytes() for one in model.moments or ()]

    def take_apart(self, model: AgreedModel) -> Parts:
        """The map's arrays, what is known of columns, and the parts of the learner's own model."""
        parts = Parts() if model.inner is None else self.at(model).take_apart(model.inner)
        if model.exponents is not None:
            for name in ("exponents", "missing", "coarse"):
                parts.arrays[f"columns.{name}"] = np.array(getattr(model, name), dtype=np.int64)
        if model.moments is not None:
            parts.arrays["columns.moments"] = np.array(model.moments)
        return parts

    def put_together(self, parts: Parts) -> AgreedModel:
        """The model of these parts."""
        if "columns.exponents" not in parts:
            return AgreedModel()
        d = self.n_features
        sizes = {"exponents": self._n_columns, "missing": d, "coarse": d}
        found = {name: tuple(parts.integers(f"columns.{name}", (n,)).tolist()) for name, n in sizes.items()}
        model = AgreedModel(**found)
        if self.agreement is Agreement.STANDARDISED:
            if "columns.moments" not in parts:
                return model
            means, deviations = parts.floats("columns.moments", (2, d)).tolist()
            if min(deviations) <= 0:
                raise SpecificationError("standard deviations are above 0")
            model = replace(model, moments=(tuple(means), tuple(deviations)))
        return replace(model, inner=self.at(model).put_together(parts))


def settled(learner: Any, model: Any) -> tuple[Any, Any]:
    """A complete model as the closed form of rows as they are: without weights, choice of a penalty, or agreement.

    Raises:
        NotReadyError: a sum is still to come.
        SpecificationError: a learner behind agreed columns that is no linear map.
    """
    while hasattr(learner, "settled"):
        learner, model = learner.settled(model)
    return learner, model


def _plain(learner: Any) -> Any:
    """The closed form itself, without what chooses its penalty."""
    return _plain(learner.learner) if hasattr(learner, "learner") else learner


def _rebuilt(learner: Any, plain: Any) -> Any:
    """The same with another closed form."""
    return replace(learner, learner=_rebuilt(learner.learner, plain)) if hasattr(learner, "learner") else plain
