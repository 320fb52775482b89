"""Runs real sums and writes down everything, so that a view can be cut out of it for each coalition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analytic.learner import AnalyticLearner, ClientRows
from federation.federation import Federation
from federation.modes import Mode
from secagg import InOneProcess, PartyId, SumProtocol, SumResult, run_in_memory
from secagg.entropy import Entropy, os_entropy
from secagg.errors import SecureSumError
from secagg.in_memory import Envelope, Network, Parties
from secagg.layout import IntVector
from secagg.sessions import ClientSession, Contribution, ServerSession
from simulations.audit.population import SideInformation
from simulations.audit.view import AdversaryView, Coalition, SumView


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RecordedSum:
    """One sum with every message, every party's input and every byte that it drew.

    Args:
        parties: the sum, and what each of its parties alone knows.
        model: what the parties knew of the model.
        envelopes: every message, in the order in which it was sent.
        inputs: each client's vector.
        tapes: each client's random bytes.
        result: the released total, None if the sum failed.
        failure: why it failed.
    """

    parties: InOneProcess
    model: Any
    envelopes: tuple[Envelope, ...] = field(repr=False)
    inputs: Mapping[PartyId, IntVector] = field(repr=False)
    tapes: Mapping[PartyId, bytes] = field(repr=False)
    result: SumResult | None = field(repr=False)
    failure: SecureSumError | None = None

    @property
    def protocol(self) -> SumProtocol:
        """The sum, which is public."""
        return self.parties.protocol

    def released(self) -> SumResult:
        """The total with its survivors.

        Raises:
            secagg.errors.SecureSumError: the sum failed.
        """
        if self.failure is not None:
            raise self.failure
        assert self.result is not None
        return self.result

    def view(self, coalition: Coalition) -> SumView:
        """What the coalition saw of it, and nothing else."""
        members = coalition.parties
        return SumView(
            protocol=self.protocol,
            model=self.model,
            messages=tuple(envelope for envelope in self.envelopes if coalition.sees(envelope)),
            result=self.result if coalition.server or coalition.given_total else None,
            inputs={party: vector for party, vector in self.inputs.items() if party in members},
            tapes={party: tape for party, tape in self.tapes.items() if party in members},
            secrets={party: secrets for party, secrets in self.parties.secrets.items() if party in members},
        )


def view_of(sums: tuple[RecordedSum, ...], coalition: Coalition, known: SideInformation) -> AdversaryView:
    """What the coalition saw of several sums."""
    return AdversaryView(coalition=coalition, sums=tuple(one.view(coalition) for one in sums), known=known)


def record_sum(
    parties: InOneProcess,
    vectors: Mapping[PartyId, IntVector],
    *,
    model: Any = None,
    network: Network | None = None,
    entropy: Entropy = os_entropy,
) -> RecordedSum:
    """Run one sum on the in-memory network and keep all of it; a sum that fails is kept too."""
    envelopes: list[Envelope] = []
    tapes: dict[PartyId, bytearray] = {}
    result, failure = None, None
    try:
        result = run_in_memory(
            _Taped(parties, tapes),
            vectors,
            network=network,
            entropy=entropy,
            record=envelopes.append,
        ).result
    except SecureSumError as error:
        failure = error
    return RecordedSum(
        parties=parties,
        model=model,
        envelopes=tuple(envelopes),
        inputs=dict(vectors),
        tapes={party: bytes(tape) for party, tape in tapes.items()},
        result=result,
        failure=failure,
    )


def record_federation(
    learner: AnalyticLearner[Any],
    clients: Mapping[PartyId, ClientRows],
    mode: Mode,
    *,
    entropy: Entropy = os_entropy,
) -> tuple[RecordedSum, ...]:
    """Every sum of a learner's dialogue over ``mode``, each in a session of its own.

    Raises:
        secagg.errors.SecureSumError: a sum failed.
    """
    federation, recorded, sums = Federation(learner, release=None), list[RecordedSum](), mode.sums(tuple(clients))
    while (step := federation.next_sum) is not None:
        parties = sums.next_sum(step.layout, step.context)
        vectors = {party: step.vector(rows) for party, rows in clients.items()}
        one = record_sum(parties, vectors, model=step.model, entropy=entropy)
        federation.take(one.released())
        recorded.append(one)
    return tuple(recorded)


@dataclass(frozen=True, slots=True)
class _Taped:
    """The same parties, whose clients' random bytes are written down as they draw them."""

    honest: Parties
    tapes: dict[PartyId, bytearray]

    @property
    def clients(self) -> tuple[PartyId, ...]:
        return self.honest.clients

    @property
    def helpers(self) -> tuple[PartyId, ...]:
        return self.honest.helpers

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        tape = self.tapes.setdefault(party, bytearray())

        def taped(n_bytes: int) -> bytes:
            drawn = entropy(n_bytes)
            tape.extend(drawn)
            return drawn

        return self.honest.client(party, contribution, entropy=taped)

    def helper(self, party: PartyId, *, entropy: Entropy = os_entropy) -> ClientSession:
        return self.honest.helper(party, entropy=entropy)

    def server(self, *, entropy: Entropy = os_entropy) -> ServerSession:
        return self.honest.server(entropy=entropy)
