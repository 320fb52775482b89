"""Evidence about totals with noise: a lower bound of epsilon, and the noise itself, with planted faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import stats

from analytic.afl import AFL
from analytic.learner import ClientRows
from analytic.row_format import RowFormat
from federation.privacy import PrivacyPlan
from secagg import InOneProcess, Layout, MaskedSum, PartyId, SumProtocol, new_session_id
from secagg.dp import CoordinateNoise, DistributedNoise, NoisySum, audit_noise, make_room
from secagg.entropy import Entropy, os_entropy
from secagg.layout import IntVector
from secagg.sessions import ClientSession, Contribution
from simulations.audit.evaluate import Score, epsilon_lower_bound, guess_canaries, paired
from simulations.audit.population import Population
from simulations.audit.view import record_sum
from simulations.report.document import Natural, NotNegative, Part, Positive, Record, computed

CLIENTS, MAX_CANARIES = 10, 600
DRAWS = 25_000
"""Noisy coordinates over all rehearsals: enough that one missing share of ten stands out by ten standard deviations."""
GUESSED = 0.25
"""Part of the canaries that are guessed, fixed beforehand as the bound demands: the most telling ones."""

ALPHA = 1e-6
Floats = NDArray[np.float64]


class NoiseEvidence(Record, title="noise"):
    """A total with noise: claim and evidence."""

    name: str
    """honest, or the name of the planted fault."""
    title: str
    """In words."""
    fault: str = Field(exclude=True)
    """What was planted, empty for the honest run."""
    epsilon: Positive
    """Claimed epsilon, an upper bound by proof."""
    delta: Part
    """Claimed delta."""
    unit: str
    """Who is protected: one record, or one client."""
    adjacency: str
    """What a neighbouring data set is."""
    promised_survivors: Natural
    """Clients whose shares of the noise a released total holds at least."""
    colluders: Natural
    """How many of them may tell theirs."""
    composition: str
    """How the claim follows."""
    sampler: str
    """Where the noise comes from."""
    lower_bound: NotNegative
    """Epsilon at least, by attack in one run, at 95 % confidence (Steinke et al. 2023)."""
    canaries: Natural
    """Rows that a coin put in or left out."""
    guesses: Natural
    """How many of them were guessed."""
    correct: Natural
    """How many guesses were right."""
    noise_ratio: NotNegative
    """Variance of the noise found, over the claimed one."""
    noise_low: NotNegative
    """Lower end of its interval."""
    noise_high: NotNegative
    """Upper end."""
    too_little: bool = Field(exclude=True)
    """Whether the claim of at least this much noise is refuted."""
    lattice_p_value: Part
    """How likely noise of whole units has such low bits; floating-point noise has not."""
    membership: Score
    """The same attack in pairs."""

    @computed
    def planted(self) -> bool:
        """Whether a fault was planted."""
        return bool(self.fault)

    @computed
    def refuted(self) -> bool:
        """Whether anything contradicts the claim."""
        return self.lower_bound > self.epsilon or self.too_little or self.lattice_p_value < ALPHA

    @computed
    def as_expected(self) -> bool:
        """Whether the honest run stands, or the planted fault was caught."""
        return self.refuted == bool(self.fault)

    @property
    def words(self) -> str:
        """The verdict."""
        if self.fault:
            return "planted fault, caught" if self.refuted else "PLANTED FAULT, MISSED"
        return "THE CLAIM IS REFUTED" if self.refuted else "no evidence against the claim"


def noise_evidence(
    population: Population, epsilons: tuple[float, ...], rng: np.random.Generator
) -> Iterator[NoiseEvidence]:
    """An honest run for each epsilon, then every planted fault at the last one."""
    for epsilon in epsilons:
        setting = _Setting.of(population, epsilon, rng)
        yield setting.evidence("honest", f"noise for epsilon {epsilon:g}", "", setting.parties)
    for name, title, spoil in (
        ("halved", "noise of half the scale", _halved),
        ("missing_shares", "one of ten noise shares missing", _one_silent),
        ("float_noise", "noise that went through float32", _float32),
    ):
        yield setting.evidence(name, f"noise for epsilon {epsilon:g}", title, partial(setting.parties, spoil))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Setting:
    """Canaries, a coin for each, clients that hold those that are in, and the noise for one epsilon."""

    epsilon: float
    plan: PrivacyPlan
    layout: Layout
    noise: DistributedNoise
    contributions: NDArray[np.int64]
    included: NDArray[np.bool_]
    vectors: Mapping[PartyId, IntVector]
    rng: np.random.Generator

    @classmethod
    def of(cls, population: Population, epsilon: float, rng: np.random.Generator) -> _Setting:
        data = population.dataset
        canaries = population.candidates[:MAX_CANARIES]
        exact = AFL(
            n_features=data.n_features,
            n_targets=data.n_classes,
            feature_format=RowFormat(integer_bits=1, fraction_bits=16),
            max_rows=len(canaries),
        )
        plan = PrivacyPlan(
            epsilon=epsilon,
            promised_survivors=CLIENTS,
            mean_share=0.0,
            nonnegative=data.is_nonnegative,
        )
        private = plan.apply(exact)
        noise = private.noises[-1]
        assert isinstance(noise, DistributedNoise)
        spec = private.learner.next_sum(private.learner.init())
        assert spec is not None
        contributions = np.array(
            [
                spec.to_vector(
                    private.learner.client_statistics(
                        private.learner.init(), ClientRows(data.x_train[[place]], data.y_train[[place]])
                    )
                )
                for place in canaries
            ]
        )
        included = rng.random(len(canaries)) < 0.5
        parts = np.array_split(np.flatnonzero(included), CLIENTS)
        return cls(
            epsilon=epsilon,
            plan=plan,
            layout=Layout.of(spec.segments),
            noise=noise,
            contributions=contributions,
            included=included,
            vectors={party: contributions[part].sum(axis=0) for party, part in enumerate(parts, start=1)},
            rng=rng,
        )

    def parties(self, fault: Callable[[CoordinateNoise], Spoil] | None = None) -> InOneProcess:
        """All parties of a masked sum under the noise, in a session of its own, honest ones or spoiled."""
        masked = MaskedSum(
            layout=make_room(self.layout, CLIENTS, self.noise),
            clients=tuple(self.vectors),
            session_id=new_session_id(),
            threshold=CLIENTS,
        )
        noisy = NoisySum(protocol=masked, layout=self.layout, noise=self.noise)
        if fault is None:
            return InOneProcess(protocol=noisy)
        return _Faulty(protocol=noisy, exact=masked, spoil=fault(self.noise.share))

    def evidence(self, name: str, title: str, fault: str, make: Callable[[], InOneProcess]) -> NoiseEvidence:
        """One release attacked, and several rehearsals compared with their exact sum."""
        claimed = self.noise.total
        rehearsals = -(-DRAWS // claimed.dimension)
        releases = [_release(make(), self.vectors) for _ in range(rehearsals)]
        residuals = np.concatenate([release - self.contributions[self.included].sum(axis=0) for release in releases])
        found = audit_noise(
            residuals,
            CoordinateNoise(levels=np.tile(claimed.levels, rehearsals), variances=claimed.variances),
            alpha=ALPHA,
        )
        scores = self._scores(releases[0])
        guesses = round(GUESSED * len(scores)) // 2 * 2
        correct = guess_canaries(scores, self.included, guesses)
        return NoiseEvidence(
            name=name,
            title=f"{title}: {fault}" if fault else title,
            fault=fault,
            epsilon=self.epsilon,
            delta=self.plan.delta,
            unit=self.plan.unit,
            adjacency=self.plan.adjacency,
            promised_survivors=self.noise.promised_survivors,
            colluders=self.noise.colluders,
            composition="Each claim is for one release of one sum; several add up their zCDP (Bun and Steinke, 2016).",
            sampler=(
                "the discrete Gaussian law (Canonne, Kamath and Steinke, 2020), exact but for a mass of 6e-43 beyond "
                "14 standard deviations, from the operating system's entropy."
            ),
            lower_bound=epsilon_lower_bound(
                canaries=len(scores), guesses=guesses, correct=correct, delta=self.plan.delta
            ),
            canaries=len(scores),
            guesses=guesses,
            correct=correct,
            noise_ratio=found.variance_ratio,
            noise_low=found.interval[0],
            noise_high=found.interval[1],
            too_little=found.too_little,
            lattice_p_value=lattice_p_value(residuals[np.tile(claimed.levels, rehearsals) > 0]),
            membership=paired(list(scores[self.included]), list(scores[~self.included]), self.rng),
        )

    def _scores(self, release: IntVector) -> Floats:
        """The mean of each canary's coin given the release, coins taken for normal: the best linear guess."""
        levels = self.noise.total.levels
        noisy = levels > 0
        sigma = np.sqrt(np.array([0.0, *map(float, self.noise.total.variances)]))[levels[noisy]]
        rows, seen = self.contributions[:, noisy] / sigma, release[noisy] / sigma
        kernel = rows @ rows.T
        residual = rows @ seen - kernel.sum(axis=1) / 2
        return np.asarray(np.linalg.solve(kernel + 4.0 * np.eye(len(kernel)), residual))


