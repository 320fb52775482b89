"""Data sets: what is bundled, what an npz file must hold, and the error for each way it can fail to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic.row_format import RowFormat
from analytic_secagg.datasets import BUNDLED, Dataset, bundled, load_npz, own_split
from analytic_secagg.errors import DataError, UsageError


def good() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "x_train": rng.normal(size=(12, 3)).astype(np.float32),
        "y_train": np.arange(12, dtype=np.uint8) % 4,
        "x_test": rng.normal(size=(5, 3)).astype(np.float32),
        "y_test": np.arange(5),
    }


def saved(path: Path, **changes: Any) -> Path:
    arrays = {key: value for key, value in (good() | changes).items() if value is not None}
    np.savez(path / "some.npz", **arrays)
    return path / "some.npz"


@pytest.mark.parametrize("name", list(BUNDLED))
def test_bundled_data_are_the_same_every_time_and_split_by_a_fifth(name: str) -> None:
    data = bundled(name)
    assert data.sha256 == bundled(name).sha256
    n_rows = len(data.x_train) + len(data.x_test)
    assert len(data.x_test) == round(n_rows / 5)
    rows = {row.tobytes() for row in np.concatenate([data.x_train, data.x_test])}
    assert len(rows) == len({row.tobytes() for row in data.x_train} | {row.tobytes() for row in data.x_test})
    if not data.is_regression:
        assert set(np.unique(data.y_train)) == set(np.unique(data.y_test)) == set(range(data.n_classes))


def test_digits_are_what_scikit_learn_has() -> None:
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    data = bundled("digits")
    together = np.column_stack(
        [np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])]
    )
    original = np.column_stack([features, labels])
    assert sorted(map(bytes, together)) == sorted(map(bytes, original))


@pytest.mark.parametrize(("name", "n_targets"), [("iris", 3), ("wine", 3), ("linnerud", 3), ("diabetes", 1)])
def test_bundled_targets_are_scikit_learns(name: str, n_targets: int) -> None:
    import sklearn.datasets

    _, targets = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    data = bundled(name)
    assert data.n_classes == n_targets
    found = np.concatenate([data.y_train, data.y_test]).reshape(len(targets), -1)
    assert sorted(map(bytes, found.astype(float))) == sorted(
        map(bytes, targets.reshape(len(targets), -1).astype(float))
    )


def test_what_is_fetched_is_read_where_scikit_learn_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    rows = np.random.default_rng(0).uniform(1, 9, (20, 9))
    joblib.dump(rows, tmp_path / "cal_housing_py3.pkz")
    assert bundled("california_housing").x_train.shape == (16, 8)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
    retried = pytest.warns(UserWarning, match="Retry")
    with retried, pytest.raises(DataError, match=r"cannot fetch olivetti_faces .* fetch it where there is a network"):
        bundled("olivetti_faces")


def test_breast_cancer_columns_are_scaled_by_powers_of_two_into_one_range() -> None:
    from sklearn.datasets import load_breast_cancer

    features, _ = load_breast_cancer(return_X_y=True)
    data = bundled("breast_cancer")
    scaled = np.concatenate([data.x_train, data.x_test])
    assert (scaled.max(axis=0) < 1).all()
    assert (scaled.max(axis=0) >= 0.5).all()
    exponents = np.log2(features.max(axis=0) / scaled.max(axis=0))
    assert (exponents == exponents.round()).all()
    assert RowFormat.covering(scaled).integer_bits == 0


def test_texts_are_classes_and_floats_are_real_targets(tmp_path: Path) -> None:
    texts = np.array(["no", "yes", "maybe"])
    data = load_npz(saved(tmp_path, y_train=texts[good()["y_train"] % 3], y_test=texts[np.arange(5) % 2]))
    assert (data.classes, data.n_classes, data.unused_labels) == (("maybe", "no", "yes"), 3, 0)
    assert np.array(data.classes)[data.y_test].tolist() == ["no", "yes", "no", "yes", "no"]
    blanks = np.array(["no", " yes", "yes "])
    data = load_npz(saved(tmp_path, y_train=blanks[good()["y_train"] % 3], y_test=texts[np.arange(5) % 2]))
    assert data.classes == ("no", "yes")
    real = load_npz(saved(tmp_path, y_train=np.linspace(0, 1, 12), y_test=np.linspace(0, 1, 5)))
    assert (real.is_regression, real.n_classes, real.y_train.shape, real.unused_labels) == (True, 1, (12, 1), 0)
    assert np.bincount(real.strata).max() <= 2
    several = load_npz(saved(tmp_path, y_train=np.zeros((12, 2), dtype=int), y_test=np.zeros((5, 2))))
    assert (several.n_classes, several.y_test.dtype) == (2, np.float64)
    sparse = load_npz(saved(tmp_path, y_train=np.repeat([10, 20, 30], 4), y_test=np.full(5, 10)))
    assert (sparse.n_classes, sparse.unused_labels) == (31, 28)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ({"y_train": np.linspace(0, 1, 12)}, "real targets are floats in both parts"),
        ({"y_train": np.zeros((12, 2)), "y_test": np.zeros((5, 3))}, "targets of one kind, not of shapes"),
        ({"y_train": np.full(12, np.nan), "y_test": np.zeros(5)}, "finite numbers; 12 of 12 rows do not"),
        ({"y_train": np.full(12, "a")}, "texts, in both parts alike, not <U1"),
    ],
)
def test_targets_of_both_parts_are_of_one_kind(targets: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_npz(saved(tmp_path, **targets))


@pytest.mark.parametrize(("x", "y"), [("X", "y"), ("features", "labels"), ("data", "target"), ("Features", "Targets")])
def test_rows_without_a_split_are_split_and_it_is_said(x: str, y: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(50, 3)), np.array(["b", "a"])[np.arange(50) % 2]
    np.savez(tmp_path / "own.npz", **{x: features, y: labels}, other=np.zeros(2))
    data = load_npz(tmp_path / "own.npz")
    assert data.sha256 == load_npz(tmp_path / "own.npz").sha256
    assert (len(data.x_train), len(data.x_test), data.classes) == (40, 10, ("a", "b"))
    rows = {(*row, label) for row, label in zip(features.tolist(), labels, strict=True)}
    parts = ((data.x_train, data.y_train), (data.x_test, data.y_test))
    assert rows == {(*row, "ab"[place]) for part in parts for row, place in zip(part[0].tolist(), part[1], strict=True)}
    said = " ".join(data.notes)
    assert "10 of 50 rows are kept for testing, drawn with seed 0" in said
    assert f"{x} are taken for features and {y} for targets" in said
    np.savez(tmp_path / "short.npz", **{x: features, y: labels[:-1]})
    with pytest.raises(DataError, match=f"{y} must have one target for each of the 50 rows of {x}"):
        load_npz(tmp_path / "short.npz")


def test_arrays_that_may_be_read_in_several_ways_are_refused(tmp_path: Path) -> None:
    for names in (("X", "y", "features", "labels"), ("X", "y", "x_train", "y_train"), ("X", "y", "w_train")):
        np.savez(tmp_path / "own.npz", **dict.fromkeys(names, np.ones((9, 2))))
        with pytest.raises(DataError, match="can be read in several ways"):
            load_npz(tmp_path / "own.npz")


@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (np.arange(60) % 3, ""),
        ((np.arange(60) % 3).astype(float), "taken for a real target, and its 3 different values are whole numbers"),
        (np.arange(60) * 0.1 - 2, ""),
        (np.arange(60.0), ""),
        (np.eye(3, dtype=int)[np.arange(60) % 3], "is taken for 3 classes of which a row may have several"),
        (np.eye(3)[np.arange(60) % 3], "is taken for 3 real targets: if it is one class a row"),
        (np.eye(3, dtype=int)[np.arange(60) % 3] | np.eye(3, dtype=int)[np.arange(60) // 20], ""),
        (np.arange(60) * 7, "taken for 60 classes, of which most have fewer than 5 rows: if they are amounts"),
    ],
)
def test_how_targets_are_taken_is_doubted_aloud(targets: Any, said: str, tmp_path: Path) -> None:
    x_train, x_test = np.random.default_rng(0).normal(size=(2, 60, 2))
    np.savez(tmp_path / "own.npz", x_train=x_train, y_train=targets, x_test=x_test, y_test=targets)
    doubts = load_npz(tmp_path / "own.npz").doubts
    assert len(doubts) == bool(said)
    assert all(said in one for one in doubts)


def test_classes_that_only_test_rows_have_are_said() -> None:
    data = bundled("iris")
    kept = data.y_train != 2
    (said,) = replace(data, x_train=data.x_train[kept], y_train=data.y_train[kept]).doubts
    assert "1 of the classes occur in the test rows alone" in said


@pytest.mark.parametrize(("n_rare", "said"), [(6, True), (20, False)])
def test_an_accuracy_that_a_constant_answer_has_is_said(n_rare: int, said: bool) -> None:
    rng, targets = np.random.default_rng(0), np.arange(60) < n_rare
    rows = {f"x_{part}": rng.normal(size=(60, 2)) for part in ("train", "test")}
    data = Dataset(name="own", **rows, y_train=targets.astype(int), y_test=targets.astype(int))
    assert any("90% of the test rows are of one class" in one for one in data.doubts) is said


@pytest.mark.parametrize("name", list(BUNDLED))
def test_nobody_doubts_what_is_bundled(name: str) -> None:
    assert bundled(name).doubts == bundled(name).notes == ()


def test_test_rows_that_are_training_rows_are_said() -> None:
    data = bundled("wine")
    for n, said in ((1, False), (5, True)):
        x_test, y_test = data.x_test.copy(), data.y_test.copy()
        x_test[:n], y_test[:n] = data.x_train[:n], data.y_train[:n]
        doubts = replace(data, x_test=x_test, y_test=y_test).doubts
        assert doubts == () or (said and f"{n} of 36 test rows have the features of a training row" in doubts[0])
        assert bool(doubts) is said
    few = replace(data, x_train=np.rint(data.x_train), x_test=np.rint(data.x_test))
    assert len(np.unique(few.x_train, axis=0)) < len(few.x_train) / 2
    assert few.doubts == ()


def test_an_unknown_bundled_set_is_refused() -> None:
    with pytest.raises(UsageError, match=r"one of digits, .*lfw_people, not 'irises'; read other rows"):
        bundled("irises")


@given(x_type=st.sampled_from(["f2", "f4", "f8", "u1", "i4", "i8"]), y_type=st.sampled_from(["u1", "i4", "i8", "u8"]))
def test_an_archive_comes_back_as_it_was_saved(
    tmp_path_factory: pytest.TempPathFactory, x_type: str, y_type: str
) -> None:
    arrays = good()
    for key in arrays:
        arrays[key] = np.abs(arrays[key]).astype(x_type if key.startswith("x") else y_type)
    data = load_npz(saved(tmp_path_factory.mktemp("npz"), **arrays))
    assert (data.name, data.n_features, data.n_classes) == ("some", 3, 5)
    for key, array in arrays.items():
        np.testing.assert_array_equal(getattr(data, key), array)
        with pytest.raises(ValueError, match="read-only"):
            getattr(data, key)[0] = 0


def test_the_digest_tells_data_apart(tmp_path: Path) -> None:
    other = good()["x_test"]
    other[0, 0] += 1
    assert load_npz(saved(tmp_path)).sha256 != load_npz(saved(tmp_path, x_test=other)).sha256


def with_nan() -> np.ndarray:
    features = good()["x_train"]
    features[3, 1], features[5] = np.nan, np.inf
    return features


WRONG = [
    ({"y_test": None}, "needs the arrays x_train, y_train, x_test, y_test; y_test not found among x_train"),
    ({"x_train": with_nan()}, "x_train must hold finite numbers; 2 of 12 rows hold NaN or infinity: repair or drop"),
    (
        {"x_train": np.zeros((12, 3, 2, 2))},
        r"x_train must have shape \(rows, features\).*not \(12, 3, 2, 2\); store one",
    ),
    ({"x_train": np.zeros((0, 3)), "y_train": np.zeros(0, int)}, "at least one of each, not \\(0, 3\\)"),
    ({"x_train": np.zeros((12, 3), complex)}, "x_train must hold real numbers, not complex128; convert"),
    ({"x_train": np.full((12, 3), "a")}, "x_train must hold real numbers, not <U1"),
    ({"x_test": np.zeros((5, 4))}, "same number of features, not 3 and 4; extract both with the same backbone"),
    ({"y_train": np.arange(12.0)}, "y_train must hold class labels, whole numbers from 0 on or texts, .*not float64"),
    ({"y_train": np.zeros((12, 1), int)}, r"y_train must have shape \(12,\), one label for each.*not \(12, 1\)"),
    ({"y_train": np.arange(11)}, r"y_train must have shape \(12,\).*not \(11,\)"),
    ({"y_test": np.arange(5) - 1}, "y_test must hold labels from 0 to at most 65535, not -1 to 3; renumber"),
    ({"y_test": np.arange(5) + 10**9}, "not 1000000000 to 1000000004; renumber them"),
    ({"y_train": np.array([object()] * 12)}, "y_train must be a plain array of numbers.*never loaded"),
    ({"y_train": np.zeros((12, 2)), "y_test": np.full((5, 2), np.nan)}, "y_test must hold finite numbers; 5 of 5"),
    ({"y_train": np.zeros((12, 2)), "y_test": np.zeros((4, 2))}, r"shape \(5, c\), real targets"),
    ({"w_train": np.full(12, 0.5)}, "w_train: .*whole numbers"),
    ({"x_train": np.array([{}] * 12)}, "x_train must be a plain array of numbers.*never loaded"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_npz(saved(tmp_path, **changes))


def test_files_that_are_no_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"No such file.*name an npz file that can be read"):
        load_npz(tmp_path / "missing.npz")
    with pytest.raises(DataError, match="cannot read"):
        load_npz(tmp_path)
    for content in (b"", b"x_train,y_train\n1,2\n", b"PK\x03\x04 not a zip after all"):
        (tmp_path / "broken.npz").write_bytes(content)
        with pytest.raises(DataError, match=r"is no npz archive; write one with numpy.savez"):
            load_npz(tmp_path / "broken.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match="holds a single array, and rows need an npz archive"):
        load_npz(tmp_path / "one.npy")


def test_a_class_of_few_rows_keeps_them_all_for_training() -> None:
    """A total of fewer than 5 rows of a class is refused: a Swiss hospital's table has a class of 5."""
    labels = np.array([0] * 60 + [1] * 10 + [2] * 5)
    data = own_split("rows", np.arange(75.0).reshape(-1, 1), labels)
    assert np.bincount(data.y_train, minlength=3)[2] == 5
    assert len(data.x_test) == 14
    assert {*data.y_test.tolist()} <= {0, 1}
    assert sorted([*data.x_train[:, 0], *data.x_test[:, 0]]) == list(range(75))
    assert data.notes[0].endswith("none of the 5 rows of classes with fewer than 10")
    assert len(own_split("rows", np.arange(9.0).reshape(-1, 1), np.arange(9) % 3).x_test) == 2  # where all are small
    without = own_split("rows", np.arange(70.0).reshape(-1, 1), labels[:70])
    assert without.notes[0] == "14 of 70 rows are kept for testing, drawn with seed 0"


@pytest.mark.parametrize("place", [200, 400, -400])
def test_a_damaged_archive_is_refused(tmp_path: Path, place: int) -> None:
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 0xFF
    path.write_bytes(content)
    try:
        load_npz(path)
    except DataError:
        return
    pytest.fail("a flipped byte went unnoticed")
