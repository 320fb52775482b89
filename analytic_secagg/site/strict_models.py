"""Files and settings read strictly, with pydantic: a key that nobody knows is an error, since it may be a misspelt
safeguard; no value is turned into another type; and each error says what was needed, what came and what to do.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from analytic_secagg.site.errors import DeploymentError, SiteFileError

M = TypeVar("M", bound=BaseModel)

_KINDS = {
    "string_type": "a text in quotes",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "literal_error": "one of its names in quotes",
    "frozen_set_type": "a list of strings",
    "tuple_type": "a list",
    "model_type": "a table",
    "dict_type": "a table",
}
_CAME = {
    str: "a text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}
_BOUNDS = {
    "greater_than": ("above", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("below", "lt"),
    "less_than_equal": ("at most", "le"),
}


class StrictModel(BaseModel):
    """Base of files and run configurations; an unsafe one never exists as an object."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True, hide_input_in_errors=True
    )

    @classmethod
    def read(cls, path: Path | str) -> Self:
        """Return what a TOML file says; paths in it are relative to its own folder.

        Raises:
            SiteFileError: what the file must say, what it says, what to do.
        """
        path = Path(path)
        return validated(cls, read_toml(path), SiteFileError, prefix=f"{path}: ", folder=path.parent)


def read_toml(path: Path) -> dict[str, Any]:
    """Return the top table of a file.

    Raises:
        SiteFileError: it cannot be read or is no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SiteFileError(f"cannot read {path}: {error.strerror}; name a file that is there") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SiteFileError(f"{path} must be TOML and is not: {error}") from error


def validated(
    kind: type[M],
    values: Mapping[str, Any],
    error: type[Exception],
    *,
    prefix: str = "",
    whole: str = "the file",
    folder: Path | None = None,
) -> M:
    """Return the model of these values.

    Args:
        kind: its class.
        values: by name.
        error: what is raised.
        prefix: how its text begins.
        whole: what holds the values that stand in no table.
        folder: what paths among them are relative to.
    """
    try:
        return kind.model_validate(values, context=folder)
    except ValidationError as refused:
        found = refused.errors(include_url=False)
    first = found[0]
    if first["type"] == "missing":  # with nothing in its place the report says what is needed there
        return validated(kind, _filled(values, first["loc"]), error, prefix=prefix, whole=whole, folder=folder)
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, DeploymentError):
        raise raised
    raise error(prefix + (str(raised) if raised else _explain(found, whole)))


def _filled(values: Mapping[str, Any], place: tuple[str | int, ...]) -> dict[str, Any]:
    key, *rest = place
    return {**values, str(key): _filled(values[str(key)], tuple(rest)) if rest else None}


def _explain(found: list[ErrorDetails], whole: str) -> str:
    """Say what was needed, what came and what to do, of the first error, or of all surplus keys of its table."""
    first, names = found[0], [str(part) for part in found[0]["loc"] if not isinstance(part, int)]
    where = f"[{names[0]}]" if len(names) > 1 else whole
    if first["type"] == "extra_forbidden":
        surplus = [
            one["loc"][-1] for one in found if (one["type"], one["loc"][:-1]) == (first["type"], first["loc"][:-1])
        ]
        return f"{where} has no place for {', '.join(sorted(map(str, surplus)))}; correct or remove it"
    if first["type"] in _BOUNDS:
        words, bound = _BOUNDS[first["type"]]
        return f"{where} needs {names[-1]} {words} {first['ctx'][bound]:g}, not {first['input']:g}"
    if first["type"] == "literal_error" and isinstance(first["input"], str):
        return f"{where} needs {names[-1]} to be {first['ctx']['expected']}, not {first['input']!r}"
    came = "nothing" if first["input"] is None else _CAME.get(type(first["input"]), "something else")
    if names != list(first["loc"]):
        return f"{where} needs {names[-1]} as a list of strings, and {came} is in it"
    return f"{where} needs {names[-1]} as {_KINDS.get(first['type'], 'another kind of value')}, not {came}"


def text(value: object) -> str:
    """Return a text, for validators that make something of one."""
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "a text in quotes")
    return value


def beside(value: object, info: ValidationInfo) -> Path:
    """Return the path that a file names, relative to the file's own folder."""
    return Path(info.context or "") / text(value)


Place = Annotated[Path, BeforeValidator(beside)]
"""A path in a file."""

Texts = Annotated[frozenset[str], Field(strict=False)]
"""A list of texts, in whatever order."""
