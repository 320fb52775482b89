"""Stores, and what a restarted client may and may not do."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from secagg import InsecureSeededEntropy, Layout, MaskedSum
from secagg.config import SERVER
from secagg.durable import DurableClient, DurableServer, FileStore
from secagg.errors import LocalProtocolError, RemoteProtocolError, SnapshotError
from secagg.wire import MessageType, seal_frame

LAYOUT = Layout.of([("counts", 4, 100)])
CONFIG = MaskedSum(layout=LAYOUT, clients=(1, 2, 3), session_id=bytes(16), threshold=2)
KEY = bytes(range(32))


def durable(path: Path, key: bytes = KEY) -> DurableClient:
    vector = np.ones(4, dtype=np.int64)
    return DurableClient(
        FileStore(path),
        key,
        fresh=lambda: CONFIG.client(1, vector),
        restore=lambda snapshot: CONFIG.restore_client(1, vector, snapshot, key),
        snapshot=lambda session: CONFIG.snapshot_client(session, key),
    )


def test_the_file_is_private_and_sealed(tmp_path: Path) -> None:
    client = durable(tmp_path / "session")
    client.start()
    mode = stat.S_IMODE((tmp_path / "session").stat().st_mode)
    assert mode == 0o600
    stored = (tmp_path / "session").read_bytes()
    assert b"SAGS" not in stored
    assert CONFIG.digest not in stored


def test_a_restarted_client_says_the_same_again(tmp_path: Path) -> None:
    first = durable(tmp_path / "session").start()
    again = durable(tmp_path / "session")
    assert again.start() == first
    assert again.party == 1


def test_a_client_past_its_first_message_does_not_start_over(tmp_path: Path) -> None:
    client = durable(tmp_path / "session")
    others = {party: CONFIG.client(party, np.ones(4, dtype=np.int64)) for party in (2, 3)}
    server = CONFIG.server()
    server.receive(1, client.start())
    for party, other in others.items():
        server.receive(party, other.start())
    roster = server.close_round()[1]
    answer = client.receive(roster)
    restarted = durable(tmp_path / "session")
    assert restarted.receive(roster) == answer
    with pytest.raises(LocalProtocolError, match="past its first message"):
        restarted.start()


def test_an_aborted_session_stays_aborted(tmp_path: Path) -> None:
    client = durable(tmp_path / "session")
    client.start()
    wrong = seal_frame(MessageType.UNMASK_REQUEST, bytes(4), digest=CONFIG.digest, sender=SERVER, recipient=1)
    with pytest.raises(RemoteProtocolError, match="ROSTER is due"):
        client.receive(wrong)
    with pytest.raises(LocalProtocolError, match="aborted"):
        durable(tmp_path / "session").receive(wrong)


def test_another_key_or_changed_bytes_do_not_open(tmp_path: Path) -> None:
    durable(tmp_path / "session").start()
    with pytest.raises(SnapshotError, match="another key, or changed bytes"):
        durable(tmp_path / "session", key=b"x" * 32)
    data = (tmp_path / "session").read_bytes()
    (tmp_path / "session").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(SnapshotError, match="changed bytes"):
        durable(tmp_path / "session")


def test_a_wiped_store_is_empty(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "session")
    assert store.load() is None
    store.save(b"record")
    assert store.load() == b"record"
    store.wipe()
    assert store.load() is None
    assert os.listdir(tmp_path) == []


def test_a_server_record_with_changed_bytes_does_not_open(tmp_path: Path) -> None:
    def server(path: Path) -> DurableServer:
        return DurableServer(
            FileStore(path), fresh=CONFIG.server, restore=CONFIG.restore_server, snapshot=CONFIG.snapshot_server
        )

    running = server(tmp_path / "server")
    running.receive(1, CONFIG.client(1, np.ones(4, dtype=np.int64), entropy=InsecureSeededEntropy(1)).start())
    assert server(tmp_path / "server").waiting_for == {2, 3}
    data = (tmp_path / "server").read_bytes()
    for size in range(0, len(data) - 1, 7):
        (tmp_path / "server").write_bytes(data[:size])
        with pytest.raises(SnapshotError):
            server(tmp_path / "server")


def test_every_changed_bit_of_a_server_record_is_noticed(tmp_path: Path) -> None:
    def server() -> DurableServer:
        return DurableServer(
            FileStore(tmp_path / "server"),
            fresh=CONFIG.server,
            restore=CONFIG.restore_server,
            snapshot=CONFIG.snapshot_server,
        )

    running = server()
    for party in CONFIG.clients:
        running.receive(party, CONFIG.client(party, np.ones(4, dtype=np.int64)).start())
    running.close_round()
    data = bytearray((tmp_path / "server").read_bytes())
    for place in range(len(data)):
        data[place] ^= 1
        (tmp_path / "server").write_bytes(data)
        with pytest.raises(SnapshotError, match="changed bytes"):
            server()
        data[place] ^= 1
    (tmp_path / "server").write_bytes(data)
    assert server().requests.keys() == {1, 2, 3}


def test_a_server_record_that_does_not_read_is_refused(tmp_path: Path) -> None:
    """Its hash is right and its content is not: another program, or another version, wrote it."""
    content = (2).to_bytes(4, "big")
    FileStore(tmp_path / "server").save(hashlib.sha256(content).digest() + content)
    with pytest.raises(SnapshotError, match="does not read"):
        DurableServer(
            FileStore(tmp_path / "server"),
            fresh=CONFIG.server,
            restore=CONFIG.restore_server,
            snapshot=CONFIG.snapshot_server,
        )
