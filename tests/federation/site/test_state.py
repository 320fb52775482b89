"""A site's folder of sessions: what a crash leaves there, and when it is forgotten."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rehearsed import edit, invitation, site, state

from federation.flower.__main__ import main
from federation.flower.trial import KEY_HOLDER_PARTY, Trial
from federation.site.errors import DeclinedError, NoSessionError, SiteFileError
from federation.site.site import Site
from federation.site.site_file import SiteFile
from secagg.errors import SnapshotError

HOUR = 3600.0


def suffixes(trial: Trial, party: int, session: bytes) -> set[str]:
    return {path.suffix for path in state(trial, party).glob(f"{session.hex()}.*")}


@pytest.mark.parametrize("n_done", range(3))
def test_a_crash_while_a_session_is_forgotten_leaves_no_secret_for_long(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, n_done: int
) -> None:
    """A client that is a helper too: killed after each file. What is left is seen by the next sweep."""
    proposed = invitation(mode="committee", helpers=(101, 102), min_survivors=3)
    site(trial, 1).join(proposed)
    unlink, left = Path.unlink, [n_done]

    def killed(path: Path, missing_ok: bool = False) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", killed)
    with pytest.raises(KeyboardInterrupt):
        site(trial, 1).end(proposed.session)
    monkeypatch.undo()
    found = suffixes(trial, 1, proposed.session)
    assert len(found) == 4 - n_done
    assert found >= {".over", ".invitation"}
    site(trial, 1).join(invitation())
    assert suffixes(trial, 1, proposed.session) == {".over"}


def test_what_lies_beside_the_end_of_a_session_goes_with_the_next_sweep(trial: Trial) -> None:
    """Whatever it is, and whatever else somebody keeps in the folder."""
    session = bytes(range(32))
    site(trial, 1).join(invitation())
    for suffix in (".over", ".key-pair", ".1.new"):
        (state(trial, 1) / f"{session.hex()}{suffix}").touch(mode=0o600)
    (state(trial, 1) / "notes.txt").touch()
    site(trial, 1).sweep()
    assert suffixes(trial, 1, session) == {".over"}
    assert (state(trial, 1) / "notes.txt").exists()


@pytest.mark.parametrize(
    "word",
    [
        lambda site, new: site.join(invitation()),
        lambda site, new: site.answer(new.session, {}),
        lambda site, new: site.end(new.session),
    ],
    ids=["invitation", "request", "end"],
)
def test_any_word_of_any_server_ends_old_sessions(trial: Trial, word: Callable[[Site, Any], object]) -> None:
    old, new = invitation(), invitation()
    site(trial, 1).join(old)
    begun = (state(trial, 1) / f"{old.session.hex()}.1").stat().st_mtime
    site(trial, 1).join(new)
    word(site(trial, 1, now=lambda: begun + 23 * HOUR), new)
    assert ".1" in suffixes(trial, 1, old.session)
    site(trial, 1).join(new := invitation())
    word(site(trial, 1, now=lambda: begun + 25 * HOUR), new)
    assert suffixes(trial, 1, old.session) == {".over"}


def test_a_session_that_is_asked_is_not_old(trial: Trial) -> None:
    """Its server is late, and there."""
    old = invitation()
    site(trial, 1).join(old)
    begun = (state(trial, 1) / f"{old.session.hex()}.1").stat().st_mtime
    assert site(trial, 1, now=lambda: begun + 25 * HOUR).answer(old.session, {}) == {}
    assert ".1" in suffixes(trial, 1, old.session)


def test_check_site_forgets_old_sessions(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    old, path = invitation(), trial.folder / "site-1" / "site.toml"
    site(trial, 1).join(old)
    assert main(["check-site", str(path)]) == 0
    assert ".1" in suffixes(trial, 1, old.session)
    edit(trial, 1, ('state = "state"', 'state = "state"\nforget_hours = 0'))
    assert main(["check-site", str(path)]) == 0
    assert suffixes(trial, 1, old.session) == {".over"}


def test_a_folder_that_cannot_be_made(trial: Trial) -> None:
    edit(trial, 1, ('state = "state"', 'state = "site.toml/state"'))
    with pytest.raises(SiteFileError, match=r"cannot keep sessions in .*Not a directory; name another folder"):
        site(trial, 1).join(invitation())


@pytest.mark.parametrize("session", [b"", b"short", bytes(65)])
def test_an_id_that_no_session_has(trial: Trial, session: bytes) -> None:
    with pytest.raises(NoSessionError, match="16 to 64 bytes"):
        site(trial, 1).answer(session, {})


def test_a_changed_key_pair_does_not_open(trial: Trial) -> None:
    asked = invitation(mode="bfv", helpers=(KEY_HOLDER_PARTY,), min_survivors=3)
    site(trial, 5).make_context(asked)
    path = state(trial, 5) / f"{asked.session.hex()}.key-pair"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(SnapshotError, match="stored key pair does not open"):
        site(trial, 5).make_context(asked)


def test_a_site_needs_a_role(trial: Trial) -> None:
    path = trial.folder / "site-3" / "site.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[client]")] + text[text.index("[policy]") :])
    with pytest.raises(SiteFileError, match="a site needs a role"):
        SiteFile.read(path)


def test_a_host_that_only_helps_has_no_part_in_other_sums(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    path = trial.folder / "site-1" / "site.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[client]")] + text[text.index("[policy]") :])
    assert main(["check-site", str(path)]) == 0
    assert "client" not in capsys.readouterr().out
    with pytest.raises(DeclinedError, match="this site has no part in this sum"):
        site(trial, 1).join(invitation())
    assert set(site(trial, 1).join(invitation(mode="committee", helpers=(101, 102), min_survivors=3))) == {101}


def test_another_helper_s_key(trial: Trial) -> None:
    edit(trial, 1, ("party = 101", "party = 102"))
    with pytest.raises(SiteFileError, match="another key for helper 102"):
        SiteFile.read(trial.folder / "site-1" / "site.toml")


def test_rows_of_a_function(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rows.py").write_text("def load():\n    return [[0.5, 1.0], [0.0, 0.5]], [0, 1]\n")
    monkeypatch.syspath_prepend(tmp_path)
    edit(trial, 3, ('"rows.npz"', '"own_rows:load"'))
    client = SiteFile.read(trial.folder / "site-3" / "site.toml").client
    assert client is not None
    assert client.rows().features.tolist() == [[0.5, 1.0], [0.0, 0.5]]
