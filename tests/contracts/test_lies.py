"""What every mode owes the honest when somebody lies: a named refusal, and the exact sum of the rest or none.

To bring a lie under it, add it to those about its message. A lie about one's own vector no mode prevents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.by_hand import ByHand, content_of, forged
from support.rows import ROWS, make

from secagg import ClientSession, IntVector, Layout, PartyId
from secagg.config import SERVER
from secagg.encryption.key_holder import KeyHolder, write_request
from secagg.errors import LocalProtocolError, MalformedMessageError, RemoteProtocolError, RepeatedMessageError
from secagg.masked.client import MaskedClient
from secagg.masked.states import ClientState
from secagg.wire import HEADER_BYTES, MessageType, write_parties

LAYOUT = Layout.of([("s", 40, 2**16)])
CLIENTS = (1, 2, 3, 4, 5)
LIAR = 2
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
NAMED = pytest.mark.parametrize("name", ROWS)


def begin(name: str, **options: Any) -> ByHand:
    """The fixed cohort's sum in one of the modes."""
    parties, noise = make(ROWS[name], layout=LAYOUT, clients=CLIENTS), partial(ROWS[name].noise_in, LAYOUT)
    return ByHand(parties, VECTORS, noise=noise, **options)


def listing(roster: Any, **changes: bytes) -> Any:
    """The roster with other keys of party 2."""
    return replace(roster, keys=roster.keys | {2: replace(roster.keys[2], **changes)})


def boxes(delivery: Any, sealed: Mapping[PartyId, bytes]) -> Any:
    """The message with more boxes, or others."""
    return replace(delivery, sealed=delivery.sealed | sealed)


def without(message: Any, name: str, *parties: PartyId) -> Any:
    """The message without these parties' entries."""
    return replace(message, **{name: {p: e for p, e in getattr(message, name).items() if p not in parties}})


def own_keys(hand: ByHand, party: PartyId) -> Any:
    """What a client advertised."""
    return hand.read(hand.sent[MessageType.ADVERTISED_KEYS][party])


def taken_from(hand: ByHand, party: PartyId) -> Any:
    """What a client says, once the server has taken it."""
    message = hand.said.pop(party)
    hand.server.receive(party, message)
    return hand.read(message)


def invented(request: Any, hand: ByHand) -> Any:
    """The server fills the cohort with a seed that it knows, to take one client's mask off alone."""
    keys = tuple((helper, hand.config.helper_key(helper)) for helper in hand.config.helpers)
    forger = replace(hand.config, identities=(), server_identity=b"", helper_identities=(), helper_keys=keys)
    said = forger.client(LIAR, VECTORS[LIAR]).start()
    entry = content_of(said, forger).entry(6)
    return replace(request, entries=request.entries | {LIAR: replace(entry, signature=bytes(64))})


def boxed(message: Any) -> Any:
    """A committee client's upload with another box for the last helper."""
    helper = max(message.boxes)
    return replace(message, boxes=message.boxes | {helper: bytes(len(message.boxes[helper]))})


def swapped_box(delivery: Any, hand: ByHand) -> Any:
    """One client's seeds for the other helper."""
    other = hand.read(hand.requests[7]).entries[1]
    return replace(delivery, entries=delivery.entries | {1: replace(delivery.entries[1], box=other.box)})


T = MessageType
NO_NEIGHBOURS, TWICE, OUTSIDE = "1 parties that are no neighbours", "one public key twice", "1 parties outside the"
UNSIGNED, CLOSED = "party 2 are not signed by its identity", "party {} sealed do not open: forged, replayed or changed"
NOT_ALL, NOT_ASKED = "exactly the 4 neighbours", "must reveal one share"
OTHER_SURVIVORS = "did not sign the survivor set that this client was told"
NO_SURVIVORS, UNSIGNED_SEEDS = "1 signatures are not from survivors", "its seeds are not signed by its identity"
SAME_KEY = "parties 1 and 2 sent the same one"
Lie = tuple[Callable[[Any, ByHand], Any], str]
"""(what a message says, the sum so far) to what it says instead; and how that is refused."""

