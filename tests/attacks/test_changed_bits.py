"""A network that changes bits: every message of every mode with identities, in both directions.

What is changed is refused, its claimed sender is named, and nothing else happens: the true message is still taken.
Where the true one is gone the total stands without its sender where the mode bears that, and else there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.extras import needs
from support.parties import key_of, signed

from secagg import CommitteeSum, InOneProcess, IntVector, Layout, MaskedSum, PlainSum, run_in_memory
from secagg.config import SERVER
from secagg.dp import CentralNoisySum, DistributedNoise, NoisySum
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.encryption import encrypted
from secagg.errors import HelperMissingError, SecureSumError
from secagg.in_memory import Envelope, InMemoryRun
from secagg.masked.series import MaskedSeries
from secagg.masked.series_in_one_process import SeriesInOneProcess
from secagg.receipted_sum import ReceiptedSum, SignedBy

CLIENTS = (1, 2, 3, 4, 5)
LAYOUT = Layout.of([("gram", 3, 10**6), ("count", 1, 100)])
SESSION = bytes(range(16))
VECTORS: dict[int, IntVector] = {party: np.array([party, -party, 10**4 * party, 1]) for party in CLIENTS}
SURVIVORS = 3
"""Fewest in a total: each mode bears the absence of a client at any moment, and of no helper."""
NOISE = CoordinateNoise(levels=np.ones(4, dtype=np.uint8), variances=(4,))
SHARES = DistributedNoise(total=NOISE, min_noise_shares=SURVIVORS)
MOST_NOISE = 2000


def masked(layout: Layout = LAYOUT) -> InOneProcess:
    return InOneProcess(protocol=MaskedSum(layout=layout, clients=CLIENTS, session_id=SESSION, threshold=3))


def committee(layout: Layout = LAYOUT) -> InOneProcess:
    return CommitteeSum.generate(layout=layout, clients=CLIENTS, session_id=SESSION, min_survivors=SURVIVORS)


def plain(layout: Layout = LAYOUT) -> InOneProcess:
    protocol = PlainSum(layout=layout, clients=CLIENTS, session_id=SESSION, min_survivors=SURVIVORS)
    return InOneProcess(protocol=protocol)


def under_noise(make: Callable[[Layout], InOneProcess], *, central: bool = False) -> InOneProcess:
    exact = signed(make(LAYOUT if central else with_headroom(LAYOUT, len(CLIENTS), SHARES)))
    protocol = (
        CentralNoisySum(protocol=exact.protocol, noise=NOISE)
        if central
        else NoisySum(protocol=exact.protocol, layout=LAYOUT, noise=SHARES)
    )
    return replace(exact, protocol=protocol)


def over_bfv(make: Callable[[], InOneProcess]) -> InOneProcess:
    alone: Any = signed(make())
    holder = len(CLIENTS) + 1
    carried = encrypted(alone.protocol, "bfv", key_holder=holder, identity=key_of(holder))
    return replace(carried, secrets={**alone.secrets, **carried.secrets})


def with_receipts(make: Callable[[], InOneProcess], by: SignedBy) -> InOneProcess:
    parties = signed(make())
    return replace(parties, protocol=ReceiptedSum(protocol=parties.protocol, signed_by=by))


def second_of_a_series() -> InOneProcess:
    protocol: Any = signed(masked()).protocol
    series = MaskedSeries(
        clients=CLIENTS,
        series_id=SESSION,
        threshold=3,
        identities=protocol.identities,
        server_identity=protocol.server_identity,
    )
    everybody = SeriesInOneProcess(series, secrets=signed(masked()).secrets)
    run_in_memory(everybody.next_sum(LAYOUT), VECTORS)
    return everybody.next_sum(LAYOUT)


@dataclass(frozen=True)
class Mode:
    make: Callable[[], InOneProcess]
    noise: int = 0
    slow: bool = False


MODES = {
    "masked": Mode(lambda: signed(masked())),
    "series": Mode(second_of_a_series),
    "committee": Mode(lambda: signed(committee())),
    "plain": Mode(lambda: signed(plain())),
    "bfv": Mode(partial(over_bfv, plain)),
    "masked+bfv": Mode(partial(over_bfv, masked)),
    "masked, countersigned": Mode(partial(with_receipts, masked, SignedBy.CLIENTS)),
    "committee, countersigned": Mode(partial(with_receipts, committee, SignedBy.HELPERS)),
    "masked+noise": Mode(partial(under_noise, masked), MOST_NOISE),
    "masked+central-noise": Mode(partial(under_noise, masked, central=True), MOST_NOISE),
    "committee+noise": Mode(partial(under_noise, committee), MOST_NOISE),
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Mode:
    if "bfv" in request.param:
        needs("tenseal")
    return MODES[request.param]


def with_bit_changed(message: bytes, bit: int) -> bytes:
    changed = bytearray(message)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def sampled_bits(message: bytes, n_anywhere: int, rng: np.random.Generator) -> list[int]:
    """One of magic, version, type, digest, sender, recipient, the signature's length and the signature; some of all."""
    size = 8 * len(message)
    parts = [(0, 32), (32, 40), (40, 48), (48, 304), (304, 336), (336, 368), (368, 376), (size - 512, size)]
    return [int(rng.integers(*part)) for part in parts] + rng.integers(0, size, size=n_anywhere).tolist()


