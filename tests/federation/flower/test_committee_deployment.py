"""Four helpers in processes of their own, of whom one is killed, or lies: the model is exact, and the liar is named.

Where too few clients are there, they certify that."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_deployment import ENVIRONMENT, Deployment, assert_exact

from federation.site.site import Site
from federation.site.site_file import SiteFile

PATIENT = {"mode": "committee", "join_seconds": 300.0, "round_seconds": 300.0}
SITE, HELPER = "site-2", 102

LIAR = f"""\
from secagg.committee.helper import CommitteeHelper

honest = CommitteeHelper._sum
CommitteeHelper._sum = lambda self, place: bytes(len(honest(self, place))) if self.party == {HELPER} else b""
"""
"""Of this site's own process: it is nobody else."""


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    running = Deployment(tmp_path / "trial", n_sites=4, n_helpers=4)
    try:
        yield running
    finally:
        running.close()


def start(deployment: Deployment, lying: Path | None = None) -> None:
    deployment.start_superlink()
    deployment.register(deployment.sites)
    path = {"PYTHONPATH": f"{lying}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"}
    for site in deployment.sites:
        deployment.start_supernode(site, extra=path if lying and site == SITE else None)


@pytest.mark.slow  # a minute of real processes each
def test_a_helper_that_is_killed_costs_nobody_the_total(deployment: Deployment) -> None:
    start(deployment)
    run = deployment.submit(**PATIENT)
    deployment.wait_party(run, party=HELPER, sent="SEED_COMPLAINTS")
    deployment.processes.kill(SITE)
    deployment.unregister(SITE)
    assert deployment.wait_ended(run) == "finished:completed", deployment.progress(run)
    assert deployment.processes.exit_code(SITE) == -signal.SIGKILL
    assert_exact(deployment.trial, deployment.output(run), survivors=[1, 2, 3, 4])


@pytest.mark.slow
def test_a_helper_that_lies_is_named_and_the_model_is_exact(deployment: Deployment, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LIAR)
    start(deployment, lying=tmp_path)
    run = deployment.submit(**PATIENT)
    assert deployment.wait_ended(run) == "finished:completed", deployment.progress(run)
    assert_exact(deployment.trial, deployment.output(run), survivors=[1, 2, 3, 4])
    differ = [line["helpers"] for line in deployment.progress(run) if line["event"] == "different sums of masks"]
    assert differ
    assert all(HELPER in pair for pair in differ)


SILENT = """\
from secagg.committee.client import CommitteeClient


def start(self):
    raise RuntimeError("this site's client says nothing")


CommitteeClient.start = start
"""


@pytest.mark.slow
def test_a_sum_that_fails_is_certified_and_no_site_counts_it(deployment: Deployment, tmp_path: Path) -> None:
    """Four clients are needed, one says nothing; the other three had sent their vectors."""
    (tmp_path / "sitecustomize.py").write_text(SILENT)
    start(deployment, lying=tmp_path)
    run = deployment.submit(**PATIENT, min_survivors=4)
    assert deployment.wait_ended(run) == "finished:failed", deployment.progress(run)
    lines = deployment.progress(run)
    assert sum(line.get("sent") == "COMMITTEE_INPUT" for line in lines) == 3
    assert [line["certified"] for line in lines if line["event"] == "failure"] == [True]
    sites = [Site(SiteFile.read(deployment.folder / site / "site.toml")) for site in deployment.sites]
    assert [site.count_totals() for site in sites] == [(0, 0)] * 4
