"""Rows as programs have them: arrays and data frames of several sites, checked before any learner sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows
from analytic_secagg.errors import UsageError
from secagg import PartyId

Site = ClientRows | tuple[Any, ...]
"""One site's rows: ``(X, y)``, ``(X, y, weights)`` or ``ClientRows``."""


def site_rows(name: Any, site: Any) -> ClientRows:
    """Return one site's rows, their targets as they came."""
    if isinstance(site, ClientRows):
        return site
    if not isinstance(site, tuple) or len(site) not in (2, 3):
        raise UsageError(f"sites[{name!r}] must be (X, y), (X, y, weights) or ClientRows, not {type(site).__name__}")
    features, targets = matrix(f"X of sites[{name!r}]", site[0]), np.asarray(site[1])
    if len(features) != len(targets):
        raise UsageError(f"sites[{name!r}] must have one y for each row of X, not {len(targets)} for {len(features)}")
    return ClientRows(features, targets, np.asarray(site[2]) if len(site) > 2 else None)


def with_targets(rows: ClientRows, targets: NDArray[Any]) -> ClientRows:
    """Return the same rows with other targets."""
    return ClientRows(rows.features, targets, rows.weights)


def matrix(what: str, X: Any) -> NDArray[Any]:
    """Return an array of numbers, shape (n, d)."""
    found = np.asarray(X)
    if found.ndim != 2 or found.dtype.kind not in "biuf":
        raise UsageError(f"{what} must be numbers of shape (n, d), not {found.dtype} of shape {found.shape}")
    return found


def names_of(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a data frame; None for an array."""
    names = getattr(X, "columns", None)
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

    @classmethod
    def of(cls, targets: Mapping[Any, NDArray[Any]], classes: Sequence[Any] | None) -> Labels:
        """Look at the targets of all sites, which have rows."""
        held = {name: own for name, own in targets.items() if len(own)}
        shapes = {own.shape[1:] for own in held.values()}
        if len(shapes) != 1:
            raise UsageError("sites must have y of one shape, vectors or matrices with as many columns")
        is_flat = shapes == {()}
        if classes is None and any(own.dtype.kind == "f" for own in held.values()):
            return cls(targets=targets, is_real=True, is_flat=is_flat)
        if not is_flat:
            return cls(targets=targets)
        found = {label for own in held.values() for label in own.tolist()}
        if classes is None:
            try:
                return cls(targets=targets, classes=tuple(sorted(found)))
            except TypeError as error:
                raise UsageError("y must be labels of one type at all sites: texts and numbers do not sort") from error
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
