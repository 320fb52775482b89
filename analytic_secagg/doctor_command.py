"""The command ``doctor``: whether this host can take part, and what to do where it cannot."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from analytic.afl import AFL
from analytic.extensions import Group, installed, origin
from analytic.learner import ClientRows, fit_pooled
from analytic.row_format import RowFormat
from analytic_secagg.code_version import PACKAGES, code_version
from analytic_secagg.commands.site import NoOptions
from analytic_secagg.console.findings import Finding, fail, ok, print_report, warn
from analytic_secagg.modes import MODES
from secagg import conformance
from secagg.primitives.known_answers import wrong_answers

KNOWN_WEIGHTS = "d76f3c11bc3f5fe1bd9d4a893ed8a6d90ed2a72e38140217b4b2c5db3bba1c2b"
"""SHA-256 of the weights of ``_fixed_model`` on every machine."""

EARLIEST = 1767225600
"""2026 began: a clock that shows less is wrong."""

_UNSYNCHRONISED = 5
"""TIME_ERROR of adjtimex(2)."""


def _versions() -> Iterator[Finding]:
    code = code_version()
    yield ok(f"Python {sys.version.split()[0]}, analytic-secagg {code.version}, its modules' digest {code.sha256}")
    for requirement in metadata.requires("analytic-secagg") or ():
        if "extra ==" not in requirement:
            yield from _version(requirement)


def _version(requirement: str) -> Iterator[Finding]:
    """Look for the package of one requirement; find nothing where it is there and in range."""
    match = re.match("[A-Za-z0-9_.-]+", requirement)
    assert match is not None, "a requirement begins with a name"
    try:
        found = metadata.version(match[0])
    except metadata.PackageNotFoundError:
        yield fail(f"{match[0]} is missing", f"pip install '{requirement}'")
        return
    for sign, bound in re.findall("(>=|<)([0-9.]+)", requirement):
        if (_numbers(found) >= _numbers(bound)) != (sign == ">="):
            yield fail(f"{match[0]} is {found}, and {requirement} is needed", f"pip install '{requirement}'")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", version)[:3]))


def _code() -> Iterator[Finding]:
    """Compare the installed files with the wheel's list of them (RECORD, PEP 427): a damaged or edited file shows."""
    hashes = {file: file.hash.value for file in metadata.files("analytic-secagg") or () if file.hash}
    of_packages = {file: value for file, value in hashes.items() if file.parts[0] in PACKAGES}
    changed = [str(file) for file, value in of_packages.items() if _record_hash(Path(str(file.locate()))) != value]
    if changed:
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        yield fail(f"changed since the installation: {', '.join(changed[:3])}{more}", "install the release again")
    elif of_packages:
        yield ok(f"all {len(of_packages)} files are those of the wheel that was installed")
    else:
        yield warn("installed from a source folder (pip install -e), which has no list of files to compare with")


def _record_hash(path: Path) -> str:
    """Return a file's SHA-256 as a wheel's RECORD writes it (PEP 427); nothing for a file that is missing."""
    if not path.is_file():
        return ""
    return base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()


def _primitives() -> Iterator[Finding]:
    if wrong := wrong_answers():
        remedy = "reinstall cryptography and analytic-secagg"
        yield fail(f"other results than the known ones: {', '.join(wrong)}", remedy)
    else:
        yield ok("keys, signatures, boxes, shares and masks have the known results")


def _vectors() -> Iterator[Finding]:
    if different := conformance.differences():
        yield fail(f"not as published: {', '.join(sorted(different)[:3])}", "install the release again")
    else:
        yield ok(f"{conformance.count()} published vectors are reproduced, byte for byte")


def _extras() -> Iterator[Finding]:
    there = [name for name, mode in MODES.items() if not mode.missing_extra]
    yield ok(f"modes that run here: {', '.join(there)}")
    for name, mode in MODES.items():
        if mode.missing_extra:
            yield warn(f"{name} needs more", mode.missing_extra)


def _extensions() -> Iterator[Finding]:
    """Name what other packages add; nothing of theirs is imported."""
    for group in Group:
        found = installed(group)
        for one in found:
            place = "" if one.dist is None else f", in {one.dist.locate_file('')}"
            yield ok(f"{group.kind} {one.name}: {origin(one)}{place}")
        for name, times in Counter(one.name for one in found).items():
            if times > 1:
                yield fail(f"{times} packages have a {group.kind} {name}, and neither runs", "uninstall all but one")


def _fixed_model() -> str:
    """The hash of the weights of fixed rows, whose Gram is badly conditioned."""
    rows = np.arange(600).reshape(60, 10) ** 2 % 251 / 256 + np.arange(60)[:, None] / 64
    learner = AFL(n_features=10, n_targets=3, feature_format=RowFormat.parse("Q4.11"), max_rows=60, ridge=2.0**-20)
    model = fit_pooled(learner, ClientRows(rows, np.arange(60) % 3))
    return hashlib.sha256(learner.weights_bytes(model)).hexdigest()


def _arithmetic() -> Iterator[Finding]:
    found = _fixed_model()  # first, since scipy loads its BLAS when it needs it
    libraries = {f"{one['internal_api']} {one['version']} ({one['num_threads']} threads)" for one in threadpool_info()}
    if found == KNOWN_WEIGHTS:
        yield ok(f"the weights of known rows have the bits that they have everywhere, with {', '.join(libraries)}")
    else:
        yield fail(f"known rows give weights {found[:16]} and not {KNOWN_WEIGHTS[:16]}", "reinstall numpy and scipy")


def _entropy() -> Iterator[Finding]:
    try:
        if hasattr(os, "getrandom"):  # elsewhere than on Linux there is always enough
            os.getrandom(32, os.GRND_NONBLOCK)
        yield ok("the system's generator of random bytes is ready")
    except BlockingIOError:
        yield fail("the system has no random bytes yet", "wait after a boot, or give a virtual machine virtio-rng")


def _clock() -> Iterator[Finding]:
    """Look at the clock, by which epochs of helpers and certificates end."""
    if (now := time.time()) < EARLIEST:
        shown = time.strftime("%Y-%m-%d", time.gmtime(now))
        yield fail(f"the clock shows {shown}", "set it, and run chrony or timesyncd")
    elif (state := _clock_state()) == _UNSYNCHRONISED:
        yield warn("nobody sets this clock by others'", "run chrony or timesyncd: helpers' epochs end by it")
    elif state < 0:
        yield warn("this system does not say who sets its clock", "look at chronyc tracking or timedatectl")
    else:
        yield ok("the clock is set by others'")


def _clock_state() -> int:
    """Return what adjtimex(2) says, which only reads where the structure is all zeros."""
    ask = getattr(ctypes.CDLL(None), "adjtimex", None)  # of Linux
    return -1 if ask is None else int(ask(ctypes.create_string_buffer(512)))


CHECKS = {
    "versions": _versions,
    "code": _code,
    "primitives": _primitives,
    "vectors": _vectors,
    "extras": _extras,
    "extensions": _extensions,
    "arithmetic": _arithmetic,
    "entropy": _entropy,
    "clock": _clock,
}


def run(options: NoOptions) -> int:
    """Check this host; the exit code."""
    return print_report((name, finding) for name, check in CHECKS.items() for finding in check())
