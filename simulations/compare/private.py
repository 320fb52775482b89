"""Accuracy for a privacy budget: noise by every client, by the server, on every upload, and none at all."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PlainSerializer

from analytic.learner import AnalyticLearner, ClientRows
from analytic.noisy_solve import noise_drowns
from analytic.row_format import RowFormat
from analytic.row_map import CLIPPED_CONTRIBUTION, CLIPPED_ROWS
from analytic.sensitivity import Adjacency, Unit
from analytic_secagg.console.arguments import Option, Reader
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.in_process import Cost, run_federation
from analytic_secagg.learners import DEFAULT_ALPHAS, LEARNERS, LearnerEntry, LearnerSettings, Thresholds
from analytic_secagg.modes import MODES, Mode
from analytic_secagg.privacy import PrivacyPlan, PrivateForm
from secagg import InsecureSeededEntropy
from secagg.dp import Release
from secagg.dp.errors import MissingExtraError
from simulations.compare.dpsgd import DPSGD, PrivateBaseline
from simulations.compare.dropouts import NO_DROPOUTS, Dropouts
from simulations.compare.options import CompareOptions
from simulations.compare.personal import LocalSplit, PersonalScores, personal_scores, split_locally
from simulations.compare.reference import accuracy
from simulations.compare.second_opinions import SecondOpinion, second_opinions
from simulations.compare.tuning import Grid, Tuned, candidates, held_out, n_trials, tune, tuning_sentences
from simulations.data.partitions import Partition, parse_partition
from simulations.report.document import Count, Natural, NotNegative, Part, Record, computed

Trust = Literal["distributed", "central", "local", "non-private"]
NOISY: tuple[Trust, ...] = ("distributed", "central", "local")
TRUSTS: tuple[Trust, ...] = (*NOISY, "non-private")


PRIVATE_FORMS: Mapping[str, Mapping[str, Any]] = {
    "afl": {},
    "fedhip": {"alphas": DEFAULT_ALPHAS},
    "random": {"d_phi": 64, "activation": "gelu", "variance": 1.0},
    "logistic": {"n_rounds": 5, "step": None, "scale": 10.0, "d_phi": None},
    "deepafl": {"n_layers": 1, "d_phi": 64, "d_f": 64},
    "safle": {"n_buckets": 2, "group_size": 1, "low": 0.0, "high": 1.0},
}
"""The learners that have a private form, with the options that it has and their defaults; None leaves an option out."""

ALWAYS: Mapping[str, Mapping[str, Any]] = {
    "deepafl": {"gamma": 1e-3, "projection": "nin"},
    "safle": {"thresholds": Thresholds.EVEN},
}
"""What else their private forms are built with: no sum may ask rows for thresholds."""

NEVER_CENTRED = ("deepafl", "safle")
"""The learners whose budget buys no mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyTerms:
    """What is promised beside epsilon, and the learner that promises it; the names are those of the JSON report.

    Args:
        learner: one of ``PRIVATE_FORMS``.
        options: its own, as ``--option`` says them; those left out are as there.
        delta, unit, adjacency, gram_share, mean_share, fraction_bits, client_rows: as in ``PrivacyPlan``. Where no mean
            is ever bought the share is 0.
        ridge: what every solve adds to the noise's own ridge.

    Raises:
        UsageError, secagg.dp.PrivacyError, analytic.errors.SpecificationError: a parameter out of range, or an option
            that the private form of the learner does not have.
    """

    learner: str = "afl"
    options: Mapping[str, Option] = field(default_factory=dict)
    delta: float = 1e-5
    unit: Unit = "record"
    adjacency: Adjacency = "add-remove"
    gram_share: float = 0.3
    mean_share: float = 0.05
    fraction_bits: int = 16
    client_rows: int = 1
    ridge: float = 0.01

    def __post_init__(self) -> None:
        known = PRIVATE_FORMS[self.learner]
        if unknown := self.options.keys() - known.keys():
            raise UsageError(
                f"with --epsilon {self.learner} takes {', '.join(known) or 'no options'} with --option, not "
                f"{', '.join(sorted(unknown))}; leave that out, or --epsilon"
            )
        whole = {name: value for name, value in {**known, **self.options}.items() if value is not None}
        object.__setattr__(self, "options", whole)
        if self.learner in NEVER_CENTRED:
            object.__setattr__(self, "mean_share", 0.0)
        _ = self.n_releases

    @property
    def depth(self) -> int | None:
        """T of layers or of softmax rounds; None for the others."""
        found: int | None = self.options.get("n_layers", self.options.get("n_rounds"))
        return found

    @property
    def name(self) -> str:
        """The closed form and its depth."""
        return self.learner if self.depth is None else f"{self.learner} with T = {self.depth}"

    @property
    def n_releases(self) -> int:
        """How many sums a run releases."""
        learner = self.build(n_features=self.options.get("group_size", 1), n_classes=2, max_rows=1)
        return len(self.plan(1.0).bounded(learner).bounded_sums(self.unit, self.adjacency))

    def plan(self, epsilon: float, promised_survivors: int | None = None, **others: Any) -> PrivacyPlan:
        """The plan of these terms for one epsilon; noise from the server where nobody is promised."""
        same = {one.name for one in fields(self)} & {one.name for one in fields(PrivacyPlan)}
        terms = {name: getattr(self, name) for name in same}
        return PrivacyPlan(epsilon=epsilon, promised_survivors=promised_survivors, **terms, **others)

    def build(self, *, n_features: int, n_classes: int, max_rows: int) -> AnalyticLearner[Any]:
        """The closed form before its rows are bounded, as ``LEARNERS`` makes it of rows of norm 1."""
        settings = LearnerSettings(
            n_features=n_features,
            n_classes=n_classes,
            feature_format=RowFormat(integer_bits=0, fraction_bits=16),
            max_rows=max_rows,
            max_clients=1,
            ridge=self.ridge,
            options={**ALWAYS.get(self.learner, {}), **self.options},
        )
        return LEARNERS[self.learner].build(settings)

    def with_values(self, own: Mapping[str, Any]) -> PrivacyTerms:
        """The same with other options, and other shares of the budget."""
        shares = {name: value for name, value in own.items() if name in SHARES}
        options = {name: value for name, value in own.items() if name not in SHARES}
        return replace(self, options={**self.options, **options}, **shares)

    @property
    def flat(self) -> PrivacyTerms | None:
        """The same with T = 0, the random features of a deep learner alone; None of others.

        Its single release is what 2T + 1 must beat to be worth it.
        """
        if self.learner != "deepafl":
            return None
        return replace(self, learner="random", options={"d_phi": self.options["d_phi"]})


