"""Jobs in NVFlare's simulator end in the bits that Flower and one process give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the engine is the extra nvflare: pip install 'analytic-secagg[nvflare]'")

from rehearsed import is_wiped, run_config
from simulated import assert_exact, output, simulate, summary

from federation.datasets import bundled
from federation.flower.rehearsal import rehearse
from federation.trial import JOURNAL, PRIVATE_MODES, Trial


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
