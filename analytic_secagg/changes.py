"""A total over time: sites join late, leave, take rows out, and classes come, without anybody starting again.

Sums are a group, so the total of those who are in it now is the stored total with a batch's total added or taken off:
the same integers, and so the same weights, as if it had always been so (for removal this is exact unlearning). The
batch's total comes from an ordinary run of the same learner over the batch alone, in any mode; this module is what is
done with it. Two totals that differ by a batch show that batch, so a batch is of at least as many sites as a total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

import numpy as np

from analytic.afl import AFL
from analytic.fedhip import FedHiP
from analytic.learner import AnalyticLearner, ClientRows
from analytic.statistics import LABELS, Statistics, StatisticsSpec
from analytic_secagg.errors import FederationError
from analytic_secagg.federation import Federation
from analytic_secagg.privacy import is_bounded
from analytic_secagg.release import Gate, ReleasePolicy, ReleaseRefusedError
from secagg import PartyId, SumResult
from secagg.layout import IntVector

M = TypeVar("M")
L = TypeVar("L", AFL, FedHiP)


class Change(StrEnum):
    """Effect of a batch on a total."""

    JOIN = "join"
    LEAVE = "leave"
    REMOVE_ROWS = "remove rows"


class ChangeRefusedError(FederationError):
    """A batch cannot change this total, or would give its sites away."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Changed(Generic[M]):
    """A total after a change, and what is to be filed about it.

    Args:
        model: of the total, complete.
        total: with whose vectors are in it now; store it in place of the one before.
        change: what was done.
        batch: the sites that did it.
        reason: why fewer of them than a total must have were let through; empty where they were enough.
        revealed: sites the sum of whose vectors follows from the totals before and after, because they are fewer than
            that: of one alone its vector.
    """

    model: M
    total: SumResult
    change: Change
    batch: tuple[PartyId, ...]
    reason: str = ""
    revealed: tuple[PartyId, ...] = ()


def changed(
    learner: AnalyticLearner[M],
    before: SumResult,
    batch: SumResult,
    change: Change,
    *,
    policy: ReleasePolicy | None = None,
    reason: str = "",
) -> Changed[M]:
    """Return the total and the model after a batch of sites joined, left, or took rows out.

    Args:
        learner: of one sum; both totals are of its layout.
        before: the stored total.
        batch: the total of the batch alone, from a run of its own: of all that joins, or of all that goes.
        change: which of these it is. Sites that take rows out stay.
        policy: fewest sites of a batch, and of the clients that stay; None takes the default one.
        reason: a sentence for the record that lets a smaller batch through, whose sum both totals then show.

    Raises:
        ChangeRefusedError: a learner of several sums, another layout, sites that are in the total already or are not
            in it, or fewer than the policy needs without a reason.
        AnalyticError: the learner cannot make a model of the new total, such as one with fewer than no rows.
    """
    if len(before.total) != len(batch.total):
        raise ChangeRefusedError(
            f"the batch has {len(batch.total)} numbers and the total {len(before.total)}: sum the batch with the "
            "learner of the total"
        )
    survivors = _survivors(before.survivors, batch.survivors, change)
    policy = policy or ReleasePolicy()
    revealed = _revealed(before, batch, survivors, policy)
    if revealed and not reason:
        raise ChangeRefusedError(
            f"{len(batch.survivors)} sites {change.value} and {len(survivors)} would be in the total, and the totals "
            f"before and after show the sum of {len(revealed)} sites' vectors alone, where {policy.min_survivors} are "
            "needed; wait for a larger batch, start again with everybody, or state a reason for the record"
        )
    sign = 1 if change is Change.JOIN else -1
    total = SumResult(total=before.total + sign * batch.total, survivors=survivors)
    if change is Change.REMOVE_ROWS:  # a site that stays keeps its part of the RI process, once for each site
        total = replace(total, total=total.total + len(batch.survivors) * _without_rows(learner))
    small = {Gate.SURVIVORS, Gate.ROWS, Gate.CLASS_ROWS}
    gates = replace(policy, allow=policy.allow | small) if reason else policy
    _judge_parts(learner, batch, gates)
    model = _model_of(learner, total)
    _judge_parts(learner, total, gates)
    return Changed(model=model, total=total, change=change, batch=batch.survivors, reason=reason, revealed=revealed)