def lattice_p_value(noise: NDArray[np.int64]) -> float:
    """Chi-square p-value of the low four bits: noise far wider than 16 has them all equally often."""
    return float(stats.chisquare(np.bincount(noise & 15, minlength=16)).pvalue)


def _release(parties: InOneProcess, vectors: Mapping[PartyId, IntVector]) -> IntVector:
    return record_sum(parties, vectors).released().total


# Planted faults: what a client sends in place of its vector with an honest share of noise

Spoil = Callable[[PartyId, IntVector], IntVector]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Faulty(InOneProcess):
    """All parties of a noisy sum whose clients' vectors are spoiled by something else."""

    exact: SumProtocol
    spoil: Spoil

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        assert not callable(contribution)
        return self.exact.client(party, self.spoil(party, contribution), entropy=entropy)


def _halved(share: CoordinateNoise) -> Spoil:
    half = replace(share, variances=tuple(max(1, variance // 4) for variance in share.variances))
    return lambda party, vector: vector + half.draw()


def _one_silent(share: CoordinateNoise) -> Spoil:
    return lambda party, vector: vector if party == 1 else vector + share.draw()


def _float32(share: CoordinateNoise) -> Spoil:
    """Enough of it (2 % more scale), so that only its low bits give it away: float32 has 24 bits."""
    rng = np.random.default_rng(int.from_bytes(os_entropy(8), "big"))
    sigma = 1.02 * np.sqrt(np.array([0.0, *map(float, share.variances)]))[share.levels]
    return lambda party, vector: (
        vector + (rng.standard_normal(len(sigma), dtype=np.float32) * sigma.astype(np.float32)).astype(np.int64)
    )
