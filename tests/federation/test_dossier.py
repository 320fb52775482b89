"""A dossier verifies anywhere with a public key, names whatever was changed, and is not made of what does not hold."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.rehearsed import rehearse, run_config

from analytic.array_file import line_of_json
from analytic.fedhip import FedHiP
from analytic.learner import stated_fields
from analytic.model_files import load_model, model_from_bytes, model_to_bytes, save_model
from federation.__main__ import main
from federation.audit_plan import AuditPlan, BoundPlan, PlanError, signed_plan
from federation.datasets import bundled
from federation.dossier import MANIFEST, SIGNATURE, DossierError, Sources, problems
from federation.federation import Federation
from federation.site.invitation import Invitation
from federation.site.key_files import read_secret
from federation.site.terms import Terms
from federation.totals import read_totals, totals_to_bytes
from federation.trial import Trial
from secagg import IdentityKey
from secagg.dp import Budget, Ledger

BEFORE = datetime.now(UTC) - timedelta(days=1)
LATE = (datetime.now(UTC) + timedelta(hours=1)).astimezone(timezone(timedelta(hours=-12)))
"""Later than every run, though its digits are smaller."""
PLAN = AuditPlan.model_validate(
    {
        "alpha": 1e-6,
        "settings": {"learner": "afl"},
        "hypotheses": [
            {"attack": "lone_rows", "mode": "masked", "expected": "hidden"},
            {"attack": "lone_rows", "mode": "plain", "expected": "leaks"},
        ],
    }
)
NOTHING = "no evidence of leakage at this power"


def audit(**verdicts: str) -> dict[str, Any]:
    """What an audit's report says, as far as a dossier reads it."""
    score = {"rate": 0.1, "auc": None, "p_value": 0.5}
    cells = [
        {"attack": "lone_rows", "mode": mode, "verdict": verdict, "expectation": "hidden", "score": score}
        for mode, verdict in {"masked": NOTHING, "plain": "recovered", "total": NOTHING, **verdicts}.items()
    ]
    return {"date": "2025-01-01", "settings": {"learner": "afl", "alpha": 1e-6}, "cells": cells, "noise": []}


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


@pytest.fixture
def sources(ran: Trial, tmp_path: Path) -> Sources:
    (tmp_path / "audit.json").write_text(json.dumps(audit()))
    shutil.copy(ran.folder / "server" / "plan.json", tmp_path)
    budget = Budget(epsilon=4.0, delta=1e-5, unit="record", adjacency="add-remove", population="client 1, rows.npz")
    Ledger.create(tmp_path / "ledger", budget)
    return Sources(
        runs=(ran.folder / "server" / "models" / "rehearsal",),
        roster=ran.folder / "server" / "roster.toml",
        sites=tuple(sorted(ran.folder.glob("site-*/site.toml"))),
        receipts=tuple(sorted(ran.folder.glob("site-*/results/*.receipt"))),
        ledgers=(tmp_path / "ledger",),
        audit=tmp_path / "audit.json",
        plan=tmp_path / "plan.json",
    )


