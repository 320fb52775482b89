"""What tests of the apps in one process share: a run's settings, sites of a trial, what a rehearsal left."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="needs the extra: pip install 'analytic-secagg[flower]'")

from flwr.app import Message, RecordDict

from analytic.learner import ClientRows, fit_pooled
from analytic.model_files import load_model
from federation.flower.rehearsal import InProcessGrid
from federation.flower.trial import copy_template
from federation.flower.wire import CATEGORY, pack, unpack
from federation.server.run_settings import RunSettings
from federation.site import messages
from federation.site.invitation import Invitation
from federation.site.messages import KINDS
from federation.site.site import Site
from federation.site.site_file import SiteFile
from federation.site.state import FILE, PREPARE, Record, SessionFolder
from federation.site.terms import Terms
from federation.trial import Trial
from secagg import new_session_id

CLIENTS = (1, 2, 3, 4, 5)

CONTEXT, INVITE, STEP, END = (CATEGORY + kind for kind in KINDS)
"""Flower's types of this app's messages."""


def read_invitation(record: RecordDict) -> Invitation:
    return messages.read_invitation(unpack(record))[0]


def write_invitation(invitation: Invitation) -> RecordDict:
    return pack(messages.write_invitation(invitation))


def read_messages(record: RecordDict) -> tuple[bytes, dict[int, bytes]]:
    return messages.read_messages(unpack(record))


def write_messages(said: Mapping[int, bytes], *, session: bytes) -> RecordDict:
    return pack(messages.write_messages(said, session=session))


class ForgedGrid(InProcessGrid):
    """Changes what nodes are told and what they say."""

    tell: Callable[[int, Message], None] = staticmethod(lambda node, message: None)
    hear: Callable[[int, Message, Message], None] = staticmethod(lambda node, message, reply: None)

    def push_messages(self, messages: Any) -> Any:
        for message in messages:
            self.tell(message.metadata.dst_node_id, message)
        return super().push_messages(messages)

    def _deliver(self, message: Message) -> Message:
        reply = super()._deliver(message)
        self.hear(message.metadata.dst_node_id, message, reply)
        return reply


def run_config(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """What the template says, with a trial's promises and with changes."""
    copy_template(tmp_path / "app")
    content = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    config = content["tool"]["flwr"]["app"]["config"]
    assert changes.keys() <= config.keys()
    return dict(config | {"corruption": 0.0, "dropout": 0.4} | changes)


def edit(trial: Trial, party: int, *replacements: tuple[str, str]) -> None:
    path = trial.folder / f"site-{party}" / "site.toml"
    text = path.read_text()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)


def edit_all(trial: Trial, *replacements: tuple[str, str]) -> None:
    for party in trial.rows:
        edit(trial, party, *replacements)


def weigh(trial: Trial) -> None:
    """Give every site's rows weights."""
    for party, rows in trial.rows.items():
        rows.weights = np.arange(len(rows)) % 5
        path = trial.folder / f"site-{party}" / "rows.npz"
        with np.load(path) as archive:
            np.savez(path, w_train=rows.weights, **archive)


def node_of(party: int) -> int:
    return 1000 + party


def events(trial: Trial) -> list[dict[str, Any]]:
    path = trial.folder / "server" / "models" / "rehearsal" / "progress.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def is_exact(trial: Trial, survivors: list[int]) -> None:
    saved = load_model(trial.folder / "server" / "models" / "rehearsal" / "model.safetensors")
    pooled = fit_pooled(saved.learner, ClientRows.pool([trial.rows[party] for party in survivors]))
    assert saved.learner.weights_bytes(saved.model) == saved.learner.weights_bytes(pooled)


def vanishes(party: int, kind: str, number: int = 1) -> Any:
    """A fault: from its ``number``-th message of a kind on this party's node answers nothing."""
    seen: Counter[str] = Counter()

    def is_gone(node: int, message: Message) -> bool:
        if node != node_of(party):
            return False
        seen[message.metadata.message_type] += 1
        return seen[kind] >= number

    return is_gone


def template_config() -> dict[str, Any]:
    path = Path(__file__).resolve().parents[3] / "federation" / "flower" / "template" / "pyproject.toml"
    return dict(tomllib.loads(path.read_text())["tool"]["flwr"]["app"]["config"])


def invitation(**changes: Any) -> Invitation:
    learner = RunSettings.of(template_config()).build_learner(len(CLIENTS))
    values: dict[str, Any] = {"mode": "masked", "session": new_session_id(), "clients": CLIENTS, "dropout": 0.4}
    return Invitation.make(Terms(**(values | changes)), learner, learner.init())


def site(trial: Trial, party: int, **options: Any) -> Site:
    """A site in a process of its own, as far as it can tell."""
    return Site(SiteFile.read(trial.folder / f"site-{party}" / "site.toml"), **options)


def announced(trial: Trial, proposed: Invitation) -> Invitation:
    """The invitation with what the trial's helpers announce for it."""
    said: dict[int, bytes] = {}
    for party in trial.rows:
        said |= site(trial, party).announce(proposed)
    return proposed.with_announced(said)


def state(trial: Trial, party: int) -> Path:
    return trial.folder / f"site-{party}" / "state"


@contextlib.contextmanager
def database(trial: Trial, party: int) -> Iterator[sqlite3.Connection]:
    """A site's sessions; there are none where it never took part."""
    path = state(trial, party) / FILE
    with contextlib.closing(sqlite3.connect(path if path.exists() else ":memory:", isolation_level=None)) as opened:
        opened.executescript(PREPARE)
        yield opened


def kept(trial: Trial, party: int, session: bytes | None = None) -> set[str]:
    """What a site keeps of sessions, of one or of all: ``invitation``, the names of records, and ``over``."""
    with database(trial, party) as opened:
        sessions = opened.execute("SELECT id, iif(invitation IS NULL, 'over', 'invitation') FROM sessions").fetchall()
        records = opened.execute("SELECT session, name FROM records WHERE session != x''").fetchall()
    return {name for id_, name in [*sessions, *records] if session in (None, id_)}


def stored(trial: Trial, party: int) -> set[bytes]:
    """The bytes of a site's files, and of each record by itself."""
    with database(trial, party) as opened:
        records = {content for (content,) in opened.execute("SELECT content FROM records")}
    return records | {path.read_bytes() for path in state(trial, party).glob("*")}


def is_wiped(trial: Trial) -> bool:
    """Whether no site keeps more than that sessions are over."""
    return all(kept(trial, party) <= {"over"} for party in trial.rows)


def change_record(trial: Trial, party: int, session: bytes, name: str, change: Callable[[bytes], bytes]) -> None:
    folder = SessionFolder(state(trial, party))
    with folder.locked():
        record = Record(folder, session, name)
        content = record.load()
        assert content is not None
        record.save(change(content))


def last_byte_changed(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])
