"""What a server that lies cannot do: swap keys, tell different survivors to different clients, forge, or mix models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from support.parties import SERVER_KEY, knows, resealed

from secagg import InsecureSeededEntropy, Layout, MaskedSum
from secagg.config import SERVER
from secagg.errors import (
    ConfigurationError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    SumOutOfBoundsError,
)
from secagg.masked import Assumptions
from secagg.masked.client import MaskedClient
from secagg.masked.messages import AdvertisedKeys, Roster, SurvivorProof, UnmaskRequest, UnmaskShares
from secagg.masked.secrets import sign_survivors
from secagg.masked.states import ClientState
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey
from secagg.wire import MessageType, Reader, payload_of, seal_frame, sender_of

CLIENTS = tuple(range(1, 8))
LAYOUT = Layout.of([("counts", 40, 10**6)])
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
CONFIG = MaskedSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=bytes(16),
    threshold=5,
    identities=tuple(IDENTITIES[party].public for party in CLIENTS),
    server_identity=SERVER_KEY.public,
)


def vector(party: int) -> np.ndarray:
    return np.arange(LAYOUT.size, dtype=np.int64) * party


class Cohort:
    """Authenticated clients, driven by hand by a server that may lie."""

    def __init__(self, config: MaskedSum = CONFIG, contexts: Mapping[int, bytes] | None = None) -> None:
        self.config = config
        self.clients = {
            party: MaskedClient(
                replace(config, context=(contexts or {}).get(party, config.context)),
                party,
                vector(party),
                entropy=InsecureSeededEntropy(party),
                secrets=knows(IDENTITIES[party]),
            )
            for party in CLIENTS
        }
        self.server = config.server(secrets=knows(SERVER_KEY))

    def send_all(self, answers: Mapping[int, bytes]) -> Mapping[int, bytes]:
        for party, answer in answers.items():
            self.server.receive(party, answer)
        return self.server.close_round()

    def to_rosters(self) -> dict[int, bytes]:
        return dict(self.send_all({party: client.start() for party, client in self.clients.items()}))

    def to_unmask_requests(self, missing: tuple[int, ...] = ()) -> dict[int, bytes]:
        rosters = self.to_rosters()
        deliveries = self.send_all({p: self.clients[p].receive(m) for p, m in rosters.items()})
        return dict(self.send_all({p: self.clients[p].receive(m) for p, m in deliveries.items() if p not in missing}))

    def frame(self, type_: MessageType, payload: bytes, recipient: int) -> bytes:
        digest = self.config.digest_of(type_)
        return seal_frame(type_, payload, digest=digest, sender=SERVER, recipient=recipient, identity=SERVER_KEY)


def proof(cohort: Cohort, signatures: dict[int, bytes], recipient: int) -> bytes:
    return cohort.frame(MessageType.SURVIVOR_PROOF, SurvivorProof(signatures=signatures).to_payload(), recipient)


def test_a_swapped_key_is_noticed() -> None:
    """The attack on unauthenticated key exchange: the server puts itself between every pair of clients."""
    cohort = Cohort()
    roster_message = cohort.to_rosters()[1]
    roster = Roster.read(Reader(memoryview(payload_of(roster_message)), peer=SERVER), signature_bytes=64)
    own = KeyPair(bytes(range(32)))
    forged = roster.keys | {2: replace(roster.keys[2], masking_key=own.public)}
    with pytest.raises(RemoteProtocolError, match="party 2 are not signed by its identity"):
        cohort.clients[1].receive(cohort.frame(MessageType.ROSTER, Roster(keys=forged).to_payload(), 1))
    assert cohort.clients[1].state is ClientState.ABORTED


def test_keys_of_another_session_are_noticed() -> None:
    other = Cohort(replace(CONFIG, session_id=bytes(range(16))))
    cohort = Cohort()
    stolen = other.clients[2].start()
    replayed = stolen[:6] + CONFIG.setup_digest + stolen[38:]
    with pytest.raises(RemoteProtocolError, match="not signed by the identity of its sender"):
        cohort.server.receive(2, replayed)


def test_a_stranger_cannot_advertise_keys_for_a_client() -> None:
    cohort = Cohort()
    keys = AdvertisedKeys(sealing_key=KeyPair(b"a" * 32).public, masking_key=KeyPair(b"b" * 32).public)
    for identity, told in (
        (IDENTITIES[3], "not signed"),
        (None, "ends in a signature of 64 bytes, this one in one of 0"),
    ):
        message = seal_frame(
            MessageType.ADVERTISED_KEYS,
            keys.to_payload(),
            digest=CONFIG.setup_digest,
            sender=2,
            recipient=SERVER,
            identity=identity,
        )
        with pytest.raises(RemoteProtocolError, match=told):
            cohort.server.receive(2, message)


def test_nothing_is_revealed_before_enough_signed_the_same_survivors() -> None:
    cohort = Cohort()
    requests = cohort.to_unmask_requests()
    signatures = {
        party: sign_survivors(IDENTITIES[party], (), CONFIG.digest) for party in CLIENTS[: CONFIG.signatures_needed - 1]
    }
    cohort.clients[1].receive(requests[1])
    with pytest.raises(RemoteProtocolError, match="5 survivors must have signed the same survivor set, 4 signatures"):
        cohort.clients[1].receive(proof(cohort, signatures, 1))
    assert cohort.clients[1].state is ClientState.ABORTED


def test_a_server_that_tells_two_survivor_sets_gets_nothing() -> None:
    """It tells half of the clients that 7 is dead, to get 7's mask key from them and its self-mask from the rest."""
    cohort = Cohort()
    cohort.to_unmask_requests()
    told = {party: (7,) if party <= 3 else () for party in CLIENTS if party != 7}
    signatures = {}
    for party, dropouts in told.items():
        request = cohort.frame(MessageType.UNMASK_REQUEST, UnmaskRequest(dropouts=dropouts).to_payload(), party)
        answer = cohort.clients[party].receive(request)
        signatures[party] = payload_of(answer)
    for party in told:
        with pytest.raises(RemoteProtocolError, match="did not sign the survivor set that this client was told"):
            cohort.clients[party].receive(proof(cohort, signatures, party))


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
                server_identity=bytes(32),
            )
            assert 2 * config.signatures_needed > n + config.corrupt
            assert 2 * config.shares_needed > n + config.corrupt


