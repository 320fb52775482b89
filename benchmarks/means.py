"""j. A secure mean beside Flower's SecAgg+: CPU of one client among ten, its bytes, and the error of the mean."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import Goal, Row, Section, Settings, Spread, alternate, quotient, spaced
from secagg import MaskedSum, MeanSpec, new_session_id

N_CLIENTS = 10
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
            figures[f"{name}: bytes up a number"] = peer.bytes_up / size
            figures[f"{name}: rms error of the mean"] = peer.error
        ratio = quotient(seconds["Flower"], seconds["ours"]) if "Flower" in seconds else None
        goals = None if settings.quick or ratio is None else Goal(limit=goal, at_least=True)
        case = f"{spaced(size)} numbers, {N_CLIENTS} clients, {entry_bytes} bytes"
        yield Row(case=case, figures=figures, ratio=ratio, goal=goals)


class _Ours:
    """A whole round of masked sessions; the CPU seconds of one client, its encoding included."""

    def __init__(self, update: NDArray[np.float32], entry_bytes: int) -> None:
        exponent = math.frexp(N_CLIENTS * float(np.abs(update).max()))[1]  # as a carried scale has it
        self._update, shapes = update, (("w", update.shape),)
        self._spec = MeanSpec(shapes=shapes, exponents=(exponent,), n_clients=N_CLIENTS, entry_bytes=entry_bytes)
        self.bytes_up, self.error = 0, 0.0

    def __call__(self) -> float:
        parties = tuple(range(1, N_CLIENTS + 1))
        sum_ = MaskedSum(layout=self._spec.layout, clients=parties, session_id=new_session_id())
        server, seconds = sum_.server(), dict.fromkeys(parties, 0.0)
        clients = {party: sum_.client(party, lambda: self._spec.vector({"w": self._update})) for party in parties}
        requests: dict[int, Any] = dict.fromkeys(parties)
        while requests:
            for party, request in requests.items():
                started = time.process_time()
                said = clients[party].start() if request is None else clients[party].receive(request)
                seconds[party] += time.process_time() - started
                self.bytes_up = max(self.bytes_up, len(said or b""))
                server.receive(party, said or b"")
            requests = dict(server.close_round())
        assert server.result is not None
        self.error = _rms(self._spec.mean(server.result).arrays["w"], self._update)
        return statistics.median(seconds.values())


class _Flowers:
    """A whole round of Flower's workflow and mod with its defaults; the CPU seconds of one client."""

    def __init__(self, update: NDArray[np.float32]) -> None:
        self._update = update
        self.bytes_up, self.error = 0, 0.0

    def __call__(self) -> float:
        from benchmarks.secaggplus import flowers_round

        nodes = range(1, N_CLIENTS + 1)
        done = flowers_round({node: [self._update] for node in nodes}, dict.fromkeys(nodes, 1000))
        assert done.mean is not None
        self.bytes_up, self.error = done.bytes_up, _rms(done.mean[0], self._update)
        return statistics.median(done.client_seconds.values())


def _rms(found: NDArray[Any], true: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean((found - true) ** 2)))


MEANS = Section(
    letter="j",
    title="What does a client of a secure mean cost beside Flower's SecAgg+?",
    method="Whole rounds in turns, without a network, on complete graphs: `MeanSpec` over masked sessions, with the "
    "scale that is carried from a round of the same updates, and Flower's `SecAggPlusWorkflow` and `secaggplus_mod` "
    "with their defaults. Heavy-tailed updates (Student's t, 4 degrees of freedom). The ratio is Flower's CPU seconds "
    "of one client (the median of ten) over ours.",
    run=means,
)
