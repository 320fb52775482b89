"""Noisy totals over real protocols: the noise is there, is enough, and no promise is made that the sum below breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from support.parties import helps

from secagg import (
    ClientSession,
    CommitteeSum,
    InOneProcess,
    InsecureSeededEntropy,
    IntVector,
    Layout,
    MaskedSum,
    PlainSum,
    SumProtocol,
    new_session_id,
    run_in_memory,
)
from secagg.dp import CentralNoisySum, DistributedNoise, NoisySum, PrivacyError
from secagg.dp.audit import audit_noise
from secagg.dp.noise import CoordinateNoise
from secagg.dp.noisy_sum import with_headroom
from secagg.errors import InvalidVectorError, LocalProtocolError
from secagg.primitives.boxes import BoxKey

CLIENTS = tuple(range(1, 13))
LAYOUT = Layout.of([("gram", 6, 10**6), ("cross", 3, 10**4), ("count", 1, 100)])
NOISE = CoordinateNoise(
    levels=np.array([1, 2, 2, 1, 2, 1, 3, 3, 3, 0], dtype=np.uint8), variances=(2**40, 2**39, 10**6)
)
PROMISED = 9
HELPERS = {101: BoxKey(b"a" * 32), 102: BoxKey(b"b" * 32)}

Maker = Callable[[Layout, int], SumProtocol]


def plain(layout: Layout, needed: int) -> SumProtocol:
    return PlainSum(layout=layout, clients=CLIENTS, session_id=bytes(16), min_survivors=needed)


def masked(layout: Layout, needed: int) -> SumProtocol:
    return MaskedSum(layout=layout, clients=CLIENTS, session_id=bytes(16), threshold=needed)


def committee(layout: Layout, needed: int) -> SumProtocol:
    return CommitteeSum(
        layout=layout,
        clients=CLIENTS,
        session_id=bytes(16),
        helper_keys=tuple((party, pair.public) for party, pair in HELPERS.items()),
        min_survivors=needed,
    )


def everybody(protocol: SumProtocol) -> InOneProcess:
    """All parties; whoever is no helper needs no secrets."""
    return InOneProcess(protocol=protocol, secrets={party: helps(pair) for party, pair in HELPERS.items()})


SUMS: tuple[Maker, ...] = (plain, masked, committee)


def distributed(promised: int = PROMISED, colluders: int = 2) -> DistributedNoise:
    return DistributedNoise(total=NOISE, min_noise_shares=promised, colluders=colluders)


def noisy(make: Maker, noise: DistributedNoise | None = None, seed: int = 1) -> NoisySum:
    noise = noise or distributed()
    return NoisySum(
        protocol=make(with_headroom(LAYOUT, len(CLIENTS), noise), noise.min_noise_shares),
        layout=LAYOUT,
        noise=noise,
        noise_entropy=InsecureSeededEntropy(seed),
    )


def vectors(seed: int = 0) -> dict[int, IntVector]:
    bounds = np.repeat([10**6 // 12, 10**4 // 12, 0], [6, 3, 1])
    rng = np.random.default_rng(seed)
    return {party: rng.integers(-bounds, bounds, endpoint=True) for party in CLIENTS}


def test_noise_is_new_in_each_session_and_has_nothing_to_do_with_the_masks() -> None:
    """The same keys and masks in two sessions, noise from the system: totals differ in every coordinate."""
    totals = []
    for _ in range(2):
        noise = distributed()
        protocol = NoisySum(protocol=masked(with_headroom(LAYOUT, 12, noise), PROMISED), layout=LAYOUT, noise=noise)
        totals.append(run_in_memory(protocol, vectors(), entropy=InsecureSeededEntropy(7)).result.total)
    assert (totals[0][:6] != totals[1][:6]).all()


def test_the_noise_of_a_server_is_new_in_each_session() -> None:
    """Six coordinates have a standard deviation of at least 2^19: chance repeats them all with less than 2^-110."""
    protocol = CentralNoisySum(protocol=plain(LAYOUT, PROMISED), noise=NOISE)
    first, second = (run_in_memory(protocol, vectors()).result.total[:6] for _ in range(2))
    assert first.tolist() != second.tolist()


@pytest.mark.parametrize("make", SUMS)
def test_a_protocol_that_releases_below_the_promise_is_refused(make: Maker) -> None:
    noise = distributed()
    with pytest.raises(PrivacyError, match=r"9 survivors and .* releases totals of 8"):
        NoisySum(protocol=make(with_headroom(LAYOUT, 12, noise), 8), layout=LAYOUT, noise=noise)


def test_a_layout_without_room_is_refused() -> None:
    with pytest.raises(PrivacyError, match="with_headroom"):
        NoisySum(protocol=plain(LAYOUT, 9), layout=LAYOUT, noise=distributed())


def test_vectors_are_checked_before_noise_hides_what_is_wrong_with_them() -> None:
    beyond, counting = vectors()[1].copy(), vectors()[1].copy()
    beyond[7] = 10**4 + 1
    counting[-1] = 5
    for wrong, message in ((beyond, "'cross': 1 of 3"), (counting, "1 coordinates get no noise")):
        for protocol in (noisy(plain), CentralNoisySum(protocol=plain(LAYOUT, 9), noise=NOISE)):
            with pytest.raises(InvalidVectorError, match=message):
                protocol.client(1, wrong)
            with pytest.raises(InvalidVectorError, match=message):
                run_in_memory(protocol, vectors() | {1: lambda wrong=wrong: wrong})


def test_one_session_makes_one_noisy_vector() -> None:
    taken: list[object] = []

    class Taking(PlainSum):
        def client(self, party, client_input, **named):  # type: ignore[no-untyped-def]
            taken.append(client_input)
            return PlainSum.client(self, party, client_input)

    noise = distributed()
    room = with_headroom(LAYOUT, 12, noise)
    inner = Taking(layout=room, clients=CLIENTS, session_id=bytes(16), min_survivors=PROMISED)
    NoisySum(protocol=inner, layout=LAYOUT, noise=noise).client(1, vectors()[1])
    make = taken[0]
    make()  # type: ignore[operator]
    with pytest.raises(LocalProtocolError, match="made already"):
        make()  # type: ignore[operator]


OTHER_LEVELS = CoordinateNoise(
    levels=np.array([1, 2, 2, 1, 2, 2, 3, 3, 3, 0], dtype=np.uint8), variances=NOISE.variances
)


@pytest.mark.parametrize("make", SUMS)
@pytest.mark.parametrize(
    "other",
    [
        distributed(promised=8, colluders=1),
        DistributedNoise(total=OTHER_LEVELS, min_noise_shares=PROMISED, colluders=2),
    ],
    ids=["counts", "levels"],
)
def test_parties_with_different_noise_do_not_add_up(make: Maker, other: DistributedNoise) -> None:
    """Each of these has shares of the same size and the same room, and promises something else."""
    room = with_headroom(LAYOUT, len(CLIENTS), other)
    ours, theirs = noisy(make), NoisySum(protocol=make(room, PROMISED), layout=LAYOUT, noise=other)
    assert replace(room, agreed=b"") == replace(ours.protocol.layout, agreed=b"")
    assert ours.digest != theirs.digest

    class OneOfTheirs(InOneProcess):
        def client(self, party: int, client_input: Any, **options: Any) -> ClientSession:
            return (theirs if party == 1 else ours).client(party, client_input, **options)

    run = run_in_memory(OneOfTheirs(protocol=ours, secrets=everybody(ours).secrets), vectors())
    assert run.result.survivors == CLIENTS[1:]
    assert run.refused
    assert all(1 in (envelope.sender, envelope.recipient) for envelope, _ in run.refused)


def test_the_digest_of_noise_is_of_all_that_it_is() -> None:
    known = {
        "levels": OTHER_LEVELS,
        "variances": CoordinateNoise(levels=NOISE.levels, variances=(2**40, 2**39, 10**6 + 1)),
    }
    assert {field.name for field in fields(CoordinateNoise)} == known.keys()
    shared = [distributed(), distributed(promised=8), distributed(colluders=1)]
    assert {field.name for field in fields(DistributedNoise) if field.init} == {
        "total",
        "min_noise_shares",
        "colluders",
    }
    shared += [replace(shared[0], total=total) for total in known.values()]
    digests = {noise.digest for noise in [NOISE, *known.values(), *shared]}
    assert len(digests) == 8


def test_the_central_server_shows_one_noisy_total_however_often_it_is_asked() -> None:
    protocol = CentralNoisySum(protocol=masked(LAYOUT, 7), noise=NOISE)
    run = run_in_memory(protocol, vectors())
    residual = run.result.total - sum(vectors().values())
    assert residual[-1] == 0
    assert np.count_nonzero(residual) >= 8
    server = CentralNoisySum(protocol=plain(LAYOUT, 9), noise=NOISE).server()
    for party, vector in vectors().items():
        server.receive(party, plain(LAYOUT, 9).client(party, vector).start() or b"")
    assert server.result is None
    server.close_round()
    first, second = server.result, server.result
    assert first is not None
    assert second is first


# --- the realised noise of whole sessions, audited ---------------------------------------------------------------


WIDE = Layout.of([("a", 15_000, 2**30), ("b", 5_000, 2**30)])
WIDE_NOISE = CoordinateNoise(
    levels=np.repeat(np.array([1, 2], dtype=np.uint8), [15_000, 5_000]), variances=(2**50, 2**40)
)


def audited(n_silent: int, shares: int = 20, entropy_seed: int = 3):  # type: ignore[no-untyped-def]
    """A masked session of 20 clients, ``n_silent`` of whom leave their noise away, against the claim of all 20."""
    clients = tuple(range(1, 21))
    noise = DistributedNoise(total=WIDE_NOISE, min_noise_shares=shares)
    inner = MaskedSum(
        layout=with_headroom(WIDE, 20, noise), clients=clients, session_id=new_session_id(), threshold=max(shares, 11)
    )
    protocol = NoisySum(
        protocol=inner, layout=WIDE, noise=noise, noise_entropy=np.random.default_rng(entropy_seed).bytes
    )

    class Silent:
        def __getattr__(self, name: str) -> object:
            return getattr(protocol, name)

        def client(self, party: int, client_input, *, entropy):  # type: ignore[no-untyped-def]
            return (inner if party <= n_silent else protocol).client(party, client_input, entropy=entropy)

    rng = np.random.default_rng(entropy_seed)
    data = {party: rng.integers(-(2**25), 2**25, 20_000) for party in clients}
    total = run_in_memory(Silent(), data).result.total  # type: ignore[arg-type]
    return audit_noise(total - sum(data.values()), WIDE_NOISE)


@pytest.mark.statistical
def test_an_honest_session_keeps_its_claim() -> None:
    """H0: variance at least the claim. D = 20000, alpha 1e-6 a side, seed 3."""
    audit = audited(0)
    assert not audit.too_little
    assert not audit.too_much
    assert audit.withheld_are_zero
    assert abs(audit.sigma_shift) < 5
    assert audit.repeats < 4


@pytest.mark.statistical
def test_ten_percent_of_the_shares_missing_are_caught() -> None:
    assert audited(2).too_little


@pytest.mark.statistical
def test_more_survivors_than_promised_are_seen_as_more_noise() -> None:
    assert audited(0, shares=14).too_much


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(10))
def test_the_audit_decides_rightly_for_every_seed(seed: int) -> None:
    assert not audited(0, entropy_seed=seed).too_little
    assert audited(2, entropy_seed=seed).too_little


def test_an_audit_says_what_a_residual_is() -> None:
    """By hand: 49 comes up six times among 100 coordinates of variance 4; the last one is withheld."""
    noise = CoordinateNoise(levels=np.array([1] * 100 + [0], dtype=np.uint8), variances=(4,))
    residual = np.arange(-50, 51)
    residual[:5] = 49
    audit = audit_noise(residual, noise)
    assert audit.repeats == 6
    assert audit.variance_ratio == pytest.approx(np.mean(residual[:100] ** 2) / 4)
    assert audit.sigma_shift == pytest.approx(residual[:100].sum() / 2 / 10)
    assert not audit.withheld_are_zero
    residual[100] = 0
    assert audit_noise(residual, noise).withheld_are_zero


def test_an_audit_needs_enough_draws() -> None:
    with pytest.raises(PrivacyError, match="at least 100"):
        audit_noise(np.zeros(10, dtype=np.int64), NOISE)
