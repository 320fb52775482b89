"""A masked upload alone looks like fair dice, and each way in which masks are known to go wrong does not.

Null hypothesis: every entry of an upload is uniform on its ring and independent of every other. One verdict takes
the statistics below from one upload, n = 338 000 bytes, and rejects if the least p-value times their number is below
ALPHA (Bonferroni), so a sound mask is rejected with probability at most 1e-6 a verdict, for any vector.

- bytes: chi-square with 255 degrees of freedom, for each segment and each place of a byte in its entry;
- words: chi-square of each entry's leading byte over the even, the odd and the last quarter of entries (25 a cell);
- serial: correlation of successive entries, normal with variance 1 / n under independence;
- two samples: chi-square of homogeneity against as many bytes of the operating system's generator;
- repetition: equal 8-byte entries; the chance of a single one is below 40 000^2 / 2^65 < 1e-10.

Each twin feeds one broken mask and must be rejected. The seeds are fixed; the slow form runs seeds 0 to 99.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from secagg import InsecureSeededEntropy, IntVector, Layout, MaskedSum, os_entropy, run_in_memory
from secagg.in_memory import Envelope
from secagg.masked.secrets import pairwise_seed, pairwise_sign
from secagg.primitives.mask_stream import add_masks
from secagg.ring import PIECE_BYTES, RingVector
from secagg.wire import HEADER_BYTES, MessageType, message_type

ALPHA = 1e-6
LAYOUT = Layout.of([("gram", 40_000, 2**62), ("cross", 26_000, 2**30), ("count", 26_000, 100)])
"""8, 4 and 1 bytes an entry; the first two segments are longer than a piece of the mask stream."""

CLIENTS = (1, 2, 3)
Bytes = NDArray[np.uint8]
Words = NDArray[np.unsignedinteger]

pytestmark = pytest.mark.statistical


def structured_vector() -> IntVector:
    """What a leak would show best: long runs of zeros, of ones and of the extremes."""
    vector = np.zeros(LAYOUT.size, dtype=np.int64)
    for segment, place in LAYOUT.slices():
        part = vector[place]
        quarter = segment.size // 4
        part[quarter : 2 * quarter] = 1
        part[2 * quarter : 3 * quarter] = segment.bound // len(CLIENTS)
        part[3 * quarter :] = -(segment.bound // len(CLIENTS))
    return vector


VECTOR = structured_vector()


def uploads(seed: int, vector: IntVector = VECTOR) -> list[bytes]:
    """The masked vectors of a whole run, as they stand on the wire; all clients hold the same vector."""
    sent: list[bytes] = []

    def record(envelope: Envelope) -> None:
        if message_type(envelope.message) is MessageType.MASKED_INPUT:
            sent.append(envelope.message[HEADER_BYTES:])

    protocol = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=seed.to_bytes(16, "big"))
    run_in_memory(protocol, dict.fromkeys(CLIENTS, vector), entropy=InsecureSeededEntropy(seed), record=record)
    return sent


# The statistics


def segments(upload: bytes) -> Iterator[tuple[str, Bytes]]:
    """Each segment's bytes, one row an entry."""
    at = 0
    for segment in LAYOUT.segments:
        end = at + segment.size * segment.wire_bytes
        yield segment.name, np.frombuffer(upload[at:end], dtype=np.uint8).reshape(segment.size, segment.wire_bytes)
        at = end


def uniform_p(values: Bytes) -> float:
    """Chi-square p-value of 256 equally likely cells; at least 6 500 values, 25 a cell."""
    counts = np.bincount(values, minlength=256)
    return float(stats.chisquare(counts).pvalue)


def homogeneous_p(values: Bytes, other: Bytes) -> float:
    """Chi-square p-value of two samples of one size having one law, whatever it is."""
    a, b = np.bincount(values, minlength=256).astype(float), np.bincount(other, minlength=256).astype(float)
    both = a + b
    statistic = float(np.sum(np.divide((a - b) ** 2, both, out=np.zeros(256), where=both > 0)))
    return float(stats.chi2.sf(statistic, 255))


def serial_p(values: NDArray[np.float64]) -> float:
    """Two-sided p-value of the lag-one correlation."""
    centred = values - values.mean()
    spread = float(centred @ centred)
    if spread == 0:
        return 0.0
    return float(2 * stats.norm.sf(abs(float(centred[:-1] @ centred[1:])) / spread * np.sqrt(len(values))))


