"""A helper whose keys an adversary has: it sends wrong sums of masks. For demonstrations only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from analytic_secagg.local.node import main
from secagg.committee.helper import CommitteeHelper

_true_sum = CommitteeHelper._sum


def _false_sum(helper: CommitteeHelper, place: int) -> Iterator[memoryview]:
    """Yield the sum with one bit changed; the helper commits to it and sends it."""
    true = _true_sum(helper, place)
    first = bytearray(next(true))
    first[0] ^= 1
    yield memoryview(first)
    yield from true


if __name__ == "__main__":
    CommitteeHelper._sum = _false_sum  # type: ignore[method-assign, assignment]
    main(Path(sys.argv[1]), int(sys.argv[2]))