def files_of(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def test_every_changed_missing_or_added_file_is_named(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    folder, key = tmp_path / "dossier", identity_of(ran)
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
    assert (named, "another key signed it" in what) == (MANIFEST, True)


@pytest.mark.parametrize(
    ("party", "said"), [('"../../escaped"', "of the party '../../escaped'"), ("1", "there already")]
)
def test_a_site_file_names_no_place_but_its_own(
    ran: Trial, sources: Sources, tmp_path: Path, party: str, said: str
) -> None:
    other = tmp_path / "site.toml"
    other.write_text(f"[client]\nparty = {party}\n")
    with pytest.raises(DossierError, match=said):
        replace(sources, sites=(*sources.sites, other)).write(tmp_path / "dossier", identity_of(ran))
    assert not (tmp_path / "dossier").exists()


NO_REPORT = "audit/audit.json is no report of an audit"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"runs": ("rehearsal", "elsewhere/rehearsal")}, "two runs have folders of one name; rename one"),
        ({"runs": ("unfinished",)}, "unfinished must be the folder of a finished run, with a model and summary.json"),
        ({"audit": "nowhere.json"}, "cannot read .*nowhere.json: No such file or directory; name a file that is"),
        ({"audit": None}, "an audit plan without the audit's report decides nothing; add the report"),
        ({"audit": "list.json"}, f"{NO_REPORT} .AttributeError"),
        ({"audit": "unscored.json"}, "no dossier can be made of these files: TypeError"),
        ({"plan": "spaced.json"}, "this is no signed audit plan .ValueError.; sign one with audit-plan"),
        ({"plan": "bytes"}, "this is no signed audit plan"),
        ({"out": "list.json"}, "cannot write .*list.json: File exists; name a new folder"),
    ],
)
def test_it_is_not_made_of_what_it_cannot_be_made_of(
    ran: Trial, sources: Sources, tmp_path: Path, change: dict[str, str | tuple[str, ...] | None], said: str
) -> None:
    for run in ("rehearsal", "elsewhere/rehearsal"):
        shutil.copytree(sources.runs[0], tmp_path / run)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "list.json").write_text("[]")
    unscored = {**audit(), "cells": [{**cell, "score": 1} for cell in audit()["cells"]]}
    (tmp_path / "unscored.json").write_text(json.dumps(unscored))
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "spaced.json").write_text(signed_plan(PLAN, identity_of(ran), BEFORE).replace(",", ", ", 1))
    out = tmp_path / str(change.pop("out", "dossier"))
    named = {
        name: tuple(tmp_path / one for one in value) if isinstance(value, tuple) else value and tmp_path / value
        for name, value in change.items()
    }
    with pytest.raises(DossierError, match=said):
        replace(sources, **named).write(out, identity_of(ran))
    assert not (tmp_path / "dossier").exists()


