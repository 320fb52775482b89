"""What public scales of a secure mean give away: a lone client's magnitude, where they are made carelessly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg import MalformedMessageError, MaskedSum, MeanResult, MeanSpec, run_in_memory, secure_sum
from secagg.fixed_point import HIGHEST, LOWEST, exponent_of
from secagg.wire import carries_vector

CLIENTS = (1, 2, 3, 4)
Updates = dict[int, list[float]]


def spec_of(clip: float = 1.0) -> MeanSpec:
    return MeanSpec.of({"w": np.zeros(3)}, n_clients=len(CLIENTS), clip=clip)


def mean_over_masks(spec: MeanSpec, updates: Updates) -> MeanResult:
    """What the server has after one masked sum."""
    sum_ = MaskedSum(layout=spec.layout, clients=CLIENTS, session_id=bytes(16))
    vectors = {party: spec.vector({"w": np.array(update)}) for party, update in updates.items()}
    return spec.mean(run_in_memory(sum_, vectors).result)


def seen(mean: MeanResult, following: MeanSpec) -> tuple[object, ...]:
    """All that a server has at the end of a round, as values that compare."""
    arrays = {name: array.tobytes() for name, array in mean.arrays.items()}
    return arrays, mean.weight, mean.clipped, mean.survivors, following


@pytest.mark.parametrize("largest", [2.0**-9, 0.3, 700.0])
def test_a_summed_histogram_of_magnitudes_shows_a_lone_client(largest: float) -> None:
    """The scheme that was not built: each client counts its own exponent, and the sum is under masks.

    The attack reads the largest cell that is not empty. It is right for every client and magnitude.
    """
    for lone in CLIENTS:
        magnitudes = dict.fromkeys(CLIENTS, 2.0**-20) | {lone: largest}
        cells = {
            party: {"cells": np.arange(LOWEST, HIGHEST + 1) == exponent_of(magnitude)}
            for party, magnitude in magnitudes.items()
        }
        histogram = secure_sum(cells)["cells"]
        found = int(np.flatnonzero(histogram)[-1]) + LOWEST
        assert 2.0 ** (found - 1) < largest <= 2.0**found
        assert histogram[found - LOWEST] == 1


@given(
    shares=st.lists(st.integers(-32, 32), min_size=3, max_size=3),
    lone=st.sampled_from(CLIENTS),
    headroom=st.sampled_from([None, 0, 5]),
)
def test_carried_scales_do_not_tell_a_lone_client_from_four_alike(
    shares: list[int], lone: int, headroom: int | None
) -> None:
    """Two worlds of one total: all is one client's, or everybody has a quarter. All that the server has is equal."""
    spec, seen_in = spec_of(), []
    quarter = [share / 128 for share in shares]
    alike: Updates = dict.fromkeys(CLIENTS, quarter)
    alone: Updates = {party: [0.0] * 3 for party in CLIENTS} | {lone: [4 * x for x in quarter]}
    for world in (alike, alone):
        mean = mean_over_masks(spec, world)
        seen_in.append(seen(mean, spec.next_round(mean, headroom=headroom)))
    assert seen_in[0] == seen_in[1]


def test_a_number_beyond_the_clip_shows_that_somebody_has_it_and_not_how_large_it_is() -> None:
    """What is left: the count of clipped numbers is released, and a lone one counts 1."""
    spec, others = spec_of(), {party: [0.25, 0.0, 0.0] for party in CLIENTS}
    for lone in (1, 3):
        results = []
        for value in (1.0 + 2**-20, 1e6, 1e300):
            mean = mean_over_masks(spec, others | {lone: [value, 0.0, 0.0]})
            assert mean.clipped == {"w": 1}
            results.append(seen(mean, spec.next_round(mean)))
        assert results[0] == results[1] == results[2]
    assert mean_over_masks(spec, others).clipped == {}


def test_a_number_that_one_client_alone_changes_can_be_read_in_the_mean() -> None:
    """Such as an embedding of a rare word: masks hide whose it is, and not the number."""
    spec, value = spec_of(), 0.7310585
    mean = mean_over_masks(spec, {party: [0.1, -0.2, 0.0] for party in CLIENTS} | {3: [0.1, -0.2, value]})
    read = mean.arrays["w"][2] * mean.weight
    assert abs(read - value) <= len(CLIENTS) * mean.error_bound["w"] < 1e-5


def test_a_server_that_chooses_the_scales_reads_a_lone_magnitude() -> None:
    """One round for each clip: the counts of clipped numbers together are the histogram."""
    secret = 37.0
    updates: Updates = {party: [2.0**-20] * 3 for party in CLIENTS} | {2: [secret, 0.0, 0.0]}
    counts = {e: mean_over_masks(spec_of(2.0**e), updates).clipped.get("w", 0) for e in range(-8, 9)}
    found = max(e for e, count in counts.items() if count)
    assert 2.0**found < secret <= 2.0 ** (found + 1)


def test_a_client_that_carries_the_scales_itself_sends_no_vector_for_others() -> None:
    """The server sends the mean; a client computes the scales, and refuses a session of other ones."""
    spec = spec_of()
    mean = mean_over_masks(spec, {party: [0.25, 0.0, 0.0] for party in CLIENTS})
    own = spec.next_round(mean)
    assert own.exponents == (1,)
    for exponent in range(-8, 9):
        chosen = replace(own, exponents=(exponent,))
        if chosen == own:
            assert all(map(carries_vector, last_messages(own, chosen)))
            continue
        with pytest.raises(MalformedMessageError, match="SHARE_DELIVERY belongs to another session or another conf"):
            last_messages(own, chosen)


def test_a_server_that_makes_up_the_mean_chooses_the_scales_all_the_same() -> None:
    """Nobody but the server has the sum, so no client can tell: carried scales need a semi-honest server."""
    spec = spec_of()
    mean = mean_over_masks(spec, {party: [0.25, 0.0, 0.0] for party in CLIENTS})
    chosen = []
    for exponent in range(-8, 9):
        made_up = replace(mean, arrays={"w": np.full(3, 2.0 ** (exponent - 3) * 1.5)}, error_bound={"w": 0.0})
        chosen.append(spec.next_round(made_up).exponents[0])
    assert chosen == list(range(-8, 9))


def last_messages(own: MeanSpec, chosen: MeanSpec) -> list[bytes]:
    """What clients of one description answer in the third round to a server of another."""
    mine, theirs = (MaskedSum(layout=each.layout, clients=CLIENTS, session_id=bytes(16)) for each in (own, chosen))
    vector = own.vector({"w": np.array([0.25, 0.0, 0.0])})
    clients, server = {party: mine.client(party, vector) for party in CLIENTS}, theirs.server()
    said = {party: client.start() for party, client in clients.items()}
    for _ in range(2):
        for party, message in said.items():
            server.receive(party, message or b"")
        said = {party: clients[party].receive(message) for party, message in server.close_round().items()}
    return [message or b"" for message in said.values()]
