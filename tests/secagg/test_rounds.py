"""One round at the server: who may answer, once, with what."""

from __future__ import annotations

import pytest

from secagg.errors import RemoteProtocolError, RepeatedMessageError
from secagg.rounds import Round
from secagg.wire import Frame, MessageType

DUE = MessageType.MASKED_INPUT


def take(round_: Round, sender: int, type_: MessageType = DUE) -> None:
    """Have a round check a message, as servers do."""
    round_.check(sender, Frame(type=type_, payload=memoryview(b"payload")))


def test_opening_alone_counts_nobody() -> None:
    round_ = Round.of(DUE, [1, 2])
    take(round_, 1)
    assert round_.waiting_for == {1, 2}
    take(round_, 1)


def test_repetitions_count_once() -> None:
    round_ = Round.of(DUE, [1, 2])
    take(round_, 1)
    round_.accept(1)
    with pytest.raises(RepeatedMessageError, match="counts once") as caught:
        take(round_, 1)
    assert caught.value.peer == 1
    assert round_.answered == {1}


def test_strangers_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="stranger or dropped out") as caught:
        take(Round.of(DUE, [1]), 2)
    assert caught.value.peer == 2
