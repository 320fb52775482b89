"""How sure one may be of what an attack achieved: exact intervals, powers, verdicts, lower bounds of epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy import stats

from simulations.report.document import Natural, Part, Record, computed

CONFIDENCE = 0.95
ALPHA = 1e-6
"""False alarms of one verdict: an attack that learns nothing is called a leak this often at most."""
POWER = 0.9
FALSE_POSITIVE_RATES = (0.001, 0.01)
"""At which a report says what part of the used rows is found."""


class Verdict(StrEnum):
    """All that a report may say of a cell; nothing in it says that something is safe."""

    RECOVERED = "recovered"
    LEAKS = "leaks"
    NO_EVIDENCE = "no evidence of leakage at this power"
    TOO_FEW = "too few trials to tell"
    NOT_TRIED = "not tried at this size"
    DOES_NOT_APPLY = "does not apply"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Picture:
    """A true row beside the one that an attack rebuilt, in the rows' own units."""

    true: NDArray[np.int64] = field(repr=False)
    rebuilt: NDArray[np.int64] | None = field(repr=False)
    exact: bool


class RocPoint(Record, title="true_positive_rate"):
    """Membership at a low rate of false alarms."""

    false_positive_rate: Part
    """Largest part of the other rows that is accused."""
    rate: Part
    """Part of the used rows that is found."""
    low: Part
    """Lower end of its exact interval."""
    high: Part
    """Upper end."""


class Score(Record, title="score", arbitrary_types_allowed=True):
    """What an attack achieved. No row of anybody is in its report."""

    hits: Natural
    """Trials in which the attack was right."""
    trials: Natural
    """Trials."""
    chance: Part
    """How often a guess that saw no message is right."""
    members: tuple[float, ...] = Field(default=(), repr=False, exclude=True)
    """Scores that it gave to rows that were used, for attacks that answer with scores."""
    others: tuple[float, ...] = Field(default=(), repr=False, exclude=True)
    """Scores that it gave to rows that were not."""
    pictures: tuple[Picture, ...] = Field(default=(), repr=False, exclude=True)
    """Some rows, rebuilt."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hits > self.trials:
            raise ValueError(f"a score needs 0 <= hits <= trials, not {self.hits} of {self.trials}")
        return self

    @classmethod
    def pooled(cls, scores: Iterable[Score]) -> Self:
        """Several scores of one attack as one; the chance is their mean by trials."""
        parts = list(scores)
        trials = sum(part.trials for part in parts)
        return cls(
            hits=sum(part.hits for part in parts),
            trials=trials,
            chance=sum(part.chance * part.trials for part in parts) / trials if trials else 0.0,
            members=tuple(score for part in parts for score in part.members),
            others=tuple(score for part in parts for score in part.others),
            pictures=tuple(picture for part in parts for picture in part.pictures),
        )

    @computed
    def rate(self) -> Part:
        """Hits / trials; 0 without trials."""
        return self.hits / self.trials if self.trials else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's exact interval for the success rate."""
        return clopper_pearson(self.hits, self.trials)

    @computed
    def low(self) -> Part:
        """Lower end of the exact (Clopper-Pearson) interval of the success rate."""
        return self.interval[0]

    @computed
    def high(self) -> Part:
        """Its upper end."""
        return self.interval[1]

    @computed
    def p_value(self) -> Part:
        """How often a guess that saw no message does at least as well."""
        return float(stats.binom.sf(self.hits - 1, self.trials, self.chance)) if self.trials else 1.0

    @computed
    def verdict(self) -> Verdict:
        """The score in fixed words; none of them says that something is safe."""
        if self.trials == 0:
            return Verdict.DOES_NOT_APPLY
        if self.p_value < ALPHA:
            return Verdict.RECOVERED if self.rate >= 0.9 else Verdict.LEAKS
        return Verdict.TOO_FEW if self.smallest_noticed is None else Verdict.NO_EVIDENCE

    @property
    def leaked(self) -> bool:
        """Whether the attack won."""
        return self.verdict in (Verdict.LEAKS, Verdict.RECOVERED)

    @computed
    def smallest_noticed(self) -> Part | None:
        """The smallest true success rate that would have been called a leak nine times out of ten; null where no rate
        would, or without trials.
        """
        if not self.trials:
            return None
        needed = int(stats.binom.isf(ALPHA, self.trials, self.chance)) + 1
        while needed <= self.trials and stats.binom.sf(needed - 1, self.trials, self.chance) >= ALPHA:
            needed += 1  # rounding: the verdict asks for strictly less
        if needed > self.trials:
            return None
        return float(stats.beta.ppf(POWER, needed, self.trials - needed + 1))

    @property
    def has_curve(self) -> bool:
        """Whether the attack gave scores to rows of both kinds."""
        return bool(self.members and self.others)

    @computed
    def auc(self) -> Part | None:
        """Area under the ROC curve, for attacks that give every candidate a score; null for others."""
        return area_under_roc(self.members, self.others) if self.has_curve else None

    @computed
    def true_positive_rates(self) -> tuple[RocPoint, ...]:
        """Part of the used rows that are found at low rates of false alarms; empty where auc is null."""
        rates = FALSE_POSITIVE_RATES if self.has_curve else ()
        return tuple(roc_point(self.members, self.others, rate) for rate in rates)


