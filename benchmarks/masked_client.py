"""a, b, c. What one client of a masked sum costs: its masks, all that it computes, and its bytes."""

from __future__ import annotations

import importlib.util
import secrets
import time
import tracemalloc
from collections.abc import Callable, Iterator
from math import ceil, comb
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from benchmarks.measure import (
    Goal,
    Row,
    Section,
    Settings,
    Spread,
    Timed,
    alternate,
    compared,
    cpu_seconds,
    quotient,
    spaced,
)
from secagg import Assumptions, CommitteeSum, InsecureSeededEntropy, Layout, MaskedSum, run_in_memory
from secagg.primitives.mask_stream import add_masks, gcm_is_faster
from secagg.ring import RingVector
from secagg.sums import CLIENT_ROLE
from simulations.command_line.parameters_command import layout_of_statistics, planned_sum

PIECE_BYTES = 1 << 18
ENTRIES = 182_528
"""The statistics of 512 features and 100 classes."""
COMMITTEES = ((4, 1), (7, 2))
"""Helpers, and how many of them may be corrupt."""
BOUNDS = {64: 2**62, 32: 2**30}
"""A bound of the sum for each width of word."""


def masking(settings: Settings) -> Iterator[Row]:
    """Every size and number of neighbours, then 32-bit words, committees and memory."""
    sizes = settings.choose(full=(100_000, 1_000_000, 8_000_000), quick=(100_000,))
    neighbours = settings.choose(full=(10, 32, 100), quick=(10, 32))
    for n_entries in sizes:
        for n_masks in neighbours:
            yield _against_floor(settings, n_entries, n_masks, bits=64)
    for n_masks in neighbours:
        yield _against_floor(settings, sizes[-1], n_masks, bits=32)
    for helpers, corrupt in COMMITTEES:
        yield _against_floor(settings, ENTRIES, comb(helpers, corrupt), bits=64, whose=_sets(helpers, corrupt))
        yield _committee_client(settings, helpers, corrupt)
    yield _memory_of_masks(sizes[-1])


def _against_floor(settings: Settings, n_entries: int, n_masks: int, *, bits: int, whose: str = "neighbours") -> Row:
    words = np.zeros(n_entries, dtype=f"<u{bits // 8}")
    return compared(
        f"{spaced(n_entries)} entries of {bits} bits, {n_masks} {whose}",
        {
            "floor, CPU s": cpu_seconds(lambda: add_keystreams(words, n_masks)),
            "ours, CPU s": cpu_seconds(_masking(n_entries, n_masks, bits)),
        },
        settings,
        ratio=("ours, CPU s", "floor, CPU s"),
        goal=Goal(limit=1.25),
    )


