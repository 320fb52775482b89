"""A run's public settings, from an engine's run configuration."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from analytic.errors import AnalyticError
from analytic.evaluation import evaluation_of
from analytic.learner import AnalyticLearner
from analytic.row_format import RowFormat
from analytic.scaling import Agreement, agreed_format
from analytic.sensitivity import Adjacency, Unit
from analytic.statistics import LABELS
from analytic_secagg.console.arguments import parse_options
from analytic_secagg.errors import UsageError
from analytic_secagg.federation import Federation
from analytic_secagg.learners import LearnerSettings, find_learner
from analytic_secagg.modes import find_mode
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.release import Gate, ReleasePolicy
from analytic_secagg.site.errors import RunSettingsError
from analytic_secagg.site.proposal import NO_RECEIPTS, TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.strict_models import StrictModel, validated
from secagg.dp import PrivacyError


class RunSettings(StrictModel):
    """Public settings of a run: what is trained, how it is summed, and how long anybody is waited for.

    Args:
        learner: name of the closed form.
        options: its own parameters, ``name=value`` with spaces between.
        n_features: columns of a feature row.
        n_classes: labels are 0 to n_classes - 1; or columns of real targets.
        feature_format: fixed-point format, such as ``UQ5.11``; ``agreed`` or ``standardised`` for columns that a first
            sum, or two, make alike (``analytic.scaling``).
        max_rows: rows of all clients together; without ``max_client_rows`` in the roster, each may hold an equal share.
        target_format: the same of real targets, whose range must hold them; ``labels`` for class labels, ``agreed``
            for real targets beside features that are agreed on.
        ridge: penalty of the solve, or ``cv`` for one that is chosen by cross-validation (afl, fedhip).
        ri: what each client adds to its Gram's diagonal and the server takes off exactly (AFL's RI process).
        evaluate: judge the model through one more sum, of rows that sites keep for that.
        mode: name of the privacy mode.
        corruption: fraction of clients that may collude with the server (modes with masks of clients).
        dropout: fraction of clients that may vanish (the same).
        min_survivors: fewest clients in a total, and in each pattern of partial labels; masks may ask for more.
        epsilon: what all sums of the run together may cost, with noise of which every client adds a share; 0 for
            exact totals. The sites' ledgers are charged.
        delta: its delta.
        unit: who is protected: ``record`` or ``client``.
        adjacency: what a neighbouring data set is: ``add-remove`` or ``replace-one``.
        noise_survivors: fewest clients in a total, whose shares of noise are counted on; the mode must keep this.
        noise_colluders: clients among them whose shares count for nothing, because they may tell them.
        client_rows: how many rows a client is expected to hold, which sizes its bound where clients are protected.
        nodes: how many nodes must be online before the first sum begins; 0 is one for each client of the roster.
        join_seconds: how long they are waited for.
        round_seconds: deadline of each exchange.
        quorum: fraction of the nodes invited to a sum whose answers close each of its rounds before the deadline.
        at_once: how many nodes are asked at a time, 0 for all; fewer keep the SuperLink small where uploads are large.
        receipts: who signs a receipt of each total: ``none``, the ``server`` alone, or with it more than two thirds of
            the ``clients`` or of the ``helpers``.
        allow_low_rank: make a model even of a total with too few rows for its rank, from which every row can be
            rebuilt.
    """

    model_config = ConfigDict(alias_generator=lambda name: name.replace("_", "-"))

    learner: str
    options: str
    n_features: int
    n_classes: int
    feature_format: str
    target_format: str
    max_rows: int
    ridge: float | Literal["cv"]
    ri: float = Field(ge=0)
    evaluate: bool
    mode: str
    corruption: float
    dropout: float
    min_survivors: int
    epsilon: float = Field(ge=0)
    delta: float
    unit: Unit
    adjacency: Adjacency
    noise_survivors: int
    noise_colluders: int
    client_rows: int
    nodes: int = Field(ge=0)
    join_seconds: float = Field(gt=0)
    round_seconds: float = Field(gt=0)
    quorum: float = Field(gt=0, le=1)
    at_once: int = Field(ge=0)
    receipts: Literal["none", "server", "clients", "helpers"]
    allow_low_rank: bool

    @field_validator("mode")
    @classmethod
    def _check_mode(cls, mode: str) -> str:
        if missing := find_mode(mode).missing_extra:
            raise ValueError(f"the mode {mode} needs more on every host: {missing}")
        return mode

    @field_validator("learner")
    @classmethod
    def _check_learner(cls, learner: str) -> str:
        return find_learner(learner).name

    @classmethod
    def of(cls, run_config: Mapping[str, Any]) -> RunSettings:
        """The settings of a run configuration; its keys are written with hyphens.

        Raises:
            RunSettingsError: a key is missing, unknown or has a value that it cannot have.
        """
        return validated(cls, run_config, RunSettingsError, whole="the run configuration")

    def release_policy(self, roster: Roster) -> ReleasePolicy:
        """Return what a total, and each part of one, must be before a model is made of it.

        Sites and sums ask more of a total.

        Args:
            roster: whose thresholds hold where it states some. Of clients that are given the total, which take their
                own part off, two others must be in it.
        """
        allowed = {Gate.RANK} if self.allow_low_rank else set()
        fewest = max(self.min_survivors, 2 + roster.total_holders)
        return ReleasePolicy(min_survivors=fewest, allow=frozenset(allowed), **roster.fewest_rows)

    def federation(self, roster: Roster, *, has_gates: bool = True) -> Federation[Any]:
        """Return the run's sums, none of them made yet; its learner is the private form where the run has noise.

        Args:
            roster: who takes part.
            has_gates: whether totals are judged; not where a site tries the run with its own rows alone.

        Raises:
            RunSettingsError: parameters that the closed form or its noise cannot have.
            FederationError: the roster's clients may hold more rows than the learner has room for.
        """
        learner = self.build_learner(len(roster.clients))
        try:
            return Federation(
                learner,
                release=self.release_policy(roster) if has_gates else None,
                privacy=self.privacy,
                max_client_rows=roster.max_client_rows,
                n_clients=len(roster.clients),
            )
        except (PrivacyError, AnalyticError) as error:
            raise RunSettingsError(f"{self.learner} cannot be summed like this: {error}") from error

    def proposal(
        self, roster: Roster, model: bytes, *, session: bytes, previous: bytes = b"", in_series: bool = True
    ) -> TrainingProposal:
        """Return the proposal of a sum that begins a session.

        Args:
            roster: who takes part.
            model: the learner and its model, as ``model_to_bytes`` writes them.
            session: its id.
            previous: the session of this run before; empty for the first.
            in_series: whether it may begin a series.
        """
        return TrainingProposal(
            mode=self.mode,
            session=session,
            clients=tuple(sorted(roster.clients)),
            helpers=tuple(sorted(roster.listed(find_mode(self.mode).helper))),
            corruption=self.corruption,
            dropout=self.dropout,
            min_survivors=self.min_survivors,
            previous=previous,
            place=1 if in_series and self.in_series else 0,
            privacy=self.privacy,
            receipts=self.receipts,
            provenance=roster.provenance,
            model=model,
        )

    def check_roster(self, roster: Roster) -> None:
        """Refuse a mode that needs parties whom nobody listed, and clients who may hold more than ``max_rows`` rows.

        Raises:
            RunSettingsError: says in which table of the roster they are to stand, or how many rows there must be room
                for.
        """
        mode = find_mode(self.mode)
        if mode.helper is not None and not roster.listed(mode.helper):
            raise RunSettingsError(
                f"the mode {self.mode} needs [{mode.helper.table}] in the roster, which lists nobody there; "
                "have the operator add it, or choose another mode"
            )
        n_clients, most = len(roster.clients), roster.max_client_rows or 1
        if self.max_rows < n_clients * most:
            raise RunSettingsError(
                f"max-rows must have room for the {most} rows that each of the roster's {n_clients} clients may hold, "
                f"{n_clients * most} in all, not {self.max_rows}: raise it"
                + ("" if roster.max_client_rows is None else ", or lower max_client_rows in all parties' rosters")
            )

    @property
    def targets(self) -> RowFormat:
        """The format of real targets, or ``LABELS``; where it is agreed on, that of scaled ones."""
        if self.target_format == Agreement.AGREED:
            return agreed_format(self.max_rows)
        return LABELS if self.target_format == "labels" else RowFormat.parse(self.target_format)

    @property
    def agreement(self) -> Agreement | None:
        """Scaling of columns; None if their format is stated."""
        return Agreement(self.feature_format) if self.feature_format in list(Agreement) else None

    @model_validator(mode="after")
    def _check_formats(self) -> Self:
        if self.agreement is None and self.target_format == Agreement.AGREED:
            raise ValueError("targets are agreed on with the features: set feature-format to agreed or standardised")
        if self.agreement is not None and self.target_format not in ("labels", Agreement.AGREED):
            raise ValueError(
                f'columns are {self.agreement} and the targets with them: set target-format to "labels" or "agreed"'
            )
        return self

    @model_validator(mode="after")
    def _check_evaluation(self) -> Self:
        if self.evaluate and self.epsilon:
            raise ValueError(
                "an evaluation's counts are exact, and this run promises noise: leave evaluate or epsilon out"
            )
        return self

    def evaluation(self, learner: AnalyticLearner[Any], model: Any) -> AnalyticLearner[Any]:
        """The sum that judges the complete model.

        Raises:
            RunSettingsError: no sum of so many rows can.
        """
        try:
            own: Any = learner
            targets = self.targets if self.agreement is None else own.evaluation_format(model)
            return evaluation_of(
                learner,
                model,
                n_targets=self.n_classes,
                target_format=targets,
                max_rows=self.max_rows,
                several="patterns" in self._learner_options(),
            )
        except AnalyticError as error:
            raise RunSettingsError(f"this model cannot be evaluated: {error}") from error

    @property
    def in_series(self) -> bool:
        """Whether sums carry each other's set-up: several without noise or receipts, in a mode that can."""
        return (
            not self.epsilon
            and self.receipts == NO_RECEIPTS
            and find_mode(self.mode).make_series is not None
            and self.n_sums > 1
        )

    @property
    def n_sums(self) -> int:
        """How many sums the run asks for at least, without an evaluation."""
        agreed = 0 if self.agreement is None else self.agreement.n_sums
        return find_learner(self.learner).n_sums(self._learner_options()) + agreed

    @property
    def privacy(self) -> PrivacyPlan | None:
        """Promise of the noise; None for exact totals.

        Raises:
            RunSettingsError: parameters that it cannot have.
        """
        if not self.epsilon:
            return None
        try:
            return PrivacyPlan(
                epsilon=self.epsilon,
                delta=self.delta,
                unit=self.unit,
                adjacency=self.adjacency,
                min_noise_shares=self.noise_survivors,
                colluders=self.noise_colluders,
                client_rows=self.client_rows,
            )
        except PrivacyError as error:
            raise RunSettingsError(f"noise cannot be set up like this: {error}") from error

    def build_learner(self, n_clients: int) -> AnalyticLearner[Any]:
        """The closed form.

        Raises:
            RunSettingsError: parameters that it cannot have.
        """
        entry = find_learner(self.learner)
        try:
            settings = LearnerSettings(
                n_features=self.n_features,
                n_classes=self.n_classes,
                feature_format=agreed_format(self.max_rows) if self.agreement else RowFormat.parse(self.feature_format),
                target_format=self.targets,
                max_rows=self.max_rows,
                max_clients=n_clients,
                ridge=self.ridge,
                ri_gamma=self.ri,
                options=self._learner_options(),
                agreement=self.agreement,
            )
            return entry.build(settings)
        except (AnalyticError, UsageError, ValueError) as error:
            raise RunSettingsError(f"{self.learner} cannot be set up like this: {error}") from error

    def _learner_options(self) -> Mapping[str, Any]:
        entry = find_learner(self.learner)
        return parse_options(self.options.split(), [entry])[entry.name]


def template_settings() -> dict[str, Any]:
    """Return the settings that a deployment begins with: those of the app's template, whatever engine runs them."""
    template = files("analytic_secagg") / "flower" / "template" / "pyproject.toml"
    return dict(tomllib.loads(template.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"])


def overrides(text: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as ``flwr run -c`` takes them: TOML values with spaces between.

    Args:
        text: such as ``mode="committee" ridge=0.5``.
        config: what they override.

    Raises:
        RunSettingsError: no such values, or settings that ``config`` has not.
    """
    try:
        found = tomllib.loads("\n".join(shlex.split(text, posix=False)))
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise RunSettingsError(
            "settings read name=value with spaces between and texts in quotes, such as "
            f"'mode=\"committee\" ridge=0.5', not {text!r}: {error}"
        ) from error
    if unknown := found.keys() - config.keys():
        raise RunSettingsError(
            f"the configuration has no {', '.join(sorted(unknown))}; it has {', '.join(sorted(config))}"
        )
    return found
