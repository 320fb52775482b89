"""The command ``doctor``: fine where all is well, and each fault with what to do."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import pytest

from federation.__main__ import main

VERSION = metadata.version


def found(name: str, version: str | None) -> Callable[[str], str]:
    def ask(asked: str) -> str:
        if asked == name and version is None:
            raise metadata.PackageNotFoundError(asked)
        return version if asked == name and version is not None else VERSION(asked)

    return ask


def not_ready(size: int, flags: int) -> bytes:
    raise BlockingIOError


def test_this_host_is_fine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "fine   arithmetic: the weights of known rows have the bits that they have everywhere, with" in said
    assert "WRONG" not in said


@pytest.mark.parametrize(
    ("place", "value", "code", "line"),
    [
        (
            "altered_code",
            lambda: ("a.b", "c.py", "d", "e"),
            1,
            "WRONG  code: not the published code: a.b, c.py, d and 1",
        ),
        ("metadata.version", found("scipy", None), 1, "WRONG  versions: scipy is missing; pip install 'scipy"),
        ("metadata.version", found("numpy", "1.9.3"), 1, "WRONG  versions: numpy is 1.9.3, and numpy"),
        ("metadata.version", found("numpy", "3.0"), 1, "WRONG  versions: numpy is 3.0, and numpy"),
        ("KNOWN_WEIGHTS", "0" * 64, 1, "WRONG  arithmetic: known rows give weights d76f3c11bc3f5fe1 and not 00000000"),
        ("os.getrandom", not_ready, 1, "WRONG  entropy: the system has no random bytes yet"),
        ("time.time", lambda: 0.0, 1, "WRONG  clock: the clock shows 1970-01-01; set it"),
        ("_clock_state", lambda: 5, 0, "note   clock: nobody sets this clock by others'"),
        ("_clock_state", lambda: -1, 0, "note   clock: this system does not say who sets its clock"),
        ("_clock_state", lambda: 0, 0, "fine   clock: the clock is set by others'"),
    ],
)
def test_a_fault_is_named_with_what_to_do(
    place: str, value: Any, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"federation.doctor_command.{place}", value)
    assert main(["doctor"]) == code
    assert line in capsys.readouterr().out


def test_an_extra_that_is_missing_is_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("federation.modes.Mode.missing_extra", property(lambda mode: "pip install x"))
    assert main(["doctor"]) == 0
    assert "note   extras: ckks needs more: pip install x" in capsys.readouterr().out
