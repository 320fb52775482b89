"""Check a client's vector against the layout before it is used."""

from __future__ import annotations

from secagg.errors import InvalidVectorError
from secagg.layout import IntVector, Layout
from secagg.ring import ClientVector, RingVector
from secagg.sessions import ClientInput


def check_now(layout: Layout, client_input: ClientInput, n_clients: int) -> None:
    """Check an array now; the result of a callable is checked by ``resolve``."""
    if not callable(client_input):
        layout.check(client_input, n_clients)


def resolve(layout: Layout, client_input: ClientInput, n_clients: int) -> ClientVector:
    """Return the client's vector, checked.

    Raises:
        InvalidVectorError: the vector does not fit the layout.
    """
    vector = client_input() if callable(client_input) else client_input
    if not isinstance(vector, RingVector):
        layout.check(vector, n_clients)
        return vector
    if vector.layout != layout:
        raise InvalidVectorError("these words have another layout than the sum; make them by its own description")
    vector.check(n_clients)
    return vector


def integers(vector: ClientVector) -> IntVector:
    """Return a client's vector as integers."""
    return vector.decode() if isinstance(vector, RingVector) else vector
