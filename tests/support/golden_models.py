"""Models whose weights are a promise: public rows, formats and no intercept, each as one SHA-256 of its weights.

Run as a script it prints them, after the kernels that BLAS runs on; ``free`` as an argument takes the limit of one
thread off.
"""

from __future__ import annotations

import hashlib
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_info

from analytic.afl import AFL
from analytic.bucketing import FixedThresholds
from analytic.deepafl import DeepAFL
from analytic.fedhip import FedHiP
from analytic.learner import ClientRows, fit_pooled
from analytic.random_map import RandomMap
from analytic.row_format import RowFormat
from analytic.safle import SAFLe
from analytic.solve import minimum_norm
from analytic.statistics import Statistics
from analytic_secagg.datasets import bundled

DIGITS = {"n_features": 64, "n_targets": 10, "feature_format": RowFormat.parse("UQ5.11"), "max_rows": 2000}


def digits() -> ClientRows:
    """The bundled digits' training rows: 1438 of 64 features."""
    data = bundled("digits")
    return ClientRows(data.x_train, data.y_train)


def wide_total() -> tuple[AFL, Statistics]:
    """A total of 700 rows of 512 features: whole numbers that any generator of these seeds draws alike."""
    rng = np.random.default_rng(512)
    learner = AFL(
        n_features=512, n_targets=10, feature_format=RowFormat.parse("Q11.0"), max_rows=700, ridge=1e-3, max_clients=1
    )
    rows = rng.integers(-2047, 2048, (700, 512)).astype(np.float64)
    return learner, Statistics.from_rows(learner.spec, rows, rng.integers(0, 10, 700))


def golden() -> dict[str, str]:
    """SHA-256 of each model's weights, by name."""
    rows, found = digits(), {}
    afl = AFL(**DIGITS)
    found["afl"] = afl.weights_bytes(fit_pooled(afl, rows))
    fedhip = FedHiP(**DIGITS, ridge=0.1)
    model = fit_pooled(fedhip, rows)
    own = ClientRows(rows.features[:5], rows.targets[:5])
    found["fedhip"] = b"".join(fedhip.weights_bytes(one) for one in fedhip.personalise(model, own, [0.0, 0.3, 30.0]))
    safle = SAFLe(n_features=64, n_classes=10, max_rows=2000, thresholds=FixedThresholds.evenly(0.0, 16.0, 8))
    found["safle"] = safle.weights_bytes(fit_pooled(safle, rows))
    deep = DeepAFL(n_features=64, n_targets=10, feature_bound=16.0, max_rows=2000, n_layers=2, d_phi=48, d_f=40)
    found["deepafl"] = deep.weights_bytes(fit_pooled(deep, rows))
    relu = RandomMap(n_features=64, n_columns=96, feature_bound=16.0).with_bits(16)
    wave = replace(relu, activation="sine", projection="fourier", fraction_bits=7, limit=127 / 128, variance=0.02)
    for name, lift in (("random", relu), ("random, sine", wave)):
        lifted = AFL(**DIGITS | {"feature_format": lift.row_format}, lift=lift, ridge=1.0)
        found[name] = lifted.weights_bytes(fit_pooled(lifted, rows))
    learner, total = wide_total()
    scores = (one.exact_scores(fit_pooled(one, rows), rows.features[::7]) for one in (afl, safle, deep))
    found["exact scores of afl, safle, deepafl"] = b"".join(one.tobytes() for one in scores)
    found["afl, 512 features"] = learner.weights_bytes(learner.update(learner.init(), total, 1))
    return {name: hashlib.sha256(weights).hexdigest() for name, weights in found.items()}


if __name__ == "__main__":
    if "free" in sys.argv:
        minimum_norm.one_blas_thread = nullcontext  # type: ignore[assignment]
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    print(len(pools), sorted({pool["architecture"] for pool in pools}), {pool["num_threads"] for pool in pools})
    for name, digest in golden().items():
        print(f"{name}: {digest}")
