"""Two-world test of a noisy run: how well does the best attack tell whether one person was in it?

A coin puts a canary into a run or leaves it out. Every sum of the run is made for real: a mode's own messages, noise
of every client, colluders who tell their shares, no more survivors than promised. The attacker knows all other rows and
computes the likelihood ratio of the two worlds, which no attack beats (Neyman and Pearson, 1933). The ratios of many
runs give lower bounds of epsilon. One above the claim refutes it; one far below it says that the test was too weak.

The exact sum of every run is known, so its noise is too: whether it is as much as claimed, about zero in every
coordinate, new in each run, and whole numbers down to the last bit is tested on the same runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray
from pydantic import Field

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner, ClientRows
from analytic_secagg.federation import Federation, Step
from analytic_secagg.modes import MODES
from analytic_secagg.privacy import PrivacyPlan, PrivateForm
from secagg import InOneProcess, PartyId, run_in_memory
from secagg.dp import DistributedNoise, NoisySum
from secagg.dp.audit import audit_noise
from secagg.dp.conversions import gdp_epsilon
from secagg.dp.noise import CoordinateNoise
from secagg.entropy import Entropy, os_entropy
from secagg.layout import IntVector
from secagg.sessions import ClientInput, ClientSession
from simulations.report.document import Count, Natural, NotNegative, Part, Positive, Record, computed

CLIENTS, RUNS, ROWS = 5, 1000, 2
"""Of a test: the cohort, how many runs, and rows of each client beside the canary."""

CONFIDENCE = 0.999
"""Of all bounds of a test together (Bonferroni): a claim that holds is refuted once in a thousand tests at most."""

PILOTS = 10
"""Runs without messages, in which the canary is chosen."""

CLIENT_COPIES = 4
"""Where a client is protected, its canary has so many times the rows that the plan expects of one."""

FAR = 1e6
"""How far beyond any bound rows reach that a clip must shorten."""

LARGEST_EPSILON = 64.0
"""Larger bounds say no more."""

LARGEST_MU = 40.0
"""A larger one is not told from no noise at all."""

MASKED = MODES["masked"]
"""The mode of the sums: noise is the same in every mode."""

NEVER = 1e-6
"""How often each test of the noise alarms by accident."""

WIDE = 1024
"""Noise of this standard deviation has its low four bits equally often; narrower noise is not asked."""

Floats = NDArray[np.float64]


class Outcome(StrEnum):
    """The outcome of a test of a claim."""

    REFUTED = "refuted"
    """An attack does better than the claim allows."""
    CONSISTENT = "consistent"
    """The best attack comes to at least half of the claim, and not beyond it."""
    NOT_DECIDED = "not decided"
    """No attack came to half of the claim: more runs are needed, or the canary moves little."""


class Bound(Record, title="bound"):
    """Lower bounds of epsilon at the claim's delta, from the scores of some runs and sums."""

    of: str
    """Which: ``all``; one sum, by its label; or all sums of the runs in which one client is an honest survivor."""
    runs: Count
    """How many runs these are."""
    mu: NotNegative
    """Distance of the two worlds' mean scores in standard deviations, as measured."""
    mu_error: NotNegative
    """Its standard error."""
    exact_mu: NotNegative
    """The distance by calculation: what the canary adds, in standard deviations of the claimed noise; mean of runs."""
    fit: NotNegative
    """Epsilon at least, if scores are normal, by ``mu`` and its error."""
    scale: NotNegative
    """Epsilon at least, if scores are normal, by their spread about the means that what the canary adds gives them."""

    @property
    def best(self) -> float:
        """The larger of the two."""
        return max(self.fit, self.scale)