def with_classes(learner: L, total: SumResult, n_targets: int) -> tuple[L, SumResult]:
    """Return the learner and the total with more classes, of which no row has been seen yet; batches bring them.

    Args:
        learner: AFL or FedHiP, for class labels.
        total: of its sum.
        n_targets: how many classes there are from now on; the earlier ones keep their labels.

    Raises:
        ChangeRefusedError: fewer classes than before, or a learner whose total is not one Gram.
    """
    spec = learner.spec if isinstance(learner, AFL) and learner.one_sum else None  # whatever learner a caller has
    if not isinstance(spec, StatisticsSpec) or sum(size for _, size, _ in spec.segments) != len(total.total):
        raise ChangeRefusedError(
            "classes come to learners of one Gram (afl, random, fedhip, lda) and to totals of theirs; "
            f"not to {learner.name}"
        )
    if learner.target_format != LABELS:
        raise ChangeRefusedError(f"classes come to class labels, and this {learner.name} has real targets")
    if n_targets < learner.n_targets:
        raise ChangeRefusedError(f"{learner.n_targets} classes are in the total, and {n_targets} cannot hold them")
    wider = replace(learner, n_targets=n_targets)
    seen = learner.spec.from_vector(total.total)
    more = n_targets - learner.n_targets
    padded = Statistics(
        gram=seen.gram,
        cross=np.pad(seen.cross, ((0, 0), (0, more))),
        count=seen.count,
        target_sum=None if seen.target_sum is None else np.pad(seen.target_sum, (0, more)),
        target_gram=None if seen.target_gram is None else np.pad(seen.target_gram, (0, more)),
    )
    vector = wider.spec.to_vector(padded)
    return wider, SumResult(total=vector, survivors=total.survivors)


def _survivors(before: Sequence[PartyId], batch: Sequence[PartyId], change: Change) -> tuple[PartyId, ...]:
    inside = sorted(set(before).intersection(batch))
    if change is Change.JOIN:
        if inside:
            raise ChangeRefusedError(
                f"sites {', '.join(map(str, inside))} are in the total already: a site joins once, and brings new rows "
                "under a number of its own"
            )
        return tuple(sorted({*before, *batch}))
    if strangers := sorted(set(batch).difference(before)):
        raise ChangeRefusedError(
            f"sites {', '.join(map(str, strangers))} are not in the total, so nothing of theirs can be subtracted"
        )
    return tuple(before) if change is Change.REMOVE_ROWS else tuple(sorted(set(before).difference(batch)))


def _revealed(
    before: SumResult, batch: SumResult, survivors: tuple[PartyId, ...], policy: ReleasePolicy
) -> tuple[PartyId, ...]:
    """Return the clients whose sum follows from both totals: those of the batch, or the few that stay."""
    if Gate.COHORT_DIFFERENCE in policy.allow:
        return ()
    if len(batch.survivors) < policy.min_survivors:
        return batch.survivors
    return survivors if 0 < len(survivors) < policy.min_survivors else ()


def _without_rows(learner: AnalyticLearner[M]) -> IntVector:
    """Return the vector of a site that holds no rows: zeros, and the diagonal of the RI process where there is one."""
    step = Federation(learner, release=None).next_sum
    if step is None:
        raise ChangeRefusedError(f"{learner.name} asks for no sum, so there is no total to change")
    return step.vector(ClientRows(np.zeros((0, learner.n_features)), np.zeros(0, dtype=np.int64)))


def _judge_parts(learner: AnalyticLearner[M], total: SumResult, policy: ReleasePolicy) -> None:
    """Hold the totals that are within a total (a class', a pattern's) to a run's gates, one by one."""
    step = Federation(learner, release=None).next_sum
    if step is None or step.layout.size != len(total.total):
        return  # refused below, by name
    parts = learner.exact_total(learner.init(), step.spec.from_vector(total.total), len(total.survivors))
    if not isinstance(parts, tuple):
        return
    try:
        policy.before_release(parts, range(policy.min_survivors))  # whole cohorts were looked at
    except ReleaseRefusedError as error:
        raise ChangeRefusedError(
            f"a part of this {learner.name} would give its sites away: {error}; wait for a larger batch, start again "
            "with everybody, or state a reason for the record"
        ) from error


def _model_of(learner: AnalyticLearner[M], total: SumResult) -> M:
    federation = Federation(learner, release=None)
    step = federation.next_sum
    if step is None or step.layout.size != len(total.total):
        raise ChangeRefusedError(f"the totals are not of the sum that this {learner.name} asks for")
    statistics = step.spec.from_vector(total.total)
    if not is_bounded(learner):
        step.spec.check_total(statistics, len(total.survivors))
    model = learner.update(federation.model, statistics, len(total.survivors))
    if learner.next_sum(model) is not None:
        raise ChangeRefusedError(
            f"{learner.name} as it is set has more than one sum, and the later ones follow from the first total: start "
            "again with everybody, or take a learner of one sum (afl, fedhip, safle with fixed thresholds)"
        )
    return model
