"""Models as bytes and files: numbers as safetensors, everything else as JSON in its header, never pickle.

A saved model is one safetensors file. Its arrays are the model's, bit for bit, and its metadata has one entry,
``analytic-model``, a line of JSON::

    {"version", "learner", "configuration", "conditioning", "classes", "arrays": {name: SHA-256}, "sha256"}

and "features", the names of the columns, where somebody gave them. The description names each array by its digest and
carries a digest of itself, so a file that is damaged, cut off or mixed up from two is refused. Digests do not tell who
wrote a model: whoever can write the file can write a new one. A file is put in place in one step, so what lies there is
always one whole model.

A float of the description is the shortest decimal that reads back as the same float64.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from analytic.afl import AFL
from analytic.array_file import ArrayFile, owner_only
from analytic.bucketing import FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.discriminant import LDA, QDA
from analytic.errors import AnalyticError, SpecificationError
from analytic.evaluation import ClassEvaluation, LabelsEvaluation, RegressionEvaluation
from analytic.extensions import ExtensionError, Group, find
from analytic.fedhip import FedHiP
from analytic.learner import OPTIONAL, STORED_WITHOUT, AnalyticLearner, stated_fields
from analytic.logistic import Logistic
from analytic.model_arrays import ModelFileError as ModelFileError
from analytic.model_arrays import Parts
from analytic.naive_bayes import NaiveBayes
from analytic.noisy_solve import NoisySolver
from analytic.partial_labels import PartialLabels
from analytic.pipeline import SLOTS, Pipeline
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, RowFormat
from analytic.row_map import CountMap, JointClip, LayerMap, RowClip, RowMap
from analytic.safle import SAFLe
from analytic.scaling import Scaler
from analytic.selection import RidgeCV
from analytic.weights import Weights

FILE = ArrayFile(entry="analytic-model", version=2, what="a model", remedy="save the model again", error=ModelFileError)
"""Version 1 was a folder of two files."""

LEARNERS: dict[str, type[Any]] = {
    "afl": AFL,
    "random": AFL,
    "fedhip": FedHiP,
    "deepafl": DeepAFL,
    "safle": SAFLe,
    "logistic": Logistic,
    "lda": LDA,
    "qda": QDA,
    "naive-bayes": NaiveBayes,
    "partial-afl": PartialLabels,
    "partial-random": PartialLabels,
}
LEARNERS |= {f"chosen-{name}": Pipeline for name in ("afl", "random", "fedhip")}
LEARNERS |= {f"agreed-{name}": Pipeline for name in LEARNERS}
LEARNERS |= {f"weighted-{name}": Pipeline for name in LEARNERS}
"""The learners of this package whose models can be stored, by name; ``_class_of`` knows those of others, too.

Such a learner is a dataclass whose fields are its configuration. ``take_apart(model)`` returns the model's ``Parts``,
and ``put_together(parts)`` the model, or raises ModelFileError where a part is not what the configuration asks for."""

EVALUATIONS: dict[str, type[Any]] = {
    "evaluation-of-classes": ClassEvaluation,
    "evaluation-of-labels": LabelsEvaluation,
    "evaluation-of-targets": RegressionEvaluation,
}
"""Evaluations by name. Their files hold the model that is judged as the bytes of its own file."""

JUDGED = "judged"
"""The array of these bytes."""

_NO_EVALUATION = "what is judged is a model and no evaluation; save it again"

PARAMETERS: dict[str, type[Any]] = {
    "scaler": Scaler,
    "ridge_cv": RidgeCV,
    "weights": Weights,
    "fixed_thresholds": FixedThresholds,
    "quantile_thresholds": QuantileThresholds,
    "column_map": ColumnMap,
    "random_map": RandomMap,
    "row_map": RowMap,
    "count_map": CountMap,
    "layer_map": LayerMap,
    "row_clip": RowClip,
    "joint_clip": JointClip,
    "noisy_solver": NoisySolver,
}
"""Dataclasses that stand in a learner's configuration, by the name that they have in JSON; likewise."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedModel:
    """Contents of a model file.

    Args:
        learner: the closed form with its configuration.
        model: its model, with the same bytes as the one that was saved.
        classes: what labels 0, 1, ... stand for, or None.
        features: the names of the columns of a feature row, or None.
    """

    learner: AnalyticLearner[Any]
    model: Any
    classes: tuple[str | int, ...] | None = None
    features: tuple[str, ...] | None = None


MAX_ENTRIES = 2**28
"""Most numbers of the sum that a stored model may ask for next: 23 000 features, 2 GiB for one vector. What a
site makes is for its own policy; this keeps readers of a file from beginning with what no machine holds."""

UNUSABLE = (ArithmeticError, TypeError, ValueError, AttributeError, LookupError, RecursionError)
"""Errors that values of a wrong kind cause, such as deeply nested lists."""

