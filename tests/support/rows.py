"""Every mode as a row of the contracts: to bring a new one under them, add a row to ``ROWS``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from hypothesis import settings

from secagg import CommitteeSum, InOneProcess, InsecureSeededEntropy, IntVector, Layout, MaskedSum, PlainSum
from secagg.carriers import encrypted
from secagg.carriers.carrier import CarriedSum
from secagg.carriers.parameters import Scheme
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey
from support.parties import SERVER_KEY, helps, identified, signed

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
    keys = {party: IdentityKey.generate(InsecureSeededEntropy(party)) for party in clients}
    protocol = MaskedSum(
        layout=layout,
        clients=clients,
        session_id=session_id,
        context=context,
        threshold=len(clients) // 2 + 1,
        identities=tuple(key.public for key in keys.values()),
        server_identity=SERVER_KEY.public,
    )
    return identified(protocol, keys)


def committee(layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes) -> InOneProcess:
    numbers = [party for party in range(1, len(clients) + 3) if party not in clients][:2]
    keys = {party: KeyPair.generate(InsecureSeededEntropy(party)) for party in numbers}
    protocol = CommitteeSum(
        layout=layout,
        clients=clients,
        session_id=session_id,
        context=context,
        helper_keys=tuple((party, pair.public) for party, pair in keys.items()),
        min_survivors=2,
    )
    secrets = {party: helps(pair) for party, pair in keys.items()}
    return InOneProcess(protocol=protocol, secrets=secrets)


def committee_with_identities(
    layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes
) -> InOneProcess:
    return signed(committee(layout, clients, session_id, context))


@lru_cache(maxsize=64)
def over(
    alone: Make, scheme: Scheme, layout: Layout, clients: tuple[int, ...], session_id: bytes, context: bytes
) -> InOneProcess:
    """Keys are drawn by the operating system, so the same session must come back when it is asked for again."""
    protocol = alone(layout, clients, session_id, context).protocol
    assert isinstance(protocol, CarriedSum)
    return encrypted(protocol, scheme)


@dataclass(frozen=True)
class Row:
    """One implementation.

    Args:
        make: its public parameters.
        counts_at: how many messages a client must have sent to be in the total.
        max_examples: most examples of a property; encryption costs a hundred times what masks do.
    """

    make: Make
    counts_at: int
    max_examples: int = 10**6

    @property
    def settings(self) -> settings:
        """The profile's, but for ``max_examples``."""
        return settings(max_examples=min(settings.default.max_examples, self.max_examples))


ROWS = {
    "plain": Row(plain, counts_at=1),
    "masked": Row(masked, counts_at=3),
    "masked, identities": Row(masked_with_identities, counts_at=3),
    "committee": Row(committee, counts_at=1),
    "committee, identities": Row(committee_with_identities, counts_at=1),
    "bfv": Row(partial(over, plain, "bfv"), counts_at=1, max_examples=12),
    "ckks": Row(partial(over, plain, "ckks"), counts_at=1, max_examples=12),
    "masked+bfv": Row(partial(over, masked, "bfv"), counts_at=3, max_examples=12),
    "masked+ckks": Row(partial(over, masked, "ckks"), counts_at=3, max_examples=12),
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
