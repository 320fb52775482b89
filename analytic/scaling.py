"""Formats that no party sees rows for: a first sum of exponents says how large columns are, a second where they lie.

Each site counts, column by column, the binary exponents of its values, its zeros and its missing values. The total
says the largest exponent of each column, and with it a public scale by a power of two, which loses nothing: every
column then fills one format ``Q0.f``, so that no entry moves by more than 2^-f of its column's range. Standardised
columns take one sum more, of the scaled columns' sums and squares. All of it is public and the same for everybody, and
what follows is the learner's own dialogue on the columns that were agreed.

What the first total shows beside the largest exponents: how many values there are of each size, a lone largest one
among them. ``docs/explanation/what-is-not-protected.md`` says so, and a release policy counts such cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL
from analytic.errors import InvalidRowsError, RowsOutsideFormatError, SpecificationError
from analytic.learner import ClientRows
from analytic.model_arrays import Parts
from analytic.row_format import FEWEST_BITS, MAX_BITS, ColumnMap, FloatMatrix, RowFormat
from analytic.statistics import LABELS, IntVector, Statistics, bits_of_squares
from analytic.tallies import Tallies, TallySpec
from analytic.whole_numbers import settle_whole_numbers

LOWEST, HIGHEST = -64, 64
"""Binary exponents that are told apart: below 2^-65 all are counted as one, and from 2^64 on a value is refused."""

CELLS = HIGHEST - LOWEST + 3
"""Counts of a column: missing values, zeros, and one for each exponent."""

NO_SPREAD = 1.0
"""Deviation of a scaled column that has none, so that it is left as it is."""

TARGET_BITS = 24
"""Bits of scaled targets at most. DeepAFL's rows have the more bits the fewer its targets have."""


class Agreement(StrEnum):
    """Scaling of columns to one format."""

    AGREED = "agreed"
    """Each is scaled by a power of two."""
    STANDARDISED = "standardised"
    """Each has mean 0 and variance 1 besides."""

    @property
    def n_sums(self) -> int:
        """Number of sums that it needs."""
        return 1 + (self is Agreement.STANDARDISED)


