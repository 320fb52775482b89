"""A client's side of a series as bytes, so that its process may die between two messages of any of its sums.

Sealed, for it holds the secrets of this sum and of the next one's set-up. Store it before the answer that led to it
leaves (``DurableClient`` keeps that order), and wipe it with the series.
"""

from __future__ import annotations

from secagg.entropy import Entropy, os_entropy
from secagg.errors import LocalProtocolError, SnapshotError
from secagg.layout import Layout
from secagg.masked.client import MaskedClient
from secagg.masked.protocol import MaskedSum
from secagg.masked.series import NOT_YET, MaskedSeries, SeriesClient
from secagg.masked.snapshots import restore_client, snapshot_client
from secagg.sessions import ClientSession, Contribution, PartyId
from secagg.snapshots import CLIENT, opened_snapshot, seal_snapshot
from secagg.sums import NO_SECRETS, PartySecrets


def snapshot_series_client(client: ClientSession, key: bytes, *, entropy: Entropy = os_entropy) -> bytes:
    """A client's side of a series, sealed.

    Args:
        client: at least its first sum has begun.
        key: 32 bytes that only this client's owner knows.
        entropy: where the seals' nonces come from.
    """
    if not isinstance(client, SeriesClient):
        raise LocalProtocolError(f"this is no client of a series: {type(client).__name__}")
    parts = [snapshot_client(c, key, entropy=entropy) if c else b"" for c in (client._current, client._next)]
    body = client._index.to_bytes(8, "big") + b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return seal_snapshot(CLIENT, client._series.sum(0, NOT_YET, b""), client.party, body, key, entropy=entropy)


def restore_series_client(
    series: MaskedSeries,
    party: PartyId,
    snapshot: bytes,
    key: bytes,
    *,
    number: int,
    layout: Layout,
    context: bytes,
    contribution: Contribution,
    secrets: PartySecrets = NO_SECRETS,
    entropy: Entropy = os_entropy,
) -> SeriesClient:
    """The client that a snapshot holds, in the sum of a number: one that was running, or the one that begins now.

    Args:
        series: the same parameters.
        party: the same client.
        snapshot: what ``snapshot_series_client`` gave, in this sum or in the one before.
        key: the key it was sealed with.
        number: the sum's, from 0.
        layout: of this sum's vectors.
        context: of this sum.
        contribution: the vector; not needed any more once it was sent.
        secrets: the same signing key.
        entropy: where keys and seeds come from that are not drawn yet.

    Raises:
        SnapshotError: another client, series, key or sum, or changed bytes.
    """
    client = SeriesClient(series, party, secrets=secrets, entropy=entropy)
    with opened_snapshot(CLIENT, series.sum(0, NOT_YET, b""), party, snapshot, key) as reader:
        client._index = int.from_bytes(reader.take(8), "big")
        current, upcoming = reader.take(reader.number()), reader.take(reader.number())
    if client._index not in (number, number - 1):
        raise SnapshotError(f"this snapshot is of sum {client._index} of its series; it does not lead to sum {number}")

    def restored(config: MaskedSum, vector: Contribution | None, part: bytes) -> MaskedClient:
        return restore_client(config, party, vector, part, key, secrets=secrets, entropy=entropy)

    if upcoming:
        client._next = restored(series.sum(client._index + 1, NOT_YET, b""), None, upcoming)
    if client._index < number:
        client.begin_sum(layout, context, contribution)
    elif current:
        client._current = restored(series.sum(number, layout, context), contribution, current)
    return client
