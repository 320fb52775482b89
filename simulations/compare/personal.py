"""Personal models as FedHiP's paper measures them: on a fifth of each client's own rows that it keeps for testing."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import AnalyticLearner, ClientRows
from analytic.row_format import FloatMatrix
from analytic_secagg.learners import Personalise
from secagg import PartyId
from simulations.compare.reference import accuracy, r2
from simulations.data.partitions import Indices

LOCAL_TEST_FRACTION = 0.2


@dataclass(frozen=True, slots=True, eq=False)
class LocalSplit:
    """Each client's rows in two parts; a client with fewer than three rows trains on all of them.

    Args:
        train: what enters the sum and personalises, by party.
        test: what the client's own model is tested on.
    """

    train: Mapping[PartyId, Indices]
    test: Mapping[PartyId, Indices]


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonalScores:
    """Mean accuracy over the clients that hold test rows of their own, or R2 of all these rows; None without any.

    Args:
        of_global: of the global model on their rows.
        of_personal: of their personal models, by alpha.
        bitwise_equal_to_pooled: whether every client's personal weights are, for every alpha, those that follow from
            the pooled total.
        uncertified: personal arrays whose bits are this machine's, as ``Parts.uncertified`` names them, each once.
    """

    of_global: float | None
    of_personal: Mapping[str, float] | None
    bitwise_equal_to_pooled: bool
    uncertified: tuple[str, ...]


def split_locally(parts: Mapping[PartyId, Indices], seed: int) -> LocalSplit:
    """A fifth of each client's rows for testing, drawn with a generator of the client's own."""
    train, test = {}, {}
    for party, rows in parts.items():
        rng = np.random.default_rng([seed, len(parts), party, *b"own test rows"])
        own_test, own_train = np.split(rng.permutation(rows), [round(LOCAL_TEST_FRACTION * len(rows))])
        train[party], test[party] = np.sort(own_train), np.sort(own_test)
    return LocalSplit(train, test)


def _quality(scores: Sequence[FloatMatrix], targets: Sequence[NDArray[Any]]) -> float:
    """Mean accuracy over clients; of real targets R2 over all their rows, since few rows have little spread."""
    if targets[0].dtype.kind == "f":
        return r2(np.concatenate(scores), np.concatenate(targets))
    return statistics.fmean(accuracy(own, labels) for own, labels in zip(scores, targets, strict=True))


def personal_scores(
    learner: AnalyticLearner[object],
    personalise: Personalise,
    alphas: Sequence[float],
    *,
    model: object,
    pooled_model: object,
    clients: Iterable[tuple[ClientRows, ClientRows]],
) -> PersonalScores:
    """How well each client's personal model does, and whether it is the one that the pooled total gives.

    Args:
        learner: the closed form.
        personalise: its last phase, which runs at each client.
        alphas: weights of a client's own rows.
        model: what the federation sent to its clients.
        pooled_model: the same from the survivors' pooled rows.
        clients: (training rows, test rows) of every client that took part.
    """
    equal, found = True, dict[str, None]()
    scored, targets = [], []
    for own, test in clients:
        models = personalise(learner, model, own, alphas)
        pooled = personalise(learner, pooled_model, own, alphas)
        equal &= [one.weights.tobytes() for one in models] == [one.weights.tobytes() for one in pooled]
        found |= dict.fromkeys(f"personal {name}" for one in models for name in learner.take_apart(one).uncertified)
        if len(test):
            scored.append([learner.decision_function(one, test.features) for one in (model, *models)])
            targets.append(test.targets)
    if not scored:
        return PersonalScores(of_global=None, of_personal=None, bitwise_equal_to_pooled=equal, uncertified=tuple(found))
    of_global, *of_personal = (_quality(column, targets) for column in zip(*scored, strict=True))
    return PersonalScores(
        of_global=of_global,
        of_personal={f"{alpha:g}": one for alpha, one in zip(alphas, of_personal, strict=True)},
        bitwise_equal_to_pooled=equal,
        uncertified=tuple(found),
    )
