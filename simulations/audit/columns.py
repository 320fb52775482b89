"""Exposures that are meant to be seen: totals with and without noise, all totals of a run, its model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from analytic_secagg.federation import Federation, Step
from analytic_secagg.modes import MODES
from analytic_secagg.privacy import PrivateForm
from secagg import InOneProcess, SumResult, new_session_id
from simulations.audit.attack import Target
from simulations.audit.exposure import Exposure, Kind
from simulations.audit.view import RecordedSum, record_federation, record_sum
from simulations.audit.workbench import Bench, Cohort


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """A kind of exposure of a cohort of one size, which can be made as often as an attack asks.

    Args:
        kind: what is seen.
        bench: rows and learner; for noisy totals those of the learner's private form.
        clients: of a cohort.
        form: of a noisy total, the learner with its noise.
    """

    kind: Kind
    bench: Bench
    clients: int
    form: PrivateForm | None = None
    is_repeatable: ClassVar[bool] = True
    """Whether there are cohorts beside that of ``standard``."""

    def named(self, name: str) -> Self:
        """Return the same column, ``standard`` included, whose further cohorts follow from seed and name alone."""
        same = replace(self, bench=self.bench.named(name))
        vars(same)["standard"] = self.standard
        return same

    @cached_property
    def standard(self) -> Target:
        """The exposure that most attacks share: of one cohort, made once.

        Raises:
            UsageError: there are not enough rows.
        """
        return self.target(self.cohort())

    @property
    def rows(self) -> int:
        """Rows behind it."""
        return len(self.standard[2].rows)

    @property
    def name(self) -> str:
        """What reports call it."""
        cohort = f"of {self.clients} clients"
        if self.form is not None:
            return f"noisy total {cohort}, epsilon {self.form.plan.epsilon:g}"
        return {
            Kind.TOTAL: f"total {cohort}",
            Kind.TOTALS: f"all totals of a run {cohort}",
            Kind.MODEL: f"model {cohort}",
        }[self.kind]

    def cohort(self) -> Cohort:
        """Deal rows to a cohort.

        Raises:
            UsageError: there are not enough rows.
        """
        return self.bench.cohort(self.clients)

    def target(self, cohort: Cohort) -> Target:
        """Return what is seen of these clients' rows, what may be known beforehand, and the truth."""
        bench = self.bench
        sums, model = self._made(cohort)
        truth = bench.truth(np.concatenate(list(cohort.values())), sums[-1].released().total)
        seen = Exposure.of(sums, kind=self.kind, learner=bench.learner)
        if self.kind is Kind.MODEL:
            seen = replace(seen, sums=(), model=model)
        return seen, bench.known(), truth

    def _made(self, cohort: Cohort) -> tuple[tuple[RecordedSum, ...], Any]:
        """Return the sums behind the exposure, and the model where all sums of a run were made."""
        bench = self.bench
        if self.form is not None:
            return (_noisy(bench, self.form, cohort),), None
        if self.kind is Kind.TOTAL:
            return (bench.total(cohort),), None
        clients = {party: bench.population.rows(indices) for party, indices in cohort.items()}
        return record_federation(bench.learner, clients, MODES["plain"])


def _noisy(bench: Bench, form: PrivateForm, cohort: Cohort) -> RecordedSum:
    """Return the sum of the bench's Gram under noise, over masks."""
    number, mode = form.due(bench.model), MODES["masked"]
    step = Step.of(bench.learner, bench.model, number=number, noise=form, sum_fits=True)
    assert step is not None
    parties = mode.in_one_process(
        layout=step.with_headroom(len(cohort)),
        clients=tuple(cohort),
        session_id=new_session_id(),
        context=step.context,
    )
    noisy = InOneProcess(protocol=step.over(parties.protocol), secrets=parties.secrets)
    vectors = {party: step.vector(bench.population.rows(indices)) for party, indices in cohort.items()}
    return record_sum(noisy, vectors, model=bench.model, entropy=bench.entropy)


def has_many_sums(bench: Bench) -> bool:
    """Return whether the learner asks for more than one sum with a Gram, by a dry run over public rows."""
    federation, grams = Federation(bench.learner, release=None, sum_fits=True), 0
    rows = bench.population.public_rows
    while (step := federation.next_sum) is not None and grams < 2:
        grams += {"gram", "cross"} <= {segment.name for segment in step.layout.segments}
        federation.take(SumResult(total=step.vector(rows), survivors=(1,)))
    return grams > 1
