"""All parties of a series in one process, for simulations and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from secagg.config import SERVER
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError
from secagg.in_memory import InOneProcess
from secagg.layout import Layout
from secagg.masked.protocol import MaskedSum
from secagg.masked.series import MaskedSeries
from secagg.sessions import ClientInput, ClientSession, PartyId, ServerSession
from secagg.sums import NO_SECRETS, PartySecrets


class SeriesInOneProcess:
    """All parties of a series in one process, for simulations and tests.

    Args:
        series: public parameters of the series.
        secrets: secrets by client; 0 is the server.
        entropy: source of all parties' keys, seeds and shares.
    """

    def __init__(
        self,
        series: MaskedSeries,
        *,
        secrets: Mapping[PartyId, PartySecrets] | None = None,
        entropy: Entropy = os_entropy,
    ) -> None:
        self.series, self._secrets, self._n_begun = series, secrets or {}, 0
        self.server = series.server(secrets=self._secrets.get(SERVER, NO_SECRETS))
        self.parties = {
            party: series.client(party, secrets=self._secrets.get(party, NO_SECRETS), entropy=entropy)
            for party in series.clients
        }

    def next_sum(self, layout: Layout, context: bytes = b"") -> SeriesSumInOneProcess:
        """Return all parties of the next sum, for ``run_in_memory``."""
        protocol = self.series.sum(self._n_begun, layout, context)
        self._n_begun += 1
        return SeriesSumInOneProcess(protocol=protocol, secrets=self._secrets, series=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesSumInOneProcess(InOneProcess):
    """One sum of a series, with the parties of the sum before.

    Raises:
        ConfigurationError: the protocol is a wrapper, such as one that adds noise, which these parties would omit.
    """

    series: SeriesInOneProcess

    def __post_init__(self) -> None:
        _ = self._sum

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Create a client's session; its entropy was given to the series."""
        return self.series.parties[party].begin_sum(self._sum.layout, self._sum.context, client_input)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        """Return the server's session."""
        return self.series.server.begin_sum(self._sum.layout, self._sum.context)

    @property
    def _sum(self) -> MaskedSum:
        if not isinstance(self.protocol, MaskedSum):
            raise ConfigurationError(
                f"a multi-round session makes masked sums, not {self.protocol.name}; use a session for each such sum"
            )
        return self.protocol