class TwoWorlds(Record, title="two_worlds"):
    """Result of a two-world test."""

    learner: str
    """Name of the learner."""
    mode: str
    """The mode of the sums under the noise."""
    epsilon: Positive
    """Claimed epsilon."""
    delta: Part
    """Claimed delta."""
    unit: str
    """Who is protected: one record, or one client."""
    adjacency: str
    """What a neighbouring data set is."""
    clients: Count
    """Clients of each sum."""
    survivors: Count
    """How many of them are in each total: as few as the claim counts on, others in each run."""
    colluders: Natural
    """How many of them tell their share of the noise, others in each run."""
    sums: Count
    """Sums of a run."""
    runs: Count
    """Runs."""
    with_canary: Natural
    """Runs with the canary in them."""
    confidence: Part
    """Of all bounds together."""
    bounds: tuple[Bound, ...] = Field(exclude=True)
    """Of all runs and sums first."""
    noise_ratio: NotNegative
    """Variance of the noise found in the sum with the least, over the claimed one."""
    noise_interval: list[NotNegative]
    """Both ends of its interval; a claim is above the upper one once in a million tests."""
    noise_p_value: Part
    """How likely honest noise is so far from zero on average, so like that of the run before, or has such low bits;
    floating-point noise has others."""

    @computed
    def lower_bound(self) -> NotNegative:
        """Epsilon at least, at the stated confidence: the largest of all bounds."""
        return max(bound.best for bound in self.bounds)

    @computed
    def outcome(self) -> Outcome:
        """Refuted if ``lower_bound`` is above the claim or the noise is not what is claimed: less of it, more, as of
        clients that draw alike, or no honest draws; not decided if ``lower_bound`` is below half of the claim.
        """
        least, most = self.noise_interval
        if self.lower_bound > self.epsilon or not least <= 1.0 <= most or self.noise_p_value < NEVER:
            return Outcome.REFUTED
        return Outcome.CONSISTENT if self.lower_bound >= self.epsilon / 2 else Outcome.NOT_DECIDED


def two_worlds(
    learner: AnalyticLearner[Any],
    plan: PrivacyPlan,
    rng: np.random.Generator,
    *,
    n_clients: int = CLIENTS,
    runs: int = RUNS,
) -> TwoWorlds:
    """Run a learner many times with and without a canary, and bound epsilon from what the best attack makes of it.

    Noise comes from where the plan says, by default the operating system. Rows are drawn by ``rng``: a claim holds for
    all rows, so those of the owner are not needed.

    Args:
        learner: without noise, of few features (6 or so), with room for 4 rows of each client; what a plan applies to.
        plan: the claim. Its promised survivors are at least what the mode can keep, and at most the clients.
        rng: draws rows, coins, survivors, colluders and who holds the canary.
        n_clients: the cohort.
        runs: how many.

    Raises:
        PrivacyError: the learner has no private form of this plan, or the mode does not keep the promise.
        ValueError: fewer than 40 runs, or central noise, which no client adds.

    >>> from analytic.afl import AFL
    >>> from analytic.row_format import RowFormat
    >>> toy = AFL(n_features=3, n_targets=2, feature_format=RowFormat(integer_bits=1, fraction_bits=16), max_rows=40)
    >>> plan = PrivacyPlan(epsilon=8.0, min_noise_shares=4, colluders=1)
    >>> found = two_worlds(toy, plan, np.random.default_rng(0), runs=40)
    >>> found.runs, found.bounds[0].exact_mu > 1.6
    (40, True)
    """
    if plan.min_noise_shares is None or runs < 40:
        raise ValueError(
            f"a two-world test needs noise that clients add and at least 40 runs, not {plan.min_noise_shares} "
            f"smallest number of noise shares and {runs} runs: state min_noise_shares in the plan, or more runs"
        )
    setting = _Setting.of(learner, plan, rng, n_clients=n_clients)
    made = _Scores.empty(runs, setting)
    for run in range(runs):
        made.add(run, setting)
    ratio, interval, p_value = setting.noise_of(made.noise)
    return TwoWorlds(
        learner=setting.form.learner.name,
        mode=MASKED.name,
        epsilon=plan.epsilon,
        delta=plan.delta,
        unit=plan.unit,
        adjacency=plan.adjacency,
        clients=n_clients,
        survivors=plan.min_noise_shares,
        colluders=plan.colluders,
        sums=setting.n_sums,
        runs=runs,
        with_canary=int(made.is_in.sum()),
        confidence=CONFIDENCE,
        bounds=tuple(made.bounds([one.label for one in setting.form.releases], plan.delta, CONFIDENCE)),
        noise_ratio=ratio,
        noise_interval=list(interval),
        noise_p_value=p_value,
    )


