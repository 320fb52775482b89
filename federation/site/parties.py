"""A site's parties in one sum: each a session of `secagg` that lies in the site's own folder between two messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from federation.site.errors import NoSessionError
from federation.site.invitation import Agreement
from federation.site.key_pair import SessionKeyPair
from federation.site.modes import Basis, Encrypted
from federation.site.site_file import ClientRole, HelperRole, SiteFile
from federation.site.state import SessionFolder
from secagg import ClientSession, CommitteeSum, IntVector, MaskedSum, PartyId, PlainSum
from secagg.durable import DurableClient
from secagg.masked.series import SeriesClient
from secagg.masked.series_snapshots import restore_series_client, snapshot_series_client
from secagg.sessions import Contribution

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
    kept, protocol, sessions = _Kept(file, folder, agreement.basis.terms.session), agreement.protocol, {}
    if file.client is not None and file.client.party in protocol.clients:
        sessions[file.client.party] = _client(kept, agreement, file.client)
    if isinstance(protocol, CommitteeSum) and file.helper and file.helper.party in dict(protocol.helper_keys):
        sessions[file.helper.party] = _helper(kept, protocol, file.helper)
    if isinstance(protocol, Encrypted) and file.key_holder and file.key_holder.party == protocol.key_holder:
        sessions[file.key_holder.party] = _key_holder(kept, protocol)
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
    signing: dict[str, Any] = {"identity": role.identity} if isinstance(protocol, MaskedSum | CommitteeSum) else {}

    def contribution() -> IntVector:
        return agreement.step.vector(role.rows())

    if agreement.basis.terms.place:
        return _series_client(kept, agreement.basis, role, contribution)

    def fresh() -> ClientSession:
        return protocol.client(party, contribution, **signing)

    if isinstance(protocol, PlainSum):
        # It says one thing, which lies beside its state, and is asked nothing: there is no state.
        return kept.durable(party, fresh=fresh, restore=lambda stored, key: fresh(), snapshot=lambda session, key: b"")
    return kept.durable(
        party,
        fresh=fresh,
        restore=lambda stored, key: protocol.restore_client(party, contribution, stored, key, **signing),
        snapshot=protocol.snapshot_client,
    )


def _series_client(kept: _Kept, basis: Basis, role: ClientRole, vector: Contribution) -> DurableClient:
    def fresh() -> SeriesClient:
        client = SeriesClient(basis.series, role.party, identity=role.identity)
        client.begin_sum(basis.layout, basis.context, vector)
        return client

    def restore(stored: bytes, key: bytes) -> SeriesClient:
        return restore_series_client(
            basis.series,
            role.party,
            stored,
            key,
            number=basis.terms.place - 1,
            layout=basis.layout,
            context=basis.context,
            contribution=vector,
            identity=role.identity,
        )

    return kept.durable(role.party, fresh=fresh, restore=restore, snapshot=snapshot_series_client)


def _helper(kept: _Kept, protocol: CommitteeSum, role: HelperRole) -> DurableClient:
    return kept.durable(
        role.party,
        fresh=lambda: protocol.helper(role.party, role.keys),
        restore=lambda stored, key: protocol.restore_helper(role.party, role.keys, stored, key),
        snapshot=protocol.snapshot_helper,
    )


def _key_holder(kept: _Kept, protocol: Encrypted) -> DurableClient:
    pair = SessionKeyPair.load(kept.folder.key_pair(kept.session), kept.file.state_key(KEY_PAIR, kept.session))
    if pair is None:
        raise NoSessionError("the key pair of this session is not here; the server asks for it first, or it was lost")
    unlocked = replace(protocol, secret_context=pair.secret_context)
    return kept.durable(
        protocol.key_holder,
        fresh=lambda: unlocked.helpers()[protocol.key_holder],
        restore=unlocked.restore_helper,
        snapshot=unlocked.snapshot_helper,
    )
