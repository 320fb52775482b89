"""A secure mean is the exact weighted mean within its printed bound, in every mode, or refuses by name."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from support.examples import examples
from support.rows import SESSION

from secagg import (
    ConfigurationError,
    InsecureSeededEntropy,
    IntVector,
    InvalidVectorError,
    MalformedMessageError,
    MaskedSum,
    MeanResult,
    MeanSpec,
    PlainSum,
    SumOutOfBoundsError,
    SumResult,
    new_session_id,
    run_in_memory,
)
from secagg.fixed_point import _CHUNK, encode, exponent_of, room_of

Client = tuple[dict[str, Any], int, dict[str, float]]
"""Arrays, weight, metrics."""


@st.composite
def specs(draw: st.DrawFn, rounding: str | None = None) -> MeanSpec:
    shapes = draw(st.lists(array_shapes(min_dims=0, max_dims=3, max_side=3), min_size=1, max_size=3))
    n_clients, entry_bytes = draw(st.integers(1, 120)), draw(st.sampled_from([2, 3, 4]))
    largest = room_of(n_clients, entry_bytes)
    return MeanSpec(
        shapes=tuple((f"a{i}", shape) for i, shape in enumerate(shapes)),
        exponents=tuple(draw(st.integers(-64, 64)) for _ in shapes),
        n_clients=n_clients,
        max_weight=draw(st.one_of(st.integers(1, min(largest, 1000)), st.integers(1, largest))),
        entry_bytes=entry_bytes,
        rounding=rounding or draw(st.sampled_from(["stochastic", "nearest"])),  # type: ignore[arg-type]
        metrics=draw(st.sampled_from([(), ("loss",), ("loss", "accuracy")])),
    )


@st.composite
def clients_of(draw: st.DrawFn, spec: MeanSpec) -> dict[int, Client]:
    """Some of the cohort, with numbers of every size: many near the clip, some beyond it."""

    def numbers(exponent: int) -> st.SearchStrategy[float]:
        near = st.floats(-2, 2).map(lambda x: float(np.ldexp(x, exponent)))
        return st.one_of(near, st.floats(allow_nan=False, allow_infinity=False))

    def client() -> Client:
        found = {}
        for (name, shape), exponent in zip(spec.shapes, spec.exponents, strict=True):
            made = draw(arrays(np.float64, shape, elements=numbers(exponent)))
            with np.errstate(over="ignore"):
                narrow = made.astype(draw(st.sampled_from(["f8", "f4", "f2"])))
            found[name] = narrow if np.isfinite(narrow).all() else made
        weight = draw(st.one_of(st.integers(1, spec.max_weight), st.just(spec.max_weight)))
        return found, weight, {name: draw(st.floats(-(2.0**21), 2.0**21)) for name in spec.metrics}

    return {party: client() for party in range(1, draw(st.integers(1, min(5, spec.n_clients))) + 1)}


def vector_of(spec: MeanSpec, client: Client, seed: int = 0) -> IntVector:
    values, weight, metrics = client
    vector = spec.vector(values, weight=weight, metrics=metrics, entropy=InsecureSeededEntropy(seed))
    spec.layout.check(vector, spec.n_clients)
    return vector


def mean_of(spec: MeanSpec, clients: dict[int, Client]) -> MeanResult:
    total = sum(vector_of(spec, client, party) for party, client in clients.items())
    return spec.mean(SumResult(total=total, survivors=tuple(clients)))


def exact_means(spec: MeanSpec, clients: dict[int, Client]) -> dict[str, tuple[list[Fraction], int]]:
    """By rational numbers: the weighted mean of each entry after the clip, and how many entries were clipped."""
    total = sum(weight for _, weight, _ in clients.values())
    fields = [(name, exponent) for (name, _), exponent in zip(spec.shapes, spec.exponents, strict=True)]
    found = {}
    for name, exponent in [*fields, *((name, 20) for name in spec.metrics)]:
        clip, sums, n_clipped = Fraction(2) ** exponent, None, 0
        for values, weight, metrics in clients.values():
            own = [Fraction(x) for x in np.asarray(values.get(name, metrics.get(name)), dtype=np.float64).ravel()]
            n_clipped += sum(abs(x) > clip for x in own)
            weighed = [weight * max(min(x, clip), -clip) for x in own]
            sums = weighed if sums is None else [a + b for a, b in zip(sums, weighed, strict=True)]
        assert sums is not None
        found[name] = [one / total for one in sums], n_clipped
    return found


def errors(spec: MeanSpec, clients: dict[int, Client], mean: MeanResult) -> dict[str, Fraction]:
    """The largest error of each array and metric, in rational numbers."""
    got = {**mean.arrays, **mean.metrics}
    return {
        name: max(abs(Fraction(float(x)) - y) for x, y in zip(np.ravel(got[name]), exact, strict=True))
        for name, (exact, _) in exact_means(spec, clients).items()
    }


@examples(4)
@given(data=st.data(), spec=specs())
def test_the_mean_is_exact_within_the_bound_that_was_printed_before(data: st.DataObject, spec: MeanSpec) -> None:
    clients = data.draw(clients_of(spec))
    weight = sum(weight for _, weight, _ in clients.values())
    before, known = spec.error_bound(), spec.error_bound(weight, len(clients))
    mean = mean_of(spec, clients)
    assert mean.weight == weight
    assert mean.survivors == tuple(clients)
    assert mean.error_bound == known
    for name, error in errors(spec, clients, mean).items():
        assert error <= Fraction(known[name])
        assert known[name] <= before[name]
        assert mean.clipped.get(name, 0) == exact_means(spec, clients)[name][1]
    for name, shape in spec.shapes:
        assert isinstance(mean.arrays[name], np.ndarray)
        assert mean.arrays[name].shape == shape
        assert mean.arrays[name].dtype == np.float64


def test_the_bound_is_reached_so_it_is_no_larger_than_it_must_be() -> None:
    """Nearest: every client is half a step off, all the same way. Stochastic: all of them almost a whole step."""
    for rounding, worst in (("nearest", 0.5), ("stochastic", 1 - 2**-10)):
        spec = MeanSpec.of({"w": np.zeros(1)}, n_clients=4, clip=1.0, entry_bytes=2, rounding=rounding)  # type: ignore[arg-type]
        step = 1 / spec.vector({"w": np.array([1.0])})[0]
        vector = np.zeros(spec.layout.size, dtype=np.int64)
        off = np.array([worst * step])
        encode(off, vector[:1], name="w", weight=1, exponent=0, shift=-int(np.log2(step)), draws=_never(rounding))
        error = worst * step - vector[0] * step
        assert 0.95 * spec.error_bound()["w"] < abs(error) <= spec.error_bound()["w"]


def _never(rounding: str) -> Any:
    """Draws that never round up; none at all to the nearest."""
    return None if rounding == "nearest" else lambda n_bytes: b"\xff" * n_bytes


@examples(2)
@given(data=st.data(), spec=specs())
def test_numbers_on_the_grid_are_averaged_exactly_whatever_the_weights(data: st.DataObject, spec: MeanSpec) -> None:
    """The quotient of two integers, rounded once: the weights themselves are never rounded."""
    spec = replace(spec, max_weight=data.draw(st.integers(1, 60)), n_clients=data.draw(st.integers(1, 9)))
    clients = data.draw(on_grid(spec))
    mean = mean_of(spec, clients)
    for name, (exact, _) in exact_means(spec, clients).items():
        got = np.ravel({**mean.arrays, **mean.metrics}[name])
        assert got.tolist() == [float(x) for x in exact]


@st.composite
def on_grid(draw: st.DrawFn, spec: MeanSpec) -> dict[int, Client]:
    """Multiples of a 32nd of the clip, which is no less than a step of 9 clients of weight 60 in two bytes."""
    clients: dict[int, Client] = {}
    for party in range(1, draw(st.integers(1, spec.n_clients)) + 1):
        own = {
            name: np.ldexp(draw(arrays(np.int64, shape, elements=st.integers(-32, 32))).astype("f8"), exponent - 5)
            for (name, shape), exponent in zip(spec.shapes, spec.exponents, strict=True)
        }
        clients[party] = own, draw(st.integers(1, spec.max_weight)), dict.fromkeys(spec.metrics, 0.5)
    return clients


def test_a_client_that_believes_in_another_description_adds_nothing() -> None:
    """Scale, rounding, names, metrics: the sum is bound to each of them."""
    spec = MeanSpec.of({"w": np.zeros(3)}, n_clients=3, clip=1.0, max_weight=9, metrics=("loss",))
    others = [
        replace(spec, exponents=(-20,)),
        replace(spec, rounding="nearest"),
        replace(spec, shapes=(("v", (3,)),)),
        replace(spec, shapes=(("w", (3, 1)),)),
        replace(spec, metrics=("accuracy",)),
        replace(spec, max_weight=8),
    ]
    for other in others:
        sums = [
            MaskedSum(layout=one.layout, clients=(1, 2, 3), session_id=SESSION, threshold=2) for one in (spec, other)
        ]
        assert sums[0].digest != sums[1].digest
        vector = np.zeros(spec.layout.size, dtype=np.int64)
        server, stranger = sums[0].server(), sums[1].client(3, vector)
        with pytest.raises(MalformedMessageError, match="another session or another configuration"):
            _go_on(sums, vector, server, stranger)


@given(seed=st.integers(0, 2**32), entry_bytes=st.integers(2, 4), rounding=st.sampled_from(["nearest", "stochastic"]))
def test_words_hold_the_vector_of_the_difference(seed: int, entry_bytes: int, rounding: Any) -> None:
    rng = np.random.default_rng(seed)
    after, before = ({"w": rng.normal(size=(3, 2)).astype("f4"), "b": rng.normal(size=())} for _ in range(2))
    update = {name: np.subtract(after[name], before[name], dtype=np.float64) for name in after}
    spec = MeanSpec.of(
        after, n_clients=3, clip=1.0, max_weight=9, entry_bytes=entry_bytes, rounding=rounding, metrics=("a", "b c")
    )
    rest = {"weight": 7, "metrics": {"a": -3.5, "b c": 2.0**30}, "entropy": lambda n_bytes: bytes(n_bytes)}
    words = spec.words(after, before=before, **rest)  # type: ignore[arg-type]
    assert words.decode().tolist() == spec.vector(update, **rest).tolist()  # type: ignore[arg-type]
    assert [entries.dtype for entries in words.words] == [segment.word for segment in spec.layout.segments]


@pytest.mark.parametrize(
    ("before", "says"),
    [
        ({"w": [0.0, np.nan]}, "'w': 1 of 2 numbers are NaN or infinite"),
        ({"w": [0.0, -np.inf]}, "'w': 2 of 2 numbers are NaN or infinite"),
        ({"w": [0.0]}, r"'w': shape \(2,\) is needed, not \(1,\)"),
        ({}, r"missing \['w'\]"),
    ],
)
def test_a_difference_that_is_none_is_refused_by_name(before: Any, says: str) -> None:
    spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=3)
    with pytest.raises(InvalidVectorError, match=says):
        spec.words({"w": np.full(2, np.inf if "w" in before and before["w"][-1] == -np.inf else 1.0)}, before=before)


def test_a_session_sends_no_words_beyond_a_client_s_bound_and_none_of_another_sum() -> None:
    """Also of bytes above an entry's own, which would be cut off on the wire."""
    spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=3, clip=1.0, max_weight=2)
    beyond = [spec.words({"w": np.zeros(2)}) for _ in range(2)]
    beyond[0].words[0][1] = 1 << 24
    beyond[1].words[-1][0] = 3
    others = replace(spec, entry_bytes=4).words({"w": np.zeros(2)})
    for words, says in zip([*beyond, others], ("'values': 1 of 2", "'weight': 1 of 1", "another layout"), strict=True):
        for kind in (MaskedSum, PlainSum):
            sum_: Any = kind(layout=spec.layout, clients=(1, 2, 3), session_id=new_session_id())
            inputs = dict.fromkeys(sum_.clients, lambda words=words: words)
            with pytest.raises(InvalidVectorError, match=says):
                run_in_memory(sum_, inputs)


