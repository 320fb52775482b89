"""Every mode as a row of the contracts: to bring a new one under them, add a row to ``ROWS``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
from hypothesis import settings

from secagg import (
    ClientSession,
    CommitteeSum,
    InOneProcess,
    InsecureSeededEntropy,
    IntVector,
    Layout,
    MaskedSum,
    PartyId,
    PlainSum,
    os_entropy,
)
from secagg.dp import CentralNoisySum, DistributedNoise, NoisySum
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.encoder import EncodedSum
from secagg.encryption import encrypted
from secagg.encryption.schemes import SchemeName
from secagg.entropy import Entropy
from secagg.masked.series import MaskedSeries, SeriesMember
from secagg.primitives.boxes import BoxKey
from secagg.receipted_sum import ReceiptedSum, SignedBy
from secagg.sessions import ClientInput, ServerSession
from support.by_hand import ByHand
from support.examples import examples
from support.extras import needs
from support.parties import helps, signed

Make = Callable[[Layout, tuple[int, ...], bytes, bytes], InOneProcess]
"""(layout, clients, session id, context) to public parameters that tolerate a dropout from 4 clients on."""


def plain(layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes) -> InOneProcess:
    return InOneProcess(
        protocol=PlainSum(layout=layout, clients=clients, session_id=session_id, context=context, min_survivors=2)
    )


def masked(layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes) -> InOneProcess:
    threshold = len(clients) // 2 + 1
    protocol = MaskedSum(layout=layout, clients=clients, session_id=session_id, context=context, threshold=threshold)
    return InOneProcess(protocol=protocol)


def masked_with_identities(layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes) -> InOneProcess:
    return signed(masked(layout, clients, session_id, context))


def committee(
    layout: Layout,
    clients: tuple[int, ...],
    session_id: bytes,
    context: bytes,
    *,
    helpers: int = 2,
    corrupt: int | None = None,
) -> InOneProcess:
    numbers = [party for party in range(1, len(clients) + helpers + 1) if party not in clients][:helpers]
    keys = {party: BoxKey.generate(InsecureSeededEntropy(party)) for party in numbers}
    protocol = CommitteeSum(
        layout=layout,
        clients=clients,
        session_id=session_id,
        context=context,
        helper_keys=tuple((party, pair.public) for party, pair in keys.items()),
        min_survivors=2,
        corrupt_helpers=corrupt,
    )
    secrets = {party: helps(pair) for party, pair in keys.items()}
    return InOneProcess(protocol=protocol, secrets=secrets)


def committee_with_identities(
    layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes, **helpers: int
) -> InOneProcess:
    return signed(committee(layout, clients, session_id, context, **helpers))


@lru_cache(maxsize=64)
def over(
    alone: Make, scheme: SchemeName, layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes
) -> InOneProcess:
    """Keys are drawn by the operating system, so the same session must come back when it is asked for again."""
    needs("tenseal")
    protocol = alone(layout, clients, session_id, context).protocol
    assert isinstance(protocol, EncodedSum)
    return encrypted(protocol, scheme)


def receipted(
    alone: Make, by: SignedBy, layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes
) -> InOneProcess:
    """Whatever it lies over; a dropout of four clients leaves the three countersignatures that it takes."""
    under = alone(layout, clients, session_id, context)
    return InOneProcess(protocol=ReceiptedSum(protocol=under.protocol, signed_by=by), secrets=under.secrets)


def noise_of(layout: Layout) -> DistributedNoise:
    """Noise in every coordinate."""
    total = CoordinateNoise(levels=np.ones(layout.size, dtype=np.uint8), variances=(2**8,))
    return DistributedNoise(total=total, min_noise_shares=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownShares(NoisySum):
    """Each client draws its noise from a seed, so that the oracle knows whose noise is in a total."""

    def client(self, party: PartyId, client_input: ClientInput, **own: Any) -> ClientSession:
        return NoisySum.client(replace(self, noise_entropy=InsecureSeededEntropy(party)), party, client_input, **own)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCentral(CentralNoisySum):
    """The server draws its noise from a seed."""

    def server(self, **own: Any) -> ServerSession:
        return CentralNoisySum.server(replace(self, noise_entropy=InsecureSeededEntropy(0)), **own)


def noisy(alone: Make, layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes) -> InOneProcess:
    noise = noise_of(layout)
    under = alone(with_headroom(layout, len(clients), noise), clients, session_id, context)
    return InOneProcess(
        protocol=KnownShares(protocol=under.protocol, layout=layout, noise=noise), secrets=under.secrets
    )


def central(alone: Make, layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes) -> InOneProcess:
    under = alone(layout, clients, session_id, context)
    protocol = KnownCentral(protocol=under.protocol, noise=noise_of(layout).total)
    return InOneProcess(protocol=protocol, secrets=under.secrets)


FIRST = Layout.of([("first", 3, 1000)])
"""Of the sum before a later one."""


@dataclass(frozen=True, kw_only=True)
class SumOfSeries(InOneProcess):
    """One sum of a series, whose sessions are made as often as a test likes.

    A later sum's clients come from what they stored in the sum before, its server from what it was told there.
    """

    series: MaskedSeries
    stored: Mapping[PartyId, bytes]
    said: tuple[Mapping[PartyId, bytes], ...]

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        self._member(party, client_input, entropy).begin()  # which looks at the vector; a session to restore has not
        return self._member(party, client_input, entropy)

    def _member(self, party: PartyId, client_input: ClientInput, entropy: Entropy) -> SeriesMember:
        sum_ = self.protocol
        assert isinstance(sum_, MaskedSum)
        own = {"secrets": self.of_party(party), "entropy": entropy}
        number = int(bool(self.said))
        member = self.series.member(party, number, sum_.layout, sum_.context, client_input, **own)  # type: ignore[arg-type]
        if self.said:
            member.restore(self.stored[party])
        return member

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        server, sum_ = self.series.server(), self.protocol
        assert isinstance(sum_, MaskedSum)
        if self.said:
            first = server.begin_sum(FIRST, b"")
            for said in self.said:
                for party, message in said.items():
                    first.receive(party, message)
                first.close_round()
        return server.begin_sum(sum_.layout, sum_.context)


@lru_cache(maxsize=64)
def first_sum(series: MaskedSeries) -> tuple[Mapping[PartyId, bytes], tuple[Mapping[PartyId, bytes], ...]]:
    """What clients stored at the end of a first sum, and what they said in it."""
    parties = SumOfSeries(protocol=series.sum(0, FIRST, b""), series=series, stored={}, said=())
    hand, said = ByHand(parties, dict.fromkeys(series.clients, np.zeros(3, dtype=np.int64))), []
    while hand.server.result is None:
        said += [dict(hand.said)] if hand.said else []
        hand.go_on()
    return {party: hand.sessions[party].snapshot() for party in series.clients}, tuple(said)


def series(is_later: bool, layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes) -> InOneProcess:
    whole = MaskedSeries(clients=clients, series_id=session_id, threshold=len(clients) // 2 + 1)
    stored, said = first_sum(whole) if is_later else ({}, ())
    return SumOfSeries(protocol=whole.sum(int(is_later), layout, context), series=whole, stored=stored, said=said)


@dataclass(frozen=True)
class Row:
    """One implementation.

    Args:
        make: its public parameters.
        counts_at: how many messages a client must have sent to be in the total.
        max_examples: most examples of a property; encryption costs a hundred times what masks do.
        noise: whose noise is in a total: none, each survivor's ``shares``, or the server's (``central``).
        is_of_series: whether its messages come in bundles, with the next sum's set-up.
        speaks_first: whether clients begin; in later sums of a series the server does.
        adds: whether it sends more than the sum whose costs it states.
    """

    make: Make
    counts_at: int
    max_examples: int = 10**6
    noise: str = ""
    is_of_series: bool = False
    speaks_first: bool = True
    adds: bool = False

    @property
    def stores_its_server(self) -> bool:
        """A server that adds noise would add a second one; one of a series begins a new series."""
        return self.noise != "central" and not self.is_of_series

    def noise_in(self, layout: Layout, survivors: Iterable[PartyId]) -> IntVector:
        """What a total of these clients holds beside their vectors."""
        noise = noise_of(layout)
        if self.noise == "central":
            return noise.total.draw(InsecureSeededEntropy(0))
        shares = [noise.share.draw(InsecureSeededEntropy(party)) for party in survivors if self.noise]
        return np.sum([np.zeros(layout.size, dtype=np.int64), *shares], axis=0)

    @property
    def settings(self) -> settings:
        """A twelfth of the profile's examples for each of eighteen rows, but for ``max_examples``."""
        return examples(12, most=self.max_examples)


