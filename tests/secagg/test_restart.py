"""A party is killed (SIGKILL), restarted from its store, and the sum is exact; the contract of restarts kills at each
save.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parent / "crashes"))

from killed_process import KilledProcess, KilledServer, sized
from party import SUMS, vector

WHEN = pytest.mark.parametrize("when", ["before", "after"])


def kills(mode: str, quick: tuple[int, ...], every: range, *more: Any) -> list[Any]:
    """A kill at some saves; at each one in the long run. The contract of restarts kills at each without a process."""
    return [pytest.param(mode, *more, save, marks=() if save in quick else pytest.mark.slow) for save in every]


class Victim:
    """A session in a process that is killed at one of its saves, and asked again; each answer is asked for twice."""

    def __init__(self, process: KilledProcess) -> None:
        self.process = process

    def start(self) -> bytes | None:
        return self.receive(b"")

    def receive(self, request: bytes) -> bytes | None:
        answer = self.process.ask_until_answered(sized(request))
        assert self.process.ask(sized(request)) == answer, "a repeated request must get the same bytes"
        return answer


def play(mode: str, server: Any, victims: dict[int, Victim]) -> None:
    """The whole sum."""
    parties = SUMS[mode]
    sessions: dict[int, Any] = {party: parties.client(party, vector(party)) for party in parties.clients}
    sessions |= {party: parties.helper(party) for party in parties.helpers}
    sessions |= victims
    answers = {party: sessions[party].start() for party in parties.clients}
    while answers:
        for party, answer in answers.items():
            server.receive(party, answer)
        answers = {party: sessions[party].receive(request) for party, request in server.close_round().items()}


@WHEN
@pytest.mark.parametrize(
    ("mode", "party", "save"),
    [*kills("masked", (2, 4), range(1, 6), 2), ("committee", 2, 1), ("committee", 11, 1)],
)
def test_a_killed_client_or_helper_comes_back_and_says_the_same(
    tmp_path: Path, when: str, mode: str, party: int, save: int
) -> None:
    victim, server = KilledProcess(f"{mode}/{party}", tmp_path / "party", f"{when}:{save}"), SUMS[mode].server()
    play(mode, server, {party: Victim(victim)})
    victim.close()
    assert victim.deaths == 1
    assert server.result is not None
    assert server.result.survivors == SUMS[mode].clients
    assert server.result.total.tobytes() == sum(map(vector, SUMS[mode].clients)).tobytes()


@WHEN
@pytest.mark.parametrize(
    ("mode", "save"), [*kills("masked", (1, 13, 29), range(1, 31)), *kills("committee", (2, 7), range(1, 8))]
)
def test_a_killed_server_comes_back_with_every_message(tmp_path: Path, when: str, mode: str, save: int) -> None:
    """Masked sums have five receives and a close in each of five rounds."""
    server = KilledServer(mode, tmp_path / "server", f"{when}:{save}")
    play(mode, server, {})
    server.process.close()
    assert server.process.deaths == 1
    assert server.total == sum(map(vector, SUMS[mode].clients)).tobytes()
