"""Features with class labels or real targets, split into training and test rows: scikit-learn's own, or a file's."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from analytic.errors import InvalidRowsError
from analytic.shape_repr import shape_html, shape_repr
from analytic.statistics import UNKNOWN
from analytic_secagg.errors import DataError, UsageError
from analytic_secagg.spelling import tidy

if TYPE_CHECKING:
    from analytic.learner import ClientRows

KEYS = ("x_train", "y_train", "x_test", "y_test")
WEIGHTS = "w_train"
MAX_CLASSES = 2**16
"""Labels beyond this are codes, not classes; one column of targets each would not fit into memory."""

PAIRS = (("x", "y"), ("features", "labels"), ("features", "targets"), ("data", "target"), ("data", "labels"))
"""Names that archives of rows without a split use, in any case."""

SPLIT_SEED = 0
TEST_FRACTION = 0.2
FEW_OF_A_CLASS = 10
"""Rows below which a class is not tested: a release gate refuses totals of fewer than 5 rows of a class."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sites:
    """The sites that the rows of a table are from, by a column that is no feature.

    Args:
        column: its name.
        names: the sites, in the order of their texts.
        train: the place of its site in ``names`` for each training row, shape (n,).
        test: likewise for each test row.
    """

    column: str
    names: tuple[str, ...]
    train: NDArray[np.intp]
    test: NDArray[np.intp]

    @property
    def partition(self) -> str:
        """What reports call this way to deal rows."""
        return f"column {self.column}"

    def parts(self) -> list[NDArray[np.intp]]:
        """Return the numbers of each site's training rows."""
        return [np.flatnonzero(self.train == place) for place in range(len(self.names))]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Training and test rows that have been checked: finite features, and labels from 0 on or finite targets.

    Args:
        name: what reports call it.
        x_train: features, shape (n, d), a real floating type.
        y_train: labels, shape (n,), an integer type; real targets, float64 of shape (n, c); or several classes a row,
            int64 of shape (n, c): 1, 0, and -1 where nobody says.
        x_test: features, shape (m, d).
        y_test: labels, shape (m,), or targets, shape (m, c).
        classes: what labels 0, 1, ... stand for, where that was said.
        columns: names of the features, where that was said.
        w_train: how often each training row counts, whole numbers of shape (n,); None where each counts once.
        notes: what was chosen or guessed for whoever gave the rows, in sentences.
        sites: whose rows they are, where a column says so.
        private_notes: what may be wrong with the rows, for whoever gave them and for no report: some name values.

    Raises:
        DataError: what the arrays must hold, what they hold, what to do.
    """

    name: str
    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]
    classes: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    w_train: NDArray[Any] | None = None
    notes: tuple[str, ...] = ()
    sites: Sites | None = None
    private_notes: tuple[str, ...] = ()

    __repr__ = shape_repr
    _repr_html_ = shape_html

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            _check_features(self.name, f"x_{part}", getattr(self, f"x_{part}"))
            check = _check_targets if self.is_regression else _check_several if self.is_multilabel else _check_labels
            check(self.name, f"y_{part}", getattr(self, f"y_{part}"), len(getattr(self, f"x_{part}")))
        if self.x_train.shape[1] != self.x_test.shape[1]:
            raise DataError(
                f"{self.name}: x_train and x_test must have the same number of features, not "
                f"{self.x_train.shape[1]} and {self.x_test.shape[1]}; extract both with the same backbone"
            )
        if self.y_train.ndim == 2 and self.y_train.shape[1:] != self.y_test.shape[1:]:
            raise DataError(
                f"{self.name}: y_train and y_test must be targets of one kind, not of shapes {self.y_train.shape} and "
                f"{self.y_test.shape}"
            )
        for array in self._arrays:
            array.setflags(write=False)
        try:
            _ = self.training
        except InvalidRowsError as error:
            raise DataError(f"{self.name}: w_train: {error}") from error

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        arrays = self.x_train, self.y_train, self.x_test, self.y_test
        return arrays if self.w_train is None else (*arrays, self.w_train)

    @property
    def training(self) -> ClientRows:
        """The training rows, with their weights."""
        from analytic.learner import ClientRows  # here, since commands that only name data sets do not need it

        return ClientRows(self.x_train, self.y_train, self.w_train)

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return int(self.x_train.shape[1])

    def column(self, place: int) -> str:
        """The name of a feature, or its number from 0."""
        return self.columns[place] if self.columns else str(place)

    @property
    def is_regression(self) -> bool:
        """Whether targets are real numbers."""
        return bool(self.y_train.ndim == 2 and self.y_train.dtype.kind == "f")

    @property
    def is_multilabel(self) -> bool:
        """Whether a row may have several classes."""
        return bool(self.y_train.ndim == 2 and self.y_train.dtype.kind == "i" and self.y_train.shape[1] > 1)

    @property
    def n_classes(self) -> int:
        """One more than the largest label of either part, or the columns of real targets or of several classes."""
        if self.y_train.ndim == 2:
            return int(self.y_train.shape[1])
        return max(int(max(self.y_train.max(), self.y_test.max())) + 1, len(self.classes))

    @property
    def unused_labels(self) -> int:
        """Number of labels below the largest one that no row has; each costs a column of every sum."""
        if self.y_train.ndim == 2:
            return 0
        return self.n_classes - len(np.union1d(self.y_train, self.y_test))

    @property
    def doubts(self) -> tuple[str, ...]:
        """What rows may have been meant as, where they are taken otherwise, and test rows that test nothing."""
        from analytic_secagg.doubts import (
            of_balance,
            of_features,
            of_lone_columns,
            of_spelling,
            of_targets,
            of_telling,
            of_test,
        )

        names = [self.column(place) for place in range(self.n_features)]
        return (
            *of_targets("y_train", self.y_train, self.y_test),
            *of_spelling(self.classes),
            *(of_spelling(self.sites.names, "site") if self.sites else ()),
            *(of_lone_columns(names, self.x_by_site) if self.sites else ()),
            *of_features(names, self.x_train),
            *(of_telling(names, self.x_train, self.y_train) if self.columns else ()),
            *of_test(self.x_train, self.x_test),
            *of_balance(self.y_test),
        )

    @property
    def x_by_site(self) -> dict[str, NDArray[Any]]:
        """The training features of each site; none where no column names sites."""
        if self.sites is None:
            return {}
        return {name: self.x_train[own] for name, own in zip(self.sites.names, self.sites.parts(), strict=True)}

    @property
    def strata(self) -> NDArray[Any]:
        """Strata by which partitions deal training rows, shape (n,): labels, sets of them, or tenths of a target."""
        if self.is_multilabel:
            return np.unique(self.y_train, axis=0, return_inverse=True)[1].reshape(-1)
        if not self.is_regression:
            return self.y_train
        first = self.y_train[:, 0]
        return np.searchsorted(np.quantile(first, np.linspace(0.1, 0.9, 9)), first)

    @property
    def is_nonnegative(self) -> bool:
        """Whether no feature is negative, which a simulation takes for public."""
        return bool(self.x_train.min() >= 0 and self.x_test.min() >= 0)

    @property
    def sha256(self) -> str:
        """A digest of the arrays, hexadecimal: two reports with the same digest saw the same rows."""
        digest = hashlib.sha256()
        for array in self._arrays:
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def bundled(name: str) -> Dataset:
    """One of scikit-learn's real data sets, a fifth of it (drawn with a fixed seed) for testing.

    Raises:
        UsageError: no such data set.
        DataError: it must be fetched, and cannot be.
    """
    known = BUNDLED | FETCHED
    if name not in known:
        raise UsageError(f"a bundled data set is one of {', '.join(known)}, not {name!r}; read other rows from a file")
    return split(name, *known[name]())


def split(
    name: str,
    features: NDArray[Any],
    labels: NDArray[Any],
    classes: tuple[str, ...] = (),
    columns: tuple[str, ...] = (),
    weights: NDArray[Any] | None = None,
    notes: Iterable[str] = (),
    is_kept: NDArray[np.bool_] | None = None,
    sites: tuple[str, Sequence[str]] | None = None,
) -> Dataset:
    """Return all rows, a fifth of them (drawn with a fixed seed) for testing, of those that are not kept to train.

    ``sites`` are a column and its texts, the site of each row.
    """
    order = np.random.default_rng(SPLIT_SEED).permutation(len(features))
    kept, drawn = ([], order) if is_kept is None else (order[is_kept[order]], order[~is_kept[order]])
    test, train = np.split(drawn, [round(TEST_FRACTION * len(drawn))])
    train = np.concatenate([train, kept]).astype(np.intp)
    whose, said = None, []
    if sites is not None:
        names, places = np.unique(np.array(sites[1]), return_inverse=True)
        whose = Sites(column=sites[0], names=tuple(names.tolist()), train=places[train], test=places[test])
        held = (f"{name} {len(own)}" for name, own in zip(whose.names, whose.parts(), strict=True))
        said.append(f"column {whose.column} names {len(names)} sites, with so many training rows: {', '.join(held)}")
    return Dataset(
        name=name,
        x_train=features[train],
        y_train=labels[train],
        x_test=features[test],
        y_test=labels[test],
        classes=classes,
        columns=columns,
        w_train=None if weights is None else weights[train],
        notes=(*notes, *said),
        sites=whose,
    )


def own_split(
    name: str, features: NDArray[Any], labels: NDArray[Any], *, notes: Iterable[str] = (), **known: Any
) -> Dataset:
    """Return somebody's own rows split, and say so; classes of few rows, which a total needs, are not tested."""
    is_few = np.zeros(len(features), dtype=bool)
    if labels.ndim == 1:
        _, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
        is_few = (counts[places] < FEW_OF_A_CLASS) & (counts.max() >= FEW_OF_A_CLASS)
    found = split(name, features, labels, is_kept=is_few, notes=notes, **known)
    said = f"{len(found.x_test)} of {len(features)} rows are kept for testing, drawn with seed {SPLIT_SEED}"
    few = f", none of the {int(is_few.sum())} rows of classes with fewer than {FEW_OF_A_CLASS}" if is_few.any() else ""
    baseline = []
    if labels.ndim == 1 and len(found.y_test):
        values, counted = np.unique(found.y_train, return_counts=True)
        part = float((found.y_test == values[counted.argmax()]).mean())
        baseline.append(f"whoever always says the commonest class is right in {part:.2%} of the test rows")
    return replace(found, notes=(said + few, *baseline, *found.notes))


