"""Parties of a sum that tests play in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from federation.modes import MODES, Mode, register
from secagg import InOneProcess, PartyId, PartySecrets, SumProtocol
from secagg.primitives.agreement import KeyPair
from secagg.primitives.identity import IdentityKey


def knows(identity: IdentityKey | None) -> PartySecrets:
    """Return what a party knows that has this signing key, or none, and nothing else."""
    return PartySecrets(identity=identity)


def helps(keys: KeyPair) -> PartySecrets:
    """Return what a helper knows that has this key pair and nothing else."""
    return PartySecrets(agreement=keys)


def signing(keys: Mapping[PartyId, IdentityKey]) -> dict[PartyId, PartySecrets]:
    """Return what parties know that have a signing key and nothing else."""
    return {party: knows(key) for party, key in keys.items()}


def identified(protocol: SumProtocol, keys: Mapping[PartyId, IdentityKey]) -> InOneProcess:
    """Return all parties of a sum, each with its own signing key."""
    return InOneProcess(protocol=protocol, secrets=signing(keys))


@contextmanager
def registered(mode: Mode) -> Iterator[Mode]:
    """Have everybody know a mode within the ``with`` block."""
    yield register(mode)
    del MODES[mode.name]
