"""Doubts about rows that somebody gave: what they may have been meant as, where they are taken otherwise.

They are sentences for whoever gave the rows. Of features they hold no value but public codes for a missing one.
``names`` are of the columns of ``features``, shape (n, d), which a mapping has by site; labels have shape (n,).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows
from analytic.row_format import ends
from analytic_secagg.site.odd_values import codes_apart
from analytic_secagg.site.offsets import proposed_offset
from analytic_secagg.site.table_look import MISSING_NUMBERS
from analytic_secagg.spelling import loose

FEW_ROWS, MANY_VALUES = 5, 20
"""Of a class, with which nothing is learned; and different values that are rather amounts than classes."""

REPEATED_PART = 0.05
"""Of test rows that may happen to be training rows too."""
FEW_COLUMNS = 16
"""In which rows are compared first: those of most data sets differ there."""

MOSTLY = 0.8
"""Part of test rows of one class, from which on accuracy says little."""

GAINED = 0.05
"""Part of the training rows that an intercept finds, and that is worth saying."""

MOST_ROWS, MOST_COLUMNS = 2000, 256
"""Of which an intercept's gain, and columns that tell the target, are looked for."""

TELLING, FEWEST_ROWS = 0.98, 50
"""Part of so many rows or more whose class one column tells by itself, from which on it is hardly a measurement."""


def of_spelling(classes: Sequence[Any] | None, kind: str = "class") -> Iterator[str]:
    """Yield the classes, or sites, that are one text in several spellings."""
    spelt = defaultdict(list)
    for name in classes or ():
        if isinstance(name, str):
            spelt[loose(name)].append(name)
    for names in spelt.values():
        if len(names) > 1:
            yield f"{', '.join(map(repr, names))} are taken for a {kind} each, and may be one in several spellings"


def of_features(names: Sequence[str], features: NDArray[Any]) -> Iterator[str]:
    """Yield the columns in which a public code for a missing value lies apart from all others."""
    if not len(features):
        return
    for place in np.flatnonzero(np.isin(ends(features, axis=0), [*MISSING_NUMBERS]).any(axis=0)).tolist():
        for value, often in codes_apart(features[:, place]):
            yield (
                f"column {names[place]}: {value:g} ({often} rows) lies apart from all other values: if it stands "
                "for a missing one, repair these rows or leave them out"
            )


