"""Real arrays as multiples of a public step: the one lossy step of a secure mean, with its bound.

A number x of weight w becomes the integer y = w x 2^shift, rounded. The step 2^-shift is a power of two, so scaling
is exact. Before that x is clipped to [-2^exponent, 2^exponent], and clipped numbers are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from secagg.entropy import Entropy
from secagg.errors import ConfigurationError, InvalidVectorError
from secagg.layout import IntVector, Layout

FloatArray = NDArray[np.float64]

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of each array, in the order in which they fill a vector."""

Rounding = Literal["stochastic", "nearest"]
"""``stochastic``: up with the probability of the fraction, so that the mean of many roundings is the number itself.
``nearest``: to the nearest integer, half of the largest error, and small numbers always become 0."""

LOWEST, HIGHEST = -64, 64
"""Binary exponents that a clip may have."""

MAX_ENTRY_BYTES = 6
"""Widest entry: integers below 2^47, which float64 tells from their neighbours by far more than a rounding error."""

REAL, WHOLE, NUMBER = "f", "iub", "fiu"
"""Kinds of dtype: real numbers, whole ones and truth values, and either number."""

_WANTED = {
    REAL: "float16, float32 or float64",
    WHOLE: "whole numbers of at most 64 bits",
    NUMBER: "a number of at most 64 bits",
}

_CHUNK = 1 << 16
"""Numbers that are rounded at once, so that intermediate arrays stay in the cache."""

_ZEROS = bytes(4 * _CHUNK)

_CHANCE_BITS = 32
"""Bits of a fraction that stochastic rounding compares with as many random ones."""


def check_description(
    shapes: Shapes, n_clients: int, *, entry_bytes: int, allowed: Sequence[int], rounding: str = "nearest"
) -> None:
    """Refuse shapes that make no vector, a width or rounding that is not offered, and a number of clients that is none.

    Raises:
        ConfigurationError: which, and what is needed.
    """
    if not shapes or len({name for name, _ in shapes}) != len(shapes):
        raise ConfigurationError(f"at least one array is needed, each of another name, not {[n for n, _ in shapes]}")
    for name, shape in shapes:
        if type(name) is not str or type(shape) is not tuple or any(type(length) is not int for length in shape):
            raise ConfigurationError(f"an array needs a str name and a shape of plain ints, not {name!r} and {shape!r}")
        if size_of(shape) < 1:
            raise ConfigurationError(f"array {name!r}: shape {shape} has no numbers; leave the array out")
    if rounding not in get_args(Rounding):
        raise ConfigurationError(f"rounding is one of {', '.join(get_args(Rounding))}, not {rounding!r}")
    if type(entry_bytes) is not int or entry_bytes not in allowed:
        raise ConfigurationError(f"entry_bytes is one of {', '.join(map(str, allowed))}, not {entry_bytes!r}")
    if type(n_clients) is not int or n_clients < 1:
        raise ConfigurationError(f"n_clients is a plain int of at least 1, not {n_clients!r}")


def size_of(shape: tuple[int, ...]) -> int:
    """Return how many numbers an array of a shape has."""
    return int(np.prod(shape, dtype=object))


def shapes_of(arrays: Mapping[str, Any]) -> Shapes:
    """Return name and shape of each array, in their order.

    Raises:
        ConfigurationError: no mapping.
        InvalidVectorError: a list that is no array; which.
    """
    if not isinstance(arrays, Mapping):
        raise ConfigurationError(f"arrays is a mapping such as {{'w': array}}, not {type(arrays).__name__}: name each")
    lists = {name: array if hasattr(array, "shape") else as_array(name, array) for name, array in arrays.items()}
    return tuple((name, tuple(map(int, np.shape(array)))) for name, array in lists.items())


def for_each_array(arrays: Mapping[str, Any], limit: float | Mapping[str, float], what: str) -> Mapping[str, float]:
    """Return a limit for each array, from one for all of them or one by name.

    Args:
        arrays: by name.
        limit: of all arrays, or by name.
        what: the argument's name, for the error.

    Raises:
        ConfigurationError: other names than the arrays'.
    """
    limits = limit if isinstance(limit, Mapping) else dict.fromkeys(arrays, limit)
    if set(limits) != set(arrays):
        raise ConfigurationError(f"{what} needs one number or one for each of {list(arrays)}, not {list(limits)}")
    return limits