TOTALS = "total."
"""Prefix of the names of arrays that are totals of rows and not weights."""


def model_to_bytes(
    learner: AnalyticLearner[Any],
    model: Any,
    *,
    classes: Sequence[str | int] | None = None,
    features: Sequence[str] | None = None,
    with_totals: bool = False,
) -> bytes:
    """Return a model as the bytes of its file; equal models have equal bytes.

    An incomplete model (some sums are still to come) may be saved too.

    Args:
        learner: the closed form with its configuration.
        model: its model.
        classes: what labels 0, 1, ... stand for.
        features: the names of the columns of a feature row, in their order, for whoever predicts with it.
        with_totals: whether FedHiP's total of all clients goes along, with which a client personalises. Who reads such
            a file can take its own part off the total: give it to nobody but clients that may have totals.

    Raises:
        SpecificationError: a learner that is not one of ``LEARNERS`` and has no entry point, classes that are no
            strings or integers, or more or fewer classes or features than the learner has.
        ModelFileError: the model holds NaN or infinity.
    """
    storable: Any = learner
    if _class_of(learner.name) is not type(learner):
        raise SpecificationError(
            f"only models of {', '.join(LEARNERS)}, or of a learner with an entry point in {Group.LEARNERS}, have a "
            f"file format, not of {type(learner).__name__}; give it one (docs/how-to/extend.md), or save its arrays "
            "yourself"
        )
    if classes is not None and learner.name not in EVALUATIONS and len(classes) != storable.n_targets:
        raise SpecificationError(
            f"{learner.name} has {storable.n_targets} classes and needs a name for each, not {len(classes)}; give them "
            "in the order of the labels, or none"
        )
    if features is not None and len(features) != storable.n_features:
        raise SpecificationError(
            f"{learner.name} has {storable.n_features} features and needs a name for each, not {len(features)}; give "
            "them in the order of the columns, or none"
        )
    parts: Parts = storable.take_apart(model)
    parts.check_finite()
    arrays = {
        name: np.ascontiguousarray(array)
        for name, array in parts.arrays.items()
        if with_totals or not name.startswith(TOTALS)
    }
    stated = stated_fields(storable)
    if learner.name in EVALUATIONS:
        judged = model_to_bytes(stated.pop("learner"), storable.model, with_totals=with_totals)
        arrays[JUDGED] = np.frombuffer(judged, dtype=np.uint8)
    description = {
        "learner": learner.name,
        "configuration": _configuration(storable, stated),
        "conditioning": parts.conditioning,
        "classes": None if classes is None else [_class_to_json(value) for value in classes],
    }
    if features is not None:
        description["features"] = list(features)
    return FILE.to_bytes(arrays, description)


def model_from_bytes(content: bytes, *, source: str = "the model") -> SavedModel:
    """Return the model that ``model_to_bytes`` made these bytes of: equal ``weights_bytes``.

    ``context_bytes`` are equal too, where no total was left out.

    Args:
        content: the bytes.
        source: where they come from, for errors.

    Raises:
        ModelFileError: they are damaged, of another version or format, or the arrays are not those that the
            configuration asks for: a missing or surplus one, another shape or type, NaN or infinity. Or its next sum
            has more than ``MAX_ENTRIES`` numbers.
    """
    arrays, description = _opened(content, source)
    evaluated = _judged(arrays, source) if description["learner"] in EVALUATIONS else {}
    learner = _learner(description, source, evaluated)
    parts = Parts(arrays, description["conditioning"], source=source)
    parts.check_finite()
    try:
        model = learner.put_together(parts)
        _check_next_sum(learner, model, source)
    except ModelFileError:
        raise
    except (AnalyticError, *UNUSABLE) as error:
        raise ModelFileError(f"{source}: what it holds makes no model of {learner.name}: {error}") from error
    parts.check_all_taken()
    classes, features = description["classes"], description.get("features")
    if features is not None and len(features) != getattr(learner, "n_features", None):
        raise ModelFileError(
            f"{source} must name each of its features, and names {len(features)}; save the model again"
        )
    return SavedModel(
        learner=learner,
        model=model,
        classes=None if classes is None else tuple(classes),
        features=None if features is None else tuple(features),
    )


def names_in(content: bytes, *, source: str = "the model") -> tuple[str, ...]:
    """Return the name of the learner that these bytes are a model of; after an evaluation's that of the one it judges.

    Neither is made, and no extension is imported.

    Raises:
        ModelFileError: they are damaged, or of another version or format.
    """
    arrays, description = _opened(content, source)
    name: str = description["learner"]
    if name not in EVALUATIONS:
        return (name,)
    judged: str = _opened(_judged_file(arrays, source), source)[1]["learner"]
    if judged in EVALUATIONS:
        raise ModelFileError(f"{source}: {_NO_EVALUATION}")
    return name, judged


