"""Sessions under noise: signed, killed and restored; the vector never leaves without its noise, nor with two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.extras import needs
from support.memory_store import MemoryStore
from support.parties import knows, sealed_to

from secagg import CommitteeSum, IntVector, Layout, MaskedSum, PlainSum
from secagg.dp import CentralNoisySum, DistributedNoise, NoisySum
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.durable import DurableClient
from secagg.encryption import encrypted
from secagg.errors import ConfigurationError, LocalProtocolError, SnapshotError
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey

CLIENTS = (1, 2, 3)
LAYOUT = Layout.of([("gram", 6, 10**6), ("count", 1, 100)])
NOISE = CoordinateNoise(levels=np.array([1, 1, 1, 1, 1, 1, 0], dtype=np.uint8), variances=(2**40,))
SHARES = DistributedNoise(total=NOISE, min_noise_shares=2)
ROOM = with_headroom(LAYOUT, len(CLIENTS), SHARES)
KEYS = {party: IdentityKey(bytes([party]) * 32) for party in CLIENTS}
ROSTER = tuple(key.public for key in KEYS.values())
SERVER_KEY, HELPER, HELPER_KEY = IdentityKey(b"s" * 32), BoxKey(b"h" * 32), IdentityKey(b"i" * 32)
KEY = bytes(range(32))
PUBLIC: dict[str, Any] = {"layout": ROOM, "clients": CLIENTS, "session_id": bytes(16)}
MASKED = MaskedSum(**PUBLIC, threshold=2)
SIGNED = MaskedSum(**PUBLIC, threshold=2, identities=ROSTER, server_identity=SERVER_KEY.public)
COMMITTEE = CommitteeSum(
    **PUBLIC,
    **sealed_to({9: HELPER_KEY}, {9: HELPER.public}),
    min_survivors=2,
    identities=ROSTER,
    server_identity=SERVER_KEY.public,
)


def vector(party: int) -> IntVector:
    return np.array([party] * 6 + [0], dtype=np.int64)


class Counted:
    """Entropy that counts the draws of noise."""

    def __init__(self) -> None:
        self.calls, self._rng = 0, np.random.default_rng(5)

    def __call__(self, n: int) -> bytes:
        self.calls += 1
        return self._rng.bytes(n)


def noisy(protocol: Any, entropy: Callable[[int], bytes] | None = None) -> NoisySum:
    named = {} if entropy is None else {"noise_entropy": entropy}
    return NoisySum(protocol=protocol, layout=LAYOUT, noise=SHARES, **named)


def signing(protocol: Any, party: int) -> dict[str, IdentityKey]:
    return {"secrets": knows(KEYS[party])} if protocol.is_authenticated else {}


def summed(server: Any, speak: Callable[[int, bytes | None], bytes | None]) -> IntVector:
    """The total; ``speak`` is a party's answer to a message, or its first one."""
    answers = {party: speak(party, None) for party in CLIENTS}
    while True:
        for party, answer in answers.items():
            server.receive(party, answer)
        requests = server.close_round()
        if server.result is not None:
            total: IntVector = server.result.total
            return total
        answers = {party: speak(party, message) for party, message in requests.items()}


def is_noisy(total: IntVector) -> bool:
    residual = total - sum(vector(party) for party in CLIENTS)
    return bool(residual[-1] == 0 and (residual[:-1] != 0).all())


@pytest.mark.parametrize("protocol", [MASKED, SIGNED], ids=["masked", "signed"])
def test_a_client_that_dies_after_every_message_sends_its_vector_with_one_noise(protocol: MaskedSum) -> None:
    whole, killed, totals = Counted(), Counted(), []
    for entropy, is_killed in ((whole, False), (killed, True)):
        under, stores = noisy(protocol, entropy), {party: MemoryStore() for party in CLIENTS}
        kept: dict[int, DurableClient] = {}

        def session(
            party: int,
            under: NoisySum = under,
            stores: dict[int, MemoryStore] = stores,
            kept: dict[int, DurableClient] = kept,
            is_killed: bool = is_killed,
        ) -> DurableClient:
            if is_killed or party not in kept:
                fresh = under.client(party, vector(party), **signing(protocol, party))
                kept[party] = DurableClient(stores[party], KEY, fresh)
            return kept[party]

        def speak(party: int, message: bytes | None, session: Any = session) -> bytes | None:
            answers = [session(party).receive(message) if message else session(party).start() for _ in range(2)]
            assert answers[0] == answers[1]
            return answers[0]

        own = knows(SERVER_KEY if protocol.is_authenticated else None)
        totals.append(summed(under.server(secrets=own), speak))
    assert is_noisy(totals[1])
    assert totals[0].tobytes() == totals[1].tobytes(), "the same draws, so each client drew its noise once"
    assert whole.calls == killed.calls > 0


def test_the_sum_under_the_noise_does_not_restore_its_clients() -> None:
    """The natural mistake: it would send the vector without noise. Nor is a session without noise one with it."""
    under = noisy(MASKED)
    for made_by, taken_by in ((under, MASKED), (MASKED, under)):
        store = MemoryStore()
        DurableClient(store, KEY, made_by.client(1, vector(1))).start()
        with pytest.raises(SnapshotError, match="another party, session or configuration"):
            DurableClient(store, KEY, taken_by.client(1, vector(1)))


def test_a_server_that_adds_noise_is_not_stored() -> None:
    """Restored, it would draw a second noise for one total."""
    server = CentralNoisySum(protocol=MASKED, noise=NOISE).server()
    assert server.snapshot_id != MASKED.server().snapshot_id
    for refused in (server.snapshot, lambda: server.restore(b"")):
        with pytest.raises(ConfigurationError, match="second noise for one total"):
            refused()


def test_a_one_message_client_that_has_spoken_draws_no_second_noise() -> None:
    needs("tenseal")
    for protocol in (COMMITTEE, encrypted(PlainSum(**PUBLIC, min_survivors=2), "bfv").protocol):
        entropy = Counted()
        under = noisy(protocol, entropy)
        who = {"secrets": knows(KEYS[1])} if protocol is COMMITTEE else {}
        client = under.client(1, vector(1), **who)
        assert client.start()
        drawn, again = entropy.calls, under.client(1, vector(1), **who)
        again.restore(client.snapshot())
        with pytest.raises(LocalProtocolError, match="one session sends one vector"):
            again.start()
        assert entropy.calls == drawn > 0


def test_what_the_sum_under_the_noise_does_not_know_is_refused_by_name() -> None:
    plain = PlainSum(**PUBLIC, min_survivors=2)
    for under in (noisy(plain), CentralNoisySum(protocol=plain, noise=NOISE)):
        with pytest.raises(ConfigurationError, match="no roster of identities"):
            under.client(1, vector(1), secrets=knows(KEYS[1]))
