"""What the tests of both kinds of encrypted sum share: a layout, vectors at its bounds, and a search for secrets."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from secagg import IntVector, Layout
from secagg.carriers import Encrypted

LAYOUT = Layout.of([("gram", 60, 2**40), ("cross", 20, 1000), ("count", 1, 2**17)])
SESSION = bytes(range(16))
HOLDER = 1

layouts = st.lists(
    st.tuples(st.integers(1, 30), st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))), min_size=1, max_size=3
).map(lambda shapes: Layout.of((f"s{i}", size, bound) for i, (size, bound) in enumerate(shapes)))
cohorts = st.sets(st.integers(1, 2**32 - 1), min_size=2, max_size=6).map(lambda ids: tuple(sorted(ids)))


def vectors_within(layout: Layout, clients: tuple[int, ...], seed: int) -> dict[int, IntVector]:
    """Vectors within each client's share of the bounds, with extremes."""
    share = np.concatenate([np.full(s.size, s.bound // len(clients), dtype=np.int64) for s in layout.segments])
    rng = np.random.default_rng(seed)
    vectors = {party: rng.integers(-share, share, endpoint=True) for party in clients}
    vectors[clients[0]], vectors[clients[-1]] = share, -share
    return vectors


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
    """The sum with other parameters, those of its carrier among them."""
    of_carrier = {name: changes.pop(name) for name in [f.name for f in fields(Encrypted)] if name in changes}
    return replace(protocol, carrier=replace(protocol.carrier, **of_carrier), **changes)