def load_npz(path: Path) -> Dataset:
    """The data set of a numpy archive with ``x_train``, ``y_train``, ``x_test`` and ``y_test``; never unpickles.

    An archive of ``X`` and ``y``, or ``features`` and ``labels``, is split.

    ``w_train``, if it is there, says how often each training row counts: whole numbers. Targets are whole
    numbers from 0 on or texts, which are labels of classes, or floats of shape (n,) or (n, c);
    a matrix of zeros and ones (and -1 where nobody says) is several classes a row.

    Raises:
        DataError: the file cannot be read, or lacks one of the arrays, or an array is not what it must be.
    """
    arrays = _read_arrays(path)
    name = path.stem.encode(errors="backslashreplace").decode()  # a file's name may hold what no text file can
    if len(arrays) == 2:
        (x_name, features), (y_name, targets) = arrays.items()
        targets, _, classes = _numbered(targets, targets)
        if len(features) != len(targets):
            raise DataError(f"{path}: {y_name} must have one target for each of the {len(features)} rows of {x_name}")
        return own_split(
            name,
            as_float(features),
            targets,
            classes=classes,
            notes=[f"{x_name} are taken for features and {y_name} for targets"],
        )
    x_train, x_test = (as_float(arrays[key]) for key in ("x_train", "x_test"))
    y_train, y_test, classes = _numbered(arrays["y_train"], arrays["y_test"])
    return Dataset(
        name=name,
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=classes,
        w_train=arrays.get(WEIGHTS),
    )


