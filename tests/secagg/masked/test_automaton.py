"""Every state x every message x every field changed, generated from the automaton's table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.parties import SERVER_KEY, knows

from secagg import InsecureSeededEntropy, Layout, MaskedSum
from secagg.config import SERVER
from secagg.errors import (
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    RepeatedMessageError,
    SecureSumError,
)
from secagg.masked.client import MaskedClient
from secagg.masked.states import (
    AUTHENTICATED_CLIENT,
    SEMI_HONEST_CLIENT,
    ClientState,
)
from secagg.primitives.identity import IdentityKey
from secagg.sessions import ServerSession
from secagg.wire import HEADER_BYTES, MessageType, seal_frame

CLIENTS = (1, 2, 3, 4)
LAYOUT = Layout.of([("counts", 5, 1000)])
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
SEMI_HONEST = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), threshold=3)
AUTHENTICATED = replace(
    SEMI_HONEST,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
)
CONFIGS = pytest.mark.parametrize("config", [SEMI_HONEST, AUTHENTICATED], ids=["semi-honest", "authenticated"])


def table_of(config: MaskedSum) -> dict[ClientState, tuple[MessageType, ClientState, MessageType]]:
    return AUTHENTICATED_CLIENT if config.is_authenticated else SEMI_HONEST_CLIENT


def states_of(config: MaskedSum) -> list[ClientState]:
    return [ClientState.READY, *table_of(config), ClientState.DONE, ClientState.ABORTED]


def new_client(config: MaskedSum, party: int) -> MaskedClient:
    identity = IDENTITIES[party] if config.is_authenticated else None
    vector = np.full(LAYOUT.size, party, dtype=np.int64)
    return MaskedClient(config, party, vector, entropy=InsecureSeededEntropy(party), secrets=knows(identity))


def new_server(config: MaskedSum) -> ServerSession:
    return config.server(secrets=knows(SERVER_KEY if config.is_authenticated else None))


def script(config: MaskedSum) -> list[bytes]:
    """The messages that client 1 gets in an honest session, always the same ones."""
    clients = {party: new_client(config, party) for party in CLIENTS}
    server = new_server(config)
    answers, told = {party: client.start() for party, client in clients.items()}, []
    while True:
        for party, answer in answers.items():
            server.receive(party, answer)
        requests = server.close_round()
        if not requests:
            return told
        told.append(requests[1])
        answers = {party: clients[party].receive(message) for party, message in requests.items()}


def client_in(config: MaskedSum, state: ClientState) -> MaskedClient:
    """Client 1 in a given state, reached by the honest session's messages."""
    client = new_client(config, 1)
    if state is ClientState.READY:
        return client
    client.start()
    if state is ClientState.ABORTED:
        with pytest.raises(RemoteProtocolError):
            client.receive(frame(config, MessageType.SHARE_DELIVERY, b""))
        return client
    for message in script(config):
        if client.state is state:
            break
        client.receive(message)
    assert client.state is state
    return client


def frame(config: MaskedSum, type_: MessageType, payload: bytes) -> bytes:
    identity = SERVER_KEY if config.is_authenticated else None
    return seal_frame(type_, payload, digest=config.digest_of(type_), sender=SERVER, recipient=1, identity=identity)


def fingerprint(client: MaskedClient) -> tuple[object, ...]:
    """What must not move when a message is refused without harm."""
    own = client._kept.secrets
    secrets = None if own is None else (own.sealing.secret, own.masking.secret, own.self_mask_seed, tuple(own.shares))
    return client.state, secrets, tuple(client._kept.roster), client._kept.dropouts, frozenset(client._kept.taken)


@CONFIGS
def test_the_table_is_the_whole_automaton(config: MaskedSum) -> None:
    """In every state every message of the honest session either advances as the table says or is refused."""
    messages = dict(zip(table_of(config), script(config), strict=True))
    for state in states_of(config):
        for due_in, message in messages.items():
            client = client_in(config, state)
            before = fingerprint(client)
            if state is due_in:
                _, next_state, answer_type = table_of(config)[state]
                answer = client.receive(message)
                assert answer[5] == answer_type
                assert client.state is next_state
            elif state in (ClientState.READY, ClientState.ABORTED):
                with pytest.raises(LocalProtocolError):
                    client.receive(message)
                assert fingerprint(client) == before
            elif list(messages).index(due_in) < states_of(config).index(state) - 1:
                with pytest.raises(RepeatedMessageError):
                    client.receive(message)
                assert fingerprint(client) == before
            else:
                with pytest.raises(RemoteProtocolError, match="is due"):
                    client.receive(message)
                assert client.state is ClientState.ABORTED


@CONFIGS
def test_every_type_out_of_turn_aborts_and_forgets(config: MaskedSum) -> None:
    for state in table_of(config):
        due, _, _ = table_of(config)[state]
        for type_ in MessageType:
            if type_ is due:
                continue
            client = client_in_cached(config, state)
            with pytest.raises(RemoteProtocolError, match=f"{due.name} is due, {type_.name} came"):
                client.receive(frame(config, type_, b""))
            assert client.state is ClientState.ABORTED
            assert client._kept.secrets is None
            assert not client._kept.roster


@CONFIGS
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_no_bit_of_a_due_message_can_change_unnoticed(config: MaskedSum, step: int) -> None:
    """Any flipped bit (in short each fifth) is refused, or leads to an answer; never to a crash or to two answers.

    With identities all are harmless refusals. Without, header bits are; payload bits abort, unless they name other
    dropouts or other keys, which a client cannot tell from an honest server's.
    """
    for state, message in zip(table_of(config), script(config), strict=True):
        for bit in range(0, 8 * len(message), step):
            changed = bytearray(message)
            changed[bit // 8] ^= 1 << bit % 8
            client = client_in_cached(config, state)
            before = fingerprint(client)
            try:
                client.receive(bytes(changed))
            except (MalformedMessageError, RepeatedMessageError):
                is_harmless = config.is_authenticated or bit < 8 * HEADER_BYTES
                assert is_harmless or client.state is ClientState.ABORTED
                if is_harmless:
                    assert fingerprint(client) == before
            except SecureSumError:
                assert client.state is ClientState.ABORTED
                assert client._kept.secrets is None
                assert not config.is_authenticated
            else:
                assert table_of(config)[state][0] in (MessageType.UNMASK_REQUEST, MessageType.ROSTER)
                assert not config.is_authenticated


_SNAPSHOTS: dict[tuple[bytes, ClientState], bytes] = {}


def client_in_cached(config: MaskedSum, state: ClientState) -> MaskedClient:
    """``client_in`` by way of a snapshot, because thousands are needed."""
    if (config.digest, state) not in _SNAPSHOTS:
        _SNAPSHOTS[config.digest, state] = client_in(config, state).snapshot()
    restored = new_client(config, 1)
    restored.restore(_SNAPSHOTS[config.digest, state])
    return restored
