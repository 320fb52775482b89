"""The privacy modes that a comparison can run: how each makes its sum, and what it needs to be installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from secagg import Layout, MaskedSum, PartyId, PlainSum, SumProtocol
from simulations.errors import UsageError


class SumFactory(Protocol):
    """Makes the protocol of one sum from what all parties agree on."""

    def __call__(
        self, *, layout: Layout, clients: tuple[PartyId, ...], session_id: bytes, context: bytes
    ) -> SumProtocol:
        """The protocol; raises ``secagg.errors.ConfigurationError`` for a cohort it cannot serve."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to add vectors, as the command line names it.

    Args:
        name: the name in ``--modes`` and in reports.
        make: builds the protocol of one sum.
        messages_before_vector: how many messages a client sends before the one that carries its vector.
        messages_after_vector: how many it sends after that.
        requires: a module that must be importable, of the optional dependencies.
        extra: the extra that installs it.
    """

    name: str
    make: SumFactory
    messages_before_vector: int = 0
    messages_after_vector: int = 0
    requires: str | None = None
    extra: str | None = None

    @property
    def installed(self) -> bool:
        """Whether its optional dependency is there."""
        return self.requires is None or importlib.util.find_spec(self.requires) is not None

    def survivors_needed(self, clients: tuple[PartyId, ...]) -> int:
        """Fewest clients of this cohort that must stay to the end for a total.

        Raises:
            secagg.errors.ConfigurationError: this mode cannot serve such a cohort at all.
        """
        probe = Layout.of([("probe", 1, 1)])
        return self.make(layout=probe, clients=clients, session_id=bytes(16), context=b"probe").survivors_needed


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode(name="plain", make=PlainSum),
        Mode(name="masked", make=MaskedSum, messages_before_vector=2, messages_after_vector=1),
    )
}
"""Every mode by name, cheapest first."""


def choose_modes(names: Iterable[str] | None, modes: Mapping[str, Mode] = MODES) -> tuple[Mode, ...]:
    """The modes of these names, in their order; all that are installed for None.

    Raises:
        UsageError: an unknown name, or a mode whose extra is not installed (which says how to install it).
    """
    if names is None:
        return tuple(mode for mode in modes.values() if mode.installed)
    return tuple(_choose(name, modes) for name in dict.fromkeys(names))


def _choose(name: str, modes: Mapping[str, Mode]) -> Mode:
    mode = modes.get(name)
    if mode is None:
        raise UsageError(f"a mode is one of {', '.join(modes)}, not {name!r}")
    if not mode.installed:
        raise UsageError(
            f"the mode {name} needs the module {mode.requires}, which is not installed; install it with "
            f"pip install 'analytic-secagg[{mode.extra}]', or leave {name} out of --modes"
        )
    return mode
