"""Epochs of a helper's sealing key: recorded uploads open with nothing that is left in its folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.memory_store import MemoryStore
from support.rehearsed import announced, database, edit, kept, proposal, rehearse, run_config, site, state

from analytic_secagg.__main__ import main
from analytic_secagg.errors import FederationError
from analytic_secagg.site.errors import DeclinedError, NoSessionError, SiteFileError, UnreachableError
from analytic_secagg.site.key_files import read_secret
from analytic_secagg.site.proposal import TrainingProposal
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from secagg import CommitteeSum, FileStore
from secagg.committee import KeyRotation, RollbackProtection, SealingKey
from secagg.committee.messages import BOX_LABEL, CommitteeInput, box_binding
from secagg.errors import ConfigurationError, PolicyError, SecureSumError
from secagg.primitives.boxes import BoxKey
from secagg.primitives.derivation import derive_key
from secagg.primitives.identity import IdentityKey
from secagg.primitives.sealing import SealBrokenError, open_sealed
from secagg.wire import Reader, payload_of

HELPER, HELPER_SITE, CLIENT = 101, 1, 3
DAY = 86400.0


def proposed(trial: Trial) -> TrainingProposal:
    return announced(trial, proposal(mode="committee", helpers=(101, 102), min_survivors=3))


def recorded_box(trial: Trial, invited: TrainingProposal) -> tuple[bytes, bytes]:
    """The box of the helper in an honest client's upload, as whoever taps the wire has it, and what it is bound to."""
    upload = site(trial, CLIENT).join(invited)[CLIENT]
    config = Session.of(invited, Roster.read(trial.folder / "site-3" / "roster.toml")).protocol
    assert isinstance(config, CommitteeSum)
    read = CommitteeInput.read(Reader(memoryview(payload_of(upload)), peer=CLIENT), config)
    return read.boxes[HELPER], box_binding(config.digest, CLIENT, HELPER)


def secrets_in(trial: Trial, session: bytes) -> Iterator[bytes]:
    """Whatever could be a secret in the helper's folder, taken whole: files, keys, records opened with them."""
    folder = trial.folder / f"site-{HELPER_SITE}"
    lasting = [bytes.fromhex(path.read_text().strip()) for path in folder.glob("*.key")]
    file = SiteFile.read(folder / "site.toml")
    keys = [*lasting, *(derive_key(secret, label) for secret in lasting for label in LABELS)]
    keys += [file.state_key(f"record of {party}", session) for party in (HELPER, HELPER_SITE)]
    with database(trial, HELPER_SITE) as opened:
        records = [content for (content,) in opened.execute("SELECT content FROM records")]
    contents = [*records, *keys]
    for key, record in itertools.product(keys, records):
        for label in (b"committee sealing key",):
            try:
                contents.append(open_sealed(key, record, label))
            except SealBrokenError:
                continue
    for content in contents:
        yield from (content[place : place + 32] for place in range(max(1, min(len(content) - 31, 64))))


LABELS = ("sealing epochs", "helper's box key", "helper's identity")


def opens(trial: Trial, session: bytes, box: bytes, binding: bytes) -> bool:
    for secret in secrets_in(trial, session):
        if len(secret) == 32:
            try:
                BoxKey(secret).open(box, BOX_LABEL, binding)
            except SealBrokenError:
                continue
            return True
    return False


