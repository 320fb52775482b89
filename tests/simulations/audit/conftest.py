"""Small workbenches on real digits for all attack tests, and one report of the default run for all of its readers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.benches import small_bench

from analytic_secagg.datasets import Dataset, bundled
from simulations.audit.audit import audit
from simulations.audit.record import Audit
from simulations.audit.settings import AuditSettings
from simulations.audit.workbench import Bench


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return bundled("digits")


@pytest.fixture(scope="session")
def bench_of() -> Callable[[int], Bench]:
    """A bench by seed: 300 candidates, 8 rows a client, masks from the same seed."""
    return small_bench


@pytest.fixture
def bench() -> Bench:
    return small_bench(1)


@pytest.fixture(scope="session")
def report(digits: Dataset) -> Audit:
    """What ``python -m simulations audit`` does if nothing is said."""
    return audit(digits, AuditSettings())
