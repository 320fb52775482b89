"""A dossier verifies anywhere with a public key, names whatever was changed, and is not made of what does not hold."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from support.dsse import statement_of
from support.rehearsed import edit_all, rehearse, run_config, with_budgets

from analytic.array_file import line_of_json
from analytic.fedhip import FedHiP
from analytic.learner import stated_fields
from analytic.model_files import load_model, model_from_bytes, model_to_bytes, save_model
from analytic_secagg.__main__ import main
from analytic_secagg.attestation import Statement, read_signed, sign, verify
from analytic_secagg.audit_decision import decide
from analytic_secagg.audit_plan import PLAN_TYPE, AuditPlan, BoundPlan, PlanError, SignedPlan, signed_plan
from analytic_secagg.audit_result import REPORT_TYPE, AuditResult, signed_report
from analytic_secagg.code_version import code_version
from analytic_secagg.datasets import bundled
from analytic_secagg.dossier import (
    DOSSIER_TYPE,
    STATEMENT,
    DossierError,
    Evidence,
    Sources,
    gaps,
    problems,
    read_statement,
)
from analytic_secagg.federation import Federation
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.totals import read_totals, totals_to_bytes
from analytic_secagg.trial import Trial
from secagg import IdentityKey, Receipt
from secagg.dp import Budget, Ledger
from simulations.__main__ import main as simulate
from simulations.audit.record import Audit

BEFORE = datetime.now(UTC) - timedelta(days=1)
LATE = (datetime.now(UTC) + timedelta(hours=1)).astimezone(timezone(timedelta(hours=-12)))
"""Later than every run, though its digits are smaller."""
PLAN = AuditPlan.model_validate(
    {
        "data_sha256": bundled("digits").sha256,
        "settings": {"learner": "afl"},
        "hypotheses": [
            {"attack": "lone_rows", "mode": "masked", "expected": "hidden"},
            {"attack": "lone_rows", "mode": "plain", "expected": "leaks"},
        ],
    }
)
NOTHING = "nothing found"


OF_AUDIT = {"learner": "afl", "format": "UQ5.11"}
WORKS = {"name": "lone_rows", "limit": "rebuilt_rows", "works": True}


def numbers(outcome: str) -> dict[str, Any]:
    """Numbers that an outcome follows from."""
    won = outcome in ("leak", "over the limit", "attack works")
    found = {"p_value": 1e-9 if won else 0.5, "value": 1.0 * won, "hits": 20 * won}
    return {**found, "trials": 20, "chance": 0.01, "noticed": 0.3}


def audit(plan: str, **outcomes: str) -> dict[str, Any]:
    """A report for a plan's file, as far as a dossier reads it."""
    found = {"masked": NOTHING, "plain": "attack works", "total": "within the limit", **outcomes}
    rules = {"masked": "must hide", "plain": "control", "total": "may be seen"}
    results = [
        {"attack": "lone_rows", "exposure": name, "rule": rules[name], "outcome": outcome, **numbers(outcome)}
        for name, outcome in found.items()
    ]
    bad = {one["outcome"] for one in results}
    decision = "failed" if "leak" in bad else "not decided" if "not decided" in bad else "passed"
    return {
        "schema": "analytic-secagg/audit",
        "schema_version": 5,
        "date": "2025-01-01",
        "code": code_version()._asdict(),
        "plan_sha256": hashlib.sha256(plan.encode()).hexdigest(),
        "dataset": {"sha256": PLAN.data_sha256, "features": 64},
        "settings": OF_AUDIT,
        "run": None,
        "rule": PLAN.rule,
        "attacks": [WORKS],
        "results": results,
        "two_worlds": [],
        "failures": [],
        "decision": decision,
    }


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A run over five sites, countersigned by them."""
    folder = tmp_path_factory.mktemp("dossier")
    trial = Trial.create(folder / "trial", bundled("digits"), n_sites=5, n_helpers=0, are_rows_public=True)
    own = trial.folder / "server"
    (own / "plan.json").write_text(signed_plan(PLAN, identity_of(trial), BEFORE))
    (own / "server.toml").write_text('plan = "plan.json"\n' + (own / "server.toml").read_text())
    rehearse(trial.folder, run_config(receipts="clients"))
    return trial


def identity_of(trial: Trial) -> IdentityKey:
    return IdentityKey(read_secret(trial.folder / "server" / "identity.key"))


@pytest.fixture(scope="module")
def key(ran: Trial) -> IdentityKey:
    return identity_of(ran)


@pytest.fixture
def filed(sources: Sources, key: IdentityKey, tmp_path: Path) -> Path:
    """A dossier of all that there is."""
    sources.write(tmp_path / "dossier", key)
    return tmp_path / "dossier"


@pytest.fixture
def sources(ran: Trial, tmp_path: Path) -> Sources:
    shutil.copy(ran.folder / "server" / "plan.json", tmp_path)
    plan = (tmp_path / "plan.json").read_text()
    (tmp_path / "audit.json").write_text(signed_report(audit(plan), identity_of(ran)))
    budget = Budget(epsilon=4.0, delta=1e-5, unit="record", adjacency="add-remove", population="client 1, rows.npz")
    Ledger.create(tmp_path / "ledger", budget)
    return Sources(
        folder=ran.folder / "server" / "models" / "rehearsal",
        roster=ran.folder / "server" / "roster.toml",
        sites=tuple(sorted(ran.folder.glob("site-*/site.toml"))),
        receipts=tuple(sorted(ran.folder.glob("site-*/results/*.receipt"))),
        ledgers=(tmp_path / "ledger",),
        audit=tmp_path / "audit.json",
        plan=tmp_path / "plan.json",
    )


def test_an_audit_of_other_columns_is_refused(key: IdentityKey, sources: Sources, tmp_path: Path) -> None:
    """Without a plan nothing else ties a report to the run, and its table would stand in the annexes."""
    own = {"sha256": PLAN.data_sha256, "features": 15}
    sources.audit.write_text(json.dumps(audit(SIGNED) | {"dataset": own, "plan_sha256": None}))
    with pytest.raises(DossierError, match="the run's, which have 64 features, and its rows have 15"):
        replace(sources, plan=None).write(tmp_path / "dossier", key)


def files_of(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def test_every_changed_missing_or_added_file_is_named(key: IdentityKey, sources: Sources, tmp_path: Path) -> None:
    folder = tmp_path / "dossier"
    names = sources.write(folder, key)
    assert list(problems(folder, key.public)) == []
    assert sorted(path.relative_to(folder).as_posix() for path in files_of(folder)) == list(names)
    for path in files_of(folder):
        name, content = path.relative_to(folder).as_posix(), path.read_bytes()
        for place in sorted({0, len(content) // 3, len(content) // 2, len(content) - 1}):
            path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            ((named, what), *_) = problems(folder, key.public)
            assert name == named or name in what, (name, place)
        for other in (content + b"\n", content[:-1]):
            path.write_bytes(other)
            ((named, what), *_) = problems(folder, key.public)
            assert name == named or name in what, name
        path.unlink()
        ((named, what), *_) = problems(folder, key.public)
        assert name == named or name in what
        path.write_bytes(content)
    (folder / "annexes" / "more.md").write_text("no file of it")
    assert list(problems(folder, key.public)) == [("annexes/more.md", "no file of this dossier")]
    (folder / "annexes" / "more.md").unlink()
    (folder / "annexes-2").symlink_to(folder / "annexes")
    assert list(problems(folder, key.public)) == [("annexes-2", "no file of this dossier")]
    (folder / "annexes-2").unlink()
    ((named, what),) = problems(folder, IdentityKey.generate().public)
    assert (named, "must have signed it" in what) == (STATEMENT, True)


@pytest.mark.parametrize(
    ("party", "said"), [('"../../escaped"', "of the party '../../escaped'"), ("1", "there already")]
)
def test_a_site_file_names_no_place_but_its_own(
    key: IdentityKey, sources: Sources, tmp_path: Path, party: str, said: str
) -> None:
    other = tmp_path / "site.toml"
    other.write_text(f"[client]\nparty = {party}\n")
    with pytest.raises(DossierError, match=said):
        replace(sources, sites=(*sources.sites, other)).write(tmp_path / "dossier", key)
    assert not (tmp_path / "dossier").exists()


NO_REPORT = "the audit's report must be what analytic-secagg audit --json writes, of version 5; its part"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"folder": "unfinished"},
            "unfinished must be the folder of a finished run, with model.safetensors, summary.json, invitation",
        ),
        ({"audit": "nowhere.json"}, "cannot read .*nowhere.json: No such file or directory; name a file that is"),
        ({"audit": "list.json"}, f"{NO_REPORT} 'whole' is missing or of another kind. Run the audit with this release"),
        ({"audit": "by-hand.json"}, f"{NO_REPORT} 'schema' is missing"),
        ({"audit": "by-hand.json", "plan": None}, f"{NO_REPORT} 'schema' is missing"),
        ({"audit": "version-2.json"}, f"{NO_REPORT} 'schema_version' is missing or of another kind"),
        ({"audit": "not-a-number.json"}, f"{NO_REPORT} 'results.0.p_value' is missing or of another kind"),
        ({"audit": "unscored.json"}, f"{NO_REPORT} 'results.0.hits' is missing or of another kind"),
        ({"plan": "spaced.json"}, "this is no signed audit plan .a DSSE envelope is needed as this product writes it"),
        ({"plan": "version-1.json"}, "this is no signed audit plan .*KeyError.*; sign one with audit-plan"),
        ({"plan": "bytes"}, "this is no signed audit plan"),
        ({"plan": "audit.json"}, "urn:analytic-secagg:audit-plan:3 is needed, and it is urn:analytic-secagg:audit-rep"),
        ({"audit": "plan.json"}, f"{NO_REPORT} 'schema' is missing or of another kind"),
        ({"audit": "changed.json"}, "the audit's report is in an envelope that does not verify: it was changed after"),
        ({"out": "list.json"}, "cannot write .*list.json: File exists; name a new folder"),
    ],
)
def test_it_is_not_made_of_what_it_cannot_be_made_of(
    key: IdentityKey, sources: Sources, tmp_path: Path, change: dict[str, str | None], said: str
) -> None:
    envelope = json.loads((tmp_path / "audit.json").read_text())
    envelope["signatures"][0]["keyid"] = STRANGER.public.hex()
    (tmp_path / "changed.json").write_text(line_of_json(envelope) + "\n")
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "list.json").write_text("[]")
    report = audit("")
    unscored = {**report, "results": [{**one, "hits": "many"} for one in report["results"]]}
    (tmp_path / "unscored.json").write_text(json.dumps(unscored))
    nan = {**report, "results": [{**one, "p_value": float("nan")} for one in report["results"]]}
    (tmp_path / "not-a-number.json").write_text(json.dumps(nan))
    (tmp_path / "by-hand.json").write_text(
        json.dumps({"settings": report["settings"], "results": report["results"][:2]})
    )
    (tmp_path / "version-2.json").write_text(json.dumps({**report, "schema_version": 2}))
    (tmp_path / "version-1.json").write_text(json.dumps({"plan": {}, "signed_at": "2026-01-01T00:00:00+00:00"}))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "spaced.json").write_text(signed_plan(PLAN, key, BEFORE).replace(",", ", ", 1))
    out = tmp_path / str(change.pop("out", "dossier"))
    named = {name: value and tmp_path / value for name, value in change.items()}
    with pytest.raises(DossierError, match=said):
        replace(sources, **named).write(out, key)
    assert not (tmp_path / "dossier").exists()


def test_it_is_not_made_of_two_receipts_that_convict_the_server(
    key: IdentityKey, sources: Sources, tmp_path: Path
) -> None:
    """Nor of one that the server did not sign."""
    told = Receipt.from_bytes(sources.receipts[0].read_bytes())
    other = replace(told.statement, total=bytes(32))
    twin = Receipt(statement=other, signature=key.sign("receipt", *other.parts))
    for name, receipt, said in (
        ("twin", twin, "receipts: EVIDENCE AGAINST THE SERVER: it signed two different totals of sum"),
        ("forged", replace(twin, signature=told.signature), "-forged: sum .* not signed by this server"),
    ):
        (tmp_path / name).write_bytes(receipt.to_bytes())
        with pytest.raises(DossierError, match=said):
            replace(sources, receipts=(*sources.receipts, tmp_path / name)).write(tmp_path / "dossier", key)
        assert not (tmp_path / "dossier").exists()


def test_no_key_or_path_of_a_site_is_in_it(ran: Trial, filed: Path) -> None:
    secrets = [path.read_bytes().strip() for path in ran.folder.rglob("*.key") if path.parent.name != "tls"]
    assert len(secrets) == 7
    whole = b"".join(path.read_bytes() for path in files_of(filed))
    for secret in secrets:
        assert secret not in whole
        assert bytes.fromhex(secret.decode()) not in whole
    assert f"{ran.folder}/site".encode() not in whole
    policy = (filed / "policies" / "1.txt").read_text()
    assert policy.startswith("learners: afl\n")
    assert "\nmin clients: 5\n" in policy


def resigned(folder: Path, name: str, content: bytes | None, key: IdentityKey, **predicate: object) -> None:
    """What a signer can do: other content (None for none), or another predicate, under a statement that fits."""
    signed = read_statement(folder, key.public)
    subjects = {one: digest for one, digest in signed.subjects.items() if one != name}
    if content is None:
        (folder / name).unlink()
    elif name != STATEMENT:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        subjects[name] = hashlib.sha256(content).hexdigest()
    again = replace(signed, subjects=subjects, predicate={**signed.predicate, **predicate})
    (folder / STATEMENT).write_text(sign(again, key))


def after(folder: Path, key: IdentityKey, changes: Mapping[str, bytes | None], **predicate: object) -> dict[str, str]:
    """The problems of a copy that the signer changed so."""
    copy = shutil.copytree(folder, folder.parent / "copy")
    for name, content in changes.items():
        resigned(copy, name, content, key, **predicate)
    found = dict(problems(copy, key.public))
    shutil.rmtree(copy)
    return found


def test_whoever_signs_cannot_make_what_is_recomputed_hold(key: IdentityKey, filed: Path) -> None:
    run = "run"
    totals = read_totals(filed / run / "totals.safetensors")
    changed = totals[0].total.copy()
    changed[0] += 1
    summary = json.loads((filed / run / "summary.json").read_text())
    receipt, *others = sorted((filed / "receipts").iterdir())
    (ledger,) = (filed / "ledgers").iterdir()
    cases: dict[str, bytes | None] = {
        f"{run}/totals.safetensors": totals_to_bytes([replace(totals[0], total=changed)]),
        f"{run}/summary.json": json.dumps(summary | {"weights_sha256": "0" * 64}).encode(),
        f"receipts/{receipt.name}": receipt.read_bytes()[:-1] + bytes([receipt.read_bytes()[-1] ^ 1]),
        f"receipts/{others[0].name}": b"no receipt",
        f"ledgers/{ledger.name}": ledger.read_bytes().replace(b"4.0", b"5.0"),
        f"{run}/model.safetensors": b"no model",
        "roster.toml": (filed / "roster.toml").read_bytes().replace(b"server = ", b"servers = "),
        "annexes/dpia.md": b"# Data protection impact assessment\n\nNo risk remains.\n",
        "annexes/satre.md": None,
        "annexes/more.md": b"no risk remains",
        "audit/decision.json": b"{}\n",
        f"{run}/invitation": b"no invitation",
        f"{run}/more.json": b"{}",
        "audit/plan.json": signed_plan(PLAN, STRANGER, BEFORE).encode(),
        "audit/audit.json": b"{}",
    }
    of_summary = {
        'it states {"survivors":[[1,2]]}, and from totals follows': {**summary, "survivors": [[1, 2]]},
        'it states {"roster":"another one"}, and from its settings follows': {**summary, "roster": "another one"},
        'states {"roster":null}, and': {name: said for name, said in summary.items() if name != "roster"},
        "it cannot be verified: ValueError: it is no JSON object": [],
    }
    for said, value in of_summary.items():
        found = after(filed, key, {f"{run}/summary.json": (line_of_json(value) + "\n").encode()})
        assert any(said in line for line in found.values()), (said, found)
    for name in ("model.safetensors", "invitation", "summary.json"):
        found = after(filed, key, {f"{run}/{name}": None})
        assert found[f"{run}/{name}"].startswith("it cannot be verified: KeyError")
    said = "an audit plan without the audit's report decides nothing; add the audit's report"
    assert after(filed, key, {"audit/audit.json": None}) == {"audit/plan.json": said}
    for name, content in cases.items():
        found = after(filed, key, {name: content})
        assert name in found, found


def test_whoever_signs_cannot_claim_in_the_statement_what_does_not_follow(key: IdentityKey, filed: Path) -> None:
    signed = read_statement(filed, key.public)
    run, audit_ = signed.predicate["run"], signed.predicate["audit"]
    assert (run["mode"], run["privacy"], audit_["decision"]) == ("masked", None, "passed")
    for claim in (
        {"run": {**run, "mode": "committee"}},
        {"run": {**run, "privacy": PrivacyPlan(epsilon=0.1, min_noise_shares=3).to_public()}},
        {"run": {**run, "weights_sha256": "0" * 64}},
        {"audit": {**audit_, "hypotheses": []}},
        {"audit": None},
        {"anonymous": True},
    ):
        found = after(filed, key, {STATEMENT: b""}, **claim)
        assert found == {STATEMENT: "its predicate is not what follows from the files"}
    other = Statement(subjects=signed.subjects, predicate_type="urn:analytic-secagg:dossier:9", predicate={})
    (filed / STATEMENT).write_text(sign(other, key))
    ((name, said),) = problems(filed, key.public)
    assert (name, "verify it with a release of this product that reads that version" in said) == (STATEMENT, True)


def test_a_verifier_with_nothing_of_ours_reads_the_statement(
    key: IdentityKey, sources: Sources, tmp_path: Path
) -> None:
    folder = tmp_path / "dossier"
    names = sources.write(folder, key)
    for place, kind in ((STATEMENT, DOSSIER_TYPE), ("audit/plan.json", PLAN_TYPE), ("audit/audit.json", REPORT_TYPE)):
        statement = statement_of((folder / place).read_text(), key.public)
        assert statement["predicateType"] == kind
        if place == STATEMENT:
            named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
            assert named.keys() == {*names} - {STATEMENT}
            assert named == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in named}
            assert statement["predicate"]["run"]["mode"] == "masked"
            assert statement["predicate"]["audit"]["decision"] == "passed"


def as_plain(summary: dict[str, Any]) -> None:
    summary["mode"] = summary["settings"]["mode"] = "plain"


def with_noise(summary: dict[str, Any]) -> None:
    summary["settings"].update(epsilon=0.1, unit="client")
    plan = RunSettings.of(run_config(epsilon=0.1, unit="client")).privacy
    assert plan is not None
    summary["privacy"] = plan.to_public()


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in a JSON document that holds no others, with its place."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        yield path, value
    for name, one in inner or ():
        yield from leaves(one, (*path, name))


def with_other(value: Any, path: tuple[Any, ...]) -> Any:
    """The document with another value of the same kind at a place."""
    if path:
        one = value[path[0]]
        changed = with_other(one, path[1:])
        return (
            {**value, path[0]: changed}
            if isinstance(value, dict)
            else [*value[: path[0]], changed, *value[path[0] + 1 :]]
        )
    if isinstance(value, str):
        return ("1" if value.startswith("0") else "0") + value[1:]
    return not value if isinstance(value, bool) else 1 if value is None else value + 1


WORDS = {("seconds",), ("code", "version"), ("code", "sha256")}
WITHOUT_EFFECT = {"evaluate", "delta", "noise_survivors", "noise_colluders", "client_rows", "nodes", "join_seconds"}
WITHOUT_EFFECT |= {"round_seconds", "at_once", "allow_low_rank"}


@pytest.mark.parametrize("without_totals", [False, True])
def test_no_value_of_a_summary_can_be_another_but_the_servers_word(
    key: IdentityKey, sources: Sources, without_totals: bool
) -> None:
    """Whoever signs may make annexes and claims again, so only what contradicts other files shows a change.

    The run has no noise, waits for nobody and was not evaluated, so that settings of these have no effect on it.
    """
    files = replace(sources, without_totals=without_totals).evidence(key.public).files
    summary = json.loads(files["run/summary.json"])
    unnoticed, decisions = set(), set()
    for path, _ in leaves(summary):
        other = json.dumps(with_other(summary, path)).encode()
        evidence = Evidence(files={**files, "run/summary.json": other}, signer=key.public)
        if not list(evidence.contradictions()):
            unnoticed.add(path)
            decisions.add((path[0], evidence.claims["audit"]["decision"]))
    assert len(list(leaves(summary))) > 60
    checks = {path for path in unnoticed if path[2:3] == ("concerns",)}
    assert bool(checks) == without_totals
    assert unnoticed - checks == WORDS | {("settings", name) for name in WITHOUT_EFFECT}
    assert {decision for name, decision in decisions if name == "code"} == {"not decided"}


STATEMENTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "another mode, and settings that fit": (as_plain, 'states {"mode":"plain"}, and from the invitation follows'),
    "noise": (
        lambda said: said.update(privacy=PrivacyPlan(epsilon=0.1, min_noise_shares=3).to_public()),
        'from its settings follows {"privacy":null}',
    ),
    "noise, and settings that fit": (with_noise, 'from the invitation follows {"privacy":null}'),
    "fewer survivors needed": (lambda said: said["settings"].update({"min_survivors": 5}), '{"min_survivors":3}'),
    "a smaller vector": (lambda said: said["sums"][0].update(segments=[]), 'of sum 1 it states {"segments":[]}'),
    "no sum": (lambda said: said.update(sums=[]), "it states 0 sums, and totals.safetensors holds 1"),
    "no account of sums": (lambda said: said.pop("sums"), "it cannot be verified: KeyError: 'sums'"),
    "a claim of its own": (lambda said: said.update(epsilon=0.1), "no summary states 'epsilon'"),
    "a claim about a sum": (lambda said: said["sums"][0].update(noise=1), "of sum 1 no summary states 'noise'"),
}


@pytest.mark.parametrize("case", STATEMENTS)
def test_a_summary_states_nothing_but_what_the_runs_own_files_give(
    key: IdentityKey, sources: Sources, tmp_path: Path, case: str
) -> None:
    """Nor is a dossier made of one that states another mode, noise or words of gates."""
    change, said = STATEMENTS[case]
    run = shutil.copytree(sources.folder, tmp_path / "rehearsal")
    summary = json.loads((run / "summary.json").read_text())
    assert summary["sums"][0]["concerns"], "gates must have said something that can be left out"
    change(summary)
    (run / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(DossierError) as refused:
        replace(sources, folder=run, plan=None).write(tmp_path / "dossier", key)
    assert said in str(refused.value)
    assert "run/summary.json: " in str(refused.value)


def test_without_totals_a_sum_states_no_other_names_and_no_annex_repeats_the_checks(
    key: IdentityKey, sources: Sources, tmp_path: Path
) -> None:
    run, without = shutil.copytree(sources.folder, tmp_path / "rehearsal"), tmp_path / "without"
    summary = json.loads((run / "summary.json").read_text())
    other = replace(sources, folder=run, without_totals=True)

    def said(sum_of_run: dict[str, Any]) -> str:
        (run / "summary.json").write_text(json.dumps({**summary, "sums": [sum_of_run]}))
        shutil.rmtree(without, ignore_errors=True)
        other.write(without, key)
        return (without / "annexes" / "dpia.md").read_text()

    (first,) = summary["sums"]
    names = ([["gram", 1, 1], *first["segments"][1:]], "segments"), ("0" * 64, "context"), ([1, 2, 3], "survivors")
    for value, name in names:  # of the first sum all of this follows from other files
        with pytest.raises(DossierError, match=f'it states {{"{name}":'):
            said({**first, name: value})
    with pytest.raises(DossierError, match="of sum 1 no summary states 'noise'"):
        said({**first, "noise": "epsilon 0.1"})
    assert "| sites | 5 in the roster; in the totals: 5 (the server's word) |" in said(first)
    word = "so the disclosure checks are the server's word and were not repeated"
    assert (word in (told := said(first)), "Could somebody who knows a row find out" in told) == (True, True)
    forged = said({**first, "concerns": []})
    assert (word in forged, "The server states no finding" in forged) == (True, True)
    assert "No disclosure check had a finding" not in forged
    words = "none |\n\n## Decision\n\u2028<b>No risk</b> remains. **[to fill in: ...]**"
    forged = said({**first, "concerns": [{"gate": "rank", "refuses": False, "message": words}]})
    assert not any(line.startswith("## Decision") for line in forged.splitlines())
    assert "none \\|  ## Decision  \\<b\\>No risk\\</b\\> remains. \\*\\*\\[to fill in: ...\\]\\*\\* |" in forged


def test_a_model_and_an_invitation_are_of_the_configuration_that_settings_give(
    key: IdentityKey, sources: Sources, tmp_path: Path
) -> None:
    run = shutil.copytree(sources.folder, tmp_path / "rehearsal")
    summary = json.loads((run / "summary.json").read_text())
    summary["settings"]["ridge"] = 100.0
    (run / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(DossierError) as refused:
        replace(sources, folder=run, plan=None, without_totals=True).write(tmp_path / "dossier", key)
    for name in ("model.safetensors", "invitation"):
        assert f"run/{name}: its learner has another configuration than the settings" in str(refused.value)


def test_a_dossier_of_other_code_says_so_where_texts_differ(key: IdentityKey, filed: Path) -> None:
    resigned(filed, STATEMENT, b"", key, code=OLD)
    assert list(problems(filed, key.public)) == []
    found = after(filed, key, {"annexes/dpia.md": b"# Written in other words\n"})
    assert found.keys() == {"annexes/dpia.md", STATEMENT}
    assert "'version': '0.0.9'" in found[STATEMENT]


def test_an_invitation_that_was_written_again_is_not_what_the_parties_signed(
    key: IdentityKey, sources: Sources, tmp_path: Path
) -> None:
    """A server that made a plain sum look masked would have to have receipts of it."""
    run = shutil.copytree(sources.folder, tmp_path / "rehearsal")
    summary, first = (
        json.loads((run / "summary.json").read_text()),
        TrainingProposal.from_bytes((run / "invitation").read_bytes()),
    )
    as_plain(summary)
    again = replace(first, mode="plain")
    (run / "invitation").write_bytes(again.to_bytes())
    (run / "summary.json").write_text(json.dumps(summary))
    other = replace(sources, folder=run, plan=None)
    with pytest.raises(DossierError, match="the first total's receipt is of another sum than it invites"):
        other.write(tmp_path / "dossier", key)
    roster = Roster.read(sources.roster)
    summary["sums"][0]["configuration"] = Session.of(again, roster).protocol.digest.hex()
    (run / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(DossierError, match="the first total's receipt is of another sum than it invites"):
        other.write(tmp_path / "dossier", key)
    replace(other, without_totals=True).write(tmp_path / "dossier", key)
    assert list(problems(tmp_path / "dossier", key.public)) == []
    listed = list(gaps(tmp_path / "dossier"))
    assert [what for name, what in listed if name.startswith("receipts/")] == [
        "of a sum that this run does not name"
    ] * 5
    assert (
        "run/invitation",
        "the server's word: no other party countersigned a receipt of this sum",
    ) in listed
    measures = (tmp_path / "dossier" / "annexes" / "dpia.md").read_text()
    assert "receipts of this run's sums verify" not in measures
    assert "No site's receipts of this run's sums are in this dossier" in measures
    assert "5 receipts are of other sums and show nothing about this run" in measures


KINDS: dict[str, tuple[dict[str, Any], str]] = {
    "several sums in a series": ({"learner": "deepafl", "options": "n_layers=2 d_phi=16 d_f=8"}, '"deepafl"'),
    "several sums, each signed": (
        {"learner": "deepafl", "options": "n_layers=2 d_phi=16 d_f=8", "receipts": "clients"},
        '"deepafl"',
    ),
    "columns made alike": ({"feature-format": "agreed"}, '"agreed-afl"'),
    "a chosen penalty": ({"ridge": "cv", "allow-low-rank": True}, '"chosen-afl"'),
    "an evaluation": ({"evaluate": True}, '"afl", "evaluation-of-classes"'),
    "noise": ({"epsilon": 8.0, "noise-survivors": 3, "noise-colluders": 1}, '"afl"'),
    "a committee": ({"mode": "committee", "receipts": "helpers"}, '"afl"'),
}


@pytest.mark.parametrize("case", KINDS)
def test_every_kind_of_run_is_recomputed(tmp_path: Path, case: str) -> None:
    config, learners = KINDS[case]
    trial = Trial.create(tmp_path / "trial", bundled("digits"), n_sites=5, n_helpers=4, are_rows_public=True)
    edit_all(trial, ('learners = ["afl"]', f"learners = [{learners}]"))
    if case == "noise":
        with_budgets(trial)
    rehearse(trial.folder, run_config(**config))
    own, key = trial.folder / "server", identity_of(trial)
    whole = Sources(folder=own / "models" / "rehearsal", roster=own / "roster.toml")
    for with_totals in (True, False):
        folder = tmp_path / f"dossier-{with_totals}"
        replace(whole, without_totals=not with_totals).write(folder, key)
        agreed = [what for _, what in gaps(folder) if what.startswith("its configuration is not in the roster")]
        assert bool(agreed) == (case not in ("an evaluation", "a committee"))  # the roster names that of plain AFL
        assert list(problems(folder, key.public)) == []
        several = [what for name, what in gaps(folder) if what.startswith("mode and noise are verified for sum 1 of")]
        assert bool(several) == (case.startswith("several") or case in ("columns made alike", "noise"))
        annex = (folder / "annexes" / "nist-sp-800-226.md").read_text()
        assert ("| epsilon, all sums of the run together | 8.0 |" in annex) == (case == "noise")
        assert ("| delta times the most rows | 1; it should be well below 1 |" in annex) == (case == "noise")
        assert ("The run has no differential privacy" in annex) == (case != "noise")
        assert ("The helpers 101, 102, 103, 104 must not collude" in annex) == (case == "a committee")


def test_what_is_left_out_is_listed(key: IdentityKey, sources: Sources, tmp_path: Path) -> None:
    """Nobody gets the counts of an evaluation, which are a total, or the log that repeats them."""
    run = shutil.copytree(sources.folder, tmp_path / "rehearsal")
    (run / "evaluation.json").write_text("{}")
    summary = json.loads((run / "summary.json").read_text())
    for with_totals in (True, False):
        folder = tmp_path / f"dossier-{with_totals}"
        replace(sources, folder=run, without_totals=not with_totals).write(folder, key)
        totals = {"totals.safetensors"} if with_totals else set()
        there = {path.name for path in (folder / "run").iterdir()}
        assert there == {"model.safetensors", "summary.json", "invitation"} | totals
        listed = dict(gaps(folder))
        left = {name for name, what in listed.items() if "left out" in what}
        assert listed.keys() - left == {
            "roster.toml", STATEMENT, "audit/audit.json", "run/summary.json",
            *(f"policies/{party}.txt" for party in range(1, 6)),
        }  # fmt: skip
        assert left == (set() if with_totals else {"run/totals.safetensors"})
    bare = Sources(folder=run, roster=sources.roster)
    bare.write(tmp_path / "bare", key)
    listed = dict(gaps(tmp_path / "bare"))
    assert f"has the fingerprint {summary['roster']}" in listed["roster.toml"]
    assert {"policies/", "receipts/", "ledgers/", "audit/plan.json", "audit/audit.json"} <= listed.keys()


def test_whoever_signs_cannot_make_it_hold_a_model_of_other_totals(key: IdentityKey, filed: Path) -> None:
    """The summary names the weights of that model, so model and summary agree."""
    folder, run = filed, "run"
    learner = model_from_bytes((folder / run / "model.safetensors").read_bytes()).learner
    (total,) = read_totals(folder / run / "totals.safetensors")
    changed = total.total.copy()
    changed[np.argmax(changed)] += 1
    federation: Federation[Any] = Federation(learner, release=None)
    federation.take(replace(total, total=changed))
    summary = json.loads((folder / run / "summary.json").read_text())
    summary["weights_sha256"] = hashlib.sha256(learner.weights_bytes(federation.model)).hexdigest()
    resigned(folder, f"{run}/model.safetensors", model_to_bytes(learner, federation.model), key)
    resigned(folder, f"{run}/summary.json", json.dumps(summary).encode(), key)
    (name, line), *annexes = problems(folder, key.public)
    assert all(one == "it is not what follows from the other files" for _, one in annexes)
    assert name == f"{run}/totals.safetensors"
    assert line.startswith("the model does not follow from it: ")


AUDITOR, STRANGER = IdentityKey.generate(), IdentityKey.generate()
SIGNERS = {AUDITOR.public: "client 3"}
SIGNED = signed_plan(PLAN, AUDITOR, BEFORE)
OF_RUN = RunSettings.of(run_config()).model_dump(mode="json")
RUN = {
    "mode": "masked",
    "settings": OF_RUN,
    "code": code_version()._asdict(),
    "plan": BoundPlan(content=b"").public,
    "weights_sha256": "1" * 64,
}


def decided(
    report: dict[str, Any], run: Mapping[str, object] = RUN, *, by: IdentityKey | None = AUDITOR, plan: str = SIGNED
) -> tuple[str, list[str]]:
    """The decision, and what is missing for it."""
    text = json.dumps(report) if by is None else signed_report(report, by)
    found = decide(SignedPlan.from_text(plan), AuditResult.from_text(text), signers=SIGNERS, run={**RUN, **run})
    return found["decision"], found["missing"]


def test_hypotheses_are_decided_by_the_rule_that_was_signed_before() -> None:
    assert decided(audit(SIGNED)) == ("passed", [])
    assert decided(audit(SIGNED, masked="leak"))[0] == "failed"
    assert decided(audit(SIGNED, plain=NOTHING))[0] == "failed"
    assert decided(audit(SIGNED, masked="not decided"))[0] == "not decided"
    assert decided({**audit(SIGNED), "results": []})[0] == "not decided"


def changed(**changes: object) -> list[dict[str, Any]]:
    """The results of a report, the one on masked messages changed."""
    return [{**one, **(changes if one["exposure"] == "masked" else {})} for one in audit(SIGNED)["results"]]


OTHER_DATA = PLAN.model_copy(update={"data_sha256": bundled("iris").sha256})
OLD = {"version": "0.0.9", "sha256": "0" * 64}
LOOSE = {**PLAN.rule, "family_error": 1e-9}
REPORTS: dict[str, tuple[dict[str, Any], str]] = {
    "one that says itself that not all is well": ({"decision": "not decided"}, "its decision is not decided, and"),
    "an attack that lost its control": (
        {"attacks": [{**WORKS, "works": False}]}, "attacks that lost where they must win: lone_rows"
    ),
    "no controls": ({"attacks": [{**WORKS, "works": None}]}, "no attack of the report won where it must"),
    "a part that failed": ({"failures": ["masked: no end"]}, "parts that failed: masked: no end"),
    "other rows": (
        {"dataset": {"sha256": OTHER_DATA.data_sha256, "features": 64}},
        "is about data 0d5cc353d1228906, and the audit",
    ),
    "other code": ({"code": OLD}, "and the audit is of version 0.0.9, code 0000000000000000"),
    "other code of the same version": ({"code": {**OLD, "version": code_version().version}}, "the plan is about"),
    "no plan": ({"plan_sha256": None}, "the report was made for no plan, and this is the plan"),
    "another plan": ({"plan_sha256": "0" * 64}, "the report was made for the plan 0000000000000000, and this is"),
    "another learner": (
        {"settings": {**OF_AUDIT, "learner": "safle"}}, "the plan sets learner to 'afl', and the audit has 'safle'"
    ),
    "a looser rule": ({"rule": LOOSE}, "'family_error': 1e-09"),
    "another run": ({"run": {"weights_sha256": "0" * 64}}, "the totals and the model of another run"),
    "a leak that is called nothing": (
        {"results": changed(p_value=1e-9)}, "outcomes that do not follow from their numbers: lone_rows on masked"
    ),
    "an attack that could have noticed nothing": (
        {"results": changed(outcome="not decided")}, "its decision is passed, and not decided follows"
    ),
    "a leak under a decision that all is well": (
        {"results": changed(outcome="leak", p_value=1e-9)}, "results that leak, or show more than their limit"
    ),
    "a total over its limit": (
        {"results": [{**one, "value": 0.5} if one["exposure"] == "total" else one for one in audit(SIGNED)["results"]]},
        "outcomes that do not follow from their numbers: lone_rows on total",
    ),
    "noise that is less than claimed": (
        {"two_worlds": [{"epsilon": 8.0, "outcome": "refuted"}]}, "claims of noise that were refuted: epsilon 8"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REPORTS)
def test_a_report_that_does_not_fit_decides_nothing_and_the_reason_is_named(case: str) -> None:
    change, reason = REPORTS[case]
    decision, missing = decided({**audit(SIGNED), **change})
    assert decision != "passed"
    assert reason in "; ".join(missing)


def signed_payload(envelope: str) -> bytes:
    return base64.b64decode(json.loads(envelope)["payload"])


def test_a_report_that_nobody_vouches_for_decides_nothing() -> None:
    def missing(decision: tuple[str, list[str]]) -> str:
        assert decision[0] == "not decided"
        return "; ".join(decision[1])

    assert "nobody signed the report" in missing(decided(audit(SIGNED), by=None))
    stranger = missing(decided(audit(SIGNED), by=STRANGER))
    assert f"the report is signed by {STRANGER.public.hex()}, and it must be signed by client 3" in stranger
    text = signed_report(audit(SIGNED, masked="leak"), AUDITOR)
    better = base64.b64encode(signed_payload(text).replace(b'"outcome":"leak"', b'"outcome":"nothing found"')).decode()
    for changed in (
        line_of_json({**json.loads(text), "payload": better}) + "\n",
        text.replace(",", ", ", 1),
        text[:-1],
    ):
        with pytest.raises(PlanError, match="in an envelope that does not verify"):
            AuditResult.from_text(changed)
    about_others = replace(read_signed(text)[0], subjects={"rows": OTHER_DATA.data_sha256})
    with pytest.raises(PlanError, match="its subjects are not the rows and the plan that it states"):
        AuditResult.from_text(sign(about_others, AUDITOR))
    about_others = replace(read_signed(SIGNED)[0], subjects={"rows": OTHER_DATA.data_sha256})
    with pytest.raises(PlanError, match="its subject is not the rows that it states"):
        SignedPlan.from_text(sign(about_others, AUDITOR))
    as_plan = replace(read_signed(text)[0], predicate_type=PLAN_TYPE)
    assert AuditResult.from_text(sign(as_plan, AUDITOR)).signer is None
    named = signed_plan(PLAN.model_copy(update={"auditor": STRANGER.public.hex()}), AUDITOR, BEFORE)
    assert decided(audit(named), by=STRANGER, plan=named) == ("passed", [])
    assert "must be signed by the auditor whom the plan names" in missing(decided(audit(named), plan=named))


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({"code": OLD}, "the run states other code, or none"),
        ({"code": None}, "the run states other code, or none"),
        ({"settings": {**OF_RUN, "learner": "logistic"}}, "the audit has learner 'afl', and the run has 'logistic'"),
        ({"settings": {**OF_RUN, "options": "folds=50"}}, "options '', and the run has 'folds=50'"),
        ({"settings": {**OF_RUN, "ridge": "cv"}}, "ridge none, and the run has 'cv'"),
        ({"settings": {**OF_RUN, "feature_format": "agreed"}}, "feature_format 'UQ5.11', and the run has 'agreed'"),
        ({"settings": {**OF_RUN, "target_format": "Q3.12"}}, "target_format 'labels', and the run has 'Q3.12'"),
        ({"plan": None}, "the run was bound to no plan: name the plan in server.toml before the run begins"),
        ({"mode": "committee"}, "the run is over committee, and no hypothesis says that something is hidden in"),
        ({"mode": "plain"}, "the run is over plain, and no hypothesis says that something is hidden in this mode"),
    ],
)
def test_a_report_about_another_run_decides_nothing(run: dict[str, Any], reason: str) -> None:
    decision, (missing,) = decided(audit(SIGNED), run)
    assert (decision, reason in missing) == ("not decided", True), missing


def test_a_ridge_that_a_report_states_is_held_against_the_runs() -> None:
    assert decided({**audit(SIGNED), "settings": {**OF_AUDIT, "ridge": 1.0}}) == ("passed", [])
    decision, (missing,) = decided({**audit(SIGNED), "settings": {**OF_AUDIT, "ridge": 0.5}})
    assert decision == "not decided"
    assert missing == "the audit has ridge 0.5, and the run has 1.0"
    decision, missed = decided({**audit(SIGNED), "settings": {"learner": "afl"}})
    assert decision == "not decided"
    assert missed == ["the audit has feature_format none, and the run has 'UQ5.11'"]


def test_a_plan_that_nobody_may_sign_or_that_came_late_is_refused(
    key: IdentityKey, sources: Sources, tmp_path: Path
) -> None:
    late = replace(sources, plan=tmp_path / "late.json", folder=unbound(sources, tmp_path))
    (tmp_path / "late.json").write_text(signed_plan(PLAN, key, LATE))
    with pytest.raises(DossierError, match=r"audit/plan.json: it was signed at .* and the run began before"):
        late.write(tmp_path / "late", key)
    (tmp_path / "plan.json").write_text(signed_plan(PLAN, STRANGER, BEFORE))
    with pytest.raises(
        DossierError, match=f"signed by {STRANGER.public.hex()}, which is no key of the roster; have a party"
    ):
        sources.write(tmp_path / "stranger", key)
    assert not (tmp_path / "late").exists()
    assert not (tmp_path / "stranger").exists()


def test_a_report_by_hand_is_filed_undecided_and_no_annex_rests_on_it(
    key: IdentityKey, sources: Sources, tmp_path: Path
) -> None:
    (tmp_path / "audit.json").write_text(json.dumps(audit((tmp_path / "plan.json").read_text())))
    sources.write(tmp_path / "dossier", key)
    decision = read_statement(tmp_path / "dossier", key.public).predicate["audit"]
    assert (decision["decision"], decision["report_signed_by"]) == ("not decided", "nobody")
    text = (tmp_path / "dossier" / "annexes" / "dpia.md").read_text()
    assert "The audit's decision is **not decided**. The report is signed by nobody." in text
    assert "- Missing for a decision: nobody signed the report" in text
    assert "No decision rests on the report. Its results are:" in text
    resigned(tmp_path / "dossier", STATEMENT, b"", key, audit={**decision, "decision": "passed", "missing": []})
    assert dict(problems(tmp_path / "dossier", key.public)) == {
        STATEMENT: "its predicate is not what follows from the files"
    }


def test_the_audit_signs_what_a_dossier_decides(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    key = ran.folder / "server" / "identity.key"
    words = ["audit", "--attacks", "lone_rows", "--modes", "plain,masked", "--cohorts", "2", "--epsilon", "none"]
    words += ["--clients", "5", "--rows", "20", "--trials", "3", "--json", str(tmp_path / "audit.json")]
    assert simulate([*words, "--plan", str(sources.plan), "--sign", str(key)]) == 0
    report = verify((tmp_path / "audit.json").read_text(), identity_of(ran).public)
    jsonschema.validate(report.predicate, Audit.schema_of_report())
    plan = hashlib.sha256((tmp_path / "plan.json").read_bytes()).hexdigest()
    assert report.subjects == {"plan": plan, "rows": PLAN.data_sha256}
    sources.write(tmp_path / "dossier", identity_of(ran))
    decision = read_statement(tmp_path / "dossier", identity_of(ran).public).predicate["audit"]
    assert (decision["decision"], decision["missing"]) == ("passed", [])
    assert decision["report_signed_by"] == "the server"
    assert list(problems(tmp_path / "dossier", identity_of(ran).public)) == []


def test_an_audit_of_another_plan_ends_before_its_first_attack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.json").write_text(signed_plan(OTHER_DATA, AUDITOR, BEFORE))
    report = tmp_path / "audit.json"
    words = ["audit", "--learner", "safle", "--plan", str(tmp_path / "plan.json")]
    assert simulate([*words, "--json", str(report)]) == 2
    said = capsys.readouterr().err
    assert "this audit must be the one of its plan: the plan is about data" in said
    assert "the plan sets learner to 'afl', and the audit has 'safle'" in said
    assert not report.exists() or not report.read_text()
    assert simulate(words) == 2
    assert "--sign and --plan are about the report of --json" in capsys.readouterr().err


def unbound(sources: Sources, folder: Path) -> Path:
    """The same run, whose server says that it was bound to no plan."""
    run = shutil.copytree(sources.folder, folder / "unbound" / "rehearsal")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "plan": None}))
    return run


def test_the_sites_signatures_show_that_the_plan_came_first(key: IdentityKey, sources: Sources, tmp_path: Path) -> None:
    def before(name: str, decided: str = "passed", **change: object) -> str:
        replace(sources, **change).write(tmp_path / name, key)
        decision = read_statement(tmp_path / name, key.public).predicate["audit"]
        assert list(problems(tmp_path / name, key.public)) == []
        assert decision["decision"] == decided
        return str(decision["plan_came_first"])

    assert re.match("[45] parties beside the server: they countersigned a sum whose session commits", before("bound"))
    assert before("alone", receipts=(), without_totals=True).startswith("the server's word: its first session commits")
    assert before("word", "not decided", folder=unbound(sources, tmp_path)) == "nobody: the run was bound to no plan"
    assert re.match("[45] parties beside the server", before("receipts", without_totals=True))
    other = PLAN.model_copy(update={"rule": {**PLAN.rule, "family_error": 1e-5}})
    (tmp_path / "plan.json").write_text(signed_plan(other, key, BEFORE))
    with pytest.raises(DossierError, match="the run was bound to another plan, or its first session is another"):
        before("swapped")


def told(summary: dict[str, Any], **otherwise: str | None) -> dict[str, Any]:
    """The first sum of a summary, with other words."""
    return {**summary["sums"][0], **otherwise}


def test_a_server_cannot_bind_a_run_to_a_plan_afterwards(key: IdentityKey, filed: Path, tmp_path: Path) -> None:
    run = filed / "run"
    summary, invitation = json.loads((run / "summary.json").read_text()), (run / "invitation").read_bytes()
    plan = BoundPlan(content=(tmp_path / "plan.json").read_bytes())
    again = replace(TrainingProposal.from_bytes(invitation), session=plan.session).to_bytes()
    cases: tuple[tuple[dict[str, object], bytes, str], ...] = (
        ({"plan": plan.public}, invitation, "was bound to another plan"),
        ({"plan": plan.public}, again, "the first sum of the run is not the one that"),
        ({"plan": plan.public, "sums": [told(summary, configuration=None)]}, again, "is not the one that"),
        ({"plan": plan.public, "sums": [told(summary, session=plan.session.hex())]}, again, "is not the one that"),
        ({"sums": [told(summary, session="00" * 32, configuration=None)]}, invitation, "is not the one that"),
        ({"plan": {}}, invitation, "does not read"),
        ({"plan": {**summary["plan"], "sha256": "0" * 64}}, invitation, "was bound to another plan"),
        ({}, b"no invitation", "does not read"),
    )
    for change, content, said in cases:
        other = {"run/summary.json": json.dumps({**summary, **change}).encode(), "run/invitation": content}
        assert said in after(filed, key, other)["audit/plan.json"]


WITHOUT_OFFSET = signed_plan(PLAN, STRANGER, datetime(2026, 1, 2))


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot read"), ("{}", "this is no signed audit plan"), (WITHOUT_OFFSET, "this is no signed audit plan")],
)
def test_a_server_begins_no_run_with_a_plan_that_is_none(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    with pytest.raises(PlanError, match=said):
        BoundPlan.read(tmp_path / "plan.json")


def test_annexes_are_filled_and_mark_what_a_person_adds(sources: Sources, filed: Path) -> None:
    annexes = {path.stem: path.read_text() for path in (filed / "annexes").iterdir()}
    assert annexes.keys() == {"dpia", "record-of-processing", "nist-sp-800-226", "satre", "ehds-tehdas2"}
    for text in annexes.values():
        assert text.count("**[to fill in: ") > 3
        assert "{" not in text, "no raw JSON is for a reader"
        cells = {
            table: {line.count(" |") for line in table.splitlines()} for table in re.findall(r"(?m)(?:^\|.*\n)+", text)
        }
        assert all(len(counts) == 1 for counts in cells.values()), cells
    rows = read_totals(sources.folder / "totals.safetensors")[0].total[-1]
    for line in (
        "| lone_rows | masked | hidden | passed |",
        f"| rows counted in the first total | {rows}; at most 100000 were allowed |",
        "| model computed again from the totals | yes, equal in every bit |",
        "| 1, 2, 3, 4, 5 | learners: afl; ",
        "The audit's decision is **passed**. The report is signed by",
        "5 receipts of this run's sums verify.",
        "No noise was added. The run has no differential privacy.",
    ):
        assert line in annexes["dpia"], line
    assert "| client 1, rows.npz | nothing | epsilon 4.0, delta 1e-05 | one record," in annexes["nist-sp-800-226"]
    assert "64 features a row" in annexes["ehds-tehdas2"]
    assert "no other party receives totals" in annexes["record-of-processing"]


def test_annexes_say_what_a_dossier_does_not_hold(key: IdentityKey, sources: Sources, tmp_path: Path) -> None:
    bare = replace(sources, sites=(), receipts=(), ledgers=(), plan=None)
    bare.write(tmp_path / "dossier", key)
    whole = "".join(path.read_text() for path in (tmp_path / "dossier" / "annexes").iterdir())
    for said in [
        "signed by the server. It decides nothing: no plan was signed before", "No site's receipts of this run's sums",
        "No ledger of privacy costs", "The demands of the sites are not in", "No decision rests on the report",
    ]:  # fmt: skip
        assert said in whole


def test_a_copy_verifies_where_nothing_else_of_the_run_can_be_reached(
    key: IdentityKey, sources: Sources, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A fresh interpreter in an empty folder, with a home of its own; whatever it opens is its own or the product's."""
    sources.write(tmp_path / "dossier", key)
    alone = tmp_path_factory.mktemp("another-machine")
    copy = shutil.copytree(tmp_path / "dossier", alone / "dossier")
    product, home = Path(__file__).resolve().parents[2], alone / "home"
    home.mkdir()
    (tmp_path / "dossier").rename(tmp_path / "gone")
    code = (
        "import os, sys\n"
        f"near, own = {str(tmp_path_factory.getbasetemp())!r}, {str(alone)!r}\n"
        "def seen(event, arguments):\n"
        "    if event.startswith('socket.') or event == 'subprocess.Popen':\n"
        "        os._exit(3)\n"
        "    if event == 'open' and isinstance(arguments[0], str):\n"
        "        path = os.path.realpath(arguments[0])\n"
        "        if path.startswith(near) and not path.startswith(own):\n"
        "            os._exit(4)\n"
        "sys.addaudithook(seen)\n"
        "from analytic_secagg.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    environment = {"PYTHONPATH": str(product), "PATH": "", "HOME": str(home), "TMPDIR": str(home)}
    words = [sys.executable, "-c", code, "check-dossier", "dossier", "--key", key.public.hex()]
    found = subprocess.run(words, cwd=alone, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("verified")
    (copy / "run" / "summary.json").write_text("{}")
    found = subprocess.run(words, cwd=alone, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (
        1,
        "run/summary.json: it was changed after the dossier was signed\n",
    )


def test_a_model_that_holds_its_total_goes_without_it_where_totals_do(sources: Sources, tmp_path: Path) -> None:
    """FedHiP's file has the total for who personalises; a client that read it would take its own part off."""
    run = Path(shutil.copytree(sources.folder, tmp_path / "personal"))
    (result,), afl = read_totals(run / "totals.safetensors"), load_model(run / "model.safetensors")
    learner = FedHiP(**stated_fields(afl.learner))
    model = learner.update(learner.init(), learner.spec.from_vector(result.total), len(result.survivors))
    save_model(run / "model.safetensors", learner, model, classes=afl.classes, with_totals=True)
    sources, place = replace(sources, folder=run), "run/model.safetensors"
    with_them, without = (replace(sources, without_totals=bare).evidence(bytes(32)).files for bare in (False, True))
    assert with_them[place] == (run / "model.safetensors").read_bytes()
    assert "run/totals.safetensors" in with_them.keys() - without.keys()
    saved = model_from_bytes(without[place])
    assert (saved.model.total, saved.classes) == (None, afl.classes)
    assert saved.learner.weights_bytes(saved.model) == learner.weights_bytes(model)
    (run / "model.safetensors").write_bytes(with_them[place][:-1])
    with pytest.raises(DossierError, match="a model that does not read may hold totals"):
        replace(sources, without_totals=True).evidence(bytes(32))


def test_the_commands_make_it_and_verify_it_elsewhere(
    ran: Trial, sources: Sources, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = str(ran.folder / "server" / "identity.key")
    (tmp_path / "hypotheses.toml").write_text(
        f'data_sha256 = "{PLAN.data_sha256}"\n'
        '[[hypotheses]]\nattack = "lone_rows"\nmode = "masked"\nexpected = "hidden"\n'
    )
    plan = str(tmp_path / "signed.json")
    assert main(["audit-plan", str(tmp_path / "hypotheses.toml"), "--identity", identity, "--out", plan]) == 0
    words = ["dossier", str(sources.folder), "--identity", identity, "--roster", str(sources.roster)]
    words += [text for path in sources.receipts for text in ("--receipt", str(path))]
    words += [text for path in sources.sites for text in ("--site", str(path))]
    assert main([*words, "--out", str(tmp_path / "dossier"), "--without-totals"]) == 0
    said = capsys.readouterr().out
    command = said.splitlines()[-1].split()
    moved = (tmp_path / "dossier").rename(tmp_path / "elsewhere")
    assert main([*command[1:2], str(moved), *command[3:]]) == 0
    assert capsys.readouterr().out.startswith("verified")
    (moved / "roster.toml").write_text("")
    assert main([*command[1:2], str(moved), *command[3:]]) == 1
    assert "roster.toml: it was changed" in capsys.readouterr().out
    assert main(["check-dossier", str(moved), "--key", "0F" * 32]) == 2
    assert "a public key is 64 hexadecimal digits" in capsys.readouterr().err
    words = ["dossier", str(sources.folder), "--identity", identity, "--roster", str(sources.roster), "--plan", plan]
    assert main([*words, "--out", str(tmp_path / "no-report")]) == 2
    assert "an audit plan without the audit's report decides nothing; add the audit's report" in capsys.readouterr().err