@pytest.mark.parametrize("how", ["command", "time"])
def test_what_was_recorded_stays_closed_when_its_epoch_is_over(trial: Trial, how: str) -> None:
    """Before the end the very same search opens it: the folder holds a secret then, and none afterwards."""
    invited = proposed(trial)
    box, binding = recorded_box(trial, invited)
    site(trial, HELPER_SITE).join(invited)
    assert opens(trial, invited.session, box, binding)
    with database(trial, HELPER_SITE) as opened:
        ((sealed,),) = opened.execute("SELECT content FROM records WHERE name = ?", [f"epochs of {HELPER}"])
    if how == "command":
        assert main(["epoch", str(trial.folder / f"site-{HELPER_SITE}" / "site.toml")]) == 0
    else:
        later = 31 * DAY + next(iter(SealingKey.from_bytes(key).until for key in invited.announced.values()))
        site(trial, HELPER_SITE, now=lambda: later).sweep()
    assert not opens(trial, invited.session, box, binding)
    assert not any(sealed in path.read_bytes() for path in state(trial, HELPER_SITE).glob("*"))
    assert kept(trial, HELPER_SITE, invited.session) == {"over"}
    with pytest.raises(NoSessionError, match="is over"):
        site(trial, HELPER_SITE).join(invited)


def test_a_sum_sealed_to_an_epoch_that_is_over_is_not_helped(trial: Trial) -> None:
    invited = proposed(trial)
    site(trial, HELPER_SITE).begin_epoch()
    with pytest.raises(NoSessionError, match="whose epoch is over; it opens no more"):
        site(trial, HELPER_SITE).join(invited)


def test_a_number_that_is_refused_costs_no_session(trial: Trial) -> None:
    invited = proposed(trial)
    site(trial, HELPER_SITE).join(invited)
    before = kept(trial, HELPER_SITE, invited.session)
    with pytest.raises(ConfigurationError, match="a number of 2 to"):
        site(trial, HELPER_SITE).begin_epoch(number=1)
    assert kept(trial, HELPER_SITE, invited.session) == before != {"over"}


def test_no_server_takes_a_site_back_to_an_older_epoch(trial: Trial) -> None:
    """It has the old key, well signed, and hands it out again: to have boxes sealed to what may have been seized."""
    old = proposed(trial)
    site(trial, HELPER_SITE).begin_epoch()
    new = proposed(trial)
    assert old.announced[102] == new.announced[102]
    site(trial, CLIENT).join(new)
    with pytest.raises(DeclinedError, match="has accepted epoch 2 of a helper, and this sum's key is of epoch 1"):
        site(trial, CLIENT).join(old)
    assert set(site(trial, 4).join(old)) == {4}, "one that has not seen epoch 2 cannot know"
    edit(trial, 5, ("[policy]", "[policy]\nmin_epoch = 2"))
    with pytest.raises(DeclinedError, match="epoch 2 or later, one of this sum has epoch 1"):
        site(trial, 5).join(old)


def forged(key: SealingKey, kind: str, identity: IdentityKey) -> bytes:
    other = BoxKey(b"o" * 32).public
    return {
        "a stranger's": SealingKey.signed(IdentityKey.generate(), other).to_bytes(),
        "another key": replace(key, key=other).to_bytes(),
        "a later epoch": replace(key, epoch=key.epoch + 1).to_bytes(),
        "a longer epoch": replace(key, until=key.until + 1).to_bytes(),
        "half a key": key.to_bytes()[:-1],
        "of small order": SealingKey.signed(identity, key.key[:-32] + bytes(32)).to_bytes(),
        "no epoch": SealingKey.signed(identity, key.key, epoch=0).to_bytes(),
        "a second key of the epoch": SealingKey.signed(identity, other, epoch=key.epoch, until=key.until).to_bytes(),
        "one that has ended": SealingKey.signed(identity, key.key, epoch=key.epoch, until=1).to_bytes(),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("a stranger's", "is not signed by the helper's identity"),
        ("another key", "is not signed by the helper's identity"),
        ("a later epoch", "is not signed by the helper's identity"),
        ("a longer epoch", "is not signed by the helper's identity"),
        ("half a key", "has 1292 bytes"),
        ("of small order", "small order"),
        ("no epoch", "numbered 1 to 4294967295, not 0"),
        ("a second key of the epoch", "signed two sealing keys for its epoch 1"),
        ("one that has ended", "epoch 1 of a helper has ended"),
    ],
)
def test_a_sealing_key_that_its_helper_did_not_sign_for_this_time_is_declined(
    trial: Trial, kind: str, reason: str
) -> None:
    invited = proposed(trial)
    identity = IdentityKey(read_secret(trial.folder / f"site-{HELPER_SITE}" / "helper.key"))
    site(trial, CLIENT).join(invited)
    changed = forged(SealingKey.from_bytes(invited.announced[HELPER]), kind, identity)
    other = proposed(trial).with_announced({**invited.announced, HELPER: changed})
    with pytest.raises(DeclinedError, match=reason):
        site(trial, CLIENT).join(other)


