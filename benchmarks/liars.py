"""i. What clients cost that reveal wrong shares of everything: the server's unmasking, with and without them."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from benchmarks.measure import Goal, Row, Section, Settings, Spread, in_own_process, one_thread, spaced
from secagg import (
    Assumptions,
    InMemoryRun,
    InOneProcess,
    Layout,
    MaskedSum,
    PartyId,
    PartySecrets,
    ServerSession,
    new_session_id,
    run_in_memory,
)
from secagg.config import SERVER
from secagg.in_memory import Envelope
from secagg.masked import client
from secagg.masked.messages import UnmaskShares
from secagg.primitives.identity import IdentityKey
from secagg.wire import MessageType, Reader, message_type, payload_of, seal_frame
from simulations.compare.memory import peak_rss_bytes

LAYOUT = Layout.of([("gram", 300, 2**45), ("count", 1, 2**30)])
"""Short vectors: what a liar costs is in its shares."""
N_LIARS = 5
"""With the lowest numbers: asked before others, and so in the way of many secrets."""


def planned(clients: tuple[PartyId, ...], *, malicious_server: bool = False) -> InOneProcess:
    """Plan the sparsest graph for a tenth of corrupt clients and three tenths of dropouts; all parties of the sum."""
    keys = {party: IdentityKey.generate() for party in (SERVER, *clients)} if malicious_server else {}
    protocol = MaskedSum.planned(
        layout=LAYOUT,
        clients=clients,
        session_id=new_session_id(),
        assumptions=Assumptions(malicious_server=malicious_server),
        graph_seed=b"public and fixed beforehand",
        identities=tuple(keys[party].public for party in clients) if keys else (),
        server_identity=keys[SERVER].public if keys else b"",
    )
    return InOneProcess(protocol=protocol, secrets={party: PartySecrets(identity=key) for party, key in keys.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(InOneProcess):
    """A sum whose server takes down CPU seconds of each round's closing; the last one unmasks."""

    closings: list[float] = field(default_factory=list)

    def server(self, **own: Any) -> ServerSession:
        """Return the server's session."""
        session = InOneProcess.server(self, **own)
        close_round = session.close_round

        def timed() -> Mapping[PartyId, bytes]:
            started = time.process_time()
            try:
                return close_round()
            finally:
                self.closings.append(time.process_time() - started)

        session.close_round = timed  # type: ignore[method-assign]
        return session


@dataclass(frozen=True, slots=True, kw_only=True)
class Lying:
    """A network on whose far end some clients change a bit of every share that they reveal, and sign that."""

    parties: InOneProcess
    liars: frozenset[PartyId]

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        """Carry everything, in order."""
        return (self._changed(one) if one.sender in self.liars else one for one in envelopes)

    def _changed(self, envelope: Envelope) -> Envelope:
        if message_type(envelope.message) is not MessageType.UNMASK_SHARES:
            return envelope
        payload = memoryview(payload_of(envelope.message))
        shares = UnmaskShares.read(Reader(payload, peer=envelope.sender, max_entries=len(self.parties.clients)))
        for held in (shares.mask_key_shares, shares.self_mask_shares):
            held |= {owner: bytes([0, *share[1:-1], share[-1] ^ 1]) for owner, share in held.items()}
        message = seal_frame(
            MessageType.UNMASK_SHARES,
            shares.to_payload(),
            digest=self.parties.protocol.digest,
            sender=envelope.sender,
            recipient=SERVER,
            identity=self.parties.of_party(envelope.sender).identity,
        )
        return replace(envelope, message=message)


def unmasked(parties: InOneProcess, liars: frozenset[PartyId]) -> tuple[InMemoryRun, float]:
    """Run a sum of which one client drops out before the unmasking, and return with it the unmasking's CPU seconds.

    The total is checked, and so is whose shares are named. (Who lied for sure is another question: see
    ``SumResult.malicious_parties``, which takes a client's word against more others than may be corrupt.)
    """
    clients = parties.clients
    timed = Timed(protocol=parties.protocol, secrets=parties.secrets)
    contributions = {party: partial(np.full, LAYOUT.size, party, dtype=np.int64) for party in clients}
    run = run_in_memory(timed, contributions, dropouts={clients[-1]: 3}, network=Lying(parties=parties, liars=liars))
    assert run.result.total.tolist() == [sum(clients)] * LAYOUT.size
    assert {holder for _, holder in run.result.disputes} == liars
    return run, timed.closings[-1]


def main() -> None:
    """Measure the session that the arguments name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("n_clients", type=int)
    parser.add_argument("n_liars", type=int)
    parser.add_argument("server", choices=tuple(SERVERS))
    arguments = parser.parse_args()
    clients = tuple(range(1, arguments.n_clients + 1))
    # All of 10 000 clients check the same 5 501 signatures, which is most of an hour; the server's work is measured.
    client.verifies = lru_cache(maxsize=None)(client.verifies)  # type: ignore[attr-defined]
    with one_thread():
        parties = planned(clients, malicious_server=SERVERS[arguments.server])
        _, seconds = unmasked(parties, frozenset(clients[: arguments.n_liars]))
        print(json.dumps({"cpu_seconds": seconds, "peak_bytes": peak_rss_bytes()}))


SERVERS = {"curious": False, "lying": True}
"""Whether the server may lie, by the word for it."""


def by_liars(settings: Settings) -> Iterator[Row]:
    """Each cohort under a server that looks, and under one that may lie; a process for each session."""
    for n_clients in settings.choose(full=(1000, 10_000), quick=(60,)):
        for server in SERVERS:
            case = f"{spaced(n_clients)} clients, {server} server"
            none, some = (
                in_own_process("benchmarks.liars", n_clients, n_liars, server, what=f"{case}, {n_liars} liars")
                for n_liars in (0, N_LIARS)
            )
            yield Row(
                case=case,
                figures={
                    "no liar, CPU s": none["cpu_seconds"],
                    f"{N_LIARS} liars, CPU s": some["cpu_seconds"],
                    "peak of the process, MiB": some["peak_bytes"] / 2**20,
                },
                ratio=Spread.of([some["cpu_seconds"] / none["cpu_seconds"]]),
                goal=Goal(limit=2.0),
            )


BY_LIARS = Section(
    letter="i",
    title="What liars cost",
    method=(
        f"{N_LIARS} clients change a bit of every share that they reveal; the server's unmasking of the same cohort "
        "with and without them, each session once and in a process of its own. Sparsest graph for a tenth corrupt and "
        "three tenths of dropouts, 301 entries, one client drops out before the unmasking. The total is checked, and "
        "that exactly the liars are named."
    ),
    run=by_liars,
)


if __name__ == "__main__":
    main()
