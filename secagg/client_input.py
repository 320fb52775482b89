"""Check a client's vector against the layout before it is used."""

from __future__ import annotations

from secagg.errors import InvalidVectorError
from secagg.layout import Layout
from secagg.ring import RingVector
from secagg.sessions import ClientInput


def check_now(layout: Layout, client_input: ClientInput, n_clients: int) -> None:
    """Check an array now; the result of a callable is checked by ``resolve``."""
    if not callable(client_input):
        layout.check(client_input, n_clients)


def resolve(layout: Layout, client_input: ClientInput, n_clients: int) -> RingVector:
    """Return the client's vector as words, checked, which the caller may change.

    Raises:
        InvalidVectorError: the vector does not fit the layout.
    """
    vector = client_input() if callable(client_input) else client_input
    if not isinstance(vector, RingVector):
        layout.check(vector, n_clients)
        return RingVector.encode(layout, vector)
    if vector.layout != layout:
        raise InvalidVectorError("these words have another layout than the sum; make them by its own description")
    vector.check(n_clients)
    return vector