def _go_on(sums: list[MaskedSum], vector: IntVector, server: Any, stranger: Any) -> None:
    """Two clients of one description and one of another, to the end."""
    clients = {1: sums[0].client(1, vector), 2: sums[0].client(2, vector), 3: stranger}
    said = {party: client.start() for party, client in clients.items()}
    while server.result is None:
        for party, message in said.items():
            server.receive(party, message)
        requests = server.close_round()
        said = {party: clients[party].receive(message) for party, message in requests.items()}


class NoArray:
    """As a tensor that numpy does not read."""

    shape = (2,)

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError("needs a gradient")


@pytest.mark.parametrize(
    ("values", "options", "says"),
    [
        ({"w": [1.0, np.nan]}, {}, "'w': 1 of 2 numbers are NaN or infinite"),
        ({"w": [-np.inf, np.nan]}, {}, "'w': 2 of 2 numbers are NaN or infinite"),
        ({"w": [1.0, 2.0, 3.0]}, {}, r"'w': shape \(2,\) is needed, not \(3,\)"),
        ({"w": [[1.0], [2.0]]}, {}, r"'w': shape \(2,\) is needed, not \(2, 1\)"),
        ({"v": [1.0, 2.0]}, {}, r"missing \['w'\], unknown \['v'\]"),
        ({"w": [1.0, 2.0], "n": [3]}, {}, r"unknown \['n'\]"),
        ({"w": [1.0, 2.0], "loss": 1.0}, {}, r"unknown \['loss'\]"),
        ({"w": [1, 2]}, {}, r"'w': the type needed is float16, float32 or float64, not int64"),
        ({"w": [1j, 2]}, {}, r"'w': .* not complex128"),
        ({"w": np.array([1.0, None])}, {}, r"'w': .* not object"),
        ({"w": np.zeros(2, np.longdouble)}, {}, r"'w': .* not float128"),
        ({"w": NoArray()}, {}, r"'w': an array that numpy reads is needed, not NoArray \(needs a gradient\)"),
        ({"w": [[1.0], [1.0, 2.0]]}, {}, r"'w': an array that numpy reads is needed, not list"),
        ([1.0, 2.0], {}, r"arrays and metrics are mappings by name, not list"),
        ({"w": [1.0, 2.0]}, {"metrics": {"loss": 1.0, "v": 1.0}}, r"unknown \['v'\]"),
        ({"w": [1.0, 2.0]}, {"metrics": [1.0]}, r"arrays and metrics are mappings by name, not list"),
        ({"w": [1.0, 2.0]}, {"weight": 10}, r"whole number of 1 to max_weight 9, not 10"),
        ({"w": [1.0, 2.0]}, {"weight": 0}, r"not 0; .* A client of weight 0 hides nobody"),
        ({"w": [1.0, 2.0]}, {"weight": 0}, r"not 0; leave this client out"),
        ({"w": [1.0, 2.0]}, {"weight": 1.5}, r"not 1.5; round it"),
        ({"w": [1.0, 2.0]}, {"weight": True}, r"not True"),
        ({"w": [1.0, 2.0]}, {"metrics": {}}, r"missing \['loss'\]"),
        ({"w": [1.0, 2.0]}, {"metrics": {"loss": np.nan}}, r"'loss': 1 of 1 numbers are NaN"),
        ({"w": [1.0, 2.0]}, {"metrics": {"loss": "low"}}, r"'loss': .* a number of at most 64 bits, not <U3"),
    ],
)
def test_what_no_mean_may_hold_is_refused_by_name(values: Any, options: dict[str, Any], says: str) -> None:
    spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=3, max_weight=9, metrics=("loss",))
    with pytest.raises(InvalidVectorError, match=says):
        spec.vector(values, **{"metrics": {"loss": 1.0}, **options})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"shapes": ()}, "at least one array is needed"),
        ({"shapes": (("w", (2,)), ("w", (2,)))}, "each of another name"),
        ({"shapes": (("w", (2, 0)),)}, "'w': shape .* has no numbers"),
        ({"shapes": (("w", (2.0,)),)}, "a shape of plain ints"),
        ({"exponents": (65,)}, "an exponent of -64 to 64"),
        ({"exponents": (1, 2)}, "an exponent of -64 to 64"),
        ({"n_clients": 0}, "n_clients is a plain int of at least 1, not 0"),
        ({"n_clients": 2**23}, "8388608 clients do not fit 3 bytes an entry"),
        ({"max_weight": 0}, "max_weight is a plain int of 1 to 2\\^32, not 0"),
        ({"max_weight": 2.5}, "max_weight is a plain int"),
        ({"max_weight": 2**22}, "3 clients of max_weight 4194304 leave a step larger than the clip in 3 bytes"),
        ({"max_weight": 10923, "entry_bytes": 2}, "a step larger than the clip in 2 bytes"),
        ({"entry_bytes": 1}, "entry_bytes is one of 2, 3, 4, not 1"),
        ({"entry_bytes": 5}, "entry_bytes is one of 2, 3, 4, not 5"),
        ({"rounding": "up"}, "rounding is one of stochastic, nearest, not 'up'"),
        ({"metrics": ("w",)}, "names that differ"),
        ({"metrics": "loss"}, "metrics is a tuple of names"),
        ({"metrics": (1, "loss")}, "metrics is a tuple of names"),
    ],
)
def test_a_description_that_cannot_hold_is_never_made(changes: dict[str, Any], says: str) -> None:
    spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=3)
    with pytest.raises(ConfigurationError, match=says):
        replace(spec, **changes)


