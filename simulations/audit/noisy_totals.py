"""Evidence about the noise of totals: is it as much, as independent and as whole as was claimed? With planted faults.

What is rehearsed is what a run does: the mean release first, a mode's own sum, clients that stay away until as few
are left as was promised, and colluders among these who tell their shares: other clients in each rehearsal, in an
order drawn at random. The noise that is then left must bear the claim.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, cycle, islice

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy import stats

from analytic.afl import AFL
from analytic.learner import ClientRows
from analytic.row_format import RowFormat
from analytic_secagg.federation import Step
from analytic_secagg.modes import MODES, Mode
from analytic_secagg.privacy import PrivacyPlan, PrivateForm
from secagg import InOneProcess, PartyId, new_session_id
from secagg.dp import DistributedNoise, NoisySum
from secagg.dp.audit import NoiseAudit, audit_noise
from secagg.dp.noise import CoordinateNoise
from secagg.entropy import Entropy, InsecureSeededEntropy, os_entropy
from secagg.layout import IntVector
from secagg.sessions import ClientInput, ClientSession
from simulations.audit.population import Population
from simulations.audit.view import record_sum
from simulations.report.document import Natural, NotNegative, Part, Positive, Record, computed

CLIENTS, COLLUDERS, MAX_ROWS = 10, 1, 300
DRAWS = 25_000
"""Noisy coordinates over all rehearsals: enough that one missing share of ten stands out by ten standard deviations."""
DRAWS_OF_FAULTS = DRAWS // 2
"""Where a fault was planted: still seven, and harder to see than where none was."""
DRAWS_OF_MEAN = 1_000
"""Fewer for the release that only places rows; a third of its noise missing stands out."""
ALPHA = 1e-6
NEARLY_NONE = 1e-4
"""Where less than this part of the claimed noise is found, so much is reckoned with: epsilon stays a number."""

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
    mode: str
    """The mode of the sum under the noise."""
    clients: Natural
    """Clients of the rehearsed sums; all but the promised survivors stay away."""
    dependence_p_value: Part
    """How likely independent noise is so alike in two sums, one of them the same session again."""
    mean_ratio: NotNegative | None
    """Of the release of the rows' mean: variance of the noise found, over the claimed one; null where there is none."""
    noise_ratio: NotNegative
    """Variance of the noise found in the last sum, over the claimed one."""
    noise_low: NotNegative
    """Lower end of its interval."""
    noise_high: NotNegative
    """Upper end."""
    too_little: bool = Field(exclude=True)
    """Whether the claim of at least this much noise is refuted."""
    lattice_p_value: Part
    """How likely noise of whole units has such low bits; floating-point noise has not."""

    @property
    def refuted(self) -> bool:
        """Whether anything contradicts the claim."""
        return self.too_little or min(self.lattice_p_value, self.dependence_p_value) < ALPHA

    @computed
    def as_expected(self) -> bool:
        """Whether the honest run stands, or the planted fault was caught."""
        return self.refuted == bool(self.fault)