# One run


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Setting:
    """What all runs share.

    Args:
        form: the private form.
        parts: rows of each client beside the canary.
        canary: rows that one client holds besides in the worlds without and with the canary.
        rng: draws who survives, colludes and holds the canary.
    """

    form: PrivateForm
    parts: Mapping[PartyId, ClientRows]
    canary: tuple[ClientRows, ClientRows]
    rng: np.random.Generator

    @classmethod
    def of(cls, learner: AnalyticLearner[Any], plan: PrivacyPlan, rng: np.random.Generator, *, n_clients: int) -> Self:
        form = plan.apply(learner)
        n_features, n_classes = _sizes(learner)
        parts = {party: toy_rows(rng, ROWS, n_features, n_classes, plan) for party in range(1, n_clients + 1)}
        canary = _worst_canary(form, list(parts.values()), extreme_rows(rng, n_features, n_classes, plan))
        return cls(form=form, parts=parts, canary=canary, rng=rng)

    @property
    def n_sums(self) -> int:
        return len(self.form.releases)

    def run(self, is_in: bool) -> tuple[Floats, Floats, list[PartyId], list[IntVector]]:
        """Make all sums for real.

        Returns:
            The log likelihood ratio of each sum, the squared length of what the canary adds to each in standard
            deviations of the claimed noise, the survivors whose share of the noise nobody tells, and the noise.
        """
        plan, order = self.form.plan, self.rng.permutation(list(self.parts)).tolist()
        survivors = order[: plan.min_noise_shares]
        colluders, holder = frozenset(survivors[: plan.colluders]), survivors[-1]
        rows = {party: _copied(self.parts[party]) for party in survivors if party != holder}
        own = None if plan.unit == "client" else self.parts[holder]
        without, with_canary = (_copied(added, own) for added in self.canary)
        federation = Federation(self.form.learner, release=None, sum_fits=True)
        sums = MASKED.sums(tuple(self.parts), min_survivors=plan.min_noise_shares)
        scores, squared, noise = np.zeros(self.n_sums), np.zeros(self.n_sums), list[IntVector]()
        for number in range(self.n_sums):
            step = _noisy(federation, self.form, number)
            vectors = {party: step.vector(of) for party, of in rows.items()}
            out, there = step.vector(without), step.vector(with_canary)
            honest = sums.next_sum(step.with_headroom(len(self.parts)), step.context)
            parties = NoisyParties(protocol=step.over(honest.protocol), secrets=honest.secrets, colluders=colluders)
            result = run_in_memory(parties, vectors | {holder: there if is_in else out}).result
            unexplained = result.total - sum(vectors.values(), out)
            scores[number], squared[number] = _likelihood_ratio(self.form, number, unexplained, there - out)
            noise.append(unexplained - (there - out) * is_in)
            federation.take(result)
        return scores, squared, survivors[plan.colluders :], noise

    def noise_of(self, runs: Sequence[Sequence[IntVector]]) -> tuple[float, tuple[float, float], float]:
        """Return the least part of the claimed variance found in a sum, its interval, and the p-value of other tests.

        Args:
            runs: the noise of each sum, of each run.
        """
        ratios, p_values = list[tuple[float, tuple[float, float]]](), list[float]()
        for number, drawn in enumerate(zip(*runs, strict=True)):
            found = np.array(drawn)
            claimed = self.form.noises[number]
            assert isinstance(claimed, DistributedNoise)
            every = CoordinateNoise(levels=np.tile(claimed.total.levels, len(found)), variances=claimed.total.variances)
            audited = audit_noise(found.ravel(), every, alpha=NEVER)
            ratios.append((audited.variance_ratio, audited.interval))
            levels, variances = _levels(self.form, number)
            sigmas = np.sqrt(variances[levels[levels > 0]])
            found = found[:, levels > 0]
            means = found.mean(axis=0) / sigmas * math.sqrt(len(found))
            p_values.append(float(scipy.stats.chi2.sf(np.square(means).sum(), len(means))))
            low = np.bincount(found[:, sigmas > WIDE].ravel() & 15, minlength=16)
            p_values += [float(scipy.stats.chisquare(low).pvalue)] if low.any() else []
            next_to_each_other = (found[1:] / sigmas * (found[:-1] / sigmas)).sum() / math.sqrt(found[1:].size)
            p_values.append(2 * float(scipy.stats.norm.sf(abs(next_to_each_other))))
        ratio, interval = min(ratios, key=lambda one: one[1][1])
        return ratio, interval, min(1.0, len(p_values) * min(p_values))


