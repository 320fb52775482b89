"""The apps in one process: every mode and learner, lost nodes, repeated messages, liars, and what leaves a site."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from rehearsed import (
    END,
    INVITE,
    STEP,
    edit,
    edit_all,
    events,
    is_exact,
    kept,
    node_of,
    read_invitation,
    read_messages,
    run_config,
    state,
    stored,
    vanishes,
    weigh,
    write_invitation,
)

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model, model_from_bytes, model_to_bytes
from analytic.partial_labels import UNKNOWN
from federation.datasets import bundled
from federation.flower import rehearsal
from federation.flower.rehearsal import InProcessGrid, rehearse
from federation.flower.trial import make_trial
from federation.modes import MODES
from federation.release import ReleaseRefusedError
from federation.server.run_settings import RunSettings
from federation.site.errors import REASONS, Refusal, UnreachableError
from federation.site.key_files import write_secret
from federation.site.roster import Roster
from federation.trial import PRIVATE_MODES, Trial
from secagg import Layout
from secagg.committee.helper import CommitteeHelper
from secagg.errors import TooFewSurvivorsError
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey
from secagg.wire import HEADER_BYTES

LEAK = "row 3.14159265 of patient 4711"


@pytest.mark.parametrize("mode", ["masked", "committee"])
@pytest.mark.parametrize(
    ("learner", "options"),
    [
        ("afl", ""),
        ("fedhip", ""),
        ("deepafl", "n_layers=1 d_phi=8 d_f=8"),
        ("safle", "n_buckets=4 group_size=2"),
        ("weighted-afl", "max_weight=4 class_weights=balanced"),
    ],
)
def test_every_learner_is_exact_over_every_private_mode(
    trial: Trial, tmp_path: Path, mode: str, learner: str, options: str
) -> None:
    edit_all(trial, ('learners = ["afl"]', f'learners = ["{learner}"]'))
    if learner == "weighted-afl":
        weigh(trial)
    config = {"learner": learner.removeprefix("weighted-"), "options": options, "mode": mode}
    if learner == "deepafl":
        config["ridge"] = 0.01
    rehearse(trial.folder, run_config(tmp_path, **config))
    is_exact(trial, [1, 2, 3, 4, 5])


def label_in_part(trial: Trial, late: tuple[int, ...]) -> str:
    """Have sites up to 3 label rows for early classes, and late ones for late classes; who is both, half and half."""
    for party, rows in trial.rows.items():
        path = trial.folder / f"site-{party}" / "rows.npz"
        with np.load(path) as archive:
            content = dict(archive)
        for key in ("y_train", "y_test"):
            labels = content[key]
            is_late = np.arange(len(labels)) % 2 == 0 if party in late else np.zeros(len(labels), dtype=bool)
            is_late |= party > 3
            content[key] = np.eye(10, dtype=np.int64)[labels]
            content[key][is_late, :5] = content[key][~is_late, 5:] = UNKNOWN
        rows.targets, trial.test_rows[party].targets = content["y_train"], content["y_test"]
        np.savez(path, **content)
    return "patterns=0+1+2+3+4,5+6+7+8+9"


AROUND: dict[str, tuple[str, dict[str, Any]]] = {
    "chosen": ("chosen-afl", {"learner": "afl", "ridge": "cv", "options": "folds=2"}),
    "weighted": ("weighted-afl", {"learner": "afl", "options": "max_weight=4 class_weights=balanced"}),
    "partial": ("partial-afl", {"learner": "afl"}),
}
"""What stands around a solve: the learner that sites list, and a run's settings."""

SHORT = {("chosen", "bfv"), ("partial", "masked")}
"""The lines that are not slow: each is seconds."""


