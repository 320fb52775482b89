"""Hostile bytes: whatever arrives, decoders and sessions raise documented errors or take what is right."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).resolve().parent))

from hostile_targets import (
    DECODERS,
    KEY,
    SESSIONS,
    SIGNED,
    STORED,
    TARGETS,
    TRUSTING,
    VECTORS,
    entropy,
    new_server,
    pool,
    seeds,
)
from support.examples import examples
from support.memory_store import MemoryStore

from secagg import MaskedSum
from secagg.durable import DurableClient, DurableServer
from secagg.errors import SnapshotError

HERE = Path(__file__).resolve().parent
SEEDS: dict[str, list[bytes]] = {name: [] for name in TARGETS}
for _seed in seeds():
    SEEDS[list(TARGETS)[_seed[0]]].append(_seed[1:])


@st.composite
def spoiled(draw: st.DrawFn, good: list[bytes]) -> bytes:
    """Good bytes with a few edits, or any bytes at all."""
    if not good or draw(st.integers(0, 4)) == 0:
        return draw(st.binary(max_size=400))
    data = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(0, 4))):
        at, edit = draw(st.integers(0, len(data))), draw(st.sampled_from(["set", "cut", "grow", "huge", "zero"]))
        if edit == "set":
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif edit == "cut":
            del data[at : at + draw(st.integers(1, 80))]
        elif edit == "grow":
            data[at:at] = draw(st.binary(max_size=80))
        else:
            data[at : at + 4] = (b"\xff" if edit == "huge" else b"\0") * 4
    return bytes(data)


@pytest.mark.parametrize("name", [*DECODERS, *STORED])
@examples(4)
@given(data=st.data())
def test_decoders_raise_documented_errors_only(name: str, data: st.DataObject) -> None:
    TARGETS[name](data.draw(spoiled(SEEDS[name])))


@pytest.mark.parametrize("name", [*DECODERS, *STORED])
def test_good_bytes_pass(name: str) -> None:
    """The seeds reach beyond the first check."""
    for good in SEEDS[name]:
        TARGETS[name](good)


moves = st.lists(
    st.tuples(st.integers(0, 7), st.integers(0, 255), st.integers(0, 2**16 - 1), st.integers(0, 255)), max_size=40
).map(lambda listed: b"".join(bytes([kind, which]) + where.to_bytes(2, "big") + bytes([what, 0])
                              for kind, which, where, what in listed))  # fmt: skip


@pytest.mark.parametrize("name", SESSIONS)
@given(script=moves)
@example(script=bytes(6 * 40))
def test_sessions_take_any_sequence_of_messages(name: str, script: bytes) -> None:
    SESSIONS[name](script)


@pytest.mark.parametrize("config", [TRUSTING, SIGNED], ids=["trusting", "signed"])
def test_the_good_script_ends_in_a_sum(config: MaskedSum) -> None:
    """So that the scripts above can reach every state: moves of zeros run the protocol to its end."""
    server = new_server(config)
    for move in pool(config)[2]:
        if move is None:
            server.close_round()
        else:
            server.receive(*move)
    assert server.result is not None
    assert (server.result.total == sum(VECTORS.values())).all()
    assert len(pool(config)[2]) <= 40


@pytest.mark.parametrize("config", [TRUSTING, SIGNED], ids=["trusting", "signed"])
@given(data=st.data())
def test_a_server_snapshot_with_a_changed_byte_is_not_restored(config: MaskedSum, data: st.DataObject) -> None:
    store, moves = MemoryStore(), pool(config)[2]
    server = DurableServer(store, new_server(config))
    server.receive(*moves[0])
    for move in moves[1 : data.draw(st.integers(1, len(moves)))]:
        if move is None:
            server.close_round()
        else:
            server.receive(*move)
    with pytest.raises(SnapshotError):
        DurableServer(MemoryStore(changed(store.record, data)), new_server(config))


@given(data=st.data())
def test_a_client_snapshot_with_a_changed_byte_is_not_restored(data: st.DataObject) -> None:
    store = MemoryStore()
    session = TRUSTING.client(5, VECTORS[5], entropy=entropy("5"))  # as in the pool, whose boxes are for its keys
    client = DurableClient(store, KEY, session)
    client.start()
    for message in pool(TRUSTING)[1][: data.draw(st.integers(0, len(pool(TRUSTING)[1])))]:
        client.receive(message)
    with pytest.raises(SnapshotError):
        DurableClient(MemoryStore(changed(store.record, data)), KEY, TRUSTING.client(5, VECTORS[5]))


def changed(record: bytes | None, data: st.DataObject) -> bytes:
    """A stored record with one byte changed."""
    assert record is not None
    at, change = data.draw(st.integers(0, len(record) - 1)), data.draw(st.integers(1, 255))
    return record[:at] + bytes([record[at] ^ change]) + record[at + 1 :]


def run_fuzzer(folder: Path, seconds: int, target: str | None = None) -> subprocess.CompletedProcess[str]:
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds()):
        if target is None or list(TARGETS)[seed[0]] == target:
            (corpus / f"{number}").write_bytes(seed)
    options = [f"-max_total_time={seconds}", "-max_len=4096", "-seed=4", f"-artifact_prefix={folder}/", "-verbosity=1"]
    # Linux counts this process's own peak as the child's, so that is no limit; what one input asks for at a time is.
    options += ["-rss_limit_mb=0", "-malloc_limit_mb=512"]
    environment = os.environ | ({"FUZZ_TARGET": target} if target else {})
    return subprocess.run(
        [sys.executable, str(HERE / "run_atheris.py"), *options, str(corpus)],
        capture_output=True, text=True, timeout=seconds + 120, check=False, env=environment,
    )  # fmt: skip


needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None, reason="needs the extra: pip install '.[dev]', on Linux"
)


@needs_atheris
def test_the_fuzzer_finds_nothing_in_five_seconds(tmp_path: Path) -> None:
    finished = run_fuzzer(tmp_path, 5)
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
    assert "Done" in finished.stderr


@needs_atheris
@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_the_fuzzer_finds_nothing_in_two_minutes(name: str, tmp_path: Path) -> None:
    finished = run_fuzzer(tmp_path, 120, name)
    assert finished.returncode == 0, finished.stdout[-2000:] + finished.stderr[-4000:]
