"""A dossier: all that a run left as evidence in one folder, signed, that verifies offline with a public key.

Every file stands in a manifest by its SHA-256, and the manifest is signed, so that a changed, missing or added file is
named. What can be recomputed is: each run's model and summary from its settings, invitation, totals and receipts;
receipts against the roster; the chain of a ledger; what the audit's hypotheses come to; the annexes. ``gaps`` lists the
rest, which is the word of whoever signed. The audit's report is read as a file: nothing here knows how audits are made.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from analytic.array_file import line_of_json
from analytic.errors import AnalyticError
from analytic.model_files import model_from_bytes, model_to_bytes
from analytic_secagg.audit_decision import AuditReport, decide, report_signer
from analytic_secagg.audit_plan import PlanError, SignedPlan
from analytic_secagg.code_version import code_version
from analytic_secagg.dossier_annexes import annexes
from analytic_secagg.dossier_runs import MODEL, NEEDED, RUN_FILES, SUMMARY, TOTALS, TOTALS_AND_SCORES, FiledRun, Found
from analytic_secagg.errors import FederationError
from analytic_secagg.receipts import problems as receipt_problems
from analytic_secagg.receipts import told_by
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.strict_models import read_toml, validated
from secagg import IdentityKey, Receipt
from secagg.dp import Ledger, PrivacyError
from secagg.errors import SecureSumError
from secagg.primitives.identity import is_signed

KIND, VERSION = "analytic-secagg/dossier", 2
"""Version 1 decided by reports of anybody, and its annexes were not recomputed."""

MANIFEST, SIGNATURE = "dossier.json", "dossier.sig"
ROSTER, PLAN, AUDIT, DECISION = "roster.toml", "audit/plan.json", "audit/audit.json", "audit/decision.json"
PUBLIC_TABLES = ("policy", "privacy", "journal")
"""Of a site's file: what it demands. Keys, paths of rows and folders are left out."""

NOT_HERE = {
    "policies/": "left out: what each site demands (--site)",
    "receipts/": "left out: the sites' own receipts (--receipt)",
    "ledgers/": "left out: the bill of noise (--ledger)",
    PLAN: "left out: an audit's hypotheses, if somebody fixed them beforehand (--plan)",
    AUDIT: "left out: no audit (--audit)",
}

_LABEL = "dossier"


