"""Plain sums: the oracle must be right by itself, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from secagg import Layout, PlainSum, run_in_memory
from secagg.errors import InvalidVectorError
from secagg.in_memory import Envelope
from secagg.wire import HEADER_BYTES

LAYOUT = Layout.of([("a", 2, 1000), ("b", 3, 2**40)])
SESSION = bytes(16)


def protocol(n: int = 3, min_survivors: int = 1) -> PlainSum:
    """A plain sum over n clients."""
    return PlainSum(layout=LAYOUT, clients=tuple(range(1, n + 1)), session_id=SESSION, min_survivors=min_survivors)


def test_a_plain_upload_is_the_vector_itself() -> None:
    """No privacy at all: whoever tests an audit starts from here."""
    sent: list[Envelope] = []
    vector = np.array([1, -2, 3, -4, 5], dtype=np.int64)
    run_in_memory(protocol(1), {1: vector}, record=sent.append)
    (envelope,) = sent
    payload = envelope.message[HEADER_BYTES:]
    assert payload == b"".join(
        [(v % 2**16).to_bytes(2, "little") for v in (1, -2)] + [(v % 2**48).to_bytes(6, "little") for v in (3, -4, 5)]
    )
    assert len(envelope.message) == HEADER_BYTES + LAYOUT.wire_bytes


def test_a_vector_that_changes_after_it_was_checked_is_checked_again() -> None:
    vector = np.zeros(5, dtype=np.int64)
    client = protocol().client(1, vector)
    vector[0] = 1001
    with pytest.raises(InvalidVectorError):
        client.start()
