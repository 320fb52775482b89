"""Jobs in NVFlare's simulator end in the bits that Flower and one process give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the engine is the extra nvflare: pip install 'analytic-secagg[nvflare]'")

from rehearsed import is_wiped, run_config
from simulated import assert_exact, output, simulate, summary

from federation.__main__ import main
from federation.datasets import bundled
from federation.flower.rehearsal import rehearse
from federation.local.command import DemoOptions, make_trial
from federation.server.run_settings import template_settings
from federation.site.site_file import SiteFile
from federation.trial import JOURNAL, PRIVATE_MODES, Trial, fitted_settings


@pytest.fixture
def sites(tmp_path: Path) -> Trial:
    return Trial.create(tmp_path / "trial", bundled("digits"), n_sites=4, n_helpers=2, of_clients=JOURNAL)


def settings(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return run_config(tmp_path, **{"dropout": 0.25} | changes)


def test_masked_and_committee_give_the_bits_of_flower_and_of_one_process(sites: Trial, tmp_path: Path) -> None:
    """One job of two runs; the fourth site's own file forbids the first, whatever the job asks for."""
    path = sites.folder / "site-4" / "site.toml"
    path.write_text(re.sub("modes = .*", 'modes = ["committee"]', path.read_text()))
    config = settings(tmp_path)
    said = simulate(sites, masked=config | {"mode": "masked"}, committee=config | {"mode": "committee"})
    for mode, survivors in {"masked": [1, 2, 3], "committee": [1, 2, 3, 4]}.items():
        assert_exact(sites, output(sites, mode), survivors)
        rehearse(sites.folder, config | {"mode": mode})
        flower = sites.folder / "server" / "models" / "rehearsal"
        models = [(folder / "model.safetensors").read_bytes() for folder in (flower, output(sites, mode))]
        assert models[0] == models[1]
        assert summary(flower)["weights_sha256"] == summary(output(sites, mode))["weights_sha256"]
    assert "this site takes no part in such a sum" in said
    assert is_wiped(sites)


@pytest.mark.slow  # half a minute
def test_every_private_mode(sites: Trial, tmp_path: Path) -> None:
    """One job with a run for each."""
    modes = {f"run{place}": mode for place, mode in enumerate(PRIVATE_MODES)}
    config = settings(tmp_path)
    simulate(sites, **{name: config | {"mode": mode} for name, mode in modes.items()})
    for name in modes:
        assert_exact(sites, output(sites, name), [1, 2, 3, 4])


@pytest.mark.slow  # half a minute
def test_receipts_hold_offline_and_a_journal_lets_rows_into_one_total(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job of two runs over the same rows: the sites decline the second, and say why in their own logs."""
    sites = Trial.create(tmp_path / "trial", bundled("digits"), n_sites=4, n_helpers=2)
    config = settings(tmp_path) | {"mode": "committee", "receipts": "helpers"}
    said = simulate(sites, fails=True, first=config, again=config)
    assert_exact(sites, output(sites, "first"), [1, 2, 3, 4])
    assert not (output(sites, "again") / "model.safetensors").exists()
    assert said.count("these rows, or some of them, are in 1 totals already") >= 4
    receipts = [str(path) for path in sites.folder.glob("site-*/results/*.receipt")]
    assert len(receipts) == 4
    held = ["--roster", str(sites.folder / "server" / "roster.toml")]
    assert main(["verify", *held, *(word for path in receipts for word in ("--receipt", path))]) == 0
    assert capsys.readouterr().out.count("countersigned by 2 of the 2 helpers") == 4
    assert main(["inspect", str(sites.site(1) / "site.toml")]) == 0
    assert "client 1: its rows are in 1 totals" in capsys.readouterr().out


@pytest.mark.slow  # half a minute
def test_each_site_pays_for_noise_from_its_own_ledger(tmp_path: Path) -> None:
    """The fourth has no ledger and so gives nothing, whatever the job says of epsilon."""
    dataset = bundled("breast_cancer")
    sites = make_trial(tmp_path / "trial", dataset, DemoOptions(sites=4, epsilon=2.0))
    (sites.site(4) / "ledger").unlink()
    config = template_settings() | fitted_settings(dataset, 4) | {"mode": "masked", "epsilon": 2.0, "dropout": 0.25}
    simulate(sites, private=config)
    told = summary(output(sites, "private"))
    assert told["survivors"][-1] == [1, 2, 3]
    assert "epsilon" in told["bill"]
    for party in (1, 2, 3):
        ledger = SiteFile.read(sites.site(party) / "site.toml").ledger
        assert ledger is not None
        spent = ledger.spent()
        assert spent is not None
        assert 0 < spent.epsilon <= 2.0
