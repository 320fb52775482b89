"""The attacks by name. A further one is an object and a line here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def choose_attacks(names: Iterable[str] | None) -> frozenset[str]:
    """Names of attacks, those of before put into today's; all of them for None.

    Raises:
        UsageError: there is none of that name.
    """
    today = {name: attack.name for attack in ATTACKS.values() for name in (attack.json_name, attack.name)}
    wanted = NAMES if names is None else tuple(names)
    unknown = sorted(set(wanted) - set(today))
    if unknown:
        raise UsageError(f"an attack is one of {', '.join(NAMES)}, not {', '.join(unknown)}")
    return frozenset(today[name] for name in wanted)