class DossierError(FederationError, ValueError):
    """A dossier cannot be made, or what it would be made of is not what it must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a dossier is made of.

    Args:
        runs: folders of runs, each with a model, its totals and a summary.
        roster: the operator's roster.
        sites: files of sites, of which what they demand is taken, and no key is read.
        receipts: copies that sites kept.
        ledgers: the ledgers' files: the bill.
        audit: the report of ``python -m simulations audit --json``, signed by whoever ran it where it shall decide.
        plan: what was signed before it with ``audit-plan``.
        with_totals: whether totals, evaluation and log go along, without which nobody can compute the model again; if
            not, models that hold totals go without them.
    """

    runs: Sequence[Path]
    roster: Path
    sites: Sequence[Path] = ()
    receipts: Sequence[Path] = ()
    ledgers: Sequence[Path] = ()
    audit: Path | None = None
    plan: Path | None = None
    with_totals: bool = True
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def files(self, signer: bytes) -> dict[str, bytes]:
        """Every file of the dossier but its manifest, by its place.

        Args:
            signer: the public key of who will sign it, who may have signed the plan.

        Raises:
            DossierError: something cannot be read, or two runs have one name.
        """
        found = {ROSTER: _read(self.roster)}
        for run in self.runs:
            for name in RUN_FILES:
                if (run / name).is_file() and (self.with_totals or name not in TOTALS_AND_SCORES):
                    found[f"runs/{run.resolve().name}/{name}"] = _read(run / name)
            if not all((run / name).is_file() for name in NEEDED):
                raise DossierError(f"{run} must be the folder of a finished run, with {', '.join(NEEDED)}")
            if not self.with_totals:
                place = f"runs/{run.resolve().name}/{MODEL}"
                found[place] = _weights_alone(found[place], str(run / MODEL))
        if len({run.resolve().name for run in self.runs}) < len(self.runs):
            raise DossierError("two runs have folders of one name; rename one of them")
        for site in self.sites:
            policy = self._policy(site)
            if policy.keys() & found.keys():
                raise DossierError(f"{site} is of a party whose policy is there already; give each site's file once")
            found |= policy
        for kind, paths in (("receipts", self.receipts), ("ledgers", self.ledgers)):
            for path in paths:
                content = _read(path)
                found[f"{kind}/{hashlib.sha256(content).hexdigest()[:16]}-{path.name}"] = content
        found |= {PLAN: _read(self.plan)} if self.plan else {}
        found |= {AUDIT: _read(self.audit)} if self.audit else {}
        try:
            return found | _written(found, signer)
        except (ValueError, KeyError, TypeError, AttributeError, SecureSumError, PrivacyError) as error:
            raise DossierError(f"no dossier can be made of these files: {type(error).__name__}: {error}") from error

    def _policy(self, site: Path) -> dict[str, bytes]:
        said = read_toml(site)
        client = said.get("client", {})
        public = {name: said[name] for name in PUBLIC_TABLES if name in said}
        public.get("privacy", {}).pop("ledger", None)
        party = client.get("party", site.parent.name)
        if not re.fullmatch(r"[\w-]+", str(party)):
            raise DossierError(
                f"{site} is of the party {party!r}, and a policy is filed under a number or a plain name"
            )
        return {f"policies/{party}.json": _json(public | {"learners": client.get("learners", ["afl"]), "party": party})}

    def write(self, folder: Path, identity: IdentityKey) -> tuple[str, ...]:
        """Write the dossier into a new folder, signed; return the names of its files.

        Raises:
            DossierError: see ``files``, or what the files say does not hold: nothing is written then.
        """
        files = self.files(identity.public)
        if wrong := list(_contradictions(files, identity.public)):
            raise DossierError("; ".join(f"{name}: {what}" for name, what in wrong))
        manifest = {
            "kind": KIND,
            "version": VERSION,
            "made": self.now.isoformat(timespec="seconds"),
            "code": code_version()._asdict(),
            "signer": identity.public.hex(),
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())},
        }
        content = (line_of_json(manifest) + "\n").encode()
        files |= {MANIFEST: content, SIGNATURE: f"{identity.sign(_LABEL, content).hex()}\n".encode()}
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
        folder: where it lies.
        key: the public key of whoever should have signed it, from elsewhere than the dossier.
    """
    try:
        content = (folder / MANIFEST).read_bytes()
        text = (folder / SIGNATURE).read_bytes()
        signature = bytes.fromhex(text.decode("ascii"))
        if text != f"{signature.hex()}\n".encode():
            raise ValueError("written in another way")
    except (OSError, ValueError) as error:
        yield (
            SIGNATURE,
            f"it or {MANIFEST} cannot be read ({type(error).__name__}): no dossier, or changed",
        )
        return
    if not is_signed(key, signature, _LABEL, content):
        yield MANIFEST, f"it or {SIGNATURE} was changed, or another key signed it"
        return
    try:
        stated = _stated(content)
    except DossierError as error:
        yield MANIFEST, str(error)
        return
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())  # a link to a folder too
    there = {path.relative_to(folder).as_posix(): path for path in found}
    files = {name: path.read_bytes() for name, path in there.items() if name in stated and not path.is_symlink()}
    wrong = dict.fromkeys(stated.keys() - files.keys(), "it is missing, or a link")
    wrong |= dict.fromkeys(there.keys() - stated.keys() - {MANIFEST, SIGNATURE}, "no file of this dossier")
    for name, own in files.items():
        if hashlib.sha256(own).hexdigest() != stated[name]:
            wrong[name] = "it was changed after the dossier was signed"
    yield from sorted(wrong.items())
    if wrong:
        return
    told = list(_contradictions(files, key))
    yield from told
    if told and (made := json.loads(content).get("code")) != code_version()._asdict():
        yield MANIFEST, f"other code made it ({made}), whose texts may differ from those of {code_version()}"


def gaps(folder: Path) -> Found:
    """Yield (file, what it does not show) of a dossier that verifies: what is left out, what nothing recomputes."""
    stated = _stated((folder / MANIFEST).read_bytes())
    files = {name: (folder / name).read_bytes() for name in stated}
    kept = {name: Receipt.from_bytes(files[name]) for name in _within(files, "receipts/")}
    roster = _roster(files[ROSTER])
    yield ROSTER, f"as the file was given; ask the sites whether theirs has the fingerprint {roster.fingerprint}"
    runs = _runs(files, roster, [*kept.values()])
    for run in runs:
        yield from run.gaps()
    for name, receipt in kept.items():
        if not any(run.is_of_it(receipt) for run in runs):
            yield name, "of a sum that no run here names"
    for name in _within(files, "policies/"):
        yield name, "as the file was given; no signature of its site is on it"
    for name, what in NOT_HERE.items():
        if not any(one.startswith(name) for one in files):
            yield name, what
    if AUDIT in files:
        yield AUDIT, "the word of whoever signed it; no attack is run again"
    yield MANIFEST, "`made` is the signer's word; that no other run was begun and not filed, nothing shows"


def decision(folder: Path) -> dict[str, Any] | None:
    """Return what the audit of a dossier that verifies decides; None without a plan."""
    place = folder / DECISION
    return dict(json.loads(place.read_bytes())) if place.is_file() else None


def _stated(manifest: bytes) -> dict[str, str]:
    """The files that a manifest of this kind and version names, with their digests."""
    try:
        said = json.loads(manifest)
        kind, version, stated = said["kind"], said["version"], dict[str, str](said["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise DossierError(f"it is no manifest of a dossier ({type(error).__name__})") from error
    if (kind, version) != (KIND, VERSION):
        raise DossierError(
            f"{KIND} of version {VERSION} is needed, and it is {kind!r} of version {version!r}: verify it with a "
            "release of this product that reads that version"
        )
    return stated


def _contradictions(files: Mapping[str, bytes], key: bytes) -> Found:
    """(file, what it says that does not hold), whoever signed it."""
    try:
        roster = _roster(files[ROSTER])
    except (SiteFileError, ValueError, KeyError) as error:
        yield ROSTER, f"it is no roster: {error}"
        return
    kept = dict(_receipts(files))
    for name, receipt in kept.items():
        if isinstance(receipt, Receipt):
            yield from ((name, line) for line in receipt_problems([receipt], (), roster))
        else:
            yield name, str(receipt)
    whole = [one for one in kept.values() if isinstance(one, Receipt)]
    alone = {line for one in whole for line in receipt_problems([one], (), roster)}
    yield from (("receipts", line) for line in receipt_problems(whole, (), roster) if line not in alone)
    runs = _runs(files, roster, whole)
    for run in runs:
        yield from run.contradictions()
    if not runs:
        yield MANIFEST, "no run is in it"
        return
    for name in _within(files, "ledgers/"):
        try:
            _bill(files[name])
        except (SecureSumError, PrivacyError) as error:
            yield name, str(error)
    try:
        written = _written(files, key)
    except PlanError as error:
        yield PLAN, str(error)
        return
    except (ValueError, KeyError, TypeError, AttributeError, SecureSumError, PrivacyError) as error:
        yield MANIFEST, f"decision and annexes cannot be made of its files: {type(error).__name__}: {error}"
        return
    for name in sorted(written):
        if files.get(name) != written[name]:
            yield name, "it is not what follows from the other files"
    folders = ("policies", "receipts", "ledgers")
    known = {ROSTER, PLAN, AUDIT, *written} | {f"{run.place}/{name}" for run in runs for name in RUN_FILES}
    for name in sorted(files.keys() - known):
        if name.rpartition("/")[0] not in folders:
            yield name, "a dossier has no such file"
    if DECISION not in written:
        return
    signed_at = json.loads(written[DECISION])["signed_at"]
    for run in runs:
        if not _is_before(signed_at, started := str(run.said.get("started", ""))):
            yield PLAN, f"it was signed at {signed_at}, by its word, and {run.place} began before: {started}"


def _roster(content: bytes) -> Roster:
    return validated(Roster, tomllib.loads(content.decode()), SiteFileError, prefix=f"{ROSTER}: ")


def _within(files: Mapping[str, bytes], folder: str) -> list[str]:
    return sorted(name for name in files if name.startswith(folder))


def _runs(files: Mapping[str, bytes], roster: Roster, kept: Sequence[Receipt]) -> list[FiledRun]:
    places = [name.removesuffix(f"/{SUMMARY}") for name in _within(files, "runs/") if name.endswith(f"/{SUMMARY}")]
    own = {
        place: {name.removeprefix(f"{place}/"): files[name] for name in _within(files, f"{place}/")} for place in places
    }
    return [FiledRun(place=place, files=own[place], roster=roster, kept=kept) for place in places]


def _receipts(files: Mapping[str, bytes]) -> Iterator[tuple[str, Receipt | SecureSumError]]:
    for name in _within(files, "receipts/"):
        try:
            yield name, Receipt.from_bytes(files[name])
        except SecureSumError as error:
            yield name, error


def _bill(content: bytes) -> str:
    """What a ledger has spent of what, in words, every line of it checked; it is read from a file made for it."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        path.write_bytes(content)
        ledger = Ledger.open(path)
        spent, budget = ledger.spent(), ledger.budget
        used = "nothing" if spent is None else f"epsilon {spent.epsilon:.6g} in {spent.releases} releases"
        return (
            f"{budget.population}: {used} of epsilon {budget.epsilon:g}, delta {budget.delta:g}, unit {budget.unit}, "
            f"adjacency {budget.adjacency}"
        )