def clopper_pearson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact confidence interval of a binomial success rate (Clopper and Pearson, 1934)."""
    tail = (1 - confidence) / 2
    low = float(stats.beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(stats.beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


def roc_point(members: Sequence[float], others: Sequence[float], false_positive_rate: float) -> RocPoint:
    """The part of members above all but ``false_positive_rate`` of the others (Carlini et al., S&P 2022)."""
    allowed = int(np.floor(false_positive_rate * len(others)))
    threshold = np.sort(np.asarray(others))[::-1][allowed]
    above = int(np.count_nonzero(np.asarray(members) > threshold))
    low, high = clopper_pearson(above, len(members))
    return RocPoint(false_positive_rate=false_positive_rate, rate=above / len(members), low=low, high=high)


def area_under_roc(members: Sequence[float], others: Sequence[float]) -> float:
    """The probability that a member scores above another row, ties by half (Mann and Whitney)."""
    ranks = stats.rankdata(np.concatenate([np.asarray(members), np.asarray(others)]))
    n = len(members)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(others)))


def roc_curve(members: Sequence[float], others: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """False and true positive rates at every threshold, ascending."""
    thresholds = np.unique(np.concatenate([np.asarray(members), np.asarray(others)]))[::-1]
    false = np.searchsorted(np.sort(-np.asarray(others)), -thresholds, side="right") / len(others)
    true = np.searchsorted(np.sort(-np.asarray(members)), -thresholds, side="right") / len(members)
    return np.concatenate([[0.0], false]), np.concatenate([[0.0], true])


def paired(members: Sequence[float], others: Sequence[float], rng: np.random.Generator) -> Score:
    """A member and another row side by side, drawn without replacement: which was used? Ties are tossed.

    A guess that saw nothing is right in half of the pairs, each independent of the others.
    """
    n = min(len(members), len(others))
    left, right = rng.permutation(np.asarray(members))[:n], rng.permutation(np.asarray(others))[:n]
    hits = np.where(left == right, rng.random(n) < 0.5, left > right)
    return Score(
        hits=int(hits.sum()),
        trials=n,
        chance=0.5,
        members=tuple(map(float, members)),
        others=tuple(map(float, others)),
    )


# A lower bound of epsilon from one run: Steinke, Nasr and Jagielski, NeurIPS 2023

LARGEST_EPSILON = 64.0


def one_run_p_value(*, canaries: int, guesses: int, correct: int, epsilon: float, delta: float = 0.0) -> float:
    """How likely an (epsilon, delta)-DP mechanism lets that many guesses about canaries be right, at most.

    Each of ``canaries`` rows was put in or left out by a fair coin; ``guesses`` of them are guessed, the rest passed
    over. The number of right guesses is dominated by Binomial(guesses, e^eps / (1 + e^eps)), plus what delta adds
    (theorem 5.2 of the paper).
    """
    if not (0 <= correct <= guesses <= canaries and epsilon >= 0.0 and 0.0 <= delta < 1.0):
        raise ValueError("needs 0 <= correct <= guesses <= canaries, epsilon >= 0 and 0 <= delta < 1")
    if correct == 0:
        return 1.0
    chance = 1.0 / (1.0 + math.exp(-epsilon))
    beta = float(stats.binom.sf(correct - 1, guesses, chance))
    if delta == 0.0:
        return beta
    distances = np.arange(1, correct + 1)
    alpha = float((np.cumsum(stats.binom.pmf(correct - distances, guesses, chance)) / distances).max())
    return min(1.0, beta + alpha * delta * 2 * canaries)


def epsilon_lower_bound(
    *, canaries: int, guesses: int, correct: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """The largest epsilon that these guesses refute at this confidence; 0 if they refute none."""

    def refuted(epsilon: float) -> bool:
        p = one_run_p_value(canaries=canaries, guesses=guesses, correct=correct, epsilon=epsilon, delta=delta)
        return p < 1 - confidence

    if not refuted(0.0):
        return 0.0
    low, high = 0.0, LARGEST_EPSILON
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def guess_canaries(scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int) -> int:
    """Right guesses when the ``guesses / 2`` highest scores are called in and as many lowest out."""
    half = guesses // 2
    order = np.argsort(scores)
    return int(included[order[len(order) - half :]].sum() + (~included[order[:half]]).sum())
