"""What a server, and who colludes with it, saw of real sums, and how it reads statistics in it.

Any vector of the right size is taken for a Gram and a cross-correlation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from analytic.learner import AnalyticLearner, ClientRows
from analytic.row_format import FloatMatrix
from analytic_secagg.federation import Federation
from analytic_secagg.modes import Mode
from analytic_secagg.release import RANK_TOLERANCE
from secagg import InOneProcess, Layout, PartyId, SumProtocol, SumResult, run_in_memory
from secagg.entropy import Entropy, os_entropy
from secagg.errors import SecureSumError
from secagg.in_memory import Envelope, Network
from secagg.layout import IntVector
from secagg.ring import RingVector
from secagg.sessions import ClientInput, ClientSession, ServerSession
from secagg.sums import CoalitionView
from secagg.wire import CARRIES_VECTOR, message_type


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SumView:
    """What the server saw of one sum: every message goes through it, and it learns the total.

    Args:
        protocol: the public half of the protocol.
        model: what every party knew of the model before this sum.
        knowledge: all messages, in the order in which they were sent, and what colluders add to them.
        colluders: who shares what it drew and knows with the server.
        result: what it released; None if the sum failed.
    """

    protocol: SumProtocol
    model: Any
    knowledge: CoalitionView = field(default=CoalitionView(messages=(), tapes={}, secrets={}), repr=False)
    colluders: frozenset[PartyId] = frozenset()
    result: SumResult | None = field(repr=False)

    @property
    def layout(self) -> Layout:
        """The public shape of the vectors."""
        return self.protocol.layout

    def shared_by(self, members: frozenset[PartyId]) -> SumView:
        """Return the same with what these colluders share alone."""
        known = self.knowledge
        tapes = {party: tape for party, tape in known.tapes.items() if party in members}
        secrets = {party: own for party, own in known.secrets.items() if party in members}
        return replace(self, colluders=members, knowledge=replace(known, tapes=tapes, secrets=secrets))

    def vector_bytes(self, sender: PartyId) -> bytes | None:
        """Return the vector's bytes: the last ones of the client's message with a vector, in every mode.

        None if it sent none.
        """
        payload = self.knowledge.upload(sender)
        return None if payload is None else payload[-self.layout.wire_bytes :]

    def read_upload(self, sender: PartyId) -> IntVector | None:
        """A client's upload taken for integers, whatever it is; None if it sent none."""
        data = self.vector_bytes(sender)
        return None if data is None else read_integers(self.layout, data)

    def read_total(self) -> IntVector | None:
        """The total; None if the sum failed."""
        return None if self.result is None else self.result.total


