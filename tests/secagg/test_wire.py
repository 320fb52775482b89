"""Message frames: exactly the message that belongs here is opened, and whatever else is refused by name."""

from __future__ import annotations

import tracemalloc
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.config import SERVER
from secagg.errors import MalformedMessageError, RemoteProtocolError, SecureSumError
from secagg.primitives.identity import IdentityKey, is_signed
from secagg.wire import (
    HEADER_BYTES,
    VERSION,
    MessageType,
    Reader,
    message_type,
    open_frame,
    payload_of,
    seal_frame,
    write_entries,
    write_parties,
)

DIGEST = bytes(range(32))
KEY = IdentityKey(b"k" * 32)
PARTY = 7
types = st.sampled_from(MessageType)
parties = st.integers(0, 2**32 - 1)


def framed(payload: bytes = b"payload", type_: MessageType = MessageType.MASKED_INPUT) -> bytes:
    """A message from PARTY to the server."""
    return seal_frame(type_, payload, digest=DIGEST, sender=PARTY, recipient=SERVER)


def opened(message: bytes) -> bytes:
    """What the server reads of it."""
    return bytes(open_frame(message, digest=DIGEST, sender=PARTY, recipient=SERVER).payload)


@given(types, st.binary(max_size=100), st.binary(min_size=32, max_size=32), parties, parties)
def test_frames_round_trip(type_: MessageType, payload: bytes, digest: bytes, sender: int, recipient: int) -> None:
    message = seal_frame(type_, payload, digest=digest, sender=sender, recipient=recipient)
    frame = open_frame(message, digest=digest, sender=sender, recipient=recipient)
    assert (frame.type, bytes(frame.payload)) == (type_, payload)
    assert len(message) == HEADER_BYTES + len(payload)
    assert message_type(message) is type_


def test_the_header_is_as_documented() -> None:
    message = seal_frame(MessageType.ROSTER, b"xyz", digest=DIGEST, sender=0, recipient=2**32 - 1)
    header = b"SAGG" + b"\6" + b"\x11" + DIGEST + bytes(4) + b"\xff" * 4
    assert message == header + b"\0" + b"xyz"
    signed = seal_frame(MessageType.ROSTER, b"xyz", digest=DIGEST, sender=0, recipient=2**32 - 1, identity=KEY)
    assert signed[:-64] == header + b"\x40" + b"xyz"
    assert is_signed(KEY.public, signed[-64:], "message", header + b"\x40", sha256(b"xyz").digest())
    assert payload_of(message) == payload_of(signed) == b"xyz"


def test_a_signed_message_is_opened_by_its_sender_s_key_alone() -> None:
    message = seal_frame(
        MessageType.MASKED_INPUT, b"payload", digest=DIGEST, sender=PARTY, recipient=SERVER, identity=KEY
    )
    said = {"digest": DIGEST, "sender": PARTY, "recipient": SERVER}
    assert bytes(open_frame(message, **said, public=KEY.public).payload) == b"payload"
    with pytest.raises(MalformedMessageError, match="not signed by the identity of its sender") as caught:
        open_frame(message, **said, public=IdentityKey(b"o" * 32).public)
    assert caught.value.peer == PARTY
    with pytest.raises(MalformedMessageError, match="a signature of 0 bytes, this one in one of 64"):
        open_frame(message, **said)
    with pytest.raises(MalformedMessageError, match="a signature of 64 bytes, this one in one of 0"):
        open_frame(framed(), **said, public=KEY.public)
    for size in range(len(message)):
        with pytest.raises(MalformedMessageError):
            open_frame(message[:size], **said, public=KEY.public)


def test_type_numbers_do_not_move() -> None:
    """They are on the wire: a changed number is another version of the format."""
    assert {t.name: t.value for t in MessageType}.items() >= {
        "PLAIN_INPUT": 1,
        "ADVERTISED_KEYS": 16,
        "ROSTER": 17,
        "SEALED_SHARES": 18,
        "SHARE_DELIVERY": 19,
        "MASKED_INPUT": 20,
        "UNMASK_REQUEST": 21,
        "UNMASK_SHARES": 22,
    }.items()


@pytest.mark.parametrize("length", range(HEADER_BYTES))
def test_truncated_headers_are_refused(length: int) -> None:
    with pytest.raises(MalformedMessageError, match=f"these {length} bytes are no message"):
        opened(framed()[:length])


