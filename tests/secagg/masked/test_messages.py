"""Attacks inside messages: everything here depends on the message classes of `secagg.masked`, and nothing elsewhere."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.parties import SERVER_KEY, identified, resealed

from secagg import Assumptions, InsecureSeededEntropy, IntVector, Layout, MaskedSum, os_entropy
from secagg.config import SERVER
from secagg.errors import (
    InvalidVectorError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    SecureSumError,
    TooFewSurvivorsError,
)
from secagg.masked import client as client_module
from secagg.masked.messages import (
    SEALED_BYTES,
    AdvertisedKeys,
    Roster,
    SealedShares,
    ShareDelivery,
    SurvivorProof,
    SurvivorSignature,
    UnmaskRequest,
    UnmaskShares,
)
from secagg.masked.secrets import pairwise_seed, pairwise_sign, seal_binding, sealing_key
from secagg.masked.states import ClientState
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey
from secagg.primitives.mask_stream import add_masks
from secagg.primitives.sealing import seal
from secagg.primitives.shamir import PRIME, SHARE_BYTES
from secagg.ring import RingVector
from secagg.wire import MessageType, Reader, message_type, payload_of

LAYOUT = Layout.of([("s", 40, 2**16)])
CLIENTS = (1, 2, 3, 4, 5)
THRESHOLD = 4
SESSION = bytes(range(16))
VECTORS: dict[int, IntVector] = {
    p: np.random.default_rng(p).integers(-(2**13), 2**13, size=LAYOUT.size) for p in CLIENTS
}
SMALL_ORDER_KEYS = [
    u.to_bytes(32, "little")
    for u in (
        0,
        1,
        2**255 - 20,
        2**255 - 19,
        2**255 - 18,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    )
]
Unsigned = dict[str, int]
NO_SIGNATURE: Unsigned = {"signature_bytes": 0}


def exact(survivors: Any) -> bytes:
    """The survivors' sum."""
    return np.sum([VECTORS[p] for p in survivors], axis=0).tobytes()


class Cohort:
    """Sessions driven by hand; ``gone`` maps a client to how many messages it says."""

    def __init__(self, gone: dict[int, int] | None = None, identities: bool = False) -> None:
        public: dict[str, Any] = {"layout": LAYOUT, "clients": CLIENTS, "session_id": SESSION, "threshold": THRESHOLD}
        if identities:
            keys = {party: IdentityKey.generate(InsecureSeededEntropy(party)) for party in CLIENTS}
            roster = tuple(key.public for key in keys.values())
            self.config = MaskedSum(**public, identities=roster, server_identity=SERVER_KEY.public)
            protocol: Any = identified(self.config, keys)
            self.keys = keys
        else:
            protocol = self.config = MaskedSum(**public)
        self.protocol, self.gone = protocol, gone or {}
        self.clients: dict[int, Any] = {p: protocol.client(p, VECTORS[p]) for p in CLIENTS}
        self.server: Any = protocol.server()
        self.requests: dict[int, bytes] = {}
        self.said: dict[int, bytes] = {p: client.start() for p, client in self.clients.items()}
        self.rounds = 0

    def to_server(self) -> dict[int, bytes]:
        """Deliver what clients said that have not vanished; the server's next requests."""
        for party, message in self.said.items():
            if self.gone.get(party, 99) > self.rounds:
                self.server.receive(party, message)
        self.rounds += 1
        self.requests = dict(self.server.close_round())
        return self.requests

    def to_clients(self) -> dict[int, bytes]:
        """Deliver the requests; what clients say."""
        self.said = {party: self.clients[party].receive(message) for party, message in self.requests.items()}
        return self.said

    def until(self, due: MessageType) -> dict[int, bytes]:
        """The requests of this type, made and not yet delivered."""
        while True:
            requests = self.to_server()
            if message_type(next(iter(requests.values()))) is due:
                return requests
            self.to_clients()

    def until_said(self, due: MessageType) -> dict[int, bytes]:
        """What clients say of this type, not yet delivered."""
        while message_type(next(iter(self.said.values()))) is not due:
            self.to_server()
            self.to_clients()
        return self.said

    def finish(self) -> bytes:
        """The total if everybody goes on honestly."""
        while True:
            if not self.to_server():
                return bytes(self.server.result.total.tobytes())
            self.to_clients()


