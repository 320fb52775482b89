"""A dossier: all that a run left as evidence in one folder, signed, that verifies offline with a public key.

Every file stands in a manifest by its SHA-256, and the manifest is signed, so that a changed, missing or added file is
named. What can be recomputed is: the model from its totals, bit for bit; receipts against the roster; the chain of a
ledger; what the audit's hypotheses come to by the rule that was signed with them. What the files say of times is the
word of whoever signed. The audit's report is read as a file: nothing here knows how audits are made.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from analytic.array_file import line_of_json
from analytic.errors import AnalyticError
from analytic.model_files import model_from_bytes, model_to_bytes
from federation.audit_plan import BoundPlan, PlanError, read_plan
from federation.dossier_annexes import annexes
from federation.errors import FederationError
from federation.receipts import problems as receipt_problems
from federation.receipts import told_by
from federation.site.errors import SiteFileError, WireError
from federation.site.invitation import Invitation
from federation.site.roster import Roster
from federation.site.strict_models import read_toml, validated
from federation.totals import differences, totals_from_bytes
from secagg import IdentityKey, Receipt
from secagg.dp import Ledger, PrivacyError
from secagg.errors import SecureSumError
from secagg.primitives.identity import is_signed

KIND, VERSION = "analytic-secagg/dossier", 1
MANIFEST, SIGNATURE = "dossier.json", "dossier.sig"
ROSTER, PLAN, AUDIT, DECISION = "roster.toml", "audit/plan.json", "audit/audit.json", "audit/decision.json"
MODEL, TOTALS = "model.safetensors", "totals.safetensors"
NEEDED = (MODEL, "summary.json")
RUN_FILES = (*NEEDED, TOTALS, "progress.jsonl", "evaluation.json", "invitation")
"""Of a run's folder; the last three may be missing, and totals where they are kept from who gets the dossier."""

PUBLIC_TABLES = ("policy", "privacy", "journal")
"""Of a site's file: what it demands. Keys, paths of rows and folders are left out."""

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
        audit: the report of ``python -m simulations audit --json``.
        plan: what was signed before it with ``audit-plan``.
        with_totals: whether the totals go along, without which nobody can compute the model again; if not, models that
            hold some go without them.
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
                if (run / name).is_file() and (self.with_totals or name != TOTALS):
                    found[f"runs/{run.resolve().name}/{name}"] = _read(run / name)
            if not all((run / name).is_file() for name in NEEDED):
                raise DossierError(f"{run} must be the folder of a finished run, with a model and summary.json")
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
            roster = _roster(found[ROSTER])
            facts = _facts(found, {signer, roster.server, *roster.clients.values()})
            written = {name: text.encode() for name, text in annexes(facts).items()}
        except (ValueError, KeyError, TypeError, AttributeError, SecureSumError, PrivacyError) as error:
            raise DossierError(f"no dossier can be made of these files: {type(error).__name__}: {error}") from error
        if facts["decision"] is not None:
            found[DECISION] = _json(facts["decision"])
        return found | written

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
    if not wrong:
        yield from _contradictions(files, key)


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


def _contradictions(files: Mapping[str, bytes], key: bytes) -> Iterator[tuple[str, str]]:
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
    begun = dict[str, str]()
    for run in _runs(files):
        try:
            begun[run] = str(_summary(files, run).get("started", ""))
        except (ValueError, AttributeError) as error:
            yield f"{run}/summary.json", f"it is no summary of a run ({type(error).__name__})"
            continue
        yield from _about_run(run, files, roster, whole)
    for name in _within(files, "ledgers/"):
        try:
            _bill(files[name])
        except (SecureSumError, PrivacyError) as error:
            yield name, str(error)
    try:
        decision = _decision(files, {key, roster.server, *roster.clients.values()})
    except (DossierError, PlanError) as error:
        yield PLAN, str(error)
        return
    if decision is not None and DECISION in files and files[DECISION] != _json(decision):
        yield DECISION, "the signed rule gives another decision on the audit's report"
    for run, started in begun.items():
        if decision is not None and not _is_before(decision["signed_at"], started):
            yield (
                PLAN,
                f"it was signed at {decision['signed_at']}, by its word, and {run} began before: {started}",
            )


def _about_run(
    run: str, files: Mapping[str, bytes], roster: Roster, kept: Sequence[Receipt]
) -> Iterator[tuple[str, str]]:
    """Compute a run's model once more, and hold what its summary says against model, totals and roster."""
    model, totals, summary = f"{run}/{MODEL}", f"{run}/{TOTALS}", f"{run}/summary.json"
    try:
        saved, said = model_from_bytes(files[model], source=model), _summary(files, run)
        weights = hashlib.sha256(saved.learner.weights_bytes(saved.model)).hexdigest()
        if said["weights_sha256"] != weights:
            yield summary, f"it names weights {said['weights_sha256']}, and the model has {weights}"
        if (of := said.get("roster", "(none is named)")) != roster.fingerprint:
            yield ROSTER, f"{run} was of the roster {of}, and this is {roster.fingerprint}"
        if totals in files:
            results = totals_from_bytes(files[totals], source=totals)
            yield from ((totals, f"the model does not follow from it: {line}") for line in differences(saved, results))
            yield from ((totals, line) for line in receipt_problems(kept, results, roster) if "EVIDENCE" in line)
            yield from ((totals, line) for line in receipt_problems((), results, roster))
            if [list(one.survivors) for one in results] != said["survivors"]:
                yield summary, "it names other survivors than the totals"
    except (AnalyticError, FederationError, SecureSumError, ValueError, KeyError, TypeError) as error:
        yield model, f"{type(error).__name__}: {error}"


