"""Encrypted sums as protocols: exact, one message a client, no key at the server, one decryption, named refusals."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secagg import InOneProcess, IntVector, Layout, PartySecrets, PlainSum, run_in_memory
from secagg.carriers import KeyHolder, choose_parameters, encrypted, generate_contexts
from secagg.carriers.key_holder import KeyHolderState
from secagg.carriers.parameters import Scheme
from secagg.carriers.seal import tenseal
from secagg.config import SERVER
from secagg.errors import (
    ConfigurationError,
    HelperMissingError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
    RepeatedMessageError,
    SumOutOfBoundsError,
)
from secagg.in_memory import Envelope
from secagg.wire import HEADER_BYTES, MessageType, message_type, seal_frame, write_parties

sys.path.append(str(Path(__file__).parent))

from he_parts import HOLDER, LAYOUT, SESSION, changed, reachable_bytes, vectors_within

CLIENTS = (3, 8, 9, 40, 2**32 - 1)


@lru_cache
def parties_of(kind: Scheme) -> InOneProcess:
    """All parties of a sum over the fixed cohort."""
    return encrypted(PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION, min_survivors=3), kind)


def protocol_of(kind: Scheme) -> PlainSum:
    """The sum, which is public."""
    protocol = parties_of(kind).protocol
    assert isinstance(protocol, PlainSum)
    return protocol


def everybody(protocol: PlainSum) -> InOneProcess:
    """All parties of one of these sums."""
    return parties_of(protocol.carrier.parameters.scheme)


def secret_of(protocol: PlainSum) -> bytes:
    """What the key holder alone knows."""
    return everybody(protocol).secrets[protocol.carrier.key_holder].decryption


@pytest.fixture(params=["bfv", "ckks"])
def protocol(request: pytest.FixtureRequest) -> PlainSum:
    """Both schemes in turn."""
    return protocol_of(request.param)


def vectors_of(layout: Layout = LAYOUT, clients: tuple[int, ...] = CLIENTS, seed: int = 0) -> dict[int, IntVector]:
    return vectors_within(layout, clients, seed)


def key_holder(protocol: PlainSum) -> KeyHolder:
    """A fresh session of the key holder."""
    session = everybody(protocol).helper(protocol.carrier.key_holder)
    assert isinstance(session, KeyHolder)
    return session


def request_of(protocol: PlainSum, survivors: tuple[int, ...] = CLIENTS) -> bytes:
    """What the server asks the key holder after these clients' uploads."""
    server, vectors = protocol.server(), vectors_of()
    for party in survivors:
        message = protocol.client(party, vectors[party]).start()
        assert message is not None
        server.receive(party, message)
    return server.close_round()[protocol.carrier.key_holder]


def forged_request(protocol: PlainSum, survivors: Iterable[int], encrypted_sum: bytes) -> bytes:
    """A request that an honest server would not send."""
    return seal_frame(
        MessageType.DECRYPTION_REQUEST,
        write_parties(survivors) + encrypted_sum,
        digest=protocol.digest,
        sender=SERVER,
        recipient=protocol.carrier.key_holder,
    )


class TestExactness:
    def test_a_client_sends_one_message(self, protocol: PlainSum) -> None:
        sent: list[Envelope] = []
        run = run_in_memory(everybody(protocol), vectors_of(), record=sent.append)
        for party in CLIENTS:
            traffic = run.traffic[party]
            assert (traffic.messages_up, traffic.heavy_messages, traffic.messages_down) == (1, 1, 0)
            assert traffic.bytes_up == HEADER_BYTES + protocol.vector_bytes
        holder = run.traffic[protocol.carrier.key_holder]
        assert (holder.messages_up, holder.messages_down, holder.heavy_messages) == (1, 1, 0)
        assert holder.bytes_up == HEADER_BYTES + LAYOUT.wire_bytes
        assert [message_type(e.message) for e in sent[-2:]] == [
            MessageType.DECRYPTION_REQUEST,
            MessageType.DECRYPTED_SUM,
        ]