def reader(message: bytes) -> Reader:
    """A reader of a message's payload."""
    return Reader(memoryview(payload_of(message)), peer=SERVER)


with_payload = resealed
"""The same header with another payload: what a lying peer can always make."""


def refuses(cohort: Cohort, party: int, message: bytes, told: str) -> RemoteProtocolError:
    """That a client refuses a message, ends its session and has forgotten its secrets."""
    client = cohort.clients[party]
    with pytest.raises(RemoteProtocolError, match=told) as caught:
        client.receive(message)
    assert client.state is ClientState.ABORTED
    assert client._kept.secrets is None
    assert caught.value.peer == SERVER
    return caught.value


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


MESSAGES: list[tuple[st.SearchStrategy[Any], Callable[[Reader], Any]]] = [
    (signed_keys(0), lambda r: AdvertisedKeys.read(r, signature=b"")),
    (st.builds(Roster, keys=st.dictionaries(parties, signed_keys(0))), lambda r: Roster.read(r, signature_bytes=0)),
    (st.builds(Roster, keys=st.dictionaries(parties, signed_keys(64))), lambda r: Roster.read(r, signature_bytes=64)),
    (st.builds(SealedShares, commitment=keys, sealed=entries(SEALED_BYTES)), SealedShares.read),
    (st.builds(ShareDelivery, sealed=entries(SEALED_BYTES)), ShareDelivery.read),
    (
        st.builds(UnmaskRequest, dropouts=st.sets(parties, max_size=9).map(lambda ids: tuple(sorted(ids)))),
        UnmaskRequest.read,
    ),
    (
        st.builds(SurvivorSignature, signature=st.binary(min_size=SIGNATURE_BYTES, max_size=SIGNATURE_BYTES)),
        SurvivorSignature.read,
    ),
    (st.builds(SurvivorProof, signatures=entries(SIGNATURE_BYTES)), SurvivorProof.read),
    (
        st.builds(UnmaskShares, mask_key_shares=entries(SHARE_BYTES), self_mask_shares=entries(SHARE_BYTES)),
        UnmaskShares.read,
    ),
]
NAMES = [
    "keys",
    "roster",
    "signed roster",
    "sealed",
    "delivery",
    "request",
    "signature",
    "proof",
    "shares",
]
each_message = pytest.mark.parametrize(("messages", "read"), MESSAGES, ids=NAMES)


def payload_reader(payload: bytes) -> Reader:
    """A reader of a bare payload."""
    return Reader(memoryview(payload), peer=7)


@each_message
@given(data=st.data())
def test_messages_round_trip(messages: st.SearchStrategy[Any], read: Callable[[Reader], Any], data: Any) -> None:
    message = data.draw(messages)
    again = read(payload_reader(message.to_payload()))
    assert again == message
    assert again.to_payload() == message.to_payload()


@each_message
@given(data=st.data())
def test_cut_and_lengthened_payloads_are_malformed(
    messages: st.SearchStrategy[Any], read: Callable[[Reader], Any], data: Any
) -> None:
    payload = data.draw(messages).to_payload()
    cut = data.draw(st.integers(0, len(payload) - 1))
    for broken in (payload[:cut], payload + b"\0"):
        with pytest.raises(MalformedMessageError):
            read(payload_reader(broken))


@each_message
@given(payload=st.binary(max_size=300))
def test_arbitrary_payloads_raise_only_the_documented_error(
    messages: st.SearchStrategy[Any], read: Callable[[Reader], Any], payload: bytes
) -> None:
    try:
        message = read(payload_reader(payload))
    except MalformedMessageError:
        return
    assert message.to_payload() == payload


@each_message
def test_huge_counts_cost_no_memory(messages: st.SearchStrategy[Any], read: Callable[[Reader], Any]) -> None:
    tracemalloc.start()
    try:
        for payload in (b"\xff" * 400, b"\0" * 32 + b"\xff" * 300, b"\0" * 4 + b"\xff" * 300):
            with pytest.raises(MalformedMessageError):
                read(payload_reader(payload))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024


