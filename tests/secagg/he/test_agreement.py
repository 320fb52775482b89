"""A key holder agrees to survivors before it sees their sum, or certifies that it will never see one: one of both."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from support.extras import needs

from secagg import InOneProcess, Layout, PlainSum, SignedBy, run_in_memory
from secagg.config import SERVER
from secagg.encryption import encrypted
from secagg.encryption.key_holder import KeyHolder, KeyHolderState
from secagg.errors import (
    ConsentRefusedError,
    HelperMissingError,
    LocalProtocolError,
    MalformedMessageError,
    RemoteProtocolError,
)
from secagg.primitives.identity import IdentityKey
from secagg.receipted_sum import ReceiptedSum
from secagg.sums import PartySecrets
from secagg.wire import MessageType, message_type, seal_frame, write_parties

needs("tenseal")

CLIENTS, HOLDER = (1, 2, 3, 4, 5), 6
LAYOUT = Layout.of([("s", 5, 100)])
KEYS = {party: IdentityKey(bytes([party]) * 32) for party in (SERVER, *CLIENTS, HOLDER)}


@lru_cache
def parties(session: int = 0, *, signs: bool = True) -> InOneProcess:
    names: dict[str, Any] = {}
    if signs:
        names = {"identities": tuple(KEYS[party].public for party in CLIENTS), "server_identity": KEYS[SERVER].public}
    alone = PlainSum(layout=LAYOUT, clients=CLIENTS, session_id=bytes([session]) * 16, min_survivors=3, **names)
    made = encrypted(alone, "bfv", key_holder=HOLDER, identity=KEYS[HOLDER] if signs else None)
    own = {party: PartySecrets(identity=key) for party, key in KEYS.items()} if signs else {}
    return replace(made, secrets={**own, **made.secrets})


class Run:
    """A sum whose clients sent their vectors, but those who are away, and a key holder that may refuse survivors."""

    def __init__(self, *away: int, refused: tuple[int, ...] = ()) -> None:
        self.of, self.refused = parties(), refused
        self.config: Any = self.of.protocol
        self.server = self.config.server(secrets=self.of.secrets[SERVER])
        for party in CLIENTS:
            if party not in away:
                client = self.config.client(party, np.full(5, party), secrets=self.of.secrets[party])
                self.server.receive(party, client.start())
        secrets = replace(self.of.secrets[HOLDER], consent=self._consent)
        self.holder: KeyHolder = self.config.helper(HOLDER, secrets=secrets)

    def _consent(self, protocol: Any, survivors: Any, rows: Any) -> None:
        if survivors == self.refused:
            raise ConsentRefusedError("its query log refuses")

    def asks(self, *survivors: int) -> bytes:
        return self.says(MessageType.SURVIVOR_SET, write_parties(survivors))

    def says(self, type_: MessageType, payload: bytes) -> bytes:
        return seal_frame(
            type_, payload, digest=self.config.digest, sender=SERVER, recipient=HOLDER, identity=KEYS[SERVER]
        )

    def closes(self) -> bytes:
        (message,) = self.server.close_round().values()
        return bytes(message)


def test_it_agrees_first_and_then_decrypts_that_sum() -> None:
    run = Run(2)
    asked = run.closes()
    assert message_type(asked) is MessageType.SURVIVOR_SET
    run.server.receive(HOLDER, run.holder.receive(asked))
    with pytest.raises(RemoteProtocolError, match="agreed to other survivors"):
        run.holder.receive(run.asks(*CLIENTS))
    run.server.receive(HOLDER, run.holder.receive(run.closes()))
    run.server.close_round()
    assert run.server.result.total.tolist() == [1 + 3 + 4 + 5] * 5
    assert run.server.result.survivors == (1, 3, 4, 5)
    with pytest.raises(LocalProtocolError, match="done and has forgotten its key"):
        run.holder.receive(run.asks())  # it decrypted a sum, so it certifies no failure


def test_survivors_that_it_refuses_are_certified_to_have_no_total() -> None:
    run = Run(2, refused=(1, 3, 4, 5))
    with pytest.raises(ConsentRefusedError):
        run.holder.receive(run.closes())
    assert run.holder.state is KeyHolderState.WAITING
    with pytest.raises(HelperMissingError):
        run.server.close_round()
    failure = run.config.failure(secrets=run.of.secrets[SERVER])
    assert failure.proof == b""
    for holder, request in failure.requests().items():
        failure.receive(holder, run.holder.receive(request))
    assert not failure.waiting_for
    run.config.check_failure(failure.proof)
    for request in (run.asks(1, 2, 3, 4), run.says(MessageType.DECRYPTION_REQUEST, b"")):
        with pytest.raises(LocalProtocolError, match="certified to have failed"):
            run.holder.receive(request)
    other: Any = parties(1).protocol
    for config, proof in ((other, failure.proof), (run.config, b""), (run.config, bytes(64))):
        with pytest.raises(RemoteProtocolError, match="counts as released"):
            config.check_failure(proof)


def test_an_agreement_is_no_certificate_of_a_failure() -> None:
    run = Run()
    agreed = run.holder.receive(run.closes())
    failure = run.config.failure(secrets=run.of.secrets[SERVER])
    with pytest.raises(RemoteProtocolError, match="did not sign that the sum failed"):
        failure.receive(HOLDER, agreed)
    assert failure.proof == b""
    with pytest.raises(RemoteProtocolError, match="counts as released"):
        run.config.check_failure(agreed[-64:])


def test_a_key_holder_that_was_given_a_sum_certifies_nothing() -> None:
    """It decrypts before it can refuse the sum's survivors, and has seen their total."""
    run = Run(2, refused=CLIENTS)
    run.server.receive(HOLDER, run.holder.receive(run.closes()))
    request = run.closes()
    other = Run(2, refused=(1, 3, 4, 5))
    with pytest.raises(ConsentRefusedError):
        other.holder.receive(request)  # not asked before
    assert other.holder.state is KeyHolderState.ABORTED
    with pytest.raises(LocalProtocolError):
        other.holder.receive(other.asks())


