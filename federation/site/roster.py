"""The operator's roster: which public key belongs to which party. Every party keeps its own copy."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from federation.site.strict_models import StrictModel, text
from secagg import PartyId
from secagg.encoding import length_prefixed

TABLES = ("clients", "helpers", "key_holder")


def _key(value: object, whose: str = "the server") -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"the public key of {whose} must be 64 hexadecimal digits")
    return bytes.fromhex(value)


def _keys(table: Mapping[object, object]) -> dict[PartyId, bytes]:
    """A table of keys by party, which in a file has texts for both."""
    keys = {}
    for name, value in table.items():
        if not re.fullmatch("[1-9][0-9]{0,9}", str(name)) or int(str(name)) >= 1 << 32:
            raise ValueError(f"a party is a number of 1 to 2^32 - 1, not {name!r}")
        keys[int(str(name))] = _key(value, f"party {name}")
    return dict(sorted(keys.items()))


Keys = Annotated[Mapping[PartyId, bytes], BeforeValidator(_keys)]


class Roster(StrictModel):
    """Public keys of all parties; in its file hexadecimal, with ``number = "key"`` in the tables.

    Args:
        server: the server's Ed25519 public key.
        clients: each client's Ed25519 public key.
        helpers: each committee helper's X25519 public key; none where no committee is wanted.
        key_holder: the key holder's Ed25519 public key; none where no sum is encrypted.
    """

    server: Annotated[bytes, BeforeValidator(lambda value: value if isinstance(value, bytes) else _key(text(value)))]
    clients: Keys = Field(default_factory=dict)
    helpers: Keys = Field(default_factory=dict)
    key_holder: Keys = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_parties(self) -> Self:
        if not self.clients:
            raise ValueError("the roster needs clients and lists none; add them under [clients]")
        if len(self.key_holder) > 1:
            raise ValueError(f"[key_holder] names one party, not {len(self.key_holder)}; leave one")
        numbers = Counter(party for _, keys in self._tables() for party in keys)
        if twice := [party for party, times in numbers.items() if times > 1]:
            raise ValueError(f"every party needs a number of its own; {twice[0]} stands in two tables")
        return self

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
        return [(name, getattr(self, name)) for name in TABLES]
