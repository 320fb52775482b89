"""Modes: what is installed by default, and what a missing extra says."""

from __future__ import annotations

import pytest

from secagg import PlainSum
from secagg.errors import ConfigurationError
from simulations.errors import UsageError
from simulations.modes import MODES, Mode, choose_modes

ABSENT = Mode(name="absent", make=PlainSum, requires="a_module_that_nobody_has", extra="he")


def test_all_installed_modes_are_the_default() -> None:
    assert choose_modes(None) == tuple(MODES.values())
    assert choose_modes(None, MODES | {"absent": ABSENT}) == tuple(MODES.values())


def test_named_modes_keep_their_order_and_come_once() -> None:
    assert [mode.name for mode in choose_modes(["masked", "plain", "masked"])] == ["masked", "plain"]


def test_an_unknown_mode_names_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"a mode is one of plain, masked.*not 'telepathy'"):
        choose_modes(["plain", "telepathy"])


def test_a_mode_without_its_extra_says_how_to_install_it() -> None:
    with pytest.raises(UsageError, match=r"pip install 'analytic-secagg\[he\]', or leave absent out of --modes"):
        choose_modes(["absent"], {"absent": ABSENT})


@pytest.mark.parametrize(("name", "needed"), [("plain", 1), ("masked", 14)])
def test_survivors_needed_are_those_of_the_protocol(name: str, needed: int) -> None:
    assert MODES[name].survivors_needed(tuple(range(1, 21))) == needed


def test_a_cohort_that_a_mode_cannot_serve_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="at least 2 clients"):
        MODES["masked"].survivors_needed((1,))
