"""Every field that a server may propose is listed in docs/reference/policies.md: who bounds it, or why nobody does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from analytic_secagg.site.proposal import TrainingProposal
from secagg import Assumptions
from secagg.config import SumConfig
from secagg.dp import DistributedNoise
from secagg.encryption import Encrypted
from secagg.protocol_wrapper import ProtocolWrapper
from secagg.receipted_sum import ReceiptedSum

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "policies.md"

PARTS = (Assumptions, Encrypted, DistributedNoise, TrainingProposal)
"""What sums and proposals are made of."""


def kinds_of(base: type) -> Iterator[type]:
    """The class and those that the package derives from it."""
    yield base
    for kind in base.__subclasses__():
        if kind.__module__.startswith("secagg."):
            yield from kinds_of(kind)


def proposed() -> set[str]:
    """Class and name of each field that a constructor takes, under the class that declares it."""
    sums = dict.fromkeys([*kinds_of(SumConfig), *kinds_of(ProtocolWrapper), ReceiptedSum])
    own = [(kind, name) for kind in (*sums, *PARTS) for name in kind.__annotations__ if not name.startswith("_")]
    taken = {kind: {field.name for field in fields(kind) if field.init} for kind, _ in own}
    return {f"{kind.__name__}.{name}" for kind, name in own if name in taken[kind] and kind is not ProtocolWrapper}


def rows() -> list[list[str]]:
    """The cells of the page's tables."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]


def test_the_page_lists_every_field_that_a_server_proposes() -> None:
    """And names a test that holds each field, or a reason why nobody bounds it."""
    listed = [name.strip("`") for name, _, _ in rows()]
    assert len(listed) == len(set(listed))
    inherited = {f"{kind}.protocol" for kind in ("NoisySum", "CentralNoisySum", "ReceiptedSum")}
    assert set(listed) == proposed() | inherited
    for name, bound, held in rows():
        assert len(held.split()) >= 6 if bound == "not bounded" else "::test_" in held, name
