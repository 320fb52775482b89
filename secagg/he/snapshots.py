"""The sessions of encrypted sums as bytes, so that a process may die between two messages and another one goes on.

A client's and the key holder's snapshot are sealed under a key that their owner gives: whoever could change one could
have the client speak, or the key holder decrypt, twice. A server's is not sealed; keep it where only the server can
read. The secret key is in none of them.
"""

from __future__ import annotations

import struct

from secagg.entropy import Entropy
from secagg.he.client import EncryptedClient
from secagg.he.config import EncryptedSumParameters
from secagg.he.key_holder import KeyHolder, KeyHolderState
from secagg.he.residues import CiphertextSum
from secagg.he.server import EncryptedServer
from secagg.layout import Layout
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
from secagg.wire import Reader, write_parties

_STATES = list(KeyHolderState)
_NOTHING, _CIPHERTEXTS, _WORDS = b"\0", b"\1", b"\2"


def snapshot_client(client: EncryptedClient, key: bytes, *, entropy: Entropy) -> bytes:
    """Whether a client has spoken; there is no other state."""
    return seal_snapshot(CLIENT, client._config, client.party, bytes([client.has_spoken]), key, entropy=entropy)


def restore_client(
    config: EncryptedSumParameters, party: PartyId, contribution: Contribution, snapshot: bytes, key: bytes
) -> EncryptedClient:
    """The client that a snapshot holds: one that has spoken never does again."""
    client = EncryptedClient(config, party, contribution)
    with opened_snapshot(CLIENT, config, party, snapshot, key) as reader:
        has_spoken = reader.take(1) != b"\0"
    if has_spoken:
        client._contribution = None
    return client


def snapshot_key_holder(holder: KeyHolder, key: bytes, *, entropy: Entropy) -> bytes:
    """Where the key holder stands and what it answered; its secret key stays where it was."""
    body = (
        bytes([_STATES.index(holder.state)])
        + (holder._answered or b"").ljust(HASH_BYTES, b"\0")
        + struct.pack(">d", float("nan") if holder.error is None else holder.error)
    )
    return seal_snapshot(HELPER, holder._config, holder.party, body, key, entropy=entropy)


def restore_key_holder(fresh: KeyHolder, snapshot: bytes, key: bytes) -> KeyHolder:
    """A fresh session of the same key holder, put where the snapshot says: one that has answered never does again."""
    with opened_snapshot(HELPER, fresh._config, fresh.party, snapshot, key) as reader:
        state, answered = _STATES[reader.take(1)[0]], reader.take(HASH_BYTES)
        (error,) = struct.unpack(">d", reader.take(8))
    if state is not KeyHolderState.WAITING:
        fresh._forget(state)
    fresh._answered = answered if any(answered) else None
    fresh.error = None if error != error else error
    return fresh


def snapshot_server(server: EncryptedServer) -> bytes:
    """A server's session: the round, who is in the sum, and the sum so far."""
    result = server.result
    words = RingVector.encode(server._config.layout, result.total) if result else server._total
    body = b"".join(
        [
            write_round(server._round),
            write_parties(server._survivors),
            write_sum(server._sum, words),
            bytes([result is not None]),
        ]
    )
    return hash_snapshot(server._config, body)


def restore_server(config: EncryptedSumParameters, snapshot: bytes) -> EncryptedServer:
    """The server that a snapshot holds."""
    server = EncryptedServer(config)
    with server_snapshot(config, snapshot) as reader:
        server._round = read_round(reader, lambda _: config.digest)
        server._survivors = tuple(reader.entries(0))
        server._sum, server._total = read_sum(reader, config.carrier.empty_sum(), config.layout)
        has_result = reader.take(1) != b"\0"
    if has_result and server._total is not None:
        server._result = SumResult(total=server._total.decode(), survivors=server._survivors)
        server._total = None
    return server


def write_sum(ciphertexts: CiphertextSum | None, words: RingVector | None) -> bytes:
    """What a server has of its sum: ciphertexts, then nothing while the key holder works, then words."""
    if ciphertexts is not None:
        return _CIPHERTEXTS + ciphertexts.to_snapshot()
    return _NOTHING if words is None else _WORDS + words.to_bytes()


def read_sum(reader: Reader, empty: CiphertextSum, layout: Layout) -> tuple[CiphertextSum | None, RingVector | None]:
    """Read ``write_sum``; ``empty`` has the parameters.

    Raises:
        MalformedMessageError: changed bytes.
    """
    kind = reader.take(1)
    if kind == _CIPHERTEXTS:
        return empty.read_snapshot(reader), None
    if kind == _WORDS:
        return None, RingVector.from_bytes(layout, reader.take(layout.wire_bytes)).copy()
    return None, None