ROSTERS: dict[str, Lie] = {
    "a stranger": (lambda m, _: replace(m, keys=m.keys | {9: m.keys[2]}), NO_NEIGHBOURS),
    "its reader": (lambda m, _: replace(m, keys=m.keys | {1: m.keys[2]}), NO_NEIGHBOURS),
    "too few": (lambda m, _: without(m, "keys", 2, 3, 4), "at least 3 clients must have advertised .* names 2"),
}
UNSIGNED_ROSTERS: dict[str, Lie] = {
    "a sealing key twice": (lambda m, _: listing(m, sealing_key=m.keys[3].sealing_key), TWICE),
    "a masking key twice": (lambda m, _: listing(m, masking_key=m.keys[3].masking_key), TWICE),
    "both keys twice": (lambda m, _: replace(m, keys=m.keys | {2: m.keys[3]}), TWICE),
    "one key for both purposes": (lambda m, _: listing(m, masking_key=m.keys[2].sealing_key), TWICE),
    "its reader's own keys": (lambda m, hand: replace(m, keys=m.keys | {2: own_keys(hand, 1)}), TWICE),
} | {
    f"a sealing key of small order {i}": (
        lambda m, _, key=key: listing(m, sealing_key=key),
        "party 2's sealing key is no safe key",
    )
    for i, key in enumerate(SMALL_ORDER_KEYS)
}
SIGNED_ROSTERS: dict[str, Lie] = {
    "the server's sealing key": (lambda m, _: listing(m, sealing_key=b"\x09" * 32), UNSIGNED),
    "the server's masking key": (lambda m, _: listing(m, masking_key=b"\x09" * 32), UNSIGNED),
    "no signature": (lambda m, _: listing(m, signature=bytes(64)), UNSIGNED),
    "two swapped": (lambda m, _: replace(m, keys=m.keys | {2: m.keys[3], 3: m.keys[2]}), UNSIGNED),
}
DELIVERIES: dict[str, Lie] = {
    "two swapped": (lambda m, _: boxes(m, {2: m.sealed[3], 3: m.sealed[2]}), CLOSED.format(2)),
    "another's": (lambda m, hand: boxes(m, {3: hand.read(hand.requests[2]).sealed[3]}), CLOSED.format(3)),
    "sent back": (lambda m, hand: boxes(m, {2: hand.read(hand.sent[T.SEALED_SHARES][1]).sealed[2]}), CLOSED.format(2)),
    "a stranger's": (lambda m, _: boxes(m, {9: m.sealed[2]}), OUTSIDE + " roster"),
    "its reader's": (lambda m, _: boxes(m, {1: m.sealed[2]}), OUTSIDE + " roster"),
    "too few": (lambda m, _: without(m, "sealed", 2, 3, 4), "at least 3 clients must have shared .* names 2"),
}
SURVIVORS: dict[str, Lie] = {
    "its reader is dead": (lambda *_: write_parties((1,)), "calls this client a dropout"),
    "a stranger is dead": (lambda *_: write_parties((9,)), "1 dropouts"),
    "the server is dead": (lambda *_: write_parties((0,)), "1 dropouts"),
    "too few live": (lambda *_: write_parties((2, 3, 4)), "at least 3 clients, the server names 2"),
    "one is dead twice": (lambda *_: (2).to_bytes(4, "big") + (5).to_bytes(4, "big") * 2, "ascend"),
}
SIGNED_SURVIVORS: dict[str, Lie] = {
    "forged": (lambda *_: bytes(64), "not one on this sum's survivors"),
    "another's": (lambda _, hand: hand.read(hand.said[1]), "not one on this sum's survivors"),
}
PROOFS: dict[str, Lie] = {
    "too few": (lambda m, _: without(m, "signatures", 1), "3 survivors must have signed .* 2 .*; nothing is revealed"),
    "forged": (lambda m, _: replace(m, signatures=m.signatures | {2: bytes(64)}), OTHER_SURVIVORS),
    "a stranger's": (lambda m, _: replace(m, signatures=m.signatures | {9: m.signatures[2]}), NO_SURVIVORS),
    "two swapped": (
        lambda m, _: replace(m, signatures=m.signatures | {2: m.signatures[3], 3: m.signatures[2]}),
        OTHER_SURVIVORS,
    ),
}
KEYS: dict[str, Lie] = {
    "another's to mask": (lambda m, hand: replace(m, masking_key=taken_from(hand, 1).masking_key), SAME_KEY),
    "another's to seal": (lambda m, hand: replace(m, sealing_key=taken_from(hand, 1).masking_key), SAME_KEY),
    "one for both": (lambda m, _: replace(m, masking_key=m.sealing_key), "one key for two uses"),
} | {
    f"{name} of small order {i}": (lambda m, _, name=name, key=key: replace(m, **{name: key}), "small order")
    for name in ("sealing_key", "masking_key")
    for i, key in enumerate(SMALL_ORDER_KEYS)
}
SHARES: dict[str, Lie] = {
    "one left out": (lambda m, _: without(m, "sealed", 1), NOT_ALL),
    "for a stranger": (lambda m, _: boxes(m, {9: m.sealed[1]}), NOT_ALL),
    "for itself": (lambda m, _: boxes(m, {LIAR: m.sealed[1]}), NOT_ALL),
}
REVEALED: dict[str, Lie] = {
    "a dropout's kept back": (lambda m, _: without(m, "mask_key_shares", 5), NOT_ASKED),
    "a survivor's kept back": (lambda m, _: without(m, "self_mask_shares", 1), NOT_ASKED),
    "both of one": (
        lambda m, _: replace(m, mask_key_shares=m.mask_key_shares | {1: m.mask_key_shares[5]}),
        NOT_ASKED,
    ),
    "a stranger's": (
        lambda m, _: replace(m, self_mask_shares=m.self_mask_shares | {9: m.self_mask_shares[1]}),
        NOT_ASKED,
    ),
}
SEEDS: dict[str, Lie] = {
    "of too few": (lambda m, _: without(m, "entries", 1, 2, 3, 4), "at least 2 clients, the server names 1"),
    "a stranger's": (
        lambda m, _: replace(m, entries={2: m.entries[2], 3: m.entries[3], 9: m.entries[5]}),
        OUTSIDE + " cohort",
    ),
    "another helper's": (lambda m, hand: swapped_box(m, hand), "seeds of client 1 are not those that it signed"),
}
SIGNED_SEEDS: dict[str, Lie] = {
    "of an invented client": (lambda m, hand: invented(m, hand), "seeds of client 2 are not those that it signed"),
}
SETS: dict[str, Lie] = {
    "of too few": (lambda *_: write_parties((1,)), "at least 2 clients, the server names 1"),
    "with a stranger": (lambda *_: write_parties((1, 2, 9)), OUTSIDE + " cohort, or whose seeds"),
}
CERTIFICATES: dict[str, Lie] = {
    "of others": (lambda m, _: replace(m, survivors=(1, 2, 3)), "signed another survivor set"),
    "of none": (lambda m, _: replace(m, signatures={}), "helpers must have signed this survivor set, 0 of"),
    "of too few": (lambda m, _: without(m, "signatures", *list(m.signatures)[1:]), "this survivor set, 1 of the 1"),
    "forged": (
        lambda m, _: replace(m, signatures=dict.fromkeys(m.signatures, min(m.signatures.values()))),
        "this survivor set, 1 of the",
    ),
}
UNSIGNED_CERTIFICATES: dict[str, Lie] = {
    "of too few": (lambda m, _: replace(m, survivors=(1,)), "at least 2 clients, the server names 1"),
    "with a stranger": (lambda m, _: replace(m, survivors=(1, 2, 9)), OUTSIDE + " cohort, or whose seeds"),
}
MASKS_ASKED: dict[str, Lie] = {
    "of no set": (lambda *_: write_parties(()), "or for none"),
    "of another set": (lambda m, _: write_parties((*m, 99)), "sets that this helper is not in"),
}
UPLOADS: dict[str, Lie] = {
    "one helper only": (lambda m, _: without(m, "boxes", 7), "a box for each helper|bytes early"),
}
SIGNED_UPLOADS: dict[str, Lie] = {
    "unsigned seeds": (lambda m, _: replace(m, signature=bytes(64)), UNSIGNED_SEEDS),
    "another box": (lambda m, _: boxed(m), UNSIGNED_SEEDS),
    "other commitments": (lambda m, _: replace(m, commitments=bytes(len(m.commitments))), UNSIGNED_SEEDS),
}
COMPLAINTS: dict[str, Lie] = {"of a stranger": (lambda *_: write_parties((9,)), "it was told nothing of")}
SET_SIGNATURES: dict[str, Lie] = {
    "of another set": (lambda *_: bytes(64), "signed another survivor set"),
}
MASK_SUMS: dict[str, Lie] = {
    "cut": (lambda m, _: replace(m, sums={p: v[:-1] for p, v in m.sums.items()}), "ends before its"),
    "of other sets": (lambda m, _: replace(m, sums={p + 50: v for p, v in m.sums.items()}), "of other sets than"),
    "others": (
        lambda m, _: replace(m, sums={p: bytes(len(v)) for p, v in m.sums.items()}),
        "not the one that it gave the hash of",
    ),
}
CIPHERTEXTS: dict[str, Lie] = {
    "cut": (lambda m, _: m[:-1], "party 2"),
    "lengthened": (lambda m, _: m + b"\0", "party 2"),
    "empty": (lambda *_: b"", "party 2"),
    "beyond the modulus": (lambda m, _: b"\xff" * len(m), "party 2"),
    "in the clear": (lambda *_: bytes(LAYOUT.wire_bytes), "party 2"),
    "copied": (lambda _, hand: taken_from(hand, 1), "party 2: these ciphertexts are a copy"),
}
DECRYPTIONS: dict[str, Lie] = {
    "of one": (lambda m, _: write_request((3,), m[1]), "at least [23] clients and the server names 1"),
    "of none": (lambda m, _: write_request((), m[1]), "at least [23] clients and the server names 0"),
    "of a stranger": (lambda m, _: write_request((1, 3, 4, 9), m[1]), "1 survivors are not"),
    "of nothing": (lambda *_: write_request(CLIENTS, b""), "early"),
    "of too much": (lambda m, _: write_request(CLIENTS, bytes(m[1]) + b"\0"), "too many"),
    "of what is no sum": (lambda m, _: write_request(CLIENTS, b"\xff" * len(m[1])), "beyond its modulus"),
}
SIGNED_COMMITTEES = ("committee, identities", "committee, 1 of 4, identities")
COMMITTEES = ("committee", *SIGNED_COMMITTEES, "committee, 2 of 5")
ENCRYPTED, MASKED_ENCRYPTED = ("bfv", "ckks"), ("masked+bfv", "masked+ckks")
LIES: list[tuple[tuple[str, ...], MessageType, dict[str, Lie], dict[int, int]]] = [
    # modes, the message whose content is changed, how, and which clients vanish after how many messages
    (("masked", "masked, identities"), T.ROSTER, ROSTERS, {}),
    (("masked",), T.ROSTER, UNSIGNED_ROSTERS, {}),
    (("masked, identities",), T.ROSTER, SIGNED_ROSTERS, {}),
    (("masked", "masked, identities"), T.SHARE_DELIVERY, DELIVERIES, {}),
    (("masked", "masked, identities"), T.UNMASK_REQUEST, SURVIVORS, {}),
    (
        ("masked", "masked, identities"),
        T.UNMASK_REQUEST,
        {
            "one lives that shared nothing": (
                lambda *_: write_parties(()),
                "1 neighbours that shared no secret",
            )
        },
        {5: 1},
    ),
    (("masked, identities",), T.SURVIVOR_SIGNATURE, SIGNED_SURVIVORS, {}),
    (("masked, identities",), T.SURVIVOR_PROOF, PROOFS, {}),
    (
        ("masked, identities",),
        T.SURVIVOR_PROOF,
        {"a dropout's": (lambda m, _: replace(m, signatures=m.signatures | {5: m.signatures[2]}), NO_SURVIVORS)},
        {5: 2},
    ),
    (("masked", "masked, identities"), T.ADVERTISED_KEYS, KEYS, {}),
    (("masked", "masked, identities"), T.SEALED_SHARES, SHARES, {}),
    (("masked", "masked, identities"), T.UNMASK_SHARES, REVEALED, {5: 2}),
    (COMMITTEES, T.SEED_DELIVERY, SEEDS, {}),
    (SIGNED_COMMITTEES, T.SEED_DELIVERY, SIGNED_SEEDS, {}),
    (SIGNED_COMMITTEES, T.SURVIVOR_SET, SETS, {}),
    (SIGNED_COMMITTEES, T.SET_CERTIFICATE, CERTIFICATES, {}),
    (("committee", "committee, 2 of 5"), T.SET_CERTIFICATE, UNSIGNED_CERTIFICATES, {}),
    (COMMITTEES, T.MASK_REQUEST, MASKS_ASKED, {}),
    (COMMITTEES, T.COMMITTEE_INPUT, UPLOADS, {}),
    (SIGNED_COMMITTEES, T.COMMITTEE_INPUT, SIGNED_UPLOADS, {}),
    (COMMITTEES, T.SEED_COMPLAINTS, COMPLAINTS, {}),
    (SIGNED_COMMITTEES, T.SET_SIGNATURE, SET_SIGNATURES, {}),
    (COMMITTEES, T.MASK_SUM, MASK_SUMS, {}),
    (ENCRYPTED, T.ENCRYPTED_INPUT, CIPHERTEXTS, {}),
    (MASKED_ENCRYPTED, T.MASKED_INPUT, CIPHERTEXTS, {}),
    (ENCRYPTED + MASKED_ENCRYPTED, T.DECRYPTION_REQUEST, DECRYPTIONS, {}),
    (ENCRYPTED + MASKED_ENCRYPTED, T.DECRYPTED_SUM, {"a byte": (lambda *_: b"\0", "bytes early|1 bytes")}, {}),
]
CASES = [
    pytest.param(name, of, lie, gone, id=f"{name}, {of.name}, {what}")
    for names, of, lies, gone in LIES
    for what, lie in lies.items()
    for name in names
]


