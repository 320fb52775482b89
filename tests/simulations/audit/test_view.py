"""A view is exactly what its coalition saw: bytes of real messages, members' tapes and inputs, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic_secagg.modes import MODES
from secagg import Layout
from secagg.config import SERVER
from secagg.ring import RingVector
from secagg.wire import MessageType, message_type
from simulations.audit.view import SERVER_ALONE, WIRE_TAPPER, Coalition, RecordedSum, read_integers
from simulations.audit.workbench import Bench


@pytest.fixture
def masked(bench: Bench) -> RecordedSum:
    return bench.run(MODES["masked"], bench.vectors(bench.cohort(4)))


def test_the_server_sees_all_messages_and_the_total_and_no_secret(masked: RecordedSum) -> None:
    view = masked.view(SERVER_ALONE)
    assert view.messages == masked.envelopes
    assert {message_type(one.message) for one in view.messages} >= {MessageType.MASKED_INPUT, MessageType.UNMASK_SHARES}
    assert (view.inputs, view.tapes, view.secrets) == ({}, {}, {})
    assert view.result is masked.result
    assert np.array_equal(view.read_total(), sum(masked.inputs.values()))


def test_a_client_sees_its_own_messages_and_no_total(masked: RecordedSum) -> None:
    view = masked.view(Coalition(name="client", parties=frozenset({2})))
    assert {2, SERVER} == {party for one in view.messages for party in (one.sender, one.recipient)}
    assert len(view.messages) < len(masked.envelopes)
    assert view.result is None
    assert view.read_total() is None
    assert view.read_upload(3) is None
    assert list(view.tapes) == [2]
    assert np.array_equal(view.inputs[2], masked.inputs[2])


def test_a_wire_tapper_sees_bytes_alone(masked: RecordedSum) -> None:
    view = masked.view(WIRE_TAPPER)
    assert view.messages == masked.envelopes
    assert view.result is None
    assert view.tapes == {}


def test_a_tape_holds_what_a_client_drew(masked: RecordedSum) -> None:
    assert len({bytes(tape) for tape in masked.tapes.values()}) == 4
    assert all(len(tape) > 96 for tape in masked.tapes.values())


def test_a_coalition_takes_its_own_part_off(masked: RecordedSum) -> None:
    view = masked.view(Coalition(name="both", server=True, parties=frozenset({1, 4})))
    assert np.array_equal(view.read_rest(), masked.inputs[2] + masked.inputs[3])


def test_helpers_and_key_holders_bring_their_secrets(bench: Bench) -> None:
    for mode, n in (("committee", 2), ("ckks", 1)):
        if not MODES[mode].installed:
            pytest.skip(f"the extra of {mode} is not installed")
        recorded = bench.run(MODES[mode], bench.vectors(bench.cohort(3)))
        secrets = recorded.parties.secrets
        assert len(secrets) == n
        holder = next(iter(secrets))
        view = recorded.view(Coalition(name="helper", parties=frozenset({holder})))
        assert view.secrets == {holder: secrets[holder]}
        assert recorded.view(SERVER_ALONE).secrets == {}
        total = view.read_total()
        assert (total is not None) == (mode == "ckks")
        assert total is None or np.array_equal(total, sum(recorded.inputs.values()))


def test_no_secret_or_row_is_printed(masked: RecordedSum) -> None:
    text = repr(masked) + repr(masked.view(Coalition(name="all", server=True, parties=frozenset({1, 2}))))
    assert all(repr(bytes(tape[:8]))[2:-1] not in text for tape in masked.tapes.values())
    assert "array" not in text


@given(st.data(), st.sampled_from([1, 100, 2**15, 2**23, 2**39, 2**47, 2**62]))
def test_reading_integers_undoes_encoding(data: st.DataObject, bound: int) -> None:
    layout = Layout.of([("a", 3, bound), ("b", 1, 7)])
    values = st.integers(-bound, bound)
    vector = np.array([*(data.draw(values) for _ in range(3)), data.draw(st.integers(-7, 7))], dtype=np.int64)
    assert np.array_equal(read_integers(layout, RingVector.encode(layout, vector).to_bytes()), vector)
