"""What a configuration leaks by construction, said before and after a sum: refusals and warnings."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist

import numpy as np

from analytic.errors import SpecificationError
from analytic.statistics import IntVector, Statistics
from federation.errors import FederationError

RANK_TOLERANCE = 1e-10
"""Relative to the largest diagonal entry and the number of features: what float64 loses on exact integers."""


class Gate(StrEnum):
    """Why a release may be refused."""

    SURVIVORS = "survivors"
    RANK = "rank"
    COHORT_DIFFERENCE = "cohort difference"
    MEMBERSHIP = "membership"
    SMALL_COUNTS = "small counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Concern:
    """One thing that a release gives away.

    Args:
        gate: which.
        refuses: whether the release must not happen unless the caller allows this gate by name; else a warning.
        message: what was needed, what came, what to do.
    """

    gate: Gate
    refuses: bool
    message: str


class ReleaseRefusedError(FederationError):
    """A total would give away too much; it is not released.

    Args:
        concerns: every concern that refuses.
    """

    def __init__(self, concerns: tuple[Concern, ...]) -> None:
        self.concerns = concerns
        super().__init__("; ".join(f"{concern.gate.value}: {concern.message}" for concern in concerns))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasePolicy:
    """When a total is released; public, and the same for all totals of a deployment.

    Args:
        min_survivors: fewest clients in a total, and fewest by which two totals' clients may differ.
        highest_auc: predicted membership AUC above which a warning is given.
        allow: gates that may be passed all the same, for those who know why.
    """

    min_survivors: int = 5
    highest_auc: float = 0.6
    allow: frozenset[Gate] = frozenset()

    def __post_init__(self) -> None:
        if self.min_survivors < 2 or not 0.5 < self.highest_auc <= 1.0:
            raise SpecificationError(
                "a policy needs at least 2 survivors (the sum of one client is its vector) and an AUC above 0.5 and at "
                f"most 1, not {self.min_survivors} and {self.highest_auc}"
            )

    def before_release(
        self,
        total: Statistics | tuple[Statistics, ...] | IntVector | None,
        survivors: Collection[int],
        *,
        earlier: Iterable[Collection[int]] = (),
    ) -> tuple[Concern, ...]:
        """What a total that was computed gives away, looked at by whoever may see it before others do.

        Args:
            total: the exact statistics of raw features, as a learner's ``exact_total`` has them; several are judged one
                by one, as so many totals; a vector is of counts of rows. None where there are
                none: totals of other features, noisy ones (rank and membership are the noise's business), and before
                a session; only clients are judged then.
            survivors: ids of the clients in it, or of the cohort that is asked.
            earlier: ids in each earlier total over the same rows.

        Raises:
            ReleaseRefusedError: a concern that is not allowed.
        """
        concerns = tuple(self._concerns(total, survivors, earlier))
        refusals = tuple(concern for concern in concerns if concern.refuses and concern.gate not in self.allow)
        if refusals:
            raise ReleaseRefusedError(refusals)
        return concerns

    def _concerns(
        self,
        total: Statistics | tuple[Statistics, ...] | IntVector | None,
        survivors: Collection[int],
        earlier: Iterable[Collection[int]],
    ) -> Iterator[Concern]:
        yield from self._about_clients(survivors, earlier)
        if isinstance(total, np.ndarray):
            yield from self._about_counts(total)
            return
        parts = () if total is None else (total,) if isinstance(total, Statistics) else total
        for place, part in enumerate(parts, start=1):
            which = f"part {place} of {len(parts)} (fewer parts have more rows): " if len(parts) > 1 else ""
            if part.n_clients is not None and (part.n_clients or part.count):  # a part that nobody has shows nobody
                for concern in self._about_clients(range(part.n_clients), ()):
                    yield replace(concern, message=which + concern.message)
            for concern in self._about_rows(part.count, gram_rank(part), int(np.count_nonzero(part.gram.diagonal()))):
                yield replace(concern, message=which + concern.message)

    def _about_clients(self, clients: Collection[int], earlier: Iterable[Collection[int]]) -> Iterator[Concern]:
        if len(set(clients)) < self.min_survivors:
            yield Concern(
                gate=Gate.SURVIVORS,
                refuses=True,
                message=f"a total needs at least {self.min_survivors} clients and has {len(set(clients))}; ask more "
                "clients or start a new session",
            )
        differences = [len(set(clients) ^ set(other)) for other in earlier]
        close = [difference for difference in differences if 0 < difference < self.min_survivors]
        if close:
            yield Concern(
                gate=Gate.COHORT_DIFFERENCE,
                refuses=True,
                message=f"it differs from an earlier total by {min(close)} clients, whose statistics the difference of "
                f"both would show; let at least {self.min_survivors} differ, or none",
            )

    def _about_counts(self, counts: IntVector) -> Iterator[Concern]:
        if small := int(np.count_nonzero((counts > 0) & (counts < self.min_survivors))):
            yield Concern(
                gate=Gate.SMALL_COUNTS,
                refuses=False,
                message=f"{small} of {np.count_nonzero(counts)} counts are of fewer than {self.min_survivors} rows: "
                "whoever sees the total learns that so few have values of that size, and knows a row that stands out "
                "again; leave out what is rare, or state formats without a look",
            )

    def _about_rows(self, n_rows: int, rank: int, n_features: int) -> Iterator[Concern]:
        if rank < n_features:
            yield Concern(
                gate=Gate.RANK,
                refuses=True,
                message=f"the total has rank {rank} and {n_features} features in use: where rows are so few, each of "
                "them can be rebuilt from an exact total. Add rows or clients, use fewer features, drop columns that "
                "follow from others, or add noise",
            )
        auc = predicted_membership_auc(n_rows, rank)
        if auc > self.highest_auc:
            yield Concern(
                gate=Gate.MEMBERSHIP,
                refuses=False,
                message=f"whoever holds a row tells with an AUC of about {auc:.2f} whether it is among the {n_rows} "
                f"rows of the total (0.5 is guessing, {self.highest_auc} the policy's limit); add rows, use fewer "
                "features, or add noise",
            )


def gram_rank(total: Statistics) -> int:
    """Numerical rank of an exact Gram."""
    largest = float(total.gram.diagonal().max(initial=0))
    if largest <= 0:
        return 0
    gram = total.gram / largest
    return int(np.linalg.matrix_rank(gram, hermitian=True, tol=RANK_TOLERANCE * len(gram)))


def predicted_membership_auc(n_rows: int, n_features: int) -> float:
    """AUC of the best known membership test against an exact Gram, for features that are about normal.

    AUC = Phi(D / (2 sqrt N)) for an attacker who knows the population: 0.69 at N = D^2. With at most D rows the row
    space tells exactly.

    Args:
        n_rows: N, rows in the total.
        n_features: D, rank of the Gram.
    """
    if n_rows <= n_features:
        return 1.0 if n_rows else 0.5
    return NormalDist().cdf(n_features / (2 * math.sqrt(n_rows)))
