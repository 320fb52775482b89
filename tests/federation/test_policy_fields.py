"""Every field that a server may propose stands in docs/reference/policies.md: who bounds it, or why nobody does."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from federation.site.invitation import Invitation
from federation.site.terms import Terms
from secagg import Assumptions, ClientPolicy, MaskedSeries
from secagg.carriers import Encrypted
from secagg.config import SumConfig
from secagg.dp import CentralNoisySum, CoordinateNoise, DistributedNoise, NoisySum
from secagg.over_sum import OverSum

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "policies.md"

PARTS = (Assumptions, Encrypted, DistributedNoise, Terms, Invitation)
"""What sums and invitations are made of."""


def kinds_of(base: type) -> Iterator[type]:
    """The class and those that the package derives from it."""
    yield base
    for kind in base.__subclasses__():
        if kind.__module__.startswith("secagg."):
            yield from kinds_of(kind)


def proposed() -> set[str]:
    """Class and name of each field that a constructor takes, under the class that declares it."""
    sums = dict.fromkeys([*kinds_of(SumConfig), *kinds_of(OverSum)])
    own = [(kind, name) for kind in (*sums, *PARTS) for name in kind.__annotations__ if not name.startswith("_")]
    taken = {kind: {field.name for field in fields(kind) if field.init} for kind, _ in own}
    return {f"{kind.__name__}.{name}" for kind, name in own if name in taken[kind] and kind is not OverSum}


def rows() -> list[list[str]]:
    """The cells of the page's tables."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]


def test_the_page_lists_every_field_that_a_server_proposes() -> None:
    """A new field of any sum, carrier, noise or invitation fails here until somebody bounds it or says why not."""
    listed = [row[0].strip("`") for row in rows()]
    assert len(listed) == len(set(listed))
    inherited = {f"{kind}.protocol" for kind in ("NoisySum", "CentralNoisySum", "ReceiptedSum")}
    assert set(listed) == proposed() | inherited
    assert {"SumConfig.session_id", "MaskedSum.graph_seed", "Terms.mode", "NoisySum.noise"} <= proposed()


def test_each_field_is_bounded_by_a_test_or_has_a_reason() -> None:
    for name, bound, held in rows():
        if bound == "not bounded":
            assert len(held.split()) >= 6, f"{name} needs a reason"
        else:
            assert "::test_" in held, f"{name} needs a test that holds it"


def test_every_demand_of_a_policy_is_used_on_the_page() -> None:
    bounds = " ".join(row[1] for row in rows())
    demands = {field.name for field in fields(ClientPolicy)}
    assert demands == set(re.findall(r"`(\w+)`", bounds)) & demands


def test_a_series_proposes_nothing_that_its_sums_do_not() -> None:
    known = {field.name for kind in kinds_of(SumConfig) for field in fields(kind)}
    assert {field.name for field in fields(MaskedSeries)} <= known | {"series_id", "digest", "first"}


def test_coordinate_noise_is_bounded_as_a_whole() -> None:
    """Its levels and variances have a price together; ``DistributedNoise.total`` is the line that lists them."""
    assert {field.name for field in fields(CoordinateNoise)} == {"levels", "variances"}
    assert {"noise"} <= {field.name for kind in (NoisySum, CentralNoisySum) for field in fields(kind)}