def _noisy(federation: Federation[Any], form: PrivateForm, number: int) -> Step[Any]:
    """The sum that is due, with its noise."""
    step = Step.of(form.learner, federation.model, number=number, noise=form, sum_fits=True)
    assert step is not None, "a sum with a price is due"
    return step


def _likelihood_ratio(form: PrivateForm, number: int, unexplained: IntVector, shift: IntVector) -> tuple[float, float]:
    """Log of p(total with the canary) / p(without), densities of the claimed noise; and |shift / sigma|^2."""
    levels, variances = _levels(form, number)
    noisy = levels > 0
    moved = shift[noisy] / variances[levels[noisy]]
    squared = float(moved @ shift[noisy].astype(np.float64))
    return float(moved @ unexplained[noisy].astype(np.float64)) - squared / 2, squared


def _levels(form: PrivateForm, number: int) -> tuple[NDArray[np.uint8], Floats]:
    """The noise level of each coordinate of a sum, and the claimed variance of each level from 0."""
    noise = form.noises[number]
    total = noise.total if isinstance(noise, DistributedNoise) else noise
    return total.levels, np.array([np.inf, *map(float, total.variances)])


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyParties(InOneProcess):
    """All parties of a noisy sum. Colluders tell their shares, so that these are taken off: they send none.

    Args:
        colluders: who tell their shares.
    """

    colluders: frozenset[PartyId]

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Return the client's session, without noise if it colludes."""
        noisy = self.protocol
        assert isinstance(noisy, NoisySum)
        of = noisy.protocol if party in self.colluders else noisy
        return of.client(party, client_input, secrets=self.of_party(party), entropy=entropy)


# Rows and the canary


def toy_rows(rng: np.random.Generator, n_rows: int, n_features: int, n_classes: int, plan: PrivacyPlan) -> ClientRows:
    """Draw rows of random directions between -1 and 1, from 0 on where the plan has no negative features."""
    features = rng.uniform(0.0 if plan.nonnegative else -1.0, 1.0, size=(n_rows, n_features))
    return ClientRows(features, rng.integers(n_classes, size=n_rows))


