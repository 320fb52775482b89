"""A server that gives the target a working model and everybody else a dead one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from secagg import InOneProcess, PartyId, SumProtocol
from secagg.entropy import Entropy, os_entropy
from secagg.in_memory import Envelope
from secagg.layout import IntVector
from secagg.sessions import ClientSession, Contribution
from simulations.audit.attack import Truth
from simulations.audit.evaluate import Score
from simulations.audit.reading import Reading
from simulations.audit.view import AdversaryView

DIGEST = slice(6, 38)
"""Where a message's header holds the digest of its session's configuration."""


@dataclass(frozen=True, slots=True)
class DifferentModels:
    """With features that are all zero for everybody else, the total's G and H are the target's alone."""

    name: str = "different_models"
    title: str = "One client, by a server that gives all others a dead model"
    explanation: str = (
        "A dishonest server sends the target the real feature extractor and everybody else one whose features are all "
        "zero, and rewrites message headers so that nobody notices. The total would then be the target's statistics. "
        "Success: every number exact. Chance: less than naming one row out of the pool."
    )

    def guess(self, view: AdversaryView, target: PartyId | None, rng: np.random.Generator) -> Reading | None:
        """The total, taken for the target's statistics."""
        vector = view.sums[-1].read_total()
        return None if vector is None else Reading.of(view.sums[-1].layout, vector)

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
