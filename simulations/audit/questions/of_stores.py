"""Questions to parties that live in stores: every one is made anew before every step, with vectors that are long."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from federation.modes import MODES
from secagg import InsecureSeededEntropy, IntVector, PartySecrets, ReceiptedSum, SignedBy, SumProtocol, new_session_id
from secagg.config import SERVER
from secagg.dp import CoordinateNoise, DistributedNoise, NoisySum, make_room
from secagg.durable import DurableClient, DurableServer, FileStore
from secagg.in_memory import run_in_memory
from secagg.layout import Layout
from secagg.masked.series import MaskedSeries
from secagg.masked.series_in_one_process import SeriesInOneProcess
from secagg.wire import message_type, payload_of
from simulations.audit.questions import Question
from simulations.audit.questions.of_sessions import sealed_again
from simulations.audit.questions.of_sums import (
    BOXES,
    CLIENTS,
    COMMITTEE,
    FOUR,
    KEYS,
    PLAIN,
    SESSION,
    SIGNED,
    SIGNERS,
)
from simulations.audit.questions.said import answer, hashed

LONG = Layout.of([("bytes", 70_000, 100), ("numbers", 3000, 2**40), ("wide", 2000, 2**60, 2**57), ("one", 1, 99)])
SHORT = Layout.of([("counts", 3, 1000)])
SHARES = DistributedNoise(
    total=CoordinateNoise(levels=np.resize([1, 2, 1], LONG.size).astype(np.uint8), variances=(900, 2**20)),
    promised_survivors=3,
    colluders=1,
)
MASKED = replace(SIGNED, layout=LONG)
SUMS: dict[str, tuple[SumProtocol, int]] = {
    "plain": (replace(PLAIN, layout=LONG, **SIGNERS), 9),
    "masked": (MASKED, 9),
    "masked, one vanishes before its vector": (MASKED, 2),
    "masked, one vanishes after its vector": (MASKED, 3),
    "masked, noise": (
        NoisySum(protocol=replace(SIGNED, layout=make_room(LONG, len(CLIENTS), SHARES)), layout=LONG, noise=SHARES),
        9,
    ),
    "committee": (replace(FOUR, layout=LONG), 9),
    "committee of forty clients": (replace(COMMITTEE, layout=SHORT, clients=tuple(range(11, 51))), 9),
    "receipts of clients": (ReceiptedSum(protocol=MASKED, signed_by=SignedBy.CLIENTS), 9),
    "receipts of helpers": (ReceiptedSum(protocol=replace(FOUR, layout=LONG), signed_by=SignedBy.HELPERS), 9),
}
"""Each with how many messages the last client sends before it vanishes."""


def about_stores() -> Iterator[Question]:
    """Return all of them."""
    for name, (protocol, sent) in SUMS.items():
        yield f"stored, {name}", partial(_stored, protocol, sent)
    for name in ("ckks", "bfv", "masked+ckks", "masked+bfv"):
        if MODES[name].installed:
            yield f"stored, {name}, a copy of another's vector", partial(_copied, name)
    yield "a series, what consent is asked for", _consents


def _vector(layout: Layout, party: int) -> IntVector:
    """Numbers of all sizes that a client may have, of both signs."""
    drawn, parts = np.random.default_rng(party), []
    for one in layout.segments:
        most = min(one.bound // 50, one.client_bound or one.bound)
        parts.append(drawn.integers(-most, most + 1, one.size))
    return np.concatenate(parts)


def _stored(protocol: SumProtocol, sent: int) -> object:
    """All that is said, whether it is said again, who consents, what comes out and what lies on the disk afterwards."""
    clients, helpers, asked = protocol.clients, set(protocol.helpers), list[object]()

    def consent(protocol: SumProtocol, survivors: object, rows: object) -> None:
        asked.append([protocol.digest, survivors])

    def session(party: int) -> Any:
        boxes = BOXES.get(party) if party in helpers else None
        signs = bool(protocol.identity_of(party))
        secrets = PartySecrets(identity=KEYS[party] if signs else None, boxes=boxes, consent=consent)
        entropy = InsecureSeededEntropy(party, "questions")
        if party in helpers:
            return protocol.helper(party, secrets=secrets, entropy=entropy)
        own: Any = protocol
        if isinstance(own, NoisySum):
            own = replace(own, noise_entropy=InsecureSeededEntropy(party, "noise"))
        return own.client(party, _vector(protocol.layout, party), secrets=secrets, entropy=entropy)

    with TemporaryDirectory() as folder:
        place = Path(folder)

        def own(party: int) -> DurableClient:
            return DurableClient(FileStore(place / f"{party}"), bytes([party]) * 32, session(party))

        def server() -> DurableServer:
            secrets = PartySecrets(identity=KEYS[SERVER] if protocol.identity_of(SERVER) else None)
            fresh = protocol.server(secrets=secrets, entropy=InsecureSeededEntropy(0, "questions"))
            return DurableServer(FileStore(place / "server"), fresh)

        known = (lambda said: (len(said), said[:6])) if helpers else hashed  # boxes for helpers are drawn
        said, found = {party: own(party).start() for party in (*clients, *sorted(helpers))}, list[object]()
        for number in range(1, 12):
            for party, message in said.items():
                if message is not None:
                    found.append((party, known(message)))
                    server().receive(party, message)
            requests = server().close_round()
            found.append(server().requests == requests)
            heard = {party: one for party, one in requests.items() if party != clients[-1] or number < sent}
            said = {party: own(party).receive(message) for party, message in heard.items()}
            found += [own(party).receive(message) == said[party] for party, message in heard.items()]
            if not requests or server().result is not None:
                break
        result = server().result
        assert result is not None
        right = sum(_vector(protocol.layout, party) for party in result.survivors)
        pieces = [(place / f"{party}").read_bytes()[-64:] for party in clients]
        for party in (*clients, *helpers):
            own(party).end()
        left = sum(piece in path.read_bytes() for path in place.iterdir() for piece in pieces)
        names = sorted(path.name for path in place.iterdir())
        return (
            found,
            asked,
            result.survivors,
            bool((result.total == right).all()),
            hashed(result.total.tobytes()),
            names,
            left,
        )


def _copied(mode: str) -> object:
    """What a server makes of a client that says another's ciphertexts are its own, before it is restored and after."""
    layout = Layout.of([("few", 3, 10)])
    parties = MODES[mode].in_one_process(
        layout=layout, clients=CLIENTS, session_id=new_session_id(), identity_of=KEYS.__getitem__
    )
    protocol, found = parties.protocol, list[object]()
    server = parties.server()
    sessions = {party: parties.client(party, np.zeros(3, dtype=np.int64)) for party in CLIENTS}
    sessions |= {party: parties.helper(party) for party in parties.helpers}
    said = {party: session.start() for party, session in sessions.items()}
    while server.result is None and len(found) < 20:
        takes = [party for party, message in said.items() if message is not None]
        for party in takes:
            message = said[party] or b""
            if party == CLIENTS[1] and takes[0] == CLIENTS[0]:
                first = said[CLIENTS[0]] or b""
                kind = message_type(message)
                assert kind is not None
                copy = sealed_again(message, payload_of(first), KEYS[party])
                again = protocol.server(secrets=parties.secrets.get(SERVER, PartySecrets()))
                again.restore(server.snapshot())
                found.append([kind.name, answer(partial(again.receive, party, copy))])
            server.receive(party, message)
        requests = server.close_round()
        if not requests:
            break
        said = {party: sessions[party].receive(message) for party, message in requests.items()}
    return found


def _consents() -> object:
    """What each client of three sums of a series is asked about before it says yes."""
    asked: dict[int, list[object]] = {party: [] for party in CLIENTS}

    def consent_of(party: int) -> Callable[..., None]:
        return lambda protocol, survivors, rows: asked[party].append([protocol.digest, survivors])

    series = MaskedSeries(clients=CLIENTS, series_id=SESSION, threshold=4, **SIGNERS)
    secrets = {party: PartySecrets(identity=KEYS[party], consent=consent_of(party)) for party in CLIENTS}
    secrets[SERVER] = PartySecrets(identity=KEYS[SERVER])
    parties = SeriesInOneProcess(series, secrets=secrets)
    found = []
    for context in (b"first", b"second", b"third"):
        vectors = {party: np.array([party]) for party in CLIENTS}
        found.append(run_in_memory(parties.next_sum(Layout.of([("one", 1, 99)]), context), vectors).result.total)
    return found, asked
