"""Modules, ONNX graphs and `decision_function` compute `exact_scores` within a bound that is derived layer by layer."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from analytic.afl import AFL
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.errors import NotReadyError, SpecificationError
from analytic.fedhip import FedHiP
from analytic.integer_maps import ACTIVATIONS, activation_named
from analytic.layers import Activated, Clipped, Layer, Linear, Lookup, Residual, Rounded
from analytic.learner import ClientRows, fit_pooled
from analytic.onnx_export import to_onnx
from analytic.random_map import RandomMap
from analytic.row_format import ColumnMap, FloatMatrix, RowFormat
from analytic.safle import SAFLe
from analytic.torch_export import TorchMissingError, to_torch

torch = pytest.importorskip("torch", reason="needs the extra: pip install '.[vision]'")

N, D, C = 300, 12, 4
RNG = np.random.default_rng(11)
ROWS = RNG.normal(size=(N, D)).clip(-3.9, 3.9).astype(np.float32).astype(np.float64)
LABELS = RNG.integers(0, C, N)
TEST = RNG.normal(size=(101, D)).astype(np.float32).astype(np.float64)
DEEP = DeepAFL(n_features=D, n_targets=C, feature_bound=4.0, max_rows=N, n_layers=3, d_phi=40, d_f=24)
MAP = RandomMap(n_features=D, n_columns=40, feature_bound=4.0, limit=2.5)
SAFLE = SAFLe(n_features=D, n_classes=C, max_rows=N, thresholds=QuantileThresholds(low=-4, high=4, n_bins=100))

LEARNERS: dict[str, Any] = {
    "afl": AFL(n_features=D, n_targets=C, feature_format=RowFormat.parse("Q2.14"), max_rows=N),
    "afl-columns": AFL(
        n_features=D,
        n_targets=C,
        feature_format=RowFormat.parse("Q0.18"),
        max_rows=N,
        columns=ColumnMap(exponents=range(2, 2 + D), intercept=1),
    ),
    "fedhip": FedHiP(n_features=D, n_targets=C, feature_format=RowFormat.parse("Q2.14"), max_rows=N, ridge=0.1),
    **{f"deepafl-{name}": replace(DEEP, activation=name) for name in ACTIVATIONS},
    "deepafl-affine": replace(DEEP, projection="affine", input_activation="tanh", input_variance=0.3),
    "deepafl-first": replace(DEEP, fed_by_first=True),
    **{
        f"random-{own.activation}": AFL(n_features=D, n_targets=C, feature_format=own.row_format, max_rows=N, lift=own)
        for own in (MAP, replace(MAP, activation="sine", projection="fourier", limit=0.75))
    },
    **{f"safle-{encoding}": replace(SAFLE, encoding=encoding) for encoding in Encoding},
    "safle-words": replace(SAFLE, encoding="integer", group_size=3, n_buckets=5),
    "safle-fixed": replace(SAFLE, thresholds=FixedThresholds.evenly(-1, 1, 8), group_size=4),
}


def _fitted(name: str) -> tuple[Any, Any]:
    learner = LEARNERS[name]
    return learner, fit_pooled(learner, ClientRows(ROWS, LABELS))


ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24}
"""u: the largest relative error of one rounded operation."""

STEEPEST = {"gelu": 1.13, "hardswish": 1.5}
"""Largest slopes of activations, 1 where not named: what an error before them grows by at most."""

ACTIVATION_ROUNDOFFS = 16
"""An activation is evaluated to within this many u times |z|: erf and tanh to 4 ulp (libraries promise 1 to 2), and the
few products and sums around them."""


@dataclass(frozen=True)
class WithError:
    """Computed rows with a bound on the error of each entry."""

    rows: FloatMatrix
    error: FloatMatrix
    u: float
    unit: float = 0.0

    def through(self, layers: tuple[Layer, ...]) -> WithError:
        """A sum of k products in any order has an error of at most gamma_k = k u / (1 - k u) times the sum of their
        absolute values (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); rounding both factors to
        u first adds two to k. Errors of inner layers pass through products as |E| |M| and through activations times
        their steepest slope. DeepAFL's integer rows round activations and updates, by half a unit.
        """
        found, first = self, None
        for layer in layers:
            if isinstance(layer, Residual):
                first = found if first is None else first
                found = found.plus((first if layer.of_first else found).through(layer.branch))
            elif isinstance(layer, Linear):
                found = found.times(layer.matrix, layer.bias)
            elif isinstance(layer, Activated):
                found = found.activated(layer.name)
            elif isinstance(layer, Rounded):
                found = found.rounded(2.0**-layer.fraction_bits)
            elif isinstance(layer, Clipped):
                found = replace(found, rows=found.rows.clip(layer.low, layer.high))
            else:
                found = found.looked_up(layer)
        return found

    def times(self, matrix: FloatMatrix, bias: FloatMatrix | None = None) -> WithError:
        if bias is not None:
            ones, none = np.ones((len(self.rows), 1)), np.zeros((len(self.rows), 1))
            parts = np.hstack([self.rows, ones]), np.hstack([self.error, none])
            return WithError(*parts, self.u, self.unit).times(np.vstack([matrix, bias]))
        sizes, gamma = np.abs(matrix), gamma_of(len(matrix) + 2, self.u)
        error = (self.error * (1 + gamma) + gamma * np.abs(self.rows)) @ sizes
        return WithError(self.rows @ matrix, error, self.u, self.unit)

    def activated(self, name: str) -> WithError:
        error = STEEPEST.get(name, 1.0) * self.error + ACTIVATION_ROUNDOFFS * self.u * (np.abs(self.rows) + self.error)
        return WithError(activation_named(name).function(self.rows), error + self.unit / 2, self.u, self.unit)

    def rounded(self, unit: float) -> WithError:
        """An entry so near to a middle that its error may bring it beyond may be off by one unit, others by nothing."""
        low, high = (np.rint((self.rows + sign * self.error) / unit) for sign in (-1, 1))
        return WithError(np.rint(self.rows / unit) * unit, (high - low) * unit, self.u, self.unit)

    def plus(self, other: WithError) -> WithError:
        rows, error = self.rows + other.rows, self.error + other.error
        return WithError(rows, error + self.u * (np.abs(rows) + error) + self.unit / 2, self.u, self.unit)

    def looked_up(self, layer: Lookup) -> WithError:
        n_groups = layer.grouping.n_groups
        largest = np.abs(layer.embeddings).reshape(n_groups, -1, layer.embeddings.shape[1]).max(axis=1).sum(axis=0)
        error = np.tile(gamma_of(n_groups + 2, self.u) * largest, (len(self.rows), 1))
        return WithError(np.full_like(error, np.nan), error, self.u)


def gamma_of(k: int, u: float) -> float:
    return k * u / math.fsum((1.0, -k * u))


def logit_tolerance(learner: Any, model: Any, features: FloatMatrix, precision: str = "float64") -> FloatMatrix:
    """How far a logit may be from ``exact_scores``.

    A module's operations round; the integer maps of DeepAFL and of random features truncate what they are given by
    less than a unit, which enters here, and round activations and updates by half of one.
    """
    rows, unit = np.asarray(features, dtype=np.float64), getattr(learner, "unit", 0.0)
    if getattr(learner, "lift", None) is not None:  # rows as ``RandomMap.apply`` truncates them
        given, unit = 2.0 ** -max(learner.lift.fraction_bits, 24), 0.0
        error = np.full_like(rows, given)
        return WithError(rows, error, ROUNDOFF[precision]).through(learner.layers(model)).error
    return WithError(rows, np.full_like(rows, unit), ROUNDOFF[precision], unit).through(learner.layers(model)).error


def score_tolerance(learner: Any, model: Any, features: FloatMatrix) -> FloatMatrix:
    """How far ``decision_function`` may be from ``exact_scores``, as the docstrings of both say."""
    u = ROUNDOFF["float64"]
    if getattr(learner, "lift", None) is not None:
        rows = learner.lift.apply(features).values
        return WithError(rows, np.zeros_like(rows), u).times(model.weights).error
    if not hasattr(learner, "unit"):
        return logit_tolerance(learner, model, features)
    *before, last = learner.layers(model)
    rows = WithError(features, np.full_like(features, learner.unit), u, learner.unit).through(tuple(before))
    size = (np.abs(rows.rows) + rows.error).sum(axis=1, keepdims=True) * np.abs(last.matrix).max(axis=0).max()
    return np.broadcast_to(size * (2.0**-40 + 3 * u), (len(features), last.matrix.shape[1]))


@pytest.mark.parametrize("name", LEARNERS)
def test_logits_and_scores_agree_with_exact_ones_within_the_derived_tolerance(name):
    learner, model = _fitted(name)
    exact, scores = learner.exact_scores(model, TEST), learner.decision_function(model, TEST)
    assert (np.abs(scores - exact) <= score_tolerance(learner, model, TEST)).all()
    assert score_tolerance(learner, model, TEST).max() < 1e-8 * np.abs(exact).max()
    assert (scores != exact).any()
    for precision in ("float64", "float32"):
        module = to_torch(learner, model, precision=precision)
        with torch.inference_mode():
            logits = module(torch.from_numpy(TEST).to(getattr(torch, precision))).numpy()
        tolerance = logit_tolerance(learner, model, TEST, precision=precision)
        assert logits.shape == tolerance.shape == exact.shape
        assert logits.dtype == precision
        assert (np.abs(logits - exact) <= tolerance).all()
        # a tolerance that allowed anything would prove nothing: it stays far below the logits themselves
        small = 1e-3 if name.startswith(("deepafl", "random")) else 1e-8
        if name.startswith("random") and precision == "float64":  # but for entries at a middle, if there are any
            assert np.median(np.abs(logits - exact)) < 1e-12 * np.abs(exact).max()
        assert tolerance.max() < {"float64": small, "float32": 1.0}[precision] * np.abs(exact).max()
        if precision == "float64":
            np.testing.assert_array_equal(logits.argmax(axis=1), exact.argmax(axis=1))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_graph_in_onnxruntime_agrees_within_the_derived_tolerance(name):
    """GELU's error function is float32 there, so its bound is derived as if all of the model were."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra: pip install '.[onnx]'")
    learner, model = _fitted(name)
    content = to_onnx(learner, model)
    assert content == to_onnx(learner, model)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    rows = np.concatenate([TEST, [[np.nan] * D]]) if name.startswith("safle") else TEST
    (scores,) = session.run(["scores"], {"features": rows})
    assert np.isnan(scores[len(TEST) :]).all()
    exact = learner.exact_scores(model, TEST)
    precision = "float32" if getattr(learner, "activation", "") == "gelu" else "float64"
    assert (np.abs(scores[: len(TEST)] - exact) <= logit_tolerance(learner, model, TEST, precision=precision)).all()
    np.testing.assert_array_equal(scores[: len(TEST)].argmax(axis=1), exact.argmax(axis=1))


