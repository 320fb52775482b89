"""Snapshots: the state of a session as bytes, so that another process can continue it.

The state of a session is one dataclass; one codec writes its declared fields. ``session.snapshot()`` returns the bytes,
``restore`` reads them into a new session of the same party. They are not encrypted and contain a client's secrets:
``DurableClient`` encrypts them, bound to ``session.snapshot_id`` (format version, role, party and configuration
digest).
"""

from __future__ import annotations

import dataclasses
import struct
import types
from collections.abc import Iterable
from enum import Enum
from functools import cache, lru_cache
from typing import Any, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from secagg.encoding import joined
from secagg.errors import MalformedMessageError, SnapshotError
from secagg.sessions import PartyId
from secagg.wire import Reader

MAGIC = b"SAGS"
VERSION = 7
"""Version 1 had a format for each kind of session; 2 to 6 contained messages of wire format 1 to 5. All are refused by
name."""

CLIENT, SERVER, HELPER = 1, 2, 3
State = TypeVar("State")


def binding(role: int, digest: bytes, party: PartyId) -> bytes:
    """Return the identifier of a stored session: format, role, configuration and party."""
    return MAGIC + bytes([VERSION, role]) + digest + party.to_bytes(4, "big")


class Stored(Generic[State]):
    """Base class of sessions whose whole state is one dataclass, ``_kept``."""

    _kept: State

    def snapshot(self) -> bytes:
        """Return the state of the session as bytes. They contain its secrets."""
        return write(self._kept)

    def restore(self, snapshot: bytes) -> None:
        """Restore the state of a snapshot of the same party.

        Raises:
            SnapshotError: the bytes were changed.
        """
        self._kept = read(self._kept, snapshot)


def write(state: object) -> bytes:
    """Return the bytes of a dataclass, field by field; fields with ``to_snapshot`` write themselves."""
    return joined(_write_fields(state))


def read(fresh: State, snapshot: bytes) -> State:
    """Read a dataclass; inverse of ``write``.

    Args:
        fresh: a new state of the same session. Fields with ``read_snapshot`` (a running sum, which needs its layout)
            read themselves; ``fresh`` does not change.
        snapshot: the bytes.

    Raises:
        SnapshotError: the bytes were changed.
    """
    try:
        reader = Reader(memoryview(snapshot), peer=0)
        state: State = _read_fields(reader, type(fresh), fresh)
        reader.end()
    except (MalformedMessageError, ValueError, IndexError, struct.error) as error:
        raise SnapshotError("this snapshot of a session does not read: changed bytes") from error
    return state


@lru_cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the names and types of the init fields of a dataclass."""
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in dataclasses.fields(kind) if field.init)


def _write_fields(state: Any) -> Iterable[bytes | memoryview]:
    of: Any = type(state)
    for name, kind in _fields(of):
        value = getattr(state, name)
        yield from value.to_snapshot() if hasattr(value, "to_snapshot") else _write(value, kind)


def _write(value: Any, kind: Any) -> Iterable[bytes | memoryview]:
    """Yield the bytes of a value in parts: an array is not copied."""
    kind, origin, of = _parts(kind)
    if origin in (Union, types.UnionType):
        yield bytes([value is not None])
        if value is not None:
            yield from _write(value, _but_none(of))
    elif origin is dict:
        yield len(value).to_bytes(8, "big")
        for key, entry in value.items():
            yield from _write(key, of[0])
            yield from _write(entry, of[1])
    elif origin in (tuple, list, set, frozenset):
        yield len(value).to_bytes(8, "big")
        for entry in sorted(value) if origin in (set, frozenset) else value:
            yield from _write(entry, of[0])
    elif origin is np.ndarray:
        whole = np.ascontiguousarray(value, dtype="<i8")
        yield whole.nbytes.to_bytes(8, "big")
        yield whole.data.cast("B")
    elif dataclasses.is_dataclass(kind):
        yield from _write_fields(value)
    elif issubclass(kind, bytes):
        yield len(value).to_bytes(8, "big")
        yield value
    elif issubclass(kind, Enum):
        yield bytes([list(kind).index(value)])
    elif issubclass(kind, bool):
        yield bytes([value])
    else:
        yield struct.pack(">d" if issubclass(kind, float) else ">q", value)


def _read_fields(reader: Reader, kind: Any, fresh: Any) -> Any:
    values = {}
    for name, field_kind in _fields(kind):
        present: Any = getattr(fresh, name, None)
        if hasattr(present, "read_snapshot"):
            values[name] = present.read_snapshot(reader)
        else:
            values[name] = _read(reader, field_kind)
    return kind(**values)


def _read(reader: Reader, kind: Any) -> Any:
    kind, origin, of = _parts(kind)
    if origin in (Union, types.UnionType):
        return _read(reader, _but_none(of)) if _flag(reader) else None
    if origin is dict:
        return {_read(reader, of[0]): _read(reader, of[1]) for _ in range(_count(reader))}
    if origin in (tuple, list, set, frozenset):
        return origin(_read(reader, of[0]) for _ in range(_count(reader)))
    if origin is np.ndarray:
        return np.frombuffer(reader.view(_count(reader)), dtype="<i8").astype(np.int64)
    if dataclasses.is_dataclass(kind):
        return _read_fields(reader, kind, None)
    if issubclass(kind, bytes):
        return reader.take(_count(reader))
    if issubclass(kind, Enum):
        return list(kind)[reader.take(1)[0]]
    if issubclass(kind, bool):
        return _flag(reader)
    return struct.unpack(">d" if issubclass(kind, float) else ">q", reader.take(8))[0]


def _but_none(kinds: tuple[Any, ...]) -> Any:
    (kind,) = (kind for kind in kinds if kind is not types.NoneType)
    return kind


@cache
def _parts(kind: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return a type, its origin and its arguments; ``type`` aliases (NumPy from 2.5 on) are resolved."""
    kind = getattr(get_origin(kind), "__value__", kind)
    return kind, get_origin(kind), get_args(kind)


def _flag(reader: Reader) -> bool:
    (flag,) = reader.take(1)
    if flag > 1:
        raise MalformedMessageError(f"a flag is 0 or 1, not {flag}")
    return flag == 1


def _count(reader: Reader) -> int:
    """Read a number of entries or bytes. Each entry takes at least one byte, so a wrong number soon raises an error."""
    return int.from_bytes(reader.take(8), "big")
