"""Single entries of messages that somebody forged: keys without a secret, shares that are no numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.parties import resealed

from secagg import Layout, MaskedSum, PartyId, os_entropy
from secagg.config import SERVER
from secagg.errors import RemoteProtocolError
from secagg.layout import IntVector
from secagg.masked import client as client_module
from secagg.masked.client import MaskedClient
from secagg.masked.messages import UnmaskShares
from secagg.masked.server import MaskedServer
from secagg.masked.states import ClientState
from secagg.primitives.shamir import SHARE_BYTES
from secagg.wire import HEADER_BYTES, MessageType, Reader, message_type, open_frame, seal_frame

CLIENTS = (1, 2, 3, 4, 5)
LAYOUT = Layout.of([("counts", 6, 1000)])
CONFIG = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), threshold=3)


def vector_of(party: PartyId) -> IntVector:
    """What a client puts in."""
    return np.arange(6, dtype=np.int64) * party


def total_of(parties: Iterable[PartyId]) -> bytes:
    """The bytes of these clients' total."""
    return sum(map(vector_of, parties), np.zeros(6, dtype=np.int64)).tobytes()


class Session:
    """A sum whose messages a test moves by hand."""

    def __init__(self, config: MaskedSum = CONFIG) -> None:
        self.clients = {
            party: MaskedClient(config, party, vector_of(party), entropy=os_entropy) for party in config.clients
        }
        self.server = MaskedServer(config)
        self.messages = {party: client.start() for party, client in self.clients.items()}

    def requests(self) -> dict[PartyId, bytes]:
        """What the server sends once it has everybody's message."""
        for party, message in self.messages.items():
            self.server.receive(party, message)
        return dict(self.server.close_round())

    def answer(self, requests: dict[PartyId, bytes]) -> None:
        """Everybody's message of the next round."""
        self.messages = {party: self.clients[party].receive(request) for party, request in requests.items()}


def test_a_masking_key_without_a_secret_is_refused_before_the_vector_leaves() -> None:
    """Whatever one agrees on with the point 0 is known to all. The boxes are bound to both masking keys and stop it."""
    session = Session()
    masking_key = session.messages[2][HEADER_BYTES + 32 : HEADER_BYTES + 64]
    rosters = session.requests()
    assert rosters[1].count(masking_key) == 1
    session.answer(rosters | {1: rosters[1].replace(masking_key, bytes(32))})
    delivery = session.requests()
    with pytest.raises(RemoteProtocolError, match="the shares that party 2 sealed do not open"):
        session.clients[1].receive(delivery[1])
    assert session.clients[1].state is ClientState.ABORTED


@pytest.mark.parametrize("liars", [(1,), (5,), (2, 3)], ids=str)
def test_shares_that_are_no_field_elements_are_done_without(liars: tuple[PartyId, ...]) -> None:
    """Who gave them, the holder or the owner, is disputed; each costs one spare share."""
    session = Session()
    for _ in range(3):
        session.answer(session.requests())
    for liar in liars:
        session.messages[liar] = with_shares_of_ones(liar, session.messages[liar])
    session.requests()
    assert session.server.result is not None
    assert session.server.result.total.tobytes() == total_of(CLIENTS)
    assert set(session.server.result.disputes) == {(owner, liar) for owner in CLIENTS for liar in liars}


def test_three_clients_shares_that_are_no_field_elements_end_the_sum_without_a_total() -> None:
    session = Session()
    for _ in range(3):
        session.answer(session.requests())
    for liar in (1, 2, 4):
        session.messages[liar] = with_shares_of_ones(liar, session.messages[liar])
    with pytest.raises(RemoteProtocolError, match="2 revealed shares do not rebuild party 1's secret, which takes 3"):
        session.requests()
    assert session.server.result is None


@pytest.mark.parametrize("survivor", [2, 4], ids=["its own", "a neighbour's"])
def test_both_kinds_of_share_of_one_survivor_are_refused_and_neither_is_kept(survivor: PartyId) -> None:
    """They would open its vector to whoever rebuilds both; client 5 is gone, so shares of mask keys are due too."""
    session = Session()
    revealing(session, gone=[5])
    digest, honest = CONFIG.digest, session.messages[2]
    shares = UnmaskShares.read(Reader(open_frame(honest, digest=digest, sender=2, recipient=SERVER).payload, peer=2))
    assert survivor in shares.self_mask_shares
    both = UnmaskShares(
        mask_key_shares={**shares.mask_key_shares, survivor: shares.self_mask_shares[survivor]},
        self_mask_shares=shares.self_mask_shares,
    )
    with pytest.raises(RemoteProtocolError, match="one share of each of 1 dropouts and 4 survivors") as caught:
        session.server.receive(2, resealed(honest, both.to_payload()))
    assert caught.value.peer == 2
    assert 2 not in session.server._kept.revealed
    assert 2 in session.server.waiting_for
    session.requests()
    assert session.server.result is not None
    assert session.server.result.total.tobytes() == total_of((1, 2, 3, 4))


def wide(n_clients: int, threshold: int) -> MaskedSum:
    """A sum of more clients, on the complete graph."""
    return replace(CONFIG, clients=tuple(range(1, n_clients + 1)), threshold=threshold)


