"""j. A secure mean beside Flower's SecAgg+: CPU of one client among ten and of the server, bytes, error of the mean.

``python -m benchmarks.means 100`` measures one client alone among so many in turns with Flower's, three times, and
then each server in a whole round. The other clients of Flower's do what that client and the server need, and no more.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Goal, Row, Section, Settings, Spread, alternate, quotient, spaced
from secagg import MaskedSum, MeanSpec, new_session_id
from secagg.masked.assumptions import Assumptions
from secagg.wire import carries_vector

N_CLIENTS = 10
SPARSE = Assumptions(corruption=0.05, dropout=0.05)
RESNET_18 = 11_191_242
"""Numbers of torchvision's ResNet-18 with ten classes."""


def means(settings: Settings) -> Iterator[Row]:
    """Compare each width of an entry with Flower's 8 bytes."""
    size = settings.choose(full=RESNET_18, quick=100_000)
    update = (1e-3 * np.random.default_rng(0).standard_t(4, size)).astype(np.float32)
    for entry_bytes, goal in ((3, 4.0), (2, 8.0)):
        peers = {"ours": _Ours(update, entry_bytes)} | ({"Flower": _Flowers(update)} if find_spec("flwr") else {})
        seconds = alternate(peers, runs=settings.runs)
        figures: dict[str, Any] = {}
        for name, peer in peers.items():
            figures[f"{name}: client, CPU s"] = Spread.of(seconds[name])
            figures[f"{name}: server, CPU s"] = Spread.of(peer.server_seconds[-settings.runs :])
            figures[f"{name}: bytes up a number"] = peer.bytes_up / size
            figures[f"{name}: rms error of the mean"] = peer.error
        ratio = quotient(seconds["Flower"], seconds["ours"]) if "Flower" in seconds else None
        goals = None if settings.quick or ratio is None else Goal(limit=goal, at_least=True)
        case = f"{spaced(size)} numbers, {N_CLIENTS} clients, {entry_bytes} bytes"
        yield Row(case=case, figures=figures, ratio=ratio, goal=goals)


class _Ours:
    """A whole round of masked sessions; the CPU seconds of one client, its encoding included.

    Args:
        update: of each client.
        entry_bytes: bytes a number.
        n_clients: size of the cohort.
        is_sparse: whether on the sparsest graph of ``SPARSE``.
        is_alone: whether the round ends with the first client's vector.
    """

    def __init__(
        self,
        update: NDArray[np.float32],
        entry_bytes: int,
        *,
        n_clients: int = N_CLIENTS,
        is_sparse: bool = False,
        is_alone: bool = False,
    ) -> None:
        exponent = math.frexp(n_clients * float(np.abs(update).max()))[1]  # as a carried scale has it
        self._update, shapes = update, (("w", update.shape),)
        self._spec = MeanSpec(shapes=shapes, exponents=(exponent,), n_clients=n_clients, entry_bytes=entry_bytes)
        self._is_sparse, self._is_alone = is_sparse, is_alone
        self.bytes_up, self.error = 0, 0.0
        self.server_seconds: list[float] = []

    def _sum(self) -> MaskedSum:
        layout, parties = self._spec.layout, tuple(range(1, self._spec.n_clients + 1))
        if not self._is_sparse:
            return MaskedSum(layout=layout, clients=parties, session_id=new_session_id())
        seed = np.random.default_rng(0).bytes(32)
        return MaskedSum.planned(
            layout=layout, clients=parties, session_id=new_session_id(), assumptions=SPARSE, graph_seed=seed
        )

    def __call__(self) -> float:
        sum_ = self._sum()
        parties = sum_.clients
        server, seconds, begun = sum_.server(), dict.fromkeys(parties, 0.0), time.process_time()
        clients = {party: sum_.client(party, lambda: self._spec.words({"w": self._update})) for party in parties}
        requests: dict[int, Any] = dict.fromkeys(parties)
        while requests:
            for party, request in requests.items():
                started = time.process_time()
                said = clients[party].start() if request is None else clients[party].receive(request)
                seconds[party] += time.process_time() - started
                self.bytes_up = max(self.bytes_up, len(said or b""))
                if self._is_alone and carries_vector(said or b""):
                    return seconds[party]
                server.receive(party, said or b"")
            requests = dict(server.close_round())
        assert server.result is not None
        mean = self._spec.mean(server.result)
        self.server_seconds.append(time.process_time() - begun - sum(seconds.values()))
        self.error = _rms(mean.arrays["w"], self._update)
        return statistics.median(seconds.values())


