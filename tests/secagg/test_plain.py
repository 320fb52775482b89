"""Plain sums: the oracle must be right by itself, against Python's integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import Layout, PlainSum, run_in_memory
from secagg.errors import InvalidVectorError, LocalProtocolError, RemoteProtocolError, TooFewSurvivorsError
from secagg.in_memory import Envelope
from secagg.wire import HEADER_BYTES

LAYOUT = Layout.of([("a", 2, 1000), ("b", 3, 2**40)])
SESSION = bytes(16)


def protocol(n: int = 3, min_survivors: int = 1) -> PlainSum:
    """A plain sum over n clients."""
    return PlainSum(layout=LAYOUT, clients=tuple(range(1, n + 1)), session_id=SESSION, min_survivors=min_survivors)


vectors = st.lists(
    st.tuples(*[st.integers(-100, 100)] * 2, *[st.integers(-(2**36), 2**36)] * 3).map(
        lambda values: np.array(values, dtype=np.int64)
    ),
    min_size=1,
    max_size=8,
)


@given(vectors, st.data())
def test_totals_are_python_integers_sums(parts: list[np.ndarray], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.integers(1, len(parts)), max_size=len(parts) - 1))
    run = run_in_memory(protocol(len(parts)), dict(enumerate(parts, start=1)), dropouts=dict.fromkeys(gone, 0))
    stayed = [i for i in range(1, len(parts) + 1) if i not in gone]
    assert list(run.result.survivors) == stayed
    assert run.result.total.tolist() == [sum(int(parts[i - 1][j]) for i in stayed) for j in range(5)]
    assert run.refused == ()


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


def test_one_session_sends_one_vector() -> None:
    client = protocol().client(1, np.zeros(5, dtype=np.int64))
    client.start()
    with pytest.raises(LocalProtocolError, match="already"):
        client.start()
    with pytest.raises(RemoteProtocolError):
        client.receive(b"anything")


def test_a_vector_beyond_the_bound_is_refused_before_anything_leaves() -> None:
    vector = np.array([0, 1001, 0, 0, 0], dtype=np.int64)
    with pytest.raises(InvalidVectorError):
        protocol().client(1, vector)
    late = protocol().client(1, lambda: vector)
    with pytest.raises(InvalidVectorError):
        late.start()


def test_a_vector_that_changes_after_it_was_checked_is_checked_again() -> None:
    vector = np.zeros(5, dtype=np.int64)
    client = protocol().client(1, vector)
    vector[0] = 1001
    with pytest.raises(InvalidVectorError):
        client.start()


def test_too_few_survivors() -> None:
    vector = np.zeros(5, dtype=np.int64)
    with pytest.raises(TooFewSurvivorsError, match="1 of 3 parties answered and 2 are needed") as caught:
        run_in_memory(protocol(3, min_survivors=2), {1: vector})
    assert (caught.value.needed, caught.value.came, caught.value.cohort) == (2, 1, 3)


def test_too_few_survivors_end_the_session() -> None:
    sum_ = protocol(2, min_survivors=2)
    server = sum_.server()
    clients = [sum_.client(party, np.zeros(5, dtype=np.int64)) for party in (1, 2)]
    server.receive(1, clients[0].start())
    with pytest.raises(TooFewSurvivorsError):
        server.close_round()
    with pytest.raises(LocalProtocolError):
        server.receive(2, clients[1].start())


def test_a_vector_after_the_result_is_refused() -> None:
    sum_ = protocol(2)
    server = sum_.server()
    clients = [sum_.client(party, np.ones(5, dtype=np.int64)) for party in (1, 2)]
    server.receive(1, clients[0].start())
    server.close_round()
    with pytest.raises((RemoteProtocolError, LocalProtocolError)):
        server.receive(2, clients[1].start())