def test_no_key_or_path_of_a_site_is_in_it(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    sources.write(tmp_path / "dossier", identity_of(ran))
    secrets = [path.read_bytes().strip() for path in ran.folder.rglob("*.key") if path.parent.name != "tls"]
    assert len(secrets) == 7
    whole = b"".join(path.read_bytes() for path in files_of(tmp_path / "dossier"))
    for secret in secrets:
        assert secret not in whole
        assert bytes.fromhex(secret.decode()) not in whole
    assert f"{ran.folder}/site".encode() not in whole
    policy = json.loads((tmp_path / "dossier" / "policies" / "1.json").read_text())
    assert policy.keys() == {"policy", "journal", "learners", "party"}


def resigned(folder: Path, name: str, content: bytes, key: IdentityKey) -> None:
    """What a signer can do: other content under a manifest that fits, or another manifest."""
    (folder / name).write_bytes(content)
    if name != MANIFEST:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        manifest["files"][name] = hashlib.sha256(content).hexdigest()
        (folder / MANIFEST).write_bytes((line_of_json(manifest) + "\n").encode())
    (folder / SIGNATURE).write_text(key.sign("dossier", (folder / MANIFEST).read_bytes()).hex() + "\n")


def test_whoever_signs_cannot_make_what_is_recomputed_hold(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    key = identity_of(ran)
    sources.write(tmp_path / "dossier", key)
    run = "runs/rehearsal"
    totals = read_totals(tmp_path / "dossier" / run / "totals.safetensors")
    changed = totals[0].total.copy()
    changed[0] += 1
    summary = json.loads((tmp_path / "dossier" / run / "summary.json").read_text())
    receipt, *others = sorted((tmp_path / "dossier" / "receipts").iterdir())
    (ledger,) = (tmp_path / "dossier" / "ledgers").iterdir()
    manifest = json.loads((tmp_path / "dossier" / MANIFEST).read_bytes())
    cases = {
        f"{run}/totals.safetensors": totals_to_bytes([replace(totals[0], total=changed)]),
        f"{run}/summary.json": json.dumps(summary | {"weights_sha256": "0" * 64}).encode(),
        f"receipts/{receipt.name}": receipt.read_bytes()[:-1] + b"x",
        f"receipts/{others[0].name}": b"no receipt",
        f"ledgers/{ledger.name}": ledger.read_bytes().replace(b"4.0", b"5.0"),
        f"{run}/model.safetensors": b"no model",
        "roster.toml": (tmp_path / "dossier" / "roster.toml").read_bytes().replace(b"server = ", b"servers = "),
        "audit/decision.json": b"{}\n",
        "audit/plan.json": signed_plan(PLAN, IdentityKey.generate(), BEFORE).encode(),
    }
    of_summary = {
        "it names other survivors than the totals": {**summary, "survivors": [[1, 2]]},
        "was of the roster another one": {**summary, "roster": "another one"},
        "was of the roster (none is named)": {name: said for name, said in summary.items() if name != "roster"},
        "it is no summary of a run (AttributeError)": [],
    }
    of_manifest = {
        "it is 'analytic-secagg/dossier' of version 2: verify it with": {**manifest, "version": 2},
        "it is 'analytic-secagg/model' of version 1: verify": {**manifest, "kind": "analytic-secagg/model"},
        "it is no manifest of a dossier (KeyError)": {"version": 1},
        "it is no manifest of a dossier (TypeError)": [],
        "it is no roster: 'roster.toml'": {**manifest, "files": {}},
    }
    for named, what in [(f"{run}/summary.json", of_summary), (MANIFEST, of_manifest)]:
        for said, value in what.items():
            copy = shutil.copytree(tmp_path / "dossier", tmp_path / "copy")
            if said.startswith("it is no roster"):  # a manifest of nothing, and nothing beside it
                for path in [path for path in files_of(copy) if path.name not in (MANIFEST, SIGNATURE)]:
                    path.unlink()
            resigned(copy, named, (line_of_json(value) + "\n").encode(), key)
            assert any(said in line for _, line in problems(copy, key.public)), list(problems(copy, key.public))
            shutil.rmtree(copy)
    for name, content in cases.items():
        copy = shutil.copytree(tmp_path / "dossier", tmp_path / "copy")
        resigned(copy, name, content, key)
        found = dict(problems(copy, key.public))
        assert name in found, found
        shutil.rmtree(copy)


def test_whoever_signs_cannot_make_it_hold_a_model_of_other_totals(
    ran: Trial, sources: Sources, tmp_path: Path
) -> None:
    """The summary names the weights of that model, so model and summary agree."""
    key, folder, run = identity_of(ran), tmp_path / "dossier", "runs/rehearsal"
    sources.write(folder, key)
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
    ((name, line),) = problems(folder, key.public)
    assert name == f"{run}/totals.safetensors"
    assert line.startswith("the model does not follow from it: ")


def test_hypotheses_are_decided_by_the_rule_that_was_signed_before(
    ran: Trial, sources: Sources, tmp_path: Path
) -> None:
    assert PLAN.decide(audit())["decision"] == "holds"
    assert PLAN.decide(audit(masked="leaks"))["decision"] == "fails"
    assert PLAN.decide(audit(masked="too few trials to tell"))["decision"] == "not decided"
    assert PLAN.decide({**audit(), "settings": {"learner": "safle", "alpha": 1e-6}})["decision"] == "not decided"
    assert PLAN.decide({**audit(), "settings": {"learner": "afl", "alpha": 0.05}})["decision"] == "not decided"
    late = replace(sources, plan=tmp_path / "late.json", runs=(unbound(sources, tmp_path),))
    (tmp_path / "late.json").write_text(signed_plan(PLAN, identity_of(ran), LATE))
    with pytest.raises(DossierError, match=r"audit/plan.json: it was signed at .* and runs/rehearsal began before"):
        late.write(tmp_path / "late", identity_of(ran))
    (tmp_path / "plan.json").write_text(signed_plan(PLAN, IdentityKey.generate(), BEFORE))
    with pytest.raises(DossierError, match="signed by nobody of the roster"):
        sources.write(tmp_path / "stranger", identity_of(ran))
    assert not (tmp_path / "late").exists()
    assert not (tmp_path / "stranger").exists()


def unbound(sources: Sources, folder: Path) -> Path:
    """The same run, whose server says that it was bound to no plan."""
    run = shutil.copytree(sources.runs[0], folder / "unbound" / "rehearsal")
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "plan": None}))
    return run