def add_keystreams(words: NDArray[np.unsignedinteger[Any]], n_streams: int) -> None:
    """The floor: AES-256 streams of the vector's length in pieces of 256 KiB, and one ring addition each.

    They are of the cipher mode that is faster here: CTR, or GCM, which counts the same way.
    """
    mode = modes.GCM(bytes(12)) if gcm_is_faster() else modes.CTR(bytes(16))
    zeros, buffer = memoryview(bytes(PIECE_BYTES)), bytearray(PIECE_BYTES + 15)
    masks = np.frombuffer(buffer, dtype=words.dtype, count=PIECE_BYTES // words.itemsize)
    for _ in range(n_streams):
        stream = Cipher(algorithms.AES(secrets.token_bytes(32)), mode).encryptor()
        for start in range(0, len(words), len(masks)):
            piece = words[start : start + len(masks)]
            stream.update_into(zeros[: piece.nbytes], buffer)
            np.add(piece, masks[: len(piece)], out=piece)


def _masking(n_entries: int, n_masks: int, bits: int) -> Callable[[], None]:
    vector = RingVector.zeros(Layout.of([("vector", n_entries, BOUNDS[bits])]))
    masks = [(secrets.token_bytes(32), 1 if place % 2 else -1) for place in range(n_masks)]
    return lambda: add_masks(vector, masks, bytes(32))


def _sets(helpers: int, corrupt: int) -> str:
    return f"sets of a committee's {helpers} helpers, {corrupt} of them corrupt"


def _committee_client(settings: Settings, helpers: int, corrupt: int) -> Row:
    """All that a client of a committee does, from its vector to its message, without identities: for information."""
    parties = CommitteeSum.generate(
        layout=Layout.of([("vector", ENTRIES, BOUNDS[64])]),
        clients=(1, 2),
        session_id=bytes(16),
        n_helpers=helpers,
        corrupt_helpers=corrupt,
    )
    vector, words = np.arange(ENTRIES, dtype=np.int64), np.zeros(ENTRIES, dtype="<u8")
    return compared(
        f"the whole client beside its {comb(helpers, corrupt)} {_sets(helpers, corrupt)}",
        {
            "floor, CPU s": cpu_seconds(lambda: add_keystreams(words, comb(helpers, corrupt))),
            "ours, CPU s": cpu_seconds(lambda: parties.client(1, vector).start()),
        },
        settings,
        ratio=("ours, CPU s", "floor, CPU s"),
        goal=None,
    )


def _memory_of_masks(n_entries: int) -> Row:
    few, many = (_traced_peak(_masking(n_entries, n_masks, 64)) for n_masks in (10, 100))
    return Row(
        case=f"memory that one more neighbour takes, in vectors of {spaced(n_entries)} entries",
        figures={"10 neighbours, bytes": few, "100 neighbours, bytes": many},
        ratio=Spread.of([(many - few) / 90 / (8 * n_entries)]),
        goal=Goal(limit=0.001),
    )


def _traced_peak(work: Callable[[], None]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


MASKING = Section(
    letter="a",
    title="Masking a vector against its floor",
    method=(
        "Floor: an AES-256 stream of the vector's length in pieces of 256 KiB through `cryptography`, of the faster of "
        "CTR and GCM, and one ring addition, times the neighbours. Ours: `add_masks`, key derivation included. A "
        "committee's client adds a mask for each set of helpers that holds a seed; the whole client checks and masks "
        "its vector, seals a box for each helper and writes its message."
    ),
    run=masking,
)


GOALS = {32: Goal(limit=10.0, at_least=True), 100: Goal(limit=40.0, at_least=True)}
WITHOUT_FLOWER = "not installed: pip install '.[flower]'"


def whole_client(settings: Settings) -> Iterator[Row]:
    """One row a number of neighbours."""
    n_entries = settings.choose(full=ENTRIES, quick=5_000)
    for n_neighbours in settings.choose(full=(32, 100), quick=(8,)):
        candidates = {"ours": our_client(n_entries, n_neighbours)}
        if importlib.util.find_spec("flwr") is not None:
            candidates = {"flower": flower_client(n_entries, n_neighbours), **candidates}
        seconds = alternate(candidates, runs=settings.runs)
        beside = "flower" in seconds
        yield Row(
            case=f"{spaced(n_entries)} entries, {n_neighbours} neighbours",
            figures={
                "Flower SecAgg+, CPU s": Spread.of(seconds["flower"]) if beside else WITHOUT_FLOWER,
                "ours, CPU s": Spread.of(seconds["ours"]),
            },
            ratio=quotient(seconds["flower"], seconds["ours"]) if beside else None,
            goal=GOALS.get(n_neighbours),
        )


def our_client(n_entries: int, n_neighbours: int) -> Timed:
    """Keys, shares, masked vector, unmasking of a client whose neighbours all stay.

    The server's messages are recorded once. A client from the same seeded entropy has the same keys each time, so
    that they fit every run.
    """
    protocol = MaskedSum(
        layout=Layout.of([("vector", n_entries, 2**62)]),
        clients=tuple(range(1, n_neighbours + 2)),
        session_id=bytes(16),
    )
    vector = np.arange(n_entries, dtype=np.int64)
    requests = _requests_to_first(protocol)

    def work() -> None:
        client = protocol.client(1, vector, entropy=InsecureSeededEntropy(1))
        client.start()
        for request in requests:
            client.receive(request)

    return cpu_seconds(work)


def _requests_to_first(protocol: MaskedSum) -> list[bytes]:
    """All that the server says to client 1 in a real session."""
    nothing = np.zeros(protocol.layout.size, dtype=np.int64)
    clients = {p: protocol.client(p, nothing, entropy=InsecureSeededEntropy(p)) for p in protocol.clients}
    server = protocol.server()
    for party, client in clients.items():
        server.receive(party, _said(client.start()))
    recorded = []
    while requests := server.close_round():
        recorded.append(requests[1])
        for party, request in requests.items():
            server.receive(party, _said(clients[party].receive(request)))
    return recorded


def _said(message: bytes | None) -> bytes:
    assert message is not None  # a client of a masked sum always answers
    return message


WHOLE_CLIENT = Section(
    letter="b",
    title="The whole client against Flower's SecAgg+ client",
    method=(
        "Key agreement, secret sharing, masking and unmasking shares of one client in one sum, complete graph, nobody "
        "drops out, the same number of entries, neighbours and threshold. Flower: its `secaggplus_mod`, all four "
        "stages; what its messages cost to make is not counted. Ours: `MaskedSum`, 64-bit ring, all four messages."
    ),
    run=whole_client,
)


MEASURED = 1
"""The node whose work is measured; its neighbours are 2, 3, ..."""

SHARE_BYTES = 80
"""About what one of Flower's shares of a 32-byte secret takes; a holder only stores it."""


def flower_client(n_entries: int, n_neighbours: int) -> Timed:
    """CPU seconds of one client in one sum, nobody dropping out, with Flower's default quantisation."""
    from flwr.common.secure_aggregation.secaggplus_constants import Key, Stage
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, generate_key_pairs, public_key_to_bytes
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as Flower's runtime does
    vector = np.linspace(-1.0, 1.0, n_entries)
    pairs = {node: generate_key_pairs() for node in range(MEASURED + 1, MEASURED + 1 + n_neighbours)}
    keys = {
        str(node): [public_key_to_bytes(generate_key_pairs()[1]), public_key_to_bytes(public)]
        for node, (_, public) in pairs.items()
    }

    def run_once() -> float:
        client = _FlowerClient(vector)
        setup = client.ask(_flower_setup(n_neighbours + 1))
        own = {str(MEASURED): [setup[Key.PUBLIC_KEY_1], setup[Key.PUBLIC_KEY_2]]}
        client.ask({Key.STAGE: Stage.SHARE_KEYS, **own, **keys})
        boxes = [
            _sealed_shares(node, private, bytes_to_public_key(setup[Key.PUBLIC_KEY_2]))
            for node, (private, _) in pairs.items()
        ]
        client.ask({Key.STAGE: Stage.COLLECT_MASKED_VECTORS, Key.CIPHERTEXT_LIST: boxes, Key.SOURCE_LIST: list(pairs)})
        everybody = [MEASURED, *pairs]
        client.ask({Key.STAGE: Stage.UNMASK, Key.ACTIVE_NODE_ID_LIST: everybody, Key.DEAD_NODE_ID_LIST: []})
        return client.seconds

    return run_once


class _FlowerClient:
    """A node with the mod in front of an app that hands over its vector."""

    def __init__(self, vector: np.ndarray[Any, np.dtype[np.float64]]) -> None:
        from flwr.app import Context, RecordDict
        from flwr.common import Code, FitRes, Status, ndarrays_to_parameters

        self._context = Context(run_id=1, node_id=MEASURED, node_config={}, state=RecordDict(), run_config={})
        self._trained = FitRes(
            status=Status(code=Code.OK, message=""),
            parameters=ndarrays_to_parameters([vector]),
            num_examples=1,
            metrics={},
        )
        self.seconds = 0.0

    def ask(self, configs: dict[str, Any]) -> Any:
        """The mod's answer; its CPU seconds go to ``seconds``."""
        from flwr.app import ConfigRecord, Message, RecordDict
        from flwr.client.mod import secaggplus_mod
        from flwr.common.secure_aggregation.secaggplus_constants import RECORD_KEY_CONFIGS
        from flwr.compat.common import recorddict_compat

        content = RecordDict({RECORD_KEY_CONFIGS: ConfigRecord(configs)})
        message = Message(content, dst_node_id=MEASURED, message_type="train")
        trained = recorddict_compat.fitres_to_recorddict(self._trained, keep_input=True)
        reply = Message(trained, reply_to=message)
        started = time.process_time()
        answer = secaggplus_mod(message, self._context, lambda *_: reply)
        self.seconds += time.process_time() - started
        return answer.content.config_records[RECORD_KEY_CONFIGS]


def _flower_setup(holders: int) -> dict[str, Any]:
    from flwr.common.secure_aggregation.secaggplus_constants import Key, Stage

    return {
        Key.STAGE: Stage.SETUP,
        Key.SAMPLE_NUMBER: holders,
        Key.SHARE_NUMBER: holders,
        Key.THRESHOLD: 2 * holders // 3 + 1,
        Key.CLIPPING_RANGE: 8.0,
        Key.TARGET_RANGE: 1 << 22,
        Key.MOD_RANGE: 1 << 32,
        Key.MAX_WEIGHT: 1000.0,
    }


def _sealed_shares(node: int, private: Any, recipient: Any) -> bytes:
    from flwr.common.secure_aggregation.crypto.symmetric_encryption import encrypt, generate_shared_key
    from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat

    plaintext = share_keys_plaintext_concat(node, MEASURED, bytes(SHARE_BYTES), bytes(SHARE_BYTES))
    return bytes(encrypt(generate_shared_key(private, recipient), plaintext))


FACTOR, BYTES_A_NEIGHBOUR = 1.02, 2048
FITS = Goal(limit=1.0)


def wire_bytes(settings: Settings) -> Iterator[Row]:
    """Runs of real sessions, then larger cohorts from the message formats."""
    features = settings.choose(full=512, quick=48)
    for n_clients in settings.choose(full=(11, 33), quick=(11,)):
        layout = layout_of_statistics(n_clients, n_features=features)
        protocol = MaskedSum(layout=layout, clients=tuple(range(1, n_clients + 1)), session_id=bytes(16))
        zeros = np.zeros(protocol.layout.size, dtype=np.int64)
        run = run_in_memory(protocol, dict.fromkeys(protocol.clients, zeros))
        traffic = run.traffic[1]
        yield _bytes_row(f"{n_clients} clients, a real run", protocol, traffic.bytes_up, traffic.bytes_down)
    for n_clients in (100, 1000, 10_000):
        for malicious in (False, True):
            planned = planned_sum(n_clients, Assumptions(malicious_server=malicious), n_features=features)
            cost = planned.costs[CLIENT_ROLE]
            server = "malicious" if malicious else "semi-honest"
            yield _bytes_row(f"{n_clients} clients, {server} server", planned, cost.bytes_up, cost.bytes_down)


def _bytes_row(case: str, protocol: MaskedSum, bytes_up: int, bytes_down: int) -> Row:
    bound = sum(ceil(segment.bits / 8) * segment.size for segment in protocol.layout.segments)
    neighbours = len(protocol.neighbours(1))
    allowed = FACTOR * bound + BYTES_A_NEIGHBOUR * neighbours
    return Row(
        case=case,
        figures={
            "neighbours": neighbours,
            "vector's bound, bytes": bound,
            "up, bytes": bytes_up,
            "down, bytes": bytes_down,
            "up / bound": bytes_up / bound,
        },
        ratio=Spread.of([(bytes_up + bytes_down) / allowed]),
        goal=FITS,
    )


WIRE_BYTES = Section(
    letter="c",
    title="Bytes on the wire",
    method=(
        "The bound is ceil(bits / 8) bytes an entry, bits from the bound of the sum. The ratio sets all that a client "
        f"sends and receives against {FACTOR} x bound + {BYTES_A_NEIGHBOUR // 1024} KiB per neighbour."
    ),
    run=wire_bytes,
)
