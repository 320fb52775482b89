"""One run of a comparison as a value: everything that its record depends on beside the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

from analytic.agreeing import Agreement
from analytic.row_format import RowFormat
from analytic.sensitivity import Adjacency, Unit
from analytic_secagg.console.arguments import Option
from analytic_secagg.errors import UsageError
from analytic_secagg.modes import MODES, Mode
from secagg import PartyId
from simulations.compare.dropouts import Dropouts
from simulations.data.partitions import Partition

Trust = Literal["distributed", "central", "local", "non-private"]
NOISY: tuple[Trust, ...] = ("distributed", "central", "local")
Split = Literal["given", "drawn", "held-out"]
Stage = Literal["drawn", "first"]

BASELINE = "baseline"
"""Stands for the mode of gradient methods, which make no sums of statistics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Differential privacy of a run.

    Args:
        trust: who adds noise: every client, the server, every upload for itself, nobody.
        epsilon: the budget; None for exact totals that are solved like noisy ones.
        delta, unit, adjacency, gram_share, mean_share: as in ``PrivacyPlan``.
        promise: fewest clients of a released total; None promises all that the dropouts leave.
        colluders: clients whose shares of noise count for nothing.
    """

    trust: Trust = "non-private"
    epsilon: float | None = None
    delta: float = 1e-5
    unit: Unit = "record"
    adjacency: Adjacency = "add-remove"
    gram_share: float = 0.3
    mean_share: float = 0.05
    promise: int | None = None
    colluders: int = 1


SHARES = ("gram_share", "mean_share")
"""Settings of the noise that can be tuned like options of a learner."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A learner or gradient method, trained once.

    Args:
        learner: a name in ``LEARNERS`` or ``METHODS``.
        options: its own; those that are left out have their defaults.
        label: its name in reports, with its size where several are compared; empty for ``learner``.
        mode: how sums are made; None for gradient methods.
        clients: the cohort.
        partition: how training rows are dealt.
        ridge: penalty of the solve, or ``cv`` for one that the run chooses.
        ri_gamma: what each client adds to its Gram's diagonal.
        feature_format: fixed-point format of features, or how their columns, and real targets, are agreed on by sums;
            None looks at all training rows, for simulations only.
        target_format: the same of real targets.
        dropout: part of the clients whose vectors never arrive.
        dropout_anew: whether every sum loses other clients or all the same ones.
        dropout_stage: when lost clients vanish: at a stage drawn for each, or before their first message.
        noise: differential privacy; None for exact totals.
        split: whether test rows are the data set's own; or drawn anew from all rows with the seed; or, to choose
            settings, the last fifth of training rows that are drawn so.
        seed: draws partitions, dropouts, clients' own test rows, splits, batches and simulated noise.
        evaluate: whether the model is judged through one more sum, over clients that hold the test rows.
        explain: whether the record holds what the mode says of its guarantees and costs.

    Raises:
        UsageError: a number out of range, a mode that cannot serve these clients, or a promise that cannot be kept.
    """

    learner: str
    options: Mapping[str, Option] = field(default_factory=dict)
    label: str = ""
    mode: Mode | None
    clients: int = 20
    partition: Partition
    ridge: float | Literal["cv"] = 0.0
    ri_gamma: float = 0.0
    feature_format: RowFormat | Agreement | None = None
    target_format: RowFormat | None = None
    dropout: float = 0.0
    dropout_anew: bool = False
    dropout_stage: Stage = "drawn"
    noise: Noise | None = None
    split: Split = "given"
    seed: int = 0
    evaluate: bool = False
    explain: bool = False

    def __post_init__(self) -> None:
        if self.clients < 1 or self.seed < 0:
            raise UsageError(f"clients must be at least 1 and a seed at least 0, not {self.clients}, {self.seed}")
        noise = self.noise if self.noise and self.noise.trust == "distributed" else None
        if noise is not None and not 1 <= self.promised <= self.survivors:
            raise UsageError(
                f"{self.promised} survivors are promised and {self.survivors} of {self.clients} stay: no total would "
                "be released. Promise fewer; each client then adds more noise"
            )
        if self.mode is not None:
            self.dropouts.check(self.mode, self.parties, min_survivors=self.promised if noise else None)
        if noise is not None and self.mode is not None:
            assumed = self.mode.guarantee(self.parties, min_survivors=self.promised).assumed_colluders
            if noise.colluders < assumed:
                raise UsageError(
                    f"{self.mode.name} of {self.clients} clients is planned for {assumed} that collude, who know their "
                    f"shares of the noise, and --colluders is {noise.colluders}: state {assumed}, or ask fewer clients"
                )
            if noise.colluders >= self.promised:
                raise UsageError(
                    f"{noise.colluders} colluders among {self.promised} promised survivors leave nobody whose noise "
                    "counts; tolerate fewer"
                )

    @property
    def name(self) -> str:
        """Its learner's name in reports."""
        return self.label or self.learner

    @property
    def mode_name(self) -> str:
        """Its mode's name in reports."""
        return BASELINE if self.mode is None else self.mode.name

    @property
    def title(self) -> str:
        """Its name in a progress bar."""
        noise = self.noise
        budget = "" if noise is None else f", {noise.trust}{'' if noise.epsilon is None else f' {noise.epsilon:g}'}"
        return f"{self.name} {self.mode_name}{budget}, {self.clients} clients, {self.partition.name}"

    @property
    def parties(self) -> tuple[PartyId, ...]:
        """The numbers of the cohort's clients: 1 to n."""
        return tuple(range(1, self.clients + 1))

    @property
    def dropouts(self) -> Dropouts:
        """The clients that vanish."""
        return Dropouts(rate=self.dropout, anew=self.dropout_anew, seed=self.seed)

    @property
    def survivors(self) -> int:
        """Number of clients whose vectors arrive."""
        return self.clients - self.dropouts.n_lost(self.clients)

    @property
    def promised(self) -> int:
        """Fewest clients of any total that is released under noise."""
        promise = None if self.noise is None else self.noise.promise
        return self.survivors if promise is None else promise

    @property
    def agreement(self) -> Agreement | None:
        """How columns are agreed on; None where they are taken as they are."""
        return self.feature_format if isinstance(self.feature_format, Agreement) else None

    def with_settings(self, chosen: Mapping[str, Any]) -> Self:
        """Return the run with other options, and other shares of its budget."""
        shares = {name: value for name, value in chosen.items() if name in SHARES}
        options = {name: value for name, value in chosen.items() if name not in SHARES}
        noise = replace(self.noise, **shares) if self.noise else None
        return replace(self, options={**self.options, **options}, noise=noise)

    def held_out(self, seed: int) -> Self:
        """Return the run that judges its settings on training rows alone, with the server's noise, as all trusts."""
        noise = replace(self.noise, trust="central") if self.noise else None
        mode = None if self.mode is None else MODES["plain"]
        return replace(self, split="held-out", seed=seed, noise=noise, mode=mode)
