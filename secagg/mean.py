"""A weighted mean of anybody's arrays as one secure sum: its public description, a client's vector, the mean.

Each client multiplies its arrays with its weight and rounds them to multiples of a public step (``fixed_point``). The
sum also holds the weights, exactly, so the mean is (sum of w x) / (sum of w) within a bound that is known beforehand.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from secagg.encoding import length_prefixed
from secagg.entropy import Entropy, os_entropy
from secagg.errors import ConfigurationError, InvalidVectorError, SumOutOfBoundsError
from secagg.fixed_point import (
    HIGHEST,
    LOWEST,
    MAX_ENTRY_BYTES,
    NUMBER,
    REAL,
    FloatArray,
    Rounding,
    Shapes,
    check_description,
    check_total,
    draws_of,
    encode,
    exponent_of,
    finest_scale,
    for_each_array,
    room_of,
    rounded_up,
    rounding_error,
    shapes_of,
    size_of,
    take_arrays,
)
from secagg.layout import IntVector, Layout, Segment
from secagg.ring import RingVector
from secagg.sessions import PartyId, SumResult

FIRST_CLIP = 8.0
"""Clip of a first round, when nobody knows how large updates are: in 4 bytes its step costs no accuracy."""

METRIC_EXPONENT = 20
"""Metrics are clipped to [-2^20, 2^20]."""

MAX_WEIGHT = 2**32

GROWTH = 2
"""Bits by which a scale grows after a round that clipped some of its array's numbers."""

SHRINKAGE = 1
"""Most bits by which a scale that was carried shrinks after a round."""

