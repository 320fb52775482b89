"""One run of a comparison as a value: everything that its record depends on beside the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PlainSerializer, WithJsonSchema

from analytic.row_format import RowFormat
from analytic.scaling import Agreement
from analytic.sensitivity import Adjacency, Unit
from analytic_secagg.errors import UsageError
from analytic_secagg.modes import Mode, find_mode
from secagg import PartyId
from simulations.compare.dropouts import Dropouts
from simulations.report.columns import Column
from simulations.report.document import Count, FormatName, Natural, NotNegative, Positive, Record, computed

Trust = Literal["distributed", "central", "local", "non-private"]
NOISY: tuple[Trust, ...] = ("distributed", "central", "local")
Split = Literal["given", "drawn", "held-out"]
Stage = Literal["drawn", "first"]

BASELINE = "baseline"
"""Stands for the mode of gradient methods, which make no sums of statistics."""

SHARES = ("gram_share", "mean_share")
"""Settings of the noise that can be tuned like options of a learner."""


def _plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as JSON has them; formats as text."""
    return {name: str(value) if isinstance(value, RowFormat) else value for name, value in options.items()}


Options = Annotated[
    Mapping[str, Any],
    PlainSerializer(_plain),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"type": "string"},
                    {"type": "number"},
                    {"type": "boolean"},
                    {"type": "array", "items": {"type": "number"}},
                ]
            },
        }
    ),
]
"""Values by name."""


