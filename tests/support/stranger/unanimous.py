"""A mode of another package: a masked sum of all clients, or of none, so that no two totals differ by one client."""

from __future__ import annotations

from dataclasses import dataclass

from analytic_secagg.modes import Mode
from analytic_secagg.session_config import SessionConfig
from secagg import MaskedSum


@dataclass(frozen=True, slots=True, kw_only=True)
class UnanimousSum(MaskedSum):
    """A masked sum under a name of its own, which sites list in their policy and which every message is bound to."""

    @property
    def name(self) -> str:
        """The mode's name."""
        return "unanimous"


def make(setup: SessionConfig) -> UnanimousSum:
    """Return the sum that no client may leave: every share is needed."""
    return UnanimousSum(**setup.common, threshold=len(setup.clients))


MODE = Mode(name="unanimous", make=make)
