from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from analytic import model_files
from analytic.afl import AFL, LinearModel
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.errors import SpecificationError
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import ModelFileError, load_model, save_model
from analytic.row_format import RowFormat
from analytic.safle import SAFLe

N, D, C = 50, 6, 3
ROWS = np.random.default_rng(5).normal(size=(N, D)).clip(-3.9, 3.9)
LABELS = np.random.default_rng(6).integers(0, C, N)
Q = RowFormat.parse

LEARNERS: dict[str, Any] = {
    "afl": AFL(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N, ridge=1 / 3),
    "afl-ri": AFL(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N, ri_gamma=2, max_clients=9),
    "fedhip": FedHiP(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N, ridge=0.1),
    "deepafl": DeepAFL(n_features=D, n_targets=C, feature_bound=4.0, max_rows=N, n_layers=2, d_phi=8, d_f=5),
    "deepafl-first": DeepAFL(
        n_features=D, n_targets=C, feature_bound=4.0, max_rows=N, n_layers=3, d_phi=8, d_f=5, fed_by_first=True
    ),
    "deepafl-0": DeepAFL(n_features=D, n_targets=C, feature_bound=4.0, max_rows=N, n_layers=0, d_phi=8, d_f=5),
    "safle": SAFLe(
        n_features=D, n_classes=C, max_rows=N, thresholds=FixedThresholds.evenly(-1.0, 1 / 3, 4), n_buckets=4
    ),
    "safle-quantiles": SAFLe(
        n_features=D,
        n_classes=C,
        max_rows=N,
        thresholds=QuantileThresholds(low=-4.0, high=4.0, n_bins=32),
        encoding=Encoding.INTEGER,
        group_size=1,
    ),
}


@cache
def histories(name: str) -> list[Any]:
    """The model before its first sum, after each, and at its end."""
    learner, rows = LEARNERS[name], ClientRows(ROWS, LABELS)
    models = [learner.init()]
    while learner.next_sum(models[-1]) is not None:
        total = learner.client_statistics(models[-1], rows)
        models.append(learner.update(models[-1], total, 1))
    return models


@pytest.mark.parametrize("name", LEARNERS)
def test_a_model_comes_back_bit_for_bit_at_every_stage(name, tmp_path):
    learner = LEARNERS[name]
    for model in histories(name):
        save_model(tmp_path, learner, model)
        saved = load_model(tmp_path)
        assert saved.learner == learner
        assert type(saved.model) is type(model)
        assert saved.learner.context_bytes(saved.model) == learner.context_bytes(model)
        assert saved.learner.next_sum(saved.model) == learner.next_sum(model)
    assert saved.learner.weights_bytes(saved.model) == learner.weights_bytes(model)
    expected = learner.decision_function(model, ROWS)
    assert saved.learner.decision_function(saved.model, ROWS).tobytes() == expected.tobytes()
    assert _conditioning(saved.model) == _conditioning(model)
    assert len(list(tmp_path.iterdir())) == 2  # each save replaced the one before


def _conditioning(model: Any) -> list[Any]:
    solved = getattr(model, "classifiers", None) or (model.solution,)
    reports: list[Any] = [(found.method, found.rank, found.reciprocal_condition) for found in solved]
    return reports + [(block.rank, block.reciprocal_condition) for block in getattr(model, "blocks", ())]


@pytest.mark.parametrize("name", ["deepafl", "deepafl-first", "safle-quantiles"])
def test_a_federation_goes_on_from_any_saved_stage(name, tmp_path):
    learner, stages = LEARNERS[name], histories(name)
    for stage in stages[:-1]:
        save_model(tmp_path, learner, stage)
        model, rows = load_model(tmp_path).model, ClientRows(ROWS, LABELS)
        while learner.next_sum(model) is not None:
            model = learner.update(model, learner.client_statistics(model, rows), 1)
        assert learner.weights_bytes(model) == learner.weights_bytes(stages[-1])


def test_clients_personalise_with_a_loaded_total(tmp_path):
    learner, model = LEARNERS["fedhip"], histories("fedhip")[-1]
    save_model(tmp_path, learner, model)
    own = ClientRows(ROWS[:20], LABELS[:20])
    loaded = load_model(tmp_path).model
    for here, there in zip(
        learner.personalise(model, own, [0.5, 8.0]), learner.personalise(loaded, own, [0.5, 8.0]), strict=True
    ):
        assert here.weights.tobytes() == there.weights.tobytes()


def test_the_weights_alone_can_be_published(tmp_path):
    learner, model = LEARNERS["fedhip"], histories("fedhip")[-1]
    save_model(tmp_path, learner, LinearModel(solution=model.solution))
    loaded = load_model(tmp_path).model
    assert loaded.total is None
    assert loaded.weights.tobytes() == model.weights.tobytes()
    (weights,) = tmp_path.glob("*.safetensors")
    assert list(load(weights.read_bytes())) == ["weights"]


