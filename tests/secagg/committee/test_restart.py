"""A party is killed (SIGKILL), restarted, and the sum comes out exact; the contract of restarts kills at each save."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "crashes"))

import committee_party
from committee_party import CLIENTS, CONFIG, HELPERS, vector
from killed_process import KilledProcess, KilledServer, sized
from support.parties import helps

WHEN = pytest.mark.parametrize("when", ["before", "after"])


@WHEN
@pytest.mark.parametrize("role", [2, 11], ids=["client", "helper"])
def test_a_killed_client_or_helper_comes_back_and_says_the_same(tmp_path: Path, role: int, when: str) -> None:
    victim = KilledProcess(committee_party.__file__, str(role), tmp_path / "store", f"{when}:1")
    sessions = {party: CONFIG.client(party, vector(party)) for party in CLIENTS}
    helpers = {party: CONFIG.helper(party, secrets=helps(pair)) for party, pair in HELPERS.items()}
    server = CONFIG.server()
    for party, session in sessions.items():
        if party == role:
            message = victim.ask_until_answered(sized(b""))
            assert victim.ask(sized(b"")) == message
        else:
            message = session.start()
        server.receive(party, message)
    for party, request in server.close_round().items():
        if party == role:
            answer = victim.ask_until_answered(sized(request))
            assert victim.ask(sized(request)) == answer, "a repeated request must get the same bytes"
        else:
            answer = helpers[party].receive(request)
        server.receive(party, answer)
    assert server.close_round() == {}
    victim.close()
    assert victim.deaths == 1
    assert server.result is not None
    assert server.result.total.tobytes() == sum(map(vector, CLIENTS)).tobytes()


@WHEN
@pytest.mark.parametrize("save", [2, 4, 6, 7], ids=["vector", "requests", "masks", "total"])
def test_a_killed_server_comes_back_with_every_message(tmp_path: Path, save: int, when: str) -> None:
    server = KilledServer(committee_party.__file__, tmp_path / "server", f"{when}:{save}")
    for party in CLIENTS:
        server.receive(party, CONFIG.client(party, vector(party)).start())
    for party, request in server.close_round().items():
        server.receive(party, CONFIG.helper(party, secrets=helps(HELPERS[party])).receive(request))
    assert server.close_round() == {}
    server.process.close()
    assert server.process.deaths == 1
    assert server.total == sum(map(vector, CLIENTS)).tobytes()