class TestKeys:
    def test_the_server_and_clients_hold_no_secret(self, protocol: PlainSum) -> None:
        for session in (protocol.server(), protocol.client(3, vectors_of()[3])):
            held = reachable_bytes(session)
            assert protocol.carrier.public_context in held
            assert secret_of(protocol) not in held
            contexts = [tenseal().context_from(data) for data in held if data == protocol.carrier.public_context]
            assert all(not context.is_private() and not context.has_secret_key() for context in contexts)

    def test_the_search_for_secrets_finds_the_key_holders(self, protocol: PlainSum) -> None:
        holder = key_holder(protocol)
        assert secret_of(protocol) in reachable_bytes(holder)

    def test_the_key_holder_forgets_its_key_when_it_is_done(self, protocol: PlainSum) -> None:
        holder = key_holder(protocol)
        holder.receive(request_of(protocol))
        assert holder.state is KeyHolderState.DONE
        assert secret_of(protocol) not in reachable_bytes(holder)

    def test_whoever_is_not_the_key_holder_makes_no_session_of_its(self, protocol: PlainSum) -> None:
        with pytest.raises(ConfigurationError, match=f"party {HOLDER}, is not here"):
            protocol.helper(HOLDER)
        with pytest.raises(ConfigurationError, match="party 2 does not hold this sum's key"):
            protocol.helper(2, secrets=PartySecrets(decryption=secret_of(protocol)))

    def test_contexts_in_the_wrong_place_get_no_session(self, protocol: PlainSum) -> None:
        with pytest.raises(ConfigurationError, match="public context is needed and this one holds the secret key"):
            changed(protocol, public_context=secret_of(protocol))
        with pytest.raises(ConfigurationError, match="secret context is needed to decrypt and this one is public"):
            protocol.helper(HOLDER, secrets=PartySecrets(decryption=protocol.carrier.public_context))

    def test_secrets_do_not_print(self, protocol: PlainSum) -> None:
        text = repr(everybody(protocol)) + repr(key_holder(protocol)) + protocol.explain()
        assert "secret_context" not in text
        assert repr(secret_of(protocol))[2:60] not in text
        assert len(text) < 3000

    def test_another_public_key_is_another_session(self, protocol: PlainSum) -> None:
        keys = generate_contexts(protocol.carrier.parameters)
        other = changed(protocol, public_context=keys.public_context)
        assert other.digest != protocol.digest
        message = other.client(3, vectors_of()[3]).start()
        assert message is not None
        with pytest.raises(MalformedMessageError, match="another session or another configuration"):
            protocol.server().receive(3, message)


class TestServer:
    def test_replayed_and_copied_uploads_are_refused(self, protocol: PlainSum) -> None:
        server = protocol.server()
        message = protocol.client(3, vectors_of()[3]).start()
        assert message is not None
        server.receive(3, message)
        with pytest.raises(RepeatedMessageError):
            server.receive(3, message)
        copied = seal_frame(
            MessageType.ENCRYPTED_INPUT, message[HEADER_BYTES:], digest=protocol.digest, sender=8, recipient=SERVER
        )
        with pytest.raises(MalformedMessageError, match="party 8: these ciphertexts are a copy"):
            server.receive(8, copied)
        assert server.waiting_for == frozenset(CLIENTS) - {3}

    @pytest.mark.parametrize("change", ["short", "long", "empty", "beyond", "another layout's"])
    def test_what_is_no_encrypted_vector_is_refused(self, protocol: PlainSum, change: str) -> None:
        size = protocol.vector_bytes
        payload = {
            "short": bytes(size - 1),
            "long": bytes(size + 1),
            "empty": b"",
            "beyond": b"\xff" * size,
            "another layout's": bytes(size + protocol.carrier.parameters.ciphertext_bytes),
        }[change]
        server = protocol.server()
        message = seal_frame(MessageType.ENCRYPTED_INPUT, payload, digest=protocol.digest, sender=3, recipient=SERVER)
        with pytest.raises(MalformedMessageError, match="party 3"):
            server.receive(3, message)
        assert server.waiting_for == frozenset(CLIENTS)

    @given(data=st.binary(max_size=64), place=st.integers(0, 2**31))
    @settings(max_examples=25)
    def test_mutated_uploads_never_crash_and_never_give_a_wrong_sum(self, data: bytes, place: int) -> None:
        """A changed upload is refused by server or key holder, or its total is: ciphertexts are malleable, but bytes
        changed at random make noise of the wrong size or a message far out of bounds.
        """
        for kind in ("bfv", "ckks"):
            protocol, server = protocol_of(kind), protocol_of(kind).server()
            for party, message in sorted(uploads_of(kind).items()):
                if party == 3:
                    at = place % len(message)
                    changed = message[:at] + data + message[at + len(data) :]
                    if changed == message:
                        return
                    message = changed
                try:
                    server.receive(party, message)
                except RemoteProtocolError:
                    assert party == 3
            request = server.close_round()[HOLDER]
            try:
                server.receive(HOLDER, key_holder(protocol).receive(request))
            except RemoteProtocolError:
                with pytest.raises(HelperMissingError):
                    server.close_round()
                continue
            try:
                server.close_round()
            except SumOutOfBoundsError:
                assert server.result is None
                continue
            assert server.result is not None
            total = sum(vectors_of()[party] for party in server.result.survivors)
            # It was left out, or the change was so small that it rounds away.
            assert server.result.total.tobytes() == total.tobytes()

    def test_without_the_key_holder_nothing_is_released_and_the_error_names_it(self, protocol: PlainSum) -> None:
        with pytest.raises(HelperMissingError) as caught:
            run_in_memory(everybody(protocol), vectors_of(), dropouts={protocol.carrier.key_holder: 0})
        assert caught.value.missing == (protocol.carrier.key_holder,)

    def test_it_waits_for_clients_and_then_the_key_holder(self, protocol: PlainSum) -> None:
        server = protocol.server()
        assert server.waiting_for == frozenset(CLIENTS)
        for party, message in uploads_of(protocol.carrier.parameters.scheme).items():
            server.receive(party, message)
        server.close_round()
        assert server.waiting_for == {protocol.carrier.key_holder}
        assert server.result is None
        with pytest.raises(RemoteProtocolError):
            server.receive(3, uploads_of(protocol.carrier.parameters.scheme)[3])
        with pytest.raises(HelperMissingError):
            server.close_round()
        assert server.waiting_for == frozenset()
        with pytest.raises(LocalProtocolError, match="over"):
            server.close_round()

    def test_a_total_beyond_its_bound_is_not_released(self, protocol: PlainSum) -> None:
        server = protocol.server()
        for party, message in uploads_of(protocol.carrier.parameters.scheme).items():
            server.receive(party, message)
        server.close_round()
        lie = seal_frame(
            MessageType.DECRYPTED_SUM,
            b"\x7f" * LAYOUT.wire_bytes,
            digest=protocol.digest,
            sender=HOLDER,
            recipient=SERVER,
        )
        server.receive(HOLDER, lie)
        with pytest.raises(SumOutOfBoundsError):
            server.close_round()
        assert server.result is None