def extreme_rows(rng: np.random.Generator, n_features: int, n_classes: int, plan: PrivacyPlan) -> list[ClientRows]:
    """Make rows that may move a sum most: beyond every bound, subnormal, along axes, of any direction, of each class.

    Where the plan protects clients, each is a client: as many copies as one is expected to hold, one, and more.
    """
    axes, ones = np.eye(n_features), np.ones((1, n_features))
    some = toy_rows(rng, 4, n_features, n_classes, plan).features
    rows = np.concatenate([some, axes[:2], ones, FAR * ones, FAR * some[:2], axes[:1] * 5e-324, ones / FAR])
    if not plan.nonnegative:
        rows = np.concatenate([rows, -rows])
    expected = plan.client_rows
    copies = (1,) if plan.unit == "record" else tuple(sorted({1, expected, CLIENT_COPIES * expected}))
    return [
        ClientRows(np.repeat(row[None], n, axis=0), np.full(n, label))
        for row in rows
        for label in range(n_classes)
        for n in copies
    ]


def _worst_canary(
    form: PrivateForm, parts: Sequence[ClientRows], candidates: Sequence[ClientRows]
) -> tuple[ClientRows, ClientRows]:
    """The neighbouring pair that moves all sums of a run most, on average over pilot runs with central noise."""
    accepted = [one for one in candidates if _accepted(form, one)]
    apart = np.zeros((len(accepted), len(accepted)))
    for _ in range(PILOTS):
        for moves in _pilot(form, parts, accepted):
            inner = moves @ moves.T
            length = inner.diagonal()
            apart += length[:, None] + length - 2 * inner if form.plan.adjacency == "replace-one" else np.diag(length)
    first, second = np.unravel_index(int(apart.argmax()), apart.shape)
    if form.plan.adjacency == "replace-one":
        return accepted[first], accepted[second]
    nothing = accepted[first].taken(np.zeros(0, dtype=np.intp))
    return nothing, accepted[first]


def _pilot(form: PrivateForm, parts: Sequence[ClientRows], candidates: Sequence[ClientRows]) -> Iterator[Floats]:
    """A run without messages: what each candidate adds to each sum, in standard deviations of the claimed noise."""
    learner, model = form.learner, form.learner.init()
    held, tried = [_copied(rows) for rows in parts], [_copied(rows) for rows in candidates]
    for number, noise in enumerate(form.noises):
        step = Step.of(learner, model, number=number, noise=form, sum_fits=True)
        assert step is not None, "a sum with a price is due"
        levels, variances = _levels(form, number)
        noisy = levels > 0
        sigmas = np.sqrt(variances[levels[noisy]])
        yield np.array([step.vector(rows)[noisy] / sigmas for rows in tried])
        drawn = noise.total.draw() if isinstance(noise, DistributedNoise) else noise.draw()
        total = sum((step.vector(rows) for rows in held), drawn)
        model = learner.update(model, step.spec.from_vector(total), len(parts))


def _accepted(form: PrivateForm, rows: ClientRows) -> bool:
    """Whether the learner's first sum takes these rows; refused ones move nothing."""
    step = Step.of(form.learner, form.learner.init(), noise=form, sum_fits=True)
    assert step is not None, "a private form has a sum"
    try:
        step.vector(_copied(rows))
    except AnalyticError:
        return False
    return True


def _copied(rows: ClientRows, beside: ClientRows | None = None) -> ClientRows:
    """The same rows with a memory of their own, after others where a client holds such."""
    parts = [rows] if beside is None else [beside, rows]
    return ClientRows(
        np.concatenate([part.features for part in parts]), np.concatenate([part.targets for part in parts])
    )


def _sizes(learner: Any) -> tuple[int, int]:
    """Features and classes of a learner's rows."""
    return learner.n_features, getattr(learner, "n_targets", None) or learner.n_classes


