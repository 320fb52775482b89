"""The replay of published vectors: it names each vector that a changed library does not reproduce."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from secagg.conformance import SHIPPED, ConformanceError, check_bad_message, check_run, count, differences, main
from secagg.errors import LocalProtocolError

PUBLISHED = Path(__file__).resolve().parents[1] / "vectors"


def test_the_shipped_vectors_are_reproduced() -> None:
    assert differences() == {}
    assert count() == len(list(SHIPPED.rglob("*.json"))) > 0


@pytest.mark.parametrize(
    ("where", "other", "named"),
    [
        ("masked.client.pairwise_seed", lambda own, peer, digest: own.agree(peer, "mask")[:2] * 16, "series_of_two"),
        ("masked.client.keys_are_signed", lambda *said: True, "bad/forged_key_signature"),
        ("masked.client.verifies", lambda *said: True, "bad/forged_survivor_proof"),
        ("masked.server.verifies", lambda *said: True, "bad/forged_survivor_signature"),
        ("committee.client.seed_commitment", lambda digest, client, place, seed: seed, "committee/committee_dropout"),
        ("committee.helper.mask_seed", lambda digest, client, place, seed: seed, "committee/committee_signed"),
        ("committee.client.number", lambda party: bytes(4), "committee/committee_signed"),
        ("mean.finest_scale", lambda most, room: 3, "mean/nearest"),
    ],
)
def test_what_a_changed_library_does_not_reproduce_is_named(
    where: str, other: Any, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"secagg.{where}", other)
    assert named in differences(PUBLISHED)


def test_the_command_names_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An implementer's folder of another mean, and a folder of nothing."""
    assert main([]) == 0
    shutil.copytree(PUBLISHED / "mean", tmp_path / "mean")
    path = tmp_path / "mean" / "nearest.json"
    path.write_text(path.read_text().replace('"max_weight": 70', '"max_weight": 71'))
    assert main([str(tmp_path)]) == 1
    assert "mean/nearest: ConformanceError: layout: not as published" in capsys.readouterr().out
    assert main([str(tmp_path / "nothing")]) == 1


def read(name: str) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    return read


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda run: run["messages"][3].update(message="00"), "messages: not as published"),
        (lambda run: run["total"].__setitem__(0, 0), "total: not as published"),
        (lambda run: run.update(digest="00" * 32), "digests: not as published"),
        (lambda run: run["neighbours"]["2"].pop(), "neighbours: not as published"),
        (lambda run: run["entropy"].update({"2": run["entropy"]["2"] + "00"}), "entropy left: not as published"),
        (lambda run: run["entropy"].update({"2": run["entropy"]["2"][:-2]}), "more entropy is drawn"),
        (lambda run: run.update(receipt="00"), "receipt: not as published"),
    ],
)
def test_each_part_of_a_run_is_compared(change: Callable[[dict[str, Any]], Any], told: str) -> None:
    run = read("receipted")
    check_run(copy.deepcopy(run))
    change(run)
    with pytest.raises(ConformanceError, match=told):
        check_run(run)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"error": "MalformedMessageError"}, "error: not as published"),
        ({"afterwards": "goes on"}, "aborted"),
    ],
)
def test_how_a_bad_message_is_refused_is_compared(change: dict[str, str], told: str) -> None:
    bad, run = read("bad/forged_survivor_proof"), read("authenticated_dropouts")
    check_bad_message(bad, run)
    with pytest.raises((ConformanceError, LocalProtocolError), match=told):
        check_bad_message(bad | change, run)


def test_a_good_message_is_not_taken_for_a_refused_one() -> None:
    bad, run = read("bad/forged_survivor_proof"), read("authenticated_dropouts")
    good = run["messages"][bad["delivered"]]["message"]
    with pytest.raises(ConformanceError, match="the message is accepted"):
        check_bad_message(bad | {"message": good}, run)
