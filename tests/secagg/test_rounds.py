"""One round at the server: who may answer, once, with what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.errors import RemoteProtocolError, RepeatedMessageError
from secagg.rounds import Round
from secagg.wire import Frame, MessageType

DUE = MessageType.MASKED_INPUT


def take(round_: Round, sender: int, type_: MessageType = DUE) -> None:
    """Have a round look at a message, as servers do."""
    round_.check(sender, Frame(type=type_, payload=memoryview(b"payload")))


@given(st.sets(st.integers(1, 50), min_size=1), st.data())
def test_whoever_answered_is_no_longer_waited_for(asked: set[int], data: st.DataObject) -> None:
    round_ = Round.of(DUE, asked)
    answering = data.draw(st.sets(st.sampled_from(sorted(asked))))
    for party in answering:
        take(round_, party)
        round_.accept(party)
    assert round_.answered == answering
    assert round_.waiting_for == asked - answering


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


@pytest.mark.parametrize("type_", [t for t in MessageType if t is not DUE])
def test_messages_of_other_rounds_are_refused(type_: MessageType) -> None:
    with pytest.raises(RemoteProtocolError, match=f"waiting for {DUE.name} and got {type_.name}"):
        take(Round.of(DUE, [1]), 1, type_)


def test_strangers_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="stranger or dropped out") as caught:
        take(Round.of(DUE, [1]), 2)
    assert caught.value.peer == 2
