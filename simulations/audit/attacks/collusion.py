"""Who must work together to open one client's message: every coalition against the protocol's own statement."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analytic_secagg.modes import Mode
from secagg import Guarantee, PartyId, SumProtocol
from secagg.errors import ConfigurationError
from secagg.layout import IntVector
from simulations.audit.attack import Attack, CoalitionScore, NotTriedError, Outcome, VectorGuesser, attacked
from simulations.audit.evaluate import Score
from simulations.audit.exposure import Exposure
from simulations.audit.knowledge import Known
from simulations.audit.view import (
    SERVER_ALONE,
    WIRE_TAPPER,
    Coalition,
    read_integers,
)
from simulations.audit.workbench import Bench, who_spoke

COHORT = 7

MOST_SEATS = 7
"""Parties of whom each is tried as the one that colludes."""


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

    def guess(self, seen: Exposure, known: Known, rng: np.random.Generator) -> IntVector | None:
        """Return the target's vector, or what is left of the masks."""
        one, target = seen.sums[-1], seen.target
        opened = None if target is None else one.protocol.reconstruct_upload(one.knowledge, target)
        return None if opened is None else read_integers(one.layout, opened.to_bytes())


ATTACK = Collusion()


def by_coalition(bench: Bench, mode: Mode, n_clients: int) -> Iterator[CoalitionScore]:
    """What each coalition makes of the messages of the clients outside it, wherever in the cohort its members sit.

    Of two sums, in one of which clients are lost. The server alone also attacks a sum for each client in which that
    one comes late: its masks with others are revealed, and its own one must hold.
    """
    cohort = bench.cohort(n_clients)
    vectors = bench.vectors(cohort)
    sums = [bench.run(mode, vectors), *(bench.run_with_dropouts(mode, vectors, late) for late in cohort)]
    every = [who_spoke(cohort, recorded) for recorded in sums]
    for name, should_break, seats in _coalitions(sums[0].protocol, bench):
        runs = every if seats[0].server and not seats[0].parties else every[:2]
        scores = [
            attacked(
                ATTACK,
                Exposure.of((recorded,), party, coalition=seat),
                bench.known(),
                bench.truth(indices, recorded.inputs[party]),
                bench.rng,
            )
            for cohort, recorded in runs
            for seat in seats
            for party, indices in cohort.items()
            if party not in seat.parties
        ]
        yield CoalitionScore(
            mode=mode.name,
            coalition=name,
            members=len(seats[0].parties),
            should_break=should_break,
            score=Score.pooled(scores),
        )


def _coalitions(protocol: SumProtocol, bench: Bench) -> Iterator[tuple[str, bool, list[Coalition]]]:
    """Coalitions in several seats with what the protocol states of them: ever more clients, then ever more helpers."""
    guarantee, clients, helpers = protocol.guarantee, protocol.clients, protocol.helpers
    n, everybody = len(clients), frozenset(helpers)
    yield WIRE_TAPPER.name, guarantee.plaintext_upload, [WIRE_TAPPER]
    if guarantee.client_reconstruction_threshold:
        for size in bench.coalitions if bench.coalitions is not None else range(n):
            if size >= n:
                continue
            name = f"server and {size} of {n} clients (threshold {guarantee.threshold})"
            seats = _seats(clients, size, bench.rng)
            yield _stated(guarantee, name, seats, [frozenset()] * len(seats))
            if helpers:
                yield _stated(guarantee, f"{name} and the key holder", seats, [everybody] * len(seats))
        return
    yield SERVER_ALONE.name, guarantee.plaintext_upload, [SERVER_ALONE]
    role = next((role for role, keys in protocol.public_keys.items() if everybody & keys.keys()), "helper")
    for size in range(1, len(helpers) + 1):
        seats = _seats(helpers, size, bench.rng)
        alone = f"{size} of {len(helpers)} {role}s, without the server"
        yield alone, False, [Coalition(name=alone, parties=seat) for seat in seats]
        yield _stated(guarantee, f"server and {size} of {len(helpers)} {role}s", [frozenset()] * len(seats), seats)


def _seats(parties: tuple[PartyId, ...], size: int, rng: np.random.Generator) -> list[frozenset[PartyId]]:
    """So many at the end, at the beginning and anywhere; of few parties each of them alone."""
    if size == 1 and len(parties) <= MOST_SEATS:
        return [frozenset({party}) for party in parties]
    anywhere = (int(party) for party in rng.permutation(parties)[:size])
    return list(dict.fromkeys(map(frozenset, (parties[len(parties) - size :], parties[:size], anywhere))))


def _stated(
    guarantee: Guarantee, name: str, clients: list[frozenset[PartyId]], helpers: list[frozenset[PartyId]]
) -> tuple[str, bool, list[Coalition]]:
    """The server with these parties in each seat, and whether the protocol says that they open uploads."""
    opens = guarantee.exposes_uploads_to(server=True, n_clients=len(clients[0]), helpers=helpers[0])
    seats = [
        Coalition(name=name, server=True, parties=of_c | of_h) for of_c, of_h in zip(clients, helpers, strict=True)
    ]
    return name, opens, seats
