"""Faults of noise, planted into the small runs of the audit's two-world test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from secagg import IntVector, PartyId
from secagg.dp import DistributedNoise
from secagg.entropy import Entropy, os_entropy
from secagg.sessions import ClientSession
from simulations.audit import two_worlds

Spoil = Callable[[PartyId, IntVector, bytes], IntVector]
"""What a client sends in place of its vector with noise, given itself, its vector and the session."""


@contextmanager
def spoiled_noise(spoil: Callable[[DistributedNoise, int], Spoil] | None) -> Iterator[None]:
    """Plant a fault, given a sum's noise and its number in a run from 0; None for none."""
    due, spoils, honest, parties = [0], dict[bytes, Spoil](), two_worlds._noisy, two_worlds.NoisyParties

    def noisy(federation: Any, form: Any, number: int) -> Any:
        due[:] = [number]
        return honest(federation, form, number)

    class Spoiled(parties):  # type: ignore[misc, valid-type]
        def client(self, party: PartyId, client_input: Any, *, entropy: Entropy = os_entropy) -> ClientSession:
            own: Any = self.protocol
            if spoil is None or party in self.colluders:
                return parties.client(self, party, client_input, entropy=entropy)
            session = own.protocol.digest
            if session not in spoils:
                spoils[session] = spoil(own.noise, due[0])
            sent = spoils[session](party, client_input, session)
            made: ClientSession = own.protocol.client(party, sent, secrets=self.of_party(party), entropy=entropy)
            return made

    with mock.patch.object(two_worlds, "NoisyParties", Spoiled), mock.patch.object(two_worlds, "_noisy", noisy):
        yield