@pytest.mark.parametrize(("name", "of", "lie", "gone"), CASES)
def test_a_lie_is_refused_by_name_and_costs_nobody_else_the_sum(
    name: str, of: MessageType, lie: Lie, gone: dict[int, int]
) -> None:
    """One message from the server to its first recipient, or from party ``LIAR``, says something else."""
    hand, (change, told) = begin(name, gone=gone), lie
    box = hand.until(of)
    party = LIAR if box is hand.said and LIAR in box else min(box)
    honest = box[party]
    message = forged(honest, change(hand.read(honest), hand))
    staying = tuple(client for client in CLIENTS if client not in gone)
    if box is hand.said:
        with pytest.raises(RemoteProtocolError, match=told) as caught:
            hand.server.receive(party, message)
        assert caught.value.peer == (None if told == SAME_KEY else party)
        assert party in hand.server.waiting_for
        assert hand.finishes_exactly() == staying
        return
    with pytest.raises(RemoteProtocolError, match=told) as caught:
        hand.sessions[party].receive(message)
    assert caught.value.peer == SERVER
    if isinstance(hand.sessions[party], KeyHolder):
        with pytest.raises(LocalProtocolError, match="aborted"):
            hand.sessions[party].receive(honest)
        return
    if isinstance(hand.sessions[party], MaskedClient):
        assert hand.sessions[party].state is ClientState.ABORTED
        assert hand.sessions[party]._kept.secrets is None
        del box[party]
        has_sent_it = of in (T.UNMASK_REQUEST, T.SURVIVOR_PROOF)
        assert hand.finishes_exactly() == (staying if has_sent_it else staying[1:])
    else:  # a committee's helper has revealed nothing, and answers the right request
        assert hand.finishes_exactly() == staying