def p_values(upload: bytes) -> dict[str, float]:
    """Every statistic's p-value under the null hypothesis."""
    found: dict[str, float] = {}
    fresh = np.frombuffer(os_entropy(len(upload)), dtype=np.uint8)
    found["two samples"] = homogeneous_p(np.frombuffer(upload, dtype=np.uint8), fresh)
    for name, entries in segments(upload):
        size, width = entries.shape
        for place in range(width):
            found[f"bytes {name} {place}"] = uniform_p(entries[:, place])
        leading = entries[:, -1]
        found[f"words {name} even"] = uniform_p(leading[::2])
        found[f"words {name} odd"] = uniform_p(leading[1::2])
        found[f"words {name} tail"] = uniform_p(leading[-size // 4 :])
        low = entries.astype(np.float64) @ 256.0 ** np.arange(-width, 0)
        found[f"serial {name}"] = serial_p(low)
        if width == 8:
            repeated = size - len(np.unique(np.ascontiguousarray(entries).view("<u8")))
            found[f"repetition {name}"] = 1.0 if repeated == 0 else size**2 / 2.0**65
    return found


def rejects(upload: bytes) -> bool:
    """The verdict on one upload at level ALPHA."""
    found = p_values(upload)
    return min(found.values()) * len(found) < ALPHA


# Sound masks pass


SHORT = [0, 1, 2]
LONG = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 100)]


@pytest.mark.parametrize("seed", SHORT + LONG)
def test_an_upload_alone_is_uniform(seed: int) -> None:
    for upload in uploads(seed)[: 3 if seed in SHORT else 1]:
        assert not rejects(upload), p_values(upload)


@pytest.mark.parametrize("seed", SHORT)
def test_the_difference_of_two_uploads_of_one_vector_is_uniform(seed: int) -> None:
    """Two sessions, and two clients within one: nothing cancels but in the sum of all."""
    one, other = uploads(seed), uploads(seed + 1000)
    assert not rejects(minus(one[0], other[0]))
    assert not rejects(minus(one[0], one[1]))


@pytest.mark.parametrize("seed", SHORT)
def test_an_upload_without_its_pairwise_masks_is_uniform(seed: int) -> None:
    """What the server holds of a client whose peers all vanished: the self-mask alone still hides the vector."""
    upload, pairwise = upload_and_pairwise_masks(seed)
    assert not rejects(minus(upload, pairwise))


@pytest.mark.parametrize("seed", SHORT)
def test_an_upload_without_its_self_mask_is_uniform(seed: int) -> None:
    """What the server holds of a survivor: the pairwise masks alone still hide the vector."""
    upload, pairwise = upload_and_pairwise_masks(seed)
    self_mask = minus(minus(upload, wire(VECTOR)), pairwise)
    assert not rejects(self_mask)
    assert not rejects(minus(upload, self_mask))


def wire(vector: IntVector) -> bytes:
    """A vector in the clear."""
    return RingVector.encode(LAYOUT, vector).to_bytes()


def minus(one: bytes, other: bytes) -> bytes:
    """The difference of two uploads in their ring."""
    result, taken = RingVector.from_bytes(LAYOUT, one), RingVector.from_bytes(LAYOUT, other)
    return RingVector(LAYOUT, [a - b for a, b in zip(result.words, taken.words, strict=True)]).to_bytes()


def upload_and_pairwise_masks(seed: int) -> tuple[bytes, bytes]:
    """Client 1's upload, and the sum of the masks that it shares with its peers, who tell them."""
    protocol = MaskedSum(layout=LAYOUT, clients=CLIENTS, session_id=seed.to_bytes(16, "big"))
    clients = {p: protocol.client(p, VECTOR, entropy=InsecureSeededEntropy(seed, str(p))) for p in CLIENTS}
    keys = {p: client._kept.secrets.masking for p, client in clients.items()}  # type: ignore[attr-defined]
    server = protocol.server()
    said = {p: client.start() for p, client in clients.items()}
    for _ in range(2):
        for party, message in said.items():
            assert message is not None
            server.receive(party, message)
        said = {party: clients[party].receive(request) for party, request in server.close_round().items()}
    upload = said[1]
    assert upload is not None
    mask = RingVector.zeros(LAYOUT)
    seeds = [(pairwise_seed(keys[p], keys[1].public, protocol.digest), pairwise_sign(1, p)) for p in (2, 3)]
    add_masks(mask, seeds, protocol.digest)
    return upload[HEADER_BYTES:], mask.to_bytes()


# Broken masks are rejected


