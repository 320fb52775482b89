"""The in-memory driver: whoever drops out is left out, and what was refused is reported with its reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from secagg import Layout, MaskedSum, run_in_memory
from secagg.errors import ConfigurationError, SecureSumError
from secagg.in_memory import Envelope
from secagg.wire import MessageType, message_type

LAYOUT = Layout.of([("s", 3, 1000)])
SESSION = bytes(16)


def masked(n: int = 4) -> MaskedSum:
    """A masked sum over n clients."""
    return MaskedSum(layout=LAYOUT, clients=tuple(range(1, n + 1)), session_id=SESSION, threshold=n // 2 + 1)


def vectors(n: int = 4) -> dict[int, np.ndarray]:
    """Client i contributes i, 2 i, -i."""
    return {i: np.array([i, 2 * i, -i], dtype=np.int64) for i in range(1, n + 1)}


class TestRun:
    @pytest.mark.parametrize("spoken", [0, 1, 2, 3, 4, 100])
    def test_a_dropout_says_as_much_as_it_was_given(self, spoken: int) -> None:
        sent: list[Envelope] = []
        run = run_in_memory(masked(), vectors(), dropouts={2: spoken}, record=sent.append)
        assert sum(e.sender == 2 for e in sent) == min(spoken, 4)
        uploaded = any(e.sender == 2 and message_type(e.message) is MessageType.MASKED_INPUT for e in sent)
        assert (2 in run.result.survivors) == uploaded == (spoken >= 3)

    def test_clients_that_never_came_are_dropouts(self) -> None:
        run = run_in_memory(masked(), {k: v for k, v in vectors().items() if k != 3})
        assert run.result.survivors == (1, 2, 4)
        assert 3 not in run.traffic

    def test_strangers_are_refused_before_anything_is_sent(self) -> None:
        sent: list[Envelope] = []
        with pytest.raises(ConfigurationError, match="party 9"):
            run_in_memory(masked(), vectors() | {9: np.zeros(3, dtype=np.int64)}, record=sent.append)
        assert sent == []

    def test_the_result_cannot_be_changed_by_its_reader(self) -> None:
        """`SumResult` says: read-only."""
        run = run_in_memory(masked(), vectors())
        with pytest.raises(ValueError, match="read-only"):
            run.result.total[0] = 0

    def test_refusals_are_reported_with_their_reason(self) -> None:
        class Echo:
            def carry(self, sent: Iterable[Envelope]) -> Iterator[Envelope]:
                for envelope in sent:
                    yield envelope
                    yield envelope

        run = run_in_memory(masked(), vectors(), network=Echo())
        assert run.result.total.tolist() == [10, 20, -10]
        assert run.refused
        assert all(isinstance(error, SecureSumError) for _, error in run.refused)
        assert {envelope.sender for envelope, _ in run.refused} == {0, 1, 2, 3, 4}

    def test_envelopes_hide_their_message(self) -> None:
        assert "SECRET" not in repr(Envelope(sender=1, recipient=0, message=b"SECRET"))