def test_the_tolerance_is_not_idle():
    learner, model = _fitted("deepafl-gelu")
    module = to_torch(learner, model)
    module.layers[1] = torch.nn.GELU(approximate="tanh")
    logits = module(torch.from_numpy(TEST)).detach().numpy()
    difference = np.abs(logits - learner.exact_scores(model, TEST))
    assert (difference > logit_tolerance(learner, model, TEST)).mean() > 0.4


def test_a_linear_model_is_a_linear_layer():
    learner, model = _fitted("afl")
    module = to_torch(learner, model)
    assert type(module) is torch.nn.Linear
    assert module.bias is None
    np.testing.assert_array_equal(module.weight.detach().numpy(), model.weights.T)
    with torch.no_grad():
        module.weight.zero_()
    assert np.abs(model.weights).max() > 0, "the module shares no memory with the model"


@pytest.mark.parametrize("name", ["safle-binary-overlapping", "safle-words"])
def test_buckets_agree_exactly_even_at_thresholds(name):
    learner, model = _fitted(name)
    for precision in ("float64", "float32"):
        edges = np.concatenate(
            [model.thresholds, np.nextafter(model.thresholds, -9), np.nextafter(model.thresholds, 9)], 1
        )
        edges = edges.T.astype(precision)
        edges = np.concatenate([edges, np.nextafter(edges, np.float32(9)), np.nextafter(edges, np.float32(-9))])
        module = to_torch(learner, model, precision=precision)
        logits = module(torch.from_numpy(edges)).detach().numpy()
        expected = learner.exact_scores(model, edges)
        assert (np.abs(logits - expected) <= logit_tolerance(learner, model, edges, precision=precision)).all()