def test_a_signature_of_a_dropout_or_a_stranger_does_not_count() -> None:
    cohort = Cohort()
    requests = cohort.to_unmask_requests(missing=(7,))
    cohort.clients[1].receive(requests[1])
    signatures = {party: sign_survivors(IDENTITIES[party], (7,), CONFIG.digest) for party in CLIENTS if party != 2}
    with pytest.raises(RemoteProtocolError, match="1 signatures are not from survivors"):
        cohort.clients[1].receive(proof(cohort, signatures, 1))


def test_a_client_reveals_once_in_its_life() -> None:
    cohort = Cohort()
    requests = cohort.to_unmask_requests(missing=(7,))
    proofs = cohort.send_all({party: cohort.clients[party].receive(message) for party, message in requests.items()})
    client = cohort.clients[1]
    shares = UnmaskShares.read(Reader(memoryview(payload_of(client.receive(proofs[1]))), peer=1))
    assert shares.mask_key_shares.keys() == {7}
    assert shares.self_mask_shares.keys() == {1, 2, 3, 4, 5, 6}
    again = cohort.frame(MessageType.UNMASK_REQUEST, UnmaskRequest(dropouts=(6,)).to_payload(), 1)
    with pytest.raises(LocalProtocolError, match="takes no UNMASK_REQUEST"):
        client.receive(again)
    assert client._kept.secrets is None


def test_another_model_is_noticed_by_an_honest_server() -> None:
    cohort = Cohort(contexts={2: b"another backbone"})
    rosters = cohort.to_rosters()
    deliveries = cohort.send_all({p: cohort.clients[p].receive(m) for p, m in rosters.items()})
    with pytest.raises(MalformedMessageError, match="everything that clients received"):
        cohort.clients[2].receive(deliveries[2])


def test_a_server_that_hands_out_two_models_gets_noise() -> None:
    """The model-inconsistency attack: it plays along with each client's digest, and yet no total comes out.

    What client 2 says is signed for its own model: an honest server takes none of it. One that does not look at
    signatures gets masks that do not cancel.
    """
    cohort = Cohort(contexts={2: b"another backbone"})
    other = replace(CONFIG, context=b"another backbone")
    rosters = cohort.to_rosters()
    deliveries = cohort.send_all({p: cohort.clients[p].receive(m) for p, m in rosters.items()})

    def readdressed(message: bytes, new: MaskedSum, key: IdentityKey) -> bytes:
        return resealed(message[:6] + new.digest + message[38:], payload_of(message), {sender_of(message): key})

    def play(messages: Mapping[int, bytes]) -> dict[int, bytes]:
        answers = {}
        for party, message in messages.items():
            if party == 2:
                said = cohort.clients[2].receive(readdressed(message, other, SERVER_KEY))
                with pytest.raises(MalformedMessageError, match="not signed by the identity of its sender"):
                    cohort.server.receive(2, said[:6] + CONFIG.digest + said[38:])
                answers[2] = readdressed(said, CONFIG, IDENTITIES[2])
            else:
                answers[party] = cohort.clients[party].receive(message)
        return answers

    requests = cohort.send_all(play(deliveries))
    answers = play(requests)
    with pytest.raises(RemoteProtocolError, match="not one on this sum's survivors"):
        cohort.server.receive(2, answers[2])
    del answers[2]
    proofs = cohort.send_all(answers)
    revealed = {party: cohort.clients[party].receive(message) for party, message in proofs.items()}
    with pytest.raises(SumOutOfBoundsError, match="masks did not cancel"):
        cohort.send_all(revealed)
    assert cohort.server.result is None


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"identities": CONFIG.identities[:-1]}, "one identity key a client"),
        ({"identities": (*CONFIG.identities[:-1], CONFIG.identities[0])}, "all different"),
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
