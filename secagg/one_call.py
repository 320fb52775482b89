"""Means and sums of arrays whose clients are all in this process, each in one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from secagg.array_sum import ArraySumSpec
from secagg.committee.protocol import CommitteeSum
from secagg.config import new_session_id
from secagg.encryption.encrypted import encrypted
from secagg.errors import ConfigurationError, InvalidVectorError
from secagg.fixed_point import HIGHEST, LOWEST, Rounding, as_array
from secagg.in_memory import InOneProcess, Parties, run_in_memory
from secagg.layout import IntVector, Layout
from secagg.masked.protocol import MaskedSum
from secagg.mean import MeanResult, MeanSpec
from secagg.plain import PlainSum
from secagg.sessions import PartyId, SumResult

T = TypeVar("T")

Arrays = Mapping[str, Any]
"""A client's arrays by name: whatever ``numpy.asarray`` reads."""


def secure_mean(
    clients: Mapping[PartyId, Arrays],
    *,
    weights: Mapping[PartyId, int] | None = None,
    metrics: Mapping[PartyId, Mapping[str, float]] | None = None,
    mode: str = "masked",
    clip: float | Mapping[str, float] | None = None,
    entry_bytes: int = 4,
    rounding: Rounding = "stochastic",
) -> MeanResult:
    """Return the weighted mean of arrays, made by one secure sum whose clients are all in this process.

    For simulations and tests: a deployment exchanges the messages of the same sum over a network (``MeanSpec``).

    Args:
        clients: each client's float arrays, by its number from 1.
        weights: whole numbers of at least 1, such as numbers of rows; None for equal weights.
        metrics: of each client, numbers to average too, the same names for all.
        mode: ``masked``, ``committee``, ``plain``, ``bfv`` or ``ckks``; the result has the same integers in each.
        clip: largest absolute value that is not clipped, of all arrays or by name. None takes the largest that there
            is, which a deployment cannot know.
        entry_bytes: 2, 3 or 4 bytes a number.
        rounding: ``stochastic`` or ``nearest``.

    Raises:
        ConfigurationError: no such mode, or what does not fit.
        InvalidVectorError: a client's arrays do not fit; which client and array.

    Example:
        >>> mean = secure_mean({1: {"w": np.array([1.0, 2.0])}, 2: {"w": np.array([3.0, 2.0])}}, weights={1: 3, 2: 1})
        >>> bool(np.abs(mean.arrays["w"] - [1.5, 2.0]).max() <= mean.error_bound["w"])
        True
    """
    first = _first(clients)
    weighed = _for_each(clients, weights, "weights", 1)
    measured = _for_each(clients, metrics, "metrics", {})
    spec = MeanSpec.of(
        first,
        n_clients=len(clients),
        clip=_largest(clients) if clip is None else clip,
        max_weight=max([1, *(int(weight) for weight in weighed.values() if isinstance(weight, int | np.integer))]),
        entry_bytes=entry_bytes,
        rounding=rounding,
        metrics=tuple(next(iter(measured.values()))),
    )
    vectors = {
        party: _named(party, partial(spec.vector, arrays, weight=weighed[party], metrics=measured[party]))
        for party, arrays in clients.items()
    }
    return spec.mean(_run(mode, spec.layout, vectors))


def secure_sum(
    clients: Mapping[PartyId, Arrays],
    *,
    mode: str = "masked",
    bound: float | Mapping[str, float] | None = None,
    entry_bytes: int = 6,
    rounding: Rounding = "nearest",
) -> dict[str, NDArray[Any]]:
    """Return the sum of arrays, made by one secure sum whose clients are all in this process.

    Whole numbers come out exactly, real ones within ``ArraySumSpec.error_bound``. A deployment exchanges the messages
    of the same sum over a network (``ArraySumSpec``).

    Args:
        clients: each client's arrays, of whole or real numbers, by its number from 1.
        mode: as in ``secure_mean``.
        bound: largest absolute value of one client's number, of all arrays or by name. None takes the largest that
            there is, which a deployment cannot know.
        entry_bytes: 2 to 6 bytes for a real number.
        rounding: of real numbers.

    Raises:
        ConfigurationError: no such mode, or what does not fit.
        InvalidVectorError: a client's arrays do not fit; which client and array.

    Example:
        >>> secure_sum({1: {"counts": np.array([4, 0])}, 2: {"counts": np.array([1, 7])}})
        {'counts': array([5, 7])}
    """
    spec = ArraySumSpec.of(
        _first(clients),
        n_clients=len(clients),
        bound=_largest(clients) if bound is None else bound,
        entry_bytes=entry_bytes,
        rounding=rounding,
    )
    vectors = {party: _named(party, partial(spec.vector, arrays)) for party, arrays in clients.items()}
    return spec.sums(_run(mode, spec.layout, vectors))


def _first(clients: Mapping[PartyId, Arrays]) -> Arrays:
    """Return one client's arrays, whose names, shapes and kinds of number all others must have."""
    if not isinstance(clients, Mapping) or not all(isinstance(arrays, Mapping) for arrays in clients.values()):
        raise ConfigurationError(
            "clients is a mapping such as {1: {'w': array}, 2: {'w': array}}: give each array a name"
        )
    if not clients:
        raise ConfigurationError("at least one client is needed, and none came")
    return next(iter(clients.values()))


def _for_each(
    clients: Mapping[PartyId, Arrays], given: Mapping[PartyId, T] | None, name: str, default: T
) -> dict[PartyId, T]:
    """Return what each client brings beside its arrays."""
    if given is None:
        return dict.fromkeys(clients, default)
    if set(given) != set(clients):
        raise ConfigurationError(
            f"{name} are needed of each of the clients {list(clients)[:10]}, not of {list(given)[:10]}"
        )
    return dict(given)


def _largest(clients: Mapping[PartyId, Arrays]) -> dict[str, float]:
    """Return the largest absolute finite number of each array over all clients; a vector refuses what is no number."""
    return {
        name: max(_named(party, partial(_largest_of, name, arrays.get(name, 0))) for party, arrays in clients.items())
        for name in _first(clients)
    }


def _largest_of(name: str, numbers: Any) -> float:
    array = as_array(name, numbers)
    if array.dtype.kind not in "fiub" or not array.size:
        return 1
    if array.dtype.kind != "f":
        return max(int(array.max()), -int(array.min()))
    finite = float(np.abs(array, where=np.isfinite(array), out=np.zeros(array.shape)).max())
    if finite > 2.0**HIGHEST:
        raise InvalidVectorError(f"{name!r}: numbers of at most 2^{HIGHEST} are needed, not {finite:.3g}; scale them")
    return max(finite, 2.0**LOWEST)


def _named(party: PartyId, make: Callable[[], T]) -> T:
    """Make what is a client's; an error says whose it is."""
    try:
        return make()
    except InvalidVectorError as error:
        error.args = (f"client {party}: {error}",)
        raise


def _run(mode: str, layout: Layout, vectors: Mapping[PartyId, IntVector]) -> SumResult:
    common: dict[str, Any] = {"layout": layout, "clients": tuple(sorted(vectors)), "session_id": new_session_id()}
    parties: Parties
    match mode:
        case "plain":
            parties = InOneProcess(protocol=PlainSum(**common))
        case "masked":
            parties = InOneProcess(protocol=MaskedSum(**common))
        case "committee":
            parties = CommitteeSum.generate(**common)
        case "bfv" | "ckks":
            parties = encrypted(PlainSum(**common), mode)
        case _:
            raise ConfigurationError(f"a mode is masked, committee, plain, bfv or ckks, not {mode!r}")
    return run_in_memory(parties, vectors).result
