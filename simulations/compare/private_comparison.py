"""Accuracy for a privacy budget: noise by every client, by the server, on every upload, and none at all."""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows
from analytic.private_afl import CLIPPED_CONTRIBUTION, CLIPPED_ROWS
from analytic.statistics import IntVector
from federation.datasets import Dataset
from federation.errors import UsageError
from secagg import (
    InsecureSeededEntropy,
    Layout,
    MaskedSum,
    PartyId,
    PlainSum,
    SumProtocol,
    new_session_id,
    run_in_memory,
)
from secagg.dp import (
    CentralNoisySum,
    CoordinateNoise,
    DistributedNoise,
    Guarantee,
    MissingExtraError,
    NoisySum,
    Release,
    SecondOpinion,
    guarantee,
    make_room,
    second_opinions,
)
from simulations.compare.accuracy import accuracy
from simulations.compare.dropouts import NO_DROPOUTS, Dropouts
from simulations.compare.private_plans import Plan, PrivacyTerms, Shape, exact_plan, private_plan
from simulations.compare.records import PrivateRecord
from simulations.data.partitions import Partition, parse_partition

Trust = Literal["distributed", "central", "local", "non-private"]
TRUSTS: tuple[Trust, ...] = ("distributed", "central", "local", "non-private")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSettings:
    """What to compare.

    Args:
        epsilons: budgets, ascending in reports.
        terms: the promise and how its budget is divided.
        n_clients: the cohort.
        partition: how training rows are dealt.
        promised_survivors: fewest clients of a released total; None promises all that the dropouts leave.
        colluders: clients whose shares of noise count for nothing.
        dropouts: who never sends its vector; each repetition draws anew, with its own seed.
        n_seeds: repetitions, each with another split, deal and noise.
        seed: of the first one.

    Raises:
        UsageError: nothing to compare, or a parameter out of range.
    """

    epsilons: tuple[float, ...]
    terms: PrivacyTerms
    n_clients: int = 100
    partition: Partition = parse_partition("iid")  # noqa: RUF009  (a frozen value)
    promised_survivors: int | None = None
    colluders: int = 0
    dropouts: Dropouts = NO_DROPOUTS
    n_seeds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.epsilons or self.n_seeds < 1 or self.seed < 0 or self.n_clients < 2:
            raise UsageError("a private comparison needs an epsilon, a repetition, a seed >= 0 and two clients")
        if not 1 <= self.promised <= self.survivors:
            raise UsageError(
                f"{self.promised} survivors are promised and {self.survivors} of {self.n_clients} stay: no total would "
                "be released. Promise fewer; each client then adds more noise"
            )
        if self.survivors < self.threshold:
            raise UsageError(
                f"a masked sum of {self.n_clients} clients needs {self.threshold} to stay to the end, and a dropout "
                f"rate of {self.dropouts.rate:g} leaves {self.survivors}; use a smaller rate"
            )
        if not 0 <= self.colluders < self.promised:
            raise UsageError(
                f"{self.colluders} colluders among {self.promised} promised survivors leave nobody whose noise counts; "
                "tolerate fewer"
            )

    @property
    def survivors(self) -> int:
        """Clients whose vectors arrive."""
        return self.n_clients - self.dropouts.n_lost(self.n_clients)

    @property
    def promised(self) -> int:
        """Fewest clients of any total that is released."""
        return self.survivors if self.promised_survivors is None else self.promised_survivors

    @property
    def threshold(self) -> int:
        """Clients whose answers a masked sum of this cohort waits for."""
        return max(self.promised, self.n_clients // 2 + 1)

    @property
    def learner(self) -> str:
        """The closed form and its depth."""
        return "afl" if self.terms.n_layers is None else f"deepafl with T = {self.terms.n_layers}"

    @property
    def title(self) -> str:
        """Learner, cohort and partition."""
        return f"{self.learner}, {self.n_clients} clients, {self.partition.name}"

    @property
    def n_runs(self) -> int:
        """How many models are trained."""
        return self.n_seeds * (1 + (len(TRUSTS) - 1) * len(set(self.epsilons)))

    @property
    def shares(self) -> int:
        """h, the shares of noise that are counted on."""
        return self.promised - self.colluders


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateComparison:
    """All records and what they are about."""

    settings: PrivateSettings
    dataset: Dataset
    records: tuple[PrivateRecord, ...]

    @property
    def title(self) -> str:
        """Learner, cohort and partition."""
        return self.settings.title

    def of(self, trust: Trust, target_epsilon: float | None) -> PrivateRecord:
        """The record of one kind of trust at one epsilon."""
        return next(r for r in self.records if r.trust == trust and r.target_epsilon == target_epsilon)


def compare_private(
    dataset: Dataset, settings: PrivateSettings, tick: Callable[[str], None] = lambda label: None
) -> PrivateComparison:
    """Every epsilon under every kind of trust.

    Args:
        dataset: its training and test rows are pooled and split anew for each seed.
        settings: what to compare.
        tick: called with a label before each run.

    Raises:
        secagg.dp.PrivacyError: an epsilon or delta out of range, or noise that is too fine.
    """
    shape = shape_of(dataset)
    records = [_record(dataset, settings, shape, "non-private", None, tick)]
    for epsilon in sorted(set(settings.epsilons)):
        records += [
            _record(dataset, settings, shape, trust, epsilon, tick) for trust in TRUSTS if trust != "non-private"
        ]
    return PrivateComparison(settings=settings, dataset=dataset, records=tuple(records))


def shape_of(dataset: Dataset) -> Shape:
    """What a simulation takes for public: sizes, and whether features can be negative."""
    return Shape(
        n_features=dataset.n_features,
        n_classes=dataset.n_classes,
        max_rows=len(dataset.x_train),
        nonnegative=bool(dataset.x_train.min() >= 0 and dataset.x_test.min() >= 0),
    )


def _record(
    dataset: Dataset,
    settings: PrivateSettings,
    shape: Shape,
    trust: Trust,
    epsilon: float | None,
    tick: Callable[[str], None],
) -> PrivateRecord:
    plan, noises, bill = _priced(settings, shape, trust, epsilon)
    accuracies, clipped = [], 0
    for seed in range(settings.seed, settings.seed + settings.n_seeds):
        tick(f"{trust}, epsilon {epsilon}, seed {seed}")
        outcome = _Run(dataset, settings, trust, plan, noises, seed).run()
        accuracies.append(outcome.accuracy)
        clipped += outcome.clipped
    promise = guarantee(bill, settings.terms.delta) if bill else None
    return _summary(
        settings, trust, epsilon, plan, promise, _opinions(tuple(bill), settings.terms.delta), accuracies, clipped
    )


def _priced(
    settings: PrivateSettings, shape: Shape, trust: Trust, epsilon: float | None
) -> tuple[Plan, tuple[CoordinateNoise | DistributedNoise, ...], list[Release]]:
    """The plan of a run, the noise of each sum and what it costs."""
    if trust == "non-private" or epsilon is None:
        return exact_plan(settings.terms, shape), (), []
    shares = {"distributed": settings.shares, "local": 1}.get(trust)
    plan = private_plan(settings.terms, shape, epsilon, shares)
    noises: list[CoordinateNoise | DistributedNoise] = []
    for release in plan.releases:
        if trust == "central":
            noises.append(release.noise)
        elif trust == "local":
            noises.append(DistributedNoise(total=release.noise, promised_survivors=1))
        else:
            noises.append(
                DistributedNoise(
                    total=release.noise, promised_survivors=settings.promised, colluders=settings.colluders
                )
            )
    promise = {"unit": settings.terms.unit, "adjacency": settings.terms.adjacency}
    bill = [Release.of(r.label, r.rho, noise, **promise) for r, noise in zip(plan.releases, noises, strict=True)]
    return plan, tuple(noises), bill


def _summary(
    settings: PrivateSettings,
    trust: Trust,
    epsilon: float | None,
    plan: Plan,
    promise: Guarantee | None,
    opinions: tuple[SecondOpinion, ...],
    accuracies: list[float],
    clipped: int,
) -> PrivateRecord:
    terms = settings.terms
    return PrivateRecord(
        trust=trust,
        target_epsilon=epsilon,
        epsilon=promise.epsilon if promise else None,
        delta=promise.delta if promise else None,
        rho=float(promise.rho) if promise else None,
        epsilon_tight=promise.epsilon_tight if promise else None,
        sigma_gram=plan.sigma_gram,
        sigma_cross=plan.sigma_cross,
        releases=terms.n_releases,
        unit=terms.unit,
        adjacency=terms.adjacency,
        clients=settings.n_clients,
        survivors=settings.survivors,
        promised_survivors=settings.promised,
        colluders=settings.colluders,
        layers=terms.n_layers,
        accuracy_mean=statistics.fmean(accuracies),
        accuracy_spread=statistics.pstdev(accuracies),
        accuracies=tuple(accuracies),
        clipped=clipped,
        second_opinions={opinion.accountant: opinion.epsilon for opinion in opinions},
    )


@lru_cache(maxsize=32)
def _opinions(bill: tuple[Release, ...], delta: float) -> tuple[SecondOpinion, ...]:
    """Other accountants' numbers; none where the extra is not installed."""
    try:
        return second_opinions(bill, delta) if bill else ()
    except MissingExtraError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    accuracy: float
    clipped: int


@dataclass(frozen=True, slots=True)
class _Run:
    """One seed: split, deal, sum, solve, test."""

    dataset: Dataset
    settings: PrivateSettings
    trust: Trust
    plan: Plan
    noises: tuple[CoordinateNoise | DistributedNoise, ...]
    seed: int

    def run(self) -> _Outcome:
        rng = np.random.default_rng([self.seed, *b"private compare"])
        (x_train, y_train), (x_test, y_test) = _split(self.dataset, rng)
        dealt = self.settings.partition.deal(y_train, self.settings.n_clients, rng)
        clients = {party: ClientRows(x_train[rows], y_train[rows]) for party, rows in enumerate(dealt, start=1)}
        learner, model = self.plan.learner, self.plan.learner.init()
        number = 0
        while (spec := learner.next_sum(model)) is not None:
            contributions = {
                party: _contribution(learner, model, spec, rows)
                for party, rows in self._present(clients, number).items()
            }
            protocol = self._protocol(number, Layout.of(spec.segments), learner.context_bytes(model))
            result = run_in_memory(protocol, contributions).result
            model = learner.update(model, spec.from_vector(result.total), len(result.survivors))
            number += 1
        scores = learner.decision_function(model, x_test)
        kept = (CLIPPED_ROWS, CLIPPED_CONTRIBUTION)
        clipped = sum(int(rows.memory.get(key, 0)) for rows in clients.values() for key in kept)
        return _Outcome(accuracy=accuracy(scores, y_test), clipped=clipped)

    def _present(self, clients: Mapping[PartyId, ClientRows], number: int) -> dict[PartyId, ClientRows]:
        lost = replace(self.settings.dropouts, seed=self.seed).lost(tuple(clients), number)
        return {party: rows for party, rows in clients.items() if party not in lost}

    def _protocol(self, number: int, layout: Layout, received: bytes) -> SumProtocol:
        noise = self.noises[number] if self.noises else None
        entropy = InsecureSeededEntropy(self.seed, f"noise {self.trust} {number}")
        context = hashlib.sha256(received).digest()
        if noise is None:
            return self._carrier(layout, context, needed=1)
        if isinstance(noise, CoordinateNoise):
            exact = self._carrier(layout, context, needed=1)
            return CentralNoisySum(protocol=exact, noise=noise, noise_entropy=entropy)
        room = make_room(layout, self.settings.n_clients, noise)
        carrier = self._carrier(room, context, needed=noise.promised_survivors)
        return NoisySum(protocol=carrier, layout=layout, noise=noise, noise_entropy=entropy)

    def _carrier(self, layout: Layout, context: bytes, *, needed: int) -> SumProtocol:
        """What moves the integers: masks where the server is not trusted, and else anything."""
        clients = tuple(range(1, self.settings.n_clients + 1))
        if self.trust != "distributed":
            return PlainSum(
                layout=layout, clients=clients, session_id=new_session_id(), context=context, min_survivors=needed
            )
        threshold = max(needed, len(clients) // 2 + 1)
        return MaskedSum(
            layout=layout, clients=clients, session_id=new_session_id(), context=context, threshold=threshold
        )


def _contribution(learner: Any, model: Any, spec: Any, rows: ClientRows) -> Callable[[], IntVector]:
    return lambda: spec.to_vector(learner.client_statistics(model, rows))


def _split(dataset: Dataset, rng: np.random.Generator) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Training and test rows, drawn anew from all rows of the data set in its own proportion."""
    features = np.concatenate([dataset.x_train, dataset.x_test])
    labels = np.concatenate([dataset.y_train, dataset.y_test])
    order = rng.permutation(len(features))
    for part in np.split(order, [len(dataset.x_train)]):
        yield features[part], labels[part]


def without_depth(settings: PrivateSettings) -> PrivateSettings:
    """The same comparison with T = 0: what a deep learner must beat for its 2T + 1 releases to be worth it."""
    return replace(settings, terms=replace(settings.terms, n_layers=0))
