"""The totals of a run as one file, and a model computed once more from them.

Whoever has a run's totals and its model's file can check that the one gives the other, on any machine and years later:
the learner's configuration is in the model's file, and the solve is a definition. The file is safetensors: arrays
``total 1``, ``total 2``, ..., int64, in the order of the sums, and under ``analytic-totals`` the ``survivors`` of each,
and its receipt in hexadecimal digits under ``receipts``, with what opens its commitment. A total is for those alone who
may have it: a client that holds it takes its own part off.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analytic.array_file import ArrayFile
from analytic.errors import ImpossibleTotalError
from analytic.model_files import SavedModel
from analytic_secagg.errors import FederationError
from analytic_secagg.federation import Federation
from secagg import SumResult


class TotalsFileError(FederationError, ValueError):
    """Stored totals cannot be read, or are not those of a model's sums."""


FILE = ArrayFile(
    entry="analytic-totals",
    version=1,
    what="a run's totals",
    remedy="name totals.safetensors",
    error=TotalsFileError,
)


def totals_to_bytes(results: Sequence[SumResult]) -> bytes:
    """Return the totals of a run's sums, in their order, as the bytes of a file; equal totals have equal bytes."""
    arrays = {f"total {place}": np.ascontiguousarray(one.total) for place, one in enumerate(results, start=1)}
    survivors, receipts = [list(one.survivors) for one in results], [one.receipt.hex() for one in results]
    return FILE.to_bytes(arrays, {"survivors": survivors, "receipts": receipts})


def read_totals(path: Path) -> tuple[SumResult, ...]:
    """Return the totals that a file holds.

    Raises:
        TotalsFileError: it cannot be read, or see ``totals_from_bytes``.
    """
    return totals_from_bytes(bytes_of(path), source=str(path))


def bytes_of(path: Path) -> bytes:
    """Return what a file of a run holds.

    Raises:
        TotalsFileError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise TotalsFileError(f"cannot read {path}: {error.strerror or error}") from error


def totals_from_bytes(content: bytes, *, source: str = "the totals") -> tuple[SumResult, ...]:
    """Return what ``totals_to_bytes`` was given.

    Raises:
        TotalsFileError: damaged bytes, another version, or no such file.
    """
    arrays, said = FILE.from_bytes(content, source)
    try:
        survivors, receipts = said["survivors"], [bytes.fromhex(receipt) for receipt in said["receipts"]]
        if not all(type(party) is int for parties in survivors for party in parties):
            raise TypeError("a party is a number")
        numbered = list(zip(survivors, receipts, strict=True))
    except (ValueError, KeyError, TypeError) as error:
        raise TotalsFileError(f"{source} is no file of a run's totals ({error}); {FILE.remedy}") from error
    names = [f"total {place}" for place in range(1, len(numbered) + 1)]
    if sorted(names) != sorted(arrays) or any(array.dtype != np.int64 or array.ndim != 1 for array in arrays.values()):
        raise TotalsFileError(f"{source} must hold one int64 vector for each of its {len(numbered)} sums")
    return tuple(
        SumResult(total=arrays[name], survivors=tuple(parties), receipt=receipt)
        for name, (parties, receipt) in zip(names, numbered, strict=True)
    )


def differences(saved: SavedModel, totals: Sequence[SumResult], federation: Federation[Any] | None = None) -> list[str]:
    """Compute the model once more from its totals; return where the saved one differs in a bit, nothing if nowhere.

    Totals that no rows add up to make no model, and differ from any.

    Args:
        saved: a complete model with its learner.
        totals: of all its sums, in their order.
        federation: of the same learner, which takes the totals; None for one without release gates.

    Raises:
        TotalsFileError: more or fewer totals than the learner has sums, or totals of another shape.
        AnalyticError: the totals give no model.
        ReleaseRefusedError: a release gate of ``analytic_secagg`` refuses one.
    """
    learner: Any = saved.learner
    federation = Federation(learner, release=None) if federation is None else federation
    for place, result in enumerate(totals, start=1):
        step = federation.next_sum
        if step is None:
            raise TotalsFileError(f"this learner's model is complete after {place - 1} sums, and {len(totals)} came")
        if step.layout.size != len(result.total):
            raise TotalsFileError(
                f"sum {place} of this learner has {step.layout.size} numbers and the stored total {len(result.total)}: "
                "it is another run's"
            )
        try:
            federation.take(result)
        except ImpossibleTotalError as error:
            return [f"sum {place}: {error}"]
    if federation.next_sum is not None:
        raise TotalsFileError(f"this learner needs more than the {len(totals)} sums that are stored; name all of them")
    stored = learner.take_apart(saved.model).arrays
    computed = learner.take_apart(federation.model).arrays
    return [found for name in sorted(stored) if (found := _difference(name, stored[name], computed.get(name)))]


def _difference(name: str, stored: NDArray[Any], computed: NDArray[Any] | None) -> str:
    """Return a sentence on how two arrays differ; empty if they are equal in every bit."""
    if computed is None or computed.shape != stored.shape or computed.dtype != stored.dtype:
        return f"{name}: the totals give no array of {stored.shape} {stored.dtype}"
    other = np.flatnonzero(stored.ravel().view(np.uint64) != computed.ravel().view(np.uint64))
    if not len(other):
        return ""
    first = tuple(int(place) for place in np.unravel_index(other[0], stored.shape))
    return (
        f"{name}: {len(other)} of {stored.size} entries differ, first at {first}: stored {stored[first]!r}, from the "
        f"totals {computed[first]!r}"
    )
