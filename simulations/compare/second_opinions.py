"""The same budget through other people's accountants: Opacus (RDP, PRV) and dp-accounting (RDP, PLD)."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any

from secagg.dp import Release
from secagg.dp.errors import MissingExtraError


def second_opinions(releases: Sequence[Release], delta: float) -> dict[str, float]:
    """Return each accountant's epsilon for Gaussian mechanisms of the same costs, without our slacks.

    Returns:
        By package, version and method.

    Raises:
        MissingExtraError: Opacus or dp-accounting is not installed.
    """
    multipliers = [1.0 / math.sqrt(2.0 * float(release.rho)) for release in releases]
    return dict([*_opacus(multipliers, delta), *_dp_accounting(multipliers, delta)])


def _opacus(multipliers: Sequence[float], delta: float) -> Iterator[tuple[str, float]]:
    accountants, version = accounting("opacus.accountants"), accounting("opacus").__version__
    options: dict[str, Any] = {"RDP": {"alphas": _orders()}, "PRV": {}}
    for name, own in options.items():
        accountant = getattr(accountants, f"{name}Accountant")()
        accountant.history = [(multiplier, 1.0, 1) for multiplier in multipliers]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield f"Opacus {version} {name}", float(accountant.get_epsilon(delta, **own))


def _dp_accounting(multipliers: Sequence[float], delta: float) -> Iterator[tuple[str, float]]:
    package, version = accounting("dp_accounting"), metadata.version("dp-accounting")
    for name, accountant in (
        ("RDP", accounting("dp_accounting.rdp").RdpAccountant(_orders())),
        ("PLD", accounting("dp_accounting.pld").PLDAccountant()),
    ):
        for multiplier in multipliers:
            accountant.compose(package.GaussianDpEvent(multiplier))
        yield f"dp-accounting {version} {name}", float(accountant.get_epsilon(delta))


def _orders() -> list[float]:
    """Fine where the best order lies for epsilons of 0.1 to 10."""
    return [1.0 + step / 20.0 for step in range(1, 400)] + [float(order) for order in range(21, 512)]


def accounting(module: str) -> Any:
    """Return a module of Opacus or dp-accounting.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"accountants of {module.partition('.')[0]} are not installed: pip install '.[dp]' brings them. Stated "
            "guarantees do without; of DP-SGD only batches need them, and dpsgd.batch_size=0 takes all rows in a step"
        ) from error
