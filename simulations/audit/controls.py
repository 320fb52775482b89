"""Negative controls: planted faults, which the same attacks must notice in the same report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from federation.modes import MODES
from secagg import InOneProcess, InsecureSeededEntropy, MaskedSum, PartyId
from secagg.layout import IntVector
from simulations.audit.attack import Attack, attacked
from simulations.audit.attacks.told_apart import ToldApart
from simulations.audit.attacks.uniformity import Uniformity
from simulations.audit.evaluate import Score, Verdict
from simulations.audit.planted_bugs import BUGS, with_bug
from simulations.audit.recorder import RecordedSum, record_sum, view_of
from simulations.audit.scenarios import different_models, growing_cohort, reuse_score
from simulations.audit.view import SERVER_ALONE
from simulations.audit.workbench import Bench, Cohort

MASKED = MODES["masked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A planted fault and what each attack made of it.

    Args:
        name: in JSON.
        title: in words.
        scores: by attack.
    """

    name: str
    title: str
    scores: dict[str, Score]

    @property
    def caught(self) -> bool:
        """Whether at least one attack noticed."""
        return any(score.verdict in (Verdict.LEAKS, Verdict.RECOVERED) for score in self.scores.values())


def controls(bench: Bench, runs: list[tuple[Cohort, RecordedSum]], trials: int) -> Iterator[Control]:
    """Every planted fault; the broken masks are planted into masked sums that were recorded already."""
    attacks: dict[str, Attack[Any]] = {attack.name: attack for attack in (Uniformity(), ToldApart())}
    for bug in BUGS.values():
        scores = {
            name: against(bench, attacks[name], [(c, with_bug(r, bug)) for c, r in runs]) for name in bug.caught_by
        }
        yield Control(name=bug.name, title=bug.title, scores=scores)
    yield Control(name="mask_reuse", title="the same masks in two sums", scores={"mask_reuse": _reused(bench, trials)})
    unbound = different_models(bench, MASKED, trials, bound=False)
    yield Control(
        name="unbound",
        title="keys that are not bound to the model that a client received",
        scores={"different_models": unbound},
    )


def against(bench: Bench, attack: Attack[Any], runs: list[tuple[Cohort, RecordedSum]]) -> Score:
    """An attack on every client's message of several sums."""
    scores = []
    for cohort, recorded in runs:
        view = view_of((recorded,), SERVER_ALONE, bench.known(bench.worlds(recorded.inputs)))
        scores += [
            attacked(attack, view, party, bench.truth(indices, recorded.inputs[party]), bench.rng)
            for party, indices in cohort.items()
        ]
    return Score.pooled(scores)


def _reused(bench: Bench, trials: int) -> Score:
    """Two sums under one session id whose parties draw the same keys: what a restored snapshot could do."""
    before, after, added = growing_cohort(bench, trials)
    seed = int(bench.rng.integers(2**31))

    def run(vectors: dict[PartyId, IntVector]) -> RecordedSum:
        protocol = MaskedSum(
            layout=bench.layout, clients=tuple(vectors), session_id=seed.to_bytes(16, "big"), context=bench.context
        )
        entropy = InsecureSeededEntropy(seed, "reused on purpose")
        return record_sum(InOneProcess(protocol=protocol), vectors, model=bench.model, entropy=entropy)

    view = view_of((run(before), run(after)), SERVER_ALONE, bench.known())
    return reuse_score(bench, view, after, added)