class TestKeyHolder:
    def test_it_decrypts_once(self, protocol: PlainSum) -> None:
        holder, request = key_holder(protocol), request_of(protocol)
        assert holder.start() is None
        holder.receive(request)
        with pytest.raises(RepeatedMessageError, match="decrypted once"):
            holder.receive(request)
        with pytest.raises(LocalProtocolError, match="forgotten its key"):
            holder.receive(request_of(protocol, CLIENTS[:3]))
        assert holder.state is KeyHolderState.DONE

    def test_its_error_is_below_the_proven_bound(self, protocol: PlainSum) -> None:
        holder = key_holder(protocol)
        holder.receive(request_of(protocol))
        assert holder.error is not None
        print(f"{protocol.name}: observed {holder.error:.2e}, proven {protocol.carrier.parameters.error_bound:.2e}")
        # SEAL tells the BFV noise budget in whole bits.
        assert 0 < holder.error <= protocol.carrier.parameters.error_bound * (2 if protocol.name == "bfv" else 1)
        assert protocol.carrier.parameters.error_bound < 0.5

    @pytest.mark.parametrize(
        ("survivors", "message"),
        [((3, 8), "at least 3 clients and the server names 2"), ((), "names 0"), ((3, 4, 8, 9), "1 survivors are not")],
    )
    def test_it_refuses_sums_of_too_few_or_strangers(
        self, protocol: PlainSum, survivors: tuple[int, ...], message: str
    ) -> None:
        holder = key_holder(protocol)
        encrypted = request_of(protocol)[-protocol.vector_bytes :]
        with pytest.raises(RemoteProtocolError, match=message):
            holder.receive(forged_request(protocol, survivors, encrypted))
        assert holder.state is KeyHolderState.ABORTED
        with pytest.raises(LocalProtocolError, match="aborted"):
            holder.receive(request_of(protocol))

    def test_its_own_minimum_counts_not_the_servers(self, protocol: PlainSum) -> None:
        holder = KeyHolder(
            protocol,
            party=protocol.carrier.key_holder,
            cipher=protocol.carrier.cipher(protocol),
            survivors_needed=4,
            secrets=PartySecrets(decryption=secret_of(protocol)),
        )
        with pytest.raises(RemoteProtocolError, match="at least 4 clients and the server names 3"):
            holder.receive(request_of(protocol, CLIENTS[:3]))

    def test_sums_that_are_none_are_refused(self, protocol: PlainSum) -> None:
        size = protocol.vector_bytes
        rng = np.random.default_rng(0)
        noise = protocol.carrier.cipher(protocol).empty_sum()
        for party in CLIENTS:
            del party
            noise.add(random_upload(protocol, rng))
        for forged in (b"", bytes(size + 1), b"\xff" * size, noise.to_bytes()):
            holder = key_holder(protocol)
            with pytest.raises(RemoteProtocolError):
                holder.receive(forged_request(protocol, CLIENTS, forged))
            assert holder.state is KeyHolderState.ABORTED

    @given(st.binary(max_size=200))
    def test_foreign_bytes_change_nothing(self, message: bytes) -> None:
        holder = key_holder(protocol_of("bfv"))
        with pytest.raises(MalformedMessageError):
            holder.receive(message)
        assert holder.state is KeyHolderState.WAITING

    def test_other_messages_end_it(self, protocol: PlainSum) -> None:
        holder = key_holder(protocol)
        other = seal_frame(
            MessageType.ROSTER, b"", digest=protocol.digest, sender=SERVER, recipient=protocol.carrier.key_holder
        )
        with pytest.raises(RemoteProtocolError, match="DECRYPTION_REQUEST is due, ROSTER came"):
            holder.receive(other)
        assert holder.state is KeyHolderState.ABORTED


