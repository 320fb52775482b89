"""The operator's roster: which public key belongs to which party. Every party keeps its own copy."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from federation.modes import HelperRole, helper_roles
from federation.site.errors import SiteFileError
from federation.site.toml_files import Table
from secagg import PartyId
from secagg.encoding import length_prefixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """Public keys of all parties.

    Args:
        server: the server's Ed25519 public key.
        clients: each client's Ed25519 public key.
        beside: the public keys of the parties that some modes need beside clients and server, by the table that a
            mode's ``HelperRole`` names (``helpers``, ``key_holder``); tables that list nobody may be left out.
    """

    server: bytes
    clients: Mapping[PartyId, bytes]
    beside: Mapping[str, Mapping[PartyId, bytes]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Roster:
        """The roster of a file: ``server = "hex"``, and ``number = "hex"`` under [clients] and each role's table.

        Raises:
            SiteFileError: no such file, or a party without a proper key or number.
        """
        table = Table.read(path)
        server = table.take("server", str)
        clients, roles = _keys(path, table.table("clients")), tuple(helper_roles())
        beside = {role.table: _keys(path, table.table(role.table)) for role in roles}
        table.end()
        if not clients:
            raise SiteFileError(f"{path}: the roster needs clients and lists none; add them under [clients]")
        for role in roles:
            if role.at_most is not None and len(beside[role.table]) > role.at_most:
                allowed = "one party" if role.at_most == 1 else f"{role.at_most} parties"
                raise SiteFileError(
                    f"{path}: [{role.table}] names {allowed}, not {len(beside[role.table])}; leave "
                    + ("one" if role.at_most == 1 else f"{role.at_most}")
                )
        numbers = Counter([*clients, *(party for keys in beside.values() for party in keys)])
        if twice := [party for party, times in numbers.items() if times > 1]:
            raise SiteFileError(f"{path}: every party needs a number of its own; {twice[0]} stands in two tables")
        return cls(server=_key(path, "the server", server), clients=clients, beside=beside)

    def listed(self, role: HelperRole | None) -> Mapping[PartyId, bytes]:
        """The public keys of the parties of a role; none for no role."""
        return self.beside.get(role.table, {}) if role is not None else {}

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
        return [("clients", self.clients), *self.beside.items()]


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
