"""Sums in which every party is led astray at every step: what it takes, keeps or says that it must not is named.

Every message comes changed, from somebody else, from another session and twice; after each step a session is restored
from what it stored, and goes on. The total is held against the vectors added up, whoever drops out and whenever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from federation.modes import Mode
from secagg import ClientSession, IdentityKey, InOneProcess, PartyId, ServerSession, new_session_id
from secagg.config import SERVER
from secagg.dp import CoordinateNoise, DistributedNoise, NoisySum, make_room
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, ConsentRefusedError, SecureSumError
from secagg.in_memory import Envelope, run_in_memory
from secagg.layout import IntVector, Layout
from secagg.receipted_sum import ReceiptedSum, SignedBy
from secagg.sessions import Contribution, Session
from secagg.sums import NO_SECRETS, PartySecrets, SumProtocol, Upload
from secagg.wire import MessageType, carries_vector, message_type
from simulations.audit.held import held

CLIENTS = (2, 3, 5, 8, 13)
LOST = 13
LAYOUT = Layout.of([("few", 3, 1000), ("wide", 2, 2**40)])
VECTORS: Mapping[PartyId, IntVector] = {party: np.array([party, -party, 0, 2**30, party << 20]) for party in CLIENTS}

HEADER = (3, 35, 45, 50, 300, 307, 335, 339, 367, 370)
"""Bits of a message's magic, version, type, digest (twice), sender (twice), recipient (twice) and signature length."""

IS_DRAWN = (MessageType.ADVERTISED_KEYS, MessageType.SEALED_SHARES)
"""Whose bytes are drawn: two copies of one session do not say the same."""

_Session = TypeVar("_Session", bound=Session)

OWN_MODES = ("plain", "masked", "committee", "ckks", "bfv", "masked+ckks", "masked+bfv")
"""Those of this library; what others promise, their contracts say (``tests/contracts``)."""


def taken_or_said(mode: Mode) -> Iterator[str]:
    """What parties of a mode's sums take, keep or say that they must not."""
    if mode.name not in OWN_MODES:
        return
    yield from _wrong_totals(mode)
    yield from _asked_before(mode)
    for form, wrap in FORMS.items():
        with suppress(ConfigurationError):  # nobody is there who could sign so
            yield from (f"{form}{what}" for what in _led(mode, wrap))


def direct_sum(survivors: tuple[PartyId, ...]) -> list[int]:
    """The vectors of these clients added up."""
    return [sum(int(VECTORS[party][place]) for party in survivors) for place in range(LAYOUT.size)]


def _wrong_totals(mode: Mode) -> Iterator[str]:
    """Whoever vanishes after whatever message: the survivors' sum, or none where too few are left."""
    promise = mode.guarantee(CLIENTS)
    for sent in range(promise.messages + 1):
        away = promise.survivors_needed - 1 if sent < promise.messages else 0
        for lost in ({LOST: sent}, dict.fromkeys(CLIENTS[away:], sent)):
            there = tuple(p for p in CLIENTS if lost.get(p, promise.messages) >= promise.vector_message)
            try:
                result = run_in_memory(_parties(mode, Layouts.exact), VECTORS, dropouts=lost).result
            except SecureSumError:
                spoke = sum(lost.get(party, promise.messages) >= promise.messages for party in CLIENTS)
                if spoke >= max(promise.survivors_needed, promise.threshold):
                    yield f"no total, though {spoke} of {len(CLIENTS)} clients said all that was due"
                continue
            if (result.total.tolist(), result.survivors) != (direct_sum(there), there):
                yield f"a total is not its survivors' sum where clients vanish after {sent} messages"
            if len(result.survivors) < promise.survivors_needed:
                yield "a total of fewer clients than are promised"


def _asked_before(mode: Mode) -> Iterator[str]:
    """Everybody is asked before it is in a total, or helps to release one, and says nothing of it after a no."""
    parties = _parties(mode, Layouts.exact)
    promise = parties.protocol.guarantee
    asked = set[PartyId]()
    refusing: PartyId = SERVER

    def consent_of(party: PartyId) -> Any:
        def consent(protocol: SumProtocol, survivors: object, rows: object) -> None:
            asked.add(party)
            if party == refusing:
                raise ConsentRefusedError("not this one")

        return consent

    everybody = (*CLIENTS, *parties.helpers)
    secrets = {p: replace(parties.secrets.get(p, NO_SECRETS), consent=consent_of(p)) for p in everybody}
    parties = replace(parties, secrets={**parties.secrets, **secrets})
    run_in_memory(parties, VECTORS)
    if silent := [party for party in everybody if party not in asked and not _unasked(parties, party)]:
        yield f"{len(silent)} parties are in a total, or help with it, and were not asked"
    if promise.helpers_away:
        return
    for refusing in (CLIENTS[0], *parties.helpers[:1]):
        if _unasked(parties, refusing):
            continue
        try:
            result = run_in_memory(_fresh(parties, mode, secrets), VECTORS).result
        except (SecureSumError, ConfigurationError):
            continue
        if refusing in result.survivors and promise.vector_message == promise.messages:
            yield "a client that said no is in the total"
        if refusing in parties.helpers:
            yield "a helper that said no helped with a total"


