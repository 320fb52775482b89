"""A training proposal: one sum as the server asks for it, in the bytes that travel and that a site stores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from analytic.errors import AnalyticError
from analytic.learner import AnalyticLearner
from analytic.model_files import SavedModel, learner_in, model_from_bytes, model_to_bytes, names_in
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.site.errors import WireError
from secagg import PartyId
from secagg.dp import PrivacyError
from secagg.encoding import length_prefixed, split_parts

VERSION = 3

MOST_SUMS = 1 << 16
"""More than the sums of any run."""

NO_RECEIPTS = "none"
"""Signers of a sum without receipts."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingProposal:
    """One sum as the server proposes it: a learner, its model, a mode and a cohort. The layout follows from these.

    A party reads it with its own roster (``site.session.Session.of``); nothing in it is trusted before.

    Args:
        mode: one of ``MODES``.
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
        provenance: a digest of each part of what everybody's rows are made with, by its name; empty where the server's
            roster states nothing of it.
        model: the learner and its model, as ``model_to_bytes`` writes them; it is not read before it is asked for.
        announced: what helpers said before, by party: the key holder's signature and public context, or the keys that
            boxes for a committee are sealed to. A proposal that asks helpers for it has none.
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
    provenance: Mapping[str, str] = field(default_factory=dict)
    model: bytes = field(repr=False)
    announced: Mapping[PartyId, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.place < MOST_SUMS:
            raise WireError(f"a sum's place is 0 to {MOST_SUMS - 1}, not {self.place}")

    @property
    def without_announcements(self) -> TrainingProposal:
        """Return what helpers are asked before the sum."""
        return replace(self, announced={})

    def with_announced(self, announced: Mapping[PartyId, bytes]) -> TrainingProposal:
        """Return the proposal with what helpers answered."""
        return replace(self, announced=dict(sorted(announced.items())))

    def next_of_series(self, learner: AnalyticLearner[Any], model: Any) -> TrainingProposal:
        """Return the proposal of the sum that follows in this series."""
        return replace(self, place=self.place + 1, model=model_to_bytes(learner, model), announced={})

    def follows(self, other: TrainingProposal) -> bool:
        """Return whether it is of the sum after another one in the same series."""
        return other.place > 0 and self.terms == replace(other, place=other.place + 1).terms

    @property
    def learner_names(self) -> tuple[str, ...]:
        """The name of the learner, and after an evaluation's that of the one it judges; neither is made for it.

        Raises:
            WireError: no model.
        """
        return self._read(names_in)

    @property
    def learner(self) -> AnalyticLearner[Any]:
        """The learner; its model is not made for it.

        Raises:
            WireError: no model.
        """
        return self._read(learner_in)

    def saved(self) -> SavedModel:
        """Return the learner and its model.

        Raises:
            WireError: no model.
        """
        return self._read(model_from_bytes)

    def _read(self, read: Callable[[bytes], T]) -> T:
        try:
            return read(self.model)
        except AnalyticError as error:
            raise WireError("these bytes are no model of this version") from error

    @property
    def terms(self) -> bytes:
        """All of it but model and announcements, as one line of JSON: the same bytes for the same terms."""
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
            **({"provenance": dict(self.provenance)} if self.provenance else {}),
        }
        return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()

    def to_bytes(self) -> bytes:
        """Encode it for the wire, and for a site's own store."""
        announced = length_prefixed(*_parts_of(self.announced))
        return length_prefixed(self.terms, announced, self.model)

    @classmethod
    def from_bytes(cls, data: bytes) -> TrainingProposal:
        """Read ``to_bytes``, and nothing that it would write in another way; the model is left as it is.

        Raises:
            WireError: other bytes.
        """
        try:
            terms, announced, model = split_parts(data)
            parts = split_parts(announced)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            known = {int.from_bytes(party, "big"): said for party, said in pairs}
            if parts != list(_parts_of(known)):
                raise ValueError("announcements are ordered by party, each once")
        except (ValueError, OverflowError) as error:
            raise WireError("these bytes are no training proposal") from error
        try:
            content = json.loads(terms)
            proposal = cls(
                mode=str(content["mode"]),
                session=bytes.fromhex(content["session"]),
                clients=tuple(int(party) for party in content["clients"]),
                helpers=tuple(int(party) for party in content["helpers"]),
                corruption=float(content["corruption"]),
                dropout=float(content["dropout"]),
                min_survivors=int(content["min_survivors"]),
                previous=bytes.fromhex(content["previous"]),
                place=int(content["place"]),
                privacy=None if content["privacy"] is None else PrivacyPlan.of_public(content["privacy"]),
                receipts=str(content["receipts"]),
                provenance={str(name): str(said) for name, said in content.get("provenance", {}).items()},
                model=model,
                announced=known,
            )
            canonical = proposal.terms
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, PrivacyError) as error:
            raise WireError("these are no terms of a sum") from error
        if canonical != terms:
            raise WireError(f"these terms are not written as version {VERSION} writes them; install the same version")
        return proposal


def _parts_of(announced: Mapping[PartyId, bytes]) -> Iterable[bytes]:
    """Each party's number, then what it announced."""
    return (part for party, said in sorted(announced.items()) for part in (party.to_bytes(4, "big"), said))
