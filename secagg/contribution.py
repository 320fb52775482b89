"""A client's vector, checked against the layout before anything of it leaves."""

from __future__ import annotations

from secagg.layout import IntVector, Layout
from secagg.sessions import Contribution


def check_now(layout: Layout, contribution: Contribution) -> None:
    """Check a vector that is there already; one that a call makes is checked when it is needed."""
    if not callable(contribution):
        layout.check(contribution)


def resolve(layout: Layout, contribution: Contribution) -> IntVector:
    """The vector, checked.

    Raises:
        InvalidVectorError: it does not fit the layout.
    """
    vector = contribution() if callable(contribution) else contribution
    layout.check(vector)
    return vector