def test_arrays_without_names_and_weights_of_nobody_are_refused() -> None:
    arrays: Any = [np.zeros(2)]
    with pytest.raises(ConfigurationError, match=r"arrays is a mapping such as .* not list: name each"):
        MeanSpec.of(arrays, n_clients=3)
    with pytest.raises(InvalidVectorError, match="'w': an array that numpy reads is needed, not list"):
        MeanSpec.of({"w": [[1.0], [1.0, 2.0]]}, n_clients=3)
    with pytest.raises(ConfigurationError, match="add up to at least 1, not 0"):
        MeanSpec.of({"w": np.zeros(2)}, n_clients=3).error_bound(weight=0)


def test_the_heaviest_weight_that_fits_has_a_step_of_the_clip() -> None:
    spec = MeanSpec.of({"w": np.zeros(1)}, n_clients=3, clip=4.0, max_weight=10922, entry_bytes=2, rounding="nearest")
    vectors = [spec.vector({"w": np.array([x])}, weight=10922) for x in (4.0, -4.0, 4.0)]
    assert [int(vector[0]) for vector in vectors] == [10922, -10922, 10922]


@pytest.mark.parametrize("clip", [0.0, -1.0, np.nan, np.inf, 2.0**65, {"v": 1.0}])
def test_a_clip_that_is_none_is_refused(clip: Any) -> None:
    with pytest.raises(ConfigurationError, match="clip"):
        MeanSpec.of({"w": np.zeros(2)}, n_clients=3, clip=clip)


