"""Accuracy for a privacy budget: noise by every client, by the server, on every upload, and none at all."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from analytic.afl import AFL
from analytic.deepafl import DeepAFL
from analytic.learner import AnalyticLearner, ClientRows
from analytic.row_format import RowFormat
from analytic.row_map import CLIPPED_CONTRIBUTION, CLIPPED_ROWS
from analytic.sensitivity import Adjacency, Unit
from federation.datasets import Dataset
from federation.errors import UsageError
from federation.in_process import run_federation
from federation.modes import Mode
from federation.privacy import PrivacyPlan, PrivateForm
from federation.sum_setup import SumSetup
from secagg import InsecureSeededEntropy, MaskedSum, PlainSum, SumProtocol
from secagg.dp import MissingExtraError, Release, SecondOpinion, second_opinions
from secagg.entropy import Entropy
from simulations.compare.accuracy import accuracy
from simulations.compare.dropouts import NO_DROPOUTS, Dropouts
from simulations.compare.records import PrivateRecord
from simulations.data.partitions import Partition, parse_partition

Trust = Literal["distributed", "central", "local", "non-private"]
TRUSTS: tuple[Trust, ...] = ("distributed", "central", "local", "non-private")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyTerms:
    """What is promised beside epsilon, and the learner that promises it; the names are those of the JSON report.

    Args:
        delta, unit, adjacency, gram_share, mean_share, fraction_bits, client_rows: as in ``PrivacyPlan``.
        n_layers: T of a deep learner; None for the linear one.
        d_phi: columns of its Phi_t.
        d_f: columns of its F_t.
        ridge: what every solve adds to the noise's own ridge.

    Raises:
        UsageError, secagg.dp.PrivacyError, analytic.errors.SpecificationError: a parameter out of range.
    """

    delta: float = 1e-5
    unit: Unit = "record"
    adjacency: Adjacency = "add-remove"
    gram_share: float = 0.3
    mean_share: float = 0.05
    fraction_bits: int = 16
    client_rows: int = 1
    n_layers: int | None = None
    d_phi: int = 64
    d_f: int = 64
    ridge: float = 0.01

    def __post_init__(self) -> None:
        if self.unit == "client" and self.n_layers is not None:
            raise UsageError("a deep learner's layers are bounded by record only; take --unit record for it")
        if min(self.d_phi, self.d_f) < 1:
            raise UsageError(f"the widths of a deep learner are at least 1, not {self.d_phi} and {self.d_f}")
        _ = self.plan(1.0), self.learner(n_features=1, n_classes=1, max_rows=1)

    @property
    def n_releases(self) -> int:
        """How many sums a run releases."""
        if self.n_layers is not None:
            return 2 * self.n_layers + 1
        return 2 if self.mean_share else 1

    def plan(self, epsilon: float, promised_survivors: int | None = None, **others: Any) -> PrivacyPlan:
        """The plan of these terms for one epsilon; noise from the server where nobody is promised."""
        return PrivacyPlan(
            epsilon=epsilon,
            delta=self.delta,
            unit=self.unit,
            adjacency=self.adjacency,
            promised_survivors=promised_survivors,
            gram_share=self.gram_share,
            mean_share=self.mean_share,
            fraction_bits=self.fraction_bits,
            client_rows=self.client_rows,
            **others,
        )

    def learner(self, *, n_features: int, n_classes: int, max_rows: int) -> AnalyticLearner[Any]:
        """The closed form before its rows are bounded. What it takes features for plays no part behind a row map."""
        sizes = {"n_features": n_features, "n_targets": n_classes, "max_rows": max_rows, "ridge": self.ridge}
        if self.n_layers is None:
            return AFL(feature_format=RowFormat(integer_bits=1, fraction_bits=16), **sizes)  # type: ignore[arg-type]
        return DeepAFL(
            feature_bound=1.0,
            n_layers=self.n_layers,
            d_phi=self.d_phi,
            d_f=self.d_f,
            gamma=1e-3,
            **sizes,  # type: ignore[arg-type]
        )


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
    dataset: Dataset, settings: PrivateSettings, tick: Callable[[], None] = lambda: None
) -> PrivateComparison:
    """Every epsilon under every kind of trust.

    Args:
        dataset: its training and test rows are pooled and split anew for each seed.
        settings: what to compare.
        tick: called before each run.

    Raises:
        secagg.dp.PrivacyError: an epsilon or delta out of range, or noise that is too fine.
    """
    records = [_record(dataset, settings, "non-private", None, tick)]
    for epsilon in sorted(set(settings.epsilons)):
        records += [_record(dataset, settings, trust, epsilon, tick) for trust in TRUSTS if trust != "non-private"]
    return PrivateComparison(settings=settings, dataset=dataset, records=tuple(records))


def _record(
    dataset: Dataset, settings: PrivateSettings, trust: Trust, epsilon: float | None, tick: Callable[[], None]
) -> PrivateRecord:
    accuracies, clipped = [], 0
    for seed in range(settings.seed, settings.seed + settings.n_seeds):
        tick()
        run = _Run(dataset, settings, trust, epsilon, seed)
        found = run.outcome()
        accuracies.append(found.accuracy)
        clipped += found.clipped
    return _summary(settings, trust, epsilon, run.form, accuracies, clipped)


def _summary(
    settings: PrivateSettings,
    trust: Trust,
    epsilon: float | None,
    form: PrivateForm | None,
    accuracies: list[float],
    clipped: int,
) -> PrivateRecord:
    promise = form.guarantee if form else None
    opinions = _opinions(form.releases, settings.terms.delta) if form else ()
    terms = settings.terms
    return PrivateRecord(
        trust=trust,
        target_epsilon=epsilon,
        epsilon=promise.epsilon if promise else None,
        delta=promise.delta if promise else None,
        rho=float(promise.rho) if promise else None,
        epsilon_tight=promise.epsilon_tight if promise else None,
        sigma_gram=form.sigma_gram if form else 0.0,
        sigma_cross=form.sigma_cross if form else 0.0,
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
        return second_opinions(bill, delta)
    except MissingExtraError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    accuracy: float
    clipped: int


class _Run:
    """One seed: split, deal, sum, solve, test.

    Args:
        form: the private form of the learner; None where nothing is private.
    """

    def __init__(
        self, dataset: Dataset, settings: PrivateSettings, trust: Trust, epsilon: float | None, seed: int
    ) -> None:
        self._dataset, self._settings, self._trust, self._seed = dataset, settings, trust, seed
        self._learner: Any = settings.terms.learner(
            n_features=dataset.n_features, n_classes=dataset.n_classes, max_rows=len(dataset.x_train)
        )
        known: dict[str, Any] = {"nonnegative": dataset.is_nonnegative, "noise_entropy": self._entropy}
        self._plan: PrivacyPlan | None = None
        self.form: PrivateForm | None = None
        if epsilon is None:
            bounded = settings.terms.plan(1.0, **known).bounded(self._learner)
            self._learner = bounded.with_noise([0.0], None)  # exact totals, solved like noisy ones
            return
        promised = {"distributed": settings.promised, "local": 1}.get(trust)
        colluders = settings.colluders if trust == "distributed" else 0
        self._plan = settings.terms.plan(epsilon, promised, colluders=colluders, **known)
        self.form = self._plan.apply(self._learner)

    def outcome(self) -> _Outcome:
        rng = np.random.default_rng([self._seed, *b"private compare"])
        (x_train, y_train), (x_test, y_test) = _split(self._dataset, rng)
        dealt = self._settings.partition.deal(y_train, self._settings.n_clients, rng)
        clients = {party: ClientRows(x_train[rows], y_train[rows]) for party, rows in enumerate(dealt, start=1)}
        dropouts = replace(self._settings.dropouts, seed=self._seed)
        finished = run_federation(
            self._learner,
            clients,
            Mode(name=self._trust, make=self._sum),
            dropouts=lambda number: dict.fromkeys(dropouts.lost(tuple(clients), number), 0),
            privacy=self._plan,
        )
        learner = self._learner if self.form is None else self.form.learner
        scores = learner.decision_function(finished.model, x_test)
        kept = (CLIPPED_ROWS, CLIPPED_CONTRIBUTION)
        clipped = sum(int(rows.memory.get(key, 0)) for rows in clients.values() for key in kept)
        return _Outcome(accuracy=accuracy(scores, y_test), clipped=clipped)

    def _entropy(self, number: int) -> Entropy:
        return InsecureSeededEntropy(self._seed, f"noise {self._trust} {number}")

    def _sum(self, setup: SumSetup) -> SumProtocol:
        """A masked sum where the server is not trusted, and else one in the clear."""
        if self._trust == "distributed":
            return MaskedSum(threshold=self._settings.threshold, **setup.common)
        return PlainSum(min_survivors=1, **setup.common)


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
