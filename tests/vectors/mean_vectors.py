"""Vectors of means: what each client's arrays become, and the mean of the total; written by ``make_vectors.py``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from vector_parts import Recorded

from secagg.mean import MeanSpec
from secagg.sessions import SumResult

SEED = 4
W, B = [[0.5, -0.30000001192092896], [7.0, 2.0**-30], [-9.5, 1e-3]], 0.1
"""One number lies on the grid, one is clipped, one is below a step."""


def mean_file(rounding: Any, entry_bytes: int) -> dict[str, Any]:
    """One mean of three clients; floats are exact, in the notation of C99."""
    spec = MeanSpec(
        shapes=(("w", (3, 2)), ("b", ())),
        exponents=(3, -3),
        n_clients=4,
        max_weight=70,
        entry_bytes=entry_bytes,
        rounding=rounding,
        metrics=("loss",),
    )
    clients: dict[str, Any] = {}
    total = np.zeros(spec.layout.size, dtype=np.int64)
    for party, weight in ((1, 70), (2, 1), (3, 33)):
        w, b, loss = np.array(W) / party, np.float64(B * party), 2.5 / party
        entropy = Recorded(SEED, f"mean {rounding} {party}")
        vector = spec.vector({"w": w, "b": b}, weight=weight, metrics={"loss": loss}, entropy=entropy)
        total += vector
        clients[str(party)] = {
            "arrays": {"w": [float(x).hex() for x in w.flat], "b": [float(b).hex()]},
            "weight": weight,
            "metrics": {"loss": float(loss).hex()},
            "entropy": entropy.drawn.hex(),
            "vector": vector.tolist(),
        }
    mean = spec.mean(SumResult(total=total, survivors=(1, 2, 3)))
    return {
        "shapes": [[name, list(shape)] for name, shape in spec.shapes],
        "exponents": list(spec.exponents),
        "n_clients": spec.n_clients,
        "max_weight": spec.max_weight,
        "entry_bytes": spec.entry_bytes,
        "rounding": spec.rounding,
        "metrics": list(spec.metrics),
        "layout": spec.layout.canonical().hex(),
        "clients": clients,
        "mean": {name: [float(x).hex() for x in np.ravel(array)] for name, array in mean.arrays.items()},
        "mean_metrics": {name: value.hex() for name, value in mean.metrics.items()},
        "clipped": dict(mean.clipped),
    }


def all_files() -> dict[str, str]:
    """The text of each file by its name."""
    made = {"nearest.json": mean_file("nearest", 3), "stochastic.json": mean_file("stochastic", 2)}
    return {name: json.dumps(content, indent=1) + "\n" for name, content in made.items()}
