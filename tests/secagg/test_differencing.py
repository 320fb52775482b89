"""What several totals combine to, against every combination written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.differencing import MOST_COMBINATIONS, min_difference_size

COHORT = range(1, 8)


@pytest.mark.parametrize(
    ("earlier", "new", "left"),
    [
        ([], "1234", 4),
        (["12345"], "12345", None),
        (["12345"], "1234", 1),
        (["1234"], "12345", 1),
        (["1234567"], "1234", 3),
        (["1234"], "567", 3),
        # Each pair differs by four or more, and T1 + T2 - T3 is client 1's vector alone.
        (["1234", "1567"], "1234567", 1),
        # T1 - T2 + T3 - T4: each pair differs by four or two, and nothing is in all four together.
        (["1234", "3456"], "1256", 2),
        # T1 + T2 - T3 again, from four totals of which one follows from the others.
        (["12", "34", "1234"], "56", 2),
        (["12", "34"], "1234", None),
    ],
)
def test_examples(earlier: list[str], new: str, left: int | None) -> None:
    assert (
        min_difference_size([[int(party) for party in total] for total in earlier], [int(party) for party in new])
        == left
    )


@given(st.lists(st.sets(st.sampled_from(COHORT), min_size=1), min_size=1, max_size=4))
def test_it_is_the_fewest_over_all_combinations(totals: list[set[int]]) -> None:
    """Cofactors of 0/1 matrices of three rows are at most 2, so coefficients from -2 to 2 reach every minimum."""
    *earlier, new = totals
    members = np.array([[party in total for party in COHORT] for total in totals], dtype=np.int64)
    follows = np.linalg.matrix_rank(members) == (np.linalg.matrix_rank(members[:-1]) if earlier else 0)
    coefficients = np.array([c for c in product(range(-2, 3), repeat=len(totals)) if c[-1]])
    in_each = np.count_nonzero(coefficients @ members, axis=1)
    assert min_difference_size(earlier, new) == (None if follows else in_each.min())


def test_more_than_can_be_looked_at_hides_nobody() -> None:
    """Totals that are halves of a cohort by the bits of a client's number: each pair differs by half of all."""
    cohort = range(1, 1024)
    halves = [[party for party in cohort if party >> bit & 1] for bit in range(10)]
    assert min_difference_size(halves[:2], halves[2]) == 512
    assert min_difference_size(halves[:9], halves[9]) == 0
    assert MOST_COMBINATIONS < 10**6
