"""The same budget through other people's accountants: Opacus (RDP, PRV) and dp-accounting (RDP, PLD)."""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from secagg.dp import Release
from secagg.dp.errors import MissingExtraError


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondOpinion:
    """One accountant's epsilon for Gaussian mechanisms of the same costs, without our slacks.

    Args:
        accountant: package, version and method.
        epsilon: what it says.
        error: how far off it may be by its own account.
    """

    accountant: str
    epsilon: float
    error: float = 0.0


def second_opinions(releases: Sequence[Release], delta: float) -> tuple[SecondOpinion, ...]:
    """Every installed accountant's epsilon at ``delta``.

    Raises:
        MissingExtraError: Opacus or dp-accounting is not installed.
    """
    multipliers = [1.0 / math.sqrt(2.0 * float(release.rho)) for release in releases]
    return (*_opacus(multipliers, delta), *_dp_accounting(multipliers, delta))


def _opacus(multipliers: Sequence[float], delta: float) -> tuple[SecondOpinion, ...]:
    accountants = _load("opacus.accountants", "opacus")
    history = [(multiplier, 1.0, 1) for multiplier in multipliers]
    version = _load("opacus", "opacus").__version__
    opinions = []
    for name, make, options, error in (
        ("RDP", accountants.RDPAccountant, {"alphas": _orders()}, 0.0),
        ("PRV", accountants.PRVAccountant, {}, 0.01),
    ):
        accountant = make()
        accountant.history = list(history)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            epsilon = float(accountant.get_epsilon(delta, **options))
        opinions.append(SecondOpinion(accountant=f"Opacus {version} {name}", epsilon=epsilon, error=error))
    return tuple(opinions)


def _dp_accounting(multipliers: Sequence[float], delta: float) -> tuple[SecondOpinion, ...]:
    package = _load("dp_accounting", "dp-accounting")
    version = metadata.version("dp-accounting")
    opinions = []
    for name, accountant in (
        ("RDP", _load("dp_accounting.rdp", "dp-accounting").RdpAccountant(_orders())),
        ("PLD", _load("dp_accounting.pld", "dp-accounting").PLDAccountant()),
    ):
        for multiplier in multipliers:
            accountant.compose(package.GaussianDpEvent(multiplier))
        epsilon = float(accountant.get_epsilon(delta))
        opinions.append(SecondOpinion(accountant=f"dp-accounting {version} {name}", epsilon=epsilon, error=1e-3))
    return tuple(opinions)


def _orders() -> list[float]:
    """Fine where the best order lies for epsilons of 0.1 to 10."""
    return [1.0 + step / 20.0 for step in range(1, 400)] + [float(order) for order in range(21, 512)]


def _load(module: str, package: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"the cross-check needs {package}, which is not installed; pip install '.[dp]' brings it. "
            "The stated guarantee does not depend on it"
        ) from error
