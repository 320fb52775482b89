"""The bytes that an object still holds, for tests that secrets are forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def reachable_bytes(thing: object) -> set[bytes]:
    """Return all bytes that an object's fields and containers lead to. Callables are not followed."""
    return set(_walk(thing, set()))


def _walk(thing: object, seen: set[int]) -> Iterator[bytes]:
    if id(thing) in seen or callable(thing):
        return
    seen.add(id(thing))
    if isinstance(thing, bytes):
        yield thing
        return
    for inner in _inside(thing):
        yield from _walk(inner, seen)


def _inside(thing: object) -> Iterable[object]:
    if isinstance(thing, dict):
        return (*thing, *thing.values())
    if isinstance(thing, list | tuple | set | frozenset):
        return thing
    slots = (name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))
    return (*getattr(thing, "__dict__", {}).values(), *(getattr(thing, name, None) for name in slots))
