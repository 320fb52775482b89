"""A job in NVFlare's simulator, whose server and clients are processes of their own: the bits of the pooled rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra: pip install '.[nvflare]'")

from simulated import assert_exact, output, simulate
from support.rehearsed import is_wiped, run_config

from analytic_secagg.datasets import bundled
from analytic_secagg.trial import Trial


def test_masked_and_committee_give_the_bits_of_one_process(tmp_path: Path) -> None:
    """One job of two runs; the fourth site's own file forbids the first, whatever the job asks for."""
    sites = Trial.create(tmp_path / "trial", bundled("digits"), n_sites=4, n_helpers=2, are_rows_public=True)
    path = sites.site(4) / "site.toml"
    path.write_text(re.sub("modes = .*", 'modes = ["committee"]', path.read_text()))
    modes = ("masked", "committee")
    said = simulate(sites, **{mode: run_config(mode=mode, dropout=0.25) for mode in modes})
    for mode, survivors in zip(modes, ([1, 2, 3], [1, 2, 3, 4]), strict=True):
        assert_exact(sites, output(sites, mode), survivors)
    assert "own file or roster does not allow such a sum" in said
    assert is_wiped(sites)
