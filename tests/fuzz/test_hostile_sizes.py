"""Hostile sizes: memory and time of decoders and sessions follow from what came, not from what it claims."""

from __future__ import annotations

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parent))

from hostile_targets import (
    DECODERS,
    IDENTITIES,
    LAYOUT,
    SERIES,
    SIGNED,
    STORED,
    TARGETS,
    VECTORS,
    entropy,
    new_server,
    pool,
)
from support.parties import knows, resealed

from secagg import MaskedSum
from secagg.config import SERVER
from secagg.errors import LocalProtocolError, MalformedMessageError, RemoteProtocolError
from secagg.layout import Layout
from secagg.masked.messages import Roster, UnmaskShares
from secagg.masked.series import SeriesClient, SeriesServer
from secagg.masked.states import ClientState
from secagg.ring import RingVector
from secagg.wire import MAX_ENTRIES, MessageType, Reader, read_parties, seal_frame, write_parties

FIXED = 1 << 17
"""Bytes that any call may take: frames, exceptions with their tracebacks, small objects."""

COPIES = 4
"""Copies of its input that a decoder may hold: the payload, a part of it, the result, and one on the way."""

ENTRY_BYTES = 250
"""Bytes that one entry of a list may take in Python beyond its content: a dict's slot, an int, a bytes object."""


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """What the tests before left need not be looked through before each measurement."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def peak(call: Callable[[], Any]) -> int:
    """Most bytes that Python and numpy had allocated at once during the call, beyond what they had before."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = call()
        used = tracemalloc.get_traced_memory()[1]
        del kept
    finally:
        tracemalloc.stop()
    return used


def entry_list(count: int, claimed: int, n_bytes: int) -> bytes:
    content = bytes(n_bytes)
    return claimed.to_bytes(4, "big") + b"".join(i.to_bytes(4, "big") + content for i in range(count))


def hostile_claims() -> dict[str, bytes]:
    """Few bytes that claim to be many."""
    huge = b"\xff" * 64
    return {
        "all ones": huge,
        "a count": b"\xff" * 4,
        "a count just allowed": MAX_ENTRIES.to_bytes(4, "big"),
        "a count after a commitment": bytes(32) + b"\xff" * 4 + bytes(200),
        "two counts": bytes(4) + b"\xff" * 4,
        "a large first list": entry_list(3, 2**31, 33),
        "a part of a bundle": (2**63).to_bytes(8, "big") + bytes(100),
        "a receipt's count": bytes(160) + b"\xff" * 4,
    }


@pytest.mark.parametrize("claim", hostile_claims())
@pytest.mark.parametrize("name", [*DECODERS, *STORED])
def test_claims_allocate_nothing(name: str, claim: str) -> None:
    data = hostile_claims()[claim]
    TARGETS[name](data)  # caches of the first call do not count
    assert peak(lambda: TARGETS[name](data)) <= FIXED + COPIES * (len(data) + LAYOUT.wire_bytes)


@pytest.mark.parametrize("n_bytes", [0, 33, 64, 94, 128])
def test_lists_allocate_in_proportion(n_bytes: int) -> None:
    count = 20_000
    data = entry_list(count, count, n_bytes)
    used = peak(lambda: Reader(memoryview(data), peer=1).entries(n_bytes))
    assert used <= FIXED + COPIES * len(data) + ENTRY_BYTES * count


@pytest.mark.parametrize("n_bytes", [0, 33, 64])
def test_lists_beyond_the_cohort_allocate_nothing(n_bytes: int) -> None:
    data = entry_list(20_000, 20_000, n_bytes)
    reader = Reader(memoryview(data), peer=1, max_entries=3)

    def read() -> None:
        with pytest.raises(MalformedMessageError, match="at most 3 entries"):
            reader.entries(n_bytes)

    assert peak(read) <= FIXED


@pytest.mark.parametrize("n_bytes", [1, 3, 4, 8])
def test_vectors_allocate_what_the_layout_says(n_bytes: int) -> None:
    layout = Layout.of([("all", 200_000, 2 ** (8 * n_bytes - 1) - 1)])
    data = bytes(layout.wire_bytes)
    words = sum(segment.size * segment.word.itemsize for segment in layout.segments)
    assert peak(lambda: RingVector.from_bytes(layout, data)) <= FIXED + 2 * words

    def refused() -> None:
        for wrong in (b"", data[:-1]):
            with pytest.raises(MalformedMessageError):
                RingVector.from_bytes(layout, wrong)

    assert peak(refused) <= FIXED + len(data)  # the shorter copy is ours


BIG = 1 << 21


def to_server(config: MaskedSum, type_: MessageType, payload: bytes) -> bytes:
    digest, identity = config.digest_of(type_), IDENTITIES[2] if config.is_authenticated else None
    return seal_frame(type_, payload, digest=digest, sender=2, recipient=SERVER, identity=identity)


def server_waiting_for(config: MaskedSum, type_: MessageType) -> Any:
    """A server whose round collects this type, with nobody's message in."""
    server = new_server(config)
    for move in pool(config)[2]:
        if move is None:
            server.close_round()
        elif move[1][5] == type_:
            break
        else:
            server.receive(*move)
    return server


