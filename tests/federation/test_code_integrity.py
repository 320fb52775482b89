"""What is not the published code is named, on disk and in memory, and nothing else is."""

from __future__ import annotations

import hashlib
import importlib
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.blind_faults import BLIND
from support.further_faults import FURTHER
from support.held_out_faults import FRESH, Fresh
from support.last_faults import LAST
from support.passed_faults import PASSED
from support.planted_faults import PLANTED, Planted
from support.sly_faults import SLY

from analytic.row_format import RowFormat
from federation.code_integrity import PACKAGES, PUBLISHED, ROOT, altered_code, code_digest
from federation.modes import MODES, register
from secagg import ring
from secagg.entropy import os_entropy
from secagg.masked.client import MaskedClient

Patch = pytest.MonkeyPatch


def test_the_published_hashes_are_those_of_the_code() -> None:
    assert asked_of(ROOT) == [], "where a change is meant, make published, and read what that changes"
    assert code_digest() == hashlib.sha256(PUBLISHED.read_bytes()).hexdigest()


def test_other_tools_read_the_hashes() -> None:
    if shutil.which("sha256sum") is None:
        pytest.skip("no sha256sum here")
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", PUBLISHED], cwd=ROOT, check=True)


# On disk


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


ASK = """
import federation.modes
from federation.code_integrity import altered_code
print(*(f"{name}\\n" for name in altered_code()), sep="", end="")
"""


