"""Questions about what is large: a rule that a library keeps in small sums may have an end somewhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from analytic.afl import AFL
from analytic.learner import ClientRows
from analytic.weighted import Weighted
from federation.modes import MODES
from secagg import InsecureSeededEntropy, MaskedSum
from secagg.carriers.carrier import CarriedSum
from secagg.carriers.encrypted import Encrypted
from secagg.carriers.residues import read_ciphertexts
from secagg.dp.discrete_gaussian import DiscreteGaussian
from secagg.layout import Layout
from secagg.primitives.mask_stream import add_masks
from secagg.ring import RingVector
from secagg.wire import MessageType, seal_frame
from simulations.audit.questions import Question
from simulations.audit.questions.of_forms import LINEAR, clients_of
from simulations.audit.questions.of_sums import KEYS, LAYOUT, SESSION
from simulations.audit.questions.said import hashed

BYTES = 5 << 20
"""Of a vector: more than a thread's part, and than many a piece."""

BOUNDS = (100, 10_000, 2**30, 2**60)
"""Words of one, two, four and eight bytes."""

COHORT = tuple(range(1, 71))

COORDINATES = 20_000

WEIGHTS = (0, 1, 255, 256, 2**16, 2**20 + 3)


def about_sizes() -> Iterator[Question]:
    """Return all of them."""
    for bound in BOUNDS:
        yield f"masks of {BYTES} bytes, of words up to {bound}", partial(_masked, bound)
    yield "a cohort of seventy", _shared
    for size in (1 << 10, 1 << 18, 1 << 23):
        yield f"frame of {size} bytes", partial(_frame, size)
    if MODES["bfv"].installed:
        for mode in ("bfv", "ckks"):
            yield f"halves that ciphertexts of {mode} share", partial(_shared_halves, mode)
    yield "noise that comes again along a vector", _repeats
    for variance in (4, 10**6, 10**30):
        yield f"noise of variance {variance} along a vector", partial(_drawn, variance)
    for weight in WEIGHTS:
        yield f"rows of weight {weight}", partial(_weighed, weight)
    yield "the same rows by other weights", _weighed_again


def _masked(bound: int) -> tuple[str, ...]:
    """Quarters of a vector of noughts under two masks."""
    words = np.dtype(Layout.of([("one", 1, bound)]).segments[0].word).itemsize
    vector = RingVector.zeros(Layout.of([("long", BYTES // words, bound)]))
    add_masks(vector, [(bytes(range(32)), 1), (bytes(range(1, 33)), -1)], bytes(32))
    return tuple(hashed(quarter.tobytes()) for quarter in np.array_split(vector.words[0], 4))


def _shared() -> list[str]:
    """What a client of a large cohort says, shares and all."""
    protocol = MaskedSum(layout=LAYOUT, clients=COHORT, session_id=SESSION)
    clients = {
        party: protocol.client(party, np.zeros(3, dtype=np.int64), entropy=InsecureSeededEntropy(party, "questions"))
        for party in COHORT
    }
    server, said = protocol.server(), {party: client.start() or b"" for party, client in clients.items()}
    for party, message in said.items():
        server.receive(party, message)
    answer = clients[1].receive(server.close_round()[1]) or b""
    return [hashed(said[1]), hashed(answer)]


def _shared_halves(mode: str) -> int:
    """How many ciphertexts of one vector have their randomness from another one."""
    layout = Layout.of([("long", 20_000, 2**40)])
    protocol = MODES[mode].in_one_process(layout=layout, clients=COHORT[:5], session_id=SESSION).protocol
    assert isinstance(protocol, CarriedSum)
    assert isinstance(protocol.carrier, Encrypted)
    cipher = protocol.carrier.cipher(protocol)
    upload = cipher.encrypt(RingVector.zeros(layout), protocol.carrier.public_context)
    found = read_ciphertexts(upload, cipher.parameters, cipher.n_ciphertexts)
    return len(found) - len({residues[1].tobytes() for residues in found}) if len(found) > 2 else -1


def _frame(size: int) -> str:
    identity = KEYS[1]
    frame = seal_frame(
        MessageType.MASKED_INPUT, bytes(size), digest=bytes(32), sender=1, recipient=0, identity=identity
    )
    return hashed(frame)


def _repeats() -> list[int]:
    """How far apart coordinates have the same noise, of so wide a law that by chance none have."""
    drawn = DiscreteGaussian(10**30).draw(COORDINATES, InsecureSeededEntropy(1, "questions"))
    shifts = [2**place + more for place in range(14) for more in (-1, 0)]
    return [shift for shift in shifts if shift and (drawn[shift:] == drawn[:-shift]).any()]


def _drawn(variance: int) -> str:
    drawn = DiscreteGaussian(variance).draw(COORDINATES, InsecureSeededEntropy(1, "questions"))
    return hashed(repr(drawn.tolist()).encode())


def _weighed(weight: int) -> object:
    """Statistics of rows of which one has this weight, and whether they are the sum of so many copies'."""
    learner = Weighted(learner=AFL(**{**LINEAR, "max_rows": 2**22}), max_weight=2**21)
    rows = clients_of()[0].taken(np.arange(3))

    def added(*weights: int) -> Any:
        return learner.client_statistics(learner.init(), ClientRows(rows.features, rows.targets, np.array(weights)))[1]

    found, light, one = added(1, weight, 2), added(1, 0, 2), added(0, 1, 0)
    return found, [
        bool(np.all(getattr(found, part) == getattr(light, part) + weight * getattr(one, part)))
        for part in ("gram", "cross", "count")
    ]


def _weighed_again() -> object:
    """Statistics of one object's rows under one learner's class weights, then another's."""
    inner, rows = AFL(**LINEAR), clients_of()[0]
    each = [Weighted(learner=inner, max_weight=9, class_weights=own) for own in ((1, 2, 3), (3, 1, 2))]
    return [learner.client_statistics(learner.init(), rows) for learner in (*each, each[0])]
