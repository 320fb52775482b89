"""The promise: models of public rows have these hashes on every processor, BLAS and number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import flint
import numpy as np
import pytest
from scipy.linalg import blas
from support.golden_models import DIGITS, digits, golden, wide_total
from support.processors import KERNELS, kernels_that_run
from support.rationals import fractions_of, pseudo_inverse_times

from analytic.afl import AFL
from analytic.learner import fit_pooled
from analytic.solve.digits import Digits, digit_bits
from analytic.statistics import Statistics

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    "afl": "5cf76addcc13a23f836e5ac8e8877c41ea4a9f0e80bd6ec403755f83a4d9a450",
    "fedhip": "c6aa6591179fc356c0f2317490c4d01082167afa54095fd69325858734893154",
    "safle": "831094b4e17de05f44d426e51b4cc50c85ec532773a3b6d04d29cd99d25984af",
    "deepafl": "65262d659400c66df351ab067aead3f1d1e98efc58eddb0b0857eff175346fa5",
    "random": "95796f1f9f232a75a00545986d118a81ff73a365ca426b36e2f454db49dfbeea",
    "random, sine": "b5ffd5199695f2ab28618e0a92456e338faa5bc7b76a2a8c52ff9cc97ac55dfd",
    "exact scores of afl, safle, deepafl": "579148a2d1d63830e944e3528c525d53ca823e39ecd3776ab2bc4e8c6b1a18c6",
    "afl, 512 features": "f220e1a72e4317bc3aaaf95593629cee4e6dadb5747d218c5833f8afdb57edcc",
}


def test_the_promise_holds_here() -> None:
    assert golden() == PROMISED


@pytest.mark.parametrize(("kernel", "threads"), [("SkylakeX", 1), ("Haswell", 2), ("Sandybridge", 2), ("Nehalem", 1)])
def test_the_promise_holds_on_other_kernels(kernel: str, threads: int) -> None:
    """numpy's BLAS multiplies and scipy's factors; with two threads nothing limits them to one."""
    if kernel not in kernels_that_run():
        pytest.skip(f"this processor has no {KERNELS[kernel]}, which {kernel}'s kernels need")
    environment = {
        **os.environ,
        "OPENBLAS_CORETYPE": kernel,
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    script = [sys.executable, str(ROOT / "tests" / "support" / "golden_models.py"), *["free"] * (threads > 1)]
    run = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    told, *lines = run.stdout.splitlines()
    assert dict(line.split(": ") for line in lines) == PROMISED
    if "OpenBLAS" in str(np.show_config(mode="dicts")):
        assert kernel.lower() in told.lower()  # the setting did reach both libraries


def test_digits_against_rationals() -> None:
    """An oracle that shares no code: the pseudo-inverse in fractions, of a total of rank 61 of 64."""
    learner, rows = AFL(**DIGITS), digits()
    total = Statistics.from_rows(learner.spec, rows.features, rows.targets)
    weights, rank = pseudo_inverse_times(total.gram, total.cross * 2**11, 0.0)
    model = fit_pooled(learner, rows)
    assert model.solution is not None
    assert (model.solution.rank, model.solution.certified) == (rank, True)
    assert model.weights.tobytes() == weights.tobytes()


def test_512_features_against_rationals() -> None:
    learner, total = wide_total()
    learner = replace(learner, ridge=0.5)  # of few digits, for the oracle's sake
    matrix = flint.fmpz_mat(512, 512, (2 * total.gram + np.eye(512, dtype=np.int64)).ravel().tolist())
    exact = matrix.solve(flint.fmpz_mat(512, 2, (2 * total.cross[:, :2]).ravel().tolist())).entries()
    found = learner.update(learner.init(), total, 1).weights[:, :2]
    assert found.ravel().tolist() == [int(entry.p) / int(entry.q) for entry in exact]


@pytest.mark.parametrize("inner", [2, 512, 2048])
def test_numpy_and_scipy_multiply_the_widest_digits_alike(inner: int) -> None:
    """Every entry reaches the bound of the exactness proof, in numpy's BLAS and in scipy's, against integers."""
    bits = digit_bits(inner)
    widest = np.full((3, inner), float(2 ** (bits - 1)))
    widest[1, ::2] *= -1
    expected = (widest.astype(np.int64) @ widest.T.astype(np.int64)).tolist()
    assert (widest @ widest.T).tolist() == expected
    assert blas.dgemm(1.0, widest, widest.T).tolist() == expected
    product = Digits.of(widest, bits) @ Digits.of(np.ascontiguousarray(widest.T), bits)
    assert [int(value) for value in fractions_of(product)] == np.ravel(expected).tolist()
