"""Learners, modes, an attack and an engine of another package, one file each, through everything that names them.

The package is in ``support/stranger``; docs/how-to/extend.md shows its files. No other file of ours names them.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.collusion import coalitions, wrongly_stated
from support.extras import needs
from support.installed import STRANGER, importable, install, install_stranger
from support.parties import garbled, knows
from support.rehearsed import (
    CLIENTS,
    Rehearsal,
    announced,
    assert_pooled,
    assert_trained_by_processes,
    by_server,
    edit,
    edit_all,
    is_exact,
    proposal,
    rehearse,
    run_config,
    site,
)

from analytic.afl import AFL
from analytic.errors import SpecificationError
from analytic.evaluation import evaluation_of
from analytic.extensions import ExtensionError, Group
from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import (
    FILE,
    JUDGED,
    ModelFileError,
    learner_in,
    model_from_bytes,
    model_to_bytes,
)
from analytic.pipeline import Pipeline
from analytic.row_format import RowFormat
from analytic.statistics import LABELS
from analytic.weights import Weights
from analytic_secagg import federate
from analytic_secagg.__main__ import main as analytic_secagg
from analytic_secagg.datasets import bundled
from analytic_secagg.errors import UsageError
from analytic_secagg.learners import LEARNERS, LearnerSettings, choose_learners, find_learner
from analytic_secagg.modes import MODES, Mode, choose_modes, find_mode
from analytic_secagg.server.run_settings import RunSettings
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.server.training import train
from analytic_secagg.site.errors import Refusal, SiteFileError, UnreachableError
from analytic_secagg.site.key_files import read_secret, write_secret
from analytic_secagg.site.message_handler import handle_message
from analytic_secagg.site.messages import CONTEXT, END, INVITE, STEP, write_end, write_messages, write_proposal
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.results import RunResults
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from secagg import Layout, PartyId, run_in_memory
from secagg.config import SERVER
from secagg.errors import ConfigurationError, LocalProtocolError, PolicyError, TooFewSurvivorsError
from secagg.policy import ClientPolicy
from secagg.primitives.identity import IdentityKey
from secagg.sums import CLIENT_ROLE
from simulations.__main__ import main as simulations
from simulations.audit.attack import Expectation
from simulations.audit.catalogue import ATTACKS, choose_attacks, find_attack

FEW = ["--epsilon", "none", "--cohorts", "3", "--sessions", "1", "--clients", "10"]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with importable(tmp_path / "site-packages") as folder:
        yield folder


@pytest.fixture
def stranger(folder: Path) -> Path:
    """The folder into which the package is installed."""
    install_stranger(folder)
    return folder


def learner(max_rows: int = 100) -> Any:
    settings = {"n_features": 4, "n_classes": 3, "max_rows": max_rows, "max_clients": 5}
    return find_learner("centred-ridge").build(LearnerSettings(**settings, feature_format=RowFormat.parse("Q3.5")))


def dealt() -> dict[int, ClientRows]:
    rng = np.random.default_rng(0)
    return {party: ClientRows(rng.uniform(-7, 7, (9, 4)), rng.integers(0, 3, 9)) for party in range(1, 6)}


# --- found by name ------------------------------------------------------------------------------------------


def test_one_call_takes_a_learner_and_a_mode_by_their_names(stranger: Path, tmp_path: Path) -> None:
    rows = {party: (own.features, own.targets) for party, own in dealt().items()}
    found = federate(rows, "centred-ridge", "unanimous", format="Q3.5")
    pooled = fit_pooled(found.learner, ClientRows.pool(list(dealt().values())))
    assert found.learner.weights_bytes(found.model) == found.learner.weights_bytes(pooled)
    found.save(tmp_path / "model.safetensors")
    assert (
        type(found).load(tmp_path / "model.safetensors").predict(rows[1][0]).tolist()
        == found.predict(rows[1][0]).tolist()
    )
    with pytest.raises(TooFewSurvivorsError):
        federate(rows, "centred-ridge", "unanimous", format="Q3.5", dropouts={2: 0})


def test_its_model_is_stored_and_read_back_between_its_sums_and_after(stranger: Path) -> None:
    pooled = ClientRows.pool(list(dealt().values()))
    own = learner()
    half = own.update(own.init(), own.client_statistics(own.init(), pooled), 1)
    for model in (own.init(), half, fit_pooled(own, pooled)):
        read = model_from_bytes(model_to_bytes(own, model))
        assert read.learner == own
        assert read.learner.context_bytes(read.model) == own.context_bytes(model)
    assert read.learner.weights_bytes(read.model) == own.weights_bytes(model)


def test_its_rows_may_weigh_and_its_file_says_so(stranger: Path) -> None:
    """Slots go around a learner of another package as around ours; a row of weight 3 is three of it."""
    sizes: Any = {"n_features": 4, "n_classes": 3, "max_rows": 100, "max_clients": 5}
    options = {"max_weight": 3}
    own = find_learner("centred-ridge").build(
        LearnerSettings(**sizes, feature_format=RowFormat.parse("Q3.5"), options=options)
    )
    rows = {party: replace(one, weights=1 + np.arange(9) % 3) for party, one in dealt().items()}
    copies = [
        ClientRows(np.repeat(one.features, one.weights, axis=0), np.repeat(one.targets, one.weights))
        for one in rows.values()
    ]
    found = federate(rows, own, "masked").model
    assert own.name == "weighted-centred-ridge"
    assert own.weights_bytes(found) == learner().weights_bytes(fit_pooled(learner(), ClientRows.pool(copies)))
    read = model_from_bytes(model_to_bytes(own, found))
    assert (read.learner, read.learner.weights_bytes(read.model)) == (own, own.weights_bytes(found))


def test_its_model_is_a_graph_for_onnx_and_a_module_for_torch(stranger: Path) -> None:
    needs("torch")
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra: pip install '.[onnx]'")
    import torch

    from analytic.onnx_export import to_onnx
    from analytic.torch_export import to_torch

    rows = ClientRows.pool(list(dealt().values()))
    own, model = learner(), fit_pooled(learner(), rows)
    scores = own.decision_function(model, rows.features)
    (graph,) = onnxruntime.InferenceSession(to_onnx(own, model)).run(None, {"features": rows.features})
    module = to_torch(own, model)(torch.from_numpy(rows.features)).detach().numpy()
    largest = np.abs(rows.features).max() + 8
    derived = 16 * 2**-52 * largest * np.abs(model.solution.weights).sum(axis=0)  # 4 products, a bias and their sums
    assert (np.abs(graph - scores) <= derived).all()
    assert (np.abs(module - scores) <= derived).all()


def test_comparisons_and_the_audit_take_all_by_their_names(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ["--learner", "centred-ridge", "--modes", "plain,masked,unanimous"]
    page = tmp_path / "compare.html"
    assert simulations(["compare", *shared, "--clients", "5", "--html", str(page)]) == 0
    assert "all 3 runs equal the pooled model of the surviving clients, bit for bit" in capsys.readouterr().out
    assert "unanimous" in page.read_text(encoding="utf-8")
    report, page = tmp_path / "audit.json", tmp_path / "audit.html"
    files = ["--json", str(report), "--html", str(page)]
    assert simulations(["audit", *shared, "--attacks", "last_number,class_means", *FEW, *files]) == 0
    said = capsys.readouterr().out
    assert "Messages (masked, unanimous): whoever sees a client's message learnt nothing" in said
    found = {(one["attack"], one["exposure"]): one["outcome"] for one in json.loads(report.read_text())["results"]}
    assert found["last_number", "plain"] == "attack works"
    assert found["last_number", "unanimous"] == found["last_number", "masked"] == "nothing found"
    assert {seen for attack, seen in found if attack == "last_number"} >= {"total of 10 clients", "model of 10 clients"}
    assert "The number of rows, as it is sent" in page.read_text(encoding="utf-8")


# --- deployments --------------------------------------------------------------------------------------------


def test_a_helper_without_a_client_names_the_learner_whose_layout_it_needs(stranger: Path, tmp_path: Path) -> None:
    trial = Trial.create(
        tmp_path / "trial", bundled("digits"), n_sites=5, n_helpers=2, are_rows_public=True, are_helpers_apart=True
    )
    edit_all(trial, ('learners = ["afl"]', 'learners = ["centred-ridge"]'))
    files = {int(path.parent.name.rpartition("-")[2]): path for path in trial.folder.glob("*-*/site.toml")}
    config = run_config(learner="centred-ridge", mode="committee")
    server = ServerFile.read(trial.folder / "server" / "server.toml")

    def run() -> None:
        rehearsal = Rehearsal(files, identity=server.identity)
        train(config, server, rehearsal, server.output / "rehearsal", clock=rehearsal.clock, sleep=rehearsal.sleep)

    with pytest.raises(UnreachableError, match="2 of the 2 helpers did not answer"):
        run()
    for helper in (101, 102):
        files[helper].write_text('extensions = ["centred-ridge"]\n' + files[helper].read_text())
    run()
    is_exact(trial, list(CLIENTS))


def test_a_trial_of_processes_trains_it(stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local engine: the server and each site are processes that find the package as any process does."""
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(stranger), str(root)]))
    iris = bundled("iris")
    trial = Trial.create(tmp_path / "trial", iris, n_sites=4, n_helpers=0, are_rows_public=True)
    edit_all(trial, ('learners = ["afl"]', 'learners = ["centred-ridge"]'), ("modes = [", 'modes = ["unanimous", '))
    assert_trained_by_processes(trial, iris, learner="centred-ridge", mode="unanimous")


