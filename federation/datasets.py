"""Features with integer labels, split into training and test rows: bundled with scikit-learn, or from an npz file."""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from federation.errors import DataError, UsageError

KEYS = ("x_train", "y_train", "x_test", "y_test")
MAX_CLASSES = 2**16
"""Labels beyond this are codes, not classes; one column of targets each would not fit into memory."""

SPLIT_SEED = 0
TEST_FRACTION = 0.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataset:
    """Training and test rows that have been checked: finite features, labels from 0 on.

    Args:
        name: what reports call it.
        x_train: features, shape (n, d), a real floating type.
        y_train: labels, shape (n,), an integer type.
        x_test: features, shape (m, d).
        y_test: labels, shape (m,).

    Raises:
        DataError: what the arrays must hold, what they hold, what to do.
    """

    name: str
    x_train: NDArray[Any]
    y_train: NDArray[Any]
    x_test: NDArray[Any]
    y_test: NDArray[Any]

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            _check_features(self.name, f"x_{part}", getattr(self, f"x_{part}"))
            _check_labels(self.name, f"y_{part}", getattr(self, f"y_{part}"), len(getattr(self, f"x_{part}")))
        if self.x_train.shape[1] != self.x_test.shape[1]:
            raise DataError(
                f"{self.name}: x_train and x_test must have the same number of features, not "
                f"{self.x_train.shape[1]} and {self.x_test.shape[1]}; extract both with the same backbone"
            )
        for array in (self.x_train, self.y_train, self.x_test, self.y_test):
            array.setflags(write=False)

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return int(self.x_train.shape[1])

    @property
    def n_classes(self) -> int:
        """One more than the largest label of either part."""
        return int(max(self.y_train.max(), self.y_test.max())) + 1

    @property
    def is_nonnegative(self) -> bool:
        """Whether no feature is negative, which a simulation takes for public."""
        return bool(self.x_train.min() >= 0 and self.x_test.min() >= 0)

    @property
    def sha256(self) -> str:
        """A digest of the four arrays, hexadecimal: two reports with the same digest saw the same rows."""
        digest = hashlib.sha256()
        for array in (self.x_train, self.y_train, self.x_test, self.y_test):
            digest.update(f"{array.dtype.str}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def bundled(name: str) -> Dataset:
    """One of scikit-learn's bundled real data sets, a fifth of it (drawn with a fixed seed) for testing.

    Raises:
        UsageError: no such data set.
    """
    if name not in BUNDLED:
        raise UsageError(f"a bundled data set is one of {', '.join(BUNDLED)}, not {name!r}; other data go into --data")
    return split(name, *BUNDLED[name]())


def split(name: str, features: NDArray[Any], labels: NDArray[Any]) -> Dataset:
    """Return all rows, a fifth of them (drawn with a fixed seed) for testing."""
    order = np.random.default_rng(SPLIT_SEED).permutation(len(features))
    test, train = np.split(order, [round(TEST_FRACTION * len(order))])
    return Dataset(
        name=name, x_train=features[train], y_train=labels[train], x_test=features[test], y_test=labels[test]
    )


def load_npz(path: Path) -> Dataset:
    """The data set of a numpy archive with ``x_train``, ``y_train``, ``x_test`` and ``y_test``; never unpickles.

    Raises:
        DataError: the file cannot be read, or lacks one of the arrays, or an array is not what it must be.
    """
    arrays = _read_arrays(path)
    name = path.stem.encode(errors="backslashreplace").decode()  # a file's name may hold what no text file can
    return Dataset(name=name, **{key: _as_float(array) for key, array in arrays.items()})


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path} is a pipe or device, and an npz file is read back and forth; write it to a file first")
    try:
        with path.open("rb") as file:
            return _arrays_of(path, np.load(file, allow_pickle=False))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}; --data needs a readable npz file") from error
    except DataError:
        raise
    except (ValueError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is no npz archive; write one with numpy.savez(FILE, x_train=..., y_train=..., "
            "x_test=..., y_test=...)"
        ) from error


def _arrays_of(path: Path, archive: Any) -> dict[str, NDArray[Any]]:
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DataError(f"{path} holds a single array; --data needs an npz archive with {', '.join(KEYS)}")
    missing = [key for key in KEYS if key not in archive.files]
    if missing:
        raise DataError(
            f"{path} needs the arrays {', '.join(KEYS)}; {', '.join(missing)} not found among "
            f"{', '.join(archive.files) or 'nothing'}: add them with numpy.savez"
        )
    return {key: _read_array(path, archive, key) for key in KEYS}


def _read_array(path: Path, archive: Any, key: str) -> NDArray[Any]:
    try:
        array = archive[key]
    except (ValueError, EOFError, OSError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: {key} must be a plain array of numbers; it is damaged or pickled ({error}). Pickled objects are "
            "never loaded, since they can run code: save numbers of one dtype"
        ) from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: {key} must be an array that numpy.savez wrote; this archive holds raw bytes there")
    return array


def _as_float(array: NDArray[Any]) -> NDArray[Any]:
    """Integer features (raw pixels) as float64; labels and floats as they are."""
    return array.astype(np.float64) if array.ndim == 2 and array.dtype.kind in "iub" else array


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
            f"{name}: {key} must hold integer class labels, not {array.dtype}; convert them, for instance with "
            "astype(numpy.int64)"
        )
    lowest, highest = int(array.min()), int(array.max())
    if lowest < 0 or highest >= MAX_CLASSES:
        raise DataError(
            f"{name}: {key} must hold labels from 0 to at most {MAX_CLASSES - 1}, not {lowest} to {highest}; renumber "
            "them, for instance with numpy.unique(return_inverse=True)"
        )


def _digits() -> tuple[NDArray[Any], NDArray[Any]]:
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    return features, labels


def _breast_cancer() -> tuple[NDArray[Any], NDArray[Any]]:
    """Columns in units of a power of two above their largest value: they differ by 10^5, one row format serves all."""
    from sklearn.datasets import load_breast_cancer

    features, labels = load_breast_cancer(return_X_y=True)
    return np.ldexp(features, -np.frexp(np.abs(features).max(axis=0))[1]), labels


BUNDLED: dict[str, Callable[[], tuple[NDArray[Any], NDArray[Any]]]] = {
    "digits": _digits,
    "breast_cancer": _breast_cancer,
}
"""Bundled data sets by name."""
