"""Questions to everything that is drawn: twice from the same beginning it must be something else each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from federation.audit_plan import BoundPlan
from secagg import IdentityKey, InOneProcess, MaskedSum, PartySecrets, new_session_id, os_entropy, run_in_memory
from secagg.carriers import choose_parameters
from secagg.committee.epochs import OwnEpochs
from secagg.dp import CentralNoisySum, CoordinateNoise, NoisySum, make_room
from secagg.dp.discrete_gaussian import DiscreteGaussian
from secagg.durable import DurableClient, FileStore
from secagg.masked.series import MaskedSeries
from secagg.primitives.boxes import BoxKey, seal_box
from secagg.primitives.sealing import seal
from simulations.audit.questions import Question
from simulations.audit.questions.of_sums import (
    BOXES,
    CLIENTS,
    COMMITTEE,
    KEYS,
    LAYOUT,
    NOISY,
    PLAIN,
    SESSION,
    SHARES,
    SIGNED,
)

CIPHERS: Any = import_module("secagg.carriers.seal")
"""What it rounds with is asked for where it uses it."""

NOTHING = np.zeros(3, dtype=np.int64)
TIMES = 4
NOISE = CoordinateNoise(levels=np.ones(3, dtype=np.uint8), variances=(10**12,))
"""So wide that no two draws are alike by chance."""


def about_draws() -> Iterator[Question]:
    """Return all of them."""
    shares = replace(SHARES, total=NOISE)
    room = make_room(LAYOUT, len(CLIENTS), shares)
    noised = NoisySum(protocol=replace(PLAIN, layout=room), layout=LAYOUT, noise=shares)
    drawn: dict[str, Callable[[], object]] = {
        "a session's id": new_session_id,
        "an identity": lambda: IdentityKey.generate().secret,
        "a key of boxes": lambda: BoxKey.generate(os_entropy).secret,
        "a box": lambda: seal_box(BOXES[6].public, b"content", "what it is"),
        "what is sealed": lambda: seal(bytes(32), b"content", b"what it is", entropy=os_entropy),
        "the nonce of a plan": lambda: BoundPlan(content=b"plan").nonce,
        "the first message of a masked sum": lambda: _client(SIGNED).start(),
        "the masked vector": _masked_vector,
        "the first message of a committee's client": lambda: _client(COMMITTEE).start(),
        "the first message of a noisy sum": lambda: _client(NOISY).start(),
        "the first message of a series": lambda: _member(),
        "noise of one number": lambda: DiscreteGaussian(10**30).draw(1).tolist(),
        "noise of many numbers": lambda: DiscreteGaussian(10**12).draw(5000).tolist(),
        "noise that a client adds": lambda: _client(noised).start(),
        "noise that a server adds": _noise_of_server,
        "the rounding of an encrypted message": _rounding,
        "a helper's epoch": _epoch,
        "a helper's epoch of a stated number": partial(_epoch, 7),
        "a stored session": _record,
    }
    for name, draw in drawn.items():
        yield f"drawn, {name}", partial(_differ, draw)


def _differ(draw: Callable[[], object]) -> tuple[int, int]:
    """How many of a few draws there are, and how many different ones."""
    found = [repr(draw()) for _ in range(TIMES)]
    return len(found), len(set(found))


def _client(protocol: Any, party: int = 1) -> Any:
    signs = KEYS[party] if protocol.identity_of(party) else None
    return protocol.client(party, NOTHING, secrets=PartySecrets(identity=signs))


def _masked_vector() -> bytes:
    """What hides a client's noughts, in a cohort whose other clients are the same each time."""
    protocol = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=SESSION)
    clients, server = {party: protocol.client(party, NOTHING) for party in CLIENTS}, protocol.server()
    said = {party: client.start() for party, client in clients.items()}
    for _ in range(2):
        for party, message in said.items():
            server.receive(party, message or b"")
        said = {party: clients[party].receive(request) for party, request in server.close_round().items()}
    return said[1] or b""


def _member() -> bytes | None:
    series = MaskedSeries(clients=CLIENTS, series_id=SESSION)
    return series.client(1).begin_sum(LAYOUT, b"", NOTHING).start()


def _noise_of_server() -> list[int]:
    """What a total of noughts comes out as."""
    parties = InOneProcess(protocol=CentralNoisySum(protocol=PLAIN, noise=NOISE))
    found: list[int] = run_in_memory(parties, dict.fromkeys(CLIENTS, NOTHING)).result.total.tolist()
    return found


def _rounding() -> list[int]:
    """What is added to a ciphertext, here of noughts, so that its rounding does not follow from the message."""
    parameters = choose_parameters(LAYOUT, len(CLIENTS), scheme="bfv")
    nothing = np.zeros((2, len(parameters.primes), parameters.degree), dtype=np.uint64)
    rounded: list[int] = CIPHERS.round_at_random(nothing, np.arange(parameters.degree), parameters, os_entropy).tolist()
    return rounded


def _epoch(number: int | None = None) -> bytes:
    """The public key of a helper's first epoch, in a store of its own."""
    with TemporaryDirectory() as folder:
        return OwnEpochs(FileStore(Path(folder) / "epochs"), KEYS[6]).begin(1000.0, 60.0, number=number).key


def _record() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session"
        DurableClient(FileStore(path), bytes(32), COMMITTEE.client(1, NOTHING)).start()
        return path.read_bytes()