@pytest.mark.parametrize(
    ("start", "bytes_", "told"),
    [
        (0, b"GGAS", "no message of this protocol"),
        (4, bytes([VERSION + 1]), f"speaks version {VERSION}"),
        (4, b"\4", "speaks version 6 of the message format, the message has version 4"),
        (5, b"\xff", "message type 255 does not exist"),
        (5, b"\0", "message type 0 does not exist"),
        (6, b"\xff", "another session or another configuration"),
        (37, b"\xff", "another session or another configuration"),
        (38, b"\xff", "says it goes from"),
        (41, bytes([PARTY + 1]), f"says it goes from {PARTY + 1} to 0, but it came from {PARTY} to 0"),
        (45, b"\1", "to 1"),
        (46, b"\1", "in a signature of 0 bytes, this one in one of 1"),
    ],
)
def test_foreign_headers_are_refused_by_name(start: int, bytes_: bytes, told: str) -> None:
    message = framed()
    with pytest.raises(MalformedMessageError, match=told) as caught:
        opened(message[:start] + bytes_ + message[start + len(bytes_) :])
    assert caught.value.peer == PARTY


@given(st.integers(0, 8 * HEADER_BYTES - 1))
def test_no_bit_of_the_header_is_free(bit: int) -> None:
    """But the type's: another type is for the session's state to refuse."""
    message = bytearray(framed())
    message[bit // 8] ^= 1 << bit % 8
    if bit // 8 == 5 and message_type(bytes(message)) is not None:
        assert open_frame(bytes(message), digest=DIGEST, sender=PARTY, recipient=SERVER).type is not None
        return
    with pytest.raises(MalformedMessageError):
        opened(bytes(message))


def test_errors_belong_to_the_package_and_hide_the_payload() -> None:
    with pytest.raises(SecureSumError) as caught:
        open_frame(framed(b"SECRET-PAYLOAD"), digest=bytes(32), sender=PARTY, recipient=SERVER)
    assert isinstance(caught.value, RemoteProtocolError)
    assert "SECRET" not in str(caught.value)
    assert DIGEST.hex() not in str(caught.value)


class TestReader:
    def reader(self, payload: bytes) -> Reader:
        return Reader(memoryview(payload), peer=PARTY)

    @given(st.dictionaries(parties, st.binary(min_size=5, max_size=5), max_size=20))
    def test_entries_round_trip(self, entries: dict[int, bytes]) -> None:
        payload = write_entries(entries)
        assert len(payload) == 4 + 9 * len(entries)
        reader = self.reader(payload)
        read = reader.entries(5)
        reader.end()
        assert read == entries
        assert list(read) == sorted(entries)

    @given(st.sets(parties, max_size=20))
    def test_parties_round_trip(self, ids: set[int]) -> None:
        reader = self.reader(write_parties(ids))
        assert list(reader.entries(0)) == sorted(ids)
        reader.end()

    @pytest.mark.parametrize("order", [[1, 1], [2, 1], [1, 3, 2], [5, 5, 6], [0, 0]])
    def test_unsorted_or_repeated_entries_are_refused(self, order: list[int]) -> None:
        payload = len(order).to_bytes(4, "big") + b"".join(party.to_bytes(4, "big") + b"x" for party in order)
        with pytest.raises(MalformedMessageError, match="ascend"):
            self.reader(payload).entries(1)

    @pytest.mark.parametrize("entry_bytes", [0, 33, 64, 2**20])
    @pytest.mark.parametrize("count", [2**32 - 1, 2**31, 10**6])
    def test_huge_counts_cost_no_memory(self, count: int, entry_bytes: int) -> None:
        payload = count.to_bytes(4, "big") + bytes(1000)
        tracemalloc.start()
        try:
            with pytest.raises(MalformedMessageError, match=f"claims {count}|before its {count} entries"):
                self.reader(payload).entries(entry_bytes)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 64 * 1024

    @given(st.binary(max_size=120), st.integers(0, 40))
    def test_arbitrary_bytes_raise_only_the_documented_error(self, payload: bytes, entry_bytes: int) -> None:
        reader = self.reader(payload)
        try:
            entries = reader.entries(entry_bytes)
            reader.end()
        except MalformedMessageError:
            return
        assert write_entries(entries) == payload
