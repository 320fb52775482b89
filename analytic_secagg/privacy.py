"""Noise as a property of a run: what is promised to whom, and what every sum of a learner then costs and adds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Protocol, Self, cast, runtime_checkable

import numpy as np

from analytic.learner import AnalyticLearner
from analytic.row_map import RowMap, RowTerms
from analytic.sensitivity import Adjacency, BoundedSum, NoiseScales, Unit
from secagg import Layout, SumProtocol
from secagg.dp import (
    CentralNoisySum,
    DistributedNoise,
    Ledger,
    NoisySum,
    PrivacyError,
    PrivacyGuarantee,
    Release,
    calibrate,
    guarantee,
)
from secagg.dp.accountant import check_unit_and_adjacency
from secagg.dp.conversions import check_epsilon_delta, large_delta
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.entropy import Entropy, os_entropy


@runtime_checkable
class Boundable(Protocol):
    """A learner that has a private form: rows behind a public map, sums with a price, a solver that knows noise."""

    @property
    def row_map(self) -> Any:
        """The public map; None where rows are taken as they are."""
        ...

    def bounded(self, terms: RowTerms) -> Self:
        """The learner whose every row is inside a public ball; one that is bounded already stays as it is."""
        ...

    def unbounded(self) -> AnalyticLearner[Any]:
        """The learner without its map and what knows its noise."""
        ...

    def bounded_sums(self, unit: Unit, adjacency: Adjacency) -> tuple[BoundedSum, ...]:
        """Every sum of the bounded learner, in order."""
        ...

    def sums_made(self, model: Any) -> int:
        """Return the number of these sums that a model is the result of."""
        ...

    def with_noise(self, gram_sigmas: list[float], shares: int | None) -> Self:
        """The bounded learner whose solver knows the noise of every sum."""
        ...


def is_bounded(learner: AnalyticLearner[Any]) -> bool:
    """Return whether a learner's rows go through the map of its private form, whose sums are made for noise."""
    return isinstance(learner, Boundable) and learner.row_map is not None


def violates_sensitivity(learner: AnalyticLearner[Any], statistics: Any, n_rows: int) -> bool:
    """Return whether statistics cannot be those of so many rows within the ball and format of a learner's private form.

    Of n rows of norm at most L, in lattice units, trace(G) <= n L^2, and no sum of entries is above n L. Forms that
    bound something else than one Gram's rows, and sums without a Gram, are not judged.
    """
    row_map, gram = getattr(learner, "row_map", None), getattr(statistics, "gram", None)
    if not isinstance(row_map, RowMap) or gram is None:
        return False
    limit = row_map.last.limit
    largest = max(abs(int(statistics.cross.max(initial=0))), abs(int(statistics.cross.min(initial=0))))
    return int(np.trace(gram)) > n_rows * limit**2 or largest > n_rows * limit


KEY_OF_SHARES = "promised_survivors"
"""The key of ``min_noise_shares`` in bytes and files, which keep their spelling."""


