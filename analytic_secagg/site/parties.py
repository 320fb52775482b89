"""A site's parties in one session: state machines of `secagg` that its store keeps between two messages."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import Any

from analytic.learner import ClientRows
from analytic.pipeline import has_agreed_columns
from analytic_secagg.configurations import configuration_digest
from analytic_secagg.federation import Step
from analytic_secagg.site.errors import NoSessionError
from analytic_secagg.site.key_pair import SessionKeyPair
from analytic_secagg.site.offsets import proposed_offset
from analytic_secagg.site.query_log import QueryLog, RunPlace
from analytic_secagg.site.query_log_head import QueryLogHead
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import ClientRole, OwnRole, SiteFile
from analytic_secagg.site.store import SessionStore
from secagg import ClientSession, IntVector, PartyId, PartySecrets
from secagg.committee import KeyRotation
from secagg.durable import DurableClient, Store
from secagg.sessions import ClientInput
from secagg.sums import CLIENT_ROLE

LOG = logging.getLogger("analytic_secagg.site")

KEY_PAIR = "key pair"
"""Purpose of the key that seals a ``SessionKeyPair``."""


def query_log_of(file: SiteFile, store: SessionStore) -> QueryLog:
    """Return a site's query log, with the limits of the site's own file."""
    further, tries = file.journal.further_totals, file.journal.refused_tries
    return QueryLog(store, policy=file.policy, further_totals=further, refused_tries=tries)


def epochs_of(store: SessionStore, own: OwnRole) -> KeyRotation:
    """Return the epochs of one of a site's helpers."""
    return KeyRotation(store.lasting(f"epochs of {own.party}"), own.identity)


def client_of(session: Session, party: PartyId, contribution: ClientInput, secrets: PartySecrets) -> ClientSession:
    """Return the state machine of a client in a sum, which may be one of a series."""
    proposal, config = session.proposal, session.config
    if not proposal.place:
        return session.protocol.client(party, contribution, secrets=secrets)
    series, number = session.mode.series(config), proposal.place - 1
    return series.member(party, number, config.layout, config.context, contribution, secrets=secrets)


def coarse_columns(role: ClientRole, step: Step[Any], rows: ClientRows) -> list[str]:
    """Return the columns of which the sum's format keeps less than 8 bits of these rows, with offsets that help."""
    found = getattr(step.learner, "coarse_columns", None)
    if not len(rows) or found is None:
        return []
    names = role.columns.features if role.columns else tuple(map(str, range(rows.features.shape[1])))
    offsets = {place: proposed_offset(rows.features[:, place]) for place in found(step.model, rows)}
    return [
        names[place] + ("" if offset is None else f" (take {offset:.12g} off)") for place, offset in offsets.items()
    ]


def cure_of_coarse_columns(step: Step[Any]) -> str:
    """Return what to ask for where ``coarse_columns`` finds some; a run whose columns are agreed on has its format."""
    if has_agreed_columns(step.learner.name):
        return "ask for an offset in the schema, and look for codes of missing values with the command profile"
    return 'ask for more fraction bits, for an offset or a scale in the schema, or for feature-format = "agreed"'