def test_a_run_goes_on_over_epochs_and_without_a_helper_s_host_where_the_committee_bears_it(trial: Trial) -> None:
    """The server knows the sealing key of a helper that is away now, and of none that was never there."""
    config = run_config(mode="committee")
    with pytest.raises(UnreachableError, match="helper 102 did not answer; nothing can be sealed to it"):
        rehearse(trial.folder, config, is_gone=lambda party, kind: party == 2)
    rehearse(trial.folder, config)
    site(trial, HELPER_SITE).begin_epoch()
    rehearse(trial.folder, config)
    known = trial.folder / "server" / "models" / "announced" / f"sealing-key-{HELPER}"
    assert SealingKey.from_bytes(known.read_bytes()).epoch == 2
    with pytest.raises((SecureSumError, FederationError), match="1 of the 2 helpers did not answer"):
        rehearse(trial.folder, config, is_gone=lambda party, kind: party == 2)


def test_files_say_how_long_an_epoch_is_where_there_are_some(trial: Trial, capsys: pytest.CaptureFixture[str]) -> None:
    edit(trial, 1, ('identity = "helper.key"', 'identity = "helper.key"\nepoch_days = 0.5'))
    noon = site(trial, 1, now=lambda: 1000.0).begin_epoch()
    assert {party: (key.epoch, key.until) for party, key in noon.items()} == {101: (1, 1000 + 43200)}
    path = str(trial.folder / "site-1" / "site.toml")
    assert main(["epoch", path, "--number", "12"]) == 0
    assert "helper 101: epoch 12 until " in capsys.readouterr().out
    assert main(["epoch", path, "--number", "12"]) == 2
    assert "a number of 13 to 4294967295" in capsys.readouterr().err
    assert main(["epoch", str(trial.folder / "site-3" / "site.toml")]) == 2
    edit(trial, 5, ('identity = "key-holder.key"', 'identity = "key-holder.key"\nepoch_days = 1'))
    with pytest.raises(SiteFileError, match=r"\[key_holder\] has no epochs"):
        SiteFile.read(trial.folder / "site-5" / "site.toml")


def test_a_program_keeps_epochs_in_stores_of_its_own(tmp_path: Path) -> None:
    identity, store = IdentityKey(b"i" * 32), FileStore(tmp_path / "epochs")
    own, seen = KeyRotation(store, identity), RollbackProtection(MemoryStore())
    assert own.current(0.0) is None
    first = own.begin(0.0, 10.0)
    running = KeyRotation(FileStore(tmp_path / "epochs"), identity).current(9.0)
    assert running is not None
    assert (running[0], running[1].public) == (first, first.key)
    seen.accept({identity.public: first}, 9.0)
    assert own.current(10.0) is None
    second = own.begin(11.0, 10.0)
    assert second.epoch == 2
    seen.accept({identity.public: second}, 11.0)
    with pytest.raises(PolicyError, match="epoch 1"):
        seen.accept({identity.public: first}, 9.0)
    with pytest.raises(ConfigurationError, match="lasts for a while"):
        own.begin(11.0, 0.0)
    with pytest.raises(SecureSumError, match="another identity, or changed bytes"):
        KeyRotation(store, IdentityKey(b"j" * 32)).current(0.0)
