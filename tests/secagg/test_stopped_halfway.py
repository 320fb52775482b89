"""A server that is stopped in the middle of a step (Ctrl-C, no memory left) never goes on to a wrong total."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from support.extras import needs
from support.memory_store import MemoryStore

import secagg.masked.server
import secagg.party
from secagg import CommitteeSum, InOneProcess, Layout, MaskedSum, PlainSum
from secagg.config import SERVER
from secagg.durable import DurableServer
from secagg.encryption import encrypted
from secagg.encryption.cipher import CiphertextSum
from secagg.errors import LocalProtocolError
from secagg.primitives.mask_stream import add_masks
from secagg.ring import RingVector
from secagg.sessions import ServerSession

CLIENTS = (1, 2, 3)
LAYOUT = Layout.of([("counts", 4, 1000), ("wide", 3, 2**40)])
PUBLIC: dict[str, Any] = {"layout": LAYOUT, "clients": CLIENTS, "session_id": bytes(16)}
TOTAL = [6] * LAYOUT.size


@lru_cache
def parties_of(name: str) -> Any:
    if "bfv" in name:
        needs("tenseal")
    make: dict[str, Callable[[], InOneProcess]] = {
        "plain": lambda: InOneProcess(protocol=PlainSum(**PUBLIC)),
        "masked": lambda: InOneProcess(protocol=MaskedSum(**PUBLIC, threshold=2)),
        "committee": lambda: CommitteeSum.generate(**PUBLIC, min_survivors=2),
        "bfv": lambda: encrypted(PlainSum(**PUBLIC, min_survivors=2), "bfv"),
        "masked+bfv": lambda: encrypted(MaskedSum(**PUBLIC, threshold=2), "bfv"),
    }
    return make[name]()


def durable(protocol: Any, store: MemoryStore) -> DurableServer:
    return DurableServer(store, protocol.server())


def finish(parties: InOneProcess, server: ServerSession, restart: Callable[[], ServerSession]) -> list[int]:
    """The total of a sum whose server is asked again, after ``restart``, whatever stops it."""
    sessions = {party: parties.client(party, np.full(LAYOUT.size, party)) for party in CLIENTS}
    sessions |= {party: parties.helper(party) for party in parties.helpers}
    answers = {party: session.start() for party, session in sessions.items()}
    while server.result is None:
        for party, answer in answers.items():
            if answer is not None:
                try:
                    server.receive(party, answer)
                except KeyboardInterrupt:
                    server = restart()
                    server.receive(party, answer)
        try:
            requests = server.close_round()
        except KeyboardInterrupt:
            server = restart()
            requests = server.close_round()
        answers = {party: sessions[party].receive(request) for party, request in requests.items()}
    return server.result.total.tolist()


def stop_once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, halfway: Callable[..., None]) -> None:
    """Replace a function: its first call at the server does what ``halfway`` does and is then stopped by Ctrl-C."""
    whole, left = getattr(owner, name), [1]

    def stopped(*arguments: Any, **named: Any) -> Any:
        if not left or named.get("sender", SERVER) != SERVER:
            return whole(*arguments, **named)
        left.clear()
        halfway(*arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, stopped)


def half_of_the_masks(vector: RingVector, masks: Sequence[tuple[bytes, int]], digest: bytes) -> None:
    add_masks(vector, masks[: len(masks) // 2], digest)


def half_of_the_vector(mine: RingVector, data: bytes | memoryview) -> None:
    mine.words[0] += RingVector.from_bytes(mine.layout, data).words[0]


def nothing(*arguments: Any, **named: Any) -> None:
    pass


ALL_CIPHERTEXTS = CiphertextSum.add
STOPS = [
    ("masked", secagg.masked.server, "add_masks", half_of_the_masks),
    ("masked+bfv", secagg.masked.server, "add_masks", half_of_the_masks),
    ("plain", RingVector, "add_bytes", half_of_the_vector),
    ("masked", RingVector, "add_bytes", half_of_the_vector),
    ("committee", RingVector, "add_bytes", half_of_the_vector),
    ("committee", RingVector, "subtract_bytes", half_of_the_vector),
    ("bfv", CiphertextSum, "add", ALL_CIPHERTEXTS),
    ("masked+bfv", CiphertextSum, "add", ALL_CIPHERTEXTS),
    ("masked", RingVector, "decode", nothing),
    ("masked", secagg.party, "seal_frame", nothing),
    ("committee", secagg.party, "seal_frame", nothing),
    ("bfv", secagg.party, "seal_frame", nothing),
]
NAMED = [pytest.param(*stop, id=f"{stop[0]}-{stop[2]}") for stop in STOPS]
each_stop = pytest.mark.parametrize(("name", "owner", "function", "halfway"), NAMED)


@each_stop
def test_a_server_that_was_stopped_halfway_says_nothing_more(
    name: str, owner: Any, function: str, halfway: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have added half a vector, or taken off half of the masks: going on would give a total that looks right."""
    parties = parties_of(name)
    server = parties.server()
    stop_once(monkeypatch, owner, function, halfway)
    with pytest.raises(LocalProtocolError, match="stopped halfway"):
        finish(parties, server, lambda: server)
    assert server.result is None
    with pytest.raises(LocalProtocolError, match="stopped halfway"):
        server.close_round()


@pytest.mark.parametrize(("name", "owner", "function", "halfway"), NAMED)
def test_a_durable_server_that_was_stopped_halfway_goes_on_from_what_was_stored(
    name: str, owner: Any, function: str, halfway: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored is from before the step, also where the stopped object is asked again before it is given up."""
    parties, store = parties_of(name), MemoryStore()
    server = durable(parties.protocol, store)
    stop_once(monkeypatch, owner, function, halfway)

    def restart() -> DurableServer:
        stored = store.record
        with pytest.raises(LocalProtocolError, match="stopped halfway"):
            server.close_round()
        assert store.record == stored
        return durable(parties.protocol, store)

    assert finish(parties, server, restart) == TOTAL
