from __future__ import annotations

import copy
import json
import pickle
import random
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load, save
from support.composed import choosing, of_kind, scaled, weighted
from support.examples import examples
from support.pairs import covering

from analytic import model_files
from analytic.afl import AFL, LinearModel
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.errors import NotReadyError, SpecificationError
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, fit_pooled
from analytic.logistic import Logistic
from analytic.model_files import (
    ModelFileError,
    learner_in,
    load_model,
    model_from_bytes,
    model_to_bytes,
    save_model,
)
from analytic.partial_labels import PartialLabels
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.safle import SAFLe
from analytic_secagg.privacy import PrivacyPlan

N, D, C = 50, 6, 3
ROWS = np.random.default_rng(5).normal(size=(N, D)).clip(-3.9, 3.9)
LABELS = np.random.default_rng(6).integers(0, C, N)
Q = RowFormat.parse
LIFT = RandomMap(
    n_features=D, n_columns=8, feature_bound=4.0, fraction_bits=7, limit=1 - 2**-7, activation="sine",
    projection="fourier", variance=0.3,
)  # fmt: skip

LEARNERS: dict[str, Any] = {
    "afl": AFL(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N, ridge=1 / 3),
    "afl-columns": AFL(
        n_features=D,
        n_targets=C,
        feature_format=Q("Q0.16"),
        max_rows=N,
        columns=ColumnMap(exponents=(2, 3) * 3, intercept=1),
    ),
    "fedhip": FedHiP(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N, ridge=0.1),
    "deepafl": DeepAFL(n_features=D, n_targets=C, feature_bound=4.0, max_rows=N, n_layers=2, d_phi=8, d_f=5),
    "random": AFL(n_features=D, n_targets=C, feature_format=Q("Q0.7"), max_rows=N, lift=LIFT),
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


def test_clients_personalise_with_a_loaded_total():
    learner, model = LEARNERS["fedhip"], histories("fedhip")[-1]
    own = ClientRows(ROWS[:20], LABELS[:20])
    loaded = model_from_bytes(model_to_bytes(learner, model, with_totals=True)).model
    for here, there in zip(
        learner.personalise(model, own, [0.5, 8.0]), learner.personalise(loaded, own, [0.5, 8.0]), strict=True
    ):
        assert here.weights.tobytes() == there.weights.tobytes()


@pytest.mark.parametrize("name", LEARNERS)
def test_a_file_holds_no_total_unless_asked(name, tmp_path):
    """What people pass on is a model; a client that read a total in it would take its own part off."""
    learner, model = LEARNERS[name], histories(name)[-1]
    save_model(tmp_path / "model", learner, model)
    save_model(tmp_path / "for a client", learner, model, with_totals=True)
    bare, whole = (load((tmp_path / file).read_bytes()) for file in ("model", "for a client"))
    assert whole.keys() - bare.keys() == {part for part in whole if part.startswith("total.")}
    assert any(part.startswith("total.") for part in whole) == (name == "fedhip")
    loaded = load_model(tmp_path / "model").model
    assert learner.weights_bytes(loaded) == learner.weights_bytes(model)
    if name == "fedhip":
        assert loaded.total is None
        with pytest.raises(NotReadyError, match="with_totals=True"):
            learner.personalise(loaded, ClientRows(ROWS, LABELS), [1.0])


@examples(8)
@given(
    weights=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=D * C, max_size=D * C),
    ridge=st.floats(0, 1e300),
)
def test_every_finite_number_survives(weights, ridge):
    learner = replace(LEARNERS["afl"], ridge=ridge)
    solution = replace(histories("afl")[-1].solution, weights=np.array(weights).reshape(D, C))
    saved = model_from_bytes(model_to_bytes(learner, LinearModel(solution=solution)))
    assert saved.learner == learner
    assert saved.model.weights.tobytes() == np.array(weights).tobytes()


@pytest.mark.parametrize("ridge", [np.float32(0.1), np.float64(0.1), np.int64(3)])
def test_parameters_of_numpy_types_come_back_as_numbers(ridge):
    learner = replace(LEARNERS["afl"], ridge=ridge, max_rows=np.int64(N))
    saved = model_from_bytes(model_to_bytes(learner, histories("afl")[0]))
    assert saved.learner == learner
    assert saved.learner.context_bytes(saved.model) == learner.context_bytes(histories("afl")[0])


@pytest.mark.parametrize("classes", [["cat", "dog", "eel"], [3, 5, 8], np.array([3, 5, 8]), None])
def test_classes_come_along(classes):
    loaded = model_from_bytes(model_to_bytes(LEARNERS["afl"], histories("afl")[-1], classes=classes)).classes
    assert loaded == (None if classes is None else tuple(classes))


