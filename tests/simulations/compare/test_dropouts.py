"""Dropouts: the same clients in every mode, at every stage, and never more than a mode survives."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analytic_secagg.errors import UsageError
from analytic_secagg.modes import MODES, Mode
from simulations.compare.dropouts import Dropouts

MASKED, PLAIN = MODES["masked"], MODES["plain"]


def lost(plan: dict[int, int], mode: Mode) -> set[int]:
    return {party for party, messages in plan.items() if messages <= 2}


@given(
    n_clients=st.integers(2, 60),
    rate=st.floats(0, 1 / 3),
    seed=st.integers(0, 2**32),
    anew=st.booleans(),
    number=st.integers(0, 9),
)
def test_every_mode_loses_the_same_clients_and_keeps_enough(
    n_clients: int, rate: float, seed: int, anew: bool, number: int
) -> None:
    clients, dropouts = tuple(range(1, n_clients + 1)), Dropouts(rate=rate, anew=anew, seed=seed)
    assume(n_clients - dropouts.n_lost(n_clients) >= MASKED.guarantee(clients).min_survivors)
    for mode in (PLAIN, MASKED):
        dropouts.check(mode, clients)
        plan = dropouts.draw(mode, clients, number)
        assert plan == dropouts.draw(mode, clients, number)
        assert lost(plan, mode) == lost(dropouts.draw(PLAIN, clients, number), PLAIN)
        assert len(lost(plan, mode)) == dropouts.n_lost(n_clients)
        assert len(clients) - len(plan) >= mode.guarantee(clients).min_survivors
        assert set(plan) <= set(clients)
    if not anew:
        assert dropouts.draw(MASKED, clients, number) == dropouts.draw(MASKED, clients)


def test_clients_vanish_at_every_stage() -> None:
    clients = tuple(range(1, 101))
    assert set(Dropouts(rate=0.2).draw(MASKED, clients).values()) == {0, 1, 2, 3}
    assert set(Dropouts(rate=0.2).draw(PLAIN, clients).values()) == {0}


def test_in_a_series_clients_that_will_be_needed_stay() -> None:
    """From its second sum on the vector is the first message, and whoever is silent after it misses the next one."""
    clients, dropouts = tuple(range(1, 101)), Dropouts(rate=0.2)
    first = dropouts.draw(MASKED, clients, 0, in_series=True, last=False)
    assert (set(first), set(first.values())) == (set(dropouts.lost(clients)), {0, 1, 2})
    middle = dropouts.draw(MASKED, clients, 1, in_series=True, last=False)
    assert middle == dict.fromkeys(dropouts.lost(clients), 0)
    last = dropouts.draw(MASKED, clients, 2, in_series=True, last=True)
    assert {party for party, messages in last.items() if messages == 0} == set(dropouts.lost(clients))
    assert set(last.values()) == {0, 1}


def test_sums_lose_other_clients_where_asked() -> None:
    clients, dropouts = tuple(range(1, 101)), Dropouts(rate=0.2, anew=True)
    assert lost(dropouts.draw(PLAIN, clients, 0), PLAIN) != lost(dropouts.draw(PLAIN, clients, 1), PLAIN)


def test_a_rate_that_leaves_too_few_is_refused_before_any_work() -> None:
    with pytest.raises(UsageError, match=r"masked needs 14 of 20 clients to stay to the end; --dropout 0.5 leaves 10"):
        Dropouts(rate=0.5).check(MASKED, tuple(range(1, 21)))
    Dropouts(rate=0.999).check(PLAIN, tuple(range(1, 21)))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 2.0, float("nan"), float("inf")])
def test_a_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="at least 0 and below 1"):
        Dropouts(rate=rate)
