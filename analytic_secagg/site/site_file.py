"""A site's own file: who it is, where its rows are, and what it demands of every sum."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from analytic.learner import AnalyticLearner, ClientRows
from analytic.model_files import EVALUATIONS
from analytic.sensitivity import Adjacency, Unit
from analytic_secagg.configurations import digests
from analytic_secagg.errors import DataError
from analytic_secagg.modes import MODES, HelperRole, helper_roles, is_known
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.provenance import recipe_of
from analytic_secagg.site.reading import Reading
from analytic_secagg.site.results import Results
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.source import read_rows
from analytic_secagg.site.strict_models import Place, StrictModel, Texts, beside, validated
from analytic_secagg.site.table import TableSchema
from analytic_secagg.site.table_files import is_table
from secagg import PartyId
from secagg.dp import Budget, Ledger
from secagg.dp.noisy_sum import NOISY
from secagg.policy import MIN_CORRUPTION, ClientPolicy, NoiseDemand
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import IdentityKey

SITES_VARIABLE = "ANALYTIC_SECAGG_SITES"
"""The environment variable that names the folder of simulated sites; a real node names its file itself."""

MIN_CHANGE = 3
"""As many clients as the smallest total must have by default: a difference of two means is a total, too."""

ANY = "any"
"""In place of a list of configurations: whatever the server proposes."""

RosterFile = Annotated[Roster, BeforeValidator(lambda value, info: Roster.read(beside(value, info)))]
"""The roster of the file that is named."""

SchemaFile = Annotated[TableSchema, BeforeValidator(lambda value, info: TableSchema.read(beside(value, info)))]
"""The schema of the file that is named."""

IdentityFile = Annotated[
    IdentityKey, BeforeValidator(lambda value, info: IdentityKey(read_secret(beside(value, info)))), Field(repr=False)
]
"""The signing key of the file that is named."""


class ClientRole(StrictModel):
    """A site that contributes rows.

    Args:
        party: its number in the roster.
        identity: its signing key.
        data: an npz file with ``x_train`` and ``y_train`` (and ``w_train``, how often each row counts), a table (.csv,
            .parquet, .xlsx and others), or ``module:function`` that returns these arrays, or a data frame.
        columns: the schema of a table or data frame, see ``analytic_secagg.site.table``; None for other data.
        reading: how that table writes what the schema means (``[client.reading]``).
        learners: the names of closed forms, and of evaluations of its test rows, that it contributes to; None for
            those of ``configurations``, and ``afl`` where these are any.
        configurations: what may be computed of its rows, by the digests that the command ``configuration`` prints;
            None for those of the roster. ``"any"`` lets the server choose: a crafted one shows single rows in a total.
        unverified_models: the learners whose exact sums it joins although the server states a model that the site
            cannot check: later sums of a run, and evaluations (``evaluation-of-classes``, ``evaluation-of-labels``,
            ``evaluation-of-targets``).
        test: those rows, in the form of ``data`` and by the same schema; None takes ``x_test`` and ``y_test`` of an npz
            file. No other sum takes them.
    """

    party: PartyId
    identity: IdentityFile
    data: str
    columns: SchemaFile | None = None
    reading: Reading = Reading()
    learners: Texts | None = None
    configurations: Annotated[
        tuple[bytes, ...] | Literal["any"] | None,
        BeforeValidator(lambda value: value if value is None or value == ANY else digests(value)),
    ] = None
    unverified_models: Texts = frozenset()
    test: str | None = None

    @field_validator("data", "test")
    @classmethod
    def _find(cls, data: str | None, info: ValidationInfo) -> str | None:
        if data is None:
            return None
        if data.endswith(".npz") or is_table(data):
            return str(beside(data, info))
        if ":" not in data:
            raise ValueError(
                f"data must be a file .npz, a table such as .csv, .xlsx or .parquet, or module:function, not {data!r}"
            )
        return data

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if self.columns is None and is_table(self.data):
            raise ValueError("a table (.csv, .parquet) and its schema belong together: state columns in [client]")
        if self.columns is not None and self.data.endswith(".npz"):
            raise ValueError(
                "a schema is of the columns of a table (.csv, .parquet) or data frame; leave columns out of [client]"
            )
        if self.columns is None and self.reading != Reading():
            raise ValueError("a reading says how a table or data frame is written: state its columns in [client] too")
        if self.test is not None and is_table(self.test) != is_table(self.data):
            raise ValueError("test has the form of data: a table with a table; correct [client]")
        return self

    def rows(self) -> ClientRows:
        """The rows that models are trained on, read anew.

        Raises:
            SiteFileError: there are none where the file says.
        """
        return self._read(self.data, "train")

    def rows_for(self, learner: AnalyticLearner[Any]) -> ClientRows:
        """The rows that a learner may ask for: those kept for judging where it is an evaluation, else the others.

        Raises:
            SiteFileError: there are none where the file says.
        """
        return self.test_rows() if learner.name in EVALUATIONS else self.rows()

    def test_rows(self) -> ClientRows:
        """The rows kept for judging, read anew.

        Raises:
            SiteFileError: there are none where the file says.
        """
        if self.test is None and not self.data.endswith(".npz"):
            raise SiteFileError("this site keeps no rows for judging models; state test in [client] of its file")
        return self._read(self.data, "test") if self.test is None else self._read(self.test, "train")

    def _read(self, place: str, part: str) -> ClientRows:
        """The rows of a table, of a function, or of one part of an npz file."""
        try:
            return read_rows(place, columns=self.columns, reading=self.reading, part=part)
        except DataError as error:
            raise SiteFileError(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRole:
    """A site that is one of the parties beside clients and server; it may contribute rows too, under another number.

    Args:
        party: its number in the roster.
        role: what it does.
        identity: its signing key.
        epoch_days: how long an epoch of its sealing key lasts, where the role has epochs.
    """

    party: PartyId
    role: HelperRole
    identity: IdentityKey = field(repr=False)
    epoch_days: float = 30.0


class RoleTable(StrictModel):
    """Table of such a role in a site's file: a number, the file of a key, and how long an epoch lasts."""

    party: PartyId
    identity: IdentityFile
    epoch_days: Annotated[float, Field(gt=0, le=36500)] | None = None