def asked_of(root: Path) -> list[str]:
    """What another process says of its own copy."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", ASK],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        text=True,
        capture_output=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_files_that_are_changed_missing_or_added_are_named(copied: Path) -> None:
    assert asked_of(copied) == []
    with (copied / "secagg" / "ring.py").open("a", encoding="utf-8") as file:
        file.write("# a word more\n")
    (copied / "federation" / "local" / "page.html").unlink()
    (copied / "analytic" / "extra.py").write_text("")
    (copied / "analytic" / ".swp").write_text("no file of the packages")
    assert asked_of(copied) == ["analytic/extra.py", "federation/local/page.html", "secagg/ring.py"]


def test_a_cached_module_of_another_source_is_named(copied: Path) -> None:
    """Python takes a cache that says it needs no check."""
    source = copied / "secagg" / "ring.py"
    honest = source.read_text(encoding="utf-8")
    source.write_text(f"{honest}\n\nWORD = 1\n", encoding="utf-8")
    py_compile.compile(str(source), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH, doraise=True)
    source.write_text(honest, encoding="utf-8")
    assert asked_of(copied) == ["secagg.ring.WORD"]


# In memory


def a_function(m: Patch) -> None:
    m.setattr("secagg.ring._pack", lambda segment, words: memoryview(b""))


def a_name_that_was_imported(m: Patch) -> None:
    m.setattr("secagg.masked.client.pairwise_seed", lambda own, peer, digest: bytes(32))


def another_function_of_ours(m: Patch) -> None:
    m.setattr("secagg.masked.client.split", ring._unpack)


def of_another_library(m: Patch) -> None:
    m.setattr("secagg.primitives.sealing.AESGCM", type("AESGCM", (), {}))


def a_method(m: Patch) -> None:
    m.setattr(MaskedClient, "_masks", lambda own: [])


def a_method_that_was_inherited(m: Patch) -> None:
    m.setattr(MaskedClient, "__eq__", lambda own, other: True)


def a_static_method(m: Patch) -> None:
    m.setattr(RowFormat, "parse", staticmethod(lambda text: RowFormat(integer_bits=1, fraction_bits=1)))


def a_property(m: Patch) -> None:
    m.setattr("secagg.layout.Layout.size", property(lambda own: 1))


def wrapped_as_if_it_were_the_same(m: Patch) -> None:
    from functools import wraps

    honest = MaskedClient._masks

    @wraps(honest)
    def wrapped(own: Any) -> Any:
        return honest(own)[:1]

    m.setattr(MaskedClient, "_masks", wrapped)


def its_code(m: Patch) -> None:
    m.setattr(ring._lift, "__code__", (lambda segment, words: words).__code__)


def a_default(m: Patch) -> None:
    discrete = importlib.import_module("secagg.dp.discrete_gaussian")
    m.setattr(discrete.DiscreteGaussian.draw, "__defaults__", (lambda n: bytes(n),))


def a_number(m: Patch) -> None:
    m.setattr("secagg.config.MAX_CLIENTS", 10**9)


def a_row_of_a_table(m: Patch) -> None:
    states = importlib.import_module("secagg.masked.states")
    first, *others = states.SEMI_HONEST_CLIENT  # replaced and not taken out: that would put it last when it is undone
    m.setitem(states.SEMI_HONEST_CLIENT, first, states.SEMI_HONEST_CLIENT[others[-1]])


def a_further_row(m: Patch) -> None:
    states = importlib.import_module("secagg.masked.states")
    m.setitem(states.SEMI_HONEST_CLIENT, "anything", next(iter(states.SEMI_HONEST_CLIENT.values())))


def a_part_of_an_entry(m: Patch) -> None:
    m.setitem(MODES, "masked", replace(MODES["masked"], corrupt_helpers=3))


def a_builtin(m: Patch) -> None:
    m.setattr("secagg.carriers.key_holder.len", lambda survivors: 99, raising=False)


def a_name_that_is_gone(m: Patch) -> None:
    m.delattr("secagg.ring._unpack")


def a_base_class(m: Patch) -> None:
    m.setattr("secagg.errors.RemoteProtocolError", type("RemoteProtocolError", (ValueError,), {}))


IN_MEMORY: dict[Callable[[Patch], None], str] = {  # by its name, or how that ends where several modules have it
    a_function: "secagg.ring._pack",
    a_name_that_was_imported: "secagg.masked.client.pairwise_seed",
    another_function_of_ours: "secagg.masked.client.split",
    of_another_library: "secagg.primitives.sealing.AESGCM",
    a_method: "secagg.masked.client.MaskedClient._masks",
    a_method_that_was_inherited: "secagg.masked.client.MaskedClient.__eq__",
    a_static_method: "analytic.row_format.RowFormat.parse",
    a_property: "secagg.layout.Layout.size",
    wrapped_as_if_it_were_the_same: "secagg.masked.client.MaskedClient._masks",
    its_code: "secagg.ring._lift",
    a_default: "secagg.dp.discrete_gaussian.DiscreteGaussian.draw",
    a_number: "secagg.config.MAX_CLIENTS",
    a_row_of_a_table: ".SEMI_HONEST_CLIENT",
    a_further_row: ".SEMI_HONEST_CLIENT",
    a_part_of_an_entry: ".MODES",
    a_builtin: "secagg.carriers.key_holder.len",
    a_name_that_is_gone: "secagg.ring._unpack",
    a_base_class: "secagg.errors.RemoteProtocolError",
}


def test_what_runs_in_place_of_the_published_code_is_named() -> None:
    """One test, since each look at all modules takes a second, and what is undone is looked for once at the end."""
    before = set(altered_code())  # names that other tests' patches left to modules which were imported meanwhile
    passed = []
    for plant, name in IN_MEMORY.items():
        with pytest.MonkeyPatch.context() as m:
            plant(m)
            if not any(found.endswith(name) for found in set(altered_code()) - before):
                passed.append(name)
    assert passed == []
    assert set(altered_code()) == before


def test_what_a_program_adds_is_its_own() -> None:
    before, own = altered_code(), replace(MODES["plain"], name="of-a-program")
    register(own)
    try:
        assert altered_code() == before
    finally:
        del MODES[own.name]


KEPT: list[Fresh | Planted] = [
    *FRESH, *FURTHER, *BLIND, *LAST, *PASSED, *SLY, *(one for one in PLANTED.values() if one.entropy() is os_entropy)
]  # fmt: skip
"""All but those of a generator that a test gives to sums, which is no code of the packages."""


@pytest.mark.parametrize("kept", [KEPT[::48], pytest.param(KEPT, marks=pytest.mark.slow)], ids=["some", "all"])
def test_every_kept_fault_is_named(kept: list[Fresh | Planted]) -> None:
    passed, before = [], set(altered_code())
    for fault in kept:
        with pytest.MonkeyPatch.context() as m:
            fault.plant(m)
            if not set(altered_code()) - before:
                passed.append(fault)
    assert passed == []
