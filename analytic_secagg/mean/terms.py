"""Terms of secure means: what a federation agrees on before it trains."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from analytic_secagg.errors import UsageError
from secagg import MeanSpec
from secagg.dp import MeanPrivacy, PrivateMeanSpec

Model = Mapping[str, NDArray[Any]]
"""Arrays by name."""

FIRST_BYTES = 4
"""Bytes of a number in a round whose scales follow from no mean yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTerms:
    """Terms that a federation agrees on before it trains: server and clients state the same.

    Args:
        max_weight: largest number of examples of a client. Twice of it costs one bit of accuracy: state the largest
            that occurs, and not a number that is surely enough.
        metrics: names of the numbers that are averaged; a client's other ones are not sent.
        clip: largest absolute change of a number in a round that is not clipped, of all float arrays or by name. In
            four bytes the default suits trained weights. Running statistics, such as the variance of BatchNorm, may
            change by more: state a larger one for them. It is the same in every round, so it tells nothing.
        entry_bytes: 2, 3 or 4 bytes a number.
        weighted_by: the metric that holds a client's number of examples.
        mode: ``masked``, or ``committee``: each client sends one message, and helpers take the masks off.
        helpers: number of helpers of a committee without a roster; with a roster all that it lists help.
        corrupt_helpers: of these helpers, how many may collude with the server.
        carry_scales: whether each round takes its scales from the mean before it (``MeanSpec.next_round``), beginning
            with ``clip`` in four bytes. The server names them, so it must be semi-honest: refused with a roster.
        privacy: what the whole training promises to each client; None adds no noise. The mean then counts every client
            alike, so ``max_weight`` is 1, and no metrics are released.

    Example:
        >>> MeanTerms(max_weight=500, metrics=("train_loss",)).spec((("w", (2,)),), 10).layout.wire_bytes
        18

    Raises:
        UsageError: weighted_by among metrics, or an unknown mode.
        ConfigurationError: what makes no mean of one client (``MeanSpec``).
    """

    max_weight: int
    metrics: tuple[str, ...] = ()
    clip: float | Mapping[str, float] = 8.0
    entry_bytes: int = 4
    weighted_by: str = "num-examples"
    mode: Literal["masked", "committee"] = "masked"
    helpers: int = 4
    corrupt_helpers: int = 1
    carry_scales: bool = False
    privacy: MeanPrivacy | None = None

    def __post_init__(self) -> None:
        if type(self.weighted_by) is not str or self.weighted_by in self.metrics:
            raise UsageError(
                f"weighted_by is the name of a metric that is not among metrics, not {self.weighted_by!r}: its sum is "
                "the mean's weight"
            )
        if self.mode not in ("masked", "committee"):
            raise UsageError(f"mode is masked or committee, not {self.mode!r}")
        if self.privacy is not None and (self.max_weight != 1 or self.metrics or self.carry_scales):
            raise UsageError(
                "a private mean counts every client alike and releases nothing beside: state max_weight=1, no metrics "
                "and no carry_scales"
            )
        names = self.clip if isinstance(self.clip, Mapping) else ("an array's name",)
        if self.privacy is None:
            self.spec(tuple((name, ()) for name in names), 1)

    def spec(
        self, shapes: tuple[tuple[str, tuple[int, ...]], ...], n_clients: int, exponents: tuple[int, ...] = ()
    ) -> MeanSpec | PrivateMeanSpec:
        """Return the mean of updates of a model with these float arrays.

        Args:
            shapes: name and shape of each.
            n_clients: size of the cohort.
            exponents: the round's scales where they are carried; empty in a first round, and where they are not.
        """
        if self.privacy is not None:
            return PrivateMeanSpec(
                shapes=shapes, n_clients=n_clients, privacy=self.privacy, entry_bytes=self.entry_bytes
            )
        first = MeanSpec.of(
            {name: np.broadcast_to(np.float64(0), shape) for name, shape in shapes},
            n_clients=n_clients,
            clip=self.clip,
            max_weight=self.max_weight,
            entry_bytes=FIRST_BYTES if self.carry_scales and not exponents else self.entry_bytes,
            metrics=self.metrics,
        )
        if not exponents:
            return first
        return MeanSpec(
            shapes=first.shapes,
            exponents=exponents,
            n_clients=n_clients,
            max_weight=self.max_weight,
            entry_bytes=self.entry_bytes,
            metrics=self.metrics,
            is_carried=True,
        )


def floats_of(model: Model) -> dict[str, NDArray[Any]]:
    """Return the float arrays of a model. Counters and other whole numbers are no part of a mean.

    Raises:
        UsageError: an array of another kind, such as complex numbers.
    """
    unknown = [f"{name} ({array.dtype})" for name, array in model.items() if array.dtype.kind not in "fiub"]
    if unknown:
        raise UsageError(f"a secure mean has real and whole numbers, not {', '.join(unknown)}; split complex ones")
    return {name: array for name, array in model.items() if array.dtype.kind == "f"}


def digest_of(model: Model) -> bytes:
    """Return the hash of every array of a model, which all clients must have received."""
    digest = hashlib.sha256()
    for name, array in model.items():
        digest.update(repr((name, array.dtype.str, array.shape, array.nbytes)).encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.digest()