def as_array(name: str, values: Any) -> NDArray[Any]:
    """Return what ``numpy.asarray`` reads.

    Raises:
        InvalidVectorError: it reads nothing; which array, and why.
    """
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # bfloat16, a tensor that needs a gradient, a ragged list
        raise InvalidVectorError(
            f"{name!r}: an array that numpy reads is needed, not {type(values).__name__} ({error}); convert it, "
            "such as by tensor.detach().float()"
        ) from error


def take_arrays(arrays: Mapping[str, Any], shapes: Shapes, kinds: Sequence[str]) -> Iterator[NDArray[Any]]:
    """Yield a client's arrays in the order of the shapes, checked. Each is asked for when it is its turn.

    Args:
        arrays: by name; whatever ``numpy.asarray`` reads.
        shapes: what is needed.
        kinds: of each of them, ``REAL``, ``WHOLE`` or ``NUMBER``.

    Raises:
        InvalidVectorError: which array is missing, unknown, of another shape or type.
    """
    needed = [name for name, _ in shapes]
    if not isinstance(arrays, Mapping):
        raise InvalidVectorError(f"arrays and metrics are mappings by name, not {type(arrays).__name__}: name each")
    if set(arrays) != set(needed):
        missing, unknown = sorted(set(needed) - set(arrays)), sorted(map(str, set(arrays) - set(needed)))
        raise InvalidVectorError(
            f"arrays and metrics must be those that were agreed on: missing {missing[:10]}, unknown {unknown[:10]}. "
            "Give exactly the agreed ones"
        )
    for (name, shape), kind in zip(shapes, kinds, strict=True):
        array = as_array(name, arrays[name])
        if array.shape != shape:
            raise InvalidVectorError(f"{name!r}: shape {shape} is needed, not {array.shape}")
        if array.dtype.kind not in kind or array.dtype.itemsize > 8:
            raise InvalidVectorError(
                f"{name!r}: the type needed is {_WANTED[kind]}, not {array.dtype}; convert it, or have all clients "
                "leave it out. A mean takes real numbers alone, a sum (ArraySumSpec) whole ones too"
            )
        yield array


def check_total(total: IntVector, layout: Layout) -> None:
    """Refuse the total of a sum over another layout.

    Raises:
        InvalidVectorError: how many entries are needed.
    """
    if total.shape != (layout.size,):
        raise InvalidVectorError(
            f"the total of this description has {layout.size} entries, not {total.shape}; take the result of a sum "
            "over its layout"
        )


def room_of(n_clients: int, entry_bytes: int) -> int:
    """Return the largest absolute value of one client's integer, so that no sum of all leaves an entry.

    Raises:
        ConfigurationError: so many clients leave no room at all.
    """
    room = ((1 << (8 * entry_bytes - 1)) - 1) // n_clients
    if room < 1:
        raise ConfigurationError(f"{n_clients} clients do not fit {entry_bytes} bytes an entry: raise entry_bytes")
    return room


def finest_scale(most: int, room: int) -> int:
    """Return the largest k with most 2^k <= room; -1 where there is none of at least 0.

    >>> finest_scale(1, 100), finest_scale(3, 100), finest_scale(1000, 100)
    (6, 5, -1)
    """
    return (room // most).bit_length() - 1


def exponent_of(largest: float) -> int:
    """Return the smallest exponent e, at least ``LOWEST``, with largest <= 2^e.

    >>> exponent_of(1.0), exponent_of(8.5), exponent_of(0.1)
    (0, 4, -3)

    Raises:
        ConfigurationError: not a positive number of at most 2^64.
    """
    if not 0 < largest <= 2.0**HIGHEST:
        raise ConfigurationError(f"a clip is a number above 0 and at most 2^{HIGHEST}, not {largest!r}")
    mantissa, exponent = math.frexp(largest)
    return max(LOWEST, exponent - (mantissa == 0.5))


def rounding_error(rounding: Rounding) -> Fraction:
    """Return the largest error of one rounded number, in steps: 1/2 (``nearest``) or 1 (``stochastic``)."""
    return Fraction(1, 2) if rounding == "nearest" else Fraction(1)


def rounded_up(bound: float) -> str:
    """Return a bound in three digits, which are no less than it.

    >>> rounded_up(0.012341)
    '0.0124'
    """
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal_from_float(bound)):.3g}"


