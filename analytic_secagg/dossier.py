"""A dossier: the evidence of one run in one folder, under one signed statement that verifies offline with a public key.

The statement is an in-toto Statement in a DSSE envelope; its subjects are all files of the folder by SHA-256, so that a
changed, missing or added file is named. Whatever follows from other files is computed again: the run's model and
summary (``dossier_run``), receipts against the roster, a ledger's chain, the audit's decision, the statement's own
claims and every annex. ``gaps`` lists the rest, which is the word of whoever signed.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jinja2 import TemplateError

from analytic.errors import AnalyticError
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic_secagg.attestation import AttestationError, Statement, sign, verify
from analytic_secagg.audit_decision import decide
from analytic_secagg.audit_plan import PlanError, SignedPlan
from analytic_secagg.audit_result import AuditResult
from analytic_secagg.code_version import code_version
from analytic_secagg.commands.dossier import SourceFiles
from analytic_secagg.dossier_annexes import ANNEXES, annexes
from analytic_secagg.dossier_run import ERRORS, MODEL, NEEDED, RUN, RUN_FILES, TOTALS, FiledRun, Found
from analytic_secagg.errors import FederationError
from analytic_secagg.receipts import problems as receipt_problems
from analytic_secagg.receipts import told_by
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.strict_models import read_toml, validated
from secagg import IdentityKey, Receipt
from secagg.dp import Ledger, PrivacyError
from secagg.errors import SecureSumError

DOSSIER_TYPE = "urn:analytic-secagg:dossier:3"
"""Predicate type. Versions 1 and 2 were a manifest in a format of its own."""

STATEMENT = "dossier.intoto.jsonl"
ROSTER, PLAN, AUDIT = "roster.toml", "audit/plan.json", "audit/audit.json"
POLICIES = "policies/"
PUBLIC_TABLES = ("policy", "privacy", "journal")
"""The tables of a site's file that state its demands. Keys, paths of rows and folders are left out."""

NOT_HERE = {
    POLICIES: "left out: the demands of each site (--site)",
    "receipts/": "left out: the sites' own receipts (--receipt)",
    "ledgers/": "left out: the ledger of privacy costs (--ledger)",
    PLAN: "left out: an audit's plan, signed before the run (--plan)",
    AUDIT: "left out: no audit (--audit)",
}
MALFORMED = (*ERRORS, PrivacyError, TemplateError)


