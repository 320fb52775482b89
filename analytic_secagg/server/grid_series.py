"""A series of sums over an engine's nodes: from the second on, the set-up of each costs no exchange."""

from __future__ import annotations

from typing import Any

from analytic.learner import AnalyticLearner
from analytic_secagg.modes import find_mode
from analytic_secagg.server.grid_sum import GridSum, ServerSide
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.session import config_of
from secagg import PartySecrets, ServerSession, SumResult
from secagg.errors import LocalProtocolError, TooFewSurvivorsError


class SeriesOverError(DeploymentError):
    """Too few clients were set up for the next sum; nobody has sent a vector for it. Begin a new series."""


class GridSeries:
    """The sums of one series. Who misses a vector or an unmasking stays out of its later sums.

    Args:
        first: the proposal of the first sum, or of the one to go on with.
        side: the server's.
    """

    def __init__(self, first: TrainingProposal, side: ServerSide) -> None:
        self._last, self._config, self._side = first, config_of(first, side.file.roster), side
        self._series = find_mode(first.mode).series(self._config)
        self._server = self._series.server(secrets=PartySecrets(identity=side.file.identity))

    def run_first(self) -> SumResult:
        """Return the result of the first sum.

        Raises:
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        return self._sum(self._server.begin_sum(self._config.layout, self._config.context)).begin(self._last)

    def run_next(self, learner: AnalyticLearner[Any], model: Any) -> SumResult:
        """Return the result of the sum that a learner needs next, of those who were set up for it.

        Raises:
            SeriesOverError: too few are.
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        self._last = self._last.next_of_series(learner, model)
        config = config_of(self._last, self._side.file.roster)
        self._side.store.open_sum(self._last)
        try:
            sum_ = self._sum(self._server.begin_sum(config.layout, config.context))
            requests = sum_.begin_set_up()
        except (LocalProtocolError, TooFewSurvivorsError) as error:
            raise SeriesOverError(str(error)) from error
        return sum_.go_on(self._last, requests)

    def resume(self) -> SumResult:
        """Return the result of the sum whose session is stored.

        Raises:
            SeriesOverError: too few clients were set up for it.
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        number = self._last.place - 1
        sum_ = self._sum(self._server.resume_sum(number, self._config.layout, self._config.context))
        if not sum_.has_begun:
            raise SeriesOverError("too few clients finished the set-up of this sum; begin a new series")
        return sum_.resume_later(self._last) if number else sum_.resume()

    def _sum(self, session: ServerSession) -> GridSum:
        return GridSum(self._series.first, session, self._side)
