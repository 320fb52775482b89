"""A server that has its own key and honest sites, and lies about what it may lie about."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from analytic.errors import AnalyticError
from analytic_secagg.modes import MODES
from analytic_secagg.site.errors import DeploymentError
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.site.site import Site
from analytic_secagg.trial import FIRST_HELPER, KEY_HOLDER_PARTY, Trial
from secagg import PartyId, PartySecrets, SumResult
from secagg.config import SERVER
from secagg.errors import SecureSumError
from secagg.primitives.identity import IdentityKey
from secagg.sums import SERVER_ROLE
from support.rehearsed import CLIENTS, announced, site

AT_SITE = {FIRST_HELPER: 1, FIRST_HELPER + 1: 2, KEY_HOLDER_PARTY: 5}
"""At which site of a trial of five a helper is."""


@dataclass
class LyingServer:
    """Has the server's key, leads honest sites through sums, and calls lost whom it likes once it has the vectors.

    Args:
        trial: the sites, each a fresh process at every message.
        refused: what each site raised in place of its last answer; its own log gets that.
    """

    trial: Trial
    refused: dict[int, str] = field(default_factory=dict)

    def total(
        self, proposed: TrainingProposal, *, lost: Collection[PartyId] = (), unasked: Collection[PartyId] = ()
    ) -> SumResult:
        """The result of a sum; clients are called lost from their vectors on, or told nothing after them."""
        self.refused = {}
        roster = Roster.read(self.trial.folder / "server" / "roster.toml")
        if MODES[proposed.mode].announce is not None:
            proposed = announced(self.trial, proposed)
        protocol = Session.of(proposed, roster).protocol
        signs = SERVER in protocol.public_keys.get(SERVER_ROLE, {})
        own = IdentityKey(read_secret(self.trial.folder / "server" / "identity.key"))
        session = protocol.server(secrets=PartySecrets(identity=own if signs else None))
        said: dict[PartyId, bytes] = {}
        for number in CLIENTS:
            said |= self._ask(number, lambda asked: asked.join(proposed))
        for round_ in range(1, 10):
            for party, message in said.items():
                is_lost = party in lost and round_ >= protocol.guarantee.vector_message
                says_only_that_it_is_here = round_ == 1 and party in protocol.helpers
                if message and not (is_lost or says_only_that_it_is_here):
                    session.receive(party, message)
            requests = session.close_round()
            if session.result is not None:
                return session.result
            said = {}
            heard = unasked if round_ >= protocol.guarantee.vector_message else ()
            for party, request in requests.items():
                if party in heard:
                    continue
                number = AT_SITE.get(party, party)
                said |= self._ask(
                    number, lambda asked, of=party, what=request: asked.answer(proposed.session, {of: what})
                )
        raise AssertionError("no sum has so many rounds")

    def _ask(self, number: int, ask: Callable[[Site], Mapping[PartyId, bytes]]) -> Mapping[PartyId, bytes]:
        try:
            return ask(site(self.trial, number))
        except (SecureSumError, DeploymentError, AnalyticError) as error:
            self.refused[number] = str(error)
            return {}