def test_its_engine_is_a_command_and_carries_a_run_of_its_learner_and_mode(
    stranger: Path, trial: Trial, tmp_path: Path
) -> None:
    """Everything of the package at once: the server and each site are started by the engine's own command."""
    edit_all(trial, ('learners = ["afl"]', 'learners = ["centred-ridge"]'), ("modes = [", 'modes = ["unanimous", '))
    address, codes = tmp_path / "s", dict[int, int]()

    def live(party: int) -> None:
        while not address.exists():
            time.sleep(0.01)
        codes[party] = analytic_secagg(["pipes", "join", str(trial.site(party) / "site.toml"), str(address)])

    sites = [threading.Thread(target=live, args=(party,), daemon=True) for party in trial.rows]
    for thread in sites:
        thread.start()
    settings = 'learner="centred-ridge" mode="unanimous" corruption=0.0 dropout=0.0'
    assert (
        analytic_secagg(["pipes", "serve", str(trial.folder / "server" / "server.toml"), str(address), settings]) == 0
    )
    for thread in sites:
        thread.join(60)
    assert codes == dict.fromkeys(trial.rows, 0)
    assert_pooled(trial.folder / "server" / "models" / "pipes", trial.rows)


def test_an_engine_s_error_is_a_message_and_a_code(
    stranger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analytic_secagg(["pipes", "serve", str(tmp_path / "none.toml"), "s"]) == 2
    assert "error: cannot read" in capsys.readouterr().err
    install(stranger, "odd", {Group.ENGINES: {"odd": "odd:main"}}, [("odd", "main = 3")])
    assert analytic_secagg(["odd"]) == 2
    assert "the engine odd of odd 1.2 (odd:main) must be a function, not a int" in capsys.readouterr().err
    assert analytic_secagg(["tubes"]) == 2
    assert "unknown command tubes" in capsys.readouterr().err


# --- what a site never imports ------------------------------------------------------------------------------

BOMB = """
from pathlib import Path

Path(__file__).with_name("exploded").touch()
ENTRY = MODE = ATTACK = main = None
"""


@pytest.fixture
def bomb(folder: Path) -> Path:
    """A file that is there as soon as the code of an installed package was imported."""
    names = {"learners": "ENTRY", "modes": "MODE", "attacks": "ATTACK", "engines": "main"}
    own = {"learners": "afl", "modes": "masked", "attacks": "label_histogram", "engines": "verify"}
    groups = {
        f"analytic_secagg.{group}": {"bomb": f"bomb:{value}", own[group]: f"bomb:{value}"}
        for group, value in names.items()
    }
    install(folder, "bomb", groups, [("bomb", BOMB)])
    return folder / "exploded"


def of_a_bomb(content: bytes, name: str = "bomb") -> bytes:
    """A model's file that says that it is of another learner, with its digests right."""
    arrays, said = FILE.from_bytes(content, "a model")
    return FILE.to_bytes(arrays, {**said, "learner": name})


def judging(content: bytes) -> bytes:
    """An evaluation's file whose judged model is this one."""
    own = AFL(n_features=4, n_targets=3, feature_format=RowFormat.parse("Q3.5"), max_rows=100)
    complete = fit_pooled(own, ClientRows.pool(list(dealt().values())))
    evaluation = evaluation_of(own, complete, n_targets=3, target_format=LABELS, max_rows=100)
    arrays, said = FILE.from_bytes(model_to_bytes(evaluation, evaluation.init()), "an evaluation")
    return FILE.to_bytes({**arrays, JUDGED: np.frombuffer(content, dtype=np.uint8)}, said)


MODEL = proposal().model
LYING = {
    "a learner": {"model": of_a_bomb(MODEL)},
    "a judged learner": {"model": judging(of_a_bomb(MODEL))},
    "a learner judged twice": {"model": judging(judging(of_a_bomb(MODEL)))},
    "a composed learner": {"model": of_a_bomb(MODEL, "weighted-agreed-bomb")},
    "a mode": {"mode": "bomb"},
    "a mode and a learner": {"model": of_a_bomb(MODEL), "mode": "bomb"},
}
ROLES = {
    "a client": {},
    "a committee's helper": {"mode": "committee", "helpers": (101, 102)},
    "a key holder": {"mode": "masked+bfv", "helpers": (201,)},
}


def headed_by_a_bomb() -> bytes:
    """A file of weighted afl, which a site may name, whose head says that it is another learner."""
    own = AFL(n_features=4, n_targets=3, feature_format=RowFormat.parse("Q3.5"), max_rows=100)
    learner = Pipeline(head=own, weights=Weights(max_weight=2))
    arrays, said = FILE.from_bytes(model_to_bytes(learner, learner.init()), "a model")
    configuration = {**said["configuration"], "head": {"bomb": said["configuration"]["head"]["afl"]}}
    return FILE.to_bytes(arrays, {**said, "configuration": configuration})


def test_the_head_of_a_pipeline_is_the_learner_that_its_name_says(bomb: Path) -> None:
    """Sites agree to names; a head of another name would be imported behind theirs."""
    with pytest.raises(ModelFileError, match="the head of this pipeline must be afl"):
        model_from_bytes(headed_by_a_bomb())
    with pytest.raises(ModelFileError, match="the head of this pipeline must be afl"):
        learner_in(headed_by_a_bomb())
    assert not bomb.exists()


def proposing(role: str, *, model: bytes = MODEL, **changes: Any) -> TrainingProposal:
    return replace(proposal(**{**ROLES[role], **changes}), model=model)


def answer(trial: Trial, party: int, kind: str, content: bytes) -> bytes | Refusal:
    path = trial.site(party) / "site.toml"
    return handle_message(partial(SiteFile.read, path), kind, partial(bytes, by_server(trial, kind, content)))


@pytest.mark.parametrize("lie", LYING)
@pytest.mark.parametrize(
    "file",
    [
        (),
        (('learners = ["afl"]', 'learners = ["afl", "evaluation-of-classes"]'),),
        (('learners = ["afl"]\n', ""),),
        (('learners = ["afl"]\n', ""), ('configurations = "any"', f'configurations = ["{"0" * 64}"]')),
    ],
    ids=["as it is", "judging", "no learners", "configurations alone"],
)
def test_a_proposal_imports_nothing_that_a_site_s_file_does_not_name(
    bomb: Path, trial: Trial, lie: str, file: tuple[tuple[str, str], ...]
) -> None:
    """Neither a client nor a helper or key holder, which does not ask what its client contributes to."""
    edit_all(trial, *file)
    for role in ROLES:
        for party in (1, 5):  # a helper, and the key holder; each is a client too
            proposed = write_proposal(proposing(role, **LYING[lie]))
            answer(trial, party, CONTEXT, proposed)
            assert isinstance(answer(trial, party, INVITE, proposed), Refusal)
            assert not bomb.exists(), role


@pytest.mark.parametrize("lie", ["a learner", "a judged learner", "a mode"])
def test_what_the_file_names_is_imported(bomb: Path, trial: Trial, lie: str) -> None:
    """So that the test above can fail."""
    edit(trial, 1, ('["afl"]', '["afl", "bomb", "evaluation-of-classes"]'), ("modes = [", 'modes = ["bomb", '))
    assert isinstance(answer(trial, 1, INVITE, write_proposal(proposing("a client", **LYING[lie]))), Refusal)
    assert bomb.exists()


@pytest.mark.parametrize("place", ["model", "mode"])
def test_a_name_of_the_server_s_choice_is_part_of_one_short_line_of_the_log(
    trial: Trial, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = "bomb\n2026-01-01 all is well" + 10_000 * "!"
    changes: dict[str, Any] = {"model": of_a_bomb(MODEL, name)} if place == "model" else {"mode": name}
    assert answer(trial, 1, INVITE, write_proposal(proposing("a client", **changes))) == Refusal.NOT_AGREED
    assert "\n2026" not in caplog.text
    assert len(caplog.text) < 1000


@pytest.mark.parametrize("lie", ["a learner", "a judged learner", "a learner judged twice"])
def test_the_end_of_a_run_imports_nothing_that_a_site_s_file_does_not_name(bomb: Path, trial: Trial, lie: str) -> None:
    proposed = proposal()
    assert isinstance(answer(trial, 1, INVITE, write_proposal(proposed)), bytes)
    server = ServerFile.read(trial.folder / "server" / "server.toml").identity
    results = RunResults.signed(server, proposed.session, model=LYING[lie]["model"])
    assert isinstance(answer(trial, 1, END, write_end(proposed.session, results)), Refusal)
    assert not bomb.exists()
    assert not (trial.site(1) / "results").exists()


@pytest.mark.parametrize("kind", [STEP, END])
def test_a_session_whose_learner_the_file_names_no_longer_imports_nothing(
    stranger: Path, trial: Trial, kind: str
) -> None:
    named = ('["afl"]', '["centred-ridge"]')
    edit(trial, 1, named)
    own = RunSettings.of(run_config(learner="centred-ridge")).build_learner(len(CLIENTS))
    proposed = replace(proposal(), model=model_to_bytes(own, own.init()))
    assert isinstance(answer(trial, 1, INVITE, write_proposal(proposed)), bytes)
    edit(trial, 1, named[::-1])
    del sys.modules["centred_ridge"]
    content = {STEP: write_messages({1: b"?"}, session=proposed.session), END: write_end(proposed.session, None, b"?")}
    assert answer(trial, 1, kind, content[kind]) == Refusal.NOT_AGREED
    assert "centred_ridge" not in sys.modules


def test_names_of_this_package_are_its_own_and_listing_imports_nothing(
    bomb: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find_learner("afl") is LEARNERS["afl"]
    assert find_mode("masked") is MODES["masked"]
    assert find_attack("label_histogram") is ATTACKS["label_histogram"]
    assert choose_learners("all") == tuple(LEARNERS.values())
    assert choose_modes(None) == tuple(mode for mode in MODES.values() if mode.installed)
    assert choose_attacks(None) == ATTACKS.keys()
    assert analytic_secagg(["verify"]) == 2
    assert "needs a model and the totals" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"learner must be one of afl, .*safle, bomb, not 'bomb2'; .*extend\.md"):
        find_learner("bomb2")
    with pytest.raises(UsageError, match=r"mode must be one of plain, .*, bomb, not 'bomb2'"):
        find_mode("bomb2")
    with pytest.raises(UsageError, match=r"attack must be one of all_sums, .*, bomb, not 'bomb2'"):
        find_attack("bomb2")
    assert analytic_secagg(["doctor"]) == 0
    said = capsys.readouterr().out
    for kind, value in (("learner", "ENTRY"), ("mode", "MODE"), ("attack", "ATTACK"), ("engine", "main")):
        assert f"ok   extensions: {kind} bomb: bomb 1.2 (bomb:{value}), in {bomb.parent}" in said
    assert not bomb.exists()
    with pytest.raises(ExtensionError, match=r"bomb of bomb 1.2 \(bomb:ENTRY\) must be a LearnerEntry, not"):
        find_learner("bomb")
    assert bomb.exists()


# --- what cannot be used ------------------------------------------------------------------------------------


def test_a_name_of_two_packages_is_refused_and_both_are_named(
    stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(stranger, "other", {Group.LEARNERS: {"centred-ridge": "other:ENTRY"}}, [])
    both = r"from other 1.2 \(other:ENTRY\) and stranger 1.2 \(centred_ridge:ENTRY\): uninstall one"
    with pytest.raises(ExtensionError, match=both):
        find_learner("centred-ridge")
    assert simulations(["compare", "--learner", "centred-ridge"]) == 2
    assert "uninstall one" in capsys.readouterr().err
    assert analytic_secagg(["doctor"]) == 1
    assert "FAIL extensions: 2 packages have a learner centred-ridge" in capsys.readouterr().out
    assert "centred_ridge" not in sys.modules


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise OSError('no such device')", "cannot be imported: OSError: no such device"),
        ("", "cannot be imported: AttributeError: module 'odd' has no attribute 'ENTRY'"),
        ("ENTRY = 3", "must be a LearnerEntry, not a int"),
        (
            "from analytic_secagg.learners import LEARNERS\nENTRY = LEARNERS['afl']",
            "must have this name, not 'afl'",
        ),
    ],
    ids=["import", "attribute", "kind", "name"],
)
def test_an_object_that_is_none_is_refused(folder: Path, source: str, message: str) -> None:
    install(folder, "odd", {Group.LEARNERS: {"odd": "odd:ENTRY"}}, [("odd", source)])
    with pytest.raises(ExtensionError, match=f"the learner odd of odd 1.2 .odd:ENTRY. {re.escape(message)}"):
        find_learner("odd")


@pytest.mark.parametrize("stated", ["Plain", "3"])
def test_a_learner_s_class_is_a_dataclass(stated: str, folder: Path) -> None:
    source = f"class Plain: name = 'plain'\nclass ENTRY: name, learner_class = 'plain', {stated}\n"
    install(folder, "plain", {Group.LEARNERS: {"plain": "plain:ENTRY"}}, [("plain", source)])
    with pytest.raises(ExtensionError, match="the learner plain needs a dataclass as its learner_class"):
        model_from_bytes(of_a_bomb(MODEL, "plain"))


def test_a_model_of_a_learner_that_nobody_has_is_refused(folder: Path) -> None:
    with pytest.raises(ModelFileError, match=r"or of an installed package .*, not 'bomb': install the package"):
        model_from_bytes(of_a_bomb(MODEL))


def test_a_learner_without_an_entry_has_no_file(stranger: Path) -> None:
    own = learner()
    (stranger / "stranger-1.2.dist-info" / "entry_points.txt").write_text("")
    with pytest.raises(SpecificationError, match="have a file format, not of CentredRidge; give it one"):
        model_to_bytes(own, own.init())


# --- the page -----------------------------------------------------------------------------------------------


def test_the_page_shows_the_files_whole_and_every_group() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "extend.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"```\{literalinclude\} \.\./\.\./tests/support/stranger/(\S+)\n:language: \w+\n```", page))
    assert shown == {path.name for path in STRANGER.iterdir() if path.is_file()}
    assert all(group in page for group in Group)
    assert len(page.split()) <= 1200


# --- a mode whose helper has a role of its own: support/stranger/veiled.py -----------------------------------

VEILER_ROLE = "veiler"
VEILER: PartyId = 301
LAYOUT = Layout.of([("entries", 3, 1000)])
COHORT = (1, 2, 3, 4, 5)


@pytest.fixture
def mode(stranger: Path) -> Mode:
    """The mode, found by its entry point."""
    return find_mode("veiled")


def test_it_adds_up_in_one_process_and_costs_what_it_says(mode: Mode) -> None:
    parties = mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16))
    vectors = {party: np.array([party, -party, 7]) for party in COHORT}
    run = run_in_memory(parties, vectors, dropouts={3: 0})
    assert run.result.survivors == (1, 2, 4, 5)
    assert run.result.total.tolist() == [12, -12, 28]
    whole = run_in_memory(mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16)), vectors).traffic
    for role, party in ((CLIENT_ROLE, 1), (VEILER_ROLE, parties.helpers[0])):
        cost = parties.protocol.costs[role]
        assert (whole[party].bytes_up, whole[party].bytes_down) == (cost.bytes_up, cost.bytes_down)


