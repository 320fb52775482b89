"""Whether the code that runs is the code that was published: its files, and what this process made of them.

The software integrity test that goes before known answers, as in FIPS 140-3 (ISO/IEC 19790:2012, 7.5 and 7.10.2). It
names what differs, whatever that does, and says nothing of what was published. It is for faults and for honest hosts:
whoever controls a process can have it say anything.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path, PurePath
from types import CellType, CodeType, FunctionType, GenericAlias, MethodType, ModuleType, UnionType
from typing import Any

import numpy as np

PACKAGES = ("secagg", "analytic", "federation", "simulations")
ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "federation" / "code.sha256"
"""The SHA-256 of every file of the packages, as ``sha256sum`` writes and checks them."""


def altered_code() -> tuple[str, ...]:
    """Return the files that are not the published ones, and what in memory their sources do not give.

    Files of one's own beside the packages, and modes, learners and attacks that a program adds, are not the library's.
    """
    return (*_other_files(), *dict.fromkeys(_replaced()))


def code_digest() -> str:
    """Return the SHA-256 of the list of files as they are here: of an unaltered copy that of ``code.sha256``."""
    return hashlib.sha256(_listing().encode()).hexdigest()


def _listing() -> str:
    files = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    named = {path.relative_to(ROOT).as_posix(): path for path in files if path != PUBLISHED}
    return "".join(
        f"{hashlib.sha256(named[name].read_bytes()).hexdigest()}  {name}\n"
        for name in sorted(named)
        if "/__pycache__/" not in name and "/." not in name
    )


def _other_files() -> Iterator[str]:
    here, published = (dict(_by_name(text)) for text in (_listing(), PUBLISHED.read_text(encoding="utf-8")))
    yield from sorted(name for name in here.keys() | published.keys() if here.get(name) != published.get(name))


def _by_name(listing: str) -> Iterator[tuple[str, str]]:
    for line in listing.splitlines():
        digest, _, name = line.partition("  ")
        yield name, digest


# In memory: all modules are made anew from their sources, and held against those that run


def _replaced() -> Iterator[str]:
    running = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in PACKAGES}
    with _set_aside(running):
        anew = {name: importlib.import_module(name) for name in running}
    comparison = _Comparison()
    for name in sorted(running):
        yield from comparison.by_name(name, vars(running[name]), vars(anew[name]))


@contextmanager
def _set_aside(running: dict[str, ModuleType]) -> Iterator[None]:
    """Let the packages be imported as if they had not been."""
    finder = _FromSource()
    for name in running:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
            del sys.modules[name]
        sys.modules.update(running)


class _WithoutCache(SourceFileLoader):
    """Compiles what it loads: a cached module may be of another source."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


class _FromSource(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] not in PACKAGES:
            return None
        place = ROOT.joinpath(*fullname.split("."))
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file.is_file():
                return spec_from_file_location(fullname, file, loader=_WithoutCache(fullname, str(file)))
        return None


VALUES = (str, bytes, int, float, complex, Fraction, range, re.Pattern, PurePath, np.generic, np.dtype)
"""What is compared by its text; floats are written with all their digits, and NaN is NaN."""

_OF_MODULES = {"__builtins__", "__cached__", "__file__", "__loader__", "__path__", "__spec__"}
_OF_CLASSES = {
    "__dict__",
    "__doc__",
    "__weakref__",
    "_abc_impl",
    "__pydantic_core_schema__",
    "__pydantic_setattr_handlers__",
}
_OF_A_PROCESS = _OF_MODULES | _OF_CLASSES | {"cls_ref"}
"""Names of what no source gives; two of them, pydantic's, hold addresses."""

_REGISTRIES = ("MODES", "LEARNERS", "ATTACKS")
"""Tables that programs add their own to."""

_ABSENT = object()