# A server that lies about the roster


def lie_about_roster(change: Callable[[dict[int, AdvertisedKeys]], None], told: str, identities: bool = False) -> None:
    """Give client 1 a changed roster and see it refuse; the others' sum is still exact."""
    cohort = Cohort(gone={1: 1}, identities=identities)
    requests = cohort.until(MessageType.ROSTER)
    signature_bytes = SIGNATURE_BYTES if identities else 0
    listed = dict(Roster.read(reader(requests[1]), signature_bytes=signature_bytes).keys)
    change(listed)
    refuses(cohort, 1, with_payload(requests.pop(1), Roster(keys=listed).to_payload()), told)
    cohort.to_clients()
    assert cohort.finish() == exact((2, 3, 4, 5))


def replaced(entry: AdvertisedKeys, **changes: bytes) -> AdvertisedKeys:
    """An entry with other keys."""
    fields = {"sealing_key": entry.sealing_key, "masking_key": entry.masking_key, "signature": entry.signature}
    return AdvertisedKeys(**(fields | changes))


def test_a_roster_with_a_stranger() -> None:
    lie_about_roster(lambda listed: listed.update({9: listed[2]}), "1 parties that are no neighbours")


def test_a_roster_with_the_client_itself() -> None:
    lie_about_roster(lambda listed: listed.update({1: listed[2]}), "1 parties that are no neighbours")


def test_a_roster_below_the_threshold() -> None:
    def shrink(listed: dict[int, AdvertisedKeys]) -> None:
        for party in (2, 3):
            del listed[party]

    lie_about_roster(shrink, "at least 4 clients must have advertised keys, the server names 3")


@pytest.mark.parametrize("fields", [("sealing_key",), ("masking_key",), ("sealing_key", "masking_key")], ids="+".join)
def test_a_roster_that_lists_a_key_twice(fields: tuple[str, ...]) -> None:
    def repeat(listed: dict[int, AdvertisedKeys]) -> None:
        listed[2] = replaced(listed[2], **{field: getattr(listed[3], field) for field in fields})

    lie_about_roster(repeat, "one public key twice")


def test_a_roster_with_one_key_for_both_purposes() -> None:
    lie_about_roster(
        lambda listed: listed.update({2: replaced(listed[2], masking_key=listed[2].sealing_key)}),
        "one public key twice",
    )


def test_a_roster_that_gives_a_client_its_own_key_back() -> None:
    cohort = Cohort()
    own = AdvertisedKeys.read(reader(cohort.said[1]), signature=b"")
    requests = cohort.until(MessageType.ROSTER)
    listed = dict(Roster.read(reader(requests[1]), **NO_SIGNATURE).keys)
    listed[2] = own
    refuses(cohort, 1, with_payload(requests[1], Roster(keys=listed).to_payload()), "one public key twice")


@pytest.mark.parametrize("key", SMALL_ORDER_KEYS, ids=range(len(SMALL_ORDER_KEYS)))
def test_a_roster_with_a_sealing_key_of_small_order(key: bytes) -> None:
    lie_about_roster(
        lambda listed: listed.update({2: replaced(listed[2], sealing_key=key)}), "party 2's sealing key is no safe key"
    )


@pytest.mark.parametrize("key", SMALL_ORDER_KEYS, ids=range(len(SMALL_ORDER_KEYS)))
def test_a_roster_with_a_masking_key_of_small_order_never_gets_a_vector(key: bytes) -> None:
    """It is noticed before the masked vector leaves, at the latest."""
    cohort = Cohort()
    requests = cohort.until(MessageType.ROSTER)
    listed = dict(Roster.read(reader(requests[1]), **NO_SIGNATURE).keys)
    listed[2] = replaced(listed[2], masking_key=key)
    requests[1] = with_payload(requests[1], Roster(keys=listed).to_payload())
    cohort.to_clients()
    request = cohort.to_server()[1]
    with pytest.raises(RemoteProtocolError, match="party 2 sealed do not open"):
        cohort.clients[1].receive(request)
    assert cohort.clients[1].state is ClientState.ABORTED


