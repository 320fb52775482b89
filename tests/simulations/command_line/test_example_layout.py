"""Sizes that are shown without rows are those of a sum that a learner asks for, the same wherever they are shown."""

from __future__ import annotations

import pytest

from analytic.afl import AFL
from analytic.row_format import RowFormat
from secagg import Assumptions, Layout
from simulations.bench import wire_bytes
from simulations.command_line import parameters_command
from simulations.command_line.example_layout import layout_of_statistics


@pytest.mark.parametrize("n_clients", [10, 10_000])
def test_it_is_what_afl_sums(n_clients: int) -> None:
    learner = AFL(n_features=512, n_targets=10, feature_format=RowFormat.parse("UQ5.11"), max_rows=1000 * n_clients)
    assert layout_of_statistics(n_clients) == Layout.of(learner.spec.segments)


@pytest.mark.parametrize("malicious", [False, True])
def test_the_table_and_the_benchmark_show_the_same_sum(malicious: bool) -> None:
    shown = parameters_command._configured(100, Assumptions(malicious_server=malicious), 512, 10)
    measured = wire_bytes._planned(512, 100, malicious)
    assert shown.layout == measured.layout == layout_of_statistics(100)