ROWS = {
    "plain": Row(plain, counts_at=1),
    "masked": Row(masked, counts_at=3),
    "masked, identities": Row(masked_with_identities, counts_at=3),
    "committee": Row(committee, counts_at=1),
    "committee, identities": Row(committee_with_identities, counts_at=1),
    "committee, 1 of 4, identities": Row(partial(committee_with_identities, helpers=4, corrupt=1), counts_at=1),
    "committee, 2 of 5": Row(partial(committee, helpers=5, corrupt=2), counts_at=1),
    "bfv": Row(partial(over, plain, "bfv"), counts_at=1, max_examples=12),
    "ckks": Row(partial(over, plain, "ckks"), counts_at=1, max_examples=12),
    "masked+bfv": Row(partial(over, masked, "bfv"), counts_at=3, max_examples=12),
    "masked+ckks": Row(partial(over, masked, "ckks"), counts_at=3, max_examples=12),
    "masked, noise": Row(partial(noisy, masked_with_identities), counts_at=3, noise="shares"),
    "committee, noise": Row(partial(noisy, committee_with_identities), counts_at=1, noise="shares"),
    "masked, central noise": Row(partial(central, masked_with_identities), counts_at=3, noise="central"),
    "masked, countersigned": Row(partial(receipted, masked_with_identities, SignedBy.CLIENTS), counts_at=3, adds=True),
    "committee, countersigned": Row(
        partial(receipted, committee_with_identities, SignedBy.HELPERS), counts_at=1, adds=True
    ),
    "series, first sum": Row(partial(series, False), counts_at=3, is_of_series=True),
    "series, later sum": Row(partial(series, True), counts_at=1, is_of_series=True, speaks_first=False),
}

LAYOUT = Layout.of([("gram", 6, 2**40), ("cross", 2, 100), ("count", 1, 2**20)])
SESSION = bytes(range(16))
CLIENTS = (3, 8, 9, 40, 2**32 - 1)


def some_vectors(layout: Layout = LAYOUT, clients: tuple[int, ...] = CLIENTS) -> dict[int, IntVector]:
    """Fixed vectors that fit the layout, for tests where the numbers do not matter."""
    bounds = np.concatenate([np.full(s.size, s.bound // len(clients), dtype=np.int64) for s in layout.segments])
    rng = np.random.default_rng(len(clients))
    return {party: rng.integers(-bounds, bounds, endpoint=True) for party in clients}


def make(row: Row, **changes: object) -> InOneProcess:
    """All parties of the row's sum over the fixed cohort, with changes of its public parameters."""
    public = {"layout": LAYOUT, "clients": CLIENTS, "session_id": SESSION, "context": b""} | changes
    return row.make(*public.values())  # type: ignore[arg-type]
