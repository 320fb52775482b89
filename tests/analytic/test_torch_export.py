from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analytic import torch_export
from analytic.afl import AFL
from analytic.bucketing import Encoding, FixedThresholds, QuantileThresholds
from analytic.deepafl import DeepAFL
from analytic.errors import NotReadyError, SpecificationError
from analytic.features import ACTIVATIONS
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic.safle import SAFLe
from analytic.torch_export import TorchMissingError, logit_tolerance, to_torch

torch = pytest.importorskip("torch")

N, D, C = 300, 12, 4
RNG = np.random.default_rng(11)
ROWS = RNG.normal(size=(N, D)).clip(-3.9, 3.9).astype(np.float32).astype(np.float64)
LABELS = RNG.integers(0, C, N)
TEST = RNG.normal(size=(101, D)).astype(np.float32).astype(np.float64)
DEEP = DeepAFL(n_features=D, n_targets=C, feature_bound=4.0, max_rows=N, n_layers=3, d_phi=40, d_f=24)
SAFLE = SAFLe(n_features=D, n_classes=C, max_rows=N, thresholds=QuantileThresholds(low=-4, high=4, n_bins=100))

LEARNERS: dict[str, Any] = {
    "afl": AFL(n_features=D, n_targets=C, feature_format=RowFormat.parse("Q2.14"), max_rows=N),
    "fedhip": FedHiP(n_features=D, n_targets=C, feature_format=RowFormat.parse("Q2.14"), max_rows=N, ridge=0.1),
    **{f"deepafl-{name}": replace(DEEP, activation=name) for name in ACTIVATIONS},
    "deepafl-first": replace(DEEP, fed_by_first=True),
    "deepafl-no-layers": replace(DEEP, n_layers=0),
    **{f"safle-{encoding}": replace(SAFLE, encoding=encoding) for encoding in Encoding},
    "safle-words": replace(SAFLE, encoding="integer", group_size=3, n_buckets=5),
    "safle-fixed": replace(SAFLE, thresholds=FixedThresholds.evenly(-1, 1, 8), group_size=4),
}


def _fitted(name: str) -> tuple[Any, Any]:
    learner = LEARNERS[name]
    return learner, fit_pooled(learner, ClientRows(ROWS, LABELS))


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", LEARNERS)
def test_logits_agree_within_the_derived_tolerance(name, precision):
    learner, model = _fitted(name)
    module = to_torch(learner, model, precision=precision)
    with torch.inference_mode():
        logits = module(torch.from_numpy(TEST).to(getattr(torch, precision))).numpy()
    expected = learner.decision_function(model, TEST)
    tolerance = logit_tolerance(learner, model, TEST, precision=precision)
    assert logits.shape == tolerance.shape == expected.shape
    assert logits.dtype == precision
    assert (np.abs(logits - expected) <= tolerance).all()
    # a tolerance that allowed anything would prove nothing: it stays far below the logits themselves
    assert tolerance.max() < {"float64": 1e-8, "float32": 1.0}[precision] * np.abs(expected).max()
    if precision == "float64":
        np.testing.assert_array_equal(logits.argmax(axis=1), expected.argmax(axis=1))


def test_the_tolerance_is_not_idle():
    learner, model = _fitted("deepafl-gelu")
    module = to_torch(learner, model)
    approximate = torch.nn.GELU(approximate="tanh")
    module.activation = approximate
    logits = module(torch.from_numpy(TEST)).detach().numpy()
    difference = np.abs(logits - learner.decision_function(model, TEST))
    assert (difference > logit_tolerance(learner, model, TEST)).mean() > 0.9


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
        expected = learner.decision_function(model, edges)
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
    with pytest.raises(SpecificationError, match="no useful error bound"):
        torch_export._gamma(2**23, 2.0**-24)


def test_importing_needs_no_torch_and_a_missing_one_is_named():
    # In a process of its own, where importing torch fails as it does when it is not installed.
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from analytic.torch_export import TorchMissingError, to_torch\n"
        "from analytic.afl import AFL\n"
        "from analytic.learner import ClientRows, fit_pooled\n"
        "from analytic.row_format import RowFormat\n"
        "learner = AFL(n_features=1, n_targets=2, feature_format=RowFormat.parse('Q2.5'), max_rows=2)\n"
        "model = fit_pooled(learner, ClientRows(np.ones((2, 1)), np.array([0, 1])))\n"
        "try:\n    to_torch(learner, model)\n"
        "except TorchMissingError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "analytic-secagg[vision]" in done.stdout
    assert issubclass(TorchMissingError, ImportError)