SHARES: Mapping[str, Reader] = {"gram_share": float, "mean_share": float}
"""What of the budget's division can be tuned like an option; the second where a mean is bought."""


def with_shares(entry: LearnerEntry) -> LearnerEntry:
    """A learner with what of its private form can be tuned: its options there, and shares of the budget."""
    shares = {name: own for name, own in SHARES.items() if name == "gram_share" or entry.name not in NEVER_CENTRED}
    own = {name: entry.options[name] for name in PRIVATE_FORMS[entry.name]}
    return replace(entry, options={**own, **shares})


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateSettings:
    """What to compare.

    Args:
        epsilons: budgets, ascending in reports.
        terms: the promise and how its budget is divided.
        n_clients: the cohort.
        partition: how training rows are dealt.
        modes: over each of which distributed noise runs; what the server may see travels in the clear.
        promised_survivors: fewest clients of a released total; None promises all that the dropouts leave.
        colluders: clients whose shares of noise count for nothing.
        dropouts: who never sends its vector; each repetition draws anew, with its own seed.
        n_seeds: repetitions, each with another split, deal and noise.
        seed: of the first one.
        baselines: DP-SGD on the same splits and budgets.
        grid: terms that are chosen for each budget on held-out training rows, with noise by the server.
        tune_seeds: how many repetitions' training rows they, and the baselines' settings, are chosen on.

    Raises:
        UsageError, analytic.errors.SpecificationError: nothing to compare, or a parameter out of range.
    """

    epsilons: tuple[float, ...]
    terms: PrivacyTerms
    n_clients: int = 100
    partition: Partition = parse_partition("iid")  # noqa: RUF009  (a frozen value)
    modes: tuple[Mode, ...] = (MODES["masked"],)
    promised_survivors: int | None = None
    colluders: int = 1
    dropouts: Dropouts = NO_DROPOUTS
    n_seeds: int = 5
    seed: int = 0
    baselines: tuple[DPSGD, ...] = ()
    grid: Grid = field(default_factory=dict)
    tune_seeds: int = 1

    def __post_init__(self) -> None:
        for own in candidates(self.grid):
            _ = self.terms.with_values(own)
        if not self.epsilons or self.n_seeds < 1 or self.seed < 0 or self.n_clients < 2 or not self.modes:
            raise UsageError("a private comparison needs an epsilon, a repetition, a seed >= 0, two clients and a mode")
        if not 1 <= self.promised <= self.survivors:
            raise UsageError(
                f"{self.promised} survivors are promised and {self.survivors} of {self.n_clients} stay: no total would "
                "be released. Promise fewer; each client then adds more noise"
            )
        for mode in self.modes:
            clients = tuple(range(1, self.n_clients + 1))
            self.dropouts.check(mode, clients, min_survivors=self.promised)
            assumed = mode.guarantee(clients, min_survivors=self.promised).assumed_colluders
            if self.colluders < assumed:
                raise UsageError(
                    f"{mode.name} of {self.n_clients} clients is planned for {assumed} that collude, who know their "
                    f"shares of the noise, and --colluders is {self.colluders}: state {assumed}, or ask fewer clients"
                )
        if not 0 <= self.colluders < self.promised:
            raise UsageError(
                f"{self.colluders} colluders among {self.promised} promised survivors leave nobody whose noise counts; "
                "tolerate fewer"
            )
        plan = self.terms.plan(1.0, self.promised, colluders=self.colluders)
        group_size = self.terms.options.get("group_size", 1)
        _ = plan.bounded(self.terms.build(n_features=group_size, n_classes=2, max_rows=1))

    @property
    def seeds(self) -> range:
        """Of the repetitions."""
        return range(self.seed, self.seed + self.n_seeds)

    @property
    def survivors(self) -> int:
        """Clients whose vectors arrive."""
        return self.n_clients - self.dropouts.n_lost(self.n_clients)

    @property
    def promised(self) -> int:
        """Fewest clients of any total that is released."""
        return self.survivors if self.promised_survivors is None else self.promised_survivors

    @property
    def title(self) -> str:
        """Learner, cohort and partition."""
        return f"{self.terms.name}, {self.n_clients} clients, {self.partition.name}"

    @property
    def n_runs(self) -> int:
        """How many models are trained."""
        budgets = len(set(self.epsilons))
        tuning = min(self.tune_seeds, self.n_seeds)
        beside = sum(one.n_trainings(self.n_seeds, tuning) for one in self.baselines) + n_trials(self.grid, tuning)
        return self.n_seeds * (1 + len(list(self.noisy)) * budgets) + budgets * beside

    @property
    def noisy(self) -> Iterator[tuple[Trust, Mode]]:
        """Every kind of noise with the mode that it runs over."""
        for mode in self.modes:
            yield "distributed", mode
        yield from (("central", MODES["plain"]), ("local", MODES["plain"]))