def test_the_file_is_safetensors_with_json(tmp_path):
    save_model(tmp_path / "new" / "model", LEARNERS["afl"], histories("afl")[-1])
    with safe_open(tmp_path / "new" / "model", framework="numpy") as file:
        ((name, text),) = file.metadata().items()
        weights = file.get_tensor("weights")
    description = json.loads(text)
    assert name == "analytic-model"
    assert description["version"] == 2
    assert description["learner"] == "afl"
    assert description["configuration"]["feature_format"] == {"row_format": "Q2.14"}
    assert description["conditioning"]["weights"]["rank"] == D
    np.testing.assert_array_equal(weights, histories("afl")[-1].weights)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.fixture
def content():
    return model_to_bytes(LEARNERS["deepafl"], histories("deepafl")[-1])


def _rewritten(content, change) -> bytes:
    """A forger's work: description and arrays changed, all digests right."""
    description = _header(content)
    description.pop("sha256")
    arrays = {name: array.copy() for name, array in load(content).items()}
    change(description, arrays)
    return model_files.FILE.to_bytes(arrays, description)


def _header(content) -> dict[str, Any]:
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["analytic-model"])


def _with_text(arrays, text) -> bytes:
    return save(arrays, {"analytic-model": text})


def test_a_rewritten_file_is_read(content):
    model = model_from_bytes(_rewritten(content, lambda description, arrays: None)).model
    assert LEARNERS["deepafl"].weights_bytes(model) == LEARNERS["deepafl"].weights_bytes(histories("deepafl")[-1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d, a: d.update(version=1), "has version 1 and this release reads version 2"),
        (lambda d, a: d.update(learner="svm"), "one of the learners afl, random, fedhip, deepafl, safle, logistic"),
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
        (lambda d, a: d["configuration"].update(ridge=[1.0]), "cannot be used"),
        (lambda d, a: a.pop("classifier.1"), r"classifier\.1 is missing"),
        (lambda d, a: a.pop("transform.0"), r"transform\.0 is missing"),
        (lambda d, a: a.pop("bounds.residuals"), r"bounds\.residuals is missing"),
        (lambda d, a: a.pop("maps.version"), r"trained with version 1 of the public maps.*train it again"),
        (lambda d, a: a.update({"maps.version": np.array([3])}), r"trained with version 3 of the public maps"),
        (lambda d, a: a.update({"transform.0": a["transform.0"].T.copy()}), r"of shape \(5, 8\) by the configuration"),
        (lambda d, a: a.update({"transform.0": a["transform.0"].astype("f4")}), "must be float64"),
        (lambda d, a: a["classifier.2"].__setitem__((0, 0), np.nan), r"NaN or infinity in classifier\.2"),
        (lambda d, a: a["classifier.2"].__setitem__((0, 0), np.inf), r"NaN or infinity in classifier\.2"),
        (lambda d, a: a.update(surplus=np.zeros(1)), "no place for the arrays surplus"),
        (lambda d, a: a.update({"classifier.3": a["classifier.2"]}), r"no place for the arrays classifier\.3"),
    ],
)
def test_files_that_contradict_themselves_are_refused(content, change, message):
    with pytest.raises(ModelFileError, match=message):
        model_from_bytes(_rewritten(content, change))


def _nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize("read", [learner_in, model_from_bytes])
@pytest.mark.parametrize("bounds", [[], "", _nested(600)], ids=["no bounds", "no text", "lists within lists"])
def test_a_row_map_without_bounds_is_refused_as_the_files_fault(bounds, read):
    learner = PrivacyPlan(epsilon=1.0, min_noise_shares=3, colluders=1).apply(LEARNERS["afl"]).learner
    content = model_to_bytes(learner, learner.init())
    changed = _rewritten(content, lambda d, a: d["configuration"]["row_map"]["row_map"].update(client_bounds=bounds))
    with pytest.raises(ModelFileError, match="the configuration of afl cannot be used"):
        read(changed)


@pytest.mark.parametrize("read", [learner_in, model_from_bytes])
def test_lists_within_lists_are_refused_as_the_files_fault(content, read):
    changed = _rewritten(content, lambda d, a: d["configuration"].update(activation=_nested(600)))
    with pytest.raises(ModelFileError, match="the configuration of deepafl cannot be used"):
        read(changed)


OF_PARTS: dict[str, Any] = {
    "chosen": choosing(
        AFL(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N), n_folds=3, ridges=(0.5, 2.0)
    ),
    "partial": of_kind(
        PartialLabels, AFL(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N), patterns=((0, 1, 2),)
    ),
}


