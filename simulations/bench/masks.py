"""a. What masking a vector costs beside the least that its masks can cost."""

from __future__ import annotations

import secrets
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from secagg.layout import Layout
from secagg.primitives.mask_stream import MOST_THREADS, add_masks
from secagg.ring import RingVector
from simulations.bench.measure import Goal, Row, Section, Settings, Spread, compared, cpu_seconds, spaced, wall_seconds

PIECE_BYTES = 1 << 18
BOUNDS = {64: 2**62, 32: 2**30}
"""A bound of the sum for each width of word."""


def measure(settings: Settings) -> Iterator[Row]:
    """Every size and number of neighbours, then 32-bit words, memory and threads."""
    sizes = settings.choose(full=(100_000, 1_000_000, 8_000_000), quick=(100_000,))
    neighbours = settings.choose(full=(10, 32, 100), quick=(10, 32))
    for n_entries in sizes:
        for n_masks in neighbours:
            yield _against_floor(settings, n_entries, n_masks, bits=64)
    for n_masks in neighbours:
        yield _against_floor(settings, sizes[-1], n_masks, bits=32)
    yield _memory(sizes[-1])
    yield _two_threads(settings, sizes[-1])


def _against_floor(settings: Settings, n_entries: int, n_masks: int, *, bits: int) -> Row:
    words = np.zeros(n_entries, dtype=f"<u{bits // 8}")
    return compared(
        f"{spaced(n_entries)} entries of {bits} bits, {n_masks} neighbours",
        {
            "floor, CPU s": cpu_seconds(lambda: add_keystreams(words, n_masks)),
            "ours, CPU s": cpu_seconds(_masking(n_entries, n_masks, bits)),
        },
        settings,
        ratio=("ours, CPU s", "floor, CPU s"),
        goal=Goal(limit=1.25),
    )


def add_keystreams(words: NDArray[np.unsignedinteger[Any]], n_streams: int) -> None:
    """The floor: AES-256-CTR streams of the vector's length in pieces of 256 KiB, and one ring addition each."""
    zeros, buffer = memoryview(bytes(PIECE_BYTES)), bytearray(PIECE_BYTES + 15)
    masks = np.frombuffer(buffer, dtype=words.dtype, count=PIECE_BYTES // words.itemsize)
    for _ in range(n_streams):
        stream = Cipher(algorithms.AES(secrets.token_bytes(32)), modes.CTR(bytes(16))).encryptor()
        for start in range(0, len(words), len(masks)):
            piece = words[start : start + len(masks)]
            stream.update_into(zeros[: piece.nbytes], buffer)
            np.add(piece, masks[: len(piece)], out=piece)


def _masking(n_entries: int, n_masks: int, bits: int, *, max_threads: int = MOST_THREADS) -> Callable[[], None]:
    vector = RingVector.zeros(Layout.of([("vector", n_entries, BOUNDS[bits])]))
    masks = [(secrets.token_bytes(32), 1 if place % 2 else -1) for place in range(n_masks)]
    return lambda: add_masks(vector, masks, bytes(32), max_threads=max_threads)


def _memory(n_entries: int) -> Row:
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


def _two_threads(settings: Settings, n_entries: int) -> Row:
    """What the second core brings to our masks, on the clock."""
    one, two = (_masking(n_entries, 100, 64, max_threads=n_threads) for n_threads in (1, MOST_THREADS))
    return compared(
        f"{spaced(n_entries)} entries of 64 bits, 100 neighbours: how much faster two threads are, on the clock",
        {"one thread, s": wall_seconds(one), "two threads, s": wall_seconds(two)},
        settings,
        ratio=("one thread, s", "two threads, s"),
        goal=Goal(limit=1.25, at_least=True),
    )


SECTION = Section(
    letter="a",
    title="Masking a vector against its floor",
    method=(
        "Floor: an AES-256-CTR stream of the vector's length in pieces of 256 KiB through `cryptography`, and one "
        "ring addition, times the neighbours. Ours: `add_masks`, key derivation included."
    ),
    run=measure,
)
