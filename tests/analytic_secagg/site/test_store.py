"""A site's folder of sessions: what a crash leaves there, and when it is forgotten."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.rehearsed import (
    announced,
    change_record,
    edit,
    kept,
    last_byte_changed,
    proposal,
    site,
    state,
    stored,
    without_client,
)

from analytic_secagg.__main__ import main
from analytic_secagg.site.errors import DeclinedError, NoSessionError, SiteFileError
from analytic_secagg.site.site import Site
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.site.store import FILE, SessionStore
from analytic_secagg.trial import KEY_HOLDER_PARTY, Trial
from secagg.errors import SnapshotError

HOUR = 3600.0


@pytest.mark.parametrize("n_done", range(2))
def test_a_crash_while_a_session_is_forgotten_leaves_no_secret_for_long(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, n_done: int
) -> None:
    """A client that is a helper too: killed before each write. What is left is seen by the next sweep."""
    proposed = announced(trial, proposal(mode="committee", helpers=(101, 102), min_survivors=3))
    site(trial, 1).join(proposed)
    run, left = SessionStore.run, [n_done]

    def killed(folder: SessionStore, statement: str, *values: object) -> list[Any]:
        left[0] -= not statement.startswith("SELECT")
        if left[0] < 0:
            raise KeyboardInterrupt
        return run(folder, statement, *values)

    monkeypatch.setattr(SessionStore, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        site(trial, 1).end(proposed.session)
    monkeypatch.undo()
    assert kept(trial, 1, proposed.session) == {"1", "101", "over" if n_done else "invitation"}
    if n_done:
        site(trial, 1).join(proposal())
    else:  # nothing was done, as if the word had not come; it comes again
        site(trial, 1).end(proposed.session)
    assert kept(trial, 1, proposed.session) == {"over"}


def test_what_is_wiped_is_overwritten_in_the_file(trial: Trial) -> None:
    proposed = proposal()
    site(trial, 1).join(proposed)
    (record,) = [content for content in stored(trial, 1) if not content.startswith(b"SQLite")]
    pieces = [record[place : place + 32] for place in range(0, len(record) - 32, 100)]
    assert sum(piece in content for piece in pieces for content in stored(trial, 1)) > len(pieces)
    site(trial, 1).end(proposed.session)
    (content,) = stored(trial, 1)
    assert not any(piece in content for piece in pieces)


def test_one_process_at_a_time(trial: Trial) -> None:
    """The second waits until the first is done, and a record that outlives its lock writes nothing."""
    folder, order = SessionStore(state(trial, 1)), []

    def second() -> None:
        with SessionStore(state(trial, 1)).locked():
            order.append("second")

    with folder.locked():
        record = folder.record(bytes(16), 1)
        waiting = threading.Thread(target=second)
        waiting.start()
        time.sleep(0.3)
        order.append("first")
    waiting.join(timeout=600)
    assert order == ["first", "second"]
    with pytest.raises(AssertionError, match="while they are locked"):
        record.save(b"late")


def test_sessions_that_an_earlier_release_kept_as_files_are_over(trial: Trial) -> None:
    """Their ids were used. Whatever else somebody keeps in the folder stays."""
    proposed = proposal()
    state(trial, 1).mkdir(mode=0o700)
    for suffix in (".invitation", ".key-pair", ".1", ".1.new"):
        (state(trial, 1) / f"{proposed.session.hex()}{suffix}").touch(mode=0o600)
    (state(trial, 1) / f"{bytes(32).hex()}.over").touch()
    (state(trial, 1) / "notes.txt").touch()
    with pytest.raises(NoSessionError, match="is over"):
        site(trial, 1).join(proposed)
    assert kept(trial, 1, proposed.session) == kept(trial, 1, bytes(32)) == {"over"}
    assert sorted(path.name for path in state(trial, 1).iterdir()) == ["notes.txt", FILE]


@pytest.mark.parametrize(
    "word",
    [
        lambda site, new: site.join(proposal()),
        lambda site, new: site.answer(new.session, {}),
        lambda site, new: site.end(new.session),
    ],
    ids=["invitation", "request", "end"],
)
def test_any_word_of_any_server_ends_old_sessions(trial: Trial, word: Callable[[Site, Any], object]) -> None:
    old, new = proposal(), proposal()
    site(trial, 1).join(old)
    begun = time.time()
    site(trial, 1).join(new)
    word(site(trial, 1, now=lambda: begun + 23 * HOUR), new)
    assert "1" in kept(trial, 1, old.session)
    site(trial, 1).join(new := proposal())
    word(site(trial, 1, now=lambda: begun + 25 * HOUR), new)
    assert kept(trial, 1, old.session) == {"over"}


def test_a_session_that_is_asked_is_not_old(trial: Trial) -> None:
    """Its server is late, and there."""
    old = proposal()
    site(trial, 1).join(old)
    begun = time.time()
    assert site(trial, 1, now=lambda: begun + 25 * HOUR).answer(old.session, {}) == {}
    assert "1" in kept(trial, 1, old.session)


def test_check_site_forgets_old_sessions(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    old, path = proposal(), trial.folder / "site-1" / "site.toml"
    site(trial, 1).join(old)
    assert main(["check-site", str(path)]) == 0
    assert "1" in kept(trial, 1, old.session)
    edit(trial, 1, ('state = "state"', 'state = "state"\nforget_hours = 0'))
    assert main(["check-site", str(path)]) == 0
    assert kept(trial, 1, old.session) == {"over"}


def test_a_folder_that_cannot_be_made(trial: Trial) -> None:
    edit(trial, 1, ('state = "state"', 'state = "site.toml/state"'))
    with pytest.raises(SiteFileError, match=r"cannot keep sessions in .*Not a directory; name another folder"):
        site(trial, 1).join(proposal())


@pytest.mark.parametrize("session", [b"", b"short", bytes(65)])
def test_an_id_that_no_session_has(trial: Trial, session: bytes) -> None:
    with pytest.raises(NoSessionError, match="16 to 64 bytes"):
        site(trial, 1).answer(session, {})


def test_a_changed_key_pair_does_not_open(trial: Trial) -> None:
    pytest.importorskip("tenseal", reason="needs the extra: pip install '.[he]'")
    asked = proposal(mode="bfv", helpers=(KEY_HOLDER_PARTY,), min_survivors=3)
    site(trial, 5).announce(asked)
    change_record(trial, 5, asked.session, "key pair", last_byte_changed)
    with pytest.raises(SnapshotError, match="stored key pair does not open"):
        site(trial, 5).announce(asked)


def test_a_site_needs_a_role(trial: Trial) -> None:
    without_client(trial, 3)
    with pytest.raises(SiteFileError, match="a site needs a role"):
        SiteFile.read(trial.site(3) / "site.toml")


def test_a_host_that_only_helps_has_no_part_in_other_sums(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    without_client(trial, 1)
    assert main(["check-site", str(trial.site(1) / "site.toml")]) == 0
    assert "client" not in capsys.readouterr().out
    with pytest.raises(DeclinedError, match="this site has no part in this sum"):
        site(trial, 1).join(proposal())
    assert set(
        site(trial, 1).join(announced(trial, proposal(mode="committee", helpers=(101, 102), min_survivors=3)))
    ) == {101}


def test_rows_of_a_function(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rows.py").write_text("def load():\n    return [[0.5, 1.0], [0.0, 0.5]], [0, 1]\n")
    monkeypatch.syspath_prepend(tmp_path)
    edit(trial, 3, ('"rows.npz"', '"own_rows:load"'))
    client = SiteFile.read(trial.folder / "site-3" / "site.toml").client
    assert client is not None
    assert client.rows().features.tolist() == [[0.5, 1.0], [0.0, 0.5]]
