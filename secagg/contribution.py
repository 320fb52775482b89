"""A client's vector, checked against the layout before anything of it leaves."""

from __future__ import annotations

from secagg.layout import IntVector, Layout
from secagg.sessions import Contribution


def check_now(layout: Layout, contribution: Contribution, n_clients: int) -> None:
    """Check a vector that is there already; one that a call makes is checked when it is needed."""
    if not callable(contribution):
        layout.check(contribution, n_clients)


def resolve(layout: Layout, contribution: Contribution, n_clients: int) -> IntVector:
    """The vector of one of so many clients, checked.

    Raises:
        InvalidVectorError: it does not fit the layout.
    """
    vector = contribution() if callable(contribution) else contribution
    layout.check(vector, n_clients)
    return vector