def test_rows_that_are_no_numbers_have_no_logits():
    learner, model = _fitted("safle-integer")
    rows = torch.from_numpy(TEST[:4].copy())
    rows[1, 3], rows[2, 0] = torch.nan, torch.inf
    assert torch.isnan(to_torch(learner, model)(rows)).all(dim=1).tolist() == [False, True, True, False]


@pytest.mark.parametrize("name", ["afl", "deepafl-gelu", "deepafl-first", "safle-words"])
def test_a_module_saves_its_state_and_can_be_fine_tuned(name, tmp_path):
    learner, model = _fitted(name)
    module = to_torch(learner, model)
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other = to_torch(learner, model)
    rows = torch.from_numpy(TEST)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(rows), module(rows))
    module(rows).square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


@pytest.mark.parametrize("name", ["afl", "deepafl-gelu", "safle-words"])
def test_a_module_can_be_exported(name):
    learner, model = _fitted(name)
    module, rows = to_torch(learner, model), torch.from_numpy(TEST)
    program = torch.export.export(module, (rows,))
    assert torch.equal(program.module()(rows), module(rows))


def test_what_cannot_become_a_module_is_refused():
    learner, model = _fitted("afl")
    with pytest.raises(NotReadyError, match="needs a complete model"):
        to_torch(learner, learner.init())
    with pytest.raises(SpecificationError, match="float64 or float32, not 'half'"):
        to_torch(learner, model, precision="half")
    with pytest.raises(SpecificationError, match="no module for object"):
        to_torch(object(), model)
    with pytest.raises(NotReadyError, match="needs a complete model"):
        to_onnx(learner, learner.init())
    with pytest.raises(SpecificationError, match="no graph for object"):
        to_onnx(object(), model)


def test_importing_needs_neither_torch_nor_onnx_and_missing_ones_are_named():
    # In a process of its own, where importing them fails as it does when they are not installed.
    script = (
        "import sys; sys.modules['torch'] = sys.modules['onnx'] = None\n"
        "import numpy as np\n"
        "from analytic.onnx_export import OnnxMissingError, to_onnx\n"
        "from analytic.torch_export import TorchMissingError, to_torch\n"
        "from analytic.afl import AFL\n"
        "from analytic.learner import ClientRows, fit_pooled\n"
        "from analytic.row_format import RowFormat\n"
        "learner = AFL(n_features=1, n_targets=2, feature_format=RowFormat.parse('Q2.5'), max_rows=2)\n"
        "model = fit_pooled(learner, ClientRows(np.ones((2, 1)), np.array([0, 1])))\n"
        "try:\n    to_torch(learner, model)\n"
        "except TorchMissingError as error:\n    print(error)\n"
        "try:\n    to_onnx(learner, model)\n"
        "except OnnxMissingError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ".[vision]" in done.stdout
    assert ".[onnx]" in done.stdout
    assert issubclass(TorchMissingError, ImportError)
