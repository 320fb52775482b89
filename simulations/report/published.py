"""Errors that others have published for federated sums: each with what it measures and where it stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedError:
    """One number of somebody else's.

    Args:
        name: whose, in few words.
        value: the number.
        measure: what it is the size of.
        source: where it stands.
    """

    name: str
    value: float
    measure: str
    source: str


FLOWER_RANGE, FLOWER_LEVELS = 2 * 8.0, 2**22
"""Defaults ``clipping_range=8.0`` (both signs) and ``quantization_range=4194304``."""

_AFL_SOURCE = "Zhuang et al., Analytic Federated Learning, arXiv:2405.16240, table 1, row with RI"
_AFL_MEASURE = (
    "sum of absolute differences between aggregated and jointly trained weights, 512 random features, float64"
)

PUBLISHED = (
    PublishedError(name="AFL's authors, 2 clients", value=4.94e-14, measure=_AFL_MEASURE, source=_AFL_SOURCE),
    PublishedError(name="AFL's authors, 100 clients", value=7.57e-10, measure=_AFL_MEASURE, source=_AFL_SOURCE),
    PublishedError(
        name="Flower SecAgg+, rounding step",
        value=FLOWER_RANGE / FLOWER_LEVELS,
        measure="step to which each entry of an update is rounded with default settings, calculated as 16 / 2^22",
        source="Flower 1.41, reference of SecAggPlusWorkflow: clipping_range, quantization_range",
    ),
)
"""Other data and other measures than ours: good for powers of ten, and for nothing finer."""