BROKEN_ARCHIVE = (ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""Errors of numpy for an archive that is damaged, cut off, pickled or compressed in an unknown way."""


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is a pipe or device, and an npz file is read back and forth; write it to a file first")
    try:
        with path.open("rb") as file:
            return _arrays_of(path, np.load(file, allow_pickle=False))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; name an npz file that can be read") from error
    except DataError:
        raise
    except BROKEN_ARCHIVE as error:
        raise DataError(
            f"{path} is no npz archive; write one with numpy.savez(FILE, x_train=..., y_train=..., "
            "x_test=..., y_test=...)"
        ) from error


def _arrays_of(path: Path, archive: Any) -> dict[str, NDArray[Any]]:
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DataError(f"{path} holds a single array, and rows need an npz archive with {', '.join(KEYS)}")
    missing = [key for key in KEYS if key not in archive.files]
    spelt = {name.lower(): name for name in archive.files}
    if missing and (pairs := [pair for pair in PAIRS if {*pair} <= spelt.keys()]):
        if len(pairs) > 1 or WEIGHTS in spelt or {*KEYS} & spelt.keys():
            raise DataError(
                f"{path} has arrays that can be read in several ways, {', '.join(archive.files)}: name them "
                f"{', '.join(KEYS)}"
            )
        return {spelt[key]: _read_array(path, archive, spelt[key]) for key in pairs[0]}
    if missing:
        raise DataError(
            f"{path} needs the arrays {', '.join(KEYS)}; {', '.join(missing)} not found among "
            f"{', '.join(archive.files) or 'nothing'}: add them with numpy.savez; X and y alone are split"
        )
    return {key: _read_array(path, archive, key) for key in (*KEYS, WEIGHTS) if key in archive.files}


def _read_array(path: Path, archive: Any, key: str) -> NDArray[Any]:
    try:
        array = archive[key]
    except (OSError, *BROKEN_ARCHIVE) as error:
        raise DataError(
            f"{path}: {key} must be a plain array of numbers; it is damaged or pickled ({error}). Pickled objects are "
            "never loaded, since they can run code: save numbers of one dtype"
        ) from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: {key} must be an array that numpy.savez wrote; this archive holds raw bytes there")
    return array


def as_float(array: NDArray[Any]) -> NDArray[Any]:
    """Integer features (raw pixels) as float64; labels and floats as they are."""
    return array.astype(np.float64) if array.ndim == 2 and array.dtype.kind in "iub" else array


def _numbered(*targets: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], tuple[str, ...]]:
    """Training and test targets: texts numbered in their sorted order, which is given too; floats as matrices."""
    train, test = (array.astype(str) if array.dtype.kind == "S" else array for array in targets)
    if train.ndim == test.ndim == 1 and {train.dtype.kind, test.dtype.kind} == {"U"}:
        texts = [tidy(text) for text in (*train.tolist(), *test.tolist())]  # white space makes no class
        classes, places = np.unique(texts, return_inverse=True)
        return places[: len(train)], places[len(train) :], tuple(classes.tolist())
    several = all(array.ndim == 2 and array.shape[1] > 1 for array in (train, test))
    if several and all(array.dtype.kind in "iu" and np.isin(array, (0, 1, UNKNOWN)).all() for array in (train, test)):
        return train.astype(np.int64), test.astype(np.int64), ()
    if {train.dtype.kind, test.dtype.kind} == {"f"} or several:
        train, test = (
            (array.reshape(-1, 1) if array.ndim == 1 else array).astype(np.float64)
            if array.dtype.kind in "iuf"
            else array
            for array in (train, test)
        )
    return train, test, ()


def _check_targets(name: str, key: str, array: NDArray[Any], n_rows: int) -> None:
    if array.ndim != 2 or array.shape[:1] != (n_rows,) or not array.shape[1] or array.dtype.kind != "f":
        raise DataError(
            f"{name}: {key} must have shape ({n_rows}, c), real targets of each row of x{key[1:]}, not "
            f"{array.dtype} of shape {array.shape}"
        )
    if bad := int(np.count_nonzero(~np.isfinite(array).all(axis=1))):
        raise DataError(f"{name}: {key} must hold finite numbers; {bad} of {n_rows} rows do not: repair or drop them")


def _check_several(name: str, key: str, array: NDArray[Any], n_rows: int) -> None:
    if array.ndim != 2 or len(array) != n_rows or array.dtype.kind != "i" or not np.isin(array, (0, 1, UNKNOWN)).all():
        raise DataError(
            f"{name}: {key} must hold several classes of each of {n_rows} rows as in the other part, 1, 0 and -1 where "
            f"it is unknown, not {array.dtype} of shape {array.shape}"
        )


def _check_features(name: str, key: str, array: NDArray[Any]) -> None:
    if array.dtype.kind != "f":
        raise DataError(f"{name}: {key} must hold real numbers, not {array.dtype}; convert it to float32")
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(
            f"{name}: {key} must have shape (rows, features) with at least one of each, not {array.shape}; "
            "store one feature row for each example"
        )
    bad = int(np.count_nonzero(~np.isfinite(array).all(axis=1)))
    if bad:
        raise DataError(
            f"{name}: {key} must hold finite numbers; {bad} of {len(array)} rows hold NaN or "
            "infinity: repair or drop them"
        )


def _check_labels(name: str, key: str, array: NDArray[Any], n_rows: int) -> None:
    if array.shape != (n_rows,):
        raise DataError(
            f"{name}: {key} must have shape ({n_rows},), one label for each row of x{key[1:]}, not {array.shape}"
        )
    if array.dtype.kind not in "iu":
        raise DataError(
            f"{name}: {key} must hold class labels, whole numbers from 0 on or texts, in both parts alike, not "
            f"{array.dtype}; real targets are floats in both parts"
        )
    lowest, highest = int(array.min()), int(array.max())
    if lowest < 0 or highest >= MAX_CLASSES:
        raise DataError(
            f"{name}: {key} must hold labels from 0 to at most {MAX_CLASSES - 1}, not {lowest} to {highest}; renumber "
            "them, for instance with numpy.unique(return_inverse=True)"
        )


def _of_scikit_learn(name: str, *, scaled: bool) -> Callable[[], tuple[NDArray[Any], NDArray[Any]]]:
    """Return the loader of a scikit-learn data set: bundled (``load_NAME``) or fetched once (``fetch_NAME``).

    Args:
        name: of its function.
        scaled: columns differ much in size, so that each comes in units of a power of two above its largest value: one
            row format then serves all.
    """

    def made() -> tuple[NDArray[Any], NDArray[Any]]:
        from sklearn import datasets

        try:
            once = {"n_retries": 1, "delay": 0.1} if name.startswith("fetch_") else {}
            features, targets = getattr(datasets, name)(return_X_y=True, **once)
        except OSError as error:  # of urllib as well
            raise DataError(
                f"scikit-learn cannot fetch {name.removeprefix('fetch_')} ({error}): fetch it where there is a "
                "network, and bring its folder (SCIKIT_LEARN_DATA)"
            ) from error
        if scaled:
            features = np.ldexp(features, -np.frexp(np.abs(features).max(axis=0))[1])
        if targets.dtype.kind == "f":
            return features, targets.reshape(len(targets), -1)
        return features, np.unique(targets, return_inverse=True)[1]

    return made


def _diabetes() -> tuple[NDArray[Any], NDArray[Any]]:
    """Ten columns as scikit-learn scales them, in units of 1/8; the real target is a disease's progress in a year."""
    features, targets = _of_scikit_learn("load_diabetes", scaled=False)()
    return 8.0 * features, targets


BUNDLED: dict[str, Callable[[], tuple[NDArray[Any], NDArray[Any]]]] = {
    "digits": _of_scikit_learn("load_digits", scaled=False),
    "breast_cancer": _of_scikit_learn("load_breast_cancer", scaled=True),
    "diabetes": _diabetes,
    "iris": _of_scikit_learn("load_iris", scaled=False),
    "wine": _of_scikit_learn("load_wine", scaled=True),
    "linnerud": _of_scikit_learn("load_linnerud", scaled=True),
}
"""Bundled data sets by name; linnerud has three real targets."""

FETCHED: dict[str, Callable[[], tuple[NDArray[Any], NDArray[Any]]]] = {
    "california_housing": _of_scikit_learn("fetch_california_housing", scaled=True),
    "covtype": _of_scikit_learn("fetch_covtype", scaled=True),
    "olivetti_faces": _of_scikit_learn("fetch_olivetti_faces", scaled=False),
    "lfw_people": _of_scikit_learn("fetch_lfw_people", scaled=False),
}
"""Data sets that scikit-learn fetches once and keeps, by name."""
