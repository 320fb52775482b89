"""Masks under encryption: exact, one heavy message, and neither server nor key holder, nor both, see one vector."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.parties import SERVER_KEY, signing

from secagg import (
    Assumptions,
    InOneProcess,
    InsecureSeededEntropy,
    IntVector,
    Layout,
    MaskedSum,
    PlainSum,
    run_in_memory,
)
from secagg.carriers import Encrypted, choose_parameters, encrypted
from secagg.carriers.carrier import RING_BYTES
from secagg.carriers.key_holder import read_words, write_request
from secagg.carriers.parameters import Scheme
from secagg.carriers.seal import tenseal
from secagg.config import SERVER
from secagg.errors import (
    ConfigurationError,
    HelperMissingError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    SumOutOfBoundsError,
    TooFewSurvivorsError,
)
from secagg.in_memory import Envelope
from secagg.masked.server import MaskedServer
from secagg.policy import ClientPolicy
from secagg.primitives.identity import IdentityKey
from secagg.receipts import Receipt
from secagg.ring import RingVector
from secagg.wire import HEADER_BYTES, MessageType, Reader, message_type, open_frame, seal_frame

sys.path.append(str(Path(__file__).parent))

from he_parts import HOLDER, LAYOUT, SESSION, changed, reachable_bytes, vectors_within

CLIENTS = (3, 8, 9, 40)
ROUNDS = ["ADVERTISED_KEYS", "SEALED_SHARES", "MASKED_INPUT", "UNMASK_SHARES"]
SCHEMES = pytest.mark.parametrize("kind", ["bfv", "ckks"])


@lru_cache
def parties_of(kind: Scheme) -> InOneProcess:
    return encrypted(MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION, threshold=3), kind)


def protocol_of(kind: Scheme) -> MaskedSum:
    protocol = parties_of(kind).protocol
    assert isinstance(protocol, MaskedSum)
    return protocol


def everybody(protocol: MaskedSum) -> InOneProcess:
    return parties_of(protocol.carrier.parameters.scheme)


def secret_of(protocol: MaskedSum) -> bytes:
    return everybody(protocol).secrets[protocol.carrier.key_holder].decryption


@pytest.fixture(params=["bfv", "ckks"])
def protocol(request: pytest.FixtureRequest) -> MaskedSum:
    return protocol_of(request.param)


def vectors_of(layout: Layout = LAYOUT, clients: tuple[int, ...] = CLIENTS, seed: int = 0) -> dict[int, IntVector]:
    return vectors_within(layout, clients, seed)


def run_to(protocol: Any, stage: MessageType) -> tuple[Any, dict[int, bytes]]:
    """A server in the round that collects ``stage``, and what is on its way to it."""
    server, vectors = protocol.server(), vectors_of()
    sessions = {p: protocol.client(p, vectors[p], entropy=InsecureSeededEntropy(p)) for p in CLIENTS}
    sessions[HOLDER] = everybody(protocol).helper(HOLDER)
    answers = {party: sessions[party].start() for party in CLIENTS}
    while message_type(next(iter(answers.values()))) is not stage:
        for party, answer in answers.items():
            server.receive(party, answer)
        answers = {party: sessions[party].receive(request) for party, request in server.close_round().items()}
    return server, answers


class TestExactness:
    def test_identities_sign_as_in_a_masked_sum(self, protocol: MaskedSum) -> None:
        keys = {party: IdentityKey(party.to_bytes(32, "big")) for party in CLIENTS}
        holder = IdentityKey(b"h" * 32)
        alone = replace(
            protocol,
            carrier=RING_BYTES,
            identities=tuple(key.public for key in keys.values()),
            server_identity=SERVER_KEY.public,
        )
        scheme, vectors = protocol.carrier.parameters.scheme, vectors_of()
        with pytest.raises(ConfigurationError, match="give an identity of each helper too"):
            encrypted(alone, scheme)
        carried = encrypted(alone, scheme, identity=holder)
        signed = carried.protocol
        everyone = replace(carried, secrets={**carried.secrets, **signing({SERVER: SERVER_KEY, **keys})})
        run = run_in_memory(everyone, vectors, dropouts={9: 4})
        assert run.result.total.tobytes() == sum(vectors.values()).tobytes()
        assert "the server may lie" in signed.explain()

    @pytest.mark.parametrize("kind", ["bfv", "ckks"])
    def test_a_sparse_graph_serves_as_well(self, kind: Scheme) -> None:
        clients = tuple(range(1, 41))
        planned = MaskedSum.planned(
            layout=LAYOUT,
            clients=clients,
            session_id=SESSION,
            assumptions=Assumptions(corruption=0.05, dropout=0.05, security_bits=20, correctness_bits=10),
            graph_seed=bytes(16),
        )
        assert planned.degree is not None
        parties, vectors = encrypted(planned, kind), vectors_of(clients=clients)
        protocol = parties.protocol
        assert isinstance(protocol, MaskedSum)
        assert (protocol.degree, protocol.survivors_needed) == (planned.degree, planned.survivors_needed)
        run = run_in_memory(parties, vectors, dropouts={7: 2, 20: 3})
        assert run.result.survivors == tuple(party for party in clients if party != 7)
        assert run.result.total.tobytes() == sum(vectors[party] for party in run.result.survivors).tobytes()

    def test_one_message_is_heavy_and_its_bytes_are_told(self, protocol: MaskedSum) -> None:
        sent: list[Envelope] = []
        run = run_in_memory(everybody(protocol), vectors_of(), record=sent.append)
        for party in CLIENTS:
            assert (run.traffic[party].messages_up, run.traffic[party].heavy_messages) == (4, 1)
            assert f"sends 4 messages, {run.traffic[party].bytes_up} bytes" in protocol.explain()
        heavy = [e for e in sent if message_type(e.message) is MessageType.MASKED_INPUT]
        assert {len(e.message) for e in heavy} == {HEADER_BYTES + protocol.vector_bytes}
        holder = run.traffic[HOLDER]
        assert (holder.messages_up, holder.messages_down, holder.heavy_messages) == (1, 1, 0)
        assert [message_type(e.message) for e in sent[-2:]] == [
            MessageType.DECRYPTION_REQUEST,
            MessageType.DECRYPTED_SUM,
        ]

    def test_its_receipt_vouches_for_the_decryption_too(self, protocol: MaskedSum) -> None:
        server, answers = run_to(protocol, MessageType.DECRYPTED_SUM)
        server.receive(HOLDER, answers[HOLDER])
        server.close_round()
        signer = IdentityKey(b"s" * 32)
        Receipt.issue(server, protocol, signer).verify(protocol, signer.public, party=8)


class TestWhoSeesWhat:
    def test_server_and_clients_hold_no_secret_key(self, protocol: MaskedSum) -> None:
        server, _ = run_to(protocol, MessageType.UNMASK_SHARES)
        for session in (server, protocol.client(3, vectors_of()[3])):
            held = reachable_bytes(session)
            assert protocol.carrier.public_context in held
            assert secret_of(protocol) not in held
        assert not tenseal().context_from(protocol.carrier.public_context).is_private()
        assert secret_of(protocol) in reachable_bytes(everybody(protocol).helper(HOLDER))

    def test_whoever_is_not_the_key_holder_makes_no_session_of_its(self, protocol: MaskedSum) -> None:
        with pytest.raises(ConfigurationError, match="party 1, is not here"):
            protocol.helper(HOLDER)
        assert "secret_context" not in repr(everybody(protocol))

    @SCHEMES
    def test_a_lying_server_gets_a_single_vector_decrypted_where_there_are_no_masks(self, kind: Scheme) -> None:
        """Why plain ``ckks`` and ``bfv`` need a semi-honest server; the attack that the next test meets."""
        parties = encrypted(PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION, min_survivors=3), kind)
        protocol = parties.protocol
        assert "SEMI-HONEST" in protocol.explain()
        upload = protocol.client(8, vectors_of()[8]).start()
        stolen = decrypt_as_if_it_were_the_sum(parties, upload[HEADER_BYTES:])
        assert stolen.decode().tobytes() == vectors_of()[8].tobytes()

    @SCHEMES
    def test_a_lying_server_gets_a_masked_vector_where_there_are(self, kind: Scheme) -> None:
        """Key holder and server together then see exactly what the server of a masked sum sees: the masked vector."""
        protocol, vectors = protocol_of(kind), vectors_of()
        _, uploads = run_to(protocol, MessageType.MASKED_INPUT)
        stolen = decrypt_as_if_it_were_the_sum(everybody(protocol), uploads[8][HEADER_BYTES:])
        # The same client with the same secrets in a sum of this digest, but not encrypted.
        plainly = masked_vector_of(protocol, 8)
        assert stolen.to_bytes() == plainly
        clear = RingVector.encode(LAYOUT, vectors[8]).to_bytes()
        equal = sum(one == other for one, other in zip(stolen.to_bytes(), clear, strict=True))
        assert equal < len(clear) // 16  # by chance one byte in 256
        with pytest.raises(SumOutOfBoundsError):
            stolen.decode()

    def test_what_the_key_holder_decrypts_is_not_the_total(self, protocol: MaskedSum) -> None:
        _, answers = run_to(protocol, MessageType.DECRYPTED_SUM)
        total = RingVector.encode(LAYOUT, sum(vectors_of().values())).to_bytes()
        decrypted = answers[HOLDER][HEADER_BYTES:]
        assert sum(one == other for one, other in zip(decrypted, total, strict=True)) < len(total) // 16

    def test_the_words_that_are_encrypted_look_the_same_whatever_the_vector_is(self, protocol: MaskedSum) -> None:
        """H0: the bytes of an all-zero vector's masked words are uniform.

        Statistic: their mean, of exact moments 127.5 and (256^2 - 1) / 12; n = 4030 bytes; alpha = 6e-7 (5 standard
        deviations, two-sided). The twin, words without masks, is rejected.
        """

        def deviation(words: bytes) -> float:
            return float(abs(sum(words) - 127.5 * len(words)) / ((256**2 - 1) / 12 * len(words)) ** 0.5)

        zero = np.zeros(LAYOUT.size, dtype=np.int64)
        words = b"".join(masked_vector_of(protocol, 8, zero, seed) for seed in range(10))
        assert len(words) == 10 * LAYOUT.wire_bytes
        assert deviation(words) < 5
        assert deviation(bytes(len(words))) > 5


class TestRefusals:
    def test_without_the_key_holder_nothing_is_released_and_the_error_names_it(self, protocol: MaskedSum) -> None:
        with pytest.raises(HelperMissingError) as caught:
            run_in_memory(everybody(protocol), vectors_of(), dropouts={HOLDER: 0})
        assert caught.value.missing == (HOLDER,)
        server, _ = run_to(protocol, MessageType.DECRYPTED_SUM)
        assert server.waiting_for == {HOLDER}
        with pytest.raises(HelperMissingError):
            server.close_round()
        assert server.result is None
        with pytest.raises(LocalProtocolError):
            server.close_round()

    @pytest.mark.parametrize("sent", range(4))
    def test_too_few_clients_release_nothing_and_the_key_holder_is_not_asked(
        self, protocol: MaskedSum, sent: int
    ) -> None:
        record: list[Envelope] = []
        with pytest.raises(TooFewSurvivorsError, match=f"{ROUNDS[sent]}: 2 of"):
            run_in_memory(everybody(protocol), vectors_of(), dropouts={3: sent, 8: sent}, record=record.append)
        assert all(e.recipient != HOLDER for e in record)

    @pytest.mark.parametrize("payload", ["short", "long", "a masked vector in the clear", "beyond the modulus"])
    def test_what_is_no_encrypted_vector_is_refused(self, protocol: MaskedSum, payload: str) -> None:
        server, uploads = run_to(protocol, MessageType.MASKED_INPUT)
        good = uploads[8][HEADER_BYTES:]
        bad = {
            "short": good[:-1],
            "long": good + b"\0",
            "a masked vector in the clear": bytes(LAYOUT.wire_bytes),
            "beyond the modulus": b"\xff" * len(good),
        }[payload]
        with pytest.raises(MalformedMessageError, match="party 8"):
            server.receive(8, framed(protocol, MessageType.MASKED_INPUT, bad, sender=8))
        assert server.waiting_for == frozenset(CLIENTS)
        for party, message in uploads.items():
            server.receive(party, message)

    def test_a_copied_upload_is_refused(self, protocol: MaskedSum) -> None:
        server, uploads = run_to(protocol, MessageType.MASKED_INPUT)
        server.receive(3, uploads[3])
        with pytest.raises(MalformedMessageError, match="party 8: these ciphertexts are a copy"):
            server.receive(8, framed(protocol, MessageType.MASKED_INPUT, uploads[3][HEADER_BYTES:], sender=8))

    def test_a_key_holder_that_lies_gives_no_total(self, protocol: MaskedSum) -> None:
        server, _ = run_to(protocol, MessageType.DECRYPTED_SUM)
        with pytest.raises(RemoteProtocolError):
            server.receive(HOLDER, framed(protocol, MessageType.DECRYPTED_SUM, b"\0", sender=HOLDER))
        lie = framed(protocol, MessageType.DECRYPTED_SUM, bytes(LAYOUT.wire_bytes), sender=HOLDER)
        server.receive(HOLDER, lie)
        with pytest.raises(SumOutOfBoundsError, match=r"masks did not cancel, or other ciphertexts were decrypted"):
            server.close_round()
        assert server.result is None

    def test_only_the_key_holder_may_answer_for_it(self, protocol: MaskedSum) -> None:
        server, answers = run_to(protocol, MessageType.DECRYPTED_SUM)
        with pytest.raises(RemoteProtocolError, match="stranger or dropped out"):
            server.receive(8, framed(protocol, MessageType.DECRYPTED_SUM, answers[HOLDER][HEADER_BYTES:], sender=8))
        server.receive(HOLDER, answers[HOLDER])
        assert server.close_round() == {}
        assert isinstance(server, MaskedServer)
        assert server.result is not None

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"key_holder": 3}, "no client's"),
            ({"key_holder": 0}, "no client's"),
            ({"threshold": 2}, "more than half"),
            ({"public_context": b"nonsense"}, "no TenSEAL context"),
            ({"clients": (3, 8, 9, 40, 41)}, "4 clients, not of 5"),
        ],
    )
    def test_bad_public_parameters_are_refused(
        self, protocol: MaskedSum, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            changed(protocol, **changes)

    def test_parameters_for_narrower_sums_are_refused(self) -> None:
        narrow = choose_parameters(Layout.of([("s", 4, 5)]), 4, scheme="bfv", masked=True)
        with pytest.raises(ConfigurationError, match="not of 40"):
            encrypted(
                MaskedSum(layout=LAYOUT, clients=tuple(range(2, 42)), session_id=SESSION), "bfv", parameters=narrow
            )

    @pytest.mark.parametrize("changes", [{"threshold": 4}, {"key_holder": 2}, {"context": b"x"}])
    def test_every_public_parameter_is_in_the_digest(self, protocol: MaskedSum, changes: dict[str, Any]) -> None:
        assert changed(protocol, **changes).digest != protocol.digest
        assert protocol.digest != MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION, threshold=3).digest

    def test_a_clients_policy_sees_a_masked_sum(self, protocol: MaskedSum) -> None:
        ClientPolicy(modes=frozenset({protocol.name})).check(protocol)
        with pytest.raises(Exception, match="takes part in masked only"):
            ClientPolicy().check(protocol)
        with pytest.raises(Exception, match="colluding clients"):
            ClientPolicy(modes=frozenset({protocol.name}), min_corruption=0.9).check(protocol)


def framed(protocol: Any, type_: MessageType, payload: bytes, *, sender: int) -> bytes:
    return seal_frame(type_, payload, digest=protocol.digest, sender=sender, recipient=SERVER)


def decrypt_as_if_it_were_the_sum(parties: InOneProcess, ciphertexts: bytes) -> RingVector:
    """What a lying server learns from an honest key holder: it names the whole cohort, and hands over one client."""
    protocol: Any = parties.protocol
    request = write_request(CLIENTS, ciphertexts)
    message = seal_frame(
        MessageType.DECRYPTION_REQUEST,
        request,
        digest=protocol.digest,
        sender=SERVER,
        recipient=protocol.carrier.key_holder,
    )
    answer = parties.helper(protocol.carrier.key_holder).receive(message)
    assert answer is not None
    frame = open_frame(answer, digest=protocol.digest, sender=protocol.carrier.key_holder, recipient=SERVER)
    return read_words(Reader(frame.payload, peer=protocol.carrier.key_holder), LAYOUT)


class Watched(Encrypted):
    """Encrypts as ever, and keeps what it was given."""

    seen: ClassVar[list[bytes]] = []

    def encode(self, vector: RingVector, config: Any) -> bytes:
        self.seen.append(vector.to_bytes())
        return Encrypted.encode(self, vector, config)


def masked_vector_of(protocol: MaskedSum, party: int, vector: IntVector | None = None, seed: int = 0) -> bytes:
    """The words of a client right before they are encrypted, in the run of ``run_to`` (for ``seed`` 0)."""
    seen = Watched.seen
    seen.clear()
    vectors = vectors_of() | ({} if vector is None else {party: vector})
    server = protocol.server()
    sessions: Mapping[int, Any] = {
        p: protocol.client(p, vectors[p], entropy=InsecureSeededEntropy(p + (seed << 32))) for p in CLIENTS
    }
    watched = replace(
        protocol, carrier=Watched(**{f.name: getattr(protocol.carrier, f.name) for f in fields(Encrypted)})
    )
    sessions[party]._config = watched
    answers = {p: session.start() for p, session in sessions.items()}
    while not seen:
        for p, answer in answers.items():
            server.receive(p, answer)
        answers = {p: sessions[p].receive(request) for p, request in server.close_round().items()}
    return seen[0]
