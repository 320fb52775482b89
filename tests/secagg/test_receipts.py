"""Receipts verify offline and vouch for nothing else; a server that lies about a total has none, or is convicted."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.by_hand import ByHand
from support.crashes import KEY
from support.extras import needs
from support.memory_store import MemoryStore
from support.parties import SERVER_KEY, key_of, resealed, signed
from support.rows import committee, masked, plain, some_vectors

from analytic_secagg.modes import find_mode
from secagg import DurableClient, InOneProcess, Layout, Receipt, run_in_memory
from secagg.config import SERVER
from secagg.errors import (
    ConfigurationError,
    HelperMissingError,
    ReceiptError,
    RemoteProtocolError,
    TooFewSurvivorsError,
)
from secagg.receipted_sum import CountersignRequest, ReceiptedSum, SignedBy
from secagg.receipts import (
    COUNTERSIGNER_LABEL,
    SERVER_LABEL,
    Inclusion,
    Statement,
    check_evidence,
    commitment,
    upload_tree,
)
from secagg.receipts import _tree as merkle_tree
from secagg.wire import MessageType, Reader, payload_of, seal_frame

CLIENTS = (3, 5, 8, 9)
LAYOUT = Layout.of([("gram", 6, 2**40), ("count", 1, 2**20)])
VECTORS = some_vectors(LAYOUT, CLIENTS)
SUMS = {"masked": masked, "committee": committee, "plain": plain}


def receipted(
    mode: str = "masked", by: SignedBy = SignedBy.CLIENTS, *, session: bytes = bytes(16), context: bytes = b""
) -> InOneProcess:
    parties = signed(SUMS[mode](LAYOUT, CLIENTS, session, context))
    return replace(parties, protocol=ReceiptedSum(protocol=parties.protocol, signed_by=by))


def finished(mode: str = "masked", by: SignedBy = SignedBy.CLIENTS, **changes: bytes) -> ByHand:
    hand = ByHand(receipted(mode, by, **changes), VECTORS)
    hand.finish()
    hand.to_parties()
    return hand


def request_of(hand: ByHand, party: int) -> CountersignRequest:
    """What a party is asked to countersign."""
    return CountersignRequest.read(Reader(memoryview(payload_of(hand.requests[party])), peer=0))


def statement_with(hand: ByHand, **changes: Any) -> Statement:
    return replace(hand.server.receipt.statement, **changes)


def issued(said: Statement, countersigners: dict[int, Any] | None = None) -> Receipt:
    """A receipt as a server makes one that lies as it likes."""
    return Receipt(
        statement=said,
        signature=SERVER_KEY.sign(SERVER_LABEL, *said.parts),
        countersignatures={p: k.sign(COUNTERSIGNER_LABEL, *said.parts) for p, k in (countersigners or {}).items()},
    )


@pytest.mark.parametrize("by", SignedBy)
@pytest.mark.parametrize("mode", SUMS)
def test_everybody_has_a_receipt_that_verifies_offline(mode: str, by: SignedBy) -> None:
    if by is SignedBy.HELPERS and mode != "committee":
        with pytest.raises(ConfigurationError, match="has no identities of these"):
            receipted(mode, by)
        return
    hand = finished(mode, by)
    assert hand.finishes_exactly() == CLIENTS
    protocol, own = hand.config, hand.server.receipt
    own.verify_total(hand.server.result.total)
    assert own.opening not in b"".join(hand.sent[MessageType.RECEIPT].values())
    for party in CLIENTS:
        receipt = Receipt.from_bytes(hand.sessions[party].receipt.to_bytes())
        protocol.verify(receipt, party=party)
        assert receipt.statement == own.statement
        assert len(receipt.countersignatures) == {"server": 0, "clients": 3, "helpers": 2}[by.value]
        with pytest.raises(ReceiptError, match="take that party's own"):
            protocol.verify(receipt, party=next(p for p in CLIENTS if p != party))
        with pytest.raises(ReceiptError, match="take the server's"):
            receipt.verify_total(hand.server.result.total)


def test_a_key_holder_that_sees_no_total_countersigns_none() -> None:
    """It agrees to none, so that no receipt would ever be made."""
    needs("tenseal")
    parties = find_mode("masked+bfv").in_one_process(
        layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), identity_of=key_of
    )
    with pytest.raises(ConfigurationError, match="clients remove the masks"):
        ReceiptedSum(protocol=parties.protocol, signed_by=SignedBy.HELPERS)


@pytest.mark.parametrize(("helpers", "corrupt", "away"), [(4, 1, 1), (6, 1, 2), (7, 2, 2)])
def test_helpers_that_a_committee_bears_need_not_countersign(helpers: int, corrupt: int, away: int) -> None:
    """With one fewer there is no receipt, and none verifies: two sets of the rest could share liars alone."""
    parties = signed(committee(LAYOUT, CLIENTS, bytes(16), b"", helpers=helpers, corrupt=corrupt))
    parties = replace(parties, protocol=ReceiptedSum(protocol=parties.protocol, signed_by=SignedBy.HELPERS))
    for missing in (away, away + 1):
        hand = ByHand(parties, VECTORS)
        hand.until(MessageType.COUNTERSIGNATURE)
        hand.gone = dict.fromkeys(parties.helpers[:missing], 0)
        if missing > away:
            with pytest.raises(HelperMissingError):
                hand.finish()
            continue
        assert hand.finishes_exactly() == CLIENTS
        receipt = hand.server.receipt
        hand.config.verify(receipt)
        assert len(receipt.countersignatures) == hand.config.guarantee.countersignatures == helpers - away
        last = dict(list(receipt.countersignatures.items())[1:])
        with pytest.raises(ReceiptError, match="could have as many"):
            hand.config.verify(replace(receipt, countersignatures=last))


@pytest.mark.parametrize("by", SignedBy)
@pytest.mark.parametrize("mode", SUMS)
def test_stated_costs_hold_the_receipts(mode: str, by: SignedBy) -> None:
    if by is SignedBy.HELPERS and mode != "committee":
        return
    parties = receipted(mode, by)
    traffic, protocol = run_in_memory(parties, VECTORS).traffic, parties.protocol
    for party in (*CLIENTS, *parties.helpers):
        cost = protocol.costs["client" if party in CLIENTS else "helper"]
        measured = traffic[party]
        assert (measured.messages_up, measured.bytes_up) == (cost.messages_up, cost.bytes_up)
        assert measured.bytes_down == cost.bytes_down
    assert protocol.costs["client"].messages_up == protocol.guarantee.messages


def test_a_receipt_vouches_for_nothing_else() -> None:
    hand = finished()
    receipt, total = hand.server.receipt, hand.server.result.total
    with pytest.raises(ReceiptError, match="another sum"):
        receipted(context=b"another model").protocol.verify(receipt)  # type: ignore[attr-defined]
    with pytest.raises(ReceiptError, match="not signed by this server"):
        receipt.verify(key_of(3).public)
    with pytest.raises(ReceiptError, match="another total"):
        receipt.verify_total(total + 1)
    for change in ({"survivors": (3, 5)}, {"total": bytes(32)}, {"uploads": bytes(32)}, {"configuration": bytes(32)}):
        with pytest.raises(ReceiptError, match="not signed"):
            replace(receipt, statement=statement_with(hand, **change)).verify(SERVER_KEY.public)


def test_the_receipt_of_one_that_was_lost_leaves_it_out() -> None:
    hand = ByHand(receipted(), VECTORS, gone={9: 2})
    assert hand.finish().survivors == (3, 5, 8)
    assert hand.sessions[9].receipt is None
    with pytest.raises(ReceiptError, match="the vector of party 9 is not in this total"):
        hand.config.verify(hand.server.receipt, party=9)


# A server that lies


def test_no_two_totals_get_a_quorum() -> None:
    """It has one half sign one total and the other half another; whoever signed one signs no other."""
    hand = ByHand(receipted(), VECTORS)
    hand.until(MessageType.COUNTERSIGN_REQUEST)
    other = {p: replace(request_of(hand, p), total=bytes(32)).to_payload() for p in CLIENTS}
    for party in (8, 9):
        hand.requests[party], true = resealed(hand.requests[party], other[party]), hand.requests[party]
        hand.sessions[party].receive(hand.requests[party])
        with pytest.raises(RemoteProtocolError, match="wants a second total"):
            hand.sessions[party].receive(true)
    hand.requests = {party: hand.requests[party] for party in (3, 5)}
    hand.to_parties()
    with pytest.raises(TooFewSurvivorsError, match="COUNTERSIGNATURE: 2 of 4"):
        hand.to_server()
    assert hand.server.result is None


def test_whoever_countersigned_stays_at_it_after_a_restart() -> None:
    parties, store = receipted(), MemoryStore()
    hand = ByHand(parties, VECTORS)
    hand.until(MessageType.COUNTERSIGN_REQUEST)
    DurableClient(store, KEY, hand.sessions[3]).receive(hand.requests[3])
    lie = resealed(hand.requests[3], replace(request_of(hand, 3), total=bytes(32)).to_payload())
    with pytest.raises(RemoteProtocolError, match="wants a second total"):
        DurableClient(store, KEY, parties.client(3, VECTORS[3])).receive(lie)


@pytest.mark.parametrize("mode", SUMS)
@pytest.mark.parametrize("fault", ["dropped", "replaced"])
def test_a_client_countersigns_no_set_without_its_own_upload(mode: str, fault: str) -> None:
    hand = ByHand(receipted(mode), VECTORS)
    hand.until(MessageType.COUNTERSIGN_REQUEST)
    uploads = {p: hashlib.sha256(p.to_bytes(4, "big")).digest() for p in CLIENTS}
    if fault == "dropped":
        del uploads[9]
    root, paths = upload_tree(uploads)
    dropouts = () if fault == "replaced" else (9,)
    lie = CountersignRequest(dropouts=dropouts, uploads=root, total=bytes(32), path=paths.get(9, ()))
    with pytest.raises(RemoteProtocolError, match="left this client out, or changed its upload"):
        hand.sessions[9].receive(resealed(hand.requests[9], lie.to_payload()))


@pytest.mark.parametrize(("mode", "by"), [("masked", SignedBy.CLIENTS), ("committee", SignedBy.HELPERS)])
def test_nobody_countersigns_other_survivors_than_it_agreed_to(mode: str, by: SignedBy) -> None:
    hand = ByHand(receipted(mode, by), VECTORS)
    hand.until(MessageType.COUNTERSIGN_REQUEST)
    party = min(hand.requests)
    sent = hand.sent[MessageType.MASKED_INPUT if mode == "masked" else MessageType.COMMITTEE_INPUT]
    root, paths = upload_tree({p: hashlib.sha256(sent[p]).digest() for p in CLIENTS[:-1]})
    lie = CountersignRequest(dropouts=(9,), uploads=root, total=bytes(32), path=paths.get(party, ()))
    with pytest.raises(RemoteProtocolError, match="other survivors signed than this party agreed to"):
        hand.sessions[party].receive(resealed(hand.requests[party], lie.to_payload()))


def test_nobody_countersigns_before_it_agreed_to_the_survivors() -> None:
    """The server asks at once for a total that never was: without the check a whole quorum signs it, and the client
    that is left out holds no evidence.
    """
    hand = ByHand(receipted(), VECTORS)
    sent = hand.until(MessageType.MASKED_INPUT)
    root, paths = upload_tree({party: hashlib.sha256(sent[party]).digest() for party in CLIENTS[:-1]})
    for party in CLIENTS[:-1]:
        request = seal_frame(
            MessageType.COUNTERSIGN_REQUEST,
            CountersignRequest(dropouts=CLIENTS[-1:], uploads=root, total=bytes(32), path=paths[party]).to_payload(),
            digest=hand.config.digest,
            sender=SERVER,
            recipient=party,
            identity=SERVER_KEY,
        )
        with pytest.raises(RemoteProtocolError, match="before this client was asked to agree to the survivors"):
            hand.sessions[party].receive(request)
    assert hand.finishes_exactly() == CLIENTS


def test_nobody_countersigns_before_its_vector_left_or_where_it_gives_none() -> None:
    late = finished("plain")
    fresh = receipted("plain").client(3, VECTORS[3])
    with pytest.raises(RemoteProtocolError, match="nothing of this client's upload"):
        fresh.receive(late.sent[MessageType.COUNTERSIGN_REQUEST][3])
    unasked = finished("plain", SignedBy.SERVER)
    with pytest.raises(RemoteProtocolError, match="a party that gives none"):
        unasked.sessions[3].receive(late.sent[MessageType.COUNTERSIGN_REQUEST][3])


def test_a_forged_countersignature_is_refused_by_the_server_and_by_whoever_verifies() -> None:
    hand = ByHand(receipted(), VECTORS)
    said = hand.until(MessageType.COUNTERSIGNATURE)
    with pytest.raises(RemoteProtocolError, match="not one on this total"):
        hand.server.receive(3, resealed(said[3], key_of(9).sign(COUNTERSIGNER_LABEL, b"")))
    hand.finish()
    receipt = hand.server.receipt
    forged = replace(receipt, countersignatures=dict.fromkeys(CLIENTS[:3], receipt.countersignatures[3]))
    strangers = issued(receipt.statement, {party: key_of(party) for party in (1, 2, 4)})
    for lie in (forged, strangers):
        with pytest.raises(ReceiptError, match="is forged, or it may not countersign"):
            hand.config.verify(lie)
    few = issued(receipt.statement, {party: key_of(party) for party in (3, 5)})
    with pytest.raises(ReceiptError, match="needs 3 countersignatures of 4 and has 2"):
        hand.config.verify(few)


def test_the_quorum_of_another_session_vouches_for_nothing() -> None:
    here, there = finished(), finished(session=b"\1" * 16)
    borrowed = replace(here.server.receipt, countersignatures=there.server.receipt.countersignatures)
    with pytest.raises(ReceiptError, match="is forged"):
        here.config.verify(borrowed)
    with pytest.raises(ReceiptError, match="another sum"):
        here.config.verify(there.server.receipt)
    other = resealed(here.sent[MessageType.RECEIPT][3], there.server.receipt.to_bytes())
    fresh = ByHand(receipted(), VECTORS)
    fresh.until(MessageType.RECEIPT)
    with pytest.raises(RemoteProtocolError, match="its receipt is not valid"):
        fresh.sessions[3].receive(other)


def test_a_client_keeps_no_receipt_of_another_total_than_it_countersigned() -> None:
    """With enough colluders a second quorum exists; who signed the first total does not take the second."""
    hand = ByHand(receipted(), VECTORS)
    true = Receipt.from_bytes(payload_of(hand.until(MessageType.RECEIPT)[3]))
    lie = issued(replace(true.statement, total=bytes(32)), {party: key_of(party) for party in CLIENTS[1:]})
    with pytest.raises(RemoteProtocolError, match="another total than before"):
        hand.sessions[3].receive(resealed(hand.requests[3], replace(lie, inclusion=true.inclusion).to_bytes()))


def test_a_client_keeps_no_receipt_of_another_upload_than_its_own() -> None:
    """Nobody countersigned, so the receipt is the first that the client learns of the set of uploads."""
    hand = ByHand(receipted("plain", SignedBy.SERVER), VECTORS)
    true = Receipt.from_bytes(payload_of(hand.until(MessageType.RECEIPT)[3]))
    root, paths = upload_tree({p: hashlib.sha256(p.to_bytes(4, "big")).digest() for p in CLIENTS})
    replaced = hashlib.sha256((3).to_bytes(4, "big")).digest()
    forged = replace(
        issued(replace(true.statement, uploads=root)), inclusion=Inclusion(party=3, upload=replaced, path=paths[3])
    )
    with pytest.raises(RemoteProtocolError, match="says nothing of this client's upload"):
        hand.sessions[3].receive(resealed(hand.requests[3], forged.to_bytes()))
    assert hand.sessions[3].receipt is None


def test_a_client_that_sent_nothing_countersigns_no_upload_of_nothing() -> None:
    """The server puts an empty hash for it into the tree, and its path leads to the root."""
    client = receipted("plain").client(3, VECTORS[3])
    root, paths = upload_tree({3: b"", 5: bytes(32)})
    lie = CountersignRequest(dropouts=(8, 9), uploads=root, total=bytes(32), path=paths[3])
    late = finished("plain").sent[MessageType.COUNTERSIGN_REQUEST][3]
    with pytest.raises(RemoteProtocolError, match="nothing of this client's upload"):
        client.receive(resealed(late, lie.to_payload()))


def test_two_totals_are_evidence_against_the_server_that_signed_both() -> None:
    hand = finished(by=SignedBy.SERVER)
    one = hand.server.receipt
    opening, digest = bytes(32), one.statement.configuration
    two = issued(replace(one.statement, total=commitment(hand.server.result.total + 1, opening, digest)))
    check_evidence(one, Receipt.from_bytes(two.to_bytes()), SERVER_KEY.public)
    with pytest.raises(ReceiptError, match="these receipts agree"):
        check_evidence(one, one.without_opening, SERVER_KEY.public)
    with pytest.raises(ReceiptError, match="different sums"):
        check_evidence(one, finished(by=SignedBy.SERVER, session=b"\1" * 16).server.receipt, SERVER_KEY.public)
    for framed in (
        replace(two, signature=one.signature),
        replace(two, statement=replace(two.statement, uploads=b"\1" * 32)),
    ):
        with pytest.raises(ReceiptError, match="not signed by this server"):
            check_evidence(one, framed, SERVER_KEY.public)


def test_a_receipt_confirms_no_guess_of_a_total() -> None:
    """Clients are told a commitment; the hash of a total, which they were told before, confirms one."""
    hand = finished()
    total = hand.server.result.total
    told = hand.sent[MessageType.RECEIPT][3] + hand.sent[MessageType.COUNTERSIGN_REQUEST][3]
    assert hashlib.sha256(total.astype("<i8").tobytes()).digest() not in told
    assert commitment(total, bytes(32), hand.config.digest) not in told
    assert commitment(total, hand.server.receipt.opening, hand.config.digest) in told


# The tree


@pytest.mark.parametrize(
    ("size", "root"),
    [
        (1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
        (2, "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
        (3, "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
        (7, "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"),
        (8, "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"),
    ],
)
def test_roots_are_those_of_certificate_transparency(size: int, root: str) -> None:
    """The reference tree of its implementations' tests."""
    leaves = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    hashed = [hashlib.sha256(b"\0" + bytes.fromhex(leaf)).digest() for leaf in leaves[:size]]
    assert merkle_tree(hashed)[0].hex() == root


