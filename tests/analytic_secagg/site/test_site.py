"""A site by itself: its files and roster, its sessions, and what it answers after it died."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.rehearsed import agree_on, announced, edit, kept, proposal, site

from analytic.errors import InvalidRowsError
from analytic_secagg.modes import find_mode
from analytic_secagg.privacy import PrivacyPlan
from analytic_secagg.server.run_settings import RunSettings, template_settings
from analytic_secagg.server.server_file import ServerFile
from analytic_secagg.session_config import SessionConfig
from analytic_secagg.site import proposal as proposals
from analytic_secagg.site.errors import DeclinedError, NoSessionError, RunSettingsError, SiteFileError, WireError
from analytic_secagg.site.key_files import read_secret, write_secret
from analytic_secagg.site.roster import Roster
from analytic_secagg.site.session import Session
from analytic_secagg.site.site_file import SiteFile
from analytic_secagg.trial import Trial
from secagg import ClientPolicy, Layout, PlainSum, PolicyError, SumProtocol
from secagg.config import SERVER
from secagg.errors import LocalProtocolError, RemoteProtocolError
from secagg.primitives.identity import IdentityKey
from secagg.wire import MessageType, seal_frame

HOUR = 3600.0


def test_a_site_with_more_rows_than_its_roster_allows_sends_nothing(trial: Trial) -> None:
    """And a party whose roster allows another number is in another sum."""
    rows, digests = len(trial.rows[1]), set()
    roster = Roster.read(trial.folder / "site-1" / "roster.toml")
    proposed = announced(trial, proposal(mode="committee", helpers=(101, 102), min_survivors=3))
    for most in (rows - 1, rows, None):
        bounded = roster.model_copy(update={"max_client_rows": most})
        (trial.folder / "site-1" / "roster.toml").write_text(bounded.to_toml())
        assert Roster.read(trial.folder / "site-1" / "roster.toml") == bounded
        digests |= {Session.of(proposed, bounded).protocol.digest, bounded.fingerprint}
        if most == rows - 1:
            with pytest.raises(InvalidRowsError, match=f"one client may hold {most} rows"):
                site(trial, 1).join(proposed)
            assert site(trial, 1).count_totals() == (0, 0)
        elif most == rows:
            assert site(trial, 1).join(proposed)[1]
    assert len(digests) == 6


def test_a_session_id_serves_one_sum(trial: Trial) -> None:
    proposed = proposal()
    site(trial, 1).join(proposed)
    other = proposal(session=proposed.session, dropout=0.2)
    with pytest.raises(NoSessionError, match="another proposal"):
        site(trial, 1).join(other)
    site(trial, 1).end(proposed.session)
    with pytest.raises(NoSessionError, match="is over"):
        site(trial, 1).join(proposed)
    with pytest.raises(NoSessionError, match="no such session"):
        site(trial, 1).answer(proposed.session, {1: b""})
    assert kept(trial, 1) == {"over"}


def test_an_aborted_session_stays_aborted_in_the_next_process(trial: Trial) -> None:
    proposed = proposal()
    site(trial, 1).join(proposed)
    protocol = Session.of(proposed, SiteFile.read(trial.folder / "site-1" / "site.toml").roster).protocol
    digest = protocol.digest  # type: ignore[attr-defined]
    own = IdentityKey(read_secret(trial.folder / "server" / "identity.key"))
    wrong = seal_frame(MessageType.UNMASK_REQUEST, bytes(4), digest=digest, sender=SERVER, recipient=1, identity=own)
    with pytest.raises(RemoteProtocolError, match="ROSTER is due"):
        site(trial, 1).answer(proposed.session, {1: wrong})
    with pytest.raises(LocalProtocolError, match="aborted"):
        site(trial, 1).answer(proposed.session, {1: wrong})


def test_a_site_answers_for_itself_only(trial: Trial) -> None:
    proposed = proposal()
    site(trial, 1).join(proposed)
    with pytest.raises(NoSessionError, match="a party that it is not"):
        site(trial, 1).answer(proposed.session, {2: b"message"})


def test_the_next_sum_of_a_run_ends_the_one_before(trial: Trial) -> None:
    first = proposal()
    site(trial, 1).join(first)
    site(trial, 1).join(proposal(previous=first.session))
    assert kept(trial, 1, first.session) == {"over"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mode": "plain"}, "masked"),
        ({"clients": (1, 2, 3), "dropout": 0.0}, "exactly the 5 clients"),
        ({"mode": "committee", "helpers": (101, 102), "min_survivors": 2}, "survivors in a total of at least 3"),
        ({"mode": "committee", "helpers": (101,), "min_survivors": 3}, "exactly the 2 helpers"),
        ({"clients": (1, 2, 3, 4, 6)}, "they name 5, of which 1 are not in the roster"),
        ({"clients": (2, 3, 4, 5)}, "exactly the 5 clients"),
    ],
)
def test_a_site_declines_what_its_own_file_forbids(trial: Trial, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclinedError, match=reason):
        site(trial, 1).join(announced(trial, proposal(**changes)))
    assert not kept(trial, 1) & {"over", "invitation"}


def test_a_site_declines_more_columns_than_rows_can_come(trial: Trial) -> None:
    """By its own roster: random features of a server's choice, whose total gives every row away."""
    for party in (1, 2):
        edit(trial, party, ('learners = ["afl"]', 'learners = ["random"]'))
    agree_on(trial, max_client_rows=400)
    for n_columns, party in ((2000, 1), (1999, 2)):
        settings = template_settings() | {"learner": "random", "options": f"d_phi={n_columns}"}
        learner: Any = RunSettings.of(settings).build_learner(5)
        proposed = proposal(learner)
        if n_columns < 5 * 400:
            assert site(trial, party).join(proposed)
            continue
        with pytest.raises(DeclinedError, match="sums the Gram of 2000 columns over at most 2000 rows"):
            site(trial, party).join(proposed)
        assert kept(trial, party) == set()


