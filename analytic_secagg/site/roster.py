"""The operator's roster: which public key belongs to which party. Every party keeps its own copy."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, NonNegativeInt, model_validator
from pydantic_core import PydanticCustomError

from analytic_secagg.configurations import digests
from analytic_secagg.modes import HelperRole, helper_roles
from analytic_secagg.site.provenance import Recipe, provenance
from analytic_secagg.site.strict_models import StrictModel, text
from secagg import PartyId
from secagg.encoding import length_prefixed
from secagg.errors import ConfigurationError
from secagg.primitives.identity import has_small_order


def _hex(value: object, what: str) -> bytes:
    """The 32 bytes that a file writes as hexadecimal digits."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
        raise ValueError(f"{what} must be 64 hexadecimal digits")
    return bytes.fromhex(value)


def _key(value: object, whose: str = "the server") -> bytes:
    key = _hex(value, f"the public key of {whose}")
    if has_small_order(key):
        raise ValueError(f"the public key of {whose} has small order: anybody signs with it; ask its owner for another")
    return key


def _keys(table: object) -> dict[PartyId, bytes]:
    """A table of keys by party, which in a file has texts for both."""
    if not isinstance(table, Mapping):
        raise PydanticCustomError("dict_type", "a table")
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
        corrupt_helpers: how many of ``helpers`` may collude with the server; None for all but one, which bears no
            helper that is away.
        beacon: 32 random bytes that the operator drew once all keys were known; sparse graphs of masked sums follow
            from it (``seed_of_beacon``). None leaves masked sums on the complete graph.
        totals: the parties to which the server gives the totals of a run, with which a client takes its own part off;
            everybody else gets the model alone.
        max_client_rows: most rows of one client, whatever they weigh: nobody's contribution to any sum may go beyond
            what so many rows of the largest weight add up to; None for an equal share of a run's ``max_rows``.
        configurations: what may be computed of the clients' rows: the digest of each learner's configuration, as the
            command ``configuration`` prints it. A site whose own file states none takes part in these alone.
        columns: the fingerprint of the schema by which all sites read their tables; empty where nobody says.
        features: how all sites' features were computed by the command ``features``; None where nobody says.
        min_rows: fewest rows of a total that the server makes a model of; None for the default of ``ReleasePolicy``.
        min_class_rows: fewest rows of each class that has some; the same.
        beside: the Ed25519 public keys of the parties that some modes need beside clients and server, by the table that
            a mode's ``HelperRole`` names; tables that list nobody may be left out. In the file those of this package
            are ``[helpers]`` and ``[key_holder]``, and those of others ``[beside.TABLE]``: everybody reads them, and
            nobody imports the package for it.
    """

    server: Annotated[bytes, BeforeValidator(lambda value: _key(value if isinstance(value, bytes) else text(value)))]
    beacon: Annotated[bytes, BeforeValidator(lambda value: _hex(value, "beacon"))] = b""
    corrupt_helpers: NonNegativeInt | None = None
    totals: Annotated[tuple[PartyId, ...], BeforeValidator(lambda value: tuple(value))] = ()
    max_client_rows: Annotated[int, Field(ge=1, le=2**42)] | None = None
    configurations: Annotated[tuple[bytes, ...], BeforeValidator(digests)] = ()
    columns: Annotated[str, BeforeValidator(lambda value: _hex(value, "columns").hex())] = ""
    features: Recipe | None = None
    min_rows: Annotated[int, Field(ge=1, le=2**42)] | None = None
    min_class_rows: Annotated[int, Field(ge=1, le=2**42)] | None = None
    clients: Keys = Field(default_factory=dict)
    beside: Mapping[str, Keys] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, values: Any) -> Any:
        """Put the tables of a file that list helpers under one name."""
        if not isinstance(values, Mapping) or not isinstance(others := values.get("beside", {}), Mapping):
            return values
        tables = {role.table: values[role.table] for role in helper_roles() if role.table in values}
        if twice := tables.keys() & others.keys():
            raise ValueError(f"the roster has two tables of {min(twice)}; leave [{min(twice)}] alone")
        rest = {name: value for name, value in values.items() if name not in tables}
        return {**rest, "beside": {**tables, **others}} if tables else rest

    @model_validator(mode="after")
    def _check_parties(self) -> Self:
        if not self.clients:
            raise ValueError("the roster needs clients and lists none; add them under [clients]")
        if wrong := [name for name in self.beside if name in _TAKEN or not re.fullmatch("[a-z][a-z0-9_]*", name)]:
            raise ValueError(f"the roster has no place for {wrong[0]} in [beside]; correct or remove it")
        for role in helper_roles():
            self.listed(role)
        numbers = Counter(party for _, keys in self._tables() for party in keys)
        if twice := [party for party, times in numbers.items() if times > 1]:
            raise ValueError(f"every party needs a number of its own; {twice[0]} is in two tables")
        named = [("the server", self.server)]
        named += [(f"party {party}", key) for _, keys in self._tables() for party, key in keys.items()]
        owner: dict[bytes, str] = {}
        for name, key in named:
            if (other := owner.setdefault(key, name)) != name:
                raise ValueError(f"{other} and {name} have one key, so one of them plays both; give each its own")
        if strangers := sorted({*self.totals} - numbers.keys()):
            raise ValueError(f"totals go to parties of this roster, each named once, and {strangers[0]} is none")
        return self

    @property
    def total_holders(self) -> int:
        """Number of clients that receive the totals."""
        return len({*self.totals} & self.clients.keys())

    @property
    def fewest_rows(self) -> dict[str, int]:
        """The thresholds of gates that owners agreed on, as ``ReleasePolicy`` calls them."""
        stated = {"min_rows": self.min_rows, "min_class_rows": self.min_class_rows}
        return {name: fewest for name, fewest in stated.items() if fewest is not None}

    @property
    def provenance(self) -> dict[str, str]:
        """A digest of each part of what everybody's rows are made with; nothing where nobody says."""
        return provenance(self.features, self.columns)

    def listed(self, role: HelperRole | None) -> Mapping[PartyId, bytes]:
        """Return the public keys of the parties of a role; none for no role.

        Raises:
            secagg.errors.ConfigurationError: there are more of them than the role allows.
        """
        keys = {} if role is None else self.beside.get(role.table, {})
        if role is not None and role.at_most is not None and len(keys) > role.at_most:
            allowed, leave = ("one party", "one") if role.at_most == 1 else (f"{role.at_most} parties", role.at_most)
            raise ConfigurationError(f"[{role.table}] names {allowed}, not {len(keys)}; leave {leave}")
        return keys

    def to_toml(self) -> str:
        """Serialise to TOML; the inverse of ``read``."""
        lines = [f'server = "{self.server.hex()}"', *([f'beacon = "{self.beacon.hex()}"'] if self.beacon else [])]
        lines += [f"totals = {list(self.totals)}"] if self.totals else []
        lines += [] if self.corrupt_helpers is None else [f"corrupt_helpers = {self.corrupt_helpers}"]
        lines += [] if self.max_client_rows is None else [f"max_client_rows = {self.max_client_rows}"]
        pinned = ", ".join(f'"{digest.hex()}"' for digest in self.configurations)
        lines += [f"configurations = [{pinned}]"] if pinned else []
        lines += [f'columns = "{self.columns}"'] if self.columns else []
        lines += [f"{name} = {fewest}" for name, fewest in self.fewest_rows.items()]
        lines += [] if self.features is None else ["", self.features.to_toml()]
        for name, keys in self._tables():
            lines += ["", f"[{name}]", *(f'{party} = "{keys[party].hex()}"' for party in sorted(keys))]
        return "\n".join(lines) + "\n"

    @property
    def fingerprint(self) -> str:
        """Fingerprint that two people read to each other to see that they hold the same roster."""
        parties = [
            name.encode() + party.to_bytes(4, "big") + key
            for name, keys in self._tables()
            for party, key in sorted(keys.items())
        ]
        label = [b"roster with beacon", self.beacon] if self.beacon else [b"roster"]
        label += [b"totals", *(party.to_bytes(4, "big") for party in sorted(self.totals))] if self.totals else []
        corrupt = [] if self.corrupt_helpers is None else [b"corrupt helpers", self.corrupt_helpers.to_bytes(4, "big")]
        most = [] if self.max_client_rows is None else [b"max client rows", self.max_client_rows.to_bytes(8, "big")]
        agreed = [b"configurations", *sorted(self.configurations)] if self.configurations else []
        agreed += [b"columns", bytes.fromhex(self.columns)] if self.columns else []
        agreed += [] if self.features is None else [b"features", *map(str.encode, self.features.digests.values())]
        few = [part for name, n in self.fewest_rows.items() for part in (name.encode(), n.to_bytes(8, "big"))]
        said = length_prefixed(*label, self.server, *corrupt, *most, *few, *agreed, *parties)
        digest = hashlib.sha256(said).hexdigest()
        return "-".join(digest[place : place + 4] for place in range(0, 32, 4))

    def _tables(self) -> list[tuple[str, Mapping[PartyId, bytes]]]:
        """Return all tables of keys by their names in a file: clients, roles of this package, then roles of others."""
        own = [role.table for role in helper_roles() if role.table in self.beside]
        others = [(f"beside.{table}", self.beside[table]) for table in sorted(self.beside.keys() - own)]
        return [("clients", self.clients), *((table, self.beside[table]) for table in own), *others]


_TAKEN = Roster.model_fields.keys()
"""Names that no table of other parties may have."""