_FLOAT_ERROR = Fraction(1, 16)
"""Twice what all float64 roundings can be together, in steps of the sum, where everybody survives, so the bound may
be rounded itself: a total stays below 2^47, and each relative error below 2^-53, of w x in each vector and of the
division in the mean."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeanResult:
    """A weighted mean, and all else that the sum tells.

    Args:
        arrays: the mean of each array, float64.
        weight: sum of the clients' weights.
        metrics: the weighted mean of each metric.
        clipped: how many numbers of each array, and values of each metric, lay beyond the clip, over all clients;
            names with none are left out.
        survivors: the clients in the mean, ascending.
        error_bound: largest error of each array and metric, against the mean of the clipped numbers.

    Example:
        >>> spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=2, clip=1.0, max_weight=9)
        >>> total = spec.vector({"w": np.array([1.0, 0.5])}, weight=1) + spec.vector({"w": np.zeros(2)}, weight=3)
        >>> mean = spec.mean(SumResult(total=total, survivors=(1, 2)))
        >>> mean.arrays["w"], mean.weight, mean.clipped
        (array([0.25 , 0.125]), 4, {})
    """

    arrays: Mapping[str, FloatArray]
    weight: int
    metrics: Mapping[str, float]
    clipped: Mapping[str, int]
    survivors: tuple[PartyId, ...]
    error_bound: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSpec:
    """The public description of a weighted mean: all parties make the same one, and their sum binds them to it.

    Args:
        shapes: name and shape of each array.
        exponents: of each array; numbers are clipped to [-2^e, 2^e].
        n_clients: largest cohort.
        max_weight: largest weight of one client, 1 to 2^32; 1 for an unweighted mean. Twice of it costs one bit of
            accuracy.
        entry_bytes: 2, 3 or 4 bytes a number on the wire.
        rounding: ``stochastic``, the default, is unbiased: over the rounds of a training updates below a step count
            as much as they should. ``nearest`` has half the bound and loses them in every round. A stochastic vector
            differs each time it is made: make it once for a session.
        metrics: names of numbers that are averaged too. A plain training loop sends them in the clear.
        is_carried: whether the exponents follow from a mean (``next_round``), and are no clip that somebody stated.
        layout: of the sum.

    Raises:
        ConfigurationError: what does not fit.

    Example:
        >>> spec = MeanSpec.of({"w": np.zeros((3, 2))}, n_clients=10, clip=1.0, max_weight=500)
        >>> print(spec.explain())
        mean of 1 array, 6 numbers in 3 bytes each, 21 bytes a client, 10 clients at most, weights of 1 to 500
          w: clipped to [-1, 1]; error at most 0.000983 whatever the weights, 1.97e-06 where all are 500
    """

    shapes: Shapes
    exponents: tuple[int, ...]
    n_clients: int
    max_weight: int = 1
    entry_bytes: int = 3
    rounding: Rounding = "stochastic"
    metrics: tuple[str, ...] = ()
    is_carried: bool = False
    layout: Layout = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_description(
            self.shapes, self.n_clients, entry_bytes=self.entry_bytes, allowed=(2, 3, 4), rounding=self.rounding
        )
        names = [name for name, _ in self.shapes]
        in_range = all(type(e) is int and LOWEST <= e <= HIGHEST for e in self.exponents)
        if type(self.exponents) is not tuple or len(self.exponents) != len(names) or not in_range:
            raise ConfigurationError(
                f"each of {len(names)} arrays needs an exponent of {LOWEST} to {HIGHEST}, not {self.exponents!r}"
            )
        if type(self.max_weight) is not int or not 1 <= self.max_weight <= MAX_WEIGHT:
            raise ConfigurationError(f"max_weight is a plain int of 1 to 2^32, not {self.max_weight!r}")
        if self._scale < 0:
            raise ConfigurationError(
                f"{self.n_clients} clients of max_weight {self.max_weight} leave a step larger than the clip in "
                f"{self.entry_bytes} bytes, so no mean of use: raise entry_bytes, or lower max_weight"
            )
        are_names = type(self.metrics) is tuple and all(type(name) is str for name in self.metrics)
        if not are_names or len({*names, *self.metrics}) != len(names) + len(self.metrics):
            raise ConfigurationError(
                f"metrics is a tuple of names that differ from each other and from arrays, not {self.metrics!r}"
            )
        object.__setattr__(self, "layout", self._make_layout())

    @classmethod
    def of(
        cls,
        arrays: Mapping[str, Any],
        *,
        n_clients: int,
        clip: float | Mapping[str, float] = FIRST_CLIP,
        max_weight: int = 1,
        entry_bytes: int = 3,
        rounding: Rounding = "stochastic",
        metrics: tuple[str, ...] = (),
    ) -> MeanSpec:
        """Return the description of means of arrays like these; their values do not matter.

        Args:
            arrays: by name.
            n_clients, max_weight, entry_bytes, rounding, metrics: as in the class.
            clip: largest absolute value that is not clipped, of all arrays or by name; rounded up to a power of two.

        >>> MeanSpec.of({"w": np.zeros(2), "b": np.zeros(1)}, n_clients=5, clip={"w": 0.3, "b": 4.0}).exponents
        (-1, 2)

        Raises:
            ConfigurationError: what does not fit.
        """
        shapes = shapes_of(arrays)
        clips = for_each_array(arrays, clip, "clip")
        return cls(
            shapes=shapes,
            exponents=tuple(exponent_of(clips[name]) for name in arrays),
            n_clients=n_clients,
            max_weight=max_weight,
            entry_bytes=entry_bytes,
            rounding=rounding,
            metrics=metrics,
        )

    @property
    def _scale(self) -> int:
        """The k of values: numbers are counted in steps of 2^(exponent - k)."""
        return finest_scale(self.max_weight, room_of(self.n_clients, self.entry_bytes))

    @property
    def _metric_scale(self) -> int:
        return finest_scale(self.max_weight, room_of(self.n_clients, MAX_ENTRY_BYTES))

    @property
    def _fields(self) -> list[tuple[str, tuple[int, ...], int, int]]:
        """Name, shape, exponent and shift of each array, then of each metric: the vector's order."""
        arrays = zip(self.shapes, self.exponents, strict=True)
        fields = [(name, shape, exponent, self._scale - exponent) for (name, shape), exponent in arrays]
        shift = self._metric_scale - METRIC_EXPONENT
        return fields + [(name, (), METRIC_EXPONENT, shift) for name in self.metrics]

    def _make_layout(self) -> Layout:
        n, sizes = self.n_clients, [size_of(shape) for _, shape in self.shapes]

        def segment(name: str, size: int, own: int) -> Segment:
            return Segment(name=name, size=size, bound=n * own, client_bound=own)

        segments = [segment("values", sum(sizes), self.max_weight << self._scale)]
        if self.metrics:
            segments.append(segment("metrics", len(self.metrics), self.max_weight << self._metric_scale))
        segments.append(segment("clipped", len(sizes) + len(self.metrics), max(sizes)))
        segments.append(segment("weight", 1, self.max_weight))
        return Layout(tuple(segments), agreed=self._digest())

    def _digest(self) -> bytes:
        """Return what binds a sum to everything here that the segments do not show."""
        fields = (repr((name, shape, exponent, shift)).encode() for name, shape, exponent, shift in self._fields)
        return hashlib.sha256(length_prefixed(b"weighted mean", self.rounding.encode(), *fields)).digest()

    def error_bound(self, weight: int | None = None, n_survivors: int | None = None) -> dict[str, float]:
        """Return the largest error of each array's and metric's mean, known before the first client trains.

        It counts the rounding of every client, and nothing else: a mean of clipped numbers is compared with the exact
        mean of the clipped numbers.

        Args:
            weight: sum of the weights; None for the smallest that there can be, 1 of each client.
            n_survivors: clients in the mean; None for all. Fewer clients with the same weight have less error.

        Raises:
            ConfigurationError: a weight below 1.

        >>> spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=10, clip=1.0, max_weight=100)
        >>> spec.error_bound()["w"] > 100 * spec.error_bound(weight=1000)["w"] * 0.99
        True
        """
        n = self.n_clients if n_survivors is None else n_survivors
        total = n if weight is None else weight
        if total < 1:
            raise ConfigurationError(f"a mean has clients whose weights add up to at least 1, not {total}")
        steps = n * (rounding_error(self.rounding) + _FLOAT_ERROR / self.n_clients) / total
        return {name: float(steps * Fraction(2) ** -shift) for name, _, _, shift in self._fields}

    def explain(self) -> str:
        """Return what the mean costs and how exact it is, in words and numbers, before the run."""
        numbers = sum(size_of(shape) for _, shape in self.shapes)
        arrays = "1 array" if len(self.shapes) == 1 else f"{len(self.shapes)} arrays"
        heaviest, worst = self.error_bound(self.n_clients * self.max_weight), self.error_bound()
        lines = [
            f"mean of {arrays}, {numbers} numbers in {self.entry_bytes} bytes each, {self.layout.wire_bytes} bytes a "
            f"client, {self.n_clients} clients at most, weights of 1 to {self.max_weight}"
        ]
        for name, _, exponent, _ in self._fields:
            clip = f"{2.0**exponent:.3g}"
            better = f" whatever the weights, {rounded_up(heaviest[name])} where all are {self.max_weight}"
            bound = f"error at most {rounded_up(worst[name])}" + (better if self.max_weight > 1 else "")
            lines.append(f"  {name}: clipped to [-{clip}, {clip}]; {bound}")
        return "\n".join(lines)

    def vector(
        self,
        arrays: Mapping[str, Any],
        *,
        weight: int = 1,
        metrics: Mapping[str, float] | None = None,
        entropy: Entropy = os_entropy,
    ) -> IntVector:
        """Return a client's vector: run by the client, once for each session.

        Args:
            arrays: float arrays of the agreed names and shapes; for training, updates rather than weights.
            weight: a whole number of 1 to ``max_weight``, such as the client's number of rows.
            metrics: a number for each agreed name.
            entropy: feeds stochastic rounding; ``nearest`` draws nothing.

        >>> spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=3, clip=1.0, entry_bytes=2)
        >>> spec.vector({"w": np.array([0.5, -7.0])})
        array([ 4096, -8192,     1,     1])

        Raises:
            InvalidVectorError: NaN or infinity, other names, shapes or types, or a weight out of range; which, by name.
        """
        return self.words(arrays, weight=weight, metrics=metrics, entropy=entropy).decode()

    def words(
        self,
        arrays: Mapping[str, Any],
        *,
        before: Mapping[str, Any] | None = None,
        weight: int = 1,
        metrics: Mapping[str, float] | None = None,
        entropy: Entropy = os_entropy,
    ) -> RingVector:
        """Return the same vector in words of 1 to 8 bytes: the input of a large model, which a session masks in place.

        Args:
            arrays, weight, metrics, entropy: as in ``vector``.
            before: arrays that are subtracted, such as the model before training; None subtracts nothing. Differences
                are made in pieces, so they take no memory.

        >>> spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=3, clip=1.0, entry_bytes=2)
        >>> after, before = {"w": np.array([4.5, 1.0])}, {"w": np.array([4.0, 8.0])}
        >>> spec.words(after, before=before).decode()
        array([ 4096, -8192,     1,     1])

        Raises:
            InvalidVectorError: as ``vector``.
        """
        if isinstance(weight, bool) or not isinstance(weight, int | np.integer) or not 1 <= weight <= self.max_weight:
            is_zero = isinstance(weight, int | np.integer) and weight == 0
            nobody = "leave this client out. A client of weight 0 hides nobody"
            advice = nobody if is_zero else "round it, or have all clients agree on a larger max_weight"
            raise InvalidVectorError(
                f"weight must be a whole number of 1 to max_weight {self.max_weight}, not {weight!r}; {advice}"
            )
        reals = [REAL] * len(self.shapes)
        taken = itertools.chain(
            take_arrays(arrays, self.shapes, reals),
            take_arrays(metrics or {}, tuple((name, ()) for name in self.metrics), [NUMBER] * len(self.metrics)),
        )
        subtracted = itertools.chain(
            () if before is None else take_arrays(before, self.shapes, reals), itertools.repeat(None)
        )
        words = [np.empty(segment.size, dtype=segment.word) for segment in self.layout.segments]
        ends = np.cumsum([size_of(shape) for _, shape in self.shapes])
        places = [*np.split(words[0], ends[:-1]), *(words[1].reshape(-1, 1) if self.metrics else ())]
        draws = draws_of(self.rounding, entropy)
        words[-2][:] = [
            encode(
                array,
                place,
                before=earlier,
                name=name,
                weight=int(weight),
                exponent=exponent,
                shift=shift,
                draws=draws,
            )
            for array, (name, _, exponent, shift), place, earlier in zip(
                taken, self._fields, places, subtracted, strict=False
            )
        ]
        words[-1][:] = weight
        return RingVector(self.layout, words)

    def mean(self, result: SumResult) -> MeanResult:
        """Return the mean that a released total holds.

        Args:
            result: of a sum over ``layout``.

        Raises:
            InvalidVectorError: a total of another layout.
            SumOutOfBoundsError: no clients that follow this description have such a total; a client broke it, and the
                sum does not tell which.
        """
        check_total(result.total, self.layout)
        n, weight = len(result.survivors), int(result.total[-1])
        bounds = self.error_bound(max(weight, 1), n)
        totals, place = [], 0
        for _, shape, _, _ in self._fields:
            totals.append(result.total[place : place + size_of(shape)].reshape(shape))
            place += size_of(shape)
        clipped = dict(zip(bounds, map(int, result.total[place:-1]), strict=True))
        self._check_total(weight, n, dict(zip(bounds, totals, strict=True)), clipped)
        means = {
            name: np.asarray(np.ldexp(total.astype(np.float64), -shift) / weight)
            for (name, _, _, shift), total in zip(self._fields, totals, strict=True)
        }
        return MeanResult(
            arrays={name: means[name] for name, _ in self.shapes},
            weight=weight,
            metrics={name: float(means[name]) for name in self.metrics},
            clipped={name: count for name, count in clipped.items() if count},
            survivors=result.survivors,
            error_bound=bounds,
        )

    def _check_total(self, weight: int, n: int, totals: Mapping[str, IntVector], clipped: Mapping[str, int]) -> None:
        if not n <= weight <= n * self.max_weight:
            raise SumOutOfBoundsError(
                f"weight: {n} clients of 1 to {self.max_weight} each cannot add up to {weight}: a client broke its "
                "bound. Discard this total and start a new session"
            )
        for name, total in totals.items():
            scale = self._metric_scale if name in self.metrics else self._scale
            if np.abs(total).max() > (weight << scale) + n or not 0 <= clipped[name] <= n * total.size:
                raise SumOutOfBoundsError(
                    f"{name!r}: {n} clients of weight {weight} together cannot have this total: a client broke its "
                    "bound. Discard it and start a new session"
                )

    def next_round(self, mean: MeanResult, *, headroom: int | None = None, entry_bytes: int | None = None) -> MeanSpec:
        """Return the description of the next round, whose scales follow from the mean that was released.

        Nothing but the released mean and its counts is asked, so the new scales tell nobody more than these do. Each
        client computes them itself from what it was given, and its sum admits no others.

        A scale becomes the largest absolute number of an array's mean, its error bound included, times the number of
        clients: one client of average weight may have made that number alone. A lighter one that did so, and updates
        that cancel in the mean, are clipped, and counted. If numbers of the array were clipped, its scale grows by at
        least two bits. A stated clip gives way at once; a scale that was carried shrinks by at most one bit a round.
        An array whose mean is all zeros keeps its scale.

        Args:
            mean: of this round, as it was computed: in float64.
            headroom: bits between the mean's largest number and the next clip, in place of the number of clients. Fewer
                bits are more exact and clip more.
            entry_bytes: of the next round; None for those of this one.

        >>> spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=2, entry_bytes=4)
        >>> total = sum(spec.vector({"w": np.array([0.3, 0.1])}) for _ in range(2))
        >>> spec.exponents, spec.next_round(spec.mean(SumResult(total=total, survivors=(1, 2)))).exponents
        ((3,), (0,))
        """
        factor, spare = (len(mean.survivors), 0) if headroom is None else (1, headroom)
        exponents = []
        for (name, _), exponent in zip(self.shapes, self.exponents, strict=True):
            following, largest = exponent, float(np.abs(mean.arrays[name]).max())
            if largest:
                following = math.frexp(factor * (largest + mean.error_bound[name]))[1] + spare
            if self.is_carried:
                following = max(following, exponent - SHRINKAGE)
            if name in mean.clipped:
                following = max(following, exponent + GROWTH)
            exponents.append(min(max(following, LOWEST), HIGHEST))
        return replace(self, exponents=tuple(exponents), entry_bytes=entry_bytes or self.entry_bytes, is_carried=True)