def _whole_numbers(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        yield from _whole_numbers(entry, (*place, name))
    if type(value) is int:
        yield place


@pytest.mark.parametrize(("name", "size"), covering([*LEARNERS, *OF_PARTS], [2**31, 2**62, 10**30]))
def test_a_size_that_no_machine_has_costs_no_time_and_no_memory(name, size):
    """Whatever number of a file is huge: it is refused, or nothing is as large as it."""
    learner = OF_PARTS.get(name) or LEARNERS[name]
    content = model_to_bytes(learner, learner.init() if name in OF_PARTS else histories(name)[-1])
    tracemalloc.start()
    try:
        for place in _whole_numbers(_header(content)["configuration"]):

            def enlarge(description, arrays, place=place):
                inner = description["configuration"]
                for part in place[:-1]:
                    inner = inner[part]
                inner[place[-1]] = size

            begun, changed = time.process_time(), _rewritten(content, enlarge)
            with suppress(ModelFileError):
                model_from_bytes(changed)
            assert time.process_time() - begun < 2, place
        assert tracemalloc.get_traced_memory()[1] < 2**25
    finally:
        tracemalloc.stop()


def test_a_file_whose_next_sum_no_site_makes_is_refused_before_it_takes_memory():
    """63 245 features: a Gram of 4 * 10^9 numbers (29.8 GiB), which a client would begin to make."""
    asked = {"n_targets": C, "feature_format": Q("Q2.14"), "max_rows": N}
    for kind, n_features in ((AFL, 63_245), (FedHiP, 30_000)):
        learner = kind(n_features=n_features, **asked)
        with pytest.raises(ModelFileError, match=r"asks for a sum of \d+ numbers.*at most 268435456"):
            model_from_bytes(model_to_bytes(learner, learner.init()))
    largest = AFL(n_features=23_000, **asked)
    assert model_from_bytes(model_to_bytes(largest, largest.init())).learner == largest


SOME: dict[type, list[Any]] = {
    int: [0, -1, 2, 7, 64, 1000, 30_000, 63_245, 10**6, 2**24, 2**31, 2**42, 2**53, 2**63, 10**30],
    float: [0.0, -1.0, 5e-324, 1e300, 2.0**52, 0.5, 3],
    str: ["classes", "huge", "", "one-standard-error", "relu", "affine", "integer", "Q0.1", "UQ40.10", "Q62.1"],
    type(None): [0, 1.5, "x"],
    bool: [True, False, 2],
}


def _changed(rng: random.Random, configuration: dict[str, Any]) -> None:
    """Change one to three places, anywhere in it: to an extreme, another type, what lies elsewhere, or many of it."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        places = list(_places(configuration))
        holder, name = rng.choice(places)
        value, (other, its_name) = holder[name], rng.choice(places)
        if rng.random() < 0.1:
            holder[name] = copy.deepcopy(other[its_name])
        elif isinstance(value, list):
            holder[name] = value * rng.choice([0, 2, 1000])
        elif isinstance(value, dict) or rng.random() < 0.1:
            holder[name] = rng.choice([None, True, [], {}, "x", 0, 1.5, [[1, 2], [3, 4]]])
        else:
            holder[name] = rng.choice(SOME[type(value)])


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, entry in entries:
        yield value, name
        yield from _places(entry)


def _real_files() -> list[bytes]:
    learners = LEARNERS | OF_PARTS
    learners |= {f"weighted {name}": weighted(learners[name], max_weight=3) for name in ("afl", "deepafl")}
    alike = replace(LEARNERS["afl"], feature_format=Q("Q0.20"))
    learners |= {"agreed": scaled(alike, headroom=6), "logistic": of_kind(Logistic, alike, n_rounds=2)}
    begun = [model_to_bytes(learner, learner.init()) for learner in learners.values()]
    return begun + [model_to_bytes(LEARNERS[name], model) for name in LEARNERS for model in histories(name)]


@pytest.mark.parametrize("seed", range(4))
def test_changed_configurations_of_real_files_are_refused_as_the_files_fault_and_take_no_memory(seed):
    """2 000 of them: what a site reads of a server's invitation, before its policy sees a sum."""
    rng, files, made = random.Random(seed), _real_files(), 0
    tracemalloc.start()
    try:
        for _ in range(500):
            content = rng.choice(files)
            changed = _rewritten(content, lambda description, arrays: _changed(rng, description["configuration"]))
            with suppress(ModelFileError):
                saved: Any = model_from_bytes(changed)
                wanted = saved.learner.next_sum(saved.model)
                assert wanted is None or sum(size for _, size, _ in wanted.segments) <= model_files.MAX_ENTRIES
                made += 1
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert 50 < made < 400, "some changes are other configurations that are fine, and most are not"


def test_every_changed_byte_is_noticed(content):
    for place in range(0, len(content), max(1, len(content) // 120)):
        with pytest.raises(ModelFileError):
            model_from_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])


def test_a_changed_parameter_is_noticed(content):
    changed = content.replace(rb"\"seed\":0", rb"\"seed\":1")
    assert changed != content
    with pytest.raises(ModelFileError, match="changed after it was written"):
        model_from_bytes(changed)


@pytest.mark.parametrize("text", ["", "{", "[" * 10**5, "[]", "null", '{"version": NaN}', '{"version": 2}'])
def test_other_descriptions_are_refused(text):
    with pytest.raises(ModelFileError, match=r"does not describe a model|has version|was changed"):
        model_from_bytes(_with_text({"weights": np.zeros(1)}, text))


def test_files_that_are_missing_cut_off_or_of_another_kind(content, tmp_path):
    for other in (content[:-8], b"", save({"weights": np.zeros(1)}), pickle.dumps({"weights": [1.0]})):
        (tmp_path / "model").write_bytes(other)
        with pytest.raises(ModelFileError, match=r"model (is no safetensors file|does not describe a model)"):
            load_model(tmp_path / "model")
    with pytest.raises(ModelFileError, match="name a saved model's file"):
        load_model(tmp_path / "nowhere")


def test_a_folder_of_version_1_is_refused_by_name(tmp_path):
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(ModelFileError, match="a folder of two files, which is version 1"):
        load_model(tmp_path)


def test_a_pickle_in_the_place_of_the_arrays_is_never_loaded(content):
    start = 8 + int.from_bytes(content[:8], "little")
    with pytest.raises(ModelFileError, match="digest of an array does not fit"):
        model_from_bytes(content[:start] + pickle.dumps([1.0] * len(content))[: len(content) - start])


class TestSaving:
    def test_a_model_with_nan_is_not_saved(self, tmp_path):
        solution = replace(histories("afl")[-1].solution, weights=np.full((D, C), np.nan))
        with pytest.raises(ModelFileError, match="NaN or infinity in weights"):
            save_model(tmp_path / "model", LEARNERS["afl"], LinearModel(solution=solution))
        assert list(tmp_path.iterdir()) == []

    def test_a_failed_save_leaves_the_model_before(self, tmp_path, monkeypatch):
        learner, path = LEARNERS["afl"], tmp_path / "model"
        save_model(path, learner, histories("afl")[0])

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(model_files.os, "fsync", full)
        with pytest.raises(ModelFileError, match="cannot save a model"):
            save_model(path, learner, histories("afl")[-1])
        monkeypatch.undo()
        assert learner.context_bytes(load_model(path).model) == learner.context_bytes(histories("afl")[0])
        assert list(tmp_path.iterdir()) == [path]

    def test_a_folder_in_the_files_place(self, tmp_path):
        (tmp_path / "file").write_text("")
        for place in (tmp_path, tmp_path / "file" / "model"):
            with pytest.raises(ModelFileError, match="name another file"):
                save_model(place, LEARNERS["afl"], histories("afl")[-1])

    def test_foreign_learners_and_classes(self):
        class Mine(AFL):
            pass

        mine = Mine(n_features=D, n_targets=C, feature_format=Q("Q2.14"), max_rows=N)
        with pytest.raises(SpecificationError, match="not of Mine"):
            model_to_bytes(mine, fit_pooled(mine, ClientRows(ROWS, LABELS)))
        with pytest.raises(SpecificationError, match="strings or integers, not as float"):
            model_to_bytes(LEARNERS["afl"], histories("afl")[-1], classes=[0.5, 1.5, 2.5])
        for classes in (["cat", "dog"], [], ["cat", "dog", "eel", "fox"]):
            with pytest.raises(
                SpecificationError, match=f"afl has 3 classes and needs a name for each, not {len(classes)}"
            ):
                model_to_bytes(LEARNERS["afl"], histories("afl")[-1], classes=classes)

    def test_parameters_without_a_json_form(self, tmp_path):
        exact = replace(LEARNERS["deepafl"], ridge=Fraction(1, 3))
        with pytest.raises(SpecificationError, match="cannot be saved with a Fraction in it"):
            save_model(tmp_path / "model", exact, histories("deepafl")[0])
        assert list(tmp_path.iterdir()) == []
