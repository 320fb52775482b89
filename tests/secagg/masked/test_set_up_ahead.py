"""The next sum's set-up fails or comes in the wrong order: the current sum is exact, and no vector is masked twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from support.parties import resealed

from secagg import InsecureSeededEntropy, IntVector, Layout, PartyId, run_in_memory
from secagg.config import SERVER
from secagg.errors import ConfigurationError, LocalProtocolError
from secagg.masked.bundles import read_bundle, write_bundle
from secagg.masked.client import MaskedClient
from secagg.masked.series import NOT_YET, MaskedSeries, SeriesServer
from secagg.masked.series_in_one_process import SeriesInOneProcess
from secagg.wire import MessageType, message_type, open_frame

CLIENTS = (1, 2, 3, 4, 5)
SERIES = MaskedSeries(clients=CLIENTS, series_id=bytes(16), threshold=4)
LAYOUT = Layout.of([("counts", 6, 1000)])
VECTORS = {party: np.arange(6, dtype=np.int64) * party for party in CLIENTS}
ALL: IntVector = np.sum(list(VECTORS.values()), axis=0)

Change = Callable[[PartyId, list[bytes]], list[bytes]]


def unchanged(_: PartyId, parts: list[bytes]) -> list[bytes]:
    return parts


def rebundled(party: PartyId, message: bytes, change: Change, *, upwards: bool) -> bytes:
    """A bundle from or to a client whose parts somebody on the way has changed."""
    sender, recipient = (party, SERVER) if upwards else (SERVER, party)
    frame = open_frame(message, digest=SERIES.digest, sender=sender, recipient=recipient)
    return resealed(message, write_bundle(change(party, read_bundle(frame, peer=sender))))


def sum_of(series: SeriesInOneProcess, up: Change = unchanged, down: Change = unchanged) -> IntVector:
    """One sum of the series by hand, with somebody between the clients and the server."""
    protocol = series.next_sum(LAYOUT)
    clients = {party: protocol.client(party, vector) for party, vector in VECTORS.items()}
    server = protocol.server()
    answers: Mapping[PartyId, bytes | None] = {party: client.start() for party, client in clients.items()}
    while server.result is None:
        for party, answer in answers.items():
            if answer is not None:
                server.receive(party, rebundled(party, answer, up, upwards=True))
        requests = server.close_round()
        answers = {
            party: clients[party].receive(rebundled(party, request, down, upwards=False))
            for party, request in requests.items()
        }
    return server.result.total


def without_next_keys(*parties: PartyId) -> Change:
    """These clients' keys for the next sum are lost on the way."""

    def change(party: PartyId, parts: list[bytes]) -> list[bytes]:
        lost = party in parties and message_type(parts[0]) is MessageType.MASKED_INPUT
        return parts[:1] if lost else parts

    return change


def begin() -> SeriesInOneProcess:
    return SeriesInOneProcess(SERIES, entropy=InsecureSeededEntropy(0))


def test_too_few_keys_for_the_next_sum_end_the_series_and_not_the_sum() -> None:
    series = begin()

    def change(party: PartyId, parts: list[bytes]) -> list[bytes]:
        is_last = message_type(parts[0]) is MessageType.UNMASK_SHARES
        late = parts if is_last and party == 3 else []  # as a message of the next set-up, for which nobody waits
        return without_next_keys(1, 2)(party, parts) + late

    assert sum_of(series, up=change).tobytes() == ALL.tobytes()
    with pytest.raises(LocalProtocolError, match="begin a new series"):
        series.next_sum(LAYOUT).server()


def test_as_many_keys_as_the_threshold_carry_the_next_sum() -> None:
    series = begin()
    sum_of(series, up=without_next_keys(1))
    run = run_in_memory(series.next_sum(LAYOUT), VECTORS)
    assert run.result.survivors == (2, 3, 4, 5)
    assert run.result.total.tobytes() == (ALL - VECTORS[1]).tobytes()


def test_a_client_that_gets_another_clients_roster_stays_out_of_the_next_sum_only() -> None:
    series = begin()
    rosters: dict[PartyId, bytes] = {}

    def swap(party: PartyId, parts: list[bytes]) -> list[bytes]:
        if len(parts) == 2:
            rosters[party] = parts[1]
        return [parts[0], rosters[1]] if len(parts) == 2 and party == 2 else parts

    assert sum_of(series, down=swap).tobytes() == ALL.tobytes()
    run = run_in_memory(series.next_sum(LAYOUT), VECTORS)
    assert run.result.survivors == (1, 3, 4, 5)


def test_a_series_begins_with_a_sum() -> None:
    with pytest.raises(LocalProtocolError, match="no sum has begun"):
        begin().parties[1].start()


@pytest.fixture
def ahead() -> tuple[MaskedClient, bytes]:
    """A client whose set-up is complete before its sum is known, and the shares that ask for its vector."""
    waiting = SERIES.sum(0, NOT_YET, b"")
    clients = {party: MaskedClient(waiting, party, None, entropy=InsecureSeededEntropy(party)) for party in CLIENTS}
    server = SeriesServer(SERIES)._series.sum(0, NOT_YET, b"").server()
    for party, client in clients.items():
        server.receive(party, client.start())
    for party, roster in server.close_round().items():
        server.receive(party, clients[party].receive(roster))
    return clients[1], server.close_round()[1]


def test_shares_are_not_taken_before_the_vector(ahead: tuple[MaskedClient, bytes]) -> None:
    """It can still be given: a call out of order costs nothing."""
    client, delivery = ahead
    with pytest.raises(LocalProtocolError, match="begin_sum"):
        client.receive(delivery)
    client.begin_sum(SERIES.sum(0, NOT_YET, b""), np.zeros(1, dtype=np.int64))
    assert message_type(client.receive(delivery)) is MessageType.MASKED_INPUT


def test_a_client_takes_the_sum_it_was_set_up_for_once(ahead: tuple[MaskedClient, bytes]) -> None:
    client, delivery = ahead
    config, vector = SERIES.sum(0, NOT_YET, b""), np.zeros(1, dtype=np.int64)
    with pytest.raises(ConfigurationError, match="differs from its set-up"):
        client.begin_sum(SERIES.sum(1, NOT_YET, b""), vector)
    client.begin_sum(config, vector)
    with pytest.raises(LocalProtocolError, match="once"):
        client.begin_sum(config, vector)
    client.receive(delivery)
    with pytest.raises(LocalProtocolError, match="once"):
        client.begin_sum(config, vector)