def learner_in(content: bytes, *, source: str = "the model") -> AnalyticLearner[Any]:
    """Return the learner that these bytes are a model of, and do not make the model.

    Raises:
        ModelFileError: they are damaged, of another version or format, or of no learner that is known.
    """
    arrays, description = _opened(content, source)
    evaluated = {}
    if description["learner"] in EVALUATIONS:
        evaluated = {"learner": learner_in(_judged_file(arrays, source), source=source), "model": None}
    learner: AnalyticLearner[Any] = _learner(description, source, evaluated)
    return learner


def save_model(
    path: Path | str,
    learner: AnalyticLearner[Any],
    model: Any,
    *,
    classes: Sequence[str | int] | None = None,
    features: Sequence[str] | None = None,
    with_totals: bool = False,
) -> None:
    """Write a model into the file ``path`` in one step: what was there stays until the new one is whole.

    Missing folders on the way are made. See ``analytic.model_files.model_to_bytes`` for what can be saved, and for whom
    ``with_totals`` is.

    Raises:
        SpecificationError, ModelFileError: as ``model_to_bytes``, or the file cannot be written; what was there stays.
    """
    path = Path(path)
    content = model_to_bytes(learner, model, classes=classes, features=features, with_totals=with_totals)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(beside, "xb", opener=owner_only) as file:  # people's totals are behind a model
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise ModelFileError(f"cannot save a model as {path}: {error.strerror or error}; name another file") from error


def load_model(path: Path | str) -> SavedModel:
    """Return the model of a file that ``save_model`` wrote.

    Raises:
        ModelFileError: as ``model_from_bytes``, or there is no such file.
    """
    path = Path(path)
    if (path / "model.json").exists():
        raise ModelFileError(
            f"{path} is a folder of two files, which is version 1, and this release reads version {FILE.version}, one "
            "file; load it with the release that wrote it, or save the model again"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}; name a saved model's file") from error
    return model_from_bytes(content, source=str(path))


# --- a configuration as JSON, and back ----------------------------------------------------------------------


def _configuration(learner: Any, stated: Mapping[str, Any]) -> dict[str, Any]:
    """A learner's fields; the head of a pipeline is a learner of its own, by its name."""
    own = {name: _to_json(value) for name, value in stated.items() if name != "head" or type(learner) is not Pipeline}
    if type(learner) is Pipeline:
        own["head"] = {learner.head.name: _configuration(learner.head, stated_fields(learner.head))}
    return own


def _to_json(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, RowFormat):
        return {"row_format": str(value)}
    for name, kind in PARAMETERS.items():
        if type(value) is kind:
            return {name: {field: _to_json(own) for field, own in stated_fields(value).items()}}
    if isinstance(value, tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    raise SpecificationError(f"a configuration cannot be saved with a {type(value).__name__} in it")


def _from_json(value: Any) -> Any:
    match value:
        case {"row_format": str(text)}:
            return RowFormat.parse(text)
        case dict() if len(value) == 1 and value.keys() <= PARAMETERS.keys():
            ((name, parameters),) = value.items()
            own = {key: _from_json(item) for key, item in parameters.items()}
            _check_kinds(PARAMETERS[name], own)
            return PARAMETERS[name](**own)
        case dict():
            raise SpecificationError(f"no parameter has a value like {json.dumps(value)[:60]}")
        case list():
            return tuple(_from_json(item) for item in value)
    return value


def _class_to_json(value: Any) -> str | int:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int)):
        raise SpecificationError(
            f"classes are saved as strings or integers, not as {type(value).__name__}; convert them"
        )
    return value


def _judged(arrays: dict[str, Any], source: str) -> dict[str, Any]:
    """The learner and the complete model that an evaluation is of, taken out of its arrays."""
    saved = model_from_bytes(_judged_file(arrays, source), source=f"the model that {source} judges")
    if saved.learner.name in EVALUATIONS:
        raise ModelFileError(f"{source}: {_NO_EVALUATION}")
    return {"learner": saved.learner, "model": saved.model}


def _judged_file(arrays: dict[str, Any], source: str) -> bytes:
    """The file of the model that an evaluation is of, taken out of its arrays."""
    content = arrays.pop(JUDGED, None)
    if content is None or content.dtype != np.uint8 or content.ndim != 1:
        raise ModelFileError(f"{source}: an evaluation holds the file of the model that is judged; save it again")
    found: bytes = content.tobytes()
    return found


_JSON_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "None": (type(None),),
}
"""JSON types of a field's type; other types check their own values."""


