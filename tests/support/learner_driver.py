"""A learner's sums over plain numpy addition: what every secure sum must agree with, and nothing hidden on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.learner import ClientRows


def dealt(rows: ClientRows, owners: NDArray[Any], n_clients: int) -> list[ClientRows]:
    """Rows as the clients hold them: row i is client ``owners[i]``'s, and some clients may have none."""
    return [rows.taken(owners == k) for k in range(n_clients)]


def steps(
    learner: Any, clients: Sequence[ClientRows], chosen: Sequence[Sequence[int]] | None = None, *, start: Any = None
) -> Iterator[Any]:
    """The model before its first sum and after each one.

    Args:
        learner: the closed form.
        clients: everybody's rows.
        chosen: who takes part in each sum; everybody in every one when left out.
        start: the model to go on from; the one before the first sum when left out.
    """
    model = learner.init() if start is None else start
    turns = repeat(range(len(clients))) if chosen is None else iter(chosen)
    yield model
    while (spec := learner.next_sum(model)) is not None:
        took_part = list(next(turns))
        vectors = [spec.to_vector(learner.client_statistics(model, clients[k])) for k in took_part]
        nothing = np.zeros(sum(size for _, size, _ in spec.segments), dtype=np.int64)
        model = learner.update(model, spec.from_vector(sum(vectors, start=nothing)), len(took_part))
        yield model


def train(
    learner: Any, clients: Sequence[ClientRows], chosen: Sequence[Sequence[int]] | None = None, *, start: Any = None
) -> Any:
    """The complete model."""
    *_, model = steps(learner, clients, chosen, start=start)
    return model