@settings(max_examples=15)
@given(
    weights=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=D * C, max_size=D * C),
    ridge=st.floats(0, 1e300),
)
def test_every_finite_number_survives(weights, ridge, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    learner = replace(LEARNERS["afl"], ridge=ridge)
    solution = replace(histories("afl")[-1].solution, weights=np.array(weights).reshape(D, C))
    save_model(folder, learner, LinearModel(solution=solution))
    saved = load_model(folder)
    assert saved.learner == learner
    assert saved.model.weights.tobytes() == np.array(weights).tobytes()


@pytest.mark.parametrize("ridge", [np.float32(0.1), np.float64(0.1), np.int64(3)])
def test_parameters_of_numpy_types_come_back_as_numbers(ridge, tmp_path):
    learner = replace(LEARNERS["afl"], ridge=ridge, max_rows=np.int64(N))
    save_model(tmp_path, learner, histories("afl")[0])
    saved = load_model(tmp_path)
    assert saved.learner == learner
    assert saved.learner.context_bytes(saved.model) == learner.context_bytes(histories("afl")[0])


def test_memory_order_does_not_matter(tmp_path):
    solution = histories("afl")[-1].solution
    other = replace(solution, weights=np.asfortranarray(solution.weights))
    save_model(tmp_path, LEARNERS["afl"], LinearModel(solution=other))
    np.testing.assert_array_equal(load_model(tmp_path).model.weights, solution.weights)


@pytest.mark.parametrize("classes", [["cat", "dog", "eel"], [3, 5, 8], np.array([3, 5, 8]), None])
def test_classes_come_along(classes, tmp_path):
    save_model(tmp_path, LEARNERS["afl"], histories("afl")[-1], classes=classes)
    loaded = load_model(tmp_path).classes
    assert loaded == (None if classes is None else tuple(classes))


def test_the_files_are_json_and_safetensors(tmp_path):
    save_model(tmp_path, LEARNERS["afl"], histories("afl")[-1])
    description = json.loads((tmp_path / "model.json").read_text())
    assert description["version"] == 1
    assert description["learner"] == "afl"
    assert description["configuration"]["feature_format"] == {"row_format": "Q2.14"}
    assert description["conditioning"]["weights"]["rank"] == D
    weights = load((tmp_path / description["weights"]["file"]).read_bytes())["weights"]
    np.testing.assert_array_equal(weights, histories("afl")[-1].weights)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path, LEARNERS["deepafl"], histories("deepafl")[-1])
    return tmp_path


def _rewrite(folder, change) -> None:
    """A forger's work: both files changed, all digests right."""
    description = json.loads((folder / "model.json").read_text())
    old = folder / description["weights"]["file"]
    arrays = {name: array.copy() for name, array in load(old.read_bytes()).items()}
    change(description, arrays)
    content = save(arrays)
    digest = hashlib.sha256(content).hexdigest()
    old.unlink()
    if description["weights"] == {"file": old.name, "sha256": old.stem.removeprefix("weights-")}:
        description["weights"] = {"file": f"weights-{digest}.safetensors", "sha256": digest}
        (folder / f"weights-{digest}.safetensors").write_bytes(content)
    description["sha256"] = model_files._digest(description)
    (folder / "model.json").write_text(json.dumps(description))


def test_a_rewritten_pair_is_read(folder):
    _rewrite(folder, lambda description, arrays: None)
    assert LEARNERS["deepafl"].weights_bytes(load_model(folder).model) == LEARNERS["deepafl"].weights_bytes(
        histories("deepafl")[-1]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, a: d.update(version=2), "has version 2 and this release reads version 1"),
        (lambda d, a: d.update(format="other"), "does not describe a model"),
        (lambda d, a: d.update(learner="svm"), "one of the learners afl, fedhip, deepafl, safle"),
        (lambda d, a: d.pop("conditioning"), "its configuration, conditioning"),
        (lambda d, a: d["configuration"].pop("seed"), "needs seed"),
        (lambda d, a: d["configuration"].update(colour="red"), "no place for colour"),
        (lambda d, a: d["configuration"].update(ridge=-1.0), "ridge must be a finite number"),
        (lambda d, a: d["configuration"].update(n_features="six"), "cannot be used"),
        (lambda d, a: d["configuration"].update(target_format={"row_format": "Q99"}), "reads like Q5.11"),
        (lambda d, a: d["configuration"].update(target_format=5), "cannot be used"),
        (lambda d, a: d["configuration"].update(activation={"python": "eval"}), "no parameter has a value like"),
        (lambda d, a: d["configuration"].update(d_phi=9), r"bounds.features must be float64 of shape \(9,\)"),
        (lambda d, a: d["conditioning"].pop("classifier.1"), r"conditioning of classifier\.1"),
        (lambda d, a: d["weights"].update(file="../../etc/passwd"), "weights in a file weights-SHA-256"),
        (lambda d, a: a.pop("classifier.1"), r"classifier\.1 is missing"),
        (lambda d, a: a.pop("transform.0"), r"transform\.0 is missing"),
        (lambda d, a: a.pop("bounds.residuals"), r"bounds\.residuals is missing"),
        (lambda d, a: a.update({"transform.0": a["transform.0"].T.copy()}), r"of shape \(5, 8\) by the configuration"),
        (lambda d, a: a.update({"transform.0": a["transform.0"].astype("f4")}), "must be float64"),
        (lambda d, a: a["classifier.2"].__setitem__((0, 0), np.nan), r"NaN or infinity in classifier\.2"),
        (lambda d, a: a["classifier.2"].__setitem__((0, 0), np.inf), r"NaN or infinity in classifier\.2"),
        (lambda d, a: a.update(surplus=np.zeros(1)), "no place for the arrays surplus"),
        (lambda d, a: a.update({"classifier.3": a["classifier.2"]}), r"no place for the arrays classifier\.3"),
    ],
)
def test_files_that_contradict_themselves_are_refused(folder, change, message):
    _rewrite(folder, change)
    with pytest.raises(ModelFileError, match=message):
        load_model(folder)


