"""Peak memory of each party of one sum: a process each, and messages as files, as an engine would carry them.

``python -m benchmarks.memory`` prints a table for 8 192 features and 1 000 classes. Its units are one packed vector,
the bytes that a client's vector takes on the wire; what a process held once all was imported is not counted.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL
from analytic.learner import ClientRows, fit_pooled
from analytic_secagg.federation import Federation
from analytic_secagg.modes import MODES, fresh_identity
from analytic_secagg.site.store import SessionStore
from benchmarks.learning import FORMAT
from benchmarks.measure import one_thread, spaced
from secagg import PartyId, new_session_id
from secagg.config import SERVER
from secagg.durable import DurableClient, DurableServer
from secagg.in_memory import InOneProcess
from simulations.compare.memory import forget_peak, peak_rss_bytes

RIDGE = 1.0
KEY, SESSION = bytes(32), bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A federation of random rows.

    Args:
        features, classes: of its learner.
        rows: of each client.
        clients: how many.
    """

    features: int
    classes: int
    rows: int
    clients: int

    @property
    def parties(self) -> tuple[PartyId, ...]:
        """1 to n."""
        return tuple(range(1, self.clients + 1))

    def federation(self) -> Federation[Any]:
        """The sums, as each party works them out."""
        learner = AFL(
            n_features=self.features,
            n_targets=self.classes,
            feature_format=FORMAT,
            max_rows=self.rows * self.clients,
            ridge=RIDGE,
        )
        return Federation(learner, release=None, max_client_rows=self.rows, n_clients=self.clients)

    def rows_of(self, party: PartyId) -> ClientRows:
        """A client's rows, the same ones each time."""
        rng = np.random.default_rng(party)
        features = rng.random((self.rows, self.features), dtype=np.float32)
        return ClientRows(features, rng.integers(0, self.classes, self.rows))


@dataclass(slots=True)
class Meter:
    """Peak memory and CPU seconds of a process, by stage."""

    held: int = field(default_factory=lambda: _resident())
    peaks: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Measure what is done meanwhile, without a stage inside it and what came before that one."""
        forget_peak()
        started, counted = time.process_time(), sum(self.seconds.values())
        yield
        self.seconds[name] += time.process_time() - started - (sum(self.seconds.values()) - counted)
        self.peaks[name] = max(self.peaks[name], (peak_rss_bytes() or 0) - self.held)
        forget_peak()


def _resident() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"^VmRSS:\s+(\d+) kB$", status, flags=re.MULTILINE)[0]) * 1024


class Party:
    """One process: it reads a message from a file, and writes its answer into another.

    Args:
        size, parties, party: who it is.
        folder: of the messages; its store has a folder in there.
    """

    def __init__(self, size: Size, parties: InOneProcess, party: PartyId, folder: Path) -> None:
        self._size, self._party, self._folder = size, party, folder
        self._federation, self._meter, self._n_written = size.federation(), Meter(), 0
        self.store = SessionStore(folder / f"store-{party}")
        with self.store.locked():
            record = self.store.record(SESSION, party)
            if party == SERVER:
                self._server = DurableServer(record, parties.server(), each_message=False)
            else:
                is_client = party in size.parties
                session = parties.client(party, self._vector) if is_client else parties.helper(party)
                self._session = DurableClient(record, KEY, session)

    def _vector(self) -> Any:
        step = self._federation.next_sum
        assert step is not None, "there is one sum"
        with self._meter.stage("rows to vector"):
            return step.vector(self._size.rows_of(self._party))

    def start(self) -> dict[PartyId, Path]:
        """Say the first message."""
        with self._meter.stage("messages"):
            return self._written({SERVER: self._session.start()})

    def answer(self, path: Path) -> dict[PartyId, Path]:
        """Answer a message of the server."""
        with self._meter.stage("messages"):
            return self._written({SERVER: self._session.receive(path.read_bytes())})

    def receive(self, sender: PartyId, path: Path) -> None:
        """Take a party's message."""
        with self._meter.stage("messages"):
            self._server.receive(sender, path.read_bytes())

    def close_round(self) -> dict[PartyId, Path]:
        """Say what each party is asked next; nothing once there is a total."""
        with self._meter.stage("messages"):
            return self._written(self._server.close_round())

    def model(self) -> str:
        """Make the model of the total; return the hash of its weights."""
        result, self._server = self._server.result, None  # type: ignore[assignment]
        assert result is not None, "the last round is closed"
        with self._meter.stage("total to model"):
            self._federation.take(result)
        return hashlib.sha256(self._federation.model.weights.tobytes()).hexdigest()

    def measured(self) -> tuple[dict[str, int], dict[str, float]]:
        """Peaks and CPU seconds by stage."""
        return dict(self._meter.peaks), dict(self._meter.seconds)

    def _written(self, messages: Mapping[PartyId, bytes | None]) -> dict[PartyId, Path]:
        paths = {}
        for party, message in messages.items():
            if message is not None:
                self._n_written += 1
                paths[party] = self._folder / f"{self._party}-{self._n_written}"
                paths[party].write_bytes(message)
        return paths


