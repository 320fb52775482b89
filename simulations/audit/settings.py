"""Settings of an audit: the options of the command, and how a report states them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from analytic.errors import SpecificationError
from analytic.row_format import RowFormat
from analytic_secagg.audit_plan import StatedSettings
from analytic_secagg.console.arguments import budgets, count, items, natural, number, parse_options, whole, wholes
from analytic_secagg.console.declaration import option
from analytic_secagg.datasets import Dataset
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS, LearnerEntry, find_learner
from analytic_secagg.modes import MODES, Mode, choose_modes
from secagg.config import MAX_CLIENTS
from simulations.audit.attack import (
    PROBE,
    Limit,
)
from simulations.audit.catalogue import NAMES, choose_attacks
from simulations.audit.decide import DecisionRule
from simulations.audit.population import MAX_CANDIDATES, rows_of_sites
from simulations.command_line.shared_arguments import format_option
from simulations.report.document import Record

DEFAULT_MODES = ("plain", "masked", "bfv")
"""Without protection, with masks, and with encryption; all others cost more time and promise no more."""

THOROUGH_RUNS = 1000

CLIENTS, ROWS, FEW_ROWS = 20, 40, 12
"""Of a cohort for which nothing was said; and rows below which there are fewer clients instead, down to ``LEAST``."""

LEAST, HELD = 3, 0.6
"""Clients that masks need; and the part of all rows that clients hold, since attacks need others beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Settings of an audit, as the command line takes them.

    Raises:
        UsageError: a number out of range, or nothing to do.
    """

    learner: LearnerEntry = option(
        f"the closed form, out of {', '.join(LEARNERS)}",
        find_learner,
        default=LEARNERS["afl"],
        metavar="NAME",
        shown="afl",
    )
    modes: tuple[Mode, ...] = option(
        f"out of {', '.join(MODES)}, or all",
        lambda text: choose_modes(None if text == "all" else items(text)),
        default=choose_modes([name for name in DEFAULT_MODES if MODES[name].installed]),
        metavar="MODE,...",
        shown=", ".join(DEFAULT_MODES),
    )
    thorough: bool = option(
        f"every mode in place of --modes, and {THOROUGH_RUNS} small runs with and without one person: minutes",
        default=False,
    )
    own: tuple[str, ...] = option(
        "helpers=N or corrupt=F of a mode with helpers; a committee has 4 by default, one of which may collude",
        str,
        default=(),
        flag="--option",
        metavar="NAME=VALUE",
        repeated=True,
    )
    attacks: frozenset[str] = option(
        f"out of {', '.join(NAMES)}",
        lambda text: choose_attacks(items(text)),
        default=choose_attacks(None),
        metavar="NAME,...",
        shown="all",
    )
    clients: int = option(
        "clients of your cohort",
        lambda text: whole(text, at_least=2, at_most=MAX_CLIENTS),
        default=0,
        shown=f"{CLIENTS}, or fewer of a small table",
    )
    rows_per_client: int = option(
        "rows of a client, on average",
        lambda text: whole(text, at_least=2, at_most=MAX_CANDIDATES),
        flag="--rows",
        default=0,
        shown=f"{ROWS}, or fewer of a small table",
    )
    cohorts: tuple[int, ...] = option(
        "further cohort sizes whose totals and models are attacked, for comparison",
        lambda text: wholes(text, at_least=2, at_most=MAX_CLIENTS),
        default=(5,),
        metavar="N,...",
    )
    sessions: int = option(
        "cohorts that every attack on a protected message is tried on: more of them notice smaller leaks",
        count,
        default=2,
    )
    trials: int = option("sums made for each attack that needs its own", count, default=5)
    two_world_runs: int = option(
        "small runs with and without one person, for each epsilon: more of them come nearer to the claim",
        lambda text: whole(text, at_least=40, at_most=100_000),
        default=300,
    )
    epsilon: tuple[float, ...] | None = option(
        "try totals with noise for these as well; none leaves them out, as does a choice of --attacks",
        lambda text: () if text == "none" else budgets(text),
        default=None,
        metavar="E,...",
        shown="8",
    )
    limits: tuple[tuple[str, float | None], ...] = option(
        f"how much totals and models may show, as NAME=NUMBER or NAME=none: {', '.join(Limit)}",
        lambda text: _limit(text),
        default=(),
        flag="--limit",
        metavar="NAME=X",
        repeated=True,
        shown="rebuilt_rows=0.01, membership=0.9, attribute=0.2, group_share=none",
    )
    feature_format: RowFormat | None = format_option("all rows")
    seed: int = option(
        "draws cohorts, targets and guesses; keys, masks and noise come from the operating system",
        natural,
        default=0,
    )

    def __post_init__(self) -> None:
        if not self.modes or not self.attacks:
            raise UsageError("an audit needs at least one mode and one attack")
        if not all(math.isfinite(epsilon) and epsilon > 0 for epsilon in self.tried_epsilon):
            raise UsageError(f"an epsilon is a finite number above 0, not {self.epsilon}")
        sizes = {size for size in (self.clients, self.rows_per_client) if size} | {*self.cohorts, 2}
        if min(self.sessions, self.trials, self.seed + 1) < 1 or min(sizes) < 2:
            raise UsageError(
                "an audit needs at least 2 clients a cohort, 2 rows per client, 1 session, 1 trial and a seed >= 0"
            )
        _ = self.tried_modes

    def spelled_out(self, dataset: Dataset) -> AuditSettings:
        """The same with what ``thorough`` stands for, and with a cohort for these rows where none was named.

        Raises:
            UsageError: a cohort was named, and a column names the sites.
        """
        if dataset.sites is not None:
            n_sites = len(np.unique(dataset.sites.train))
            held = rows_of_sites(min(len(dataset.x_train), MAX_CANDIDATES), n_sites)
            if self.clients not in (0, n_sites) or self.rows_per_client not in (0, held):
                raise UsageError("--clients and --rows: --sites says whose rows are whose; leave one of the two out")
            return replace(self, clients=n_sites, rows_per_client=held, cohorts=()).thoroughly()
        held = int(HELD * min(len(dataset.x_train), MAX_CANDIDATES))
        clients = self.clients or min(CLIENTS, max(LEAST, held // (self.rows_per_client or FEW_ROWS)))
        chosen = replace(
            self, clients=clients, rows_per_client=self.rows_per_client or min(ROWS, max(2, held // clients))
        )
        return chosen.thoroughly()

    def thoroughly(self) -> AuditSettings:
        """The same with what ``thorough`` stands for."""
        if not self.thorough:
            return self
        return replace(self, thorough=False, modes=choose_modes(None), two_world_runs=THOROUGH_RUNS)

    @property
    def tried_epsilon(self) -> tuple[float, ...]:
        """The epsilons that were asked for; 8 if nothing was said and all attacks are tried."""
        if self.epsilon is not None:
            return tuple(sorted(self.epsilon))
        return (8.0,) if self.attacks == choose_attacks(None) else ()

    @property
    def rule(self) -> DecisionRule:
        """The decision rule with the limits that were stated."""
        standard = DecisionRule()
        return standard.model_copy(update={"limits": standard.limits | dict(self.limits)})

    def format_for(self, dataset: Dataset) -> RowFormat:
        """Return the format that was asked for, or one that covers all rows, sized if need be."""
        return self.feature_format or _covering(self.sized(dataset))

    def sized(self, dataset: Dataset) -> Dataset:
        """Return the rows; where no format was asked for and none holds them, with each column made alike, and a note.

        Each is divided by a power of two, as sites agree through a first sum: exact, and the same to every attack.
        """
        if self.feature_format is not None:
            return dataset
        try:
            _covering(dataset)
        except SpecificationError:
            largest = np.abs(np.concatenate([dataset.x_train, dataset.x_test])).max(axis=0)
            exponents = np.frexp(largest)[1]
            x_train, x_test = (np.ldexp(x.astype(np.float64), -exponents) for x in (dataset.x_train, dataset.x_test))
            note = "each column is divided by a power of two, as sites agree on columns of unlike sizes"
            return replace(dataset, x_train=x_train, x_test=x_test, notes=(*dataset.notes, note))
        return dataset

    @property
    def tried_modes(self) -> tuple[Mode, ...]:
        """The modes with the helpers that were asked for, or those that a deployment should have.

        Raises:
            UsageError: an option that no mode has, or helpers that no committee has.
        """
        given = parse_options(self.own, [mode for mode in self.modes if mode.options])
        chosen = {mode.name: given.get(mode.name) or _as_deployed(mode) for mode in self.modes}
        return tuple(mode.with_options(**chosen[mode.name]) for mode in self.modes)


def _covering(dataset: Dataset) -> RowFormat:
    return RowFormat.covering(np.concatenate([dataset.x_train, dataset.x_test]))


def _limit(text: str) -> tuple[str, float | None]:
    """Read the limit of one number.

    Raises:
        UsageError: there is no such number, or it is none that can be a limit.
    """
    name, _, value = text.partition("=")
    if name not in {limit.value for limit in Limit}:
        raise UsageError(f"a limit is NAME=NUMBER with a name out of {', '.join(Limit)}, not {text!r}")
    return name, None if value == "none" else number(value, "a number from 0 to 1, or none", lambda one: 0 <= one <= 1)


def _as_deployed(mode: Mode) -> dict[str, int]:
    """Return the fewest helpers that tolerate an unavailable or malicious one, where helpers share a mode's masks."""
    shared = mode.options and mode.guarantee(PROBE).helper_reconstruction_threshold is not None
    return {"helpers": 4, "corrupt": 1} if shared else {}


class SettingsRecord(Record, StatedSettings, title="settings"):
    """The settings of an audit."""

    @classmethod
    def of(cls, settings: AuditSettings, feature_format: RowFormat) -> SettingsRecord:
        """State the settings of an audit whose rows have this format."""
        same = {one.name for one in fields(settings)} & cls.model_fields.keys() - {"learner", "modes", "epsilon"}
        return cls(
            learner=settings.learner.name,
            modes=tuple(mode.name for mode in settings.modes),
            format=str(feature_format),
            epsilon=settings.tried_epsilon,
            format_chosen_from_rows=settings.feature_format is None,
            **{name: getattr(settings, name) for name in same},
        )


def absent_modes(settings: AuditSettings) -> Iterator[str]:
    """Yield the modes of a default audit that this installation lacks, each with what installs it."""
    tried = {mode.name for mode in settings.modes}
    for name in DEFAULT_MODES:
        if name not in tried and not MODES[name].installed:
            yield f"{name}: not installed here, so nothing is known about it: {MODES[name].missing_extra}"