def _decision(files: Mapping[str, bytes], runs: Sequence[FiledRun], signers: Mapping[bytes, str]) -> Any:
    """What the hypotheses come to, with when they were fixed; None without a plan and a report.

    Raises:
        PlanError: a plan or a report that is none, or a plan that nobody signed who may.
    """
    if PLAN not in files:
        return None
    plan = SignedPlan.from_text(files[PLAN].decode(errors="replace"), signers=signers)
    if AUDIT not in files:
        raise PlanError("an audit plan without the audit's report decides nothing; add the report (--audit)")
    decided = decide(
        plan, files[AUDIT].decode(errors="replace"), signers=signers, runs={run.place: run.said for run in runs}
    )
    return {
        **decided,
        "signed_at": plan.signed_at.isoformat(timespec="seconds"),
        "before": {run.place: run.bound_by(files[PLAN]) for run in runs},
    }


def _is_before(one: str, other: str) -> bool:
    """Whether a moment is before another, both with their offset from UTC; False where one is none."""
    try:
        return datetime.fromisoformat(one) < datetime.fromisoformat(other)
    except (ValueError, TypeError):
        return False


def _written(files: Mapping[str, bytes], key: bytes) -> dict[str, bytes]:
    """The decision and the annexes, which follow from the other files and from who signs the dossier."""
    roster = _roster(files[ROSTER])
    kept = [one for _, one in _receipts(files) if isinstance(one, Receipt)]
    runs = _runs(files, roster, kept)
    signers = {key: "who signed this dossier", roster.server: "the server"}
    signers |= {own: f"client {party}" for party, own in roster.clients.items()}
    report = files[AUDIT].decode(errors="replace") if AUDIT in files else None
    if report is not None:
        AuditReport.from_text(report)
    signer = None if report is None else report_signer(report)
    decided = _decision(files, runs, signers)
    facts = {
        "roster": {"fingerprint": roster.fingerprint, "clients": len(roster.clients)},
        "runs": {run.place: run.said for run in runs},
        "policies": {name: json.loads(files[name]) for name in _within(files, "policies/")},
        "receipts": [told_by(one, roster) for one in kept if any(run.is_of_it(one) for run in runs)],
        "receipts_of_other_sums": sum(not any(run.is_of_it(one) for run in runs) for one in kept),
        "bills": [_bill(files[name]) for name in _within(files, "ledgers/")],
        "audit": None if report is None else json.loads(report),
        "auditor": "nobody" if signer is None else signers.get(signer, signer.hex()),
        "decision": decided,
        "with_totals": [run.place for run in runs if TOTALS in run.files],
    }
    written = {name: text.encode() for name, text in annexes(facts).items()}
    return written if decided is None else {**written, DECISION: _json(decided)}


def _weights_alone(content: bytes, source: str) -> bytes:
    """A model's file without the totals that it may hold, as FedHiP's did that an earlier release wrote."""
    try:
        saved = model_from_bytes(content, source=source)
        return model_to_bytes(saved.learner, saved.model, classes=saved.classes)
    except AnalyticError as error:
        raise DossierError(f"a model that does not read may hold totals: {error}; name a whole run") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DossierError(f"cannot read {path}: {error.strerror or error}; name a file that is there") from error


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()
