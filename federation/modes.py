"""The privacy modes that a comparison can run: how each makes its sums, and what it needs to be installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, cast

from federation.errors import UsageError
from secagg import CommitteeSum, Layout, MaskedSum, PartyId, PlainSum, SumProtocol, new_session_id
from secagg.masked.series import MaskedSeries, SimulatedSeries


class SumFactory(Protocol):
    """Makes the protocol of one sum from what all parties agree on."""

    def __call__(
        self, *, layout: Layout, clients: tuple[PartyId, ...], session_id: bytes, context: bytes
    ) -> SumProtocol:
        """The protocol; raises ``secagg.errors.ConfigurationError`` for a cohort it cannot serve."""
        ...


class Sums(Protocol):
    """The sums of one run, in the order in which its learner asks for them."""

    def next_sum(self, layout: Layout, context: bytes) -> SumProtocol:
        """The protocol of the next sum; ``context`` is a digest of all that its clients hold."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """One way to add vectors, as the command line names it.

    Args:
        name: the name in ``--modes`` and in reports.
        make: builds the protocol of one sum.
        messages_before_vector: how many messages a client sends before the one that carries its vector.
        messages_after_vector: how many it sends after that.
        begin_series: makes sums that carry each other's set-up, so that a client sends nothing before its vector from
            the second on; None where every sum stands alone anyway.
        requires: a module that must be importable, of the optional dependencies.
        extra: the extra that installs it.
    """

    name: str
    make: SumFactory
    messages_before_vector: int = 0
    messages_after_vector: int = 0
    begin_series: Callable[[tuple[PartyId, ...]], Sums] | None = None
    requires: str | None = None
    extra: str | None = None

    @property
    def installed(self) -> bool:
        """Whether its optional dependency is there."""
        return self.requires is None or importlib.util.find_spec(self.requires) is not None

    def sums(self, clients: tuple[PartyId, ...], *, in_series: bool = False) -> Sums:
        """The sums of one run: a series where asked and where there is one, else each in a session of its own.

        Who drops out of a series stays out until a new one begins.
        """
        if in_series and self.begin_series is not None:
            return self.begin_series(clients)
        return _SeparateSums(self.make, clients)

    def survivors_needed(self, clients: tuple[PartyId, ...]) -> int:
        """Fewest clients of this cohort that must stay to the end for a total.

        Raises:
            secagg.errors.ConfigurationError: this mode cannot serve such a cohort at all.
        """
        return _survivors_needed(cast(Hashable, self.make), clients)

    def explain(self, layout: Layout, clients: tuple[PartyId, ...]) -> str | None:
        """What a sum of this mode guarantees and costs, in its protocol's own words; None where it has none."""
        protocol = self.make(layout=layout, clients=clients, session_id=new_session_id(), context=b"explain")
        explain = getattr(protocol, "explain", None)
        return None if explain is None else str(explain())


@dataclass(frozen=True, slots=True)
class _SeparateSums:
    """Each sum in a session of its own."""

    make: SumFactory
    clients: tuple[PartyId, ...]

    def next_sum(self, layout: Layout, context: bytes) -> SumProtocol:
        return self.make(layout=layout, clients=self.clients, session_id=new_session_id(), context=context)


@lru_cache(maxsize=256)
def _survivors_needed(make: Hashable, clients: tuple[PartyId, ...]) -> int:
    """Asked of a protocol for a vector of one entry; remembered, since some protocols draw keys when they are made."""
    probe = Layout.of([("probe", 1, 1)])
    return cast(SumFactory, make)(
        layout=probe, clients=clients, session_id=bytes(16), context=b"probe"
    ).survivors_needed


def _masked_series(clients: tuple[PartyId, ...]) -> Sums:
    return SimulatedSeries.begin(MaskedSeries(clients=clients, series_id=new_session_id()))


def _ckks(*, layout: Layout, clients: tuple[PartyId, ...], session_id: bytes, context: bytes) -> SumProtocol:
    from secagg.he import CkksSum  # needs the extra

    return CkksSum.generate(layout=layout, clients=clients, session_id=session_id, context=context)


def _bfv(*, layout: Layout, clients: tuple[PartyId, ...], session_id: bytes, context: bytes) -> SumProtocol:
    from secagg.he import BfvSum  # needs the extra

    return BfvSum.generate(layout=layout, clients=clients, session_id=session_id, context=context)


def _masked_ckks(*, layout: Layout, clients: tuple[PartyId, ...], session_id: bytes, context: bytes) -> SumProtocol:
    from secagg.he import MaskedCkksSum  # needs the extra

    return MaskedCkksSum.generate(layout=layout, clients=clients, session_id=session_id, context=context)


def _masked_bfv(*, layout: Layout, clients: tuple[PartyId, ...], session_id: bytes, context: bytes) -> SumProtocol:
    from secagg.he import MaskedBfvSum  # needs the extra

    return MaskedBfvSum.generate(layout=layout, clients=clients, session_id=session_id, context=context)


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode(name="plain", make=PlainSum),
        Mode(
            name="masked",
            make=MaskedSum,
            messages_before_vector=2,
            messages_after_vector=1,
            begin_series=_masked_series,
        ),
        Mode(name="committee", make=CommitteeSum.generate),
        Mode(name="ckks", make=_ckks, requires="tenseal", extra="he"),
        Mode(name="bfv", make=_bfv, requires="tenseal", extra="he"),
        Mode(
            name="masked+ckks",
            make=_masked_ckks,
            messages_before_vector=2,
            messages_after_vector=1,
            requires="tenseal",
            extra="he",
        ),
        Mode(
            name="masked+bfv",
            make=_masked_bfv,
            messages_before_vector=2,
            messages_after_vector=1,
            requires="tenseal",
            extra="he",
        ),
    )
}
"""Every mode by name. A further one is one further line."""


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
