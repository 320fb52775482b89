"""A column of a table says from which site each row is: compare and audit deal rows so, and it is no feature."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analytic_secagg import federate
from analytic_secagg.datasets import Dataset
from simulations.__main__ import main
from simulations.audit.population import Population
from simulations.audit.settings import AuditSettings
from simulations.command_line.shared_arguments import guessed
from simulations.compare.deal import Deal
from simulations.compare.run import Run

SITES = ("East", "North", "West")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A third of the rows is East's, two ninths West's, the rest North's; the marker tells which."""
    path, rng = tmp_path / "clinics.csv", np.random.default_rng(0)
    place = {"East": 0.0, "North": 100.0, "West": 200.0}
    with path.open("w", encoding="utf-8", newline="") as file:
        write = csv.writer(file).writerow
        write(["centre", "marker", "noise", "outcome"])
        for n in range(180):
            site, sick = ("East", "North", "West")[n % 9 % 3 - (n % 9 == 8)], rng.random() < 0.5
            write([site, f"{place[site] + n % 7:.1f}", f"{rng.normal() + sick:.3f}", "yes" if sick else "no"])
    return path


def held(data: Dataset) -> list[set[int]]:
    """For each site the hundreds of its rows' marker."""
    return [{int(marker) // 100 for marker in own[:, 0]} for own in data.x_by_site.values()]


def test_each_site_is_a_client_with_its_own_rows(table: Path, tmp_path: Path) -> None:
    data = guessed(table, "outcome", "centre")
    assert data.sites is not None
    assert (data.sites.names, data.columns) == (SITES, ("marker", "noise"))
    assert held(data) == [{0}, {1}, {2}]
    asked = ["compare", "--data", str(table), "--target", "outcome", "--sites", "centre", "--format", "agreed"]
    assert main([*asked, "--modes", "plain,masked", "--json", str(tmp_path / "o.json")]) == 0
    document = json.loads((tmp_path / "o.json").read_text())
    assert [(run["clients"], run["partition"]) for run in document["runs"]] == [(3, "column centre")] * 2
    assert all(run["bitwise_equal_to_pooled"] for run in document["runs"])
    assert any(note.startswith("column centre names 3 sites, with so many training") for note in document["notes"])
    schema = tmp_path / "schema.toml"
    schema.write_text(
        '[columns.marker]\n[columns.noise]\n[columns.outcome]\nrole = "target"\ncategories = ["no", "yes"]\n'
    )
    stated = ["compare", "--data", str(table), "--columns", str(schema), "--sites", "centre", "--modes", "plain"]
    assert main([*stated, "--format", "agreed", "--json", str(tmp_path / "p.json")]) == 0
    weights = [json.loads((tmp_path / name).read_text())["runs"][0]["weights_sha256"] for name in ("o.json", "p.json")]
    assert weights[0] == weights[1] is not None


def test_rows_that_are_split_anew_stay_with_their_sites(table: Path) -> None:
    data = guessed(table, "outcome", "centre")
    run = Run(mode="plain", learner="afl", clients=3, partition="column centre", split="drawn", seed=5)
    deal = Deal.of(run, data)
    assert not np.array_equal(deal.data.x_train, data.x_train)
    assert held(deal.data) == [{0}, {1}, {2}]
    assert [{int(x[0]) // 100 for x in deal.rows(own).features} for own in deal.parts.values()] == [{0}, {1}, {2}]


@pytest.mark.parametrize(
    ("change", "words", "why"),
    [
        (str, ["--sites", "center"], "has no column center"),
        (str, ["--sites", "outcome"], "--sites and --target are two columns"),
        (str, ["--sites", "centre", "--clients", "4"], "--clients: --sites says whose rows are whose"),
        (
            lambda text: text.replace("West,", ",", 2),
            ["--sites", "centre"],
            "column centre names no site in 2 of 180 rows",
        ),
    ],
)
def test_what_names_no_sites_is_refused(
    change: Callable[[str], str], words: list[str], why: str, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write_text(change(table.read_text()))
    assert main(["compare", "--data", str(table), "--target", "outcome", "--modes", "plain", *words]) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_a_schema_that_shows_each_sites_sums_is_refused(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = table.with_name("schema.toml")
    schema.write_text(
        '[columns.centre]\ncategories = ["East", "North", "West"]\n[columns.marker]\n'
        '[columns.outcome]\nrole = "target"\ncategories = ["no", "yes"]\n'
    )
    assert main(["compare", "--data", str(table), "--columns", str(schema), "--sites", "centre"]) == 2
    assert "a total would show each site's sums" in " ".join(capsys.readouterr().err.split())


def test_an_audit_deals_most_of_its_own_rows_to_each_site(table: Path) -> None:
    data = guessed(table, "outcome", "centre")
    settings = AuditSettings().spelled_out(data)
    assert (settings.clients, settings.cohorts) == (3, ())
    assert settings.spelled_out(data) == settings
    with pytest.raises(Exception, match="--sites says whose rows are whose"):
        AuditSettings(clients=5).spelled_out(data)
    rng = np.random.default_rng(0)
    population = Population.of(data, rng)
    counts = set()
    for _ in range(50):
        dealt = population.deal(3, settings.rows_per_client, rng)
        for place, own in enumerate(dealt):
            whole = int((data.sites.train == place).sum())  # type: ignore[union-attr]
            assert {int(x) // 100 for x in data.x_train[own, 0]} == {place}
            assert 0.8 * whole <= len(own) <= whole
            assert len(np.unique(own)) == len(own)
        counts.add(len(dealt[0]))
    smallest = min((data.sites.train == place).sum() for place in range(3))  # type: ignore[union-attr]
    assert population.row_counts(settings.rows_per_client) == smallest - int(np.ceil(0.8 * smallest)) + 1
    assert len(counts) > 3
    assert len(population.deal(10, 4, rng)) == 10  # an attack's own cohorts of few rows


def test_a_column_that_one_site_alone_has_is_said() -> None:
    rng = np.random.default_rng(1)
    hospitals = {
        name: (np.column_stack([rng.normal(size=30), np.full(30, name == "C")]), rng.normal(size=30)) for name in "ABC"
    }
    with pytest.warns(
        UserWarning, match=r"sites: column 1: 0 at all sites but C, so that the total shows sums of rows of C"
    ):
        federate(hospitals, learner="afl")