@dataclass
class Meddling:
    """A network that delivers changed copies of each message, and the true one after them, or not at all."""

    bits: Callable[[bytes], Iterable[int]]
    lost: int | None = None
    sent: int = 0
    changed: int = 0

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        for envelope in envelopes:
            number, self.sent = self.sent, self.sent + 1
            if self.lost in (None, number):
                for bit in self.bits(envelope.message):
                    self.changed += 1
                    yield replace(envelope, message=with_bit_changed(envelope.message, bit))
            if self.lost != number:
                yield envelope


def is_the_sum_of(run: InMemoryRun, survivors: tuple[int, ...], noise: int) -> bool:
    exact = sum(VECTORS[party] for party in survivors)
    return run.result.survivors == survivors and np.abs(run.result.total - exact).max() <= noise


def meddled(mode: Mode, network: Meddling) -> InMemoryRun:
    run = run_in_memory(mode.make(), VECTORS, network=network)
    for envelope, error in run.refused:
        assert getattr(error, "peer", None) == envelope.sender, error
    return run


def test_whatever_is_changed_is_refused_named_and_without_effect(mode: Mode) -> None:
    rng = np.random.default_rng(1)
    network = Meddling(lambda message: sampled_bits(message, 8, rng))
    run = meddled(mode, network)
    assert is_the_sum_of(run, CLIENTS, mode.noise)
    assert len(run.refused) == network.changed
    assert network.sent >= 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["masked", "committee"])
def test_every_bit_of_every_message(name: str) -> None:
    network = Meddling(lambda message: range(8 * len(message)))
    run = meddled(MODES[name], network)
    assert is_the_sum_of(run, CLIENTS, 0)
    assert len(run.refused) == network.changed


def messages_of(mode: Mode) -> list[Envelope]:
    """What is sent when nobody meddles."""
    sent: list[Envelope] = []
    run_in_memory(mode.make(), VECTORS, record=sent.append)
    return sent


def test_where_only_the_changed_message_comes_the_total_stands_or_there_is_none(mode: Mode) -> None:
    """A client that is cut off is missing from the total, or was in it already; without a helper there is none."""
    rng = np.random.default_rng(2)
    for number, envelope in enumerate(messages_of(mode)):
        (party,) = {envelope.sender, envelope.recipient} - {SERVER}
        network = Meddling(lambda message: [int(rng.integers(0, 8 * len(message)))], lost=number)
        if party in CLIENTS:
            run = meddled(mode, network)
            others = tuple(client for client in CLIENTS if client != party)
            assert is_the_sum_of(run, CLIENTS, mode.noise) or is_the_sum_of(run, others, mode.noise)
            assert len(run.refused) >= 1
        else:
            with pytest.raises(HelperMissingError) as none:
                meddled(mode, network)
            assert isinstance(none.value, SecureSumError)
            assert none.value.missing == (party,)
