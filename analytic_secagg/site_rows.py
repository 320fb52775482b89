"""Rows as programs have them: arrays and data frames of several sites, checked before any learner sees them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows
from analytic.row_format import refuse_mask
from analytic.shape_repr import shape_repr
from analytic_secagg.doubts import FEW_ROWS, are_amounts
from analytic_secagg.errors import UsageError
from analytic_secagg.site.table_files import is_missing
from analytic_secagg.spelling import tidy
from secagg import PartyId

KINDS = {"b": "whole numbers", "i": "whole numbers", "u": "whole numbers", "f": "floats", "U": "texts", "O": "objects"}
"""Words for the kinds of targets."""

Site = ClientRows | tuple[Any, ...]
"""One site's rows: ``(X, y)``, ``(X, y, weights)`` or ``ClientRows``."""


def site_rows(name: Any, site: Any) -> ClientRows:
    """Return one site's rows, their targets as they came, but for white space.

    Raises:
        UsageError: they are none.
        analytic.errors.InvalidRowsError: masked arrays, or weights that are no whole numbers.
    """
    if isinstance(site, ClientRows):
        matrix(f"features of sites[{name!r}]", site.features)
        return site
    if not isinstance(site, tuple) or len(site) not in (2, 3):
        raise UsageError(f"sites[{name!r}] must be (X, y), (X, y, weights) or ClientRows, not {type(site).__name__}")
    index, other = (list(getattr(own, "index", ())) if hasattr(own, "iloc") else [] for own in site[:2])
    if index != other and len(index) == len(other) and {*map(str, index)} == {*map(str, other)}:
        raise UsageError(
            f"sites[{name!r}] has X and y whose indices are the same in another order, so that rows would have others' "
            "targets: give y.loc[X.index]"
        )
    features, targets = matrix(f"X of sites[{name!r}]", site[0]), _targets(f"y of sites[{name!r}]", site[1])
    if len(features) != len(targets):
        raise UsageError(f"sites[{name!r}] must have one y for each row of X, not {len(targets)} for {len(features)}")
    return ClientRows(features, targets, np.asarray(site[2]) if len(site) > 2 else None)


def with_targets(rows: ClientRows, targets: NDArray[Any]) -> ClientRows:
    """Return the same rows with other targets."""
    return ClientRows(rows.features, targets, rows.weights)


def matrix(what: str, X: Any) -> NDArray[Any]:
    """Return an array of numbers, shape (n, d): of an array, or of a data frame, nullable columns included.

    Raises:
        UsageError: it is none.
    """
    if hasattr(X, "toarray"):
        raise UsageError(f"{what} must be an array, not a sparse matrix: give X.toarray()")
    found = _array(what, X)
    if found.dtype.kind == "O" and found.ndim == 2:
        found = _of_columns(what, X) if hasattr(X, "iloc") else _of_objects(what, found)
    if found.ndim != 2 or found.dtype.kind not in "biuf":
        raise UsageError(f"{what} must be numbers of shape (n, d), not {found.dtype} of shape {found.shape}")
    return found


def _array(what: str, own: Any) -> NDArray[Any]:
    refuse_mask(own)
    try:
        return np.asarray(own)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"{what} must be an array, and cannot be made one ({type(error).__name__}): give rows of one length, and "
            "of a tensor with gradients X.detach()"
        ) from None


def _of_columns(what: str, frame: Any) -> NDArray[Any]:
    """Return the numbers of a data frame of pandas whose columns have several types, or missing values of their own."""
    columns = [frame.iloc[:, place] for place in range(frame.shape[1])]
    others = [
        f"{name} ({own.dtype})"
        for name, own in zip(names_of(frame) or (), columns, strict=True)
        if getattr(own.dtype, "kind", "O") not in "biuf"
    ]
    if others:
        raise UsageError(
            f"{what} must hold numbers, and {', '.join(others)} not: encode such columns, leave them out, or read "
            "the frame by a schema (analytic_secagg.site.table.TableSchema.rows_of_frame)"
        )
    return np.column_stack([own.to_numpy(dtype=np.float64, na_value=np.nan) for own in columns])


def _of_objects(what: str, found: NDArray[Any]) -> NDArray[Any]:
    """Return an array of numbers of Python as float64; another one as it is."""
    if not all(isinstance(one, Real | Decimal) for one in found.flat):
        return found
    try:
        return found.astype(np.float64)
    except OverflowError:
        raise UsageError(f"{what} must hold numbers below 1.8e308, as float64 does: correct others") from None


def _targets(what: str, y: Any) -> NDArray[Any]:
    found = _array(what, y)
    missing = np.asarray(y.isna()) if hasattr(y, "isna") else np.array([is_missing(one) for one in found.ravel()])
    if missing.any():
        raise UsageError(
            f"{what} must have a target in each row, and {int(missing.sum())} of {len(found)} are missing: leave these "
            "rows out"
        )
    if found.dtype.kind == "O" and all(isinstance(one, str) for one in found.flat):
        found = found.astype(str)
    elif found.dtype.kind == "O" and all(isinstance(one, Integral) for one in found.flat):
        if not all(-(2**63) <= one < 2**63 for one in found.flat):
            raise UsageError(f"{what} must have labels that 64 bits hold, or texts: give larger whole numbers as texts")
        found = found.astype(np.int64)
    if found.ndim == 2 and found.shape[1] == 1 and found.dtype.kind != "f":
        found = found[:, 0]
    if found.dtype.kind == "U":
        found = np.array([tidy(one) for one in found.ravel().tolist()], dtype=np.str_).reshape(found.shape)
    return found


