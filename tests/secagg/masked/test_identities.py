"""What a server that lies cannot do: tell different survivors to different clients, mix models, or lower a quorum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from support.by_hand import ByHand
from support.parties import SERVER_KEY, identified, key_of, resealed

from secagg import Assumptions, ClientSession, InOneProcess, Layout, MaskedSum, PartyId, os_entropy
from secagg.config import SERVER
from secagg.entropy import Entropy
from secagg.errors import (
    ConfigurationError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    SumOutOfBoundsError,
)
from secagg.masked.messages import ShareDelivery, SurvivorProof
from secagg.masked.secrets import sign_peers
from secagg.primitives.agreement import BadPublicKeyError, check_public_key
from secagg.primitives.identity import is_signed, statement
from secagg.sessions import ClientInput
from secagg.wire import MessageType, Reader, payload_of, write_parties

CLIENTS = tuple(range(1, 8))
LAYOUT = Layout.of([("counts", 40, 10**6)])
IDENTITIES = {party: key_of(party) for party in CLIENTS}
CONFIG = MaskedSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=bytes(16),
    threshold=5,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
)
OTHER = replace(CONFIG, context=b"another backbone")
VECTORS = {party: np.arange(LAYOUT.size, dtype=np.int64) * party for party in CLIENTS}


def begin(**options: Mapping[int, int]) -> ByHand:
    return ByHand(identified(CONFIG, IDENTITIES), VECTORS, **options)


def payload_reader(message: bytes) -> Reader:
    return Reader(memoryview(payload_of(message)), peer=SERVER)


def test_a_server_that_tells_two_survivor_sets_gets_nothing() -> None:
    """It tells half of the clients that 7 is dead, to get 7's mask key from them and its self-mask from the rest."""
    hand = begin()
    hand.until(MessageType.UNMASK_REQUEST)
    told = {party: (7,) if party <= 3 else () for party in CLIENTS if party != 7}
    signatures = {}
    for party, dropouts in told.items():
        request = hand.framed(MessageType.UNMASK_REQUEST, write_parties(dropouts), party)
        signatures[party] = hand.read(hand.sessions[party].receive(request))
    for party in told:
        proof = hand.framed(MessageType.SURVIVOR_PROOF, SurvivorProof(signatures=signatures), party)
        with pytest.raises(RemoteProtocolError, match="did not sign the survivor set that this client was told"):
            hand.sessions[party].receive(proof)