def _key(own: Field[Any]) -> str:
    """Return a field's key in a plan's public form."""
    return KEY_OF_SHARES if own.name == "min_noise_shares" else own.name


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyPlan:
    """Public terms of a private run: the guarantee, its unit, who adds the noise, and how the budget is divided.

    Args:
        epsilon: of all sums of a run together.
        delta: its delta; below one over the number of records.
        unit: who is protected: one record, or one client with all its records.
        adjacency: what a neighbouring data set is.
        min_noise_shares: smallest number of clients in a released total, each of which adds a share of the noise; the
            sum under the noise must release no total of fewer. 1 makes every upload private on its own. None lets the
            server add the noise, for those who trust it with exact totals.
        colluders: clients among them whose shares count for nothing: at least 1 where clients are given what follows
            from a total, since each knows its own share.
        gram_share: part of the statistics' budget that goes to the Gram matrix.
        mean_share: part of the whole budget that buys the rows' mean first, where a learner centres; 0 leaves rows
            where they are.
        fraction_bits: lattice of rows.
        nonnegative: no feature of anybody has a negative entry; a row that has one is then refused.
        client_rows: how many rows a client is expected to hold, which sizes its bound where clients are the unit.
        noise_entropy: where the noise of the sum of a number comes from; anything but the default is for simulations.

    Raises:
        PrivacyError: a parameter out of range.
    """

    epsilon: float
    delta: float = 1e-5
    unit: Unit = "record"
    adjacency: Adjacency = "add-remove"
    min_noise_shares: int | None
    colluders: int = 0
    gram_share: float = 0.3
    mean_share: float = 0.05
    fraction_bits: int = 16
    nonnegative: bool = False
    client_rows: int = 1
    noise_entropy: Callable[[int], Entropy] = field(default=lambda number: os_entropy, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_epsilon_delta(self.epsilon, self.delta)
        check_unit_and_adjacency(self.unit, self.adjacency)
        if not 0 < self.gram_share < 1 or not 0 <= self.mean_share < 1:
            raise PrivacyError(
                f"the Gram's part of the budget lies between 0 and 1 and the mean's is 0 to below 1, not "
                f"{self.gram_share} and {self.mean_share}"
            )
        if self.client_rows < 1:
            raise PrivacyError(f"a client is expected to hold at least 1 row, not {self.client_rows}")
        if not 0 <= self.colluders < (math.inf if self.min_noise_shares is None else self.min_noise_shares):
            raise PrivacyError(
                f"{self.colluders} colluders among {self.min_noise_shares} noise shares leave no share that counts; "
                "tolerate fewer"
            )

    @property
    def row_terms(self) -> RowTerms:
        """Terms from which a learner makes its row map."""
        return RowTerms(
            fraction_bits=self.fraction_bits,
            nonnegative=self.nonnegative,
            centred=self.mean_share > 0,
            client_rows=self.client_rows if self.unit == "client" else None,
            gram_share=self.gram_share,
        )

    def bounded(self, learner: AnalyticLearner[Any]) -> Boundable:
        """The learner with every row inside a public ball, and no noise yet.

        Raises:
            PrivacyError: no noise is known that covers this learner's sums; or every share counts, and clients, each of
                whom knows its own, are given what follows from a noisy total.
            analytic.errors.SpecificationError: what of its configuration, or of this plan, stands in the way.
        """
        if not isinstance(learner, Boundable):
            raise PrivacyError(
                f"no noise is known that covers the sums of {learner.name}: it has no private form; take afl, "
                "fedhip, random, logistic, deepafl or safle, or leave the privacy plan out"
            )
        bounded = learner.bounded(self.row_terms)
        sums = bounded.bounded_sums(self.unit, self.adjacency)
        if (len(sums) > 1 or sums[-1].given) and not self.colluders and (self.min_noise_shares or 1) > 1:
            raise PrivacyError(
                f"{learner.name} gives clients what follows from a noisy total ({sums[0].label}), and each knows its "
                "own share of the noise: the others' must suffice, so state at least 1 colluder"
            )
        return bounded

    def apply(self, learner: AnalyticLearner[Any]) -> PrivateForm:
        """The learner's private form, the noise of each of its sums and the bill, before anything is sent.

        Raises:
            PrivacyError, analytic.errors.SpecificationError: this learner cannot be priced, or not so.
        """
        bounded = self.bounded(learner)
        for part in (1.0, 0.999, 0.98):  # what the lattice's rounding leaves
            form = self._priced(bounded, calibrate(part * self.epsilon, self.delta))
            if form.guarantee.epsilon <= self.epsilon:
                return form
        return self._priced(bounded, calibrate(self.epsilon, self.delta, by_zcdp=True))

    def _priced(self, bounded: Boundable, total: Fraction) -> PrivateForm:
        """The form whose sums cost ``total`` together."""
        sums = bounded.bounded_sums(self.unit, self.adjacency)
        scales = self._scales(sums, total)
        noises = tuple(self._noise(own, of_sum) for own, of_sum in zip(sums, scales, strict=True))
        releases = tuple(
            Release.of(own.label, of_sum.rho, noise, unit=self.unit, adjacency=self.adjacency)
            for own, of_sum, noise in zip(sums, scales, noises, strict=True)
        )
        last, bits = [own for own in scales if own.has_gram][-1], sums[-1].fraction_bits
        shares = None if self.min_noise_shares is None else self.min_noise_shares - self.colluders
        private: Any = bounded.with_noise([of_sum.gram_sigma for of_sum in scales], shares)
        return PrivateForm(
            plan=self,
            learner=private,
            noises=noises,
            releases=releases,
            sigma_gram=math.ldexp(last.gram_sigma, -2 * bits),
            sigma_cross=math.ldexp(last.cross_sigma, -bits),
        )

    def form_of(self, learner: AnalyticLearner[Any]) -> PrivateForm:
        """The private form that a learner claims to be, priced anew: for who was handed it, and not made it himself.

        Raises:
            PrivacyError: another map of rows, or another noise, than this plan gives.
        """
        if not is_bounded(learner):
            raise PrivacyError(
                f"a run with a privacy plan needs the private form of {learner.name}; this one has no map"
            )
        form = self.apply(cast("Boundable", learner).unbounded())
        if form.learner != learner:
            raise PrivacyError(
                f"this {learner.name} maps rows, or accounts for noise, in another way than the privacy plan: "
                "take PrivacyPlan.apply of the learner without noise"
            )
        return form

    def to_public(self) -> dict[str, Any]:
        """All of it but the source of noise, by name: what parties agree on."""
        return {_key(own): getattr(self, own.name) for own in fields(self) if own.compare}

    @classmethod
    def of_public(cls, values: Mapping[str, Any]) -> Self:
        """Read ``to_public``; noise comes from the operating system.

        Raises:
            PrivacyError: a parameter is missing, unknown, of another kind or out of range.
        """
        kinds: dict[str, type] = dict.fromkeys(("epsilon", "delta", "gram_share", "mean_share"), float)
        kinds |= {"unit": str, "adjacency": str, "nonnegative": bool}
        names = {_key(own): own.name for own in fields(cls) if own.compare}
        right = all(
            type(value) is kinds.get(name, int) or (name == KEY_OF_SHARES and value is None)
            for name, value in values.items()
        )
        if values.keys() != names.keys() or not right:
            raise PrivacyError(
                f"a privacy plan says {', '.join(sorted(names))}, each of its own kind, and nothing else"
            )
        return cls(**{names[key]: value for key, value in values.items()})

    def _scales(self, sums: tuple[BoundedSum, ...], total: Fraction) -> list[NoiseScales]:
        """Each sum's noise: ``mean_share`` for what only places rows, the rest for the others by their weights."""
        mean_share = Fraction(self.mean_share) if sums[0].preparatory else Fraction(0)
        each = total * (1 - mean_share) / sum(own.weight for own in sums if not own.preparatory)
        budgets = (total * mean_share if own.preparatory else each * own.weight for own in sums)
        return [own.sensitivity.scales(rho, gram_share=self.gram_share) for own, rho in zip(sums, budgets, strict=True)]

    def _noise(self, own: BoundedSum, scales: NoiseScales) -> CoordinateNoise | DistributedNoise:
        total = CoordinateNoise(levels=own.levels, variances=scales.variances)
        if self.min_noise_shares is None:
            return total
        return DistributedNoise(total=total, min_noise_shares=self.min_noise_shares, colluders=self.colluders)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateForm:
    """A learner with noise in each of its sums, and what they cost.

    A run takes ``learner`` in place of the one that the plan was applied to and, for the sum of each number from 0,
    charges the ledger, gives the sum under the noise the layout ``with_headroom`` and sums over ``over`` it.

    Args:
        plan: the promise.
        learner: the private form.
        noises: by sum.
        releases: what each sum costs, the real integer noise with all its slacks.
        sigma_gram: standard deviation on the last Gram's diagonal, in the mapped features' own units squared.
        sigma_cross: the same of its cross-correlation, in those units.
    """

    plan: PrivacyPlan
    learner: AnalyticLearner[Any]
    noises: tuple[CoordinateNoise | DistributedNoise, ...]
    releases: tuple[Release, ...]
    sigma_gram: float
    sigma_cross: float

    def __post_init__(self) -> None:
        _ = self.guarantee  # refuses noise that keeps no such promise, before anything is sent

    @property
    def guarantee(self) -> PrivacyGuarantee:
        """Privacy guarantee of all sums of one run together."""
        return guarantee(self.releases, self.plan.delta)

    def n_protected(self, n_clients: int) -> int:
        """Return how many records there may be, or how many clients there are.

        The number of records is not public: it is at most ``max_rows``, which the learner has room for.

        Args:
            n_clients: the cohort.
        """
        first = self.learner.next_sum(self.learner.init())
        assert first is not None, "a private form has a sum"
        return n_clients if self.plan.unit == "client" else first.max_rows

    def explain(self) -> str:
        """Describe the privacy cost in words: what is promised to whom, and the cost of each release."""
        return "\n".join(self._sentences())

    def charge(self, number: int, ledger: Ledger, *, session_id: bytes) -> PrivacyGuarantee:
        """Book the sum of a number; only after this returns may any of its messages leave.

        Raises:
            secagg.dp.BudgetExceededError, secagg.dp.LedgerError, PrivacyError: it must not be made.
        """
        return ledger.charge(self.releases[self._priced(number)], session_id=session_id)

    def due(self, model: Any) -> int:
        """The number of the sum that a model asks for next, from 0.

        Raises:
            PrivacyError: it asks for none.
        """
        return self._priced(cast("Boundable", self.learner).sums_made(model))

    def _priced(self, number: int) -> int:
        if not 0 <= number < len(self.releases):
            raise PrivacyError(
                f"sum {number} has no privacy cost: the plan has {len(self.releases)} sums, numbered from 0, and a "
                "complete model needs no more"
            )
        return number

    def with_headroom(self, number: int, layout: Layout, n_clients: int) -> Layout:
        """The layout of the protocol under the noise: wide enough for every client's largest share, and bound to it.

        Args:
            number: which sum of the run, from 0.
            layout: of vectors before noise.
            n_clients: the cohort.
        """
        noise = self.noises[number]
        if isinstance(noise, DistributedNoise):
            return with_headroom(layout, n_clients, noise)
        return replace(layout, agreed=noise.digest)

    def over(self, number: int, protocol: SumProtocol, layout: Layout) -> SumProtocol:
        """The noisy sum over a protocol that has the layout ``with_headroom``.

        Raises:
            PrivacyError: the protocol releases totals of fewer survivors than promised, or lacks the room.
        """
        noise, entropy = self.noises[number], self.plan.noise_entropy(number)
        if isinstance(noise, DistributedNoise):
            return NoisySum(protocol=protocol, layout=layout, noise=noise, noise_entropy=entropy)
        return CentralNoisySum(protocol=protocol, noise=noise, noise_entropy=entropy)

    def _sentences(self) -> Iterator[str]:
        plan, together = self.plan, self.guarantee
        yield (
            f"{together.releases} noisy sums of {self.learner.name} together: epsilon {together.epsilon:.4g} (by "
            f"zCDP alone {together.epsilon_zcdp:.4g}) at delta {plan.delta:g} for one {plan.unit}, {plan.adjacency}."
        )
        if plan.min_noise_shares is None:
            yield "The server adds the noise and sees exact totals: the promise is for those who see the model."
        else:
            yield (
                f"Every client adds its share; the promise rests on at least {plan.min_noise_shares} clients in "
                f"every total, of whom up to {plan.colluders} may collude with whoever sees it."
            )
        n, is_bound = self.n_protected(plan.min_noise_shares or 1), plan.unit == "record"
        if wrong := large_delta(plan.delta, n, plan.unit, is_bound=is_bound):
            number = "max_rows" if is_bound else "the smallest number of noise shares"
            yield f"WARNING: {wrong}. The number is {number}."
        for release in self.releases:
            yield f"{release.label}: rho {float(release.rho):.4g}."
        yield "Solves shrink the eigenvalues of noisy Grams in float64: the model's bits are the computing machine's."
