"""Committees: a helper answers once, for enough survivors, and what it takes to open a vector; their lies are in the
contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from support.by_hand import ByHand, forged
from support.parties import sealed_to, signed

from secagg import CommitteeSum, InOneProcess, Layout, PartySecrets, run_in_memory
from secagg.committee.messages import BOX_LABEL, SetCertificate, box_binding
from secagg.errors import (
    ConfigurationError,
    HelperMissingError,
    LocalProtocolError,
    RemoteProtocolError,
    RepeatedMessageError,
)
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey
from secagg.primitives.sealing import SealBrokenError
from secagg.ring import RingVector
from secagg.sums import CoalitionView
from secagg.wire import MessageType, write_parties

LAYOUT = Layout.of([("narrow", 5, 100), ("wide", 7, 2**60)])
CLIENTS = (1, 2, 3, 4, 5)
HELPERS = {11: BoxKey(b"a" * 32), 12: BoxKey(b"b" * 32)}
HELPER_IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in HELPERS}
SECRETS = {party: PartySecrets(boxes=pair, identity=HELPER_IDENTITIES[party]) for party, pair in HELPERS.items()}
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
SERVER_KEY = IdentityKey(b"s" * 32)
CONFIG = CommitteeSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=bytes(16),
    helper_keys=tuple((party, pair.public) for party, pair in HELPERS.items()),
    min_survivors=3,
)
SIGNED = replace(
    CONFIG,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
    **sealed_to(HELPER_IDENTITIES, dict(CONFIG.helper_keys)),
)
SIGNERS = {
    "server_identity": SERVER_KEY.public,
    "helper_identities": SIGNED.helper_identities,
    "helper_keys": SIGNED.helper_keys,
}


def vector(party: int) -> np.ndarray:
    return np.arange(LAYOUT.size, dtype=np.int64) + party


def begun(
    parties: tuple[int, ...] = CLIENTS, config: CommitteeSum = CONFIG, until: MessageType = MessageType.SEED_DELIVERY
) -> ByHand:
    """A sum whose helpers are about to be asked about these clients."""
    hand = ByHand(InOneProcess(protocol=config, secrets=SECRETS), {party: vector(party) for party in parties})
    hand.until(until)
    return hand


def test_a_missing_helper_is_named_and_nothing_is_released() -> None:
    hand = begun()
    hand.requests.pop(12)
    hand.to_parties()
    with pytest.raises(HelperMissingError, match="2 helpers must answer, and 12 did not; no total is rel") as caught:
        hand.to_server()
    assert caught.value.missing == (12,)
    assert hand.server.result is None
    with pytest.raises(LocalProtocolError):
        hand.server.close_round()


def test_a_helper_fixes_one_survivor_set_in_a_session() -> None:
    alone = InOneProcess(protocol=CONFIG, secrets=SECRETS)
    for parties, due in ((alone, MessageType.SET_CERTIFICATE), (signed(alone), MessageType.SURVIVOR_SET)):
        hand = ByHand(parties, {party: vector(party) for party in CLIENTS})
        hand.until(due)
        request = hand.requests[11]
        hand.sessions[11].receive(request)
        with pytest.raises(RepeatedMessageError):
            hand.sessions[11].receive(request)
        fewer: Any = SetCertificate(survivors=(1, 2, 3), signatures={}) if parties is alone else write_parties((1,))
        with pytest.raises(RemoteProtocolError, match="fixes one survivor set a session"):
            hand.sessions[11].receive(hand.framed(due, fewer, 11))


def test_helpers_told_different_survivors_do_not_make_a_total() -> None:
    hand = begun(until=MessageType.SET_CERTIFICATE)
    hand.requests[12] = forged(hand.requests[12], SetCertificate(survivors=(1, 2, 3), signatures={}))
    with pytest.raises(RemoteProtocolError, match="party 12: its sum of masks is not the one"):
        hand.finish()


def test_boxes_open_for_their_session_only() -> None:
    hand, other = begun(), begun(config=replace(CONFIG, session_id=bytes(range(16))))
    replayed = forged(other.requests[11], hand.read(hand.requests[11]))
    other.requests[11] = replayed
    other.to_parties()
    assert other.read(other.said[11]) == CLIENTS


def test_a_box_is_bound_to_its_session_client_and_helper() -> None:
    """The commitments are too, so each is pinned here: either alone would let a helper notice another session's box."""
    hand = begun()
    box = hand.read(hand.requests[11]).entries[1].box
    key = HELPERS[11]
    assert key.open(box, BOX_LABEL, box_binding(hand.config.digest, 1, 11))
    for binding in (
        box_binding(replace(CONFIG, session_id=bytes(range(16))).digest, 1, 11),
        box_binding(hand.config.digest, 2, 11),
        box_binding(hand.config.digest, 1, 12),
    ):
        with pytest.raises(SealBrokenError):
            key.open(box, BOX_LABEL, binding)


def test_clients_and_helpers_say_nothing_out_of_turn() -> None:
    hand = begun()
    with pytest.raises(LocalProtocolError, match="one session sends one vector"):
        hand.sessions[1].start()
    with pytest.raises(RemoteProtocolError, match="asks clients nothing"):
        hand.sessions[1].receive(b"anything")
    assert hand.sessions[11].start() is None
    request = hand.requests[11]
    with pytest.raises(RemoteProtocolError, match="SEED_DELIVERY is due"):
        hand.sessions[11].receive(request[:5] + bytes([MessageType.MASK_REQUEST]) + request[6:])