@pytest.mark.parametrize(
    ("place", "to", "says"),
    [
        (-1, 1, "weight: 2 clients of 1 to 9 each cannot add up to 1"),
        (-1, 19, "weight: 2 clients of 1 to 9 each cannot add up to 19"),
        (0, 2**22, "'w': 2 clients of weight 6 together cannot have this total"),
        (2, 5, "'w': 2 clients"),
        (2, -1, "'w': 2 clients"),
    ],
)
def test_a_total_that_no_clients_have_makes_no_mean(place: int, to: int, says: str) -> None:
    spec = MeanSpec.of({"w": np.zeros(2)}, n_clients=2, clip=1.0, max_weight=9)
    total = 2 * spec.vector({"w": np.zeros(2)}, weight=3)
    assert spec.mean(SumResult(total=total.copy(), survivors=(1, 2))).weight == 6
    total[place] = to
    with pytest.raises(SumOutOfBoundsError, match=says):
        spec.mean(SumResult(total=total, survivors=(1, 2)))
    with pytest.raises(InvalidVectorError, match="take the result of a sum over its layout"):
        spec.mean(SumResult(total=np.zeros(3, dtype=np.int64), survivors=(1, 2)))


# --- rounding -----------------------------------------------------------------------------------------------


@given(fraction=st.integers(0, 2**32), whole=st.integers(-(2**20), 2**20))
def test_the_chance_of_rounding_up_is_the_fraction(fraction: int, whole: int) -> None:
    """Exactly so many of the 2^32 draws round up: the first that does not is the fraction itself."""

    def rounded(draw: int) -> int:
        out = np.zeros(1, dtype=np.int64)
        number = np.array([whole + fraction * 2.0**-32])
        encode(number, out, name="w", weight=1, exponent=22, shift=0, draws=lambda n: draw.to_bytes(n, "little"))
        return int(out[0])

    up, kept = divmod(fraction, 2**32)
    assert rounded(kept) == whole + up
    if kept:
        assert rounded(kept - 1) == whole + up + 1