def noise_evidence(
    population: Population,
    epsilons: tuple[float, ...],
    rng: np.random.Generator,
    modes: tuple[Mode, ...] = (MODES["masked"],),
    faults: tuple[NoiseFault, ...] | None = None,
) -> Iterator[NoiseEvidence]:
    """Rehearse an honest run for each epsilon, then plant every fault at the last epsilon.

    Args:
        population: the rows.
        epsilons: the claims.
        rng: deals rows and draws canaries and colluders.
        modes: of the honest runs, one after the other.
        faults: what is planted; None for ``NOISE_FAULTS``.
    """
    for place, epsilon in enumerate(epsilons):
        setting = _Setting.of(population, epsilon, modes[place % len(modes)], rng)
        yield setting.evidence("honest", f"noise for epsilon {epsilon:g}", None)
    setting = replace(setting, mode=modes[0])  # what was planted is the same in every mode
    for fault in NOISE_FAULTS if faults is None else faults:
        yield setting.evidence(fault.name, f"noise for epsilon {epsilon:g}", fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseFault:
    """A fault of noise.

    Args:
        name: in JSON.
        title: in words.
        spoil: given a client's share of a sum's noise and the sum's number, what the client sends in its place.
    """

    name: str
    title: str
    spoil: Callable[[DistributedNoise, int], Spoil]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Setting:
    """Rows, clients that hold them, and the noise for one epsilon."""

    form: PrivateForm
    mode: Mode
    population: Population
    candidates: NDArray[np.intp]
    parts: Mapping[PartyId, NDArray[np.intp]]
    rng: np.random.Generator

    @classmethod
    def of(cls, population: Population, epsilon: float, mode: Mode, rng: np.random.Generator) -> _Setting:
        data, clients = population.dataset, tuple(range(1, CLIENTS + 1))
        candidates = population.candidates[:MAX_ROWS]
        exact = AFL(
            n_features=data.n_features,
            n_targets=data.n_classes,
            feature_format=RowFormat(integer_bits=1, fraction_bits=16),
            max_rows=len(candidates),
        )
        promised = mode.guarantee(clients).min_survivors
        plan = PrivacyPlan(
            epsilon=epsilon, min_noise_shares=promised, colluders=COLLUDERS, nonnegative=data.is_nonnegative
        )
        parts = np.array_split(np.arange(len(candidates)), promised)
        return cls(
            form=plan.apply(exact),
            mode=mode,
            population=population,
            candidates=candidates,
            parts=dict(enumerate(parts, start=1)),
            rng=rng,
        )

    def evidence(self, name: str, title: str, fault: NoiseFault | None) -> NoiseEvidence:
        """Return what every sum of the run, made several times and compared with its exact sum, shows of the noise."""
        mean, (last, found) = self._rehearsed(fault)
        plan, noise = self.form.plan, last.noise
        sums = [*([mean] if mean else []), (last, found)]
        assert plan.min_noise_shares is not None
        return NoiseEvidence(
            name=name,
            title=f"{title}: {fault.title}" if fault else title,
            fault=fault.title if fault else "",
            epsilon=plan.epsilon,
            delta=plan.delta,
            unit=plan.unit,
            adjacency=plan.adjacency,
            promised_survivors=plan.min_noise_shares,
            colluders=plan.colluders,
            mode=self.mode.name,
            clients=CLIENTS,
            dependence_p_value=min(one.dependence for one, _ in sums),
            mean_ratio=mean[1].variance_ratio if mean else None,
            noise_ratio=found.variance_ratio,
            noise_low=found.interval[0],
            noise_high=found.interval[1],
            too_little=any(one.too_little for _, one in sums),
            lattice_p_value=lattice_p_value(last.residuals[:, noise.total.levels > 0].ravel()),
        )

    def _rehearsed(
        self, fault: NoiseFault | None
    ) -> tuple[tuple[_Rehearsals, NoiseAudit] | None, tuple[_Rehearsals, NoiseAudit]]:
        """The release of the mean, where there is one, and the last sum, each with what its noise turned out to be."""
        learner, model = self.form.learner, self.form.learner.init()
        sums = list[tuple[_Rehearsals, NoiseAudit]]()
        while (step := Step.of(learner, model, number=len(sums), noise=self.form, sum_fits=True)) is not None:
            one = _Rehearsals.of(self, step, fault)
            sums.append((one, one.audit()))
            model = learner.update(model, step.spec.from_vector(one.releases[0]), len(self.parts))
        return (sums[0] if len(sums) > 1 else None), sums[-1]

    def _rows(self, places: NDArray[np.intp]) -> ClientRows:
        return self.population.rows(self.candidates[places])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Rehearsals:
    """One sum of a run, made several times over; the last two are one session, made again."""

    step: Step[object]
    noise: DistributedNoise
    releases: list[IntVector] = field(repr=False)
    residuals: NDArray[np.int64] = field(repr=False)

    @classmethod
    def of(cls, setting: _Setting, step: Step[object], fault: NoiseFault | None) -> _Rehearsals:
        noise = setting.form.noises[step.number]
        assert isinstance(noise, DistributedNoise)
        vectors = {party: step.vector(setting._rows(part)) for party, part in setting.parts.items()}
        exact = np.sum(list(vectors.values()), axis=0)
        spoil = fault.spoil(noise, step.number) if fault else None
        is_last = step.number == len(setting.form.noises) - 1
        draws = (DRAWS_OF_FAULTS if fault else DRAWS) if is_last else DRAWS_OF_MEAN
        n_rehearsals = max(3, min(MOST_REHEARSALS, -(-draws // noise.total.dimension)))
        sessions = [new_session_id() for _ in range(n_rehearsals - 1)]
        in_turn = cycle(setting.rng.permutation(list(setting.parts)).tolist())
        releases = [
            record_sum(_parties(setting, step, colluders, spoil, session), vectors).released().total
            for session in (*sessions, sessions[-1])
            for colluders in [frozenset(islice(in_turn, noise.colluders))]
        ]
        residuals = np.array([release - exact for release in releases])
        return cls(step=step, noise=noise, releases=releases, residuals=residuals)

    @property
    def sigmas(self) -> Floats:
        """Of the claimed noise, by coordinate; 0 where nothing is released."""
        sigmas: Floats = np.sqrt(np.array([0.0, *map(float, self.noise.total.variances)]))[self.noise.total.levels]
        return sigmas

    def audit(self) -> NoiseAudit:
        """All residuals against the claimed noise."""
        claimed, times = self.noise.total, len(self.residuals)
        levels = np.tile(claimed.levels, times)
        return audit_noise(
            self.residuals.ravel(), CoordinateNoise(levels=levels, variances=claimed.variances), alpha=ALPHA
        )

    @property
    def dependence(self) -> float:
        """How likely independent residuals have so large a correlation in some pair, or so long a mean (Bonferroni)."""
        noisy = self.noise.total.levels > 0
        scaled = self.residuals[:, noisy] / self.sigmas[noisy]
        scaled /= np.sqrt(np.maximum(np.square(scaled).mean(axis=1, keepdims=True), NEARLY_NONE))
        n, dimension = scaled.shape
        pairs = list(combinations(range(n), 2))
        largest = max(abs(float(scaled[i] @ scaled[j])) for i, j in pairs) / math.sqrt(dimension)
        of_mean = float(stats.chi2.sf(n * np.square(scaled.mean(axis=0)).sum(), dimension))
        return min(1.0, 2 * len(pairs) * 2 * float(stats.norm.sf(largest)), 2 * of_mean)


MOST_REHEARSALS = 40
"""Of a sum of few coordinates."""


def _parties(
    setting: _Setting, step: Step[object], colluders: frozenset[PartyId], spoil: Spoil | None, session_id: bytes
) -> InOneProcess:
    """All parties of a sum under the noise, of whom some vanish and colluders tell their shares."""
    clients = tuple(range(1, CLIENTS + 1))
    parties = setting.mode.in_one_process(
        layout=step.with_headroom(CLIENTS), clients=clients, session_id=session_id, context=step.context
    )
    noisy = step.over(parties.protocol)
    assert isinstance(noisy, NoisySum)
    return NoisyParties(
        protocol=noisy,
        secrets=parties.secrets,
        session_id=session_id,
        spoil=spoil,
        colluders=colluders,
    )


def lattice_p_value(noise: NDArray[np.int64]) -> float:
    """Chi-square p-value of the low four bits: noise far wider than 16 has them all equally often."""
    return float(stats.chisquare(np.bincount(noise & 15, minlength=16)).pvalue)


# Planted faults: what a client sends in place of its vector with an honest share of noise

Spoil = Callable[[PartyId, IntVector, bytes], IntVector]
"""Given the client, its vector and the session."""

AT_FAULT: PartyId = 1
"""The client at fault where one is alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyParties(InOneProcess):
    """All parties of a noisy sum. Colluders tell their shares, so that these are taken off: they send none.

    Args:
        session_id: what a planted fault may depend on.
        spoil: the planted fault; None for none.
        colluders: who tell their shares.
    """

    session_id: bytes = field(repr=False)
    spoil: Spoil | None
    colluders: frozenset[PartyId]

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Return the client's session: without noise if it colludes, with the fault if one is planted."""
        noisy, secrets = self.protocol, self.of_party(party)
        assert isinstance(noisy, NoisySum)
        assert not callable(client_input)
        if party in self.colluders:
            return noisy.protocol.client(party, client_input, secrets=secrets, entropy=entropy)
        if self.spoil is None:  # a vector may be given, or made when it is due
            given = client_input if party % 2 else partial(np.copy, client_input)
            return noisy.client(party, given, secrets=secrets, entropy=entropy)
        spoiled = self.spoil(party, client_input, self.session_id)
        return noisy.protocol.client(party, spoiled, secrets=secrets, entropy=entropy)


def _scaled(numerator: int, denominator: int) -> Callable[[DistributedNoise, int], Spoil]:
    """Shares of another variance."""

    def spoil(noise: DistributedNoise, number: int) -> Spoil:
        share = noise.share
        variances = tuple(max(1, variance * numerator // denominator) for variance in share.variances)
        other = replace(share, variances=variances)
        return lambda party, vector, session: vector + other.draw()

    return spoil


def _for_all_clients(noise: DistributedNoise, number: int) -> Spoil:
    """Shares that would do if nobody vanished and nobody told."""
    other = replace(noise.share, variances=noise.total.split(CLIENTS).variances)
    return lambda party, vector, session: vector + other.draw()


def _one_silent(noise: DistributedNoise, number: int) -> Spoil:
    return lambda party, vector, session: vector if party == AT_FAULT else vector + noise.share.draw()


def _float32(noise: DistributedNoise, number: int) -> Spoil:
    """Enough of it (2 % more scale), so that only its low bits give it away: float32 has 24 bits."""
    rng = np.random.default_rng(int.from_bytes(os_entropy(8), "big"))
    sigma = 1.02 * np.sqrt(np.array([0.0, *map(float, noise.share.variances)]))[noise.share.levels]
    return lambda party, vector, session: (
        vector + (rng.standard_normal(len(sigma), dtype=np.float32) * sigma.astype(np.float32)).astype(np.int64)
    )


def _bare_mean(noise: DistributedNoise, number: int) -> Spoil:
    return lambda party, vector, session: vector if number == 0 else vector + noise.share.draw()


def _from_session(noise: DistributedNoise, number: int) -> Spoil:
    """Noise that follows from the session, so that a session that is made again shows the same."""

    def spoil(party: PartyId, vector: IntVector, session: bytes) -> IntVector:
        return vector + noise.share.draw(InsecureSeededEntropy(party, session.hex()))

    return spoil


def _once_for_all(noise: DistributedNoise, number: int) -> Spoil:
    """One of the clients keeps its noise for every session."""
    kept = noise.share.draw()
    return lambda party, vector, session: vector + (kept if party == AT_FAULT else noise.share.draw())


NOISE_FAULTS = (
    NoiseFault(name="halved", title="noise of half the scale", spoil=_scaled(1, 4)),
    NoiseFault(name="missing_shares", title="one noise share missing", spoil=_one_silent),
    NoiseFault(name="float_noise", title="noise that went through float32", spoil=_float32),
    NoiseFault(name="whole_cohort", title="noise that counts on clients who vanish or tell", spoil=_for_all_clients),
    NoiseFault(name="bare_mean", title="no noise on the mean", spoil=_bare_mean),
    NoiseFault(name="from_session", title="noise that a repeated session repeats", spoil=_from_session),
    NoiseFault(name="kept_noise", title="a client that draws its noise once for all sessions", spoil=_once_for_all),
)
