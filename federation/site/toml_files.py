"""TOML files read strictly: a key that nobody knows is an error, since it may be a misspelt safeguard."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from federation.site.errors import SiteFileError

T = TypeVar("T")

NAMES: Mapping[type[Any], str] = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


class Table:
    """A table of a file, whose values are taken once each."""

    def __init__(self, path: Path, name: str, values: Mapping[str, Any]) -> None:
        self.path, self._name, self._left = path, name, dict(values)

    @classmethod
    def read(cls, path: Path) -> Table:
        """The top table of a file.

        Raises:
            SiteFileError: it cannot be read or is no TOML.
        """
        try:
            return cls(path, "the file", tomllib.loads(path.read_text(encoding="utf-8")))
        except OSError as error:
            raise SiteFileError(f"cannot read {path}: {error.strerror}; name a file that is there") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SiteFileError(f"{path} must be TOML and is not: {error}") from error

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The value of ``key``; a missing one is an error unless there is a default."""
        value = self._left.pop(key, default)
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            came = "nothing" if value is None else NAMES.get(type(value), "something else")
            raise SiteFileError(f"{self.path}: {self._name} needs {key} as {NAMES[kind]}, not {came}")
        return value

    def texts(self, key: str, default: tuple[str, ...]) -> frozenset[str]:
        """A list of strings."""
        values = self.take(key, list, list(default))
        if not all(isinstance(value, str) for value in values):
            raise SiteFileError(f"{self.path}: {key} of {self._name} must be a list of strings")
        return frozenset(values)

    def place(self, key: str) -> Path:
        """A path, relative to the file's own folder."""
        return self.path.parent / self.take(key, str)

    def table(self, key: str) -> Table:
        """A table within, empty where there is none."""
        return Table(self.path, f"[{key}]", self.take(key, dict, {}))

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def rest(self) -> Iterator[tuple[str, Any]]:
        """Every pair that is left."""
        while self._left:
            yield self._left.popitem()

    def end(self) -> None:
        """Refuse what nobody asked for."""
        if self._left:
            raise SiteFileError(
                f"{self.path}: {self._name} has no place for {', '.join(sorted(self._left))}; correct or remove it"
            )