def refuse_unfit(name: Any, rows: ClientRows, columns: Sequence[str] | None, limit: float = math.inf) -> None:
    """Refuse a site's rows that hold NaN or infinity, or features or real targets from a limit on.

    Raises:
        UsageError: how many rows, and which columns.
    """
    below = "" if limit == math.inf else f" below {limit:.6g}"
    for what, own in (("X", rows.features), *([("y", rows.targets)] if rows.targets.dtype.kind == "f" else [])):
        if not (fine := np.abs(own) < limit).all():  # neither NaN nor infinity is below infinity
            bad = fine.reshape(len(own), -1)
            places = np.flatnonzero(~bad.all(axis=0)).tolist()
            named = [columns[place] if columns and what == "X" else str(place) for place in places]
            n_bad = int((~bad.all(axis=1)).sum())
            raise UsageError(
                f"{what} of sites[{name!r}] must hold finite numbers{below}, and {n_bad} of {len(own)} rows do not "
                f"(columns {', '.join(named)}): repair these rows or leave them out"
            )


def names_of(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a data frame; None for an array."""
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    return None if names is None else tuple(map(str, names))


def columns_of(sites: Mapping[Any, Site], rows: Mapping[PartyId, ClientRows]) -> tuple[str, ...] | None:
    """Return the names of the features, which must be the same at all sites, as their number must."""
    widths = {own.features.shape[1]: name for name, own in zip(sites, rows.values(), strict=True)}
    if len(widths) > 1:
        said = ", ".join(f"{width} at {name!r}" for width, name in widths.items())
        raise UsageError(f"sites must have the same columns, and their X have {said}")
    named = {names_of(site[0]): name for name, site in sites.items() if isinstance(site, tuple)}
    named.pop(None, None)
    if len(named) > 1:
        said = "; ".join(f"at {name!r} {', '.join(names or ())}" for names, name in named.items())
        raise UsageError(f"sites must have the same columns in the same order: {said}")
    return next(iter(named), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The targets of all sites, and their kind.

    Args:
        targets: as they came, by site.
        classes: the class labels; None for real targets and several classes a row.
        is_real: whether they are real targets.
        is_flat: whether real targets came as vectors.
    """

    targets: Mapping[Any, NDArray[Any]] = field(default_factory=dict)
    classes: tuple[Any, ...] | None = None
    is_real: bool = False
    is_flat: bool = False

    __repr__ = shape_repr

    @classmethod
    def of(cls, targets: Mapping[Any, NDArray[Any]], classes: Sequence[Any] | None) -> Labels:
        """Look at the targets of all sites, which have rows."""
        held = {name: own for name, own in targets.items() if len(own)}
        if not held:
            raise UsageError("sites must have rows, and none has one")
        shapes = {own.shape[1:] for own in held.values()}
        if len(shapes) != 1:
            raise UsageError("sites must have y of one shape, vectors or matrices with as many columns")
        is_flat = shapes == {()}
        kinds = {name: KINDS.get(own.dtype.kind, str(own.dtype)) for name, own in held.items()}
        if classes is None and len({*kinds.values()}) > 1:
            several = {kind: name for name, kind in kinds.items()}
            said = ", ".join(f"{kind} at {name!r}" for kind, name in several.items())
            raise UsageError(
                f"y must be of one kind at all sites, and is {said}: give labels as whole numbers or texts and real "
                "targets as floats, or state classes"
            )
        if classes is None and any(own.dtype.kind == "f" for own in held.values()):
            return cls(targets=targets, is_real=True, is_flat=is_flat)
        if not is_flat:
            return cls(targets=targets)
        found = {label for own in held.values() for label in own.tolist()}
        if classes is None:
            if len(found) < 2:
                raise UsageError("y must have at least two classes, and all rows have the same: state all classes")
            numbers = [own for own in held.values() if own.dtype.kind in "iu"]
            if len(numbers) == len(held) and are_amounts(np.unique(np.concatenate(numbers), return_counts=True)[1]):
                raise UsageError(
                    f"y must be labels or floats, and its whole numbers would be {len(found)} classes, most of fewer "
                    f"than {FEW_ROWS} rows: give amounts as floats (y.astype(float)), or state classes"
                )
            try:
                return cls(targets=targets, classes=tuple(sorted(found)))
            except TypeError as error:
                raise UsageError("y must be labels of one type: texts and numbers do not sort") from error
        if len(set(classes)) < len(classes) or (unknown := found - set(classes)):
            raise UsageError(f"classes must name every label once, and {len(unknown)} of y are missing there")
        return cls(targets=targets, classes=tuple(classes))

    @property
    def n_targets(self) -> int:
        """Classes, or columns of targets."""
        if self.classes is not None:
            return len(self.classes)
        return next(own.shape[1] if own.ndim > 1 else 1 for own in self.targets.values() if len(own))

    def encoded(self, name: Any) -> NDArray[Any]:
        """Return a site's targets as learners take them."""
        own = self.targets[name]
        if self.classes is not None:
            places = {label: place for place, label in enumerate(self.classes)}
            return np.array([places[label] for label in own.tolist()], dtype=np.int64)
        return own.reshape(len(own), self.n_targets) if self.is_real else own