# What was found


class PrivateRecord(Record, title="private_record"):
    """One kind of trust at one epsilon, over all repetitions."""

    trust: Trust
    """Who adds noise: every client, the server, every upload for itself, nobody."""
    mode: str
    """How the sums were made: a mode that was asked for where clients share the noise, in the clear elsewhere."""
    target_epsilon: NotNegative | None
    """The budget that was asked for; null without noise, here and below."""
    epsilon: NotNegative | None
    """Epsilon that the integer noise really gives."""
    delta: NotNegative | None
    """Its delta."""
    rho: NotNegative | None
    """The same in zero-concentrated differential privacy."""
    epsilon_zcdp: NotNegative | None
    """The same by the conversion of zero-concentrated differential privacy alone, which gives some of it away."""
    sigma_gram: NotNegative
    """Noise scale of the Gram matrix, in units of the rows' norm squared."""
    sigma_cross: NotNegative
    """Noise scale of the cross-correlation."""
    releases: Count
    """Totals that one run releases."""
    unit: Literal["record", "client"]
    """Who is protected."""
    adjacency: str
    """What a neighbouring data set is."""
    clients: Count
    """Clients of the cohort."""
    survivors: Count
    """Clients whose vectors are in a total."""
    promised_survivors: Count
    """Fewest clients of any total that is released."""
    colluders: Natural
    """Clients whose noise counts for nothing."""
    layers: Natural | None
    """T of a deep learner; null for the linear one."""
    accuracy_mean: Part
    """Part of the test rows that are classified correctly; mean over repetitions."""
    accuracy_spread: NotNegative
    """Standard deviation over repetitions."""
    accuracies: tuple[Part, ...] = Field(min_length=1)
    """The accuracy of each repetition."""
    clipped: Natural
    """Rows, and for units of clients contributions, that were shortened, over all repetitions."""
    uncertified: tuple[str, ...]
    """Solved arrays whose bits are this machine's, each by name with how it was solved, over all repetitions."""
    second_opinions: Mapping[str, NotNegative]
    """Epsilon by other accountants' names; empty where they are not installed."""
    bytes_up_per_client: Count
    """Bytes a client sent over all sums; the most of any client that took part, in the last repetition."""
    messages_per_client: Count
    """Messages it sent, likewise."""
    client_seconds: NotNegative
    """Time a client computed, in the mean."""
    local_accuracy: Part | None
    """Of the global model on a fifth of each client's own rows: mean over clients and repetitions; null where no
    personal models are made."""
    personalised_accuracy: Mapping[str, Part] | None
    """The same for each client's personal model, by alpha as text, from its own rows, which no noise covers there."""
    tuned: Tuned | None
    """What was chosen for this budget in place of the terms of the comparison; null where nothing was to be chosen."""


