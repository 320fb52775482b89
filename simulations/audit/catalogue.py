"""The attacks by name. A further one is an object and a line here, or an entry point of another package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from analytic.extensions import Group, find, unknown
from analytic_secagg.errors import UsageError
from simulations.audit.attack import Attack
from simulations.audit.attacks.afl_upload import AflUpload
from simulations.audit.attacks.collusion import Collusion
from simulations.audit.attacks.confirmation import Confirmation
from simulations.audit.attacks.differencing import Differencing, DifferentModels, InsiderDifferencing, MaskReuse
from simulations.audit.attacks.distinguishing import Distinguishing, Uniformity
from simulations.audit.attacks.drawn_secrets import DrawnSecrets
from simulations.audit.attacks.further_totals import Folds, JournalDifferencing, Removal
from simulations.audit.attacks.helpers import LyingHelper, SurvivorSets
from simulations.audit.attacks.mask_words import MaskWords
from simulations.audit.attacks.membership import DICTIONARY, MEMBERSHIP, ManySums
from simulations.audit.attacks.rows import LATTICE_ROWS, PEELING
from simulations.audit.attacks.statistics import CLASS_MEANS, LABEL_HISTOGRAM, LONE_ROWS, ROW_COUNT

ATTACKS: Mapping[str, Attack] = {
    attack.name: attack
    for attack in (
        LABEL_HISTOGRAM,
        ROW_COUNT,
        CLASS_MEANS,
        LONE_ROWS,
        LATTICE_ROWS,
        PEELING,
        DICTIONARY,
        MEMBERSHIP,
        Distinguishing(),
        Uniformity(),
        MaskWords(),
        DrawnSecrets(),
        MaskReuse(),
        Differencing(),
        JournalDifferencing(),
        Removal(),
        Folds(),
        DifferentModels(),
        InsiderDifferencing(),
        ManySums(),
        AflUpload(),
        Collusion(),
        SurvivorSets(),
        LyingHelper(),
        Confirmation(),
    )
}
"""In the order of the verdict matrix."""

NAMES = tuple(ATTACKS)


def find_attack(name: str) -> Attack:
    """Return the attack of a name, of today or of before, or else the one of an entry point of this name.

    Raises:
        UsageError: there is none.
        analytic.extensions.ExtensionError: see ``analytic.extensions.find``.
    """
    own = (attack for attack in ATTACKS.values() if name in (attack.name, attack.json_name))
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
