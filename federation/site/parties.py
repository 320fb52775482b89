"""A site's parties in one sum: each a session of `secagg` that lies in the site's own folder between two messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from federation.site.errors import NoSessionError
from federation.site.invitation import Agreement
from federation.site.key_pair import SessionKeyPair
from federation.site.site_file import ClientRole, OwnRole, SiteFile
from federation.site.state import SessionFolder
from secagg import ClientSession, IntVector, PartyId, PartySecrets
from secagg.durable import DurableClient
from secagg.masked.series import SeriesClient
from secagg.masked.series_snapshots import restore_series_client, snapshot_series_client
from secagg.sessions import Contribution
from secagg.sums import CLIENT_ROLE

KEY_PAIR = "key pair"
"""What the key is for that seals a ``SessionKeyPair``."""


def parties_of(file: SiteFile, folder: SessionFolder, agreement: Agreement) -> dict[PartyId, DurableClient]:
    """The sessions of those of a site's parties that are in this sum; as they were left, or fresh.

    Args:
        file: the site.
        folder: its sessions; locked.
        agreement: the sum, which the site has agreed to.

    Raises:
        NoSessionError: the key holder's key pair for this session is not here.
        SnapshotError: what was stored does not open.
    """
    kept, protocol, sessions = _Kept(file, folder, agreement.terms.session), agreement.protocol, {}
    if file.client is not None and file.client.party in protocol.clients:
        sessions[file.client.party] = _client(kept, agreement, file.client)
    for own in file.helpers:
        if own.role == agreement.mode.helper and own.party in protocol.helpers:
            sessions[own.party] = _helper(kept, agreement, own)
    return sessions


@dataclass(frozen=True, slots=True)
class _Kept:
    """Where and under which keys a site keeps one session."""

    file: SiteFile
    folder: SessionFolder
    session: bytes

    def durable(
        self,
        party: PartyId,
        *,
        fresh: Callable[[], ClientSession],
        restore: Callable[[bytes, bytes], ClientSession],
        snapshot: Callable[[ClientSession, bytes], bytes],
    ) -> DurableClient:
        """A party's session; ``restore`` and ``snapshot`` get the key for it."""
        key = self.file.state_key(f"snapshot of {party}", self.session)
        return DurableClient(
            self.folder.store(self.session, party),
            self.file.state_key(f"record of {party}", self.session),
            fresh=fresh,
            restore=lambda stored: restore(stored, key),
            snapshot=lambda session: snapshot(session, key),
        )


def _client(kept: _Kept, agreement: Agreement, role: ClientRole) -> DurableClient:
    protocol, party = agreement.protocol, role.party
    signs = party in protocol.public_keys.get(CLIENT_ROLE, {})
    secrets = PartySecrets(identity=role.identity if signs else None)

    def contribution() -> IntVector:
        return agreement.step.vector(role.rows())

    if agreement.terms.place:
        return _series_client(kept, agreement, party, secrets, contribution)
    return kept.durable(
        party,
        fresh=lambda: protocol.client(party, contribution, secrets=secrets),
        restore=lambda stored, key: protocol.restore_client(party, contribution, stored, key, secrets=secrets),
        snapshot=protocol.snapshot_client,
    )


def _series_client(
    kept: _Kept, agreement: Agreement, party: PartyId, secrets: PartySecrets, vector: Contribution
) -> DurableClient:
    setup = agreement.setup
    series = agreement.mode.series(setup)

    def fresh() -> SeriesClient:
        client = series.client(party, secrets=secrets)
        client.begin_sum(setup.layout, setup.context, vector)
        return client

    def restore(stored: bytes, key: bytes) -> SeriesClient:
        return restore_series_client(
            series,
            party,
            stored,
            key,
            number=agreement.terms.place - 1,
            layout=setup.layout,
            context=setup.context,
            contribution=vector,
            secrets=secrets,
        )

    return kept.durable(party, fresh=fresh, restore=restore, snapshot=snapshot_series_client)


def _helper(kept: _Kept, agreement: Agreement, own: OwnRole) -> DurableClient:
    protocol, secrets = agreement.protocol, own.secrets
    if agreement.mode.announce is not None:
        pair = SessionKeyPair.load(kept.folder.key_pair(kept.session), kept.file.state_key(KEY_PAIR, kept.session))
        if pair is None:
            raise NoSessionError(
                "the key pair of this session is not here; the server asks for it first, or it was lost"
            )
        secrets = replace(secrets, decryption=pair.decryption)
    return kept.durable(
        own.party,
        fresh=lambda: protocol.helper(own.party, secrets=secrets),
        restore=lambda stored, key: protocol.restore_helper(own.party, stored, key, secrets=secrets),
        snapshot=protocol.snapshot_helper,
    )
