"""What hostile bytes are fed to: functions of bytes that let only documented errors pass in silence.

Whatever a function lets out is a bug. Bytes that a decoder accepts must also be the one encoding of what was read. Both
the coverage-guided fuzzer (`run_atheris.py`) and hypothesis (`test_hostile_bytes.py`) call them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from typing import Any

import numpy as np
from support.memory_store import MemoryStore
from support.parties import SERVER_KEY, knows, resealed

from secagg import MaskedSum
from secagg.config import SERVER
from secagg.durable import DurableClient, DurableServer
from secagg.entropy import InsecureSeededEntropy
from secagg.errors import (
    LocalProtocolError,
    MalformedMessageError,
    ReceiptError,
    RemoteProtocolError,
    SnapshotError,
    SumOutOfBoundsError,
    TooFewSurvivorsError,
)
from secagg.layout import Layout
from secagg.masked.messages import (
    AdvertisedKeys,
    Roster,
    SealedShares,
    ShareDelivery,
    SurvivorProof,
    UnmaskShares,
)
from secagg.masked.series import MaskedSeries, SeriesClient, SeriesServer
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey
from secagg.primitives.sealing import SealBrokenError, open_sealed, seal
from secagg.receipts import Receipt
from secagg.ring import RingVector
from secagg.wire import (
    MessageType,
    Reader,
    message_type,
    open_frame,
    payload_of,
    read_parties,
    seal_frame,
    write_parties,
)

Target = Callable[[bytes], None]
DURABLE = b"SAGD\x06"
"""Before every stored record of this version."""

LAYOUT = Layout.of([("gram", 3, 1000), ("three bytes", 2, 70_000), ("flags", 1, 1)], sum_fits=True)
CLIENTS = (2, 5, 9)
KEY = bytes(range(32))
IDENTITIES = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
TRUSTING = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=b"trusting session", threshold=2)
SIGNED = MaskedSum(
    layout=LAYOUT,
    clients=CLIENTS,
    session_id=b"signed session 1",
    threshold=3,
    identities=tuple(key.public for key in IDENTITIES.values()),
    server_identity=SERVER_KEY.public,
)
SERIES = MaskedSeries(clients=CLIENTS, series_id=b"a series of sums", threshold=2)
VECTORS = {party: np.full(LAYOUT.size, index - 1, dtype=np.int64) for index, party in enumerate(CLIENTS)}


def entropy(label: str) -> InsecureSeededEntropy:
    return InsecureSeededEntropy(7, label)


# Decoders


def _message(read: Callable[[Reader], Any], data: bytes) -> None:
    try:
        message = read(Reader(memoryview(data), peer=1))
    except MalformedMessageError:
        return
    if isinstance(message, tuple):
        message = write_parties(message)
    assert (message if isinstance(message, bytes) else message.to_payload()) == data


def _frame(data: bytes) -> None:
    for message in (data, b"SAGG\2" + data):
        message_type(message)
        try:
            frame = open_frame(message, digest=message[6:38], sender=5, recipient=SERVER)
        except MalformedMessageError:
            continue
        again = seal_frame(frame.type, bytes(frame.payload), digest=message[6:38], sender=5, recipient=SERVER)
        assert again == message


def _vector(data: bytes) -> None:
    try:
        vector = RingVector.from_bytes(LAYOUT, data)
    except MalformedMessageError:
        return
    assert vector.to_bytes() == data
    try:
        vector.decode()
    except SumOutOfBoundsError:
        return


def _receipt(data: bytes) -> None:
    for text in (data, b"SAGR\2" + data):
        try:
            receipt = Receipt.from_bytes(text)
        except ReceiptError:
            continue
        assert receipt.to_bytes() == text
        try:
            receipt.verify(IDENTITIES[2].public)
        except ReceiptError:
            continue
        raise AssertionError("a receipt that nobody signed")


def _sealed(data: bytes) -> None:
    try:
        open_sealed(KEY, data, b"binding")
    except SealBrokenError:
        return
    raise AssertionError("a box that nobody sealed")


def _client_snapshot(config: MaskedSum, data: bytes) -> None:
    """Also bytes that were sealed with the right key."""
    with suppress(SnapshotError):
        _new_client(config, 5).restore(data)


def _server_snapshot(config: MaskedSum, data: bytes) -> None:
    """Also bytes with a good checksum."""
    with suppress(SnapshotError):
        new_server(config).restore(data)


def _durable_client(data: bytes) -> None:
    fresh = _new_client(TRUSTING, 5)
    sealed = seal(KEY, data, DURABLE + fresh.snapshot_id, entropy=entropy("nonce"))
    for record in (data, DURABLE + data, DURABLE + sealed):
        with suppress(SnapshotError, LocalProtocolError):
            DurableClient(MemoryStore(record), KEY, _new_client(TRUSTING, 5), entropy=entropy("record")).start()


def _durable_server(data: bytes) -> None:
    checked = sha256(TRUSTING.server().snapshot_id + data).digest()
    for record in (data, DURABLE + data, DURABLE + checked + data):
        with suppress(SnapshotError):
            DurableServer(MemoryStore(record), TRUSTING.server())


# Sessions: bytes are a script of moves, six bytes each


def _moves(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(kind 0 to 7, which message, where, what)."""
    for start in range(0, len(data) - 5, 6):
        kind, which, where, what = data[start], data[start + 1], data[start + 2 : start + 4], data[start + 4]
        yield kind % 8, which, int.from_bytes(where, "big"), what


