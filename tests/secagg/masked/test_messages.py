"""What masked sums' messages say and hide; the lies that can be told with one changed message are in the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.by_hand import ByHand, forged
from support.examples import examples
from support.parties import signed

from secagg import Assumptions, InOneProcess, InsecureSeededEntropy, IntVector, Layout, MaskedSum, os_entropy
from secagg.config import SERVER
from secagg.errors import (
    InvalidVectorError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    TooFewSurvivorsError,
)
from secagg.masked.messages import (
    SEALED_BYTES,
    AdvertisedKeys,
    Roster,
    SealedShares,
    ShareDelivery,
    SurvivorProof,
    UnmaskShares,
)
from secagg.masked.secrets import pairwise_seed, pairwise_sign, seal_binding, sealing_key
from secagg.masked.states import ClientState
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import SIGNATURE_BYTES
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import seal
from secagg.primitives.shamir import SHARE_BYTES
from secagg.ring import RingVector
from secagg.wire import MessageType, Reader, read_parties, write_parties

LAYOUT = Layout.of([("s", 40, 2**16)])
CLIENTS = (1, 2, 3, 4, 5)
VECTORS: dict[int, IntVector] = {
    p: np.random.default_rng(p).integers(-(2**13), 2**13, size=LAYOUT.size) for p in CLIENTS
}
CONFIG = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes(range(16)), threshold=4)
SIGNED = signed(InOneProcess(protocol=CONFIG))


def refuses(hand: ByHand, message: bytes, told: str) -> None:
    """That client 1 refuses a message, ends its session and has forgotten its secrets."""
    with pytest.raises(RemoteProtocolError, match=told) as caught:
        hand.sessions[1].receive(message)
    assert hand.sessions[1].state is ClientState.ABORTED
    assert hand.sessions[1]._kept.secrets is None
    assert caught.value.peer == SERVER


# Reading and writing

keys = st.binary(min_size=32, max_size=32)
parties = st.integers(0, 2**32 - 1)


def entries(n_bytes: int) -> st.SearchStrategy[dict[int, bytes]]:
    """Entries by party."""
    return st.dictionaries(parties, st.binary(min_size=n_bytes, max_size=n_bytes), max_size=6)


def signed_keys(signature_bytes: int) -> st.SearchStrategy[AdvertisedKeys]:
    """Keys with a signature of so many bytes."""
    signatures = st.binary(min_size=signature_bytes, max_size=signature_bytes)
    return st.builds(AdvertisedKeys, sealing_key=keys, masking_key=keys, signature=signatures)


some_parties = st.sets(parties, max_size=9).map(lambda ids: tuple(sorted(ids)))
signatures = st.binary(min_size=SIGNATURE_BYTES, max_size=SIGNATURE_BYTES)
MESSAGES: dict[str, tuple[st.SearchStrategy[Any], Callable[[Reader], Any]]] = {
    "keys": (signed_keys(0), lambda r: AdvertisedKeys.read(r, signature=b"")),
    "roster": (
        st.builds(Roster, keys=st.dictionaries(parties, signed_keys(0))),
        lambda r: Roster.read(r, signature_bytes=0),
    ),
    "signed roster": (
        st.builds(Roster, keys=st.dictionaries(parties, signed_keys(64))),
        lambda r: Roster.read(r, signature_bytes=64),
    ),
    "sealed": (st.builds(SealedShares, commitment=keys, sealed=entries(SEALED_BYTES)), SealedShares.read),
    "delivery": (st.builds(ShareDelivery, sealed=entries(SEALED_BYTES)), ShareDelivery.read),
    "signed delivery": (
        st.builds(ShareDelivery, sealed=entries(SEALED_BYTES), absent=some_parties),
        lambda r: ShareDelivery.read(r, signs_peers=True),
    ),
    "request": (some_parties, read_parties),
    "signature": (signatures, lambda r: r.only(SIGNATURE_BYTES)),
    "proof": (st.builds(SurvivorProof, signatures=entries(SIGNATURE_BYTES)), SurvivorProof.read),
    "proof with peers": (
        st.builds(SurvivorProof, signatures=entries(SIGNATURE_BYTES), peers=entries(SIGNATURE_BYTES)),
        lambda r: SurvivorProof.read(r, signs_peers=True),
    ),
    "shares": (
        st.builds(UnmaskShares, mask_key_shares=entries(SHARE_BYTES), self_mask_shares=entries(SHARE_BYTES)),
        UnmaskShares.read,
    ),
}
each_message = pytest.mark.parametrize(("messages", "read"), MESSAGES.values(), ids=MESSAGES)


def payload_reader(payload: bytes) -> Reader:
    """A reader of a bare payload."""
    return Reader(memoryview(payload), peer=7)


def payload_of(message: Any) -> bytes:
    """The payload of a message, a list of parties or a signature."""
    if isinstance(message, tuple):
        return write_parties(message)
    payload: bytes = message if isinstance(message, bytes) else message.to_payload()
    return payload


@each_message
@examples(4)
@given(data=st.data())
def test_messages_round_trip_and_cut_or_lengthened_ones_are_malformed(
    messages: st.SearchStrategy[Any], read: Callable[[Reader], Any], data: Any
) -> None:
    message = data.draw(messages)
    payload = payload_of(message)
    again = read(payload_reader(payload))
    assert again == message
    assert payload_of(again) == payload
    cut = data.draw(st.integers(0, len(payload) - 1))
    for broken in (payload[:cut], payload + b"\0"):
        with pytest.raises(MalformedMessageError):
            read(payload_reader(broken))


# What is noticed later than it is said, or by the cohort together


@pytest.mark.parametrize("plays_along", [False, True], ids=["a changed key", "a peer that the server plays"])
@pytest.mark.parametrize(
    "key", [bytes(32), (2**255 - 20).to_bytes(32, "little"), (1).to_bytes(32, "little")], ids=bytes.hex
)
def test_a_masking_key_of_small_order_never_gets_a_vector(key: bytes, plays_along: bool) -> None:
    """Boxes are bound to it; and without identities the server may be party 2 and seal a box that opens."""
    hand = ByHand(CONFIG, VECTORS)
    own = hand.read(hand.said[1])
    roster, played = hand.read(hand.until(MessageType.ROSTER)[1]), KeyPair.generate(os_entropy)
    changes = {"masking_key": key} | ({"sealing_key": played.public} if plays_along else {})
    roster.keys[2] = replace(roster.keys[2], **changes)
    hand.requests[1] = forged(hand.requests[1], roster)
    delivery = hand.until(MessageType.SHARE_DELIVERY)[1]
    told = "party 2 sealed do not open"
    if plays_along:
        setup, told = CONFIG.setup_digest, "party 2's masking key is no safe key"
        agreed, binding = sealing_key(played, own.sealing_key, setup, 2, 1), seal_binding(setup, 2, 1, key,
                                                                                         own.masking_key)  # fmt: skip
        box = seal(agreed, bytes(2 * SHARE_BYTES), binding, entropy=os_entropy)
        delivery = forged(delivery, ShareDelivery(sealed=hand.read(delivery).sealed | {2: box}))
    refuses(hand, delivery, told)


@examples(4)
@given(st.integers(0, 8 * SEALED_BYTES - 1))
def test_a_delivery_with_one_bit_flipped(bit: int) -> None:
    hand = ByHand(CONFIG, VECTORS, gone={1: 2})
    delivery = hand.until(MessageType.SHARE_DELIVERY).pop(1)
    sealed = hand.read(delivery).sealed
    box = bytearray(sealed[4])
    box[bit // 8] ^= 1 << bit % 8
    refuses(hand, forged(delivery, ShareDelivery(sealed=sealed | {4: bytes(box)})), "party 4 sealed do not open")
    assert hand.finishes_exactly() == (2, 3, 4, 5)


@pytest.mark.parametrize("dropout", [2, 3, 4, 5])
def test_a_client_reveals_one_share_of_each_peer_and_never_both(dropout: int) -> None:
    hand = ByHand(CONFIG, VECTORS, gone={dropout: 2})
    for message in hand.until(MessageType.UNMASK_SHARES).values():
        shares = hand.read(message)
        assert shares.mask_key_shares.keys() == {dropout}
        assert shares.self_mask_shares.keys() == set(CLIENTS) - {dropout}


def test_a_wrong_commitment_never_gives_a_wrong_sum() -> None:
    hand = ByHand(CONFIG, VECTORS)
    said = hand.until(MessageType.SEALED_SHARES)
    said[2] = forged(said[2], replace(hand.read(said[2]), commitment=bytes(32)))
    with pytest.raises(RemoteProtocolError):
        hand.finish()
    assert hand.server.result is None


def test_garbage_in_one_box_costs_the_liar_or_the_sum_and_never_the_truth() -> None:
    """Client 2 seals garbage for client 3, who then leaves: the sum is exact over those who stay."""
    hand = ByHand(CONFIG, VECTORS)
    said = hand.until(MessageType.SEALED_SHARES)
    message = hand.read(said[2])
    said[2] = forged(said[2], replace(message, sealed=message.sealed | {3: bytes(SEALED_BYTES)}))
    with pytest.raises(RemoteProtocolError, match="party 2 sealed do not open"):
        hand.sessions[3].receive(hand.to_server().pop(3))
    assert hand.finishes_exactly() == (1, 2, 4, 5)


def test_a_masking_key_changed_on_the_way_is_noticed_before_any_vector_leaves() -> None:
    """The sealed boxes are bound to the masking keys as each side knows them."""
    hand = ByHand(CONFIG, VECTORS)
    hand.said[2] = forged(hand.said[2], replace(hand.read(hand.said[2]), masking_key=KeyPair(b"o" * 32).public))
    with pytest.raises(RemoteProtocolError, match="told different masking keys"):
        hand.finish()
    assert MessageType.MASKED_INPUT not in hand.sent
    assert hand.server.result is None


# Masks


@given(st.sets(st.integers(1, 2**32 - 1), min_size=2, max_size=7), st.integers(0, 2**32))
def test_the_masks_of_a_cohort_sum_to_zero(ids: set[int], seed: int) -> None:
    entropy, digest = InsecureSeededEntropy(seed), bytes(32)
    layout = Layout.of([("a", 11, 2**20), ("b", 3, 2**62), ("c", 5, 3)])
    pairs = {party: KeyPair.generate(entropy) for party in ids}
    total = RingVector.zeros(layout)
    uploads = []
    for party in ids:
        mask = RingVector.zeros(layout)
        seeds = [
            (pairwise_seed(pairs[party], pairs[peer].public, digest), pairwise_sign(party, peer))
            for peer in ids - {party}
        ]
        add_masks(mask, seeds, digest)
        uploads.append(mask.to_bytes())
        total.add(mask)
    assert total.to_bytes() == bytes(layout.wire_bytes)
    assert bytes(layout.wire_bytes) not in uploads


def test_boxes_are_bound_to_their_direction_twice() -> None:
    """The key and the associated data each name sender and recipient; either alone would do, so each is pinned here."""
    one, other, setup = KeyPair(b"\1" * 32), KeyPair(b"\2" * 32), bytes(32)
    assert sealing_key(one, other.public, setup, 1, 2) == sealing_key(other, one.public, setup, 1, 2)
    assert sealing_key(one, other.public, setup, 1, 2) != sealing_key(one, other.public, setup, 2, 1)
    mine, yours = one.public, other.public
    bindings = {
        seal_binding(setup, 1, 2, mine, yours),
        seal_binding(setup, 2, 1, mine, yours),
        seal_binding(setup, 1, 2, yours, mine),
        seal_binding(setup, 1, 2, mine, mine),
        seal_binding(b"\1" * 32, 1, 2, mine, yours),
    }
    assert len(bindings) == 5


# A neighbourhood that vanished, and vectors that are not there


def test_a_client_that_was_aborted_while_its_vector_was_made_sends_none() -> None:
    """Its own caller lets a request out of turn in meanwhile: the secrets are gone, and no vector leaves."""
    hand = ByHand(CONFIG, VECTORS)
    request = hand.until(MessageType.SHARE_DELIVERY)[1]
    client = hand.sessions[1]

    def meanwhile() -> IntVector:
        with pytest.raises(RemoteProtocolError, match="SHARE_DELIVERY is due"):
            client.receive(request[:5] + bytes([MessageType.UNMASK_REQUEST]) + request[6:])
        return VECTORS[1]

    client._client_input = meanwhile
    with pytest.raises(LocalProtocolError, match="has forgotten its secrets"):
        client.receive(request)
    assert client.state is ClientState.ABORTED


def test_a_survivor_whose_neighbours_all_vanish_is_named_and_nothing_is_released() -> None:
    """On a sparse graph enough clients may help and yet too few of those that hold shares about one."""
    clients = tuple(range(1, 41))
    config = MaskedSum.planned(
        layout=LAYOUT,
        clients=clients,
        session_id=bytes(16),
        assumptions=Assumptions(corruption=0.05, dropout=0.05, security_bits=20, correctness_bits=10),
        graph_seed=bytes(16),
    )
    assert config.degree is not None
    hand = ByHand(config, dict.fromkeys(clients, VECTORS[1] // 10))
    said = hand.until(MessageType.UNMASK_SHARES)
    for party in (1, *config.neighbours(1)):
        del said[party]
    assert len(said) >= config.shares_needed
    with pytest.raises(TooFewSurvivorsError, match="UNMASK_SHARES about party 1: 0 of 40") as caught:
        hand.to_server()
    assert caught.value.needed == config.shares_needed
    assert hand.server.result is None


@pytest.mark.parametrize("protocol", [CONFIG, SIGNED], ids=["masked", "identities"])
def test_a_client_without_a_vector_gets_no_session(protocol: Any) -> None:
    """None stands for a vector that comes later, in a series alone."""
    with pytest.raises(InvalidVectorError, match="needs its vector"):
        protocol.client(1, None)