def test_no_two_survivor_sets_can_both_gather_enough_signatures() -> None:
    """Corrupt clients sign everything, honest ones once: two quorums would need more signers than there are."""
    for n in range(3, 40):
        for threshold in range(n // 2 + 1, n + 1):
            clients = tuple(range(1, n + 1))
            config = MaskedSum(
                layout=LAYOUT,
                clients=clients,
                session_id=bytes(16),
                threshold=threshold,
                identities=tuple(party.to_bytes(32, "big") for party in clients),
                server_identity=SERVER_KEY.public,
            )
            assert 2 * config.signatures_needed > n + config.corrupt
            assert 2 * config.shares_needed > n + config.corrupt


def test_a_client_reveals_once_in_its_life() -> None:
    hand = begin(gone={7: 2})
    client = hand.sessions[1]
    shares = hand.read(client.receive(hand.until(MessageType.SURVIVOR_PROOF)[1]))
    assert shares.mask_key_shares.keys() == {7}
    assert shares.self_mask_shares.keys() == {1, 2, 3, 4, 5, 6}
    with pytest.raises(LocalProtocolError, match="takes no UNMASK_REQUEST"):
        client.receive(hand.framed(MessageType.UNMASK_REQUEST, write_parties((6,)), 1))
    assert client._kept.secrets is None


ON_AN_EXPANDER = {party: key_of(party) for party in range(1, 10)}
EXPANDER = replace(
    CONFIG,
    clients=tuple(ON_AN_EXPANDER),
    threshold=4,
    degree=6,
    graph_seed=bytes(16),
    assumptions=Assumptions(corruption=0, dropout=2 / 9, malicious_server=True),
    identities=tuple(key.public for key in ON_AN_EXPANDER.values()),
)


def on_an_expander() -> ByHand:
    """A sum on a sparse graph, in which 3 shares nothing and 5 sends no vector."""
    vectors = {party: np.arange(LAYOUT.size, dtype=np.int64) * party for party in EXPANDER.clients}
    return ByHand(identified(EXPANDER, ON_AN_EXPANDER), vectors, gone={3: 1, 5: 2})


NEAR = next(party for party in EXPANDER.neighbours(3) if party != 5)
"""A neighbour of the client that shared nothing."""
PEERS = sorted(set(EXPANDER.neighbours(NEAR)) - {3, 5})
FAR = next(party for party in EXPANDER.clients if party not in (3, 5, NEAR, *PEERS))


@pytest.mark.parametrize(
    ("kept_back", "absent", "is_honest"),
    [
        ((), (3,), True),
        ((PEERS[0],), (3,), False),
        ((), tuple(sorted((3, PEERS[0]))), False),
        ((), (), False),
        ((), tuple(sorted((3, NEAR))), False),
        ((), (3, 99), False),
    ],
    ids=["the truth", "a neighbour's kept back", "a neighbour that shared", "nobody", "its reader", "a stranger"],
)
def test_a_vector_is_masked_with_all_that_shared_or_with_none(
    kept_back: tuple[PartyId, ...], absent: tuple[PartyId, ...], is_honest: bool
) -> None:
    """Else a server would choose for each client whom it masks with, and cut the graph where it likes."""
    hand = on_an_expander()
    delivery = ShareDelivery.read(payload_reader(hand.until(MessageType.SHARE_DELIVERY)[NEAR]), signs_peers=True)
    sealed = {party: box for party, box in delivery.sealed.items() if party not in kept_back}
    told = hand.framed(MessageType.SHARE_DELIVERY, ShareDelivery(sealed=sealed, absent=absent), NEAR)
    if is_honest:
        hand.sessions[NEAR].receive(told)
        return
    with pytest.raises(RemoteProtocolError, match=f"says that {len(absent)} parties shared nothing, but not") as caught:
        hand.sessions[NEAR].receive(told)
    assert caught.value.peer == SERVER


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda peers: {}, f"exactly the {len(PEERS)} surviving neighbours must have signed whom .*, 0 signatures"),
        (lambda peers: {party: peers[party] for party in PEERS[1:]}, f"exactly .*, {len(PEERS) - 1} signatures came"),
        (lambda peers: peers | {FAR: peers[PEERS[0]]}, f"exactly .*, {len(PEERS) + 1} signatures came"),
        (lambda peers: peers | {PEERS[0]: peers[PEERS[1]]}, f"party {PEERS[0]} did not mask with all that"),
        (
            lambda peers: peers | {PEERS[0]: sign_peers(ON_AN_EXPANDER[PEERS[0]], frozenset(), EXPANDER.digest)},
            f"party {PEERS[0]} did not mask with all that",
        ),
    ],
    ids=["none", "one less", "one more", "another's", "of another group"],
)
def test_nobody_is_opened_that_masked_with_others(
    change: Callable[[dict[PartyId, bytes]], dict[PartyId, bytes]], complaint: str
) -> None:
    """Each neighbour must have signed that it masked with everybody whom this client masked with."""
    hand = on_an_expander()
    proof = SurvivorProof.read(payload_reader(hand.until(MessageType.SURVIVOR_PROOF)[NEAR]), signs_peers=True)
    assert proof.peers is not None
    assert sorted(proof.peers) == PEERS
    told = hand.framed(MessageType.SURVIVOR_PROOF, replace(proof, peers=change(proof.peers)), NEAR)
    with pytest.raises(RemoteProtocolError, match=complaint) as caught:
        hand.sessions[NEAR].receive(told)
    assert caught.value.peer == SERVER


def test_who_shared_nothing_is_no_survivor() -> None:
    """Also for a client that is not its neighbour, and has no share of it to miss."""
    hand = on_an_expander()
    hand.until(MessageType.UNMASK_REQUEST)
    far = next(party for party in EXPANDER.clients if party not in (3, 5, *EXPANDER.neighbours(3)))
    told = hand.framed(MessageType.UNMASK_REQUEST, write_parties((5,)), far)
    with pytest.raises(RemoteProtocolError, match="survivors of some of the 1 parties that shared nothing") as caught:
        hand.sessions[far].receive(told)
    assert caught.value.peer == SERVER


def test_a_sum_on_an_expander_goes_on_from_what_was_stored() -> None:
    """Also who was absent, and what clients signed of it; one vanishes before its shares, one before its vector."""
    hand = on_an_expander()
    everybody, vectors = hand.parties, hand.vectors
    hand.first_answers()
    while hand.server.result is None:
        for party in hand.sessions:
            fresh = everybody.client(party, vectors[party])
            fresh.restore(hand.sessions[party].snapshot())
            hand.sessions[party] = fresh
        server = everybody.server()
        server.restore(hand.server.snapshot())
        hand.server = server
        hand.go_on()
    assert hand.finishes_exactly() == (1, 2, 4, 6, 7, 8, 9)


