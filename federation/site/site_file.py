"""A site's own file: who it is, where its rows are, and what it demands of every sum."""

from __future__ import annotations

import importlib
import zipfile
from typing import Annotated, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from analytic.errors import InvalidRowsError
from analytic.learner import ClientRows
from federation.site.errors import SiteFileError
from federation.site.key_files import read_secret
from federation.site.modes import MODES
from federation.site.roster import Roster
from federation.site.strict_models import Place, StrictModel, Texts, beside
from secagg import PartyId
from secagg.policy import ClientPolicy
from secagg.primitives.agreement import KeyPair
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import IdentityKey

MIN_CORRUPTION = 0.2
"""Fraction of clients that may collude with the server and hurt nobody, where a site's file demands nothing else."""

RosterFile = Annotated[Roster, BeforeValidator(lambda value, info: Roster.read(beside(value, info)))]
"""The roster of the file that is named."""

IdentityFile = Annotated[
    IdentityKey, BeforeValidator(lambda value, info: IdentityKey(read_secret(beside(value, info)))), Field(repr=False)
]
"""The signing key of the file that is named."""

HelperKeyFile = Annotated[
    KeyPair, BeforeValidator(lambda value, info: KeyPair(read_secret(beside(value, info)))), Field(repr=False)
]
"""The helper's key of the file that is named."""


class ClientRole(StrictModel):
    """A site that contributes rows.

    Args:
        party: its number in the roster.
        identity: its signing key.
        data: an npz file with ``x_train`` and ``y_train``, or ``module:function`` that returns both.
        learners: the closed forms that may ask for its statistics.
    """

    party: PartyId
    identity: IdentityFile
    data: str
    learners: Texts = frozenset({"afl"})

    @field_validator("data")
    @classmethod
    def _find(cls, data: str, info: ValidationInfo) -> str:
        if data.endswith(".npz"):
            return str(beside(data, info))
        if ":" not in data:
            raise ValueError(f"data must be a file .npz or module:function, not {data!r}")
        return data

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


class HelperRole(StrictModel):
    """A site that takes masks off sums; it may contribute rows too, under another number."""

    party: PartyId
    key: HelperKeyFile

    @property
    def keys(self) -> KeyPair:
        """Its X25519 keys."""
        return self.key


class KeyHolderRole(StrictModel):
    """A site that decrypts sums, under fresh keys for each; it may contribute rows too, under another number."""

    party: PartyId
    identity: IdentityFile


class Demands(StrictModel):
    """What a site demands of a sum; see ``ClientPolicy``."""

    modes: Texts = frozenset({"masked"})
    min_clients: Annotated[int, Field(ge=1)] = 3
    min_survivors: Annotated[int, Field(ge=1)] = 3
    min_corruption: Annotated[float, Field(ge=0, lt=1)] = MIN_CORRUPTION

    @field_validator("modes")
    @classmethod
    def _check_modes(cls, modes: frozenset[str]) -> frozenset[str]:
        if unknown := modes - MODES.keys():
            raise ValueError(
                f"modes are among {', '.join(MODES)}; there is no {', '.join(sorted(unknown))}: correct it"
            )
        return modes


class SiteFile(StrictModel):
    """What a site believes, none of which a server can change; docs/how-to/deploy-with-flower.md explains each key.

    Args:
        roster: its copy of the operator's roster.
        demands: what it demands of a sum (``[policy]`` in the file).
        state: a folder of its own for running sessions.
        client: its role as a contributor, if it has one.
        helper: its role as a helper, if it has one.
        key_holder: its role as the key holder, if it has it.
        forget_hours: a session without a word from the server for so long is over.
    """

    roster: RosterFile
    state: Place
    demands: Demands = Field(Demands(), alias="policy")
    client: ClientRole | None = None
    helper: HelperRole | None = None
    key_holder: KeyHolderRole | None = None
    forget_hours: float = 24.0

    @model_validator(mode="after")
    def _check_roles(self) -> Self:
        roster, listed = self.roster, []
        if self.client is not None:
            own = self.client.identity.public
            listed.append((f"identity for client {self.client.party}", roster.clients.get(self.client.party), own))
        if self.helper is not None:
            own = self.helper.keys.public
            listed.append((f"key for helper {self.helper.party}", roster.helpers.get(self.helper.party), own))
        if self.key_holder is not None:
            party, own = self.key_holder.party, self.key_holder.identity.public
            listed.append((f"identity for key holder {party}", roster.key_holder.get(party), own))
        for what, key, own in listed:
            if key != own:
                raise ValueError(
                    f"the roster lists another {what} than this site's key, or none; ask the operator which of the two "
                    "is wrong"
                )
        if not listed:
            raise ValueError("a site needs a role: [client], [helper], [key_holder] or several of them")
        return self

    @property
    def policy(self) -> ClientPolicy:
        """What it demands of a sum, over the clients of its own roster."""
        return ClientPolicy(**self.demands.model_dump(), identities=self.roster.clients)

    @property
    def _role_secrets(self) -> list[bytes]:
        """The secret key of each of its roles."""
        roles = [
            self.client and self.client.identity.secret,
            self.helper and self.helper.keys.secret,
            self.key_holder and self.key_holder.identity.secret,
        ]
        return [secret for secret in roles if secret]

    def state_key(self, purpose: str, session: bytes) -> bytes:
        """The key that seals what this site stores of one session."""
        return derive_key(self._role_secrets[0], f"site state: {purpose}", session)