def read_integers(layout: Layout, data: bytes) -> IntVector:
    """Bytes taken for the signed integers of a layout, without a word about bounds: that is what an attacker does."""
    words = RingVector.from_bytes(layout, data).words
    vector = np.empty(layout.size, dtype=np.int64)
    for (segment, place), entries in zip(layout.slices(), words, strict=True):
        shift = np.int64(64 - 8 * segment.wire_bytes)
        vector[place] = entries.astype(np.uint64).view(np.int64) << shift >> shift
    return vector


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedSum:
    """One sum with every message and every client's input.

    Args:
        parties: the sum, and what each of its parties alone knows.
        model: what the parties knew of the model.
        envelopes: every message, in the order in which it was sent.
        inputs: each client's vector.
        result: the released total, None if the sum failed.
        failure: why it failed.
    """

    parties: InOneProcess
    model: Any
    envelopes: tuple[Envelope, ...] = field(repr=False)
    inputs: Mapping[PartyId, IntVector] = field(repr=False)
    result: SumResult | None = field(repr=False)
    failure: SecureSumError | None = None

    @property
    def protocol(self) -> SumProtocol:
        """The sum, which is public."""
        return self.parties.protocol

    def released(self) -> SumResult:
        """The total with its survivors.

        Raises:
            secagg.errors.SecureSumError: the sum failed.
        """
        if self.failure is not None:
            raise self.failure
        assert self.result is not None
        return self.result

    @property
    def tapes(self) -> Mapping[PartyId, bytes]:
        """All random bytes that each client drew, in order; none where they were not written down."""
        return {p: bytes(tape) for p, tape in self.parties.tapes.items()} if isinstance(self.parties, Taped) else {}

    def seen_by(self, colluders: frozenset[PartyId]) -> SumView:
        """What the server saw of it, with all that these parties drew and know."""
        everything = CoalitionView(
            messages=tuple(envelope.message for envelope in self.envelopes),
            tapes=self.tapes,
            secrets=self.parties.secrets,
        )
        view = SumView(protocol=self.protocol, model=self.model, knowledge=everything, result=self.result)
        return view.shared_by(colluders)

    @property
    def seen(self) -> SumView:
        """What the server saw of it, and nothing else."""
        return self.seen_by(frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Taped(InOneProcess):
    """The same parties, whose clients' random bytes are written down as they draw them.

    Args:
        honest: the parties.
        tapes: what was drawn, by client.
    """

    honest: InOneProcess
    tapes: dict[PartyId, bytearray] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, honest: InOneProcess) -> Taped:
        """Return the same parties with tapes."""
        return cls(protocol=honest.protocol, secrets=honest.secrets, honest=honest)

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Create a client's session that writes down what it draws."""
        tape = self.tapes.setdefault(party, bytearray())

        def taped(n_bytes: int) -> bytes:
            drawn = entropy(n_bytes)
            tape.extend(drawn)
            return drawn

        return self.honest.client(party, client_input, entropy=taped)

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Create a helper's session."""
        return self.honest.helper(party, entropy=entropy)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """Create the server's session."""
        return self.honest.server(entropy=entropy)


def record_sum(
    parties: InOneProcess,
    vectors: Mapping[PartyId, IntVector],
    *,
    model: Any = None,
    network: Network | None = None,
    entropy: Entropy = os_entropy,
    dropouts: Mapping[PartyId, int] | None = None,
) -> RecordedSum:
    """Run one sum on the in-memory network and keep all of it; a sum that fails is kept too.

    Args:
        parties: the sum with everybody's secrets.
        vectors: each client's.
        model: what everybody knew of the model.
        network: what happens to messages; nothing by default.
        entropy: everybody's source of secrets.
        dropouts: how many messages a client still sends before it vanishes.
    """
    envelopes: list[Envelope] = []
    result, failure = None, None
    try:
        result = run_in_memory(
            parties,
            vectors,
            dropouts=dropouts,
            network=network,
            entropy=entropy,
            record=envelopes.append,
        ).result
    except SecureSumError as error:
        failure = error
    return RecordedSum(
        parties=parties,
        model=model,
        envelopes=tuple(envelopes),
        inputs=dict(vectors),
        result=result,
        failure=failure,
    )


@dataclass(frozen=True, slots=True)
class Overlooked:
    """A network that loses one client's vector once it was seen: the server calls a client lost that is not."""

    party: PartyId

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        """All other messages."""
        for envelope in envelopes:
            if envelope.sender != self.party or message_type(envelope.message) not in CARRIES_VECTOR:
                yield envelope


def record_federation(
    learner: AnalyticLearner[Any],
    clients: Mapping[PartyId, ClientRows],
    mode: Mode,
    *,
    entropy: Entropy = os_entropy,
) -> tuple[tuple[RecordedSum, ...], Any]:
    """Make every sum of a learner's dialogue over ``mode``, each in a session of its own; return them and the model.

    Raises:
        secagg.errors.SecureSumError: a sum failed.
    """
    federation, recorded, sums = (
        Federation(learner, release=None, sum_fits=True),
        list[RecordedSum](),
        mode.sums(tuple(clients)),
    )
    while (step := federation.next_sum) is not None:
        parties = sums.next_sum(step.layout, step.context)
        vectors = {party: step.vector(rows) for party, rows in clients.items()}
        one = record_sum(parties, vectors, model=step.model, entropy=entropy)
        federation.take(one.released())
        recorded.append(one)
    return tuple(recorded), federation.model


