"""The attacks by name: every attack object in a file of ``attacks/``, or an entry point of another package."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module

from analytic.extensions import Group, find, unknown
from analytic_secagg.errors import UsageError
from simulations.audit import attacks
from simulations.audit.attack import Attack, Unit


def _found() -> Iterator[Attack]:
    for module in pkgutil.iter_modules(attacks.__path__):
        for value in vars(import_module(f"{attacks.__name__}.{module.name}")).values():
            if isinstance(value, Attack):
                yield value


ATTACKS: Mapping[str, Attack] = {
    attack.name: attack for attack in sorted(_found(), key=lambda one: (list(Unit).index(one.unit), one.name))
}
"""In the order of a report: what is learnt about a row, a site, the cohort."""

NAMES = tuple(ATTACKS)


def find_attack(name: str) -> Attack:
    """Return the attack of a name, of today or of before, or else the one of an entry point of this name.

    Raises:
        UsageError: there is none.
        analytic.extensions.ExtensionError: see ``analytic.extensions.find``.
    """
    own = (attack for attack in ATTACKS.values() if name in (attack.name, attack.former_name))
    attack: Attack | None = next(own, None) or find(Group.ATTACKS, name, Attack)
    if attack is None:
        raise UsageError(unknown(Group.ATTACKS, name, NAMES))
    return attack


def choose_attacks(names: Iterable[str] | None) -> frozenset[str]:
    """Return names of attacks, those of before put into today's; all of this package for None.

    Raises:
        UsageError, analytic.extensions.ExtensionError: as ``find_attack``.
    """
    return frozenset(NAMES) if names is None else frozenset(find_attack(name).name for name in names)