@pytest.mark.parametrize("name", ["masked", "masked, identities"])
@pytest.mark.parametrize("use", ["sealing_key", "masking_key"])
def test_who_copied_a_key_before_its_owner_spoke_has_nobody_blamed_for_it(name: str, use: str) -> None:
    hand = begin(name)
    said = hand.until(T.ADVERTISED_KEYS)
    copied = replace(hand.read(said[LIAR]), **{use: hand.read(said[1]).masking_key})
    hand.server.receive(LIAR, forged(said[LIAR], copied))
    for server in hand.server, hand.parties.server():
        server.restore(hand.server.snapshot())
        with pytest.raises(RemoteProtocolError, match=f"parties {LIAR} and 1 sent the same one") as caught:
            server.receive(1, said[1])
        assert caught.value.peer is None


# What can be done with whole messages


def requests_of(hand: ByHand) -> Iterator[dict[PartyId, bytes]]:
    """What the server asks, round by round; the test delivers it."""
    while hand.server.result is None:
        if hand.to_server():
            yield dict(hand.requests)


def another(hand: ByHand, party: PartyId) -> ClientSession:
    """A session that stands where this party's stands."""
    parties = hand.parties
    fresh = parties.helper(party) if party in parties.helpers else parties.client(party, VECTORS[party])
    fresh.restore(hand.sessions[party].snapshot())
    return fresh


