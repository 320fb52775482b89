"""Who vanishes from a comparison, and after how many messages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analytic_secagg.errors import UsageError
from analytic_secagg.modes import Mode
from secagg import PartyId
from secagg.errors import ConfigurationError
from secagg.masked.assumptions import Assumptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropouts:
    """A seeded choice of clients that vanish, the same for every mode.

    Args:
        rate: part of the cohort whose vectors never arrive, 0 <= rate < 1.
        anew: whether every sum of a learner loses other clients (inconsistent participation) or all the same ones.
        seed: draws who, and when.

    Raises:
        UsageError: a rate outside its range.
    """

    rate: float = 0.0
    anew: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.rate < 1:
            raise UsageError(f"a dropout rate must be at least 0 and below 1, not {self.rate}; 0.1 drops a tenth")

    @property
    def promise(self) -> Assumptions:
        """What sparse graphs are planned for: all that ``draw`` takes, a tenth of the clients at least."""
        return Assumptions(dropout=min(0.9, max(0.1, 1.5 * self.rate)))

    def n_lost(self, n_clients: int) -> int:
        """How many of ``n_clients`` never send their vector: the rate's part of them, rounded, but never all."""
        return min(round(self.rate * n_clients), n_clients - 1)

    def check(self, mode: Mode, clients: tuple[PartyId, ...], *, min_survivors: int | None = None) -> None:
        """Refuse a rate that leaves ``mode`` without a total of so many, before any work is done.

        Raises:
            UsageError: too few clients would stay, or ``mode`` cannot serve this cohort at all.
        """
        try:
            guarantee = mode.guarantee(clients, min_survivors=min_survivors)
        except ConfigurationError as error:
            raise UsageError(
                f"{mode.name} cannot serve {len(clients)} client{'s' * (len(clients) > 1)}: {error}; leave {mode.name} "
                "out of --modes: --modes plain serves any number"
            ) from error
        needed, stay = guarantee.min_survivors, len(clients) - self.n_lost(len(clients))
        if stay < needed:
            raise UsageError(
                f"{mode.name} needs {needed} of {len(clients)} clients to stay to the end; --dropout {self.rate:g} "
                f"leaves {stay}: use a smaller rate, or leave {mode.name} out of --modes"
            )

    def lost(self, clients: tuple[PartyId, ...], number: int = 0) -> tuple[PartyId, ...]:
        """The clients whose vectors are missing from the sum of a number; no mode changes them."""
        return tuple(self._order(clients, number)[: self.n_lost(len(clients))])

    def draw(
        self, mode: Mode, clients: tuple[PartyId, ...], number: int = 0, *, in_series: bool = False, last: bool = True
    ) -> dict[PartyId, int]:
        """Who vanishes from the sum of a number, and how many messages each still sends.

        Each lost client vanishes at a stage drawn among those before its vector. Where the mode has messages after
        the vector and its threshold leaves room, half as many survivors vanish after theirs, which costs nobody's rows.

        Args:
            mode: how the sum is made.
            clients: the cohort.
            number: which sum of the run, from 0.
            in_series: whether it carries the next one's set-up. Then nobody has anything to say before its vector from
                the second sum on, and a client that vanishes after it would be missing from the next one, so only
                in the ``last`` do clients vanish there.
            last: whether no further sum follows.
        """
        guarantee = mode.guarantee(clients)
        before = 0 if in_series and number else guarantee.messages_before_vector
        lost, order = self.lost(clients, number), self._order(clients, number)
        stages = np.random.default_rng([*self._seed(clients, number), *mode.name.encode()]).integers(
            0, before, endpoint=True, size=len(lost)
        )
        plan = dict(zip(lost, stages.tolist(), strict=True))
        if guarantee.messages_after_vector and (last or not in_series):
            room = len(clients) - len(lost) - guarantee.min_survivors
            late = order[len(lost) : len(lost) + min(room, (len(lost) + 1) // 2)]
            plan.update(dict.fromkeys(late, before + 1))
        return plan

    def _order(self, clients: tuple[PartyId, ...], number: int) -> list[PartyId]:
        order: list[PartyId] = (
            np.random.default_rng([*self._seed(clients, number), *b"dropouts"]).permutation(clients).tolist()
        )
        return order

    def _seed(self, clients: tuple[PartyId, ...], number: int) -> list[int]:
        return [self.seed, len(clients), number if self.anew else 0]
