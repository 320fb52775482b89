"""Sessions as bytes, so that a process may die between two messages and another one goes on.

A client's snapshot is sealed under a key that its owner gives: it holds the session's secrets. A server's is not
sealed, but holds revealed shares and the masked sum: keep it where only the server can read.

    magic 4 | version 1 | role 1 | configuration digest 32 | party 4 | body (sealed for a client)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from secagg.entropy import Entropy, os_entropy
from secagg.masked.client import ClientSecrets, MaskedClient
from secagg.masked.messages import (
    AdvertisedKeys,
    SealedShares,
    UnmaskShares,
)
from secagg.masked.server import MaskedServer
from secagg.masked.states import ClientState
from secagg.primitives.agreement import PUBLIC_KEY_BYTES, SECRET_KEY_BYTES, KeyPair
from secagg.primitives.identity import SIGNATURE_BYTES
from secagg.primitives.shamir import SHARE_BYTES
from secagg.sessions import Contribution, PartyId, SumResult
from secagg.snapshots import (
    CLIENT,
    HASH_BYTES,
    MAGIC,
    VERSION,
    hash_snapshot,
    opened_snapshot,
    read_round,
    seal_snapshot,
    server_snapshot,
    write_round,
)
from secagg.sums import NO_SECRETS, PartySecrets
from secagg.wire import Reader, write_entries, write_parties

if TYPE_CHECKING:
    from secagg.masked.protocol import MaskedSum

__all__ = ["MAGIC", "VERSION", "restore_client", "restore_server", "snapshot_client", "snapshot_server"]

_STATES = list(ClientState)
_PARTY_BYTES = 4


def snapshot_client(client: MaskedClient, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
    """A client's session, sealed.

    Store it *before* the answer that led to it leaves: a client that is restored from an older snapshot would answer
    a second time, which the protocol forbids (``DurableClient`` keeps that order).

    Args:
        client: the session; one that is done or aborted has no secrets left, but still refuses repetitions.
        key: 32 bytes that only this client's owner knows.
        entropy: where the seal's nonce comes from.
    """
    own = client._secrets
    secrets = (
        b"\0"
        if own is None
        else b"\1"
        + own.sealing.secret
        + own.masking.secret
        + own.self_mask_seed.ljust(32, b"\0")
        + write_entries(own.shares)
    )
    body = (
        bytes([_STATES.index(client.state)])
        + secrets
        + write_entries({party: keys.to_payload() for party, keys in client._roster.items()})
        + write_parties(client._dropouts)
        + len(client._taken).to_bytes(4, "big")
        + b"".join(sorted(client._taken))
    )
    return seal_snapshot(CLIENT, client._config, client.party, body, key, entropy=entropy)


def restore_client(
    config: MaskedSum,
    party: PartyId,
    contribution: Contribution | None,
    snapshot: bytes,
    key: bytes,
    *,
    secrets: PartySecrets = NO_SECRETS,
    entropy: Entropy = os_entropy,
) -> MaskedClient:
    """The session that a snapshot holds.

    Args:
        config: the same parameters.
        party: the same client.
        contribution: the same vector; not needed once the masked vector was sent.
        snapshot: what ``snapshot_client`` gave.
        key: the key it was sealed with.
        secrets: the same signing key.
        entropy: where keys and seeds come from that are not drawn yet.

    Raises:
        SnapshotError: another client, session or key, or changed bytes.
    """
    client = MaskedClient(config, party, contribution, secrets=secrets, entropy=entropy)
    with opened_snapshot(CLIENT, config, party, snapshot, key) as reader:
        client.state = _STATES[reader.take(1)[0]]
        client._secrets = _read_secrets(reader, client.state)
        client._roster = _read_keys(reader, config)
        client._dropouts = frozenset(reader.entries(0))
        client._taken = {reader.take(HASH_BYTES) for _ in range(reader.number())}
    if client.state in (ClientState.INPUT_SENT, ClientState.SURVIVORS_SIGNED):
        client._contribution = None
    return client


def snapshot_server(server: MaskedServer) -> bytes:
    """A server's session: the round, what arrived, and the sum so far."""
    body = [
        write_round(server._round),
        write_entries({party: keys.to_payload() for party, keys in server._keys.items()}),
        _write_parts({party: message.to_payload() for party, message in server._sealed.items()}),
        write_parties(server._survivors),
        write_entries(server._signatures),
        _write_parts({party: message.to_payload() for party, message in server._revealed.items()}),
        len(server._transcript).to_bytes(1, "big") + b"".join(server._transcript),
        bytes([server.result is not None]),
        server._sum.to_snapshot(),
    ]
    return hash_snapshot(server._config, b"".join(body))


def restore_server(config: MaskedSum, snapshot: bytes) -> MaskedServer:
    """The session that a snapshot holds.

    Raises:
        SnapshotError: another session, or changed bytes.
    """
    server = MaskedServer(config)
    with server_snapshot(config, snapshot) as reader:
        round_ = read_round(reader, server._digest)
        server._keys = _read_keys(reader, config)
        server._public_keys = {k for keys in server._keys.values() for k in (keys.sealing_key, keys.masking_key)}
        server._sealed = _read_parts(reader, SealedShares.read)
        server._survivors = frozenset(reader.entries(0))
        server._signatures = reader.entries(SIGNATURE_BYTES)
        server._revealed = _read_parts(reader, UnmaskShares.read)
        server._transcript = [reader.take(HASH_BYTES) for _ in range(reader.take(1)[0])]
        has_result = reader.take(1) == b"\1"
        server._sum.read_snapshot(reader)
    server._round = round_
    if has_result:
        server._result = SumResult(total=server._sum.words.decode(), survivors=tuple(sorted(server._survivors)))
    return server


def _read_secrets(reader: Reader, state: ClientState) -> ClientSecrets | None:
    if reader.take(1) == b"\0":
        return None
    sealing, masking = KeyPair(reader.take(SECRET_KEY_BYTES)), KeyPair(reader.take(SECRET_KEY_BYTES))
    seed, shares = reader.take(32), reader.entries(2 * SHARE_BYTES)
    drawn = state not in (ClientState.READY, ClientState.KEYS_SENT)
    return ClientSecrets(sealing=sealing, masking=masking, self_mask_seed=seed if drawn else b"", shares=shares)


def _read_keys(reader: Reader, config: MaskedSum) -> dict[PartyId, AdvertisedKeys]:
    entry_bytes = 2 * PUBLIC_KEY_BYTES + (SIGNATURE_BYTES if config.is_authenticated else 0)
    return {party: AdvertisedKeys.parse(entry) for party, entry in reader.entries(entry_bytes).items()}


def _write_parts(parts: Mapping[PartyId, bytes]) -> bytes:
    """Entries of different lengths."""
    return len(parts).to_bytes(4, "big") + b"".join(
        party.to_bytes(_PARTY_BYTES, "big") + len(part).to_bytes(4, "big") + part for party, part in parts.items()
    )


def _read_parts(reader: Reader, read: Any) -> dict[PartyId, Any]:
    parts = {}
    for _ in range(reader.number()):
        party, size = reader.number(), reader.number()
        parts[party] = read(Reader(memoryview(reader.take(size)), peer=party))
    return parts
