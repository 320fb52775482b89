"""The sessions of a committee sum as bytes, so that a process may die between two messages and another one goes on.

A client's and a helper's snapshot are sealed under a key that their owner gives: whoever could change one could have
the client speak, or the helper answer, twice. A server's is not sealed; keep it where only the server can read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secagg.committee.client import CommitteeClient
from secagg.committee.helper import CommitteeHelper
from secagg.committee.messages import SealedSeed, entry_bytes
from secagg.committee.server import CommitteeServer
from secagg.entropy import Entropy
from secagg.ring import RingVector
from secagg.sessions import Contribution, PartyId, SumResult
from secagg.snapshots import (
    CLIENT,
    HASH_BYTES,
    HELPER,
    hash_snapshot,
    opened_snapshot,
    read_round,
    seal_snapshot,
    server_snapshot,
    write_round,
)
from secagg.sums import PartySecrets
from secagg.wire import write_entries

if TYPE_CHECKING:
    from secagg.committee.protocol import CommitteeSum


def snapshot_client(client: CommitteeClient, key: bytes, *, entropy: Entropy) -> bytes:
    """Whether a client has spoken; there is no other state."""
    return seal_snapshot(CLIENT, client._config, client.party, bytes([client.has_spoken]), key, entropy=entropy)


def restore_client(
    config: CommitteeSum,
    party: PartyId,
    contribution: Contribution,
    snapshot: bytes,
    key: bytes,
    *,
    secrets: PartySecrets,
    entropy: Entropy,
) -> CommitteeClient:
    """The client that a snapshot holds: one that has spoken never does again."""
    client = CommitteeClient(config, party, contribution, secrets=secrets, entropy=entropy)
    with opened_snapshot(CLIENT, config, party, snapshot, key) as reader:
        has_spoken = reader.take(1) != b"\0"
    if has_spoken:
        client._contribution = None
    return client


def snapshot_helper(helper: CommitteeHelper, key: bytes, *, entropy: Entropy) -> bytes:
    """Whether a helper has answered, and which request. Its key pair is not in it: it outlives the session."""
    body = bytes([helper._keys is None]) + helper.answered.ljust(HASH_BYTES, b"\0")
    return seal_snapshot(HELPER, helper._config, helper.party, body, key, entropy=entropy)


def restore_helper(
    config: CommitteeSum, party: PartyId, snapshot: bytes, key: bytes, *, secrets: PartySecrets
) -> CommitteeHelper:
    """The helper that a snapshot holds: one that has answered never does again."""
    helper = CommitteeHelper(config, party, secrets=secrets)
    with opened_snapshot(HELPER, config, party, snapshot, key) as reader:
        is_done, answered = reader.take(1) != b"\0", reader.take(HASH_BYTES)
    if is_done:
        helper._keys, helper.answered = None, answered
    return helper


def snapshot_server(server: CommitteeServer) -> bytes:
    """A server's session: the round, the survivors' sealed seeds, and the sum so far."""
    config, helpers = server._config, [helper for helper, _ in server._config.helper_keys]
    seeds = {party: b"".join(of[helper].to_bytes() for helper in helpers) for party, of in server._seeds.items()}
    body = b"".join(
        [
            write_round(server._round),
            write_entries(seeds),
            bytes([server.result is not None]),
            server._sum.to_bytes(),
        ]
    )
    return hash_snapshot(config, body)


def restore_server(config: CommitteeSum, snapshot: bytes, *, secrets: PartySecrets) -> CommitteeServer:
    """The server that a snapshot holds."""
    server = CommitteeServer(config, secrets=secrets)
    helpers, size = [helper for helper, _ in config.helper_keys], entry_bytes(config)
    with server_snapshot(config, snapshot) as reader:
        round_ = read_round(reader, lambda _: config.digest)
        for party, seeds in reader.entries(size * len(helpers)).items():
            entries = (seeds[place * size : (place + 1) * size] for place in range(len(helpers)))
            server._seeds[party] = dict(zip(helpers, map(SealedSeed.from_bytes, entries), strict=True))
        has_result = reader.take(1) != b"\0"
        server._sum = RingVector.from_bytes(config.layout, reader.take(config.layout.wire_bytes)).copy()
    server._round = round_
    if has_result:
        server._result = SumResult(total=server._sum.decode(), survivors=tuple(sorted(server._seeds)))
    return server
