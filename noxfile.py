"""Checks on several Pythons: ``nox -s short-3.13``, or ``nox`` for the short form on all of them."""

import nox

PYTHONS = ["3.11", "3.12", "3.13"]
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

SHORT = (
    "tests/test_architecture.py::test_the_library_and_compare_run_without_posix",
    "tests/secagg/test_vectors.py",
    "tests/secagg/test_layout.py",
    "tests/secagg/test_one_call.py",
    "tests/analytic/test_solve.py",
    "tests/analytic/test_statistics.py",
    "tests/analytic/test_estimators.py",
)
"""Imports, bytes on the wire, exact sums and the certified solve: what another Python or NumPy could change."""

nox.options.sessions = ["short"]
nox.options.reuse_venv = "yes"


@nox.session(python=PYTHONS)
def short(session: nox.Session) -> None:
    """Run the tests that another Python, NumPy or system could break, and the main job."""
    session.install(".[test]")
    session.run("python", "-m", "pytest", "-q", "-m", "not slow", *(session.posargs or SHORT), env=THREADS)
    session.run("analytic-secagg", "compare", "--clients", "5", env=THREADS)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run all tests in short form, with the core and TenSEAL."""
    session.install(".[he,test]")
    session.run("python", "-m", "pytest", "-n", "auto", "--dist", "loadgroup", "-m", "not slow", env=THREADS)


@nox.session(python="3.11")
def lint(session: nox.Session) -> None:
    """Check style and types with every extra."""
    session.install("-e", ".[all,dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
