"""The public parameters of one sum, as the server proposes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.site.errors import WireError
from secagg import PartyId
from secagg.dp import PrivacyError

VERSION = 3

MOST_SUMS = 1 << 16
"""More than the sums of any run."""

NO_RECEIPTS = "none"
"""Who signs where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The public parameters of one sum, beside the layout, which follows from learner and model.

    Args:
        mode: name of the privacy mode.
        session: a fresh session id.
        clients: the cohort, by number: all of the roster's, in ascending order.
        helpers: who it needs beside clients, likewise: the committee, or the key holder; empty in other modes.
        corruption: largest fraction of clients that may collude with the server (modes with masks of clients).
        dropout: largest fraction of clients that may vanish (the same).
        min_survivors: fewest clients in a total; masks ask for more where their threshold is higher.
        previous: the session of this run before, which is over.
        place: 1, 2, ... for the sums of a series, which share a session; 0 for a sum by itself.
        privacy: what noise the run's sums get; None for exact totals.
        receipts: who signs a receipt of the total: ``none``, or one of ``SignedBy``.
    """

    mode: str
    session: bytes
    clients: tuple[PartyId, ...]
    helpers: tuple[PartyId, ...] = ()
    corruption: float = 0.0
    dropout: float = 0.0
    min_survivors: int = 2
    previous: bytes = b""
    place: int = 0
    privacy: PrivacyPlan | None = None
    receipts: str = NO_RECEIPTS

    def to_bytes(self) -> bytes:
        """One line of JSON, the same for the same terms."""
        content = {
            "version": VERSION,
            "mode": self.mode,
            "session": self.session.hex(),
            "clients": list(self.clients),
            "helpers": list(self.helpers),
            "corruption": self.corruption,
            "dropout": self.dropout,
            "min_survivors": self.min_survivors,
            "previous": self.previous.hex(),
            "place": self.place,
            "privacy": None if self.privacy is None else self.privacy.to_public(),
            "receipts": self.receipts,
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Terms:
        """Read ``to_bytes``, and nothing that it would write in another way.

        Raises:
            WireError: other bytes.
        """
        try:
            content = json.loads(data)
            terms = cls(
                mode=str(content["mode"]),
                session=bytes.fromhex(content["session"]),
                clients=tuple(int(party) for party in content["clients"]),
                helpers=tuple(int(party) for party in content["helpers"]),
                corruption=float(content["corruption"]),
                dropout=float(content["dropout"]),
                min_survivors=int(content["min_survivors"]),
                previous=bytes.fromhex(content["previous"]),
                place=_checked_place(int(content["place"])),
                privacy=None if content["privacy"] is None else PrivacyPlan.of_public(content["privacy"]),
                receipts=str(content["receipts"]),
            )
            canonical = terms.to_bytes()
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, PrivacyError) as error:
            raise WireError("these are no terms of a sum") from error
        if canonical != data:
            raise WireError(f"these terms are not written as version {VERSION} writes them; install the same version")
        return terms

    @property
    def next_of_series(self) -> Terms:
        """The terms of the sum that follows in this series."""
        return replace(self, place=self.place + 1)


def _checked_place(place: int) -> int:
    """Return the place of a sum in a series, if so many sums are possible."""
    if not 0 <= place < MOST_SUMS:
        raise ValueError(f"a sum's place is 0 to {MOST_SUMS - 1}, not {place}")
    return place