def _unasked(parties: InOneProcess, party: PartyId) -> bool:
    """Who decrypts what is masked sees no total."""
    return party in parties.helpers and parties.protocol.guarantee.messages > 1


def _fresh(parties: InOneProcess, mode: Mode, secrets: Mapping[PartyId, PartySecrets]) -> InOneProcess:
    """The same parties in a new session."""
    own = _parties(mode, Layouts.exact)
    asked = {party: replace(own.of_party(party), consent=secrets[party].consent) for party in secrets}
    return replace(own, secrets={**own.secrets, **asked})


class Layouts:
    """Of the exact sum, and of one that has room for noise."""

    noise = DistributedNoise(
        total=CoordinateNoise(levels=np.ones(LAYOUT.size, dtype=np.uint8), variances=(100,)), promised_survivors=2
    )
    exact = LAYOUT
    with_room = make_room(LAYOUT, len(CLIENTS), noise)


def _parties(
    mode: Mode, layout: Layout, identities: Mapping[PartyId, IdentityKey] | None = None, session_id: bytes = b""
) -> InOneProcess:
    return mode.in_one_process(
        layout=layout,
        clients=CLIENTS,
        session_id=session_id or new_session_id(),
        identity_of=None if identities is None else identities.__getitem__,
    )


def _as_it_is(parties: InOneProcess) -> SumProtocol:
    return parties.protocol


def _noisy(parties: InOneProcess) -> SumProtocol:
    return NoisySum(protocol=parties.protocol, layout=LAYOUT, noise=Layouts.noise)


def _signed_by(who: SignedBy) -> Callable[[InOneProcess], SumProtocol]:
    return lambda parties: ReceiptedSum(protocol=parties.protocol, signed_by=who)


FORMS: dict[str, Callable[[InOneProcess], SumProtocol]] = {
    "": _as_it_is,
    "under noise, ": _noisy,
    "with countersignatures of clients, ": _signed_by(SignedBy.CLIENTS),
    "with countersignatures of helpers, ": _signed_by(SignedBy.HELPERS),
}


def _led(mode: Mode, wrap: Callable[[InOneProcess], SumProtocol]) -> Iterator[str]:
    layout = Layouts.with_room if wrap is _noisy else Layouts.exact
    if mode.guarantee(CLIENTS).upload is Upload.CIPHERTEXT and wrap is not _as_it_is:
        return
    identities = {party: IdentityKey.generate() for party in range(20)}
    twin = _parties(mode, layout, identities)
    elsewhere: dict[tuple[PartyId, PartyId, MessageType | None], bytes] = {}

    def note(envelope: Envelope) -> None:
        kind = message_type(envelope.message)
        elsewhere[envelope.sender, envelope.recipient, kind] = envelope.message

    run_in_memory(replace(twin, protocol=wrap(twin)), VECTORS, record=note)
    plain = _parties(mode, layout, identities)
    is_drawn = mode.requires is not None or wrap is _noisy
    led = _Led(protocol=wrap(plain), secrets=plain.secrets, elsewhere=elsewhere, draws_vectors=is_drawn)
    needed = led.protocol.guarantee
    lost = {LOST: needed.messages - 1} if needed.survivors_needed < len(CLIENTS) and wrap is _as_it_is else {}
    result = run_in_memory(led, VECTORS, dropouts=lost).result
    if wrap is not _noisy and result.total.tolist() != direct_sum(result.survivors):
        yield "sessions that were restored at each step give another total"
    secrets = {*led.drawn, *(own.boxes.secret for own in plain.secrets.values() if own.boxes)}
    secrets |= {own.decryption for own in plain.secrets.values() if own.decryption}
    kept = [one.party for one in led.sessions if one.party != LOST and secrets & set(held(one.session))]
    if kept:
        yield f"{len(kept)} restored sessions keep secrets of a sum that is over"
    yield from dict.fromkeys(led.found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Led(InOneProcess):
    """All parties of a sum, each of which is led astray."""

    elsewhere: Mapping[tuple[PartyId, PartyId, MessageType | None], bytes]
    draws_vectors: bool
    found: list[str] = field(default_factory=list)
    drawn: set[bytes] = field(default_factory=set, repr=False)
    sessions: list[_LedParty] = field(default_factory=list)
    to_others: dict[MessageType | None, tuple[PartyId, bytes]] = field(default_factory=dict)

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        def noted(n_bytes: int) -> bytes:
            drawn = entropy(n_bytes)
            if n_bytes >= 16:
                self.drawn.add(drawn)
            return drawn

        self.sessions.append(
            _LedParty(self, party, lambda: InOneProcess.client(self, party, contribution, entropy=noted))
        )
        return self.sessions[-1]

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        self.sessions.append(_LedParty(self, party, lambda: InOneProcess.helper(self, party, entropy=entropy)))
        return self.sessions[-1]

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        return _LedServer(self, lambda: InOneProcess.server(self, entropy=entropy))

    def refuse(self, what: str, ask: Callable[[], object]) -> None:
        """Note what was not refused."""
        try:
            ask()
        except SecureSumError:
            return
        self.found.append(what)


def _changed(message: bytes) -> Iterator[bytes]:
    """One bit in each part of a message, and in some places of what it says and of its signature."""
    size = 8 * len(message)
    inside = np.linspace(376, size - 520, 6).astype(int).tolist() if size > 900 else []
    for bit in (*HEADER, *inside, size - 400, size - 5):
        changed = bytearray(message)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)
    yield message + b"\0"
    yield message[:-1]