class DossierError(FederationError, ValueError):
    """A dossier cannot be made of these files, or a folder is none."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The files of a dossier but its statement, and what follows from them.

    Args:
        files: content by place in the folder.
        signer: Ed25519 public key of whoever signs the dossier, who may also sign plan and report.

    Raises:
        FederationError, SecureSumError, ValueError, KeyError, TypeError, AttributeError: a property cannot be made of
            these files; ``contradictions`` names the file instead.
    """

    files: Mapping[str, bytes] = field(repr=False)
    signer: bytes

    @cached_property
    def roster(self) -> Roster:
        """The operator's roster."""
        return validated(Roster, tomllib.loads(self.files[ROSTER].decode()), SiteFileError, prefix=f"{ROSTER}: ")

    @cached_property
    def receipts(self) -> Mapping[str, Receipt]:
        """The sites' receipts by place."""
        return {name: Receipt.from_bytes(self.files[name]) for name in self.within("receipts/")}

    @cached_property
    def run(self) -> FiledRun:
        """The run, with the receipts beside it."""
        files = {name.removeprefix(RUN): self.files[name] for name in self.within(RUN)}
        return FiledRun(files=files, roster=self.roster, kept=[*self.receipts.values()])

    @cached_property
    def signers(self) -> Mapping[bytes, str]:
        """Public keys that may sign a plan or a report, each with its owner in words."""
        named = {self.signer: "who signed this dossier", self.roster.server: "the server"}
        return named | {key: f"client {party}" for party, key in self.roster.clients.items()}

    @cached_property
    def audit(self) -> AuditResult | None:
        """The audit's report, of rows with as many columns as the run's."""
        if AUDIT not in self.files:
            return None
        audit = AuditResult.from_text(self.files[AUDIT].decode(errors="replace"))
        own = self.run.said["settings"]["n_features"]
        if audit.n_features != own:
            raise PlanError(
                f"the audit must be of rows like the run's, which have {own} features, and its rows have "
                f"{audit.n_features}: audit rows of this federation"
            )
        return audit

    @cached_property
    def decision(self) -> Mapping[str, Any] | None:
        """The decision on the plan's hypotheses, with the evidence that the plan came first; None without a plan."""
        if PLAN not in self.files:
            return None
        plan = SignedPlan.from_text(self.files[PLAN].decode(errors="replace"), signers=self.signers)
        if self.audit is None:
            raise PlanError("an audit plan without the audit's report decides nothing; add the audit's report")
        if plan.signed_at >= datetime.fromisoformat(started := self.run.said["started"]):
            raise PlanError(f"it was signed at {plan.signed_at.isoformat()}, and the run began before: {started}")
        return {
            **decide(plan, self.audit, signers=self.signers, run=self.run.said),
            "report_signed_by": _named(self.audit.signer, self.signers),
            "plan_signed_at": plan.signed_at.isoformat(timespec="seconds"),
            "plan_came_first": self.run.bound_by(self.files[PLAN]),
        }

    @property
    def claims(self) -> dict[str, Any]:
        """The part of the statement's predicate that follows from the files; other tools can read it."""
        names = ("learner", "mode", "privacy", "survivors", "weights_sha256")
        run = {name: self.run.said[name] for name in names}
        claims: dict[str, Any] = json.loads(json.dumps({"run": run, "audit": self.decision}))
        return claims

    @property
    def annexes(self) -> dict[str, bytes]:
        """The annexes by place, which follow from the other files."""
        of_it = [one for one in self.receipts.values() if self.run.is_of_it(one)]
        demands: dict[str, list[str]] = {}  # the parties that state equal ones, by these in one line
        for name in self.within(POLICIES):
            words = "; ".join(self.files[name].decode().splitlines())
            demands.setdefault(words, []).append(name.removeprefix(POLICIES).removesuffix(".txt"))
        facts = {
            "roster": self.roster,
            "run": self.run,
            "demands": demands,
            "receipts": [told_by(one, self.roster) for one in of_it],
            "n_other_receipts": len(self.receipts) - len(of_it),
            "ledgers": [_ledger(self.files[name]) for name in self.within("ledgers/")],
            "audit": self.audit,
            "auditor": None if self.audit is None else _named(self.audit.signer, self.signers),
            "decision": self.decision,
        }
        return {name: text.encode() for name, text in annexes(facts).items()}

    def within(self, folder: str) -> list[str]:
        """Return the files below a folder, sorted."""
        return sorted(name for name in self.files if name.startswith(folder))

    def contradictions(self) -> Found:
        """Yield (file, what it states that does not follow from the others), whoever signed it."""
        receipts = {name: partial(Receipt.from_bytes, self.files[name]) for name in self.within("receipts/")}
        if wrong := [*_failing({ROSTER: lambda: self.roster, **receipts})]:
            yield from wrong
            return
        for name, one in self.receipts.items():
            yield from ((name, line) for line in receipt_problems([one], (), self.roster))
        together = receipt_problems([*self.receipts.values()], (), self.roster)
        yield from (("receipts", line) for line in together if line.startswith("EVIDENCE"))
        yield from self.run.contradictions()
        ledgers = {name: partial(_ledger, self.files[name]) for name in self.within("ledgers/")}
        yield from _failing({**ledgers, AUDIT: lambda: self.audit, PLAN: lambda: self.decision})
        known = {ROSTER, PLAN, AUDIT, *ANNEXES} | {f"{RUN}{name}" for name in RUN_FILES}
        for name in sorted(self.files.keys() - known):
            if f"{name.rpartition('/')[0]}/" not in (POLICIES, "receipts/", "ledgers/"):
                yield name, "a dossier has no such file"

    def gaps(self) -> Found:
        """Yield (file, what it does not show): what is left out, and what nothing recomputes."""
        fingerprint = self.roster.fingerprint
        yield ROSTER, f"as the file was given; ask the sites whether theirs has the fingerprint {fingerprint}"
        yield from self.run.gaps()
        for name, one in self.receipts.items():
            if not self.run.is_of_it(one):
                yield name, "of a sum that this run does not name"
        for name in self.within(POLICIES):
            yield name, "as the file was given; its site did not sign it"
        yield from ((name, what) for name, what in NOT_HERE.items() if not self.within(name))
        if AUDIT in self.files:
            yield AUDIT, "the word of whoever signed it; no attack is run again"
        yield STATEMENT, "`made` is the signer's word; nothing shows whether other runs were begun and not filed"


