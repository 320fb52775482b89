"""Many sums of one cohort: exact each, with secrets of their own, and two messages from the second on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.parties import SERVER_KEY, signing

from secagg import Assumptions, InsecureSeededEntropy, Layout, run_in_memory
from secagg.config import SERVER
from secagg.dp import DistributedNoise, NoisySum
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.errors import (
    ConfigurationError,
    InvalidVectorError,
    LocalProtocolError,
    MalformedMessageError,
    TooFewSurvivorsError,
)
from secagg.in_memory import Envelope
from secagg.masked.series import NOT_YET, MaskedSeries, SeriesServer
from secagg.masked.series_in_one_process import SeriesInOneProcess
from secagg.masked.server import MaskedServer
from secagg.primitives.identity import IdentityKey
from secagg.wire import HEADER_BYTES, PART_SIZE_BYTES, MessageType, seal_frame

CLIENTS = tuple(range(1, 7))
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
PLAIN_SERIES = MaskedSeries(clients=CLIENTS, series_id=bytes(16), threshold=4)
SIGNED_SERIES = MaskedSeries(
    clients=CLIENTS,
    series_id=bytes(16),
    threshold=4,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
)


def begin(series: MaskedSeries, seed: int = 0) -> SeriesInOneProcess:
    own = signing({SERVER: SERVER_KEY, **IDENTITIES}) if series.identities else None
    return SeriesInOneProcess(series, entropy=InsecureSeededEntropy(seed), secrets=own)


def vectors(layout: Layout, seed: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {party: rng.integers(-50, 51, size=layout.size) for party in CLIENTS}


@settings(max_examples=15)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=5),
    signed=st.booleans(),
    lost=st.dictionaries(st.sampled_from(CLIENTS), st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=2),
    seed=st.integers(0, 1000),
)
def test_every_sum_is_exact_whoever_vanishes_when(
    sizes: list[int], signed: bool, lost: dict[int, tuple[int, int]], seed: int
) -> None:
    series = begin(SIGNED_SERIES if signed else PLAIN_SERIES, seed)
    gone: set[int] = set()
    for index, size in enumerate(sizes):
        layout = Layout.of([("counts", size, 1000)])
        given_vectors = vectors(layout, seed + index)
        dropouts = {party: left for party, (at, left) in lost.items() if at == index}
        run = run_in_memory(series.next_sum(layout, b"model %d" % index), given_vectors, dropouts=dropouts)
        exact = sum(given_vectors[party] for party in run.result.survivors)
        assert run.result.total.tobytes() == exact.tobytes()
        assert not gone & set(run.result.survivors)
        gone |= set(CLIENTS) - set(run.result.survivors)


class LateDuplicates:
    """A network that brings whatever it ever brought to a party once more, before each new message to it."""

    def __init__(self) -> None:
        self._brought: dict[int, list[Envelope]] = {}

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        for envelope in envelopes:
            before = self._brought.setdefault(envelope.recipient, [])
            yield from (old for old in tuple(before) if old.recipient != SERVER or old.sender == envelope.sender)
            before.append(envelope)
            yield envelope


@pytest.mark.parametrize("series", [PLAIN_SERIES, SIGNED_SERIES])
def test_late_duplicates_of_any_sum_are_harmless(series: MaskedSeries) -> None:
    """Nobody needs a key to send signed bytes once more; no client loses its place in this sum or the next by it."""
    parties, network = begin(series), LateDuplicates()
    for index in range(4):
        layout = Layout.of([("counts", 3, 1000)])
        given_vectors = vectors(layout, index)
        run = run_in_memory(parties.next_sum(layout, b"model %d" % index), given_vectors, network=network)
        assert run.result.survivors == CLIENTS
        assert run.result.total.tobytes() == sum(given_vectors.values()).tobytes()


def test_no_upload_repeats_over_sums_of_the_same_vectors() -> None:
    simulated = begin(PLAIN_SERIES)
    layout = Layout.of([("counts", 50, 1000)])
    same = vectors(layout, 0)
    seen: list[Envelope] = []
    for _ in range(3):
        run_in_memory(simulated.next_sum(layout), same, record=seen.append)
    heavy = [envelope.message for envelope in seen if envelope.sender == 1 and len(envelope.message) > 100]
    head = 2 * HEADER_BYTES + PART_SIZE_BYTES
    blocks = [message[start : start + 16] for message in heavy for start in range(head, len(message) - 16, 16)]
    assert len(set(blocks)) == len(blocks)


def test_a_series_on_an_expander_is_exact_though_clients_are_lost_between_its_sums() -> None:
    """Whom a client masked with is signed in each sum anew: who was lost is absent from then on."""
    clients = tuple(range(1, 10))
    own = {party: IdentityKey(bytes([party]) * 32) for party in clients}
    series = MaskedSeries(
        clients=clients,
        series_id=bytes(16),
        threshold=4,
        degree=6,
        graph_seed=bytes(16),
        assumptions=Assumptions(corruption=0, dropout=2 / 9, malicious_server=True),
        identities=tuple(own[party].public for party in clients),
        server_identity=SERVER_KEY.public,
    )
    simulated = SeriesInOneProcess(series, secrets=signing({SERVER: SERVER_KEY, **own}))
    layout, rng = Layout.of([("counts", 5, 1000)]), np.random.default_rng(0)
    lost, gone = [{}, {3: 0}, {}, {5: 1}, {}], set[int]()
    for dropouts in lost:
        given_vectors = {party: rng.integers(-50, 51, size=5) for party in clients}
        run = run_in_memory(simulated.next_sum(layout), given_vectors, dropouts=dropouts)
        exact = sum(given_vectors[party] for party in run.result.survivors)
        assert run.result.total.tobytes() == exact.tobytes()
        assert not gone & set(run.result.survivors)
        gone |= set(clients) - set(run.result.survivors)
    assert gone == {3, 5}


def test_a_series_ends_with_an_error_when_too_few_are_left() -> None:
    simulated = begin(PLAIN_SERIES)
    layout = Layout.of([("counts", 5, 1000)])
    run_in_memory(simulated.next_sum(layout), vectors(layout, 0), dropouts={1: 3, 2: 3})
    with pytest.raises(TooFewSurvivorsError):
        run_in_memory(simulated.next_sum(layout), vectors(layout, 1), dropouts={3: 0})


def test_two_models_in_one_series_are_told_apart() -> None:
    """The context of every sum goes into its masks and its messages, also where the set-up came earlier."""
    first, second = (PLAIN_SERIES.sum(1, Layout.of([("counts", 5, 1000)]), context) for context in (b"one", b"two"))
    assert first.setup_digest == second.setup_digest
    assert first.digest != second.digest


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0" * 8, (10**6).to_bytes(8, "big"), (2**63).to_bytes(8, "big") + b"x" * 60],
    ids=["empty", "an empty part", "a part too long", "a part of 2^63 bytes"],
)
def test_broken_bundles_are_refused(payload: bytes) -> None:
    server = SeriesServer(PLAIN_SERIES)
    session = server.begin_sum(Layout.of([("counts", 5, 1000)]), b"")
    message = seal_frame(MessageType.BUNDLE, payload, digest=PLAIN_SERIES.digest, sender=1, recipient=SERVER)
    with pytest.raises(MalformedMessageError):
        session.receive(1, message)


def test_a_sum_that_was_refused_does_not_count() -> None:
    """Counted, it would leave its party one session id behind all others for the rest of the series."""
    layout = Layout.of([("counts", 5, 1000)])
    simulated = begin(PLAIN_SERIES)
    for index in range(2):
        for party in simulated.parties.values():
            with pytest.raises(InvalidVectorError):
                party.begin_sum(layout, b"", np.zeros(4, dtype=np.int64))
        with pytest.raises(ConfigurationError, match="at most 64 bytes"):
            simulated.server.begin_sum(layout, bytes(65))
        run = run_in_memory(simulated.next_sum(layout), vectors(layout, index))
        assert run.result.survivors == CLIENTS
        assert run.result.total.tobytes() == sum(vectors(layout, index).values()).tobytes()


@pytest.mark.parametrize("wrong", ["0" * 16, None, 16, bytearray(16)], ids=["text", "none", "number", "bytearray"])
def test_a_series_id_is_bytes(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="a series id is bytes"):
        MaskedSeries(clients=CLIENTS, series_id=wrong)  # type: ignore[arg-type]


def test_a_series_id_takes_16_to_64_bytes() -> None:
    for fine in (16, 64):
        MaskedSeries(clients=CLIENTS, series_id=bytes(fine), threshold=4)
    for wrong in (15, 65):
        with pytest.raises(ConfigurationError, match=f"16 to 64 bytes, not {wrong}"):
            MaskedSeries(clients=CLIENTS, series_id=bytes(wrong), threshold=4)


def test_a_server_that_was_set_up_begins_its_own_sum_once() -> None:
    layout = Layout.of([("counts", 5, 1000)])
    server = MaskedServer(PLAIN_SERIES.sum(1, NOT_YET, b""))
    with pytest.raises(ConfigurationError, match="differs from its set-up"):
        server.begin_sum(PLAIN_SERIES.sum(2, layout, b""))
    server.begin_sum(PLAIN_SERIES.sum(1, layout, b""))
    with pytest.raises(LocalProtocolError, match="has begun"):
        server.begin_sum(PLAIN_SERIES.sum(1, layout, b"another model"))


def test_noise_over_a_sum_of_a_series_is_refused_and_not_left_out() -> None:
    layout = Layout.of([("counts", 4, 1000)])
    claimed = CoordinateNoise(levels=np.ones(4, dtype=np.uint8), variances=(10**6,))
    noise = DistributedNoise(total=claimed, min_noise_shares=4)
    parties = begin(PLAIN_SERIES).next_sum(with_headroom(layout, len(CLIENTS), noise))
    noisy = NoisySum(protocol=parties.protocol, layout=layout, noise=noise)
    with pytest.raises(ConfigurationError, match=r"makes masked sums, not masked\+noise"):
        replace(parties, protocol=noisy)
