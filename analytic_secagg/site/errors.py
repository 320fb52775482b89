"""Errors of a deployment, and the bland codes that are all a server ever receives of them."""

from __future__ import annotations

from enum import IntEnum

from analytic_secagg.errors import FederationError


class DeploymentError(FederationError):
    """Base of this folder's errors."""


class SiteFileError(DeploymentError, ValueError):
    """A file of a site, of the server or of the operator is missing, unsafe or contradicts itself."""


class RunSettingsError(DeploymentError, ValueError):
    """The run's configuration asks for something that does not exist."""


class WireError(DeploymentError, ValueError):
    """A Flower message that is none of this app's."""


class DeclinedError(DeploymentError):
    """A site takes no part; the reason stays in its own log."""


class NoBudgetError(DeclinedError):
    """The site's budget has no room for the run."""


class NoSessionError(DeploymentError):
    """A message for a session that this site does not hold, has ended or may not begin again."""


class UnreachableError(DeploymentError):
    """Too few nodes, or a helper of the committee, can be reached; no sum was started or released.

    Args:
        text: what was needed, what came, what to do.
        n_needed: how many more parties must answer.
    """

    def __init__(self, text: str, *, n_needed: int = 1) -> None:
        super().__init__(text)
        self.n_needed = n_needed


class Refusal(IntEnum):
    """The codes of this app's error replies. A code says what the server can do, never what a site holds.

    ``NOT_AGREED`` and ``NO_BUDGET`` are decided before any row is read. Whatever may depend on rows is ``DECLINED``:
    a query log that refuses and rows that do not fit are not told apart, nor is a ledger that refuses after them.
    """

    DECLINED = 101
    NO_SESSION = 102
    BAD_MESSAGE = 103
    ABORTED = 104
    FAILED = 105
    NOT_AGREED = 106
    NO_BUDGET = 107


REASONS = {
    Refusal.DECLINED: "this site takes no part in such a sum",
    Refusal.NO_SESSION: "this site holds no such session",
    Refusal.BAD_MESSAGE: "this message is not understood",
    Refusal.ABORTED: "this site ended its session",
    Refusal.FAILED: "this site could not answer",
    Refusal.NOT_AGREED: "this site's own file or roster does not allow such a sum",
    Refusal.NO_BUDGET: "this site's budget has no room for such a run",
}
"""The only texts that ever leave a site."""

REMEDIES = {
    Refusal.DECLINED: "their own logs say why, and a new session is refused alike until that is settled",
    Refusal.NO_SESSION: "their state was lost, a key was replaced, or the session is over; begin a new one",
    Refusal.BAD_MESSAGE: "compare versions",
    Refusal.ABORTED: "their own logs say what was wrong with our messages",
    Refusal.FAILED: "run check-site there",
    Refusal.NOT_AGREED: "compare fingerprints of rosters and what was agreed; their own logs name the condition",
    Refusal.NO_BUDGET: "a new session is refused alike: use more noise, or rows that were not spent",
}
"""What the operator of a server can do about each."""