class PrivateComparison(Record, title="private"):
    """Accuracy by privacy budget of one learner, cohort and partition."""

    kind: Literal["analytic-secagg/private-compare"] = Field(
        default="analytic-secagg/private-compare", serialization_alias="schema"
    )
    """Says what kind of document this is."""
    schema_version: Literal[8] = 8
    """Raised when a name changes its meaning or goes away."""
    dataset: Mapping[str, Any]
    """Name, digest and number of training and test rows; all rows are pooled and split anew for each repetition."""
    terms: Annotated[PrivacyTerms, PlainSerializer(asdict, return_type=Mapping[str, Any])]
    """The learner with all options of its private form, the promise and its budget's division: delta, unit, adjacency,
    shares of the budget, ridge."""
    partition: str
    """How training rows were dealt."""
    seeds: Count
    """Repetitions, each with another split, deal and noise."""
    seed: Natural
    """Seed of the first one."""
    records: tuple[PrivateRecord, ...] = Field(min_length=1)
    """One entry for each budget, kind of trust and mode, and one without noise."""

    baselines: tuple[PrivateBaseline, ...] = ()
    """DP-SGD on the same splits at each budget; in the first comparison of a run, and only where it was asked for."""

    @property
    def clients(self) -> int:
        """The cohort."""
        return self.records[0].clients

    @property
    def title(self) -> str:
        """Learner, cohort and partition."""
        return f"{self.terms.name}, {self.clients} clients, {self.partition}"

    @property
    def budgets(self) -> tuple[float, ...]:
        """The epsilons that were asked for, ascending."""
        return tuple(dict.fromkeys(one.target_epsilon for one in self.records if one.target_epsilon is not None))

    @property
    def modes(self) -> Mapping[str, PrivateRecord]:
        """The modes that distributed noise ran over, each with its record at the largest budget."""
        return {one.mode: one for one in self.records if one.trust == "distributed"}

    @property
    def told(self) -> tuple[PrivateRecord, ...]:
        """The records without those that hold the same integers over a further mode."""
        return tuple(one for one in self.records if one is self.of(one.trust, one.target_epsilon))

    def of(self, trust: Trust, target_epsilon: float | None) -> PrivateRecord:
        """The record of one kind of trust at one epsilon; of several modes, whose integers are the same, the first."""
        return next(r for r in self.records if r.trust == trust and r.target_epsilon == target_epsilon)

    @computed
    def statement(self) -> tuple[str, ...]:
        """What the numbers mean and rest on, in sentences."""
        return tuple(_statement(self))


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
    records = [_record(dataset, settings, "non-private", MODES["plain"], None, tick)]
    for epsilon in sorted(set(settings.epsilons)):
        tuned = _tuned(dataset, settings, epsilon, tick) if settings.grid else None
        with_best = replace(settings, terms=settings.terms.with_values(tuned.chosen), grid={}) if tuned else settings
        records += [_record(dataset, with_best, trust, mode, epsilon, tick, tuned) for trust, mode in settings.noisy]
    return PrivateComparison(
        dataset={
            "name": dataset.name,
            "sha256": dataset.sha256,
            "train_rows": len(dataset.x_train),
            "test_rows": len(dataset.x_test),
        },
        terms=settings.terms,
        partition=settings.partition.name,
        seeds=settings.n_seeds,
        seed=settings.seed,
        records=tuple(records),
        baselines=tuple(
            baseline.run(
                dataset,
                lambda seed: cast("Any", tuple(_split(dataset, _rng(seed)))),
                epsilon=epsilon,
                delta=settings.terms.delta,
                seeds=settings.seeds,
                tune_seeds=settings.tune_seeds,
                tick=tick,
            )
            for baseline in settings.baselines
            for epsilon in sorted(set(settings.epsilons))
        ),
    )


