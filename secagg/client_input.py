"""A client's vector, checked against the layout before anything of it leaves."""

from __future__ import annotations

from secagg.layout import IntVector, Layout
from secagg.sessions import ClientInput


def check_now(layout: Layout, client_input: ClientInput, n_clients: int) -> None:
    """Check a vector that is there already; one that a call makes is checked when it is needed."""
    if not callable(client_input):
        layout.check(client_input, n_clients)


def resolve(layout: Layout, client_input: ClientInput, n_clients: int) -> IntVector:
    """The vector of one of so many clients, checked.

    Raises:
        InvalidVectorError: it does not fit the layout.
    """
    vector = client_input() if callable(client_input) else client_input
    layout.check(vector, n_clients)
    return vector
