"""Models as files: numbers as safetensors, everything else as JSON, never pickle.

A saved model is a folder::

    model.json                       format, version, learner, configuration, conditioning, classes, name of the other
    weights-<SHA-256>.safetensors    the arrays, bit for bit

``model.json`` names the other file by its digest and carries a digest of itself, so a file that is damaged, cut off or
mixed up with another is refused. Digests do not tell who wrote a model: whoever can write both files can write a new
pair. Saving puts ``model.json`` in place last and in one step, so the folder always holds one whole model.

A float in ``model.json`` is the shortest decimal that reads back as the same float64.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from analytic.bucketing import FixedThresholds, QuantileThresholds
from analytic.errors import SpecificationError
from analytic.learner import OPTIONAL, AnalyticLearner, stated_fields
from analytic.model_arrays import LEARNERS, Arrays, Parts, put_together, taken_apart
from analytic.model_arrays import ModelFileError as ModelFileError
from analytic.row_format import RowFormat

FORMAT, VERSION = "analytic-model", 1
DESCRIPTION = "model.json"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SavedModel:
    """What a folder held.

    Args:
        learner: the closed form with its configuration.
        model: its model, with the same bytes as the one that was saved.
        classes: what labels 0, 1, ... stand for, or None.
    """

    learner: AnalyticLearner[Any]
    model: Any
    classes: tuple[str | int, ...] | None = None


def save_model(
    folder: Path | str, learner: AnalyticLearner[Any], model: Any, *, classes: Sequence[str | int] | None = None
) -> None:
    """Write a model into ``folder``, which is created when missing; a model in it is replaced in one step.

    An incomplete model (some sums are still to come) may be saved too. FedHiP's file holds the total of all clients,
    with which they personalise; to publish the weights alone, save ``LinearModel(solution=model.solution)``.

    Raises:
        SpecificationError: a learner that is not one of this package's, or classes that are no strings or integers.
        ModelFileError: the model holds NaN or infinity, or the folder cannot be written to; what was there stays.
    """
    folder = Path(folder)
    arrays, conditioning = taken_apart(learner, model)
    _check_finite(arrays, f"the model to be saved in {folder}")
    content = save_arrays({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    digest = hashlib.sha256(content).hexdigest()
    description = {
        "format": FORMAT,
        "version": VERSION,
        "learner": learner.name,
        "configuration": {name: _to_json(value) for name, value in stated_fields(learner).items()},
        "conditioning": conditioning,
        "classes": None if classes is None else [_class_to_json(value) for value in classes],
        "weights": {"file": _weights_file(digest), "sha256": digest},
    }
    description["sha256"] = _digest(description)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = _weights_file_named_in(folder)
        _write(folder / _weights_file(digest), content)
        _write(folder / DESCRIPTION, json.dumps(description, indent=2, allow_nan=False).encode() + b"\n")
        if before is not None and before.name != _weights_file(digest):
            before.unlink(missing_ok=True)
    except OSError as error:
        raise ModelFileError(
            f"cannot save a model in {folder}: {error.strerror or error}; name another folder"
        ) from error


def load_model(folder: Path | str) -> SavedModel:
    """The model that ``save_model`` wrote into ``folder``: equal ``weights_bytes`` and ``context_bytes``.

    Raises:
        ModelFileError: a file is missing, damaged, of another version or format, or its arrays are not those that the
            configuration asks for: a missing or surplus one, another shape or type, NaN or infinity.
    """
    folder = Path(folder)
    description = _read_description(folder / DESCRIPTION)
    learner = _learner(description)
    arrays = _read_arrays(folder, description["weights"])
    _check_finite(arrays, str(folder))
    parts = Parts(folder, arrays, description["conditioning"])
    model = put_together(learner, parts)
    parts.check_all_taken()
    classes = description["classes"]
    return SavedModel(learner=learner, model=model, classes=None if classes is None else tuple(classes))


# --- a configuration as JSON, and back ----------------------------------------------------------------------


def _to_json(value: Any) -> Any:
    if isinstance(value, RowFormat):
        return {"row_format": str(value)}
    if isinstance(value, FixedThresholds):
        return {"fixed_thresholds": [[float(entry) for entry in row] for row in value.values]}
    if isinstance(value, QuantileThresholds):
        return {
            "quantile_thresholds": {"low": float(value.low), "high": float(value.high), "n_bins": int(value.n_bins)}
        }
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    if isinstance(value, str):
        return str(value)
    raise SpecificationError(f"a configuration cannot be saved with a {type(value).__name__} in it")


def _from_json(value: Any) -> Any:
    match value:
        case {"row_format": str(text)}:
            return RowFormat.parse(text)
        case {"fixed_thresholds": [*rows]}:
            return FixedThresholds(values=tuple(tuple(row) for row in rows))
        case {"quantile_thresholds": {"low": low, "high": high, "n_bins": n_bins}}:
            return QuantileThresholds(low=low, high=high, n_bins=n_bins)
        case dict() | list():
            raise SpecificationError(f"no parameter has a value like {json.dumps(value)[:60]}")
    return value


def _class_to_json(value: Any) -> str | int:
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (str, int)):
        raise SpecificationError(
            f"classes are saved as strings or integers, not as {type(value).__name__}; convert them"
        )
    return value


def _learner(description: Mapping[str, Any]) -> AnalyticLearner[Any]:
    name, configuration = description["learner"], description["configuration"]
    kind = LEARNERS[name]
    wanted, present = {f.name for f in fields(kind) if f.metadata != OPTIONAL}, set(configuration)
    if wanted != present:
        raise ModelFileError(
            f"the configuration of {name} needs {', '.join(sorted(wanted - present)) or 'nothing more'} and has no "
            f"place for {', '.join(sorted(present - wanted)) or 'nothing'}: another release wrote it; load it there"
        )
    try:
        learner: AnalyticLearner[Any] = kind(**{key: _from_json(value) for key, value in configuration.items()})
    except (SpecificationError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ModelFileError(f"the configuration of {name} in {DESCRIPTION} cannot be used: {error}") from error
    return learner


# --- files --------------------------------------------------------------------------------------------------


def _digest(description: Mapping[str, Any]) -> str:
    """SHA-256 of all but the digest itself, as JSON with sorted keys and no spaces."""
    rest = {key: value for key, value in description.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _read_description(path: Path) -> dict[str, Any]:
    content = _read(path)
    try:
        description = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path} must be JSON and is not ({error}); save the model again") from error
    if not isinstance(description, dict) or description.get("format") != FORMAT:
        raise ModelFileError(
            f'{path} does not describe a model: it lacks "format": "{FORMAT}"; name a saved model\'s folder'
        )
    if description.get("version") != VERSION:
        raise ModelFileError(
            f"{path} has version {description.get('version')!r} and this release reads version {VERSION}; load it with "
            "the release that wrote it, or save the model again"
        )
    if description.get("sha256") != _digest(description):
        raise ModelFileError(f"{path} was changed after it was written: its digest does not fit; save the model again")
    match description:
        case {
            "learner": str(name),
            "configuration": dict(),
            "conditioning": dict(),
            "classes": None | list(),
            "weights": {"file": str(file), "sha256": str(digest)},
        } if name in LEARNERS and re.fullmatch("[0-9a-f]{64}", digest) and file == _weights_file(digest):
            return description
    raise ModelFileError(
        f"{path} must state one of the learners {', '.join(LEARNERS)}, its configuration, conditioning, classes and "
        f"weights in a file {_weights_file('SHA-256')}; save the model again"
    )


def _weights_file(digest: str) -> str:
    return f"weights-{digest}.safetensors"


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _read_arrays(folder: Path, weights: Mapping[str, str]) -> Arrays:
    path = folder / weights["file"]
    content = _read(path)
    if hashlib.sha256(content).hexdigest() != weights["sha256"]:
        raise ModelFileError(
            f"{path} was damaged or changed after it was written: its digest does not fit; save it again"
        )
    try:
        return load_arrays(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ModelFileError(f"{path} is no safetensors file of numbers ({error}); save the model again") from error


def _check_finite(arrays: Arrays, where: str) -> None:
    bad = sorted(name for name, array in arrays.items() if not np.isfinite(array).all())
    if bad:
        raise ModelFileError(
            f"{where} must hold finite numbers; there is NaN or infinity in {', '.join(bad)}: train again"
        )


def _weights_file_named_in(folder: Path) -> Path | None:
    """The arrays of the model that is about to be replaced."""
    try:
        return folder / str(_read_description(folder / DESCRIPTION)["weights"]["file"])
    except ModelFileError:
        return None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}; name a saved model's folder") from error


def _write(path: Path, content: bytes) -> None:
    """Put ``content`` there in one step: beside it first, on the disk, then moved."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