@given(
    values=st.lists(st.floats(-8, 8) | st.floats(-(2.0**-20), 2.0**-20), min_size=1, max_size=4),
    weight=st.integers(1, 1000),
    k=st.integers(0, 36),
    exponent=st.integers(-3, 4),
    seed=st.none() | st.integers(0, 2**32),
)
def test_rounding_is_that_of_exact_fractions(
    values: list[float], weight: int, k: int, exponent: int, seed: int | None
) -> None:
    """For integers that leave room for their fraction in a word, and for those that do not."""
    drawn = b"" if seed is None else np.random.default_rng(seed).bytes(4 * len(values))
    out = np.zeros(len(values), dtype=np.int64)
    options = {"weight": weight, "exponent": exponent, "shift": k - exponent}
    n_clipped = encode(np.array(values), out, name="w", draws=None if seed is None else lambda n: drawn, **options)
    slowly = list(_rounded_slowly([Fraction(x) for x in values], weight, exponent, k, drawn))
    # Fractions of 54 bits and more: w x is rounded to float64 before, which moves an integer by 1 at most, and rarely.
    is_exact = all(Fraction(x) * weight == Fraction(float(x) * weight) for x in values)
    assert np.abs(np.subtract(out, slowly)).max() <= (0 if is_exact else 1)
    assert n_clipped == sum(abs(x) > 2.0**exponent for x in values)