@pytest.mark.parametrize(("n_helpers", "corrupt"), [(2, 1), (3, 1), (4, 1), (4, 2), (5, 2)])
def test_as_many_helpers_as_stated_see_noise_and_one_more_sees_the_vector(n_helpers: int, corrupt: int) -> None:
    """With the server: any f of them, and any f + 1."""
    parties = CommitteeSum.generate(
        layout=LAYOUT, clients=CLIENTS, session_id=bytes(16), n_helpers=n_helpers, corrupt_helpers=corrupt
    )
    config, said = parties.protocol, list[bytes]()
    vectors = {party: vector(party) for party in CLIENTS}
    run = run_in_memory(parties, vectors, record=lambda envelope: said.append(envelope.message))
    assert run.result.total.tobytes() == sum(vectors.values()).tobytes()
    clear = RingVector.encode(LAYOUT, vector(1)).to_bytes()
    for k in range(n_helpers + 1):
        for helpers in combinations(parties.helpers, k):
            knows = CoalitionView(messages=tuple(said), tapes={}, secrets={h: parties.of_party(h) for h in helpers})
            opened = config.reconstruct_upload(knows, 1)
            assert opened is not None
            differing = sum(one != other for one, other in zip(opened.to_bytes(), clear, strict=True))
            assert differing == 0 if k > corrupt else differing > len(clear) // 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"helper_keys": ()}, "at least one helper"),
        ({"helper_keys": ((1, HELPERS[11].public),)}, "numbers that no client has"),
        ({"helper_keys": ((12, HELPERS[12].public), (11, HELPERS[11].public))}, "ascending"),
        ({"helper_keys": ((11, bytes(32)),)}, "small order"),
        ({"helper_keys": ((11, b"short"),)}, "none, or has small order"),
        ({"helper_keys": ((11, "x" * 32),)}, "none, or has small order"),
        ({"helper_keys": ((-1, HELPERS[11].public),)}, "from 1 to 4294967295"),
        ({"helper_keys": ((0, HELPERS[11].public),)}, "from 1 to 4294967295"),
        ({"helper_keys": ((2**32, HELPERS[11].public),)}, "from 1 to 4294967295"),
        ({"helper_keys": (("11", HELPERS[11].public),)}, "from 1 to 4294967295"),
        ({"helper_keys": ((11, HELPERS[11].public), (12, HELPERS[11].public))}, "two helpers with one key"),
        ({"identities": (*SIGNED.identities[:4], b"short"), **SIGNERS}, "has 32 bytes"),
        ({"identities": SIGNED.identities, **SIGNERS, "server_identity": b"short"}, "has 32 bytes"),
        ({"corrupt_helpers": 2}, "of 2 helpers 0 to 1 may collude with the server, not 2"),
        ({"corrupt_helpers": -1}, "may collude with the server, not -1"),
        ({"min_survivors": 1}, "the sum of one client is its vector"),
        ({"min_survivors": 6}, "2 to the cohort's 5"),
        ({"identities": SIGNED.identities, **SIGNERS, "server_identity": b""}, "give both or neither"),
        ({"identities": SIGNED.identities[:2], **SIGNERS}, "one identity key"),
        ({"identities": SIGNED.identities, "server_identity": SERVER_KEY.public}, "each helper has one of its own"),
        ({"helper_identities": SIGNED.helper_identities}, "each helper has one of its own"),
        (
            {
                "identities": SIGNED.identities,
                **SIGNERS,
                "helper_identities": tuple((party, SERVER_KEY.public) for party in HELPERS),
            },
            "two helpers with one identity",
        ),
    ],
)
def test_an_unsafe_committee_cannot_be_made(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        replace(CONFIG, **change)


def test_one_colluder_more_than_stated_opens_a_vector_with_every_helper_honest() -> None:
    """The server names its target and its colluders as the survivors; helpers cannot know better."""
    tolerated = CONFIG.min_survivors - 2
    assert f"at most {tolerated} of the 5 clients collude with the server" in CONFIG.explain()
    for n_colluders in (tolerated, tolerated + 1):
        named = tuple(range(1, CONFIG.min_survivors + 1))
        left = begun(named).finish().total - sum(map(vector, named[1 : 1 + n_colluders]))
        assert (left.tobytes() == vector(1).tobytes()) is (n_colluders > tolerated)


def test_where_every_helper_holds_seeds_of_its_own_a_lie_shifts_the_total_unnoticed() -> None:
    """What f = m - 1 does not protect from, and ``explain`` says so."""
    assert "a malicious helper can change the total undetected" in CONFIG.explain()
    hand = begun(until=MessageType.SET_CERTIFICATE)
    helper, honest = hand.sessions[11], hand.sessions[11]._sum

    def shifted(place: int) -> Iterator[memoryview]:
        lied = RingVector.from_bytes(LAYOUT, b"".join(honest(place)))
        lied.subtract(RingVector.encode(LAYOUT, np.full(LAYOUT.size, 3)))
        return lied.wire_pieces()

    helper._sum = shifted
    assert hand.finish().total.tobytes() == (sum(map(vector, CLIENTS)) + 3).tobytes()