@pytest.mark.parametrize("field", ["sealing_key", "masking_key", "signature"])
def test_with_identities_a_roster_with_swapped_keys(field: str) -> None:
    other = {"signature": bytes(64)}.get(field, KeyPair.generate(os_entropy).public)
    lie_about_roster(
        lambda listed: listed.update({2: replaced(listed[2], **{field: other})}),
        "party 2 are not signed by its identity",
        identities=True,
    )


def test_with_identities_two_clients_entries_do_not_swap() -> None:
    def swap(listed: dict[int, AdvertisedKeys]) -> None:
        listed[2], listed[3] = listed[3], listed[2]

    lie_about_roster(swap, "are not signed by its identity", identities=True)


# A server that lies about shares


def lie_about_shares(change: Callable[[dict[int, bytes]], None], told: str) -> None:
    """Give client 1 a changed delivery and see it refuse; the others' sum is still exact."""
    cohort = Cohort(gone={1: 2})
    requests = cohort.until(MessageType.SHARE_DELIVERY)
    sealed = dict(ShareDelivery.read(reader(requests[1])).sealed)
    change(sealed)
    refuses(cohort, 1, with_payload(requests.pop(1), ShareDelivery(sealed=sealed).to_payload()), told)
    cohort.to_clients()
    assert cohort.finish() == exact((2, 3, 4, 5))


def test_a_delivery_with_two_senders_swapped() -> None:
    def swap(sealed: dict[int, bytes]) -> None:
        sealed[2], sealed[3] = sealed[3], sealed[2]

    lie_about_shares(swap, "do not open: forged, replayed or changed")


def test_a_delivery_of_shares_for_another_recipient() -> None:
    cohort = Cohort()
    requests = cohort.until(MessageType.SHARE_DELIVERY)
    mine = dict(ShareDelivery.read(reader(requests[1])).sealed)
    mine[3] = ShareDelivery.read(reader(requests[2])).sealed[3]
    refuses(cohort, 1, with_payload(requests[1], ShareDelivery(sealed=mine).to_payload()), "party 3 sealed do not open")


def test_a_delivery_of_the_clients_own_box() -> None:
    """Reflected: what 1 sealed for 2 does not open as what 2 sealed for 1, though both share one agreement."""
    cohort = Cohort()
    from_1_to_2 = SealedShares.read(reader(cohort.until_said(MessageType.SEALED_SHARES)[1])).sealed[2]
    requests = cohort.until(MessageType.SHARE_DELIVERY)
    mine = ShareDelivery.read(reader(requests[1])).sealed | {2: from_1_to_2}
    refuses(cohort, 1, with_payload(requests[1], ShareDelivery(sealed=mine).to_payload()), "party 2 sealed do not open")


