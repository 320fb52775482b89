"""An audit's plan: the claims, the data and the code that a later audit is about, signed before a run."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from analytic_secagg.attestation import Statement, read_signed, sign
from analytic_secagg.code_version import CodeVersion, code_version
from analytic_secagg.errors import FederationError
from analytic_secagg.site.strict_models import StrictModel
from secagg import IdentityKey
from secagg.encoding import length_prefixed

PLAN_TYPE = "urn:analytic-secagg:audit-plan:3"
"""Predicate type of a signed plan. Version 2 was signed in a format of its own; version 1 named no data and no code."""

_NONCE_BYTES = 32

STANDARD_RULE: Mapping[str, Any] = {
    "family_error": 1e-3,
    "notices": 0.7,
    "notices_coins": 0.75,
    "limits": {"rebuilt_rows": 0.01, "membership": 0.9, "attribute": 0.2, "group_share": None},
}
"""How an audit judges results unless its owner states otherwise; docs/reference/audit-json.md says what each means."""

_Count = Annotated[int, Field(ge=1)]
_AtLeastTwo = Annotated[int, Field(ge=2)]


class StatedSettings(BaseModel):
    """The settings of an audit, by the names of its report, which a plan may fix."""

    model_config = ConfigDict(frozen=True, strict=True, use_attribute_docstrings=True)

    learner: str
    """The closed form: afl, fedhip, deepafl, safle."""
    modes: tuple[str, ...] = Field(min_length=1)
    """Modes audited."""
    own: tuple[str, ...]
    """Options of modes as they were given."""
    clients: _AtLeastTwo
    """Clients of a cohort."""
    rows_per_client: _AtLeastTwo
    """Mean rows of a client."""
    cohorts: tuple[_AtLeastTwo, ...]
    """Further cohort sizes whose totals and models were attacked."""
    sessions: _Count
    """Cohorts that each cell of an attack on a message pools."""
    trials: _Count
    """Sums made for each attack that needs its own."""
    two_world_runs: _Count
    """Small runs with and without one person, for each epsilon."""
    format: Annotated[str, Field(pattern=r"^U?Q[0-9]+\.[0-9]+$")]
    """Fixed-point format of the features."""
    format_chosen_from_rows: bool
    """Whether the format was chosen by looking at all training rows, which only a simulation can do."""
    epsilon: tuple[Annotated[float, Field(gt=0)], ...]
    """Epsilons of the totals with noise."""
    seed: Annotated[int, Field(ge=0)]
    """Seed of who holds which rows and of the attackers' coins."""


Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class PlanError(FederationError, ValueError):
    """A file is no plan or no report, or nobody signed it who may."""


class Hypothesis(StrictModel):
    """The expected result of one attack on one column of an audit.

    Args:
        attack: its name in the audit's report.
        mode: the column: a mode, ``total`` or ``private total``.
        expected: ``hidden`` where it must find nothing, ``leaks`` where it must win.
    """

    attack: str
    mode: str
    expected: Literal["hidden", "leaks"]