def _own_role(role: HelperRole, table: Any, folder: Path | None) -> OwnRole:
    """The role that a table of a site's file describes, with its key read."""
    if not isinstance(table, dict):
        raise ValueError(f"the file needs {role.section} as a table")
    said = validated(RoleTable, table, ValueError, whole=f"[{role.section}]", folder=folder)
    if said.epoch_days is None:
        return OwnRole(party=said.party, role=role, identity=said.identity)
    if not role.has_epochs:
        raise ValueError(f"[{role.section}] has no epochs: its keys serve one sum; remove epoch_days")
    return OwnRole(party=said.party, role=role, identity=said.identity, epoch_days=said.epoch_days)


OwnRoles = Annotated[
    tuple[OwnRole, ...],
    BeforeValidator(lambda tables, info: tuple(_own_role(*own, info.context) for own in tables.items())),
]
"""The roles that a file's tables describe."""


def _modes_in(values: Mapping[str, Any]) -> list[str]:
    """Return the modes that a file's policy names, before anything in the file was checked."""
    policy = values.get("policy")
    modes = policy.get("modes") if isinstance(policy, Mapping) else None
    return [mode for mode in modes if isinstance(mode, str)] if isinstance(modes, list) else []


class PolicyTable(StrictModel):
    """Table ``[policy]`` of a site's file: what it demands of a sum; see ``ClientPolicy``."""

    modes: Texts = frozenset({"masked"})
    min_clients: Annotated[int, Field(ge=1)] = 3
    min_survivors: Annotated[int, Field(ge=1)] = 3
    min_corruption: Annotated[float, Field(ge=0, lt=1)] = MIN_CORRUPTION
    min_security_bits: Annotated[float, Field(gt=0)] = 40.0
    min_correctness_bits: Annotated[float, Field(gt=0)] = 20.0
    min_epoch: Annotated[int, Field(ge=1)] = 1
    max_entries: Annotated[int, Field(ge=1)] = 2**26
    accept_confirmed_guesses: bool = False
    receipts: Literal["none", "server", "countersigned"] = "none"

    @field_validator("modes")
    @classmethod
    def _check_modes(cls, modes: frozenset[str]) -> frozenset[str]:
        if unknown := {mode for mode in modes if not is_known(mode)}:
            raise ValueError(
                f"modes are among {', '.join(MODES)}; there is no {', '.join(sorted(unknown))}: correct it, or install "
                "the package that has it"
            )
        return modes