def test_a_policy_judges_it_by_its_own_word(mode: Mode) -> None:
    protocol = mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16)).protocol
    accepts = ClientPolicy(modes=frozenset({"veiled"}), helpers=protocol.public_keys[VEILER_ROLE])
    accepts.check(protocol)
    with pytest.raises(PolicyError, match="1 of the 1 veilers have another key"):
        replace(accepts, helpers={protocol.helpers[0]: bytes(32)}).check(protocol)
    with pytest.raises(PolicyError, match="that 3 colluding clients"):
        replace(accepts, min_corruption=0.6).check(protocol)
    with pytest.raises(PolicyError, match="in masked only"):
        ClientPolicy().check(protocol)


def deployed(trial: Trial, *, sites: tuple[PartyId, ...] = CLIENTS) -> None:
    """Give a trial a veiler: in every roster, and in the file of site 2."""
    own = IdentityKey.generate()
    for path in trial.folder.glob("*/roster.toml"):
        roster = Roster.read(path)
        beside = {**roster.beside, "veilers": {VEILER: own.public}}
        path.write_text(roster.model_copy(update={"beside": beside}).to_toml())
    write_secret(trial.folder / "site-2" / "veiler.key", own.secret)
    with (trial.folder / "site-2" / "site.toml").open("a") as file:
        file.write(f'\n[veiler]\nparty = {VEILER}\nidentity = "veiler.key"\n')
    for party in sites:
        edit(trial, party, ("modes = [", 'modes = ["veiled", '))