@given(st.integers(1, 70), st.data())
def test_a_path_leads_from_its_own_upload_and_no_other(size: int, data: st.DataObject) -> None:
    uploads = {7 * place + 1: hashlib.sha256(bytes([place])).digest() for place in range(size)}
    root, paths = upload_tree(uploads)
    said = Statement(configuration=bytes(32), survivors=tuple(uploads), uploads=root, total=bytes(32))
    party, other = data.draw(st.sampled_from(sorted(uploads))), data.draw(st.sampled_from(sorted(uploads)))

    def verify(upload: bytes, path: tuple[bytes, ...]) -> None:
        copy = replace(issued(said), inclusion=Inclusion(party=party, upload=upload, path=path))
        Receipt.from_bytes(copy.to_bytes()).verify(SERVER_KEY.public, party=party)

    verify(uploads[party], paths[party])
    lies = [
        (uploads[party], paths[party][:-1]),
        (uploads[party], (*paths[party], bytes(32))),
        (bytes(32), paths[party]),
    ]
    lies += [(uploads[other], paths[other])] if other != party else []
    for upload, path in lies if size > 1 else lies[1:]:
        with pytest.raises(ReceiptError, match="not among those that were signed"):
            verify(upload, path)


# Bytes


@pytest.mark.parametrize("broken", [b"", b"nonsense", b"SAGR\x01" + bytes(200)])
def test_other_bytes_are_no_receipt(broken: bytes) -> None:
    with pytest.raises(ReceiptError, match="no receipt of this version"):
        Receipt.from_bytes(broken)


def test_every_truncation_is_refused() -> None:
    hand = finished()
    for data in (hand.server.receipt.to_bytes(), hand.sessions[3].receipt.to_bytes()):
        for size in range(len(data)):
            with pytest.raises(ReceiptError):
                Receipt.from_bytes(data[:size])
