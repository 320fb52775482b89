"""A view is exactly what the server saw: bytes of real messages and the total, and nothing else."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analytic_secagg.modes import MODES
from secagg import Layout
from secagg.errors import SecureSumError
from secagg.ring import RingVector
from secagg.wire import MessageType, message_type
from simulations.audit.view import RecordedSum, read_integers, record_sum
from simulations.audit.workbench import Bench


@pytest.fixture
def masked(bench: Bench) -> RecordedSum:
    return bench.run(MODES["masked"], bench.vectors(bench.cohort(4)))


def test_the_server_sees_all_messages_and_the_total_and_no_secret(masked: RecordedSum) -> None:
    view = masked.seen
    assert view.knowledge.messages == tuple(one.message for one in masked.envelopes)
    assert {message_type(one) for one in view.knowledge.messages} >= {
        MessageType.MASKED_INPUT,
        MessageType.UNMASK_SHARES,
    }
    assert {one.name for one in fields(view)} == {"protocol", "model", "knowledge", "colluders", "result"}
    assert (view.knowledge.tapes, view.knowledge.secrets) == ({}, {})
    assert view.result is masked.result
    assert np.array_equal(view.read_total(), sum(masked.inputs.values()))
    assert view.read_upload(99) is None


def test_a_sum_that_failed_shows_no_total(bench: Bench) -> None:
    failed = record_sum(bench.parties(MODES["masked"], (1, 2, 3)), {1: bench.vector(bench.cohort(3)[1])})
    assert failed.seen.read_total() is None
    with pytest.raises(SecureSumError):
        failed.released()


def test_no_secret_or_row_is_printed(masked: RecordedSum) -> None:
    assert "array" not in repr(masked) + repr(masked.seen)


@given(st.data(), st.sampled_from([1, 100, 2**15, 2**23, 2**39, 2**47, 2**62]))
def test_reading_integers_undoes_encoding(data: st.DataObject, bound: int) -> None:
    layout = Layout.of([("a", 3, bound), ("b", 1, 7)])
    values = st.integers(-bound, bound)
    vector = np.array([*(data.draw(values) for _ in range(3)), data.draw(st.integers(-7, 7))], dtype=np.int64)
    assert np.array_equal(read_integers(layout, RingVector.encode(layout, vector).to_bytes()), vector)