class AuditPlan(StrictModel):
    """The claims before a run, and how an audit decides them; a TOML file.

    Args:
        rule: how results are judged, by the names of the report's ``rule``; what is left out is as in
            ``STANDARD_RULE``. The audit's own must be the same, so that nobody loosens it afterwards.
        data_sha256: digest of the rows that the audit must run on (``analytic_secagg.datasets.Dataset.sha256``).
        auditor: the Ed25519 public key of whoever must sign the report; empty for any party of the roster, or whoever
            signs the dossier.
        settings: of the audit, by the names of its report; those that are stated must be the same there.
        hypotheses: all must hold. One whose cell is missing, not tried or of too few trials is not decided, and
            then nothing is.
    """

    rule: dict[str, Any] = Field(default_factory=lambda: dict(STANDARD_RULE), validate_default=True)
    data_sha256: Hex
    auditor: Hex | Literal[""] = ""
    settings: dict[str, Any] = Field(default_factory=dict)
    hypotheses: Annotated[tuple[Hypothesis, ...], Field(strict=False, min_length=1)]

    @field_validator("settings")
    @classmethod
    def _known(cls, stated: dict[str, Any]) -> dict[str, Any]:
        """Refuse a name that no report has: no audit could ever be the one of such a plan."""
        if unknown := sorted(stated.keys() - StatedSettings.model_fields.keys()):
            known = ", ".join(sorted(StatedSettings.model_fields))
            raise ValueError(f"settings are named as in a report, {known}, and not {', '.join(unknown)}")
        return stated

    @field_validator("rule")
    @classmethod
    def _whole(cls, stated: dict[str, Any]) -> dict[str, Any]:
        """Return the rule with what was left out."""
        limits = STANDARD_RULE["limits"]
        if unknown := {*stated} - {*STANDARD_RULE} | {*stated.get("limits", {})} - {*limits}:
            raise ValueError(f"a rule has {', '.join((*STANDARD_RULE, *limits))}, and not {', '.join(sorted(unknown))}")
        given = {name: None if value == "none" else value for name, value in stated.get("limits", {}).items()}
        return {**STANDARD_RULE, **stated, "limits": {**limits, **given}}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedPlan:
    """A plan as it was published: an in-toto statement about the rows, in a DSSE envelope.

    Args:
        plan: the claims.
        code: the code that signed it, which the audit and the run must be of.
        signed_at: when, according to the signer.
        signer: the signer's Ed25519 public key.
        sha256: digest of the file.
    """

    plan: AuditPlan
    code: CodeVersion
    signed_at: datetime
    signer: bytes
    sha256: str

    @classmethod
    def from_text(cls, text: str, *, signers: Iterable[bytes] | None = None) -> Self:
        """Read a plan's file.

        Args:
            text: its content.
            signers: the keys that may have signed it; None for any.

        Raises:
            PlanError: it is no plan of this version, or none of these keys signed it.
        """
        try:
            statement, signer = read_signed(text)
            if statement.predicate_type != PLAN_TYPE:
                raise PlanError(f"{PLAN_TYPE} is needed, and it is {statement.predicate_type}")
            said = statement.predicate
            plan, when = AuditPlan.model_validate(said["plan"]), datetime.fromisoformat(said["signed_at"])
            if when.tzinfo is None:
                raise PlanError("its time has no offset from UTC")
            if statement.subjects != {"rows": plan.data_sha256}:
                raise PlanError("its subject is not the rows that it states")
            code = CodeVersion(**said["code"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            why = str(error) if isinstance(error, FederationError) else type(error).__name__
            raise PlanError(f"this is no signed audit plan ({why}); sign one with audit-plan") from error
        if signers is not None and signer not in signers:
            raise PlanError(
                f"this audit plan is signed by {signer.hex()}, which is no key of the roster; have a party of the "
                "roster sign it"
            )
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        return cls(plan=plan, code=code, signed_at=when, signer=signer, sha256=sha256)

    def differences(self, *, code: CodeVersion, data_sha256: str, settings: Mapping[str, Any]) -> Iterator[str]:
        """Yield in words where an audit is not the one that this plan is about.

        Args:
            code: of the audit.
            data_sha256: of its rows.
            settings: by the names of its report.
        """
        if code != self.code:
            yield f"the plan is about {self.code}, and the audit is of {code}"
        if data_sha256 != self.plan.data_sha256:
            yield f"the plan is about data {self.plan.data_sha256[:16]}, and the audit ran on data {data_sha256[:16]}"
        for name, value in sorted(self.plan.settings.items()):
            if settings.get(name) != value:
                yield f"the plan sets {name} to {value!r}, and the audit has {settings.get(name)!r}"
        found = settings.get("rule")
        if found != self.plan.rule:
            yield f"the plan judges by {self.plan.rule}, and the audit by {found}"


def signed_plan(plan: AuditPlan, identity: IdentityKey, now: datetime) -> str:
    """Return a plan with its time and this code's version, signed: a line of JSON to publish before the run."""
    predicate = {
        "plan": plan.model_dump(mode="json"),
        "code": code_version()._asdict(),
        "signed_at": now.isoformat(timespec="seconds"),
    }
    return sign(Statement(subjects={"rows": plan.data_sha256}, predicate_type=PLAN_TYPE, predicate=predicate), identity)


def read_plan(path: Path) -> str:
    """Return the text of a plan's file.

    Raises:
        PlanError: it cannot be read.
    """
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError as error:
        raise PlanError(f"cannot read {path}: {error.strerror or error}; name the file of audit-plan") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundPlan:
    """A plan as a run's first session id commits to it: whoever signs anything of that session signs after the plan.

    Args:
        content: the plan's file, byte for byte.
        nonce: makes the id fresh, so that one plan serves many runs.
    """

    content: bytes = field(repr=False)
    nonce: bytes = field(default_factory=lambda: secrets.token_bytes(_NONCE_BYTES))

    @classmethod
    def read(cls, path: Path) -> BoundPlan:
        """Return the plan of a file, with a fresh nonce.

        Raises:
            PlanError: it cannot be read, or is no plan that somebody signed.
        """
        text = read_plan(path)
        SignedPlan.from_text(text)
        return cls(content=text.encode())

    @property
    def session(self) -> bytes:
        """The session id: SHA-256 of plan and nonce."""
        return hashlib.sha256(length_prefixed(b"analytic-secagg/1 audit plan", self.content, self.nonce)).digest()

    @property
    def public(self) -> dict[str, str]:
        """The part of a run's summary about it."""
        return {"sha256": hashlib.sha256(self.content).hexdigest(), "nonce": self.nonce.hex()}
