"""What one mask stream a neighbour would save a client, where it takes one for each segment.

``python -m benchmarks.streams`` times a masked client among 33, from its keys to its vector, with a vector of one size
in 1, 3 and 20 segments: with one segment there is one stream a neighbour.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks.measure import one_thread, spaced
from secagg import Layout, MaskedSum, new_session_id

N_CLIENTS, ROUNDS = 33, 7
SIZES = (1_000, 182_528, 4_146_176)
SEGMENTS = (1, 3, 20)


def client_seconds(n_segments: int, size: int) -> float:
    """CPU seconds of one client, from its first message to its masked vector."""
    layout = Layout.of([(str(place), size // n_segments, 2**50) for place in range(n_segments)])
    seconds = 0.0
    sums = MaskedSum(layout=layout, clients=tuple(range(1, N_CLIENTS + 1)), session_id=new_session_id())
    vector, server = np.zeros(layout.size, dtype=np.int64), sums.server()
    clients = {party: sums.client(party, vector) for party in sums.clients}
    for party, client in clients.items():
        started = time.process_time()
        message = client.start()
        seconds += time.process_time() - started if party == 1 else 0.0
        server.receive(party, message or b"")
    shares = server.close_round()
    for party, client in clients.items():
        started = time.process_time()
        message = client.receive(shares[party])
        seconds += time.process_time() - started if party == 1 else 0.0
        server.receive(party, message or b"")
    delivery = server.close_round()[1]
    started = time.process_time()
    clients[1].receive(delivery)
    return seconds + time.process_time() - started


def main() -> None:
    """Print a table."""
    print("| entries | " + " | ".join(f"{n} segments, ms" for n in SEGMENTS) + " |")
    print("| ---: |" + " ---: |" * len(SEGMENTS))
    with one_thread():
        for size in SIZES:
            found: dict[int, list[float]] = {n: [] for n in SEGMENTS}
            for _ in range(ROUNDS):
                for n in SEGMENTS:
                    found[n].append(1e3 * client_seconds(n, size))
            print(f"| {spaced(size)} | " + " | ".join(f"{statistics.median(found[n]):.1f}" for n in SEGMENTS) + " |")


if __name__ == "__main__":
    main()
