"""A run's public settings, from Flower's run configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner
from analytic.release_gates import Gate, ReleasePolicy
from analytic.row_format import RowFormat
from federation.console.options import parse_options
from federation.errors import UsageError
from federation.learners import LEARNERS, LearnerSettings
from federation.modes import MODES
from federation.site.errors import RunSettingsError
from federation.site.roster import Roster
from federation.site.toml_files import NAMES


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """What is to be trained, how it is summed, and how long anybody is waited for. All of it is public.

    Args:
        learner: name of the closed form.
        options: its own parameters, ``name=value`` with spaces between.
        n_features: columns of a feature row.
        n_classes: labels are 0 to n_classes - 1.
        feature_format: fixed-point format, such as ``UQ5.11``.
        max_rows: rows of all clients together.
        ridge: penalty of the solve.
        mode: one of ``MODES``.
        corruption: fraction of clients that may collude with the server (modes with masks of clients).
        dropout: fraction of clients that may vanish (the same).
        min_survivors: fewest clients in a total (the other modes).
        nodes: how many nodes must be online before the first sum begins; 0 is one for each client of the roster.
        join_seconds: how long they are waited for.
        round_seconds: deadline of each exchange.
        quorum: fraction of the nodes invited to a sum whose answers close each of its rounds before the deadline.
        at_once: how many nodes are asked at a time, 0 for all; fewer keep the SuperLink small where uploads are large.
        allow_low_rank: make a model even of a total whose rank is below the number of features in use, from which every
            row can be rebuilt.
    """

    learner: str
    options: str
    n_features: int
    n_classes: int
    feature_format: str
    max_rows: int
    ridge: float
    mode: str
    corruption: float
    dropout: float
    min_survivors: int
    nodes: int
    join_seconds: float
    round_seconds: float
    quorum: float
    at_once: int
    allow_low_rank: bool

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise RunSettingsError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        if missing := MODES[self.mode].missing_extra:
            raise RunSettingsError(f"the mode {self.mode} needs more on every host: {missing}")
        if self.learner not in LEARNERS:
            raise RunSettingsError(f"learner must be one of {', '.join(LEARNERS)}, not {self.learner!r}")
        if (
            self.round_seconds <= 0
            or self.join_seconds <= 0
            or not 0 < self.quorum <= 1
            or min(self.nodes, self.at_once) < 0
        ):
            raise RunSettingsError(
                "deadlines must be above 0 seconds, the quorum above 0 and at most 1, nodes and at-once at least 0; "
                f"they are {self.join_seconds:g}, {self.round_seconds:g}, {self.quorum:g}, {self.nodes}, {self.at_once}"
            )

    @classmethod
    def of(cls, run_config: Mapping[str, Any]) -> RunSettings:
        """The settings of a run configuration; its keys are written with hyphens.

        Raises:
            RunSettingsError: a key is missing or has a value that it cannot have.
        """
        values: dict[str, Any] = {}
        for name, kind in get_type_hints(cls).items():
            key = name.replace("_", "-")
            value = run_config.get(key)
            if kind is float and type(value) is int:
                value = float(value)
            if type(value) is not kind:
                came = "nothing" if value is None else NAMES.get(type(value), "something else")
                raise RunSettingsError(f"the run configuration needs {key} as {NAMES[kind]}, not {came}")
            values[name] = value
        return cls(**values)

    @property
    def release_policy(self) -> ReleasePolicy:
        """What a total must be before a model is made of it; how many clients it holds is for sites and sums to say."""
        allowed = {Gate.RANK} if self.allow_low_rank else set()
        return ReleasePolicy(min_survivors=2, allow=frozenset(allowed))

    def check_roster(self, roster: Roster) -> None:
        """Refuse a mode that needs parties whom nobody listed.

        Raises:
            RunSettingsError: says in which table of the roster they are to stand.
        """
        mode = MODES[self.mode]
        if mode.helper is not None and not roster.listed(mode.helper):
            raise RunSettingsError(
                f"the mode {self.mode} needs [{mode.helper.table}] in the roster, which lists nobody there; "
                "have the operator add it, or choose another mode"
            )

    @property
    def in_series(self) -> bool:
        """Whether sums carry each other's set-up: where there are several, and the mode can."""
        return MODES[self.mode].make_series is not None and LEARNERS[self.learner].n_sums(self._learner_options()) > 1

    def build_learner(self, n_clients: int) -> AnalyticLearner[Any]:
        """The closed form.

        Raises:
            RunSettingsError: parameters that it cannot have.
        """
        entry = LEARNERS[self.learner]
        try:
            settings = LearnerSettings(
                n_features=self.n_features,
                n_classes=self.n_classes,
                feature_format=RowFormat.parse(self.feature_format),
                max_rows=self.max_rows,
                max_clients=n_clients,
                ridge=self.ridge,
                options=self._learner_options(),
            )
            return entry.build(settings)
        except (AnalyticError, UsageError, ValueError) as error:
            raise RunSettingsError(f"{self.learner} cannot be set up like this: {error}") from error

    def _learner_options(self) -> Mapping[str, Any]:
        entry = LEARNERS[self.learner]
        return parse_options(self.options.split(), [entry])[entry.name]