def _serve(connection: Connection, *who: Any) -> None:
    """Do what the other end asks for, until it asks for nothing."""
    with one_thread():
        party = Party(*who)
        with party.store.locked():
            while (order := connection.recv()) is not None:
                name, arguments = order
                connection.send(getattr(party, name)(*arguments))


class Process:
    """A party's process, as the one that carries messages sees it."""

    def __init__(self, method: str, *who: Any) -> None:
        context: Any = multiprocessing.get_context(method)
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there, *who), daemon=True)
        self._process.start()
        there.close()

    def __call__(self, name: str, *arguments: Any) -> Any:
        """Have it do something; return what came of it."""
        self._here.send((name, arguments))
        return self._here.recv()

    def end(self) -> None:
        """Let it go."""
        self._here.send(None)
        self._process.join()


def measure(mode: str, size: Size, *, solve: bool) -> tuple[dict[str, tuple[dict[str, int], dict[str, float]]], str]:
    """Peaks and CPU seconds of a client, a helper and the server; then the weights' hash, empty if not asked for."""
    step = size.federation().next_sum
    assert step is not None, "a learner begins with a sum"
    made: Callable[..., InOneProcess] = MODES[mode].in_one_process
    parties = made(
        layout=step.with_headroom(size.clients),
        clients=size.parties,
        session_id=new_session_id(),
        context=step.context,
        identity_of=None if mode == "plain" else fresh_identity,
    )
    with tempfile.TemporaryDirectory() as folder:
        others = (*size.parties, *parties.helpers)
        # a committee's keys cannot be passed to a fresh process, and a process that used TenSEAL cannot be forked
        method = "spawn" if mode in ("bfv", "ckks") else "fork"
        processes = {party: Process(method, size, parties, party, Path(folder)) for party in (SERVER, *others)}
        server = processes[SERVER]

        def deliver(sender: PartyId, said: Mapping[PartyId, Path]) -> None:
            for path in said.values():
                server("receive", sender, path)
                path.unlink()

        for party in others:
            deliver(party, processes[party]("start"))
        while asked := server("close_round"):
            for party, path in asked.items():
                deliver(party, processes[party]("answer", path))
        weights = server("model") if solve else ""
        roles = {"client": size.parties[0], "server": SERVER}
        roles |= {"helper": parties.helpers[0]} if parties.helpers else {}
        measured = {role: processes[party]("measured") for role, party in roles.items()}
        for process in processes.values():
            process.end()
        return measured, weights


def pooled(size: Size) -> str:
    """The hash of the weights of all rows together, without a sum."""
    parts = [size.rows_of(party) for party in size.parties]
    rows = ClientRows(np.concatenate([one.features for one in parts]), np.concatenate([one.targets for one in parts]))
    with one_thread():
        weights: NDArray[np.float64] = fit_pooled(size.federation().learner, rows).weights
    return hashlib.sha256(weights.tobytes()).hexdigest()


def main() -> None:
    """Measure what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", default="plain,masked,committee")
    parser.add_argument("--features", type=int, default=8192)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=300)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--solve", action="store_true", help="make the model too, and compare it with pooled rows'")
    given = parser.parse_args()
    size = Size(features=given.features, classes=given.classes, rows=given.rows, clients=given.clients)
    step = size.federation().next_sum
    assert step is not None, "a learner begins with a sum"
    vector = step.layout.wire_bytes
    print(f"one packed vector: {spaced(step.layout.size)} entries, {vector / 1e6:.0f} MB\n")
    print("| mode | party | stage | peak, MB | peak, vectors | CPU, s |\n| --- | --- | --- | ---: | ---: | ---: |")
    for mode in given.modes.split(","):
        measured, weights = measure(mode, size, solve=given.solve)
        for role, (peaks, seconds) in measured.items():
            for stage, peak in peaks.items():
                print(f"| {mode} | {role} | {stage} | {peak / 1e6:.0f} | {peak / vector:.2f} | {seconds[stage]:.1f} |")
        if weights:
            same = weights == pooled(size)
            print(f"\nSHA-256 of the weights: {weights}, {'the' if same else 'NOT the'} pooled rows' own\n")


if __name__ == "__main__":
    main()