def _rng(seed: int) -> np.random.Generator:
    """What splits and deals the rows of a repetition."""
    return np.random.default_rng([seed, *b"private compare"])


def _tuned(dataset: Dataset, settings: PrivateSettings, epsilon: float, tick: Callable[[], None]) -> Tuned:
    """The terms of a grid that do best on held-out training rows, with the server's noise: it is that of all trusts."""

    def score(own: Mapping[str, Any], seed: int) -> float:
        tick()
        tried = replace(settings, terms=settings.terms.with_values(own), grid={})
        return _run(dataset, tried, "central", MODES["plain"], epsilon, seed, tuning=True).accuracy

    return tune(settings.grid, score, repetitions=settings.seeds[: settings.tune_seeds])


def _record(
    dataset: Dataset,
    settings: PrivateSettings,
    trust: Trust,
    mode: Mode,
    epsilon: float | None,
    tick: Callable[[], None],
    tuned: Tuned | None = None,
) -> PrivateRecord:
    outcomes = []
    for seed in settings.seeds:
        tick()
        outcomes.append(_run(dataset, settings, trust, mode, epsilon, seed))
    accuracies, terms, form = tuple(one.accuracy for one in outcomes), settings.terms, outcomes[-1].form
    promise = form.guarantee if form else None
    opinions = _opinions(form.releases, terms.delta) if form else ()
    return PrivateRecord(
        trust=trust,
        mode=mode.name,
        target_epsilon=epsilon,
        epsilon=promise.epsilon if promise else None,
        delta=promise.delta if promise else None,
        rho=float(promise.rho) if promise else None,
        epsilon_zcdp=promise.epsilon_zcdp if promise else None,
        sigma_gram=form.sigma_gram if form else 0.0,
        sigma_cross=form.sigma_cross if form else 0.0,
        releases=terms.n_releases,
        unit=terms.unit,
        adjacency=terms.adjacency,
        clients=settings.n_clients,
        survivors=settings.survivors,
        promised_survivors=settings.promised,
        colluders=settings.colluders,
        layers=0 if terms.learner == "random" else terms.options.get("n_layers"),
        accuracy_mean=statistics.fmean(accuracies),
        accuracy_spread=statistics.pstdev(accuracies),
        accuracies=accuracies,
        clipped=sum(one.clipped for one in outcomes),
        uncertified=tuple(dict.fromkeys(name for one in outcomes for name in one.uncertified)),
        second_opinions={opinion.accountant: opinion.epsilon for opinion in opinions},
        bytes_up_per_client=max(cost.bytes_up for cost in outcomes[-1].costs),
        messages_per_client=max(cost.messages_up for cost in outcomes[-1].costs),
        client_seconds=statistics.fmean(cost.seconds for one in outcomes for cost in one.costs),
        **_personal([one.personal for one in outcomes if one.personal is not None]),
        tuned=tuned,
    )