def _check_kinds(kind: type[Any], configuration: Mapping[str, Any]) -> None:
    """Refuse a value of another type than its field's: a whole number as a float is equal to it, and no index.

    Raises:
        SpecificationError: which.
    """
    for own in fields(kind):
        names = str(own.type).split(" | ")
        if own.name in configuration and all(name in _JSON_KINDS for name in names):
            allowed = {one for name in names for one in _JSON_KINDS[name]}
            if type(configuration[own.name]) not in allowed:
                raise SpecificationError(f"{own.name} must be {own.type}, not {configuration[own.name]!r}")


def _class_of(name: str) -> type[Any] | None:
    """Return the class of the learner or evaluation of a name; for an extension's the one that its entry states.

    Raises:
        ExtensionError: see ``analytic.extensions.find``; or the class is no dataclass.
    """
    own: type[Any] | None = (LEARNERS | EVALUATIONS).get(name)
    if own is None and (head := _head_of(name)) != name:
        own = None if _class_of(head) is None else Pipeline
    if own is not None:
        return own
    stated = getattr(find(Group.LEARNERS, name), "learner_class", None)  # an object of a package above this one
    if stated is not None and not (isinstance(stated, type) and is_dataclass(stated)):
        raise ExtensionError(
            f"the {Group.LEARNERS.kind} {name} needs a dataclass as its learner_class, whose fields a model's file "
            "states, and has another object: correct its package (docs/how-to/extend.md)"
        )
    return stated


def _head_of(name: str) -> str:
    """The name of a learner without the slots of a pipeline."""
    for slot in SLOTS:
        name = name.removeprefix(f"{slot}-")
    return name


def _learner(description: Mapping[str, Any], source: str, evaluated: Mapping[str, Any]) -> Any:
    name, configuration = description["learner"], description["configuration"]
    kind = _class_of(name)
    if kind is None:
        raise ModelFileError(
            f"{source} must state one of the learners {', '.join(LEARNERS)}, or of an installed package (entry point "
            f"in {Group.LEARNERS}), not {name[:60]!r}: install the package that has it, or save the model again"
        )
    known = {f.name: f for f in fields(kind) if f.name not in evaluated}
    earlier = {name: f.metadata[STORED_WITHOUT] for name, f in known.items() if STORED_WITHOUT in f.metadata}
    configuration = {**earlier, **configuration}
    present = set(configuration)
    wanted = {name for name, own in known.items() if own.metadata != OPTIONAL or name in present}
    if wanted != present:
        raise ModelFileError(
            f"{source}: the configuration of {name} needs {', '.join(sorted(wanted - present)) or 'nothing more'} and "
            f"has no place for {', '.join(sorted(present - wanted)) or 'nothing'}: another release wrote it; load it "
            "there"
        )
    try:
        if kind is Pipeline:
            configuration["head"] = _head(configuration["head"], _head_of(name), source)
        is_head = {"head"} if kind is Pipeline else set()
        values = {key: value if key in is_head else _from_json(value) for key, value in configuration.items()}
        _check_kinds(kind, values)
        found = kind(**evaluated, **values)
        if found.name != name:
            raise SpecificationError(f"it is of {found.name}")
        return found
    except (AnalyticError, *UNUSABLE) as error:
        raise ModelFileError(f"{source}: the configuration of {name} cannot be used: {error}") from error


def _head(stated: Any, name: str, source: str) -> Any:
    """The head of a pipeline: of the learner that the pipeline's own name says, and of no other.

    Raises:
        SpecificationError: another one; a site has agreed to the learners that it names, and makes no others.
    """
    match stated:
        case {**one} if one.keys() == {name} and isinstance(one[name], dict):
            return _learner({"learner": name, "configuration": one[name]}, source, {})
    raise SpecificationError(f"the head of this pipeline must be {name}, by this name")


def _check_next_sum(learner: Any, model: Any, source: str) -> None:
    """Refuse a model that asks for a sum beyond ``MAX_ENTRIES``, before anything of its size is made."""
    wanted = learner.next_sum(model)
    size = 0 if wanted is None else sum(entries for _, entries, _ in wanted.segments)
    if size > MAX_ENTRIES:
        raise ModelFileError(
            f"{source}: its configuration asks for a sum of {size} numbers, and a model's file may ask for at most "
            f"{MAX_ENTRIES}; take fewer features, targets or folds"
        )


def _opened(content: bytes, source: str) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """The arrays of a file, and its description, if it states what it must."""
    arrays, description = FILE.from_bytes(content, source)
    names = description.get("features", [])
    match description:
        case {
            "learner": str(),
            "configuration": dict(),
            "conditioning": dict(),
            "classes": None | list(),
        } if isinstance(names, list) and all(isinstance(name, str) for name in names):
            return arrays, description
    raise ModelFileError(
        f"{source} must state the learner, its configuration, conditioning, classes and arrays; save the model again"
    )
