"""What no party may grant, whoever asks: small sums are made here, and asked for what is never given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from analytic.afl import AFL
from analytic.row_format import RowFormat
from federation.federation import Step
from federation.modes import MODES, Mode
from federation.release import ReleasePolicy, ReleaseRefusedError
from secagg import ClientSession, InOneProcess, PartyId, new_session_id
from secagg.carriers.key_holder import write_request
from secagg.config import SERVER, SumConfig
from secagg.entropy import Entropy, os_entropy
from secagg.errors import SecureSumError
from secagg.in_memory import Envelope, run_in_memory
from secagg.layout import Layout
from secagg.masked.messages import UnmaskRequest
from secagg.sessions import Contribution
from secagg.wire import MessageType, message_type, payload_of, seal_frame, write_parties
from simulations.audit.held import held, to_its_end
from simulations.audit.led_astray import taken_or_said

CLIENTS = (1, 2, 3, 4, 5)


@lru_cache(maxsize=8)
def wrong_grants(modes: tuple[Mode, ...] = tuple(MODES.values())) -> tuple[str, ...]:
    """Return what was granted that must be refused, and what is promised that cannot hold."""
    of_modes = (
        f"{mode.name}: {what}"
        for mode in modes
        if mode.installed
        for probe in (_in, _kept_for_later, taken_or_said)
        for what in to_its_end(probe(mode))
    )
    return (*to_its_end(_by_gates()), *to_its_end(_by_contexts()), *dict.fromkeys(of_modes))


def _by_gates() -> Iterator[str]:
    policy = ReleasePolicy()
    few, all_but_one = range(policy.min_survivors - 1), range(policy.min_survivors + 1)
    for what, earlier in (("few", [])), ("close", [range(policy.min_survivors + 2)]):
        try:
            policy.before_release(None, all_but_one if earlier else few, earlier=earlier)
        except ReleaseRefusedError:
            continue
        yield f"release gates let a total of {what} clients pass"


def _by_contexts() -> Iterator[str]:
    """What a session is bound to must tell one model from another, and one learner's settings from another's."""
    learner = AFL(n_features=2, n_targets=2, feature_format=RowFormat(integer_bits=2, fraction_bits=4), max_rows=8)
    steps = (Step.of(one, one.init()) for one in (learner, replace(learner, ridge=2 * learner.ridge + 1.0)))
    if len({step.context for step in steps if step is not None}) < 2:
        yield "sums of different models are bound to the same context"


def _kept_for_later(mode: Mode) -> Iterator[str]:
    """What helpers open sums with must be another secret in each sum that makes its parties anew."""
    seen = set[bytes]()
    for _ in range(2):
        own = _Kept.of(mode).secrets_of_helpers
        if own & seen:
            yield "two sums are opened with one secret"
        seen |= own


def _in(mode: Mode) -> Iterator[str]:
    """A sum with every session kept, each of which is looked through for secrets and asked once more."""
    parties = _Kept.of(mode)
    guarantee, heard = parties.protocol.guarantee, list[Envelope]()
    if not guarantee.opens_alone and guarantee.survivors_needed - guarantee.harmless_clients < 2:
        yield "promises more colluders than leave two others in a total"
    run_in_memory(parties, {party: np.arange(3) for party in CLIENTS}, record=heard.append)
    secrets = {*parties.drawn, *parties.secrets_of_helpers}
    if left := [party for party, session in parties.sessions.items() if secrets & set(held(session))]:
        yield f"{len(left)} of {len(parties.sessions)} parties keep secrets of a sum that is over"
    for one in heard:
        if one.sender != SERVER:
            continue
        session, type_ = parties.sessions[one.recipient], message_type(one.message)
        assert type_ is not None, "the library says what it sends"
        if _grants(session, one.message):
            yield f"{type_.name} is answered twice"
        if type_ is MessageType.UNMASK_REQUEST:
            dropouts = tuple(party for party in CLIENTS if party != one.recipient)
            for others in (dropouts[:1], dropouts):
                again = UnmaskRequest(dropouts=others).to_payload()
                if _grants(session, _framed(parties, type_, again, one.recipient)):
                    yield f"a client unmasks a second total, without {len(others)}"
        if type_ is MessageType.DECRYPTION_REQUEST:
            carried = bytes(payload_of(one.message))[len(write_parties(CLIENTS)) :]
            for survivors, holder in ((CLIENTS[1:], session), (CLIENTS[:1], parties.fresh(one.recipient))):
                again = write_request(survivors, carried)
                if _grants(holder, _framed(parties, type_, again, one.recipient)):
                    yield f"a key holder decrypts {'a second sum' if holder is session else 'a single vector'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept(InOneProcess):
    """All parties of a sum, whose sessions are kept."""

    sessions: dict[PartyId, ClientSession] = field(default_factory=dict, repr=False)
    drawn: set[bytes] = field(default_factory=set, repr=False)

    @classmethod
    def of(cls, mode: Mode) -> _Kept:
        layout = Layout.of([("few", 3, 100)])
        parties = mode.in_one_process(layout=layout, clients=CLIENTS, session_id=new_session_id())
        return cls(protocol=parties.protocol, secrets=parties.secrets)

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        def noted(n_bytes: int) -> bytes:
            drawn = entropy(n_bytes)
            self.drawn.add(drawn)
            return drawn

        self.sessions[party] = InOneProcess.client(self, party, contribution, entropy=noted)
        return self.sessions[party]

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        self.sessions[party] = self.fresh(party)
        return self.sessions[party]

    @property
    def secrets_of_helpers(self) -> set[bytes]:
        """What helpers open sums with."""
        own = map(self.of_party, self.helpers)
        return {one.decryption or (one.boxes.secret if one.boxes else b"") for one in own} - {b""}

    def fresh(self, party: PartyId) -> ClientSession:
        """A helper that was asked nothing yet."""
        return InOneProcess.helper(self, party)


def _framed(parties: InOneProcess, type_: MessageType, payload: bytes, recipient: PartyId) -> bytes:
    protocol = parties.protocol
    assert isinstance(protocol, SumConfig), "every mode's sum is one"
    return seal_frame(
        type_,
        payload,
        digest=protocol.digest_of(type_),
        sender=SERVER,
        recipient=recipient,
        identity=parties.of_party(SERVER).identity,
    )


def _grants(session: ClientSession, message: bytes) -> bool:
    try:
        return session.receive(message) is not None
    except SecureSumError:
        return False
