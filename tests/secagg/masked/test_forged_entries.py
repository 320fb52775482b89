"""Single entries of messages that somebody forged: keys without a secret, shares that are no numbers."""

from __future__ import annotations

import numpy as np
import pytest

from secagg import Layout, MaskedSum, PartyId, os_entropy
from secagg.config import SERVER
from secagg.errors import RemoteProtocolError
from secagg.masked.client import MaskedClient
from secagg.masked.messages import UnmaskShares
from secagg.masked.server import MaskedServer
from secagg.masked.states import ClientState
from secagg.primitives.shamir import SHARE_BYTES
from secagg.wire import HEADER_BYTES, MessageType, message_type, open_frame, seal_frame

CLIENTS = (1, 2, 3, 4, 5)
LAYOUT = Layout.of([("counts", 6, 1000)])
CONFIG = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), threshold=3)
VECTORS = {party: np.arange(6, dtype=np.int64) * party for party in CLIENTS}


class Session:
    """A sum whose messages a test moves by hand."""

    def __init__(self) -> None:
        self.clients = {
            party: MaskedClient(CONFIG, party, vector, entropy=os_entropy) for party, vector in VECTORS.items()
        }
        self.server = MaskedServer(CONFIG)
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


@pytest.mark.parametrize("liar", CLIENTS)
def test_one_clients_shares_that_are_no_field_elements_are_done_without(liar: PartyId) -> None:
    session = Session()
    for _ in range(3):
        session.answer(session.requests())
    session.messages[liar] = with_shares_of_ones(liar, session.messages[liar])
    session.requests()
    assert session.server.result is not None
    assert session.server.result.total.tobytes() == np.sum(list(VECTORS.values()), axis=0).tobytes()


def test_two_clients_shares_that_are_no_field_elements_end_the_sum_without_a_total() -> None:
    session = Session()
    for _ in range(3):
        session.answer(session.requests())
    for liar in (1, 2):
        session.messages[liar] = with_shares_of_ones(liar, session.messages[liar])
    with pytest.raises(RemoteProtocolError, match="no sum is released"):
        session.requests()
    assert session.server.result is None


def with_shares_of_ones(party: PartyId, message: bytes) -> bytes:
    """The same answer with shares beyond the field's prime."""
    assert message_type(message) is MessageType.UNMASK_SHARES
    ones = b"\xff" * SHARE_BYTES
    forged = UnmaskShares(mask_key_shares={}, self_mask_shares=dict.fromkeys(CLIENTS, ones)).to_payload()
    honest = open_frame(message, digest=CONFIG.digest, sender=party, recipient=SERVER).payload
    assert len(forged) == len(honest)
    return seal_frame(MessageType.UNMASK_SHARES, forged, digest=CONFIG.digest, sender=party, recipient=SERVER)
