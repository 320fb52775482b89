"""Receipts verify offline, and vouch for nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from secagg import Layout, MaskedSum
from secagg.errors import LocalProtocolError, ReceiptError
from secagg.masked.server import MaskedServer
from secagg.primitives.identity import IdentityKey
from secagg.receipts import Receipt, total_digest

LAYOUT = Layout.of([("counts", 4, 100)])
CONFIG = MaskedSum(layout=LAYOUT, clients=(1, 2, 3), session_id=bytes(16), threshold=2)
SERVER_KEY = IdentityKey(b"s" * 32)


def finished(missing: int | None = None) -> MaskedServer:
    clients = {party: CONFIG.client(party, np.full(4, party, dtype=np.int64)) for party in CONFIG.clients}
    server = MaskedServer(CONFIG)
    answers = {party: client.start() for party, client in clients.items()}
    while True:
        for party, answer in answers.items():
            server.receive(party, answer)
        requests = server.close_round()
        if not requests:
            return server
        answers = {party: clients[party].receive(m) for party, m in requests.items() if party != missing}


def test_a_receipt_verifies_offline() -> None:
    server = finished()
    receipt = Receipt.from_bytes(Receipt.issue(server, CONFIG, SERVER_KEY).to_bytes())
    receipt.verify(CONFIG, SERVER_KEY.public, party=2)
    assert server.result is not None
    assert receipt.total == total_digest(server.result)
    assert receipt.survivors == (1, 2, 3)


def test_a_receipt_vouches_for_nothing_else() -> None:
    receipt = Receipt.issue(finished(), CONFIG, SERVER_KEY)
    with pytest.raises(ReceiptError, match="another sum"):
        receipt.verify(replace(CONFIG, context=b"another model"), SERVER_KEY.public)
    with pytest.raises(ReceiptError, match="not signed by this server"):
        receipt.verify(CONFIG, IdentityKey(b"x" * 32).public)
    for change in ({"survivors": (1, 2)}, {"total": bytes(32)}, {"transcript": bytes(32)}):
        with pytest.raises(ReceiptError, match="not signed"):
            replace(receipt, **change).verify(CONFIG, SERVER_KEY.public)


def test_a_client_left_out_notices() -> None:
    receipt = Receipt.issue(finished(missing=3), CONFIG, SERVER_KEY)
    receipt.verify(CONFIG, SERVER_KEY.public, party=1)
    with pytest.raises(ReceiptError, match="the vector of party 3 is not in this total"):
        receipt.verify(CONFIG, SERVER_KEY.public, party=3)


def test_there_is_no_receipt_before_the_sum_stands() -> None:
    with pytest.raises(LocalProtocolError):
        Receipt.issue(MaskedServer(CONFIG), CONFIG, SERVER_KEY)


@pytest.mark.parametrize("broken", [b"", b"nonsense", b"SAGR\x02" + bytes(200)])
def test_other_bytes_are_no_receipt(broken: bytes) -> None:
    with pytest.raises(ReceiptError):
        Receipt.from_bytes(broken)


def test_every_truncation_is_refused() -> None:
    data = Receipt.issue(finished(), CONFIG, SERVER_KEY).to_bytes()
    for size in range(len(data)):
        with pytest.raises(ReceiptError):
            Receipt.from_bytes(data[:size])


def test_a_receipt_of_another_version_is_named() -> None:
    data = Receipt.issue(finished(), CONFIG, SERVER_KEY).to_bytes()
    with pytest.raises(ReceiptError, match="no receipt of this version"):
        Receipt.from_bytes(b"X" + data[1:])
