"""Numbers, lists and frames as bytes: sections 1 to 3 of docs/reference/wire-format.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from enum import IntEnum

MAGIC = b"SAGG"
VERSION = 1
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


def need(condition: bool, what: str) -> None:
    if not condition:
        raise Refused(what)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def number(value: int, n_bytes: int = 4) -> bytes:
    return value.to_bytes(n_bytes, "big")


def length_prefixed(*parts: bytes) -> bytes:
    return b"".join(number(len(part), 8) + part for part in parts)


def write_frame(type_: Type, digest: bytes, sender: int, recipient: int, payload: bytes) -> bytes:
    return MAGIC + bytes([VERSION, type_]) + digest + number(sender) + number(recipient) + payload


def read_frame(message: bytes, type_: Type, digest: bytes, sender: int, recipient: int) -> bytes:
    """The payload of the one message that is due."""
    header = write_frame(type_, digest, sender, recipient, b"")
    need(message[: len(header)] == header, f"{type_.name} of this session from {sender} to {recipient} is due")
    return message[len(header) :]


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
