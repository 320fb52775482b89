"""A client speaks once; helpers answer once, for enough survivors; nothing comes out without all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.parties import knows, resealed

from secagg import CommitteeSum, InOneProcess, InsecureSeededEntropy, Layout, PartySecrets, run_in_memory
from secagg.committee.helper import CommitteeHelper
from secagg.committee.messages import CommitteeInput, MaskRequest, MaskSum, SealedSeed
from secagg.config import SERVER
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
from secagg.sessions import ServerSession
from secagg.wire import MessageType, Reader, open_frame, payload_of, seal_frame

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
EVERYBODY = InOneProcess(protocol=CONFIG, secrets=SECRETS)
SIGNED = replace(
    CONFIG,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
    helper_identities=tuple((party, key.public) for party, key in HELPER_IDENTITIES.items()),
)
SIGNERS = {"server_identity": SERVER_KEY.public, "helper_identities": SIGNED.helper_identities}


def vector(party: int) -> np.ndarray:
    return np.arange(LAYOUT.size, dtype=np.int64) + party


def uploads(config: CommitteeSum = CONFIG, parties: tuple[int, ...] = CLIENTS) -> dict[int, bytes]:
    messages = {}
    for party in parties:
        identity = IDENTITIES[party] if config.is_authenticated else None
        session = config.client(party, vector(party), entropy=InsecureSeededEntropy(party), secrets=knows(identity))
        messages[party] = session.start()
    return messages


def asked(config: CommitteeSum = CONFIG, parties: tuple[int, ...] = CLIENTS) -> tuple[ServerSession, dict[int, bytes]]:
    server = config.server(secrets=knows(SERVER_KEY if config.is_authenticated else None))
    for party, message in uploads(config, parties).items():
        server.receive(party, message)
    return server, dict(server.close_round())


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
    server, requests = asked()
    server.receive(11, CONFIG.helper(11, secrets=SECRETS[11]).receive(requests[11]))
    with pytest.raises(HelperMissingError, match="and 12 did not; no total is released") as caught:
        server.close_round()
    assert caught.value.missing == (12,)
    assert server.result is None
    with pytest.raises(LocalProtocolError):
        server.close_round()


def test_too_few_clients_and_the_helpers_are_not_even_asked() -> None:
    with pytest.raises(TooFewSurvivorsError, match="2 of 5 parties answered and 3 are needed"):
        asked(parties=(1, 2))


def request_of(config: CommitteeSum, message: bytes, helper: int) -> MaskRequest:
    return MaskRequest.read(Reader(memoryview(payload_of(message)), peer=SERVER), config)


def forged(config: CommitteeSum, request: MaskRequest, helper: int) -> bytes:
    return seal_frame(
        MessageType.MASK_REQUEST,
        request.to_payload(),
        digest=config.digest,
        sender=SERVER,
        recipient=helper,
        identity=SERVER_KEY if config.is_authenticated else None,
    )


def test_a_helper_answers_only_for_the_minimum_cohort() -> None:
    _, requests = asked()
    request = request_of(CONFIG, requests[11], 11)
    few = MaskRequest(seeds={party: request.seeds[party] for party in (1, 2)})
    with pytest.raises(RemoteProtocolError, match="sums of at least 3 clients, the server names 2"):
        CONFIG.helper(11, secrets=SECRETS[11]).receive(forged(CONFIG, few, 11))


def test_a_helper_answers_once_in_a_session() -> None:
    _, requests = asked()
    helper = CONFIG.helper(11, secrets=SECRETS[11])
    helper.receive(requests[11])
    with pytest.raises(RepeatedMessageError):
        helper.receive(requests[11])
    request = request_of(CONFIG, requests[11], 11)
    fewer = MaskRequest(seeds={party: request.seeds[party] for party in (1, 2, 3)})
    with pytest.raises(LocalProtocolError, match="has answered in this session"):
        helper.receive(forged(CONFIG, fewer, 11))


def test_a_server_cannot_invent_clients_for_signed_sums() -> None:
    """It fills the cohort with seeds that it knows, to take one client's mask off alone."""
    _, requests = asked(SIGNED)
    request = request_of(SIGNED, requests[11], 11)
    forger = replace(SIGNED, identities=(), server_identity=b"", helper_identities=())
    invented = forger.client(2, vector(2), entropy=InsecureSeededEntropy(99)).start()
    frame = open_frame(invented, digest=forger.digest, sender=2, recipient=SERVER)
    own = CommitteeInput.read(Reader(frame.payload, peer=2), forger).seeds[11]
    seeds = request.seeds | {2: replace(own, signature=bytes(64))}
    with pytest.raises(RemoteProtocolError, match="seed of client 2 is not signed by its identity"):
        SIGNED.helper(11, secrets=SECRETS[11]).receive(forged(SIGNED, MaskRequest(seeds=seeds), 11))


