"""A site's own file: who it is, where its rows are, and what it demands of every sum."""

from __future__ import annotations

import importlib
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from analytic.errors import InvalidRowsError
from analytic.learner import ClientRows
from federation.modes import MODES, HelperRole, KeyKind, helper_roles
from federation.site.errors import SiteFileError
from federation.site.key_files import read_secret
from federation.site.roster import Roster
from federation.site.toml_files import Table
from secagg import PartyId, PartySecrets
from secagg.policy import ClientPolicy
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import IdentityKey

SITES_VARIABLE = "ANALYTIC_SECAGG_SITES"
"""The environment variable that names the folder of simulated sites; a real node names its file itself."""

DEFAULT_FORGET_HOURS = 24.0

MIN_CORRUPTION = 0.2
"""Fraction of clients that may collude with the server and hurt nobody, where a site's file demands nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRole:
    """A site that contributes rows.

    Args:
        party: its number in the roster.
        identity: its signing key.
        data: an npz file with ``x_train`` and ``y_train``, or ``module:function`` that returns both.
        learners: the closed forms that may ask for its statistics.
    """

    party: PartyId
    identity: IdentityKey = field(repr=False)
    data: str
    learners: frozenset[str]

    def rows(self) -> ClientRows:
        """The site's rows, read anew.

        Raises:
            SiteFileError: there are none where the file says.
        """
        if not self.data.endswith(".npz"):
            return self._rows_of_function()
        try:
            with np.load(self.data, allow_pickle=False) as archive:
                return ClientRows(archive["x_train"], archive["y_train"])
        except OSError as error:
            raise SiteFileError(
                f"cannot read the rows of {self.data}: {error.strerror or 'no archive'}; "
                "write it with numpy.savez(path, x_train=..., y_train=...)"
            ) from None
        except (KeyError, ValueError, zipfile.BadZipFile, InvalidRowsError) as error:
            raise SiteFileError(
                f"{self.data} must be an npz archive with a matrix x_train and one y_train a row, of numbers "
                f"({type(error).__name__}); write it with numpy.savez(path, x_train=..., y_train=...)"
            ) from None

    def _rows_of_function(self) -> ClientRows:
        """What the site's own function returns; of what it raises the type alone, since its text may hold a row."""
        module, _, function = self.data.partition(":")
        try:
            features, targets = getattr(importlib.import_module(module), function)()
            return ClientRows(np.asarray(features), np.asarray(targets))
        except Exception as error:
            raise SiteFileError(
                f"{self.data} must be a function that returns a matrix of features and one target a row; calling it "
                f"raised {type(error).__name__}: call it by yourself to see why"
            ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRole:
    """A site that is one of the parties beside clients and server; it may contribute rows too, under another number.

    Args:
        party: its number in the roster.
        role: what it does.
        secrets: its long-lived key.
    """

    party: PartyId
    role: HelperRole
    secrets: PartySecrets = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFile:
    """What a site believes, none of which a server can change.

    Args:
        roster: its copy of the operator's roster.
        policy: what it demands of a sum.
        state: a folder of its own for running sessions.
        client: its role as a contributor, if it has one.
        helpers: its roles beside clients and server, such as a committee's helper or the key holder.
        forget_hours: a session without a word from the server for so long is over.
    """

    roster: Roster
    policy: ClientPolicy
    state: Path
    client: ClientRole | None
    helpers: tuple[OwnRole, ...]
    forget_hours: float

    @classmethod
    def read(cls, path: Path) -> SiteFile:
        """The site of a TOML file; see docs/how-to/deploy-with-flower.md for each key.

        Raises:
            SiteFileError: what the file must say, what it says, what to do.
        """
        table = Table.read(path)
        roster = Roster.read(table.place("roster"))
        site = cls(
            roster=roster,
            policy=_policy(table.table("policy"), roster),
            state=table.place("state"),
            client=_client(table.table("client"), roster) if "client" in table else None,
            helpers=tuple(
                _own_role(table.table(role.section), role, roster) for role in helper_roles() if role.section in table
            ),
            forget_hours=table.take("forget_hours", float, DEFAULT_FORGET_HOURS),
        )
        table.end()
        if not site._role_secrets:
            sections = ", ".join(f"[{role.section}]" for role in helper_roles())
            raise SiteFileError(f"{path}: a site needs a role: [client], {sections} or several of them")
        return site

    @classmethod
    def of_node(cls, node_config: Mapping[str, object]) -> SiteFile:
        """The site of a Flower node: the file that its own node-config names as ``site``.

        A simulated node has a ``partition-id`` instead; its file lies in the folder of simulated sites.

        Raises:
            SiteFileError: the node names no file.
        """
        named, folder = node_config.get("site"), os.environ.get(SITES_VARIABLE)
        if isinstance(named, str):
            return cls.read(Path(named))
        number = node_config.get("partition-id")
        if folder is None or not isinstance(number, int):
            raise SiteFileError(
                "a node needs its own file: start the SuperNode with --node-config 'site=\"/path/to/site.toml\"', "
                f"or name the folder of simulated sites in {SITES_VARIABLE}"
            )
        return cls.read(Path(folder) / f"site-{number + 1}" / "site.toml")

    @property
    def _role_secrets(self) -> list[bytes]:
        """The secret key of each of its roles."""
        client = [self.client.identity] if self.client is not None else []
        keys = [*client, *(own.secrets.identity or own.secrets.agreement for own in self.helpers)]
        return [key.secret for key in keys if key is not None]

    def state_key(self, purpose: str, session: bytes) -> bytes:
        """The key that seals what this site stores of one session."""
        return derive_key(self._role_secrets[0], f"site state: {purpose}", session)


def _policy(table: Table, roster: Roster) -> ClientPolicy:
    modes = table.texts("modes", ("masked",))
    if unknown := modes - MODES.keys():
        raise SiteFileError(
            f"{table.path}: modes are among {', '.join(MODES)}; there is no {', '.join(sorted(unknown))}: correct it"
        )
    policy = ClientPolicy(
        modes=modes,
        min_clients=table.take("min_clients", int, 3),
        min_survivors=table.take("min_survivors", int, 3),
        min_corruption=table.take("min_corruption", float, MIN_CORRUPTION),
        identities=roster.clients,
    )
    table.end()
    return policy


def _check_listed(table: Table, what: str, listed: bytes | None, own: bytes) -> None:
    if listed != own:
        raise SiteFileError(
            f"{table.path}: the roster lists another {what} than this site's key, or none; "
            "ask the operator which of the two is wrong"
        )


def _client(table: Table, roster: Roster) -> ClientRole:
    party, identity = table.take("party", int), IdentityKey(read_secret(table.place("identity")))
    _check_listed(table, f"identity for client {party}", roster.clients.get(party), identity.public)
    data = table.take("data", str)
    if data.endswith(".npz"):
        data = str(table.path.parent / data)
    elif ":" not in data:
        raise SiteFileError(f"{table.path}: data must be a file .npz or module:function, not {data!r}")
    role = ClientRole(party=party, identity=identity, data=data, learners=table.texts("learners", ("afl",)))
    table.end()
    return role


def _own_role(table: Table, role: HelperRole, roster: Roster) -> OwnRole:
    party, secrets = table.take("party", int), role.key.secrets(read_secret(table.place(role.key.value)))
    what = f"{'identity' if role.key is KeyKind.IDENTITY else 'key'} for {role.name} {party}"
    _check_listed(table, what, roster.listed(role).get(party), role.key.public(secrets))
    table.end()
    return OwnRole(party=party, role=role, secrets=secrets)