def draws_of(rounding: Rounding, entropy: Entropy) -> Entropy | None:
    """Return what ``encode`` draws for one vector; None for ``nearest``.

    The draws are AES-256-CTR under one fresh key. It comes from the operating system, and from no seed that another
    party knows: a server that knew it would know which way each number was rounded.
    """
    if rounding == "nearest":
        return None
    stream = Cipher(algorithms.AES(entropy(32)), modes.CTR(bytes(16))).encryptor()
    return lambda n_bytes: stream.update(memoryview(_ZEROS)[:n_bytes])


def encode(
    values: NDArray[Any],
    out: NDArray[np.integer[Any]],
    *,
    before: NDArray[Any] | None = None,
    name: str,
    weight: int,
    exponent: int,
    shift: int,
    draws: Entropy | None,
) -> int:
    """Write w x 2^shift, rounded, for each number x of an array, and return how many were clipped.

    The error of an integer is below 1 (``nearest``: at most 1/2), and 2^-53 of its size where w x is no float64.

    Args:
        values: float16, float32 or float64, of any shape.
        out: where the integers go, as many; unsigned words hold negative ones in two's complement.
        before: an array of the same shape that is subtracted, in float64 and in pieces; None subtracts nothing.
        name: of the array, for errors.
        weight: w, a whole number of at most 2^32.
        exponent: numbers are clipped to [-2^exponent, 2^exponent].
        shift: the step is 2^-shift.
        draws: four bytes a number for stochastic rounding (``draws_of``); None rounds to the nearest integer.

    Raises:
        InvalidVectorError: a number is NaN or infinite.
    """
    flat = np.ascontiguousarray(values).reshape(-1)
    earlier = None if before is None else np.ascontiguousarray(before).reshape(-1)
    clip, clipped = 2.0**exponent, 0
    # One multiplication by weight and step: a power of two is exact, so it rounds as w x alone does.
    factor = math.ldexp(float(weight), shift)
    is_narrow = math.ldexp(factor, exponent) < 1 << (63 - _CHANCE_BITS)
    for start in range(0, flat.size, _CHUNK):
        place = slice(start, start + _CHUNK)
        numbers = flat[place].astype(np.float64)
        if earlier is not None:
            with np.errstate(all="ignore"):  # what is not finite is refused below
                numbers -= earlier[place]
        if not -clip <= numbers.min() <= numbers.max() <= clip:  # of NaN all is false
            clipped += _clip(numbers, clip, name, lambda: _difference(flat, earlier))
        if draws is None:
            numbers *= factor
            out[place] = np.rint(numbers, out=numbers).astype(np.int64)
            continue
        drawn = np.frombuffer(draws(4 * numbers.size), dtype="<u4")
        if is_narrow:
            # The integer and its fraction in one word: it exceeds the next integer where the fraction exceeds the draw.
            numbers *= math.ldexp(factor, _CHANCE_BITS)
            integers = np.rint(numbers, out=numbers).astype(np.int64)
            integers += ~drawn  # 2^32 - 1 - drawn
            integers >>= _CHANCE_BITS
            out[place] = integers
        else:
            numbers *= factor
            whole = np.floor(numbers)
            out[place] = (whole + (drawn < np.rint(np.ldexp(numbers - whole, _CHANCE_BITS)))).astype(np.int64)
    return clipped


def _difference(values: NDArray[Any], earlier: NDArray[Any] | None) -> FloatArray:
    with np.errstate(all="ignore"):
        return values.astype(np.float64) - (0.0 if earlier is None else earlier)


def _clip(numbers: FloatArray, clip: float, name: str, whole: Callable[[], FloatArray]) -> int:
    """Clip numbers in place and return how many were beyond the clip.

    Args:
        numbers: part of an array.
        clip: largest absolute value.
        name: of the array; with ``whole`` for the error.
        whole: returns the array.

    Raises:
        InvalidVectorError: a number is NaN or infinite.
    """
    if not np.isfinite(numbers).all():
        bad = ~np.isfinite(whole())
        raise InvalidVectorError(
            f"{name!r}: {np.count_nonzero(bad)} of {bad.size} numbers are NaN or infinite, and a mean over them would "
            "be so for everybody; nothing was sent. Repair the model, or leave this client out of the round"
        )
    n_beyond = int(np.count_nonzero(np.abs(numbers) > clip))
    np.clip(numbers, -clip, clip, out=numbers)
    return n_beyond