@NAMED
def test_a_request_is_answered_once_and_by_whom_it_is_for(name: str) -> None:
    """One for another, what a client said itself, and a repetition change nothing."""
    hand = begin(name)
    for requests in requests_of(hand):
        for party in requests:
            session, before = hand.sessions[party], hand.sessions[party].snapshot()
            for other, message in requests.items():
                if other != party:
                    with pytest.raises(MalformedMessageError, match=f"says it goes from 0 to {other}"):
                        session.receive(message)
            for said in [of[p] for of in hand.sent.values() for p in of if of[p] not in requests.values()][-3:]:
                with pytest.raises(RemoteProtocolError):
                    session.receive(said)
            assert session.snapshot() == before
        hand.to_parties()
        for party, request in requests.items():
            before = hand.sessions[party].snapshot()
            with pytest.raises(RepeatedMessageError, match="answered already"):
                hand.sessions[party].receive(request)
            assert hand.sessions[party].snapshot() == before
    assert hand.finishes_exactly() == CLIENTS


@NAMED
def test_a_cut_lengthened_or_renamed_request_gets_no_answer(name: str) -> None:
    hand = begin(name)
    for requests in requests_of(hand):
        party, request = min(requests.items())
        broken = [request[:-1], request[:HEADER_BYTES], request[:20], request + b"\0"]
        broken += [request[:5] + bytes([type_]) + request[6:] for type_ in MessageType if type_ != request[5]]
        for message in broken:
            session = another(hand, party)
            with pytest.raises(RemoteProtocolError):
                session.receive(message)
        hand.to_parties()


@NAMED
def test_a_broken_answer_is_refused_and_can_be_sent_again(name: str) -> None:
    hand = begin(name)
    while hand.server.result is None:
        for party, message in hand.said.items():
            for broken in (message[:-1], message[:HEADER_BYTES], message + b"\0"):
                with pytest.raises(MalformedMessageError) as caught:
                    hand.server.receive(party, broken)
                assert caught.value.peer == party
                assert party in hand.server.waiting_for
        hand.go_on()
    assert hand.finishes_exactly() == CLIENTS
