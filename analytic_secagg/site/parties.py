"""A site's parties in one sum: each a session of `secagg` that lies in the site's own folder between two messages."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

from analytic.learner import ClientRows
from analytic_secagg.configurations import configuration_digest
from analytic_secagg.site.errors import NoSessionError
from analytic_secagg.site.key_pair import SessionKeyPair
from analytic_secagg.site.query_log import QueryLog, RunPlace
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import ClientRole, OwnRole, SiteFile
from analytic_secagg.site.store import SessionStore
from secagg import ClientSession, IntVector, PartyId, PartySecrets
from secagg.committee import OwnEpochs
from secagg.durable import DurableClient
from secagg.sums import CLIENT_ROLE

LOG = logging.getLogger("analytic_secagg.site")

KEY_PAIR = "key pair"
"""What the key is for that seals a ``SessionKeyPair``."""


def parties_of(
    file: SiteFile, folder: SessionStore, session: Session, now: float, *, has_client: bool = True
) -> dict[PartyId, DurableClient]:
    """The sessions of those of a site's parties that are in this sum; as they were left, or fresh.

    Args:
        file: the site.
        folder: its sessions; locked.
        session: the sum, which the site has agreed to.
        now: the second since 1970.
        has_client: whether its client takes part.

    Raises:
        NoSessionError: what opens that which is sealed to a helper in this session is not here.
        SnapshotError: what was stored does not open.
    """
    kept, protocol, parties = _Kept(file, folder, session.proposal.session), session.protocol, {}
    if has_client and file.client is not None and file.client.party in protocol.clients:
        parties[file.client.party] = _client(kept, session, file.client)
    for own in file.helpers:
        if own.role == session.mode.helper and own.party in protocol.helpers:
            parties[own.party] = _helper(kept, session, own, now)
    return parties


def query_log_of(file: SiteFile, folder: SessionStore) -> QueryLog:
    """What a site's rows and its help have been given to, held to its own file."""
    allowed = file.journal
    return QueryLog(
        folder, policy=file.policy, further_totals=allowed.further_totals, refused_tries=allowed.refused_tries
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """Where and under which keys a site keeps one session."""

    file: SiteFile
    folder: SessionStore
    session: bytes

    @property
    def journal(self) -> QueryLog:
        """What the site's rows and its help have been given to."""
        return query_log_of(self.file, self.folder)

    def durable(self, session: ClientSession) -> DurableClient:
        """A party's session, sealed under this site's own key."""
        party = session.party
        key = self.file.state_key(f"record of {party}", self.session)
        return DurableClient(self.folder.store(self.session, party), key, session)


def _client(kept: _Kept, session: Session, role: ClientRole) -> DurableClient:
    protocol, party = session.protocol, role.party
    signs = party in protocol.public_keys.get(CLIENT_ROLE, {})
    secrets = PartySecrets(
        identity=role.identity if signs else None,
        rows=lambda: kept.journal.rows_of(protocol),
        consent=kept.journal.consent,
        keep=kept.file.kept.keep_receipt,
    )

    def contribution() -> IntVector:
        """What leaves; its noise is paid first, and whoever is made to draw another one pays again.

        Who says nothing after its vector is asked for its consent now: a total that is refused costs nothing.
        """
        rows = role.rows_for(session.step.learner)
        place, speaks_later = _run_place(session), protocol.guarantee.messages_after_vector
        kept.journal.note(protocol, rows, place)
        kept.journal.check(protocol)
        with kept.journal.computing(protocol, place):
            _warn_of_coarse_columns(role, session, rows)
            vector = session.step.vector(rows)
        if not speaks_later:
            kept.journal.consent(protocol, None)
        session.step.charge(kept.file.ledger, session_id=protocol.digest)
        return vector

    if not session.proposal.place:
        return kept.durable(protocol.client(party, contribution, secrets=secrets))
    config, series = session.config, session.mode.series(session.config)
    number = session.proposal.place - 1
    return kept.durable(series.member(party, number, config.layout, config.context, contribution, secrets=secrets))


def _warn_of_coarse_columns(role: ClientRole, session: Session, rows: ClientRows) -> None:
    """Say by name, in the site's own log, which of its columns the sum's format hardly holds."""
    step = session.step
    found = getattr(step.learner, "coarse_columns", None)
    if len(rows) and found and (places := found(step.model, rows)):
        n_columns = rows.features.shape[1]
        names = role.columns.features if role.columns else tuple(map(str, range(n_columns)))
        LOG.warning(
            "%s keeps less than 8 bits of %d of %d columns of this site's rows: %s; ask for more fraction bits, for "
            'scales in the schema, or for feature-format = "agreed"',
            step.learner.name,
            len(places),
            n_columns,
            ", ".join(names[place] for place in places),
        )


def _run_place(session: Session) -> RunPlace:
    """Where the sum stands in its run, by what the server says of the run and what the model says of itself."""
    proposal, step = session.proposal, session.step
    return RunPlace(
        session=proposal.session,
        previous=proposal.previous,
        configuration=configuration_digest(step.learner),
        computed=hashlib.sha256(step.received).digest(),
        has_noise=step.noise is not None,
        grown=len(step.received),
    )


def epochs_of(folder: SessionStore, own: OwnRole) -> OwnEpochs:
    """The epochs of one of a site's helpers."""
    return OwnEpochs(folder.lasting(f"epochs of {own.party}"), own.identity)


def _helper(kept: _Kept, session: Session, own: OwnRole, now: float) -> DurableClient:
    boxes, decryption = None, b""
    if own.role.has_epochs:
        current = epochs_of(kept.folder, own).current(now)
        if current is None or current[0].to_bytes() != session.config.announced[own.party]:
            raise NoSessionError("this sum is sealed to a key of this helper's whose epoch is over; it opens no more")
        boxes = current[1]
    elif session.mode.announce is not None:
        pair = SessionKeyPair.load(kept.folder.key_pair(kept.session), kept.file.state_key(KEY_PAIR, kept.session))
        if pair is None:
            raise NoSessionError(
                "the key pair of this session is not here; the server asks for it first, or it was lost"
            )
        decryption = pair.decryption
    secrets = PartySecrets(
        identity=own.identity, boxes=boxes, decryption=decryption, consent=kept.journal.consent_to_help
    )
    return kept.durable(session.protocol.helper(own.party, secrets=secrets))
