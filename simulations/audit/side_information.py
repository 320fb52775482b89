"""What an adversary is granted beside the messages; a report says so, since a stronger adversary finds more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg import PartyId
from secagg.layout import IntVector

IntRows = NDArray[np.int64]
Labels = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SideInformation:
    """Rows in the units of the row format.

    Args:
        candidates: rows of which some were used and some were not, shape (m, d): does the adversary see which?
        candidate_labels: their labels, shape (m,).
        public: rows of the same population that nobody used, shape (p, d).
        n_classes: labels are 0 to n_classes - 1.
        worlds: for some clients two vectors, one of which it contributed.
    """

    candidates: IntRows = field(repr=False)
    candidate_labels: Labels = field(repr=False)
    public: IntRows = field(repr=False)
    n_classes: int
    worlds: Mapping[PartyId, tuple[IntVector, IntVector]] = field(default_factory=dict, repr=False)
