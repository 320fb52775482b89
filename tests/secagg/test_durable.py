"""Stores, and what a restarted client may and may not do."""

from __future__ import annotations

import hashlib
import stat
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.memory_store import MemoryStore

from secagg import Layout, MaskedSum
from secagg.config import SERVER
from secagg.durable import DurableClient, DurableServer, FileStore, Store
from secagg.errors import (
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
    RepeatedMessageError,
    SnapshotError,
)
from secagg.wire import MessageType, seal_frame

LAYOUT = Layout.of([("counts", 4, 100)])
CONFIG = MaskedSum(layout=LAYOUT, clients=(1, 2, 3), session_id=bytes(16), threshold=2)
KEY = bytes(range(32))


def durable(path: Path, key: bytes = KEY) -> DurableClient:
    vector = np.ones(4, dtype=np.int64)
    return DurableClient(FileStore(path), key, CONFIG.client(1, vector))


def test_the_file_is_private_and_sealed(tmp_path: Path) -> None:
    client = durable(tmp_path / "session")
    client.start()
    mode = stat.S_IMODE((tmp_path / "session").stat().st_mode)
    assert mode == 0o600
    stored = (tmp_path / "session").read_bytes()
    assert b"SAGS" not in stored
    assert CONFIG.digest not in stored


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


def test_a_store_of_another_session_says_that_each_needs_its_own(tmp_path: Path) -> None:
    """One whose server never came back is in it: nobody could end that session."""
    durable(tmp_path / "session").start()
    other = replace(CONFIG, session_id=b"another session!").client(1, np.ones(4, dtype=np.int64))
    with pytest.raises(SnapshotError, match="give each session a store of its own"):
        DurableClient(FileStore(tmp_path / "session"), KEY, other)


def test_an_aborted_session_stays_aborted(tmp_path: Path) -> None:
    client = durable(tmp_path / "session")
    client.start()
    wrong = seal_frame(MessageType.UNMASK_REQUEST, bytes(4), digest=CONFIG.digest, sender=SERVER, recipient=1)
    with pytest.raises(RemoteProtocolError, match="ROSTER is due"):
        client.receive(wrong)
    with pytest.raises(LocalProtocolError, match="aborted"):
        durable(tmp_path / "session").receive(wrong)


def test_a_session_that_ended_is_never_begun_again(tmp_path: Path) -> None:
    """A restart with a used session id would send a second vector under the first one's masks; others may begin."""
    first = durable(tmp_path / "session")
    first.start()
    first.end()
    for late in (first.start, first.end, lambda: durable(tmp_path / "session")):
        with pytest.raises((LocalProtocolError, SnapshotError), match="one session id serves one sum"):
            late()
    other = replace(CONFIG, session_id=b"another session!")
    for end in (False, True):
        session = DurableClient(FileStore(tmp_path / "session"), KEY, other.client(1, np.ones(4, dtype=np.int64)))
        session.start()
        if end:
            session.end()
        with pytest.raises(SnapshotError, match="one session id serves one sum"):
            durable(tmp_path / "session")


def test_every_changed_bit_of_a_server_record_is_noticed(tmp_path: Path) -> None:
    def server() -> DurableServer:
        return DurableServer(FileStore(tmp_path / "server"), CONFIG.server())

    running = server()
    for party in CONFIG.clients:
        running.receive(party, CONFIG.client(party, np.ones(4, dtype=np.int64)).start())
    running.close_round()
    data = bytearray((tmp_path / "server").read_bytes())
    for place in range(len(data)):
        data[place] ^= 1
        (tmp_path / "server").write_bytes(data)
        with pytest.raises(SnapshotError, match=r"changed bytes|another version"):
            server()
        data[place] ^= 1
    (tmp_path / "server").write_bytes(data)
    assert server().requests.keys() == {1, 2, 3}


def test_a_store_takes_its_path_as_a_text_too(tmp_path: Path) -> None:
    FileStore(str(tmp_path / "session")).save(b"record")  # type: ignore[arg-type]
    assert FileStore(tmp_path / "session").load() == b"record"


def test_a_server_record_that_does_not_read_is_refused(tmp_path: Path) -> None:
    """Its hash is right and its content is not: another program, or another version, wrote it."""
    content = (2).to_bytes(4, "big")
    bound = hashlib.sha256(CONFIG.server().snapshot_id + content).digest()
    FileStore(tmp_path / "server").save(b"SAGD\x07" + bound + content)
    with pytest.raises(SnapshotError, match="does not read"):
        DurableServer(FileStore(tmp_path / "server"), CONFIG.server())


