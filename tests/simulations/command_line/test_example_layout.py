"""Sizes that are shown without rows are those of a sum that a learner asks for, the same wherever they are shown."""

from __future__ import annotations

import pytest

from analytic.afl import AFL
from analytic.row_format import RowFormat
from secagg import Assumptions, Layout
from simulations.command_line.parameters_command import layout_of_statistics, planned_sum


@pytest.mark.parametrize("n_clients", [10, 10_000])
def test_it_is_what_afl_sums(n_clients: int) -> None:
    learner = AFL(n_features=512, n_targets=10, feature_format=RowFormat.parse("UQ5.11"), max_rows=1000 * n_clients)
    assert layout_of_statistics(n_clients) == Layout.of(learner.spec.segments)


@pytest.mark.parametrize("malicious", [False, True])
def test_a_planned_sum_is_of_this_layout(malicious: bool) -> None:
    """The table of parameters and the benchmark's bytes show it."""
    planned = planned_sum(100, Assumptions(malicious_server=malicious))
    assert planned.layout == layout_of_statistics(100)
    assert len(planned.identities) == (100 if malicious else 0)
