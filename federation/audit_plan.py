"""An audit's plan: what is claimed before a run, and how a report decides it, signed."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from analytic.array_file import line_of_json
from federation.errors import FederationError
from federation.site.strict_models import StrictModel
from secagg import IdentityKey
from secagg.encoding import length_prefixed
from secagg.primitives.identity import is_signed

_LABEL = "audit plan"
_NONCE_BYTES = 32


class PlanError(FederationError, ValueError):
    """What was given is no plan, or nobody who may have signed it did."""


class Hypothesis(StrictModel):
    """What must come of one attack on one column of an audit.

    Args:
        attack: its name in the audit's report.
        mode: the column: a mode, ``total`` or ``private total``.
        expected: ``hidden`` where it must find nothing, ``leaks`` where it must win.
    """

    attack: str
    mode: str
    expected: Literal["hidden", "leaks"]


class AuditPlan(StrictModel):
    """What is claimed before a run, and how an audit decides it; a TOML file.

    Args:
        alpha: how often a cell that leaks nothing may be called a leak; the audit's own must be no larger.
        settings: of the audit, by the names of its report; those that are stated must be the same there.
        hypotheses: all must hold. One whose cell is missing, not tried or of too few trials is not decided, and
            then nothing is.
    """

    alpha: Annotated[float, Field(gt=0, lt=1)]
    settings: dict[str, Any] = Field(default_factory=dict)
    hypotheses: Annotated[tuple[Hypothesis, ...], Field(strict=False, min_length=1)]

    def decide(self, audit: Mapping[str, Any]) -> dict[str, Any]:
        """Return what each hypothesis comes to by an audit's report, and all together."""
        found = [{**one.model_dump(), "outcome": _outcome(one, audit)} for one in self.hypotheses]
        settings = audit.get("settings", {})
        other = sorted(name for name, value in self.settings.items() if settings.get(name) != value)
        if not float(settings.get("alpha", 1)) <= self.alpha:
            other.append("alpha")
        outcomes = {one["outcome"] for one in found} | ({"other settings"} if other else set())
        return {
            "hypotheses": found,
            "other_settings": other,
            "decision": "holds" if outcomes == {"holds"} else "fails" if "fails" in outcomes else "not decided",
        }


def _outcome(hypothesis: Hypothesis, audit: Mapping[str, Any]) -> str:
    cells = [
        cell["verdict"]
        for cell in audit.get("cells", [])
        if (cell["attack"], cell["mode"]) == (hypothesis.attack, hypothesis.mode)
    ]
    wins, nothing = ("recovered", "leaks"), ("no evidence of leakage at this power",)
    holds, fails = (nothing, wins) if hypothesis.expected == "hidden" else (wins, nothing)
    if any(verdict in fails for verdict in cells):
        return "fails"
    return "holds" if cells and all(verdict in holds for verdict in cells) else "not decided"


def signed_plan(plan: AuditPlan, identity: IdentityKey, now: datetime) -> str:
    """Return a plan with its time, signed: a line of JSON to publish before the run."""
    said = {"plan": plan.model_dump(mode="json"), "signed_at": now.isoformat(timespec="seconds")}
    signature = identity.sign(_LABEL, line_of_json(said).encode())
    return line_of_json({**said, "signer": identity.public.hex(), "signature": signature.hex()}) + "\n"


def read_plan(content: str, *, signers: Iterable[bytes] | None = None) -> tuple[AuditPlan, datetime]:
    """Return a plan and when it says that it was signed.

    Args:
        content: its file.
        signers: who may have signed it; None for anybody.

    Raises:
        PlanError: it is no plan, or none of these keys signed it.
    """
    try:
        said = json.loads(content)
        signer, signature = bytes.fromhex(said.pop("signer")), bytes.fromhex(said.pop("signature"))
        plan, when = AuditPlan.model_validate(said["plan"]), datetime.fromisoformat(said["signed_at"])
        if when.tzinfo is None:
            raise ValueError("its time has no offset from UTC")
        if content != line_of_json({**said, "signer": signer.hex(), "signature": signature.hex()}) + "\n":
            raise ValueError("it is not written as it was signed")  # a name that stands twice, for one
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError(f"this is no signed audit plan ({type(error).__name__}); sign one with audit-plan") from error
    allowed = {signer} if signers is None else signers
    if signer not in allowed or not is_signed(signer, signature, _LABEL, line_of_json(said).encode()):
        raise PlanError("this audit plan is signed by nobody of the roster, or was changed after it was signed")
    return plan, when


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
        try:
            content = path.read_bytes()
        except OSError as error:
            raise PlanError(f"cannot read {path}: {error.strerror or error}; name the file of audit-plan") from error
        read_plan(content.decode(errors="replace"))
        return cls(content=content)

    @property
    def session(self) -> bytes:
        """The session id: SHA-256 of plan and nonce."""
        return hashlib.sha256(length_prefixed(b"analytic-secagg/1 audit plan", self.content, self.nonce)).digest()

    @property
    def public(self) -> dict[str, str]:
        """What a run's summary says of it."""
        return {"sha256": hashlib.sha256(self.content).hexdigest(), "nonce": self.nonce.hex()}
