"""Questions to sessions at every step of a sum: what they say, and what they make of what a party may tell them.

Every message comes with another content, but from its sender, in its session and under its signature: what then
refuses it, or does not, are the rules of the protocol and not the frame. All entropy has a seed, so that what is said,
what consent is asked for and what is stored are answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from secagg import (
    Assumptions,
    InsecureSeededEntropy,
    MaskedSum,
    PartyId,
    PartySecrets,
    ReceiptedSum,
    SignedBy,
    SumProtocol,
    SumResult,
)
from secagg.config import SERVER
from secagg.dp import NoisySum
from secagg.durable import DurableClient, FileStore
from secagg.errors import SecureSumError
from secagg.layout import Layout
from secagg.masked.bundles import write_bundle
from secagg.masked.messages import ShareDelivery, SurvivorProof
from secagg.masked.series import MaskedSeries
from secagg.wire import PART_SIZE_BYTES, MessageType, Reader, digest_in, message_type, payload_of, seal_frame
from simulations.audit.questions import Question
from simulations.audit.questions.of_sums import (
    ALL_FOUR,
    BOXES,
    CLIENTS,
    COMMITTEE,
    FOUR,
    KEYS,
    LAYOUT,
    MASKED,
    NOISY,
    PLAIN,
    SESSION,
    SIGNED,
    SIGNERS,
)
from simulations.audit.questions.said import answer

LOST = 5
MORE = Layout.of([("more", 2, 2**40)])
SPARSE = MaskedSum.planned(
    layout=LAYOUT,
    clients=tuple(range(1, 21)),
    session_id=SESSION,
    assumptions=Assumptions(corruption=0.1, dropout=0.1, security_bits=10.0),
    graph_seed=bytes(32),
)
SUMS: dict[str, tuple[SumProtocol, int, int]] = {
    "plain, signed": (replace(PLAIN, **SIGNERS), 0, 0),
    "masked": (MASKED, 2, 0),
    "masked, signed": (SIGNED, 3, 0),
    "masked, sparse": (SPARSE, 3, 0),
    "masked, noise": (NOISY, 9, 0),
    "committee": (COMMITTEE, 0, 0),
    "committee of four": (FOUR, 0, 0),
    "committee of all four": (ALL_FOUR, 9, 0),
    "receipts of a server": (ReceiptedSum(protocol=replace(PLAIN, **SIGNERS), signed_by=SignedBy.SERVER), 9, 0),
    "receipts of clients": (ReceiptedSum(protocol=SIGNED, signed_by=SignedBy.CLIENTS), 4, 4),
    "receipts of helpers": (ReceiptedSum(protocol=FOUR, signed_by=SignedBy.HELPERS), 0, 4),
}
"""Each with how many messages client 5 sends before it vanishes, and from which round on it is asked: the sum within a
receipted one is asked by itself."""

Others = dict[tuple[PartyId, PartyId, MessageType | None], bytes]


def about_sessions() -> Iterator[Question]:
    """Return all of them."""
    for name, (protocol, sent, first) in SUMS.items():
        said: Others = {}
        for _ in _Story(name, _Alone(protocol), others=said).questions(note=said, lost_after=99):
            pass
        yield from _Story(name, _Alone(protocol), others=said).questions(lost_after=sent, first=first)
    yield "masked, stored and asked otherwise", _stored_and_asked
    yield "masked, sparse, signed: survivors that could fall into parts", _in_parts
    series = _InSeries(MaskedSeries(clients=CLIENTS, series_id=SESSION, threshold=4, **SIGNERS))
    for number in range(2):
        story = _Story(f"series, sum {number}", series, others={})
        yield from story.questions(lost_after=2 if number else 99)
        series.next()


class _Asked(list[Any]):
    """What consent was asked for."""

    def __call__(self, protocol: SumProtocol, survivors: object, rows: Any) -> None:
        self.append([protocol.name, survivors])


@dataclass
class _Alone:
    """The parties of a sum."""

    protocol: Any

    @property
    def parties(self) -> tuple[PartyId, ...]:
        return (*self.protocol.clients, *self.protocol.helpers)

    def secrets(self, party: PartyId, asked: _Asked | None = None) -> PartySecrets:
        signs = bool(self.protocol.identity_of(party))
        boxes = BOXES.get(party) if party in self.protocol.helpers else None
        return PartySecrets(identity=KEYS[party] if signs else None, boxes=boxes, consent=asked)

    def client(self, party: PartyId, asked: _Asked) -> Any:
        secrets, entropy = self.secrets(party, asked), InsecureSeededEntropy(party, "questions")
        if party in self.protocol.helpers:
            return self.protocol.helper(party, secrets=secrets, entropy=entropy)
        own = self.protocol
        if isinstance(own, NoisySum):
            own = replace(own, noise_entropy=InsecureSeededEntropy(party, "noise"))
        return own.client(party, vector_of(party), secrets=secrets, entropy=entropy)

    def server(self) -> Any:
        return self.protocol.server(secrets=self.secrets(SERVER), entropy=InsecureSeededEntropy(0, "questions"))


@dataclass
class _InSeries(_Alone):
    """The parties of a series' sum, with what came of the sum before."""

    number: int = 0
    kept: dict[PartyId, bytes] = field(default_factory=dict)
    own_server: Any = None

    @property
    def parties(self) -> tuple[PartyId, ...]:
        return CLIENTS

    def secrets(self, party: PartyId, asked: _Asked | None = None) -> PartySecrets:
        return PartySecrets(identity=KEYS[party], consent=asked)

    @property
    def layout(self) -> Layout:
        return (LAYOUT, MORE)[self.number % 2]

    def client(self, party: PartyId, asked: _Asked) -> Any:
        vector = vector_of(party)[: self.layout.size]
        entropy = InsecureSeededEntropy(party + 100 * self.number, "questions")
        secrets = self.secrets(party, asked)
        own = self.protocol.member(party, self.number, self.layout, b"", vector, secrets=secrets, entropy=entropy)
        if self.number:
            own.restore(self.kept[party])
        return own

    def server(self) -> Any:
        self.own_server = self.own_server or self.protocol.server(secrets=self.secrets(SERVER))
        return self.own_server.begin_sum(self.layout, b"")

    def next(self) -> None:
        self.number += 1