def test_an_unsigned_survivor_set_is_refused() -> None:
    _, requests = asked(SIGNED)
    with pytest.raises(RemoteProtocolError, match="not signed by the identity of its sender"):
        SIGNED.helper(11, secrets=SECRETS[11]).receive(requests[11][:-64] + bytes(64))


def test_helpers_told_different_survivors_do_not_make_a_total() -> None:
    server, requests = asked()
    request = request_of(CONFIG, requests[12], 12)
    fewer = MaskRequest(seeds={party: request.seeds[party] for party in (1, 2, 3)})
    answer = CONFIG.helper(12, secrets=SECRETS[12]).receive(forged(CONFIG, fewer, 12))
    with pytest.raises(RemoteProtocolError, match="another survivor set than the one it was asked about"):
        server.receive(12, answer)
    with pytest.raises(HelperMissingError):
        server.close_round()


def test_seeds_open_for_their_helper_and_session_only() -> None:
    _, requests = asked()
    for_11 = request_of(CONFIG, requests[11], 11)
    for_12 = request_of(CONFIG, requests[12], 12)
    swapped = MaskRequest(seeds=for_11.seeds | {1: for_12.seeds[1]})
    with pytest.raises(RemoteProtocolError, match="seed of client 1 does not open"):
        CONFIG.helper(11, secrets=SECRETS[11]).receive(forged(CONFIG, swapped, 11))
    other = replace(CONFIG, session_id=bytes(range(16)))
    replayed = forged(other, for_11, 11)
    with pytest.raises(RemoteProtocolError, match="does not open: forged, replayed"):
        other.helper(11, secrets=SECRETS[11]).receive(replayed)


def test_a_replayed_upload_counts_once() -> None:
    server = CONFIG.server()
    message = uploads()[1]
    server.receive(1, message)
    with pytest.raises(RepeatedMessageError):
        server.receive(1, message)
    other = replace(CONFIG, session_id=bytes(range(16)))
    with pytest.raises(RemoteProtocolError, match="another session"):
        other.server().receive(1, message)


def test_an_upload_without_a_seed_for_each_helper_is_refused() -> None:
    frame = open_frame(uploads()[1], digest=CONFIG.digest, sender=1, recipient=SERVER)
    message = CommitteeInput.read(Reader(frame.payload, peer=1), CONFIG)
    half = CommitteeInput(seeds={11: message.seeds[11]}, vector=message.vector)
    bad = seal_frame(MessageType.COMMITTEE_INPUT, half.to_payload(), digest=CONFIG.digest, sender=1, recipient=SERVER)
    with pytest.raises(RemoteProtocolError, match="one seed for each helper"):
        CONFIG.server().receive(1, bad)


def test_clients_and_helpers_say_nothing_out_of_turn() -> None:
    client = CONFIG.client(1, vector(1))
    client.start()
    with pytest.raises(LocalProtocolError, match="one session sends one vector"):
        client.start()
    with pytest.raises(RemoteProtocolError, match="asks clients nothing"):
        client.receive(b"anything")
    helper = CONFIG.helper(11, secrets=SECRETS[11])
    assert helper.start() is None
    wrong = seal_frame(MessageType.MASK_SUM, b"", digest=CONFIG.digest, sender=SERVER, recipient=11)
    with pytest.raises(RemoteProtocolError, match="MASK_REQUEST is due"):
        helper.receive(wrong)


def test_one_helper_alone_sees_noise_and_all_together_with_the_server_see_the_vector() -> None:
    """The stated collusion bound: all helpers, and not one fewer."""
    message = uploads()[1]
    frame = open_frame(message, digest=CONFIG.digest, sender=1, recipient=SERVER)
    upload = CommitteeInput.read(Reader(frame.payload, peer=1), CONFIG)
    _, requests = asked(replace(CONFIG, min_survivors=2), parties=(1, 2))
    del requests
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
        (
            {"identities": SIGNED.identities, "helper_identities": SIGNED.helper_identities},
            "give both or neither",
        ),
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


def test_masks_of_the_wrong_size_are_refused() -> None:
    server, requests = asked()
    answer = CONFIG.helper(11, secrets=SECRETS[11]).receive(requests[11])
    frame = open_frame(answer, digest=CONFIG.digest, sender=11, recipient=SERVER)
    masks = MaskSum.read(Reader(frame.payload, peer=11), CONFIG)
    short = MaskSum(survivors=masks.survivors, vector=masks.vector[:-1])
    message = seal_frame(MessageType.MASK_SUM, short.to_payload(), digest=CONFIG.digest, sender=11, recipient=SERVER)
    with pytest.raises(RemoteProtocolError, match="1 bytes early"):
        server.receive(11, message)


