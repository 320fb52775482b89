"""A series of sums over an engine's nodes: from the second on, the set-up of each costs no exchange."""

from __future__ import annotations

from typing import Any

from analytic.learner import AnalyticLearner
from analytic_secagg.modes import find_mode
from analytic_secagg.server.exchange import Deadlines, SessionExchange
from analytic_secagg.server.grid_sum import GridSum, NodeAddresses
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.session import config_of
from secagg import PartySecrets, SumResult
from secagg.errors import LocalProtocolError, TooFewSurvivorsError


class SeriesOverError(DeploymentError):
    """Too few clients were set up for the next sum; nobody has sent a vector for it. Begin a new series."""


class GridSeries:
    """The sums of one series. Who misses a vector or an unmasking stays out of its later sums.

    Args:
        first: the proposal of the first sum.
        server: the server's own roster and key.
        exchange: the way to the nodes for this series.
        deadlines: of every exchange.
    """

    def __init__(
        self, first: TrainingProposal, server: ServerFile, exchange: SessionExchange, deadlines: Deadlines
    ) -> None:
        self._last, self._config = first, config_of(first, server.roster)
        self._series = find_mode(first.mode).series(self._config)
        self._server = self._series.server(secrets=PartySecrets(identity=server.identity))
        self._roster, self._exchange, self._deadlines = server.roster, exchange, deadlines
        self._addresses = NodeAddresses()

    def run_first(self) -> SumResult:
        """Return the result of the first sum.

        Raises:
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        session = self._server.begin_sum(self._config.layout, self._config.context)
        sum_ = GridSum(self._series.first, session, self._exchange, self._deadlines, addresses=self._addresses)
        return sum_.begin(self._last)

    def run_next(self, learner: AnalyticLearner[Any], model: Any) -> SumResult:
        """Return the result of the sum that a learner needs next, of those who were set up for it.

        Raises:
            SeriesOverError: too few are.
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        self._last = self._last.next_of_series(learner, model)
        config = config_of(self._last, self._roster)
        try:
            session = self._server.begin_sum(config.layout, config.context)
            requests = session.close_round()
        except (LocalProtocolError, TooFewSurvivorsError) as error:
            raise SeriesOverError(str(error)) from error
        sum_ = GridSum(self._series.first, session, self._exchange, self._deadlines, addresses=self._addresses)
        return sum_.go_on(self._last, requests)
