"""Numbers, lists and frames as bytes: sections 1 to 3 of docs/reference/wire-format.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import IntEnum

from slow_curves import ed25519_sign, ed25519_verifies

MAGIC = b"SAGG"
VERSION = 6
HEADER, SIGNATURE = 47, 64
SERVER = 0
PROTOCOL = b"analytic-secagg/1"


class Refused(Exception):  # noqa: N818 - the word that the protocol uses
    """A message, or a whole round, that the protocol does not allow."""


class Type(IntEnum):
    ADVERTISED_KEYS = 16
    ROSTER = 17
    SEALED_SHARES = 18
    SHARE_DELIVERY = 19
    MASKED_INPUT = 20
    UNMASK_REQUEST = 21
    UNMASK_SHARES = 22
    SURVIVOR_SIGNATURE = 23
    SURVIVOR_PROOF = 24
    BUNDLE = 40
    COUNTERSIGN_REQUEST = 64
    COUNTERSIGNATURE = 65
    RECEIPT = 66


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Refused(what)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def number(value: int, n_bytes: int = 4) -> bytes:
    return value.to_bytes(n_bytes, "big")


def length_prefixed(*parts: bytes) -> bytes:
    return b"".join(number(len(part), 8) + part for part in parts)


def statement(label: str, *parts: bytes) -> bytes:
    """What is signed."""
    return length_prefixed(PROTOCOL, label.encode(), *parts)


def write_header(type_: int, digest: bytes, sender: int, recipient: int, signature_bytes: int) -> bytes:
    parties = number(sender) + number(recipient)
    return MAGIC + bytes([VERSION, type_]) + digest + parties + number(signature_bytes, 1)


def write_frame(type_: int, digest: bytes, sender: int, recipient: int, payload: bytes, secret: bytes = b"") -> bytes:
    """A message; with its sender's Ed25519 secret also its signature."""
    header = write_header(type_, digest, sender, recipient, SIGNATURE if secret else 0)
    return header + payload + (ed25519_sign(secret, message_statement(header, payload)) if secret else b"")


def message_statement(header: bytes, payload: bytes) -> bytes:
    return statement("message", header, sha256(payload))


def read_frame(message: bytes, type_: int, digest: bytes, sender: int, recipient: int, public: bytes = b"") -> bytes:
    """The payload of the one message that is due."""
    header = write_header(type_, digest, sender, recipient, SIGNATURE if public else 0)
    need(message[:HEADER] == header, f"type {type_:d} of this session from {sender} to {recipient} is due")
    if not public:
        return message[HEADER:]
    need(len(message) >= HEADER + SIGNATURE, "the message ends before its signature")
    payload, signature = message[HEADER:-SIGNATURE], message[-SIGNATURE:]
    need(ed25519_verifies(public, message_statement(header, payload), signature), "a forged message")
    return payload


def write_entries(entries: Mapping[int, bytes]) -> bytes:
    return number(len(entries)) + b"".join(number(party) + entries[party] for party in sorted(entries))


def write_parties(parties: Iterable[int]) -> bytes:
    return write_entries(dict.fromkeys(parties, b""))


class Cursor:
    """Reads a payload from front to back."""

    def __init__(self, payload: bytes) -> None:
        self.rest = payload

    def take(self, n_bytes: int) -> bytes:
        need(len(self.rest) >= n_bytes, "the message ends early")
        taken, self.rest = self.rest[:n_bytes], self.rest[n_bytes:]
        return taken

    def number(self, n_bytes: int = 4) -> int:
        return int.from_bytes(self.take(n_bytes), "big")

    def entries(self, n_bytes: int) -> dict[int, bytes]:
        count = self.number()
        need(len(self.rest) >= count * (4 + n_bytes), "the message ends before its entries do")
        entries: dict[int, bytes] = {}
        for _ in range(count):
            party = self.number()
            need(all(party > earlier for earlier in entries), "entries must ascend")
            entries[party] = self.take(n_bytes)
        return entries

    def end(self) -> None:
        need(not self.rest, "bytes are left over")
