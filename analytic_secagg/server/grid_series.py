"""A series of sums over an engine's nodes: from the second on, the set-up of each costs no exchange."""

from __future__ import annotations

from analytic_secagg.server.exchange import Deadlines, SessionExchange
from analytic_secagg.server.grid_sum import GridSum, NodeAddresses
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.invitation import Invitation
from secagg import PartySecrets, SumResult
from secagg.errors import LocalProtocolError, TooFewSurvivorsError


class SeriesOverError(DeploymentError):
    """Too few clients were set up for the next sum; nobody has sent a vector for it. Begin a new series."""


class GridSeries:
    """The sums of one series. Who misses a vector or an unmasking stays out of its later sums.

    Args:
        first: the invitation to the first sum.
        server: the server's own roster and key.
        exchange: the way to the nodes for this series.
        deadlines: of every exchange.
    """

    def __init__(self, first: Invitation, server: ServerFile, exchange: SessionExchange, deadlines: Deadlines) -> None:
        mode, setup = first.setup(server.roster)
        self._first, self._setup = first, setup
        self._series = mode.series(setup)
        self._server = self._series.server(secrets=PartySecrets(identity=server.identity))
        self._roster, self._exchange, self._deadlines = server.roster, exchange, deadlines
        self._addresses = NodeAddresses()

    def run_first(self) -> SumResult:
        """The first sum.

        Raises:
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        session = self._server.begin_sum(self._setup.layout, self._setup.context)
        sum_ = GridSum(self._series.first, session, self._exchange, self._deadlines, addresses=self._addresses)
        return sum_.begin(self._first)

    def run_next(self, invitation: Invitation) -> SumResult:
        """The next sum, of those who were set up for it.

        Raises:
            SeriesOverError: too few are.
            SecureSumError: too few clients stayed, or another reason for which no total is released.
        """
        _, setup = invitation.setup(self._roster)
        try:
            session = self._server.begin_sum(setup.layout, setup.context)
            requests = session.close_round()
        except (LocalProtocolError, TooFewSurvivorsError) as error:
            raise SeriesOverError(str(error)) from error
        sum_ = GridSum(self._series.first, session, self._exchange, self._deadlines, addresses=self._addresses)
        return sum_.go_on(invitation, requests)
