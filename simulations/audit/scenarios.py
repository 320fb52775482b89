"""Attacks that need sums of their own, each run on real sessions of a mode."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from analytic.learner import AnalyticLearner
from federation.modes import Mode
from secagg import Guarantee, Layout, PartyId, PlainSum, SumProtocol, new_session_id
from secagg.config import SERVER
from secagg.in_memory import Envelope
from secagg.layout import IntVector
from secagg.wire import MessageType, seal_frame
from simulations.audit.attack import attacked
from simulations.audit.attacks.afl_upload import AflUpload, published_upload
from simulations.audit.attacks.collusion import Collusion
from simulations.audit.attacks.differencing import Differencing
from simulations.audit.attacks.different_models import DifferentModels, ForgedHeaders, TwoContexts, dead_vector
from simulations.audit.attacks.many_sums import ManySums
from simulations.audit.attacks.mask_reuse import MaskReuse
from simulations.audit.attacks.own_part import OwnPart
from simulations.audit.evaluate import Score
from simulations.audit.reading import Reading
from simulations.audit.recorder import RecordedSum, record_federation, record_sum, view_of
from simulations.audit.view import SERVER_ALONE, WIRE_TAPPER, AdversaryView, Coalition, SumView
from simulations.audit.workbench import Bench

SMALL_COHORT = 5
VICTIM = 2
ALL_ZERO = b"a model whose features are all zero"


def differencing(bench: Bench, mode: Mode, trials: int) -> Score:
    """Two totals, the second without the victim, who did not show up."""
    scores = []
    for _ in range(trials):
        cohort = bench.cohort(SMALL_COHORT)
        vectors = bench.vectors(cohort)
        others = {party: vector for party, vector in vectors.items() if party != VICTIM}
        second = record_sum(bench.parties(mode, tuple(vectors)), others, model=bench.model, entropy=bench.entropy)
        view = view_of((bench.run(mode, vectors), second), SERVER_ALONE, bench.known())
        truth = bench.truth(cohort[VICTIM], vectors[VICTIM])
        scores.append(attacked(Differencing(), view, VICTIM, truth, bench.rng))
    return Score.pooled(scores)


def mask_reuse(bench: Bench, mode: Mode, trials: int) -> Score:
    """Every client adds one row between two sums; who could then cancel masks?"""
    before, after, added = growing_cohort(bench, trials)
    view = view_of((bench.run(mode, before), bench.run(mode, after)), SERVER_ALONE, bench.known())
    return reuse_score(bench, view, after, added)


def reuse_score(bench: Bench, view: AdversaryView, after: dict[PartyId, IntVector], added: dict[PartyId, Any]) -> Score:
    """The attack on every client of a view of two sums."""
    return Score.pooled(
        attacked(MaskReuse(), view, party, bench.truth(added[party], after[party]), bench.rng) for party in after
    )


def growing_cohort(
    bench: Bench, n_clients: int
) -> tuple[dict[PartyId, IntVector], dict[PartyId, IntVector], dict[PartyId, Any]]:
    """Everybody's vector without its last row, with it, and that row's index."""
    cohort = {party: indices for party, indices in bench.cohort(max(2, n_clients), 6).items() if len(indices) > 1}
    before = {party: bench.vector(indices[:-1]) for party, indices in cohort.items()}
    return before, bench.vectors(cohort), {party: indices[-1:] for party, indices in cohort.items()}


def different_models(bench: Bench, mode: Mode, trials: int, *, bound: bool = True) -> Score:
    """A server that keeps a working model for the victim; with ``bound`` clients bind their keys to what they hold."""
    scores = []
    for _ in range(trials):
        cohort = bench.cohort(SMALL_COHORT)
        vectors = bench.vectors(cohort)
        sent = {p: vector if p == VICTIM else dead_vector(vector) for p, vector in vectors.items()}
        context = hashlib.sha256(ALL_ZERO).digest() if bound else bench.context
        parties = TwoContexts.of(bench.parties(mode, tuple(sent)), VICTIM, context)
        recorded = record_sum(parties, sent, network=ForgedHeaders(parties=parties), entropy=bench.entropy)
        view = view_of((recorded,), SERVER_ALONE, bench.known())
        scores.append(attacked(DifferentModels(), view, VICTIM, bench.truth(cohort[VICTIM], sent[VICTIM]), bench.rng))
    return Score.pooled(scores)


def own_part(bench: Bench, mode: Mode, trials: int) -> Score:
    """Cohorts of two whose first member takes its own part off the total that FedHiP hands out."""
    coalition = Coalition(name="another client", parties=frozenset({1}), given_total=True)
    scores = []
    for _ in range(trials):
        cohort = bench.cohort(2)
        vectors = bench.vectors(cohort)
        view = view_of((bench.run(mode, vectors),), coalition, bench.known())
        scores.append(attacked(OwnPart(), view, VICTIM, bench.truth(cohort[VICTIM], vectors[VICTIM]), bench.rng))
    return Score.pooled(scores)


def afl_upload(bench: Bench, trials: int, *, fraction_bits: int, gamma: float = 1.0) -> Score:
    """Clients that send W and C as AFL's paper has it, in a session without any protection."""
    attack, scores = AflUpload(fraction_bits=fraction_bits), []
    cohort = bench.cohort(trials)
    for party, indices in cohort.items():
        vector = bench.vector(indices)
        reading = Reading.of(bench.layout, vector)
        payload = published_upload(reading, fraction_bits=fraction_bits, gamma=gamma)
        message = seal_frame(MessageType.PLAIN_INPUT, payload, digest=bytes(32), sender=party, recipient=SERVER)
        one = SumView(
            protocol=_shape_only(bench.layout, tuple(cohort)),
            model=bench.model,
            messages=(Envelope(sender=party, recipient=SERVER, message=message),),
            result=None,
            inputs={},
            tapes={},
            secrets={},
        )
        view = AdversaryView(coalition=SERVER_ALONE, sums=(one,), known=bench.known())
        scores.append(attacked(attack, view, party, bench.truth(indices, vector), bench.rng))
    return Score.pooled(scores)