def _spoiled(message: bytes, where: int, what: int) -> bytes:
    """The message with a byte changed, cut short, or grown."""
    place = where % len(message)
    if what % 8 == 0:
        return message[:place]
    if what % 8 == 1:
        return message + bytes([what]) * (1 + where % 64)
    if what % 8 == 2:
        return message[:place] + message[place + 4 :]
    return message[:place] + bytes([message[place] ^ (what | 1)]) + message[place + 1 :]


def _made_up(like: bytes, where: int, what: int) -> bytes:
    """A good header of some type with any payload, as its sender may say it."""
    payload = bytes([what]) * (where % 300)
    types = list(MessageType)
    type_ = types[what % len(types)] if where % 2 else like[5]
    head = like[:5] + bytes([type_]) + like[6:]
    return resealed(head, (where % 5).to_bytes(4, "big") + payload, IDENTITIES)


def _tell_server(server: Any, sender: int, message: bytes) -> bool:
    try:
        server.receive(sender, message)
    except (RemoteProtocolError, LocalProtocolError):
        return False
    return True


def _close(server: Any) -> None:
    try:
        server.close_round()
    except (RemoteProtocolError, LocalProtocolError, TooFewSurvivorsError, SumOutOfBoundsError):
        return


def _tell_client(client: Any, message: bytes) -> bytes | None:
    try:
        answer: bytes | None = client.receive(message)
    except (RemoteProtocolError, LocalProtocolError):
        return None
    return answer


def _server(config: Any, data: bytes) -> None:
    """Arbitrary messages in an arbitrary order; unless the server took a spoiled one its total is right."""
    said, script = pool(config)[0], pool(config)[2]
    server = new_server(config)
    took_spoiled, at = False, 0
    for kind, which, where, what in _moves(data):
        sender, message = said[which % len(said)]
        if kind <= 3 and at < len(script):
            at = _as_in_script(server, script, at)
        elif kind == 4:
            _tell_server(server, sender, message)
        elif kind == 5:
            spoiled = _spoiled(message, where, what)
            took_spoiled |= _tell_server(server, sender, spoiled) and spoiled != message
        elif kind == 6:
            took_spoiled |= _tell_server(server, sender, _made_up(message, where, what))
        else:
            _close(server)
    if server.result is not None and not took_spoiled:
        expected = sum(VECTORS[party] for party in server.result.survivors)
        assert (server.result.total == expected).all()


def _as_in_script(server: Any, script: list[tuple[int, bytes] | None], at: int) -> int:
    move = script[at]
    if move is None:
        _close(server)
    else:
        _tell_server(server, *move)
    return at + 1


def _client(config: Any, data: bytes) -> None:
    """Arbitrary messages in an arbitrary order; whatever comes, shares are revealed at most once, of one kind each."""
    asked = pool(config)[1]
    client = _new_client(config, 5)
    client.start()
    revealed, at = 0, 0
    for kind, which, where, what in _moves(data):
        message = asked[which % len(asked)]
        if kind <= 3 and at < len(asked):
            message, at = asked[at], at + 1
        elif kind == 5:
            message = _spoiled(message, where, what)
        elif kind >= 6:
            message = _made_up(message, where, what)
        for answer in _parts(_tell_client(client, message)):
            revealed += _reveals(answer)
    assert revealed <= 1


def _parts(answer: bytes | None) -> list[bytes]:
    """The messages of an answer, be it a bundle or one message."""
    if answer is None or message_type(answer) is not MessageType.BUNDLE:
        return [] if answer is None else [answer]
    parts, rest = [], payload_of(answer)
    while rest:
        size = int.from_bytes(rest[:8], "big")
        parts.append(rest[8 : 8 + size])
        rest = rest[8 + size :]
    return parts


def _reveals(answer: bytes) -> bool:
    if message_type(answer) is not MessageType.UNMASK_SHARES:
        return False
    shares = UnmaskShares.read(Reader(memoryview(payload_of(answer)), peer=5))
    assert not shares.mask_key_shares.keys() & shares.self_mask_shares.keys()
    return True


def new_server(config: Any) -> Any:
    if isinstance(config, MaskedSeries):
        return SeriesServer(config).begin_sum(LAYOUT, b"")
    return config.server(secrets=knows(SERVER_KEY if config.is_authenticated else None))


