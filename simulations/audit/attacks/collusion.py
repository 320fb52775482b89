"""Who must work together to open one client's message: every coalition against the protocol's own statement."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from federation.modes import Mode
from secagg import Guarantee, PartyId
from secagg.errors import ConfigurationError
from secagg.layout import IntVector
from simulations.audit.attack import Attack, CoalitionScore, NotTriedError, Outcome, VectorGuesser, attacked
from simulations.audit.evaluate import Score
from simulations.audit.view import (
    SERVER_ALONE,
    WIRE_TAPPER,
    AdversaryView,
    Coalition,
    RecordedSum,
    read_integers,
    view_of,
)
from simulations.audit.workbench import Bench

COHORT = 7


class Collusion(VectorGuesser, Attack):
    """The server with ever more clients or helpers takes off every mask whose seed they can rebuild together."""

    name = "collusion"
    title = "One client, by a coalition that pools its secrets"
    explanation = (
        "The coalition uses every key, share and random number of its members to take the target's message apart, as "
        "far as the protocol's own mathematics allow. Success: every number exact. Chance: less than naming one row "
        "out of the pool."
    )

    def play(self, bench: Bench, mode: Mode | None, trials: int) -> Outcome:
        """Try every coalition; the score is that of all those which the protocol claims to withstand.

        Raises:
            NotTriedError: the mode cannot serve such a cohort.
        """
        assert mode is not None
        try:
            scores = tuple(by_coalition(bench, mode, COHORT))
        except ConfigurationError as error:
            raise NotTriedError(f"collusion in mode {mode.name}: {error}") from error
        withstood = [one.score for one in scores if not one.should_break]
        return Outcome(score=Score.pooled(withstood or [one.score for one in scores]), coalitions=scores)

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> IntVector | None:
        """Return the target's vector, or what is left of the masks."""
        one = view.sums[-1]
        opened = None if target is None else one.protocol.opened_by(one.knowledge, target)
        return None if opened is None else read_integers(one.layout, opened.to_bytes())


def by_coalition(bench: Bench, mode: Mode, n_clients: int) -> Iterator[CoalitionScore]:
    """What each coalition makes of the messages of the clients outside it."""
    cohort = bench.cohort(n_clients)
    recorded = bench.run(mode, bench.vectors(cohort))
    for coalition, should_break in _coalitions(recorded, bench.coalitions):
        view = view_of((recorded,), coalition, bench.known())
        scores = [
            attacked(Collusion(), view, party, bench.truth(indices, recorded.inputs[party]), bench.rng)
            for party, indices in cohort.items()
            if party not in coalition.parties
        ]
        yield CoalitionScore(
            mode=mode.name,
            coalition=coalition.name,
            members=len(coalition.parties),
            should_break=should_break,
            score=Score.pooled(scores),
        )


def _coalitions(recorded: RecordedSum, sizes: tuple[int, ...] | None) -> Iterator[tuple[Coalition, bool]]:
    """Coalitions with what the protocol states about each: ever more clients, then ever more helpers."""
    protocol, guarantee = recorded.protocol, recorded.protocol.guarantee
    clients, helpers, n = protocol.clients, protocol.helpers, len(protocol.clients)
    yield WIRE_TAPPER, guarantee.opens_alone
    if guarantee.opening_clients:
        for size in sizes if sizes is not None else range(n):
            if size >= n:
                continue
            name = f"server and {size} of {n} clients (threshold {guarantee.threshold})"
            members = frozenset(clients[n - size :])
            yield _stated(guarantee, name, members, frozenset())
            if helpers:
                yield _stated(guarantee, f"{name} and the key holder", members, frozenset(helpers))
        return
    yield SERVER_ALONE, guarantee.opens_alone
    role = next((role for role, keys in protocol.public_keys.items() if set(helpers) & keys.keys()), "helper")
    for size in range(1, len(helpers) + 1):
        members = frozenset(helpers[:size])
        yield Coalition(name=f"{size} of {len(helpers)} {role}s, without the server", parties=members), False
        yield _stated(guarantee, f"server and {size} of {len(helpers)} {role}s", frozenset(), members)


def _stated(
    guarantee: Guarantee, name: str, clients: frozenset[PartyId], helpers: frozenset[PartyId]
) -> tuple[Coalition, bool]:
    """The server with these parties, and whether the protocol says that they open uploads."""
    opens = guarantee.opened_by(server=True, n_clients=len(clients), helpers=helpers)
    return Coalition(name=name, server=True, parties=clients | helpers), opens