@pytest.mark.parametrize(
    ("around", "mode"),
    [
        pytest.param(around, mode, marks=[] if (around, mode) in SHORT else pytest.mark.slow)
        for around in AROUND
        for mode in PRIVATE_MODES
        if not MODES[mode].missing_extra
    ],
)
def test_what_stands_around_a_solve_is_exact_over_every_private_mode(
    trial: Trial, tmp_path: Path, around: str, mode: str
) -> None:
    """A ridge chosen, rows weighed or labelled in part; and the model judged through one more sum."""
    name, settings = AROUND[around]
    judge = "evaluation-of-labels" if around == "partial" else "evaluation-of-classes"
    edit_all(trial, ('learners = ["afl"]', f'learners = ["{name}", "{judge}"]'))
    if around == "weighted":
        weigh(trial)
    if around == "partial":
        settings = settings | {"options": label_in_part(trial, late=(3, 4, 5))}
    config = run_config(tmp_path, mode=mode, evaluate=True, **settings, **{"allow-low-rank": True})
    rehearse(trial.folder, config)
    is_exact(trial, [1, 2, 3, 4, 5])
    folder = trial.folder / "server" / "models" / "rehearsal"
    saved = load_model(folder / "model.safetensors")
    evaluation: Any = RunSettings.of(config).evaluation(saved.learner, saved.model)
    pooled = fit_pooled(evaluation, ClientRows.pool(list(trial.test_rows.values())))
    said = json.loads((folder / "evaluation.json").read_text())
    assert said == json.loads(json.dumps({"survivors": [1, 2, 3, 4, 5], **pooled.figures}))
    assert said["accuracy"] > 0.8


