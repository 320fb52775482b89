"""Sessions of a committee sum as bytes: whoever dies at any step comes back, and nobody speaks or answers twice."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.parties import knows

from secagg import CommitteeSum, InsecureSeededEntropy, Layout, MaskedSum, PartySecrets, PlainSum
from secagg.committee.messages import MaskRequest
from secagg.config import SERVER
from secagg.durable import DurableClient
from secagg.errors import LocalProtocolError, RepeatedMessageError, SnapshotError
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey
from secagg.wire import Reader, open_frame, seal_frame

sys.path.append(str(Path(__file__).resolve().parents[1] / "crashes"))

from crash_driver import KEY, KillableStore, Killer, Process, ServerProcess, run

LAYOUT = Layout.of([("narrow", 5, 100), ("wide", 7, 2**60)])
CLIENTS = (1, 2, 3)
HELPERS = {11: KeyPair(b"a" * 32), 12: KeyPair(b"b" * 32)}
SECRETS = {party: PartySecrets(agreement=pair) for party, pair in HELPERS.items()}
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
SERVER_KEY = IdentityKey(b"s" * 32)
TRUSTING = CommitteeSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=bytes(16),
    helper_keys=tuple((party, pair.public) for party, pair in HELPERS.items()),
    min_survivors=2,
)
SIGNED = replace(
    TRUSTING,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
)
BOTH = pytest.mark.parametrize("config", [TRUSTING, SIGNED], ids=["without identities", "identities"])


def vector(party: int) -> np.ndarray:
    return np.arange(LAYOUT.size, dtype=np.int64) * party


def client(config: CommitteeSum, party: int, killer: Killer) -> Process:
    more: dict[str, Any] = {"secrets": knows(IDENTITIES[party] if config.is_authenticated else None)}
    return Process(
        killer,
        fresh=lambda: config.client(party, vector(party), **more),
        restore=lambda snapshot: config.restore_client(party, vector(party), snapshot, KEY, **more),
        snapshot=lambda session: config.snapshot_client(session, KEY),
    )


def helper(config: CommitteeSum, party: int, killer: Killer) -> Process:
    return Process(
        killer,
        fresh=lambda: config.helper(party, secrets=SECRETS[party]),
        restore=lambda snapshot: config.restore_helper(party, snapshot, KEY, secrets=SECRETS[party]),
        snapshot=lambda session: config.snapshot_helper(session, KEY),
    )


def server(config: CommitteeSum, killer: Killer) -> ServerProcess:
    identity = SERVER_KEY if config.is_authenticated else None
    return ServerProcess(
        killer,
        fresh=lambda: config.server(secrets=knows(identity)),
        restore=lambda snapshot: config.restore_server(snapshot, secrets=knows(identity)),
        snapshot=config.snapshot_server,
    )


def cohort(config: CommitteeSum, killer: Killer) -> tuple[dict[int, Process], ServerProcess]:
    parties = {party: client(config, party, killer) for party in CLIENTS}
    parties |= {party: helper(config, party, killer) for party in HELPERS}
    return parties, server(config, killer)


def saves(config: CommitteeSum) -> int:
    """How often parties save in a run in which nobody dies."""
    killer = Killer()
    assert run(*cohort(config, killer)).result is not None
    return killer.saves


@BOTH
@pytest.mark.parametrize("when", ["before", "after"])
def test_whoever_is_killed_at_any_save_comes_back_and_the_sum_is_exact(config: CommitteeSum, when: str) -> None:
    count = saves(config)
    assert count == 14  # a save for every answer, taken message and closed round
    for number in range(1, count + 1):
        killer = Killer(when, number)
        result = run(*cohort(config, killer)).result
        assert killer.deaths == 1
        assert result.survivors == CLIENTS
        assert result.total.tobytes() == sum(map(vector, CLIENTS)).tobytes()


@BOTH
def test_all_may_restart_before_every_message(config: CommitteeSum) -> None:
    result = run(*cohort(config, Killer()), restart_always=True).result
    assert result.total.tobytes() == sum(map(vector, CLIENTS)).tobytes()


def requests(config: CommitteeSum = TRUSTING) -> dict[int, bytes]:
    at_server = config.server()
    for party in CLIENTS:
        at_server.receive(party, config.client(party, vector(party), entropy=InsecureSeededEntropy(party)).start())
    return dict(at_server.close_round())


def test_a_helper_that_answered_answers_no_other_request_after_a_restart() -> None:
    request = requests()[11]
    store = KillableStore(Killer())

    def durable() -> DurableClient:
        return DurableClient(
            store,
            KEY,
            fresh=lambda: TRUSTING.helper(11, secrets=SECRETS[11]),
            restore=lambda snapshot: TRUSTING.restore_helper(11, snapshot, KEY, secrets=SECRETS[11]),
            snapshot=lambda session: TRUSTING.snapshot_helper(session, KEY),
        )

    answer = durable().receive(request)
    frame = open_frame(request, digest=TRUSTING.digest, sender=SERVER, recipient=11)
    seeds = MaskRequest.read(Reader(frame.payload, peer=SERVER), TRUSTING).seeds
    fewer = MaskRequest(seeds={party: seeds[party] for party in (1, 2)}, signature=b"")
    other = seal_frame(fewer.TYPE, fewer.to_payload(), digest=TRUSTING.digest, sender=SERVER, recipient=11)
    with pytest.raises(LocalProtocolError, match="has answered in this session"):
        durable().receive(other)
    assert durable().receive(request) == answer


def test_a_helper_that_was_not_asked_may_still_answer_after_a_restart() -> None:
    fresh = TRUSTING.snapshot_helper(TRUSTING.helper(11, secrets=SECRETS[11]), KEY)
    assert TRUSTING.restore_helper(11, fresh, KEY, secrets=SECRETS[11]).receive(requests()[11])
    done = TRUSTING.helper(11, secrets=SECRETS[11])
    done.receive(request := requests()[11])
    with pytest.raises(RepeatedMessageError):
        TRUSTING.restore_helper(11, TRUSTING.snapshot_helper(done, KEY), KEY, secrets=SECRETS[11]).receive(request)


def test_a_client_that_spoke_never_does_again() -> None:
    spoken = TRUSTING.client(1, vector(1))
    spoken.start()
    restored = TRUSTING.restore_client(1, vector(1), TRUSTING.snapshot_client(spoken, KEY), KEY)
    with pytest.raises(LocalProtocolError, match="one session sends one vector"):
        restored.start()


def test_snapshots_open_for_their_owner_and_role_only() -> None:
    session, helping = TRUSTING.client(1, vector(1)), TRUSTING.helper(11, secrets=SECRETS[11])
    of_client, of_helper = TRUSTING.snapshot_client(session, KEY), TRUSTING.snapshot_helper(helping, KEY)
    assert HELPERS[11].secret not in of_helper
    with pytest.raises(SnapshotError, match="another key, or changed bytes"):
        TRUSTING.restore_client(1, vector(1), of_client, b"x" * 32)
    with pytest.raises(SnapshotError, match="another party"):
        TRUSTING.restore_client(2, vector(2), of_client, KEY)
    with pytest.raises(SnapshotError, match="another key, or changed bytes"):
        TRUSTING.restore_helper(11, of_helper[:-1] + bytes([of_helper[-1] ^ 1]), KEY, secrets=SECRETS[11])
    with pytest.raises(SnapshotError, match="another party"):
        TRUSTING.restore_helper(12, of_helper, KEY, secrets=SECRETS[12])
    with pytest.raises(SnapshotError, match="another party, session"):
        replace(TRUSTING, session_id=b"x" * 16).restore_helper(11, of_helper, KEY, secrets=SECRETS[11])
    with pytest.raises(SnapshotError, match="another party, session"):
        TRUSTING.restore_server(of_client)


def test_a_server_snapshot_that_was_cut_or_lengthened_is_refused() -> None:
    at_server = TRUSTING.server()
    for party in CLIENTS:
        at_server.receive(party, TRUSTING.client(party, vector(party)).start())
    snapshot = TRUSTING.snapshot_server(at_server)
    for size in range(0, len(snapshot), 7):
        with pytest.raises(SnapshotError):
            TRUSTING.restore_server(snapshot[:size])
    with pytest.raises(SnapshotError, match="changed bytes"):
        TRUSTING.restore_server(snapshot + b"\0")
    unknown_round = bytearray(snapshot)
    unknown_round[42 + 4] = 255
    with pytest.raises(SnapshotError, match="changed bytes"):
        TRUSTING.restore_server(bytes(unknown_round))


def test_sessions_of_other_sums_are_refused() -> None:
    masked = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16))
    plain = PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16))
    with pytest.raises(LocalProtocolError, match="MaskedClient"):
        TRUSTING.snapshot_client(masked.client(1, vector(1)), KEY)
    with pytest.raises(LocalProtocolError, match="no helper of a committee sum: CommitteeClient"):
        TRUSTING.snapshot_helper(TRUSTING.client(1, vector(1)), KEY)
    with pytest.raises(LocalProtocolError, match="PlainServer"):
        TRUSTING.snapshot_server(plain.server())