@dataclass(frozen=True, slots=True)
class _Counted:
    """A record whose changes the query log's second place counts."""

    record: Store
    head: QueryLogHead

    def load(self) -> bytes | None:
        return self.record.load()

    def save(self, record: bytes) -> None:
        self.head.advance(b"answer", hashlib.sha256(record).digest())
        self.record.save(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteParties:
    """Those of a site's parties that are in a session; as they were left, or fresh.

    Args:
        file: the site.
        store: its sessions; locked.
        session: the sum, which the site has agreed to.
        now: the second since 1970.
        has_client: whether its client takes part.
    """

    file: SiteFile
    store: SessionStore
    session: Session
    now: float
    has_client: bool = True

    def restore(self) -> dict[PartyId, DurableClient]:
        """Return each party's state machine.

        Raises:
            NoSessionError: what opens that which is sealed to a helper in this session is not here.
            SnapshotError: what was stored does not open.
        """
        client, protocol, parties = self.file.client, self.session.protocol, dict[PartyId, DurableClient]()
        if self.has_client and client is not None and client.party in protocol.clients:
            parties[client.party] = self._durable(self._client(client))
        for own in self.file.helpers:
            if own.role == self.session.mode.helper and own.party in protocol.helpers:
                holds_key = self.session.mode.announce is not None and not own.role.has_epochs
                parties[own.party] = self._durable(self._helper(own), counts=holds_key)
        return parties

    def try_rows(self, rows: ClientRows) -> None:
        """Refuse rows that the query log would not let into this sum; the store is a copy.

        Raises:
            ConsentRefusedError: says what was needed, what came and what the owner can do.
        """
        query_log_of(self.file, self.store).try_beforehand(self.session.protocol, rows, self._run_place)

    def _durable(self, machine: ClientSession, *, counts: bool = False) -> DurableClient:
        """Seal a party's state under this site's own key, and store it after each message.

        Args:
            machine: the party.
            counts: whether the query log's second place counts each answer, as it must of a key holder: an older copy
                of its state would decrypt a sum that it certified to have failed, or certify one that it decrypted.
        """
        party, session = machine.party, self.session.proposal.session
        key, record = self.file.state_key(f"record of {party}", session), self.store.record(session, party)
        return DurableClient(_Counted(record, self.store.query_log_head) if counts else record, key, machine)

    def _client(self, role: ClientRole) -> ClientSession:
        protocol, log = self.session.protocol, query_log_of(self.file, self.store)
        signs = role.party in protocol.public_keys.get(CLIENT_ROLE, {})
        secrets = PartySecrets(
            identity=role.identity if signs else None,
            data_fingerprint=lambda: log.rows_of(protocol),
            consent=log.consent,
            on_receipt=self.file.kept.keep_receipt,
        )

        def contribution() -> IntVector:
            return self._vector(role, log)

        return client_of(self.session, role.party, contribution, secrets)

    def _vector(self, role: ClientRole, log: QueryLog) -> IntVector:
        """Return the client's vector, which then leaves.

        The query log lets it pass first. Its noise is paid before it leaves, and whoever is made to draw another one
        pays again. Who says nothing after its vector is asked for its consent now: a refused total costs nothing.
        """
        protocol, step, place = self.session.protocol, self.session.step, self._run_place
        rows = role.rows_for(step.learner)
        log.note(protocol, rows, place)
        log.check(protocol)
        with log.computing(protocol, place):
            self._warn_of_coarse_columns(role, rows)
            vector = step.vector(rows)
        if not protocol.guarantee.messages_after_vector:
            log.consent(protocol, None)
        step.charge(self.file.ledger, session_id=protocol.digest)
        return vector

    def _warn_of_coarse_columns(self, role: ClientRole, rows: ClientRows) -> None:
        """Say by name, in the site's own log, which of its columns the sum's format hardly holds."""
        step = self.session.step
        if names := coarse_columns(role, step, rows):
            LOG.warning(
                "%s keeps less than 8 bits of %d of %d columns of this site's rows: %s; %s",
                step.learner.name,
                len(names),
                rows.features.shape[1],
                ", ".join(names),
                cure_of_coarse_columns(step),
            )

    @property
    def _run_place(self) -> RunPlace:
        """The sum's place in its run, by what the server says of the run and the model of itself."""
        proposal, step = self.session.proposal, self.session.step
        return RunPlace(
            session=proposal.session,
            previous=proposal.previous,
            configuration=configuration_digest(step.learner),
            computed=hashlib.sha256(step.received).digest(),
            has_noise=step.noise is not None,
            grown=len(step.received),
        )

    def _helper(self, own: OwnRole) -> ClientSession:
        session, boxes, decryption = self.session.proposal.session, None, b""
        if own.role.has_epochs:
            current = epochs_of(self.store, own).current(self.now)
            if current is None or current[0].to_bytes() != self.session.config.announced[own.party]:
                raise NoSessionError(
                    "this sum is sealed to a key of this helper's whose epoch is over; it opens no more"
                )
            boxes = current[1]
        elif self.session.mode.announce is not None:
            pair = SessionKeyPair.load(self.store.key_pair(session), self.file.state_key(KEY_PAIR, session))
            if pair is None:
                raise NoSessionError(
                    "the key pair of this session is not here; the server asks for it first, or it was lost"
                )
            decryption = pair.decryption
        secrets = PartySecrets(
            identity=own.identity,
            boxes=boxes,
            decryption=decryption,
            consent=query_log_of(self.file, self.store).consent_to_help,
        )
        return self.session.protocol.helper(own.party, secrets=secrets)