IntMatrix = NDArray[np.int64]

FIRST_CLASS = "gram 1"
"""The segment of a sum that has each class' statistics apart."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """What ``StatisticsSpec`` and ``CountSpec`` put into a vector, unchecked: it may be noise.

    Args:
        gram: shape (d, d), symmetric by construction.
        cross: shape (d, c).
        count: number of rows.
        target_sum: the rows of each class, where they are said; None where they are not.
        classes: the same of each class alone, where a sum has them apart.
    """

    gram: IntMatrix = field(repr=False)
    cross: IntMatrix = field(repr=False)
    count: int
    target_sum: IntVector | None = field(default=None, repr=False)
    classes: tuple[Reading, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, layout: Layout, vector: IntVector) -> Self:
        """Take a vector of segments gram (upper triangle), cross and count apart, or of these for each class."""
        parts = {segment.name: vector[place] for segment, place in layout.slices()}
        if FIRST_CLASS not in parts:
            return cls._of(parts)
        n = sum(name.startswith("gram ") for name in parts)
        own = [cls._of({name: parts[f"{name} {k}"] for name in ("gram", "cross", "count")}) for k in range(1, n + 1)]
        counts = np.array([one.count for one in own])
        classes = tuple(
            replace(one, cross=one.cross * (np.arange(n) == k), target_sum=counts * (np.arange(n) == k))
            for k, one in enumerate(own)
        )
        return cls(
            gram=np.sum([one.gram for one in own], axis=0),
            cross=np.hstack([one.cross for one in own]),
            count=int(counts.sum()),
            target_sum=counts,
            classes=classes,
        )

    @classmethod
    def _of(cls, parts: Mapping[str, IntVector]) -> Self:
        d = width_of(len(parts["gram"]))
        gram = np.zeros((d, d), dtype=np.int64)
        gram[np.triu_indices(d)] = parts["gram"]
        gram += np.triu(gram, 1).T
        return cls(
            gram=gram,
            cross=parts["cross"].reshape(d, -1),
            count=int(parts["count"][0]),
            target_sum=parts.get("target_sum"),
        )

    @property
    def scale(self) -> int:
        """The power of two that all rows seem to be multiples of: rows coarser than their format show it."""
        common = int(np.gcd.reduce(np.abs(self.cross), axis=None))
        squared = int(np.gcd.reduce(np.abs(self.gram), axis=None))
        scale = common & -common if common else 1
        while squared % (scale * scale):
            scale //= 2
        return scale

    @property
    def unit(self) -> float:
        """The length of the longest feature where that is above 1: no entry of a Gram is larger than its square."""
        return max(1.0, float(np.sqrt(np.abs(self.gram.diagonal()).max(initial=1))))

    def scaled(self) -> tuple[FloatMatrix, FloatMatrix]:
        """Gram and cross-correlation in float64, in units in which a typical entry is near 1."""
        unit = self.unit
        return self.gram / unit**2, self.cross / unit

    def class_counts(self) -> NDArray[np.int64] | None:
        """Rows of each class, as said; else H^T G^+ H = Y^T Y, where rows are linearly independent, or None."""
        if self.target_sum is not None:
            return self.target_sum if self.target_sum.min(initial=0) >= 0 else None
        gram, cross = self.scaled()
        squared = gram.diagonal()
        if squared.min(initial=0.0) < 0 or (gram**2 > 1.001 * np.outer(squared, squared)).any():
            return None  # by Cauchy and Schwarz no Gram of any rows, such as a mask: what follows takes d^3 steps
        product = cross.T @ np.linalg.pinv(gram, rcond=RANK_TOLERANCE, hermitian=True) @ cross
        counts = np.round(product.diagonal())
        if not np.isfinite(product).all() or np.abs(product - np.diag(counts)).max() > 0.01 or counts.min() < 0:
            return None
        return counts.astype(np.int64)


def width_of(n_upper: int) -> int:
    """The d of a d x d Gram whose upper triangle has this many entries."""
    return (int(np.sqrt(8 * n_upper + 1)) - 1) // 2
