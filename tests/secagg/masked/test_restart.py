"""A party is killed (SIGKILL) at every step, restarted from its store, and the sum comes out exact."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.parties import knows

from secagg.masked.client import MaskedClient
from secagg.masked.states import AUTHENTICATED_CLIENT

sys.path.append(str(Path(__file__).resolve().parents[1] / "crashes"))

import masked_party
from killed_process import KilledProcess, KilledServer, sized
from masked_party import CLIENTS, CONFIG, IDENTITIES, SERVER_SECRETS, vector

STEPS = len(AUTHENTICATED_CLIENT) + 1
VICTIM = 2
WHEN = pytest.mark.parametrize("when", ["before", "after"])


def local_client(party: int) -> MaskedClient:
    return CONFIG.client(party, vector(party), secrets=knows(IDENTITIES[party]))


@WHEN
@pytest.mark.parametrize("step", range(1, STEPS + 1))
def test_a_killed_client_comes_back_and_is_in_the_sum(tmp_path: Path, when: str, step: int) -> None:
    victim = KilledProcess(masked_party.__file__, str(VICTIM), tmp_path / "client", f"{when}:{step}")
    clients = {party: local_client(party) for party in CLIENTS if party != VICTIM}
    server = CONFIG.server(secrets=SERVER_SECRETS)
    requests: dict[int, bytes] = dict.fromkeys(CLIENTS, b"")
    while requests:
        for party, request in requests.items():
            if party == VICTIM:
                answer = victim.ask_until_answered(sized(request))
                assert victim.ask(sized(request)) == answer, "a repeated request must get the same bytes"
            else:
                answer = clients[party].receive(request) if request else clients[party].start()
            server.receive(party, answer)
        requests = dict(server.close_round())
    victim.close()
    assert victim.deaths == 1
    assert server.result is not None
    assert server.result.survivors == CLIENTS
    assert server.result.total.tobytes() == sum(map(vector, CLIENTS)).tobytes()


@WHEN
@pytest.mark.parametrize("save", range(1, 5 * STEPS + STEPS + 1, 4))
def test_a_killed_server_comes_back_with_every_message(tmp_path: Path, when: str, save: int) -> None:
    """Five receives and a close in each of five rounds: kills are spread over all of them."""
    server = KilledServer(masked_party.__file__, tmp_path / "server", f"{when}:{save}")
    clients = {party: local_client(party) for party in CLIENTS}
    answers = {party: client.start() for party, client in clients.items()}
    while answers:
        for party, answer in answers.items():
            server.receive(party, answer)
        answers = {party: clients[party].receive(message) for party, message in server.close_round().items()}
    server.process.close()
    assert server.process.deaths == 1
    assert server.total == sum(map(vector, CLIENTS)).tobytes()