@pytest.mark.parametrize("name", ["afl", "deepafl"])
def test_a_site_declines_a_private_form_whose_totals_would_be_exact(trial: Trial, name: str) -> None:
    """Rows normalised around a centre that the server chose: those that equal it are missing from the Gram's trace."""
    edit(trial, 1, ('learners = ["afl"]', f'learners = ["{name}"]'))
    settings = RunSettings.of(template_settings() | {"learner": name})
    learner: Any = settings.build_learner(5)
    plan = PrivacyPlan(epsilon=8.0, min_noise_shares=3, colluders=1)
    for private in (plan.bounded(learner), plan.apply(learner).learner):
        with pytest.raises(DeclinedError, match="maps rows for sums with noise, and this sum has none"):
            site(trial, 1).join(proposal(private))
    assert kept(trial, 1) == set()
    assert site(trial, 1).join(proposal(learner))


def test_a_site_makes_no_learner_to_which_it_does_not_contribute(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so before; a site that helps in the sum goes on helping, without its client."""
    proposed = proposal()
    edit(trial, 1, ('learners = ["afl"]', 'learners = ["fedhip"]'))
    helped = announced(trial, proposal(mode="committee", helpers=(101, 102), min_survivors=3))
    assert site(trial, 1).join(helped).keys() == {101}
    site(trial, 1).end(helped.session)
    monkeypatch.setattr(proposals, "model_from_bytes", lambda content: pytest.fail("it was made"))
    refused = pytest.raises(DeclinedError, match="contributes to fedhip only, not to afl")
    with refused:
        site(trial, 1).join(proposed)
    assert kept(trial, 1, proposed.session) == set()
    with pytest.raises(WireError, match="no model of this version"):
        site(trial, 1).join(replace(proposed, model=b"no model"))


def test_min_corruption_of_the_site_decides(trial: Trial) -> None:
    path = trial.folder / "site-1" / "site.toml"
    path.write_text(path.read_text() + "\n")
    path.write_text(path.read_text().replace("min_corruption = 0.0", "min_corruption = 0.2"))
    with pytest.raises(DeclinedError, match=r"1 colluding clients .* tolerates 0"):
        site(trial, 1).join(proposal())
    site(trial, 1).join(proposal(corruption=0.2, dropout=0.2))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("party = 5", "party = 2", "another identity for client 2"),
        ("party = 5", "party = 9", "another identity for client 9"),
        ("party = 5", 'party = "5"', "party as a whole number, not a text in quotes"),
        ('data = "rows.npz"', 'data = "rows.doc"', ".parquet, or module:function"),
        ('data = "rows.npz"', 'data = "rows.csv"', "belong together: state columns"),
        (
            'data = "rows.npz"',
            'data = "rows.npz"\ntest = "rows.csv"',
            "test has the form of data: a table with a table",
        ),
        ("min_survivors = 3", "min_survivor = 3", "no place for min_survivor"),
        ("min_survivors = 3", "min_survivors = true", "min_survivors as a whole number, not true or false"),
        ("modes = [", "modes = [1, ", "modes as a list of strings, and a whole number is in it"),
        ("min_corruption = 0.0", "min_corruption = 1", "needs min_corruption below 1, not 1"),
        ("modes = [", 'modes = ["maskd", ', "there is no maskd"),
        ("party = 201", "party = 202", "another identity for key holder 202"),
        ('"key-holder.key"', '"identity.key"', "another identity for key holder 201"),
        ('roster = "roster.toml"', 'roster = "none.toml"', "cannot read"),
        ("[client]", "[clients]", "no place for clients"),
        ("[key_holder]", "[helpers]", "no place for helpers"),
        ("party = 201", 'party = "201"', r"\[key_holder\] needs party as a whole number, not a text in quotes"),
        ("party = 201\n", "", r"\[key_holder\] needs party as a whole number, not nothing"),
        ("[policy]", '["own roles"]\n[policy]', "no place for own roles"),
        ("[client]", "forget_hours = nan\n[client]", "needs forget_hours at least 0, not nan"),
        ("[policy]", "[policy", "must be TOML"),
    ],
)
def test_a_site_file_says_what_is_wrong(trial: Trial, old: str, new: str, reason: str) -> None:
    path = trial.folder / "site-5" / "site.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(SiteFileError, match=reason):
        SiteFile.read(path)


def test_keys_and_folders_are_their_owner_s_alone(trial: Trial) -> None:
    folder = trial.folder / "site-3"
    (folder / "identity.key").chmod(0o640)
    with pytest.raises(SiteFileError, match="chmod 600"):
        SiteFile.read(folder / "site.toml")
    (folder / "identity.key").chmod(0o600)
    (folder / "state").mkdir(mode=0o755)
    with pytest.raises(SiteFileError, match="chmod 700"):
        site(trial, 3).join(proposal())


def test_a_key_file_is_never_replaced(tmp_path: Path) -> None:
    write_secret(tmp_path / "key", bytes(32))
    with pytest.raises(SiteFileError, match="never overwritten"):
        write_secret(tmp_path / "key", bytes(32))
    (tmp_path / "key").write_text("short")
    with pytest.raises(SiteFileError, match="64 hexadecimal"):
        read_secret(tmp_path / "key")


def test_the_server_s_file(trial: Trial) -> None:
    path = trial.folder / "server" / "server.toml"
    assert ServerFile.read(path).identity.secret.hex() not in repr(ServerFile.read(path))
    key = path.parent / "identity.key"
    key.unlink()
    write_secret(key, IdentityKey.generate().secret)
    with pytest.raises(SiteFileError, match="another server identity"):
        ServerFile.read(path)


def test_no_secret_is_printed(trial: Trial) -> None:
    file = SiteFile.read(trial.folder / "site-1" / "site.toml")
    assert file.client is not None
    (helper,) = file.helpers
    for secret in (file.client.identity.secret, helper.identity.secret):
        assert secret.hex() not in repr(file)
        assert repr(secret) not in repr(file)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("mode", "secret", "mode must be one of"),
        ("learner", "mlp", "learner must be one of"),
        ("quorum", 0.0, "needs quorum above 0, not 0"),
        ("quorum", 1.5, "needs quorum at most 1, not 1.5"),
        ("round-seconds", -1.0, "needs round-seconds above 0, not -1"),
        ("at-once", -1, "needs at-once at least 0, not -1"),
        ("colour", "red", "the run configuration has no place for colour"),
        ("n-features", 1.5, "n-features as a whole number, not a number"),
        ("n-features", None, "n-features as a whole number, not nothing"),
        ("feature-format", "Q", "cannot be set up"),
        ("options", "n_layers=2", "cannot be set up"),
        ("ridge", -1.0, "cannot be set up"),
    ],
)
def test_run_settings_say_what_is_wrong(name: str, value: Any, reason: str) -> None:
    with pytest.raises(RunSettingsError, match=reason):
        RunSettings.of(template_settings() | {name: value}).build_learner(5)


def test_rosters_agree_by_their_fingerprint(trial: Trial, tmp_path: Path) -> None:
    roster = Roster.read(trial.folder / "site-1" / "roster.toml")
    assert Roster.read(trial.folder / "server" / "roster.toml").fingerprint == roster.fingerprint
    swapped = Roster(
        server=roster.server,
        clients=roster.clients | {1: roster.clients[2], 2: roster.clients[1]},
        beside=roster.beside,
    )
    assert swapped.fingerprint != roster.fingerprint
    (tmp_path / "roster.toml").write_text(roster.to_toml().replace("[helpers]", "[helper]"))
    with pytest.raises(SiteFileError):
        Roster.read(tmp_path / "roster.toml")


def test_plain_sums_are_not_what_a_site_takes_part_in_by_default(trial: Trial, tmp_path: Path) -> None:
    path = trial.folder / "site-3" / "site.toml"
    text = path.read_text()
    path.write_text(text[: text.index("[policy]")])
    policy = SiteFile.read(path).policy
    assert policy.modes == {"masked"}
    assert isinstance(Session.of(proposal(mode="plain"), SiteFile.read(path).roster).protocol, PlainSum)


KEY, OTHER, SERVER_KEY = "ab" * 32, "cd" * 32, "ef" * 32


@pytest.mark.parametrize(
    ("tables", "reason"),
    [
        ("[clients]\n", "needs clients and lists none"),
        (f'[clients]\n1 = "{KEY}"\n[key_holder]\n201 = "{KEY}"\n202 = "{KEY}"', "names one party, not 2; leave one"),
        (f'[clients]\n1 = "{KEY}"\n[helpers]\n1 = "{KEY}"', "number of its own; 1 is in two tables"),
        (f'[clients]\none = "{KEY}"', "a number of 1 to 2.32 - 1, not 'one'"),
        (f'[clients]\n0 = "{KEY}"', "a number of 1 to 2.32 - 1, not '0'"),
        (f'[clients]\n{1 << 32} = "{KEY}"', "a number of 1 to 2.32 - 1"),
        (f'[clients]\n1 = "{KEY[:-1]}"', "public key of party 1 must be 64 hexadecimal digits"),
        (f'[clients]\n1 = "{KEY}{KEY}"', "public key of party 1 must be 64 hexadecimal digits"),
        (f'[clients]\n1 = "{KEY}"\n[helpers]\n7 = "{39 * KEY}"', "public key of party 7 must be 64 hexadecimal digits"),
        ("[clients]\n1 = 7", "public key of party 1 must be 64 hexadecimal digits"),
        (f'[clients]\n1 = "{KEY}"\n[client]\n', "no place for client"),
        (f'[clients]\n1 = "{KEY}"\n["own roles"]\n7 = "{KEY}"', "no place for own roles"),
        (f'[clients]\n1 = "{KEY}"\n[beside.clients]\n7 = "{OTHER}"', r"no place for clients in \[beside\]"),
        (f'[clients]\n1 = "{KEY}"\n[beside."own roles"]\n7 = "{OTHER}"', r"no place for own roles in \[beside\]"),
        (f'[clients]\n1 = "{KEY}"\n[helpers]\n[beside.helpers]\n7 = "{OTHER}"', r"two tables of helpers"),
        (f'[clients]\n1 = "{KEY}"\n[beside.veilers]\n1 = "{OTHER}"', "number of its own; 1 is in two tables"),
        (f'beside = 7\n[clients]\n1 = "{KEY}"', "needs beside as a table, not a whole number"),
        (f'totals = [2]\n[clients]\n1 = "{KEY}"', "totals go to parties of this roster, .* and 2 is none"),
        ("clients = 7", "needs clients as a table, not a whole number"),
        (f'beacon = "dice"\n[clients]\n1 = "{KEY}"', "beacon must be 64 hexadecimal digits"),
        (f'[clients]\n1 = "{SERVER_KEY}"', "the server and party 1 have one key"),
        (f'[clients]\n1 = "{OTHER}"\n[key_holder]\n7 = "{OTHER}"', "party 1 and party 7 have one key"),
        (f'[clients]\n1 = "01{31 * "00"}"', "public key of party 1 has small order"),
        (f'helpers = 7\n[clients]\n1 = "{KEY}"', "needs helpers as a table, not a whole number"),
    ],
)
def test_a_bad_roster_is_refused(tmp_path: Path, tables: str, reason: str) -> None:
    path = tmp_path / "roster.toml"
    path.write_text(f'server = "{SERVER_KEY}"\n{tables}\n')
    with pytest.raises(SiteFileError, match=reason):
        Roster.read(path)


def test_the_server_needs_a_key_too(tmp_path: Path) -> None:
    (tmp_path / "roster.toml").write_text(f'server = "me"\n[clients]\n1 = "{KEY}"\n')
    with pytest.raises(SiteFileError, match="public key of the server must be 64 hexadecimal digits"):
        Roster.read(tmp_path / "roster.toml")


def test_the_beacon_is_the_operator_s_and_everybody_s(tmp_path: Path) -> None:
    """It stands in the file and in the fingerprint, and two parties with different ones have different graphs."""
    clients = {party: party.to_bytes(32, "big") for party in range(1, 41)}
    rosters = [Roster(server=b"s" * 32, clients=clients, beacon=beacon) for beacon in (b"a" * 32, b"b" * 32, b"")]
    assert len({roster.fingerprint for roster in rosters}) == 3
    (tmp_path / "roster.toml").write_text(rosters[0].to_toml())
    assert Roster.read(tmp_path / "roster.toml") == rosters[0]
    mine, other, none = (_masked(roster) for roster in rosters)
    assert mine.guarantee.drawn_graph is not None
    assert none.guarantee.drawn_graph is None
    assert len({mine.digest, other.digest, none.digest}) == 3
    site = ClientPolicy(identities=clients, beacon=rosters[0].beacon, min_corruption=0.05)
    site.check(mine)
    site.check(none)
    with pytest.raises(PolicyError, match="the first 1 of this site's beacon, and is another"):
        site.check(other)


def test_the_sums_of_a_series_stand_on_the_beacon_s_graph_too() -> None:
    clients = {party: party.to_bytes(32, "big") for party in range(1, 41)}
    setup = _setup(Roster(server=b"s" * 32, clients=clients, beacon=b"a" * 32))
    series, alone = find_mode("masked").series(setup), find_mode("masked").make(setup)
    for number in (0, 1):
        assert series.sum(number, setup.layout, b"").guarantee == alone.guarantee


def _setup(roster: Roster) -> SessionConfig:
    """As an invitation makes it."""
    return SessionConfig(
        layout=Layout.of([("s", 2, 100)]),
        clients=tuple(roster.clients),
        session_id=bytes(16),
        client_keys=roster.clients,
        server_key=roster.server,
        beacon=roster.beacon,
        corruption=0.05,
        dropout=0.05,
    )


def _masked(roster: Roster) -> SumProtocol:
    return find_mode("masked").make(_setup(roster))