@pytest.mark.parametrize(("fewest", "passes"), [(2, True), (3, False)])
def test_a_pattern_of_labels_has_as_many_sites_as_a_total_must(
    trial: Trial, tmp_path: Path, fewest: int, passes: bool
) -> None:
    """All five sites are in the total, and two of them alone in the part of it that says something of late classes."""
    edit_all(trial, ('learners = ["afl"]', 'learners = ["partial-afl"]'))
    options = label_in_part(trial, late=(4, 5))
    config = run_config(tmp_path, learner="afl", options=options, **{"min-survivors": fewest, "allow-low-rank": True})
    if passes:
        rehearse(trial.folder, config)
        is_exact(trial, [1, 2, 3, 4, 5])
        return
    with pytest.raises(ReleaseRefusedError, match=r"part 2 of 2 .* at least 3 clients and has 2"):
        rehearse(trial.folder, config)
    assert not (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()


def test_plain_sums_only_where_every_site_lists_them(trial: Trial, tmp_path: Path) -> None:
    config = run_config(tmp_path, mode="plain")
    with pytest.raises(TooFewSurvivorsError):
        rehearse(trial.folder, config)
    lost = [event for event in events(trial) if event["event"] == "node lost"]
    assert [event["reason"] for event in lost] == [REASONS[Refusal.DECLINED]] * 5
    edit_all(trial, ("modes = [", 'modes = ["plain", '))
    rehearse(trial.folder, config)
    is_exact(trial, [1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("kind", "number", "in_the_sum"),
    [(INVITE, 1, False), (STEP, 1, False), (STEP, 2, False), (STEP, 3, True), (STEP, 4, True), (END, 1, True)],
    ids=["before keys", "before shares", "before input", "before signature", "before unmasking", "before the end"],
)
def test_a_node_may_vanish_at_any_point_of_a_masked_sum(
    trial: Trial, tmp_path: Path, kind: str, number: int, in_the_sum: bool
) -> None:
    rehearse(trial.folder, run_config(tmp_path), is_gone=vanishes(5, kind, number))
    is_exact(trial, [1, 2, 3, 4, 5] if in_the_sum else [1, 2, 3, 4])


def test_a_committee_client_is_done_with_one_message(trial: Trial, tmp_path: Path) -> None:
    rehearse(trial.folder, run_config(tmp_path, mode="committee"), is_gone=vanishes(5, STEP))
    is_exact(trial, [1, 2, 3, 4, 5])


def test_a_missing_helper_stops_the_sum_before_any_is_asked(trial: Trial, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"1 of the 2 helpers did not answer \(party 102\)"):
        rehearse(trial.folder, run_config(tmp_path, mode="committee"), is_gone=vanishes(2, INVITE))
    assert not any(event.get("round") == "MASK_REQUEST" for event in events(trial))


@pytest.mark.parametrize("kind", [(INVITE, 1), (STEP, 1), (STEP, 2), (STEP, 4)])
def test_one_of_four_helpers_may_vanish_at_any_point(tmp_path: Path, kind: tuple[str, int]) -> None:
    """The roster says how many may collude, and no server does."""
    of_four = make_trial(tmp_path / "of-four", bundled("digits"), n_sites=5, n_helpers=4, address="127.0.0.1:9092")
    rehearse(of_four.folder, run_config(tmp_path, mode="committee"), is_gone=vanishes(1, *kind))
    is_exact(of_four, [2, 3, 4, 5] if kind == (INVITE, 1) else [1, 2, 3, 4, 5])


def test_one_of_four_helpers_may_lie_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    liar, honest = 103, CommitteeHelper._sum

    def lies(self: CommitteeHelper, place: int) -> bytes:
        return bytes(len(honest(self, place))) if self.party == liar else honest(self, place)

    monkeypatch.setattr(CommitteeHelper, "_sum", lies)
    of_four = make_trial(tmp_path / "of-four", bundled("digits"), n_sites=5, n_helpers=4, address="127.0.0.1:9093")
    rehearse(of_four.folder, run_config(tmp_path, mode="committee"))
    is_exact(of_four, [1, 2, 3, 4, 5])
    said = [event["helpers"] for event in events(of_four) if event["event"] == "different sums of masks"]
    assert said
    assert all(liar in pair for pair in said)


def test_too_few_survivors_leave_no_model_and_no_session(trial: Trial, tmp_path: Path) -> None:
    def is_gone(node: int, message: Message) -> bool:
        return node >= node_of(3) and message.metadata.message_type == STEP

    with pytest.raises(TooFewSurvivorsError, match="SEALED_SHARES: 2 of 5"):
        rehearse(trial.folder, run_config(tmp_path), is_gone=is_gone)
    assert not (trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").exists()
    assert all(kept(trial, party) == {"over"} for party in trial.rows)


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_a_repeated_message_gets_the_same_bytes(trial: Trial, tmp_path: Path, mode: str) -> None:
    """Each delivery is a ClientApp of its own, as when a process dies after it answered and is asked again."""
    answers: dict[tuple[int, str], list[Any]] = {}

    def watch(node: int, message: Message, reply: Message) -> None:
        assert not reply.has_error()
        answers.setdefault((node, message.metadata.message_id), []).append(read_messages(reply.content))

    rehearse(trial.folder, run_config(tmp_path, mode=mode), watch=watch, deliveries=3)
    assert len(answers) > 10
    assert all(first == second == third for first, second, third in answers.values())
    is_exact(trial, [1, 2, 3, 4, 5])


def test_nothing_of_an_exception_leaves_the_site(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "leaky_rows.py").write_text(f"def load():\n    raise ValueError({LEAK!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    edit(trial, 4, ('"rows.npz"', '"leaky_rows:load"'))
    replies = []
    rehearse(trial.folder, run_config(tmp_path), watch=lambda node, message, reply: replies.append(reply))
    is_exact(trial, [1, 2, 3, 5])
    errors = [reply.error for reply in replies if reply.has_error()]
    assert [(error.code, error.reason) for error in errors[:1]] == [(Refusal.FAILED, REASONS[Refusal.FAILED])]
    assert all(error.reason in REASONS.values() for error in errors)
    assert LEAK not in caplog.text + json.dumps(events(trial))
    assert "leaky_rows:load must be a function" in caplog.text
    assert "raised ValueError" in caplog.text


def test_what_a_site_stores_is_sealed(trial: Trial, tmp_path: Path) -> None:
    """A plain sum's message shows an entry of the Gram, the stored copy of the same message does not."""
    units = np.floor(trial.rows[1].features * 2048).astype(np.int64)
    entry = int(units[:, 36] @ units[:, 36]).to_bytes(8, "little")[:5]
    secret = bytes.fromhex((trial.folder / "site-1" / "identity.key").read_text())
    held: set[bytes] = set()
    said: list[bytes] = []

    def watch(node: int, message: Message, reply: Message) -> None:
        assert all(path.stat().st_mode & 0o077 == 0 for path in state(trial, node - 1000).iterdir())
        held.update(stored(trial, node - 1000))
        said.extend(read_messages(reply.content)[1].values())

    edit_all(trial, ("modes = [", 'modes = ["plain", '))
    for mode, is_open in (("masked", False), ("committee", False), ("plain", True)):
        said.clear()
        rehearse(trial.folder, run_config(tmp_path / mode, mode=mode), watch=watch)
        assert any(entry in message for message in said) == is_open
    assert max(map(len, held)) > 10_000
    assert not any(entry in content or secret in content for content in held)
    assert kept(trial, 1) == {"over"}


class LyingGrid(InProcessGrid):
    """Tells one node another model: more rows than the others may hold."""

    def push_messages(self, messages: Any) -> Any:
        for message in messages:
            if message.metadata.message_type == INVITE and message.metadata.dst_node_id == node_of(3):
                told = read_invitation(copy.deepcopy(message.content))  # all nodes are told the same object
                saved = model_from_bytes(told.model)
                other = replace(saved.learner, max_rows=saved.learner.max_rows + 1)  # type: ignore[type-var,call-arg,attr-defined]
                message.content = write_invitation(replace(told, model=model_to_bytes(other, saved.model)))
        return super().push_messages(messages)


@pytest.mark.parametrize("mode", ["masked", "committee"])
def test_a_client_that_was_told_another_model_is_not_summed(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(rehearsal, "InProcessGrid", LyingGrid)
    rehearse(trial.folder, run_config(tmp_path, mode=mode))
    is_exact(trial, [1, 2, 4, 5])


def test_a_node_with_a_forged_identity_is_refused(trial: Trial, tmp_path: Path) -> None:
    """It knows the roster, puts its own key in client 3's place, and is caught by the others' copies."""
    folder = trial.folder / "site-3"
    forged = IdentityKey(bytes(range(32)))
    (folder / "identity.key").unlink()
    write_secret(folder / "identity.key", forged.secret)
    roster = Roster.read(folder / "roster.toml")
    mine = Roster(server=roster.server, clients=dict(roster.clients) | {3: forged.public}, beside=roster.beside)
    (folder / "roster.toml").write_text(mine.to_toml())
    rehearse(trial.folder, run_config(tmp_path))
    assert any(event["event"] == "refused" for event in events(trial))
    is_exact(trial, [1, 2, 4, 5])


def test_a_node_that_claims_another_party_gets_nowhere(trial: Trial, tmp_path: Path) -> None:
    """Client 3's whole folder, copied to a second node: the first node whose message counted keeps the party."""
    import shutil

    shutil.copytree(trial.folder / "site-3", trial.folder / "site-9")
    rehearse(trial.folder, run_config(tmp_path))
    assert "at another node" in json.dumps(events(trial))
    is_exact(trial, [1, 2, 3, 4, 5])


def test_a_learner_that_the_site_does_not_list_is_declined(trial: Trial, tmp_path: Path) -> None:
    edit(trial, 2, ('learners = ["afl"]', 'learners = ["fedhip"]'))
    rehearse(trial.folder, run_config(tmp_path))
    is_exact(trial, [1, 3, 4, 5])


def test_progress_counts_arrivals_bytes_and_deadlines(trial: Trial, tmp_path: Path) -> None:
    rehearse(trial.folder, run_config(tmp_path))
    rounds = [event["round"] for event in events(trial) if event["event"] == "round opens"]
    assert rounds == ["INVITATION", "ROSTER", "SHARE_DELIVERY", "UNMASK_REQUEST", "SURVIVOR_PROOF", "END"]
    closed = {event["round"]: event for event in events(trial) if event["event"] == "round closes"}
    assert all((event["arrived"], event["expected"]) == (5, 5) for event in closed.values())
    learner = load_model(trial.folder / "server" / "models" / "rehearsal" / "model.safetensors").learner
    spec = learner.next_sum(learner.init())
    assert spec is not None
    assert closed["SHARE_DELIVERY"]["bytes"] == 5 * (
        HEADER_BYTES + Layout.of(spec.segments).wire_bytes + SIGNATURE_BYTES
    )
    deadlines = {event["deadline_seconds"] for event in events(trial) if event["event"] == "round opens"}
    assert deadlines == {120.0}
