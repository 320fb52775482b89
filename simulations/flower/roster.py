"""The operator's roster: which public key belongs to which party. Every party keeps its own copy."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from secagg import PartyId
from secagg.encoding import length_prefixed
from simulations.flower.errors import SiteFileError
from simulations.flower.toml_files import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Public keys of all parties.

    Args:
        server: the server's Ed25519 public key.
        clients: each client's Ed25519 public key.
        helpers: each committee helper's X25519 public key; none where no committee is wanted.
    """

    server: bytes
    clients: Mapping[PartyId, bytes]
    helpers: Mapping[PartyId, bytes]

    @classmethod
    def read(cls, path: Path) -> Roster:
        """The roster of a TOML file: ``server = "hex"``, and ``number = "hex"`` under [clients] and [helpers].

        Raises:
            SiteFileError: no such file, or a party without a proper key or number.
        """
        table = Table.read(path)
        server = table.take("server", str)
        clients, helpers = _keys(path, table.table("clients")), _keys(path, table.table("helpers"))
        table.end()
        if not clients or clients.keys() & helpers.keys():
            raise SiteFileError(f"{path}: the roster needs clients, and helpers under numbers that no client has")
        return cls(server=_key(path, "server", server), clients=clients, helpers=helpers)

    def to_toml(self) -> str:
        """What ``read`` reads."""
        lines = [f'server = "{self.server.hex()}"']
        for name, keys in (("clients", self.clients), ("helpers", self.helpers)):
            lines += ["", f"[{name}]", *(f'{party} = "{keys[party].hex()}"' for party in sorted(keys))]
        return "\n".join(lines) + "\n"

    @property
    def fingerprint(self) -> str:
        """What two people read to each other to see that they hold the same roster."""
        parties = [
            party.to_bytes(4, "big") + key
            for keys in (self.clients, self.helpers)
            for party, key in sorted(keys.items())
        ]
        digest = hashlib.sha256(length_prefixed(b"roster", self.server, *parties)).hexdigest()
        return "-".join(digest[place : place + 4] for place in range(0, 32, 4))


def _keys(path: Path, table: Table) -> dict[PartyId, bytes]:
    keys = {}
    for name, value in table.rest():
        if not re.fullmatch("[1-9][0-9]{0,9}", name) or int(name) >= 1 << 32:
            raise SiteFileError(f"{path}: a party is a number of 1 to 2^32 - 1, not {name!r}")
        keys[int(name)] = _key(path, f"party {name}", value)
    return dict(sorted(keys.items()))


def _key(path: Path, whose: str, value: object) -> bytes:
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise SiteFileError(f"{path}: the public key of {whose} must be 64 hexadecimal digits")
    return bytes.fromhex(value)