def of_telling(names: Sequence[str], features: NDArray[Any], targets: NDArray[Any]) -> Iterator[str]:
    """Yield the columns that tell the target by themselves, cut once, where the commonest class does not."""
    if len(features) < FEWEST_ROWS or features.shape[1] > MOST_COLUMNS or (targets.ndim > 1 and targets.shape[1] > 1):
        return
    step = -(-len(features) // MOST_ROWS)
    rows, own = np.asarray(features[::step], dtype=np.float64), targets[::step].reshape(-1)
    known = "if it is known only together with the target, take it out"
    if targets.dtype.kind == "f":
        for name, column in zip(names, rows.T, strict=True):
            if column.std() > 0 < own.std() and abs(np.corrcoef(column, own)[0, 1]) > 1 - (1 - TELLING) / 10:
                yield f"column {name} is the target but for its unit, or nearly: {known}"
        return
    is_of = own[:, None] == np.unique(own)
    if is_of.mean(axis=0).max() > 1 - 5 * (1 - TELLING):
        return
    for name, column in zip(names, rows.T, strict=True):
        order = np.argsort(column, kind="stable")
        below = is_of[order].cumsum(axis=0)[np.flatnonzero(np.diff(column[order]))]
        found = (below.max(axis=1) + (is_of.sum(axis=0) - below).max(axis=1)).max(initial=0) / len(own)
        if found >= TELLING:
            yield f"column {name} by itself tells {found:.0%} of the rows' classes: {known}"


def of_sizes(names: Sequence[str], columns: NDArray[Any]) -> Iterator[str]:
    """Yield the features, or real targets, of which a format keeps next to nothing, with an offset where one helps."""
    for name, own in zip(names, columns.T, strict=True):
        offset = proposed_offset(own)
        mend = (
            "give it in a larger unit" if offset is None else f"take a public round number off, such as {offset:.12g}"
        )
        yield f"{name} has values of which its format keeps less than 8 bits: {mend}"


def of_origin(features: NDArray[Any], labels: NDArray[Any], n_classes: int) -> Iterator[str]:
    """Yield whether a linear model without an intercept misses what one with an intercept finds.

    Float64 least squares on some of the training rows; a column of ones, or many columns, make it needless.
    """
    if not len(features) or features.shape[1] > MOST_COLUMNS:
        return
    step = -(-len(features) // MOST_ROWS)
    rows = np.asarray(features[::step], dtype=np.float64)
    rows = rows / np.maximum(np.abs(rows).max(axis=0), np.finfo(np.float64).tiny)
    own = labels[::step]
    found = []
    for columns in (rows, np.column_stack([rows, np.ones(len(rows))])):
        weights = np.linalg.lstsq(columns, np.eye(n_classes)[own], rcond=None)[0]
        found.append(float(((columns @ weights).argmax(axis=1) == own).mean()))
    if found[1] - found[0] > GAINED:
        yield (
            f"a linear model without an intercept finds {found[0]:.0%} of these rows' labels, and one with an "
            f"intercept {found[1]:.0%}: state intercept, or standardise columns"
        )


def of_lone_columns(names: Sequence[str], features: Mapping[Any, NDArray[Any]]) -> Iterator[str]:
    """Yield the columns that are 0 but at one site: their lines of a total's Gram are sums of its rows alone."""
    held = {name: np.asarray(own).any(axis=0) for name, own in features.items() if len(own)}
    if len(held) < 2:
        return
    lone, alone = np.stack(list(held.values())), defaultdict(list)
    for place in np.flatnonzero(lone.sum(axis=0) == 1).tolist():
        alone[list(held)[int(lone[:, place].argmax())]].append(names[place])
    for site, columns in alone.items():
        which = f"column{'s' * (len(columns) > 1)} {', '.join(columns)}"
        yield (
            f"{which}: 0 at all sites but {site}, so that the total shows sums of rows of {site} alone to "
            "whoever sees it, in every mode: leave such columns out, or join categories"
        )


def of_sites(names: Sequence[str], features: Mapping[Any, NDArray[Any]]) -> Iterator[str]:
    """Yield the columns of which one site's values lie apart from all others', as where it has another unit."""
    held = {name: np.asarray(own, dtype=np.float64) for name, own in features.items() if len(own)}
    if len(held) < 3:
        return
    lowest, highest = (np.stack([end(own, axis=0) for own in held.values()]) for end in (np.min, np.max))
    for at, (name, own) in enumerate(held.items()):
        middle = np.median(own, axis=0)
        others = np.arange(len(held)) != at
        apart = (middle < lowest[others].min(axis=0)) | (middle > highest[others].max(axis=0))
        varies = (highest > lowest).all(axis=0)
        for place in np.flatnonzero(apart & varies).tolist():
            yield (
                f"column {names[place]} of site {name!r} lies beyond all values of the other sites: another unit, or "
                "another order of columns, perhaps"
            )


def of_copies(sites: Mapping[Any, ClientRows]) -> Iterator[str]:
    """Yield the sites that have the same rows."""
    known: dict[bytes, Any] = {}
    for name, own in sites.items():
        digest = hashlib.sha256(own.features.tobytes() + own.targets.tobytes()).digest()
        other = known.setdefault(digest, name)
        if other != name and len(np.unique(own.features, axis=0)) > MANY_VALUES:
            yield f"sites {other!r} and {name!r} have the same rows, which then count twice"


def of_codings(labels: Mapping[Any, NDArray[Any]]) -> Iterator[str]:
    """Yield the sites that have a label which no other has, and lack one that all others have."""
    held = {name: {*own.tolist()} for name, own in labels.items() if len(own)}
    for name, own in held.items():
        others = [labels for other, labels in held.items() if other != name]
        if len(others) > 1 and own - set.union(*others) and set.intersection(*others) - own:
            yield (
                f"site {name!r} has labels that no other site has, and lacks one that all others have: it codes its "
                "classes otherwise, perhaps"
            )


def of_test(train: NDArray[Any], test: NDArray[Any]) -> Iterator[str]:
    """Yield whether test rows are training rows too."""
    few = slice(None, None, max(1, train.shape[1] // FEW_COLUMNS))  # rows that are alike are so in these columns too
    for columns in (few, slice(None)):
        known = {*_bytes_of(train[:, columns])}
        repeated = sum(row in known for row in _bytes_of(test[:, columns]))
        if repeated <= REPEATED_PART * len(test):
            return
    among_themselves = (len(train) - len(known)) / len(train)  # as in tables of a few categories
    if repeated > max(REPEATED_PART, 2 * among_themselves) * len(test):
        yield (
            f"{repeated} of {len(test)} test rows have the features of a training row: on these a model is not tested, "
            "and a figure over all test rows is too good"
        )


def _bytes_of(rows: NDArray[Any]) -> list[bytes]:
    """Each row's bytes."""
    whole = np.dtype((np.void, rows.shape[1] * rows.itemsize))
    found: list[bytes] = np.ascontiguousarray(rows).view(whole)[:, 0].tolist()
    return found


def of_balance(test: NDArray[Any]) -> Iterator[str]:
    """Yield whether test rows are nearly all of one class, so that a high accuracy means little."""
    if test.ndim == 1 and len(test):
        part = float(np.unique(test, return_counts=True)[1].max()) / len(test)
        if part >= MOSTLY:
            yield (
                f"{part:.0%} of the test rows are of one class: whoever always says it is as often right, so look at "
                "recall, or the area under the curve, and not at accuracy"
            )


def are_amounts(counted: NDArray[Any]) -> bool:
    """Return whether labels with so many rows each are many, most of them of few rows, as amounts are."""
    return len(counted) > MANY_VALUES and bool(np.median(counted) < FEW_ROWS)


def of_targets(name: str, train: NDArray[Any], test: NDArray[Any]) -> Iterator[str]:
    """Yield what targets may have been meant as."""
    values, counted = np.unique(train, return_counts=True)
    n_classes, is_float = len(values), train.dtype.kind == "f"
    if train.ndim == 2 and train.shape[1] > 1 and np.isin(train, (0, 1)).all() and (train.sum(axis=1) == 1).all():
        taken = "real targets" if is_float else "classes of which a row may have several"
        yield (
            f"each row of {name} is one 1 among zeros and is taken for {train.shape[1]} {taken}: if it is one class a "
            "row (one-hot), give y.argmax(axis=1)"
        )
    elif is_float and train.shape[1] == 1 and n_classes <= MANY_VALUES and (values == np.rint(values)).all():
        if np.median(counted) >= FEW_ROWS:
            yield (
                f"{name} holds floats and is taken for a real target, and its {n_classes} different values are whole "
                f"numbers from {values[0]:g} to {values[-1]:g}: if they are classes, give whole numbers (astype(int))"
            )
    elif train.ndim == 1:
        if are_amounts(counted):
            yield (
                f"{name} holds whole numbers and is taken for {n_classes} classes, of which most have fewer than "
                f"{FEW_ROWS} rows: if they are amounts, give floats"
            )
        if unseen := len(np.setdiff1d(test, train)):
            yield (
                f"{unseen} of the classes occur in the test rows alone: no model can find them, and each of their rows "
                "counts as wrong"
            )
