"""Personal models as FedHiP's paper measures them: on a fifth of each client's own rows that it keeps for testing."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analytic.learner import AnalyticLearner, ClientRows
from federation.learners import Personalise
from secagg import PartyId
from simulations.compare.reference import accuracy
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
    """Means over the clients that hold test rows of their own; None where no client does.

    Args:
        global_accuracy: of the global model on their rows.
        accuracy: of their personal models, by alpha.
        bitwise_equal_to_pooled: whether every client's personal weights are, for every alpha, those that follow from
            the pooled total.
        uncertified: personal arrays whose bits are this machine's, as ``Parts.uncertified`` names them, each once.
    """

    global_accuracy: float | None
    accuracy: Mapping[str, float] | None
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
    equal, general, found = True, [], dict[str, None]()
    personal: list[list[float]] = []
    for own, test in clients:
        models = personalise(learner, model, own, alphas)
        pooled = personalise(learner, pooled_model, own, alphas)
        equal &= [one.weights.tobytes() for one in models] == [one.weights.tobytes() for one in pooled]
        found |= dict.fromkeys(f"personal {name}" for one in models for name in learner.take_apart(one).uncertified)
        if len(test):
            scores = [learner.decision_function(one, test.features) for one in (model, *models)]
            first, *others = (accuracy(score, test.targets) for score in scores)
            general.append(first)
            personal.append(others)
    if not general:
        return PersonalScores(
            global_accuracy=None, accuracy=None, bitwise_equal_to_pooled=equal, uncertified=tuple(found)
        )
    means = [statistics.fmean(column) for column in zip(*personal, strict=True)]
    return PersonalScores(
        global_accuracy=statistics.fmean(general),
        accuracy={f"{alpha:g}": mean for alpha, mean in zip(alphas, means, strict=True)},
        bitwise_equal_to_pooled=equal,
        uncertified=tuple(found),
    )