class TestConfiguration:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"key_holder": 3}, "no client's"),
            ({"key_holder": 0}, "no client's"),
            ({"key_holder": 2**32}, "no client's"),
            ({"min_survivors": 1}, "2 to the cohort's 5"),
            ({"min_survivors": 6}, "2 to the cohort's 5"),
            ({"clients": (7,)}, "a sum needs at least 2 clients, not 1"),
            ({"clients": (3, 8, 9, 40, 41, 42)}, "5 clients, not of 6"),
            ({"public_context": b"nonsense"}, "no TenSEAL context"),
        ],
    )
    def test_bad_public_parameters_are_refused(
        self, protocol: PlainSum, changes: dict[str, object], message: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            changed(protocol, **changes)

    def test_a_total_bound_beyond_the_parameters_is_refused(self) -> None:
        narrow = choose_parameters(Layout.of([("s", 10, 20)]), 5, scheme="ckks")
        with pytest.raises(ConfigurationError, match="do not fit slots"):
            encrypted(
                PlainSum(layout=Layout.of([("s", 10, 2**60)]), clients=CLIENTS, session_id=SESSION),
                parameters=replace(narrow, slot_bound=2, slot_load=5),
            )

    def test_the_scheme_must_be_the_modes(self) -> None:
        parameters = choose_parameters(LAYOUT, 5, scheme="ckks")
        with pytest.raises(ConfigurationError, match="bfv parameters are needed, not ckks"):
            encrypted(PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION), "bfv", parameters=parameters)

    @pytest.mark.parametrize(
        "changes", [{"min_survivors": 4}, {"key_holder": 2}, {"context": b"x"}, {"session_id": bytes(16)}]
    )
    def test_every_public_parameter_is_in_the_digest(self, protocol: PlainSum, changes: dict[str, object]) -> None:
        assert changed(protocol, **changes).digest != protocol.digest

    def test_the_explanation_says_what_the_key_holder_sees(self) -> None:
        assert "the key holder decrypts the total only" in protocol_of("bfv").explain()
        assert "how often its limbs carried" in protocol_of("ckks").explain()


@lru_cache
def uploads_of(kind: Scheme) -> dict[int, bytes]:
    """Each client's message, made once."""
    vectors, uploads = vectors_of(), {}
    for party in CLIENTS:
        message = protocol_of(kind).client(party, vectors[party]).start()
        assert message is not None
        uploads[party] = message
    return uploads


def random_upload(protocol: PlainSum, rng: np.random.Generator) -> bytes:
    """Uniform residues in the form of an upload."""
    from secagg.carriers.residues import pack

    parameters = protocol.carrier.parameters
    return b"".join(
        pack(
            np.stack([rng.integers(0, p, (2, parameters.degree), dtype=np.uint64) for p in parameters.primes], axis=1),
            parameters,
        )
        for _ in range(protocol.carrier.cipher(protocol).n_ciphertexts)
    )
