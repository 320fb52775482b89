"""A sum of anybody's named arrays: whole numbers exactly, real numbers in public steps."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.encoding import length_prefixed
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, InvalidVectorError
from secagg.fixed_point import (
    MAX_ENTRY_BYTES,
    REAL,
    WHOLE,
    Rounding,
    Shapes,
    as_array,
    check_description,
    check_total,
    draws_of,
    encode,
    exponent_of,
    finest_scale,
    for_each_array,
    room_of,
    rounding_error,
    shapes_of,
    size_of,
    take_arrays,
)
from secagg.layout import IntVector, Layout, Segment
from secagg.sessions import SumResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySumSpec:
    """The public description of a sum of arrays, of whole or real numbers.

    Nothing is clipped: a client refuses an array with a number beyond its bound.

    Args:
        shapes: name and shape of each array. A name takes 1 to 64 printable ASCII characters.
        bounds: of each array, the largest absolute value of one client's number: an int for an array of whole
            numbers, which are summed exactly; a float for one of real numbers, whose step follows from the next power
            of two.
        n_clients: largest cohort.
        entry_bytes: 2 to 6 bytes for a real number; whole numbers take what their bound needs.
        rounding: of real numbers. ``nearest`` is the default: it has half the error of ``stochastic`` in one sum.
        layout: of the sum.

    Raises:
        ConfigurationError: what does not fit.

    Example:
        >>> spec = ArraySumSpec(shapes=(("counts", (2,)), ("total", ())), bounds=(1000, 8.0), n_clients=3)
        >>> vector = spec.vector({"counts": np.array([7, 900]), "total": np.float64(1.5)})
        >>> sums = spec.sums(SumResult(total=vector + vector, survivors=(1, 2)))
        >>> sums["counts"], float(sums["total"])
        (array([  14, 1800]), 3.0)
    """

    shapes: Shapes
    bounds: tuple[int | float, ...]
    n_clients: int
    entry_bytes: int = 4
    rounding: Rounding = "nearest"
    layout: Layout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        allowed = range(2, MAX_ENTRY_BYTES + 1)
        check_description(
            self.shapes, self.n_clients, entry_bytes=self.entry_bytes, allowed=allowed, rounding=self.rounding
        )
        are_numbers = all(type(bound) in (int, float) for bound in self.bounds)
        if type(self.bounds) is not tuple or len(self.bounds) != len(self.shapes) or not are_numbers:
            raise ConfigurationError(
                f"each of {len(self.shapes)} arrays needs a bound, an int for whole numbers and a float for real ones, "
                f"not {self.bounds!r}"
            )
        object.__setattr__(self, "layout", self._make_layout())

    @classmethod
    def of(
        cls,
        arrays: Mapping[str, Any],
        *,
        n_clients: int,
        bound: float | Mapping[str, float],
        entry_bytes: int = 4,
        rounding: Rounding = "nearest",
    ) -> ArraySumSpec:
        """Return the description of sums of arrays like these; their types matter and their values do not.

        Args:
            arrays: by name.
            n_clients, entry_bytes, rounding: as in the class.
            bound: largest absolute value of one client's number, of all arrays or by name.

        >>> ArraySumSpec.of({"counts": np.zeros(2, int), "x": np.zeros(3)}, n_clients=3, bound=100).bounds
        (100, 100.0)

        Raises:
            ConfigurationError: what does not fit.
        """
        shapes = shapes_of(arrays)
        bounds = for_each_array(arrays, bound, "bound")
        kinds = {name: float if as_array(name, array).dtype.kind == "f" else int for name, array in arrays.items()}
        return cls(
            shapes=shapes,
            bounds=tuple(kind(bounds[name]) for name, kind in kinds.items()),
            n_clients=n_clients,
            entry_bytes=entry_bytes,
            rounding=rounding,
        )

    @property
    def _scale(self) -> int:
        return finest_scale(1, room_of(self.n_clients, self.entry_bytes))

    @property
    def _shifts(self) -> list[int | None]:
        """The shift of each array of real numbers; None for whole ones."""
        return [None if type(bound) is int else self._scale - exponent_of(bound) for bound in self.bounds]

    def _make_layout(self) -> Layout:
        owns = [bound if isinstance(bound, int) else 1 << self._scale for bound in self.bounds]
        segments = (
            Segment(name=name, size=size_of(shape), bound=self.n_clients * own, client_bound=own)
            for (name, shape), own in zip(self.shapes, owns, strict=True)
        )
        parts = (repr((shape, shift)).encode() for shape, shift in zip(self.shapes, self._shifts, strict=True))
        agreed = hashlib.sha256(length_prefixed(b"sum of arrays", self.rounding.encode(), *parts)).digest()
        return Layout(tuple(segments), agreed=agreed)

    def error_bound(self) -> dict[str, float]:
        """Return the largest error of each array's sum, 0 for whole numbers.

        >>> ArraySumSpec(shapes=(("n", ()), ("x", ())), bounds=(9, 1.0), n_clients=2, entry_bytes=2).error_bound()
        {'n': 0.0, 'x': 0.0001220703125}
        """
        steps = self.n_clients * rounding_error(self.rounding)
        names = (name for name, _ in self.shapes)
        shifts = zip(names, self._shifts, strict=True)
        return {name: 0.0 if shift is None else float(steps * Fraction(2) ** -shift) for name, shift in shifts}

    def vector(self, arrays: Mapping[str, Any], *, entropy: Entropy = os_entropy) -> IntVector:
        """Return a client's vector.

        Args:
            arrays: of the agreed names, shapes and kinds of number.
            entropy: feeds stochastic rounding; ``nearest`` draws nothing.

        >>> ArraySumSpec(shapes=(("n", (2,)),), bounds=(9,), n_clients=2).vector({"n": np.array([True, False])})
        array([1, 0])

        Raises:
            InvalidVectorError: NaN, infinity, a number beyond its bound, other names, shapes or types; which array.
        """
        kinds = [WHOLE if shift is None else REAL for shift in self._shifts]
        taken = take_arrays(arrays, self.shapes, kinds)
        draws = draws_of(self.rounding, entropy)
        vector = np.empty(self.layout.size, dtype=np.int64)
        places = (place for _, place in self.layout.slices())
        for (name, _), bound, shift, array, place in zip(
            self.shapes, self.bounds, self._shifts, taken, places, strict=True
        ):
            if shift is None:
                vector[place] = array.reshape(-1)
            else:
                array = array.astype(np.float64)
                encode(
                    array,
                    vector[place],
                    name=name,
                    weight=1,
                    exponent=exponent_of(bound),
                    shift=shift,
                    draws=draws,
                )
            beyond = int(np.count_nonzero((array > bound) | (array < -bound)))
            if beyond:
                raise InvalidVectorError(
                    f"{name!r}: {beyond} of {array.size} numbers lie beyond the bound {bound}; nothing was sent. "
                    "Have all clients agree on a larger bound"
                )
        return vector

    def sums(self, result: SumResult) -> dict[str, NDArray[Any]]:
        """Return the sum of each array: int64 for whole numbers, float64 for real ones.

        Args:
            result: of a sum over ``layout``.

        Raises:
            InvalidVectorError: a total of another layout.
        """
        check_total(result.total, self.layout)
        found: dict[str, NDArray[Any]] = {}
        for (name, shape), shift, (_, place) in zip(self.shapes, self._shifts, self.layout.slices(), strict=True):
            total = result.total[place].reshape(shape)
            found[name] = total.copy() if shift is None else np.asarray(np.ldexp(total.astype(np.float64), -shift))
        return found