class FullDisk(MemoryStore):
    """A store whose next saves fail, as many as are asked for."""

    failures = 0

    def save(self, record: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        super().save(record)


def durable_in(store: Store) -> DurableClient:
    vector = np.ones(4, dtype=np.int64)
    return DurableClient(store, KEY, CONFIG.client(1, vector))


def test_no_answer_leaves_that_the_disk_refused() -> None:
    """Two answers to two requests would be both shares of a peer: what left must be what is stored."""
    store = FullDisk()
    client = durable_in(store)
    store.failures = 2
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            client.start()
    first = client.start()
    assert durable_in(store).start() == first
    others = {party: CONFIG.client(party, np.ones(4, dtype=np.int64)) for party in (2, 3)}
    server = CONFIG.server()
    for party, message in [(1, first), *[(party, other.start()) for party, other in others.items()]]:
        server.receive(party, message or b"")
    roster = server.close_round()[1]
    before, store.failures = store.record, 2
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            client.receive(roster)
    assert store.record == before
    answer = client.receive(roster)
    assert durable_in(store).receive(roster) == answer


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), "0" * 32], ids=["none", "short", "long", "text"])
def test_a_record_is_sealed_under_32_bytes(key: bytes, tmp_path: Path) -> None:
    """Else the first answer would be made and could never be stored."""
    with pytest.raises(ConfigurationError, match="32 bytes that only its owner knows"):
        durable(tmp_path / "session", key)


def durable_server(store: Store) -> DurableServer:
    return DurableServer(store, CONFIG.server())


def test_a_server_whose_disk_was_full_repeats_what_it_could_not_store() -> None:
    store = FullDisk()
    server = durable_server(store)
    clients = {party: CONFIG.client(party, np.ones(4, dtype=np.int64)) for party in CONFIG.clients}
    firsts = {party: client.start() or b"" for party, client in clients.items()}
    store.failures = 1
    with pytest.raises(OSError, match="No space left"):
        server.receive(1, firsts[1])
    with pytest.raises(RepeatedMessageError):
        server.receive(1, firsts[1])
    assert durable_server(store).waiting_for == {2, 3}, "what is called a repetition is stored"
    for party in (2, 3):
        server.receive(party, firsts[party])
    store.failures = 1
    with pytest.raises(OSError, match="No space left"):
        server.close_round()
    assert server.requests == {}, "nothing to send that is not stored"
    rosters = server.close_round()
    assert rosters.keys() == {1, 2, 3}
    assert durable_server(store).requests == server.requests == rosters
    for party, roster in rosters.items():
        server.receive(party, clients[party].receive(roster) or b"")
    assert server.close_round().keys() == {1, 2, 3}


def test_two_processes_on_one_file_do_not_both_answer(tmp_path: Path) -> None:
    """Each has read the empty store; one of them answers, the others see that it did."""
    clients = [durable(tmp_path / "session") for _ in range(8)]
    barrier, answers, refusals = threading.Barrier(8), [], []

    def speak(client: DurableClient) -> None:
        barrier.wait()
        try:
            answers.append(client.start())
        except SnapshotError as error:
            refusals.append(str(error))

    threads = [threading.Thread(target=speak, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answers), len(refusals)) == (1, 7)
    assert all("another process, which went on with this session" in refusal for refusal in refusals)
    assert durable(tmp_path / "session").start() == answers[0]


def test_a_store_that_was_removed_or_changed_elsewhere_is_not_written_over(tmp_path: Path) -> None:
    one, other = FileStore(tmp_path / "session"), FileStore(tmp_path / "session")
    one.save(b"nobody looked: there is nothing to be lost")
    assert other.load() is not None
    (tmp_path / "session").unlink()
    with pytest.raises(SnapshotError, match="another process"):
        other.save(b"late")
    one = FileStore(tmp_path / "session")
    one.save(b"a new session")
    assert other.load() == b"a new session"
    other.save(b"goes on")
    with pytest.raises(SnapshotError, match="another process"):
        one.save(b"behind")
    assert other.load() == b"goes on"


def test_a_server_that_was_aborted_on_a_full_disk_stays_aborted() -> None:
    store = FullDisk()
    server = durable_server(store)
    server.receive(1, CONFIG.client(1, np.ones(4, dtype=np.int64)).start() or b"")
    store.failures = 1
    with pytest.raises(OSError, match="No space left"):
        server.close_round()
    with pytest.raises(LocalProtocolError, match="over"):
        server.close_round()
    with pytest.raises(LocalProtocolError, match="over"):
        durable_server(store).close_round()
