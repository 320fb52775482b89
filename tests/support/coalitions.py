"""Sums whose clients' random bytes are written down, and what a coalition of parties pools of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from secagg import InOneProcess, PartyId
from secagg.config import SERVER
from secagg.entropy import Entropy, os_entropy
from secagg.sessions import ClientInput, ClientSession, ServerSession
from secagg.sums import CoalitionView
from simulations.audit.view import RecordedSum
from simulations.audit.workbench import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class Taped(InOneProcess):
    """The same parties, whose clients' random bytes are written down as they draw them."""

    honest: InOneProcess
    tapes: dict[PartyId, bytearray] = field(default_factory=dict)

    def client(self, party: PartyId, client_input: ClientInput, *, entropy: Entropy = os_entropy) -> ClientSession:
        tape = self.tapes.setdefault(party, bytearray())

        def taped(n_bytes: int) -> bytes:
            drawn = entropy(n_bytes)
            tape.extend(drawn)
            return drawn

        return self.honest.client(party, client_input, entropy=taped)

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        return self.honest.helper(party, entropy=entropy)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        return self.honest.server(entropy=entropy)


def taped(honest: InOneProcess) -> Taped:
    """Return the same parties with tapes."""
    return Taped(protocol=honest.protocol, secrets=honest.secrets, honest=honest)


@dataclass(frozen=True, kw_only=True, eq=False)
class TapingBench(Bench):
    """A bench whose sums have tapes."""

    def parties(self, *args: Any, **options: Any) -> InOneProcess:
        return taped(Bench.parties(self, *args, **options))


def taping(bench: Bench) -> TapingBench:
    """Return the same bench with tapes."""
    return TapingBench(**{one.name: getattr(bench, one.name) for one in fields(bench) if one.init})


def tapes_of(recorded: RecordedSum) -> dict[PartyId, bytes]:
    """Return what each client drew in a sum of a bench that tapes."""
    assert isinstance(recorded.parties, Taped)
    return {party: bytes(tape) for party, tape in recorded.parties.tapes.items()}


def pooled_view(
    recorded: RecordedSum, members: frozenset[PartyId] = frozenset(), *, server: bool = True
) -> CoalitionView:
    """Return what these parties, and the server, saw, drew and know."""
    there = members | ({SERVER} if server else set())
    return CoalitionView(
        messages=tuple(one.message for one in recorded.envelopes if {one.sender, one.recipient} & there),
        tapes={party: tape for party, tape in tapes_of(recorded).items() if party in members},
        secrets={party: own for party, own in recorded.parties.secrets.items() if party in members},
    )