def _failing(parts: Mapping[str, Callable[[], object]]) -> Found:
    """Yield the files that do not read, with the reason."""
    for name, part in parts.items():
        try:
            part()
        except MALFORMED as error:
            yield name, str(error) if isinstance(error, FederationError | SecureSumError) else repr(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources(SourceFiles):
    """The files that a dossier is made of."""

    def evidence(self, signer: bytes) -> Evidence:
        """Return the files of the dossier but its statement and its annexes.

        Args:
            signer: public key of whoever will sign it.

        Raises:
            DossierError: something cannot be read.
        """
        if not all((self.folder / name).is_file() for name in NEEDED):
            raise DossierError(f"{self.folder} must be the folder of a finished run, with {', '.join(NEEDED)}")
        left_out = TOTALS if self.without_totals else ""
        names = [name for name in RUN_FILES if (self.folder / name).is_file() and name != left_out]
        found = {ROSTER: _read(self.roster)} | {f"{RUN}{name}": _read(self.folder / name) for name in names}
        if self.without_totals:
            found[f"{RUN}{MODEL}"] = _weights_alone(found[f"{RUN}{MODEL}"], str(self.folder / MODEL))
        for site in self.sites:
            name, policy = _policy(site)
            if name in found:
                raise DossierError(f"{site} is of a party whose policy is there already; give each site's file once")
            found[name] = policy
        for kind, paths in (("receipts", self.receipts), ("ledgers", self.ledgers)):
            for path in paths:
                content = _read(path)
                found[f"{kind}/{hashlib.sha256(content).hexdigest()[:16]}-{path.name}"] = content
        found |= {PLAN: _read(self.plan)} if self.plan else {}
        found |= {AUDIT: _read(self.audit)} if self.audit else {}
        return Evidence(files=found, signer=signer)

    def write(self, folder: Path, identity: IdentityKey, now: datetime | None = None) -> tuple[str, ...]:
        """Write the dossier into a new folder, signed; return the names of its files.

        Args:
            folder: a new one.
            identity: the key that signs.
            now: time of making; None for the present time.

        Raises:
            DossierError: see ``evidence``, or the files contradict each other: nothing is written then.
        """
        evidence = self.evidence(identity.public)
        if wrong := list(evidence.contradictions()):
            raise DossierError("; ".join(f"{name}: {what}" for name, what in wrong))
        files = {**evidence.files, **evidence.annexes}
        made = {"made": (now or datetime.now(UTC)).isoformat(timespec="seconds"), "code": code_version()._asdict()}
        statement = Statement(
            subjects={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
            predicate_type=DOSSIER_TYPE,
            predicate=made | evidence.claims,
        )
        files[STATEMENT] = sign(statement, identity).encode()
        try:
            folder.mkdir(parents=True)
            for name, own in files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_bytes(own)
        except OSError as error:
            raise DossierError(f"cannot write {folder}: {error.strerror or error}; name a new folder") from error
        return tuple(sorted(files))


def problems(folder: Path, key: bytes) -> Iterator[tuple[str, str]]:
    """Yield (file, what is wrong with it) of a dossier; nothing where it verifies.

    Args:
        folder: where it is.
        key: the public key of whoever should have signed it, from elsewhere than the dossier.
    """
    try:
        statement = read_statement(folder, key)
    except DossierError as error:
        yield STATEMENT, str(error)
        return
    stated = statement.subjects
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())  # a link to a folder too
    there = {path.relative_to(folder).as_posix(): path for path in found}
    files = {name: path.read_bytes() for name, path in there.items() if name in stated and not path.is_symlink()}
    wrong = dict.fromkeys(stated.keys() - files.keys(), "it is missing, or a link")
    wrong |= dict.fromkeys(there.keys() - stated.keys() - {STATEMENT}, "no file of this dossier")
    for name, own in files.items():
        if hashlib.sha256(own).hexdigest() != stated[name]:
            wrong[name] = "it was changed after the dossier was signed"
    yield from sorted(wrong.items())
    if wrong:
        return
    evidence = Evidence(files=files, signer=key)
    told = list(evidence.contradictions())
    told = told or list(_unlike(evidence, statement))
    yield from told
    if told and (made := statement.predicate.get("code")) != code_version()._asdict():
        yield STATEMENT, f"other code made it ({made}), whose texts may differ from those of {code_version()}"


def _unlike(evidence: Evidence, statement: Statement) -> Found:
    """Yield the annexes, and the statement, where they are not what follows from the other files."""
    try:
        written, claims = evidence.annexes, evidence.claims
    except MALFORMED as error:
        yield STATEMENT, f"annexes cannot be made of its files: {type(error).__name__}: {error}"
        return
    for name, content in written.items():
        if evidence.files.get(name) != content:
            yield name, "it is not what follows from the other files"
    if {name: said for name, said in statement.predicate.items() if name not in ("made", "code")} != claims:
        yield STATEMENT, "its predicate is not what follows from the files"


def gaps(folder: Path) -> Found:
    """Yield (file, what it does not show) of a dossier that verifies."""
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    del files[STATEMENT]
    yield from Evidence(files=files, signer=bytes(32)).gaps()


def read_statement(folder: Path, key: bytes) -> Statement:
    """Return the statement of a dossier.

    Raises:
        DossierError: it cannot be read, is of another kind, or this key did not sign it.
    """
    try:
        statement = verify((folder / STATEMENT).read_bytes().decode(errors="replace"), key)
    except (OSError, AttestationError) as error:
        raise DossierError(f"no dossier that this key signed: {error}") from error
    if statement.predicate_type != DOSSIER_TYPE:
        raise DossierError(
            f"{DOSSIER_TYPE} is needed, and it is {statement.predicate_type}: verify it with a release of this "
            "product that reads that version"
        )
    return statement


def _policy(site: Path) -> tuple[str, bytes]:
    """Return the place and the content of a site's demands, one a line."""
    said = read_toml(site)
    client = said.get("client", {})
    party = client.get("party", site.parent.name)
    if not re.fullmatch(r"[\w-]+", str(party)):
        raise DossierError(f"{site} is of the party {party!r}, and a policy is filed under a number or a plain name")
    demands = {"learners": client["learners"]} if "learners" in client else {}
    for table in PUBLIC_TABLES:
        demands |= said.get(table, {})
    demands.pop("ledger", None)
    lines = (
        f"{name.replace('_', ' ')}: {', '.join(map(str, value)) if isinstance(value, list) else value}\n"
        for name, value in demands.items()
    )
    return f"{POLICIES}{party}.txt", "".join(lines).encode()


def _ledger(content: bytes) -> Mapping[str, Any]:
    """Return budget and privacy cost of a ledger, every line of it checked."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        path.write_bytes(content)
        ledger = Ledger.open(path)
        return {"budget": ledger.budget, "spent": ledger.spent()}


def _named(key: bytes | None, signers: Mapping[bytes, str]) -> str:
    return "nobody" if key is None else signers.get(key, key.hex())


def _weights_alone(content: bytes, source: str) -> bytes:
    """Return a model's file without the totals that it may hold, as FedHiP's does that an earlier release wrote."""
    try:
        saved = model_from_bytes(content, source=source)
        return model_to_bytes(saved.learner, saved.model, classes=saved.classes, features=saved.features)
    except AnalyticError as error:
        raise DossierError(f"a model that does not read may hold totals: {error}; name a whole run") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DossierError(f"cannot read {path}: {error.strerror or error}; name a file that is there") from error
