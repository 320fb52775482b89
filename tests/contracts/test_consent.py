"""What every mode owes a party that is careful which totals it is in: it is asked, in time, and its no is a no."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.crashes import KEY
from support.memory_store import MemoryStore
from support.rows import ROWS, make, some_vectors

from secagg import ClientSession, InOneProcess, PartyId, run_in_memory
from secagg.durable import DurableClient
from secagg.errors import ConsentRefusedError, LocalProtocolError, SecureSumError
from secagg.sums import Consent, DataFingerprints, SumProtocol, Survivors
from secagg.wire import carries_vector

COHORT = (3, 5, 8, 9)
LOST = 9
VECTORS = some_vectors(clients=COHORT)


def shown_to_clients(protocol: SumProtocol) -> bool:
    """Whether clients sign who survives. Elsewhere a client cannot know, or has to believe the server."""
    return protocol.name.startswith("masked") and protocol.guarantee.malicious_server


class Asked:
    """What parties were asked; one of them says no."""

    def __init__(self, refusing: PartyId | None = None) -> None:
        self.refusing = refusing
        self.totals: dict[PartyId, list[tuple[bytes, Survivors | None]]] = {}

    def consent_of(self, party: PartyId) -> Consent:
        def consent(protocol: SumProtocol, survivors: Survivors | None, rows: DataFingerprints) -> None:
            self.totals.setdefault(party, []).append((protocol.digest, survivors))
            if party == self.refusing:
                raise ConsentRefusedError("no")

        return consent


def careful(name: str, asked: Asked) -> InOneProcess:
    parties = make(ROWS[name], clients=COHORT)
    everybody = (*COHORT, *parties.helpers)
    secrets = {party: replace(parties.of_party(party), consent=asked.consent_of(party)) for party in everybody}
    return replace(parties, secrets={**parties.secrets, **secrets})


@pytest.mark.parametrize("name", ROWS)
def test_whoever_is_in_a_total_was_asked_for_it_once(name: str) -> None:
    """Clients where they see the survivors are asked for these; elsewhere before they send, and helpers for all."""
    asked = Asked()
    parties = careful(name, asked)
    run = run_in_memory(parties, VECTORS)
    digest, survivors = parties.protocol.digest, run.result.survivors
    by_clients = survivors if shown_to_clients(parties.protocol) else None
    decides = not parties.protocol.name.startswith("masked")
    assert all(asked.totals[party] == [(digest, by_clients)] for party in COHORT)
    for helper in parties.helpers:
        assert asked.totals.get(helper, []) == ([(digest, survivors)] if decides else [])


@pytest.mark.parametrize("name", ROWS)
def test_a_client_that_says_no_says_nothing_more(name: str) -> None:
    """Not its vector, or not its word on the survivors; and it stays at that after a restart."""
    asked = Asked(refusing=LOST)
    parties = careful(name, asked)
    server, spoken = parties.server(), list[bytes]()
    store = MemoryStore()

    def session_of(party: PartyId) -> ClientSession:
        if party in parties.helpers:
            return parties.helper(party)
        return parties.client(party, VECTORS[party])

    sessions: dict[PartyId, ClientSession] = {p: session_of(p) for p in (*COHORT, *parties.helpers)}
    careful_one = DurableClient(store, KEY, sessions[LOST])

    def say(party: PartyId, request: bytes | None) -> bytes | None:
        session = careful_one if party == LOST else sessions[party]
        try:
            said = session.start() if request is None else session.receive(request)
        except (ConsentRefusedError, LocalProtocolError):
            assert party == LOST
            return None
        if party == LOST and said:
            spoken.append(said)
        return said

    requests: dict[PartyId, bytes | None] = dict.fromkeys(sessions)
    refused_at: bytes | None = None
    try:
        while requests and server.result is None:
            for party, request in requests.items():
                before = len(spoken)
                said = say(party, request)
                if party == LOST and len(spoken) == before and request is not None:
                    refused_at = request
                if said:
                    server.receive(party, said)
            requests = dict(server.close_round())
    except SecureSumError:
        assert server.result is None
    if shown_to_clients(parties.protocol):
        assert carries_vector(spoken[-1]), "it said no when it saw the survivors, after its vector"
        assert refused_at is not None
        again = DurableClient(store, KEY, parties.client(LOST, VECTORS[LOST]))
        with pytest.raises(LocalProtocolError, match="aborted"):
            again.receive(refused_at)
    else:
        assert not any(carries_vector(message) for message in spoken)
        assert server.result is None or LOST not in server.result.survivors


@pytest.mark.parametrize("name", ["committee", "bfv", "ckks"])
def test_a_helper_that_says_no_leaves_no_total(name: str) -> None:
    parties = make(ROWS[name], clients=COHORT)
    with pytest.raises(ConsentRefusedError):
        run_in_memory(careful(name, Asked(refusing=parties.helpers[0])), VECTORS)