@pytest.mark.parametrize("k", [18, 40])
def test_a_long_array_is_rounded_as_its_numbers_are_one_by_one(k: int) -> None:
    rng = np.random.default_rng(5)
    x, drawn = rng.uniform(-1, 1, _CHUNK + 1000), rng.integers(0, 2**32, _CHUNK + 1000, dtype=np.uint32)
    out, stream = np.zeros(x.size, dtype=np.int64), iter([drawn[:_CHUNK].tobytes(), drawn[_CHUNK:].tobytes()])
    encode(x, out, name="w", weight=3, exponent=0, shift=k, draws=lambda n_bytes: next(stream))
    exact = np.ldexp(3 * x, k)
    whole = np.floor(exact)
    assert (out == whole + (drawn < np.rint(np.ldexp(exact - whole, 32)))).all()


def test_stochastic_rounding_is_the_default_and_fresh_each_time_and_nearest_draws_nothing() -> None:
    updates = {"w": np.full(200, 1e-6)}
    spec = MeanSpec.of(updates, n_clients=3, clip=1.0)
    assert spec.rounding == "stochastic"
    assert spec.vector(updates).tobytes() != spec.vector(updates).tobytes()
    nearest = replace(spec, rounding="nearest")
    made = {nearest.vector(updates, entropy=_no_entropy).tobytes() for _ in range(2)}
    assert len(made) == 1
    with pytest.raises(AssertionError, match="32"):
        spec.vector(updates, entropy=_no_entropy)