@given(st.integers(0, 8 * SEALED_BYTES - 1))
def test_a_delivery_with_one_bit_flipped(bit: int) -> None:
    def flip(sealed: dict[int, bytes]) -> None:
        box = bytearray(sealed[4])
        box[bit // 8] ^= 1 << bit % 8
        sealed[4] = bytes(box)

    lie_about_shares(flip, "party 4 sealed do not open")


def test_a_delivery_from_a_stranger() -> None:
    lie_about_shares(lambda sealed: sealed.update({9: sealed[2]}), "1 parties outside the roster")


def test_a_delivery_from_the_client_itself() -> None:
    lie_about_shares(lambda sealed: sealed.update({1: sealed[2]}), "1 parties outside the roster")


def test_a_delivery_below_the_threshold() -> None:
    def shrink(sealed: dict[int, bytes]) -> None:
        for party in (2, 3):
            del sealed[party]

    lie_about_shares(shrink, "at least 4 clients must have shared their secrets, the server names 3")


# A server that lies about survivors


def lie_about_survivors(dropouts: tuple[int, ...], told: str, gone: dict[int, int] | None = None) -> None:
    """Name these dropouts to client 1 and see it refuse."""
    for identities in (False, True):
        cohort = Cohort(gone=gone, identities=identities)
        requests = cohort.until(MessageType.UNMASK_REQUEST)
        refuses(cohort, 1, with_payload(requests[1], UnmaskRequest(dropouts=dropouts).to_payload()), told)


def test_an_unmask_request_that_calls_its_recipient_a_dropout() -> None:
    lie_about_survivors((1,), "calls this client a dropout")


def test_an_unmask_request_that_names_a_stranger() -> None:
    lie_about_survivors((9,), "1 dropouts")
    lie_about_survivors((0,), "1 dropouts")


def test_an_unmask_request_below_the_threshold() -> None:
    lie_about_survivors((2, 3), "at least 4 clients, the server names 3")


def test_an_unmask_request_with_a_repeated_dropout() -> None:
    cohort = Cohort()
    requests = cohort.until(MessageType.UNMASK_REQUEST)
    twice = (2).to_bytes(4, "big") + (5).to_bytes(4, "big") * 2
    refuses(cohort, 1, with_payload(requests[1], twice), "ascend")


def test_an_unmask_request_that_names_a_survivor_who_shared_nothing() -> None:
    """Client 5 vanished before it shared; a request without dropouts calls it a survivor."""
    cohort = Cohort(gone={5: 1})
    requests = cohort.until(MessageType.UNMASK_REQUEST)
    assert UnmaskRequest.read(reader(requests[1])).dropouts == (5,)
    refuses(
        cohort,
        1,
        with_payload(requests[1], UnmaskRequest(dropouts=()).to_payload()),
        "makes survivors of 1 neighbours that shared no secret",
    )


@pytest.mark.parametrize("dropout", [2, 3, 4, 5])
def test_a_client_reveals_one_share_of_each_peer_and_never_both(dropout: int) -> None:
    cohort = Cohort(gone={dropout: 2})
    said = cohort.until_said(MessageType.UNMASK_SHARES)
    for message in said.values():
        shares = UnmaskShares.read(reader(message))
        assert shares.mask_key_shares.keys() == {dropout}
        assert shares.self_mask_shares.keys() == set(CLIENTS) - {dropout}


def test_two_different_unmask_requests_get_one_answer() -> None:
    """The overlap attack: first 5 as a survivor, then as a dropout. The second finds nothing left."""
    cohort = Cohort()
    requests = cohort.until(MessageType.UNMASK_REQUEST)
    cohort.clients[1].receive(requests[1])
    second = with_payload(requests[1], UnmaskRequest(dropouts=(5,)).to_payload())
    with pytest.raises(SecureSumError):
        cohort.clients[1].receive(second)
    assert cohort.clients[1]._kept.secrets is None


# With identities: agreement on the survivors


def test_with_identities_a_split_view_reveals_nothing() -> None:
    """The server tells 1 that 5 is dead and the others that it lives: no proof satisfies both sides."""
    cohort = Cohort(identities=True)
    requests = cohort.until(MessageType.UNMASK_REQUEST)
    requests[1] = with_payload(requests[1], UnmaskRequest(dropouts=(5,)).to_payload())
    said = cohort.to_clients()
    with pytest.raises(RemoteProtocolError, match="not one on this sum's survivors"):
        cohort.server.receive(1, said.pop(1))
    cohort.to_server()
    proof = cohort.requests[2]
    to_1 = with_payload(proof[:42] + (1).to_bytes(4, "big") + proof[46:], payload_of(proof))
    refuses(cohort, 1, to_1, "signatures are not from survivors|did not sign the survivor set")


@pytest.mark.parametrize("fault", ["too few", "forged", "stranger", "swapped"])
def test_with_identities_a_bad_proof_reveals_nothing(fault: str) -> None:
    cohort = Cohort(identities=True)
    requests = cohort.until(MessageType.SURVIVOR_PROOF)
    signatures = dict(SurvivorProof.read(reader(requests[1])).signatures)
    first, second = sorted(signatures)[:2]
    told = "did not sign the survivor set"
    if fault == "too few":
        del signatures[first]
        told = "signatures came; nothing is revealed"
    elif fault == "forged":
        signatures[first] = bytes(SIGNATURE_BYTES)
    elif fault == "stranger":
        signatures[9] = signatures[first]
        told = "not from survivors"
    else:
        signatures[first], signatures[second] = signatures[second], signatures[first]
    refuses(cohort, 1, with_payload(requests[1], SurvivorProof(signatures=signatures).to_payload()), told)


# A lying client at the server's door


@pytest.mark.parametrize("field", ["sealing_key", "masking_key"])
@pytest.mark.parametrize("key", SMALL_ORDER_KEYS, ids=range(len(SMALL_ORDER_KEYS)))
def test_the_server_refuses_keys_of_small_order(field: str, key: bytes) -> None:
    cohort = Cohort()
    entry = AdvertisedKeys.read(reader(cohort.said[2]), signature=b"")
    bad = with_payload(cohort.said[2], replaced(entry, **{field: key}).to_payload())
    with pytest.raises(RemoteProtocolError, match="small order") as caught:
        cohort.server.receive(2, bad)
    assert caught.value.peer == 2
    assert cohort.finish() == exact(CLIENTS)


def test_the_server_refuses_a_key_in_use() -> None:
    cohort = Cohort()
    one, two = (AdvertisedKeys.read(reader(cohort.said[p]), signature=b"") for p in (1, 2))
    cohort.server.receive(1, cohort.said.pop(1))
    for entry in (
        replaced(two, masking_key=one.masking_key),
        replaced(two, sealing_key=one.masking_key),
        replaced(two, masking_key=two.sealing_key),
    ):
        with pytest.raises(RemoteProtocolError, match="in use already"):
            cohort.server.receive(2, with_payload(cohort.said[2], entry.to_payload()))
    assert cohort.finish() == exact(CLIENTS)


@pytest.mark.parametrize("change", ["missing", "stranger", "itself"])
def test_the_server_refuses_shares_for_others_than_the_roster(change: str) -> None:
    cohort = Cohort()
    said = cohort.until_said(MessageType.SEALED_SHARES)
    message = SealedShares.read(reader(said[2]))
    sealed = dict(message.sealed)
    box = sealed.pop(1) if change == "missing" else sealed[1]
    if change != "missing":
        sealed[9 if change == "stranger" else 2] = box
    bad = with_payload(said[2], SealedShares(commitment=message.commitment, sealed=sealed).to_payload())
    with pytest.raises(RemoteProtocolError, match="exactly the 4 neighbours"):
        cohort.server.receive(2, bad)
    assert cohort.finish() == exact(CLIENTS)


@pytest.mark.parametrize("change", ["dropout kept back", "both of one", "survivor missing", "stranger"])
def test_the_server_refuses_shares_of_others_than_it_asked_for(change: str) -> None:
    cohort = Cohort(gone={5: 2})
    said = cohort.until_said(MessageType.UNMASK_SHARES)
    shares = UnmaskShares.read(reader(said[2]))
    dead, alive = dict(shares.mask_key_shares), dict(shares.self_mask_shares)
    if change == "dropout kept back":
        del dead[5]
    elif change == "both of one":
        dead[1] = dead[5]
    elif change == "survivor missing":
        del alive[1]
    else:
        alive[9] = alive[1]
    bad = with_payload(said[2], UnmaskShares(mask_key_shares=dead, self_mask_shares=alive).to_payload())
    with pytest.raises(RemoteProtocolError, match="must reveal one share") as caught:
        cohort.server.receive(2, bad)
    assert caught.value.peer == 2
    assert cohort.finish() == exact((1, 2, 3, 4))


def ends_in_a_named_error_or_exactly(cohort: Cohort, survivors: tuple[int, ...]) -> str:
    """The law for every lie that is not about one's own vector."""
    try:
        total = cohort.finish()
    except SecureSumError as error:
        assert cohort.server.result is None
        return type(error).__name__
    assert total == exact(survivors)
    return "exact"


@pytest.mark.parametrize("liar", CLIENTS[:4])
@pytest.mark.parametrize("about", ["a survivor's self-mask", "its own self-mask", "a dropout's mask key"])
@pytest.mark.parametrize("change", [1, PRIME - 1, "beyond the field"])
def test_a_wrong_share_never_gives_a_wrong_sum(liar: int, about: str, change: int | str) -> None:
    cohort = Cohort(gone={5: 2})
    said = cohort.until_said(MessageType.UNMASK_SHARES)
    shares = UnmaskShares.read(reader(said[liar]))
    dead, alive = dict(shares.mask_key_shares), dict(shares.self_mask_shares)
    entries_, owner = (dead, 5) if "dropout" in about else (alive, liar if "own" in about else liar % 4 + 1)
    old = int.from_bytes(entries_[owner], "big")
    new = PRIME + 1 if change == "beyond the field" else (old + int(change)) % PRIME
    entries_[owner] = new.to_bytes(SHARE_BYTES, "big")
    said[liar] = with_payload(said[liar], UnmaskShares(mask_key_shares=dead, self_mask_shares=alive).to_payload())
    assert ends_in_a_named_error_or_exactly(cohort, (1, 2, 3, 4)) == "RemoteProtocolError"


def test_a_wrong_commitment_never_gives_a_wrong_sum() -> None:
    cohort = Cohort()
    said = cohort.until_said(MessageType.SEALED_SHARES)
    message = SealedShares.read(reader(said[2]))
    said[2] = with_payload(said[2], SealedShares(commitment=bytes(32), sealed=message.sealed).to_payload())
    assert ends_in_a_named_error_or_exactly(cohort, CLIENTS) == "RemoteProtocolError"


@pytest.mark.parametrize("gone", [{}, {2: 2}], ids=["the liar survives", "the liar vanishes"])
def test_wrong_shares_inside_sealed_boxes_never_give_a_wrong_sum(
    gone: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Client 2 seals shares of other secrets than its own: each box opens, and together they open something else."""
    cohort = Cohort(gone=gone)
    cohort.until(MessageType.ROSTER)
    honest = client_module.split

    def lying(secret: bytes, **arguments: Any) -> dict[int, bytes]:
        return honest(bytes(31) + b"\1", **arguments)

    monkeypatch.setattr(client_module, "split", lying)
    said = {2: cohort.clients[2].receive(cohort.requests.pop(2))}
    monkeypatch.setattr(client_module, "split", honest)
    cohort.said = {**cohort.to_clients(), **said}
    survivors = tuple(p for p in CLIENTS if p not in gone)
    assert ends_in_a_named_error_or_exactly(cohort, survivors) == "RemoteProtocolError"


def test_garbage_in_one_box_costs_the_liar_or_the_sum_and_never_the_truth() -> None:
    """Client 2 seals garbage for client 3, who then leaves: the sum is exact over those who stay."""
    cohort = Cohort()
    said = cohort.until_said(MessageType.SEALED_SHARES)
    message = SealedShares.read(reader(said[2]))
    bad = SealedShares(commitment=message.commitment, sealed=message.sealed | {3: bytes(SEALED_BYTES)})
    said[2] = with_payload(said[2], bad.to_payload())
    requests = cohort.to_server()
    refuses(cohort, 3, requests.pop(3), "party 2 sealed do not open")
    cohort.to_clients()
    assert cohort.finish() == exact((1, 2, 4, 5))


def test_a_masking_key_changed_on_the_way_is_noticed_before_any_vector_leaves() -> None:
    """The sealed boxes are bound to the masking keys as each side knows them."""
    cohort = Cohort()
    entry = AdvertisedKeys.read(reader(cohort.said[2]), signature=b"")
    other = KeyPair.generate(os_entropy).public
    cohort.said[2] = with_payload(cohort.said[2], replaced(entry, masking_key=other).to_payload())
    with pytest.raises(RemoteProtocolError, match="told different masking keys"):
        cohort.finish()
    assert cohort.server.result is None


def test_one_liar_too_many_leaves_too_few() -> None:
    """Two clients whose last answers are refused: three of four needed remain, and nothing is released."""
    cohort = Cohort()
    said = cohort.until_said(MessageType.UNMASK_SHARES)
    for liar in (1, 2):
        with pytest.raises(RemoteProtocolError):
            cohort.server.receive(
                liar, with_payload(said[liar], UnmaskShares(mask_key_shares={}, self_mask_shares={}).to_payload())
            )
        del said[liar]
    with pytest.raises(TooFewSurvivorsError, match="3 of 5 parties answered and 4 are needed"):
        cohort.to_server()


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


# What takes a lie about keys or a neighbourhood that vanished


@pytest.mark.parametrize("key", SMALL_ORDER_KEYS, ids=range(len(SMALL_ORDER_KEYS)))
def test_a_peer_that_the_server_plays_with_a_masking_key_of_small_order_gets_no_vector(key: bytes) -> None:
    """Without identities the server may be party 2, seal a box that opens, and know the mask between the two."""
    cohort = Cohort()
    own = AdvertisedKeys.read(reader(cohort.said[1]), signature=b"")
    requests = cohort.until(MessageType.ROSTER)
    listed = dict(Roster.read(reader(requests[1]), **NO_SIGNATURE).keys)
    played = KeyPair.generate(os_entropy)
    listed[2] = replaced(listed[2], sealing_key=played.public, masking_key=key)
    requests[1] = with_payload(requests[1], Roster(keys=listed).to_payload())
    cohort.to_clients()
    delivery = cohort.to_server()[1]
    setup = cohort.config.setup_digest
    box = seal(
        sealing_key(played, own.sealing_key, setup, 2, 1),
        bytes(2 * SHARE_BYTES),
        seal_binding(setup, 2, 1, key, own.masking_key),
        entropy=os_entropy,
    )
    sealed = ShareDelivery.read(reader(delivery)).sealed | {2: box}
    refuses(
        cohort,
        1,
        with_payload(delivery, ShareDelivery(sealed=sealed).to_payload()),
        "party 2's masking key is no safe key",
    )


def test_a_client_that_was_aborted_while_its_vector_was_made_sends_none() -> None:
    """Its own caller lets a request out of turn in meanwhile: the secrets are gone, and no vector leaves."""
    cohort = Cohort()
    requests = cohort.until(MessageType.SHARE_DELIVERY)
    client = cohort.clients[1]

    def meanwhile() -> IntVector:
        wrong = requests[1][:5] + bytes([MessageType.UNMASK_REQUEST]) + requests[1][6:]
        with pytest.raises(RemoteProtocolError, match="SHARE_DELIVERY is due"):
            client.receive(wrong)
        return VECTORS[1]

    client._contribution = meanwhile
    with pytest.raises(LocalProtocolError, match="has forgotten its secrets"):
        client.receive(requests[1])
    assert client.state is ClientState.ABORTED


def test_a_survivor_whose_neighbours_all_vanish_is_named_and_nothing_is_released() -> None:
    """On a sparse graph enough clients may help and yet too few of those that hold shares about one."""
    clients = tuple(range(1, 41))
    config = MaskedSum.planned(
        layout=LAYOUT,
        clients=clients,
        session_id=SESSION,
        assumptions=Assumptions(corruption=0.05, dropout=0.05, security_bits=20, correctness_bits=10),
        graph_seed=bytes(16),
    )
    assert config.degree is not None
    sessions = {party: config.client(party, VECTORS[1]) for party in clients}
    server, said = config.server(), {party: session.start() for party, session in sessions.items()}
    near = {1, *config.neighbours(1)}
    for _ in range(3):
        for party, message in said.items():
            server.receive(party, message or b"")
        said = {party: sessions[party].receive(request) for party, request in server.close_round().items()}
    helping = sorted(set(clients) - near)
    assert len(helping) >= config.shares_needed
    for party in helping:
        server.receive(party, said[party] or b"")
    with pytest.raises(TooFewSurvivorsError, match="UNMASK_SHARES about party 1: 0 of 40") as caught:
        server.close_round()
    assert caught.value.needed == config.shares_needed
    assert server.result is None


@pytest.mark.parametrize("identities", [False, True])
def test_a_client_without_a_vector_gets_no_session(identities: bool) -> None:
    """None stands for a vector that comes later, in a series alone."""
    with pytest.raises(InvalidVectorError, match="needs its vector"):
        Cohort(identities=identities).protocol.client(1, None)
