"""How many rows a model gets right."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def accuracy(scores: NDArray[np.float64], labels: NDArray[Any]) -> float:
    """Part of the rows whose largest score stands at their label."""
    return float(np.mean(scores.argmax(axis=1) == labels))