def _no_entropy(n_bytes: int) -> bytes:
    raise AssertionError(n_bytes)


# --- scales from round to round -------------------------------------------------------------------------------


@pytest.mark.parametrize("max_weight", [1, 300])
def test_a_training_needs_no_guess_of_a_scale(max_weight: int) -> None:
    """From clip 8 in four bytes on; updates of heavy tails shrink over a hundredfold and nothing is ever clipped.

    From the second round on three bytes have the error that the data allow: a clip of the largest number itself would
    be better by the headroom of ten clients alone, its rounding to a power of two, and what one round shrinks.
    """
    rng, n = np.random.default_rng(1), 10
    weights = rng.integers(max_weight // 3 + 1, max_weight + 1, n)
    spec = MeanSpec.of({"w": np.zeros(500)}, n_clients=n, max_weight=max_weight, entry_bytes=4)
    common = rng.standard_t(4, 500)
    for number in range(20):
        size = 1e-3 * 0.75**number
        clients: dict[int, Client] = {
            p: ({"w": size * (common + rng.standard_t(4, 500))}, int(weights[p - 1]), {}) for p in range(1, n + 1)
        }
        mean = mean_of(spec, clients)
        largest = np.abs(mean.arrays["w"]).max() + mean.error_bound["w"]
        assert mean.clipped == {}
        if number:
            best = replace(spec, exponents=(exponent_of(max(np.abs(a["w"]).max() for a, _, _ in clients.values())),))
            assert spec.error_bound()["w"] <= 2 * n / 0.75 * best.error_bound()["w"]
        before, spec = spec, spec.next_round(mean, entry_bytes=3)
        shrunk = 2.0 ** (before.exponents[0] - 1) if number else 0
        assert n * largest <= 2.0 ** spec.exponents[0] <= max(2 * n * largest, shrunk)


def test_a_scale_that_clips_grows_and_one_without_news_stays() -> None:
    spec = MeanSpec.of({"w": np.zeros(2), "frozen": np.zeros(1), "b": np.zeros(1)}, n_clients=4, clip=2.0**-10)
    clients = {
        party: ({"w": np.array([100.0, 0.0]), "frozen": np.zeros(1), "b": np.array([2.0**-12])}, 1, {})
        for party in range(1, 5)
    }
    grown = []
    for _ in range(9):
        mean = mean_of(spec, clients)
        spec = spec.next_round(mean, headroom=1)
        grown.append(spec.exponents)
    assert grown[0] == (-8, -10, -10)
    assert [w for w, _, _ in grown] == [-8, -6, -4, -2, 0, 2, 4, 6, 8]
    assert mean_of(spec, clients).clipped == {}
    assert spec.next_round(mean_of(spec, clients)).exponents == (9, -10, -9)
    extreme = replace(spec, exponents=(7, -64, -64))
    assert extreme.next_round(mean_of(extreme, clients), headroom=200).exponents == (64, -64, 64)
    assert extreme.next_round(mean_of(extreme, clients), headroom=-200).exponents == (6, -64, -62)


@pytest.mark.parametrize("weight", [1, 500])
def test_a_client_of_average_weight_alone_may_have_made_the_largest_number(weight: int) -> None:
    """It is never clipped, in however many rounds; a lighter one that did so is, and its numbers are counted."""
    spec = MeanSpec.of({"w": np.zeros(1)}, n_clients=10, max_weight=500, entry_bytes=4)
    clients: dict[int, Client] = {p: ({"w": np.zeros(1)}, 500, {}) for p in range(2, 11)}
    clients[1] = {"w": np.ones(1)}, weight, {}
    clipped = []
    for _ in range(6):
        mean = mean_of(spec, clients)
        clipped.append(mean.clipped.get("w", 0))
        spec = spec.next_round(mean)
    assert any(clipped) == (weight == 1)
    assert not clipped[0]


def test_updates_that_cancel_are_clipped_and_counted_only_after_some_rounds() -> None:
    """The mean alone cannot tell them from small updates, so no rule over it can keep their scale for ever."""
    spec, clipped = MeanSpec.of({"w": np.zeros(1)}, n_clients=4, entry_bytes=4), []
    spec = replace(spec, is_carried=True)
    clients: dict[int, Client] = {p: ({"w": np.array([x])}, 1, {}) for p, x in enumerate([1.0, -1.0, 1.04, -1.0], 1)}
    for _ in range(5):
        mean = mean_of(spec, clients)
        clipped.append(mean.clipped.get("w", 0))
        spec = spec.next_round(mean)
    assert clipped == [0, 0, 0, 1, 0]


# --- published vectors ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[1] / "vectors" / "mean").iterdir()), ids=lambda p: p.stem
)
def test_a_second_implementation_says_the_published_vectors(path: Path) -> None:
    """By rational numbers and the description in docs/reference/wire-format.md, with no code of the library."""
    run = json.loads(path.read_text(encoding="utf-8"))
    for client in run["clients"].values():
        assert list(_encoded_slowly(run, client)) == client["vector"]


