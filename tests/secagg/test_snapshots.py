"""The codec of stored sessions, by declared types; what each session stores is held by ``contracts/test_restarts.py``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from typing_extensions import TypeAliasType, TypeVar

from secagg import snapshots

Entry = TypeVar("Entry")
Aliased = TypeAliasType("Aliased", np.ndarray[tuple[int, ...], np.dtype[Entry]], type_params=(Entry,))
"""``NDArray`` as numpy 2.5 declares it, where Python has the type statement."""


@dataclass
class AsDeclared:
    total: NDArray[np.int64] | None
    parts: tuple[NDArray[np.int64], ...]


@dataclass
class AsAliased:
    total: Aliased[np.int64] | None
    parts: tuple[Aliased[np.int64], ...]


@pytest.mark.parametrize("kind", [AsDeclared, AsAliased])
def test_arrays_are_stored_however_their_type_is_spelled(kind: type[AsDeclared | AsAliased]) -> None:
    state = kind(total=np.array([1, -2]), parts=(np.array([2**40]),))
    stored = snapshots.write(state)
    read = snapshots.read(state, stored)
    assert read.total is not None
    assert (read.total.tolist(), [part.tolist() for part in read.parts]) == ([1, -2], [[2**40]])
    assert stored == snapshots.write(AsDeclared(total=state.total, parts=state.parts))
