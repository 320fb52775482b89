"""b. All that one client computes for one sum, beside Flower's SecAgg+ client."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np

from secagg import InsecureSeededEntropy, Layout, MaskedSum
from simulations.bench.flower_client import flower_client
from simulations.bench.measure import (
    Goal,
    Row,
    Section,
    Settings,
    Spread,
    Timed,
    alternate,
    cpu_seconds,
    quotient,
    spaced,
)

GOALS = {32: Goal(limit=10.0, at_least=True), 100: Goal(limit=40.0, at_least=True)}
WITHOUT_FLOWER = "not installed: pip install 'analytic-secagg[flower]'"


def measure(settings: Settings) -> Iterator[Row]:
    """One row a number of neighbours."""
    n_entries = settings.choose(full=182_528, quick=5_000)
    for n_neighbours in settings.choose(full=(32, 100), quick=(8,)):
        candidates = {"ours": our_client(n_entries, n_neighbours)}
        if importlib.util.find_spec("flwr") is not None:
            candidates = {"flower": flower_client(n_entries, n_neighbours), **candidates}
        seconds = alternate(candidates, runs=settings.runs)
        beside = "flower" in seconds
        yield Row(
            case=f"{spaced(n_entries)} entries, {n_neighbours} neighbours",
            figures={
                "Flower SecAgg+, CPU s": Spread.of(seconds["flower"]) if beside else WITHOUT_FLOWER,
                "ours, CPU s": Spread.of(seconds["ours"]),
            },
            ratio=quotient(seconds["flower"], seconds["ours"]) if beside else None,
            goal=GOALS.get(n_neighbours),
        )


def our_client(n_entries: int, n_neighbours: int) -> Timed:
    """Keys, shares, masked vector, unmasking of a client whose neighbours all stay.

    The server's messages are recorded once. A client from the same seeded entropy has the same keys each time, so
    that they fit every run.
    """
    protocol = MaskedSum(
        layout=Layout.of([("vector", n_entries, 2**62)]),
        clients=tuple(range(1, n_neighbours + 2)),
        session_id=bytes(16),
    )
    vector = np.arange(n_entries, dtype=np.int64)
    requests = _requests_to_first(protocol)

    def work() -> None:
        client = protocol.client(1, vector, entropy=InsecureSeededEntropy(1))
        client.start()
        for request in requests:
            client.receive(request)

    return cpu_seconds(work)


def _requests_to_first(protocol: MaskedSum) -> list[bytes]:
    """All that the server says to client 1 in a real session."""
    nothing = np.zeros(protocol.layout.size, dtype=np.int64)
    clients = {p: protocol.client(p, nothing, entropy=InsecureSeededEntropy(p)) for p in protocol.clients}
    server = protocol.server()
    for party, client in clients.items():
        server.receive(party, _said(client.start()))
    recorded = []
    while requests := server.close_round():
        recorded.append(requests[1])
        for party, request in requests.items():
            server.receive(party, _said(clients[party].receive(request)))
    return recorded


def _said(message: bytes | None) -> bytes:
    assert message is not None  # a client of a masked sum always answers
    return message


SECTION = Section(
    letter="b",
    title="The whole client against Flower's SecAgg+ client",
    method=(
        "Key agreement, secret sharing, masking and unmasking shares of one client in one sum, complete graph, nobody "
        "drops out, the same number of entries, neighbours and threshold. Flower: its `secaggplus_mod`, all four "
        "stages; what its messages cost to make is not counted. Ours: `MaskedSum`, 64-bit ring, all four messages."
    ),
    run=measure,
)
