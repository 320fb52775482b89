"""A mode that computes a wrong total, to see that it is noticed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from analytic_secagg.modes import MODES, Mode
from secagg import PartyId, PlainSum, ServerSession, SumResult


class OffByOne:
    """A server that adds 1 to the first entry of the total that is not zero: 2^-22 of a squared feature, no more."""

    def __init__(self, honest: ServerSession) -> None:
        self._honest = honest

    def receive(self, sender: PartyId, message: bytes) -> None:
        self._honest.receive(sender, message)

    def close_round(self) -> Mapping[PartyId, bytes]:
        return self._honest.close_round()

    @property
    def waiting_for(self) -> frozenset[PartyId]:
        return self._honest.waiting_for

    @property
    def result(self) -> SumResult | None:
        result = self._honest.result
        if result is None:
            return None
        total = result.total.copy()
        total[np.flatnonzero(total)[0]] += 1  # an entry that is zero for all rows has no part in the weights
        return SumResult(total=total, survivors=result.survivors)


@dataclass(frozen=True, slots=True, kw_only=True)
class OffByOneSum(PlainSum):
    """A plain sum with such a server."""

    def server(self, **_: object) -> ServerSession:
        return OffByOne(PlainSum.server(self))


@pytest.fixture
def off_by_one(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a mode with such sums."""
    mode = Mode(name="off-by-one", make=lambda setup: OffByOneSum(**setup.common))
    monkeypatch.setitem(MODES, mode.name, mode)  # type: ignore[arg-type]
    return mode.name
