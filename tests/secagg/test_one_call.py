"""Means and sums in one call: the same in every mode, and refusals that name the client."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.extras import modes, needs

from analytic_secagg.modes import Mode
from secagg import ConfigurationError, InvalidVectorError, secure_mean, secure_sum

CALLED = ("plain", "masked", "committee", "bfv", "ckks")
RNG = np.random.default_rng(0)
CLIENTS = {party: {"w": RNG.standard_normal((3, 2)), "b": np.float32(RNG.normal())} for party in (4, 7, 9, 2)}
ROWS = {4: 10, 7: 250, 9: 1, 2: 33}


@pytest.mark.parametrize("mode", modes(CALLED))
def test_a_mean_is_the_same_in_every_mode(mode: Mode) -> None:
    losses = {party: {"loss": 1 / party} for party in CLIENTS}
    means = [
        secure_mean(CLIENTS, weights=ROWS, metrics=losses, mode=name, rounding="nearest")
        for name in ("plain", mode.name)
    ]
    plain, mean = means
    assert mean.survivors == (2, 4, 7, 9)
    assert (mean.weight, mean.metrics, mean.clipped) == (294, plain.metrics, {})
    for name, array in mean.arrays.items():
        assert array.tobytes() == plain.arrays[name].tobytes()
        exact = np.average([CLIENTS[party][name] for party in CLIENTS], axis=0, weights=list(ROWS.values()))
        assert np.abs(array - exact).max() <= mean.error_bound[name] * 1.001  # numpy's average is rounded too
    assert abs(mean.metrics["loss"] - sum(ROWS[p] / p for p in CLIENTS) / 294) <= mean.error_bound["loss"]


@pytest.mark.parametrize("mode", modes(CALLED))
def test_a_sum_is_the_same_in_every_mode(mode: Mode) -> None:
    counts = {party: arrays | {"n": np.array([party, -party], np.int16)} for party, arrays in CLIENTS.items()}
    plain, sums = (secure_sum(counts, mode=name) for name in ("plain", mode.name))
    assert sums["n"].tolist() == [22, -22]
    for name, array in sums.items():
        assert array.tobytes() == plain[name].tobytes()
    assert np.abs(sums["w"] - sum(arrays["w"] for arrays in CLIENTS.values())).max() < 1e-12


def test_nothing_is_clipped_unless_a_clip_is_given() -> None:
    large = {1: {"w": np.array([1e15, -3.0]), "zero": np.zeros(1)}, 2: {"w": np.array([0.0, 3.0]), "zero": np.zeros(1)}}
    mean = secure_mean(large)
    assert mean.clipped == {}
    assert abs(mean.arrays["w"][0] - 5e14) <= mean.error_bound["w"] < 1e8
    assert secure_mean(large, clip=2.0).clipped == {"w": 3}
    assert secure_sum(large)["zero"].tolist() == [0.0]


def test_the_tensors_of_a_model_are_averaged() -> None:
    torch = needs("torch")
    layers = {party: torch.nn.Linear(3, 2, dtype=torch.float32) for party in (1, 2, 3)}
    with torch.no_grad():
        mean = secure_mean({party: layer.state_dict() for party, layer in layers.items()})
    for name in ("weight", "bias"):
        exact = sum(layer.state_dict()[name].double() for layer in layers.values()) / 3
        assert np.abs(mean.arrays[name] - exact.numpy()).max() <= mean.error_bound[name]


@pytest.mark.parametrize(
    ("clients", "options", "error", "says"),
    [
        ({1: {"w": [1.0]}, 2: {"w": [np.nan]}}, {}, InvalidVectorError, "client 2: 'w': 1 of 1 numbers are NaN"),
        ({1: {"w": [np.nan]}, 2: {"w": [1.0]}}, {}, InvalidVectorError, "client 1: 'w': 1 of 1 numbers are NaN"),
        ({1: {"w": [1.0]}, 2: {"v": [1.0]}}, {}, InvalidVectorError, "client 2: .* missing"),
        ({1: {"w": [1.0]}, 2: {"w": [1]}}, {}, InvalidVectorError, "client 2: 'w': the type needed"),
        ({1: {"w": [1.0]}, 2: {"w": ["a"]}}, {}, InvalidVectorError, "client 2: 'w': the type needed"),
        ({1: {"w": [1.0]}, 2: {"w": [1.0]}}, {"weights": {1: 1, 2: 0.5}}, InvalidVectorError, "client 2: weight"),
        ({1: {"w": [1.0]}, 2: {"w": [1.0]}}, {"weights": {1: 0, 2: 0}}, InvalidVectorError, "client 1: weight"),
        ({1: {"w": [1.0]}, 2: {"w": [1.0]}}, {"weights": {1: 1}}, ConfigurationError, "weights are needed of each"),
        ({1: {"w": [1.0]}, 2: {"w": [1.0]}}, {"mode": "masks"}, ConfigurationError, "a mode is masked, committee"),
        ({1: {"w": [1.0]}}, {}, ConfigurationError, "masks need at least 2 clients"),
        ({}, {}, ConfigurationError, "at least one client is needed"),
        ({1: [1.0], 2: [2.0]}, {}, ConfigurationError, "give each array a name"),
        ([[1.0], [2.0]], {}, ConfigurationError, "clients is a mapping"),
    ],
)
def test_what_cannot_be_averaged_is_refused_by_name(clients: Any, options: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        secure_mean(clients, **options)


@pytest.mark.parametrize("call", [secure_mean, secure_sum])
def test_a_number_beyond_the_largest_clip_is_refused_and_not_clipped(call: Any) -> None:
    clients = {party: {"w": np.array([1.0, 1.0])} for party in (1, 2, 3)} | {2: {"w": np.array([-1e30, np.inf])}}
    with pytest.raises(InvalidVectorError, match=r"client 2: 'w': numbers of at most 2\^64 are needed, not 1e\+30"):
        call(clients)


@pytest.mark.parametrize("call", [secure_mean, secure_sum])
@pytest.mark.parametrize("party", [1, 3])
def test_what_numpy_does_not_read_is_refused_by_client_and_array(call: Any, party: int) -> None:
    clients: dict[int, Any] = {each: {"w": np.array([1.0, 1.0])} for each in (1, 2, 3)}
    clients[party] = {"w": [[1.0], [1.0, 2.0]]}
    with pytest.raises(InvalidVectorError, match=f"client {party}: 'w': an array that numpy reads is needed"):
        call(clients)