def _new_client(config: Any, party: int) -> Any:
    if isinstance(config, MaskedSeries):
        return SeriesClient(config, party, entropy=entropy(f"{party}")).begin_sum(LAYOUT, b"", VECTORS[party])
    identity = IDENTITIES[party] if config.is_authenticated else None
    return config.client(party, VECTORS[party], entropy=entropy(f"{party}"), secrets=knows(identity))


Pool = tuple[list[tuple[int, bytes]], list[bytes], list[tuple[int, bytes] | None]]


@cache
def pool(config: Any) -> Pool:
    """A good run: what clients said, what client 5 was asked, and the server's script (None: the round closes)."""
    said: list[tuple[int, bytes]] = []
    asked: list[bytes] = []
    script: list[tuple[int, bytes] | None] = []
    server, clients = new_server(config), {party: _new_client(config, party) for party in CLIENTS}
    answers: dict[int, bytes] = {party: client.start() for party, client in clients.items()}
    while answers:
        for party, answer in answers.items():
            server.receive(party, answer)
            said.append((party, answer))
            script.append((party, answer))
        script.append(None)
        requests = server.close_round()
        asked += [requests[5]] if 5 in requests else []
        answers = {party: clients[party].receive(request) for party, request in requests.items()}
    return said, asked, script


def _keys(reader: Reader) -> AdvertisedKeys:
    return AdvertisedKeys.read(reader, signature=b"")


DECODERS: dict[str, Target] = {
    "frame": _frame,
    "advertised_keys": partial(_message, _keys),
    "roster": partial(_message, lambda reader: Roster.read(reader, signature_bytes=0)),
    "signed_roster": partial(_message, lambda reader: Roster.read(reader, signature_bytes=64)),
    "sealed_shares": partial(_message, SealedShares.read),
    "share_delivery": partial(_message, ShareDelivery.read),
    "signed_share_delivery": partial(_message, partial(ShareDelivery.read, signs_peers=True)),
    "unmask_request": partial(_message, read_parties),
    "survivor_signature": partial(_message, lambda reader: reader.only(SIGNATURE_BYTES)),
    "survivor_proof": partial(_message, SurvivorProof.read),
    "survivor_proof_with_peers": partial(_message, partial(SurvivorProof.read, signs_peers=True)),
    "unmask_shares": partial(_message, UnmaskShares.read),
    "vector": _vector,
    "receipt": _receipt,
    "sealed": _sealed,
}
STORED: dict[str, Target] = {
    "client_snapshot": partial(_client_snapshot, TRUSTING),
    "signed_client_snapshot": partial(_client_snapshot, SIGNED),
    "server_snapshot": partial(_server_snapshot, TRUSTING),
    "signed_server_snapshot": partial(_server_snapshot, SIGNED),
    "durable_client": _durable_client,
    "durable_server": _durable_server,
}
SESSIONS: dict[str, Target] = {
    "server": partial(_server, TRUSTING),
    "signed_server": partial(_server, SIGNED),
    "series_server": partial(_server, SERIES),
    "client": partial(_client, TRUSTING),
    "signed_client": partial(_client, SIGNED),
    "series_client": partial(_client, SERIES),
}
TARGETS = DECODERS | STORED | SESSIONS


def seeds() -> Iterator[bytes]:
    """Bytes worth starting from, each after the number of its target: good payloads, snapshots and whole scripts."""
    numbers = {name: bytes([number]) for number, name in enumerate(TARGETS)}
    for config in (TRUSTING, SIGNED):
        for sender, message in pool(config)[0]:
            type_ = MessageType(message[5]).name.lower()
            yield numbers.get(type_, numbers["frame"]) + payload_of(message)
            yield numbers["frame"] + message.replace(message[38:42], (5).to_bytes(4, "big")) + bytes([sender])
        for message in pool(config)[1]:
            yield numbers.get(MessageType(message[5]).name.lower(), numbers["frame"]) + payload_of(message)
    for name in ("server", "client"):
        for config, prefix in ((TRUSTING, ""), (SIGNED, "signed_")):
            yield from (numbers[f"{prefix}{name}_snapshot"] + body for body in good_snapshots(config, name))
    for name in SESSIONS:
        yield numbers[name] + bytes(6 * 24)


@cache
def good_snapshots(config: MaskedSum, role: str) -> tuple[bytes, ...]:
    """The bodies of snapshots at every step of a good run."""
    bodies = []
    server, client = new_server(config), _new_client(config, 5)
    for move in pool(config)[2]:
        if move is None:
            server.close_round()
        else:
            server.receive(*move)
        bodies.append(server.snapshot())
    if role == "server":
        return tuple(bodies)
    client.start()
    bodies = [client.snapshot()]
    for message in pool(config)[1]:
        client.receive(message)
        bodies.append(client.snapshot())
    return tuple(bodies)
