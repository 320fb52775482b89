"""The commands of engines, as their operators call them."""

from __future__ import annotations

from collections.abc import Sequence

from analytic_secagg.__main__ import main


def flower(words: Sequence[str]) -> int:
    """``analytic-secagg flower ...``."""
    return main(["flower", *words])


def nvflare(words: Sequence[str]) -> int:
    """``analytic-secagg nvflare ...``."""
    return main(["nvflare", *words])
