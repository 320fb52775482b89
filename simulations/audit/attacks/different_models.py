"""A server that gives the target a working model and everybody else a dead one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from federation.modes import Mode
from secagg import InOneProcess, PartyId, SumProtocol
from secagg.entropy import Entropy, os_entropy
from secagg.in_memory import Envelope
from secagg.layout import IntVector
from secagg.sessions import ClientSession, Contribution
from simulations.audit.attack import PROBE, VICTIM, Expectation, VictimAttack, in_the_clear
from simulations.audit.evaluate import Score
from simulations.audit.population import Truth
from simulations.audit.reading import Reading, reading_of
from simulations.audit.recorder import RecordedSum, record_sum
from simulations.audit.view import AdversaryView
from simulations.audit.workbench import Bench

ALL_ZERO = b"a model whose features are all zero"

DIGEST = slice(6, 38)
"""Where a message's header holds the digest of its session's configuration."""


@dataclass(frozen=True)
class DifferentModels(VictimAttack[Reading | None]):
    """With features that are all zero for everybody else, the total's G and H are the target's alone.

    Args:
        bound: whether clients bind their keys to the model that they hold, as they should.
    """

    bound: bool = True

    name = "different_models"
    title = "One client, by a server that gives all others a dead model"
    explanation = (
        "A dishonest server sends the target the real feature extractor and everybody else one whose features are all "
        "zero, and rewrites message headers so that nobody notices. The total would then be the target's statistics. "
        "Success: every number exact. Chance: less than naming one row out of the pool."
    )

    if_open = "relies on a server that follows the protocol: different_models wins against one that lies"

    def expected(self, mode: Mode | None) -> Expectation | None:
        """As every attack; nothing is promised where the server must follow the protocol."""
        open_ = mode is not None and not (in_the_clear(mode) or mode.guarantee(PROBE).binds_context)
        return Expectation.OPEN if open_ else super().expected(mode)

    def sums(self, bench: Bench, mode: Mode, vectors: Mapping[PartyId, IntVector]) -> tuple[RecordedSum, ...]:
        """Return one sum, under a server that keeps the working model for the victim."""
        sent = {party: vector if party == VICTIM else dead_vector(vector) for party, vector in vectors.items()}
        context = hashlib.sha256(ALL_ZERO).digest() if self.bound else bench.context
        parties = TwoContexts.of(bench.parties(mode, tuple(sent)), VICTIM, context)
        return (record_sum(parties, sent, network=ForgedHeaders(parties=parties), entropy=bench.entropy),)

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> Reading | None:
        """The total, taken for the target's statistics."""
        return reading_of(view, None)

    def score(self, guess: Reading | None, truth: Truth, rng: np.random.Generator) -> Score:
        """One trial a session; the number of rows, which all clients add to, does not count."""
        true = np.concatenate([(truth.rows.T @ truth.rows).ravel(), truth.rows.T.sum(axis=1)])
        hit = guess is not None and np.array_equal(true, np.concatenate([guess.gram.ravel(), guess.cross.sum(axis=1)]))
        return Score(hits=int(hit), trials=1, chance=1 / truth.pool_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoContexts(InOneProcess):
    """All parties of one sum, one of whose clients is told another context (the digest of the model it holds).

    Args:
        special: the sum under that context.
        target: who is told it.
    """

    special: SumProtocol
    target: PartyId

    @classmethod
    def of(cls, parties: InOneProcess, target: PartyId, context: bytes) -> TwoContexts:
        """Return the same parties with another context for ``target``."""
        special: SumProtocol = replace(parties.protocol, context=context)  # type: ignore[type-var]
        return cls(protocol=parties.protocol, secrets=parties.secrets, special=special, target=target)

    def client(self, party: PartyId, contribution: Contribution, *, entropy: Entropy = os_entropy) -> ClientSession:
        """Return the target's session under its own context, any other under the common one."""
        protocol = self.special if party == self.target else self.protocol
        return protocol.client(party, contribution, secrets=self.of_party(party), entropy=entropy)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgedHeaders:
    """The dishonest server's network: it rewrites the digest in every message from and to the target."""

    parties: TwoContexts

    def carry(self, envelopes: Iterable[Envelope]) -> Iterator[Envelope]:
        """The messages, each with the digest that its reader expects."""
        common, special, target = self.parties.protocol.digest, self.parties.special.digest, self.parties.target
        for envelope in envelopes:
            swap = {special: common} if envelope.sender == target else {common: special}
            if target in (envelope.sender, envelope.recipient):
                message = envelope.message
                digest = swap.get(message[DIGEST], message[DIGEST])
                envelope = replace(envelope, message=message[: DIGEST.start] + digest + message[DIGEST.stop :])
            yield envelope


def dead_vector(vector: IntVector) -> IntVector:
    """What a client sends whose features are all zero: only its number of rows is left."""
    dead = np.zeros_like(vector)
    dead[-1] = vector[-1]
    return dead