def agreed_format(max_rows: int, *, most: int = MAX_BITS) -> RowFormat:
    """Return the format ``Q0.f`` of columns that are scaled below one, with the most bits that so many rows can have.

    Raises:
        SpecificationError: so many rows leave no bit.
    """
    return RowFormat(integer_bits=0, fraction_bits=min(most, bits_of_squares(max_rows)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Facts about columns, as far as the sums so far determine them.

    Args:
        exponents: of features, then of real targets: all values are below 2^exponent.
        missing: of features, how many values are missing.
        coarse: of features, how many values keep less than 8 bits where that is most of those that are not zero.
        moments: of scaled features, their means and standard deviations; None where they are not asked for, or not yet.
    """

    exponents: tuple[int, ...]
    missing: tuple[int, ...] = ()
    coarse: tuple[int, ...] = ()
    moments: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def without_spread(self) -> tuple[int, ...]:
        """Features that have one value other than 0 in all rows, as far as their format tells; known with moments.

        They are constants, or differ by less than their format keeps, as 1e9 + {0, 1, 2} does.
        """
        means, deviations = self.moments or ((), ())
        pairs = enumerate(zip(means, deviations, strict=True))
        return tuple(place for place, (mean, deviation) in pairs if mean and deviation == NO_SPREAD)

    @property
    def received(self) -> list[bytes]:
        """The bytes of all of it, as clients receive it."""
        found = [np.array(one, dtype="<i8").tobytes() for one in (self.exponents, self.missing, self.coarse)]
        return found + [np.array(one, dtype="<f8").tobytes() for one in self.moments or ()]

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it as arrays by name."""
        names = ("exponents", "missing", "coarse")
        found: dict[str, NDArray[Any]] = {
            f"columns.{name}": np.array(getattr(self, name), dtype=np.int64) for name in names
        }
        return found if self.moments is None else found | {"columns.moments": np.array(self.moments)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler:
    """A scaling of columns that one sum agrees on, or two: a slot of ``Pipeline``.

    The learner's formats of features, and of real targets, are those of columns below one: ``Q0.f``
    (``agreed_format``); its ``feature_bound`` is 1, its thresholds lie between -1 and 1.

    Args:
        agreement: how columns become alike.
        fill: whether missing features (NaN) are counted and become 0 as they were agreed, which is their mean where
            columns are standardised; without it rows that have some are refused.
        headroom: bits by which values may be larger than those of the first sum. A site that was not in it, or joins
            late, has no other room.

    Raises:
        SpecificationError: no headroom from 0 to 8.

    Example:
        >>> Scaler(agreement="standardised").agreement.n_sums
        2
    """

    agreement: Agreement = Agreement.AGREED
    fill: bool = False
    headroom: int = 0

    def __post_init__(self) -> None:
        settle_whole_numbers(self, "headroom")
        object.__setattr__(self, "agreement", Agreement(self.agreement))
        if not 0 <= self.headroom <= FEWEST_BITS:
            raise SpecificationError(f"headroom is 0 to {FEWEST_BITS} bits, not {self.headroom}")

    @staticmethod
    def check(head: Any) -> None:
        """Refuse a learner of other formats, or that scales columns by itself.

        Raises:
            SpecificationError: which.
        """
        if not is_linear(head):
            return
        formats = [one for one in (head.feature_format, head.target_format) if one != LABELS]
        if any(one.integer_bits or not one.signed for one in formats):
            raise SpecificationError(
                f"columns that are agreed lie between -1 and 1 in signed formats Q0.f, not in "
                f"{', '.join(map(str, formats))}: take agreed_format(max_rows)"
            )
        if head.row_map is not None or (head.columns and any(head.columns.exponents)):
            raise SpecificationError("columns are scaled by what is agreed; leave the row map, or other scales, out")

    # --- its sums -------------------------------------------------------------------------------------------

    def next_sum(self, found: Columns | None, head: Any) -> TallySpec | None:
        """The exponents, the moments where columns are standardised, then nothing more."""
        if found is None:
            return self.exponents_spec(head)
        is_due = self.agreement is Agreement.STANDARDISED and found.moments is None
        return self.moments_spec(head) if is_due else None

    @staticmethod
    def exponents_spec(head: Any) -> TallySpec:
        """The first sum: counts of missing values, of zeros and of each exponent, column by column."""
        return TallySpec(
            shapes={"exponents": (_n_columns(head), CELLS)},
            bounds={"exponents": head.max_rows},
            max_rows=head.max_rows,
            partitions=("exponents",),
        )

    @staticmethod
    def moments_spec(head: Any) -> TallySpec:
        """The second sum: of scaled features the values that are there, their sum and the sum of their squares."""
        n, largest = head.max_rows, (1 << _bits(head)) - 1
        return TallySpec(
            shapes=dict.fromkeys(("present", "sums", "squares"), (head.n_features,)),
            bounds={"present": n, "sums": n * largest, "squares": n * largest**2},
            max_rows=n,
        )

    def client_statistics(self, found: Columns | None, rows: ClientRows, head: Any) -> Tallies:
        """One client's counts, or its moments.

        Raises:
            RowsOutsideFormatError: missing values without ``fill``, infinity, values from 2^64 on, or larger ones than
                the first sum's clients had.
        """
        if found is None:
            return {"exponents": self._counted(rows, head), "count": np.array(len(rows))}
        scaled = replace(self.map(found, head), fill=None).features(rows.features)
        is_there = ~np.isnan(scaled)
        if not (self.fill or is_there.all()):
            raise RowsOutsideFormatError(
                f"{int(np.count_nonzero(~is_there))} values are missing (NaN), and this agreement fills none: repair "
                "them",
                n_rows=int(np.count_nonzero(~is_there.all(axis=1))),
                largest=0.0,
            )
        row_format = RowFormat(integer_bits=0, fraction_bits=_bits(head))
        units = row_format.quantise(np.where(is_there, scaled, 0.0)).astype(np.int64)
        present = is_there.sum(axis=0)
        sums, squares = units.sum(axis=0), (units * units).sum(axis=0)
        return {"present": present, "sums": sums, "squares": squares, "count": np.array(len(rows))}

    def _counted(self, rows: ClientRows, head: Any) -> NDArray[np.int64]:
        d, c = head.n_features, _n_columns(head) - head.n_features
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
            is_refused[:, d:] |= is_missing[:, d:]
        if is_refused.any():
            raise _refusal(values, is_refused)
        exponents = np.frexp(values)[1].clip(LOWEST, HIGHEST) - LOWEST + 2
        places = np.where(is_missing, 0, np.where(values == 0, 1, exponents))
        cells = places + CELLS * np.arange(values.shape[1])
        counts = np.bincount(cells.ravel(), minlength=CELLS * values.shape[1])
        return counts.astype(np.int64).reshape(-1, CELLS)

    def update(self, found: Columns | None, total: Tallies, head: Any) -> Columns:
        """The scales, or beside them means and deviations.

        Raises:
            InvalidRowsError: a column that cannot be standardised.
        """
        if found is None:
            return self._scaled(total["exponents"], head)
        found = replace(found, moments=_moments(total, _bits(head)))
        _ = _range(found, head)
        return found

    def _scaled(self, counts: NDArray[np.int64], head: Any) -> Columns:
        d = head.n_features
        missing, sizes = counts[:d, 0], counts[:, 2:]
        is_found = sizes > 0
        largest = np.where(is_found.any(axis=1), CELLS - 3 - is_found[:, ::-1].argmax(axis=1) + LOWEST, -self.headroom)
        exponents = largest + self.headroom
        kept = np.arange(LOWEST, HIGHEST + 1) - exponents[:d, None] + _bits(head)
        kept[:, 0] = 0  # what is counted as one lies anywhere below
        few = np.where(kept < FEWEST_BITS, sizes[:d], 0).sum(axis=1)
        coarse = np.where(2 * few > sizes[:d].sum(axis=1), few, 0)
        return Columns(
            exponents=tuple(exponents.tolist()), missing=tuple(missing.tolist()), coarse=tuple(coarse.tolist())
        )

    @staticmethod
    def exact_total(found: Columns | None, total: Tallies) -> Statistics | IntVector:
        """Return what release gates judge: the counts of the first sum, the rows of the sum of moments."""
        if found is not None:
            return Statistics.of_counts(int(total["count"]))
        counts: IntVector = total["exponents"].ravel()
        return counts

    # --- what they lead to ----------------------------------------------------------------------------------

    def map(self, found: Columns, head: Any) -> ColumnMap:
        """The map that rows go through before the learner."""
        d, moments = head.n_features, found.moments
        centres, factors = None, None
        if moments is not None:
            further = 0 if _widened(head, 0) is not None else _range(found, head)
            centres, factors = moments[0], tuple(math.ldexp(1.0 / one, -further) for one in moments[1])
        return ColumnMap(
            exponents=found.exponents[:d],
            target_exponents=found.exponents[d:],
            centres=centres,
            factors=factors,
            fill=self.fill or None,
        )

    @staticmethod
    def fitted(found: Columns, head: Any) -> Any:
        """The learner of columns that went through the map, in the format that they then need.

        Standardised columns reach beyond one: a linear learner's format and DeepAFL's bound are then wider; for others
        all columns are divided by one power of two.
        """
        wider = _widened(head, bits) if (bits := _range(found, head)) else None
        return head if wider is None else wider

    def losses(self, found: Columns, head: Any) -> tuple[float, ...]:
        """By how much an entry of each column moves at most, in the features' own units; rounding aside.

        Of a learner with formats of its own it is what the columns are told apart by before it begins.
        """
        bits = _bits(head) - _range(found, head) if is_linear(head) else _bits(head)
        return tuple(math.ldexp(unit, -bits) for unit in self.map(found, head).units)

    def unresolved(self, found: Columns, head: Any, features: NDArray[Any]) -> tuple[int, ...]:
        """Name the columns whose losses leave less than 8 bits of their deviation in these rows, a client's own.

        A total cannot: in it 1e9 + {0, 1, 2} is a constant. An offset that is taken off before cures it.
        """
        if not len(features) or features.shape[1:] != (head.n_features,):
            return ()
        least = np.ldexp(np.array(self.losses(found, head)), FEWEST_BITS)
        return tuple(place for place, own in enumerate(features.T) if 0 < _deviation(own) < least[place])

    def evaluation_format(self, found: Columns, head: Any) -> RowFormat:
        """The format in which real targets of the agreed size are judged (``evaluation_of``), or ``LABELS``.

        Raises:
            SpecificationError: targets so small or so large that no such format holds them.
        """
        if head.target_format == LABELS:
            return LABELS
        exponents = self.map(found, head).target_exponents
        if min(exponents) < FEWEST_BITS - MAX_BITS // 2 or max(exponents) > MAX_BITS // 2:
            raise SpecificationError(
                f"targets are judged from 2^{FEWEST_BITS - MAX_BITS // 2} to 2^{MAX_BITS // 2}, and these are below "
                f"2^{min(exponents)} to 2^{max(exponents)}: give them in another unit"
            )
        integer_bits = max(0, *exponents)
        return RowFormat(integer_bits=integer_bits, fraction_bits=MAX_BITS - integer_bits)

    def put_together(self, parts: Parts, head: Any) -> Columns | None:
        """Return the facts about columns in these parts; None if there are none."""
        if "columns.exponents" not in parts:
            return None
        d = head.n_features
        sizes = {"exponents": _n_columns(head), "missing": d, "coarse": d}
        found = Columns(**{name: tuple(parts.integers(f"columns.{name}", (n,)).tolist()) for name, n in sizes.items()})
        if self.agreement is Agreement.AGREED or "columns.moments" not in parts:
            return found
        means, deviations = parts.floats("columns.moments", (2, d)).tolist()
        if min(deviations) <= 0:
            raise SpecificationError("standard deviations are above 0")
        return replace(found, moments=(tuple(means), tuple(deviations)))


def is_linear(head: Any) -> bool:
    """Return whether a learner is a linear map of the features themselves: its format then follows what is agreed."""
    return isinstance(head, AFL) and head.lift is None


def _widened(head: Any, bits: int) -> Any:
    """The learner of columns that reach up to 2^bits; None where they must stay below one."""
    return head.widened(bits) if hasattr(head, "widened") else None


def _bits(head: Any) -> int:
    """Fraction bits of scaled columns."""
    own = head.feature_format if is_linear(head) else agreed_format(head.max_rows)
    return int(own.fraction_bits)


def _n_columns(head: Any) -> int:
    return int(head.n_features + (0 if head.target_format == LABELS else head.n_targets))


def _moments(total: Tallies, bits: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Means and standard deviations of scaled features: exact rationals, rounded, and a square root rounded once.

    A column without spread, or without values, has the deviation 1, which none below one can have.
    """
    columns = list(zip(*(total[name].tolist() for name in ("present", "sums", "squares")), strict=True))
    means = tuple(float(Fraction(s, n << bits)) if n else 0.0 for n, s, _ in columns)
    variances = (Fraction(n * q - s * s, n * n << 2 * bits) if n else Fraction(0) for n, s, q in columns)
    return means, tuple(math.sqrt(variance) if variance else NO_SPREAD for variance in variances)


def _range(found: Columns, head: Any) -> int:
    """Integer bits that hold every standardised value."""
    if found.moments is None:
        return 0
    reach = [(1 + abs(mean)) / deviation for mean, deviation in zip(*found.moments, strict=True)]
    bits = [math.frexp(one)[1] for one in reach]
    most = _bits(head) - FEWEST_BITS
    if wrong := [str(place) for place, own in enumerate(bits) if own > most]:
        raise InvalidRowsError(
            f"standardised values of columns {', '.join(wrong)} need more than {most} integer bits, so that fewer than "
            f"{FEWEST_BITS} would be left of a deviation: these columns vary little compared with their size; "
            "subtract a public round number first (an offset), or leave them out"
        )
    return max(bits)


def _deviation(values: NDArray[Any]) -> float:
    """Return the standard deviation of the values that are there, of which a constant has exactly none."""
    there = values[~np.isnan(values)].astype(np.float64)
    return float(np.std(there - there[0])) if len(there) else 0.0


def _refusal(values: FloatMatrix, is_refused: NDArray[np.bool_]) -> RowsOutsideFormatError:
    bad, finite = int(is_refused.any(axis=1).sum()), np.isfinite(values)
    columns = ", ".join(map(str, np.flatnonzero(is_refused.any(axis=0)).tolist()))
    broken = int((~finite & is_refused).any(axis=1).sum())
    held = [f"{broken} of {len(values)} rows hold NaN or infinity"] * bool(broken)
    held += [f"{bad - broken} of {len(values)} rows hold a value from 2^{HIGHEST} on"] * (bad > broken)
    fill = "; a scaler with fill=True counts and fills missing features" if np.isnan(values[is_refused]).any() else ""
    return RowsOutsideFormatError(
        f"{' and '.join(held)} (columns {columns}, targets after the features): repair or leave out these rows{fill}",
        n_rows=bad,
        largest=float(np.max(np.abs(values), where=finite, initial=0.0)),
    )