def test_every_changed_byte_is_noticed(folder):
    (weights,) = folder.glob("*.safetensors")
    for path in (weights, folder / "model.json"):
        content = path.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 60)):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            with pytest.raises(ModelFileError):
                load_model(folder)
        path.write_bytes(content)
    load_model(folder)


def test_a_changed_parameter_is_noticed(folder):
    path = folder / "model.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(ModelFileError, match="changed after it was written"):
        load_model(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "analytic-model", "version": NaN}', "[" * 10**5])
def test_other_json_is_refused(folder, text):
    (folder / "model.json").write_text(text)
    with pytest.raises(ModelFileError, match=r"must be JSON|does not describe a model"):
        load_model(folder)


def test_files_that_are_missing_or_cut_off(folder):
    (weights,) = folder.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-8])
    with pytest.raises(ModelFileError, match="damaged or changed"):
        load_model(folder)
    weights.unlink()
    with pytest.raises(ModelFileError, match="cannot read"):
        load_model(folder)
    with pytest.raises(ModelFileError, match="name a saved model's folder"):
        load_model(folder / "nowhere")


def test_a_pickle_in_their_place_is_never_loaded(folder):
    content = pickle.dumps({"weights": [1.0]})
    digest = hashlib.sha256(content).hexdigest()
    description = json.loads((folder / "model.json").read_text())
    description["weights"] = {"file": f"weights-{digest}.safetensors", "sha256": digest}
    description["sha256"] = model_files._digest(description)
    (folder / "model.json").write_text(json.dumps(description))
    (folder / f"weights-{digest}.safetensors").write_bytes(content)
    with pytest.raises(ModelFileError, match="no safetensors file"):
        load_model(folder)


class TestSaving:
    def test_a_model_with_nan_is_not_saved(self, tmp_path):
        solution = replace(histories("afl")[-1].solution, weights=np.full((D, C), np.nan))
        with pytest.raises(ModelFileError, match="NaN or infinity in weights"):
            save_model(tmp_path, LEARNERS["afl"], LinearModel(solution=solution))
        assert list(tmp_path.iterdir()) == []

    def test_a_failed_save_leaves_the_model_before(self, tmp_path, monkeypatch):
        learner = LEARNERS["afl"]
        save_model(tmp_path, learner, histories("afl")[0])
        monkeypatch.setattr(model_files, "DESCRIPTION", "no-such-folder/model.json")
        with pytest.raises(ModelFileError, match="cannot save a model"):
            save_model(tmp_path, learner, histories("afl")[-1])
        monkeypatch.undo()
        assert learner.context_bytes(load_model(tmp_path).model) == learner.context_bytes(histories("afl")[0])
        assert not list(tmp_path.glob(".*"))

    def test_only_the_replaced_model_is_deleted(self, tmp_path):
        (tmp_path / "notes.txt").write_text("mine")
        (tmp_path / "weights-of-mine.safetensors").write_bytes(b"mine")
        (tmp_path / "model.json").write_text('{"weights": {"file": "notes.txt"}}')
        save_model(tmp_path, LEARNERS["afl"], histories("afl")[-1])
        save_model(tmp_path, LEARNERS["afl"], histories("afl")[0])
        assert (tmp_path / "notes.txt").read_text() == "mine"
        assert (tmp_path / "weights-of-mine.safetensors").read_bytes() == b"mine"
        assert len(list(tmp_path.iterdir())) == 4

    def test_a_file_in_the_folders_place(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(ModelFileError, match="name another folder"):
            save_model(tmp_path / "file", LEARNERS["afl"], histories("afl")[-1])

    def test_foreign_learners_and_classes(self, tmp_path):
        class Mine(AFL):
            pass

        mine = Mine(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N)
        with pytest.raises(SpecificationError, match="not of Mine"):
            save_model(tmp_path, mine, fit_pooled(mine, ClientRows(ROWS, LABELS)))
        with pytest.raises(SpecificationError, match="strings or integers, not as float"):
            save_model(tmp_path, LEARNERS["afl"], histories("afl")[-1], classes=[0.5, 1.5, 2.5])

    def test_parameters_without_a_json_form(self, tmp_path):
        exact = replace(LEARNERS["deepafl"], ridge=Fraction(1, 3))
        with pytest.raises(SpecificationError, match="cannot be saved with a Fraction in it"):
            save_model(tmp_path, exact, histories("deepafl")[0])
        assert list(tmp_path.iterdir()) == []
