"""A dry run at one site: the sums of a run as this site would join them, made of its rows and thrown away.

The server's part is played here, from the run's public settings; nothing leaves and nothing is stored. What only the
run can show: other sites' rows (of a later sum the total of this site's rows stands for all), and who is there: the
query log is asked as if all clients were in the first sum. ``docs/reference/site-failures.md`` lists all.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analytic.errors import AnalyticError
from analytic.learner import ClientRows
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic_secagg.console.findings import Finding, fail, ok, warn
from analytic_secagg.errors import FederationError
from analytic_secagg.modes import find_mode
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.admission import admit, check_budget
from analytic_secagg.site.disk import check_state
from analytic_secagg.site.errors import DeclinedError
from analytic_secagg.site.parties import client_of, coarse_columns, cure_of_coarse_columns
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.session import Session, config_of
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import ClientRole, SiteFile
from secagg import IntVector, PartySecrets, SumResult, new_session_id
from secagg.errors import SecureSumError
from secagg.primitives.identity import IdentityKey
from secagg.sums import CLIENT_ROLE

LINK_SECONDS = 10.0
"""How long a server is waited for."""

REFUSALS = (FederationError, AnalyticError, SecureSumError, OSError, MemoryError)
"""What a site can meet in a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """A run as one site would take part in it.

    Args:
        file: the site's own file.
        settings: the run's public settings.
    """

    file: SiteFile
    settings: RunSettings

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Yield what each sum of the run comes to at this site, up to the first one that cannot be."""
        try:
            self.settings.check_roster(self.file.roster)
            federation = self.settings.federation(self.file.roster, has_gates=False)
        except REFUSALS as error:
            yield "run", fail(f"its settings do not fit this site's roster: {error}")
            return
        learner = federation.learner
        while federation.next_sum is not None:
            number = len(federation.sums) + 1
            place = number if self.settings.in_series else 0
            model = model_to_bytes(learner, federation.model)
            joined = self._joined(model, learner.name, place, asks_query_log=number == 1)
            if isinstance(joined, Finding):
                yield f"sum {number}", joined
                return
            vector, finding = joined
            yield f"sum {number}", finding
            if vector is None or (self.settings.n_sums == 1 and not self.settings.evaluate):
                return
            try:
                federation.take(SumResult(total=vector, survivors=(1,)))
            except AnalyticError as error:
                yield (
                    "rest",
                    warn(f"not tried: what follows needs the total of all sites, and of these rows alone {error}"),
                )
                return
        if self.settings.evaluate and self.file.client is not None:
            yield from self._evaluation(learner, federation.model)

    def _evaluation(self, learner: Any, model: Any) -> Iterator[tuple[str, Finding]]:
        saved = model_from_bytes(model_to_bytes(learner, model))
        try:
            evaluation = model_to_bytes(self.settings.evaluation(saved.learner, saved.model), None)
        except REFUSALS as error:
            yield "evaluation", fail(str(error))
            return
        joined, what = self._joined(evaluation, "the model is judged"), "another model than these rows judged before"
        if not isinstance(joined, Finding) and isinstance(
            refused := self._joined(evaluation, what, asks_query_log=True), Finding
        ):
            joined = warn(refused.text)  # the run's model is not known yet, and may be the same
        yield "evaluation", joined if isinstance(joined, Finding) else joined[1]

    def _joined(
        self, model: bytes, what: str, place: int = 0, *, asks_query_log: bool = False
    ) -> tuple[IntVector | None, Finding] | Finding:
        """Return this site's vector, None where it only helps, and what there is to say; or why it does not join."""
        try:
            file, proposal = self._proposed(model, place)
            session, refusal = admit(file, proposal)
            if refusal:
                raise DeclinedError(refusal)
            check_budget(self.file, session)
            check_state(self.file, session.protocol)
            if (client := file.client) is None:
                return None, ok(f"{what}: this site would help")
            rows = client.rows_for(session.step.learner)
            if asks_query_log:
                Site(self.file).try_rows(session, rows)
            vector = session.step.vector(rows)
            if place < 2:  # a later sum of a series goes on with what the first one left
                signs = client.party in session.protocol.public_keys.get(CLIENT_ROLE, {})
                identity = client.identity if signs else None
                secrets = PartySecrets(identity=identity, data_fingerprint=lambda: bytes(16))
                client_of(session, client.party, vector, secrets).start()
        except REFUSALS as error:
            return fail(f"{what}: {error or type(error).__name__}")
        return vector, _made(client, session, rows, what)

    def _proposed(self, model: bytes, place: int) -> tuple[SiteFile, TrainingProposal]:
        """Return the sum that the server would propose; keys of a run's helpers are drawn here, for this site alone."""
        roster = self.file.roster
        proposal = replace(self.settings.proposal(roster, model, session=new_session_id()), place=place)
        mode = find_mode(proposal.mode)
        if mode.announce is None or mode.helper is None:
            return self.file, proposal
        keys = {party: IdentityKey.generate() for party in proposal.helpers}
        public = {party: key.public for party, key in keys.items()}
        played = roster.model_copy(update={"beside": {**roster.beside, mode.helper.table: public}})
        config = config_of(proposal, played)
        said = {party: mode.announce(config, PartySecrets(identity=key))[0] for party, key in keys.items()}
        return self.file.model_copy(update={"roster": played}), proposal.with_announced(said)


def _made(client: ClientRole, session: Session, rows: ClientRows, what: str) -> Finding:
    size = session.protocol.layout.wire_bytes
    if not len(rows):
        return warn(f"{what}: this site has no rows, and adds nothing")
    if names := coarse_columns(client, session.step, rows):
        return warn(
            f"{what}: {len(rows)} rows fit, and the format keeps less than 8 bits of {', '.join(names)}",
            cure_of_coarse_columns(session.step),
        )
    return ok(f"{what}: {len(rows)} rows make a vector of {size} bytes")


def link(address: str, certificate: Path | None) -> Finding:
    """Return whether a server can be reached and shows a certificate that this host trusts, as the run needs it.

    Args:
        address: HOST:PORT.
        certificate: of the authority that signed the server's, PEM; None for those that the system trusts.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return fail(f"a server is HOST:PORT, not {address!r}")
    try:
        context = ssl.create_default_context(cafile=None if certificate is None else str(certificate))
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host.strip("[]"), int(port)), timeout=LINK_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host.strip("[]")) as secured,
        ):
            return ok(f"{address} answers over {secured.version()} with a certificate for {host}")
    except ssl.SSLCertVerificationError as error:
        return fail(
            f"{address} shows a certificate that this host does not trust: {error.verify_message}",
            "name the authority that the operator gave with --certificate, or have the certificate name this host",
        )
    except socket.gaierror as error:
        return fail(f"no host {host} is known here: {error.strerror}", "correct the address, or the name service")
    except TimeoutError:
        return fail(f"{address} does not answer in {LINK_SECONDS:g} s", "a firewall may drop it: ask for this port")
    except ConnectionRefusedError:
        return fail(f"nothing listens at {address}", "start the server, or correct the port")
    except (OSError, ValueError) as error:  # a file that is no certificate, or a server without TLS
        return fail(f"the link to {address} fails: {error}", "compare address and certificate with the operator's")
