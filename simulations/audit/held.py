"""What probes share: what an object still leads to, and an end for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def held(thing: object, seen: set[int] | None = None) -> Iterator[bytes]:
    """All bytes that an object's own fields lead to, but for what it calls."""
    seen = set() if seen is None else seen
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if isinstance(thing, bytes):
        yield thing
        return
    if isinstance(thing, dict):
        inner: Iterable[object] = (*thing, *thing.values())
    elif isinstance(thing, list | tuple | set | frozenset):
        inner = thing
    else:
        slots = (name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))
        inner = (*getattr(thing, "__dict__", {}).values(), *(getattr(thing, name, None) for name in slots))
    for one in inner:
        if not callable(one):
            yield from held(one, seen)


def to_its_end(probe: Iterator[str]) -> Iterator[str]:
    """What a probe finds; that it did not come to its end, where it did not, is something found."""
    try:
        yield from probe
    except Exception as error:  # whatever a fault raises
        yield f"{getattr(probe, '__name__', 'a probe')} ended in {type(error).__name__}"
