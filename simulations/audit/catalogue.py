"""The attacks by name, and what is expected of each in each mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any

from federation.errors import UsageError
from federation.modes import find_mode
from secagg.sums import Upload
from simulations.audit.attack import Attack
from simulations.audit.attacks.afl_upload import AflUpload
from simulations.audit.attacks.class_means import ClassMeans
from simulations.audit.attacks.collusion import Collusion
from simulations.audit.attacks.dictionary import Dictionary
from simulations.audit.attacks.differencing import Differencing
from simulations.audit.attacks.different_models import DifferentModels
from simulations.audit.attacks.label_histogram import LabelHistogram
from simulations.audit.attacks.lattice_rows import LatticeRows
from simulations.audit.attacks.lone_rows import LoneRows
from simulations.audit.attacks.many_sums import ManySums
from simulations.audit.attacks.mask_reuse import MaskReuse
from simulations.audit.attacks.membership import Membership
from simulations.audit.attacks.own_part import OwnPart
from simulations.audit.attacks.peeling import Peeling
from simulations.audit.attacks.row_count import RowCount
from simulations.audit.attacks.told_apart import ToldApart
from simulations.audit.attacks.uniformity import Uniformity


class Expectation(StrEnum):
    """What a report says if a cell does not turn out so."""

    LEAKS = "leaks"
    HIDDEN = "hidden"
    OPEN = "open"


ON_A_MESSAGE: tuple[Attack[Any], ...] = (
    LabelHistogram(),
    RowCount(),
    ClassMeans(),
    LoneRows(),
    LatticeRows(),
    Peeling(),
    Dictionary(),
    Membership(),
    ToldApart(),
    Uniformity(),
)
"""Attacks on the one message that carries a client's vector."""

ON_A_TOTAL = ("label_histogram", "lone_rows", "lattice_rows", "peeling", "dictionary", "membership")
"""Those of them that make sense against a total; the others ask for what a total is made to show."""

SCENARIOS: Mapping[str, type[Any]] = {
    "mask_reuse": MaskReuse,
    "differencing": Differencing,
    "different_models": DifferentModels,
    "own_part": OwnPart,
    "many_sums": ManySums,
    "afl_upload": AflUpload,
    "collusion": Collusion,
}
"""Attacks that need sums of their own."""

NAMES = (*(attack.name for attack in ON_A_MESSAGE), *SCENARIOS)

PROBE = tuple(range(1, 6))
"""A cohort that every mode can serve; what is read of its guarantee holds for all."""


def choose_attacks(names: Iterable[str] | None) -> frozenset[str]:
    """Names of attacks; all of them for None.

    Raises:
        UsageError: there is none of that name.
    """
    chosen = frozenset(NAMES if names is None else names)
    unknown = sorted(chosen - set(NAMES))
    if unknown:
        raise UsageError(f"an attack is one of {', '.join(NAMES)}, not {', '.join(unknown)}")
    return chosen


def on_a_message(chosen: frozenset[str]) -> tuple[Attack[Any], ...]:
    """The chosen attacks on a client's message."""
    return tuple(attack for attack in ON_A_MESSAGE if attack.name in chosen)


def expected(attack: str, mode: str) -> Expectation:
    """What should come of an attack on one client's message, or on sums made for it, in a mode."""
    guarantee = find_mode(mode).guarantee(PROBE)
    promises_nothing = (  # peeling needs features that are mostly zero, and ciphertexts need not look like dice
        (attack == "peeling" and guarantee.opens_alone)
        or (attack == "uniformity" and guarantee.upload is Upload.CIPHERTEXT)
        or (attack == "different_models" and not guarantee.binds_context and not guarantee.opens_alone)
    )
    if promises_nothing:
        return Expectation.OPEN
    if attack in ("differencing", "own_part", "many_sums") or guarantee.opens_alone:
        return Expectation.LEAKS
    return Expectation.HIDDEN


def describe(chosen: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Title and explanation of the chosen attacks, in the order of the catalogue."""
    kinds = {attack.name: type(attack) for attack in ON_A_MESSAGE} | dict(SCENARIOS)
    wanted = frozenset(chosen)
    words = {name: {field.name: field.default for field in fields(kinds[name])} for name in NAMES if name in wanted}
    return {name: (str(word["title"]), str(word["explanation"])) for name, word in words.items()}
