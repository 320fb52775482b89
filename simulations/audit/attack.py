"""The interface of all attacks: a guess from a view, then a score of the guess against the truth."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg import PartyId
from secagg.layout import IntVector
from simulations.audit.evaluate import Score
from simulations.audit.side_information import IntRows, Labels
from simulations.audit.view import AdversaryView

G = TypeVar("G")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Truth:
    """What the target really held.

    Args:
        rows: its rows in units of the row format, shape (n, d).
        labels: their labels.
        vector: its contribution to the sum.
        is_member: for each candidate of the side information, whether the target holds it.
        pool_size: how many rows a blind guess chooses from.
        row_counts: how many different numbers of rows a client may hold, all equally likely.
        n_classes: labels are 0 to n_classes - 1.
    """

    rows: IntRows = field(repr=False)
    labels: Labels = field(repr=False)
    vector: IntVector = field(repr=False)
    is_member: NDArray[np.bool_] = field(repr=False)
    pool_size: int
    row_counts: int
    n_classes: int


class Attack(Protocol[G]):
    """One attack. ``guess`` sees the view alone; ``score`` sees the guess and the truth."""

    @property
    def name(self) -> str:
        """Its name on the command line and in JSON."""
        ...

    @property
    def title(self) -> str:
        """A line of the verdict matrix, in words that a person who is no cryptographer understands."""
        ...

    @property
    def explanation(self) -> str:
        """What the attacker does, what counts as success and what chance is, in two or three sentences."""
        ...

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> G:
        """What the attacker says about a client's rows, or, for no client, about all that the total holds."""
        ...

    def score(self, guess: G, truth: Truth, rng: np.random.Generator) -> Score:
        """How good that is."""
        ...


def attacked(
    attack: Attack[Any], view: AdversaryView, target: PartyId | None, truth: Truth, rng: np.random.Generator
) -> Score:
    """Guess, then score: nothing of the truth reaches the guess."""
    return attack.score(attack.guess(view, target, rng), truth, rng)