def revealing(session: Session, gone: Iterable[PartyId] = ()) -> MaskedSum:
    """Play up to the unmasking, without those who leave after the shares; the messages are to be sent."""
    session.answer(session.requests())
    session.answer(session.requests())
    for party in gone:
        del session.messages[party]
    session.answer(session.requests())
    return session.server._config


def lie(session: Session, liar: PartyId, owners: Iterable[PartyId]) -> None:
    """Change the shares that a client reveals of these clients' secrets."""
    digest, message = session.server._config.digest, session.messages[liar]
    payload = open_frame(message, digest=digest, sender=liar, recipient=SERVER).payload
    shares = UnmaskShares.read(Reader(payload, peer=liar, max_entries=64))
    for owner in owners:
        held = shares.mask_key_shares if owner in shares.mask_key_shares else shares.self_mask_shares
        held[owner] = bytes([0, *held[owner][1:-1], held[owner][-1] ^ 1])
    session.messages[liar] = seal_frame(
        MessageType.UNMASK_SHARES, shares.to_payload(), digest=digest, sender=liar, recipient=SERVER
    )


@pytest.mark.parametrize(("liars", "gone"), [((1,), ()), ((2, 7), ()), ((1, 4, 9), ()), ((2, 7), (3, 12))], ids=str)
def test_liars_within_the_spare_shares_are_named_and_done_without(
    liars: tuple[PartyId, ...], gone: tuple[PartyId, ...]
) -> None:
    """15 clients, 8 shares open a secret: 15 or 13 come, of which 3 or 2 may be wrong."""
    session = Session(config := wide(15, 8))
    revealing(session, gone)
    for liar in liars:
        lie(session, liar, config.clients)
    session.requests()
    result = session.server.result
    assert result is not None
    assert result.survivors == tuple(party for party in config.clients if party not in gone)
    assert result.total.tobytes() == total_of(result.survivors)
    assert set(result.disputes) == {(owner, liar) for owner in config.clients for liar in liars}
    assert result.liars(corrupt=config.corrupt) == liars


def test_liars_that_are_too_many_at_once_are_survived_where_they_show_one_by_one() -> None:
    """Six of seven spare shares are wrong about client 15; five of these were found with the secrets before it."""
    session = Session(config := wide(15, 8))
    revealing(session)
    for owner, liar in ((1, 1), (1, 2), (1, 3), (2, 4), (2, 5)):
        lie(session, liar, [owner, 15])
    lie(session, 6, [15])
    session.requests()
    assert session.server.result is not None
    assert session.server.result.total.tobytes() == total_of(config.clients)
    assert {holder for owner, holder in session.server.result.disputes if owner == 15} == {1, 2, 3, 4, 5, 6}
    assert session.server.result.liars(corrupt=5) == (15,)


def test_too_many_liars_end_the_sum_without_a_total() -> None:
    session = Session(config := wide(15, 8))
    revealing(session)
    for liar in (1, 2, 3, 4):
        lie(session, liar, config.clients)
    with pytest.raises(RemoteProtocolError, match="15 revealed shares do not rebuild party 1's secret, which takes 8"):
        session.requests()
    assert session.server.result is None


def test_a_client_that_shares_another_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its boxes open and its shares fit each other, but what they give is not what it is bound to."""
    session, honest = Session(wide(15, 8)), client_module.split
    requests = session.requests()

    def lying(secret: bytes, **arguments: Any) -> dict[int, bytes]:
        return honest(bytes(31) + b"\1", **arguments)

    monkeypatch.setattr(client_module, "split", lying)
    session.answer({4: requests.pop(4)})
    lies = session.messages
    monkeypatch.setattr(client_module, "split", honest)
    session.answer(requests)
    session.messages |= lies
    for _ in range(2):
        session.answer(session.requests())
    with pytest.raises(
        RemoteProtocolError, match="it shared another secret than the one that it is bound to"
    ) as caught:
        session.requests()
    assert caught.value.peer == 4
    assert session.server.result is None


def test_a_disputed_share_says_that_one_of_two_lied_and_no_more() -> None:
    session = Session(config := wide(15, 8))
    revealing(session)
    lie(session, 3, [5])
    session.requests()
    assert session.server.result is not None
    assert session.server.result.total.tobytes() == total_of(config.clients)
    assert session.server.result.disputes == ((5, 3),)
    assert session.server.result.liars(corrupt=1) == ()


def with_shares_of_ones(party: PartyId, message: bytes) -> bytes:
    """The same answer with shares beyond the field's prime."""
    assert message_type(message) is MessageType.UNMASK_SHARES
    ones = b"\xff" * SHARE_BYTES
    forged = UnmaskShares(mask_key_shares={}, self_mask_shares=dict.fromkeys(CLIENTS, ones)).to_payload()
    honest = open_frame(message, digest=CONFIG.digest, sender=party, recipient=SERVER).payload
    assert len(forged) == len(honest)
    return seal_frame(MessageType.UNMASK_SHARES, forged, digest=CONFIG.digest, sender=party, recipient=SERVER)
