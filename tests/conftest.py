"""Hypothesis profiles: `dev` while writing, `ci` for every change, `nightly` for long searches; files and processes."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))  # so that every test finds ``support``

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - its folders are their owner's alone
if os.access(SHARED_MEMORY, os.W_OK):  # a site flushes every word to its disk, which takes most of a rehearsal's time
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHARED_MEMORY))

# Where it is set, each of the processes that tests start would compile every module again, for most of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=25, deadline=None, suppress_health_check=_QUIET)
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=_QUIET)
settings.register_profile("nightly", max_examples=5000, deadline=None, print_blob=True, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of a mode whose extra is not installed, where a parameter names the mode."""
    from analytic_secagg.modes import MODES

    missing = {name: mode.missing_extra for name, mode in MODES.items() if mode.missing_extra}
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        for name in missing.keys() & {value for value in parameters if isinstance(value, str)}:
            item.add_marker(pytest.mark.skip(reason=f"needs the extra: {missing[name]}"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give a file that makes fixtures for all its tests to one process, and every other test to whoever has time.

    xdist's marks for that, `xdist_group`, do nothing under pytest 9.2 and do not say so (pytest-xdist 3.8, issue 1386):
    every such fixture was made once in each process.
    """
    from xdist.scheduler import LoadScopeScheduling

    class WholeFiles(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if has_shared_fixtures(file) else nodeid

    @functools.cache
    def has_shared_fixtures(file: str) -> bool:
        return 'scope="module"' in (config.rootpath / file).read_text(encoding="utf-8")

    return WholeFiles(config, log) if config.getoption("dist") == "loadgroup" else None