def _personal(found: Sequence[PersonalScores]) -> dict[str, Any]:
    """What a record says of personal models."""
    if not found or found[0].of_personal is None:
        return {"local_accuracy": None, "personalised_accuracy": None}
    return {
        "local_accuracy": statistics.fmean(cast("float", one.of_global) for one in found),
        "personalised_accuracy": {
            alpha: statistics.fmean(cast("Any", one.of_personal)[alpha] for one in found)
            for alpha in found[0].of_personal
        },
    }


@lru_cache(maxsize=32)
def _opinions(bill: tuple[Release, ...], delta: float) -> tuple[SecondOpinion, ...]:
    """Other accountants' numbers; none where the extra is not installed."""
    try:
        return second_opinions(bill, delta)
    except MissingExtraError:
        return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """Of one seed; ``form`` is the learner's private one, None where nothing is private; costs are clients'.

    ``personal`` is of personal models, None where none are made.
    """

    accuracy: float
    clipped: int
    form: PrivateForm | None
    uncertified: tuple[str, ...]
    costs: tuple[Cost, ...]
    personal: PersonalScores | None


def _run(
    dataset: Dataset,
    settings: PrivateSettings,
    trust: Trust,
    mode: Mode,
    epsilon: float | None,
    seed: int,
    *,
    tuning: bool = False,
) -> _Outcome:
    """One seed: split, deal, sum, solve, test; to tune, on a fifth of the training rows and without the test rows."""
    terms, plan, form = settings.terms, None, None
    sizes = {"n_features": dataset.n_features, "n_classes": dataset.n_classes, "max_rows": len(dataset.x_train)}
    learner: Any = terms.build(**sizes)
    known: dict[str, Any] = {
        "nonnegative": dataset.is_nonnegative,
        "noise_entropy": lambda number: InsecureSeededEntropy(seed, f"noise {trust} {number}"),
    }
    if epsilon is None:  # exact totals, solved like noisy ones
        learner = terms.plan(1.0, **known).bounded(learner).with_noise([0.0] * terms.n_releases, None)
    else:
        promised = {"distributed": settings.promised, "local": 1}.get(trust)
        colluders = settings.colluders if trust == "distributed" else 0
        plan = terms.plan(epsilon, promised, colluders=colluders, **known)
        form = plan.apply(learner)
    rng = _rng(seed)
    parts = tuple(_split(dataset, rng))
    (x_train, y_train), (x_test, y_test) = held_out(parts[0]) if tuning else parts
    dealt = settings.partition.deal(y_train, settings.n_clients, rng)
    whole = dict(enumerate(dealt, start=1))
    personalise, alphas = LEARNERS[terms.learner].personalise, terms.options.get("alphas", ())
    own = LocalSplit(whole, {}) if personalise is None else split_locally(whole, seed)
    clients = {party: ClientRows(x_train[rows], y_train[rows]) for party, rows in own.train.items()}
    dropouts = replace(settings.dropouts, seed=seed)
    finished = run_federation(
        learner,
        clients,
        mode,
        dropouts=lambda number: dict.fromkeys(dropouts.lost(tuple(clients), number), 0),
        privacy=plan,
    )
    solving: Any = form.learner if form else learner
    scores = solving.decision_function(finished.model, x_test)
    kept = (CLIPPED_ROWS, CLIPPED_CONTRIBUTION)
    clipped = sum(int(rows.memory.get(key, 0)) for rows in clients.values() for key in kept)
    personal = None
    if personalise is not None:
        held = {party: ClientRows(x_train[rows], y_train[rows]) for party, rows in own.test.items()}
        personal = personal_scores(
            solving,
            personalise,
            alphas,
            model=finished.model,
            pooled_model=finished.model,
            clients=[(rows, held[party]) for party, rows in clients.items()],
        )
    return _Outcome(
        accuracy=accuracy(scores, y_test),
        clipped=clipped,
        form=form,
        uncertified=finished.uncertified,
        costs=tuple(finished.costs[party] for party in sorted(set().union(*finished.survivors))),
        personal=personal,
    )