# Bounds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Scores:
    """What the attacker has of all runs.

    Args:
        is_in: whether the canary is in a run, shape (runs,).
        ratios: log likelihood ratios, shape (runs, sums).
        squared: squared lengths of what the canary adds, of the same shape.
        honest: whether a client is a survivor who tells nothing, shape (runs, clients).
        noise: of each sum of each run.
    """

    is_in: NDArray[np.bool_]
    ratios: Floats
    squared: Floats
    honest: NDArray[np.bool_]
    noise: list[list[IntVector]] = field(default_factory=list)

    @classmethod
    def empty(cls, runs: int, setting: _Setting) -> Self:
        """Toss the coins of so many runs."""
        return cls(
            is_in=setting.rng.random(runs) < 0.5,
            ratios=np.zeros((runs, setting.n_sums)),
            squared=np.zeros((runs, setting.n_sums)),
            honest=np.zeros((runs, len(setting.parts)), dtype=np.bool_),
        )

    def add(self, run: int, setting: _Setting) -> None:
        """Make the run of a number."""
        self.ratios[run], self.squared[run], honest, noise = setting.run(bool(self.is_in[run]))
        self.honest[run, np.array(honest) - 1] = True
        self.noise.append(noise)

    def bounds(self, labels: Sequence[str], delta: float, confidence: float) -> Iterator[Bound]:
        """Bounds of all; of each sum, where there are several; and of the runs that count on one client's share."""
        every = np.ones(len(self.is_in), dtype=np.bool_)
        choices = [("all", every, slice(None))]
        if len(labels) > 1:
            of_sums = ((label, every, slice(k, k + 1)) for k, label in enumerate(labels))
            choices += [choice for choice in of_sums if self.squared[:, choice[2]].any()]
        of_clients = enumerate(self.honest.T, start=1)
        choices += [(f"client {party}", runs, slice(None)) for party, runs in of_clients if not runs.all()]
        alpha = (1 - confidence) / (2 * len(choices))
        for name, runs, sums in choices:
            ratio, square = self.ratios[runs, sums].sum(axis=1), self.squared[runs, sums].sum(axis=1)
            yield _bound(name, ratio, square, self.is_in[runs], alpha=alpha, delta=delta)


def _bound(name: str, score: Floats, square: Floats, is_in: NDArray[np.bool_], *, alpha: float, delta: float) -> Bound:
    mu, error = _distance(score[is_in], score[~is_in])
    return Bound(
        of=name,
        runs=len(score),
        mu=mu,
        mu_error=error,
        exact_mu=float(np.sqrt(square).mean()),
        fit=_epsilon(mu - float(scipy.stats.norm.isf(alpha)) * error, delta),
        scale=_scale_bound(score, square, is_in, delta, alpha),
    )


def _distance(there: Floats, out: Floats) -> tuple[float, float]:
    """Difference of the means over the pooled standard deviation, and its standard error (Hedges and Olkin, 1985)."""
    n, m = len(there), len(out)
    if min(n, m) < 2:
        return 0.0, 0.0
    apart = float(there.mean() - out.mean())
    spread = math.sqrt(((n - 1) * there.var(ddof=1) + (m - 1) * out.var(ddof=1)) / (n + m - 2))
    mu = min(apart / spread, LARGEST_MU) if apart > 0 and spread > 0 else LARGEST_MU * (apart > 0)
    return mu, math.sqrt(1 / n + 1 / m + mu**2 / (2 * (n + m - 2)))


def _scale_bound(score: Floats, square: Floats, is_in: NDArray[np.bool_], delta: float, alpha: float) -> float:
    """Epsilon at least by the spread of scores about +-|shift|^2 / 2, where the canary's own length puts them."""
    moved = square > 0
    length = np.sqrt(square[moved])
    about = (score[moved] - np.where(is_in[moved], 0.5, -0.5) * square[moved]) / length
    widest = float(np.square(about).sum()) / float(scipy.stats.chi2.ppf(alpha, len(about)))
    return _epsilon(min(float(length.mean()) / math.sqrt(widest), LARGEST_MU) if widest > 0 else LARGEST_MU, delta)


def _epsilon(mu: float, delta: float) -> float:
    """Epsilon of a distance, up to ``LARGEST_EPSILON``."""
    return min(gdp_epsilon(max(mu, 0.0), delta), LARGEST_EPSILON)