def test_a_rehearsal_whose_sites_know_nothing_but_their_files_is_exact(mode: Mode, trial: Trial) -> None:
    """Each delivery is a fresh process, and comes twice: sessions are stored, restored and repeat themselves."""
    deployed(trial)
    rehearse(trial.folder, run_config(mode="veiled"), deliveries=2)
    is_exact(trial, list(CLIENTS))


def test_a_veiler_that_was_killed_answers_the_same_and_nothing_else(mode: Mode, trial: Trial) -> None:
    deployed(trial)
    proposed = announced(trial, proposal(mode="veiled", helpers=(VEILER,), min_survivors=3))
    joined = {party: message for number in CLIENTS for party, message in site(trial, number).join(proposed).items()}
    agreed = Session.of(proposed, Roster.read(trial.folder / "server" / "roster.toml"))
    own = IdentityKey(read_secret(trial.folder / "server" / "identity.key"))
    server = agreed.protocol.server(secrets=knows(own))
    for party in agreed.protocol.clients:
        server.receive(party, joined[party])
    (request,) = server.close_round().values()
    answer = site(trial, 2).answer(proposed.session, {VEILER: request})
    assert site(trial, 2).answer(proposed.session, {VEILER: request}) == answer
    with pytest.raises(LocalProtocolError, match="answers once"):
        site(trial, 2).answer(proposed.session, {VEILER: garbled(request, -1, 1, {SERVER: own})})


