"""A workbench for attacks: cohorts of real rows, their contributions, and real sums of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from analytic.errors import SpecificationError
from analytic.learner import AnalyticLearner, ClientRows, SumSpec
from federation.modes import Mode
from secagg import InOneProcess, Layout, PartyId, new_session_id
from secagg.entropy import Entropy, os_entropy
from secagg.layout import IntVector
from simulations.audit.attack import Truth
from simulations.audit.population import EnteringRows, Indices, Population
from simulations.audit.recorder import RecordedSum, record_sum
from simulations.audit.side_information import SideInformation

Cohort = dict[PartyId, Indices]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bench:
    """One learner on one population, at the sum of Gram and cross-correlation that it asks for first.

    Args:
        learner: the closed form.
        model: what everybody knows before that sum.
        spec: that sum.
        population: the rows.
        entering: what each row contributes.
        rows_per_client: mean rows of a client.
        rng: deals rows and tosses the attackers' coins.
        entropy: where keys and masks come from.
    """

    learner: AnalyticLearner[Any]
    model: Any
    spec: SumSpec[Any]
    population: Population
    entering: EnteringRows
    rows_per_client: int
    rng: np.random.Generator
    entropy: Entropy = field(default=os_entropy)

    @classmethod
    def of(
        cls,
        learner: AnalyticLearner[Any],
        population: Population,
        *,
        rows_per_client: int,
        rng: np.random.Generator,
        entropy: Entropy = os_entropy,
    ) -> Self:
        """The learner led to that sum; what it sums before (histograms) is summed over the public rows here."""
        model, spec = _first_gram(learner, population)
        return cls(
            learner=learner,
            model=model,
            spec=spec,
            population=population,
            entering=EnteringRows.of(learner, model, population),
            rows_per_client=rows_per_client,
            rng=rng,
            entropy=entropy,
        )

    @property
    def layout(self) -> Layout:
        """The sum's public shape."""
        return Layout.of(self.spec.segments)

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

    def parties(self, mode: Mode, clients: tuple[PartyId, ...]) -> InOneProcess:
        """All parties of one session of a mode for this sum."""
        return mode.in_one_process(
            layout=self.layout, clients=clients, session_id=new_session_id(), context=self.context
        )

    def run(self, mode: Mode, vectors: Mapping[PartyId, IntVector]) -> RecordedSum:
        """One recorded session of a mode.

        Raises:
            secagg.errors.SecureSumError: the sum failed, which honest parties on a perfect network never see.
        """
        recorded = record_sum(self.parties(mode, tuple(vectors)), vectors, model=self.model, entropy=self.entropy)
        if recorded.failure is not None:
            raise recorded.failure
        return recorded

    def known(self, worlds: Mapping[PartyId, tuple[IntVector, IntVector]] | None = None) -> SideInformation:
        """What the adversary is granted."""
        return SideInformation(
            candidates=self.entering.candidates,
            candidate_labels=self.entering.candidate_labels,
            public=self.entering.public,
            n_classes=self.population.dataset.n_classes,
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
        return self.population.truth(indices, self.entering, vector, rows_per_client=self.rows_per_client)


def _first_gram(learner: AnalyticLearner[Any], population: Population) -> tuple[Any, SumSpec[Any]]:
    data, model = population.dataset, learner.init()
    while (spec := learner.next_sum(model)) is not None:
        if [name for name, _, _ in spec.segments] == ["gram", "cross", "count"]:
            return model, spec
        public = ClientRows(data.x_test[population.public], data.y_test[population.public])
        model = learner.update(model, learner.client_statistics(model, public), 1)
    raise SpecificationError(f"{learner.name} sums no Gram and cross-correlation, which is what the attacks read")