@pytest.mark.parametrize("parties", [(1, 2, 9), (9,), (1, 2, 3, 9)])
def test_a_helper_takes_no_masks_of_strangers_off(parties: tuple[int, ...]) -> None:
    _, requests = asked()
    request = request_of(CONFIG, requests[11], 11)
    seeds = {party: request.seeds[min(party, 5)] for party in parties}
    helper = CONFIG.helper(11, secrets=SECRETS[11])
    with pytest.raises(RemoteProtocolError, match="names 1 parties outside the cohort"):
        helper.receive(forged(CONFIG, MaskRequest(seeds=seeds), 11))
    assert helper.receive(requests[11]), "a request that was refused reveals nothing, so the right one is answered"


def changed_upload(config: CommitteeSum, party: int, change: Callable[[SealedSeed], SealedSeed]) -> bytes:
    """A client's upload with another seed for helper 12."""
    upload = uploads(config)[party]
    message = CommitteeInput.read(Reader(memoryview(payload_of(upload)), peer=party), config)
    seeds = message.seeds | {12: change(message.seeds[12])}
    return resealed(upload, CommitteeInput(seeds=seeds, vector=message.vector).to_payload(), IDENTITIES)


@pytest.mark.parametrize(
    ("config", "change", "told"),
    [
        (SIGNED, lambda seed: replace(seed, signature=bytes(64)), "seed for helper 12 is not signed by its identity"),
        (SIGNED, lambda seed: replace(seed, sealed=bytes(60)), "seed for helper 12 is not signed by its identity"),
        (SIGNED, lambda seed: replace(seed, ephemeral=bytes(32)), "helper 12 with a key of small order"),
        (CONFIG, lambda seed: replace(seed, ephemeral=bytes(32)), "helper 12 with a key of small order"),
    ],
    ids=["signature", "sealed", "order with identities", "order"],
)
def test_one_client_s_bad_seed_costs_it_its_place_and_nobody_the_sum(
    config: CommitteeSum, change: Callable[[SealedSeed], SealedSeed], told: str
) -> None:
    """Taken, it would have every helper refuse the server's request, and the server blame the helpers."""
    server = config.server(secrets=knows(SERVER_KEY if config.is_authenticated else None))
    with pytest.raises(RemoteProtocolError, match=told) as caught:
        server.receive(1, changed_upload(config, 1, change))
    assert caught.value.peer == 1
    assert 1 in server.waiting_for
    for party, message in uploads(config, (2, 3, 4, 5)).items():
        server.receive(party, message)
    for helper, request in server.close_round().items():
        server.receive(helper, config.helper(helper, secrets=SECRETS[helper]).receive(request))
    server.close_round()
    assert server.result is not None
    assert server.result.survivors == (2, 3, 4, 5)
    assert server.result.total.tobytes() == sum(map(vector, (2, 3, 4, 5))).tobytes()


def test_one_colluder_more_than_stated_opens_a_vector_with_every_helper_honest() -> None:
    """The server names its target and its colluders as the survivors; helpers cannot know better."""
    tolerated = CONFIG.min_survivors - 2
    assert f"at most {tolerated} of the 5 clients collude with the server" in CONFIG.explain()
    for n_colluders in (tolerated, tolerated + 1):
        named = tuple(range(1, CONFIG.min_survivors + 1))
        colluders = named[1 : 1 + n_colluders]
        server, requests = asked(parties=named)
        for helper, request in requests.items():
            server.receive(helper, CONFIG.helper(helper, secrets=SECRETS[helper]).receive(request))
        server.close_round()
        assert server.result is not None
        left = server.result.total - sum(map(vector, colluders))
        assert (left.tobytes() == vector(1).tobytes()) is (n_colluders > tolerated)


def test_a_helper_that_lies_shifts_the_total_unnoticed() -> None:
    """What no committee protects from, and the threat model says so."""
    server, requests = asked()
    for helper, request in requests.items():
        answer = CONFIG.helper(helper, secrets=SECRETS[helper]).receive(request)
        if helper == 11:
            frame = open_frame(answer, digest=CONFIG.digest, sender=11, recipient=SERVER)
            masks = MaskSum.read(Reader(frame.payload, peer=11), CONFIG)
            shifted = RingVector.from_bytes(LAYOUT, masks.vector).copy()
            shifted.subtract(RingVector.encode(LAYOUT, np.full(LAYOUT.size, 3)))
            lie = MaskSum(survivors=masks.survivors, vector=shifted.to_bytes()).to_payload()
            answer = seal_frame(MessageType.MASK_SUM, lie, digest=CONFIG.digest, sender=11, recipient=SERVER)
        server.receive(helper, answer)
    server.close_round()
    assert server.result is not None
    assert server.result.total.tobytes() == (sum(map(vector, CLIENTS)) + 3).tobytes()
