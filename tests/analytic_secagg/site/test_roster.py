"""Rosters that are none: what is said of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from analytic_secagg.modes import find_mode
from analytic_secagg.session_config import SessionConfig
from analytic_secagg.site.errors import SiteFileError
from analytic_secagg.site.roster import Roster
from secagg import ClientPolicy, Layout, PolicyError, SumProtocol

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