class PrivacyTable(StrictModel):
    """Table ``[privacy]`` of a site's file: the budget of its rows, and the ledger of what was spent.

    Args:
        epsilon: of all noisy sums that these rows ever enter, together.
        delta: its delta.
        unit: who is protected: ``record`` or ``client``.
        adjacency: what a neighbouring data set is.
        run_epsilon: the least noise: largest epsilon of all sums of one run; None for no less than the budget.
        refuse_large_delta: whether to decline a run whose delta, or this one, is not below one over the records that
            its learner has room for, or over its clients where these are protected.
        ledger: the file where every sum is charged before its vector leaves; the command ``ledger`` begins it.
    """

    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    unit: Unit = "record"
    adjacency: Adjacency = "add-remove"
    run_epsilon: Annotated[float, Field(gt=0)] | None = None
    refuse_large_delta: bool = False
    ledger: Place

    @property
    def demand(self) -> NoiseDemand:
        """The least noise of a run."""
        epsilon = self.epsilon if self.run_epsilon is None else self.run_epsilon
        return NoiseDemand(
            epsilon=epsilon,
            delta=self.delta,
            unit=self.unit,
            adjacency=self.adjacency,
            refuse_large_delta=self.refuse_large_delta,
        )

    def budget(self, population: str) -> Budget:
        """Return the budget of the rows of this name."""
        return Budget(
            epsilon=self.epsilon, delta=self.delta, unit=self.unit, adjacency=self.adjacency, population=population
        )


class JournalTable(StrictModel):
    """Table ``[journal]`` of a site's file: limits of its query log (``analytic_secagg.site.query_log``).

    Args:
        further_totals: how many totals, or computations, more. They may give this site, or another one, away.
        refused_tries: how many computations of its rows may have ended in no vector before another one is tried.
        min_change: fewest clients by which the cohorts of two secure means may differ where they differ at all; 1
            permits any change (``analytic_secagg.mean.participation``).
        head: the second place of the query log's count and head hash (``analytic_secagg.site.query_log_head``);
            ``state.head`` beside the folder ``state`` where the file names none.
    """

    further_totals: Annotated[int, Field(ge=0)] = 0
    refused_tries: Annotated[int, Field(ge=0)] = 3
    min_change: Annotated[int, Field(ge=1)] = MIN_CHANGE
    head: Place | None = None