class _Flowers:
    """A whole round of Flower's workflow and mod with its defaults; the CPU seconds of one client.

    Args:
        update: of each client.
        n_clients: size of the cohort.
        is_one_of_many: whether the other clients only do what the first one and the server need.
        is_alone: whether the round ends with the first client's vector.
    """

    def __init__(
        self,
        update: NDArray[np.float32],
        *,
        n_clients: int = N_CLIENTS,
        is_one_of_many: bool = False,
        is_alone: bool = False,
    ) -> None:
        self._update, self._nodes = update, range(1, n_clients + 1)
        self._is_one_of_many, self._is_alone = is_one_of_many, is_alone
        self.bytes_up, self.error = 0, 0.0
        self.server_seconds: list[float] = []

    def __call__(self) -> float:
        from benchmarks.secaggplus import flowers_round

        done = flowers_round(
            {node: [self._update] for node in self._nodes},
            dict.fromkeys(self._nodes, 1000),
            is_gone=lambda node, stage: self._is_alone and node > 1 and stage == "collect_masked_vectors",
            is_one_of_many=self._is_one_of_many,
        )
        assert (done.mean is None) == self._is_alone
        if done.mean is not None:
            self.error = _rms(done.mean[0], self._update)
        self.server_seconds.append(done.server_seconds)
        self.bytes_up = done.bytes_up
        return done.client_seconds[1] if self._is_one_of_many else statistics.median(done.client_seconds.values())


def _rms(found: NDArray[Any], true: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean((found - true) ** 2)))


def alone(n_clients: int) -> None:
    """Print the CPU seconds of one client among so many, in turns with Flower's; then of each server, once."""
    update = (1e-3 * np.random.default_rng(0).standard_t(4, RESNET_18)).astype(np.float32)
    kinds = [(entry_bytes, is_sparse) for is_sparse in (False, True) for entry_bytes in (3, 2)]
    peers: dict[str, Any] = {
        f"ours, {entry_bytes} bytes, {'sparse' if is_sparse else 'complete'}": _Ours(
            update, entry_bytes, n_clients=n_clients, is_sparse=is_sparse, is_alone=True
        )
        for entry_bytes, is_sparse in kinds
    }
    peers["Flower, complete"] = _Flowers(update, n_clients=n_clients, is_one_of_many=True, is_alone=True)
    seconds = alternate(peers, runs=3)
    for name, found in seconds.items():
        spread, ratio = Spread.of(found), quotient(seconds["Flower, complete"], found)
        print(f"{name}: client {spread.median:.3f} ({spread.low:.3f} to {spread.high:.3f})", end="")
        print(f", x {ratio.median:.1f} ({ratio.low:.1f} to {ratio.high:.1f})", flush=True)
    wholes: dict[str, _Ours | _Flowers] = {
        "ours, 3 bytes, complete": _Ours(update, 3, n_clients=n_clients),
        "ours, 3 bytes, sparse": _Ours(update, 3, n_clients=n_clients, is_sparse=True),
        "Flower, complete": _Flowers(update, n_clients=n_clients, is_one_of_many=True),
    }
    for name, whole in wholes.items():
        client = whole()
        print(f"{name}: server {whole.server_seconds[0]:.1f}; a client {client:.3f}", flush=True)


MEANS = Section(
    letter="j",
    title="What does a client of a secure mean cost beside Flower's SecAgg+?",
    method="Whole rounds in turns, without a network, on complete graphs: `MeanSpec` over masked sessions, with the "
    "scale that is carried from a round of the same updates, and Flower's `SecAggPlusWorkflow` and `secaggplus_mod` "
    "with their defaults. Heavy-tailed updates (Student's t, 4 degrees of freedom). The ratio is Flower's CPU seconds "
    "of one client (the median of ten) over ours. The server's are all that is no client's, up to the mean.",
    run=means,
)

if __name__ == "__main__":
    alone(int(sys.argv[1]))