def test_a_trial_of_processes_has_a_veiler(mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The local engine: each party is a process that finds the package as any process does."""
    path = [str(tmp_path / "site-packages"), str(Path(__file__).parents[2])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    iris = bundled("iris")
    trial = Trial.create(tmp_path / "trial", iris, n_sites=4, n_helpers=0, are_rows_public=True)
    deployed(trial, sites=(1, 2, 3, 4))
    assert_trained_by_processes(trial, iris, learner="afl", mode="veiled")


def test_who_does_not_name_the_mode_reads_the_roster_and_imports_nothing(
    mode: Mode, trial: Trial, capsys: pytest.CaptureFixture[str]
) -> None:
    deployed(trial)
    edit(trial, 3, ('modes = ["veiled", ', "modes = ["))
    edit(trial, 2, ('modes = ["veiled", ', "modes = ["))
    roster = trial.folder / "server" / "roster.toml"
    del sys.modules["veiled"]
    assert SiteFile.read(trial.site(3) / "site.toml").roster.beside["veilers"].keys() == {VEILER}
    assert analytic_secagg(["roster", str(roster)]) == 0
    assert "1 veilers" in capsys.readouterr().out
    with pytest.raises(SiteFileError, match="no place for veiler"):
        site(trial, 2)
    assert "veiled" not in sys.modules


def test_a_roster_keeps_its_parties_and_a_role_its_number(mode: Mode, trial: Trial) -> None:
    path = trial.folder / "server" / "roster.toml"
    before = Roster.read(path)
    deployed(trial)
    roster = Roster.read(path)
    assert Roster.read(path).to_toml() == path.read_text()
    assert "[beside.veilers]" in path.read_text()
    assert roster.fingerprint != before.fingerprint
    path.write_text(f'{path.read_text()}302 = "{IdentityKey.generate().public.hex()}"\n')
    with pytest.raises(ConfigurationError, match=r"\[veilers\] names one party, not 2"):
        rehearse(trial.folder, run_config(mode="veiled"))


def test_two_roles_never_share_a_table(mode: Mode, trial: Trial, tmp_path: Path) -> None:
    role = "HelperRole(name='aide', table='helpers')"
    source = f"from veiled import *\nMODE = Mode(name='other', make=make, helper={role})"
    install(tmp_path / "site-packages", "other", {Group.MODES: {"other": "other:MODE"}}, [("other", source)])
    edit(trial, 1, ("modes = [", 'modes = ["other", '))
    with pytest.raises(SiteFileError, match="the mode other has the role aide, whose table helpers another role has"):
        site(trial, 1)


def test_it_breaks_where_it_says_and_the_audit_expects_that_it_hides(mode: Mode) -> None:
    parties = mode.in_one_process(layout=LAYOUT, clients=COHORT, session_id=bytes(16))
    assert {stated for _, stated in coalitions(parties.protocol)} == {True, False}
    assert wrongly_stated(parties, {party: np.array([party, -party, 7]) for party in COHORT}) == []
    assert ATTACKS["label_histogram"].expected(mode) is Expectation.HIDDEN
