"""Encrypted sums: every mode exact, a key for each sum, a key holder that is asked twice, and strangers' keys."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from typing import Any

import pytest
from support.extras import needs
from support.parties import knows
from support.rehearsed import (
    events,
    is_exact,
    is_wiped,
    kept,
    pin_run,
    proposal,
    rehearse,
    run_config,
    site,
    state,
    stored,
    vanishes,
)

from analytic_secagg.modes import KEY_HOLDER, MODES
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.server.run_store import StoppedRunError
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.site.errors import DeclinedError, NoSessionError, Refusal, RunSettingsError, SiteFileError
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.key_pair import SessionKeyPair
from analytic_secagg.site.messages import (
    CONTEXT,
    INVITE,
    STEP,
    read_messages,
    read_proposal,
    write_messages,
)
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session, config_of
from analytic_secagg.site.store import SessionStore
from analytic_secagg.trial import KEY_HOLDER_PARTY, Trial
from secagg import PartySecrets, new_session_id
from secagg.config import SERVER
from secagg.errors import HelperMissingError, LocalProtocolError, RemoteProtocolError
from secagg.primitives.identity import SIGNATURE_BYTES, IdentityKey
from secagg.wire import MessageType, message_type, seal_frame

ENCRYPTED = [name for name, mode in MODES.items() if mode.helper is KEY_HOLDER]
HOLDER_SITE = 5
"""The site of the key holder, which is a client too."""


needs("tenseal")


def question(mode: str = "bfv", **changes: Any) -> TrainingProposal:
    return proposal(**{"mode": mode, "helpers": (KEY_HOLDER_PARTY,), "min_survivors": 3} | changes)


def answered(trial: Trial, asked: TrainingProposal) -> TrainingProposal:
    return asked.with_announced(site(trial, HOLDER_SITE).announce(asked))


@pytest.mark.parametrize("mode", ENCRYPTED)
def test_every_encrypted_mode_is_exact_and_has_its_rounds(trial: Trial, mode: str) -> None:
    """Each message is delivered twice, to a site that knows nothing but its files, the key holder included."""
    answers: dict[tuple[int, bytes], set[bytes | Refusal]] = {}

    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        answers.setdefault((party, content), set()).add(said)
        return said

    rehearse(trial.folder, run_config(mode=mode), hear=hear, deliveries=2)
    is_exact(trial, [1, 2, 3, 4, 5])
    assert all(len(said) == 1 for said in answers.values())
    assert is_wiped(trial)
    titles = [event["round"] for event in events(trial) if event["event"] == "round opens"]
    masked = ["ROSTER", "SHARE_DELIVERY", "UNMASK_REQUEST", "SURVIVOR_PROOF"]
    before = masked if mode.startswith("masked") else ["SURVIVOR_SET"]
    assert titles == ["ANNOUNCEMENT", "INVITATION", *before, "DECRYPTION_REQUEST", "END"]


@pytest.mark.parametrize("mode", ["bfv", "ckks"])
def test_survivors_that_the_key_holder_refuses_lock_nobody_s_rows(trial: Trial, mode: str) -> None:
    """It cannot tell new rows from old ones, so it refuses four of five; nobody has seen a total of these rows."""
    pin_run(trial, mode=mode)
    rehearse(trial.folder, run_config(mode=mode))
    for party, rows in trial.rows.items():
        rows.features[:] = rows.features[:, ::-1]
        trial.give_rows(party, rows)
    with pytest.raises(HelperMissingError):
        rehearse(trial.folder, run_config(mode=mode), is_gone=vanishes(2, INVITE))
    assert [event["certified"] for event in events(trial) if event["event"] == "failure"] == [True]
    assert [site(trial, party).count_totals()[0] for party in trial.rows] == [1, 1, 1, 1, 2]
    assert is_wiped(trial)
    with pytest.raises(StoppedRunError):  # site 2, which was away, is told first
        rehearse(trial.folder, run_config(mode=mode))
    rehearse(trial.folder, run_config(mode=mode))
    is_exact(trial, [1, 2, 3, 4, 5])
    assert [site(trial, party).count_totals() for party in trial.rows] == [(2, 0)] * 4 + [(4, 0)]


def test_an_older_copy_of_a_key_holder_decrypts_nothing_that_it_certified_to_have_failed(trial: Trial) -> None:
    asked = answered(trial, question())
    own = ServerFile.read(trial.folder / "server" / "server.toml")
    sum_, secrets = Session.of(asked, own.roster).protocol, PartySecrets(identity=own.identity)
    server, failure = sum_.server(secrets=secrets), sum_.failure(secrets=secrets)
    assert failure is not None
    for party in trial.rows:
        server.receive(party, site(trial, party).join(asked)[party])
    requests, earlier = server.close_round(), trial.folder / "earlier"
    shutil.copytree(state(trial, HOLDER_SITE), earlier)
    site(trial, HOLDER_SITE).answer(asked.session, failure.requests())
    shutil.rmtree(state(trial, HOLDER_SITE))
    earlier.rename(state(trial, HOLDER_SITE))
    with pytest.raises(SiteFileError, match="behind: the query log must have"):
        site(trial, HOLDER_SITE).answer(asked.session, requests)


def test_a_client_without_the_key_holder_s_context_goes_on_with_the_others(trial: Trial) -> None:
    """Its node misses the question for the context alone, and is invited as all are."""
    rehearse(trial.folder, run_config(mode="masked+bfv"), is_gone=lambda party, kind: (party, kind) == (4, CONTEXT))
    is_exact(trial, [1, 2, 3, 4, 5])


def test_the_secret_key_never_leaves_its_sealed_file(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, held, said = [], set(), []
    generate = SessionKeyPair.generate

    def remember(*arguments: Any) -> SessionKeyPair:
        drawn.append(generate(*arguments))
        return drawn[-1]

    def hear(party: int, kind: str, content: bytes, answer: bytes | Refusal) -> bytes | Refusal:
        assert isinstance(answer, bytes)
        assert party == HOLDER_SITE or "key pair" not in kept(trial, party)
        held.update(stored(trial, party))
        said.append(answer)
        return answer

    monkeypatch.setattr(SessionKeyPair, "generate", remember)
    rehearse(trial.folder, run_config(mode="masked+bfv"), hear=hear)
    (pair,) = drawn
    secret = pair.decryption[-1024:-960]  # beyond the public key, which both halves hold
    assert secret not in pair.announcement
    assert any(len(content) > len(pair.decryption) for content in held)
    assert not any(secret in content for content in [*held, *said])
    assert repr(secret)[2:20] not in repr(pair)


@pytest.mark.parametrize(
    ("mode", "party", "type_"),
    [("committee", 101, MessageType.SURVIVOR_SET), ("masked+bfv", KEY_HOLDER_PARTY, MessageType.DECRYPTION_REQUEST)],
)
def test_a_helper_answers_one_request_whatever_process_is_asked(
    trial: Trial, mode: str, party: int, type_: MessageType
) -> None:
    refused = []
    server = IdentityKey(read_secret(trial.folder / "server" / "identity.key"))

    def hear(asked: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        if kind != STEP:
            return said
        session, requests = read_messages(content)
        if message_type(requests.get(party, b"")) is type_:
            digest = requests[party][6:38]
            other = seal_frame(type_, bytes(4), digest=digest, sender=SERVER, recipient=party, identity=server)
            for _ in range(2):
                with pytest.raises((LocalProtocolError, RemoteProtocolError), match=r"one survivor set|forgotten"):
                    site(trial, asked).answer(session, {party: other})
                refused.append(other)
        return said

    rehearse(trial.folder, run_config(mode=mode), hear=hear)
    is_exact(trial, [1, 2, 3, 4, 5])
    assert len(refused) == 2


def strangers_pair(asked: TrainingProposal, trial: Trial) -> SessionKeyPair:
    roster = Roster.read(trial.folder / "site-1" / "roster.toml")
    return SessionKeyPair.generate(MODES[asked.mode], config_of(asked, roster), knows(IdentityKey.generate()))


def test_a_stranger_s_context_is_refused_by_the_server(trial: Trial) -> None:
    def hear(party: int, kind: str, content: bytes, said: bytes | Refusal) -> bytes | Refusal:
        if (party, kind) != (1, CONTEXT):
            return said
        asked, _ = read_proposal(content)
        return write_messages({KEY_HOLDER_PARTY: strangers_pair(asked, trial).announcement}, session=asked.session)

    rehearse(trial.folder, run_config(mode="bfv"), hear=hear)
    is_exact(trial, [1, 2, 3, 4, 5])
    (refused,) = [event for event in events(trial) if event["event"] == "refused"]
    assert refused["node"] == "1"
    assert "not signed by key holder 201" in refused["reason"]


def test_a_context_is_made_once_for_one_proposal(trial: Trial) -> None:
    asked = question()
    proposed = answered(trial, asked)
    assert answered(trial, asked) == proposed
    with pytest.raises(NoSessionError, match="another proposal"):
        answered(trial, question(session=asked.session, min_survivors=4))
    first = site(trial, HOLDER_SITE).join(proposed)
    assert set(first) == {HOLDER_SITE, KEY_HOLDER_PARTY}
    assert answered(trial, asked) == proposed
    assert site(trial, HOLDER_SITE).join(proposed) == first
    site(trial, HOLDER_SITE).end(asked.session)
    with pytest.raises(NoSessionError, match="is over"):
        answered(trial, asked)
    assert kept(trial, HOLDER_SITE) == {"over"}


def test_only_the_key_holder_makes_a_context(trial: Trial) -> None:
    asked = question()
    assert site(trial, 1).announce(asked) == {}
    assert not state(trial, 1).exists()


def test_a_key_holder_s_own_file_decides(trial: Trial) -> None:
    path = trial.folder / f"site-{HOLDER_SITE}" / "site.toml"
    path.write_text(path.read_text().replace('"bfv", ', ""))
    with pytest.raises(DeclinedError, match="not in bfv"):
        answered(trial, question())
    with pytest.raises(DeclinedError, match="survivors in a total"):
        answered(trial, question("ckks", min_survivors=2))
    with pytest.raises(DeclinedError, match="key holders announce nothing"):
        answered(trial, question("masked", min_survivors=2))
    assert kept(trial, HOLDER_SITE) == set()


def test_contexts_that_are_not_the_key_holder_s_for_this_session_are_declined(trial: Trial) -> None:
    asked = question()
    of_another = answered(trial, question()).announced[KEY_HOLDER_PARTY]
    proposed = answered(trial, asked).announced[KEY_HOLDER_PARTY]
    forged = proposed[:SIGNATURE_BYTES] + of_another[SIGNATURE_BYTES:]
    for context, reason in (
        (of_another, "it signed for another session or mode"),
        (forged, "not signed by key holder"),
        (proposed[:-1], "not signed by key holder"),
        (b"x", "not signed by key holder"),
        (b"", "and none came"),
    ):
        with pytest.raises(DeclinedError, match=reason):
            site(trial, 1).join(asked.with_announced({KEY_HOLDER_PARTY: context}))
    assert set(site(trial, 1).join(asked.with_announced({KEY_HOLDER_PARTY: proposed}))) == {1}


def test_a_lost_key_pair_is_a_missing_key_holder(trial: Trial) -> None:
    proposed = answered(trial, question())
    folder = SessionStore(state(trial, HOLDER_SITE))
    with folder.locked():
        folder.run("DELETE FROM records WHERE session = ?", proposed.session)
    with pytest.raises(NoSessionError, match="key pair of this session is not here"):
        site(trial, HOLDER_SITE).join(proposed)


def test_a_key_pair_of_a_server_that_is_gone_is_forgotten(trial: Trial) -> None:
    asked = question()
    answered(trial, asked)
    assert kept(trial, HOLDER_SITE, asked.session) == {"invitation", "key pair"}
    day = time.time() + 25 * 3600
    site(trial, HOLDER_SITE, now=lambda: day).announce(question())
    assert kept(trial, HOLDER_SITE, asked.session) == {"over"}


def test_terms_name_the_roster_s_one_key_holder(trial: Trial) -> None:
    for helpers in ((), (101,), (KEY_HOLDER_PARTY, 202)):
        with pytest.raises(DeclinedError, match=r"one key holder|exactly the 1 key holder"):
            site(trial, 1).join(question(helpers=helpers).with_announced({KEY_HOLDER_PARTY: bytes(100)}))


def test_a_key_holder_makes_no_context_for_two(trial: Trial) -> None:
    with pytest.raises(DeclinedError, match="must name exactly the 1 key holders"):
        site(trial, HOLDER_SITE).announce(question(helpers=(KEY_HOLDER_PARTY, 202)))


def test_a_mode_whose_parties_nobody_listed_is_refused_before_anybody_waits(trial: Trial) -> None:
    path = trial.folder / "server" / "roster.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[key_holder]")])
    with pytest.raises(RunSettingsError, match=r"the mode bfv needs \[key_holder\] in the roster"):
        rehearse(trial.folder, run_config(mode="bfv"))


def test_a_site_without_the_extra_declines(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    proposed = answered(trial, question())
    monkeypatch.setitem(sys.modules, "tenseal", None)
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    from secagg.encryption.seal import load_public

    load_public.cache_clear()
    with pytest.raises(DeclinedError, match=r"pip install '\.\[he\]'"):
        site(trial, 1).join(proposed)
    assert set(site(trial, 1).join(proposal(session=new_session_id()))) == {1}


def test_tenseal_is_imported_when_it_is_used_and_not_before() -> None:
    modules = "analytic_secagg.server.training, analytic_secagg.site.message_handler"
    code = f"import sys, {modules}; sys.exit('tenseal' in sys.modules)"
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code]).returncode == 0


@pytest.mark.parametrize("mode", ENCRYPTED)
def test_a_missing_extra_says_what_to_install(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(RunSettingsError, match=r"pip install '\.\[he\]'"):
        RunSettings.of(template_settings() | {"mode": mode})
    assert RunSettings.of(template_settings()).mode == "masked"
