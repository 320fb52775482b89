"""What to audit: the settings of an audit are its options, and how a report states them."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Annotated

from pydantic import Field

from analytic.row_format import RowFormat
from federation.console.arguments import budgets, count, items, natural, whole, wholes
from federation.console.declaration import option
from federation.errors import UsageError
from federation.learners import LEARNERS, LearnerEntry
from federation.modes import Mode
from secagg.config import MAX_CLIENTS
from simulations.audit.catalogue import NAMES, choose_attacks
from simulations.audit.evaluate import ALPHA, CONFIDENCE
from simulations.audit.population import MAX_CANDIDATES
from simulations.command_line.shared_arguments import format_option, modes_option
from simulations.report.document import Count, FormatName, Natural, Part, Positive, Record

MOST_COLLUDERS = 6
"""Of the seven clients of the sum that coalitions are tried on, one is attacked."""

AtLeastTwo = Annotated[int, Field(ge=2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What to audit, as the command line takes it; ``row_counts`` are the rows per client of the curve of what a plain
    message gives away.

    Raises:
        UsageError: a number out of range, or nothing to do.
    """

    learner: LearnerEntry = option("the closed form", choices=LEARNERS, default=LEARNERS["afl"], shown="afl")
    modes: tuple[Mode, ...] = modes_option()
    attacks: frozenset[str] = option(
        f"out of {', '.join(NAMES)}",
        lambda text: choose_attacks(items(text)),
        default=choose_attacks(None),
        metavar="NAME,...",
        shown="all",
    )
    clients: int = option("clients of a cohort", lambda text: whole(text, at_least=2, at_most=MAX_CLIENTS), default=20)
    rows_per_client: int = option(
        "rows of a client, on average",
        lambda text: whole(text, at_least=2, at_most=MAX_CANDIDATES),
        flag="--rows",
        default=12,
    )
    cohorts: tuple[int, ...] = option(
        "cohort sizes whose totals are attacked",
        lambda text: wholes(text, at_least=2, at_most=MAX_CLIENTS),
        default=(2, 5, 20, 100),
        metavar="N,...",
    )
    row_counts: tuple[int, ...] = (3, 6, 12, 24, 40, 60, 100)
    coalitions: tuple[int, ...] | None = option(
        "numbers of clients that collude with the server of a masked sum, in a cohort of its own of 7 clients, "
        "whatever --clients says",
        lambda text: wholes(text, at_least=0, at_most=MOST_COLLUDERS),
        default=None,
        metavar="T,...",
        shown="all",
    )
    sessions: int = option(
        "cohorts that every attack on a message is tried on: more of them notice smaller leaks", count, default=2
    )
    trials: int = option("sums made for each attack that needs its own", count, default=5)
    epsilon: tuple[float, ...] = option(
        "attack totals with noise for these as well; none leaves them out",
        lambda text: () if text == "none" else budgets(text),
        default=(1.0, 8.0),
        metavar="E,...",
    )
    feature_format: RowFormat | None = format_option("all rows")
    seed: int = option(
        "deals rows and tosses coins; keys, masks and noise come from the operating system",
        natural,
        default=0,
    )

    def __post_init__(self) -> None:
        if not self.modes or not self.attacks:
            raise UsageError("an audit needs at least one mode and one attack")
        if not all(math.isfinite(epsilon) and epsilon > 0 for epsilon in self.epsilon):
            raise UsageError(f"an epsilon is a finite number above 0, not {self.epsilon}")
        numbers = (self.clients - 1, self.rows_per_client - 1, self.sessions, self.trials, self.seed + 1)
        if min(numbers) < 1 or min((*self.cohorts, 2)) < 2 or min((*self.row_counts, 1)) < 1:
            raise UsageError(
                "an audit needs at least 2 clients a cohort, 2 rows per client, 1 session, 1 trial and a seed >= 0"
            )


class SettingsRecord(Record, title="settings"):
    """The settings of an audit."""

    learner: str
    """The closed form: afl, fedhip, deepafl, safle."""
    modes: tuple[str, ...] = Field(min_length=1)
    """Modes audited."""
    clients: AtLeastTwo
    """Clients of a cohort."""
    rows_per_client: AtLeastTwo
    """Mean rows of a client."""
    cohorts: tuple[AtLeastTwo, ...]
    """Cohort sizes whose totals were attacked."""
    row_counts: tuple[Count, ...]
    """Rows per client of the curve of plain messages."""
    coalitions: tuple[Natural, ...] | None
    """Numbers of clients that colluded with the server of a masked sum; null for all."""
    sessions: Count
    """Cohorts that each cell of an attack on a message pools."""
    trials: Count
    """Sums made for each attack that needs its own."""
    format: FormatName
    """Fixed-point format of the features."""
    format_chosen_from_rows: bool
    """Whether the format was chosen by looking at all training rows, which only a simulation can do."""
    epsilon: tuple[Positive, ...]
    """Epsilons of the totals with noise."""
    seed: Natural
    """Seed of who holds which rows and of the attackers' coins."""
    confidence: Part
    """Confidence of the intervals."""
    alpha: Part
    """How often a cell that leaks nothing is called a leak, at most."""

    @classmethod
    def of(cls, settings: AuditSettings, feature_format: RowFormat) -> SettingsRecord:
        """State the settings of an audit whose rows have this format."""
        same = {one.name for one in fields(settings)} & cls.model_fields.keys() - {"learner", "modes"}
        return cls(
            learner=settings.learner.name,
            modes=tuple(mode.name for mode in settings.modes),
            format=str(feature_format),
            format_chosen_from_rows=settings.feature_format is None,
            confidence=CONFIDENCE,
            alpha=ALPHA,
            **{name: getattr(settings, name) for name in same},
        )