class SiteFile(StrictModel):
    """Configuration of a site, which no server can change; docs/reference/site-files.md explains each key.

    Args:
        roster: its copy of the operator's roster.
        demands: what it demands of a sum (``[policy]`` in the file).
        journal: how many totals its rows may enter beside those that cost nothing.
        state: a folder of its own for running sessions, and for the query log.
        client: its role as a contributor, if it has one.
        privacy: what its rows may cost; with it the site takes part in sums with noise only, without in exact ones.
        helpers: its roles beside clients and server, such as a committee's helper or the key holder; in the file a
            table for each.
        results: a folder for receipts and models; ``results`` beside ``state`` where the file names none.
        extensions: the names of other packages' learners that this host may import, beside those of ``learners`` in
            [client]; a helper's host, which has no [client], needs them to know what is summed.
        forget_hours: a session without a word from the server for so long is over.
        log: a file that gets this site's log as lines of JSON; None leaves it to the engine alone.
        keep_models: how many models, evaluations and totals stay in ``results``, the newest of each; None for all.
            Receipts always stay.
    """

    roster: RosterFile
    state: Place
    demands: PolicyTable = Field(PolicyTable(), alias="policy")
    journal: JournalTable = JournalTable()
    client: ClientRole | None = None
    privacy: PrivacyTable | None = None
    helpers: OwnRoles = Field((), alias="own roles")
    results: Place | None = None
    extensions: Texts = frozenset()
    forget_hours: Annotated[float, Field(ge=0)] = 24.0
    log: Place | None = None
    keep_models: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, values: Any) -> Any:
        """Put the tables of the file's other roles under one name, which no file may have."""
        roles = {role.section: role for role in helper_roles(_modes_in(values)) if role.section in values}
        rest = {name: value for name, value in values.items() if name not in roles}
        if "own roles" in rest:
            raise ValueError("the file has no place for own roles; correct or remove it")
        return {**rest, "own roles": {role: values[section] for section, role in roles.items()}}

    @model_validator(mode="after")
    def _check_roles(self) -> Self:
        roster, listed = self.roster, []
        if self.client is not None:
            public = self.client.identity.public
            listed.append((f"identity for client {self.client.party}", roster.clients.get(self.client.party), public))
        for own in self.helpers:
            what = f"identity for {own.role.name} {own.party}"
            listed.append((what, roster.listed(own.role).get(own.party), own.identity.public))
        for what, key, public in listed:
            if key != public:
                raise ValueError(
                    f"the roster lists another {what} than this site's key, or none; ask the operator which of the two "
                    "is wrong"
                )
        columns = None if self.client is None else self.client.columns
        if roster.columns and columns is not None and columns.fingerprint != roster.columns:
            raise ValueError(
                f"the roster agrees on columns {roster.columns} and this site's schema is {columns.fingerprint}: rows "
                "of other columns do not add up to one; take the schema that all agreed on, or have the operator "
                "correct the roster"
            )
        if self.client is not None and columns is None:
            self._check_recipe(self.client.data)
        if self.privacy is not None and self.client is None:
            raise ValueError("[privacy] is the budget of a site's rows, and without [client] it has none; remove it")
        if not listed:
            sections = ", ".join(f"[{role.section}]" for role in helper_roles())
            raise ValueError(f"a site needs a role: [client], {sections} or several of them")
        return self

    def _check_recipe(self, place: str) -> None:
        """Refuse features that were made otherwise than the roster says, or where it does not say how."""
        agreed, own = self.roster.features, recipe_of(place) if place.endswith(".npz") else None
        if own == agreed or (place.endswith(".npz") and not Path(place).exists()):  # reading the rows says so
            return
        if agreed is None and own is not None:
            raise ValueError(
                f"{place} holds features of the backbone {own.backbone}, and the roster does not say what everybody "
                "makes them with: those of another backbone would be added up all the same. Let every copy of the "
                f"roster say, if all agree,\n{own.to_toml()}"
            )
        raise ValueError(
            "features of different backbones do not add up to one model, and those of "
            f"{place} are "
            + ("of unknown origin" if own is None or agreed is None else f"of {own.differences(agreed)}")
            + " as the roster agrees; compute them with the command features and the settings that all agreed on"
        )

    @classmethod
    def simulated(cls, name: str, *, real: str) -> Self:
        """Return a site of the folder of simulated sites, in which each has a folder with its own file.

        Args:
            name: of the site's folder.
            real: what to do where this is no simulation, for the error.

        Raises:
            SiteFileError: nobody named that folder.
        """
        folder = os.environ.get(SITES_VARIABLE)
        if folder is None:
            raise SiteFileError(
                f"a node needs its own file: {real}, or name the folder of simulated sites in {SITES_VARIABLE}"
            )
        return cls.read(Path(folder) / name / "site.toml")

    @property
    def policy(self) -> ClientPolicy:
        """Demands of this site on a sum, over the clients and the server of its own roster.

        Modes are accepted without noise, or with it where the rows have a budget; who has no rows bears both.
        """
        demanded = self.demands.model_dump()
        noisy = {f"{mode}{NOISY}" for mode in self.demands.modes}
        if self.privacy is not None:
            demanded |= {"modes": frozenset(noisy), "noise": self.privacy.demand}
        elif self.client is None:
            demanded["modes"] = self.demands.modes | noisy
        return ClientPolicy(
            **demanded,
            identities=self.roster.clients,
            server_identity=self.roster.server,
            beacon=self.roster.beacon,
            total_holders=self.roster.total_holders,
            min_corrupt_helpers=self.roster.corrupt_helpers,
        )

    @property
    def named_learners(self) -> frozenset[str]:
        """The learners that the file names: of other packages' these alone may be imported here."""
        learners = None if self.client is None else self.client.learners
        return self.extensions | (learners or frozenset())

    @property
    def configurations(self) -> tuple[bytes, ...] | Literal["any"]:
        """Configurations that may be computed of its rows: those of its own file, else those of the roster."""
        stated = None if self.client is None else self.client.configurations
        return self.roster.configurations if stated is None else stated

    @property
    def budget(self) -> Budget | None:
        """Budget of its rows; None where nobody states one."""
        if self.privacy is None or self.client is None:
            return None
        return self.privacy.budget(f"client {self.client.party}, {Path(self.client.data).name}")

    @property
    def ledger(self) -> Ledger | None:
        """The account of what its rows have cost; None where they have no budget.

        Raises:
            SiteFileError: it was begun for another budget or other rows.
            secagg.dp.LedgerError: there is none, or it is not what was written.
        """
        if self.privacy is None:
            return None
        ledger = Ledger.open(self.privacy.ledger)
        if ledger.budget != self.budget:
            raise SiteFileError(
                f"{self.privacy.ledger} was begun for {ledger.budget} and the site's file says {self.budget}: a budget "
                "cannot change once it was spent from; correct the file, or begin another ledger for new rows"
            )
        return ledger

    @property
    def kept(self) -> Results:
        """Folder of the results that it keeps."""
        return Results(self.results or self.state.with_name("results"), self.keep_models)

    def state_key(self, purpose: str, session: bytes) -> bytes:
        """The key that seals what this site stores of one session."""
        identity = self.helpers[0].identity if self.client is None else self.client.identity
        return derive_key(identity.secret, f"site state: {purpose}", session)
