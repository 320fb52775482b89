"""A site's side of a sum: invitation in, message out; request in, answer out. It knows no transport."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from analytic.statistics import IntVector
from secagg import ClientSession, MaskedSum, PartyId, SumProtocol
from secagg.committee import CommitteeSum
from secagg.durable import DurableClient
from secagg.errors import ConfigurationError, PolicyError
from simulations.flower.errors import DeclinedError, NoSessionError
from simulations.flower.invitation import Agreement, Invitation, Terms
from simulations.flower.site_file import ClientRole, HelperRole, SiteFile
from simulations.flower.state import SessionFolder, SpeaksOnce

R = TypeVar("R")

Messages = Mapping[PartyId, bytes]
"""What parties say or are told; empty bytes say that a party is here and has nothing to say yet."""


class Site:
    """One site. Every call may come in a new process: what lasts lies in the site's own folder.

    Args:
        file: what the site believes.
        now: the time in seconds of the epoch.
    """

    def __init__(self, file: SiteFile, *, now: Callable[[], float] = time.time) -> None:
        self._file, self._now = file, now
        self._folder = SessionFolder(file.state)

    def join(self, invitation: Invitation) -> Messages:
        """The first messages of this site's parties in a sum; the same ones if it was asked before.

        Raises:
            DeclinedError: the site's own file forbids it, or it has no part in this sum.
            NoSessionError: the session id was used before.
        """
        with self._folder.locked():
            self._folder.end_older_than(self._now() - 3600 * self._file.forget_hours)
            agreement = self._agree(invitation)
            previous = Terms.from_bytes(invitation.terms).previous
            if previous in self._folder.running():
                self._folder.end(previous)
            self._folder.begin(invitation)
            sessions = self._sessions(agreement)
            return {party: session.start() or b"" for party, session in sessions.items()}

    def answer(self, session: bytes, requests: Messages) -> Messages:
        """The answers to the server's requests; the same ones if this was asked last.

        Raises:
            NoSessionError: no such session is running, or a party that this site is not.
            SecureSumError: the server broke the protocol.
        """
        with self._folder.locked():
            invitation = self._folder.invitation(session)
            sessions = self._sessions(self._agree(invitation))
            if not requests.keys() <= sessions.keys():
                raise NoSessionError("this site is asked for a party that it is not in this session")
            return {party: sessions[party].receive(message) or b"" for party, message in requests.items()}

    def end(self, session: bytes) -> None:
        """Forget a session's secrets; one that is not running is left as it is."""
        with self._folder.locked():
            if session in self._folder.running():
                self._folder.end(session)

    def _agree(self, invitation: Invitation) -> Agreement:
        """The agreement, if this site's own file allows it."""
        try:
            agreement = invitation.agree(self._file.roster)
            self._file.policy.check(agreement.protocol)
        except (ConfigurationError, PolicyError) as error:
            raise DeclinedError(str(error)) from error
        client = self._file.client
        if client is not None and agreement.learner.name not in client.learners:
            raise DeclinedError(
                f"this site contributes to {', '.join(sorted(client.learners))} only, not to {agreement.learner.name}"
            )
        return agreement

    def _sessions(self, agreement: Agreement) -> dict[PartyId, DurableClient]:
        protocol, sessions = agreement.protocol, {}
        client, helper = self._file.client, self._file.helper
        if client is not None and client.party in protocol.clients:
            sessions[client.party] = self._client_session(agreement, client)
        if helper is not None and isinstance(protocol, CommitteeSum) and helper.party in dict(protocol.helper_keys):
            sessions[helper.party] = self._helper_session(protocol, helper)
        if not sessions:
            raise DeclinedError("this site has no part in this sum: neither its client nor its helper is in its terms")
        return sessions

    def _client_session(self, agreement: Agreement, role: ClientRole) -> DurableClient:
        def contribution() -> IntVector:
            return agreement.spec.to_vector(agreement.learner.client_statistics(agreement.model, role.rows()))

        protocol, party = agreement.protocol, role.party
        if isinstance(protocol, MaskedSum):
            return self._masked_session(protocol, role, contribution)

        def fresh() -> ClientSession:
            if isinstance(protocol, CommitteeSum):
                return protocol.client(party, contribution, identity=role.identity)
            return protocol.client(party, contribution)

        return self._speaks_once(protocol, party, fresh)

    def _masked_session(
        self, protocol: MaskedSum, role: ClientRole, contribution: Callable[[], IntVector]
    ) -> DurableClient:
        party, identity = role.party, role.identity
        key = self._file.state_key("snapshot", protocol.session_id)
        return DurableClient(
            self._folder.store(protocol.session_id, party),
            self._file.state_key("record", protocol.session_id),
            fresh=lambda: protocol.client(party, contribution, identity=identity),
            restore=lambda snapshot: protocol.restore_client(party, contribution, snapshot, key, identity=identity),
            snapshot=lambda session: protocol.snapshot_client(session, key),
        )

    def _helper_session(self, protocol: CommitteeSum, role: HelperRole) -> DurableClient:
        return self._speaks_once(protocol, role.party, lambda: protocol.helper(role.party, role.keys))

    def _speaks_once(self, protocol: SumProtocol, party: PartyId, fresh: Callable[[], ClientSession]) -> DurableClient:
        session_id: bytes = protocol.session_id  # type: ignore[attr-defined]  # every mode of this app is a SumConfig
        return DurableClient(
            self._folder.store(session_id, party),
            self._file.state_key(f"record of {party}", session_id),
            fresh=lambda: SpeaksOnce(fresh(), party),
            restore=lambda snapshot: SpeaksOnce.restored(snapshot, fresh, party),
            snapshot=lambda session: session.snapshot() if isinstance(session, SpeaksOnce) else b"spoke",
        )
