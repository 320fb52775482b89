"""Score of an attack: intervals, p-values, and the smallest leak that would have been noticed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
import scipy
from pydantic import Field, model_validator

from analytic.intervals import delong
from analytic_secagg.audit_plan import STANDARD_RULE
from simulations.report.document import Natural, NotNegative, Part, Record, computed

CONFIDENCE = 0.95
ALPHA = 1e-6
"""How often a planted fault, or an attack on messages in the clear, is called won by accident, at most."""
POWER = 0.9
COIN = 0.3
"""A guess that is right more often than this is a coin's: it takes more trials to show that an attack does better."""
EACH = 1e-5
"""The family error's part of one result among a hundred: so many trials are made as notice a leak at this level."""


class Area(Record, title="area"):
    """An area under a ROC curve with its interval: how often a used row scores above another one."""

    value: Part
    """The area, 0.5 for guessing."""
    low: Part
    """Lower end of its 95 % interval (DeLong et al., 1988)."""
    high: Part
    """Upper end."""

    @classmethod
    def of(cls, members: Sequence[float], others: Sequence[float]) -> Self:
        """Return the area for scores of used rows and of others, at least one of each."""
        value = area_under_roc(members, others)
        bins = np.unique([*members, *others])
        of_members, of_others = (
            np.bincount(np.searchsorted(bins, one), minlength=len(bins)) for one in (members, others)
        )
        low, high = delong(of_members.tolist(), of_others.tolist())
        return cls(value=value, low=min(low, value), high=max(high, value))


class Score(Record, title="score"):
    """What an attack achieved. No row of anybody is in its report."""

    hits: Natural
    """Trials in which the attack was right."""
    trials: Natural
    """Trials."""
    chance: Part
    """How often a guess that saw no message is right."""
    outlying: tuple[tuple[float, ...], tuple[float, ...]] = Field(default=((), ()), repr=False, exclude=True)
    """For attacks that answer with scores: those of used rows and of others, of the tenth of the rows that lies
    farthest from the public ones."""
    error: NotNegative | None = Field(default=None, exclude=True)
    """Mean error of an estimate, for attacks that estimate a number; null for others."""
    blind_error: NotNegative | None = Field(default=None, exclude=True)
    """The same of an estimate by the public rows alone."""
    columns: dict[str, float] = Field(default={}, exclude=True)
    """For attacks on hidden values: by column, how much more often its value is told than by a blind guess."""

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

        def mean(name: str) -> float | None:
            values = [value for part in parts if (value := getattr(part, name)) is not None]
            return float(np.mean(values)) if values else None

        return cls(
            hits=sum(part.hits for part in parts),
            trials=trials,
            chance=sum(part.chance * part.trials for part in parts) / trials if trials else 0.0,
            outlying=(
                tuple(score for part in parts for score in part.outlying[0]),
                tuple(score for part in parts for score in part.outlying[1]),
            ),
            error=mean("error"),
            blind_error=mean("blind_error"),
            columns=parts[-1].columns if parts else {},
        )

    @property
    def rate(self) -> Part:
        """Hits / trials; 0 without trials."""
        return self.hits / self.trials if self.trials else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's exact interval for the success rate."""
        return clopper_pearson(self.hits, self.trials)

    @property
    def low(self) -> Part:
        """Lower end of the exact (Clopper-Pearson) interval of the success rate."""
        return self.interval[0]

    @property
    def high(self) -> Part:
        """Its upper end."""
        return self.interval[1]

    @computed
    def p_value(self) -> Part:
        """How often a guess that saw no message does at least as well."""
        return float(scipy.stats.binom.sf(self.hits - 1, self.trials, self.chance)) if self.trials else 1.0

    @property
    def leaked(self) -> bool:
        """Whether the attack won beyond doubt."""
        return self.trials > 0 and self.p_value < ALPHA

    def smallest_noticed(self, alpha: float) -> float | None:
        """Return the smallest true success rate that has a p-value below ``alpha`` nine times out of ten.

        None where no rate would, or without trials.
        """
        if not self.trials:
            return None
        needed = int(scipy.stats.binom.isf(alpha, self.trials, self.chance)) + 1
        while needed <= self.trials and scipy.stats.binom.sf(needed - 1, self.trials, self.chance) >= alpha:
            needed += 1  # rounding: a leak asks for strictly less
        if needed > self.trials:
            return None
        return float(scipy.stats.beta.ppf(POWER, needed, self.trials - needed + 1))

    @property
    def is_enough(self) -> bool:
        """Whether there are trials enough to notice a leak by the standard rule, as one result of many."""
        noticed = self.smallest_noticed(EACH)
        return noticed is not None and noticed <= STANDARD_RULE["notices_coins" if self.chance > COIN else "notices"]

    @property
    def worst_tenth(self) -> Area | None:
        """Area under the ROC curve for the tenth of the rows that lies farthest out; None where there is no such."""
        return Area.of(*self.outlying) if all(self.outlying) else None


def clopper_pearson(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact confidence interval of a binomial success rate (Clopper and Pearson, 1934)."""
    tail = (1 - confidence) / 2
    low = float(scipy.stats.beta.ppf(tail, hits, trials - hits + 1)) if hits else 0.0
    high = float(scipy.stats.beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


def area_under_roc(members: Sequence[float], others: Sequence[float]) -> float:
    """The probability that a member scores above another row, ties by half (Mann and Whitney)."""
    ranks = scipy.stats.rankdata(np.concatenate([np.asarray(members), np.asarray(others)]))
    n = len(members)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * len(others)))


def paired(members: Sequence[float], others: Sequence[float], rng: np.random.Generator) -> Score:
    """A member and another row side by side, drawn without replacement: which was used? Ties are tossed.

    A guess that saw nothing is right in half of the pairs, each independent of the others.
    """
    n = min(len(members), len(others))
    left, right = rng.permutation(np.asarray(members))[:n], rng.permutation(np.asarray(others))[:n]
    hits = np.where(left == right, rng.random(n) < 0.5, left > right)
    return Score(hits=int(hits.sum()), trials=n, chance=0.5)