def random_mask(rng: np.random.Generator) -> list[Words]:
    """A sound mask of another origin, to be broken."""
    return [
        np.frombuffer(rng.bytes(segment.size * segment.word.itemsize), dtype=segment.word).copy()
        for segment in LAYOUT.segments
    ]


def masked_by(mask: list[Words], vector: IntVector = VECTOR) -> bytes:
    """The upload that this mask makes."""
    plain = RingVector.encode(LAYOUT, vector).words
    return RingVector(LAYOUT, [p + m.astype(p.dtype) for p, m in zip(plain, mask, strict=True)]).to_bytes()


def reused(rng: np.random.Generator) -> bytes:
    """One mask over two vectors: their difference is bare."""
    mask = random_mask(rng)
    return minus(masked_by(mask), masked_by(mask, np.roll(VECTOR, 1)))


def truncated_to_31_bits(rng: np.random.Generator) -> bytes:
    """A generator of 31-bit numbers feeding wider words."""
    mask = random_mask(rng)
    return masked_by([m & m.dtype.type(2**31 - 1) if m.dtype.itemsize >= 4 else m for m in mask])


def one_bit_missing(rng: np.random.Generator) -> bytes:
    """The top bit of every entry of one segment is never masked."""
    first, *rest = random_mask(rng)
    return masked_by([first & np.uint64(2**63 - 1), *rest])


def float_like(rng: np.random.Generator) -> bytes:
    """Normal floats of large variance, rounded: the mask of libraries that sum floats."""
    mask = [
        np.rint(rng.normal(0, 2.0 ** (8 * s.word.itemsize - 4), s.size)).astype(np.int64).astype(s.word)
        for s in LAYOUT.segments
    ]
    return masked_by(mask)


def float_uniform(rng: np.random.Generator) -> bytes:
    """Uniform doubles scaled to 64 bits: their last eleven bits are zero."""
    first, *rest = random_mask(rng)
    return masked_by([np.ldexp(rng.random(len(first)), 64).astype(np.uint64), *rest])


def tail_unmasked(rng: np.random.Generator) -> bytes:
    """The last tenth of each segment is sent as it is."""
    mask = random_mask(rng)
    for words in mask:
        words[-len(words) // 10 :] = 0
    return masked_by(mask)


def piece_unmasked(rng: np.random.Generator) -> bytes:
    """What lies beyond the first piece is sent as it is."""
    first, *rest = random_mask(rng)
    first[PIECE_BYTES // 8 :] = 0
    return masked_by([first, *rest])


def restarted(rng: np.random.Generator) -> bytes:
    """The keystream begins again at each piece."""
    first, *rest = random_mask(rng)
    piece = PIECE_BYTES // 8
    first[piece:] = first[: len(first) - piece]
    return masked_by([first, *rest], np.zeros_like(VECTOR))


def constant(rng: np.random.Generator) -> bytes:
    """One random word for all entries."""
    return masked_by([np.full_like(words, words[0]) for words in random_mask(rng)])


def shifted(rng: np.random.Generator) -> bytes:
    """Each word is the previous one plus a little: uniform by itself, and not independent."""
    steps = [np.cumsum(rng.integers(0, 2, len(w)).astype(w.dtype), dtype=w.dtype) + w[0] for w in random_mask(rng)]
    return masked_by(steps, np.zeros_like(VECTOR))


def self_mask_missing(rng: np.random.Generator) -> bytes:
    """Pairwise masks alone, all of whose partners vanished and were unmasked: the vector is bare."""
    upload, pairwise = upload_and_pairwise_masks(int(rng.integers(0, 100)))
    self_mask = minus(minus(upload, wire(VECTOR)), pairwise)
    return minus(minus(upload, self_mask), pairwise)


def unmasked(rng: np.random.Generator) -> bytes:
    """No mask at all."""
    return wire(VECTOR)


TWINS = [
    reused,
    truncated_to_31_bits,
    one_bit_missing,
    float_like,
    float_uniform,
    tail_unmasked,
    piece_unmasked,
    restarted,
    constant,
    shifted,
    self_mask_missing,
    unmasked,
]


@pytest.mark.parametrize("seed", SHORT)
@pytest.mark.parametrize("broken", TWINS, ids=lambda f: f.__name__)
def test_broken_masks_are_rejected(broken: Callable[[np.random.Generator], bytes], seed: int) -> None:
    assert rejects(broken(np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", SHORT)
def test_the_frame_of_the_twins_is_sound(seed: int) -> None:
    """The same construction with an unbroken mask passes, so it is the fault that the twins are rejected for."""
    assert not rejects(masked_by(random_mask(np.random.default_rng(seed))))
