"""What tests of encrypted sums share: a search for secrets, and sums with a parameter changed."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from secagg.encryption import Encrypted


def reachable_bytes(root: object) -> set[bytes]:
    """Every bytes object that can be reached through attributes and containers."""
    seen: set[int] = set()
    found: set[bytes] = set()
    left = [root]
    while left:
        here = left.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        if isinstance(here, bytes):
            found.add(here)
        elif isinstance(here, dict):
            left += [*here.keys(), *here.values()]
        elif isinstance(here, (list, tuple, set, frozenset)):
            left += here
        elif is_dataclass(here):
            left += [getattr(here, f.name) for f in fields(here)]
        elif hasattr(here, "__dict__"):
            left += vars(here).values()
    return found


def changed(protocol: Any, **changes: Any) -> Any:
    """The sum with other parameters, those of its encoder among them."""
    of_encoder = {name: changes.pop(name) for name in [f.name for f in fields(Encrypted)] if name in changes}
    return replace(protocol, encoder=replace(protocol.encoder, **of_encoder), **changes)
