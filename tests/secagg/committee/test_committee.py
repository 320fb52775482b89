"""Committees: a helper answers once, for enough survivors, and what it takes to open a vector; their lies are in the
contract.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.by_hand import ByHand, content_of, forged

from secagg import CommitteeSum, InOneProcess, InsecureSeededEntropy, Layout, PartySecrets, run_in_memory
from secagg.committee.helper import CommitteeHelper
from secagg.errors import (
    ConfigurationError,
    HelperMissingError,
    LocalProtocolError,
    RemoteProtocolError,
    RepeatedMessageError,
    TooFewSurvivorsError,
)
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey
from secagg.primitives.mask_stream import add_masks
from secagg.ring import RingVector
from secagg.wire import MessageType

LAYOUT = Layout.of([("narrow", 5, 100), ("wide", 7, 2**60)])
CLIENTS = (1, 2, 3, 4, 5)
HELPERS = {11: KeyPair(b"a" * 32), 12: KeyPair(b"b" * 32)}
HELPER_IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in HELPERS}
SECRETS = {party: PartySecrets(agreement=pair, identity=HELPER_IDENTITIES[party]) for party, pair in HELPERS.items()}
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
    helper_identities=tuple((party, key.public) for party, key in HELPER_IDENTITIES.items()),
)
SIGNERS = {"server_identity": SERVER_KEY.public, "helper_identities": SIGNED.helper_identities}


def vector(party: int) -> np.ndarray:
    return np.arange(LAYOUT.size, dtype=np.int64) + party


def asked(parties: tuple[int, ...] = CLIENTS, config: CommitteeSum = CONFIG) -> ByHand:
    """A sum whose helpers have been asked about these clients."""
    hand = ByHand(InOneProcess(protocol=config, secrets=SECRETS), {party: vector(party) for party in parties})
    hand.until(MessageType.MASK_REQUEST)
    return hand


@given(
    n_helpers=st.integers(1, 4),
    survivors=st.sets(st.sampled_from(CLIENTS), min_size=2),
    seed=st.integers(0, 100),
)
def test_any_number_of_helpers_gives_the_plain_total(n_helpers: int, survivors: set[int], seed: int) -> None:
    protocol = CommitteeSum.generate(
        layout=LAYOUT,
        clients=CLIENTS,
        session_id=bytes(16),
        n_helpers=n_helpers,
        min_survivors=2,
        entropy=InsecureSeededEntropy(seed),
    )
    run = run_in_memory(protocol, {party: vector(party) for party in survivors}, entropy=InsecureSeededEntropy(seed))
    assert run.result.total.tobytes() == sum(map(vector, survivors)).tobytes()


def test_a_missing_helper_is_named_and_nothing_is_released() -> None:
    hand = asked()
    hand.requests.pop(12)
    hand.to_parties()
    with pytest.raises(HelperMissingError, match="and 12 did not; no total is released") as caught:
        hand.to_server()
    assert caught.value.missing == (12,)
    assert hand.server.result is None
    with pytest.raises(LocalProtocolError):
        hand.server.close_round()


def test_too_few_clients_and_the_helpers_are_not_even_asked() -> None:
    with pytest.raises(TooFewSurvivorsError, match="2 of 5 parties answered and 3 are needed"):
        asked((1, 2))


def test_a_helper_answers_once_in_a_session() -> None:
    hand = asked()
    request = hand.requests[11]
    hand.sessions[11].receive(request)
    with pytest.raises(RepeatedMessageError):
        hand.sessions[11].receive(request)
    seeds = hand.read(request).seeds
    fewer = forged(request, replace(hand.read(request), seeds={party: seeds[party] for party in (1, 2, 3)}))
    with pytest.raises(LocalProtocolError, match="has answered in this session"):
        hand.sessions[11].receive(fewer)


def test_helpers_told_different_survivors_do_not_make_a_total() -> None:
    hand = asked()
    request = hand.read(hand.requests[12])
    fewer = replace(request, seeds={party: request.seeds[party] for party in (1, 2, 3)})
    hand.requests[12] = forged(hand.requests[12], fewer)
    answer = hand.to_parties().pop(12)
    with pytest.raises(RemoteProtocolError, match="another survivor set than the one it was asked about"):
        hand.server.receive(12, answer)
    with pytest.raises(HelperMissingError):
        hand.to_server()


def test_seeds_open_for_their_session_only() -> None:
    hand, other = asked(), asked(config=replace(CONFIG, session_id=bytes(range(16))))
    with pytest.raises(RemoteProtocolError, match="does not open: forged, replayed"):
        other.sessions[11].receive(forged(other.requests[11], hand.read(hand.requests[11])))


def test_clients_and_helpers_say_nothing_out_of_turn() -> None:
    hand = asked()
    with pytest.raises(LocalProtocolError, match="one session sends one vector"):
        hand.sessions[1].start()
    with pytest.raises(RemoteProtocolError, match="asks clients nothing"):
        hand.sessions[1].receive(b"anything")
    assert hand.sessions[11].start() is None
    request = hand.requests[11]
    with pytest.raises(RemoteProtocolError, match="MASK_REQUEST is due"):
        hand.sessions[11].receive(request[:5] + bytes([MessageType.MASK_SUM]) + request[6:])


def test_one_helper_alone_sees_noise_and_all_together_with_the_server_see_the_vector() -> None:
    """The stated collusion bound: all helpers, and not one fewer."""
    upload = content_of(asked().sent[MessageType.COMMITTEE_INPUT][1], CONFIG)
    seeds = {
        helper: CommitteeHelper(CONFIG, helper, secrets=SECRETS[helper])._open(pair, 1, upload.seeds[helper])
        for helper, pair in HELPERS.items()
    }
    assert len(set(seeds.values())) == len(HELPERS), "a seed that two helpers share is each one's to take off twice"

    def unmasked_by(helpers: tuple[int, ...]) -> bytes:
        opened = RingVector.from_bytes(LAYOUT, upload.vector).copy()
        add_masks(opened, [(seeds[helper], -1) for helper in helpers], CONFIG.digest)
        return opened.to_bytes()

    clear = RingVector.encode(LAYOUT, vector(1)).to_bytes()
    assert unmasked_by((11, 12)) == clear
    for helpers in ((), (11,), (12,)):
        differing = sum(one != other for one, other in zip(unmasked_by(helpers), clear, strict=True))
        assert differing > len(clear) * 3 // 4


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


def test_keys_must_belong_together() -> None:
    with pytest.raises(ConfigurationError, match="secret key of helper 11 is needed, and this is another one"):
        CONFIG.helper(11, secrets=SECRETS[12])
    with pytest.raises(ConfigurationError, match="party 99 is no helper"):
        CONFIG.helper(99, secrets=SECRETS[11])
    with pytest.raises(ConfigurationError, match="secret key of helper 11 is needed, and none was given"):
        CONFIG.helper(11)
    with pytest.raises(ConfigurationError, match="identity key of party 1"):
        SIGNED.client(1, vector(1))
    for identity in (None, SERVER_KEY):
        with pytest.raises(ConfigurationError, match="identity key of party 11 is needed"):
            SIGNED.helper(11, secrets=replace(SECRETS[11], identity=identity))
    with pytest.raises(ConfigurationError, match="identity key of the server is needed"):
        SIGNED.server()
    assert "aaaa" not in repr(CONFIG)


def test_one_colluder_more_than_stated_opens_a_vector_with_every_helper_honest() -> None:
    """The server names its target and its colluders as the survivors; helpers cannot know better."""
    tolerated = CONFIG.min_survivors - 2
    assert f"at most {tolerated} of the 5 clients collude with the server" in CONFIG.explain()
    for n_colluders in (tolerated, tolerated + 1):
        named = tuple(range(1, CONFIG.min_survivors + 1))
        left = asked(named).finish().total - sum(map(vector, named[1 : 1 + n_colluders]))
        assert (left.tobytes() == vector(1).tobytes()) is (n_colluders > tolerated)


def test_a_helper_that_lies_shifts_the_total_unnoticed() -> None:
    """What no committee protects from, and the threat model says so."""
    hand = asked()
    said = hand.until(MessageType.MASK_SUM)
    masks = hand.read(said[11])
    shifted = RingVector.from_bytes(LAYOUT, masks.vector).copy()
    shifted.subtract(RingVector.encode(LAYOUT, np.full(LAYOUT.size, 3)))
    said[11] = forged(said[11], replace(masks, vector=shifted.to_bytes()))
    assert hand.finish().total.tobytes() == (sum(map(vector, CLIENTS)) + 3).tobytes()


def test_a_helper_s_long_lived_key_keeps_nothing_of_a_session() -> None:
    """What it agreed on with clients goes with the session, though its key pair serves many."""
    layout = Layout.of([("counts", 3, 100)])
    parties = CommitteeSum.generate(layout=layout, clients=(1, 2, 3), session_id=bytes(16))
    run_in_memory(parties, {party: np.arange(3) for party in (1, 2, 3)})
    for helper in parties.helpers:
        keys = parties.secrets[helper].agreement
        assert keys is not None
        assert not keys._shared