def test_the_sites_signatures_show_that_the_plan_came_first(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    def before(folder: str, **change: object) -> str:
        replace(sources, **change).write(tmp_path / folder, identity_of(ran))
        decision = json.loads((tmp_path / folder / "audit" / "decision.json").read_text())
        assert list(problems(tmp_path / folder, identity_of(ran).public)) == []
        return str(decision["before"]["runs/rehearsal"])

    assert re.match("[45] parties beside the server: they countersigned a sum whose session commits", before("bound"))
    assert before("alone", receipts=(), with_totals=False).startswith("the server's word: its first session commits")
    assert before("word", runs=(unbound(sources, tmp_path),)).startswith("the word of who signed the plan")
    other = PLAN.model_copy(update={"alpha": 1e-5})
    (tmp_path / "plan.json").write_text(signed_plan(other, identity_of(ran), BEFORE))
    with pytest.raises(DossierError, match="runs/rehearsal was bound to another plan, or its first session is another"):
        before("swapped")


def told(summary: dict[str, Any], **otherwise: str | None) -> dict[str, Any]:
    """The first sum of a summary, with other words."""
    return {**summary["sums"][0], **otherwise}


def test_a_server_cannot_bind_a_run_to_a_plan_afterwards(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    sources.write(tmp_path / "dossier", identity_of(ran))
    run, key = tmp_path / "dossier" / "runs" / "rehearsal", identity_of(ran)
    summary, invitation = json.loads((run / "summary.json").read_text()), (run / "invitation").read_bytes()
    plan = BoundPlan(content=(tmp_path / "plan.json").read_bytes())
    first = Invitation.from_bytes(invitation)
    terms = replace(Terms.from_bytes(first.terms), session=plan.session)
    again = replace(first, terms=terms.to_bytes()).to_bytes()
    cases: tuple[tuple[dict[str, object], bytes, str], ...] = (
        ({"plan": plan.public}, invitation, "was bound to another plan"),
        ({"plan": plan.public}, again, "the first sum of runs/rehearsal is not the one that"),
        ({"plan": plan.public, "sums": [told(summary, configuration=None)]}, again, "is not the one that"),
        ({"plan": plan.public, "sums": [told(summary, session=plan.session.hex())]}, again, "is not the one that"),
        ({"sums": [told(summary, session="00" * 32, configuration=None)]}, invitation, "is not the one that"),
        ({"plan": {}}, invitation, "does not read"),
        ({}, b"no invitation", "does not read"),
    )
    for change, content, said in cases:
        copy = shutil.copytree(tmp_path / "dossier", tmp_path / "copy")
        resigned(copy, "runs/rehearsal/summary.json", json.dumps({**summary, **change}).encode(), key)
        resigned(copy, "runs/rehearsal/invitation", content, key)
        found = dict(problems(copy, key.public))
        assert said in found["audit/plan.json"], found
        shutil.rmtree(copy)


WITHOUT_OFFSET = signed_plan(PLAN, IdentityKey.generate(), datetime(2026, 1, 2))


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot read"), ("{}", "this is no signed audit plan"), (WITHOUT_OFFSET, "this is no signed audit plan")],
)
def test_a_server_begins_no_run_with_a_plan_that_is_none(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "plan.json").write_text(content)
    with pytest.raises(PlanError, match=said):
        BoundPlan.read(tmp_path / "plan.json")


def test_annexes_are_filled_and_mark_what_a_person_adds(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    sources.write(tmp_path / "dossier", identity_of(ran))
    annexes = {path.name: path.read_text() for path in (tmp_path / "dossier" / "annexes").iterdir()}
    assert all("**[a person adds]**" in text for text in annexes.values())
    assert "lone_rows on masked, expected hidden: holds" in annexes["dpia.md"]
    assert "nothing of epsilon 4, delta 1e-05, unit record" in annexes["nist-sp-800-226.md"]
    assert "receipts verify offline" in annexes["satre-3.3.07.md"]


def test_annexes_say_what_a_dossier_does_not_hold(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    run = shutil.copytree(sources.runs[0], tmp_path / "run")
    summary = json.loads((run / "summary.json").read_text())
    del summary["sums"]
    (run / "summary.json").write_text(json.dumps(summary | {"learner": "logistic"}))
    bare = replace(sources, runs=(run,), sites=(), receipts=(), ledgers=(), plan=None)
    bare.write(tmp_path / "dossier", identity_of(ran))
    whole = "".join(path.read_text() for path in (tmp_path / "dossier" / "annexes").iterdir())
    for said in [
        "what release gates said of these runs is not in this dossier", "logistic sends gradients",
        "nobody fixed its hypotheses beforehand", "no receipts are in", "no ledger is in", "no site's policy is in",
    ]:  # fmt: skip
        assert said in whole


def test_sacro_ml_reads_its_target_and_its_report(ran: Trial, sources: Sources, tmp_path: Path) -> None:
    sources.write(tmp_path / "dossier", identity_of(ran))
    sacro = tmp_path / "dossier" / "sacro"
    report = json.loads((sacro / "report.json").read_text())
    assert report.keys() == {"lone_rows on masked", "lone_rows on total"}
    assert (sacro / json.loads((sacro / "target.yaml").read_text())["model_path"]).is_file()
    target = pytest.importorskip("sacroml.attacks.target", reason="needs pip install sacroml").Target()
    target.load(str(sacro))
    assert target.n_features == 64
    text = pytest.importorskip("sacroml.attacks.attack_report_formatter").GenerateTextReport()
    text.process_attack_target_json(str(sacro / "report.json"), str(sacro / "target.yaml"))
    text.export_to_file(str(tmp_path / "summary.txt"))
    assert "<10% AUC are statistically significant" in (tmp_path / "summary.txt").read_text()


def test_a_copy_verifies_where_nothing_else_of_the_run_can_be_reached(
    ran: Trial, sources: Sources, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A fresh interpreter in an empty folder, with a home of its own; whatever it opens is its own or the product's."""
    sources.write(tmp_path / "dossier", identity_of(ran))
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
        "from federation.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    environment = {"PYTHONPATH": str(product), "PATH": "", "HOME": str(home), "TMPDIR": str(home)}
    words = [sys.executable, "-c", code, "check-dossier", "dossier", "--key", identity_of(ran).public.hex()]
    found = subprocess.run(words, cwd=alone, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("verified")
    (copy / "runs" / "rehearsal" / "summary.json").write_text("{}")
    found = subprocess.run(words, cwd=alone, env=environment, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout) == (
        1,
        "runs/rehearsal/summary.json: it was changed after the dossier was signed\n",
    )


def test_a_model_that_holds_its_total_goes_without_it_where_totals_do(sources: Sources, tmp_path: Path) -> None:
    """FedHiP's file has the total for who personalises; a client that read it would take its own part off."""
    run = Path(shutil.copytree(sources.runs[0], tmp_path / "personal"))
    (result,), afl = read_totals(run / "totals.safetensors"), load_model(run / "model.safetensors")
    learner = FedHiP(**stated_fields(afl.learner))
    model = learner.update(learner.init(), learner.spec.from_vector(result.total), len(result.survivors))
    save_model(run / "model.safetensors", learner, model, classes=afl.classes)
    sources, place = replace(sources, runs=(run,)), "runs/personal/model.safetensors"
    with_them, without = (replace(sources, with_totals=held).files(bytes(32)) for held in (True, False))
    assert with_them[place] == (run / "model.safetensors").read_bytes()
    assert "runs/personal/totals.safetensors" in with_them.keys() - without.keys()
    saved = model_from_bytes(without[place])
    assert (saved.model.total, saved.classes) == (None, afl.classes)
    assert saved.learner.weights_bytes(saved.model) == learner.weights_bytes(model)
    (run / "model.safetensors").write_bytes(with_them[place][:-1])
    with pytest.raises(DossierError, match="a model that does not read may hold totals"):
        replace(sources, with_totals=False).files(bytes(32))


def test_the_commands_make_it_and_verify_it_elsewhere(
    ran: Trial, sources: Sources, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = str(ran.folder / "server" / "identity.key")
    (tmp_path / "hypotheses.toml").write_text(
        'alpha = 1e-6\n[[hypotheses]]\nattack = "lone_rows"\nmode = "masked"\nexpected = "hidden"\n'
    )
    plan = str(tmp_path / "signed.json")
    assert main(["audit-plan", str(tmp_path / "hypotheses.toml"), "--identity", identity, "--out", plan]) == 0
    words = ["dossier", str(sources.runs[0]), "--identity", identity, "--roster", str(sources.roster)]
    words += [text for path in sources.receipts for text in ("--receipt", str(path))]
    words += [text for path in sources.sites for text in ("--site", str(path))]
    assert main([*words, "--out", str(tmp_path / "dossier"), "--without-totals"]) == 0
    said = capsys.readouterr().out
    command = said.splitlines()[-1].split()
    moved = (tmp_path / "dossier").rename(tmp_path / "elsewhere")
    assert main([*command[3:4], str(moved), *command[5:]]) == 0
    assert capsys.readouterr().out.startswith("verified")
    (moved / "roster.toml").write_text("")
    assert main([*command[3:4], str(moved), *command[5:]]) == 1
    assert "roster.toml: it was changed" in capsys.readouterr().out
    assert main(["check-dossier", str(moved), "--key", "0F" * 32]) == 2
    assert "a public key is 64 hexadecimal digits" in capsys.readouterr().err
    assert main(["dossier", "run", "--identity", identity, "--roster", "roster.toml", "--plan", plan]) == 2
    assert "--plan is decided by an audit's report; name it with --audit" in capsys.readouterr().err
