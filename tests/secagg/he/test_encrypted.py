"""Encrypted sums, with masks under the ciphertexts and without: who holds which key, who sees what, one decryption."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from support.by_hand import ByHand, forged
from support.extras import needs
from support.parties import key_of, signed

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
from secagg.encryption import Encrypted, choose_parameters, encrypted, generate_contexts
from secagg.encryption.cipher import pack
from secagg.encryption.key_holder import KeyHolder, KeyHolderState, read_words, write_request
from secagg.encryption.seal import tenseal
from secagg.errors import (
    ConfigurationError,
    HelperMissingError,
    LocalProtocolError,
    RemoteProtocolError,
    RepeatedMessageError,
    SumOutOfBoundsError,
)
from secagg.ring import RingVector
from secagg.wire import HEADER_BYTES, MessageType, Reader

sys.path.append(str(Path(__file__).parent))

from he_parts import changed, reachable_bytes

needs("tenseal")

LAYOUT = Layout.of([("gram", 60, 2**40), ("cross", 20, 1000), ("count", 1, 2**17)])
SESSION: dict[str, Any] = {"layout": LAYOUT, "clients": (3, 8, 9, 40), "session_id": bytes(range(16))}
CLIENTS, HOLDER = SESSION["clients"], 1
ONE_MESSAGE, MASKED = ("bfv", "ckks"), ("masked+bfv", "masked+ckks")


def vectors_of(clients: tuple[int, ...] = CLIENTS) -> dict[int, IntVector]:
    """Vectors within each client's share of the bounds, with extremes."""
    share = np.concatenate([np.full(s.size, s.bound // len(clients), dtype=np.int64) for s in LAYOUT.segments])
    rng = np.random.default_rng(0)
    vectors = {party: rng.integers(-share, share, endpoint=True) for party in clients}
    return vectors | {clients[0]: share, clients[-1]: -share}


@lru_cache
def parties_of(kind: Any) -> InOneProcess:
    """All parties of a sum over the fixed cohort; keys are the operating system's, so it is made once."""
    alone = MaskedSum(**SESSION, threshold=3) if kind in MASKED else PlainSum(**SESSION, min_survivors=3)
    return encrypted(alone, kind.removeprefix("masked+"))


def protocol_of(kind: str) -> Any:
    """The sum, which is public."""
    return parties_of(kind).protocol


def secret_of(kind: str) -> bytes:
    """What the key holder alone knows."""
    return parties_of(kind).secrets[HOLDER].decryption


def begin(kind: str, clients: tuple[int, ...] = CLIENTS, **options: Any) -> ByHand:
    """The sum of these clients, by hand."""
    vectors = {party: vector for party, vector in vectors_of().items() if party in clients}
    return ByHand(parties_of(kind), vectors, entropy=InsecureSeededEntropy, **options)


@pytest.fixture(params=[*ONE_MESSAGE, *MASKED])
def kind(request: pytest.FixtureRequest) -> str:
    """Every encrypted mode in turn."""
    return str(request.param)


each_masked, each_one_message = (pytest.mark.parametrize("kind", kinds) for kinds in (MASKED, ONE_MESSAGE))


# Exactness and cost


@each_masked
def test_identities_sign_as_in_a_masked_sum(kind: str) -> None:
    alone, scheme = signed(InOneProcess(protocol=MaskedSum(**SESSION, threshold=3))), kind.removeprefix("masked+")
    with pytest.raises(ConfigurationError, match="give an identity of each helper too"):
        encrypted(alone.protocol, scheme)  # type: ignore[arg-type]
    carried = encrypted(alone.protocol, scheme, identity=key_of(HOLDER))  # type: ignore[arg-type]
    everyone = replace(carried, secrets={**alone.secrets, **carried.secrets})
    run = run_in_memory(everyone, vectors_of(), dropouts={9: 4})
    assert run.result.total.tobytes() == sum(vectors_of().values()).tobytes()
    assert "MALICIOUS SERVER" in carried.protocol.explain()


@each_masked
def test_a_sparse_graph_serves_as_well(kind: str) -> None:
    clients = tuple(range(2, 42))
    planned = MaskedSum.planned(
        **SESSION | {"clients": clients},
        assumptions=Assumptions(corruption=0.05, dropout=0.05, security_bits=20, correctness_bits=10),
        graph_seed=bytes(16),
    )
    parties, vectors = encrypted(planned, kind.removeprefix("masked+")), vectors_of(clients)  # type: ignore[arg-type]
    protocol = parties.protocol
    assert isinstance(protocol, MaskedSum)
    assert (protocol.degree, protocol.survivors_needed) == (planned.degree, planned.survivors_needed)
    assert planned.degree is not None
    run = run_in_memory(parties, vectors, dropouts={7: 2, 20: 3})
    assert run.result.survivors == tuple(party for party in clients if party != 7)
    assert run.result.total.tobytes() == sum(vectors[party] for party in run.result.survivors).tobytes()


# Keys


def test_the_server_and_clients_hold_no_secret(kind: str) -> None:
    hand, protocol = begin(kind), protocol_of(kind)
    hand.to_server()
    for session in (hand.server, hand.sessions[3]):
        held = reachable_bytes(session)
        assert protocol.encoder.public_context in held
        assert secret_of(kind) not in held
    context = tenseal().context_from(protocol.encoder.public_context)
    assert not context.is_private()
    assert not context.has_secret_key()


def test_secrets_do_not_print(kind: str) -> None:
    text = repr(parties_of(kind)) + repr(parties_of(kind).helper(HOLDER)) + protocol_of(kind).explain()
    assert "secret_context" not in text
    assert repr(secret_of(kind))[2:60] not in text
    assert len(text) < 3500


# Who sees what


def decrypt_as_if_it_were_the_sum(kind: str, ciphertexts: bytes) -> RingVector:
    """What a lying server learns from an honest key holder: it names the whole cohort, and hands over one client."""
    hand = begin(kind)
    asking = hand.framed(MessageType.DECRYPTION_REQUEST, write_request(CLIENTS, ciphertexts), HOLDER)
    answer = hand.sessions[HOLDER].receive(asking)
    return read_words(Reader(memoryview(answer)[HEADER_BYTES:], peer=HOLDER), LAYOUT)


@each_one_message
def test_a_lying_server_gets_a_single_vector_decrypted_where_there_are_no_masks(kind: str) -> None:
    """Why plain ``ckks`` and ``bfv`` need a semi-honest server; the attack that the next test meets."""
    assert "SEMI-HONEST" in protocol_of(kind).explain()
    stolen = decrypt_as_if_it_were_the_sum(kind, begin(kind).said[8][HEADER_BYTES:])
    assert stolen.decode().tobytes() == vectors_of()[8].tobytes()


class Watched(Encrypted):
    """Encrypts as ever, and keeps what it was given."""

    seen: ClassVar[list[bytes]] = []

    def encrypt(self, words: RingVector, config: Any) -> Iterable[bytes]:
        self.seen.append(words.to_bytes())
        return Encrypted.encrypt(self, words, config)


def masked_vector(kind: str, vector: IntVector, seed: int = 0) -> bytes:
    """Client 8's words right before they are encrypted; for seed 0 in the very run that ``begin`` gives."""
    vectors = vectors_of() | {8: vector}
    hand = ByHand(parties_of(kind), vectors, entropy=lambda party: InsecureSeededEntropy(party + (seed << 32)))
    encoder = Watched(**{f.name: getattr(hand.config.encoder, f.name) for f in fields(Encrypted)})
    hand.sessions[8]._config = replace(hand.config, encoder=encoder)
    Watched.seen.clear()
    hand.until(MessageType.MASKED_INPUT)
    return Watched.seen[0]


@each_masked
def test_a_lying_server_gets_a_masked_vector_where_there_are(kind: str) -> None:
    """Key holder and server together then see exactly what the server of a masked sum sees: the masked vector."""
    stolen = decrypt_as_if_it_were_the_sum(kind, begin(kind).until(MessageType.MASKED_INPUT)[8][HEADER_BYTES:])
    assert stolen.to_bytes() == masked_vector(kind, vectors_of()[8])
    clear = RingVector.encode(LAYOUT, vectors_of()[8]).to_bytes()
    equal = sum(one == other for one, other in zip(stolen.to_bytes(), clear, strict=True))
    assert equal < len(clear) // 16  # by chance one byte in 256
    with pytest.raises(SumOutOfBoundsError):
        stolen.decode()


@each_masked
def test_what_the_key_holder_decrypts_is_not_the_total(kind: str) -> None:
    decrypted = begin(kind).until(MessageType.DECRYPTED_SUM)[HOLDER][HEADER_BYTES:]
    total = RingVector.encode(LAYOUT, sum(vectors_of().values())).to_bytes()
    assert sum(one == other for one, other in zip(decrypted, total, strict=True)) < len(total) // 16


@each_masked
def test_the_words_that_are_encrypted_look_the_same_whatever_the_vector_is(kind: str) -> None:
    """H0: the bytes of an all-zero vector's masked words are uniform.

    Statistic: their mean, of exact moments 127.5 and (256^2 - 1) / 12; n = 4030 bytes; alpha = 6e-7 (5 standard
    deviations, two-sided). The twin, words without masks, is rejected.
    """

    def deviation(words: bytes) -> float:
        return float(abs(sum(words) - 127.5 * len(words)) / ((256**2 - 1) / 12 * len(words)) ** 0.5)

    zero = np.zeros(LAYOUT.size, dtype=np.int64)
    words = b"".join(masked_vector(kind, zero, seed) for seed in range(10))
    assert len(words) == 10 * LAYOUT.wire_bytes
    assert deviation(words) < 5
    assert deviation(bytes(len(words))) > 5


# Refusals at the server


def test_without_the_key_holder_nothing_is_released_and_the_error_names_it(kind: str) -> None:
    hand = begin(kind)
    hand.until(MessageType.DECRYPTION_REQUEST)
    assert hand.server.waiting_for == {HOLDER}
    with pytest.raises(HelperMissingError) as caught:
        hand.server.close_round()
    assert caught.value.missing == (HOLDER,)
    assert hand.server.waiting_for == frozenset()
    assert hand.server.result is None
    with pytest.raises(LocalProtocolError, match="over"):
        hand.server.close_round()


def test_a_key_holder_that_lies_gives_no_total(kind: str) -> None:
    hand = begin(kind)
    said = hand.until(MessageType.DECRYPTED_SUM)
    said[HOLDER] = forged(said[HOLDER], b"\x7f" * LAYOUT.wire_bytes)
    with pytest.raises(SumOutOfBoundsError):
        hand.to_server()
    assert hand.server.result is None


# The key holder


def test_it_decrypts_once(kind: str) -> None:
    hand, other = begin(kind), begin(kind, CLIENTS[:3])
    request = hand.until(MessageType.DECRYPTION_REQUEST)[HOLDER]
    holder = hand.sessions[HOLDER]
    assert holder.start() is None
    holder.receive(request)
    with pytest.raises(RepeatedMessageError, match="decrypted once"):
        holder.receive(request)
    with pytest.raises(LocalProtocolError, match="forgotten its key"):
        holder.receive(other.until(MessageType.DECRYPTION_REQUEST)[HOLDER])
    assert holder.state is KeyHolderState.DONE
    bound = protocol_of(kind).encoder.parameters.error_bound
    assert 0 < holder.error <= bound * (2 if "bfv" in kind else 1)  # SEAL tells the BFV noise budget in whole bits


@each_one_message
def test_its_own_minimum_counts_not_the_servers(kind: str) -> None:
    protocol = protocol_of(kind)
    cipher = protocol.encoder.cipher(protocol)
    holder = KeyHolder(
        protocol, party=HOLDER, cipher=cipher, survivors_needed=4, secrets=parties_of(kind).secrets[HOLDER]
    )
    with pytest.raises(RemoteProtocolError, match="at least 4 clients and the server names 3"):
        holder.receive(begin(kind, CLIENTS[:3]).until(MessageType.DECRYPTION_REQUEST)[HOLDER])


def test_a_sum_of_noise_and_a_message_of_another_type_end_it(kind: str) -> None:
    hand, parameters = begin(kind), protocol_of(kind).encoder.parameters
    rng, cipher = np.random.default_rng(0), hand.config.encoder.cipher(hand.config)
    noise = cipher.empty_sum()
    for _ in CLIENTS:
        residues = [
            np.stack([rng.integers(0, p, (2, parameters.degree), dtype=np.uint64) for p in parameters.primes], axis=1)
            for _ in range(cipher.n_ciphertexts)
        ]
        noise.add(b"".join(pack(one, parameters) for one in residues))
    wrong = hand.framed(MessageType.DECRYPTION_REQUEST, write_request(CLIENTS, noise.to_bytes()), HOLDER)
    for message, told in ((wrong, "."), (hand.framed(MessageType.MASK_REQUEST, b"", HOLDER), "DECRYPTION_REQUEST is")):
        holder: Any = parties_of(kind).helper(HOLDER)
        with pytest.raises(RemoteProtocolError, match=told):
            holder.receive(message)
        assert holder.state is KeyHolderState.ABORTED


# Configuration


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key_holder": 3}, "no client's"),
        ({"key_holder": 0}, "no client's"),
        ({"key_holder": 2**32}, "no client's"),
        ({"public_context": b"nonsense"}, "no TenSEAL context"),
        ({"clients": (3, 8, 9, 40, 41)}, "4 clients, not of 5"),
    ],
)
def test_bad_public_parameters_are_refused(kind: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        changed(protocol_of(kind), **changes)


@each_one_message
@pytest.mark.parametrize("min_survivors", [1, 5])
def test_a_minimum_is_two_to_the_cohort_s_size(kind: str, min_survivors: int) -> None:
    with pytest.raises(ConfigurationError, match="2 to the cohort's 4"):
        changed(protocol_of(kind), min_survivors=min_survivors)
    with pytest.raises(ConfigurationError, match="at least 2 clients"):
        changed(protocol_of(kind), clients=(3,))


def test_parameters_for_another_sum_are_refused() -> None:
    small = choose_parameters(Layout.of([("s", 4, 5)]), 4, scheme="bfv", masked=True)
    with pytest.raises(ConfigurationError, match="not of 40"):
        encrypted(MaskedSum(**SESSION | {"clients": tuple(range(2, 42))}), "bfv", parameters=small)
    narrow = choose_parameters(Layout.of([("s", 10, 20)]), 4, scheme="ckks")
    with pytest.raises(ConfigurationError, match="do not fit slots"):
        encrypted(
            PlainSum(**SESSION | {"layout": Layout.of([("s", 10, 2**60)])}),
            parameters=replace(narrow, slot_bound=2, slot_load=5),
        )
    with pytest.raises(ConfigurationError, match="bfv parameters are needed, not ckks"):
        encrypted(PlainSum(**SESSION), "bfv", parameters=choose_parameters(LAYOUT, 4, scheme="ckks"))


def test_every_public_parameter_is_in_the_digest(kind: str) -> None:
    protocol = protocol_of(kind)
    needed = {"threshold": 4} if kind in MASKED else {"min_survivors": 4}
    key = {"public_context": generate_contexts(protocol.encoder.parameters).public_context}
    for changes in (needed, key, {"key_holder": 2}, {"context": b"x"}, {"session_id": bytes(16)}):
        assert changed(protocol, **changes).digest != protocol.digest
    assert protocol.digest != MaskedSum(**SESSION, threshold=3).digest