def vector_of(party: PartyId) -> Any:
    """A client's vector: a few numbers on both sides of nought."""
    return np.array([party % 2, -(party % 3 == 0), party < 4], dtype=np.int64)


class _Story:
    """One sum, told step by step, with every step asked otherwise too."""

    def __init__(self, name: str, cast: Any, *, others: Others) -> None:
        self._name, self._cast, self._others = name, cast, others
        self._asked = {party: _Asked() for party in cast.parties}
        self._sessions = {party: cast.client(party, self._asked[party]) for party in cast.parties}
        self._server, self._draws = cast.server(), bool(set(cast.parties) - set(cast.protocol.clients))

    def questions(self, *, lost_after: int, first: int = 0, note: Others | None = None) -> Iterator[Question]:
        """Yield them as the sum goes on, from a round on; to ``note`` only what is said is given."""
        heard = note if note is not None else {}
        uploads = {party: session.start() for party, session in self._sessions.items()}
        uploads = {
            party: said for party, said in uploads.items() if said is not None and (party, lost_after) != (LOST, 0)
        }
        for number in range(12):
            name, said = f"{self._name}, round {number}", dict(uploads)
            asks = note is None and number >= first
            heard |= {(party, SERVER, message_type(one)): payload_of(one) for party, one in said.items()}
            if asks:
                yield f"{name}: what is said", partial(self._known, said)
                yield f"{name}: the server's own", self._stored(self._server)
                yield from self._of_server(name, said)
            for party, message in said.items():
                self._server.receive(party, message)
            requests = self._server.close_round()
            if not requests:
                break
            heard |= {(SERVER, party, message_type(one)): payload_of(one) for party, one in requests.items()}
            if asks:
                yield f"{name}: what is asked", partial(self._known, requests)
                yield from self._of_parties(name, requests)
            uploads = {}
            for party, message in requests.items():
                if party == LOST and number + 1 >= lost_after:
                    continue
                own = self._sessions[party].receive(message)
                if own is not None:
                    uploads[party] = own
            if self._server.result is not None:
                break
        if note is None:
            result = self._server.result
            yield f"{self._name}: what comes out", partial(self._known, result)
            yield f"{self._name}: what consent is asked for", lambda: self._asked
            for party in self._sessions:
                yield f"{self._name}: what {party} keeps", self._stored(self._sessions[party])
        if isinstance(self._cast, _InSeries) and not self._cast.number:
            self._cast.kept = {party: session.snapshot() for party, session in self._sessions.items()}

    def _known(self, value: Any) -> Any:
        """What of a value is the same each time: of bytes in a sum with helpers, whose boxes are drawn, how many."""
        if not self._draws:
            return value
        if isinstance(value, bytes):
            return value[:6], len(value)
        if isinstance(value, SumResult):
            return replace(value, receipt=bytes(len(value.receipt)))
        return {party: self._known(one) for party, one in value.items()} if isinstance(value, Mapping) else value

    def _answer(self, ask: Callable[[], object]) -> str:
        return answer(lambda: self._known(ask()))

    def _stored(self, session: Any) -> Callable[[], object]:
        kept = answer(lambda: [session.bound_to, self._known(session.snapshot())])
        return lambda: kept

    def _server_again(self, kept: Any) -> Any:
        if not isinstance(kept, bytes):
            return deepcopy(kept, {id(self._cast.protocol): self._cast.protocol})
        own = self._cast.server()
        own.restore(kept)
        return own

    def _of_server(self, name: str, said: Mapping[PartyId, bytes]) -> Iterator[Question]:
        """What a server makes of a round in which one party tells something else, or few tell anything."""
        kept = _kept(self._server)

        def round_with(sender: PartyId, message: bytes | None) -> list[str]:
            own = self._server_again(kept)
            found = [] if message is None else [answer(lambda: own.receive(sender, message))]
            found += [answer(partial(own.receive, party, right)) for party, right in said.items() if party != sender]
            after = (lambda: sorted(own.waiting_for), own.close_round, lambda: own.result)
            return [*found, *map(self._answer, after)]

        def of_few(few: int) -> object:
            own = self._server_again(kept)
            for party in list(said)[:few]:
                own.receive(party, said[party])
            return self._known(own.close_round()), self._known(own.result)

        parties = list(said)
        for sender in parties[-1:]:
            kind = _name(said[sender])
            peer = said[parties[0]] if len(parties) > 1 else b""
            variants = list(_otherwise(said[sender], payload_of(peer), self._others, self._key(sender)))
            rounds = [partial(round_with, sender, one) for one in (None, *variants)]
            yield f"{name}: {kind} of {sender} otherwise, to the server", partial(_all, rounds)
        yield (
            f"{name}: too few",
            lambda: [answer(partial(of_few, few)) for few in sorted({0, 1, len(said) // 2, len(said) - 1})],
        )

    def _of_parties(self, name: str, requests: Mapping[PartyId, bytes]) -> Iterator[Question]:
        """What a party makes of another request than is due, and of the right one after it."""
        parties = list(requests)
        for party in parties[:1] + parties[-1:] * (len(parties) > 1):
            kind, right = _name(requests[party]), requests[party]
            peer = payload_of(requests[parties[1 if party == parties[0] else 0]]) if len(parties) > 1 else b""
            variants = list(_otherwise(right, peer, self._others, self._key(SERVER)))
            kept = self._sessions[party].snapshot()

            def told(message: bytes, party: PartyId = party, right: bytes = right, kept: bytes = kept) -> list[str]:
                asked = _Asked()
                own = self._cast.client(party, asked)
                own.restore(kept)
                asks = (lambda: own.receive(message), lambda: own.receive(right), own.snapshot)
                return [*map(self._answer, asks), str(asked)]

            asks = [partial(told, one) for one in variants]
            yield f"{name}: {kind} otherwise, to {party}", partial(_all, asks)

    def _key(self, sender: PartyId) -> Any:
        return KEYS[sender] if self._cast.secrets(sender).identity else None


def _in_parts() -> list[list[str]]:
    """What a client of a sparse graph signs where a lying server leaves another client fewer and fewer neighbours.

    Once with all shares there, once where somebody had shared nothing, who is then said to have survived or not.
    """
    cohort = tuple(range(1, 41))
    protocol = MaskedSum.planned(
        layout=LAYOUT,
        clients=cohort,
        session_id=SESSION,
        assumptions=Assumptions(corruption=0.1, dropout=0.1, security_bits=10.0, malicious_server=True),
        graph_seed=bytes(32),
        identities=tuple(KEYS[party].public for party in cohort),
        server_identity=KEYS[SERVER].public,
    )
    lonely = next(party for party in protocol.clients[1:] if party not in protocol.neighbours(1))
    found: list[list[str]] = []
    for silent in (0, max(set(protocol.clients) - {1, lonely})):
        clients = {
            party: protocol.client(
                party,
                vector_of(party),
                secrets=PartySecrets(identity=KEYS[party]),
                entropy=InsecureSeededEntropy(party, "questions"),
            )
            for party in protocol.clients
        }
        server = protocol.server(secrets=PartySecrets(identity=KEYS[SERVER]))
        said, request = {party: client.start() for party, client in clients.items()}, b""
        while message_type(request) is not MessageType.UNMASK_REQUEST:
            for party, message in said.items():
                if message is not None and not (party == silent and message_type(message) is MessageType.SEALED_SHARES):
                    server.receive(party, message)
            requests = server.close_round()
            request = requests[1]
            if message_type(request) is MessageType.SHARE_DELIVERY:
                found.append(_told_of_absent(protocol, clients[1].snapshot(), request))
            if message_type(request) is not MessageType.UNMASK_REQUEST:
                said = {party: clients[party].receive(one) for party, one in requests.items()}
        kept, near = clients[1].snapshot(), sorted(set(protocol.neighbours(lonely)) - {1, silent})
        asked = []
        for count in range(len(near) + 1):
            for dropouts in ({*near[:count]}, {*near[:count], silent}) if silent else ({*near[:count]},):
                payload = b"".join(party.to_bytes(4, "big") for party in (len(dropouts), *sorted(dropouts)))
                own = protocol.client(1, vector_of(1), secrets=PartySecrets(identity=KEYS[1]))
                own.restore(kept)
                asked.append(answer(partial(own.receive, sealed_again(request, payload, KEYS[SERVER]))))
        found.append(asked)
        for party, one in requests.items():
            server.receive(party, clients[party].receive(one) or b"")
        found.append(_told_of_peers(protocol, clients[1].snapshot(), server.close_round()[1]))
    return found


def _told_of_peers(protocol: MaskedSum, kept: bytes, request: bytes) -> list[str]:
    """What a client reveals where fewer, others or nobody signed who survived, or whom they masked with."""
    known = SurvivorProof.read(Reader(memoryview(payload_of(request)), peer=SERVER), signs_peers=True)
    signed, peers = known.signatures, known.peers or {}
    (one, two), (first, second) = list(signed)[:2], list(peers)[:2]
    swapped, rest = {one: signed[two], two: signed[one]}, dict(list(peers.items())[1:])
    asked = []
    for survivors, masked_with in (
        (signed, peers), (signed | swapped, peers), (dict(list(signed.items())[:3]), peers),
        (signed | {99: signed[one]}, peers), (signed, {}), (signed, rest), (signed, peers | {99: peers[first]}),
        (signed, peers | {first: peers[second], second: peers[first]}), (signed, peers | {first: signed[first]}),
        (peers, peers),
    ):  # fmt: skip
        payload = SurvivorProof(signatures=dict(survivors), peers=dict(masked_with)).to_payload()
        own = protocol.client(1, vector_of(1), secrets=PartySecrets(identity=KEYS[1]))
        own.restore(kept)
        asked.append(answer(partial(own.receive, sealed_again(request, payload, KEYS[SERVER]))))
    return asked


def _told_of_absent(protocol: MaskedSum, kept: bytes, request: bytes) -> list[str]:
    """What a client makes of shares where its server says otherwise who had shared nothing, or keeps some back."""
    known = ShareDelivery.read(Reader(memoryview(payload_of(request)), peer=SERVER), signs_peers=True)
    absent, near = set(known.absent or ()), sorted(known.sealed)
    far = next(party for party in protocol.clients[1:] if party not in protocol.neighbours(1) and party not in absent)
    less = {party: known.sealed[party] for party in near[1:]}
    asked = []
    for told, sealed in (
        (absent, known.sealed), (absent | {near[0]}, known.sealed), (absent | {far}, known.sealed),
        (set(), known.sealed),
        (absent | {1}, known.sealed), (absent | {99}, known.sealed), (absent, less), (absent | {near[0]}, less),
        (absent | {far}, less),
    ):  # fmt: skip
        payload = ShareDelivery(sealed=dict(sealed), absent=tuple(sorted(told))).to_payload()
        own = protocol.client(1, vector_of(1), secrets=PartySecrets(identity=KEYS[1]))
        own.restore(kept)
        asked.append(answer(partial(own.receive, sealed_again(request, payload, KEYS[SERVER]))))
    return asked


def _stored_and_asked() -> list[list[str]]:
    """What a client makes of other requests that begins anew from what was stored with its last answer."""
    found = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session"

        def own() -> DurableClient:
            client = MASKED.client(1, vector_of(1), entropy=InsecureSeededEntropy(1, "questions"))
            return DurableClient(FileStore(path), bytes(range(32)), client)

        others = {
            party: MASKED.client(party, vector_of(party), entropy=InsecureSeededEntropy(party, "questions"))
            for party in CLIENTS[1:]
        }
        server, said = MASKED.server(), {party: client.start() for party, client in others.items()}
        said[1] = own().start()
        while server.result is None:
            for party, message in said.items():
                server.receive(party, message or b"")
            if not (requests := server.close_round()):
                break
            said = {party: others[party].receive(requests[party]) for party in requests if party in others}
            said[1] = own().receive(requests[1])
            kept = path.read_bytes()
            for request in (requests[1], *_otherwise(requests[1], b"", {}, None)):
                found.append([answer(partial(own().receive, request))])
                path.write_bytes(kept)
    return found


def _all(asks: Iterable[Callable[[], list[str]]]) -> list[list[str]]:
    return [ask() for ask in asks]


def _kept(server: Any) -> Any:
    """What a server can be made from again: a series' is not stored."""
    try:
        return server.snapshot()
    except SecureSumError:
        return deepcopy(server)


def _name(message: bytes) -> str:
    kind = message_type(message)
    return kind.name if kind else "a message"


def _otherwise(message: bytes, peer: bytes, others: Others, key: Any) -> Iterator[bytes]:
    """The same message with another content or type, as its sender would send it."""
    payload, type_ = payload_of(message), message_type(message)
    sender, recipient = _from_and_to(message)
    assert type_ is not None

    def sealed(type_: MessageType, payload: bytes) -> bytes:
        return sealed_again(message, payload, key, type_)

    for other in _payloads(payload):
        yield sealed(type_, other)
    elsewhere = others.get((sender, recipient, type_))
    for known in (peer, elsewhere):
        if known and known != payload:
            yield sealed(type_, known)
    for other_type in list(MessageType)[::6]:
        if other_type is not type_:
            yield sealed(other_type, b"")
    if type_ is MessageType.BUNDLE:
        parts = _parts(payload)
        for place, part in enumerate(parts):
            for other in _payloads(payload_of(part)):
                again = sealed_again(part, other, key)
                yield sealed(type_, write_bundle([*parts[:place], again, *parts[place + 1 :]]))


def _parts(bundle: bytes) -> list[bytes]:
    found = []
    while bundle:
        size = PART_SIZE_BYTES + int.from_bytes(bundle[:PART_SIZE_BYTES], "big")
        found.append(bundle[PART_SIZE_BYTES:size])
        bundle = bundle[size:]
    return found


def _from_and_to(message: bytes) -> tuple[PartyId, PartyId]:
    return int.from_bytes(message[38:42], "big"), int.from_bytes(message[42:46], "big")


def sealed_again(message: bytes, payload: bytes, key: Any, other_type: MessageType | None = None) -> bytes:
    """The message with another payload, and maybe of another type, by its sender."""
    sender, recipient = _from_and_to(message)
    type_ = other_type or message_type(message)
    assert type_ is not None
    return seal_frame(type_, payload, digest=digest_in(message), sender=sender, recipient=recipient, identity=key)


def _payloads(payload: bytes) -> Iterator[bytes]:
    """A payload cut, longer, of noughts, with a byte changed in some places, and with its first list changed."""
    yield from (b"", payload[:-1], payload + b"\0", bytes(len(payload)))
    for place in sorted({int(place) for place in np.linspace(0, len(payload) - 1, 4)}) if payload else ():
        yield payload[:place] + bytes([payload[place] ^ 1]) + payload[place + 1 :]
    count = int.from_bytes(payload[:4], "big")
    for size in sorted({4, (len(payload) - 4) // count}) if 0 < count < 50 else ():
        entries = [payload[4 + size * n : 4 + size * (n + 1)] for n in range(count)]
        rest, parties = payload[4 + size * count :], [int.from_bytes(entry[:4], "big") for entry in entries]
        if parties == sorted(set(parties)) and parties[-1] < 100:
            stranger = (1000).to_bytes(4, "big") + entries[-1][4:]
            swapped = [one[:4] + two[4:] for one, two in zip(entries, entries[::-1], strict=True)]
            for listed in (entries[1:], entries[:-1], [*entries, stranger], [*entries, entries[-1]], swapped):
                yield len(listed).to_bytes(4, "big") + b"".join(listed) + rest
    if count == 0 and len(payload) == 4:
        for parties in ([1], [2], [4, 5], [1, 2, 3], [LOST], [1000]):
            yield len(parties).to_bytes(4, "big") + b"".join(party.to_bytes(4, "big") for party in parties)