class Run(Record, title="asked"):
    """A learner or gradient method, trained once: what is asked for. A field is null where it has no meaning for it."""

    model_config = ConfigDict(extra="forbid")

    mode: Annotated[str, Column(heading="mode")]
    """How the sums are made: plain, masked, ...; baseline for gradient methods, which are no closed forms."""
    label: Annotated[str, Column(heading="learner")] = ""
    """The learner as reports call it: its name, with the size that --sweep gave it, or its depth if it is private."""
    learner: str
    """The closed form (afl, fedhip, deepafl, ...) or gradient method (fedavg, fedprox, dpsgd)."""
    options: Options = Field(default_factory=dict)
    """Parameters of its own: those that were set, others have their defaults; all of gradient methods and private
    forms."""
    mode_options: Options = Field(default_factory=dict)
    """Parameters of the mode's own that were set: helpers and corrupt of a committee."""
    clients: Annotated[Count, Column(heading="clients")] = 20
    """Clients of the cohort."""
    partition: Annotated[str, Column(heading="partition")]
    """How training rows are dealt: iid, dirichlet:ALPHA or shards:S, or as a column of the table says (column NAME)."""
    split: Split = "given"
    """Whether the test rows are the data set's own; or drawn anew from all rows by the seed; or, to choose settings,
    the last fifth of training rows that are drawn so."""
    seed: Natural = 0
    """Seed of partition, dropouts, clients' own test rows, a drawn split, batches and simulated noise."""
    ridge: NotNegative | None = 0.0
    """Penalty of the solve, in the features' own units squared; null where the run chooses its own, see choice, and for
    gradient methods."""
    ri_gamma: NotNegative = 0.0
    """What each client adds to its Gram's diagonal."""
    format: FormatName | None = None
    """Fixed-point format of the features; null for gradient methods."""
    target_format: FormatName | None = None
    """Fixed-point format of real targets; null for class labels."""
    agreement: Agreement | None = None
    """How columns, and real targets, are made alike by sums before: agreed (each scaled by a power of two), or
    standardised; null where they are taken as they are."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Part of the cohort that vanishes before its vector is sent."""
    dropout_anew: bool = False
    """Whether every sum loses other clients (inconsistent participation) or all the same ones."""
    dropout_stage: Stage = "drawn"
    """Whether each of them vanishes at a stage that is drawn, or before its first message."""
    trust: Trust | None = None
    """Who adds noise: every client, the server, every upload for itself; non-private for exact totals that are solved
    like noisy ones; null for exact runs, here and below."""
    target_epsilon: Positive | None = None
    """The budget; null without noise."""
    delta: Positive | None = None
    """Delta of the promise; null without noise."""
    unit: Unit | None = None
    """Who is protected."""
    adjacency: Adjacency | None = None
    """What a neighbouring data set is."""
    gram_share: float | None = None
    """Part of the statistics' budget that goes to the Gram matrix; null for dpsgd."""
    mean_share: float | None = None
    """Part of the whole budget that buys the rows' mean."""
    min_noise_shares: Count | None = None
    """Smallest number of clients that add a share of the noise to a released total; null where clients do not share the
    noise, and for dpsgd."""
    colluders: Natural | None = None
    """Clients whose noise counts for nothing."""
    evaluate: Annotated[bool, Field(exclude=True)] = False
    """Whether the model is judged through one more sum, over clients that hold the test rows."""
    explain: Annotated[bool, Field(exclude=True)] = False
    """Whether the record holds what the mode says of its guarantees and costs."""

    @property
    def is_baseline(self) -> bool:
        """Whether a gradient method is trained."""
        return self.mode == BASELINE

    @property
    def is_exact(self) -> bool:
        """Whether a closed form is trained, and a law says which bytes it has."""
        return not self.is_baseline and self.trust is None

    @property
    def is_private(self) -> bool:
        """Whether a closed form is trained in its private form."""
        return not self.is_baseline and self.trust is not None

    @property
    def title(self) -> str:
        """Its name in a progress bar."""
        budget = "" if self.target_epsilon is None else f" {self.target_epsilon:g}"
        noise = "" if self.trust is None else f", {self.trust}{budget}"
        return f"{self.label or self.learner} {self.mode}{noise}, {self.clients} clients, {self.partition}"

    @property
    def parties(self) -> tuple[PartyId, ...]:
        """The numbers of the cohort's clients: 1 to n."""
        return tuple(range(1, self.clients + 1))

    @property
    def dropouts(self) -> Dropouts:
        """The clients that vanish."""
        return Dropouts(rate=self.dropout, anew=self.dropout_anew, seed=self.seed)

    @property
    def stays(self) -> int:
        """Number of clients whose vectors arrive."""
        return self.clients - self.dropouts.n_lost(self.clients)

    @property
    def min_survivors(self) -> int | None:
        """Fewest clients of a total that clients' own noise needs; None of others."""
        if self.trust != "distributed":
            return None
        return self.stays if self.min_noise_shares is None else self.min_noise_shares

    @computed
    def promised_survivors(self) -> Count | None:
        """Deprecated name of min_noise_shares; the next version leaves it out."""
        return self.min_noise_shares

    def mode_of_sums(self) -> Mode:
        """Return the mode; its sparse graphs are planned for the run's dropouts.

        Raises:
            UsageError: no such mode, an option that it does not have, a cohort that it cannot serve, or more noise
                shares than clients that stay.
        """
        mode = replace(find_mode(self.mode).with_options(**self.mode_options), promised=self.dropouts.promise)
        shares, colluders = self.min_survivors, self.colluders or 0
        if shares is not None and not 1 <= shares <= self.stays:
            raise UsageError(
                f"{shares} noise shares are the minimum and {self.stays} of {self.clients} clients stay: no total "
                "would be released. Lower --min-noise-shares; each client then adds more noise"
            )
        self.dropouts.check(mode, self.parties, min_survivors=shares)
        if shares is None:
            return mode
        assumed = mode.guarantee(self.parties, min_survivors=shares).assumed_colluders
        if colluders < assumed:
            raise UsageError(
                f"{mode.name} of {self.clients} clients is planned for {assumed} that collude, who know their "
                f"shares of the noise, and --colluders is {colluders}: state {assumed}, or ask fewer clients"
            )
        if colluders >= shares:
            raise UsageError(
                f"{colluders} colluders among {shares} noise shares leave no share that counts; tolerate fewer"
            )
        return mode

    def but(self, **changes: Any) -> Self:
        """Return the run with other values of fields."""
        return self.model_copy(update=changes)

    def with_settings(self, chosen: Mapping[str, Any]) -> Self:
        """Return the run with other options, and other shares of its budget."""
        shares = {name: value for name, value in chosen.items() if name in SHARES}
        options = {name: value for name, value in chosen.items() if name not in SHARES}
        return self.but(options={**self.options, **options}, **shares)

    def held_out(self, seed: int) -> Self:
        """Return the run that judges its settings on training rows alone, with the server's noise, as all trusts."""
        mode = self.mode if self.is_baseline else "plain"
        return self.but(split="held-out", seed=seed, mode=mode, mode_options={}, trust=self.trust and "central")
