"""Covering designs: which pairs of two factors the short run tries, so that every value of each is tried."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest


def some_of(values: Sequence[Any], chosen: Sequence[Any]) -> list[Any]:
    """Parameters of which the short run tries those that are chosen, and the nightly run all."""
    return [pytest.param(value, marks=[] if value in chosen else pytest.mark.slow) for value in values]


def covering(
    first: Sequence[Any], second: Sequence[Any], *, ids: Sequence[str] = (), whole: Collection[Any] = ()
) -> list[Any]:
    """Pairs of parameters: in the short run every value of both factors, in the nightly run all pairs.

    Args:
        first, second: the values of both factors; each is repeated until the longer one is used up.
        ids: names of the second factor's values; their text where it is left out.
        whole: values of the first factor that the short run tries with all of the second.
    """
    names = ids or [str(value) for value in second]
    tried = {(k % len(first), k % len(second)) for k in range(max(len(first), len(second)))}
    return [
        pytest.param(
            one, other, id=f"{one}-{names[m]}", marks=[] if (k, m) in tried or one in whole else pytest.mark.slow
        )
        for k, one in enumerate(first)
        for m, other in enumerate(second)
    ]