def _shape_only(layout: Layout, clients: tuple[PartyId, ...]) -> SumProtocol:
    return PlainSum(layout=layout, clients=clients, session_id=new_session_id())


def many_sums(bench: Bench, deep: AnalyticLearner[Any], mode: Mode, n_clients: int) -> dict[int, Score]:
    """Membership against the first sum, the first three, ... of a deep learner, on the totals alone."""
    cohort = bench.cohort(n_clients)
    clients = {party: bench.population.rows(indices) for party, indices in cohort.items()}
    sums = record_federation(deep, clients, mode, entropy=bench.entropy)
    truth = bench.truth(np.concatenate(list(cohort.values())), sums[0].inputs[1])
    view = view_of(sums, SERVER_ALONE, bench.known())
    candidates, public = bench.population.single_candidates(), bench.population.single_public()
    return {
        n: attacked(
            ManySums(learner=deep, candidates=candidates, public=public, n_sums=n), view, None, truth, bench.rng
        )
        for n in range(1, len(sums) + 1, 2)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class CoalitionScore:
    """What a coalition achieved against every client outside it.

    Args:
        mode: of the sum.
        coalition: in words.
        members: how many parties beside the server.
        should_break: whether the protocol's own statement says that this coalition is too large.
        score: over the clients outside.
    """

    mode: str
    coalition: str
    members: int
    should_break: bool
    score: Score

    @property
    def as_stated(self) -> bool:
        """Whether it broke exactly where the protocol says."""
        return self.score.hits == (self.score.trials if self.should_break else 0)


def collusion(
    bench: Bench, mode: Mode, *, n_clients: int = 7, sizes: tuple[int, ...] | None = None
) -> Iterator[CoalitionScore]:
    """The server with ever more clients or helpers, over the same recorded sum."""
    cohort = bench.cohort(n_clients)
    recorded = bench.run(mode, bench.vectors(cohort))
    for coalition, should_break in _coalitions(recorded, sizes):
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