class Misled(InOneProcess):
    """Client 2 was told of another model."""

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        config = OTHER if party == 2 else self.protocol
        return config.client(party, client_input, secrets=self.of_party(party), entropy=entropy)


def misled() -> ByHand:
    everybody = identified(CONFIG, IDENTITIES)
    return ByHand(Misled(protocol=everybody.protocol, secrets=everybody.secrets), VECTORS)


def test_another_model_is_noticed_by_an_honest_server() -> None:
    hand = misled()
    delivery = hand.until(MessageType.SHARE_DELIVERY)[2]
    with pytest.raises(MalformedMessageError, match="everything that clients received"):
        hand.sessions[2].receive(delivery)


def test_a_server_that_hands_out_two_models_gets_noise() -> None:
    """The model-inconsistency attack: it plays along with each client's digest, and yet no total comes out.

    What client 2 says is signed for its own model: an honest server takes none of it. With one that does not look at
    signatures the masks do not cancel.
    """
    hand = misled()

    def readdressed(message: bytes, new: MaskedSum) -> bytes:
        return message[:6] + new.digest + message[38:]

    def play_along() -> None:
        told_2 = hand.requests.pop(2)
        answer = hand.sessions[2].receive(resealed(readdressed(told_2, OTHER), payload_of(told_2)))
        with pytest.raises(MalformedMessageError, match="not signed by the identity of its sender"):
            hand.server.receive(2, readdressed(answer, CONFIG))
        hand.to_parties()[2] = resealed(readdressed(answer, CONFIG), payload_of(answer))

    hand.until(MessageType.SHARE_DELIVERY)
    play_along()
    hand.to_server()
    play_along()
    with pytest.raises(RemoteProtocolError, match="not one on this sum's survivors"):
        hand.server.receive(2, hand.said.pop(2))
    with pytest.raises(SumOutOfBoundsError, match="masks did not cancel"):
        hand.finish()
    assert hand.server.result is None


P = 2**255 - 19
ORDER_8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
ANYBODYS = [
    (y + sign * 2**255).to_bytes(32, "little") for y in (1, 0, P - 1, P, P + 1, ORDER_8, P - ORDER_8) for sign in (0, 1)
]
"""Every encoding of the eight points of small order."""


@pytest.mark.parametrize("public", ANYBODYS, ids=bytes.hex)
def test_nobody_signs_for_a_key_that_anybody_could_sign_for(public: bytes) -> None:
    """R = the neutral point, S = 0: RFC 8032's equation asks that h times the key be the neutral point too."""
    y = int.from_bytes(public, "little") % 2**255
    with pytest.raises(BadPublicKeyError):  # the same point on Curve25519 (RFC 7748, section 4.1)
        check_public_key(((1 + y) * pow(1 - y, P - 2, P) % P).to_bytes(32, "little"))
    forged = ANYBODYS[0] + bytes(32)
    taken = [number for number in range(64) if openssl_verifies(public, forged, statement("label", bytes([number])))]
    assert taken or y >= P
    assert not any(is_signed(public, forged, "label", bytes([number])) for number in taken)


def openssl_verifies(public: bytes, signature: bytes, said: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, said)
    except InvalidSignature:
        return False
    return True


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"identities": CONFIG.identities[:-1]}, "one identity key a client"),
        ({"identities": (*CONFIG.identities[:-1], CONFIG.identities[0])}, "two parties have one identity key"),
        ({"server_identity": CONFIG.identities[0]}, "two parties have one identity key"),
        ({"server_identity": ANYBODYS[0]}, "no small order: else anybody signs"),
        ({"identities": (*CONFIG.identities[:-1], b"short")}, "32 bytes"),
        ({"identities": ()}, "give both or neither"),
        ({"server_identity": b""}, "give both or neither"),
        ({"server_identity": b"short"}, "32 bytes"),
        ({"identities": (), "assumptions": Assumptions(malicious_server=True)}, "every client needs an identity key"),
        ({"assumptions": Assumptions(malicious_server=False)}, "malicious_server=True"),
        ({"threshold": 3}, "more than half"),
        ({"assumptions": Assumptions(malicious_server=True, corruption=0.45, dropout=0.1)}, "threshold"),
    ],
)
def test_an_unsafe_configuration_cannot_be_made(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        replace(CONFIG, **change)
