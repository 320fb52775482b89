"""Parties of a sum that tests play in one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from analytic_secagg.modes import MODES, Mode
from secagg import CommitteeSum, InOneProcess, PartyId, PartySecrets, SumProtocol
from secagg.committee import SealingKey
from secagg.config import SERVER
from secagg.primitives.boxes import BoxKey
from secagg.primitives.identity import IdentityKey
from secagg.wire import MessageType, payload_of, seal_frame, sender_of

SERVER_KEY = IdentityKey(b"S" * 32)


def key_of(party: PartyId) -> IdentityKey:
    """Return the signing key that a party has where a test does not care which."""
    return SERVER_KEY if party == SERVER else IdentityKey(party.to_bytes(32, "big"))


def knows(identity: IdentityKey | None) -> PartySecrets:
    """Return what a party knows that has this signing key, or none, and nothing else."""
    return PartySecrets(identity=identity)


def helps(keys: BoxKey) -> PartySecrets:
    """Return what a helper knows that has this key pair and nothing else."""
    return PartySecrets(boxes=keys)


def signing(keys: Mapping[PartyId, IdentityKey]) -> dict[PartyId, PartySecrets]:
    """Return what parties know that have a signing key and nothing else."""
    return {party: knows(key) for party, key in keys.items()}


def identified(protocol: SumProtocol, keys: Mapping[PartyId, IdentityKey]) -> InOneProcess:
    """Return all parties of a sum, each with its own signing key; the server has ``SERVER_KEY`` if none is given."""
    return InOneProcess(protocol=protocol, secrets=signing({SERVER: SERVER_KEY, **keys}))


def signed(parties: InOneProcess) -> InOneProcess:
    """Return the same sum with identities of all its parties. (A key holder has its own already, or gets none.)"""
    protocol: Any = parties.protocol
    keys = {party: key_of(party) for party in (SERVER, *protocol.clients, *protocol.helpers)}
    fields: dict[str, Any] = {
        "identities": tuple(keys[party].public for party in protocol.clients),
        "server_identity": SERVER_KEY.public,
    }
    if isinstance(protocol, CommitteeSum):
        fields |= sealed_to({party: keys[party] for party in protocol.helpers}, dict(protocol.helper_keys))
    secrets = {party: replace(parties.of_party(party), identity=key) for party, key in keys.items()}
    return InOneProcess(protocol=replace(protocol, **fields), secrets=secrets)


def sealed_to(identities: Mapping[PartyId, IdentityKey], keys: Mapping[PartyId, bytes]) -> dict[str, Any]:
    """Return the fields of a committee whose helpers sign for these sealing keys."""
    certified = ((party, SealingKey.signed(own, keys[party]).to_bytes()) for party, own in identities.items())
    return {
        "helper_keys": tuple(certified),
        "helper_identities": tuple((party, own.public) for party, own in identities.items()),
    }


def resealed(message: bytes, payload: bytes, keys: Mapping[PartyId, IdentityKey] | None = None) -> bytes:
    """Return the message with another payload, signed by its sender where it was signed: it is the sender that lies."""
    sender = sender_of(message)
    return seal_frame(
        MessageType(message[5]),
        payload,
        digest=message[6:38],
        sender=sender,
        recipient=int.from_bytes(message[42:46], "big"),
        identity=(keys or {}).get(sender, key_of(sender)) if message[46] else None,
    )


def garbled(message: bytes, position: int, value: int, keys: Mapping[PartyId, IdentityKey] | None = None) -> bytes:
    """Return the message with one byte of its payload changed by its sender."""
    payload = bytearray(payload_of(message))
    payload[position % len(payload)] ^= value
    return resealed(message, bytes(payload), keys)


@contextmanager
def registered(mode: Mode) -> Iterator[Mode]:
    """Have everybody know a mode within the ``with`` block."""
    MODES[mode.name] = mode
    yield mode
    del MODES[mode.name]