def _split(dataset: Dataset, rng: np.random.Generator) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Training and test rows, drawn anew from all rows of the data set in its own proportion."""
    features = np.concatenate([dataset.x_train, dataset.x_test])
    labels = np.concatenate([dataset.y_train, dataset.y_test])
    order = rng.permutation(len(features))
    for part in np.split(order, [len(dataset.x_train)]):
        yield features[part], labels[part]


def without_depth(settings: PrivateSettings) -> PrivateSettings | None:
    """The same comparison with T = 0 of a deep learner; None of others."""
    flat = settings.terms.flat
    if flat is None:
        return None
    grid = {name: own for name, own in settings.grid.items() if name not in ("n_layers", "d_f")}
    return replace(settings, terms=flat, grid=grid)


# From the command line


def settings_from(
    options: CompareOptions,
    dataset: Dataset,
    *,
    n_clients: int,
    partition: Partition,
    modes: tuple[Mode, ...],
    learner: str,
    own: Mapping[str, Any],
    baselines: tuple[DPSGD, ...] = (),
    grid: Grid | None = None,
) -> PrivateSettings:
    """The settings that arguments ask for; cohort and partition are ``compare``'s own.

    Args:
        options: what was given.
        dataset: the rows.
        n_clients: the cohort.
        partition: how they are dealt.
        modes: of distributed noise.
        learner: one of ``PRIVATE_FORMS``.
        own: its options.
        baselines: what to run beside it.
        grid: which of its options, and of the budget's shares, are tuned.

    Raises:
        UsageError: a parameter out of range, or an option that the private form of the learner does not have.
    """
    privacy, federation = options.privacy, options.federation
    terms = PrivacyTerms(
        learner=learner,
        options=own,
        delta=privacy.delta,
        unit=privacy.unit,
        adjacency=privacy.adjacency,
        gram_share=privacy.gram_share,
        mean_share=privacy.mean_share,
        client_rows=-(-len(dataset.x_train) // n_clients),
    )
    if isinstance(options.learning.ridge, float):
        terms = replace(terms, ridge=options.learning.ridge)
    if privacy.epsilon is None:
        raise UsageError("a private comparison needs --epsilon")
    return PrivateSettings(
        epsilons=privacy.epsilon,
        terms=terms,
        n_clients=n_clients,
        partition=partition,
        modes=modes,
        promised_survivors=privacy.promise,
        colluders=privacy.colluders,
        dropouts=federation.dropouts,
        n_seeds=privacy.seeds,
        seed=federation.seed,
        baselines=baselines,
        grid=grid or {},
        tune_seeds=privacy.tune_seeds,
    )


# What the numbers mean


def _statement(comparison: PrivateComparison) -> Iterator[str]:
    terms, first = comparison.terms, comparison.records[0]
    releases = sorted({one.releases for one in comparison.records if one.epsilon} or {terms.n_releases})
    yield (
        f"Unit of privacy: one {terms.unit}. Adjacency: {terms.adjacency}"
        f"{' (a client is zeroed out, its noise stays)' if terms.unit == 'client' else ''}. delta {terms.delta:g}. "
        f"{' or '.join(map(str, releases))} releases share each epsilon."
    )
    yield (
        f"Distributed: whoever sees the totals, and up to {first.colluders} colluding clients. It rests on at least "
        f"{first.promised_survivors} of {first.clients} clients in every released total (the sum aborts below), on "
        "each of them adding its share, and on a secure sum that shows nothing but the total."
    )
    if "plain" in comparison.modes:
        yield "Over plain the server sees every upload, whose own share of noise is too little: it is no such sum."
    yield "Central: whoever sees the model, if the server is trusted with the exact totals and adds the noise."
    yield "Local: every upload is private on its own; no secure sum is needed."
    ball = (
        "is clipped in exact integers to the public norm 1" if terms.learner != "safle" else "has a one in every group"
    )
    yield (
        f"Every row {ball}; format, number of classes, largest number of rows, clip, thresholds and the sign of "
        "features are taken as public. Row counts are never released. Budgets are per run: repetitions on the same "
        "people would add up."
    )
    yield from tuning_sentences(
        terms.name, ((one.target_epsilon or 0.0, one.tuned) for one in comparison.told if one.trust == "distributed")
    )
    if comparison.baselines:
        yield "dpsgd: a softmax head by Opacus for who trusts the server with exact gradients; rows of norm 1."
        yield from tuning_sentences("dpsgd", ((one.target_epsilon, one.tuned) for one in comparison.baselines))
    for record in comparison.told:
        if record.personalised_accuracy is not None:
            of = "without noise" if record.epsilon is None else f"{record.trust}, epsilon {record.target_epsilon:g}"
            shown = ", ".join(f"{own:.3f} with alpha {alpha}" for alpha, own in record.personalised_accuracy.items())
            yield f"On clients' own test rows, {of}: {record.local_accuracy:.3f} by the global model, {shown}."
    for one in comparison.baselines:
        yield difference(comparison.of("distributed", one.target_epsilon), one, comparison.dataset)
    yield "Accuracies are on test rows of a public data set and no release; noise is seeded: this is no deployment."
    if found := dict.fromkeys(name for record in comparison.records for name in record.uncertified):
        yield f"Not certified, the bits are this machine's: {', '.join(found)}."
    yield from _depth_advice(comparison)


def difference(ours: PrivateRecord, theirs: PrivateBaseline, sizes: Mapping[str, Any]) -> str:
    """Who is ahead, by how much, and how sure that is: over the same splits, in the error of the mean difference."""
    pairs = [one - other for one, other in zip(ours.accuracies, theirs.accuracies, strict=True)]
    error = standard_error(pairs, n_train=sizes["train_rows"], n_test=sizes["test_rows"])
    return (
        f"distributed minus {theirs.learner} at epsilon {theirs.target_epsilon:g}: {statistics.fmean(pairs):+.4f}, "
        f"standard error {error:.4f} over {len(pairs)} overlapping splits; {theirs.rounds} rounds and "
        f"{theirs.bytes_up_per_client / 1e6:.3g} MB a client against {ours.releases} sums and "
        f"{ours.bytes_up_per_client / 1e6:.3g} MB."
    )


def standard_error(values: Sequence[float], *, n_train: int, n_test: int) -> float:
    """The standard error of a mean over J splits of one pool of rows: s sqrt(1/J + n_test / n_train); NaN of one split.

    The splits share rows, so that s / sqrt J, the error of independent ones, is too small (Nadeau and Bengio, Machine
    Learning 2003, eq. 7).

    Args:
        values: one number for each split.
        n_train, n_test: rows of each split's two parts.
    """
    if len(values) < 2:
        return math.nan
    return statistics.stdev(values) * math.sqrt(1.0 / len(values) + n_test / n_train)


def _depth_advice(comparison: PrivateComparison) -> Iterator[str]:
    """Whether a deep learner's 2T + 1 releases are expected to be worth it, by the public rule."""
    n_rows = comparison.dataset["train_rows"]
    for record in comparison.records:
        terms = comparison.terms.with_values(record.tuned.chosen if record.tuned else {})
        if (
            terms.learner == "deepafl"
            and record.trust == "central"
            and noise_drowns(
                n_rows=n_rows, row_norm=1.0, sigma_gram=record.sigma_gram, n_features=terms.options["d_phi"]
            )
        ):
            yield (
                f"At epsilon {record.target_epsilon:g} the noise of each of the {record.releases} sums exceeds the "
                f"mean eigenvalue of a layer's Gram ({n_rows} rows, width {terms.options['d_phi']}): "
                "T = 0 is expected to do better."
            )


def depth_verdicts(comparisons: Sequence[PrivateComparison]) -> Iterator[tuple[PrivateComparison, str]]:
    """Where a T above 0 does worse than the T = 0 that was run beside it: (which, a sentence)."""
    for deep in comparisons:
        for flat in comparisons:
            if (flat.terms, flat.clients, flat.partition) == (deep.terms.flat, deep.clients, deep.partition):
                for sentence in depth_verdict(deep, flat):
                    yield deep, sentence


def depth_verdict(deep: PrivateComparison, flat: PrivateComparison) -> Iterator[str]:
    """Where T = 0 really did better with the same budget, in a simulation that ran both."""
    for record in deep.told:
        other = flat.of(record.trust, record.target_epsilon)
        if record.target_epsilon is not None and record.layers and other.accuracy_mean > record.accuracy_mean:
            yield (
                f"{record.trust}, epsilon {record.target_epsilon:g}: T = 0 does better ({other.accuracy_mean:.3f}) "
                f"than T = {record.layers} ({record.accuracy_mean:.3f})."
            )
