"""Test vectors of committee sums: a second implementation says every byte."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "slow_implementation"))

import slow_committee
from slow_bytes import Refused

from secagg import conformance

VECTORS = Path(__file__).resolve().parents[2] / "vectors" / "committee"
SCENARIOS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text()) for path in sorted(VECTORS.glob("*.json"))
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_library_says_every_byte(name: str) -> None:
    conformance.check_committee_run(SCENARIOS[name])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_slow_implementation_says_every_byte(name: str) -> None:
    scenario = SCENARIOS[name]
    said, survivors, total = slow_committee.run(scenario)
    recorded = [(m["sender"], m["recipient"], bytes.fromhex(m["message"])) for m in scenario["messages"]]
    assert said == recorded
    assert (survivors, total) == (scenario["survivors"], scenario["total"])
    signing = {"SURVIVOR_SET", "SET_SIGNATURE"} if scenario["server_secret"] else set()
    masks = set() if "failure" in scenario else {"SET_CERTIFICATE", "SUM_HASHES", "MASK_REQUEST", "MASK_SUM"}
    first = {"COMMITTEE_INPUT", "SEED_DELIVERY", "SEED_COMPLAINTS"}
    assert {m["type"] for m in scenario["messages"]} == signing | first | masks


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name != "committee_failed"])
def test_totals_are_the_survivors_vectors(name: str) -> None:
    """What no message can tell: the total is the plain sum of the vectors that are in it."""
    scenario = SCENARIOS[name]
    vectors = [scenario["vectors"][str(party)] for party in scenario["survivors"]]
    assert scenario["total"] == [sum(column) for column in zip(*vectors, strict=True)]
    ends = {at for _, _, bound in scenario["parameters"]["layout"] for at in (bound, -bound)}
    assert ends <= set(scenario["total"])


@pytest.mark.parametrize("change", ["session_id", "context", "min_survivors", "corrupt_helpers", "server_identity"])
def test_the_second_implementation_notices_another_session(change: str) -> None:
    scenario = SCENARIOS["committee_signed"]
    other = {"min_survivors": 3, "corrupt_helpers": 1}.get(change, "00" * 32)
    changed = scenario | {"parameters": scenario["parameters"] | {change: other}}
    with pytest.raises(Refused, match="the same digest"):
        slow_committee.run(changed)