def bulk(kind: str) -> bytes:
    """A payload of two million bytes: zeros, or the longest list of parties that fits."""
    return bytes(BIG) if kind == "zeros" else entry_list(BIG // 4 - 1, BIG // 4 - 1, 0)


def refuse(receive: Callable[..., Any], *arguments: Any) -> None:
    try:
        receive(*arguments)
    except (RemoteProtocolError, LocalProtocolError):
        return
    raise AssertionError("a message of two million bytes was taken")


@pytest.mark.parametrize("kind", ["zeros", "list"])
@pytest.mark.parametrize(
    "type_",
    [
        MessageType.ADVERTISED_KEYS,
        MessageType.SEALED_SHARES,
        MessageType.MASKED_INPUT,
        MessageType.SURVIVOR_SIGNATURE,
        MessageType.UNMASK_SHARES,
    ],
    ids=lambda type_: type_.name,
)
def test_a_large_message_costs_the_server_no_more_than_itself(type_: MessageType, kind: str) -> None:
    server = server_waiting_for(SIGNED, type_)
    message = to_server(SIGNED, type_, bulk(kind))
    assert peak(lambda: refuse(server.receive, 2, message)) <= FIXED + len(message)


@pytest.mark.parametrize("kind", ["zeros", "list"])
@pytest.mark.parametrize("step", range(4))
def test_a_large_message_costs_a_client_no_more_than_itself(step: int, kind: str) -> None:
    client = SIGNED.client(5, VECTORS[5], entropy=entropy("5"), secrets=knows(IDENTITIES[5]))
    client.start()
    for message in pool(SIGNED)[1][:step]:
        client.receive(message)
    large = resealed(pool(SIGNED)[1][step], bulk(kind))
    assert peak(lambda: refuse(client.receive, large)) <= FIXED + len(large)


def test_a_large_bundle_costs_a_series_no_more_than_its_copies() -> None:
    layout = Layout.of([("one", 1, 1)])
    server = SeriesServer(SERIES).begin_sum(layout, b"")
    client = SeriesClient(SERIES, 5).begin_sum(layout, b"", VECTORS[5][:1] * 0)
    client.start()
    parts = [seal_frame(MessageType.ROSTER, bytes(BIG), digest=SERIES.digest, sender=2, recipient=0)] * 2
    payload = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    for receive, sender, recipient in ((lambda m: server.receive(2, m), 2, 0), (client.receive, 0, 5)):
        message = seal_frame(MessageType.BUNDLE, payload, digest=SERIES.digest, sender=sender, recipient=recipient)
        assert peak(lambda r=receive, m=message: refuse(r, m)) <= FIXED + 2 * len(message)


# Time: eight times the input takes about eight times as long, where quadratic work would take sixty-four


def seconds(call: Callable[[], Any]) -> float:
    """Processor seconds of the fastest of five runs: what other processes do meanwhile does not count."""
    times = []
    for _ in range(5):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def _roster(n: int) -> Callable[[], Any]:
    data = entry_list(n, n, 64)
    return lambda: Roster.read(Reader(memoryview(data), peer=0), signature_bytes=0)


def _request(n: int) -> Callable[[], Any]:
    data = entry_list(n, n, 0)
    return lambda: read_parties(Reader(memoryview(data), peer=0))


def _shares(n: int) -> Callable[[], Any]:
    data = entry_list(n, n, 33) * 2
    return lambda: UnmaskShares.read(Reader(memoryview(data), peer=0))


def _snapshot(n: int) -> Callable[[], Any]:
    round_ = b"\1" + bytes(7) + b"\x20" + bytes(32) + b"\1" + n.to_bytes(8, "big") + bytes(8 * n)
    return lambda: TARGETS["server_snapshot"](round_)


def _vector(n: int) -> Callable[[], Any]:
    layout = Layout.of([("all", 40 * n, 2**23 - 1)])
    data = bytes(layout.wire_bytes)
    return lambda: RingVector.from_bytes(layout, data).decode()


def _told_dropouts(n: int) -> Callable[[], Any]:
    """A client of a cohort of n that is told as many dropouts as can be."""
    layout, clients = Layout.of([("one", 1, 1)]), tuple(range(1, n + 1))
    config = MaskedSum(layout=layout, clients=clients, session_id=bytes(16), threshold=n // 2 + 1)
    frame = seal_frame(
        MessageType.UNMASK_REQUEST,
        write_parties(clients[1:]),
        digest=config.digest,
        sender=SERVER,
        recipient=1,
    )

    def told() -> None:
        client: Any = config.client(1, VECTORS[5][:1] * 0, entropy=entropy("1"))
        client._kept.state = ClientState.INPUT_SENT
        refuse(client.receive, frame)

    return told


@pytest.mark.parametrize(
    ("make", "n"),
    [
        (_roster, 2_000),
        (_request, 5_000),
        (_shares, 2_000),
        (_snapshot, 1_000),
        (_vector, 50_000),
        (_told_dropouts, 500),
    ],
    ids=lambda value: getattr(value, "__name__", "").strip("_"),
)
def test_time_grows_linearly(make: Callable[[int], Callable[[], Any]], n: int) -> None:
    """Three tries: another process on this machine may slow one of them down, but not make quadratic work linear."""
    small, large = make(n), make(8 * n)
    ratios = []
    for _ in range(3):
        ratios.append(seconds(large) / seconds(small))
        if ratios[-1] < 24:
            return
    raise AssertionError(f"eight times the input took {min(ratios):.0f} times as long")


def test_the_measure_of_time_notices_quadratic_work() -> None:
    """Its twin: looking each entry up in a list must fail the bound above."""

    def quadratic(n: int) -> Callable[[], Any]:
        seen: list[int] = []
        return lambda: [i for i in range(n) if i not in seen and not seen.append(i)] and seen.clear()  # type: ignore[func-returns-value]

    assert seconds(quadratic(2_400)) / seconds(quadratic(300)) >= 24


def test_the_measure_of_memory_notices_a_claim_that_is_believed() -> None:
    assert peak(lambda: bytearray(1 << 24)) > FIXED + COPIES * 64