class _Comparison:
    """Of what runs with what the same sources made anew, by its parts, each pair once."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], object] = {}

    def by_name(self, where: str, own: Mapping[str, Any], anew: Mapping[str, Any]) -> Iterator[str]:
        """What differs in a module or a class."""
        for name in sorted((own.keys() | anew.keys()) - _OF_A_PROCESS):
            one, other = own.get(name, _ABSENT), anew.get(name, _ABSENT)
            if other is not _ABSENT or not _is_python_s(name, one):
                yield from self.differences(f"{where}.{name}", one, other)

    def differences(self, where: str, own: Any, anew: Any) -> Iterator[str]:
        """What differs in an object that has a name: that name, or those of a class' own parts."""
        if own is anew:
            return
        kinds = (own, anew) if isinstance(own, type) and isinstance(anew, type) else (type(own), type(anew))
        if not _is_twin(*kinds) or _is_other_value(own, anew) or _has_more(where, own, anew):
            yield where
        elif (id(own), id(anew)) not in self._seen:
            self._seen[id(own), id(anew)] = (own, anew)  # kept, so that nothing else gets their ids
            if isinstance(own, type):
                yield from self.by_name(f"{own.__module__}.{own.__qualname__}", vars(own), vars(anew))
            for part, other in _parts(own, anew):
                yield from self.differences(where, part, other)


def _is_python_s(name: str, added: Any) -> bool:
    """Whether Python adds such a name while it runs: a module of a package, a registry of warnings, annotations."""
    return isinstance(added, ModuleType) or (name.startswith("__") and not callable(added))


def _is_twin(own: type, anew: type) -> bool:
    """Whether two classes are one, or of one place in the packages."""
    return own is anew or (
        own.__module__ == anew.__module__
        and own.__qualname__ == anew.__qualname__
        and own.__module__.partition(".")[0] in PACKAGES
    )


def _is_other_value(own: Any, anew: Any) -> bool:
    """Whether two objects of one type differ as a whole."""
    if isinstance(own, type):
        return False
    if isinstance(own, CodeType):
        return bool(own != anew)
    if isinstance(own, ModuleType):
        return bool(own.__name__ != anew.__name__)
    if isinstance(own, np.ndarray):
        return not (own.dtype == anew.dtype and np.array_equal(own, anew))
    if isinstance(own, set | frozenset):
        return sorted(map(str, own)) != sorted(map(str, anew))
    if isinstance(own, tuple | list):
        return len(own) != len(anew)
    return isinstance(own, VALUES) and repr(own) != repr(anew)


def _has_more(where: str, own: Any, anew: Any) -> bool:
    """Whether a table has entries that its source does not give it."""
    return isinstance(own, Mapping) and len(own) > len(anew) and where.rpartition(".")[2] not in _REGISTRIES


def _parts(own: Any, anew: Any) -> Iterator[tuple[Any, Any]]:
    """What two objects of one type consist of, pair by pair."""
    if isinstance(own, type):
        yield own.__bases__, anew.__bases__
        return
    if isinstance(own, Mapping):
        here = {repr(key): value for key, value in own.items()}  # a key may be of a class that was made anew
        yield from ((here.get(repr(key), _ABSENT), value) for key, value in anew.items())
    elif isinstance(own, tuple | list):
        yield from zip(own, anew, strict=True)
    elif isinstance(own, (ModuleType, *VALUES)):
        return
    fields = getattr(anew, "__dict__", {}).keys() | set(_PARTS_OF.get(type(own), ()))
    fields |= {slot for kind in type(own).__mro__ for slot in _slots(kind)}
    for name in sorted(fields - _OF_A_PROCESS):
        yield getattr(own, name, _ABSENT), getattr(anew, name, _ABSENT)


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


_PARTS_OF: Mapping[type, tuple[str, ...]] = {
    FunctionType: ("__code__", "__defaults__", "__kwdefaults__", "__closure__"),
    CellType: ("cell_contents",),
    MethodType: ("__func__", "__self__"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    partial: ("func", "args", "keywords"),
    GenericAlias: ("__origin__", "__args__"),
    UnionType: ("__args__",),
}
"""Of types whose objects have parts that are no fields."""


if __name__ == "__main__":
    PUBLISHED.write_text(_listing(), encoding="utf-8")