class _LedSession(Generic[_Session]):
    """One side's session, of which copies are restored."""

    def __init__(self, led: _Led, make: Callable[[], _Session]) -> None:
        self._led, self._make = led, make
        self.session = make()

    @property
    def bound_to(self) -> bytes:
        return self.session.bound_to

    def snapshot(self) -> bytes:
        return self.session.snapshot()

    def restore(self, snapshot: bytes) -> None:
        self.session.restore(snapshot)

    def _restored(self) -> _Session:
        own = self._make()
        own.restore(self.session.snapshot())
        return own


class _LedParty(_LedSession[ClientSession]):
    """A client's or helper's session."""

    def __init__(self, led: _Led, party: PartyId, make: Callable[[], ClientSession]) -> None:
        super().__init__(led, make)
        self._party = party

    @property
    def party(self) -> PartyId:
        return self._party

    def start(self) -> bytes | None:
        said = self.session.start()
        self.session = self._restored()
        if said is not None:
            self._led.refuse("a restored session begins again", self._restored().start)
        return said

    def receive(self, message: bytes) -> bytes | None:
        led, kind = self._led, message_type(message)
        name = kind.name if kind else "a message"
        for changed in _changed(message):
            led.refuse(f"{name} is taken with a bit changed", lambda changed=changed: self.session.receive(changed))  # type: ignore[misc]
        recipient, other = led.to_others.setdefault(kind, (self.party, message))
        if recipient != self.party:
            led.refuse(f"{name} is taken that is for another party", lambda: self.session.receive(other))
        yesterday = led.elsewhere.get((SERVER, self.party, kind))
        if yesterday is not None:
            led.refuse(f"{name} of another session is taken", lambda: self.session.receive(yesterday))
        copy = self._restored()
        answer = self.session.receive(message)
        if answer is not None:
            said = message_type(answer)
            is_drawn = said in IS_DRAWN or (led.draws_vectors and carries_vector(answer))
            if not is_drawn and _again(copy, message) != answer:
                led.found.append(f"two copies of one session answer {name} with different bytes")
            led.refuse(f"{name} is answered twice", lambda: self.session.receive(message))
            led.refuse(f"{name} is answered again by a restored session", lambda: self._restored().receive(message))
        self.session = self._restored()
        return answer


def _again(copy: ClientSession, message: bytes) -> bytes | None:
    try:
        return copy.receive(message)
    except SecureSumError:
        return None


class _LedServer(_LedSession[ServerSession]):
    """The server's session."""

    @property
    def result(self) -> Any:
        return self.session.result

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        return self.session.waiting_for

    def receive(self, sender: PartyId, message: bytes) -> None:
        led, kind, own = self._led, message_type(message), self.session
        name = kind.name if kind else "a message"
        for changed in _changed(message):
            led.refuse(f"{name} is taken with a bit changed", lambda changed=changed: own.receive(sender, changed))  # type: ignore[misc]
        for other in (CLIENTS[0], CLIENTS[1], SERVER, 4000):
            if other != sender:
                led.refuse(
                    f"{name} is taken from somebody else",
                    lambda other=other: own.receive(other, message),  # type: ignore[misc]
                )
        yesterday = led.elsewhere.get((sender, SERVER, kind))
        if yesterday is not None:
            led.refuse(f"{name} of another session is taken", lambda: own.receive(sender, yesterday))
        own.receive(sender, message)
        led.refuse(f"{name} is taken twice", lambda: own.receive(sender, message))
        self.session = self._restored()
        led.refuse(f"{name} is taken again by a restored server", lambda: self.session.receive(sender, message))

    def close_round(self) -> Mapping[PartyId, bytes]:
        asked = self.session.close_round()
        self.session = self._restored()
        if self.session.result is not None:
            self._led.refuse("a sum that is over is closed again", self.session.close_round)
        return asked
