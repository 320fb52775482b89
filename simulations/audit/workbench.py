"""A workbench for attacks: cohorts of real rows, their contributions, and real sums of them."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, lru_cache
from typing import Any, Self, cast

import numpy as np

from analytic.afl import AFL
from analytic.errors import SpecificationError
from analytic.learner import AnalyticLearner, ClientRows, SumSpec
from analytic.row_format import RowFormat
from analytic_secagg.datasets import Dataset
from analytic_secagg.federation import Federation
from analytic_secagg.modes import MODES, Mode
from secagg import InOneProcess, Layout, PartyId, SumResult, new_session_id
from secagg.entropy import Entropy, os_entropy
from secagg.layout import IntVector
from simulations.audit.knowledge import Known
from simulations.audit.population import EnteringRows, Indices, Population, Truth
from simulations.audit.view import FIRST_CLASS, Overlooked, RecordedSum, Taped, record_sum

GAMES, FEW_CLIENTS, FEW_ROWS = 200, 20, 4
"""Least messages of clients with few rows, most of these clients in one sum, and their rows."""

Cohort = dict[PartyId, Indices]
Run = tuple[Cohort, RecordedSum]
"""Who held which rows, and the sum of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """One learner on one population, at the sum of Gram and cross-correlation that it asks for first.

    Args:
        learner: the closed form.
        model: what everybody knows before that sum.
        spec: that sum.
        population: the rows.
        entering: what each row contributes.
        feature_format: public fixed-point format of the features.
        rows_per_client: mean rows of a client.
        clients: how many a cohort has whose messages are attacked.
        sessions: how many such cohorts there are in a mode.
        rng: deals rows and tosses the attackers' coins.
        entropy: where keys and masks come from.
        taping: whether all that clients draw is written down, for attacks of clients that collude.
    """

    learner: AnalyticLearner[Any]
    model: Any
    spec: SumSpec[Any]
    population: Population
    entering: EnteringRows
    feature_format: RowFormat
    rows_per_client: int
    rng: np.random.Generator
    clients: int = 20
    sessions: int = 1
    entropy: Entropy = field(default=os_entropy)
    taping: bool = False
    _sums: _Sums = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sums", _Sums(self))

    @classmethod
    def of(
        cls,
        learner: AnalyticLearner[Any],
        population: Population,
        *,
        feature_format: RowFormat,
        rows_per_client: int,
        rng: np.random.Generator,
        **options: Any,
    ) -> Self:
        """The learner led to that sum; what it sums before (histograms) is summed over the public rows here."""
        model, spec = _first_gram(learner, population)
        return cls(
            learner=learner,
            model=model,
            spec=spec,
            population=population,
            entering=EnteringRows.of(learner, model, population),
            feature_format=feature_format,
            rows_per_client=rows_per_client,
            rng=rng,
            **options,
        )

    def under(self, learner: AnalyticLearner[Any], dataset: Dataset | None = None) -> Self:
        """Return the same bench for another learner, and for the same rows with other columns where they are given."""
        population = self.population if dataset is None else replace(self.population, dataset=dataset)
        same = {one.name: getattr(self, one.name) for one in fields(self) if one.init}
        for made in ("learner", "model", "spec", "population", "entering"):
            del same[made]
        return type(self).of(learner, population, **same)

    def named(self, *names: object) -> Self:
        """Return the same bench, with the same sums, whose coins and deals follow from seed and names alone.

        So does what an attack finds then, whichever attacks were tried before it.
        """
        return self._drawing(named(self.rng, *names))

    def _drawing(self, rng: np.random.Generator) -> Self:
        same = replace(self, rng=rng)
        object.__setattr__(same, "_sums", self._sums)
        return same

    @property
    def layout(self) -> Layout:
        """The sum's public shape."""
        return Layout.of(self.spec.segments, sum_fits=True)

    @property
    def context(self) -> bytes:
        """The digest of everything that clients received."""
        return hashlib.sha256(self.learner.context_bytes(self.model)).digest()

    def cohort(self, n_clients: int, rows_per_client: int | None = None) -> Cohort:
        """Clients 1 to n with different rows."""
        parts = self.population.deal(n_clients, rows_per_client or self.rows_per_client, self.rng)
        return dict(enumerate(parts, start=1))

    def vector(self, indices: Indices) -> IntVector:
        """What a client with these rows contributes."""
        return self.spec.to_vector(self.learner.client_statistics(self.model, self.population.rows(indices)))

    def vectors(self, cohort: Cohort) -> dict[PartyId, IntVector]:
        """Everybody's contribution."""
        return {party: self.vector(indices) for party, indices in cohort.items()}

    def parties(self, mode: Mode, clients: tuple[PartyId, ...], **options: Any) -> InOneProcess:
        """All parties of one session of a mode for this sum, with further ``options`` of ``Mode.in_one_process``."""
        stated: dict[str, Any] = {"layout": self.layout, "session_id": new_session_id(), "context": self.context}
        parties = mode.in_one_process(clients=clients, **(stated | options))
        return Taped.of(parties) if self.taping else parties

    def run(self, mode: Mode, vectors: Mapping[PartyId, IntVector]) -> RecordedSum:
        """One recorded session of a mode.

        Raises:
            secagg.errors.SecureSumError: the sum failed, which honest parties on a perfect network never see.
        """
        recorded = record_sum(self.parties(mode, tuple(vectors)), vectors, model=self.model, entropy=self.entropy)
        recorded.released()
        return recorded

    def total(self, cohort: Cohort) -> RecordedSum:
        """Return a sum in the clear, of which attacks on totals see the result alone: every mode has the same one."""
        return self.run(MODES["plain"], self.vectors(cohort))

    def run_with_dropouts(
        self, mode: Mode, vectors: Mapping[PartyId, IntVector], late: PartyId | None = None
    ) -> RecordedSum:
        """One recorded session in which, where the mode bears it, two clients are lost.

        One vanishes before its vector is sent; the other's is seen and not counted, as if it came late. Both are drawn
        unless the latter is named.

        Raises:
            secagg.errors.SecureSumError: the sum failed.
        """
        parties = self.parties(mode, tuple(vectors))
        spare = len(vectors) - parties.protocol.survivors_needed
        order = [int(party) for party in self.rng.permutation(list(vectors))]
        late = order[0] if late is None else late
        silent = next(party for party in order if party != late)
        recorded = record_sum(
            parties,
            vectors,
            model=self.model,
            network=Overlooked(late) if spare >= 1 else None,
            entropy=self.entropy,
            dropouts={silent: parties.protocol.guarantee.messages_before_vector} if spare >= 2 else None,
        )
        recorded.released()
        return recorded

    def each_run(self, mode: Mode) -> Iterator[Run]:
        """Yield the sums of a mode whose messages are attacked, the same for every attack; all but one lose clients.

        Who never sent its vector is left out of the cohort.
        """
        return self._sums.each(mode)

    def runs(self, mode: Mode) -> list[Run]:
        """Return all of them."""
        return list(self.each_run(mode))

    @property
    def few(self) -> Bench:
        """The same for clients with few rows: some attacks need those, others more messages."""
        return self._sums.few._drawing(self.rng)

    def forget(self, mode: Mode) -> None:
        """Keep a mode's sums no longer: encrypted ones of many features take hundreds of megabytes."""
        self._sums.made.pop(mode.name, None)
        self._sums.few._sums.made.pop(mode.name, None)
        gc.collect()

    def known(self, worlds: Mapping[PartyId, tuple[IntVector, IntVector]] | None = None) -> Known:
        """Return all that an attacker may be granted; each gets what it needs of it."""
        population = self.population
        return Known(
            rows=self.entering,
            candidates=population.rows(population.candidates),
            public=population.public_rows,
            worlds=worlds or {},
        )

    def worlds(self, vectors: Mapping[PartyId, IntVector]) -> dict[PartyId, tuple[IntVector, IntVector]]:
        """For each client its own vector and its neighbour's, in an order drawn at random."""
        parties = list(vectors)
        pairs = {}
        for party, neighbour in zip(parties, parties[1:] + parties[:1], strict=True):
            pair = vectors[party], vectors[neighbour]
            pairs[party] = pair if self.rng.random() < 0.5 else pair[::-1]
        return pairs

    def truth(self, indices: Indices, vector: IntVector) -> Truth:
        """What is true of a client, or a cohort, with these rows."""
        population, entering = self.population, self.entering
        is_member = np.isin(population.candidates, indices)
        return Truth(
            rows=entering.candidates[is_member],
            labels=entering.candidate_labels[is_member],
            raw=population.rows(population.candidates[is_member]),
            public=entering.public,
            pool=population.rows(population.candidates),
            vector=vector,
            is_member=is_member,
            is_outlying=entering.outlying,
            row_counts=population.row_counts(self.rows_per_client),
            n_classes=self.population.dataset.n_classes,
            likeliest_row=entering.likeliest,
            columns=population.columns(entering.candidates.shape[1]),
        )