@pytest.mark.parametrize(
    ("survivors", "told"), [((1, 2), "at least 3 clients"), ((1, 2, 9), "1 survivors are not"), ((2, 1, 3), "ascend")]
)
def test_survivors_that_are_none_are_refused(survivors: tuple[int, ...], told: str) -> None:
    run = Run()
    payload = len(survivors).to_bytes(4, "big") + b"".join(party.to_bytes(4, "big") for party in survivors)
    with pytest.raises((RemoteProtocolError, MalformedMessageError), match=told):
        run.holder.receive(run.says(MessageType.SURVIVOR_SET, payload))
    run.holder.receive(run.closes())


def test_a_key_holder_that_names_others_has_not_agreed() -> None:
    run = Run()
    run.closes()
    said = seal_frame(
        MessageType.SURVIVOR_SET,
        write_parties((1, 2, 3)),
        digest=run.config.digest,
        sender=HOLDER,
        recipient=SERVER,
        identity=KEYS[HOLDER],
    )
    with pytest.raises(RemoteProtocolError, match="agreed to other survivors"):
        run.server.receive(HOLDER, said)
    assert run.server.waiting_for == {HOLDER}


def test_who_signs_nothing_certifies_nothing() -> None:
    config: Any = parties(signs=False).protocol
    assert config.failure() is None
    with pytest.raises(RemoteProtocolError, match="nobody certifies"):
        config.check_failure(bytes(64))
    vectors = {party: np.full(5, party) for party in CLIENTS}
    assert run_in_memory(parties(signs=False), vectors).result.total.tolist() == [15] * 5


def test_the_costs_count_the_agreement() -> None:
    """Also of a key holder that countersigns the receipt."""
    made = parties()
    vectors = {party: np.full(5, party) for party in CLIENTS}
    for of in (made, replace(made, protocol=ReceiptedSum(protocol=made.protocol, signed_by=SignedBy.HELPERS))):
        ran = run_in_memory(of, vectors)
        assert ran.result.total.tolist() == [15] * 5
        cost, measured = of.protocol.costs["key holder"], ran.traffic[HOLDER]
        assert (measured.messages_up, measured.bytes_up) == (cost.messages_up, cost.bytes_up)
        assert measured.bytes_down == cost.bytes_down