def _roster(content: bytes) -> Roster:
    return validated(Roster, tomllib.loads(content.decode()), SiteFileError, prefix=f"{ROSTER}: ")


def _within(files: Mapping[str, bytes], folder: str) -> list[str]:
    return sorted(name for name in files if name.startswith(folder))


def _runs(files: Mapping[str, bytes]) -> list[str]:
    return [name.removesuffix("/summary.json") for name in _within(files, "runs/") if name.endswith("/summary.json")]


def _summary(files: Mapping[str, bytes], run: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(files[f"{run}/summary.json"])
    return said


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


def _decision(files: Mapping[str, bytes], signers: Iterable[bytes]) -> dict[str, Any] | None:
    """What the hypotheses come to, with when they were fixed; None without a plan and a report."""
    if PLAN not in files:
        return None
    plan, when = read_plan(files[PLAN].decode(errors="replace"), signers=signers)
    if AUDIT not in files:
        raise DossierError("an audit plan without the audit's report decides nothing; add the report (--audit)")
    try:
        decided = plan.decide(json.loads(files[AUDIT]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DossierError(f"{AUDIT} is no report of an audit ({type(error).__name__})") from error
    bound = {run: _bound(files, run) for run in _runs(files)}
    return {**decided, "signed_at": when.isoformat(timespec="seconds"), "before": bound}


def _is_before(one: str, other: str) -> bool:
    """Whether a moment is before another, both with their offset from UTC; False where one is none."""
    try:
        return datetime.fromisoformat(one) < datetime.fromisoformat(other)
    except (ValueError, TypeError):
        return False


def _bound(files: Mapping[str, bytes], run: str) -> str:
    """Who shows that a run began after its plan was fixed: the sites that signed its first session, or one's word.

    Raises:
        DossierError: the run was bound to another plan, or its first session is not the one that was bound.
    """
    said, place = _summary(files, run), f"{run}/invitation"
    if said.get("plan") is None:
        return "the word of who signed the plan, and of the server: the run was bound to none"
    try:
        plan = BoundPlan(content=files[PLAN], nonce=bytes.fromhex(said["plan"]["nonce"]))
        invitation, roster = Invitation.from_bytes(files[place]), _roster(files[ROSTER])
        if plan.session != invitation.session:
            raise DossierError(f"{run} was bound to another plan, or its first session is another")
        configuration = invitation.agree(roster).protocol.digest
        totals = f"{run}/{TOTALS}"
        first = [one.receipt for one in totals_from_bytes(files[totals], source=totals)[:1]] if totals in files else []
        own = [Receipt.from_bytes(receipt) for receipt in first if receipt]  # others may be of another run
        session, *told = said["sums"][0]["session"], said["sums"][0]["configuration"]
        told += [one.statement.configuration.hex() for one in own]
        if session != invitation.session.hex() or not {*told} <= {None, configuration.hex()}:
            raise DossierError(f"the first sum of {run} is not the one that {place} invites to")
    except (KeyError, ValueError, TypeError, WireError, SecureSumError) as error:
        if isinstance(error, DossierError):
            raise
        raise DossierError(f"what {run} was bound to does not read ({place}): {error}") from error
    parties = {party for one in own for party in one.countersignatures}
    if not parties:
        return "the server's word: its first session commits to the plan, and no other party signed a receipt of it"
    return f"{len(parties)} parties beside the server: they countersigned a sum whose session commits to the plan"


def _facts(files: Mapping[str, bytes], signers: Iterable[bytes]) -> dict[str, Any]:
    """What annexes are filled from: all of it stands in other files of the dossier."""
    roster = _roster(files[ROSTER])
    kept = [one for _, one in _receipts(files) if isinstance(one, Receipt)]
    return {
        "roster": {"fingerprint": roster.fingerprint, "clients": len(roster.clients)},
        "runs": {run: _summary(files, run) for run in _runs(files)},
        "policies": {name: json.loads(files[name]) for name in _within(files, "policies/")},
        "receipts": [told_by(one, roster) for one in kept],
        "bills": [_bill(files[name]) for name in _within(files, "ledgers/")],
        "audit": json.loads(files[AUDIT]) if AUDIT in files else None,
        "decision": _decision(files, signers),
        "with_totals": [run for run in _runs(files) if f"{run}/{TOTALS}" in files],
    }


def _weights_alone(content: bytes, source: str) -> bytes:
    """A model's file without the totals that it may hold, as FedHiP's does."""
    try:
        saved = model_from_bytes(content, source=source)
        return model_to_bytes(saved.learner, saved.model, classes=saved.classes, with_totals=False)
    except AnalyticError as error:
        raise DossierError(f"a model that does not read may hold totals: {error}; name a whole run") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DossierError(f"cannot read {path}: {error.strerror or error}; name a file that is there") from error


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()