class _Sums:
    """The sums of a bench whose messages are attacked, each made when it is first asked for."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self.made = bench, dict[str, list[Run]]()

    def each(self, mode: Mode) -> Iterator[Run]:
        """Yield them, each dealt by random numbers of its own."""
        made = self.made.setdefault(mode.name, [])
        for place in range(self._bench.sessions):
            if place == len(made):
                bench = self._bench.named(mode.name, place)
                cohort, make = bench.cohort(bench.clients), bench.run_with_dropouts if place else bench.run
                made.append(who_spoke(cohort, make(mode, bench.vectors(cohort))))
            yield made[place]

    @cached_property
    def few(self) -> Bench:
        """The bench of clients with few rows."""
        own = self._bench
        clients = max(own.clients, min(FEW_CLIENTS, len(own.population.candidates) // (2 * FEW_ROWS)))
        rows, sessions = min(FEW_ROWS, own.rows_per_client), -(-GAMES // (clients - 1))
        rng = named(own.rng, "few rows")
        return replace(own, clients=clients, rows_per_client=rows, sessions=sessions, rng=rng)


def named(rng: np.random.Generator, *names: object) -> np.random.Generator:
    """Return another generator, which follows from names and from the seed of this one, not from what it drew."""
    seeds = cast(np.random.SeedSequence, rng.bit_generator.seed_seq)
    words = np.frombuffer(hashlib.sha256(repr(names).encode()).digest(), dtype="<u4")
    return np.random.default_rng(np.random.SeedSequence(seeds.entropy, spawn_key=(*seeds.spawn_key, *words.tolist())))


@lru_cache(maxsize=1)
def reference_bench() -> Bench:
    """Return a bench of made rows, the same each time, of which every attack wins something in the clear."""
    rng = np.random.default_rng(0)
    labels, groups = rng.integers(0, 3, 400), rng.integers(0, 4, 400)
    rows = np.round(rng.normal(size=(400, 24)) + 6 * np.eye(24)[groups] + 2 * np.eye(24)[4 + labels], 3)
    data = Dataset(
        name="reference rows", x_train=rows[:250], y_train=labels[:250], x_test=rows[250:], y_test=labels[250:]
    )
    form = RowFormat.covering(rows)
    learner = AFL(n_features=24, n_targets=3, feature_format=form, max_rows=250)
    return Bench.of(
        learner, Population.of(data, rng), feature_format=form, rows_per_client=8, rng=rng, clients=5, sessions=6
    )


def give_memory_back() -> None:
    """Have glibc return what was freed, which it keeps below what is still in use; other libraries need no word."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library that has no such call
            ctypes.CDLL(None).malloc_trim(0)


def who_spoke(cohort: Cohort, recorded: RecordedSum) -> Run:
    """The sum with those of its cohort whose vector was seen."""
    seen = recorded.seen.knowledge
    return {party: rows for party, rows in cohort.items() if seen.upload(party) is not None}, recorded


def _first_gram(learner: AnalyticLearner[Any], population: Population) -> tuple[Any, SumSpec[Any]]:
    data, federation = population.dataset, Federation(learner, release=None)
    while (step := federation.next_sum) is not None:
        names = [segment.name for segment in step.layout.segments]
        if names[:2] == ["gram", "cross"] or FIRST_CLASS in names:
            return step.model, step.spec
        public = ClientRows(data.x_test[population.public], data.y_test[population.public])
        federation.take(SumResult(total=step.vector(public), survivors=(1,)))
    raise SpecificationError(f"{learner.name} sums no Gram and cross-correlation, which is what the attacks read")
