"""One round at the server: who may answer, once, with what."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.config import SERVER
from secagg.errors import MalformedMessageError, RemoteProtocolError, RepeatedMessageError
from secagg.rounds import Round
from secagg.wire import MessageType, seal_frame

DIGEST = bytes(32)
DUE = MessageType.MASKED_INPUT


def message(sender: int, type_: MessageType = DUE, digest: bytes = DIGEST) -> bytes:
    """A message to the server."""
    return seal_frame(type_, b"payload", digest=digest, sender=sender, recipient=SERVER)


@given(st.sets(st.integers(1, 50), min_size=1), st.data())
def test_whoever_answered_is_no_longer_waited_for(asked: set[int], data: st.DataObject) -> None:
    round_ = Round(DIGEST, DUE, asked)
    answering = data.draw(st.sets(st.sampled_from(sorted(asked))))
    for party in answering:
        assert bytes(round_.open(party, message(party)).payload) == b"payload"
        round_.accept(party, message(party))
    assert set(round_.answered) == answering
    assert round_.waiting_for == asked - answering


def test_opening_alone_counts_nobody() -> None:
    round_ = Round(DIGEST, DUE, [1, 2])
    round_.open(1, message(1))
    assert round_.waiting_for == {1, 2}
    round_.open(1, message(1))


def test_repetitions_count_once() -> None:
    round_ = Round(DIGEST, DUE, [1, 2])
    round_.open(1, message(1))
    round_.accept(1, message(1))
    with pytest.raises(RepeatedMessageError, match="counts once") as caught:
        round_.open(1, message(1))
    assert caught.value.peer == 1
    assert set(round_.answered) == {1}


@pytest.mark.parametrize("type_", [t for t in MessageType if t is not DUE])
def test_messages_of_other_rounds_are_refused(type_: MessageType) -> None:
    with pytest.raises(RemoteProtocolError, match=f"waiting for {DUE.name} and got {type_.name}"):
        Round(DIGEST, DUE, [1]).open(1, message(1, type_))


def test_strangers_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="stranger or dropped out") as caught:
        Round(DIGEST, DUE, [1]).open(2, message(2))
    assert caught.value.peer == 2


def test_nobody_speaks_for_another() -> None:
    with pytest.raises(MalformedMessageError, match="says it goes from 1 to 0, but it came from 2"):
        Round(DIGEST, DUE, [1, 2]).open(2, message(1))


def test_other_sessions_are_refused() -> None:
    with pytest.raises(MalformedMessageError, match="another session"):
        Round(DIGEST, DUE, [1]).open(1, message(1, digest=b"\1" * 32))