def _encoded_slowly(run: dict[str, Any], client: dict[str, Any]) -> Iterator[int]:
    """Values of arrays, then of metrics, then how many of each were clipped, then the weight."""

    def scale(entry_bytes: int) -> int:
        room = (2 ** (8 * entry_bytes - 1) - 1) // run["n_clients"]
        return max(k for k in range(64) if run["max_weight"] * 2**k <= room)

    key = bytes.fromhex(client["entropy"])
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor() if key else None
    arrays = zip(run["shapes"], run["exponents"], strict=True)
    fields = [(client["arrays"][name], exponent, scale(run["entry_bytes"])) for (name, _), exponent in arrays]
    fields += [([client["metrics"][name]], 20, scale(6)) for name in run["metrics"]]
    clipped = []
    for values, exponent, k in fields:
        clip = Fraction(2) ** exponent
        draws = stream.update(bytes(4 * len(values))) if stream else b""
        numbers = [Fraction(float.fromhex(text)) for text in values]
        n_clipped = sum(abs(x) > clip for x in numbers)
        yield from _rounded_slowly(numbers, client["weight"], exponent, k, draws)
        clipped.append(n_clipped)
    yield from [*clipped, client["weight"]]


def _rounded_slowly(numbers: list[Fraction], weight: int, exponent: int, k: int, drawn: bytes) -> Iterator[int]:
    """Each number's integer; to the nearest where nothing was drawn."""
    clip = Fraction(2) ** exponent
    for place, x in enumerate(numbers):
        exact = weight * max(min(x, clip), -clip) * Fraction(2) ** (k - exponent)
        if not drawn:
            yield round(exact)  # to the even one of two that are as near
            continue
        chance = round((exact - math.floor(exact)) * 2**32)
        yield math.floor(exact) + (int.from_bytes(drawn[4 * place : 4 * place + 4], "little") < chance)
