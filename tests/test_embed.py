"""The examples of how-to guides, run as they stand there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from analytic.afl import AFL
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat

ROOT = Path(__file__).resolve().parents[1]


def examples(guide: str) -> list[str]:
    text = (ROOT / "docs" / "how-to" / f"{guide}.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def example() -> str:
    return examples("embed")[0]


def pooled_weights(parties: tuple[int, ...]) -> str:
    learner = AFL(n_features=3, n_targets=2, feature_format=RowFormat.parse("UQ0.12"), max_rows=1000, ridge=0.1)
    parts = []
    for party in parties:
        features = np.random.default_rng(party).random((50, 3))
        parts.append(ClientRows(features, (features.sum(axis=1) > 1.5).astype(int)))
    return learner.weights_bytes(fit_pooled(learner, ClientRows.pool(parts))).hex()


def run(source: str, folder: Path) -> str:
    (folder / "example.py").write_text(source)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_example_trains_the_pooled_model(tmp_path: Path) -> None:
    assert run(example(), tmp_path) == f"1 2 3 4 {pooled_weights((1, 2, 3, 4))}"


def test_a_client_that_dies_is_a_dropout(tmp_path: Path) -> None:
    """Client 2's process is killed when its vector is due; it has handed out its shares by then."""
    line = "        pipe.send_bytes(session.receive(request))\n"
    source = example()
    assert source.count(line) == 1
    dies = "        if (party, request[5]) == (2, 19):  # SHARE_DELIVERY\n            os.kill(os.getpid(), 9)\n"
    source = "import os\n" + source.replace(line, dies + line)
    assert run(source, tmp_path) == f"1 3 4 {pooled_weights((1, 3, 4))}"


def test_a_client_that_sends_anything_else_is_a_dropout(tmp_path: Path) -> None:
    """One client cannot stop the server."""
    line = "    pipe.send_bytes(session.start())\n"
    source = example()
    assert source.count(line) == 1
    source = source.replace(line, '    pipe.send_bytes(b"abc" if party == 2 else session.start())\n')
    assert run(source, tmp_path) == f"1 3 4 {pooled_weights((1, 3, 4))}"


def test_a_sum_whose_parties_restart_before_every_message_is_exact(tmp_path: Path) -> None:
    assert run(examples("embed")[1], tmp_path) == "[ 6 30] (1, 2, 3)"


def test_a_journal_refuses_the_sum_that_would_give_the_lost_client_away(tmp_path: Path) -> None:
    first, again, refused = run(examples("embed")[2], tmp_path).splitlines()
    assert first == again == "(1, 2, 3, 4, 5, 6)"
    assert "further_totals" in refused


def test_a_federation_changes_over_time(tmp_path: Path) -> None:
    joined, classes, refusal = run("".join(examples("change-over-time")), tmp_path).splitlines()
    assert joined.startswith("18 ")
    assert classes == "(6, 4)"
    assert refusal.startswith("1 sites join and 19 would be in the total")
