"""The operator's roster: which public key belongs to which party. Every party keeps its own copy."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from federation.site.errors import SiteFileError
from federation.site.toml_files import Table
from secagg import PartyId
from secagg.encoding import length_prefixed

TABLES = ("clients", "helpers", "key_holder")


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Public keys of all parties.

    Args:
        server: the server's Ed25519 public key.
        clients: each client's Ed25519 public key.
        helpers: each committee helper's X25519 public key; none where no committee is wanted.
        key_holder: the key holder's Ed25519 public key; none where no sum is encrypted.
    """

    server: bytes
    clients: Mapping[PartyId, bytes]
    helpers: Mapping[PartyId, bytes]
    key_holder: Mapping[PartyId, bytes] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Roster:
        """The roster of a file: ``server = "hex"``, and ``number = "hex"`` under [clients], [helpers], [key_holder].

        Raises:
            SiteFileError: no such file, or a party without a proper key or number.
        """
        table = Table.read(path)
        server = table.take("server", str)
        clients, helpers, key_holder = (_keys(path, table.table(name)) for name in TABLES)
        table.end()
        if not clients:
            raise SiteFileError(f"{path}: the roster needs clients and lists none; add them under [clients]")
        if len(key_holder) > 1:
            raise SiteFileError(f"{path}: [key_holder] names one party, not {len(key_holder)}; leave one")
        numbers = Counter([*clients, *helpers, *key_holder])
        if twice := [party for party, times in numbers.items() if times > 1]:
            raise SiteFileError(f"{path}: every party needs a number of its own; {twice[0]} stands in two tables")
        return cls(server=_key(path, "the server", server), clients=clients, helpers=helpers, key_holder=key_holder)

    def to_toml(self) -> str:
        """What ``read`` reads."""
        lines = [f'server = "{self.server.hex()}"']
        for name, keys in self._tables():
            lines += ["", f"[{name}]", *(f'{party} = "{keys[party].hex()}"' for party in sorted(keys))]
        return "\n".join(lines) + "\n"

    @property
    def fingerprint(self) -> str:
        """What two people read to each other to see that they hold the same roster."""
        parties = [
            name.encode() + party.to_bytes(4, "big") + key
            for name, keys in self._tables()
            for party, key in sorted(keys.items())
        ]
        digest = hashlib.sha256(length_prefixed(b"roster", self.server, *parties)).hexdigest()
        return "-".join(digest[place : place + 4] for place in range(0, 32, 4))

    def _tables(self) -> list[tuple[str, Mapping[PartyId, bytes]]]:
        return list(zip(TABLES, (self.clients, self.helpers, self.key_holder), strict=True))


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
